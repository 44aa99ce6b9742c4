// SPDX-License-Identifier: Apache-2.0
//! How many tenants there may be until the loss goal breaks, and what each number of them costs.

use quietwire_search::Most;
use quietwire_study::{FrameSize, StepKind, StudyResults, TenantsPlan, TrialRecord};
use serde::Serialize;

use super::cycles::{CyclesPerFrame, of_frames, per_second};
use super::spread::Spread;
use super::steps::Steps;

/// What adding tenants came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsSummary {
    /// What each was offered, frames per second, summed over directions.
    pub rate_pps: f64,
    /// Part that may be lost.
    pub loss_ratio: f64,
    /// The most that were to be tried.
    pub most: u32,
    /// What was found, by round.
    pub found: Vec<TenantsFound>,
    /// Each number that was tried, by round and number.
    pub rows: Vec<TenantsAt>,
}

/// How many tenants there may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsFound {
    /// Which round, from 0.
    pub round: u32,
    /// The most with which the loss goal held; 0 where it held with none.
    pub held: u32,
    /// The fewest with which it did not; none where it held with all that were tried.
    pub broke: Option<u32>,
    /// Why nothing is known of so many, where they could not be had or the tester failed: that and not the loss bounds it then.
    pub bound: Option<String>,
    /// Whether the search came to its end.
    pub is_through: bool,
}

/// One number of tenants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsAt {
    /// Which round, from 0.
    pub round: u32,
    /// How many.
    pub tenants: u32,
    /// Name of its case.
    pub case: String,
    /// What all of them were offered, frames per second.
    pub offered_pps: f64,
    /// Least that was lost in a valid trial, as a part; none where no trial was valid.
    pub loss_ratio: Option<f64>,
    /// Whether the loss goal held.
    pub holds: bool,
    /// What a frame cost the switch at that load.
    pub cycles: Option<CyclesPerFrame>,
    /// What a tenant cost the switch at that load, cycles a second: those that it counted, over the number of tenants.
    pub cycles_per_tenant_hz: Option<Spread>,
}

/// Whether every round's search came to its end; so it did where none was asked for.
pub(super) fn is_through(results: &StudyResults) -> bool {
    let Some(plan) = results.file.tenants else {
        return true;
    };
    (0..results.file.rounds).all(|round| found(results, &plan, round).is_through)
}

pub(super) fn of_size(results: &StudyResults, size: FrameSize) -> Option<TenantsSummary> {
    let plan = results.file.tenants?;
    Some(TenantsSummary {
        rate_pps: plan.rate_pps,
        loss_ratio: plan.loss_ratio,
        most: plan.most,
        found: (0..results.file.rounds)
            .map(|round| found(results, &plan, round))
            .collect(),
        rows: rows(results, &plan, size),
    })
}

/// The search again, over what is stored.
fn found(results: &StudyResults, plan: &TenantsPlan, round: u32) -> TenantsFound {
    let mut search = Most::up_to(plan.most);
    let mut bound = None;
    while let Some(count) = search.next() {
        let mut cases = results.file.cases.iter();
        let Some(case) = cases.find(|case| case.tenants == Some(count)) else {
            break;
        };
        let why_not = results.unavailable(&case.name);
        let verdict = match why_not {
            Some(_) => Some(false),
            None => results.held(case, round),
        };
        let Some(holds) = verdict else { break };
        if !holds {
            bound = match why_not {
                Some(why) => Some(why.to_owned()),
                None => is_unknown(results, &case.name, round).then(|| TESTER_FAILED.to_owned()),
            };
        }
        search.record(count, holds);
    }
    TenantsFound {
        round,
        held: search.held(),
        broke: search.broke(),
        bound,
        is_through: search.next().is_none(),
    }
}

/// Why nothing is known where no trial was valid.
const TESTER_FAILED: &str = "the tester itself failed in every trial";

/// Whether the trials with so many tenants say nothing, since none was valid.
fn is_unknown(results: &StudyResults, case: &str, round: u32) -> bool {
    let steps = results.steps.iter();
    let own = steps.filter(|step| {
        step.kind == StepKind::Tenants && step.case_name == case && step.round == round
    });
    let mut own = own.filter(|step| !step.trials.is_empty());
    own.any(|step| !step.trials.iter().any(|trial| trial.result.is_valid()))
}

fn rows(results: &StudyResults, plan: &TenantsPlan, size: FrameSize) -> Vec<TenantsAt> {
    let mut rows = Vec::new();
    for case in super::steps::measured(results) {
        let Some(tenants) = case.tenants else {
            continue;
        };
        let steps: Steps<'_> = results
            .steps
            .iter()
            .filter(|step| step.case_name == case.name && step.frame_size == size)
            .filter(|step| step.kind == StepKind::Tenants)
            .collect();
        for step in steps {
            let trials: Vec<&TrialRecord> = step.trials.iter().collect();
            let valid = trials.iter().filter(|trial| trial.result.is_valid());
            let least = valid.map(|trial| trial.result.loss_ratio);
            let least = least.reduce(f64::min);
            rows.push(TenantsAt {
                round: step.round,
                tenants,
                case: case.name.clone(),
                offered_pps: plan.offered_pps(tenants),
                loss_ratio: least,
                holds: least.is_some_and(|loss| loss <= plan.loss_ratio),
                cycles: of_frames(&trials),
                cycles_per_tenant_hz: per_second(&trials, f64::from(tenants)),
            });
        }
    }
    rows.sort_by_key(|row| (row.round, row.tenants));
    rows
}
