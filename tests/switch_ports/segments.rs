// SPDX-License-Identifier: Apache-2.0
//! Guests that leave segmentation to the host: their data are sent in segments that TCP itself would have sent, or whole to
//! a guest that accepts them. The guests are handmade; `guests.rs` has some with a kernel.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use serde_json::Value;
use tempfile::TempDir;

use crate::files::{read, write};
use crate::rig::{Namespace, Switch, run, until};
use crate::vhost::{BUFFERS, FEATURES, GUEST, Guest, WRITE};

/// Feature bits of virtio 1.2, section 5.1.3.
const CSUM: u64 = 1;
const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;

/// Octets of virtio's header before a frame (section 5.1.6), with VIRTIO_F_VERSION_1.
const HEADER: usize = 12;
const NEEDS_CSUM: u8 = 1;
const TCPV4: u8 = 1;
const TCPV6: u8 = 4;

/// Maximum segment size for frames of 1514 octets, over IPv6 with TCP options.
const SIZE: usize = 1428;
const DATA: usize = 60_001;

fn data() -> Vec<u8> {
    (0..DATA).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Sets CWR, and adjusts TCP's checksum.
fn with_cwr(mut frame: Vec<u8>) -> Vec<u8> {
    let tcp = frame.len() - DATA - 32;
    frame[tcp + 13] |= 0x80;
    let sum = u16::from_be_bytes([frame[tcp + 16], frame[tcp + 17]]);
    let (sum, borrow) = sum.overflowing_sub(0x80);
    let sum = sum - u16::from(borrow);
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Returns a frame with all of the data; FIN and PSH are set.
fn frame(is_ipv4: bool, tagged: bool) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let options = [1; 12];
    macro_rules! whole {
        ($builder:expr) => {{
            let builder = $builder
                .tcp(4711, 80, u32::MAX - 5000, 512)
                .ack(99)
                .psh()
                .fin()
                .options_raw(&options)
                .unwrap();
            let mut frame = Vec::new();
            builder.write(&mut frame, &data()).unwrap();
            frame
        }};
    }
    macro_rules! over {
        ($builder:expr) => {
            if is_ipv4 {
                whole!($builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64))
            } else {
                whole!($builder.ipv6([0x20; 16], [0x21; 16], 64))
            }
        };
    }
    if tagged {
        over!(builder.single_vlan(5.try_into().unwrap()))
    } else {
        over!(builder)
    }
}

/// Returns the frame as a guest passes it: virtio's header, and the sum of the pseudo header as TCP's checksum, which is the
/// right checksum without the octets of TCP.
fn handed_over(frame: &[u8], is_ipv4: bool) -> Vec<u8> {
    let begin = frame.len() - DATA - 32;
    let mut frame = frame.to_vec();
    let right = u16::from_be_bytes([frame[begin + 16], frame[begin + 17]]);
    frame[begin + 16..begin + 18].fill(0);
    let octets = frame[begin..]
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    // One's complement: the pseudo header's sum is the whole sum minus that of TCP.
    let whole = u64::from(!right);
    let tcp = octets.sum::<u64>() % 0xffff;
    let partial = ((whole + 0xffff - tcp) % 0xffff) as u16;
    frame[begin + 16..begin + 18].copy_from_slice(&partial.to_be_bytes());
    let mut header = vec![NEEDS_CSUM, if is_ipv4 { TCPV4 } else { TCPV6 }];
    for word in [begin + 32, SIZE, begin, 16, 0] {
        header.extend((word as u16).to_le_bytes());
    }
    [header, frame].concat()
}

fn send(guest: &Guest, octets: &[u8], number: u16) {
    guest.write(BUFFERS, octets);
    guest.describe(1, 0, GUEST + BUFFERS, octets.len() as u32, 0, 0);
    guest.publish(1, 0, number);
    until("the host has taken the frame", || {
        (guest.used(1).0 == number).then_some(())
    });
}

fn connected(switch: &Switch, port: &str) -> Value {
    until("the guest is connected", || {
        let port = switch.port(port);
        (port["state"] == "connected").then_some(port)
    })
}

