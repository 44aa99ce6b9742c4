// SPDX-License-Identifier: Apache-2.0
//! Rules on the state of connections as observed on the wire.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use quietwire_switch::report::{
    ConnectionReport, ConnectionsReport, PortDrop, PortReport, RulesReport,
};

use crate::bench::{Bench, change, command, output, refused, until};

const CONFIG: &str = r#"
rule-default = "drop"

[connections]
max-entries = 8

[[rule]]
name = "answers"
action = "accept"
ct-state = "established,related"

[[rule]]
name = "out"
action = "accept"
port = "inside"
ct-state = "new"
"#;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Returns a TCP segment in a frame.
fn segment(
    (source, destination): ([u8; 4], [u8; 4]),
    ports: (u16, u16),
    (sequence, acknowledgement, flags): (u32, u32, u8),
) -> Vec<u8> {
    let (to, from) = if source == CLIENT { (2, 1) } else { (1, 2) };
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x08, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend(sequence.to_be_bytes());
    frame.extend(acknowledgement.to_be_bytes());
    frame.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn out(port: u16, numbers: (u32, u32, u8)) -> Vec<u8> {
    segment((CLIENT, SERVER), (port, 80), numbers)
}

fn back(port: u16, numbers: (u32, u32, u8)) -> Vec<u8> {
    segment((SERVER, CLIENT), (80, port), numbers)
}

fn connections(bench: &Bench) -> ConnectionsReport {
    bench.show("connections")
}

#[test]
fn half_open_connections_have_limits() {
    let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
    let file = bench.path("switch.toml");
    let limited = CONFIG.replace("max-entries = 8", "max-entries = 64\nmax-half-open = 4");
    fs::write(&file, limited).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    for port in 2000..2016 {
        let syn = out(port, (1, 0, SYN));
        inside.send(std::slice::from_ref(&syn));
        assert_eq!(outside.receive(1), [syn]);
    }
    let report = connections(&bench);
    assert_eq!((report.total, report.half_open), (4, 4));
    // A switch with time drops none of them.
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[0].counts.drops[PortDrop::NewShare], 0);
    let counters = &report.counters;
    assert_eq!(counters.dropped_half_open, 12);
    assert_eq!(counters.dropped_early, 0);
    let shown = output(&mut command(&bench, &["show", "connections"]));
    assert!(
        shown.contains("4 of 64 entries in use, 4 half-open"),
        "{shown}"
    );
    // The newest handshake completes, and leaves its place to another.
    for (is_out, frame) in [
        (false, back(2015, (500, 2, SYN | ACK))),
        (true, out(2015, (2, 501, ACK))),
        (true, out(2016, (1, 0, SYN))),
    ] {
        let (from, to) = match is_out {
            true => (&mut inside, &mut outside),
            false => (&mut outside, &mut inside),
        };
        from.send(std::slice::from_ref(&frame));
        assert_eq!(to.receive(1), [frame]);
    }
    let report = connections(&bench);
    assert_eq!((report.total, report.half_open), (5, 4));
    // The limit changes while connections stay.
    let set = ["set", "connections", "--config", file.to_str().unwrap()];
    let limited = CONFIG.replace(
        "max-entries = 8",
        "max-entries = 64\nmax-half-open = 6\nnew-share = 30",
    );
    fs::write(&file, limited).unwrap();
    change(&bench, &set);
    let config = output(&mut command(&bench, &["show", "config"]));
    assert!(config.contains("new-share = 30"), "{config}");
    let mut begin = |port: u16| {
        let syn = out(port, (1, 0, SYN));
        inside.send(std::slice::from_ref(&syn));
        assert_eq!(outside.receive(1), [syn]);
        let report = connections(&bench);
        (report.total, report.half_open)
    };
    assert_eq!(
        [begin(2017), begin(2018), begin(2019)],
        [(6, 5), (7, 6), (7, 6)]
    );
    // Another size requires a restart, and rules on states require the table.
    fs::write(&file, CONFIG).unwrap();
    let error = refused(&bench, &set);
    assert!(error.contains("connections.max-entries"), "{error}");
    fs::write(&file, "").unwrap();
    let error = refused(&bench, &set);
    assert!(error.contains("rule 'answers'"), "{error}");
    for rule in ["answers", "out"] {
        change(&bench, &["del", "rule", rule]);
    }
    change(&bench, &["set", "rules", "--default", "accept"]);
    change(&bench, &set);
    let error = refused(&bench, &["show", "connections"]);
    assert!(error.contains("not configured"), "{error}");
    // A switch without connection tracking starts it, with an empty table of another size.
    fs::write(&file, CONFIG).unwrap();
    change(&bench, &set);
    assert_eq!(connections(&bench).max_entries, 8);
    assert_eq!(begin(2020), (1, 1));
}

