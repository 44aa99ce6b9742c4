// SPDX-License-Identifier: Apache-2.0
//! Maximum number of tenants at the loss goal, and the cost of each number of tenants.

use quietwire_search::MaxCount;
use quietwire_study::{FrameSize, StepKind, StudyResults, TenantsPlan, TrialRecord};
use serde::Serialize;

use super::cycles::{CyclesPerFrame, of_frames, per_second};
use super::spread::Spread;
use super::steps::Steps;

/// Results of adding tenants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsSummary {
    /// Load offered to each tenant, frames per second, summed over directions.
    pub rate_pps: f64,
    /// Allowed loss ratio.
    pub loss_ratio: f64,
    /// Maximum number of tenants to try.
    pub most: u32,
    /// Findings, by round.
    pub found: Vec<TenantsFound>,
    /// Each number that was tried, by round and number.
    pub rows: Vec<TenantsAt>,
}

/// Maximum number of tenants in one round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsFound {
    /// Number of the round, from 0.
    pub round: u32,
    /// Largest number for which the loss goal held; 0 if it held for none.
    pub held: u32,
    /// Smallest number for which it did not hold; none if it held for all numbers tried.
    pub failed_at: Option<u32>,
    /// Why there is no result for that number, if it was unavailable or the tester failed. The limit is then not due to loss.
    pub bound: Option<String>,
    /// True if the search finished.
    pub is_through: bool,
}

/// Results for one number of tenants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantsAt {
    /// Number of the round, from 0.
    pub round: u32,
    /// Number of tenants.
    pub tenants: u32,
    /// Name of the case.
    pub case: String,
    /// Load offered to all tenants, frames per second.
    pub offered_pps: f64,
    /// Smallest loss ratio of a valid trial; none without valid trials.
    pub loss_ratio: Option<f64>,
    /// True if the loss goal held.
    pub holds: bool,
    /// Cost of a frame in the switch at that load.
    pub cycles: Option<CyclesPerFrame>,
    /// Cost of a tenant in the switch at that load: counted cycles per second, divided by the number of tenants.
    pub cycles_per_tenant_hz: Option<Spread>,
}

/// Returns true if the search of every round finished, or the study has no such search.
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

/// Repeats the search on the stored results.
fn found(results: &StudyResults, plan: &TenantsPlan, round: u32) -> TenantsFound {
    let mut search = MaxCount::up_to(plan.most);
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
        failed_at: search.failed_at(),
        bound,
        is_through: search.next().is_none(),
    }
}

/// Why there is no result without a valid trial.
const TESTER_FAILED: &str = "the tester itself failed in every trial";

/// Returns true if the trials with this number of tenants give no result because none is valid.
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
