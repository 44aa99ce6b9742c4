// SPDX-License-Identifier: Apache-2.0
//! Frames of descriptions compared with a simple reference generator based on etherparse, and with scapy's dissection.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, TcpHeader, UdpHeader};
use proptest::prelude::*;

use super::field::Kind;
use super::headers::{IPV4_A, IPV4_B, IPV6_A, IPV6_B, MAC_A, MAC_B};
use super::*;
use crate::frame::{Epoch, Signature};
use crate::writer::{Described, Share};

fn parse(text: &str) -> Traffic {
    Traffic::parse(text, Path::new("t.toml")).unwrap()
}

/// Returns the first frames of a port, without FCS. The tick of each frame is its number.
fn frames(traffic: &Traffic, sizes: &[u16], port: u8, count: u32) -> Vec<Vec<u8>> {
    let program = Arc::new(Program::new(traffic, sizes, port).unwrap());
    let mut writer = Described::new(Arc::clone(&program), port, Share::WHOLE);
    (0..count)
        .map(|number| {
            let size = sizes[number as usize % sizes.len()];
            let mut frame = vec![0xee; usize::from(size) - 4];
            let flow = program.flow(u64::from(number), number % program.flows());
            writer.write_frame(flow, &mut frame, u64::from(number));
            frame
        })
        .collect()
}

/// Returns the value of a sequential field, or the default.
fn value<K: Kind>(field: Option<&Field<K>>, default: u128, flow: u32) -> u128 {
    field.map_or(default, |field| field.rule(0, 0).value(flow))
}

fn pair<K: Kind>(
    source: Option<&Field<K>>,
    destination: Option<&Field<K>>,
    [a, b]: [u128; 2],
    flow: u32,
    is_mirrored: bool,
) -> [u128; 2] {
    let [from, to] = [value(source, a, flow), value(destination, b, flow)];
    if is_mirrored { [to, from] } else { [from, to] }
}

