// SPDX-License-Identifier: Apache-2.0
//! Every kind of malformed frame: with rules that drop what it hides, it passes them if malformed frames are matched, and not otherwise.

use std::collections::BTreeSet;

use super::*;

/// Addresses, tags, and the content from the EtherType on.
pub(super) fn ethernet(tags: &[u16], ethertype: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    for vlan in tags {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(content);
    frame
}

/// A TCP or UDP header to the port that the rules drop.
const PORTS: [u8; 4] = [0, 9, 0, 23];

fn transport(length: usize) -> Vec<u8> {
    let mut octets = PORTS.to_vec();
    octets.resize(length.max(4), 0);
    octets.truncate(length);
    octets
}

/// An IPv4 packet: options, protocol, the field of flags and fragment offset, payload.
pub(super) fn ipv4(options: &[u8], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut ip = vec![0x40 | (header / 4) as u8, 0];
    ip.extend(((header + payload.len()) as u16).to_be_bytes());
    ip.extend([0, 0]);
    ip.extend(fragment.to_be_bytes());
    ip.extend([64, protocol, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1]);
    ip.extend(options);
    ip.extend(payload);
    ip
}

/// An IPv6 packet with the extension headers of these types and contents behind the first two octets, in front of this payload.
pub(super) fn ipv6(extensions: &[(u8, &[u8])], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let kinds: Vec<u8> = extensions.iter().map(|one| one.0).collect();
    let after = |at: usize| kinds.get(at).copied().unwrap_or(protocol);
    let mut content = Vec::new();
    for (at, (kind, field)) in extensions.iter().enumerate() {
        let length = (2 + field.len()).next_multiple_of(8);
        let words = match kind {
            44 => 0,
            51 => length / 4 - 2,
            _ => length / 8 - 1,
        };
        let start = content.len();
        content.extend([after(at + 1), words as u8]);
        content.extend(*field);
        content.resize(start + length, 0);
    }
    content.extend(payload);
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((content.len() as u16).to_be_bytes());
    ip.extend([after(0), 64]);
    ip.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    ip.extend(content);
    ip
}

fn changed(mut packet: Vec<u8>, at: usize, octet: u8) -> Vec<u8> {
    packet[at] = octet;
    packet
}

/// Malformed frames, and what they are. All of them carry something that the rules drop, or a part of it.
fn hostile() -> Vec<(&'static str, Malformation, Vec<u8>)> {
    use Malformation as Of;
    let v4 = |options: &[u8], fragment, payload: &[u8]| {
        ethernet(&[], 0x0800, &ipv4(options, 6, fragment, payload))
    };
    let v6 = |extensions: &[(u8, &[u8])], payload: &[u8]| {
        ethernet(&[], 0x86dd, &ipv6(extensions, 6, payload))
    };
    let tcp = transport(20);
    let whole = ipv4(&[], 6, 0, &tcp);
    let snap = |ethertype: u16, content: &[u8]| {
        let mut llc = vec![0xaa, 0xaa, 3, 0, 0, 0];
        llc.extend(ethertype.to_be_bytes());
        llc.extend(content);
        ethernet(&[], llc.len() as u16, &llc)
    };
    let one: (u8, &[u8]) = (60, &[]);
    vec![
        (
            "three tags",
            Of::TooManyTags,
            ethernet(&[5, 6, 8], 0x0800, &whole),
        ),
        (
            "ends within a tag",
            Of::TruncatedTag,
            ethernet(&[5], 0x0800, &whole)[..17].to_vec(),
        ),
        (
            "VLAN 7 behind a priority tag",
            Of::HiddenVlan,
            ethernet(&[0xe000, 7], 0x0800, &ipv4(&[], 17, 0, &[0; 8])),
        ),
        ("SNAP", Of::Snap, snap(0x0800, &whole)),
        (
            "SNAP with the OUI of bridges",
            Of::Snap,
            changed(snap(0x86dd, &ipv6(&[], 6, &tcp)), 19, 0xf8),
        ),
        (
            "19 octets of IPv4",
            Of::TruncatedHeader,
            ethernet(&[], 0x0800, &whole[..19]),
        ),
        (
            "39 octets of IPv6",
            Of::TruncatedHeader,
            ethernet(&[], 0x86dd, &ipv6(&[], 6, &tcp)[..39]),
        ),
        (
            "version 6 in IPv4",
            Of::IpVersion,
            ethernet(&[], 0x0800, &changed(whole.clone(), 0, 0x65)),
        ),
        (
            "version 4 in IPv6",
            Of::IpVersion,
            ethernet(&[], 0x86dd, &changed(ipv6(&[], 6, &tcp), 0, 0x45)),
        ),
        (
            "IHL 4",
            Of::HeaderLength,
            ethernet(&[], 0x0800, &changed(whole.clone(), 0, 0x44)),
        ),
        (
            "IHL beyond the packet",
            Of::PacketLength,
            ethernet(&[], 0x0800, &changed(whole.clone(), 0, 0x4f)),
        ),
        (
            "total length beyond the frame",
            Of::PacketLength,
            ethernet(&[], 0x0800, &changed(whole.clone(), 3, 41)),
        ),
        (
            "total length 0",
            Of::PacketLength,
            ethernet(&[], 0x0800, &changed(whole.clone(), 3, 0)),
        ),
        (
            "payload length beyond the frame",
            Of::PacketLength,
            ethernet(&[], 0x86dd, &changed(ipv6(&[], 6, &tcp), 5, 21)),
        ),
        (
            "option of length 0",
            Of::Options,
            v4(&[7, 0, 0, 0], 0, &tcp),
        ),
        (
            "option of length 1",
            Of::Options,
            v4(&[1, 7, 1, 0], 0, &tcp),
        ),
        (
            "option beyond the header",
            Of::Options,
            v4(&[7, 5, 4, 0], 0, &tcp),
        ),
        (
            "option without a length",
            Of::Options,
            v4(&[1, 1, 1, 7], 0, &tcp),
        ),
        (
            "jumbogram",
            Of::Jumbogram,
            ethernet(
                &[],
                0x86dd,
                &changed(ipv6(&[(0, &[0xc2, 4, 0, 1, 0, 0])], 6, &tcp), 5, 0),
            ),
        ),
        (
            "payload length 0",
            Of::TruncatedTransport,
            ethernet(&[], 0x86dd, &changed(ipv6(&[], 6, &tcp), 5, 0)),
        ),
        (
            "extension header beyond the packet",
            Of::TruncatedExtension,
            ethernet(&[], 0x86dd, &changed(ipv6(&[one], 6, &tcp), 41, 9)),
        ),
        (
            "nothing of an extension header",
            Of::TruncatedExtension,
            ethernet(&[], 0x86dd, &ipv6(&[], 60, &[])),
        ),
        (
            "nine extension headers",
            Of::TooManyExtensions,
            v6(&[one; 9], &tcp),
        ),
        (
            "hop-by-hop options behind others",
            Of::ExtensionOrder,
            v6(&[one, (0, &[])], &tcp),
        ),
        (
            "two fragment headers",
            Of::ExtensionOrder,
            v6(&[(44, &[0, 0]), (44, &[0, 40])], &tcp),
        ),
        (
            "extension header 253",
            Of::UnknownExtension,
            v6(&[(253, &[])], &tcp),
        ),
        (
            "extension header 254 behind another",
            Of::UnknownExtension,
            v6(&[one, (254, &[])], &tcp),
        ),
        ("no TCP header", Of::TruncatedTransport, v4(&[], 0, &[])),
        (
            "TCP header in the padding",
            Of::TruncatedTransport,
            ethernet(&[], 0x0800, &changed(whole.clone(), 3, 22)),
        ),
        (
            "first fragment of 8 octets",
            Of::TruncatedTransport,
            v4(&[], 0x2000, &transport(8)),
        ),
        (
            "first fragment of 0 octets",
            Of::TruncatedTransport,
            v4(&[], 0x2000, &[]),
        ),
        (
            "first fragment of 16 octets",
            Of::TruncatedTransport,
            v4(&[], 0x2000, &transport(16)),
        ),
        (
            "first fragment of IPv6 without TCP",
            Of::TruncatedTransport,
            v6(&[(44, &[0, 1]), one], &[]),
        ),
        (
            "first fragment that ends within an extension header",
            Of::TruncatedExtension,
            ethernet(
                &[],
                0x86dd,
                &ipv6(&[(44, &[0, 1])], 60, &[6, 1, 0, 0, 0, 0, 0, 0]),
            ),
        ),
        (
            "second fragment over the ports",
            Of::OverlappingFragment,
            v4(&[], 0x2001, &transport(24)),
        ),
        (
            "second fragment over the checksum of TCP",
            Of::OverlappingFragment,
            v4(&[], 2, &transport(24)),
        ),
        (
            "second fragment of IPv6 over TCP",
            Of::OverlappingFragment,
            v6(&[(44, &[0, 8])], &transport(24)),
        ),
        (
            "SCTP header in two fragments",
            Of::OverlappingFragment,
            ethernet(&[], 0x0800, &ipv4(&[], 132, 1, &transport(24))),
        ),
        (
            "first fragment of 21 octets",
            Of::FragmentLength,
            v4(&[], 0x2000, &transport(21)),
        ),
        (
            "first fragment of IPv6 of 21 octets",
            Of::FragmentLength,
            v6(&[(44, &[0, 1])], &transport(21)),
        ),
        (
            "fragment beyond 65535 octets",
            Of::FragmentEnd,
            v4(&[], 0x1fff, &transport(8)),
        ),
        (
            "fragment of IPv6 beyond 65535 octets",
            Of::FragmentEnd,
            v6(&[(44, &[0xff, 0xf8])], &transport(8)),
        ),
    ]
}

/// Frames at the edge of the malformed ones.
fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = |options: &[u8], protocol, fragment, payload: &[u8]| {
        ethernet(&[], 0x0800, &ipv4(options, protocol, fragment, payload))
    };
    let v6 = |extensions: &[(u8, &[u8])], protocol, payload: &[u8]| {
        ethernet(&[], 0x86dd, &ipv6(extensions, protocol, payload))
    };
    let udp = transport(8);
    let padded = |mut frame: Vec<u8>| {
        frame.resize(60.max(frame.len() + 1), 0);
        frame
    };
    let one: (u8, &[u8]) = (60, &[]);
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    vec![
        (
            "two tags",
            ethernet(&[5, 0], 0x0800, &ipv4(&[], 17, 0, &udp)),
        ),
        (
            "a priority tag",
            ethernet(&[0xe000], 0x0800, &ipv4(&[], 17, 0, &udp)),
        ),
        (
            "a tag of 0x9100 is none",
            ethernet(&[], 0x9100, &[0, 7, 8, 0]),
        ),
        ("ARP", ethernet(&[], 0x0806, &[0; 28])),
        (
            "spanning tree",
            ethernet(&[], 38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]),
        ),
        (
            "Cisco discovery",
            ethernet(&[], 40, &[0xaa, 0xaa, 3, 0, 0, 12, 0x20, 0]),
        ),
        (
            "AppleTalk ARP",
            ethernet(&[], 36, &[0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0xf3]),
        ),
        ("802.3 with one octet of LLC", ethernet(&[], 1, &[0xaa])),
        ("padding", padded(v4(&[], 17, 0, &udp))),
        (
            "record route, end of options, anything",
            v4(&[7, 3, 4, 0, 9, 0, 0, 0], 17, 0, &udp),
        ),
        ("OSPF without content", v4(&[], 89, 0, &[])),
        ("first fragment", v4(&[], 6, 0x2000, &transport(24))),
        ("second fragment", v4(&[], 6, 0x2003, &transport(24))),
        ("last fragment", v4(&[], 6, 3, &transport(5))),
        ("first fragment of UDP", v4(&[], 17, 0x2000, &udp)),
        ("second fragment of UDP", v4(&[], 17, 1, &[0; 3])),
        (
            "last fragment of the longest packet",
            v4(&[], 17, 0x1ffd, &[0; 3]),
        ),
        ("echo", v4(&[], 1, 0, &echo)),
        ("no next header", v6(&[], 59, &[])),
        ("IPv6 and padding", padded(v6(&[], 17, &udp))),
        ("eight extension headers", v6(&[one; 8], 17, &udp)),
        (
            "all kinds of extension headers",
            v6(
                &[
                    (0, &[5, 2, 0, 0]),
                    one,
                    (43, &[4, 0]),
                    (44, &[0, 0]),
                    (51, &[0; 14]),
                    one,
                    (135, &[]),
                ],
                17,
                &udp,
            ),
        ),
        ("ESP", v6(&[one], 50, &[1; 3])),
        (
            "first fragment of IPv6",
            v6(&[(44, &[0, 1]), one], 6, &transport(24)),
        ),
        ("later fragment of IPv6", v6(&[(44, &[0, 24])], 6, &[0; 5])),
        (
            "later fragment behind options",
            v6(&[one, (44, &[0, 25])], 60, &[0xff; 8]),
        ),
        (
            "last fragment of the longest payload",
            v6(&[(44, &[0xff, 0xf8])], 17, &[0; 7]),
        ),
        ("ICMPv6", v6(&[], 58, &[133, 0, 0, 0])),
    ]
}

