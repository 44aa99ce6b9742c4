// SPDX-License-Identifier: Apache-2.0
//! Keys: the fields of a packet that rules compare, as words.

use crate::port_mask::PortMask;

/// Number of words of a key.
pub const WORDS: usize = 16;

/// First words of the addresses: all of an IPv4 address, or the first 32 bits of an IPv6 address.
pub(super) const SOURCE: usize = 0;
pub(super) const DESTINATION: usize = 1;
/// Ingress port and group.
const INGRESS: usize = 4;
/// Source port and destination port, which rules compare with ranges.
pub(super) const PORTS: usize = 5;
/// MAC addresses: three words.
const MACS: usize = 7;
/// The other 96 bits of IPv6 addresses: three words each.
pub(super) const SOURCE_REST: usize = 10;
pub(super) const DESTINATION_REST: usize = 13;

/// Place of a field of up to 32 bits in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) width: u32,
}

impl Field {
    /// IP protocol. Requires [`Self::HAS_PROTOCOL`].
    pub const PROTOCOL: Self = Self::at(2, 24, 8);
    /// TCP flags (RFC 9293, section 3.1), from CWR to FIN. Requires [`Self::HAS_TCP_FLAGS`].
    pub const TCP_FLAGS: Self = Self::at(2, 16, 8);
    /// DSCP (RFC 2474) of an IP packet. Requires [`Self::HAS_DSCP`].
    pub const DSCP: Self = Self::at(2, 10, 6);
    /// Set if [`Self::DSCP`] is.
    pub const HAS_DSCP: Self = Self::at(2, 7, 1);
    /// Set in a fragment that is not the first of its datagram.
    pub const IS_LATER_FRAGMENT: Self = Self::at(2, 6, 1);
    /// Set if the packet has TCP flags.
    pub const HAS_TCP_FLAGS: Self = Self::at(2, 5, 1);
    /// Set if the packet has an ICMP type and code, in the place of ports.
    pub const HAS_ICMP: Self = Self::at(2, 4, 1);
    /// Set if the packet has ports.
    pub const HAS_PORTS: Self = Self::at(2, 3, 1);
    /// Set if the packet has an IP protocol.
    pub const HAS_PROTOCOL: Self = Self::at(2, 2, 1);
    /// Set if the packet has IPv6 addresses.
    pub const IS_IPV6: Self = Self::at(2, 1, 1);
    /// Set if the packet has IPv4 addresses.
    pub const IS_IPV4: Self = Self::at(2, 0, 1);
    /// EtherType behind the tags. Requires [`Self::HAS_ETHERTYPE`].
    pub const ETHERTYPE: Self = Self::at(3, 16, 16);
    /// Set if the frame has an EtherType.
    pub const HAS_ETHERTYPE: Self = Self::at(3, 15, 1);
    /// Set if the frame has a VLAN tag.
    pub const IS_TAGGED: Self = Self::at(3, 12, 1);
    /// Set if the frame leaves by the port that [`Self::INGRESS_PORT`] names.
    pub const IS_OUT: Self = Self::at(3, 13, 1);
    /// Set if a port received a frame that leaves: [`Self::FROM_PORT`].
    pub const HAS_FROM_PORT: Self = Self::at(3, 14, 1);
    /// VLAN of the outermost tag. Requires [`Self::IS_TAGGED`].
    pub const VLAN: Self = Self::at(3, 0, 12);
    /// Number of the ingress port.
    pub const INGRESS_PORT: Self = Self::at(4, 16, 16);
    /// Number of the port that a frame leaves by: the lower half of [`Self::INGRESS_PORT`].
    pub const OUT_PORT: Self = Self::at(4, 16, 8);
    /// Number of the port that received a frame that leaves: the upper half of [`Self::INGRESS_PORT`]. Requires [`Self::HAS_FROM_PORT`].
    pub const FROM_PORT: Self = Self::at(4, 24, 8);
    /// Number of the group (bridge or VRF) of the ingress port.
    pub const INGRESS_GROUP: Self = Self::at(4, 0, 16);
    /// Free for the user: state of a connection, marks, registers of a pipeline.
    pub const METADATA: Self = Self::at(6, 0, 32);

    const fn at(word: usize, shift: u32, width: u32) -> Self {
        Self { word, shift, width }
    }

    /// Returns the bits of the field in its word.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "fields have one to 32 bits within a word"
    )]
    pub(super) const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.shift
    }

    /// Returns the value of the field in its word.
    #[inline(always)]
    pub(super) const fn place(self, value: u32) -> u32 {
        (value << self.shift) & self.mask()
    }
}

// Frames that leave have the numbers of two ports in one field.
const _: () = assert!(PortMask::PORTS <= 1 << Field::OUT_PORT.width);
const _: () = assert!(PortMask::PORTS <= 1 << Field::FROM_PORT.width);

/// Words of both MAC addresses.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "each word has 32 of the bits"
)]
pub(super) fn mac_words(source: u64, destination: u64) -> [(usize, u32); 3] {
    let both =
        (u128::from(source & 0xffff_ffff_ffff) << 48) | u128::from(destination & 0xffff_ffff_ffff);
    let word = |shift: u32| (both >> shift) as u32;
    [(MACS, word(64)), (MACS + 1, word(32)), (MACS + 2, word(0))]
}

