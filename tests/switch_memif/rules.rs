// SPDX-License-Identifier: Apache-2.0
//! Filter rules of ports as observed on the wire. `rules.py` makes the frames with scapy.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use quietwire_base::testing::KillOnDrop;
use quietwire_switch::config::rules::{Action, MalformedAction};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::{PortDrop, PortReport, RulesReport, SetsReport};
use serde::de::DeserializeOwned;

use crate::bench::{Bench, change, command, frame, output, refused, until};
use crate::watch::{steps, trace};

const RULES: &str = r#"
rule-default = "drop"

[[rule]]
name = "dns"
action = "accept"
port = "a"
protocol = "udp"
destination-port = "53"

[[rule]]
name = "telnet"
action = "drop"
protocol = "tcp"
destination-port = "20-23"

[[rule]]
name = "inside"
action = "accept"
source = "10.0.0.0/8"

[[rule]]
name = "web6"
action = "accept"
ethertype = "ipv6"
protocol = "tcp"
source = "2001:db8::/32"
destination-port = "80-443"

[[rule]]
name = "arp"
action = "accept"
ethertype = "arp"

[[rule]]
name = "seven"
action = "accept"
vlan = 7
"#;

/// Each frame and the rule that decides on it if it is received on port a; an empty name is the default.
const CASES: [(&str, &str); 21] = [
    ("dns", "dns"),
    ("dns with options", "dns"),
    ("dns in a VLAN", "dns"),
    ("dns in two VLANs", "dns"),
    ("first piece of dns", "dns"),
    // Later fragments have no ports.
    ("later piece of dns", ""),
    ("udp", ""),
    ("telnet", "telnet"),
    ("web", "inside"),
    ("web from outside", ""),
    ("ping", ""),
    ("web of IPv6", "web6"),
    ("web of IPv6 behind headers", "web6"),
    ("first piece of web of IPv6", "web6"),
    ("later piece of web of IPv6", ""),
    ("other port of IPv6", ""),
    ("arp", "arp"),
    ("VLAN 7", "seven"),
    ("VLAN 7 outside", "seven"),
    ("VLAN 7 inside", ""),
    ("damaged", "(malformed)"),
];

/// Returns the lines of a script in this directory, which makes frames. It runs once for all tests.
pub(crate) fn lines_of<T: DeserializeOwned>(script: &str) -> Vec<T> {
    static PRINTED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let run = || {
        let python = std::env::var("QUIETWIRE_PYTHON")
            .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/switch_memif");
        output(Command::new(python).arg(format!("{directory}/{script}")))
    };
    let mut all = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let printed = all.entry(script.to_owned()).or_insert_with(run);
    let read = |line: &str| serde_json::from_str(line).unwrap();
    printed.lines().map(read).collect()
}

pub(crate) fn octets_of(hex: &str) -> Vec<u8> {
    let octet = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}

fn frames() -> BTreeMap<String, Vec<u8>> {
    let lines: Vec<(String, String)> = lines_of("rules.py");
    let read = |(name, hex): (String, String)| (name, octets_of(&hex));
    lines.into_iter().map(read).collect()
}

