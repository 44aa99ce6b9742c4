// SPDX-License-Identifier: Apache-2.0
//! Effects of filter rules, and the source guard, as observed on the wire.

use std::fs;

use quietwire_packet::{Checksum, checksum};
use quietwire_switch::config::rules::{MssLimit, RejectWith};
use quietwire_switch::report::{PortDrop, PortReport, RuleEffect, RulesReport, SetsReport};

use crate::bench::{Bench, change, output, refused, until};

const RULES: &str = r#"
[[set]]
name = "closed"
type = "inet_service"
timeout-s = 600
elements = ["23", "8000-8080"]

[[rule]]
name = "closed"
action = "reject"
port = "a"
protocol = "tcp"
destination-port = "@closed"
log = 1
log-prefix = "closed:"

[[rule]]
name = "no-udp"
action = "reject"
port = "a"
protocol = "udp"

[[rule]]
name = "no-smtp"
action = "reject"
port = "a"
protocol = "tcp"
destination-port = "25"
reject-with = "host-prohibited"

[[rule]]
name = "web"
action = "accept"
port = "a"
protocol = "tcp"
dup = "spy"
set-dscp = "ef"
set-mss = 1000
"#;

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Returns a frame from `source` with the last octets of both addresses.
fn ipv4(source: [u8; 6], (from, to): (u8, u8), protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = if source == A { B } else { A }.to_vec();
    frame.extend(source);
    frame.extend([8, 0]);
    let length = u16::try_from(20 + payload.len()).unwrap();
    let mut header = vec![0x45, 0];
    header.extend(length.to_be_bytes());
    header.extend([0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(payload);
    frame
}

fn tcp_sum(packet: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&packet[12..20]);
    sum.add(&[0, 6]);
    sum.add(&u16::try_from(packet.len() - 20).unwrap().to_be_bytes());
    sum.add(&packet[20..]);
    sum.finish()
}

/// Returns the frame of a SYN with a maximum segment size of 1460.
fn syn(port: u16) -> Vec<u8> {
    let mut segment = vec![0x13, 0x88];
    segment.extend(port.to_be_bytes());
    segment.extend([
        0, 0, 1, 0, 0, 0, 0, 0, 0x60, 2, 255, 255, 0, 0, 0, 0, 2, 4, 5, 180,
    ]);
    let mut frame = ipv4(A, (1, 2), 6, &segment);
    let sum = tcp_sum(&frame[14..]);
    frame[14 + 20 + 16..14 + 20 + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn is_right(frame: &[u8]) -> bool {
    checksum(&frame[14..34]) == 0 && tcp_sum(&frame[14..]) == 0
}

#[test]
fn rules_reject_copy_change_and_log_and_a_guard_drops_other_sources() {
    let bench = Bench::new(&["a", "b", "spy"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, RULES).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b, mut spy) = (bench.peer("a"), bench.peer("b"), bench.peer("spy"));

    let web = syn(80);
    assert!(is_right(&web));
    a.send(std::slice::from_ref(&web));
    assert_eq!(spy.receive(1), std::slice::from_ref(&web));
    let arrived = b.receive(1).remove(0);
    assert!(is_right(&arrived), "{arrived:02x?}");
    assert_eq!(arrived[15], 46 << 2);
    assert_eq!(arrived[14 + 20 + 22..], [0x03, 0xe8]);

    let closed = syn(8080);
    a.send(std::slice::from_ref(&closed));
    let reset = a.receive(1).remove(0);
    assert!(is_right(&reset), "{reset:02x?}");
    assert_eq!((&reset[..6], &reset[6..12]), (&A[..], &B[..]));
    assert_eq!(reset[26..34], [10, 0, 0, 2, 10, 0, 0, 1]);
    let segment = &reset[34..];
    assert_eq!(
        segment[..12],
        [0x1f, 0x90, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 1, 1]
    );
    assert_eq!(segment[13], 0x14);

    let datagram = ipv4(A, (1, 2), 17, &[0, 9, 0, 53, 0, 8, 0, 0]);
    a.send(std::slice::from_ref(&datagram));
    let error = a.receive(1).remove(0);
    assert_eq!(error[14 + 9], 1);
    assert_eq!(error[34..36], [3, 13]);
    assert_eq!(error[42..], datagram[14..]);

    // The error of a rule is about TCP too.
    let smtp = syn(25);
    a.send(std::slice::from_ref(&smtp));
    let error = a.receive(1).remove(0);
    assert_eq!(error[14 + 9], 1);
    assert_eq!(error[34..36], [3, 10]);
    assert_eq!(error[42..], smtp[14..]);

    let ports = until("all effects are counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[0].counts.effects[RuleEffect::IcmpError] == 2).then_some(ports)
    });
    let counts = &ports[0].counts;
    for effect in [
        RuleEffect::TcpReset,
        RuleEffect::Logged,
        RuleEffect::DscpSet,
        RuleEffect::MssClamped,
        RuleEffect::Duplicated,
    ] {
        assert_eq!(counts.effects[effect], 1, "{effect:?}");
    }
    assert_eq!(counts.drops[PortDrop::Rejected], 3);
    let rules: RulesReport = bench.show("rules");
    assert_eq!(rules.rules[2].reject_with, Some(RejectWith::HostProhibited));
    assert_eq!(rules.rules[3].set_mss, Some(MssLimit::Octets(1000)));
    let table = output(&mut bench.show_command("rules"));
    assert!(
        table.contains("reject log 1, log-prefix closed:"),
        "{table}"
    );
    assert!(
        table.contains("reject reject-with host-prohibited"),
        "{table}"
    );
    let sets = output(
        bench
            .show_command("sets")
            .args(["--json", "--set", "closed"]),
    );
    let sets: SetsReport = serde_json::from_str(&sets).unwrap();
    assert_eq!((sets.total, sets.sets[0].rules), (2, 1));
    assert!(
        sets.elements[1]
            .expires_in_s
            .is_some_and(|left| (1..=600).contains(&left))
    );

    let guard = [
        "set",
        "port",
        "b",
        "--source-guard",
        "02:00:00:00:00:02,10.0.0.2",
    ];
    change(&bench, &guard);
    let from_b = |source, from| ipv4(source, (from, 1), 17, &[0, 53, 0, 9, 0, 8, 0, 0]);
    let own = from_b(B, 2);
    b.send(&[from_b(B, 3), from_b([2, 0, 0, 0, 0, 3], 2), own.clone()]);
    assert_eq!(a.receive(1), [own]);
    let drops = until("spoofed frames are counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        let drops = ports[1].counts.drops;
        (drops.sum() == 2).then_some(drops)
    });
    assert_eq!(
        (drops[PortDrop::GuardIp], drops[PortDrop::GuardMac]),
        (1, 1)
    );
    change(&bench, &["set", "port", "b", "--source-guard", "all"]);
    b.send(&[from_b(B, 3)]);
    assert_eq!(a.receive(1).len(), 1);

    let add = "add rule leave --action drop --direction out --port a --from b --source 10.0.0.3/32";
    change(&bench, &add.split(' ').collect::<Vec<_>>());
    let own = from_b(B, 2);
    b.send(&[from_b(B, 3), own.clone()]);
    assert_eq!(a.receive(1), [own]);
    let dropped = until("the frame that must not leave is counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        let dropped = ports[0].counts.drops[PortDrop::DeniedOut];
        (dropped > 0).then_some(dropped)
    });
    let rules: RulesReport = bench.show("rules");
    assert_eq!((dropped, rules.rules[4].frames), (1, 1));
    change(&bench, &["del", "rule", "leave"]);
    b.send(&[from_b(B, 3)]);
    assert_eq!(a.receive(1).len(), 1);
}

