// SPDX-License-Identifier: Apache-2.0
//! Order of the cases in a round: those of the file, except unavailable ones; then the cases of tenants that the search for their
//! maximum number asks for.

use quietwire_search::MaxCount;
use quietwire_tester::TesterError;

use super::{RunError, Runner, StudyEnd};
use crate::bench::{CaseSkipped, CaseSpec, Interrupted};
use crate::file::Case;
use crate::methods::{StepKind, TenantsPlan};
use crate::results::holds;

fn spec_of(case: &Case, position: usize, round: u32) -> CaseSpec {
    CaseSpec {
        case: case.clone(),
        position,
        round,
    }
}

impl RunError {
    /// Returns why the case is left out, if the error means only that.
    fn left_out(&self) -> Option<&CaseSkipped> {
        match self {
            Self::Bench { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// Returns true if the error is an interruption of the study. A signal aborts the trial of the built-in tester.
    fn is_interruption(&self) -> bool {
        let Self::Bench { source, .. } = self else {
            return false;
        };
        let aborted = source.downcast_ref::<TesterError>();
        source.is::<Interrupted>() || matches!(aborted, Some(TesterError::Aborted))
    }
}

impl Runner<'_> {
    pub(super) fn rounds(&mut self) -> Result<StudyEnd, RunError> {
        self.leave_out()?;
        for round in 0..self.file.rounds {
            for (position, case) in self.file.cases.iter().enumerate() {
                if case.tenants.is_some() || self.unavailable.contains(&position) {
                    continue;
                }
                if self.one(&spec_of(case, position, round))? == StudyEnd::Interrupted {
                    return Ok(StudyEnd::Interrupted);
                }
            }
            if let Some(plan) = self.file.tenants
                && self.tenants(&plan, round)? == StudyEnd::Interrupted
            {
                return Ok(StudyEnd::Interrupted);
            }
        }
        Ok(StudyEnd::Finished)
    }

    /// Doubles the number of tenants until the loss goal breaks or no more are available, then searches in between.
    fn tenants(&mut self, plan: &TenantsPlan, round: u32) -> Result<StudyEnd, RunError> {
        let mut search = MaxCount::up_to(plan.most);
        while let Some(count) = search.next() {
            let Some((position, case)) = self.file.tenants_case(count) else {
                break;
            };
            if !self.unavailable.contains(&position)
                && self.one(&spec_of(case, position, round))? == StudyEnd::Interrupted
            {
                return Ok(StudyEnd::Interrupted);
            }
            let is_available = !self.unavailable.contains(&position);
            search.record(count, is_available && self.held(plan, round, &case.name)?);
        }
        Ok(StudyEnd::Finished)
    }

    /// Returns true if the loss goal held at every frame size.
    fn held(&mut self, plan: &TenantsPlan, round: u32, case: &str) -> Result<bool, RunError> {
        for size in &self.file.traffic.frame_sizes {
            let step = self.store.step_id(round, case, *size, &StepKind::Tenants)?;
            if !holds(plan, &self.store.trials_of(step)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the cases that are unavailable on this machine and stores the reasons. If one tenant is unavailable, so are more tenants.
    fn leave_out(&mut self) -> Result<(), RunError> {
        for (position, case) in self.file.cases.iter().enumerate() {
            if case.tenants.is_some_and(|count| count > 1) {
                continue;
            }
            let spec = spec_of(case, position, 0);
            if let Some(reason) = self.bench.unavailable(&spec) {
                self.note_left_out(&spec, &CaseSkipped::Unavailable(reason))?;
            }
        }
        Ok(())
    }

    fn note_left_out(&mut self, spec: &CaseSpec, why: &CaseSkipped) -> Result<(), RunError> {
        self.store.add_left_out(spec.round, &spec.case.name, why)?;
        self.progress.unavailable(spec, &why.to_string());
        self.unavailable.push(spec.position);
        Ok(())
    }

    /// Runs a case, or records that it turned out to be unavailable.
    fn one(&mut self, spec: &CaseSpec) -> Result<StudyEnd, RunError> {
        let end = match self.case(spec) {
            Ok(end) => end,
            Err(error) if error.is_interruption() => StudyEnd::Interrupted,
            Err(error) => match error.left_out() {
                Some(why) => {
                    self.note_left_out(spec, why)?;
                    StudyEnd::Finished
                }
                None => return Err(error),
            },
        };
        self.leave_entered_case()?;
        Ok(end)
    }
}
