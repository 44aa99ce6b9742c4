// SPDX-License-Identifier: Apache-2.0
//! Versions of the CNI specification.

/// Supported versions, the newest last.
pub const VERSIONS: [&str; 2] = ["1.0.0", NEWEST];

/// Newest supported version.
pub(super) const NEWEST: &str = "1.1.0";
