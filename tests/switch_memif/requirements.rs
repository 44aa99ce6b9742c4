// SPDX-License-Identifier: Apache-2.0
//! Requirements of the RFCs for the router, one by one: `requirements.py` makes, with scapy, the frames to send and all
//! expected ones, and reports requirements that the code names without a case.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use quietwire_packet::checksum;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::StatsReport;
use serde::Deserialize;

use crate::bench::{Bench, Peer, output, until};

/// The router of the cases. Both hosts and both gateways are configured, so that none has to be resolved.
const CONFIG: &str = r#"
[[interface]]
name = "a0"
port = "a"
mac = "02:00:00:00:00:0a"
addresses = ["192.0.2.1/24", "2001:db8:a::1/64"]

[[interface]]
name = "b0"
port = "b"
mac = "02:00:00:00:00:0b"
addresses = ["198.51.100.1/24", "2001:db8:b::1/64"]

[[interface]]
name = "strict"
port = "a"
vlan = 20
mac = "02:00:00:00:00:2a"
addresses = ["10.20.0.1/24"]
urpf = "strict"

[[interface]]
name = "loose"
port = "a"
vlan = 30
mac = "02:00:00:00:00:3a"
addresses = ["10.30.0.1/24"]
urpf = "loose"

[[interface]]
name = "two"
port = "a"
vlan = 50
mac = "02:00:00:00:00:5a"
addresses = ["10.0.0.0/31"]

[[interface]]
name = "small"
port = "b"
vlan = 40
mac = "02:00:00:00:00:4b"
addresses = ["10.40.0.1/24"]
mtu = 600

[[interface]]
name = "small6"
port = "b"
vlan = 41
mac = "02:00:00:00:00:4c"
addresses = ["2001:db8:41::1/64"]
mtu = 1280
"#;

/// Interface, address, MAC address.
pub(crate) type Neighbour = (&'static str, &'static str, &'static str);

const NEIGHBOURS: [Neighbour; 11] = [
    ("a0", "192.0.2.7", "02:00:00:00:00:01"),
    ("a0", "2001:db8:a::7", "02:00:00:00:00:01"),
    ("two", "10.0.0.1", "02:00:00:00:00:01"),
    ("b0", "198.51.100.9", "02:00:00:00:00:02"),
    ("b0", "2001:db8:b::9", "02:00:00:00:00:02"),
    ("small", "10.40.0.9", "02:00:00:00:00:02"),
    ("small6", "2001:db8:41::9", "02:00:00:00:00:02"),
    ("b0", "198.51.100.10", "02:00:00:00:00:12"),
    ("b0", "198.51.100.11", "02:00:00:00:00:13"),
    ("b0", "2001:db8:b::10", "02:00:00:00:00:12"),
    ("b0", "2001:db8:b::11", "02:00:00:00:00:13"),
];

/// Prefix and target: a kind, or one gateway or more.
const ROUTES: [(&str, &[&str]); 16] = [
    ("10.50.0.0/16", &["198.51.100.10"]),
    ("10.50.1.0/24", &["198.51.100.11"]),
    ("10.50.1.7/32", &["198.51.100.10"]),
    ("2001:db8:50::/48", &["2001:db8:b::10"]),
    ("fd00:50::/32", &["2001:db8:b::10"]),
    ("100:0:50::/48", &["2001:db8:b::10"]),
    ("2001:db8:50:1::/64", &["2001:db8:b::11"]),
    ("2001:db8:50:1::7/128", &["2001:db8:b::10"]),
    ("10.99.0.0/16", &["198.51.100.10", "198.51.100.11"]),
    ("2001:db8:99::/48", &["2001:db8:b::10", "2001:db8:b::11"]),
    ("169.254.0.0/16", &["198.51.100.9"]),
    ("203.0.113.0/26", &["prohibit"]),
    ("203.0.113.64/26", &["unreachable"]),
    ("203.0.113.128/25", &["blackhole"]),
    ("2001:db8:f0::/48", &["prohibit"]),
    ("2001:db8:f1::/48", &["blackhole"]),
];

#[derive(Deserialize)]
pub(crate) struct Document {
    cases: Vec<Case>,
    /// Frames that the router may send again at any time: requests for its neighbours.
    background: BTreeSet<String>,
    named: usize,
    uncovered: Vec<String>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    covers: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Default, Deserialize)]
struct Step {
    at: String,
    send: Vec<String>,
    /// By port; each frame is one of several alternatives.
    expect: BTreeMap<String, Vec<Vec<String>>>,
    drops: BTreeMap<String, u64>,
    together: bool,
    apart: bool,
    /// While one of these arrives, the router has not applied the change, and the frames are sent again.
    before: Vec<String>,
    /// Start and end of the hexadecimal digits that all frames have in common.
    same: Option<(usize, usize)>,
}

/// Returns the cases of a script with these arguments, which cover all requirements that the code names.
pub(crate) fn document_of(script: &str, arguments: &[&str]) -> Document {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = output(
        Command::new(python)
            .arg(root.join("tests/switch_memif").join(script))
            .arg(root.join("crates"))
            .args(arguments),
    );
    let document: Document = serde_json::from_str(&text).unwrap();
    assert!(document.named > 0 && !document.cases.is_empty());
    assert!(
        document.uncovered.is_empty(),
        "named in the code, but covered by no case of {script}: RFC {}",
        document.uncovered.join(", RFC ")
    );
    document
}

