// SPDX-License-Identifier: Apache-2.0
//! The keys of `[tenants]`.

use quietwire_lab::topology::CHAINS_MAX;
use serde::{Deserialize, Serialize};

/// `[tenants]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TenantsPlan {
    /// What each is offered, frames per second, summed over directions.
    pub rate_pps: f64,
    /// Part of all frames that may be lost, 0 or more and under 1.
    pub loss_ratio: f64,
    /// Trials at each number: the goal breaks once so many in a row have lost too much.
    #[serde(default = "trials")]
    pub trials: u32,
    /// The most that are tried.
    #[serde(default = "most")]
    pub most: u32,
}

pub(super) fn trials() -> u32 {
    3
}

pub(super) fn most() -> u32 {
    CHAINS_MAX
}
