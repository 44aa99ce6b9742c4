// SPDX-License-Identifier: Apache-2.0
//! One file for a program.

/// One file for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Where the program looks for it, or what to call it where there is no such place.
    pub path: String,
    /// What is in it.
    pub text: String,
}
