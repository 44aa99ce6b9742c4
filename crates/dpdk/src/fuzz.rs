// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of port URIs.

use quietwire_base::fuzz::{check, planted};

use crate::{PortUri, Role};

/// Parses any text as a port URI. What is accepted is the same after it was printed; an error contains the text.
fn fuzz_port_uri(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let uri = match text.parse::<PortUri>() {
        Ok(uri) => uri,
        Err(error) => {
            assert_eq!(error.uri, text);
            assert!(!error.what.is_empty());
            return false;
        }
    };
    let printed = uri.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(&uri), "{printed}");
    planted("dpdk-port-uri", || {
        matches!(
            uri,
            PortUri::Memif {
                role: Role::Client,
                id: 1000..,
                trust_memory: true,
                ..
            }
        )
    });
    true
}

#[test]
fn port_uri() {
    check(env!("CARGO_MANIFEST_DIR"), "dpdk-port-uri", fuzz_port_uri);
}
