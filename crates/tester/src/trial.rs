// SPDX-License-Identifier: Apache-2.0
//! Parameters and result of a trial.

mod parameters;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::account::{Accounted, PortTotals};
use crate::calibration::CitedCalibration;
use crate::damage_check::DamageCheck;
use crate::latency::{DelayVariation, LatencySummary, LowRateStreams};
use crate::series::TrialSeries;
use crate::traffic::smallest as smallest_frame;
use crate::traffic::{Capture, ReplayError, Sizes, Timing, Traffic};
use crate::validity::{InvalidCause, Validity};
use parameters::FRAME_SIZES;

pub use parameters::{
    DESTINATIONS_MAX, Directions, FrameSizes, IpVersion, LatencyStart, MAC_ADDRESSES_MAX,
    OFFERED_RATE_PPS_MAX,
};

/// Parameters of one trial (RFC 2544, section 24: "Trial description").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Offered load in frames per second, summed over all transmitting ports, or [`Trial::UNPACED`]. JSON cannot represent the latter, so
    /// it is left out there.
    #[serde(default = "unpaced", skip_serializing_if = "is_unpaced")]
    pub offered_rate_pps: f64,
    /// Duration of the counted part, seconds.
    pub duration_s: f64,
    /// Duration of the same load before the counted part, seconds.
    pub warm_up_s: f64,
    /// Time for which the tester receives after the last frame, seconds.
    pub drain_s: f64,
    /// Frame sizes with FCS.
    pub frame_sizes: FrameSizes,
    /// Transmitting ports.
    pub directions: Directions,
    /// Flows per transmitting port (distinct UDP source ports), 1 to 65535.
    pub flows: u16,
    /// Distinct destination MAC addresses per transmitting port, at least 1.
    pub mac_addresses: u32,
    /// Distinct IP destinations per transmitting port, at least 1. Several destinations are drawn at random, each in a separate network:
    /// with IPv4 a /24 from 16.0.0.0 on, with IPv6 a /48 from 3fff:: on. The second port of a pair draws from 48.0.0.0 and 3fff:20:: on,
    /// so that a router can distinguish the directions.
    #[serde(default = "destinations")]
    pub destinations: u32,
    /// IP version of the frames.
    #[serde(default)]
    pub ip: IpVersion,
    /// Rate of the low-rate stream that each transmitting port sends as part of its load to measure latency, frames per second; 0 for
    /// none. At most every second frame of the load belongs to it.
    #[serde(default)]
    pub low_rate_pps: f64,
    /// True if the device sends frames back to the port that sent them: they count there. Otherwise frames count only at the other port
    /// of the pair.
    #[serde(default)]
    pub reflected: bool,
    /// Start of each latency.
    #[serde(default, skip_serializing_if = "LatencyStart::is_sent")]
    pub latency_start: LatencyStart,
    /// Largest difference between achieved and offered rate, frames per second; beyond it, the trial is invalid. A search permits half of
    /// its rate resolution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_tolerance_pps: Option<f64>,
    /// Traffic description. It overrides the fields above: headers, flows, sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Box<Traffic>>,
}

/// Default rate of a low-rate stream, frames per second.
pub const LOW_RATE_PPS: f64 = 5.0;
/// Highest rate of a low-rate stream, frames per second.
pub const LOW_RATE_PPS_MAX: f64 = 1000.0;

fn destinations() -> u32 {
    1
}

fn unpaced() -> f64 {
    Trial::UNPACED
}

// Serde requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_unpaced(rate_pps: &f64) -> bool {
    *rate_pps == Trial::UNPACED
}

