// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of the file with the resources of the device plugin.

use quietwire_base::fuzz::{check, planted};

use super::config::{DevicesConfig, Kind};

/// Parses any text as a file with resources. Names that are accepted are names of files and of Kubernetes.
fn fuzz_config(octets: &[u8]) -> bool {
    let Ok(config) = DevicesConfig::parse(&String::from_utf8_lossy(octets)) else {
        return false;
    };
    for resource in &config.resources {
        assert!(!resource.name.contains(['/', '.', ' ', '_']));
        assert_eq!(resource.kind == Kind::Function, resource.count == 0);
    }
    planted("cluster-devices-config", || {
        config.resources.iter().any(|resource| resource.count > 90)
    });
    true
}

#[test]
fn config() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-devices-config",
        fuzz_config,
    );
}
