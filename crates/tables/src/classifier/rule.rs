// SPDX-License-Identifier: Apache-2.0
//! Rules of a classifier, and the reference search.

use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::key::{
    DESTINATION, DESTINATION_REST, Field, Key, SOURCE, SOURCE_REST, WORDS, ipv6_words, mac_words,
};

/// A match on keys: all conditions must hold. [`Rule::ANY`] has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    pub(super) value: [u32; WORDS],
    pub(super) mask: [u32; WORDS],
    /// First and last source port, or ICMP type.
    pub(super) source_ports: (u16, u16),
    /// First and last destination port, or ICMP code.
    pub(super) destination_ports: (u16, u16),
}

/// All ports.
pub(super) const ALL: (u16, u16) = (0, u16::MAX);

/// Returns the range of one value.
fn only(value: u8) -> (u16, u16) {
    (u16::from(value), u16::from(value))
}

impl Rule {
    /// Matches every packet.
    pub const ANY: Self = Self {
        value: [0; WORDS],
        mask: [0; WORDS],
        source_ports: ALL,
        destination_ports: ALL,
    };

    /// Requires the bits of `mask` of a word.
    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    fn require(&mut self, word: usize, value: u32, mask: u32) {
        self.value[word] = (self.value[word] & !mask) | (value & mask);
        self.mask[word] |= mask;
    }

    /// Requires a value of a field.
    #[must_use]
    pub fn with(self, field: Field, value: u32) -> Self {
        self.with_bits(field, value, u32::MAX)
    }

    /// Requires some bits of a field: those of `mask`.
    #[must_use]
    pub fn with_bits(mut self, field: Field, value: u32, mask: u32) -> Self {
        self.require(field.word, field.place(value), field.place(mask));
        self
    }

    /// Requires an IP protocol.
    #[must_use]
    pub fn with_protocol(self, protocol: u8) -> Self {
        self.with(Field::PROTOCOL, u32::from(protocol))
            .with(Field::HAS_PROTOCOL, 1)
    }

    /// Requires an EtherType.
    #[must_use]
    pub fn with_ethertype(self, ethertype: u16) -> Self {
        self.with(Field::ETHERTYPE, u32::from(ethertype))
            .with(Field::HAS_ETHERTYPE, 1)
    }

    /// Requires a VLAN.
    #[must_use]
    pub fn with_vlan(self, vlan: u16) -> Self {
        self.with(Field::VLAN, u32::from(vlan))
            .with(Field::IS_TAGGED, 1)
    }

    /// Requires TCP flags: those of `mask` are as in `value`.
    #[must_use]
    pub fn with_tcp_flags(self, value: u8, mask: u8) -> Self {
        self.with_bits(Field::TCP_FLAGS, u32::from(value), u32::from(mask))
            .with(Field::HAS_TCP_FLAGS, 1)
    }

    /// Requires a source address in a prefix.
    #[must_use]
    pub fn with_source(mut self, prefix: IpNet) -> Self {
        self.require_prefix(SOURCE, SOURCE_REST, prefix);
        self
    }

    /// Requires a destination address in a prefix.
    #[must_use]
    pub fn with_destination(mut self, prefix: IpNet) -> Self {
        self.require_prefix(DESTINATION, DESTINATION_REST, prefix);
        self
    }

    fn require_prefix(&mut self, first: usize, rest: usize, prefix: IpNet) {
        match prefix {
            IpNet::V4(prefix) => {
                self.require(first, prefix.addr().to_bits(), prefix.netmask().to_bits());
                *self = self.with(Field::IS_IPV4, 1);
            }
            IpNet::V6(prefix) => {
                let bits = ipv6_words(first, rest, prefix.addr().to_bits());
                let masks = ipv6_words(first, rest, prefix.netmask().to_bits());
                for ((word, bits), (_, mask)) in bits.into_iter().zip(masks) {
                    self.require(word, bits, mask);
                }
                *self = self.with(Field::IS_IPV6, 1);
            }
        }
    }

    /// Requires bits of the MAC addresses: value and mask of the source, then of the destination.
    #[must_use]
    pub fn with_macs(mut self, source: (u64, u64), destination: (u64, u64)) -> Self {
        let bits = mac_words(source.0, destination.0);
        let masks = mac_words(source.1, destination.1);
        for ((word, bits), (_, mask)) in bits.into_iter().zip(masks) {
            self.require(word, bits, mask);
        }
        self
    }

    /// Requires ports in these ranges.
    #[must_use]
    pub fn with_ports(
        mut self,
        source: RangeInclusive<u16>,
        destination: RangeInclusive<u16>,
    ) -> Self {
        self.source_ports = (*source.start(), *source.end());
        self.destination_ports = (*destination.start(), *destination.end());
        self.with(Field::HAS_PORTS, 1)
    }

    /// Requires an ICMP type, and a code if it is set. Excludes ports.
    #[must_use]
    pub fn with_icmp(mut self, kind: u8, code: Option<u8>) -> Self {
        self.source_ports = only(kind);
        self.destination_ports = code.map_or(ALL, only);
        self.with(Field::HAS_ICMP, 1)
    }

    /// Returns true if the rule matches every packet.
    pub(super) fn is_any(&self) -> bool {
        self.mask == [0; WORDS] && self.source_ports == ALL && self.destination_ports == ALL
    }

    /// Returns true if some packet may match both rules. False: none does.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let meet = |one: (u16, u16), other: (u16, u16)| one.0 <= other.1 && other.0 <= one.1;
        let own = self.value.iter().zip(&self.mask);
        let mut words = own.zip(other.value.iter().zip(&other.mask));
        words.all(|((one, of_one), (two, of_two))| (one ^ two) & of_one & of_two == 0)
            && meet(self.source_ports, other.source_ports)
            && meet(self.destination_ports, other.destination_ports)
    }

    /// Returns true if the rule matches the packet.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        let (source, destination) = key.ports();
        let within = |port: u16, (first, last): (u16, u16)| (first..=last).contains(&port);
        let words = self.value.iter().zip(&self.mask).zip(&key.words);
        let mut words = words.map(|((value, mask), word)| word & mask == *value);
        words.all(|is_equal| is_equal)
            && within(source, self.source_ports)
            && within(destination, self.destination_ports)
    }
}

/// Returns the index of the first rule that matches, rule by rule: the reference for [`Classifier`](super::Classifier).
#[must_use]
pub fn first_match(rules: &[Rule], key: &Key) -> Option<usize> {
    rules.iter().position(|rule| rule.matches(key))
}
