// SPDX-License-Identifier: Apache-2.0
//! The reason why an element is unavailable.

/// The reason why a program is unavailable on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unavailable because {0}")]
pub struct Unavailable(pub String);
