// SPDX-License-Identifier: Apache-2.0
//! The part of a flow set that one queue sends.

/// Which flows of a port a lane has: every `of`-th, from the `index`-th on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) index: u32,
    pub(crate) of: u32,
}

impl Share {
    /// All flows.
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };
}