#[test]
fn answers_pass_and_other_packets_from_outside_do_not() {
    let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
    let file = bench.path("switch.toml");
    fs::write(&file, CONFIG).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    // From outside, nothing begins.
    outside.send(&[back(9, (1, 0, SYN)), back(9, (1, 1, SYN | ACK))]);
    until("both are dropped", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[1].counts.drops[PortDrop::Denied] == 2).then_some(())
    });
    assert_eq!(connections(&bench).total, 0);
    // A handshake, one frame after the other.
    for (is_out, frame) in [
        (true, out(1000, (1, 0, SYN))),
        (false, back(1000, (500, 2, SYN | ACK))),
        (true, out(1000, (2, 501, ACK))),
    ] {
        let (from, to) = match is_out {
            true => (&mut inside, &mut outside),
            false => (&mut outside, &mut inside),
        };
        from.send(std::slice::from_ref(&frame));
        assert_eq!(to.receive(1), [frame]);
    }
    let report = connections(&bench);
    assert_eq!((report.total, report.max_entries), (1, 8));
    let one = &report.connections[0];
    assert_eq!(one.state, "tcp_established");
    assert_eq!((one.source_port, one.packets), (1000, [2, 1]));
    // A forged answer is dropped, a right one passes.
    let right = back(1000, (501, 2, ACK));
    outside.send(&[back(1000, (90_000, 2, ACK)), right.clone()]);
    assert_eq!(inside.receive(1), [right]);
    assert_eq!(connections(&bench).counters.invalid["sequence"], 1);
    // A flood of SYNs replaces its own entries.
    for port in 2000..2032 {
        let syn = out(port, (1, 0, SYN));
        inside.send(std::slice::from_ref(&syn));
        assert_eq!(outside.receive(1), [syn]);
    }
    let report = connections(&bench);
    assert_eq!((report.total, report.counters.dropped_early), (8, 32 - 7));
    let right = back(1000, (501, 2, ACK));
    outside.send(std::slice::from_ref(&right));
    assert_eq!(inside.receive(1), [right]);
    let established = output(&mut command(
        &bench,
        &["show", "connections", "--state", "tcp_established"],
    ));
    assert!(established.contains("10.0.0.1:1000"), "{established}");
    assert!(!established.contains("10.0.0.1:2031"), "{established}");
    // Pages of three connections have all eight, each once.
    let (mut ports, mut from) = (Vec::new(), Some(0));
    while let Some(position) = from {
        let position = position.to_string();
        let page = ["--limit", "3", "--from", position.as_str(), "--json"];
        let page = [&["show", "connections"][..], &page].concat();
        let page: ConnectionsReport =
            serde_json::from_str(&output(&mut command(&bench, &page))).unwrap();
        assert!(page.connections.len() <= 3);
        ports.extend(page.connections.iter().map(|one| one.source_port));
        from = page.next;
    }
    ports.sort_unstable();
    let flood = 2025..2032;
    assert_eq!(ports, [1000].into_iter().chain(flood).collect::<Vec<u16>>());
    let flush = ["connections", "flush", "--l4-port", "1000"];
    assert_eq!(output(&mut command(&bench, &flush)).trim(), "1");
    outside.send(&[back(1000, (501, 2, ACK))]);
    until("the connection is unknown", || {
        (connections(&bench).counters.invalid["no_connection"] == 2).then_some(())
    });
    let rules: RulesReport = bench.show("rules");
    assert_eq!(
        rules.rules[0].ct_state.unwrap().to_string(),
        "established,related"
    );
    assert_eq!(rules.rules[1].frames, 33);
}

/// Returns a segment with this data.
fn with_data(mut frame: Vec<u8>, data: &[u8]) -> Vec<u8> {
    frame.truncate(54);
    frame.extend(data);
    let length = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame
}

