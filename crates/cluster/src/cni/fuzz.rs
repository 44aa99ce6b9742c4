// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of network configurations.

use quietwire_base::fuzz::{check, planted};

use super::config::{NetworkConfig, PortKind};

/// Parses any text as a network configuration. What is accepted leads to a URI without additional options, and to sockets below the directory.
fn fuzz_config(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let Ok(config) = NetworkConfig::parse(&text) else {
        return false;
    };
    assert!(config.control_socket.is_absolute());
    let name = super::port::name(&config.name, "container", "eth0");
    if let Some(socket) = super::port::socket(&config, &name) {
        assert!(socket.starts_with(&config.socket_directory));
        assert!(!socket.to_string_lossy().contains(['?', '&', '=']));
    }
    planted("cluster-cni-config", || {
        config.port == PortKind::VhostUser && config.vlan.is_some_and(|vlan| vlan.get() > 4000)
    });
    true
}

#[test]
fn config() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-cni-config",
        fuzz_config,
    );
}
