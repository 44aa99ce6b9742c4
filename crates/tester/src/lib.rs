// SPDX-License-Identifier: Apache-2.0
//! Traffic generator and receiver: paced transmission, loss, reordering and latency. It turns one [`Trial`] into one [`TrialResult`].
//!
//! It does not choose rates (`quietwire-search` does), and it never reports its own failure as loss of the device.
//!
//! Each thread serves its ports in turn: it sends the frames that are due and receives the frames that have arrived. A stalled thread
//! therefore sends nothing, and the frames in flight fit the rings: its own stalls show as a missed rate, not as loss.

// Frames, files and replies of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod account;
mod assemble;
mod backlog;
mod calibration;
mod checksums;
mod clock;
pub mod connections;
mod counts;
mod damage_check;
pub mod echo;
mod engine;
mod error;
mod frame;
#[cfg(test)]
mod fuzz;
mod generator;
mod judge;
mod lane;
mod latency;
mod narrow;
mod pacer;
mod pause;
mod procedures;
mod received;
pub mod self_test;
mod series;
mod simulated;
mod tester;
mod threads;
mod time_stamps;
mod tracker;
pub mod traffic;
mod trex;
mod trial;
mod trial_context;
mod trial_run;
mod validity;
mod watch;
mod writer;

pub use calibration::{
    Calibration, CalibrationOptions, Calibrations, CalibrationsError, CitedCalibration,
    MissingCalibration, PacingCalibration, SizeCalibration, Step, TesterKind,
};
pub use clock::begin_clock;
pub use damage_check::DamageCheck;
pub use error::TesterError;
pub use generator::{
    GeneratorIdentity, Outage, Probed, Restart, StepDown, SteppedDown, TrafficGenerator,
};
pub use judge::Limits;
pub use latency::{
    DelayVariation, HISTOGRAM_DIGITS_MAX, LatencySummary, LowRateStreams, PERCENTILES,
    SignedSummary, TimeHistogram, bears_percentile, histogram_in_us, is_bound, read_histogram,
    withhold, withhold_bounds,
};
pub use pause::leave_cpu;
pub use series::{DevicePoint, FramePoint, SERIES_POINTS_MAX, TrialSeries};
pub use simulated::{SimOptionError, SimOptions, SimulatedDevice};
pub use tester::{FrameAccess, Preparation, RECEIVE_RING_SIZE, Tester, TesterIdle, TesterOptions};
pub use time_stamps::TimeStampFile;
pub use trex::{TREX_PORT, Trex};
pub use trial::{
    DESTINATIONS_MAX, Directions, FlowResult, FrameSizes, IpVersion, LOW_RATE_PPS,
    LOW_RATE_PPS_MAX, LatencyStart, MAC_ADDRESSES_MAX, Misdirected, OFFERED_RATE_PPS_MAX,
    PortResult, TesterHealth, Trial, TrialResult,
};
pub use validity::{InvalidCause, InvalidReason, Validity};