#[test]
fn a_data_connection_of_ftp_begins_from_outside_with_the_helper_only() {
    for helpers in ["", "helpers = [\"ftp\"]\n"] {
        let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
        let file = bench.path("switch.toml");
        let entries = "max-entries = 8\n";
        let config = CONFIG.replace(entries, &format!("{entries}{helpers}"));
        fs::write(&file, config).unwrap();
        let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
        bench.start_again();
        let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
        let out = |numbers| segment((CLIENT, SERVER), (1000, 21), numbers);
        let active = with_data(out((2, 501, ACK)), b"PORT 10,0,0,1,4,210\r\n");
        let answer = segment((SERVER, CLIENT), (21, 1000), (500, 2, SYN | ACK));
        for (is_out, frame) in [
            (true, out((1, 0, SYN))),
            (false, answer),
            (true, out((2, 501, ACK))),
            (true, active),
        ] {
            let (from, to) = match is_out {
                true => (&mut inside, &mut outside),
                false => (&mut outside, &mut inside),
            };
            from.send(std::slice::from_ref(&frame));
            assert_eq!(to.receive(1), [frame]);
        }
        let data = |port| segment((SERVER, CLIENT), (20, port), (1, 0, SYN));
        // A SYN that no one answers is sent again.
        outside.send(&[data(1235), data(1234), data(1234)]);
        if !helpers.is_empty() {
            assert_eq!(inside.receive(2), [data(1234), data(1234)]);
        }
        let denied = if helpers.is_empty() { 3 } else { 1 };
        until("other segments are dropped", || {
            let ports: Vec<PortReport> = bench.show("ports");
            (ports[1].counts.drops[PortDrop::Denied] == denied).then_some(())
        });
        let expected = if helpers.is_empty() { 1 } else { 2 };
        assert_eq!(connections(&bench).total, expected);
    }
}

#[test]
fn connections_go_on_after_a_restart_with_their_file() {
    let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
    let file = bench.path("switch.toml");
    fs::write(&file, CONFIG).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    let syn = out(1000, (1, 0, SYN));
    inside.send(std::slice::from_ref(&syn));
    assert_eq!(outside.receive(1), [syn]);
    let answer = back(1000, (500, 2, SYN | ACK));
    outside.send(std::slice::from_ref(&answer));
    assert_eq!(inside.receive(1), [answer]);
    let saved = bench.path("connections");
    let save = ["connections", "save", saved.to_str().unwrap()];
    assert_eq!(output(&mut command(&bench, &save)).trim(), "1");
    let mode = fs::metadata(&saved).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop((inside, outside));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    // Without the file, the new switch does not know the connection.
    let right = back(1000, (501, 2, ACK));
    outside.send(std::slice::from_ref(&right));
    until("the connection is unknown", || {
        (connections(&bench).counters.invalid["no_connection"] == 1).then_some(())
    });
    // A damaged file changes nothing.
    let damaged = bench.path("damaged");
    let mut octets = fs::read(&saved).unwrap();
    octets[40] ^= 1;
    fs::write(&damaged, octets).unwrap();
    let restore = ["connections", "restore", damaged.to_str().unwrap()];
    let refused = command(&bench, &restore).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(printed.contains("the file is damaged"), "{printed}");
    assert_eq!(connections(&bench).total, 0);
    let restore = ["connections", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.starts_with("restored: 1\n"), "{printed}");
    outside.send(std::slice::from_ref(&right));
    assert_eq!(inside.receive(1), [right]);
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.contains("already there: 1\n"), "{printed}");
    assert_eq!(connections(&bench).total, 1);
}

const LABELS: &str = r#"
rule-default = "drop"

[connections]
labels = true

[[rule]]
name = "of-guests"
action = "accept"
ct-label = "0x1/0xff"

[[rule]]
name = "answers"
action = "accept"
ct-state = "established"

[[rule]]
name = "guests"
action = "accept"
port = "inside"
protocol = "tcp"
source-port = "1000"
ct-state = "new"
set-ct-label = "0x1/0xff"

[[rule]]
name = "others"
action = "accept"
port = "inside"
ct-state = "new"
"#;

#[test]
fn rules_set_labels_and_match_them_also_after_a_restart() {
    set_and_match("label", LABELS);
}

#[test]
fn rules_set_marks_and_match_them_also_after_a_restart() {
    let config = LABELS.replace("labels = true", "");
    set_and_match("mark", &config.replace("ct-label", "ct-mark"));
}

