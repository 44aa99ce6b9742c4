// SPDX-License-Identifier: Apache-2.0

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use proptest::prelude::*;
use quietwire_packet::Checksum;

use super::*;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn bits(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().to_bits()
}

fn pair(internal: &str, external: &str) -> PrefixPair {
    PrefixPair::new(net(internal), net(external)).unwrap()
}

fn words(address: u128) -> [u16; 8] {
    Ipv6Addr::from_bits(address).segments()
}

/// The translation as plain arithmetic: bit by bit, and modulo 65,535.
fn model(address: u128, (from, to): (u128, u128), length: u32) -> Option<u128> {
    let mut address = address;
    for bit in (128 - length)..128 {
        address = address & !(1 << bit) | to & 1 << bit;
    }
    let mut words = words(address);
    let candidates: &[usize] = if length <= 48 { &[3] } else { &[4, 5, 6, 7] };
    let at = *candidates.iter().find(|at| words[**at] != 0xffff)?;
    let sum = |address: u128| -> u64 { self::words(address).into_iter().map(u64::from).sum() };
    let new = (u64::from(words[at]) + sum(from) + 8 * 65_535 - sum(to)) % 65_535;
    words[at] = u16::try_from(new).unwrap();
    Some(Ipv6Addr::from(words).to_bits())
}

#[test]
fn the_example_of_the_rfc_is_translated_and_back() {
    // RFC 6296, section 3.6.
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let (inside, outside) = (bits("fd01:203:405:1::1234"), bits("2001:db8:1:d550::1234"));
    assert_eq!(pair.external_of(inside), Ok(Some(outside)));
    assert_eq!(pair.internal_of(outside), Ok(Some(inside)));
    assert_eq!(pair.external_of(outside), Ok(None));
    assert_eq!(pair.internal_of(inside), Ok(None));
}

#[test]
fn prefixes_that_cannot_be_translated_are_refused() {
    for (internal, external) in [
        ("fd00::/65", "2001:db8::/48"),
        ("fd00::/48", "2001:db8::/128"),
        ("::/0", "2001:db8::/48"),
    ] {
        let error = PrefixPair::new(net(internal), net(external)).unwrap_err();
        assert!(error.to_string().contains("from 1 to 64"), "{error}");
    }
    let error = PrefixPair::new(net("fd00::/48"), net("fd00::/56")).unwrap_err();
    assert!(error.to_string().contains("the same prefix"), "{error}");
}

#[test]
fn the_shorter_prefix_is_extended_by_zeros() {
    let one = pair("fd00:0:0:0::/48", "2001:db8:0:1100::/56");
    assert!(one.is_internal(bits("fd00::1")));
    assert!(!one.is_internal(bits("fd00:0:0:100::1")));
    let outside = one.external_of(bits("fd00:0:0:ab::1")).unwrap().unwrap();
    assert_eq!(words(outside)[..4], [0x2001, 0xdb8, 0, 0x11ab]);
}

#[test]
fn words_of_ones_are_left_out_or_the_packet_is_dropped() {
    let short = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let address = bits("fd01:203:405:ffff::1");
    assert_eq!(short.external_of(address), Err(NptDrop::Address));
    let long = pair("fd01:203:405:600::/56", "2001:db8:1:700::/56");
    let outside = long.external_of(bits("fd01:203:405:601:ffff::1"));
    assert_eq!(words(outside.unwrap().unwrap())[4], 0xffff);
    let address = bits("fd01:203:405:601:ffff:ffff:ffff:ffff");
    assert_eq!(long.external_of(address), Err(NptDrop::Address));
}

/// Returns the prefix of an address, and another address within it.
fn address_in(prefix: Ipv6Net, host: u128) -> u128 {
    let mask = prefix.netmask().to_bits();
    prefix.network().to_bits() | host & !mask
}

/// Addresses, some of them with words of ones or zeros.
fn host() -> impl Strategy<Value = u128> {
    let word = prop_oneof![2 => any::<u16>(), 1 => Just(0xffffu16), 1 => Just(0u16)];
    prop::array::uniform8(word).prop_map(|words| Ipv6Addr::from(words).to_bits())
}

