// SPDX-License-Identifier: Apache-2.0
//! Flow rules of cards, read by the offsets of linux/ethtool.h and compared with the obvious matcher.

use super::*;
use crate::steer::flow_spec::{FlowSpec, LENGTH};

/// Returns true if a card matches a frame that has the fields of the rule's structure, under their masks.
fn card_matches(spec: &FlowSpec, frame: &[u8]) -> bool {
    let octets = spec.at(0);
    let kind = u32::from_ne_bytes(octets[..4].try_into().unwrap());
    let fields = fields_of(frame);
    let is_equal = |at: usize, length: usize, field: Option<Vec<u8>>| {
        let value = &octets[4 + at..4 + at + length];
        let mask = &octets[76 + at..76 + at + length];
        mask.iter().all(|mask| *mask == 0)
            || field.is_some_and(|field| (0..length).all(|at| field[at] & mask[at] == value[at]))
    };
    let part = |range: std::ops::Range<usize>| frame.get(range).map(<[u8]>::to_vec);
    let two = |number: Option<u16>| number.map(|number| number.to_be_bytes().to_vec());
    // struct ethtool_flow_ext, if its flags are set.
    let has_vlan = kind & 0x8000_0000 == 0 || is_equal(52 + 10, 2, two(fields.vlan));
    let has_mac = kind & 0x4000_0000 == 0 || is_equal(52 + 2, 6, part(0..6));
    let has_packet = match kind & 0xff {
        0x12 => {
            is_equal(0, 6, part(0..6))
                && is_equal(6, 6, part(6..12))
                && is_equal(12, 2, two(fields.ethertype))
        }
        kind => {
            let (protocol, length) = match kind {
                0x01 => (Some(6), 4),
                0x02 => (Some(17), 4),
                0x03 => (Some(132), 4),
                0x05 => (Some(6), 16),
                0x06 => (Some(17), 16),
                0x07 => (Some(132), 16),
                0x0d => (None, 4),
                0x0e => (None, 16),
                other => panic!("type {other}"),
            };
            let octets_of = |address: IpAddr| match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            let Some((from, to)) = fields.addresses else {
                return false;
            };
            let (from, to) = (octets_of(from), octets_of(to));
            let has_protocol = match protocol {
                Some(protocol) => {
                    let ports = |which: fn((u16, u16)) -> u16| two(fields.ports.map(which));
                    fields.protocol == Some(protocol)
                        && is_equal(2 * length, 2, ports(|(from, _)| from))
                        && is_equal(2 * length + 2, 2, ports(|(_, to)| to))
                }
                None => {
                    let at = if length == 4 { 14 } else { 37 };
                    is_equal(at, 1, fields.protocol.map(|protocol| vec![protocol]))
                }
            };
            from.len() == length
                && is_equal(0, length, Some(from))
                && is_equal(length, length, Some(to))
                && has_protocol
        }
    };
    has_vlan && has_mac && has_packet
}

/// Returns true if a mask of its upper bits selects these ports, and not all ports.
fn has_mask((first, last): (u16, u16)) -> bool {
    (0..16_u32).any(|low| {
        let mask = if low == 0 { u16::MAX } else { u16::MAX << low };
        (0..=u16::MAX).all(|port| (port & mask == first) == (first..=last).contains(&port))
    })
}

/// Returns true if a flow rule can have all conditions.
fn is_possible(frames: &SteerMatch) -> bool {
    let ranges = [frames.source_ports, frames.destination_ports];
    let prefixes = [frames.source, frames.destination];
    let has_ports = ranges.iter().any(Option::is_some);
    let has_packet = has_ports || frames.protocol.is_some() || prefixes.iter().any(Option::is_some);
    let is_of = |ethertype: u16, is_version_4: bool| {
        frames.ethertype.is_none_or(|one| one == ethertype)
            && prefixes
                .iter()
                .flatten()
                .all(|(address, _)| address.is_ipv4() == is_version_4)
    };
    if !has_packet {
        return *frames != SteerMatch::default();
    }
    frames.source_mac.is_none()
        && (is_of(0x0800, true) || is_of(0x86dd, false))
        && (!has_ports || [6, 17, 132].map(Some).contains(&frames.protocol))
        && ranges.into_iter().flatten().all(has_mask)
}