/// Plays rules that set and match a value of connections: mark or label.
fn set_and_match(name: &str, config: &str) {
    let option = |prefix: &str| format!("--{prefix}{name}");
    let (filter, matched, set) = (option(""), option("ct-"), option("set-ct-"));
    let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
    let file = bench.path("switch.toml");
    fs::write(&file, config).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    let frames = |bench: &Bench| -> Vec<u64> {
        let rules: RulesReport = bench.show("rules");
        rules.rules.iter().map(|rule| rule.frames).collect()
    };
    for (port, expected) in [(1000, [1, 0, 1, 0]), (2000, [1, 1, 1, 1])] {
        let syn = out(port, (1, 0, SYN));
        inside.send(std::slice::from_ref(&syn));
        assert_eq!(outside.receive(1), [syn]);
        let answer = back(port, (500, 2, SYN | ACK));
        outside.send(std::slice::from_ref(&answer));
        assert_eq!(inside.receive(1), [answer]);
        assert_eq!(frames(&bench), expected);
    }
    let values = |bench: &Bench| -> Vec<(u16, Option<String>)> {
        let value = |one: ConnectionReport| match name {
            "mark" => one.mark,
            _ => one.label,
        };
        let mut all: Vec<_> = connections(bench)
            .connections
            .into_iter()
            .map(|one| (one.source_port, value(one)))
            .collect();
        all.sort();
        all
    };
    let expected = [(1000, Some("0x1".to_owned())), (2000, None)];
    assert_eq!(values(&bench), expected);
    let selected = ["show", "connections", filter.as_str(), "1/1"];
    let shown = output(&mut command(&bench, &selected));
    assert!(
        shown.contains("10.0.0.1:1000") && !shown.contains("10.0.0.1:2000"),
        "{shown}"
    );
    // A rule on a running switch, for connections with another value.
    let add = [
        "add",
        "rule",
        "worse",
        "--action",
        "accept",
        matched.as_str(),
        "0x2/0xff",
        set.as_str(),
        "3",
        "--before",
        "answers",
    ];
    output(&mut command(&bench, &add));
    let packet = [
        "rules",
        "check",
        "--port",
        "outside",
        "--source",
        "192.0.2.1",
        "--destination",
        "10.0.0.1",
        "--ct-state",
        "established",
        matched.as_str(),
        "2",
    ];
    let printed = output(&mut command(&bench, &packet));
    assert!(printed.contains("rule 'worse'"), "{printed}");
    let saved = bench.path("connections");
    let save = ["connections", "save", saved.to_str().unwrap()];
    assert_eq!(output(&mut command(&bench, &save)).trim(), "2");
    drop((inside, outside));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.start_again();
    let (_inside, _outside) = (bench.peer("inside"), bench.peer("outside"));
    let restore = ["connections", "restore", saved.to_str().unwrap()];
    let printed = output(&mut command(&bench, &restore));
    assert!(printed.starts_with("restored: 2\n"), "{printed}");
    assert_eq!(values(&bench), expected);
}

#[test]
fn rules_on_states_require_connections() {
    let bench = Bench::new(
        &["inside", "outside"],
        &["--cross-connect", "inside,outside"],
    );
    let file = bench.path("switch.toml");
    fs::write(
        &file,
        CONFIG.replace("[connections]\nmax-entries = 8\n", ""),
    )
    .unwrap();
    let bench = bench.with(&["--config", file.to_str().unwrap()]);
    let printed = bench.refused(2, &[]);
    assert!(printed.contains("add a section [connections]"), "{printed}");
}

const ZONES: &str = r#"
rule-default = "drop"

[connections]
max-entries = 8

[[connections.zone]]
name = "red"
ports = ["a", "b"]

[[connections.zone]]
name = "blue"
ports = ["c", "d"]
max-entries = 1

[[rule]]
name = "answers"
action = "accept"
ct-state = "established"

[[rule]]
name = "from-a"
action = "accept"
port = "a"
ct-state = "new"

[[rule]]
name = "from-c"
action = "accept"
port = "c"
ct-state = "new"
"#;

