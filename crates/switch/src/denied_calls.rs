// SPDX-License-Identifier: Apache-2.0
//! Counts and log of system calls that seccomp filters denied. Threads whose calls are denied cannot log them themselves.

use std::time::{Duration, Instant};

use quietwire_base::RateLimit;
use quietwire_dpdk::seccomp;

use crate::report::Role;
use crate::threads::task_of;

/// Interval between two log lines.
const INTERVAL: Duration = Duration::from_secs(10);
/// Log lines without a pause.
const BURST: u32 = 3;

/// Returns the number of denied calls of each role.
pub(crate) fn by_role() -> [(Role, u64); Role::ALL.len()] {
    Role::ALL.map(|role| (role, seccomp::of_task(task_of(role)).calls))
}

/// The denied calls that are logged.
#[derive(Debug)]
pub(crate) struct DeniedCalls {
    logged: [(Role, u64); Role::ALL.len()],
    limit: RateLimit,
}

impl DeniedCalls {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            logged: by_role(),
            limit: RateLimit::new(INTERVAL, BURST, now),
        }
    }

    /// Logs the calls since the last time, within the limit.
    pub(crate) fn log(&mut self, now: Instant) {
        if by_role() != self.logged && self.limit.take(now).is_ok() {
            self.log_all();
        }
    }

    /// Logs the calls since the last time.
    pub(crate) fn log_all(&mut self) {
        for (role, logged) in &mut self.logged {
            let denied = seccomp::of_task(task_of(*role));
            if denied.calls == *logged {
                continue;
            }
            tracing::warn!(
                "seccomp filters of {} threads have denied {} system calls, most recently {} (a bug of the switch, or an attack on it; `quietwire switch show threads` lists the threads)",
                role.name(),
                denied.calls,
                denied.last.unwrap_or_default()
            );
            *logged = denied.calls;
        }
    }
}
