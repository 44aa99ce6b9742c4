// SPDX-License-Identifier: Apache-2.0
//! What a trial asks for, and what was seen.

mod parameters;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::account::{Accounted, PortTotals};
use crate::calibration::CitedCalibration;
use crate::latency::{DelayVariation, LatencySummary, LowRateStreams};
use crate::traffic::smallest as smallest_frame;
use crate::traffic::{Capture, ReplayError, Sizes, Timing, Traffic};
use crate::validity::{InvalidCause, Validity};
use parameters::FRAME_SIZES;

pub use parameters::{
    DESTINATIONS_MAX, Directions, FrameSizes, IpVersion, MAC_ADDRESSES_MAX, OFFERED_RATE_PPS_MAX,
};

/// One trial, as asked for (RFC 2544, section 24: "Trial description").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Offered load in frames per second, summed over all transmitting ports, or [`Trial::UNPACED`]. JSON has no number for the
    /// latter.
    #[serde(default = "unpaced", skip_serializing_if = "is_unpaced")]
    pub offered_rate_pps: f64,
    /// How long frames are offered, seconds.
    pub duration_s: f64,
    /// How long the same load is offered before anything is counted, seconds.
    pub warm_up_s: f64,
    /// How long the tester goes on receiving after the last frame, seconds.
    pub drain_s: f64,
    /// Frame sizes with FCS.
    pub frame_sizes: FrameSizes,
    /// Which ports transmit.
    pub directions: Directions,
    /// Flows per transmitting port (distinct UDP source ports), 1 to 65535.
    pub flows: u16,
    /// Distinct destination MAC addresses per transmitting port, at least 1.
    pub mac_addresses: u32,
    /// Distinct IP destinations per transmitting port, at least 1. With more than one they are drawn at random, each of
    /// a network of its own: with IPv4 a /24 from 16.0.0.0 on, with IPv6 a /48 from 3fff:: on. The second port of a pair
    /// draws them from 48.0.0.0 and 3fff:20:: on, so that a router can tell the directions apart.
    #[serde(default = "one")]
    pub destinations: u32,
    /// Which IP the frames carry.
    #[serde(default)]
    pub ip: IpVersion,
    /// Frames per second of the low-rate stream that each transmitting port sends as part of its load, to measure latency
    /// with; 0 for none. Every second frame of the load at most is one of them.
    #[serde(default)]
    pub low_rate_pps: f64,
    /// True if the device sends frames back to the port that sent them, and they count there. Otherwise they count at the other
    /// port of the pair only.
    #[serde(default)]
    pub reflected: bool,
    /// How far the achieved rate may be from the offered one, frames per second; further, and the trial is invalid. A search permits
    /// half of the width to which it finds a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_tolerance_pps: Option<f64>,
    /// A description of the traffic, which says all that it says instead of the keys above: headers, flows, sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Box<Traffic>>,
}

/// Frames per second of a low-rate stream unless said.
pub const LOW_RATE_PPS: f64 = 5.0;
/// Frames per second of a low-rate stream at most.
pub const LOW_RATE_PPS_MAX: f64 = 1000.0;

fn one() -> u32 {
    1
}

