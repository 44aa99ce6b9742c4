// SPDX-License-Identifier: Apache-2.0
//! Share of a flow set that one queue sends.

/// Flows of a port that a lane sends: every `of`-th flow, starting with the `index`-th. `of` is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) index: u16,
    pub(crate) of: u16,
}

impl Share {
    /// All flows.
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };
}
