// SPDX-License-Identifier: Apache-2.0
//! Rules with an inspector: one that answers, one that lies, and one that does not answer, as observed from the wire.

use std::fs;

use quietwire_switch::report::{PortDrop, PortReport, RuleEffect};

use crate::bench::command;
use crate::bench::{Bench, Peer, until};

/// Rules with an inspector that has time, and with one that has none.
const RULES: &str = r#"
[[rule]]
name = "web"
action = "accept"
port = "a"
protocol = "tcp"
destination-port = "80"
inspect = "ips"
inspect-packets = 3
inspect-timeout-ms = 10000

[[rule]]
name = "replies"
action = "accept"
port = "b"
protocol = "tcp"
source-port = "80"
inspect = "ips"
inspect-timeout-ms = 10000

[[rule]]
name = "open"
action = "accept"
port = "a"
protocol = "tcp"
destination-port = "81"
inspect = "ips"
inspect-timeout-ms = 20
inspect-fail = "open"

[[rule]]
name = "closed"
action = "accept"
port = "a"
protocol = "tcp"
destination-port = "82"
inspect = "ips"
inspect-timeout-ms = 20
"#;

const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const ACK: u8 = 16;
const CONTINUE: u8 = 1;
const ACCEPT: u8 = 2;
const DROP: u8 = 3;
/// Octets of a query in front of the frame.
const HEADER: usize = 32;