#[test]
fn rules_log_and_change_frames_that_leave() {
    let bench = Bench::start(&["a", "b", "c", "d"], &["--bridge", "lan=a,b,c"]);
    let (mut a, mut b, mut c) = (bench.peer("a"), bench.peer("b"), bench.peer("c"));
    for rule in [
        "add rule tunnel --action accept --direction out --port b --protocol tcp --set-mss 900 --set-dscp ef",
        "add rule mail --action drop --direction out --port b --protocol udp --log 1",
    ] {
        change(&bench, &rule.split(' ').collect::<Vec<_>>());
    }
    // A flooded frame changes at the port of the rule only.
    let segment = syn(80);
    a.send(std::slice::from_ref(&segment));
    let arrived = b.receive(1).remove(0);
    assert!(is_right(&arrived), "{arrived:02x?}");
    assert_eq!(arrived[15], 46 << 2);
    assert_eq!(arrived[14 + 20 + 22..], [0x03, 0x84]);
    assert_eq!(c.receive(1), [segment]);

    let datagram = ipv4(A, (1, 2), 17, &[0, 9, 0, 25, 0, 8, 0, 0]);
    a.send(std::slice::from_ref(&datagram));
    assert_eq!(c.receive(1), [datagram]);
    let counts = until("the frame that must not leave is counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        let counts = ports[1].counts.clone();
        (counts.drops[PortDrop::DeniedOut] == 1).then_some(counts)
    });
    for effect in [
        RuleEffect::MssClamped,
        RuleEffect::DscpSet,
        RuleEffect::Logged,
    ] {
        assert_eq!(counts.effects[effect], 1, "{effect:?}");
    }
    for rule in ["--action accept --inspect d", "--action reject"] {
        let rule = format!("add rule x --direction out {rule}");
        let reason = refused(&bench, &rule.split(' ').collect::<Vec<_>>());
        assert!(reason.contains("excludes reject and inspect"), "{reason}");
    }

    // A copy is as the frame leaves, and rules of frames that leave do not apply to it.
    let mut d = bench.peer("d");
    for rule in [
        "add rule copied --action continue --direction out --port b --from a --dup d --before mail",
        "add rule none --action drop --direction out --port d",
    ] {
        change(&bench, &rule.split(' ').collect::<Vec<_>>());
    }
    let datagram = ipv4(A, (1, 2), 17, &[0, 9, 0, 25, 0, 8, 0, 0]);
    a.send(std::slice::from_ref(&datagram));
    assert_eq!(d.receive(1), std::slice::from_ref(&datagram));
    assert_eq!(c.receive(1), [datagram]);
    let counts = until("the copy is counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        let counts = ports[1].counts.clone();
        (counts.effects[RuleEffect::Duplicated] == 1).then_some(counts)
    });
    assert_eq!(counts.effects[RuleEffect::NotDuplicated], 0);
    assert_eq!(counts.drops[PortDrop::DeniedOut], 2);
}

