// SPDX-License-Identifier: Apache-2.0
//! Compiled rules, as lookups compare them.

use super::key::{Key, WORDS};
use super::rule::Rule;

/// Words that the first part of a rule compares with one vector instruction.
const FIRST: usize = 4;
/// No further words.
const NOTHING: u32 = u32::MAX;

/// A copy of a rule in a leaf: the frequent fields, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    value: [u32; FIRST],
    mask: [u32; FIRST],
    ingress: (u32, u32),
    /// First port and number of ports behind it.
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
    /// Index of the rule: rules with lower ones precede.
    pub(super) order: u32,
    /// Index of the words behind those above, or [`NOTHING`].
    rest: u32,
}

/// The words of a rule that an [`Entry`] has no space for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    value: [u32; WORDS],
    mask: [u32; WORDS],
}

impl Rest {
    /// Returns the words of a rule behind those of an entry; `None` if they match everything.
    #[allow(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let (mut value, mut mask) = (rule.value, rule.mask);
        value[..=FIRST].fill(0);
        mask[..=FIRST].fill(0);
        (mask != [0; WORDS]).then_some(Self { value, mask })
    }

    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    #[inline(never)]
    fn matches(&self, key: &Key) -> bool {
        let mut different = 0;
        for word in 0..WORDS {
            different |= (key.words[word] & self.mask[word]) ^ self.value[word];
        }
        different == 0
    }
}

impl Entry {
    /// Compiles a rule. `rest` is the index of its [`Rest`].
    #[allow(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    pub(super) fn new(rule: &Rule, order: u32, rest: Option<u32>) -> Self {
        let span = |(first, last): (u16, u16)| (first, last.wrapping_sub(first));
        let first = |words: &[u32; WORDS]| [words[0], words[1], words[2], words[3]];
        Self {
            value: first(&rule.value),
            mask: first(&rule.mask),
            ingress: (rule.value[FIRST], rule.mask[FIRST]),
            source_ports: span(rule.source_ports),
            destination_ports: span(rule.destination_ports),
            order,
            rest: rest.unwrap_or(NOTHING),
        }
    }

    /// Returns true if the rule matches the packet.
    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    #[inline(always)]
    pub(super) fn matches(&self, key: &Key, rest: &[Rest]) -> bool {
        let mut different = (key.words[FIRST] & self.ingress.1) ^ self.ingress.0;
        for word in 0..FIRST {
            different |= (key.words[word] & self.mask[word]) ^ self.value[word];
        }
        let (source, destination) = key.ports();
        let is_within = |port: u16, (first, span): (u16, u16)| port.wrapping_sub(first) <= span;
        let is_matching = (different == 0)
            & is_within(source, self.source_ports)
            & is_within(destination, self.destination_ports);
        is_matching
            && (self.rest == NOTHING
                || rest
                    .get(self.rest as usize)
                    .is_some_and(|rest| rest.matches(key)))
    }
}
