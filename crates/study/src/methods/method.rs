// SPDX-License-Identifier: Apache-2.0
//! What a method is to the rest of a study.

use std::fmt;

use quietwire_search::{ConfigError, Findings, TrialRequest};

use super::estimate::Estimate;
use super::machine::{Machine, Repeats};
use super::search::Search;
use super::step_kind::StepKind;
use crate::file::limits::Checked;
use crate::file::{SearchMethod, Trials};

/// A section of a study file that measures.
pub(crate) trait Method {
    /// Name of the section.
    fn section(&self) -> &'static str;

    /// Checks the section.
    ///
    /// # Errors
    /// The first fault.
    fn check(&self, around: &Surroundings<'_>) -> Checked;

    /// Steps of a case at one frame size, in order.
    fn steps(&self, around: &Surroundings<'_>) -> Vec<Planned>;

    /// Makes everything short, for `--quick`.
    fn shorten(&mut self);

    /// True for what only quietwire's switch alone can do.
    fn is_for_switch_alone(&self) -> bool {
        false
    }

    /// Why a device that the lab does not start cannot be measured; none if it can.
    fn needs_lab(&self) -> Option<&'static str> {
        None
    }

    /// True for methods that look for learned addresses, which takes a third port (RFC 2889, section 5.7).
    fn looks_for_addresses(&self) -> bool {
        false
    }

    /// How long the device keeps addresses, seconds, if the section says it.
    fn ageing_s(&self) -> Option<f64> {
        None
    }
}

/// What a method sees of its study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// `[trials]`.
    pub(crate) trials: &'a Trials,
    /// `[search]`.
    pub(crate) search: Option<&'a Search>,
    /// True if the device keeps a table of addresses, or may.
    pub(crate) has_address_table: bool,
    /// True with `[traffic.frames]`.
    pub(crate) has_own_frames: bool,
    /// Tenants of the case; none for a case that is not of `[tenants]`.
    pub(crate) tenants: Option<u32>,
}

impl Surroundings<'_> {
    /// Names of all goals, in order.
    pub(crate) fn goals(&self) -> Vec<String> {
        let goals = self.search.iter().flat_map(|search| &search.goals);
        goals.map(|goal| goal.name.clone()).collect()
    }
}

/// A step before its maximum rate is known.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) kind: StepKind,
    /// Length of a trial, or of the first one, seconds.
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

/// What steps before found, in the same case, round and frame size.
pub(crate) type FoundBefore<'a> = &'a [(StepKind, Findings)];

/// The work of a step.
pub(crate) trait Work: fmt::Debug {
    /// Returns the state machine.
    ///
    /// # Errors
    /// A rate that the method cannot work with.
    fn machine(&self, common: &Common, found: FoundBefore<'_>) -> Result<Machine, ConfigError>;

    /// Returns the most that is done if no trial is invalid. The maximum rate is a guess here.
    fn bound(&self, common: &Common) -> Estimate;
}

/// What all steps are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    /// Length of a trial, or of the first one, seconds.
    pub(crate) duration_s: f64,
    /// How often an invalid trial is made again.
    pub(crate) invalid_repeats: u32,
    /// 100 % of the load, frames per second.
    pub(crate) max_rate_pps: f64,
    /// `drain-s` of `[trials]`.
    pub(crate) drain_s: f64,
    /// Warm-up and drain, seconds.
    pub(crate) around_s: f64,
}

impl Common {
    /// Returns what so many trials take.
    pub(crate) fn trials(&self, trials: u32) -> Estimate {
        Estimate {
            trials,
            duration_s: f64::from(trials) * (self.duration_s + self.around_s),
        }
    }

    /// Returns the same trial a number of times, or until so little was lost.
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

/// A method as `quietwire measure` offers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredMethod {
    /// Its name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Section of the study file.
    pub section: &'static str,
    /// Keys of the section with their defaults here, as TOML.
    pub defaults: &'static [(&'static str, &'static str)],
    /// The search that it is, or that finds its rates.
    pub search: RateSearch,
}

/// The search that a measured method comes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSearch {
    /// None.
    No,
    /// Always this one.
    Always(SearchMethod),
    /// This one, unless rates are given.
    UnlessRates(SearchMethod),
}

impl MeasuredMethod {
    /// Returns the search that it comes with. `has_rates` is true if its rates are given.
    #[must_use]
    pub fn search(&self, has_rates: bool) -> Option<SearchMethod> {
        match self.search {
            RateSearch::No => None,
            RateSearch::Always(search) => Some(search),
            RateSearch::UnlessRates(search) => (!has_rates).then_some(search),
        }
    }
}

/// The ways in which `quietwire measure` offers a section.
pub(crate) trait Offered {
    /// All of them.
    const MEASURED: &'static [MeasuredMethod] = &[];
}
