// SPDX-License-Identifier: Apache-2.0
//! Packet matching: header patterns of kernel filters and of port rules, and the rules of a port, a stateless packet filter.

mod action;
mod malformed;
mod packet;
mod pattern;
#[cfg(test)]
mod reference;
mod rules;
#[cfg(test)]
mod tests;

pub use action::{Action, MalformedAction};
pub use malformed::Malformation;
pub use packet::{EtherType, PacketMatch, Ports, Protocol, in_snake_case};
pub use pattern::{Headers, Pattern};
pub use rules::{Dropped, Fallback, PortRule, PortRules, RuleTable, Verdict, Verdicts};

/// Maximum number of filter rules of ports.
pub const RULES_MAX: usize = 100_000;
