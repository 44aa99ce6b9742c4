// SPDX-License-Identifier: Apache-2.0
//! Counters of the kernel: their unit, and differences.

use nix::unistd::{SysconfVar, sysconf};

/// USER_HZ where the system does not tell (man 5 proc: it is 100 on all architectures of interest).
const TICKS_PER_SECOND: f64 = 100.0;

/// Ticks in which the kernel counts CPU time, each second (sysconf(3), _SC_CLK_TCK).
pub(crate) fn ticks_per_second() -> f64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks.map_or(TICKS_PER_SECOND, |ticks| ticks as f64)
}

/// `now - then`; a counter that went backwards counts as not moved, and is told.
pub(crate) fn difference(what: &str, then: u64, now: u64, anomalies: &mut Vec<String>) -> u64 {
    now.checked_sub(then).unwrap_or_else(|| {
        anomalies.push(format!("{what} went backwards, from {then} to {now}"));
        0
    })
}
