// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets of kubelet's files.

use quietwire_base::fuzz::{check, planted};

use super::configuration::Configuration;
use super::cpu_state::CpuManagerState;
use super::memory_state::MemoryManagerState;

/// Parses any text as a configuration of kubelet.
fn fuzz_configuration(octets: &[u8]) -> bool {
    let Ok(configuration) = Configuration::parse(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    assert!(!configuration.cpu_manager_policy.is_empty());
    planted("cluster-kubelet-configuration", || {
        configuration.is_static() && configuration.reserved.len() > 5
    });
    true
}

/// Parses any text as the state of kubelet's CPU manager.
fn fuzz_state(octets: &[u8]) -> bool {
    let Ok(state) = CpuManagerState::parse(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    planted("cluster-cpu-manager-state", || {
        !state.exclusive.is_empty() && state.shared.len() > 5
    });
    true
}

/// Parses any text as the state of kubelet's memory manager.
fn fuzz_memory(octets: &[u8]) -> bool {
    let Ok(state) = MemoryManagerState::parse(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    planted("cluster-memory-manager-state", || {
        let mut pools = state.huge_pages.values();
        pools.any(|kib| *kib > 5)
    });
    true
}

#[test]
fn configuration() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-kubelet-configuration",
        fuzz_configuration,
    );
}

#[test]
fn state() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-cpu-manager-state",
        fuzz_state,
    );
}

#[test]
fn memory() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-memory-manager-state",
        fuzz_memory,
    );
}
