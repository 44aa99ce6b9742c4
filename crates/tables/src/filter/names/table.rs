// SPDX-License-Identifier: Apache-2.0
//! Names of all rules, compiled: the marks of a name, by which rules compare it as they compare sets.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::action::Action;
use super::super::packet::{Ports, Protocol};
use super::super::sets::{SET_USES_MAX, bit};
use super::pattern::{NameFail, NameKind, NameMatch, NamePattern};
use crate::classifier::{Field, Key};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Number of ports.
const PORTS: usize = 1 << 16;

/// Kinds of names that rules compare in packets to a port: a bit for each kind over TCP, and one for DNS over UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    const DATAGRAMS: u8 = 1 << NameKind::COUNT;

    /// Returns true if rules compare names of this kind.
    #[allow(clippy::arithmetic_side_effects, reason = "there are few kinds")]
    pub(super) const fn contains(self, kind: NameKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Returns true if no rule compares names.
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Marks of a name.
#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    /// Of the name.
    exact: u32,
    /// Of the names below it.
    below: u32,
}

/// Entries of a kind, by the hash of their names.
type Entries = HashMap<u64, Vec<Entry>>;

/// Names that rules have in common: one bit of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use<'rules> {
    kind: NameKind,
    patterns: &'rules [NamePattern],
    accepts: bool,
    fail: NameFail,
}

/// A rule with names, as the table is made from it.
pub(in super::super) struct NamedRule<'rules> {
    pub(in super::super) names: &'rules NameMatch,
    pub(in super::super) action: Action,
    pub(in super::super) protocol: Option<Protocol>,
    pub(in super::super) destination_port: Option<Ports>,
}

/// The names of all rules. A table never changes.
#[derive(Debug)]
pub(in super::super) struct NameTable {
    /// Distinguishes tables, so that flows know whether their marks are of this one.
    pub(super) generation: u64,
    seed: u64,
    names: [Entries; NameKind::COUNT],
    /// Kinds by destination port.
    ports: Box<[u8]>,
    /// Marks of packets before the name is known.
    pub(super) pending: u32,
    /// Marks of packets whose name cannot be decided on.
    pub(super) undecided: u32,
}