/// Rules that drop all the hostile frames carry: TCP, VLAN 7, and whatever is to port 23.
fn dropping() -> Vec<Rule> {
    let of = |protocol| PacketMatch {
        protocol: Some(Protocol(protocol)),
        ..PacketMatch::default()
    };
    let to_port = |protocol| PacketMatch {
        destination_port: Some(ports((23, 23))),
        ..of(protocol)
    };
    let rules = [to_port(6), to_port(17), to_port(132)].map(|one| (None, one, Action::Drop));
    let seven = (Some(7), PacketMatch::default(), Action::Drop);
    rules.into_iter().chain([seven]).collect()
}

fn verdict(rules: &[Rule], malformed: MalformedAction, frame: &[u8], held: usize) -> Verdict {
    let frames = [(frame.to_vec(), held)];
    let judged = judged(rules, (Action::Accept, malformed), &frames);
    let expected = reference::judge(rules, (Action::Accept, malformed), (frame, held));
    assert_eq!(judged.verdicts, [expected]);
    expected
}

#[test]
fn every_kind_of_malformed_frame_is_dropped_unless_it_is_allowed() {
    let mut kinds = BTreeSet::new();
    let mut passing = BTreeSet::new();
    for (name, kind, frame) in hostile() {
        let dropped = verdict(&dropping(), MalformedAction::Drop, &frame, frame.len());
        assert_eq!(dropped, Verdict::Malformed(kind), "{name}");
        let matched = verdict(&dropping(), MalformedAction::Match, &frame, frame.len());
        if matched.accepts() {
            passing.insert(name);
        }
        kinds.insert(kind);
    }
    // The headers of these can be read as far as the rules compare them. All others slip past the rules without the check.
    let all: BTreeSet<&str> = hostile().into_iter().map(|one| one.0).collect();
    let caught: Vec<&str> = all.difference(&passing).copied().collect();
    assert_eq!(
        caught,
        [
            "TCP header in the padding",
            "first fragment of 16 octets",
            "first fragment of 21 octets",
            "first fragment of 8 octets",
            "first fragment of IPv6 of 21 octets",
            "hop-by-hop options behind others",
            "jumbogram",
            "option beyond the header",
            "option of length 0",
            "option of length 1",
            "option without a length",
            "payload length 0",
            "payload length beyond the frame",
            "total length 0",
            "total length beyond the frame",
        ]
    );
    // Only a frame in several buffers has scattered headers.
    let all: BTreeSet<Malformation> = Malformation::ALL.into();
    let missing: Vec<&Malformation> = all.difference(&kinds).collect();
    assert_eq!(missing, [&Malformation::ScatteredHeaders]);
}

