// SPDX-License-Identifier: Apache-2.0
//! Table cases of every field of a packet that a rule compares, as files have it: values at the edges of the field, values next to these, and
//! frames that do not have the field.

use super::malformed::{ethernet, ipv4, ipv6};
use super::*;

type Frames = Vec<Vec<u8>>;

/// A rule, frames that it matches, and frames that it does not match.
type Case = (&'static str, Frames, Frames);

/// Offset of the IP header of an untagged frame, and of its addresses.
const IP: usize = 14;
const SOURCE_V4: usize = IP + 12;
const DESTINATION_V4: usize = IP + 16;
const SOURCE_V6: usize = IP + 8;
const DESTINATION_V6: usize = IP + 24;

/// Returns a rule from the JSON of its keys in a file. It may have `vlan`.
fn rule_of(json: &str) -> PortRule {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let vlan = value.get("vlan").and_then(serde_json::Value::as_u64);
    let wanted: RuleMatch = serde_json::from_value(value).unwrap();
    assert_eq!(wanted.check(|_| None), Ok(()), "{json}");
    PortRule {
        port: None,
        group: None,
        vlan: vlan.map(|vlan| u16::try_from(vlan).unwrap()),
        packet: wanted.packet(),
        further: wanted.further(),
        sets: Vec::new(),
        ct_states: None,
        mark: None,
        label: None,
        action: Action::Drop,
        frames: Arc::default(),
    }
}

fn is_matched(json: &str, frame: &[u8]) -> bool {
    // A rule that continues has the same conditions.
    let continues = PortRule {
        action: Action::Continue,
        ..rule_of(json)
    };
    let frames = Arc::clone(&continues.frames);
    let is_matched = is_decided([continues, rule_of(json)], json, frame);
    assert_eq!(frames.get(), u64::from(is_matched), "{json}");
    is_matched
}

fn is_decided(rules: [PortRule; 2], json: &str, frame: &[u8]) -> bool {
    let table = RuleTable::new(rules, Fallback::default());
    let port = PortRules::new(Arc::new(table), 0, None);
    let mut verdicts = [Verdict::Short; BURST_MAX];
    port.judge([(frame, frame.len() as u32)].into_iter(), &mut verdicts);
    match verdicts[0] {
        Verdict::Rule(..) => true,
        Verdict::Default(_) => false,
        other => panic!("{json}: {other:?}: {frame:02x?}"),
    }
}

fn check(cases: &[Case]) {
    for (rule, matched, others) in cases {
        for (frames, expected) in [(matched, true), (others, false)] {
            for frame in frames {
                assert_eq!(is_matched(rule, frame), expected, "{rule}: {frame:02x?}");
            }
        }
    }
}

/// Returns a frame with other octets at an offset.
fn with(mut frame: Vec<u8>, at: usize, octets: &[u8]) -> Vec<u8> {
    frame[at..at + octets.len()].copy_from_slice(octets);
    frame
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(&[], protocol, 0, payload))
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], 0x86dd, &ipv6(&[], protocol, payload))
}

/// Returns a later fragment of a datagram.
fn later_v4(protocol: u8) -> Vec<u8> {
    ethernet(&[], 0x0800, &ipv4(&[], protocol, 100, &[0; 24]))
}

fn later_v6(protocol: u8) -> Vec<u8> {
    // Offset 100 units of eight octets, and identification 1.
    let fragment: (u8, &[u8]) = (44, &[0x03, 0x20, 0, 0, 0, 1]);
    ethernet(&[], 0x86dd, &ipv6(&[fragment], protocol, &[0; 24]))
}

fn arp() -> Vec<u8> {
    ethernet(&[], 0x0806, &[0; 28])
}

/// Returns the first octets of a transport header with these ports, and zeros.
fn transport_of(source: u16, destination: u16, length: usize) -> Vec<u8> {
    let mut header = source.to_be_bytes().to_vec();
    header.extend(destination.to_be_bytes());
    header.resize(length, 0);
    header
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    v4(17, &transport_of(source, destination, 8))
}

/// Returns a TCP segment with these flags.
fn tcp(flags: u8) -> Vec<u8> {
    v4(6, &with(transport_of(9, 9, 20), 13, &[flags]))
}