/// Returns all rules.
fn all_rules(bench: &Bench) -> RulesReport {
    bench.settle();
    let mut command = bench.show_command("rules");
    let text = output(command.args(["--json", "--limit", "10000"]));
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn counts(bench: &Bench) -> BTreeMap<String, u64> {
    let report = all_rules(bench);
    let rules = report.rules.into_iter();
    let mut counts: BTreeMap<String, u64> = rules.map(|one| (one.name, one.frames)).collect();
    counts.insert(String::new(), report.default_frames);
    counts.insert("(malformed)".to_owned(), report.malformed_frames);
    counts
}

#[test]
fn frames_are_accepted_by_the_first_rule_that_they_match() {
    let frames = frames();
    let bench = Bench::new(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = bench.path("rules.toml");
    fs::write(&file, RULES).unwrap();
    let mut bench = bench.with(&["--rules", file.to_str().unwrap()]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    assert_eq!(frames.len(), CASES.len());
    let accepted = |rule: &str| !["", "telnet", "(malformed)"].contains(&rule);
    let (mut sent, mut expected, mut wanted) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (name, rule) in CASES {
        sent.push(frames[name].clone());
        *wanted.entry(rule.to_owned()).or_insert(0u64) += 1;
        if accepted(rule) {
            expected.push(frames[name].clone());
        }
    }
    a.send(&sent);
    assert_eq!(b.receive(expected.len()), expected);
    until("all frames are filtered", || {
        (counts(&bench) == wanted).then_some(())
    });
    let ports: Vec<PortReport> = bench.show("ports");
    let octets = |frames: &[Vec<u8>]| frames.iter().map(|one| one.len() as u64).sum::<u64>();
    assert_eq!(
        (
            ports[0].counts.rx_frames,
            ports[0].counts.rx_octets,
            ports[0].counts.drops[PortDrop::Denied],
            ports[0].counts.drops[PortDrop::Malformed],
            ports[0].counts.drops.sum(),
        ),
        (
            sent.len() as u64,
            octets(&sent),
            (sent.len() - expected.len() - 1) as u64,
            1,
            (sent.len() - expected.len()) as u64,
        )
    );
    // By the other port, which the first rule does not apply to.
    b.send(&[frames["dns"].clone(), frames["web"].clone()]);
    assert_eq!(a.receive(1), [frames["web"].clone()]);
    // Too short for any rule: dropped and counted as without rules.
    b.send(&[vec![1; 13], frames["arp"].clone()]);
    assert_eq!(a.receive(1), [frames["arp"].clone()]);
    let ports: Vec<PortReport> = bench.show("ports");
    let drops = ports[1].counts.drops;
    assert_eq!((drops[PortDrop::Denied], drops[PortDrop::Short]), (1, 1));
    // A burst that is dropped entirely.
    b.send(&vec![frames["ping"].clone(); 64]);
    until("all are dropped", || {
        let ports: Vec<PortReport> = bench.show("ports");
        (ports[1].counts.drops[PortDrop::Denied] == 65).then_some(())
    });
    let events = trace(&bench, &["--count", "3", "--port", "a"], || {
        a.send(&["dns", "telnet", "udp"].map(|name| frames[name].clone()));
    });
    let reported = [1, 2, 3].map(|packet| steps(&events, packet)[1..].to_vec());
    assert_eq!(
        reported,
        [
            vec![("filter", "accepted by rule dns"), ("send", "to port b")],
            vec![("filter", "dropped by rule telnet")],
            vec![("filter", "dropped: no rule matches")],
        ]
    );
    assert_eq!(b.receive(1), [frames["dns"].clone()]);
}

#[test]
fn rules_change_completely_or_not_at_all() {
    let mut bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let call = |number| frame([0xff; 6], [2, 0, 0, 0, 0, 1], number);
    let mut passes = |number: u8, is_let_in: bool| {
        // Frames from b are always accepted: they show that enough time has passed.
        a.send(&[call(number)]);
        b.send(&[call(100 + number)]);
        assert_eq!(a.receive(1), [call(100 + number)]);
        let got = if is_let_in {
            b.receive(1)
        } else {
            b.receive_now()
        };
        assert_eq!(got.len(), usize::from(is_let_in), "{number}");
    };
    passes(1, true);
    // All keys of a rule.
    let all = [
        "--bridge",
        "lan",
        "--vlan",
        "5",
        "--ethertype",
        "ipv4",
        "--protocol",
        "tcp",
        "--source",
        "10.0.0.0/8",
        "--destination",
        "10.1.0.0/16",
        "--source-port",
        "5",
        "--destination-port",
        "80-90",
    ];
    change(
        &bench,
        &[&["add", "rule", "words", "--action", "accept"][..], &all].concat(),
    );
    passes(2, true);
    change(
        &bench,
        &["add", "rule", "all", "--action", "drop", "--port", "a"],
    );
    passes(3, false);
    change(
        &bench,
        &[
            "add",
            "rule",
            "kind",
            "--action",
            "accept",
            "--ethertype",
            "0x88b5",
            "--before",
            "all",
        ],
    );
    passes(4, true);
    // A rule has all its options; an invalid rule changes nothing.
    change(
        &bench,
        &[
            "set",
            "rule",
            "kind",
            "--action",
            "accept",
            "--ethertype",
            "lldp",
        ],
    );
    passes(5, false);
    let before = output(&mut bench.show_command("config"));
    for (arguments, printed) in [
        (
            &["set", "rule", "none", "--action", "drop"][..],
            "no such rule: 'none'",
        ),
        (&["del", "rule", "none"], "no such rule: 'none'"),
        (
            &["add", "rule", "all", "--action", "drop"],
            "duplicate rule",
        ),
        (
            &["add", "rule", "x", "--action", "drop", "--port", "z"],
            "no such port: 'z'",
        ),
        (
            &["add", "rule", "x", "--action", "drop", "--before", "z"],
            "no such rule: 'z'",
        ),
        (&["set", "rules"], "--file"),
        (
            &["set", "rules", "--file", "/nowhere/rules.toml"],
            "/nowhere/rules.toml",
        ),
    ] {
        let error = refused(&bench, arguments);
        assert!(error.contains(printed), "{arguments:?}: {error}");
    }
    let file = bench.path("next.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "[[rule]]\nname = \"x\"\naction = \"accept\"\n[[rule]]\nname = \"y\"\naction = \"drop\"\nbridge = \"wan\"\n").unwrap();
    let error = refused(&bench, &["set", "rules", "--file", path]);
    assert!(error.contains("no such bridge: 'wan'"), "{error}");
    assert_eq!(output(&mut bench.show_command("config")), before);
    // A rule that does not change keeps its counter.
    assert_eq!(counts(&bench)["all"], 2);
    change(&bench, &["del", "rule", "kind"]);
    passes(6, false);
    assert_eq!(counts(&bench)["all"], 3);
    let table = output(&mut bench.show_command("rule"));
    assert!(
        table.contains("bridge lan, vlan 5, ethertype ipv4, protocol tcp, source 10.0.0.0/8, destination 10.1.0.0/16, source-port 5, destination-port 80-90"),
        "{table}"
    );
    // All rules at once, and the default.
    fs::write(
        &file,
        "rule-default = \"drop\"\n[[rule]]\nname = \"b\"\naction = \"accept\"\nport = \"b\"\n",
    )
    .unwrap();
    change(&bench, &["set", "rules", "--file", path]);
    passes(7, false);
    change(&bench, &["set", "rules", "--default", "accept"]);
    passes(8, true);
    change(
        &bench,
        &["set", "rules", "--default", "drop", "--malformed", "match"],
    );
    passes(9, false);
    // The written configuration makes the same switch.
    let config = output(&mut bench.show_command("config"));
    assert!(config.contains("rule-default = \"drop\""), "{config}");
    assert!(config.contains("rule-malformed = \"match\""), "{config}");
    bench.end("TERM");
    drop((a, b));
    let file = bench.path("switch.toml");
    fs::write(&file, &config).unwrap();
    let mut bench = bench.only(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    assert_eq!(output(&mut bench.show_command("config")), config);
    let report: RulesReport = bench.show("rules");
    assert_eq!(
        (report.rules.len(), report.default, report.malformed),
        (1, Action::Drop, MalformedAction::Match)
    );
    // A rule is removed with its port or interface.
    change(&bench, &["del", "port", "b"]);
    let report: RulesReport = bench.show("rules");
    assert_eq!(report.rules.len(), 0);
}

/// Checks that a replacement of rules is atomic: with two sets that accept every frame, and with two that drop every frame.
#[test]
fn rules_are_replaced_at_once_while_frames_flow() {
    const TURNS: usize = 8;
    const FRAMES: u64 = 2000;
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let port = |index: usize| bench.show::<Vec<PortReport>>("ports").remove(index).counts;
    let file = bench.path("rules.toml");
    let replace = |default: &str, name: &str, action: &str| {
        let rule = format!("[[rule]]\nname = \"{name}\"\naction = \"{action}\"\n");
        fs::write(&file, format!("rule-default = \"{default}\"\n{rule}")).unwrap();
        change(&bench, &["set", "rules", "--file", file.to_str().unwrap()]);
    };
    let flows = || {
        let before = port(0).rx_frames;
        until("frames flow", || {
            (port(0).rx_frames > before + FRAMES).then_some(())
        });
    };
    let _generator = KillOnDrop(bench.generator());
    let swap = |default: &str, action: &str| {
        for turn in 0..TURNS {
            let name = if turn % 2 == 0 { "one" } else { "two" };
            replace(default, name, action);
            flows();
        }
    };
    swap("drop", "accept");
    assert_eq!(port(0).drops[PortDrop::Denied], 0);
    let let_in = port(1).tx_frames;
    assert!(let_in > 0);
    replace("accept", "one", "drop");
    flows();
    let let_in = port(1).tx_frames;
    swap("accept", "drop");
    assert_eq!(port(1).tx_frames, let_in);
    assert!(port(0).drops[PortDrop::Denied] > FRAMES);
}

#[test]
fn frames_that_rules_drop_are_not_routed_and_not_answered() {
    let bench = Bench::start(&["a"], &[]);
    change(
        &bench,
        &[
            "add",
            "interface",
            "a0",
            "--port",
            "a",
            "--address",
            "192.0.2.254/24",
            "--mac",
            "02:00:00:00:00:02",
        ],
    );
    change(
        &bench,
        &["add", "neighbour", "a0", "192.0.2.1", "02:00:00:00:00:01"],
    );
    let mut a = bench.peer("a");
    let echo = |number| {
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let builder = builder.ipv4([192, 0, 2, 1], [192, 0, 2, 254], 64);
        let mut frame = Vec::new();
        let builder = builder.icmpv4_echo_request(1, number);
        builder.write(&mut frame, b"hello").unwrap();
        frame
    };
    a.send(&[echo(1)]);
    assert_eq!(a.receive(1).len(), 1);
    change(
        &bench,
        &[
            "add",
            "rule",
            "ping",
            "--action",
            "drop",
            "--protocol",
            "icmp",
            "--source",
            "192.0.2.0/25",
        ],
    );
    a.send(&[echo(2)]);
    until("the rule drops", || {
        (counts(&bench)["ping"] == 1).then_some(())
    });
    change(&bench, &["del", "rule", "ping"]);
    a.send(&[echo(3)]);
    let answers = a.receive(1);
    assert_eq!(answers.len(), 1, "the second was answered");
    assert_eq!(answers[0][40..42], [0, 3]);
}

/// More rules than a request has space for, from a file and one by one.
#[test]
fn thousands_of_rules_decide_and_count_each_by_itself() {
    const RULES: usize = 3000;
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let file = bench.path("rules.toml");
    let rule = |number: usize| {
        let place = match number % 3 {
            0 => "port = \"a\"",
            1 => "port = \"b\"",
            _ => "",
        };
        format!(
            "[[rule]]\nname = \"r{number}\"\naction = \"accept\"\n{place}\nprotocol = \"udp\"\ndestination = \"10.0.{}.{}/32\"\n",
            number / 250,
            number % 250
        )
    };
    let rules: String = (0..RULES).map(rule).collect();
    fs::write(&file, format!("rule-default = \"drop\"\n{rules}")).unwrap();
    change(&bench, &["set", "rules", "--file", file.to_str().unwrap()]);
    let frame = |number: usize| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 9, 9]);
        frame.extend([10, 0, (number / 250) as u8, (number % 250) as u8]);
        frame.extend([0, 9, 0, 53, 0, 26, 0, 0]);
        frame.resize(60, 0);
        frame
    };
    let frames: Vec<Vec<u8>> = (0..RULES).step_by(50).map(frame).collect();
    let accepted = (0..RULES).step_by(50).filter(|number| number % 3 != 1);
    let accepted: Vec<Vec<u8>> = accepted.map(frame).collect();
    a.send(&frames);
    assert_eq!(b.receive(accepted.len()), accepted);
    let mut wanted = BTreeMap::from([
        (String::new(), (frames.len() - accepted.len()) as u64),
        ("(malformed)".to_owned(), 0),
    ]);
    for number in 0..RULES {
        let is_counted = number % 50 == 0 && number % 3 != 1;
        wanted.insert(format!("r{number}"), u64::from(is_counted));
    }
    until("all frames are counted", || {
        (counts(&bench) == wanted).then_some(())
    });
    // A change keeps all counters, and the order.
    change(
        &bench,
        &[
            "add",
            "rule",
            "first",
            "--action",
            "drop",
            "--before",
            "r0",
            "--protocol",
            "udp",
            "--destination",
            "10.0.0.0/30",
        ],
    );
    a.send(&[frame(0), frame(5)]);
    assert_eq!(b.receive(1), [frame(5)]);
    wanted.insert("first".to_owned(), 1);
    wanted.insert("r5".to_owned(), 1);
    until("both frames are counted", || {
        (counts(&bench) == wanted).then_some(())
    });
    let report = all_rules(&bench);
    assert_eq!(
        (report.rules.len(), &report.rules[0].name[..]),
        (RULES + 1, "first")
    );
}

#[test]
fn elements_of_sets_take_effect_at_once_and_time_out() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let file = bench.path("rules.toml");
    let rules = r#"
rule-default = "drop"

[[set]]
name = "inside"
type = "ipv4_addr"
elements = ["10.0.0.0/24"]

[[set]]
name = "guests"
type = "ipv4_addr"
timeout-s = 1

[[rule]]
name = "inside"
action = "accept"
source = "@inside"

[[rule]]
name = "guests"
action = "accept"
source = "@guests"
"#;
    fs::write(&file, rules).unwrap();
    change(&bench, &["set", "rules", "--file", file.to_str().unwrap()]);
    let frame = |source: [u8; 4]| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(source);
        frame.extend([10, 9, 9, 9, 0, 9, 0, 53, 0, 26, 0, 0]);
        frame.resize(60, 0);
        frame
    };
    let (inside, guest) = (frame([10, 0, 0, 7]), frame([192, 0, 2, 1]));
    a.send(&[guest.clone(), inside.clone()]);
    assert_eq!(b.receive(1), std::slice::from_ref(&inside));
    change(&bench, &["add", "element", "guests", "192.0.2.0/24"]);
    change(&bench, &["del", "element", "inside", "10.0.0.0/24"]);
    a.send(&[inside.clone(), guest.clone()]);
    assert_eq!(b.receive(1), std::slice::from_ref(&guest));
    // Both rules kept their counters.
    until("all frames are counted", || {
        let counts = counts(&bench);
        (counts["inside"] == 1 && counts["guests"] == 1 && counts[""] == 2).then_some(())
    });
    until("the element times out", || {
        let config: String = bench.show("config");
        (!config.contains("192.0.2.0/24")).then_some(())
    });
    a.send(&[guest]);
    until("the frame is dropped", || {
        (counts(&bench)[""] == 3).then_some(())
    });
    let error = refused(&bench, &["del", "set", "inside"]);
    assert!(error.contains("rule 'inside' uses set 'inside'"), "{error}");
}

