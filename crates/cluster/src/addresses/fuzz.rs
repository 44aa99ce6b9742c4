// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of requests for addresses.

use quietwire_base::fuzz::{check, planted};

use super::protocol::Request;

/// Parses any octets as a request. What is accepted is the same after it was written, and names one network of one namespace.
fn fuzz_request(octets: &[u8]) -> bool {
    let Ok(request) = serde_json::from_slice::<Request>(octets) else {
        return false;
    };
    let text = serde_json::to_vec(&request).unwrap();
    assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
    let (Request::Add { network, .. }
    | Request::Del { network, .. }
    | Request::Gc { network, .. }
    | Request::Status { network }) = &request;
    for part in [&network.namespace, &network.name] {
        assert!(
            !part.is_empty() && !part.contains(['/', '?', '%', '#']),
            "{network}"
        );
    }
    planted("cluster-addresses", || match &request {
        Request::Add { requested, .. } => requested.len() > 4,
        _ => false,
    });
    true
}

#[test]
fn request() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-addresses",
        fuzz_request,
    );
}
