// SPDX-License-Identifier: Apache-2.0
//! Devices that do not support `[tenants]`.

use super::super::Switch;
use super::super::limits::{Checked, fault};
use super::super::locate::At::Key;
use super::super::study_file::StudyFile;

/// Checks that the lab starts the device, and that the topology supports any number of chains.
pub(super) fn tenants(file: &StudyFile) -> Checked {
    let Some(plan) = &file.tenants else {
        return Ok(());
    };
    if file.device.switch == Switch::Other {
        return fault(
            &[Key("tenants")],
            "[tenants] requires a device that the lab starts, and switch is \"other\" in [device] (choose another switch)",
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