/// Returns a message of ICMP or ICMPv6.
fn message(kind: u8, code: u8) -> [u8; 8] {
    [kind, code, 0, 0, 0, 0, 0, 0]
}

#[test]
fn a_rule_without_fields_matches_every_frame() {
    let tagged = ethernet(&[5, 6], 0x0800, &ipv4(&[], 17, 0, &[0; 8]));
    let all = vec![arp(), udp(0, 0), v6(59, &[0; 8]), later_v4(17), tagged];
    check(&[("{}", all, Vec::new())]);
}

#[test]
fn ethertypes_tags_and_vlans_are_compared() {
    let tagged = |tags: &[u16]| ethernet(tags, 0x0806, &[0; 28]);
    let of = |ethertype: u16| ethernet(&[], ethertype, &[0; 46]);
    check(&[
        (
            r#"{"ethertype":"arp"}"#,
            vec![arp(), tagged(&[5]), tagged(&[5, 6])],
            vec![udp(1, 1), v6(17, &transport_of(1, 1, 8))],
        ),
        (
            r#"{"ethertype":"0x0600"}"#,
            vec![of(0x0600)],
            vec![of(0x0601), arp()],
        ),
        (
            r#"{"ethertype":"0xffff"}"#,
            vec![of(0xffff)],
            vec![of(0xfffe)],
        ),
        (
            r#"{"ethertype":"ipv4"}"#,
            vec![udp(1, 1)],
            vec![v6(59, &[0; 8])],
        ),
        (
            r#"{"ethertype":"ipv6"}"#,
            vec![v6(59, &[0; 8])],
            vec![udp(1, 1)],
        ),
        // The outermost tag counts, without its priority.
        (
            r#"{"vlan":1}"#,
            vec![tagged(&[1]), tagged(&[0xe001]), tagged(&[1, 7])],
            vec![arp(), tagged(&[2]), tagged(&[7, 1])],
        ),
        (
            r#"{"vlan":4094}"#,
            vec![tagged(&[4094]), tagged(&[0xfffe])],
            vec![tagged(&[4093]), tagged(&[4095]), arp()],
        ),
        (
            r#"{"tagged":true}"#,
            vec![tagged(&[5]), tagged(&[0]), tagged(&[5, 6])],
            vec![arp()],
        ),
        (
            r#"{"tagged":false}"#,
            vec![arp()],
            vec![tagged(&[5]), tagged(&[0])],
        ),
    ]);
}

#[test]
fn mac_addresses_are_compared_in_whole() {
    let to = |address: [u8; 6]| with(arp(), 0, &address);
    let from = |address: [u8; 6]| with(arp(), 6, &address);
    check(&[
        (
            r#"{"destination-mac":"ff:ff:ff:ff:ff:ff"}"#,
            vec![to([0xff; 6])],
            vec![
                to([0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]),
                to([0x7f, 0xff, 0xff, 0xff, 0xff, 0xff]),
                from([0xff; 6]),
            ],
        ),
        (
            r#"{"source-mac":"00:00:00:00:00:00"}"#,
            vec![from([0; 6])],
            vec![
                from([0, 0, 0, 0, 0, 1]),
                from([1, 0, 0, 0, 0, 0]),
                to([0; 6]),
            ],
        ),
    ]);
}

#[test]
fn protocols_are_compared_behind_extension_headers_and_in_later_fragments() {
    let header = transport_of(1, 1, 8);
    let options: (u8, &[u8]) = (60, &[]);
    let behind = ethernet(&[], 0x86dd, &ipv6(&[options], 17, &header));
    check(&[
        (
            r#"{"protocol":"udp"}"#,
            vec![
                udp(1, 1),
                v6(17, &header),
                behind,
                later_v4(17),
                later_v6(17),
            ],
            vec![tcp(0), v6(58, &message(1, 0)), later_v4(6), arp()],
        ),
        (
            r#"{"protocol":"0"}"#,
            vec![v4(0, &[0; 8])],
            vec![v4(1, &message(0, 0)), arp()],
        ),
        (
            r#"{"protocol":"255"}"#,
            vec![v4(255, &[0; 8]), v6(255, &[0; 8])],
            vec![v4(254, &[0; 8]), arp()],
        ),
    ]);
}