fn two_prefixes() -> impl Strategy<Value = (Ipv6Net, Ipv6Net)> {
    let lengths = (1..=64u8, 1..=64u8);
    let different =
        |(internal, external): &(Ipv6Net, Ipv6Net)| internal.network() != external.network();
    (host(), host(), lengths)
        .prop_map(|(one, other, lengths)| {
            let prefix = |bits: u128, length| {
                let address = Ipv6Addr::from_bits(bits);
                Ipv6Net::new(address, length).unwrap().trunc()
            };
            (prefix(one, lengths.0), prefix(other, lengths.1))
        })
        .prop_filter("two prefixes", different)
}

/// A packet with a valid checksum of its transport protocol, if it has one.
fn packet(source: u128, destination: u128, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap();
    let mut octets = vec![0x60, 0, 0, 0];
    octets.extend(length.to_be_bytes());
    octets.extend([protocol, 64]);
    octets.extend(source.to_be_bytes());
    octets.extend(destination.to_be_bytes());
    octets.extend(payload);
    if let Some(at) = checksum_at(protocol) {
        octets[40 + at..42 + at].fill(0);
        let sum = transport_checksum(&octets);
        octets[40 + at..42 + at].copy_from_slice(&sum.to_be_bytes());
    }
    octets
}

/// Returns the offset of the checksum of a protocol in its payload of at least 20 octets.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        ICMPV6 => Some(2),
        _ => None,
    }
}

/// Returns the checksum over pseudo-header and payload (RFC 8200, section 8.1): 0 if the packet has a right one.
fn transport_checksum(packet: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&packet[8..40]);
    sum.add(&u32::try_from(packet.len() - 40).unwrap().to_be_bytes());
    sum.add(&[0, 0, 0, packet[6]]);
    sum.add(&packet[40..]);
    sum.finish()
}

proptest! {
    #[test]
    fn addresses_are_those_of_the_plain_model_and_return(
        (internal, external) in two_prefixes(),
        host in host(),
    ) {
        let pair = PrefixPair::new(internal, external).unwrap();
        let length = internal.prefix_len().max(external.prefix_len());
        let extend = |prefix: Ipv6Net| Ipv6Net::new(prefix.network(), length).unwrap();
        let (internal, external) = (extend(internal), extend(external));
        let (from, to) = (internal.network().to_bits(), external.network().to_bits());
        let address = address_in(internal, host);
        let expected = model(address, (from, to), length.into());
        match pair.external_of(address) {
            Ok(Some(outside)) => {
                prop_assert_eq!(Some(outside), expected);
                prop_assert!(pair.is_external(outside));
                prop_assert_eq!(pair.internal_of(outside), Ok(Some(address)));
            }
            Err(NptDrop::Address) => prop_assert_eq!(expected, None),
            other => prop_assert!(false, "{:?}", other),
        }
        let address = address_in(external, host);
        let expected = model(address, (to, from), length.into());
        prop_assert_eq!(pair.internal_of(address).unwrap_or(None), expected);
    }

    #[test]
    fn no_checksum_changes(
        (internal, external) in two_prefixes(),
        hosts in (host(), any::<u128>()),
        protocol in prop::sample::select(vec![TCP, UDP, ICMPV6]),
        mut payload in prop::collection::vec(any::<u8>(), 20..80),
        is_out: bool,
    ) {
        let pair = PrefixPair::new(internal, external).unwrap();
        // An echo, not an error.
        payload[0] = 128;
        let (ours, theirs) = if is_out { (internal, external) } else { (external, internal) };
        let length = internal.prefix_len().max(external.prefix_len());
        let ours = Ipv6Net::new(ours.network(), length).unwrap();
        let (local, remote) = (address_in(ours, hosts.0), hosts.1);
        let (source, destination) = if is_out { (local, remote) } else { (remote, local) };
        let before = packet(source, destination, protocol, &payload);
        let mut after = before.clone();
        let size = after.len();
        let result = if is_out { pair.send(&mut after, size) } else { pair.receive(&mut after, size) };
        if result == Err(NptDrop::Address) {
            prop_assert_eq!(after, before);
            return Ok(());
        }
        prop_assert_eq!(result, Ok(true));
        // 0 and 0xffff are one number.
        prop_assert_eq!(transport_checksum(&after) % 0xffff, 0);
        let at = if is_out { 8 } else { 24 };
        prop_assert_eq!(&after[..at], &before[..at]);
        prop_assert_eq!(&after[at + 16..], &before[at + 16..]);
        let translated = u128::from_be_bytes(after[at..at + 16].try_into().unwrap());
        let theirs = Ipv6Net::new(theirs.network(), length).unwrap();
        prop_assert!(theirs.contains(&Ipv6Addr::from_bits(translated)));
    }

    #[test]
    fn any_octets_are_translated_or_stay(
        mut octets in prop::collection::vec(any::<u8>(), 0..160),
        is_plausible: bool,
        protocol in prop_oneof![Just(0u8), Just(43), Just(44), Just(58), any::<u8>()],
        length in 0..200usize,
        is_out: bool,
    ) {
        let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
        if is_plausible && octets.len() >= 40 {
            let payload = u16::try_from(octets.len() - 40).unwrap();
            octets[0] = 0x60;
            octets[4..6].copy_from_slice(&payload.to_be_bytes());
            octets[6] = protocol;
            octets[8..14].copy_from_slice(&[0xfd, 1, 2, 3, 4, 5]);
            octets[24..30].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 1]);
        }
        let length = length.max(octets.len());
        let before = octets.clone();
        let result = if is_out { pair.send(&mut octets, length) } else { pair.receive(&mut octets, length) };
        prop_assert_eq!(octets.len(), before.len());
        if result == Ok(true) {
            // What is translated is of the other prefix now.
            let mut again = octets.clone();
            let back = if is_out { (8, false) } else { (24, true) };
            let at = back.0;
            let address = u128::from_be_bytes(again[at..at + 16].try_into().unwrap());
            let is_translated = if back.1 {
                pair.is_internal(address)
            } else {
                pair.is_external(address)
            };
            prop_assert!(is_translated);
            again[at..at + 16].copy_from_slice(&before[at..at + 16]);
            prop_assert_eq!(&again[..40], &before[..40]);
        } else {
            prop_assert_eq!(octets, before);
        }
    }
}