/// Health of the tester. All figures are caused by the tester or its host, not by the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TesterHealth {
    /// Frames of the schedule that the tester never offered.
    pub unsent_frames: u64,
    /// Those that were due while the tester did not serve the port for more than 100 us, because its CPU was taken or its loop took that
    /// long. Frames sent later to catch up count as frames of such times first, so this is a lower bound.
    #[serde(default)]
    pub stalled_unsent_frames: u64,
    /// `unsent_frames` divided by the frames of the schedule.
    pub pacing_miss_ratio: f64,
    /// Frames sent late: more than 100 us or two bursts after they were due, or to catch up after a pause. Their latency starts at
    /// [`Trial::latency_start`].
    #[serde(default)]
    pub late_frames: u64,
    /// Bursts that started more than one burst time after they were due.
    pub late_bursts: u64,
    /// All bursts sent.
    pub bursts: u64,
    /// Longest time between two turns of the tester's loop, nanoseconds.
    pub longest_gap_ns: u64,
    /// Longest time for which the host did not run the tester, nanoseconds: between two clock readings without work of the tester in
    /// between.
    #[serde(default)]
    pub longest_host_gap_ns: u64,
    /// Number of such times over 10 us, while frames were offered.
    #[serde(default)]
    pub host_stalls: u64,
    /// Sum of those times, nanoseconds.
    #[serde(default)]
    pub host_stall_time_ns: u64,
    /// Upper bound of the frames that the tester's receive rings had no space for, because the tester did not receive in time. The device
    /// or the peer drops them, but the tester causes the loss.
    #[serde(default)]
    pub missed_at_most_frames: u64,
    /// Number of gaps over 100 us in the tester's loop.
    pub gaps_over_100us: u64,
    /// Sum of those gaps, nanoseconds.
    pub gap_time_ns: u64,
    /// Share of the time in which frames were offered, 0 to 1, in which the tester's busiest thread had none to send or to receive. None
    /// in stores of versions before 0.2.0 and of other testers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ratio: Option<f64>,
    /// Whether the tester thread had real-time priority.
    pub realtime: bool,
    /// Frames that the tester's own ports dropped on reception (port counters).
    pub receive_drops: u64,
    /// Time from the start of a transmit burst to the start of the next on the same port. Its percentiles, compared with `burst_time_ns`,
    /// show how even the stream was. A frame that is due alone is a burst.
    #[serde(default)]
    pub burst_gaps: LatencySummary,
    /// Times between starts of bursts in which the tester did not serve the port for more than 100 us, because its CPU was taken or its
    /// loop took that long. They are not among `burst_gaps`.
    #[serde(default)]
    pub stalled_gaps: LatencySummary,
    /// Achieved rate divided by the offered rate, minus 1: negative if the rate was missed. None for traffic without a constant rate, in
    /// stores of versions before 0.2.0 and of other testers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_error_ratio: Option<f64>,
    /// Time of a full burst at the rate of one port, nanoseconds; 0 without a schedule.
    #[serde(default)]
    pub burst_time_ns: f64,
    /// Time stamp counter cycles per frame for generating it: buffer, octets and time stamp, without the driver.
    #[serde(default)]
    pub generate_cycles: f64,
    /// Time stamp counter cycles per received frame for checking and freeing it, without the driver.
    #[serde(default)]
    pub check_cycles: f64,
    /// Delay of the last frame after the end of the schedule, as a ratio of the duration.
    #[serde(default)]
    pub stretch_ratio: f64,
    /// Excess of the trial's length by the tester's clock (the time stamp counter) over its length by the kernel's
    /// (`CLOCK_MONOTONIC_RAW`), as a ratio of the latter; negative if it was shorter.
    #[serde(default)]
    pub clock_error_ratio: f64,
    /// Overrun of the trial's deadline, nanoseconds.
    #[serde(default)]
    pub overrun_ns: u64,
    /// Frames received with this trial's mark that were never sent: their flow or sequence number was not used.
    #[serde(default)]
    pub phantom_frames: u64,
    /// Negative loss: frames received in excess of those offered, summed over the flows with an excess.
    #[serde(default)]
    pub excess_frames: u64,
}

/// Results of one tester port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortResult {
    /// Name given to the port.
    pub name: String,
    /// Frames offered to the device (accepted, or refused by its full queue).
    pub offered_frames: u64,
    /// Frames of `offered_frames` that the device's receive queue refused because it was full.
    pub refused_frames: u64,
    /// Counted frames received, without duplicates.
    pub received_frames: u64,
    /// Frames received that changed on the way.
    #[serde(default)]
    pub damaged_frames: u64,
    /// Frames received that this trial did not send (other traffic, damaged, earlier trials).
    pub foreign_frames: u64,
    /// Frames received of flows that count at another port. `received_frames` does not include them.
    #[serde(default)]
    pub misdirected_frames: u64,
    /// Number of link losses observed.
    #[serde(default)]
    pub link_losses: u64,
    /// Counters of the port over the whole trial, including the warm-up.
    #[serde(default, skip_serializing_if = "PortTotals::is_none")]
    pub totals: PortTotals,
}

/// Results of one flow. Only flows with loss, duplicates, reordering or misdirected frames are listed.
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
    /// Frames received at ports other than the one where the flow counts, in port order.
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

