// SPDX-License-Identifier: Apache-2.0
//! What `[tenants]` may get wrong.

use quietwire_lab::topology::CHAINS_MAX;
use quietwire_tester::OFFERED_RATE_PPS_MAX;

use super::super::Switch;
use super::super::locate::At::Key;
use super::super::study_file::StudyFile;
use super::limits::{Checked, TRIALS_AT_NUMBER_MAX, between, fault};

/// Sound numbers, and a topology that takes any number of chains.
pub(super) fn tenants(file: &StudyFile) -> Checked {
    let Some(plan) = &file.tenants else {
        return Ok(());
    };
    let at = |key| [Key("tenants"), Key(key)];
    if file.device.switch == Switch::Other {
        return fault(
            &[Key("tenants")],
            "the device is \"other\" in [device], which the lab does not start, nor tenants of it",
        );
    }
    if !(plan.rate_pps > 0.0 && plan.offered_pps(plan.most.max(1)) <= OFFERED_RATE_PPS_MAX) {
        return fault(
            &at("rate-pps"),
            format!(
                "{:e} has to be above 0, and that of all tenants together at most {OFFERED_RATE_PPS_MAX:e}",
                plan.rate_pps
            ),
        );
    }
    if !(0.0..1.0).contains(&plan.loss_ratio) {
        return fault(
            &at("loss-ratio"),
            format!(
                "{} is not in [0, 1); 0 means no loss at all, 0.0001 means 0.01 %",
                plan.loss_ratio
            ),
        );
    }
    between(plan.trials, 1, TRIALS_AT_NUMBER_MAX, &at("trials"))?;
    between(plan.most, 1, CHAINS_MAX, &at("most"))?;
    match file
        .tenants_case(plan.most)
        .map(|(_, case)| file.device_of(case))
    {
        Some(device) => device.graph().map_or_else(
            |error| fault(&[Key("tenants")], error.to_string()),
            |_| Ok(()),
        ),
        None => Ok(()),
    }
}