#[test]
fn rules_of_a_set_of_ports_follow_its_elements() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let with = |text: &str| change(&bench, &text.split(' ').collect::<Vec<_>>());
    with("add set guests --type ifname a nowhere");
    with("add rule in --action drop --port @guests");
    with("add rule out --action drop --direction out --port b --from @guests");
    let frame = |last: u8| {
        let mut frame = vec![2; 12];
        frame.extend([0x88, 0xb5]);
        frame.resize(60, last);
        frame
    };
    a.send(&[frame(1)]);
    until("the frame is dropped", || {
        (counts(&bench)["in"] == 1).then_some(())
    });
    b.send(&[frame(2)]);
    assert_eq!(a.receive(1), [frame(2)]);
    with("del element guests a");
    with("add element guests b");
    a.send(&[frame(3)]);
    assert_eq!(b.receive(1), [frame(3)]);
    b.send(&[frame(4)]);
    // The rule kept its counter.
    until("the frame of the other port is dropped", || {
        let counts = counts(&bench);
        (counts["in"] == 2 && counts["out"] == 0).then_some(())
    });
    let error = refused(&bench, &["del", "set", "guests"]);
    assert!(error.contains("rule 'in' uses set 'guests'"), "{error}");
}

/// Writes a file of rules that accept UDP to a port each, in this order.
fn accepting(bench: &Bench, name: &str, ports: &[u16]) -> String {
    let rule = |port: &u16| {
        format!(
            "[[rule]]\nname = \"p{port}\"\naction = \"accept\"\nprotocol = \"udp\"\ndestination-port = \"{port}\"\n"
        )
    };
    let rules: String = ports.iter().map(rule).collect();
    let file = bench.path(name);
    fs::write(&file, format!("rule-default = \"drop\"\n{rules}")).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Maximum number of rules or elements in a reply.
const PAGE: usize = 4096;

/// Asks the switch without a process: the time for a confirmation passes meanwhile.
fn rule_names(bench: &Bench) -> Vec<String> {
    let (from, limit) = (0, PAGE);
    let request = Request::ShowRules { from, limit };
    let report: RulesReport = ask(&bench.path("control.sock"), &request).unwrap();
    report.rules.into_iter().map(|rule| rule.name).collect()
}

#[test]
fn rules_that_are_not_confirmed_in_time_are_replaced_by_the_former_ones() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let first = accepting(&bench, "first.toml", &[1]);
    let second = accepting(&bench, "second.toml", &[2]);
    change(&bench, &["rules", "replace", &first]);
    assert_eq!(rule_names(&bench), ["p1"]);
    change(&bench, &["rules", "replace", &second, "--confirm", "1s"]);
    // No client is connected while the time passes.
    until("the former rules return", || {
        (rule_names(&bench) == ["p1"]).then_some(())
    });
    let error = refused(&bench, &["rules", "confirm"]);
    assert!(
        error.contains("no rules wait for a confirmation"),
        "{error}"
    );
    change(&bench, &["rules", "replace", &second, "--confirm", "60m"]);
    assert_eq!(rule_names(&bench), ["p2"]);
    let report: RulesReport = bench.show("rules");
    assert!(report.unconfirmed_s.is_some_and(|left_s| left_s > 3000));
    let error = refused(&bench, &["del", "rule", "p2"]);
    assert!(error.contains("wait for a confirmation"), "{error}");
    change(&bench, &["rules", "confirm"]);
    change(&bench, &["del", "rule", "p2"]);
    assert_eq!(bench.show::<RulesReport>("rules").unconfirmed_s, None);
    let error = refused(&bench, &["rules", "replace", &second, "--confirm", "500ms"]);
    assert!(error.contains("whole seconds"), "{error}");
}

