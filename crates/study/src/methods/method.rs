// SPDX-License-Identifier: Apache-2.0
//! The interface between a method and its study.

use std::fmt;

use quietwire_search::{ConfigError, Findings, TrialRequest};
use quietwire_tester::connections::Connections;

use super::estimate::Estimate;
use super::machine::{Machine, Repeats};
use super::search::Search;
use super::step_kind::StepKind;
use crate::file::limits::Checked;
use crate::file::{SearchMethod, Trials};

/// A section of a study file with a measurement.
pub(crate) trait Method {
    /// Returns the name of the section.
    fn section(&self) -> &'static str;

    /// Checks the section.
    ///
    /// # Errors
    /// The first fault.
    fn check(&self, around: &StudyContext<'_>) -> Checked;

    /// Returns the steps of a case at one frame size, in order.
    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned>;

    /// Shortens the measurement for `--quick`.
    fn shorten(&mut self);

    /// Returns true if the method requires the standalone quietwire switch.
    fn requires_standalone_switch(&self) -> bool {
        false
    }

    /// Returns why a device that the lab does not start cannot be measured; none if it can.
    fn needs_lab(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if the method looks up learned addresses, which requires a third port (RFC 2889, section 5.7).
    fn measures_addresses(&self) -> bool {
        false
    }

    /// Returns true if the method opens connections, between the first and the last of two ports.
    fn opens_connections(&self) -> bool {
        false
    }

    /// Returns the ageing time of the device, seconds, if the section sets it.
    fn ageing_s(&self) -> Option<f64> {
        None
    }
}

/// Settings of the study that a method uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StudyContext<'a> {
    /// `[trials]`.
    pub(crate) trials: &'a Trials,
    /// `[search]`.
    pub(crate) search: Option<&'a Search>,
    /// True if the device has, or may have, an address table.
    pub(crate) has_address_table: bool,
    /// True with `[traffic.frames]`.
    pub(crate) has_own_frames: bool,
    /// Number of frame sizes.
    pub(crate) frame_sizes: usize,
    /// `[connections]`.
    pub(crate) connections: Option<&'a Connections>,
    /// Number of tenants of the case; none for a case outside `[tenants]`.
    pub(crate) tenants: Option<u32>,
}

impl StudyContext<'_> {
    /// Returns the names of all goals, in order.
    pub(crate) fn goals(&self) -> Vec<String> {
        let goals = self.search.iter().flat_map(|search| &search.goals);
        goals.map(|goal| goal.name.clone()).collect()
    }
}

/// A step before its maximum rate is known.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) kind: StepKind,
    /// Duration of a trial, or of the first one, seconds.
    pub(crate) duration_s: f64,
    pub(crate) work: Box<dyn Work>,
}

impl Planned {
    pub(crate) fn new(kind: StepKind, duration_s: f64, work: impl Work + 'static) -> Vec<Self> {
        vec![Self {
            kind,
            duration_s,
            work: Box::new(work),
        }]
    }
}

/// Results of earlier steps in the same case, round and frame size.
pub(crate) type FoundBefore<'a> = &'a [(StepKind, Findings)];

/// Work of a step.
pub(crate) trait Work: fmt::Debug {
    /// Returns the state machine.
    ///
    /// # Errors
    /// A rate is not usable for the method.
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError>;

    /// Returns the maximum work if no trial is invalid. The maximum rate is a guess here.
    fn bound(&self, common: &Common) -> Estimate;

    /// Returns true if the work depends on the maximum rate. Otherwise that rate need not be known.
    fn uses_max_rate(&self) -> bool {
        true
    }
}

/// Settings of all steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    /// Duration of a trial, or of the first one, seconds.
    pub(crate) duration_s: f64,
    /// Maximum number of repeats of an invalid trial.
    pub(crate) invalid_repeats: u32,
    /// 100 % of the load, frames per second.
    pub(crate) max_rate_pps: f64,
    /// Whether searches may go beyond that rate if all of it held.
    pub(crate) is_raising: bool,
    /// `drain-s` of `[trials]`.
    pub(crate) drain_s: f64,
    /// Warm-up and drain, seconds.
    pub(crate) around_s: f64,
}

impl Common {
    /// Returns the work of this number of trials.
    pub(crate) fn trials(&self, trials: u32) -> Estimate {
        Estimate {
            trials,
            duration_s: f64::from(trials) * (self.duration_s + self.around_s),
        }
    }

    /// Returns a step with the same trial a number of times, or until the loss is at most `enough`.
    pub(crate) fn repeats(&self, rate_pps: f64, repeats: u32, enough: Option<f64>) -> Machine {
        Machine::Repeats(Repeats {
            request: TrialRequest {
                rate_pps,
                duration_s: self.duration_s,
            },
            left: repeats,
            enough,
            invalid_in_a_row: 0,
            max_invalid_repeats: self.invalid_repeats,
        })
    }
}

/// A method of `quietwire measure`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredMethod {
    /// Name.
    pub name: &'static str,
    /// Section of the study file.
    pub section: &'static str,
    /// Keys of the section with their defaults in `quietwire measure`, as TOML.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Search of the method, or for its rates.
    pub search: RateSearch,
}

/// Search of a measured method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSearch {
    /// None.
    No,
    /// This one, always.
    Always(SearchMethod),
    /// This one, unless rates are given.
    UnlessRates(SearchMethod),
}

impl MeasuredMethod {
    /// Returns the search. `has_rates` is true if rates are given.
    #[must_use]
    pub fn search(&self, has_rates: bool) -> Option<SearchMethod> {
        match self.search {
            RateSearch::No => None,
            RateSearch::Always(search) => Some(search),
            RateSearch::UnlessRates(search) => (!has_rates).then_some(search),
        }
    }
}

/// The methods of `quietwire measure` that use a section.
pub(crate) trait Offered {
    /// All of them.
    const MEASURED: &'static [MeasuredMethod] = &[];
}