#[test]
fn packets_in_errors_are_translated_too() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let inside = bits("fd01:203:405:1::1234");
    let outside = bits("2001:db8:1:d550::1234");
    let (remote, router) = (bits("2001:db8:f::9"), bits("2001:db8:f::1"));
    let error = |inner: &[u8]| [&[1u8, 4, 0, 0, 0, 0, 0, 0][..], inner].concat();
    // A router outside reports about a packet of the inside host.
    let sent = packet(outside, remote, UDP, &[7; 20]);
    let mut octets = packet(router, outside, ICMPV6, &error(&sent));
    let length = octets.len();
    assert_eq!(pair.receive(&mut octets, length), Ok(true));
    let expected = packet(inside, remote, UDP, &[7; 20]);
    assert_eq!(octets[24..40], inside.to_be_bytes());
    assert_eq!(octets[48..], expected);
    assert_eq!(transport_checksum(&octets) % 0xffff, 0);
    // The inside host reports about a packet to it.
    let received = packet(remote, inside, UDP, &[7; 20]);
    let mut octets = packet(inside, remote, ICMPV6, &error(&received));
    assert_eq!(pair.send(&mut octets, length), Ok(true));
    assert_eq!(octets[8..24], outside.to_be_bytes());
    assert_eq!(octets[48 + 24..48 + 40], outside.to_be_bytes());
    assert_eq!(transport_checksum(&octets) % 0xffff, 0);
    // An error that ends within the addresses has no host to translate.
    let mut short = packet(router, outside, ICMPV6, &error(&sent[..20]));
    let length = short.len();
    let before = short.clone();
    assert_eq!(pair.receive(&mut short, length), Ok(true));
    assert_eq!(short[40..], before[40..]);
}