#[test]
fn single_changes_that_are_not_confirmed_in_time_are_rolled_back() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let first = accepting(&bench, "first.toml", &[1, 2]);
    change(&bench, &["rules", "replace", &first]);
    let with = |text: &str| {
        let arguments: Vec<&str> = text.split(' ').collect();
        change(&bench, &arguments);
    };
    with("add set ports --type inet_service 53");
    // Without a process: the time for the confirmation passes meanwhile.
    let elements = || {
        let (set, from, limit) = (None, 0, PAGE);
        let request = Request::ShowSets { set, from, limit };
        let report: SetsReport = ask(&bench.path("control.sock"), &request).unwrap();
        report.total
    };
    for (text, names, count) in [
        (
            "add rule new --action drop --before p1 --confirm 1s",
            &["new", "p1", "p2"][..],
            1,
        ),
        ("del rule p1 --confirm 1s", &["p2"][..], 1),
        (
            "add element ports 80 443 --confirm 1s",
            &["p1", "p2"][..],
            3,
        ),
    ] {
        with(text);
        assert_eq!(rule_names(&bench), names, "{text}");
        assert_eq!(elements(), count, "{text}");
        let error = refused(&bench, &["del", "rule", "p2", "--confirm", "9s"]);
        assert!(error.contains("wait for a confirmation"), "{error}");
        until("the former rules and sets return", || {
            (rule_names(&bench) == ["p1", "p2"] && elements() == 1).then_some(())
        });
    }
    with("set rule p1 --action drop --confirm 60m");
    let report: RulesReport = bench.show("rules");
    assert!(report.unconfirmed_s.is_some_and(|left_s| left_s > 3000));
    change(&bench, &["rules", "confirm"]);
    let report: RulesReport = bench.show("rules");
    assert_eq!(
        (report.unconfirmed_s, report.rules[0].action),
        (None, Action::Drop)
    );
    let error = refused(&bench, &["del", "rule", "p1", "--confirm", "1500ms"]);
    assert!(error.contains("whole seconds"), "{error}");
}

