// SPDX-License-Identifier: Apache-2.0
//! Changes of connections that wait until a standby gets them.

use super::saved::SavedConnection;

/// A noted change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Noted {
    /// The state of an entry has changed, unless its generation is another one now.
    Changed { index: u32, generation: u16 },
    /// A connection has ended.
    Ended(SavedConnection),
}
