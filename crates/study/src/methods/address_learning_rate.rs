// SPDX-License-Identifier: Apache-2.0
//! `[address-learning-rate]`: address learning rate of a switch (RFC 2889, section 5.8).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{AddressLearningRate, AddressLearningRateConfig};
use quietwire_tester::MAC_ADDRESSES_MAX;
use serde::{Deserialize, Serialize};

use super::checks::{addresses, rate};
use super::estimate::{Estimate, actions, halvings};
use super::machine::Machine;
use super::method::{
    Common, FoundBefore, MeasuredMethod, Method, Offered, Planned, RateSearch, StudyContext, Work,
};
use super::step_kind::StepKind;
use crate::file::limits::{Checked, between};
use crate::file::locate::At::Key;

/// Measurement of the address learning rate (`[address-learning-rate]`; RFC 2889, section 5.8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddressLearningRatePlan {
    /// Number of addresses, at most the address caching capacity of the switch.
    pub addresses: u32,
    /// Highest rate of learning frames to try, frames per second.
    pub max_rate_pps: u32,
    /// Resolution of the search, frames per second. Default: 100.
    #[serde(default = "resolution_pps")]
    pub resolution_pps: u32,
    /// Rate of frames to learned addresses, frames per second. Default: 10 000.
    #[serde(default = "probe_rate_pps")]
    pub probe_rate_pps: f64,
    /// Ageing time of the device, as in `[address-caching]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing_s: Option<f64>,
}

fn resolution_pps() -> u32 {
    100
}

fn probe_rate_pps() -> f64 {
    10_000.0
}

impl Method for AddressLearningRatePlan {
    fn section(&self) -> &'static str {
        "address-learning-rate"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("address-learning-rate"), Key(key)];
        addresses(around, "address-learning-rate", self.ageing_s)?;
        between(self.addresses, 1, MAC_ADDRESSES_MAX, &at("addresses"))?;
        between(self.max_rate_pps, 1, u32::MAX, &at("max-rate-pps"))?;
        between(
            self.resolution_pps,
            1,
            self.max_rate_pps,
            &at("resolution-pps"),
        )?;
        rate(
            self.probe_rate_pps,
            "address-learning-rate",
            "probe-rate-pps",
        )
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = around.trials.duration_s;
        Planned::new(StepKind::AddressLearningRate, duration_s, self.clone())
    }

    fn shorten(&mut self) {}

    fn requires_standalone_switch(&self) -> bool {
        true
    }

    fn measures_addresses(&self) -> bool {
        true
    }

    fn ageing_s(&self) -> Option<f64> {
        self.ageing_s
    }
}

impl Work for AddressLearningRatePlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let learning = AddressLearningRate::new(AddressLearningRateConfig {
            addresses: self.addresses,
            max_rate_pps: self.max_rate_pps,
            resolution_pps: self.resolution_pps,
            probe_rate_pps: self.probe_rate_pps,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(learning)))
    }

    fn bound(&self, _common: &Common) -> Estimate {
        let rates = halvings(f64::from(self.max_rate_pps), self.resolution_pps);
        let slowest = 1.0 / f64::from(self.resolution_pps) + 1.0 / self.probe_rate_pps;
        actions(3.0 * rates, f64::from(self.addresses) * slowest / 3.0)
    }

    fn uses_max_rate(&self) -> bool {
        false
    }
}

impl Offered for AddressLearningRatePlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "address-learning-rate",
        section: "address-learning-rate",
        defaults: &[],
        search: RateSearch::No,
    }];
}
