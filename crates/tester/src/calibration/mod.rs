// SPDX-License-Identifier: Apache-2.0
//! What the tester can do by itself: measured over a loop without a device, kept in a file, cited by every later trial.

mod cited;
mod file;
mod measure;
mod missing;

use quietwire_base::proc::cpuinfo_field;
use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;
use crate::traffic::Traffic;
use crate::trial::{Directions, FrameSizes, IpVersion, Trial};

pub use cited::CitedCalibration;
pub use file::{Calibrations, CalibrationsError};
pub use measure::{CalibrationOptions, Step};
pub use missing::MissingCalibration;
pub(crate) use missing::Source;

/// Which tester a calibration is of. Another tester may do better or worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TesterKind {
    /// Kind of each port, in order: `memif`, `virtio-user`, `pci` and so on.
    pub ports: Vec<String>,
    /// The processor's name (`model name` of `/proc/cpuinfo`).
    pub cpu_model: String,
    /// CPUs of the tester's threads.
    pub cpus: Vec<u32>,
    /// Descriptors in each transmit ring.
    pub ring_size: u16,
    /// Descriptors in each receive ring; none in calibrations of versions in which they had as many as transmit rings.
    #[serde(default)]
    pub receive_ring_size: Option<u16>,
    /// Real-time priority; none for ordinary priority.
    pub realtime_priority: Option<u8>,
}

/// What was measured of a tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Which tester it is.
    pub tester: TesterKind,
    /// When it was measured, nanoseconds since the Unix epoch.
    pub measured_unix_ns: u64,
    /// Version of the program that measured it.
    pub version: String,
    /// What reading the time stamp counter once costs, nanoseconds: no time stamp is better than this.
    pub timestamp_ns: f64,
    /// Ticks of the time stamp counter in a second, as rates and latencies are worked out with.
    pub ticks_per_second: u64,
    /// By how much the time stamp counter went faster than `CLOCK_MONOTONIC_RAW` over the whole calibration, parts per million.
    pub clock_error_ppm: f64,
    /// Over how long that was, seconds.
    pub clock_span_s: f64,
    /// By frame sizes.
    pub sizes: Vec<SizeCalibration>,
}

/// What was measured with frames of one size or mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeCalibration {
    /// The frame sizes.
    pub frame_sizes: FrameSizes,
    /// Which ports sent.
    pub directions: Directions,
    /// Which IP the frames carried.
    pub ip: IpVersion,
    /// The description of the frames, where there was one: it says all that it says instead of the keys above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Box<Traffic>>,
    /// As fast as the tester can, frames per second received, whatever was lost.
    pub unpaced_pps: f64,
    /// The highest rate tried at which the schedule was kept and nothing was lost, summed over the ports that send; 0 when no rate was clean.
    pub clean_rate_pps: f64,
    /// Trials that took.
    pub trials: u32,
    /// How evenly frames left, at shares of the clean rate.
    pub pacing: Vec<PacingCalibration>,
    /// Latency of the loop itself at a tenth of the clean rate: no device's latency is known better than this.
    pub latency_floor: LatencySummary,
    /// Cycles that making one frame took, in the unpaced trial.
    pub generate_cycles: f64,
    /// Cycles that looking at one frame took, in the unpaced trial.
    pub check_cycles: f64,
}

/// How evenly frames left at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacingCalibration {
    /// Share of the clean rate, 0 to 1.
    pub share: f64,
    /// Rate asked for, frames per second.
    pub asked_pps: f64,
    /// By how much the rate was off, as a ratio: below zero where it was missed.
    pub error_ratio: f64,
    /// Time that a whole burst takes at that rate on one port, nanoseconds.
    pub burst_time_ns: f64,
    /// Time from the start of a burst to that of the next.
    pub burst_gaps: LatencySummary,
    /// Latency of the loop itself, without its histogram: the tester's own part of any latency at this rate.
    #[serde(default)]
    pub latency: LatencySummary,
}

/// What two ways of adding up the same rate may differ by, as a ratio.
const ROUNDING: f64 = 1e-6;

impl Calibration {
    /// What it says for a trial; none where its frames were not measured.
    #[must_use]
    pub fn size(&self, trial: &Trial) -> Option<&SizeCalibration> {
        self.sizes.iter().find(|size| {
            // Described frames may take longer to make, so that their description has to be the same.
            size.directions == trial.directions
                && size.traffic == trial.traffic
                && match &trial.traffic {
                    None => size.frame_sizes == trial.frame_sizes && size.ip == trial.ip,
                    Some(traffic) => {
                        traffic.sizes.is_some() || size.frame_sizes == trial.frame_sizes
                    }
                }
        })
    }

    /// What a trial that offered `rate_pps` cites; none where its frames were not measured.
    #[must_use]
    pub fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        let size = self.size(trial)?;
        Some(CitedCalibration {
            measured_unix_ns: self.measured_unix_ns,
            clean_rate_pps: size.clean_rate_pps,
            latency_floor_ns: size.latency_floor.min_ns,
            own: size.own(rate_pps),
            is_exceeded: rate_pps > size.clean_rate_pps * (1.0 + ROUNDING),
        })
    }
}

impl SizeCalibration {
    /// The tester's own part of latencies at a rate.
    fn own(&self, rate_pps: f64) -> Option<LatencySummary> {
        let mut rates = self.pacing.iter();
        let at = rates.find(|pacing| pacing.asked_pps * (1.0 + ROUNDING) >= rate_pps);
        let known = at.or(self.pacing.last()).map(|pacing| &pacing.latency);
        known.filter(|latency| latency.samples > 0).cloned()
    }

    /// Whether both are of the same frames.
    fn is_of_same_frames(&self, other: &Self) -> bool {
        self.frame_sizes == other.frame_sizes
            && self.directions == other.directions
            && self.ip == other.ip
            && self.traffic == other.traffic
    }
}

impl TesterKind {
    /// The processor of this machine, as `/proc/cpuinfo` names it; empty where it names none.
    #[must_use]
    pub fn cpu_model_here() -> String {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        cpuinfo_field(&text, "model name")
            .unwrap_or_default()
            .to_owned()
    }
}