fn unpaced() -> f64 {
    Trial::UNPACED
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_unpaced(rate_pps: &f64) -> bool {
    *rate_pps == Trial::UNPACED
}

/// How well the tester itself did. Anything here is the tester's own doing, not the device's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TesterHealth {
    /// Frames that the schedule held and the tester never offered.
    pub unsent_frames: u64,
    /// `unsent_frames` over the frames of the schedule: by how much the rate was missed.
    pub pacing_miss_ratio: f64,
    /// Frames sent late: more than 100 microseconds or two bursts after they were due, or to make good a pause. Their latency begins
    /// when they were sent.
    #[serde(default)]
    pub late_frames: u64,
    /// Bursts that started later than one burst time after their due time.
    pub late_bursts: u64,
    /// All bursts sent.
    pub bursts: u64,
    /// Longest time between two turns of the tester's own loop, nanoseconds.
    pub longest_gap_ns: u64,
    /// Longest time that the host kept the tester from running at a place where it does nothing, nanoseconds.
    #[serde(default)]
    pub longest_host_gap_ns: u64,
    /// Frames that the tester's receive rings had no room for at most, because the tester did not receive in time: the
    /// device or the peer drops them, and the tester is to blame.
    #[serde(default)]
    pub missed_at_most_frames: u64,
    /// Number of gaps of the tester's own loop over 100 microseconds.
    pub gaps_over_100us: u64,
    /// Sum of those gaps, nanoseconds.
    pub gap_time_ns: u64,
    /// Whether the tester thread had real-time priority.
    pub realtime: bool,
    /// Frames that the tester's own receive path dropped (port counters).
    pub receive_drops: u64,
    /// Time from the start of a transmit burst to that of the next on the same port. Its percentiles beside
    /// `burst_time_ns` tell how even the stream was.
    #[serde(default)]
    pub burst_gaps: LatencySummary,
    /// Time that the frames of a whole burst take at the rate of one port, nanoseconds; 0 where there was no schedule.
    #[serde(default)]
    pub burst_time_ns: f64,
    /// Cycles of the time stamp counter that making one frame took: its buffer, its octets, its time stamp; not the driver.
    #[serde(default)]
    pub generate_cycles: f64,
    /// Cycles of the time stamp counter that looking at one received frame took, and freeing it; not the driver.
    #[serde(default)]
    pub check_cycles: f64,
    /// By how much the last frame left after the end of the schedule, over the duration asked for.
    #[serde(default)]
    pub stretch_ratio: f64,
    /// How much longer the trial took by the tester's own clock (the time stamp counter) than by the kernel's
    /// (`CLOCK_MONOTONIC_RAW`), as a ratio of the latter: negative when it took less.
    #[serde(default)]
    pub clock_error_ratio: f64,
    /// By how much the trial ended after its deadline, nanoseconds.
    #[serde(default)]
    pub overrun_ns: u64,
    /// Frames of this trial's mark that came back and were never sent: of a flow or a sequence number that was not used.
    #[serde(default)]
    pub phantom_frames: u64,
    /// Negative loss: frames received over those offered, summed over the flows of which more came than went.
    #[serde(default)]
    pub excess_frames: u64,
}

/// What one tester port saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortResult {
    /// Name given to the port.
    pub name: String,
    /// Frames offered to the device (taken by it or refused by its full queue).
    pub offered_frames: u64,
    /// Of those, frames that the device's receive queue refused because it was full.
    pub refused_frames: u64,
    /// Counted frames received, duplicates not included.
    pub received_frames: u64,
    /// Frames received that are not as they were sent.
    #[serde(default)]
    pub damaged_frames: u64,
    /// Frames received that this trial did not send (other traffic, damaged, earlier trials).
    pub foreign_frames: u64,
    /// Frames of flows that count at another port. They do not count as received.
    #[serde(default)]
    pub misdirected_frames: u64,
    /// How often the port was seen to lose its link.
    #[serde(default)]
    pub link_losses: u64,
    /// What the port counted over the whole trial, warm-up included.
    #[serde(default, skip_serializing_if = "PortTotals::is_none")]
    pub totals: PortTotals,
}

/// What happened to one flow. Listed only for flows in which something did happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowResult {
    /// Index of the transmitting port.
    pub port: u16,
    /// Index of the flow on that port.
    pub flow: u16,
    /// Frames offered.
    pub offered_frames: u64,
    /// Distinct frames received.
    pub received_frames: u64,
    /// Frames received more than once.
    pub duplicate_frames: u64,
    /// Frames received after one with a higher sequence number (RFC 4737, section 3.3, type-P-reordered).
    pub reordered_frames: u64,
    /// Frames received at other ports than the one where the flow counts, in the order of ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misdirected: Vec<Misdirected>,
}

/// Frames of a flow at a port where they do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misdirected {
    /// Index of the receiving port.
    pub port: u16,
    /// Distinct frames received there.
    pub frames: u64,
}

