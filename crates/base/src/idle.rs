// SPDX-License-Identifier: Apache-2.0
//! Behaviour of a forwarding thread without frames.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Behaviour of a forwarding thread if no frame has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// Polls again at once.
    #[default]
    Poll,
    /// Yields the CPU to other threads (sched_yield(2)) after some empty polls.
    Yield,
    /// Sleeps for some 50 µs (clock_nanosleep(2)) after some empty polls, and until a receive interrupt if the kernel signals the frames
    /// of all ports of the thread.
    Sleep,
    /// Sleeps until a receive interrupt or for some milliseconds (epoll_wait(2)) after some empty polls.
    Interrupt,
}

/// A text that names no [`Idle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIdle(String);

impl fmt::Display for UnknownIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Idle::ALL.map(Idle::name).join(", ");
        write!(f, "unknown idle behaviour '{}' (available: {all})", self.0)
    }
}

impl std::error::Error for UnknownIdle {}

impl Idle {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Poll, Self::Yield, Self::Sleep, Self::Interrupt];

    /// Returns its name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Yield => "yield",
            Self::Sleep => "sleep",
            Self::Interrupt => "interrupt",
        }
    }

    /// Returns a description for help texts.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Poll => "Poll again at once",
            Self::Yield => "Yield the CPU to other threads after some empty polls",
            Self::Sleep => "Sleep for some 50 µs after some empty polls",
            Self::Interrupt => {
                "Sleep until a receive interrupt, or some ms, after some empty polls"
            }
        }
    }
}

impl FromStr for Idle {
    type Err = UnknownIdle;

    fn from_str(name: &str) -> Result<Self, UnknownIdle> {
        let found = Self::ALL.into_iter().find(|idle| idle.name() == name);
        found.ok_or_else(|| UnknownIdle(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for idle in Idle::ALL {
            assert_eq!(idle.name().parse(), Ok(idle));
        }
        let error = "nap".parse::<Idle>().unwrap_err().to_string();
        assert!(
            error.contains("'nap'") && error.contains("interrupt"),
            "{error}"
        );
    }
}
