// SPDX-License-Identifier: Apache-2.0
//! Whose fault an error is.

/// Whose fault an error is; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bad input or usage: exit code 2.
    BadInput,
    /// The machine lacks something: exit code 3.
    MissingPrerequisite,
    /// Anything else: exit code 1.
    Failed,
}