/// What was seen in one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// What was asked for.
    pub trial: Trial,
    /// When the counted part began, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Length of the counted part, from the first frame offered to the last, seconds.
    pub elapsed_s: f64,
    /// Frames that the schedule held: rate times duration.
    pub scheduled_frames: u64,
    /// Frames offered to the device.
    pub offered_frames: u64,
    /// Distinct frames that came back.
    pub received_frames: u64,
    /// `offered_frames - received_frames`.
    pub lost_frames: u64,
    /// Lost over offered, 0 to 1.
    pub loss_ratio: f64,
    /// Frames received more than once.
    pub duplicate_frames: u64,
    /// Frames received out of order within their flow.
    pub reordered_frames: u64,
    /// Frames received that are not as they were sent, by their checksums or their payload. They are among the lost frames.
    #[serde(default)]
    pub damaged_frames: u64,
    /// Frames received so far behind later ones that a late frame cannot be told from a duplicate. They do not count as received.
    #[serde(default)]
    pub stale_frames: u64,
    /// Rate really offered, frames per second, summed over ports.
    pub achieved_rate_pps: f64,
    /// Rate received, frames per second, summed over ports (RFC 2285, section 3.6.1: forwarding rate).
    pub forwarding_rate_pps: f64,
    /// Latency of the frames received, of duplicates the first copy, as far as they are recognised.
    pub latency: LatencySummary,
    /// Its variation from every frame. IPDV is within each flow; PDV is against the smallest delay at each receiving port.
    #[serde(default)]
    pub variation: DelayVariation,
    /// The low-rate streams.
    #[serde(default)]
    pub low_rate: LowRateStreams,
    /// Per port.
    pub ports: Vec<PortResult>,
    /// Flows with loss, duplicates, reordering or misdirected frames; at most the first 64.
    pub flows: Vec<FlowResult>,
    /// The tester's own health.
    pub health: TesterHealth,
    /// The calibration of the tester that it stands on; none where there was none.
    #[serde(default)]
    pub calibration: Option<CitedCalibration>,
    /// Where frames were lost, by the device's own counters; none if these were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_account: Option<Accounted>,
    /// Whether the result counts.
    pub validity: Validity,
}

impl TesterHealth {
    /// Returns the cause of a failure of the tester, which is the host if it had the CPU for most of the longest gap.
    pub(crate) fn cause(&self, own: InvalidCause) -> InvalidCause {
        own.unless_of_host(self.longest_gap_ns, self.longest_host_gap_ns)
    }
}

impl Trial {
    /// The offered rate of a trial in which the tester sends as fast as it can.
    pub const UNPACED: f64 = f64::INFINITY;

    /// Returns true if the tester is to send as fast as it can.
    #[must_use]
    pub fn is_unpaced(&self) -> bool {
        is_unpaced(&self.offered_rate_pps)
    }

    /// The trial with a description of its traffic, which says directions, sizes and the rate as well where it says them.
    /// A capture is sent without warm-up and low-rate stream: its frames could not be told from those of either.
    ///
    /// # Errors
    /// A capture that cannot be sent.
    pub fn with_traffic(mut self, traffic: Traffic) -> Result<Self, ReplayError> {
        if let Some(directions) = traffic.directions {
            self.directions = directions;
        }
        let ports = match self.directions {
            Directions::OneWay => 1.0,
            Directions::Both => 2.0,
        };
        if let Some(replay) = &traffic.replay {
            let capture = Capture::read(Path::new(&replay.file))?;
            self.frame_sizes = FrameSizes::Fixed(capture.frame_size_largest());
            self.warm_up_s = 0.0;
            self.low_rate_pps = 0.0;
            if replay.timing == Timing::File {
                let speed = replay.speed.unwrap_or(1.0);
                self.offered_rate_pps = capture.rate_pps(speed) * ports;
            }
        }
        if let Some(burst) = &traffic.burst
            && let Some(gap_us) = burst.gap_us
        {
            self.offered_rate_pps = f64::from(burst.frames) * 1e6 / gap_us * ports;
        }
        self.traffic = Some(Box::new(traffic));
        Ok(self)
    }

    /// Sizes with FCS in the order in which they are sent.
    #[must_use]
    pub fn sizes(&self) -> Vec<u16> {
        let said = self
            .traffic
            .as_ref()
            .and_then(|traffic| traffic.sizes.as_ref());
        said.map_or_else(|| self.frame_sizes.pattern(), Sizes::sequence)
    }

    /// The largest frame, octets with FCS.
    #[must_use]
    pub fn frame_size_largest(&self) -> u16 {
        self.sizes().into_iter().max().unwrap_or(0)
    }

