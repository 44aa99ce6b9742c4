// SPDX-License-Identifier: Apache-2.0
//! Preview of a study on this machine, without running it.

use std::path::Path;

use quietwire_host::inventory::Inventory;
use quietwire_lab::LabOptions;
use serde::Serialize;

use crate::file::StudyFile;
use crate::lab_bench::unavailable;
use crate::methods::Estimate;

/// Preview of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyPreview {
    /// Cases, in the order of the file.
    pub cases: Vec<CasePreview>,
    /// Maximum number of trials in all available cases, if none is invalid.
    pub trials: u32,
    /// Maximum duration of the trials and case setups, seconds. Repeats of invalid trials come on top, and
    /// a device that learns addresses slowly takes longer.
    pub duration_s: f64,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CasePreview {
    /// Its name.
    pub name: String,
    /// Description.
    pub device: String,
    /// Why this machine cannot run it; none if it can, as far as is known without starting anything.
    pub unavailable: Option<String>,
}

/// Time to set up a case and find its highest rate, seconds; and additional time for each guest in software emulation, the slower
/// kind of guest.
const SET_UP_S: f64 = 4.0;
const GUEST_S: f64 = 12.0;

impl StudyPreview {
    /// Returns the preview of a study on this machine.
    #[must_use]
    pub fn of(file: &StudyFile, options: &LabOptions) -> Self {
        let machine = Inventory::read(Path::new("/"));
        let mut set_up_s = 0.0;
        let mut available = 0_usize;
        let mut cases = Vec::new();
        let mut tenants = 0;
        // One number of tenants represents all numbers.
        let shown = file
            .cases
            .iter()
            .filter(|case| case.tenants.is_none_or(|count| count == 1));
        for case in shown {
            let device = file.device_of(case);
            let unavailable = unavailable(file, case, options, &machine);
            if unavailable.is_none() {
                let times = match case.tenants {
                    None => {
                        available = available.saturating_add(1);
                        1
                    }
                    Some(_) => {
                        tenants = file.tenants_tried();
                        tenants
                    }
                };
                let guests = device.graph().map_or(0, |graph| graph.guest_count());
                set_up_s += (SET_UP_S + GUEST_S * guests as f64) * times as f64;
            }
            cases.push(CasePreview {
                name: match file.tenants.filter(|_| case.tenants.is_some()) {
                    Some(plan) => format!("{}…{}", case.name, plan.most),
                    None => case.name.clone(),
                },
                device: device.described(),
                unavailable,
            });
        }
        let estimate = Estimate::of_cases(file, available, tenants);
        Self {
            cases,
            trials: estimate.trials,
            duration_s: estimate.duration_s + f64::from(file.rounds) * set_up_s,
        }
    }
}
