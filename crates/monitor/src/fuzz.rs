// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of `/proc/stat`.

use quietwire_base::fuzz::{check, planted};

use crate::monitors::cpus;

/// Parses any text as `/proc/stat`. Each CPU is listed once, and no time is negative.
fn fuzz_stat(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let times = cpus::cpu_times(&text);
    assert!(times.is_sorted_by(|a, b| a.cpu < b.cpu));
    for cpu in &times {
        let states = [cpu.user_s, cpu.nice_s, cpu.idle_s, cpu.guest_s];
        assert!(states.iter().all(|seconds| *seconds >= 0.0), "{cpu:?}");
    }
    planted("monitor-stat", || {
        times.len() > 1
            && times
                .iter()
                .any(|cpu| cpu.guest_s > 1e9 && cpu.user_s == 0.0)
    });
    !times.is_empty()
}

#[test]
fn stat() {
    check(env!("CARGO_MANIFEST_DIR"), "monitor-stat", fuzz_stat);
}
