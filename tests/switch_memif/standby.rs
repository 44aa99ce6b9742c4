// SPDX-License-Identifier: Apache-2.0
//! A standby takes over the connections and mappings of a switch that is killed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use etherparse::PacketBuilder;
use quietwire_switch::report::{ConnectionsReport, NatReport, ReplicationReport};

use crate::bench::command;
use crate::bench::{Bench, Peer, free_address, output, until};
use crate::router::{HOST_A, HOST_B, ROUTER_A, ROUTER_B};

const HOST: [u8; 4] = [10, 0, 0, 5];
const OWN: [u8; 4] = [198, 51, 100, 1];
const REMOTE: [u8; 4] = [198, 51, 100, 9];
/// Connections of each protocol, and the inside ports of the first ones.
const COUNT: usize = 500;
const UDP: u16 = 10_000;
const TCP: u16 = 20_000;
/// Connections that are lost at most: less than 1 % of all.
const LOST_MAX: usize = 2 * COUNT / 100 - 1;
const SERVER_SEQUENCE: u32 = 5000;

const CONFIG: &str = r#"
rule-default = "drop"

[connections]

[connections.replication]
ROLE

[[interface]]
name = "inside"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["10.0.0.1/24"]

[[interface]]
name = "outside"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["198.51.100.1/24"]

[[nat]]
name = "internet"
interface = "outside"
filtering = "address-dependent"

[[neighbour]]
interface = "inside"
address = "10.0.0.5"
mac = "02:00:00:00:00:01"

[[neighbour]]
interface = "outside"
address = "198.51.100.9"
mac = "02:00:00:00:00:02"

[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "a"
ct-state = "new"
"#;

fn config(directory: &Path, name: &str, role: &str) -> PathBuf {
    let file = directory.join(name);
    fs::write(&file, CONFIG.replace("ROLE", role)).unwrap();
    file
}

fn start(file: &Path) -> Bench {
    Bench::quiet(&["a", "b"], &["--config", file.to_str().unwrap()])
}

/// A connection from inside: its number, below twice [`COUNT`]. The first half is of UDP.
#[derive(Clone, Copy)]
struct Connection(usize);

impl Connection {
    fn all() -> impl Iterator<Item = Self> {
        (0..2 * COUNT).map(Self)
    }

    fn is_udp(self) -> bool {
        self.0 < COUNT
    }

    fn inside_port(self) -> u16 {
        match self.is_udp() {
            true => UDP + self.0 as u16,
            false => TCP + (self.0 - COUNT) as u16,
        }
    }

    /// Sequence number of the client's SYN.
    fn sequence(self) -> u32 {
        1000 * (self.0 as u32 + 1)
    }

    /// Returns the connection of a frame that the client has sent.
    fn of_outbound(frame: &[u8]) -> Self {
        Self(match frame[23] {
            17 => usize::from(u16::from_be_bytes([frame[42], frame[43]])),
            _ => {
                let sequence = u32::from_be_bytes(frame[38..42].try_into().unwrap());
                sequence as usize / 1000 - 1
            }
        })
    }

    /// Returns the connection of a frame to the client.
    fn of_inbound(frame: &[u8]) -> Self {
        let port = u16::from_be_bytes([frame[36], frame[37]]);
        Self(match frame[23] {
            17 => usize::from(port - UDP),
            _ => usize::from(port - TCP) + COUNT,
        })
    }

    /// Makes a frame of the client. `step` is 0 for the first one.
    fn outbound(self, step: u32) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2(HOST_A, ROUTER_A).ipv4(HOST, REMOTE, 64);
        let mut frame = Vec::new();
        if self.is_udp() {
            let number = (self.0 as u16).to_be_bytes();
            let builder = builder.udp(self.inside_port(), 53);
            builder.write(&mut frame, &number).unwrap();
        } else if step == 0 {
            let builder = builder.tcp(self.inside_port(), 80, self.sequence(), 1000);
            builder.syn().write(&mut frame, &[]).unwrap();
        } else {
            let builder = builder.tcp(self.inside_port(), 80, self.sequence() + 1, 1000);
            let data: &[u8] = if step == 1 { &[] } else { &[0x5a; 10] };
            let builder = builder.ack(SERVER_SEQUENCE + 1);
            builder.write(&mut frame, data).unwrap();
        }
        frame
    }

    /// Makes a frame of the server to an external port. `step` is 0 for the first one.
    fn inbound(self, external: u16, step: u32) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2(HOST_B, ROUTER_B).ipv4(REMOTE, OWN, 64);
        let mut frame = Vec::new();
        if self.is_udp() {
            let builder = builder.udp(53, external);
            builder.write(&mut frame, &[7; 20]).unwrap();
        } else if step == 0 {
            let builder = builder.tcp(80, external, SERVER_SEQUENCE, 1000);
            let builder = builder.syn().ack(self.sequence() + 1);
            builder.write(&mut frame, &[]).unwrap();
        } else {
            let builder = builder.tcp(80, external, SERVER_SEQUENCE + 1, 1000);
            let builder = builder.ack(self.sequence() + 11);
            builder.write(&mut frame, &[7; 20]).unwrap();
        }
        frame
    }
}