/// Words of an IPv6 address.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "each word has 32 of the bits, and words of a key are below WORDS"
)]
#[inline(always)]
pub(super) fn ipv6_words(first: usize, rest: usize, bits: u128) -> [(usize, u32); 4] {
    let word = |shift: u32| (bits >> shift) as u32;
    [
        (first, word(96)),
        (rest, word(64)),
        (rest + 1, word(32)),
        (rest + 2, word(0)),
    ]
}

/// Fields of a packet. A new key has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Key {
    pub(super) words: [u32; WORDS],
}

impl Key {
    /// A key without fields.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// Sets this key to that of an untagged IPv4 packet with these addresses, protocol, and source and destination port (the upper and the
    /// lower 16 bits). Ingress port and group are those of another key. The result is that of the setters, in fewer steps. The key is
    /// written in place: a copy of a key whose words were just written one by one would wait for these writes.
    #[allow(clippy::indexing_slicing, reason = "fields are in words of a key")]
    #[inline(always)]
    pub const fn set_to_ipv4(
        &mut self,
        (source, destination): (u32, u32),
        protocol: u8,
        ports: u32,
        ingress: &Self,
    ) {
        const HAS: u32 =
            Field::IS_IPV4.place(1) | Field::HAS_PROTOCOL.place(1) | Field::HAS_PORTS.place(1);
        const ETHERTYPE: u32 = Field::ETHERTYPE.place(0x0800) | Field::HAS_ETHERTYPE.place(1);
        self.words = [0; WORDS];
        self.words[SOURCE] = source;
        self.words[DESTINATION] = destination;
        self.words[Field::PROTOCOL.word] = Field::PROTOCOL.place(protocol as u32) | HAS;
        self.words[Field::ETHERTYPE.word] = ETHERTYPE;
        self.words[INGRESS] = ingress.words[INGRESS];
        self.words[PORTS] = ports;
    }

    /// Sets a field, which was 0.
    #[expect(clippy::indexing_slicing, reason = "fields are in words of a key")]
    #[inline(always)]
    pub fn set(&mut self, field: Field, value: u32) {
        self.words[field.word] |= field.place(value);
    }

    /// Returns the value of a field.
    #[expect(
        clippy::indexing_slicing,
        reason = "fields are in words of a key, within 32 bits"
    )]
    #[inline(always)]
    #[must_use]
    pub fn get(&self, field: Field) -> u32 {
        (self.words[field.word] & field.mask()) >> field.shift
    }

    /// Makes a field 0.
    #[expect(clippy::indexing_slicing, reason = "fields are in words of a key")]
    pub fn clear(&mut self, field: Field) {
        self.words[field.word] &= !field.mask();
    }

    /// Takes ingress port and group from another key.
    #[inline(always)]
    #[must_use]
    pub fn with_ingress_of(mut self, other: &Self) -> Self {
        self.words[INGRESS] = other.words[INGRESS];
        self
    }

    /// Sets IPv4 addresses and [`Field::IS_IPV4`].
    #[inline(always)]
    pub fn set_ipv4(&mut self, source: u32, destination: u32) {
        self.words[SOURCE] = source;
        self.words[DESTINATION] = destination;
        self.set(Field::IS_IPV4, 1);
    }

    /// Sets IPv6 addresses and [`Field::IS_IPV6`].
    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    #[inline(always)]
    pub fn set_ipv6(&mut self, source: u128, destination: u128) {
        let words = ipv6_words(SOURCE, SOURCE_REST, source);
        let others = ipv6_words(DESTINATION, DESTINATION_REST, destination);
        for (word, value) in words.into_iter().chain(others) {
            self.words[word] = value;
        }
        self.set(Field::IS_IPV6, 1);
    }

    /// Sets the IP protocol and [`Field::HAS_PROTOCOL`].
    #[inline(always)]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.set(Field::PROTOCOL, u32::from(protocol));
        self.set(Field::HAS_PROTOCOL, 1);
    }

    /// Sets ports and [`Field::HAS_PORTS`].
    #[inline(always)]
    pub fn set_ports(&mut self, source: u16, destination: u16) {
        self.words[PORTS] = (u32::from(source) << 16) | u32::from(destination);
        self.set(Field::HAS_PORTS, 1);
    }

    /// Sets an ICMP type and code and [`Field::HAS_ICMP`]. The key must have no ports.
    #[inline(always)]
    pub fn set_icmp(&mut self, kind: u8, code: u8) {
        self.words[PORTS] = (u32::from(kind) << 16) | u32::from(code);
        self.set(Field::HAS_ICMP, 1);
    }

    /// Sets the EtherType and [`Field::HAS_ETHERTYPE`].
    #[inline(always)]
    pub fn set_ethertype(&mut self, ethertype: u16) {
        self.set(Field::ETHERTYPE, u32::from(ethertype));
        self.set(Field::HAS_ETHERTYPE, 1);
    }

    /// Sets the VLAN of the outermost tag and [`Field::IS_TAGGED`].
    #[inline(always)]
    pub fn set_vlan(&mut self, vlan: u16) {
        self.set(Field::VLAN, u32::from(vlan));
        self.set(Field::IS_TAGGED, 1);
    }

    /// Sets the MAC addresses, in the low 48 bits.
    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    #[inline(always)]
    pub fn set_macs(&mut self, source: u64, destination: u64) {
        for (word, value) in mac_words(source, destination) {
            self.words[word] = value;
        }
    }

    /// Returns source and destination port, or ICMP type and code.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    #[inline(always)]
    pub(crate) const fn ports(&self) -> (u16, u16) {
        let word = self.words[PORTS];
        ((word >> 16) as u16, word as u16)
    }
}