/// Result of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Parameters of the trial.
    pub trial: Trial,
    /// Start of the counted part, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Length of the counted part, from the first frame offered to the last, seconds.
    pub elapsed_s: f64,
    /// Frames of the schedule: rate times duration.
    pub scheduled_frames: u64,
    /// Frames offered to the device.
    pub offered_frames: u64,
    /// Distinct frames received.
    pub received_frames: u64,
    /// `offered_frames - received_frames`.
    pub lost_frames: u64,
    /// Lost frames divided by offered frames, 0 to 1.
    pub loss_ratio: f64,
    /// Frames received more than once.
    pub duplicate_frames: u64,
    /// Frames received out of order within their flow.
    pub reordered_frames: u64,
    /// Frames received that changed on the way, by their checksums or their payload. They are among the lost frames.
    #[serde(default)]
    pub damaged_frames: u64,
    /// Scope of the check for damage. None in stores of earlier versions and of other testers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage_check: Option<DamageCheck>,
    /// Frames received so far behind later ones that a late frame is indistinguishable from a duplicate. They do not count as received.
    #[serde(default)]
    pub stale_frames: u64,
    /// Rate achieved, frames per second, summed over ports.
    pub achieved_rate_pps: f64,
    /// Rate received, frames per second, summed over ports (RFC 2285, section 3.6.1: forwarding rate).
    pub forwarding_rate_pps: f64,
    /// Latency of the frames received; of duplicates, that of the first undamaged copy within the window.
    pub latency: LatencySummary,
    /// Delay variation from every frame. IPDV is computed within each flow, PDV relative to the smallest delay at each receiving port.
    #[serde(default)]
    pub variation: DelayVariation,
    /// Results of the low-rate streams.
    #[serde(default)]
    pub low_rate: LowRateStreams,
    /// Results by port.
    pub ports: Vec<PortResult>,
    /// Flows with loss, duplicates, reordering or misdirected frames; at most 64.
    pub flows: Vec<FlowResult>,
    /// Health of the tester.
    pub health: TesterHealth,
    /// Calibration that the result cites; `None` if there is none.
    #[serde(default)]
    pub calibration: Option<CitedCalibration>,
    /// Places of the loss by the device's counters; `None` if they were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_account: Option<Accounted>,
    /// Course of the trial. It is no part of the result's document: stores have it beside the result.
    #[serde(skip)]
    pub series: TrialSeries,
    /// Validity of the result.
    pub validity: Validity,
}

impl TesterHealth {
    /// Returns the cause of a failure of the tester. It is the host if it caused most of the longest gap.
    pub(crate) fn cause(&self, own: InvalidCause) -> InvalidCause {
        own.unless_of_host(self.longest_gap_ns, self.longest_host_gap_ns)
    }
}

impl Trial {
    /// Offered rate of a trial in which the tester sends as fast as it can.
    pub const UNPACED: f64 = f64::INFINITY;

    /// Returns a trial with one IPv4 flow to one address and one destination from each port, without warm-up, drain and low-rate stream.
    /// Parameters as those of the fields.
    #[must_use]
    pub fn new(offered_rate_pps: f64, duration_s: f64, frame_sizes: FrameSizes) -> Self {
        Self {
            offered_rate_pps,
            duration_s,
            warm_up_s: 0.0,
            drain_s: 0.0,
            frame_sizes,
            directions: Directions::Both,
            flows: 1,
            mac_addresses: 1,
            destinations: 1,
            ip: IpVersion::V4,
            low_rate_pps: 0.0,
            reflected: false,
            latency_start: LatencyStart::Sent,
            rate_tolerance_pps: None,
            traffic: None,
        }
    }

    /// Returns true if the tester must send as fast as it can.
    #[must_use]
    pub fn is_unpaced(&self) -> bool {
        is_unpaced(&self.offered_rate_pps)
    }

