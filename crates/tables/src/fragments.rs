// SPDX-License-Identifier: Apache-2.0
//! Virtual reassembly: what the first fragment of a datagram says about the later ones, which have no ports (RFC 791, section 3.2; RFC
//! 8200, section 4.5). This table has no fragments: [`crate::fragment_order`] lets later ones wait that arrive before the first.
//!
//! The table has a fixed size, and every operation takes a bounded number of steps. The datagrams of a source are all in one set of
//! [`WAYS`], so a source that sends many first fragments replaces its own datagrams and those of few other sources.

use std::hash::{BuildHasher, RandomState};

use quietwire_packet::{IPV4_HEADER_MIN, IPV6_HEADER_LENGTH, IpProtocol};

/// Datagrams of a source under way at a time, at most.
pub(crate) const WAYS: usize = 16;
const SETS: usize = 256;
/// The same, for hashes.
const SETS_U64: u64 = SETS as u64;
/// Seconds for which a datagram is known (RFC 791, section 3.2, suggests 15).
pub(crate) const TIMEOUT_S: u32 = 15;
/// IPv6 extension headers in front of the fragment header, at most.
const EXTENSIONS_MAX: usize = 8;

/// Identity of a datagram, which all its fragments have. IPv6 has no protocol in it (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramId {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) identification: u32,
    pub(crate) protocol: u8,
    /// Zone, or another number that keeps networks apart.
    pub(crate) zone: u16,
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentPart {
    pub(crate) id: DatagramId,
    /// Offset in the datagram's payload, octets. That of IPv6 begins behind the fragment header.
    pub(crate) offset: u32,
    /// Octets of the payload in this fragment.
    pub(crate) length: u32,
    /// Offset of the payload in the packet.
    pub(crate) at: usize,
}

impl FragmentPart {
    /// Returns the fragment in an IPv4 packet; `None` for a whole datagram, and for a truncated header.
    pub(crate) fn of_ipv4(packet: &[u8], zone: u16) -> Option<Self> {
        let header = packet.first_chunk::<IPV4_HEADER_MIN>()?;
        let at = usize::from(header[0] & 0x0f).saturating_mul(4);
        let word = |at: usize| {
            let two = header.get(at..)?.first_chunk()?;
            Some(u16::from_be_bytes(*two))
        };
        let address = |at: usize| {
            let four = header.get(at..)?.first_chunk()?;
            Some(u128::from(u32::from_be_bytes(*four)))
        };
        let fragment = word(6)? & 0x3fff;
        if fragment == 0 {
            return None;
        }
        Some(Self {
            id: DatagramId {
                source: address(12)?,
                destination: address(16)?,
                identification: u32::from(word(4)?),
                protocol: header[9],
                zone,
            },
            offset: u32::from(fragment & 0x1fff).saturating_mul(8),
            length: u32::from(word(2)?).checked_sub(u32::try_from(at).ok()?)?,
            at,
        })
    }

    /// Returns the fragment in an IPv6 packet; parameters as in [`Self::of_ipv4`].
    pub(crate) fn of_ipv6(packet: &[u8], zone: u16) -> Option<Self> {
        let header = packet.first_chunk::<IPV6_HEADER_LENGTH>()?;
        let address = |at: usize| {
            let octets = header.get(at..)?.first_chunk()?;
            Some(u128::from_be_bytes(*octets))
        };
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let end = payload.saturating_add(IPV6_HEADER_LENGTH);
        let (mut protocol, mut at) = (IpProtocol(header[6]), IPV6_HEADER_LENGTH);
        for _ in 0..EXTENSIONS_MAX {
            let extension = packet.get(at..)?.first_chunk::<8>()?;
            let [next, length, high, low, a, b, c, d] = *extension;
            let units = usize::from(length);
            let octets = match protocol {
                IpProtocol::FRAGMENT => {
                    let at = at.saturating_add(8);
                    let field = u16::from_be_bytes([high, low]);
                    let (offset, has_more) = (field & 0xfff8, field & 1 != 0);
                    if offset == 0 && !has_more {
                        // The whole datagram (RFC 6946).
                        return None;
                    }
                    return Some(Self {
                        id: DatagramId {
                            source: address(8)?,
                            destination: address(24)?,
                            identification: u32::from_be_bytes([a, b, c, d]),
                            protocol: 0,
                            zone,
                        },
                        offset: u32::from(offset),
                        length: u32::try_from(end.checked_sub(at)?).ok()?,
                        at,
                    });
                }
                IpProtocol::AUTHENTICATION => units.saturating_add(2).saturating_mul(4),
                IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS => {
                    units.saturating_add(1).saturating_mul(8)
                }
                _ => return None,
            };
            at = at.saturating_add(octets);
            protocol = IpProtocol(next);
        }
        None
    }
}