#[test]
fn the_rule_that_decides_is_explained_for_a_file_and_for_a_running_switch() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = accepting(&bench, "rules.toml", &[53, 123]);
    change(&bench, &["rules", "replace", &file]);
    let packet = [
        "rules",
        "check",
        "--port",
        "a",
        "--protocol",
        "udp",
        "--source",
        "10.0.0.1",
        "--destination",
        "10.0.0.2",
        "--destination-port",
    ];
    let explained = |more: &[&str]| {
        let arguments: Vec<&str> = packet.iter().chain(more).copied().collect();
        output(&mut command(&bench, &arguments))
    };
    for more in [&["123"][..], &["123", "--rules", &file]] {
        let text = explained(more);
        assert!(
            text.contains("accept by rule 'p123', after 1 rule that does not match"),
            "{text}"
        );
        assert!(
            text.contains("p53") && text.contains("destination-port"),
            "{text}"
        );
    }
    let text = explained(&["80"]);
    assert!(
        text.contains("drop by default: no rule matches, of 2"),
        "{text}"
    );
    // Nothing was counted.
    assert_eq!(counts(&bench)["p123"], 0);
    let error = refused(&bench, &["rules", "check", "--port", "c"]);
    assert!(error.contains("no such port: 'c'"), "{error}");
}

