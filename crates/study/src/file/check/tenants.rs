// SPDX-License-Identifier: Apache-2.0
//! Devices that `[tenants]` cannot be measured on.

use super::super::Switch;
use super::super::limits::{Checked, fault};
use super::super::locate::At::Key;
use super::super::study_file::StudyFile;

/// A device of the lab, and a topology that takes any number of chains.
pub(super) fn tenants(file: &StudyFile) -> Checked {
    let Some(plan) = &file.tenants else {
        return Ok(());
    };
    if file.device.switch == Switch::Other {
        return fault(
            &[Key("tenants")],
            "the device is \"other\" in [device], which the lab does not start, nor tenants of it",
        );
    }
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