fn octets(hex: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Octets of an IPv4 header without options, in an untagged frame.
const IPV4_HEADER: std::ops::Range<usize> = 14..34;

/// Returns true if the frame is the expected one, possibly padded to Ethernet's minimum (60 octets without FCS). Each `?` is any digit of an
/// IPv4 header, whose checksum must then be right.
fn is(got: &str, expected: &str) -> bool {
    let matches = |expected: &str| {
        let mut digits = got.bytes().zip(expected.bytes());
        got.len() == expected.len()
            && digits.all(|(got, expected)| expected == b'?' || got == expected)
    };
    let is_same =
        matches(expected) || (expected.len() < 120 && matches(&format!("{expected:0<120}")));
    is_same && (!expected.contains('?') || checksum(&octets(got)[IPV4_HEADER]) == 0)
}

/// Starts a switch with ports `a` and `b`, this configuration and these neighbours.
pub(crate) fn start_with(config: &str, neighbours: &[Neighbour]) -> Bench {
    let mut config = config.to_owned();
    for (interface, address, mac) in neighbours {
        config += &format!(
            "\n[[neighbour]]\ninterface = \"{interface}\"\naddress = \"{address}\"\nmac = \"{mac}\"\n"
        );
    }
    let bench = Bench::new(&["a", "b"], &[]);
    let file = bench.path("switch.toml");
    fs::write(&file, config).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    bench
}

fn start() -> Bench {
    let mut config = CONFIG.to_owned();
    for (prefix, ways) in ROUTES {
        let to = match ways {
            [kind @ ("prohibit" | "unreachable" | "blackhole")] => format!("kind = \"{kind}\""),
            ways => {
                let each = ways.iter().map(|way| format!("{{ address = \"{way}\" }}"));
                format!("via = [{}]", each.collect::<Vec<_>>().join(", "))
            }
        };
        config += &format!("\n[[route]]\nprefix = \"{prefix}\"\n{to}\n");
    }
    start_with(&config, &NEIGHBOURS)
}

struct Player<'a> {
    bench: &'a Bench,
    peers: BTreeMap<&'static str, Peer>,
    background: BTreeSet<String>,
}

impl Player<'_> {
    fn drops(&self) -> BTreeMap<String, u64> {
        let show = Request::Show(Subject::Stats);
        let stats: StatsReport = ask(&self.bench.path("control.sock"), &show).unwrap();
        stats.router.dropped.into_iter().collect()
    }

    /// Removes the frames that arrived at a port from those expected there, in order; returns true if the step must be
    /// repeated.
    fn take(&mut self, port: &str, step: &Step, came: &mut Vec<String>) -> bool {
        let expected = step.expect.get(port).map_or(&[][..], Vec::as_slice);
        let mut is_before = false;
        for frame in self.peers.get_mut(port).unwrap().receive_now() {
            let frame = hex(&frame);
            match expected.get(came.len()) {
                Some(one) if one.iter().any(|one| is(&frame, one)) => came.push(frame),
                _ if step.before.iter().any(|one| is(&frame, one)) => is_before = true,
                next => assert!(
                    self.background.iter().any(|one| is(&frame, one)),
                    "port {port}, after {} frames: {frame}\nexpected: {next:?}",
                    came.len()
                ),
            }
        }
        is_before
    }

    fn send(&mut self, step: &Step) {
        let frames: Vec<Vec<u8>> = step.send.iter().map(|frame| octets(frame)).collect();
        let peer = self.peers.get_mut(step.at.as_str()).unwrap();
        peer.send(&frames);
    }

    fn play(&mut self, step: &Step) {
        let before = (!step.drops.is_empty()).then(|| self.drops());
        self.send(step);
        let mut came: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        until("all expected frames arrive", || {
            let mut is_due = false;
            for (port, expected) in &step.expect {
                let came = came.entry(port).or_default();
                if self.take(port, step, came) {
                    self.send(step);
                }
                is_due |= came.len() < expected.len();
            }
            (!is_due).then_some(())
        });
        if let Some(before) = before {
            self.check_drops(before, &step.drops);
        }
        let parts = |start: usize, end: usize| -> BTreeSet<&str> {
            let frames = came.values().flatten();
            frames.map(|frame| &frame[start..end]).collect()
        };
        if let Some((start, end)) = step.same {
            assert_eq!(parts(start, end).len(), 1, "digits {start} to {end}");
        }
        let ways = parts(0, 12);
        assert!(!step.together || ways.len() == 1, "one flow, {ways:?}");
        assert!(!step.apart || ways.len() > 1, "all flows, {ways:?}");
    }

    /// Checks that this many more frames are dropped for these reasons, and for no others.
    fn check_drops(&self, before: BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
        let mut expected = before;
        for (reason, count) in more {
            *expected.entry(reason.clone()).or_default() += count;
        }
        until("all expected drops are counted", || {
            let drops = self.drops();
            let mut reasons = more.keys();
            reasons
                .all(|reason| drops.get(reason) >= expected.get(reason))
                .then_some(())
        });
        assert_eq!(self.drops(), expected);
    }

    /// Checks that no unexpected frame arrived.
    fn nothing_more(&mut self) {
        let nothing = Step::default();
        for port in ["a", "b"] {
            self.take(port, &nothing, &mut Vec::new());
        }
    }
}

#[test]
fn the_router_does_what_the_rfcs_ask() {
    let document = document_of("requirements.py", &[]);
    play_all(&start(), document);
}

/// Sends all frames of the cases, and checks that all expected frames leave and no others.
pub(crate) fn play_all(bench: &Bench, document: Document) {
    let peers = ["a", "b"].map(|name| (name, bench.peer(name)));
    let mut player = Player {
        bench,
        peers: peers.into(),
        background: document.background,
    };
    for case in &document.cases {
        let _reported = OnPanic(format!(
            "{} (RFC {})",
            case.name,
            case.covers.join(", RFC ")
        ));
        for step in &case.steps {
            player.play(step);
        }
        player.nothing_more();
    }
}

/// Prints the case that failed.
struct OnPanic(String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed case: {}", self.0);
        }
    }
}