impl NameTable {
    /// Compiles the names of rules. `first` is the place of the first bit among those of sets. Returns the mark that each rule requires, 0
    /// without names; and the table, if some rule has names. Rules beyond [`SET_USES_MAX`] match no packet.
    pub(in super::super) fn new<'rules>(
        rules: impl Iterator<Item = Option<NamedRule<'rules>>>,
        first: usize,
    ) -> (Vec<u32>, Option<Self>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut table = Self {
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            seed: RandomState::new().hash_one("names"),
            names: [Entries::new(), Entries::new(), Entries::new()],
            ports: vec![0; PORTS].into_boxed_slice(),
            pending: 0,
            undecided: 0,
        };
        let mut uses: Vec<Use<'rules>> = Vec::new();
        let mut marks = Vec::new();
        for rule in rules {
            let mark = match rule {
                Some(rule) => table.add(&rule, &mut uses, first),
                None => 0,
            };
            marks.push(mark);
        }
        (marks, (!uses.is_empty()).then_some(table))
    }

    /// Adds a rule. Returns the mark that it requires.
    #[expect(clippy::arithmetic_side_effects, reason = "there are few uses")]
    fn add<'rules>(
        &mut self,
        rule: &NamedRule<'rules>,
        uses: &mut Vec<Use<'rules>>,
        first: usize,
    ) -> u32 {
        let Some((kind, patterns)) = rule.names.names() else {
            return 0;
        };
        self.add_ports(kind, rule.protocol, rule.destination_port);
        let own = Use {
            kind,
            patterns,
            accepts: rule.action == Action::Accept,
            fail: rule.names.fail(),
        };
        if let Some(place) = uses.iter().position(|one| *one == own) {
            return bit(first + place);
        }
        let place = first + uses.len();
        let mark = bit(place);
        uses.push(own);
        if place >= SET_USES_MAX {
            return mark;
        }
        let (accepts, fail) = (rule.action == Action::Accept, rule.names.fail());
        self.pending |= if accepts { mark } else { 0 };
        self.undecided |= if accepts == (fail == NameFail::Open) {
            mark
        } else {
            0
        };
        for pattern in patterns {
            self.add_name(kind, pattern, mark);
        }
        mark
    }

    #[allow(clippy::arithmetic_side_effects, reason = "there are few kinds")]
    fn add_ports(&mut self, kind: NameKind, protocol: Option<Protocol>, ports: Option<Ports>) {
        let mark = match protocol.map(|protocol| protocol.0) {
            Some(UDP) => Kinds::DATAGRAMS,
            Some(TCP) => 1 << kind as u8,
            _ => 0,
        };
        let (first, last) = ports.map_or((0, u16::MAX), |ports| (ports.first, ports.last));
        let ports = self.ports.get_mut(usize::from(first)..=usize::from(last));
        for port in ports.into_iter().flatten() {
            *port |= mark;
        }
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each kind has its names, and the list is not empty"
    )]
    fn add_name(&mut self, kind: NameKind, pattern: &NamePattern, mark: u32) {
        let name = pattern.name().as_bytes();
        let hash = name.iter().rev().fold(self.seed, step);
        let entries = self.names[kind as usize].entry(hash).or_default();
        let place = entries.iter().position(|entry| *entry.name == *name);
        let place = place.unwrap_or_else(|| {
            entries.push(Entry {
                name: name.into(),
                exact: 0,
                below: 0,
            });
            entries.len() - 1
        });
        if let Some(entry) = entries.get_mut(place) {
            match pattern.is_wildcard() {
                true => entry.below |= mark,
                false => entry.exact |= mark,
            }
        }
    }

    /// Returns the kinds of names that rules compare in packets to a port.
    #[allow(clippy::arithmetic_side_effects, reason = "there are few kinds")]
    fn kinds(&self, protocol: u32, port: u16) -> Kinds {
        let all = self.ports.get(usize::from(port)).copied().unwrap_or(0);
        if protocol == u32::from(TCP) {
            Kinds(all & (Kinds::DATAGRAMS - 1))
        } else if protocol == u32::from(UDP) && all & Kinds::DATAGRAMS != 0 {
            Kinds(1 << NameKind::Dns as u8)
        } else {
            Kinds(0)
        }
    }

    /// Returns the kinds of names that rules compare in a packet with this key.
    #[inline(always)]
    pub(super) fn kinds_of(&self, key: &Key) -> Kinds {
        if key.get(Field::HAS_PORTS) == 0 {
            return Kinds(0);
        }
        let (_, destination) = key.ports();
        self.kinds(key.get(Field::PROTOCOL), destination)
    }

    /// Returns the marks of a name in lower case: a search for it, and one for each name above it.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each kind has its names, and the place is within the name"
    )]
    pub(super) fn marks_of(&self, kind: NameKind, name: &[u8]) -> u32 {
        let entries = &self.names[kind as usize];
        if entries.is_empty() {
            return 0;
        }
        let find = |hash: u64, name: &[u8]| {
            let mut entries = entries.get(&hash).into_iter().flatten();
            entries.find(|entry| *entry.name == *name)
        };
        let (mut hash, mut marks) = (self.seed, 0);
        for (place, octet) in name.iter().enumerate().rev() {
            if *octet == b'.'
                && place > 0
                && let Some(entry) = find(hash, name.get(place + 1..).unwrap_or_default())
            {
                marks |= entry.below;
            }
            hash = step(hash, octet);
        }
        marks | find(hash, name).map_or(0, |entry| entry.exact)
    }

    /// Returns the marks of a packet with this key and this name. Without a name, a segment precedes the name of its connection, and a
    /// datagram has none.
    pub(in super::super) fn marks_of_described(
        &self,
        key: &Key,
        name: Option<(NameKind, &str)>,
    ) -> u32 {
        match name {
            _ if self.kinds_of(key).is_empty() => 0,
            Some((kind, name)) => self.marks_of(kind, name.as_bytes()),
            None if key.get(Field::PROTOCOL) == u32::from(UDP) => 0,
            None => self.pending,
        }
    }
}

/// Adds an octet to the hash of a name, which is read from its end.
fn step(hash: u64, octet: &u8) -> u64 {
    let mixed = (hash ^ u64::from(*octet)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(29)
}
