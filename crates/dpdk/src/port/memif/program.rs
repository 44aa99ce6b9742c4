// SPDX-License-Identifier: Apache-2.0
//! Name of this program for peers.

use quietwire_memif::message::Name;

/// Returns the name of this program for peers.
pub(super) fn program() -> Name {
    Name::truncated(concat!("quietwire ", env!("CARGO_PKG_VERSION")))
}
