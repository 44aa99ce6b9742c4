// SPDX-License-Identifier: Apache-2.0
//! A rendered file.

/// A rendered file for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Path at which the program reads the file, or a file name if it has no fixed path.
    pub path: String,
    /// Content.
    pub text: String,
}
