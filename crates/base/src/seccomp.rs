// SPDX-License-Identifier: Apache-2.0
//! Use of seccomp filters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Use of seccomp filters, which restrict the system calls of threads (seccomp(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    /// Denies other system calls with EPERM and counts them.
    #[default]
    Enforce,
    /// Allows other system calls; the kernel logs them.
    Log,
    /// Installs no filter.
    Off,
}

/// A text that names no [`Seccomp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSeccomp(String);

impl fmt::Display for UnknownSeccomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Seccomp::ALL.map(Seccomp::name).join(", ");
        write!(
            f,
            "unknown use of seccomp filters '{}' (available: {all})",
            self.0
        )
    }
}

impl std::error::Error for UnknownSeccomp {}

impl Seccomp {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Log, Self::Off];

    /// Returns its name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Log => "log",
            Self::Off => "off",
        }
    }

    /// Returns a description for help texts.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Enforce => "Deny and count system calls that a thread does not require",
            Self::Log => "Allow them; the kernel logs them",
            Self::Off => "Install no filter",
        }
    }
}

impl FromStr for Seccomp {
    type Err = UnknownSeccomp;

    fn from_str(name: &str) -> Result<Self, UnknownSeccomp> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| UnknownSeccomp(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for one in Seccomp::ALL {
            assert_eq!(one.name().parse(), Ok(one));
            assert_eq!(serde_json::to_value(one).unwrap(), one.name());
        }
        let error = "on".parse::<Seccomp>().unwrap_err().to_string();
        assert!(
            error.contains("'on'") && error.contains("enforce"),
            "{error}"
        );
    }
}
