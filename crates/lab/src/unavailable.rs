// SPDX-License-Identifier: Apache-2.0
//! Why an element cannot be had.

/// Why a program cannot be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unavailable because {0}")]
pub struct Unavailable(pub String);