/// Checks that the received segments equal those that scapy makes of the frame.
fn as_scapy_has_it(frame: &[u8], segments: &Path, directory: &Path) {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
    let script = r#"
import sys
from scapy.layers.l2 import Ether
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw
from scapy.utils import RawPcapReader
whole = Ether(open(sys.argv[1], "rb").read())
size, data = int(sys.argv[3]), bytes(whole[TCP].payload)
starts = range(0, len(data), size)
expected = []
for number, start in enumerate(starts):
    one = whole.copy()
    one[TCP].remove_payload()
    tcp = one[TCP] / Raw(data[start:start + size])
    one[TCP].seq = (whole[TCP].seq + start) % 2 ** 32
    flags = int(whole[TCP].flags)
    flags &= ~0x80 if number > 0 else 0xff
    flags &= ~0x09 if number < len(starts) - 1 else 0xff
    one[TCP].flags = flags
    del one[TCP].chksum
    if IP in one:
        one[IP].id = (whole[IP].id + number) % 2 ** 16
        del one[IP].len
        del one[IP].chksum
    else:
        del one[IPv6].plen
    one[TCP].remove_payload()
    one[TCP].add_payload(Raw(data[start:start + size]))
    expected.append(bytes(one))
got = [bytes(octets) for octets, _ in RawPcapReader(sys.argv[2])]
print(len(expected), got == expected)
"#;
    let path = directory.join("frame");
    fs::write(&path, frame).unwrap();
    let mut command = Command::new(python);
    command.args(["-c", script]).arg(path).arg(segments);
    let printed = run(command.arg(SIZE.to_string()));
    assert_eq!(printed.trim(), format!("{} True", DATA.div_ceil(SIZE)));
}

fn is_cut(kind: &str, is_ipv4: bool, tagged: bool) {
    let namespace = Namespace::new(kind);
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let ports = [
        ("v", format!("vhost:{}?tso=on", path("v.sock").display())),
        ("out", format!("pcap:?tx={}", path("out.pcap").display())),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &["--cross-connect", "v,out"],
    );
    let guest = Guest::with_features(&path("v.sock"), FEATURES | CSUM | HOST_TSO4 | HOST_TSO6);
    let port = connected(&switch, "v");
    let features = port["guest"]["features"].as_array().unwrap();
    assert!(features.contains(&"host-tso4".into()), "{port}");
    let frame = with_cwr(frame(is_ipv4, tagged));
    send(&guest, &handed_over(&frame, is_ipv4), 1);
    let count = DATA.div_ceil(SIZE);
    until("the segments are sent", || {
        (switch.port("out")["tx_frames"] == count).then_some(())
    });
    let port = switch.port("out");
    assert_eq!(
        (&port["segmented"], &port["tx_tso_frames"]),
        (&1.into(), &0.into())
    );
    assert_eq!(switch.port("v")["rx_frames"], 1);
    assert!(switch.table().contains("tso=on"), "{}", switch.table());
    // A frame that cannot be segmented is dropped and counted: a tiny segment size, for 60000 segments.
    let mut tiny = handed_over(&frame, is_ipv4);
    tiny[4..6].copy_from_slice(&1_u16.to_le_bytes());
    send(&guest, &tiny, 2);
    until("the frame is dropped", || {
        (switch.port("out")["drops"]["not_segmented"] == 1).then_some(())
    });
    assert_eq!(switch.end(), Some(0));
    let segments = read(&path("out.pcap"));
    assert_eq!(segments.len(), count);
    let mut heard: Vec<u8> = Vec::new();
    for segment in &segments {
        let sliced = SlicedPacket::from_ethernet(segment).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else {
            panic!("not TCP: {segment:?}");
        };
        heard.extend(tcp.payload());
    }
    assert!(heard == data(), "the data differ");
    as_scapy_has_it(&frame, &path("out.pcap"), directory.path());
}

#[test]
fn tso_data_of_a_guest_is_segmented_for_ports_without_tso() {
    is_cut("tso4", true, false);
    is_cut("tso6", false, false);
    is_cut("tsov", true, true);
}

