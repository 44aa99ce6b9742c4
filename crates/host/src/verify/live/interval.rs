// SPDX-License-Identifier: Apache-2.0
//! Interval between two samples.

use super::super::machine::Machine;
use super::sample::Sample;

/// An interval to check: the machine and the samples at both ends.
pub(super) struct Interval<'a> {
    pub(super) machine: &'a Machine<'a>,
    pub(super) before: &'a Sample,
    pub(super) after: &'a Sample,
    pub(super) seconds: f64,
    /// Whether the plan disables the tick.
    pub(super) is_tickless: bool,
}

/// Maximum ticks per second of a CPU without a tick: one residual tick per second, and one more at the edge of an interval.
pub(super) const TICKS_PER_S: f64 = 2.0;
