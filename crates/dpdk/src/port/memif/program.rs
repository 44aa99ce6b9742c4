// SPDX-License-Identifier: Apache-2.0
//! The name that peers see of this program.

use quietwire_memif::message::Name;

/// Name that peers see of this program.
pub(super) fn program() -> Name {
    Name::truncated(concat!("quietwire ", env!("CARGO_PKG_VERSION")))
}