#[test]
fn prefixes_are_compared_to_their_last_bit() {
    let from = |address: [u8; 4]| with(udp(1, 1), SOURCE_V4, &address);
    let to = |address: [u8; 4]| with(udp(1, 1), DESTINATION_V4, &address);
    let packet = || v6(17, &transport_of(1, 1, 8));
    let from_v6 = |last: u8| with(packet(), SOURCE_V6 + 15, &[last]);
    let to_v6 = |octets: &[u8]| with(packet(), DESTINATION_V6, octets);
    check(&[
        (
            r#"{"source":"192.0.2.0/24"}"#,
            vec![from([192, 0, 2, 0]), from([192, 0, 2, 255])],
            vec![
                from([192, 0, 1, 255]),
                from([192, 0, 3, 0]),
                with(from([192, 0, 3, 0]), DESTINATION_V4, &[192, 0, 2, 1]),
                packet(),
                arp(),
            ],
        ),
        (
            r#"{"destination":"10.0.0.1"}"#,
            vec![to([10, 0, 0, 1]), later_v4(17)],
            vec![to([10, 0, 0, 0]), to([10, 0, 0, 2])],
        ),
        (
            r#"{"destination":"128.0.0.0/1"}"#,
            vec![to([128, 0, 0, 0]), to([255, 255, 255, 255])],
            vec![to([127, 255, 255, 255])],
        ),
        (
            r#"{"source":"0.0.0.0/0"}"#,
            vec![from([0; 4]), from([255; 4])],
            vec![packet(), arp()],
        ),
        (
            r#"{"source":"::/0"}"#,
            vec![packet(), later_v6(17)],
            vec![udp(1, 1), arp()],
        ),
        (
            r#"{"source":"2001:db8::1"}"#,
            vec![from_v6(1)],
            vec![from_v6(0), from_v6(2)],
        ),
        (
            r#"{"source":"2001:db8::2/127"}"#,
            vec![from_v6(2), from_v6(3)],
            vec![from_v6(1), from_v6(4)],
        ),
        (
            r#"{"destination":"2001:db8::/33"}"#,
            vec![to_v6(&[0x20, 1, 0x0d, 0xb8, 0x7f])],
            vec![
                to_v6(&[0x20, 1, 0x0d, 0xb8, 0x80]),
                to_v6(&[0x20, 1, 0x0d, 0xb9, 0]),
            ],
        ),
    ]);
}

#[test]
fn port_ranges_include_both_ends() {
    let first_fragment = ipv4(&[], 17, 0x2000, &transport_of(1, 53, 16));
    let first_fragment = ethernet(&[], 0x0800, &first_fragment);
    check(&[
        (
            r#"{"protocol":"udp","source-port":"0"}"#,
            vec![udp(0, 9)],
            vec![udp(1, 0), later_v4(17)],
        ),
        (
            r#"{"protocol":"udp","destination-port":"65535"}"#,
            vec![udp(0, 65_535)],
            vec![udp(65_535, 65_534)],
        ),
        (
            r#"{"protocol":"udp","destination-port":"5000-5010"}"#,
            vec![udp(1, 5000), udp(1, 5005), udp(1, 5010)],
            vec![udp(1, 4999), udp(1, 5011), udp(5005, 1)],
        ),
        (
            r#"{"protocol":"udp","destination-port":"53"}"#,
            vec![udp(1, 53), first_fragment],
            vec![v4(6, &transport_of(1, 53, 20)), later_v4(17), later_v6(17)],
        ),
        // Later fragments have no ports.
        (
            r#"{"protocol":"udp","source-port":"0-65535","destination-port":"0-65535"}"#,
            vec![udp(0, 0), udp(65_535, 65_535)],
            vec![later_v4(17), later_v6(17)],
        ),
        (
            r#"{"protocol":"sctp","destination-port":"7"}"#,
            vec![
                v4(132, &transport_of(1, 7, 12)),
                v6(132, &transport_of(1, 7, 12)),
            ],
            vec![v4(132, &transport_of(7, 1, 12))],
        ),
    ]);
}