    /// Frames that are due together.
    pub(crate) fn burst(&self) -> u16 {
        let burst = self
            .traffic
            .as_ref()
            .and_then(|traffic| traffic.burst.as_ref());
        burst.map_or(1, |burst| burst.frames)
    }

    /// How many times the mean rate of the ports that send a port has.
    pub(crate) fn share_of_port(&self, port: usize, transmitting: usize) -> f64 {
        let shares = self.traffic.as_ref().and_then(|traffic| traffic.shares);
        match (shares, transmitting) {
            (Some([a, b]), 2..) => {
                let share = if port.is_multiple_of(2) { a } else { b };
                share / (a + b) * 2.0
            }
            _ => 1.0,
        }
    }

    /// What a description says that cannot be.
    fn validate_traffic(&self, traffic: &Traffic) -> Result<(), String> {
        if let Some(fault) = traffic.first_fault() {
            return Err(format!("traffic: {}", fault.message));
        }
        if traffic.replay.is_some() {
            return Ok(());
        }
        let smallest = self.sizes().into_iter().min().unwrap_or(0);
        let needed = smallest_frame(traffic);
        if smallest < needed {
            return Err(format!(
                "frames of {smallest} octets are asked for, and the headers and the tester's signature take {needed} with FCS"
            ));
        }
        Ok(())
    }
}

impl TrialResult {
    /// True when the tester did what it was asked to do.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.validity == Validity::Valid
    }
}

impl Trial {
    /// Checks what the trial asks for.
    ///
    /// # Errors
    /// One sentence: the key, what is wrong and what would be right.
    pub fn validate(&self) -> Result<(), String> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("{name} is {value}, and has to be a number above 0"))
            }
        };
        let not_negative = |name: &str, value: f64| {
            if value.is_finite() && value >= 0.0 {
                Ok(())
            } else {
                Err(format!("{name} is {value}, and has to be 0 or more"))
            }
        };
        if !self.is_unpaced() {
            positive("offered_rate_pps", self.offered_rate_pps)?;
        }
        if !self.is_unpaced() && self.offered_rate_pps > OFFERED_RATE_PPS_MAX {
            return Err(format!(
                "offered_rate_pps is {:e}, and no link carries more than {OFFERED_RATE_PPS_MAX:e} frames per second",
                self.offered_rate_pps
            ));
        }
        positive("duration_s", self.duration_s)?;
        not_negative("warm_up_s", self.warm_up_s)?;
        not_negative("drain_s", self.drain_s)?;
        not_negative("low_rate_pps", self.low_rate_pps)?;
        if self.low_rate_pps > LOW_RATE_PPS_MAX {
            return Err(format!(
                "low_rate_pps is {}, and has to be 0 to {LOW_RATE_PPS_MAX}",
                self.low_rate_pps
            ));
        }
        if let Some(tolerance_pps) = self.rate_tolerance_pps {
            positive("rate_tolerance_pps", tolerance_pps)?;
        }
        if let FrameSizes::Fixed(size) = self.frame_sizes
            && !FRAME_SIZES.contains(&size)
        {
            return Err(format!(
                "the frame size is {size}, and has to be 64 to 9000 octets with FCS, or 'imix'"
            ));
        }
        let smallest = self.frame_sizes.pattern().into_iter().min().unwrap_or(0);
        if let Some(traffic) = &self.traffic {
            self.validate_traffic(traffic)?;
        } else if smallest < self.ip.frame_size_min() {
            return Err(format!(
                "frames of {smallest} octets are asked for, and frames of IPv6 take {} at least",
                self.ip.frame_size_min()
            ));
        }
        if self.flows == 0 {
            return Err("flows is 0, and has to be 1 to 65535".to_owned());
        }
        if !(1..=MAC_ADDRESSES_MAX).contains(&self.mac_addresses) {
            return Err(format!(
                "mac_addresses is {}, and has to be 1 to {MAC_ADDRESSES_MAX}",
                self.mac_addresses
            ));
        }
        if !(1..=DESTINATIONS_MAX).contains(&self.destinations) {
            return Err(format!(
                "destinations is {}, and has to be 1 to {DESTINATIONS_MAX}",
                self.destinations
            ));
        }
        Ok(())
    }
}
