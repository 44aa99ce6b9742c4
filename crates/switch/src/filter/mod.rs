// SPDX-License-Identifier: Apache-2.0
//! Which packets are meant: patterns of header fields, as kernel filters and the rules of ports ask them; and the rules of
//! a port, a stateless packet filter.

mod pattern;
#[cfg(test)]
mod reference;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use pattern::{Asked, Headers, Pattern};
pub(crate) use rules::{PortRule, PortRules, Verdict, Verdicts};

/// Rules of ports that there can be.
pub(crate) const RULES_MAX: usize = 256;
