// SPDX-License-Identifier: Apache-2.0
//! Which cases are gone through in a round: those of the file, but for those that the machine cannot have; then so many tenants
//! as the search for the most of them asks for.

use quietwire_search::Most;

use super::{RunError, Runner, StudyEnd};
use crate::bench::{CaseLeftOut, CaseSpec, Interrupted};
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
    /// Why the case is to be left out, where that is all there is to it.
    fn left_out(&self) -> Option<&CaseLeftOut> {
        match self {
            Self::Bench { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// Whether nothing failed but that the study is to end.
    fn is_interruption(&self) -> bool {
        matches!(self, Self::Bench { source, .. } if source.is::<Interrupted>())
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

    /// Adds tenants until the loss goal breaks or no more can be had, and looks between.
    fn tenants(&mut self, plan: &TenantsPlan, round: u32) -> Result<StudyEnd, RunError> {
        let mut search = Most::up_to(plan.most);
        while let Some(count) = search.next() {
            let Some((position, case)) = self.file.tenants_case(count) else {
                break;
            };
            if !self.unavailable.contains(&position)
                && self.one(&spec_of(case, position, round))? == StudyEnd::Interrupted
            {
                return Ok(StudyEnd::Interrupted);
            }
            let can_be_had = !self.unavailable.contains(&position);
            search.record(count, can_be_had && self.held(plan, round, &case.name)?);
        }
        Ok(StudyEnd::Finished)
    }

    /// Whether the loss goal held at every frame size.
    fn held(&mut self, plan: &TenantsPlan, round: u32, case: &str) -> Result<bool, RunError> {
        for size in &self.file.traffic.frame_sizes {
            let step = self.store.step_id(round, case, *size, &StepKind::Tenants)?;
            if !holds(plan, &self.store.trials_of(step)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the cases that the machine cannot have, and stores why. Where it cannot have one tenant, it has no more of them.
    fn leave_out(&mut self) -> Result<(), RunError> {
        for (position, case) in self.file.cases.iter().enumerate() {
            if case.tenants.is_some_and(|count| count > 1) {
                continue;
            }
            let spec = spec_of(case, position, 0);
            if let Some(reason) = self.bench.unavailable(&spec) {
                self.note_left_out(&spec, &CaseLeftOut::Unavailable(reason))?;
            }
        }
        Ok(())
    }

    fn note_left_out(&mut self, spec: &CaseSpec, why: &CaseLeftOut) -> Result<(), RunError> {
        self.store.add_left_out(spec.round, &spec.case.name, why)?;
        self.progress.unavailable(spec, &why.to_string());
        self.unavailable.push(spec.position);
        Ok(())
    }

    /// A case from its beginning to its end; or the note that it could not be had, as is found out only now.
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
        self.leave()?;
        Ok(end)
    }
}
