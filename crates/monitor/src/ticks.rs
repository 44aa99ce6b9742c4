// SPDX-License-Identifier: Apache-2.0
//! Kernel counters: their unit and their differences.

use nix::unistd::{SysconfVar, sysconf};

/// USER_HZ if the system does not report it (proc(5): 100 on all architectures of interest).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the ticks per second in which the kernel counts CPU time (sysconf(3), _SC_CLK_TCK).
pub(crate) fn ticks_per_second() -> f64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks.map_or(TICKS_PER_SECOND, |ticks| ticks as f64)
}

/// Returns `now - then`. A counter that went backwards counts as unchanged and is reported as an anomaly.
pub(crate) fn difference(what: &str, then: u64, now: u64, anomalies: &mut Vec<String>) -> u64 {
    now.checked_sub(then).unwrap_or_else(|| {
        anomalies.push(format!("{what} went backwards, from {then} to {now}"));
        0
    })
}