/// Sends frames into one port, and returns those that leave by the other: all but `lost_max`.
fn pass(from: &mut Peer, to: &mut Peer, frames: &[Vec<u8>], lost_max: usize) -> Vec<Vec<u8>> {
    let (mut received, mut sent) = (Vec::new(), 0);
    for frames in frames.chunks(100) {
        from.send(frames);
        sent += frames.len();
        until("frames arrive", || {
            received.extend(to.receive_now());
            (received.len() + lost_max >= sent).then_some(())
        });
    }
    received
}

/// Returns the external port of each connection.
fn external_ports(frames: &[Vec<u8>]) -> Vec<u16> {
    let mut ports = vec![0; 2 * COUNT];
    for frame in frames {
        assert_eq!(frame[26..30], OWN);
        let Connection(number) = Connection::of_outbound(frame);
        ports[number] = u16::from_be_bytes([frame[34], frame[35]]);
    }
    ports
}

#[test]
fn a_standby_takes_over_the_connections_of_a_killed_switch() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let role = format!("role = \"active\"\nlisten = \"{address}\"");
    let mut active = start(&config(directory.path(), "active.toml", &role));
    let role = format!("role = \"standby\"\npeer = \"{address}\"");
    let mut standby = start(&config(directory.path(), "standby.toml", &role));
    active.take();
    let (mut a, mut b) = (active.peer("a"), active.peer("b"));
    let each = |step: u32| -> Vec<Vec<u8>> {
        let all = Connection::all();
        all.map(|one| one.outbound(step)).collect()
    };
    let sent = pass(&mut a, &mut b, &each(0), 0);
    let ports = external_ports(&sent);
    let answers = |step: u32| -> Vec<Vec<u8>> {
        let all = Connection::all();
        all.map(|one| one.inbound(ports[one.0], step)).collect()
    };
    assert_eq!(pass(&mut b, &mut a, &answers(0), 0).len(), 2 * COUNT);
    assert_eq!(pass(&mut a, &mut b, &each(1), 0).len(), 2 * COUNT);
    until("the standby has all connections", || {
        let connections: ConnectionsReport = standby.show("connections");
        let nats: Vec<NatReport> = standby.show("nat");
        let count = 2 * COUNT as u64;
        (connections.total == count && nats[0].mappings == count).then_some(())
    });
    let shown: ReplicationReport = active.show("replication");
    assert_eq!((shown.role.as_str(), shown.lost), ("active", 0));
    assert!(
        shown.peers.len() == 1 && shown.peers[0].is_complete,
        "{shown:?}"
    );

    drop((a, b));
    active.release();
    assert_eq!(active.end("KILL"), None);
    let printed = output(&mut command(&standby, &["connections", "take-over"]));
    assert!(printed.starts_with("role: active\n"), "{printed}");
    standby.take();
    let (mut a, mut b) = (standby.peer("a"), standby.peer("b"));
    // NAT accepts an answer of the remote host before the inside host sends to it again.
    let first = [Connection(0).inbound(ports[0], 2)];
    assert_eq!(pass(&mut b, &mut a, &first, 0).len(), 1);
    // Only segments of known connections pass, and only those with their external port count.
    let there = pass(&mut a, &mut b, &each(2), LOST_MAX / 2);
    let known = external_ports(&there);
    let pairs = ports.iter().zip(&known).enumerate();
    let kept: BTreeSet<usize> = pairs
        .filter(|(_, (before, after))| before == after)
        .map(|(number, _)| number)
        .collect();
    let back = pass(&mut b, &mut a, &answers(2), LOST_MAX / 2);
    let answered: BTreeSet<usize> = back
        .iter()
        .map(|frame| Connection::of_inbound(frame).0)
        .collect();
    let both = kept.intersection(&answered).count();
    assert!(both + LOST_MAX >= 2 * COUNT, "{both} connections continue");
    drop((a, b));
    standby.release();
}

#[test]
fn only_a_standby_takes_over() {
    let directory = tempfile::tempdir().unwrap();
    let role = format!("role = \"active\"\nlisten = \"{}\"", free_address());
    let bench = start(&config(directory.path(), "switch.toml", &role));
    let take_over = ["connections", "take-over"];
    let refused = command(&bench, &take_over).output().unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("already active"), "{printed}");
    let shown = output(&mut bench.show_command("replication"));
    assert!(shown.starts_with("role: active\n"), "{shown}");
}