/// A datagram whose first fragment has arrived.
#[derive(Clone, Copy, Debug)]
struct Datagram<V> {
    id: DatagramId,
    value: V,
    /// First second at which it is no longer known.
    expires_at: u32,
    /// Number of its first fragment, out of all.
    number: u32,
}

/// Datagrams by their identity, with a value that the first fragment determines.
#[derive(Debug)]
pub(crate) struct Datagrams<V> {
    /// Sets of [`WAYS`].
    datagrams: Box<[Option<Datagram<V>>]>,
    /// First fragments so far.
    count: u32,
    /// Chooses sets, so that no sender can choose those of others.
    secret: RandomState,
}

impl<V: Copy> Datagrams<V> {
    pub(crate) fn new() -> Self {
        Self {
            datagrams: vec![None; SETS * WAYS].into_boxed_slice(),
            count: 0,
            secret: RandomState::new(),
        }
    }

    /// Returns the memory of the table, octets.
    pub(crate) fn octets(&self) -> usize {
        size_of_val(&self.datagrams[..])
    }

    /// Returns the position of the set of a source.
    fn set_of(&self, id: &DatagramId) -> usize {
        let hash = self.secret.hash_one(id.source);
        usize::try_from(hash % SETS_U64)
            .unwrap_or(0)
            .saturating_mul(WAYS)
    }

    /// Notes what the first fragment of a datagram says, in place of an earlier one, of an expired datagram, or of the oldest of the set.
    pub(crate) fn note(&mut self, id: DatagramId, value: V, now: u32) {
        let start = self.set_of(&id);
        let number = self.count;
        self.count = number.wrapping_add(1);
        let rank = |place: &Option<Datagram<V>>| match place {
            Some(one) if one.id == id => u64::MAX,
            Some(one) if one.expires_at > now => u64::from(number.wrapping_sub(one.number)),
            _ => u64::MAX - 1,
        };
        let set = self.datagrams.get_mut(start..).unwrap_or_default();
        let set = set.iter_mut().take(WAYS);
        if let Some(place) = set.max_by_key(|place| rank(place)) {
            *place = Some(Datagram {
                id,
                value,
                expires_at: now.saturating_add(TIMEOUT_S),
                number,
            });
        }
    }

    /// Returns the value noted for the first fragment of a datagram.
    pub(crate) fn find(&self, id: &DatagramId, now: u32) -> Option<V> {
        let start = self.set_of(id);
        let set = self.datagrams.get(start..)?;
        let mut live = set.iter().take(WAYS).flatten();
        let found = live.find(|one| one.id == *id && one.expires_at > now)?;
        Some(found.value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn id(source: u128, identification: u32) -> DatagramId {
        DatagramId {
            source,
            destination: 9,
            identification,
            protocol: 17,
            zone: 0,
        }
    }

    #[test]
    fn a_flood_of_one_source_replaces_its_own_datagrams() {
        let mut table = Datagrams::new();
        for source in 0..100 {
            table.note(id(source, 1), source, 0);
        }
        for number in 0..100_000 {
            table.note(id(1000, number), 1000, 1);
        }
        let left = (0..100).filter(|source| table.find(&id(*source, 1), 1) == Some(*source));
        // Those of the same set are lost.
        assert!(left.count() >= 95);
        let own = (0..100_000).filter(|number| table.find(&id(1000, *number), 1).is_some());
        let own: Vec<u32> = own.collect();
        assert_eq!((own.len(), own[0]), (WAYS, 100_000 - WAYS as u32));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_table_agrees_with_a_map_as_long_as_there_is_space(
            steps in prop::collection::vec((0..4u128, 0..4u32, any::<u8>(), any::<bool>(), 0..6u32), 1..200),
        ) {
            let mut table = Datagrams::new();
            let mut map: HashMap<(u128, u32), (u8, u32)> = HashMap::new();
            let mut now = 0;
            for (source, number, value, is_first, seconds) in steps {
                now += seconds;
                map.retain(|_, (_, ends_at)| *ends_at > now);
                if is_first {
                    table.note(id(source, number), value, now);
                    map.insert((source, number), (value, now + TIMEOUT_S));
                }
                for source in 0..4 {
                    for number in 0..4 {
                        let expected = map.get(&(source, number)).map(|(value, _)| *value);
                        prop_assert_eq!(table.find(&id(source, number), now), expected);
                    }
                }
            }
        }

        #[test]
        fn any_octets_are_a_fragment_or_none(octets in prop::collection::vec(any::<u8>(), 0..120), is_v6: bool) {
            let part = if is_v6 {
                FragmentPart::of_ipv6(&octets, 0)
            } else {
                FragmentPart::of_ipv4(&octets, 0)
            };
            if let Some(part) = part {
                prop_assert!(part.offset <= 0xfff8 && part.offset % 8 == 0);
                prop_assert!(part.length <= 0xffff);
            }
        }
    }
}
