// SPDX-License-Identifier: Apache-2.0
//! NPTv6: translation of IPv6 prefixes (RFC 6296), one-to-one and without state.
//!
//! An inside address and its external address differ in the prefix, and in one word that makes up for it: both have the same sum in ones'
//! complement arithmetic, so no checksum of a transport protocol changes (section 2.6). The word is that of the subnet if the prefixes have
//! up to 48 bits (section 3.4), and otherwise the first of the interface identifier that is not 0xffff (section 3.5).
//!
//! Packets within ICMPv6 errors are translated too. Their checksums stay as well.

mod packet;
mod prefix;
#[cfg(test)]
mod tests;
mod translation;

use crate::drops::RouterDrop;
use crate::named;

pub use prefix::{PREFIX_MAX, PrefixPair, PrefixPairError};
pub use translation::PrefixTranslation;

named! {
    /// Reason for not translating a packet. It must be dropped.
    pub enum NptDrop {
        /// The subnet is 0xffff, or the interface identifier has only ones, for which there is no other value in ones' complement arithmetic.
        Address = "npt_address", "IPv6 address without translation";
        /// Truncated headers, inconsistent lengths.
        Malformed = "npt_malformed", "malformed IPv6 packet";
    }
}

impl NptDrop {
    /// Returns the reason of the router.
    #[must_use]
    pub const fn router_drop(self) -> RouterDrop {
        match self {
            Self::Address => RouterDrop::PrefixAddress,
            Self::Malformed => RouterDrop::HeaderError,
        }
    }
}
