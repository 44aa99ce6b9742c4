// SPDX-License-Identifier: Apache-2.0
//! The sources of `crates/vhost`, compiled for a model checker. Their own tests are left out: atomics of a model exist in a model only.

#[cfg(not(test))]
#[allow(dead_code, reason = "sessions use it, which are left out")]
#[path = "../../../crates/vhost/src"]
mod sources {
    pub mod address_space;
    pub mod driver;
    pub mod features;
    pub mod message;
    pub(crate) mod narrow;
    pub mod ring;
}

#[cfg(not(test))]
use sources::narrow;
#[cfg(not(test))]
pub use sources::*;
