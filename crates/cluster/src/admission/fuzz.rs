// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of the reviews that the webhook receives.

use std::collections::BTreeMap;

use quietwire_base::fuzz::{check, planted};

use super::review::parse;

const MEMIF: &str = "quietwire.io/memif";

/// Parses any text as a review. Networks are names that stay in their place of a path, and a patch changes the first container only.
fn fuzz_review(octets: &[u8]) -> bool {
    let Ok(request) = parse(octets) else {
        return false;
    };
    let Ok(networks) = request.networks() else {
        return false;
    };
    for (namespace, name) in &networks {
        assert!(!namespace.contains(['/', '?', '%']) && !name.contains(['/', '?', '%']));
    }
    let wanted = BTreeMap::from([(MEMIF.to_owned(), networks.len() as u64)]);
    if let Some(patch) = request.patch(&wanted) {
        assert_eq!(patch[0]["path"], "/spec/containers/0/resources");
        let resources = &patch[0]["value"];
        assert_eq!(resources["limits"][MEMIF], resources["requests"][MEMIF]);
    }
    planted("cluster-admission-review", || networks.len() > 3);
    !networks.is_empty()
}

#[test]
fn review() {
    check(
        env!("CARGO_MANIFEST_DIR"),
        "cluster-admission-review",
        fuzz_review,
    );
}