#[test]
fn well_formed_frames_are_matched_whatever_the_action_for_malformed_ones() {
    for (name, frame) in sound() {
        let [one, two] = [MalformedAction::Drop, MalformedAction::Match]
            .map(|malformed| verdict(&dropping(), malformed, &frame, frame.len()));
        assert!(!matches!(one, Verdict::Malformed(_)), "{name}: {one:?}");
        assert_eq!(one, two, "{name}");
    }
}

#[test]
fn headers_beyond_the_first_buffer_are_malformed() {
    let frame = ethernet(&[5], 0x0800, &ipv4(&[1, 1, 1, 0], 6, 0, &transport(40)));
    let scattered = Verdict::Malformed(Malformation::ScatteredHeaders);
    let headers = 18 + 24 + 20;
    for held in 0..frame.len() {
        let verdict = verdict(&dropping(), MalformedAction::Drop, &frame, held);
        assert_eq!(verdict == scattered, held < headers, "{held}: {verdict:?}");
    }
    let frame = ethernet(
        &[],
        0x86dd,
        &ipv6(&[(60, &[0; 14]), (51, &[0; 6])], 17, &transport(60)),
    );
    let headers = 14 + 40 + 16 + 8 + 8;
    for held in 0..frame.len() {
        let verdict = verdict(&dropping(), MalformedAction::Drop, &frame, held);
        assert_eq!(verdict == scattered, held < headers, "{held}: {verdict:?}");
    }
}
