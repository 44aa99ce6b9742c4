// SPDX-License-Identifier: Apache-2.0
//! What answers of a switch can be wrong with.

pub(super) const OTHER_VERSION: &str = "the answer of the switch is of another version";
