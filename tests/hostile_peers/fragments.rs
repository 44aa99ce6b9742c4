// SPDX-License-Identifier: Apache-2.0
//! IPv4 fragments over kernel interfaces: they are forwarded unchanged.

use std::process::Command;

use crate::rig::run;
use crate::scene::Scene;

/// Octets of a datagram, and the maximum of a fragment's payload.
const DATAGRAM: usize = 4000;
const PAYLOAD: usize = 1480;
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
const VLAN: u16 = 100;

/// Sends frames from one interface, and prints those that arrive at another, in hexadecimal. The kernel removes tags and
/// returns them in `struct tpacket_auxdata` (packet(7)).
const SCRIPT: &str = r#"
import socket, struct, sys, time
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, VLAN_VALID = 3, 263, 8, 16
def raw(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    s.bind((name, ETH_P_ALL))
    s.settimeout(0.2)
    return s
out, into = raw(sys.argv[1]), raw(sys.argv[2])
frames = [bytes.fromhex(text) for text in sys.argv[3:]]
for frame in frames:
    out.send(frame)
got, end = [], time.time() + 20
while len(got) < len(frames) and time.time() < end:
    try:
        octets, control, flags, address = into.recvmsg(65536, 256)
    except TimeoutError:
        continue
    if octets[6:12] != frames[0][6:12] or address[2] == socket.PACKET_OUTGOING:
        continue
    for level, kind, data in control:
        status, _, _, _, _, tag, tag_type = struct.unpack("=IIIHHHH", data[:20])
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and status & VLAN_VALID:
            octets = octets[:12] + struct.pack("!HH", tag_type, tag) + octets[12:]
    got.append(octets)
print("\n".join(octets.hex() for octets in got))
"#;

/// Returns a fragment of a UDP datagram with the payload at this offset, octets.
fn fragment(id: u16, offset: usize, vlan: Option<u16>) -> Vec<u8> {
    packet(id, DATAGRAM, offset, vlan)
}

/// Returns a packet with the maximum part of a datagram of `total` octets from `offset` on.
fn packet(id: u16, total: usize, offset: usize, vlan: Option<u16>) -> Vec<u8> {
    let count = PAYLOAD.min(total - offset);
    let more = u16::from(offset + count < total) << 13;
    let place = (offset / 8) as u16 | more;
    let mut frame = vec![2, 0, 0, 0, 0, 2];
    frame.extend(SOURCE);
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    // RFC 791, section 3.1.
    let mut header = vec![8, 0, 0x45, 0];
    header.extend(((20 + count) as u16).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend(place.to_be_bytes());
    header.extend([64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let pairs = header[2..].chunks(2);
    let sum: u32 = pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[12..14].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.extend(header);
    frame.extend((0..count).map(|at| ((offset + at) * 7) as u8));
    frame
}

/// Returns all fragments of a datagram.
fn fragments(id: u16, vlan: Option<u16>) -> Vec<Vec<u8>> {
    let offsets = (0..DATAGRAM).step_by(PAYLOAD);
    offsets.map(|offset| fragment(id, offset, vlan)).collect()
}

fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn go_on_as_they_came(kind: &str, queues: u16) {
    let options = format!("?queues={queues}");
    let scene = Scene::new(
        kind,
        &[
            ("v", &format!("af-packet:v0{options}")),
            ("w", &format!("af-packet:v2{options}")),
        ],
        &["v,w"],
    );
    let whole = |id| packet(id, 500, 0, None);
    let mut frames = vec![whole(0)];
    frames.extend(fragments(1, None));
    frames.extend(fragments(2, None).into_iter().rev());
    frames.extend(fragments(3, Some(VLAN)));
    // Incomplete datagrams: only the first fragment, one in the middle, the last, and one twice.
    frames
        .extend([0, PAYLOAD, 2 * PAYLOAD].map(|offset| fragment(4 + offset as u16, offset, None)));
    frames.extend([fragment(9, PAYLOAD, None), fragment(9, PAYLOAD, None)]);
    frames.push(whole(10));
    let sent: Vec<String> = frames.iter().map(|frame| hexadecimal(frame)).collect();
    scene.withstands(|| {
        let mut command: Command = scene.namespace.command("python3");
        command.args(["-c", SCRIPT, "v1", "v3"]).args(&sent);
        let printed = run(&mut command);
        let mut got: Vec<&str> = printed.split_whitespace().collect();
        let mut expected: Vec<&str> = sent.iter().map(String::as_str).collect();
        if queues > 1 {
            // Each queue has a separate order.
            got.sort_unstable();
            expected.sort_unstable();
        }
        let lengths = |frames: &[&str]| -> Vec<usize> {
            frames.iter().map(|octets| octets.len() / 2).collect()
        };
        assert_eq!(lengths(&got), lengths(&expected));
        assert!(got == expected, "the octets differ");
    });
    scene.serves(["af-packet:v1", "af-packet:v3"], 2000);
    scene.ends();
}

#[test]
fn fragments_are_forwarded_unchanged() {
    go_on_as_they_came("fragments", 1);
}

#[test]
fn fragments_are_forwarded_unchanged_over_several_queues() {
    go_on_as_they_came("fragments-queues", 2);
}
