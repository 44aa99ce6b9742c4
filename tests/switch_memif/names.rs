// SPDX-License-Identifier: Apache-2.0
//! Rules on names in the first packets of connections, as observed on the wire.

use std::fs;

use quietwire_switch::report::{PortDrop, PortReport, RuleEffect, RulesReport};

use crate::bench::{Bench, change, command, output, until};

const RULES: &str = r#"
[[rule]]
name = "ours"
action = "accept"
port = "a"
protocol = "tcp"
destination-port = "80"
http-host = ["*.example.org"]

[[rule]]
name = "no-other"
action = "drop"
port = "a"
protocol = "tcp"
destination-port = "80"

[[rule]]
name = "no-ads"
action = "drop"
port = "a"
protocol = "udp"
destination-port = "53"
dns-name = ["*.ads.example"]
"#;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Returns a frame of an IPv4 packet from a port.
fn packet(protocol: u8, from: u16, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(u16::try_from(22 + rest.len()).unwrap().to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1]);
    frame.extend(from.to_be_bytes());
    frame.extend(rest);
    frame
}

/// Returns a segment to port 80.
fn segment(from: u16, sequence: u32, flags: u8, data: &str) -> Vec<u8> {
    let header = [0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0];
    let sequence = sequence.to_be_bytes();
    packet(
        6,
        from,
        &[&[0, 80][..], &sequence, &header, data.as_bytes()],
    )
}

/// Returns a query to port 53.
fn query(name: &str) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    let length = u16::try_from(8 + message.len()).unwrap().to_be_bytes();
    packet(17, 9, &[&[0, 53][..], &length, &[0, 0], &message])
}

/// Sends frames into port `a` and checks which of them leave `b`.
fn check_names(bench: &Bench) {
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let mut expect = |frames: &[(Vec<u8>, bool)]| {
        let sent: Vec<Vec<u8>> = frames.iter().map(|(frame, _)| frame.clone()).collect();
        let passing = frames.iter().filter(|(_, passes)| *passes);
        let passing: Vec<Vec<u8>> = passing.map(|(frame, _)| frame.clone()).collect();
        a.send(&sent);
        assert_eq!(b.receive(passing.len()), passing);
    };
    let start = "GET / HTTP/1.1\r\nHost: www.";
    let next = 2 + u32::try_from(start.len()).unwrap();
    // The name of one connection arrives in two segments, and so does that of another, which is not allowed.
    expect(&[
        (segment(1000, 1, SYN, ""), true),
        (segment(1001, 1, SYN, ""), true),
        (segment(1000, 2, ACK, start), true),
        (segment(1001, 2, ACK, start), true),
        (segment(1001, next, ACK, "example.net\r\n"), false),
        (segment(1000, next, ACK, "Example.org\r\n"), true),
        (segment(1001, next + 13, ACK, "\r\n"), false),
        (segment(1000, next + 13, ACK, "\r\n"), true),
        // The switch has not received the start of this connection.
        (segment(1002, 2, ACK, start), false),
        (query("www.ads.example"), false),
        (query("ads.example"), true),
    ]);
    let effects = until("what is undecidable is counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        let counts = &ports[0].counts;
        (counts.drops[PortDrop::Denied] == 4).then_some(counts.effects)
    });
    assert_eq!(effects[RuleEffect::NameUndecidable], 1);
    // Other rules decide on the name of the same connection.
    let add = "add rule first --action drop --before ours --protocol tcp --destination-port 80 --http-host www.example.org";
    change(bench, &add.split(' ').collect::<Vec<_>>());
    expect(&[
        (segment(1000, next + 15, ACK, "later"), false),
        (query("example.org"), true),
    ]);
    let rules: RulesReport = bench.show("rules");
    assert_eq!(rules.rules[0].http_host[0].to_string(), "www.example.org");
    assert_eq!(rules.rules[0].frames, 1);
    change(bench, &["del", "rule", "first"]);
    expect(&[(segment(1000, next + 15, ACK, "later"), true)]);
}

#[test]
fn connections_follow_the_names_in_their_first_packets() {
    let bench = Bench::new(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, RULES).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    check_names(&bench);
    let packet = "rules check --port a --protocol tcp --source 10.0.0.1 --destination 192.0.2.1 --destination-port 80 \
                  --http-host example.net";
    let words: Vec<&str> = packet.split_whitespace().collect();
    let found = output(&mut command(&bench, &words));
    assert!(found.contains("drop by rule 'no-other'"), "{found}");
    assert!(
        found.contains("http-host") && found.contains("*.example.org"),
        "{found}"
    );
}

#[test]
fn tracked_connections_follow_the_names_in_their_first_packets() {
    let bench = Bench::new(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = bench.path("switch.toml");
    fs::write(&file, format!("[connections]\nmax-entries = 64\n{RULES}")).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    check_names(&bench);
}
