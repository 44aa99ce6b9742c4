// SPDX-License-Identifier: Apache-2.0
//! Rules on names in the first packets of a connection: the server name of TLS (RFC 6066, section 3), the host of HTTP/1 (RFC 9112, section
//! 3.2) and the question of DNS (RFC 1035, section 4.1.2).
//!
//! A name is known only after the connection has begun. Until then, a rule that accepts matches, and a rule that drops or rejects does not.
//! If the octets cannot be decided on, the rule does what its [`NameFail`] says. Octets beyond the name are never read.
//!
//! # Bounds
//!
//! [`NameFlows`], the memory of a forwarding thread, has [`NAME_FLOWS`] connections, and at most [`NAME_DATA_MAX`] octets of data of those
//! whose names arrive in several segments. It is allocated once. A flood of connections replaces those whose name is not known yet. It
//! replaces one whose name is known only if all places of its bucket are of that kind.
//!
//! # No regular expressions
//!
//! Lists of names to allow or to block have names and suffixes. The table finds all of them with one search for each label of a name, in
//! time that does not depend on their number, and after the parsers have found the name. A set of regular expressions over the payload, as
//! that of vectorscan, does not replace these parsers: it finds neither a name in several records or segments, nor the field that a name is
//! in. It would add a library of C++ that reads octets from outside, scratch memory of a size that the expressions determine, and compile
//! times that the author of a rule determines.
//!
//! # Limits
//!
//! A client that cooperates with its server can deceive every observer: it names one host and asks for another by means that are encrypted.
//! Checksums of segments are not verified.

mod data;
mod dns;
mod flows;
mod found;
mod http;
mod pattern;
mod table;
#[cfg(test)]
mod tests;
mod tls;

pub use flows::{NAME_DATA_MAX, NAME_FLOWS, NameFlows, NoNameFlows};
pub use pattern::{NAMES_A_RULE_MAX, NameFail, NameKind, NameMatch, NamePattern};
pub(super) use table::{NameTable, NamedRule};
