// SPDX-License-Identifier: Apache-2.0
//! Common parts of the searches over connections.

use std::fmt;

use quietwire_search::ConfigError;
use quietwire_search::procedure::ConversationSearch;

use super::super::estimate::Estimate;
use super::super::machine::Machine;
use super::super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::super::step_kind::StepKind;
use super::keys::SearchKeys;
use crate::file::limits::Checked;

/// A section that searches the highest value of a quantity of connections.
pub(super) trait ConnectionSearch: Clone + fmt::Debug + 'static {
    /// Name of the section, and of the method.
    const NAME: &'static str;
    /// Kind of its step.
    const KIND: StepKind;

    /// Returns the keys of the search.
    fn keys(&self) -> SearchKeys;

    /// Returns the duration of a trial, seconds, if the section has one.
    fn duration_s(&self) -> Option<f64>;

    /// Uses the duration of `[trials]`.
    fn forget_duration(&mut self);
}

impl<T: ConnectionSearch> Method for T {
    fn section(&self) -> &'static str {
        Self::NAME
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        self.keys().check(around, self.duration_s())
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = self.duration_s().unwrap_or(around.trials.duration_s);
        Planned::new(Self::KIND, duration_s, self.clone())
    }

    fn shorten(&mut self) {
        self.forget_duration();
    }

    fn opens_connections(&self) -> bool {
        true
    }
}

impl<T: ConnectionSearch> Work for T {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let search = ConversationSearch::new(self.keys().config(common)?)?;
        Ok(Machine::Procedure(Box::new(search)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        self.keys().bound(common)
    }
}

impl<T: ConnectionSearch> Offered for T {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: T::NAME,
        section: T::NAME,
        defaults: &[],
        search: RateSearch::No,
    }];
}
