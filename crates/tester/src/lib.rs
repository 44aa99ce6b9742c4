// SPDX-License-Identifier: Apache-2.0
//! The tester: paced transmit, receive, loss, reordering and latency. One
//! [`Trial`] in, one [`TrialResult`] out.
//!
//! It never decides which rate comes next (that is `quietwire-search`) and it
//! never calls a trial in which it failed itself a loss of the device.

mod trial;

pub use trial::{
    Directions, FlowResult, FrameSizes, LatencySummary, PortResult, TesterHealth, Trial,
    TrialResult, Validity,
};
