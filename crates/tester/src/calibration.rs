// SPDX-License-Identifier: Apache-2.0
//! Calibration: the tester's own capability, measured over a loop without a device, stored in a file and cited by every later trial.

mod cited;
mod file;
mod measure;
mod missing;

use quietwire_base::proc::cpuinfo_field;
use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;
use crate::tester::TesterIdle;
use crate::traffic::Traffic;
use crate::trial::{Directions, FrameSizes, IpVersion, Trial};

pub use cited::CitedCalibration;
pub use file::{Calibrations, CalibrationsError};
pub use measure::{CalibrationOptions, Step};
pub use missing::MissingCalibration;
pub(crate) use missing::Source;

/// Kind of tester that a calibration describes. Another tester may be faster or slower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TesterKind {
    /// Kind of each port, in order: `memif`, `virtio-user`, `pci` and others.
    pub ports: Vec<String>,
    /// Processor model (`model name` of `/proc/cpuinfo`).
    pub cpu_model: String,
    /// CPUs of the tester's threads.
    pub cpus: Vec<u32>,
    /// Descriptors in each transmit ring.
    pub ring_size: u16,
    /// Descriptors in each receive ring; `None` in calibrations of versions that used the transmit ring size.
    #[serde(default)]
    pub receive_ring_size: Option<u16>,
    /// Real-time priority; `None` for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// Action of its threads without frames. Earlier versions did not record it, and calibrated testers that poll.
    #[serde(default)]
    pub idle: TesterIdle,
}

/// Calibration of a tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The tester.
    pub tester: TesterKind,
    /// Time of the measurement, nanoseconds since the Unix epoch.
    pub measured_unix_ns: u64,
    /// Version of quietwire that measured it.
    pub version: String,
    /// Cost of reading the time stamp counter once, nanoseconds. It bounds the accuracy of every time stamp.
    pub timestamp_ns: f64,
    /// Frequency of the time stamp counter, ticks per second, on which rates and latencies are based.
    pub ticks_per_second: u64,
    /// Excess of the time stamp counter over `CLOCK_MONOTONIC_RAW` over the whole calibration, parts per million.
    pub clock_error_ppm: f64,
    /// Interval of that measurement, seconds.
    pub clock_span_s: f64,
    /// Results by frame size.
    pub sizes: Vec<SizeCalibration>,
}

/// Calibration with frames of one size or mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeCalibration {
    /// The frame sizes.
    pub frame_sizes: FrameSizes,
    /// Directions of the traffic.
    pub directions: Directions,
    /// IP version of the frames.
    pub ip: IpVersion,
    /// Traffic description, if there is one. It overrides the fields above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Box<Traffic>>,
    /// Rate received with transmission as fast as possible, frames per second, regardless of loss.
    pub unpaced_pps: f64,
    /// Highest rate tried without loss and within the schedule, summed over the sending ports, frames per second; 0 if no rate was clean.
    pub clean_rate_pps: f64,
    /// Number of trials.
    pub trials: u32,
    /// Pacing at shares of the clean rate.
    pub pacing: Vec<PacingCalibration>,
    /// Latency of the loop itself at a tenth of the clean rate. It bounds the accuracy of every device latency.
    pub latency_floor: LatencySummary,
    /// Cycles per frame for generating it, in the unpaced trial.
    pub generate_cycles: f64,
    /// Cycles per frame for checking it, in the unpaced trial.
    pub check_cycles: f64,
}

/// Pacing at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacingCalibration {
    /// Share of the clean rate, 0 to 1.
    pub share: f64,
    /// Requested rate, frames per second.
    #[serde(alias = "asked_pps")]
    pub requested_pps: f64,
    /// Relative error of the rate; negative if the rate was missed.
    pub error_ratio: f64,
    /// The same without the frames that were due while the tester stalled and were not sent later: frames sent, divided by the other
    /// frames due, minus 1. None in files of versions before 0.2.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_without_stalls_ratio: Option<f64>,
    /// Time of a full burst at that rate on one port, nanoseconds.
    pub burst_time_ns: f64,
    /// Time from the start of a burst to the start of the next.
    pub burst_gaps: LatencySummary,
    /// Times between starts of bursts in which the tester stalled. They are not among `burst_gaps`.
    #[serde(default)]
    pub stalled_gaps: LatencySummary,
    /// Number of times over 10 us for which the host did not run the tester.
    #[serde(default)]
    pub host_stalls: u64,
    /// Sum of those times, nanoseconds.
    #[serde(default)]
    pub host_stall_time_ns: u64,
    /// Latency of the loop itself, without its histogram: the tester's own part of any latency at this rate.
    #[serde(default)]
    pub latency: LatencySummary,
}

/// Largest relative difference between two summations of the same rate.
const ROUNDING: f64 = 1e-6;

impl Calibration {
    /// Returns the results for a trial's frames; `None` if they were not measured.
    #[must_use]
    pub fn size(&self, trial: &Trial) -> Option<&SizeCalibration> {
        self.sizes.iter().find(|size| {
            // Described frames may take longer to generate, so the description must be the same. Which port sends is no difference.
            let is_one_way = |directions: Directions| directions.sender().is_some();
            is_one_way(size.directions) == is_one_way(trial.directions)
                && size.traffic == trial.traffic
                && match &trial.traffic {
                    None => size.frame_sizes == trial.frame_sizes && size.ip == trial.ip,
                    Some(traffic) => {
                        traffic.sizes.is_some() || size.frame_sizes == trial.frame_sizes
                    }
                }
        })
    }

    /// Returns the calibration that a trial at `rate_pps` cites; `None` if its frames were not measured.
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
    /// Returns the tester's own part of latencies at a rate.
    fn own(&self, rate_pps: f64) -> Option<LatencySummary> {
        let mut rates = self.pacing.iter();
        let at = rates.find(|pacing| pacing.requested_pps * (1.0 + ROUNDING) >= rate_pps);
        let known = at.or(self.pacing.last()).map(|pacing| &pacing.latency);
        known.filter(|latency| latency.samples > 0).cloned()
    }

    /// Returns true if both cover the same frames.
    fn is_of_same_frames(&self, other: &Self) -> bool {
        self.frame_sizes == other.frame_sizes
            && self.directions == other.directions
            && self.ip == other.ip
            && self.traffic == other.traffic
    }
}

impl TesterKind {
    /// Returns the processor model of this machine from `/proc/cpuinfo`; empty if it has none.
    #[must_use]
    pub fn cpu_model_here() -> String {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        cpuinfo_field(&text, "model name")
            .unwrap_or_default()
            .to_owned()
    }
}
