// SPDX-License-Identifier: Apache-2.0
//! Errors of answers of a switch.

pub(super) const OTHER_VERSION: &str =
    "the answer of the switch has an unknown format (use the same version of quietwire)";