#[test]
fn tcp_flags_are_compared_by_their_mask() {
    check(&[
        (
            r#"{"protocol":"tcp","tcp-flags":"syn / syn,ack"}"#,
            vec![tcp(0x02), tcp(0x03), tcp(0xc2)],
            vec![tcp(0x12), tcp(0x10), tcp(0)],
        ),
        (
            r#"{"protocol":"tcp","tcp-flags":"rst"}"#,
            vec![tcp(0x04), tcp(0xff)],
            vec![tcp(0xfb), tcp(0)],
        ),
        (
            r#"{"protocol":"tcp","tcp-flags":"cwr"}"#,
            vec![tcp(0x80)],
            vec![tcp(0x7f)],
        ),
        // Later fragments have no flags, and datagrams neither.
        (
            r#"{"protocol":"tcp","tcp-flags":"0 / fin,syn"}"#,
            vec![tcp(0), tcp(0xfc)],
            vec![tcp(0x01), tcp(0x02), later_v4(6), later_v6(6), udp(0, 0)],
        ),
    ]);
}

#[test]
fn icmp_types_and_codes_are_those_of_the_ip_version() {
    check(&[
        (
            r#"{"protocol":"icmp","icmp-type":0}"#,
            vec![v4(1, &message(0, 0)), v4(1, &message(0, 255))],
            vec![v4(1, &message(8, 0)), later_v4(1), udp(0, 0)],
        ),
        (
            r#"{"protocol":"icmp","icmp-type":3,"icmp-code":0}"#,
            vec![v4(1, &message(3, 0))],
            vec![v4(1, &message(3, 1)), v4(1, &message(0, 3))],
        ),
        (
            r#"{"protocol":"icmpv6","icmp-type":255,"icmp-code":255}"#,
            vec![v6(58, &message(255, 255))],
            vec![
                v6(58, &message(255, 254)),
                v6(58, &message(254, 255)),
                later_v6(58),
            ],
        ),
        // IPv6 carries no ICMP of IPv4, and the reverse.
        (
            r#"{"protocol":"icmp","icmp-type":8}"#,
            vec![v4(1, &message(8, 0))],
            vec![v6(1, &message(8, 0))],
        ),
        (
            r#"{"protocol":"icmpv6","icmp-type":128}"#,
            vec![v6(58, &message(128, 0))],
            vec![v4(58, &message(128, 0))],
        ),
    ]);
}

#[test]
fn the_dscp_is_compared_without_ecn() {
    let of = |octet: u8| with(udp(1, 1), IP + 1, &[octet]);
    let of_v6 = |octets: [u8; 2]| with(v6(59, &[0; 8]), IP, &octets);
    check(&[
        (
            r#"{"dscp":"cs0"}"#,
            vec![of(0), of(3), of_v6([0x60, 0x3f]), later_v4(17)],
            vec![of(4), of_v6([0x60, 0x40]), of_v6([0x61, 0]), arp()],
        ),
        (
            r#"{"dscp":"63"}"#,
            vec![of(0xfc), of(0xff), of_v6([0x6f, 0xc0])],
            vec![of(0xf8), of_v6([0x6f, 0x80])],
        ),
        (
            r#"{"dscp":"ef"}"#,
            vec![of(0xb8), of_v6([0x6b, 0x80])],
            vec![of(0xb4), of(0xbc), of_v6([0x6b, 0x40])],
        ),
    ]);
}

#[test]
fn a_field_behind_another_that_differs_does_not_match() {
    let rule = r#"{"protocol":"tcp","source":"192.0.2.1","destination":"10.0.0.1","source-port":"9",
        "destination-port":"9","source-mac":"02:02:02:02:02:02","tcp-flags":"syn / syn,ack","dscp":"cs0","tagged":false}"#;
    let syn = || tcp(0x02);
    let others = vec![
        with(syn(), 11, &[3]),
        with(syn(), IP + 1, &[4]),
        with(syn(), SOURCE_V4 + 3, &[2]),
        with(syn(), DESTINATION_V4 + 3, &[2]),
        with(syn(), IP + 21, &[8]),
        with(syn(), IP + 23, &[8]),
        tcp(0x12),
        ethernet(&[5], 0x0800, &syn()[IP..]),
    ];
    check(&[(rule, vec![syn()], others)]);
}
