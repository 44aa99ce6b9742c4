// SPDX-License-Identifier: Apache-2.0
//! Times in the status of resources.

use k8s_openapi::jiff::Timestamp;

/// Returns the current time as RFC 3339 text with seconds, as Kubernetes writes times.
#[must_use]
pub fn now() -> String {
    let seconds = Timestamp::now().as_second();
    Timestamp::from_second(seconds)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}
