// SPDX-License-Identifier: Apache-2.0
//! `[address-caching]`: address caching capacity of a switch (RFC 2889, section 5.7).

use quietwire_search::ConfigError;
use quietwire_search::procedure::{AddressCaching, AddressCachingConfig};
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

/// Measurement of the address caching capacity of a switch (`[address-caching]`; RFC 2889, section 5.7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddressCachingPlan {
    /// Maximum number of addresses to try.
    pub max_addresses: u32,
    /// Resolution of the search, addresses. Default: 1.
    #[serde(default = "resolution_addresses")]
    pub resolution_addresses: u32,
    /// Rate of learning frames, frames per second. Default: 1000.
    #[serde(default = "learning_rate_pps")]
    pub learning_rate_pps: f64,
    /// Rate of frames to learned addresses, frames per second. Default: 10 000.
    #[serde(default = "probe_rate_pps")]
    pub probe_rate_pps: f64,
    /// Ageing time of the device, seconds, waited for before each number of addresses. Only for devices whose table neither the lab nor a
    /// simulation can flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing_s: Option<f64>,
}

fn resolution_addresses() -> u32 {
    1
}

fn learning_rate_pps() -> f64 {
    1000.0
}

fn probe_rate_pps() -> f64 {
    10_000.0
}

impl Method for AddressCachingPlan {
    fn section(&self) -> &'static str {
        "address-caching"
    }

    fn check(&self, around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("address-caching"), Key(key)];
        addresses(around, "address-caching", self.ageing_s)?;
        between(
            self.max_addresses,
            1,
            MAC_ADDRESSES_MAX,
            &at("max-addresses"),
        )?;
        between(
            self.resolution_addresses,
            1,
            self.max_addresses,
            &at("resolution-addresses"),
        )?;
        rate(
            self.learning_rate_pps,
            "address-caching",
            "learning-rate-pps",
        )?;
        rate(self.probe_rate_pps, "address-caching", "probe-rate-pps")
    }

    fn steps(&self, around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = around.trials.duration_s;
        Planned::new(StepKind::AddressCaching, duration_s, self.clone())
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

impl Work for AddressCachingPlan {
    fn machine(&self, common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        let caching = AddressCaching::new(AddressCachingConfig {
            max_addresses: self.max_addresses,
            resolution_addresses: self.resolution_addresses,
            learning_rate_pps: self.learning_rate_pps,
            probe_rate_pps: self.probe_rate_pps,
            max_invalid_repeats: common.invalid_repeats,
        })?;
        Ok(Machine::Procedure(Box::new(caching)))
    }

    fn bound(&self, _common: &Common) -> Estimate {
        let numbers = halvings(f64::from(self.max_addresses), self.resolution_addresses);
        let each = 1.0 / self.learning_rate_pps + 1.0 / self.probe_rate_pps;
        actions(3.0 * numbers, f64::from(self.max_addresses) * each / 3.0)
    }

    fn uses_max_rate(&self) -> bool {
        false
    }
}

impl Offered for AddressCachingPlan {
    const MEASURED: &'static [MeasuredMethod] = &[MeasuredMethod {
        name: "address-caching",
        section: "address-caching",
        defaults: &[],
        search: RateSearch::No,
    }];
}
