// SPDX-License-Identifier: Apache-2.0
//! Classes of errors: the party at fault.

/// The party at fault for an error; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bad input or usage: exit code 2.
    BadInput,
    /// The machine lacks something: exit code 3.
    MissingPrerequisite,
    /// Anything else: exit code 1.
    Failed,
}