#[test]
fn damaged_packets_are_dropped_and_do_not_change() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let whole = packet(
        bits("fd01:203:405:1::1234"),
        bits("2001:db8::1"),
        UDP,
        &[7; 20],
    );
    for length in 0..whole.len() {
        let mut octets = whole[..length].to_vec();
        assert_eq!(pair.send(&mut octets, length), Err(NptDrop::Malformed));
        assert_eq!(octets, whole[..length]);
    }
    // Further buffers may have the rest of a packet.
    let mut octets = whole[..40].to_vec();
    assert_eq!(pair.send(&mut octets, whole.len()), Ok(true));
    let mut octets = whole.clone();
    octets[0] = 0x45;
    assert_eq!(pair.send(&mut octets, 60), Err(NptDrop::Malformed));
    // A chain of extension headers that does not end.
    let mut octets = whole;
    octets[6] = 0;
    octets[41] = 255;
    let before = octets.clone();
    assert_eq!(pair.send(&mut octets, 60), Err(NptDrop::Malformed));
    assert_eq!(octets, before);
}

#[test]
fn a_router_translates_by_interface_and_vrf_and_between_inside_hosts() {
    let one = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let other = pair("fd02::/48", "2001:db8:2::/48");
    let all = PrefixTranslation::new([(7, 0, one), (8, 1, one), (9, 0, other)]);
    assert!(!all.is_empty() && PrefixTranslation::default().is_empty());
    assert_eq!(
        (all.of(7), all.of(9), all.of(1)),
        (Some(&one), Some(&other), None)
    );
    let inside = bits("fd01:203:405:1::1234");
    let outside = bits("2001:db8:1:d550::1234");
    let neighbour = bits("fd01:203:405:1::9");
    let packet_to = |source| packet(source, outside, UDP, &[7; 20]);
    // From outside.
    let mut octets = packet_to(bits("2001:db8:f::1"));
    let length = octets.len();
    assert!(all.concerns(&octets, 0) && !all.concerns(&octets, 2));
    assert_eq!(all.of_external(&octets), Some(&one));
    assert_eq!(all.receive(&mut octets, length, 0), Ok(()));
    assert_eq!(octets, packet(bits("2001:db8:f::1"), inside, UDP, &[7; 20]));
    assert!(!all.concerns(&octets, 0) && all.of_external(&octets).is_none());
    // Of another VRF.
    let mut octets = packet_to(bits("2001:db8:f::1"));
    assert_eq!(all.receive(&mut octets, length, 2), Ok(()));
    assert_eq!(octets, packet_to(bits("2001:db8:f::1")));
    // Between inside hosts, of one prefix and of two.
    for (pair, host) in [(one, neighbour), (other, bits("fd02::5:0:0:1"))] {
        let mut octets = packet_to(host);
        assert_eq!(all.receive(&mut octets, length, 0), Ok(()));
        let source = pair.external_of(host).unwrap().unwrap();
        assert_eq!(octets, packet(source, inside, UDP, &[7; 20]));
    }
    let mut short = octets[..39].to_vec();
    assert!(!all.concerns(&short, 0));
    assert_eq!(all.receive(&mut short, 39, 0), Err(NptDrop::Malformed));
}

#[test]
fn errors_of_the_router_have_external_addresses() {
    let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
    let inside = bits("fd01:203:405:1::1234");
    let outside = bits("2001:db8:1:d550::1234");
    let (remote, router) = (bits("2001:db8:f::9"), bits("2001:db8:f::1"));
    // The router forwarded a packet to the inside host, which is too big behind it.
    let received = packet(remote, inside, UDP, &[7; 20]);
    let content = [&[2u8, 0, 0, 0, 0, 0, 5, 0][..], &received].concat();
    let mut octets = packet(router, remote, ICMPV6, &content);
    let length = octets.len();
    pair.translate_own_error(&mut octets, length);
    assert_eq!(octets[48 + 24..48 + 40], outside.to_be_bytes());
    assert_eq!(octets[24..40], remote.to_be_bytes());
    assert_eq!(transport_checksum(&octets) % 0xffff, 0);
    // Other packets stay.
    let mut other = received.clone();
    let length = other.len();
    pair.translate_own_error(&mut other, length);
    assert_eq!(other, received);
}
