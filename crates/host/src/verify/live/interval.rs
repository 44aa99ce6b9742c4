// SPDX-License-Identifier: Apache-2.0
//! The interval to judge, between two samples.

use super::super::machine::Machine;
use super::sample::Sample;

/// What to judge an interval by.
pub(super) struct Interval<'a> {
    pub(super) machine: &'a Machine<'a>,
    pub(super) before: &'a Sample,
    pub(super) after: &'a Sample,
    pub(super) seconds: f64,
    /// Whether the plan turns the tick off.
    pub(super) is_tickless: bool,
}

/// A tick that is off comes once a second all the same, and may come once more on the edge of an interval.
pub(super) const TICKS_PER_S: f64 = 2.0;