#[test]
fn segments_that_leave_are_limited_to_the_mtu_of_the_path() {
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let with = |text: &str| change(&bench, &text.split(' ').collect::<Vec<_>>());
    with(
        "add rule tunnel --action accept --direction out --port b --protocol tcp --set-mss rt-mtu",
    );
    let mut arrives = |expected: u16| {
        a.send(&[syn(80)]);
        // The router may send frames of its own.
        let mut arriving = std::iter::repeat_with(|| b.receive(1).remove(0));
        let arrived = arriving.find(|frame| frame[12..14] == [8, 0]).unwrap();
        assert!(is_right(&arrived), "{arrived:02x?}");
        assert_eq!(arrived[14 + 20 + 22..], expected.to_be_bytes());
    };
    // No link of the path has an MTU.
    arrives(1460);
    with("add interface lan0 --bridge lan --address 10.0.0.254/24 --mtu 1400");
    arrives(1360);
    with("set interface lan0 --bridge lan --address 10.0.0.254/24 --mtu 1000");
    arrives(960);
    // It is never raised.
    with("set interface lan0 --bridge lan --address 10.0.0.254/24 --mtu 9000");
    arrives(1460);
    let rules: RulesReport = bench.show("rules");
    assert_eq!(rules.rules[0].set_mss, Some(MssLimit::RtMtu));
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[1].counts.effects[RuleEffect::MssClamped], 2);
    let rule = "add rule in --action accept --port a --set-mss rt-mtu";
    let reason = refused(&bench, &rule.split(' ').collect::<Vec<_>>());
    assert!(reason.contains("requires direction"), "{reason}");
}

const CONTINUED: &str = r#"
[[rule]]
name = "all"
action = "continue"
port = "a"

[[rule]]
name = "tcp"
action = "continue"
port = "a"
protocol = "tcp"
dup = "spy"
set-dscp = "ef"
log = 1

[[rule]]
name = "small"
action = "continue"
direction = "out"
port = "b"
protocol = "tcp"
set-mss = 1000

[[rule]]
name = "web"
action = "accept"
port = "a"
protocol = "tcp"
destination-port = "80"

[[rule]]
name = "other"
action = "drop"
port = "a"
"#;

#[test]
fn rules_that_continue_count_log_copy_and_change() {
    let bench = Bench::new(&["a", "b", "spy"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, CONTINUED).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b, mut spy) = (bench.peer("a"), bench.peer("b"), bench.peer("spy"));

    // The second segment is dropped behind the rules that continue.
    let (web, other) = (syn(80), syn(81));
    a.send(&[web.clone(), other.clone()]);
    assert_eq!(spy.receive(2), [web, other]);
    let arrived = b.receive(1).remove(0);
    assert!(is_right(&arrived), "{arrived:02x?}");
    assert_eq!(arrived[15], 46 << 2);
    assert_eq!(arrived[14 + 20 + 22..], [0x03, 0xe8]);

    let ports = until("all effects are counted", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[1].counts.effects[RuleEffect::MssClamped] == 1).then_some(ports)
    });
    let counts = &ports[0].counts;
    for (effect, count) in [
        (RuleEffect::Logged, 2),
        (RuleEffect::Duplicated, 2),
        (RuleEffect::DscpSet, 1),
    ] {
        assert_eq!(counts.effects[effect], count, "{effect:?}");
    }
    assert_eq!(counts.drops[PortDrop::Denied], 1);
    let rules: RulesReport = bench.show("rules");
    let frames: Vec<u64> = rules.rules.iter().map(|rule| rule.frames).collect();
    assert_eq!(frames, [2, 2, 1, 1, 1]);
}