/// Returns a frame of an IPv4 packet between the client's and the server's network, from the client or to it.
fn packet(is_from_client: bool, protocol: u8, ports: [u16; 2], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(u16::try_from(24 + rest.len()).unwrap().to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    let (client, server) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    frame.extend(match is_from_client {
        true => [client, server].concat(),
        false => [server, client].concat(),
    });
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(rest);
    frame
}

/// Returns a segment with these numbers and two octets of data, which a SYN has not.
fn segment(is_from_client: bool, ports: [u16; 2], sequence: u32, flags: u8) -> Vec<u8> {
    let acknowledgement = if flags & ACK == 0 { 0u32 } else { 2 };
    let mut rest = [sequence, acknowledgement].map(u32::to_be_bytes).concat();
    rest.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    if flags & SYN == 0 {
        rest.extend(b"ab");
    }
    packet(is_from_client, 6, ports, &rest)
}

/// Returns a datagram that no rule inspects.
fn datagram(number: u16) -> Vec<u8> {
    packet(true, 17, [number, 9], &[0, 8, 0, 0])
}

/// Returns the answer to a query.
fn answer(query: &[u8], kind: u8) -> Vec<u8> {
    let mut answer = query[..60].to_vec();
    answer[15] = kind;
    answer
}

/// The peers of the switch.
struct Peers {
    a: Peer,
    b: Peer,
    ips: Peer,
}

impl Peers {
    /// Sends a frame into port `a`, and returns the query about it.
    fn query(&mut self, frame: &[u8]) -> Vec<u8> {
        self.a.send(&[frame.to_vec()]);
        let query = self.ips.receive(1).remove(0);
        assert_eq!(query[HEADER..], *frame);
        query
    }

    /// Checks that `b` receives a datagram that is sent now, and no frame before.
    fn check_nothing_passes(&mut self, number: u16) {
        self.a.send(&[datagram(number)]);
        assert_eq!(self.b.receive(1), [datagram(number)]);
    }
}

/// Waits until the counters of a port, by its number, have these values.
fn wait_for(bench: &Bench, port: usize, drops: &[(PortDrop, u64)], effects: &[(RuleEffect, u64)]) {
    until(&format!("port {port}: {drops:?} {effects:?}"), || {
        let ports: Vec<PortReport> = bench.show("ports");
        let counts = &ports[port].counts;
        let has_drops = drops
            .iter()
            .all(|(drop, count)| counts.drops[*drop] == *count);
        let mut effects = effects.iter();
        let has_effects = effects.all(|(effect, count)| counts.effects[*effect] == *count);
        (has_drops && has_effects).then_some(())
    });
}

/// An inspector that answers: nothing passes before its verdict, and the verdict is for both directions.
fn check_answers(bench: &Bench, peers: &mut Peers) {
    let syn = segment(true, [1000, 80], 1, SYN);
    let first = peers.query(&syn);
    assert_eq!(first[12..16], [0x88, 0xb5, 1, 0]);
    assert_eq!((first[24], first[25]), (1, 3));
    peers.check_nothing_passes(1);
    peers.ips.send(&[answer(&first, CONTINUE)]);
    assert_eq!(peers.b.receive(1), [syn]);
    let syn_ack = segment(false, [80, 1000], 1, SYN_ACK);
    peers.b.send(std::slice::from_ref(&syn_ack));
    let second = peers.ips.receive(1).remove(0);
    assert_eq!(second[16..24], first[16..24], "the same flow");
    assert_eq!((second[24], second[25]), (2, 3));
    peers.ips.send(&[answer(&second, ACCEPT)]);
    assert_eq!(peers.a.receive(1), [syn_ack]);
    let data = segment(true, [1000, 80], 2, ACK);
    peers.a.send(std::slice::from_ref(&data));
    assert_eq!(peers.b.receive(1), [data]);
    assert_eq!(peers.ips.receive_now(), Vec::<Vec<u8>>::new());

    let refused = peers.query(&segment(true, [1001, 80], 1, SYN));
    peers.ips.send(&[answer(&refused, DROP)]);
    wait_for(bench, 0, &[(PortDrop::Inspector, 1)], &[]);
    peers.a.send(&[segment(true, [1001, 80], 2, ACK)]);
    peers.check_nothing_passes(2);
    wait_for(bench, 0, &[(PortDrop::Inspector, 2)], &[]);
    wait_for(bench, 2, &[], &[(RuleEffect::Verdict, 3)]);
}

/// An inspector that lies: frames that fit no query change nothing.
fn check_lies(bench: &Bench, peers: &mut Peers) {
    let syn = segment(true, [1002, 80], 1, SYN);
    let query = peers.query(&syn);
    let change = |place: usize, octet: u8| {
        let mut lie = answer(&query, ACCEPT);
        lie[place] = octet;
        lie
    };
    let mut future = answer(&query, CONTINUE);
    future[24] = 2;
    let lies = [
        vec![0; 60],
        query[..60].to_vec(),
        datagram(3),
        change(14, 2),
        change(16, 0xff),
        change(20, !query[20]),
        answer(&query, 9),
        future,
    ];
    peers.ips.send(&lies);
    let count = u64::try_from(lies.len()).unwrap();
    wait_for(bench, 2, &[(PortDrop::InvalidVerdict, count)], &[]);
    peers.check_nothing_passes(4);
    peers.ips.send(&[answer(&query, ACCEPT)]);
    assert_eq!(peers.b.receive(1), [syn]);
    // A verdict is final.
    peers.ips.send(&[answer(&query, DROP)]);
    wait_for(bench, 2, &[(PortDrop::InvalidVerdict, count + 1)], &[]);
    let data = segment(true, [1002, 80], 2, ACK);
    peers.a.send(std::slice::from_ref(&data));
    assert_eq!(peers.b.receive(1), [data]);
}

/// An inspector that does not answer, and one that is gone: each rule fails as it says.
fn check_silence(bench: &Bench, mut peers: Peers) {
    let open = segment(true, [1003, 81], 1, SYN);
    peers.query(&open);
    assert_eq!(peers.b.receive(1), [open]);
    wait_for(bench, 0, &[], &[(RuleEffect::InspectOpened, 1)]);
    let late = peers.query(&segment(true, [1004, 82], 1, SYN));
    wait_for(bench, 0, &[(PortDrop::NoVerdict, 1)], &[]);
    peers.a.send(&[segment(true, [1004, 82], 2, ACK)]);
    peers.check_nothing_passes(5);
    wait_for(bench, 0, &[(PortDrop::NoVerdict, 2)], &[]);
    // A late verdict counts for later packets.
    peers.ips.send(&[answer(&late, ACCEPT)]);
    wait_for(bench, 2, &[], &[(RuleEffect::Verdict, 5)]);
    let data = segment(true, [1004, 82], 2, ACK);
    peers.a.send(std::slice::from_ref(&data));
    assert_eq!(peers.b.receive(1), [data]);

    let Peers { mut a, mut b, ips } = peers;
    drop(ips);
    let open = segment(true, [1005, 81], 1, SYN);
    a.send(std::slice::from_ref(&open));
    assert_eq!(b.receive(1), [open]);
    a.send(&[segment(true, [1006, 82], 1, SYN)]);
    wait_for(bench, 0, &[(PortDrop::NoVerdict, 3)], &[]);
    // Without its port, the rule would pass what it has to inspect.
    let refused = command(bench, &["del", "port", "ips"]).output().unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{printed}");
    assert!(
        printed.contains("'ips' is the inspector of rule"),
        "{printed}"
    );
}

fn check(bench: &Bench) {
    let mut peers = Peers {
        a: bench.peer("a"),
        b: bench.peer("b"),
        ips: bench.peer("ips"),
    };
    check_answers(bench, &mut peers);
    check_lies(bench, &mut peers);
    check_silence(bench, peers);
}

#[test]
fn an_inspector_that_answers_lies_or_dies() {
    let bench = Bench::new(&["a", "b", "ips"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, RULES).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    check(&bench);
}

#[test]
fn an_inspector_of_tracked_connections() {
    let bench = Bench::new(&["a", "b", "ips"], &["--cross-connect", "a,b"]);
    let file = bench.path("switch.toml");
    fs::write(&file, format!("[connections]\nmax-entries = 64\n{RULES}")).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    check(&bench);
}