/// Reference generator: builds every header again, from the inside out, with its checksum over the contents.
fn obvious(headers: &Headers, payload: &[u8], flow: u32, mirrored: bool, vxlan: bool) -> Vec<u8> {
    let tcp = headers.tcp.as_ref();
    let protocol = if tcp.is_some() {
        IpNumber::TCP
    } else {
        IpNumber::UDP
    };
    let length = payload.len() + if tcp.is_some() { 20 } else { 8 };
    let (ethertype, ipv4, ipv6) = match &headers.ipv6 {
        Some(ip) => {
            let ends = [ip.source.as_ref(), ip.destination.as_ref()];
            let [from, to] = pair(ends[0], ends[1], [IPV6_A, IPV6_B], flow, mirrored);
            let header = Ipv6Header {
                traffic_class: (value(ip.dscp.as_ref(), 0, flow) as u8) << 2,
                flow_label: Ipv6FlowLabel::try_new(value(ip.label.as_ref(), 0, flow) as u32)
                    .unwrap(),
                payload_length: length as u16,
                next_header: protocol,
                hop_limit: value(ip.ttl.as_ref(), 64, flow) as u8,
                source: from.to_be_bytes(),
                destination: to.to_be_bytes(),
            };
            (0x86ddu16, None, Some(header))
        }
        None => {
            let ip = headers.ipv4.clone().unwrap_or_default();
            let ends = [ip.source.as_ref(), ip.destination.as_ref()];
            let [from, to] = pair(ends[0], ends[1], [IPV4_A, IPV4_B], flow, mirrored);
            let mut header = Ipv4Header::new(
                length as u16,
                value(ip.ttl.as_ref(), 64, flow) as u8,
                protocol,
                (from as u32).to_be_bytes(),
                (to as u32).to_be_bytes(),
            )
            .unwrap();
            header.dscp = (value(ip.dscp.as_ref(), 0, flow) as u8).try_into().unwrap();
            header.identification = 0;
            header.dont_fragment = true;
            header.header_checksum = header.calc_header_checksum();
            (0x0800, Some(header), None)
        }
    };
    let transport = match tcp {
        Some(tcp) => {
            let given = tcp.source.is_some() || tcp.destination.is_some();
            let ends = [tcp.source.as_ref(), tcp.destination.as_ref()];
            let [from, to] = pair(ends[0], ends[1], [1024, 7], flow, mirrored && given);
            let sequence = value(tcp.sequence.as_ref(), 0, flow) as u32;
            let mut header = TcpHeader::new(from as u16, to as u16, sequence, u16::MAX);
            let flags = value(tcp.flags.as_ref(), 0x10, flow) as u8;
            let bits: Vec<bool> = (0..8).map(|bit| flags >> bit & 1 == 1).collect();
            (header.fin, header.syn, header.rst, header.psh) = (bits[0], bits[1], bits[2], bits[3]);
            (header.ack, header.urg, header.ece, header.cwr) = (bits[4], bits[5], bits[6], bits[7]);
            header.checksum = match (&ipv4, &ipv6) {
                (Some(ip), _) => header.calc_checksum_ipv4(ip, payload).unwrap(),
                (_, Some(ip)) => header.calc_checksum_ipv6(ip, payload).unwrap(),
                _ => unreachable!(),
            };
            header.to_bytes().to_vec()
        }
        None => {
            let udp = headers.udp.clone().unwrap_or_default();
            let given = udp.source.is_some() || udp.destination.is_some();
            let ends = [udp.source.as_ref(), udp.destination.as_ref()];
            let usual = [1024, if vxlan { 4789 } else { 7 }];
            let [from, to] = pair(ends[0], ends[1], usual, flow, mirrored && given && !vxlan);
            let (from, to) = (from as u16, to as u16);
            let wanted = udp.checksum.unwrap_or(!vxlan || ipv6.is_some());
            let header = match (&ipv4, &ipv6) {
                (Some(ip), _) if wanted => UdpHeader::with_ipv4_checksum(from, to, ip, payload),
                (_, Some(ip)) if wanted => UdpHeader::with_ipv6_checksum(from, to, ip, payload),
                _ => UdpHeader::without_ipv4_checksum(from, to, payload.len()),
            };
            header.unwrap().to_bytes().to_vec()
        }
    };
    let ethernet = &headers.ethernet;
    let ends = [ethernet.source.as_ref(), ethernet.destination.as_ref()];
    let [from, to] = pair(ends[0], ends[1], [MAC_A, MAC_B], flow, mirrored);
    let mut frame = [&to.to_be_bytes()[10..], &from.to_be_bytes()[10..]].concat();
    for (index, tag) in headers.vlan.iter().enumerate() {
        let outer = headers.vlan.len() == 2 && index == 0;
        let tpid = match tag.tag_type {
            Some(TagType::Provider) => 0x88a8u16,
            None if outer => 0x88a8,
            _ => 0x8100,
        };
        let priority = value(tag.priority.as_ref(), 0, flow) as u16;
        let tci = priority << 13 | value(Some(&tag.id), 0, flow) as u16;
        frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(ipv4.map_or(Vec::new(), |ip| ip.to_bytes().to_vec()));
    frame.extend(ipv6.map_or(Vec::new(), |ip| ip.to_bytes().to_vec()));
    frame.extend(transport);
    frame.extend(payload);
    frame
}

/// Returns a port's n-th frame by the reference generator, with the payload of the frame under test.
fn whole(traffic: &Traffic, payload: &[u8], flow: u32, port: u8) -> Vec<u8> {
    let is_mirrored = port == 1;
    let (outer, inner) = traffic.headers();
    match inner {
        None => obvious(&outer, payload, flow, is_mirrored, false),
        Some((vxlan, inner)) => {
            let vni = (value(Some(&vxlan.vni), 0, flow) as u32) << 8;
            let mut tunnelled = vec![8, 0, 0, 0];
            tunnelled.extend(vni.to_be_bytes());
            tunnelled.extend(obvious(&inner, payload, flow, is_mirrored, false));
            obvious(&outer, &tunnelled, flow, is_mirrored, true)
        }
    }
}

fn field(first: String, count: std::ops::Range<u32>) -> impl Strategy<Value = String> {
    (1u64..70_000, count).prop_map(move |(step, count)| match count {
        1 => first.clone(),
        _ => format!(
            "{{ first = {first}, step = {}, count = {count} }}",
            step % 7 + 1
        ),
    })
}

/// Returns a strategy for the headers of one frame as TOML, with tables under `prefix`.
fn headers(prefix: &'static str, tcp: bool) -> impl Strategy<Value = String> {
    let text = |text: &str| format!("\"{text}\"");
    let macs = (
        field(text("02:00:00:00:00:fe"), 1..300),
        field(text("02:aa:00:00:ff:f0"), 1..50),
    );
    let tags = prop::collection::vec((1u16..2000, 0u8..8, 1u32..50), 0..3);
    let v4 = (
        field(text("10.0.0.250"), 1..500),
        field(text("198.18.255.1"), 1..20),
        0u8..63,
        1u8..200,
    );
    let v6 = (
        field(text("2001:db8::fff0"), 1..500),
        field(text("fd00::1"), 1..20),
        0u32..900_000,
    );
    let ports = (field("1024".to_owned(), 1..400), 0u16..30_000, 0u8..=255);
    (macs, tags, v4, v6, ports, any::<[bool; 3]>()).prop_map(
        move |(macs, tags, v4, v6, ports, [is_v6, has_ports, has_checksum])| {
            let mut toml = format!("[{prefix}.ethernet]\nsource = {}\ndestination = {}\n", macs.0, macs.1);
            for (id, priority, count) in tags {
                toml += &format!(
                    "[[{prefix}.vlan]]\nid = {{ first = {id}, count = {count} }}\npriority = {priority}\n"
                );
            }
            toml += &if is_v6 {
                let (source, destination, label) = v6;
                format!("[{prefix}.ipv6]\nsource = {source}\ndestination = {destination}\nlabel = {label}\n")
            } else {
                let (source, destination, dscp, ttl) = v4;
                format!("[{prefix}.ipv4]\nsource = {source}\ndestination = {destination}\ndscp = {{ first = {dscp}, count = 2 }}\nttl = {ttl}\n")
            };
            let (source, destination, flags) = ports;
            let given = if has_ports {
                format!("source = {source}\ndestination = {destination}\n")
            } else {
                String::new()
            };
            toml += &if tcp {
                format!("[{prefix}.tcp]\n{given}flags = {flags}\nsequence = 4000000000\n")
            } else {
                let checksum = if has_checksum || is_v6 { "" } else { "checksum = false\n" };
                format!("[{prefix}.udp]\n{given}{checksum}")
            };
            toml
        },
    )
}

fn description() -> impl Strategy<Value = String> {
    let plain = prop_oneof![headers("traffic", false), headers("traffic", true)];
    let inner = prop_oneof![
        headers("traffic.inner", false),
        headers("traffic.inner", true)
    ];
    let tunnel = (headers("traffic", false), inner, any::<bool>()).prop_map(
        |(outer, inner, has_checksum)| {
            let outer = if has_checksum && !outer.contains("checksum") {
                outer + "checksum = true\n"
            } else {
                outer
            };
            format!("{outer}[traffic.vxlan]\nvni = {{ first = 5, count = 900 }}\n{inner}")
        },
    );
    (prop_oneof![plain, tunnel], any::<bool>())
        .prop_map(|(headers, integrity)| format!("[traffic]\nintegrity = {integrity}\n{headers}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn frames_are_those_of_the_reference(
        text in description(),
        more in prop::collection::vec(0u16..1500, 1..4),
        port in 0u8..2,
    ) {
        let traffic = parse(&text);
        let sizes: Vec<u16> = more.iter().map(|more| smallest(&traffic) + more).collect();
        let place = Program::new(&traffic, &sizes, port).unwrap().place();
        for (number, frame) in frames(&traffic, &sizes, port, 40).iter().enumerate() {
            let number = number as u32;
            let payload = &frame[place..];
            let expected = whole(&traffic, payload, number % traffic.flow_count(), port);
            prop_assert_eq!(frame, &expected, "{}", text);
            let signature = Signature::read(frame, place).unwrap();
            prop_assert_eq!(signature.tick, u64::from(number));
            prop_assert_eq!(signature.port, port);
            let intact = Pattern::new(traffic.seed).is_intact(payload);
            prop_assert_eq!(intact, traffic.integrity);
        }
    }
}

#[test]
fn drawn_fields_are_the_mirror_image_on_the_other_side() {
    let traffic = parse(
        r#"
[traffic.ipv4]
source = { first = "10.0.0.0", count = 1000, order = "uniform" }
destination = { first = "10.1.0.0", count = 1000, order = "zipf" }
[traffic.udp]
source = { first = 0, count = 50000, order = "uniform" }
"#,
    );
    let [one, other] = [0, 1].map(|port| frames(&traffic, &[64], port, 3000));
    let mut pairs = std::collections::BTreeSet::new();
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one[26..30], other[30..34]);
        assert_eq!(one[30..34], other[26..30]);
        assert_eq!(one[34..36], other[36..38]);
        pairs.insert(one[26..36].to_vec());
    }
    assert!(pairs.len() > 2990, "{}", pairs.len());
}

