// SPDX-License-Identifier: Apache-2.0
//! Selection of nodes by labels.

use std::collections::BTreeMap;

/// Returns whether a node with these labels has all of a selector. An empty selector selects no node.
pub(super) fn selects(
    selector: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
) -> bool {
    let mut wanted = selector.iter();
    !selector.is_empty() && wanted.all(|(key, value)| labels.get(key) == Some(value))
}
