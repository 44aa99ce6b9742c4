// SPDX-License-Identifier: Apache-2.0
//! The sources of `crates/memif`, compiled for a model checker. Their own tests are left out: atomics of a model exist in a model only.

#[cfg(not(test))]
#[path = "../../../crates/memif/src"]
mod sources {
    pub mod message;
    pub mod ring;
}

#[cfg(not(test))]
pub use sources::*;