#[test]
fn a_guest_that_takes_tso_data_gets_them_whole() {
    let namespace = Namespace::new("tso-whole");
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let uri = |name: &str| format!("vhost:{}?tso=on", path(name).display());
    // The second port is added to a running switch.
    let ports = [("idle", "null:".to_owned()), ("v", uri("v.sock"))];
    let switch = Switch::start(&namespace, directory.path(), &ports, &[]);
    switch.change(&["add", "port", "w", &uri("w.sock")]);
    switch.change(&["add", "cross-connect", "v", "w"]);
    let text = run(std::process::Command::new(crate::rig::quietwire())
        .args(["switch", "show", "config", "--control-socket"])
        .arg(switch.control()));
    assert!(text.contains("?role=server&tso=on"), "{text}");
    let sender = Guest::with_features(&path("v.sock"), FEATURES | CSUM | HOST_TSO4);
    let takes = FEATURES | GUEST_CSUM | GUEST_TSO4;
    let taker = Guest::with_features(&path("w.sock"), takes);
    connected(&switch, "v");
    connected(&switch, "w");
    taker.describe(0, 0, GUEST + BUFFERS, 0x12000, WRITE, 0);
    taker.publish(0, 0, 1);
    // Without CWR, which this guest has not negotiated.
    let handed = handed_over(&frame(true, false), true);
    send(&sender, &handed, 1);
    until("the guest has the frame", || {
        (taker.used(0).0 == 1).then_some(())
    });
    assert_eq!(taker.used(0).1 as usize, handed.len());
    let mut got = vec![0; handed.len()];
    taker.memory.read_exact_at(&mut got, BUFFERS).unwrap();
    // The host sets the number of buffers.
    assert_eq!(got[..10], handed[..10]);
    let differs = |at: &usize| got[*at] != handed[*at];
    assert_eq!((HEADER..got.len()).find(differs), None);
    let port = switch.port("w");
    assert_eq!(
        (&port["segmented"], &port["tx_tso_frames"]),
        (&0.into(), &1.into())
    );
    assert_eq!(switch.end(), Some(0));
}

/// Configures the router that the guest's frame is sent to, and its next hop.
fn route_all(switch: &Switch) {
    for (name, mac, v4, v6) in [
        (
            "v",
            "02:00:00:00:00:02",
            "203.0.113.1/24",
            "2001:db8:a::1/64",
        ),
        (
            "out",
            "02:00:00:00:00:0b",
            "198.51.100.1/24",
            "2001:db8:b::1/64",
        ),
    ] {
        let interface = format!("{name}0");
        let addresses = ["--address", v4, "--address", v6];
        let arguments = ["add", "interface", &interface, "--port", name, "--mac", mac];
        switch.change(&[&arguments[..], &addresses].concat());
    }
    for (network, neighbour) in [
        ("192.0.2.2/32", "198.51.100.2"),
        ("2121::/16", "2001:db8:b::2"),
    ] {
        switch.change(&["add", "neighbour", "out0", neighbour, "02:00:00:00:00:99"]);
        switch.change(&["add", "route", network, "--via", neighbour]);
    }
}

fn is_routed(kind: &str, is_ipv4: bool) {
    let namespace = Namespace::new(kind);
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let ports = [
        ("v", format!("vhost:{}?tso=on", path("v.sock").display())),
        ("out", format!("pcap:?tx={}", path("out.pcap").display())),
    ];
    let switch = Switch::start(&namespace, directory.path(), &ports, &[]);
    route_all(&switch);
    let guest = Guest::with_features(&path("v.sock"), FEATURES | CSUM | HOST_TSO4 | HOST_TSO6);
    connected(&switch, "v");
    let frame = with_cwr(frame(is_ipv4, false));
    send(&guest, &handed_over(&frame, is_ipv4), 1);
    let count = DATA.div_ceil(SIZE);
    until("the segments are sent", || {
        let frames = switch.port("out")["tx_frames"].as_u64()?;
        (frames >= count as u64).then_some(())
    });
    // The router forwards the frame whole, and the port cuts it.
    assert_eq!(switch.port("out")["segmented"], 1);
    assert_eq!(switch.end(), Some(0));
    // The router's own packets, such as neighbour discovery, are in the file too.
    let routed = |frame: &Vec<u8>| frame[..6] == [2, 0, 0, 0, 0, 0x99];
    let segments: Vec<Vec<u8>> = read(&path("out.pcap")).into_iter().filter(routed).collect();
    assert_eq!(segments.len(), count);
    // After one hop, they are the segments of the frame after one hop.
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x99]);
    expected[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xb]);
    expected[if is_ipv4 { 22 } else { 21 }] -= 1;
    let only_routed = path("routed.pcap");
    write(&only_routed, &segments);
    as_scapy_has_it(&expected, &only_routed, directory.path());
    let mut heard: Vec<u8> = Vec::new();
    for segment in &segments {
        let sliced = SlicedPacket::from_ethernet(segment).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else {
            panic!("not TCP: {segment:?}");
        };
        heard.extend(tcp.payload());
    }
    assert!(heard == data(), "the data differ");
}

#[test]
fn tso_data_of_a_guest_is_routed_unsegmented_and_then_segmented() {
    is_routed("tsor4", true);
    is_routed("tsor6", false);
}