#[test]
fn flows_follow_each_other_as_reported() {
    let counts = |order: &str| {
        let traffic = parse(&format!(
            "[traffic]\nflows = {{ count = 100, order = \"{order}\" }}\nudp.source = {{ first = 0, count = 100 }}"
        ));
        let mut counts = vec![0u32; 100];
        for frame in frames(&traffic, &[64], 0, 10_000) {
            counts[usize::from(frame[35])] += 1;
            let signature = Signature::read(&frame, 42).unwrap();
            assert_eq!(signature.flow, u16::from(frame[35]));
            // Sequence numbers count within the flow.
            assert_eq!(signature.sequence + 1, counts[usize::from(frame[35])]);
        }
        counts
    };
    assert_eq!(counts("sequential"), vec![100; 100]);
    let uniform = counts("uniform");
    assert!(uniform.iter().all(|count| (50..160).contains(count)) && uniform != vec![100; 100]);
    let zipf = counts("zipf");
    assert!(zipf[0] > 1700 && zipf[9] < 300 && zipf[99] < 50, "{zipf:?}");
}

#[test]
fn lanes_that_share_a_port_have_flows_of_their_own() {
    for order in ["sequential", "uniform", "zipf"] {
        let traffic = parse(&format!(
            "[traffic]\nflows = {{ count = 70001, order = \"{order}\" }}\nudp.source = {{ first = 0, count = 65536 }}"
        ));
        let program = Arc::new(Program::new(&traffic, &[64], 0).unwrap());
        for index in 0..3 {
            let share = Share { index, of: 3 };
            let mut writer = Described::new(Arc::clone(&program), 0, share);
            writer.begin(Epoch::of_trial(1));
            for _ in 0..200_000 {
                let flow = writer.next_flow();
                assert!(
                    flow % 3 == u32::from(index) && flow < 70_001,
                    "{order} {flow}"
                );
                let mut frame = [0; 60];
                writer.write_frame(flow, &mut frame, 0);
                let tracked = Signature::read(&frame, 42).unwrap().flow;
                assert_eq!(tracked % 3, index);
            }
        }
    }
}

