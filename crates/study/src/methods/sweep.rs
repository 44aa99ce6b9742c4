// SPDX-License-Identifier: Apache-2.0
//! `[sweep]`: the frame loss rate sweep (RFC 2544, section 26.3).

use quietwire_search::{ConfigError, LossSweep, LossSweepConfig};
use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::Percent;
use crate::file::limits::{Checked, fault};
use crate::file::locate::At::{Index, Key};

/// Sweep with one trial at each load (`[sweep]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sweep {
    /// Offered loads, percent of the maximum rate.
    pub loads_percent: Vec<Percent>,
}

/// Loads of a sweep with `--quick`.
const QUICK_LOADS: usize = 2;

impl Method for Sweep {
    fn section(&self) -> &'static str {
        "sweep"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        let loads = &self.loads_percent;
        let path = [Key("sweep"), Key("loads-percent")];
        if loads.is_empty() {
            return fault(
                &path,
                "no load is given (write [10, 50, 100], for example, or remove [sweep])",
            );
        }
        for (index, load) in loads.iter().enumerate() {
            if loads.iter().take(index).any(|before| before == load) {
                return fault(
                    &[path[0], path[1], Index(index)],
                    format!(
                        "{} is given twice (a sweep has one trial for each load)",
                        load.get()
                    ),
                );
            }
        }
        Ok(())
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        Planned::new(StepKind::Sweep, around.trials.duration_s, self.clone())
    }

    fn shorten(&mut self) {
        // Cases are compared at the highest load.
        let loads = &mut self.loads_percent;
        loads.drain(..loads.len().saturating_sub(QUICK_LOADS));
    }
}

impl Work for Sweep {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let loads = self.loads_percent.iter();
        let config = LossSweepConfig {
            rates_pps: loads.map(|load| load.of(common.max_rate_pps)).collect(),
            trial_duration_s: common.duration_s,
            max_invalid_repeats: common.invalid_repeats,
        };
        Ok(Machine::Method(Box::new(LossSweep::new(config)?)))
    }

    fn bound(&self, common: &Common) -> Estimate {
        common.trials(u32::try_from(self.loads_percent.len()).unwrap_or(u32::MAX))
    }
}

impl Offered for Sweep {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "loss-sweep",
        section: "sweep",
        defaults: &[("loads-percent", "[10, 20, 30, 40, 50, 60, 70, 80, 90, 100]")],
        search: RateSearch::No,
    }];
}
