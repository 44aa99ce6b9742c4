// SPDX-License-Identifier: Apache-2.0
//! What a study would do on this machine, without doing any of it.

use std::path::Path;

use quietwire_host::inventory::Inventory;
use quietwire_lab::LabOptions;
use serde::Serialize;

use crate::file::StudyFile;
use crate::lab_bench::unavailable;
use crate::methods::Estimate;

/// What a study would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// Its cases, in the file's order.
    pub cases: Vec<CaseOutlook>,
    /// Trials at most, in all cases that this machine can have, while none is invalid.
    pub trials: u32,
    /// Time that they take, and setting up those cases, at most, seconds. Invalid trials are made again on top of it, and
    /// addresses that a device learns slowly take longer.
    pub duration_s: f64,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseOutlook {
    /// Its name.
    pub name: String,
    /// What is measured.
    pub device: String,
    /// Why this machine cannot have it; none where it can, as far as is known without starting anything.
    pub unavailable: Option<String>,
}

/// What setting a case up and finding its highest rate takes, seconds; and each guest of it in software emulation, the slower
/// of the two kinds.
const SET_UP_S: f64 = 4.0;
const GUEST_S: f64 = 12.0;

impl Outlook {
    /// Of a study on this machine.
    #[must_use]
    pub fn of(file: &StudyFile, options: &LabOptions) -> Self {
        let machine = Inventory::read(Path::new("/"));
        let mut set_up_s = 0.0;
        let mut available = 0;
        let mut cases = Vec::new();
        let mut tenants = 0;
        // One number of tenants stands for all.
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
                        available += 1;
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
            cases.push(CaseOutlook {
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