#[test]
fn zones_keep_equal_addresses_apart_and_have_limits() {
    let pairs = ["--cross-connect", "a,b", "--cross-connect", "c,d"];
    let bench = Bench::new(&["a", "b", "c", "d"], &pairs);
    let file = bench.path("switch.toml");
    fs::write(&file, ZONES).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|port| bench.peer(port));
    // A connection of one zone is none of the other, whose hosts have the same addresses.
    let syn = out(1000, (1, 0, SYN));
    a.send(std::slice::from_ref(&syn));
    assert_eq!(b.receive(1), [syn]);
    d.send(&[back(1000, (500, 2, SYN | ACK))]);
    until("it is dropped", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[3].counts.drops[PortDrop::Denied] == 1).then_some(())
    });
    for (is_out, frame) in [
        (true, out(1000, (7, 0, SYN))),
        (false, back(1000, (900, 8, SYN | ACK))),
        (true, out(1000, (8, 901, ACK))),
    ] {
        let (from, to) = match is_out {
            true => (&mut c, &mut d),
            false => (&mut d, &mut c),
        };
        from.send(std::slice::from_ref(&frame));
        assert_eq!(to.receive(1), [frame]);
    }
    // One zone is full, the other has space.
    c.send(&[out(1001, (1, 0, SYN))]);
    until("there is no space", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[2].counts.drops[PortDrop::ConnectionRefused] == 1).then_some(())
    });
    let syn = out(1001, (1, 0, SYN));
    a.send(std::slice::from_ref(&syn));
    assert_eq!(b.receive(1), [syn]);
    let report = connections(&bench);
    let of_zone = |zone: &str| {
        let all = report.connections.iter();
        all.filter(|one| one.zone.as_deref() == Some(zone)).count()
    };
    assert_eq!((of_zone("red"), of_zone("blue")), (2, 1));
    let flush = ["connections", "flush", "--zone", "red"];
    assert_eq!(output(&mut command(&bench, &flush)).trim(), "2");
    assert_eq!(connections(&bench).total, 1);
}

const LEAVING: &str = r#"
[connections]

[[rule]]
name = "marked"
action = "accept"
port = "inside"
ct-state = "new"
protocol = "tcp"
destination-port = "80"
set-ct-mark = "0x1/0xff"

[[rule]]
name = "leave-answers"
action = "accept"
direction = "out"
ct-state = "established,related"

[[rule]]
name = "leave-marked"
action = "accept"
direction = "out"
port = "outside"
from = "inside"
ct-state = "new"
ct-mark = "0x1/0xff"

[[rule]]
name = "leave-no-other"
action = "drop"
direction = "out"
ethertype = "ipv4"
"#;

#[test]
fn frames_leave_by_the_state_and_mark_of_their_connections() {
    let bench = Bench::new(&["inside", "outside"], &["--bridge", "lan=inside,outside"]);
    let file = bench.path("switch.toml");
    fs::write(&file, LEAVING).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let (mut inside, mut outside) = (bench.peer("inside"), bench.peer("outside"));
    // All frames are accepted when they are received. A new connection leaves only from inside, and with the mark.
    outside.send(&[back(9, (1, 0, SYN))]);
    let other = segment((CLIENT, SERVER), (1000, 81), (1, 0, SYN));
    inside.send(std::slice::from_ref(&other));
    let denied = |port: usize| {
        let ports: Vec<PortReport> = bench.show("ports");
        ports[port].counts.drops[PortDrop::DeniedOut]
    };
    until("both are dropped", || {
        (denied(0) == 1 && denied(1) == 1).then_some(())
    });
    for (is_out, frame) in [
        (true, out(1000, (1, 0, SYN))),
        (false, back(1000, (500, 2, SYN | ACK))),
        (true, out(1000, (2, 501, ACK))),
    ] {
        let (from, to) = match is_out {
            true => (&mut inside, &mut outside),
            false => (&mut outside, &mut inside),
        };
        from.send(std::slice::from_ref(&frame));
        assert_eq!(to.receive(1), [frame]);
    }
    let rules: RulesReport = bench.show("rules");
    let frames: Vec<u64> = rules.rules.iter().map(|rule| rule.frames).collect();
    assert_eq!(frames, [1, 2, 1, 2]);
    // A segment that fits no connection is invalid, also when it leaves.
    outside.send(&[back(1000, (90_000, 2, ACK))]);
    until("it is dropped", || (denied(0) == 2).then_some(()));
    let check = |state: &str, mark: &str| {
        let text = "rules check --port inside --out outside --protocol tcp --source 10.0.0.1 \
                    --destination 192.0.2.1 --destination-port 80 --ct-state";
        let mut arguments: Vec<&str> = text.split_ascii_whitespace().collect();
        arguments.extend([state, "--ct-mark", mark]);
        output(&mut command(&bench, &arguments))
    };
    assert!(check("new", "1").contains("rule 'leave-marked'"));
    assert!(check("new", "2").contains("rule 'leave-no-other'"));
    assert!(check("established", "2").contains("rule 'leave-answers'"));
}