    /// Returns the trial with a traffic description, which also sets directions, sizes and rate if it specifies them. A capture is sent
    /// without warm-up and low-rate stream, because its frames could not be distinguished from theirs.
    ///
    /// # Errors
    /// [`ReplayError`] if a capture cannot be replayed.
    pub fn with_traffic(mut self, traffic: Traffic) -> Result<Self, ReplayError> {
        if let Some(directions) = traffic.directions {
            self.directions = directions;
        }
        let ports = match self.directions {
            Directions::OneWay | Directions::Reverse => 1.0,
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

    /// Returns the sizes with FCS in transmit order.
    #[must_use]
    pub fn sizes(&self) -> Vec<u16> {
        let given = self
            .traffic
            .as_ref()
            .and_then(|traffic| traffic.sizes.as_ref());
        given.map_or_else(|| self.frame_sizes.pattern(), Sizes::sequence)
    }

    /// Returns the largest frame, octets with FCS.
    #[must_use]
    pub fn frame_size_largest(&self) -> u16 {
        self.sizes().into_iter().max().unwrap_or(0)
    }

    /// Returns the number of frames that are due at once.
    pub(crate) fn burst(&self) -> u16 {
        let burst = self
            .traffic
            .as_ref()
            .and_then(|traffic| traffic.burst.as_ref());
        burst.map_or(1, |burst| burst.frames)
    }

    /// Returns the rate of a port relative to the mean rate of the sending ports.
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

    /// Returns the scope of the check for damage in received frames.
    pub(crate) fn damage_check(&self) -> DamageCheck {
        match (&self.traffic, self.ip) {
            (Some(traffic), _) if traffic.replay.is_some() => DamageCheck::LastOctets,
            (Some(traffic), _) if traffic.integrity => DamageCheck::ChecksumsAndPayload,
            (Some(_), _) => DamageCheck::Checksums,
            (None, IpVersion::V4) => DamageCheck::AfterEthernetHeader,
            (None, IpVersion::V6) => DamageCheck::Ipv6AddressesAndUdp,
        }
    }

    /// Checks the traffic description.
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
                "frames of {smallest} octets are too small: the headers and the tester's signature require {needed} octets with FCS"
            ));
        }
        Ok(())
    }
}

impl TrialResult {
    /// Returns true if the tester worked correctly.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.validity == Validity::Valid
    }

    /// Returns the relative error of the rate without the frames that stalls left unsent; `None` if no other frame was due.
    #[must_use]
    pub fn error_without_stalls_ratio(&self) -> Option<f64> {
        let due = self.trial.offered_rate_pps * self.elapsed_s;
        let due = due - self.health.stalled_unsent_frames as f64;
        (due > 0.0).then(|| self.offered_frames as f64 / due - 1.0)
    }
}

impl Trial {
    /// Checks the parameters of the trial.
    ///
    /// # Errors
    /// One sentence: the field, the problem and the valid values.
    pub fn validate(&self) -> Result<(), String> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(format!("{name} is {value} (must be above 0)"))
            }
        };
        let not_negative = |name: &str, value: f64| {
            if value.is_finite() && value >= 0.0 {
                Ok(())
            } else {
                Err(format!("{name} is {value} (must be 0 or more)"))
            }
        };
        if !self.is_unpaced() {
            positive("offered_rate_pps", self.offered_rate_pps)?;
        }
        if !self.is_unpaced() && self.offered_rate_pps > OFFERED_RATE_PPS_MAX {
            return Err(format!(
                "offered_rate_pps is {:e} (the limit is {OFFERED_RATE_PPS_MAX:e} frames per second)",
                self.offered_rate_pps
            ));
        }
        positive("duration_s", self.duration_s)?;
        not_negative("warm_up_s", self.warm_up_s)?;
        not_negative("drain_s", self.drain_s)?;
        not_negative("low_rate_pps", self.low_rate_pps)?;
        if self.low_rate_pps > LOW_RATE_PPS_MAX {
            return Err(format!(
                "low_rate_pps is {} (must be 0 to {LOW_RATE_PPS_MAX})",
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
                "frame size {size} is out of range (64 to 9000 octets with FCS, or 'imix')"
            ));
        }
        let smallest = self.frame_sizes.pattern().into_iter().min().unwrap_or(0);
        if let Some(traffic) = &self.traffic {
            self.validate_traffic(traffic)?;
        } else if smallest < self.ip.frame_size_min() {
            return Err(format!(
                "frames of {smallest} octets are too small: IPv6 frames require {} octets with FCS",
                self.ip.frame_size_min()
            ));
        }
        if self.flows == 0 {
            return Err("flows is 0 (must be 1 to 65535)".to_owned());
        }
        if !(1..=MAC_ADDRESSES_MAX).contains(&self.mac_addresses) {
            return Err(format!(
                "mac_addresses is {} (must be 1 to {MAC_ADDRESSES_MAX})",
                self.mac_addresses
            ));
        }
        if !(1..=DESTINATIONS_MAX).contains(&self.destinations) {
            return Err(format!(
                "destinations is {} (must be 1 to {DESTINATIONS_MAX})",
                self.destinations
            ));
        }
        Ok(())
    }
}
