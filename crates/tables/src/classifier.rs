// SPDX-License-Identifier: Apache-2.0
//! Packet classifier: finds the first of up to [`RULES_MAX`] ordered rules that matches a packet.
//!
//! A packet is a [`Key`], sixteen words in one cache line. A [`Rule`] is a value and a mask of these words, and a range of source and of
//! destination ports. New fields (the state of a connection, registers of a pipeline) are further bits of a key and need no change here.
//!
//! # Structure
//!
//! [`Classifier::new`] compiles rules into at most [`TREES_MAX`] decision trees. A node selects up to twelve adjacent bits of a key, which
//! are the index of its child. A leaf has the rules that can match there, in order, each in one cache line. Rules without a value in the bits
//! that a large node selects would have a copy in all children: they move to the next tree, where nodes select other bits. The leaves end at
//! the first rule that matches all of their packets. [`Classifier::lookup`] walks a tree with all packets of a burst at once, so that their
//! cache misses overlap. It allocates nothing and has no lock.
//!
//! # Bounds
//!
//! For `n` rules, whatever they are:
//!
//! - Memory: at most 8 `n` + 8,192 copies of rules of 64 octets, and 4 KiB + 64 octets per copy for nodes. Rules with IPv6 prefixes longer
//!   than /32 or MAC addresses have another 128 octets, once.
//! - Time of a lookup: at most [`TREES_MAX`] × [`DEPTH_MAX`] nodes, and [`Shape::comparisons_max`] comparisons of rules.
//! - Rules that no bits separate (for example 100,000 rules with distinct overlapping masks) share a leaf and are compared one by one, as
//!   by [`first_match`]: slower, still correct and bounded by `n` comparisons. [`Shape`] shows this before the rules are used.
//!
//! A classifier never changes. Its user publishes a new one. [`Classifier::changed`] makes one of rules that differ little without compiling
//! the others again: it skips rules that are gone, and compares up to [`CHANGED_MAX`] further rules, which have trees of their own.

mod compile;
mod cut;
mod entry;
#[cfg(test)]
mod fuzz;
mod key;
mod lookup;
mod node;
mod patch;
mod region;
mod rule;
mod search;
#[cfg(test)]
mod tests;

pub use key::{Field, Key, WORDS};
pub use lookup::{Classifier, RULES_MAX};
pub use node::{DEPTH_MAX, TREES_MAX};
pub use patch::CHANGED_MAX;
pub use rule::{Rule, first_match};
pub use search::{NO_RULE, Shape};