#[test]
fn a_frame_too_small_for_its_headers_is_refused() {
    let traffic = parse("[traffic]\nintegrity = true\n[traffic.ipv6]\n[traffic.tcp]\n");
    // 14 + 40 + 20 octets of headers, 18 + 6 of the signature and seal, 4 of the FCS.
    assert_eq!(smallest(&traffic), 102);
    let error = Program::new(&traffic, &[1518, 101], 0).unwrap_err();
    assert!(error.contains("101") && error.contains("102"), "{error}");
    assert!(Program::new(&traffic, &[102], 0).is_ok());
}

/// Returns scapy's dissection of frames: the names of the layers, and 'sound' if every checksum that scapy recomputes equals the one in
/// the frame.
fn dissected(frames: &[Vec<u8>]) -> Vec<String> {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("set QUIETWIRE_PYTHON to a Python with scapy (`make test` installs one)");
    let script = r"
import sys
from scapy.all import Ether, Dot1Q, Dot1AD, IP, IPv6, UDP, TCP, Raw
from scapy.layers.vxlan import VXLAN
for line in sys.stdin:
    octets = bytes.fromhex(line)
    frame = Ether(octets)
    names, layer, absent = [], frame, []
    while layer:
        names.append(layer.__class__.__name__)
        if isinstance(layer, UDP) and layer.chksum == 0:
            absent.append(len(names))
        layer = layer.payload
    again, layer, number = Ether(octets), None, 0
    layer = again
    while layer:
        number += 1
        if isinstance(layer, (IP, UDP, TCP)) and number not in absent:
            del layer.chksum
        if isinstance(layer, (IP, UDP)):
            del layer.len
        if isinstance(layer, IPv6):
            del layer.plen
        layer = layer.payload
    print('/'.join(names), 'sound' if bytes(again) == octets else bytes(again).hex())
";
    let input: String = frames
        .iter()
        .map(|frame| {
            let hex: String = frame.iter().map(|octet| format!("{octet:02x}")).collect();
            hex + "\n"
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frames");
    std::fs::write(&path, input).unwrap();
    let output = Command::new(python)
        .args(["-c", script])
        .stdin(std::fs::File::open(path).unwrap())
        .output()
        .unwrap();
    let given = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    given.lines().map(str::to_owned).collect()
}

#[test]
fn scapy_reads_every_kind_with_right_checksums() {
    let kinds = [
        ("", "Ether/IP/UDP/Raw"),
        ("[traffic.ipv6]", "Ether/IPv6/UDP/Raw"),
        (
            "[traffic.tcp]\nsource = { first = 1, count = 50 }",
            "Ether/IP/TCP/Raw",
        ),
        ("[traffic.ipv6]\n[traffic.tcp]", "Ether/IPv6/TCP/Raw"),
        (
            "[[traffic.vlan]]\nid = { first = 1, count = 99 }",
            "Ether/Dot1Q/IP/UDP/Raw",
        ),
        (
            "[[traffic.vlan]]\nid = 9\n[[traffic.vlan]]\nid = 7\npriority = 3",
            "Ether/Dot1AD/Dot1Q/IP/UDP/Raw",
        ),
        (
            "[traffic.udp]\nsource = { first = 49152, count = 99 }\n[traffic.vxlan]\nvni = { first = 1, count = 99 }",
            "Ether/IP/UDP/VXLAN/Ether/IP/UDP/Raw",
        ),
        (
            "[traffic.udp]\nchecksum = true\n[traffic.vxlan]\nvni = 7\n[[traffic.inner.vlan]]\nid = 5\n[traffic.inner.ipv6]\nsource = { first = \"fd00::\", count = 99 }\n[traffic.inner.tcp]",
            "Ether/IP/UDP/VXLAN/Ether/Dot1Q/IPv6/TCP/Raw",
        ),
        (
            "[traffic.ipv6]\n[traffic.vxlan]\nvni = 7\n[traffic.inner.ipv4]\nttl = { first = 3, count = 99 }",
            "Ether/IPv6/UDP/VXLAN/Ether/IP/UDP/Raw",
        ),
    ];
    let mut sent = Vec::new();
    let mut expected = Vec::new();
    for (text, layers) in kinds {
        for integrity in [false, true] {
            let traffic = parse(&format!("[traffic]\nintegrity = {integrity}\n{text}"));
            let sizes = [smallest(&traffic), 200, 201, 1518];
            for port in [0, 1] {
                let frames = frames(&traffic, &sizes, port, 12);
                expected.extend(frames.iter().map(|_| format!("{layers} sound")));
                sent.extend(frames);
            }
        }
    }
    assert_eq!(dissected(&sent), expected);
}

#[test]
fn damaged_payloads_are_counted_apart() {
    let traffic = parse("[traffic]\nintegrity = true\n");
    let program = Program::new(&traffic, &[300], 0).unwrap();
    let epoch = Epoch::of_trial(3);
    let mut writer = Described::new(Arc::new(program.clone()), 0, Share::WHOLE);
    writer.begin(epoch);
    let mut frames: Vec<[u8; 296]> = (0..10)
        .map(|tick| {
            let mut frame = [0; 296];
            writer.write_frame(0, &mut frame, tick);
            frame
        })
        .collect();
    frames[2][295] ^= 1;
    frames[5][program.place() + 7] ^= 0x40;
    frames[7][program.place()] ^= 1;
    // The changes of a router are not damage.
    frames[8][22] -= 1;
    frames[8][24] += 1;
    let marks = crate::received::FrameIdentity {
        place: program.place(),
        flows: 2,
        source: 0,
        window: 512,
        checksums: crate::checksums::Checksums::new(program.covers().to_vec()),
        pattern: Some(Arc::new(Pattern::new(0))),
        replayed: None,
    };
    let mut observed = crate::received::Received::new(epoch, 3, marks, 1, 1_000_000_000);
    observed.record(frames.iter().map(|frame| &frame[..]), 100);
    let received = observed.trackers.get(0).unwrap().received();
    assert_eq!((received, observed.damaged, observed.foreign), (7, 2, 1));
}
