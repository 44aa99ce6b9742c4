// SPDX-License-Identifier: Apache-2.0
//! Which packets are meant: patterns of header fields, as kernel filters and the rules of ports ask them; and the rules of
//! a port, a stateless packet filter.

mod action;
mod packet;
mod pattern;
#[cfg(test)]
mod reference;
mod rules;
#[cfg(test)]
mod tests;

pub use action::Action;
pub use packet::{EtherType, PacketMatch, Ports, Protocol, in_snake_case};
pub use pattern::{Headers, Pattern};
pub use rules::{PortRule, PortRules, Verdict, Verdicts};

/// Rules of ports that there can be.
pub const RULES_MAX: usize = 256;