/// Checks the fields of a flow rule: equal to those of the match, or without mask.
fn fields_are_those_of(spec: &FlowSpec, frames: &SteerMatch) {
    let fields = spec.fields();
    let none = ([0; 2], [0; 2]);
    let mac = |mac: Option<[u8; 6]>| mac.map_or(([0; 6], [0; 6]), |mac| (mac, [0xff; 6]));
    assert_eq!(fields.source_mac, mac(frames.source_mac));
    assert_eq!(fields.destination_mac, mac(frames.destination_mac));
    let vlan = frames.vlan.map(|vlan| (vlan.to_be_bytes(), [0x0f, 0xff]));
    assert_eq!(fields.vlan, vlan.unwrap_or(none));
    let ethertype = frames.ethertype.filter(|_| fields.version == 0);
    let ethertype = ethertype.map(|number| (number.to_be_bytes(), [0xff; 2]));
    assert_eq!(fields.ethertype, ethertype.unwrap_or(none));
    let protocol = frames.protocol.map(|protocol| ([protocol], [0xff]));
    assert_eq!(fields.protocol, protocol.unwrap_or(([0], [0])));
    for (prefix, (value, mask)) in [
        (frames.source, fields.source),
        (frames.destination, fields.destination),
    ] {
        let length = prefix.map_or(0, |(_, length)| u32::from(length));
        let ones: u32 = mask.iter().map(|octet| octet.count_ones()).sum();
        assert_eq!(ones, length);
        assert_eq!(u128::from_be_bytes(mask).leading_ones(), length);
        if let Some((address, _)) = prefix {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            assert_eq!(fields.version, if octets.len() == 4 { 4 } else { 6 });
            let masked = octets.iter().zip(mask).map(|(octet, mask)| octet & mask);
            assert!(masked.eq(value.iter().copied().take(octets.len())));
        }
    }
    for (range, (value, mask)) in [
        (frames.source_ports, fields.source_port),
        (frames.destination_ports, fields.destination_port),
    ] {
        let first = u16::from_be_bytes(value);
        let last = first | !u16::from_be_bytes(mask);
        assert_eq!((first, last), range.unwrap_or((0, u16::MAX)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_card_matches_the_frames_of_the_rule(
        rules in vec(rule(), 8),
        frames in vec(frame(), 24),
    ) {
        for rule in &rules {
            let target = rule.card.unwrap_or(CardTarget::Queue(7));
            let specs = FlowSpec::of(&rule.frames, target);
            prop_assert_eq!(specs.is_ok(), is_possible(&rule.frames), "{:?}", specs);
            let Ok(specs) = specs else {
                continue;
            };
            for spec in &specs {
                let cookie = u64::from_ne_bytes(spec.at(0)[152..160].try_into().unwrap());
                let expected = match target {
                    CardTarget::Queue(queue) => u64::from(queue),
                    CardTarget::Function(number) => (u64::from(number) + 1) << 32,
                    // RX_CLS_FLOW_DISC.
                    CardTarget::Drop => u64::MAX,
                };
                prop_assert_eq!(cookie, expected);
                prop_assert_eq!(spec.to_string().parse::<FlowSpec>(), Ok(spec.clone()));
                prop_assert_eq!(spec.target(), target);
                fields_are_those_of(spec, &rule.frames);
            }
            for frame in &frames {
                prop_assert_eq!(
                    specs.iter().any(|spec| card_matches(spec, frame)),
                    matches(&rule.frames, frame),
                    "{:?} {:x?}",
                    rule,
                    frame
                );
            }
        }
    }
}

fn dns() -> FlowSpec {
    let frames = SteerMatch {
        protocol: Some(17),
        destination: Some(([192, 0, 2, 77].into(), 24)),
        destination_ports: Some((53, 53)),
        vlan: Some(7),
        ..SteerMatch::default()
    };
    let mut specs = FlowSpec::of(&frames, CardTarget::Queue(3)).unwrap();
    assert_eq!(specs.len(), 1);
    specs.remove(0)
}

/// As `ethtool -N IF flow-type udp4 dst-ip 192.0.2.0 m 0.0.0.255 dst-port 53 vlan 7 m 0xf000 action 3 loc 9`.
#[test]
fn a_flow_rule_has_the_octets_of_the_kernels_structure() {
    let mut expected = [0; LENGTH];
    expected[..4].copy_from_slice(&0x8000_0002_u32.to_ne_bytes());
    expected[8..11].copy_from_slice(&[192, 0, 2]);
    expected[14..16].copy_from_slice(&[0, 53]);
    expected[66..68].copy_from_slice(&[0, 7]);
    expected[80..83].copy_from_slice(&[255, 255, 255]);
    expected[86..88].copy_from_slice(&[255, 255]);
    expected[138..140].copy_from_slice(&[0x0f, 0xff]);
    expected[152..160].copy_from_slice(&3_u64.to_ne_bytes());
    expected[160..164].copy_from_slice(&9_u32.to_ne_bytes());
    assert_eq!(dns().at(9), expected);
    assert_eq!(FlowSpec::from_octets(expected).location(), 9);
}

#[test]
fn rules_that_do_the_same_are_the_same_though_drivers_write_them_differently() {
    let plain = dns();
    let with = |at: usize, octet: u8| {
        let mut octets = plain.at(9);
        octets[at] ^= octet;
        FlowSpec::from_octets(octets)
    };
    // The location, a value without mask, the padding, and the VLAN type without mask.
    for at in [160, 4, 148, 64] {
        assert!(plain.is_same(&with(at, 1)), "{at}");
    }
    // The type, values and masks of address, port and VLAN, the queue.
    for at in [0, 8, 15, 67, 80, 87, 139, 152, 156] {
        assert!(!plain.is_same(&with(at, 1)), "{at}");
    }
}
