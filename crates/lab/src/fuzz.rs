// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as the output of a program that counts frames, and must end without a panic.

use quietwire_base::fuzz::{check, planted};

use crate::counts::{of_dump, of_interfaces, of_links};
use crate::cycles::CycleCount;
use crate::own_view::{OwnView, PartView};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Parses any text as the output of `ovs-ofctl dump-ports` and of `ovs-appctl dpif-netdev/pmd-stats-show`.
fn fuzz_ovs(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let ports = of_dump(&text).unwrap_or_default();
    let cycles = CycleCount::of_ovs(&text);
    planted("lab-ovs", || {
        ports.len() > 1 && ports.iter().any(|(number, _)| *number > 1000)
    });
    !ports.is_empty() || cycles.is_ok()
}

#[test]
fn ovs() {
    check(CRATE, "lab-ovs", fuzz_ovs);
}

/// Parses any text as the output of `ip -s -j link`. Only ports have counters.
fn fuzz_ip(octets: &[u8]) -> bool {
    let Ok(counts) = of_links(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    assert!(counts.ports.keys().all(|name| name.starts_with('p')));
    planted("lab-ip", || {
        counts.ports.len() > 1 && counts.ports.values().any(|port| port.sent == u64::MAX)
    });
    !counts.ports.is_empty()
}

#[test]
fn ip() {
    check(CRATE, "lab-ip", fuzz_ip);
}

/// Parses any text as the output of VPP's `show interface` and `show errors`.
fn fuzz_vpp(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let (interfaces, errors) = text.split_once("Reason").unwrap_or((&*text, ""));
    let port = of_interfaces(interfaces, errors, "memif1/0");
    planted("lab-vpp", || {
        port.received > 1_000_000_000 && port.drops.len() > 2
    });
    port.received > 0 || port.sent > 0 || !port.drops.is_empty()
}

#[test]
fn vpp() {
    check(CRATE, "lab-vpp", fuzz_vpp);
}

/// Returns true if a view of several parts has a counter beyond any that a corpus has.
fn has_large_counter(view: &OwnView) -> bool {
    const LARGE: u64 = 1_000_000_000_000;
    let is_large = |part: &PartView| part.counters.values().any(|number| *number > LARGE);
    view.parts.len() > 1 && view.parts.values().any(is_large)
}

/// Checks that neither parts nor counters exceed their limits.
fn assert_bounded(view: &OwnView) {
    assert!(view.parts.len() <= 256);
    assert!(view.parts.values().all(|part| part.counters.len() <= 1024));
}

/// Parses any text as the output of `ovs-appctl dpif-netdev/pmd-perf-show`.
fn fuzz_pmd_perf(octets: &[u8]) -> bool {
    let Ok(view) = OwnView::of_pmd_perf(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    assert_bounded(&view);
    planted("lab-pmd-perf", || has_large_counter(&view));
    true
}

#[test]
fn pmd_perf() {
    check(CRATE, "lab-pmd-perf", fuzz_pmd_perf);
}

/// Parses any text as the output of VPP's `show runtime`.
fn fuzz_runtime(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    if let Ok(count) = CycleCount::of_vpp(&text) {
        assert!(count.threads.is_empty() && !count.is_complete());
    }
    let Ok(view) = OwnView::of_runtime(&text) else {
        return false;
    };
    assert_bounded(&view);
    assert_bounded(&view.clone().with_interval(&view));
    planted("lab-vpp-runtime", || has_large_counter(&view));
    true
}

#[test]
fn vpp_runtime() {
    check(CRATE, "lab-vpp-runtime", fuzz_runtime);
}

/// Parses any text as the output of testpmd's `show fwd stats all`.
fn fuzz_testpmd_cycles(octets: &[u8]) -> bool {
    let Ok(count) = CycleCount::of_testpmd(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    assert!(count.threads.is_empty() && count.is_complete());
    planted("lab-testpmd-cycles", || count.cycles > 1_000_000_000_000);
    true
}

#[test]
fn testpmd_cycles() {
    check(CRATE, "lab-testpmd-cycles", fuzz_testpmd_cycles);
}