#[test]
fn rules_are_compared_with_a_file_and_shown_page_by_page() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let first = accepting(&bench, "first.toml", &[1, 2, 3]);
    let second = accepting(&bench, "second.toml", &[2, 1, 4]);
    change(&bench, &["rules", "replace", &first]);
    change(&bench, &["rules", "diff", &first]);
    let differing = command(&bench, &["rules", "diff", &second])
        .output()
        .unwrap();
    assert_eq!(differing.status.code(), Some(1));
    let text = String::from_utf8(differing.stdout).unwrap();
    for line in ["- rule p3: accept", "+ rule p4: accept", "~ rule p"] {
        assert!(text.contains(line), "{text}");
    }
    let page = |arguments: &[&str]| -> RulesReport {
        let arguments = ["show", "rules", "--json"].iter().chain(arguments);
        let arguments: Vec<&str> = arguments.copied().collect();
        serde_json::from_str(&output(&mut command(&bench, &arguments))).unwrap()
    };
    let names = |page: &RulesReport| -> Vec<String> {
        page.rules.iter().map(|rule| rule.name.clone()).collect()
    };
    let one = page(&["--from", "1", "--limit", "1"]);
    assert_eq!(
        (names(&one), one.total, one.next),
        (vec!["p2".to_owned()], 3, Some(2))
    );
    let all = page(&[]);
    assert_eq!((all.rules.len(), all.next), (3, None));
    assert!(all.octets > 0 && all.compile_us.is_some() && all.swap_us.is_some());
    assert_eq!(page(&["--from", "9"]).rules.len(), 0);
}
