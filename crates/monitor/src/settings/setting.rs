// SPDX-License-Identifier: Apache-2.0
//! A setting with its source.

use serde::{Deserialize, Serialize};

/// Value of a setting that cannot be read.
pub(crate) const UNKNOWN: &str = "unknown";

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSetting {
    /// Its value, or `unknown`.
    pub value: String,
    /// Source of the value: a file, or a register.
    pub source: String,
}

impl MachineSetting {
    pub(super) fn of(value: Option<String>, source: impl Into<String>) -> Self {
        Self {
            value: value.unwrap_or_else(|| UNKNOWN.to_owned()),
            source: source.into(),
        }
    }
}
