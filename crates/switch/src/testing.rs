// SPDX-License-Identifier: Apache-2.0
//! The EAL of all tests of this process, which can start only once, and requests in JSON.

use std::sync::OnceLock;

use quietwire_dpdk::{Eal, EalOptions, HugePages};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value as the control socket reads requests, from octets. For `serde_json::from_value`, all settings would be compiled again.
pub(crate) fn read<T: DeserializeOwned>(json: &Value) -> T {
    serde_json::from_slice(json.to_string().as_bytes()).unwrap()
}

/// Returns the EAL.
pub(crate) fn eal() -> Eal {
    static EAL: OnceLock<Eal> = OnceLock::new();
    let start = || {
        Eal::start(&EalOptions {
            control_cpus: vec![0],
            memory_mib: 256,
            huge_pages: HugePages::Never,
            pci_devices: Vec::new(),
            file_prefix: format!("qw-tests-{}", std::process::id()),
        })
        .unwrap()
    };
    EAL.get_or_init(start).clone()
}
