// SPDX-License-Identifier: Apache-2.0
//! Filter rules compared with the kernel's nftables: generated rulesets decide on the same frames in a chain at the ingress of a veth device,
//! and, imported from the output of `nft -j list ruleset`, in the filter. The counters of all rules have to agree, and each frame meets the
//! rules that a plain search finds. Some rules only count. Requires root and nft.
//!
//! `QUIETWIRE_NFT_RULESETS` and `QUIETWIRE_NFT_FRAMES` set the numbers of rulesets and of frames for each; `QUIETWIRE_SEED` the first seed.
//! Default: the number of the process. A failure names the seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "nftables/linear.rs"]
mod linear;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::BURST_MAX;
use quietwire_base::random::Random;
use quietwire_switch::config::rules::{Hook, Imported};
use quietwire_tables::filter::{
    Continued, Element, Fallback, PortRule, PortRules, RuleTable, SetField, SetName, Verdict,
};
use serde_json::Value;

const RULESETS: u64 = 50;
const FRAMES: u64 = 250;
/// Time for the frames of a ruleset to pass the chain, and for links to be up.
const DEADLINE: Duration = Duration::from_secs(20);
/// Attempts for a ruleset whose frames the kernel does not deliver.
const ATTEMPTS: u32 = 3;
/// Differences that a failure lists.
const DIFFERENCES_MAX: usize = 5;

/// Sends frames, which are lines of hexadecimal digits, out of a device.
const SEND: &str = "
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('qw-nft0', 0))
for line in sys.stdin:
    out.send(bytes.fromhex(line))
";

/// A network namespace with a pair of devices.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let name = format!("qw-nft-{}", std::process::id());
        let run = |arguments: &[&str]| output(Command::new("ip").args(arguments), "");
        run(&["netns", "add", &name]);
        let namespace = Self(name);
        // The kernel sends no frames of its own.
        for scope in ["all", "default"] {
            let setting = format!("net.ipv6.conf.{scope}.disable_ipv6=1");
            output(namespace.command("sysctl").args(["-q", "-w", &setting]), "");
        }
        let name = namespace.0.as_str();
        run(&[
            "-n", name, "link", "add", "qw-nft0", "type", "veth", "peer", "name", "qw-nft1",
        ]);
        for device in ["qw-nft0", "qw-nft1"] {
            run(&["-n", name, "link", "set", device, "up"]);
        }
        namespace.wait_for_links();
        namespace
    }

    /// Waits until both devices send: the kernel activates the queue of the first one later, and drops its frames until then.
    fn wait_for_links(&self) {
        let began = Instant::now();
        for device in ["qw-nft0", "qw-nft1"] {
            let mut show = Command::new("ip");
            show.args(["-n", &self.0, "-j", "link", "show", "dev", device]);
            loop {
                let link: Value = serde_json::from_str(&output(&mut show, "")).unwrap();
                if link[0]["operstate"] == "UP" {
                    break;
                }
                assert!(began.elapsed() < DEADLINE, "{device} is not up: {link}");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]);
        command
    }

    /// Returns the ruleset as JSON.
    fn list(&self) -> String {
        output(self.command("nft").args(["-j", "list", "ruleset"]), "")
    }

    /// Returns the packets of each rule that counts, by handle, and the sum of those of rules with a verdict.
    fn counters(&self) -> (Counts, u64) {
        let json: Value = serde_json::from_str(&self.list()).unwrap();
        let rules = json["nftables"].as_array().unwrap().iter();
        let rules = rules.filter_map(|object| object.get("rule"));
        let (mut counters, mut decided) = (BTreeMap::new(), 0);
        for rule in rules {
            let parts = rule["expr"].as_array().unwrap();
            let Some(counter) = parts.iter().find_map(|part| part.get("counter")) else {
                continue;
            };
            let packets = counter["packets"].as_u64().unwrap();
            counters.insert(rule["handle"].as_u64().unwrap(), packets);
            // A verdict is behind the counter.
            let has_verdict = parts.last().unwrap().get("counter").is_none();
            decided += if has_verdict { packets } else { 0 };
        }
        (counters, decided)
    }

    fn send(&self, frames: &[Vec<u8>]) {
        let hex = |frame: &Vec<u8>| -> String {
            let digits: String = frame.iter().map(|octet| format!("{octet:02x}")).collect();
            digits + "\n"
        };
        let lines: String = frames.iter().map(hex).collect();
        output(self.command("python3").args(["-c", SEND]), &lines);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A failure must not hide that of the test.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs a command with this input. Returns its output.
fn output(command: &mut Command, input: &str) -> String {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error} (run scripts/setup --with-tests)"));
    // Without input, the program may have ended before.
    if !input.is_empty() {
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {errors}\n{input}");
    String::from_utf8(ended.stdout).unwrap()
}

fn number(key: &str, default: u64) -> u64 {
    std::env::var(key).map_or(default, |text| text.parse().unwrap())
}

fn one_of<'a>(random: &mut Random, list: &[&'a str]) -> &'a str {
    list[random.index(list.len())]
}

fn is_true(random: &mut Random, percent: u64) -> bool {
    random.below(100) < percent
}

const ADDRESSES_V4: [[u8; 4]; 6] = [
    [10, 0, 0, 1],
    [10, 0, 1, 9],
    [10, 7, 0, 1],
    [192, 0, 2, 1],
    [198, 51, 100, 5],
    [198, 51, 100, 10],
];
const ADDRESSES_V6: [&str; 5] = [
    "2001:db8::1",
    "2001:db8:0:1::9",
    "2001:db8:1::1",
    "fe80::1",
    "2001:db9::1",
];
const PORTS: [u16; 7] = [22, 25, 53, 80, 5005, 8001, 50_000];

/// Returns a condition on addresses of a version.
fn addresses(random: &mut Random, is_ipv4: bool) -> String {
    let side = one_of(random, &["saddr", "daddr"]);
    let value = match is_ipv4 {
        true => one_of(
            random,
            &[
                "10.0.0.0/8",
                "10.0.0.0/23",
                "10.0.0.1",
                "@admins",
                "!= 10.0.0.0/8",
                "!= 192.0.2.1",
                "10.0.0.0-10.0.0.200",
                "{ 10.0.0.1, 192.0.2.0/24 }",
                "!= { 10.0.0.0/16, 198.51.100.0/24 }",
            ],
        ),
        false => one_of(
            random,
            &[
                "2001:db8::/32",
                "2001:db8::/64",
                "2001:db8::1",
                "@admins6",
                "!= 2001:db8::/48",
                "2001:db8::1-2001:db8:0:2::",
                "{ fe80::/10, 2001:db8:1::1 }",
            ],
        ),
    };
    format!("{} {side} {value} ", if is_ipv4 { "ip" } else { "ip6" })
}

/// Returns a condition on the transport header of a version; `None` is any.
fn transport(random: &mut Random, is_ipv4: Option<bool>) -> String {
    let ports = |random: &mut Random| {
        let side = one_of(random, &["sport", "dport"]);
        let value = one_of(
            random,
            &[
                "22",
                "80",
                "5000-5010",
                "!= 25",
                "!= 50-100",
                "@web",
                "{ 22, 53, 8000-8080 }",
                "!= { 22, 80 }",
            ],
        );
        format!("{side} {value} ")
    };
    match random.below(7) {
        0 | 1 => format!("tcp {}", ports(random)),
        2 => format!("udp {}", ports(random)),
        3 => {
            let flags = [
                "syn / syn,ack",
                "rst",
                "& ack == ack",
                "syn,fin / syn,fin",
                "syn,ack",
            ];
            format!("tcp flags {} ", one_of(random, &flags))
        }
        4 if is_ipv4 != Some(false) => {
            let code = if is_true(random, 40) {
                "icmp code 1 "
            } else {
                ""
            };
            format!(
                "icmp type {} {code}",
                one_of(random, &["echo-request", "3", "0"])
            )
        }
        5 if is_ipv4 != Some(true) => {
            let code = if is_true(random, 40) {
                "icmpv6 code 0 "
            } else {
                ""
            };
            format!(
                "icmpv6 type {} {code}",
                one_of(random, &["echo-request", "1", "135"])
            )
        }
        _ => format!(
            "meta l4proto {} ",
            one_of(random, &["tcp", "udp", "47", "{ tcp, udp }"])
        ),
    }
}

/// Returns a map of verdicts. The rules behind its jumps count.
fn verdicts(random: &mut Random) -> String {
    let map = one_of(
        random,
        &[
            "tcp dport vmap { 22 : jump y, 5000-5010 : jump n, 80 : continue }",
            "ip saddr vmap { 10.0.0.0/23 : jump n, 192.0.2.1 : jump y }",
            "ip6 daddr vmap { 2001:db8::/64 : jump y, fe80::1 : jump n }",
            "meta l4proto vmap { udp : jump n, 47 : jump y }",
        ],
    );
    map.to_owned()
}

fn rule(random: &mut Random) -> String {
    if is_true(random, 8) {
        return verdicts(random);
    }
    let mut text = String::new();
    if is_true(random, 15) {
        text += &format!(
            "ether saddr {} ",
            one_of(random, &["02:00:00:00:00:01", "@macs"])
        );
    }
    if is_true(random, 15) {
        text += &format!("vlan id {} ", one_of(random, &["7", "{ 7, 9 }"]));
    }
    let version = match random.below(10) {
        0..4 => Some(true),
        4..7 => Some(false),
        _ => None,
    };
    match version {
        Some(is_ipv4) => {
            text += &addresses(random, is_ipv4);
            if is_true(random, 20) {
                let family = if is_ipv4 { "ip" } else { "ip6" };
                text += &format!(
                    "{family} dscp {} ",
                    one_of(random, &["ef", "af11", "cs0", "3"])
                );
            }
        }
        None if is_true(random, 20) => {
            text += &format!("meta protocol {} ", one_of(random, &["ip", "ip6", "arp"]));
            return format!("{text}counter {}", one_of(random, &["accept", "drop"]));
        }
        None => {}
    }
    if version.is_none() || is_true(random, 60) {
        text += &transport(random, version);
    }
    // A rule on one of several flags must decide: as a rule that only counts, it cannot be imported.
    if is_true(random, 15) && !text.is_empty() && !text.contains("tcp flags syn,ack ") {
        return format!("{text}counter");
    }
    // Statements behind the counter: a reject answers by the device, and a new DSCP is behind all comparisons.
    let verdicts: &[&str] = match version {
        Some(true) => &[
            "accept",
            "drop",
            "reject with icmpx admin-prohibited",
            "ip dscp set af21 accept",
        ],
        Some(false) => &["accept", "drop", "ip6 dscp set af21 accept"],
        None => &["accept", "drop"],
    };
    format!("{text}counter {}", one_of(random, verdicts))
}

fn ruleset(random: &mut Random) -> String {
    let rules: Vec<String> = (0..1 + random.below(30)).map(|_| rule(random)).collect();
    format!(
        "flush ruleset
table netdev t {{
    set admins {{ type ipv4_addr; flags interval; elements = {{ 192.0.2.0/24, 198.51.100.1-198.51.100.9 }}; }}
    set admins6 {{ type ipv6_addr; flags interval; elements = {{ 2001:db8:1::/48, fe80::1 }}; }}
    set web {{ type inet_service; flags interval; elements = {{ 80, 8000-8080 }}; }}
    set macs {{ type ether_addr; elements = {{ 02:00:00:00:00:01, 02:00:00:00:00:03 }}; }}
    chain y {{
        counter accept
    }}
    chain n {{
        counter drop
    }}
    chain c {{
        type filter hook ingress device \"qw-nft1\" priority 0; policy accept;
        {}
        counter accept
    }}
}}
",
        rules.join("\n        ")
    )
}

/// Returns protocol and transport header.
fn payload(random: &mut Random, is_ipv4: bool) -> (u8, Vec<u8>) {
    let port = |random: &mut Random| PORTS[random.index(PORTS.len())].to_be_bytes();
    let (source, destination) = (port(random), port(random));
    let ports = [source, destination].concat();
    match random.below(8) {
        0..3 => {
            let flags = [0x02, 0x12, 0x10, 0x04, 0x03, 0x18, 0x00][random.index(7)];
            let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0];
            (6, [&ports[..], &rest].concat())
        }
        3..5 => (17, [&ports[..], &[0, 12, 0, 0, 1, 2, 3, 4]].concat()),
        5..7 => {
            let kinds: [u8; 4] = if is_ipv4 {
                [8, 3, 0, 11]
            } else {
                [128, 1, 135, 2]
            };
            let kind = kinds[random.index(4)];
            let code = [0, 1, 3][random.index(3)];
            let octets = [&[kind, code][..], &[0; 30]].concat();
            (if is_ipv4 { 1 } else { 58 }, octets)
        }
        _ => (47, vec![0; 16]),
    }
}

fn dscp(random: &mut Random) -> u8 {
    [46, 10, 0, 0, 3][random.index(5)]
}

fn ipv4(random: &mut Random) -> Vec<u8> {
    let address =
        |random: &mut Random| Ipv4Addr::from(ADDRESSES_V4[random.index(ADDRESSES_V4.len())]);
    let (source, destination) = (address(random), address(random));
    let (protocol, payload) = payload(random, true);
    let options = if is_true(random, 10) {
        vec![1, 1, 1, 1]
    } else {
        Vec::new()
    };
    // A later fragment, behind the longest header. It has no ports and types for the filter. At the hook of a device, kernels compare the
    // octets in their place (observed with Linux 6.18), so that only other protocols can be compared.
    let has_fields = matches!(protocol, 1 | 6 | 17);
    let offset = if is_true(random, 8) && !has_fields {
        100u16
    } else {
        0
    };
    let length = u16::try_from(20 + options.len() + payload.len()).unwrap();
    let words = 5 + u8::try_from(options.len() / 4).unwrap();
    let mut packet = vec![0x40 | words, dscp(random) << 2];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(offset.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    [packet, options, payload].concat()
}

fn ipv6(random: &mut Random) -> Vec<u8> {
    let address =
        |random: &mut Random| -> Ipv6Addr { one_of(random, &ADDRESSES_V6).parse().unwrap() };
    let (source, destination) = (address(random), address(random));
    let (protocol, payload) = payload(random, false);
    // Destination options or a later fragment, of protocols as in `ipv4`.
    let has_fields = matches!(protocol, 6 | 17 | 58);
    let (next, extension) = match random.below(12) {
        0 => (60, vec![protocol, 0, 1, 4, 0, 0, 0, 0]),
        1 if !has_fields => (44, vec![protocol, 0, 3, 0x20, 0, 0, 0, 1]),
        _ => (protocol, Vec::new()),
    };
    let length = u16::try_from(extension.len() + payload.len()).unwrap();
    let dscp = dscp(random);
    let mut packet = vec![0x60 | (dscp >> 2), dscp << 6, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    [packet, extension, payload].concat()
}

/// Returns a frame. Some have a VLAN tag.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, [1, 2, 3][random.index(3)]];
    if is_true(random, 20) {
        frame.extend([0x81, 0, 0, [7, 9, 11][random.index(3)]]);
    }
    match random.below(10) {
        0..5 => {
            frame.extend([8, 0]);
            frame.extend(ipv4(random));
        }
        5..9 => {
            frame.extend([0x86, 0xdd]);
            frame.extend(ipv6(random));
        }
        _ => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend([0; 20]);
        }
    }
    frame
}

/// Returns frames as the filter reads them.
fn received(burst: &[Vec<u8>]) -> impl Iterator<Item = (&[u8], u32)> {
    let length = |frame: &Vec<u8>| u32::try_from(frame.len()).unwrap();
    burst.iter().map(move |frame| (&frame[..], length(frame)))
}

/// Returns the frames that each rule counts in the filter, by the handle of the rule in nftables.
fn filtered(seed: u64, json: &str, frames: &[Vec<u8>]) -> BTreeMap<u64, Vec<Vec<u8>>> {
    let failed = |reason: String| format!("QUIETWIRE_SEED={seed}: {reason}\n{json}");
    let imported = Imported::parse(json, Hook::Ingress).unwrap();
    let missing = &imported.missing;
    assert!(missing.is_empty(), "{}", failed(format!("{missing:?}")));
    let sets: Vec<Vec<Element>> = imported
        .sets
        .iter()
        .map(|set| set.elements.clone())
        .collect();
    let number = |(field, name): (SetField, &SetName)| {
        let place = imported.sets.iter().position(|set| set.name == *name);
        (field, u32::try_from(place.unwrap()).unwrap())
    };
    let rules = imported.rules.iter().map(|rule| PortRule {
        port: None,
        group: None,
        vlan: rule.vlan.map(|vlan| vlan.get()),
        packet: rule.packet.packet(),
        further: rule.packet.further(),
        sets: rule.packet.sets().map(number).collect(),
        ct_states: rule.ct_state,
        mark: rule.ct_mark,
        label: rule.ct_label,
        action: rule.action,
        frames: Arc::default(),
    });
    let rules: Vec<PortRule> = rules.collect();
    let table = RuleTable::with_sets(rules, &sets, Fallback::default());
    let port = PortRules::new(Arc::new(table), 0, None);
    let mut decided = BTreeMap::new();
    for burst in frames.chunks(BURST_MAX) {
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let mut continued = Continued::default();
        port.judge(received(burst), (&mut verdicts, Some(&mut continued)));
        for (number, (verdict, frame)) in verdicts.iter().zip(burst).enumerate() {
            let Verdict::Rule(rule, _) = verdict else {
                panic!("{}", failed(format!("{verdict:?}: {frame:02x?}")));
            };
            let passed = continued.of(number);
            let found = (Some(*rule), passed.to_vec());
            let plain = linear::search(&imported.rules, &imported.sets, frame);
            let reason = || format!("rules {found:?}, one by one {plain:?} of {frame:02x?}");
            assert!(found == plain, "{}", failed(reason()));
            for rule in passed.iter().chain([rule]) {
                let name = &imported.rules[*rule as usize].name;
                let (_, handle) = name.split_once('-').unwrap();
                let handle = handle.split('.').next().unwrap().parse().unwrap();
                let decided: &mut Vec<Vec<u8>> = decided.entry(handle).or_default();
                decided.push(frame.clone());
            }
        }
    }
    decided
}

/// Returns the counters of all rules that count, after all frames have met a rule with a verdict; `None` if some do not arrive.
fn counted(namespace: &Namespace, text: &str, frames: &[Vec<u8>]) -> Option<Counts> {
    output(namespace.command("nft").args(["-f", "-"]), text);
    namespace.send(frames);
    let began = Instant::now();
    while namespace.counters().1 < frames.len() as u64 {
        if began.elapsed() >= DEADLINE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // The counters of one listing are of different moments. Only now have all of them their last value.
    Some(namespace.counters().0)
}

/// Numbers of frames by the handle of the rule.
type Counts = BTreeMap<u64, u64>;

/// Returns the rules whose counters differ, and the frames that they count in the filter. Short parts are in front.
fn differences(ours: &BTreeMap<u64, Vec<Vec<u8>>>, kernel: &Counts) -> Option<String> {
    let handles: BTreeSet<u64> = ours.keys().chain(kernel.keys()).copied().collect();
    let count = |handle: &u64| ours.get(handle).map_or(0, |frames| frames.len() as u64);
    let differ = |handle: &u64| count(handle) != kernel.get(handle).copied().unwrap_or(0);
    let handles: Vec<u64> = handles.into_iter().filter(differ).collect();
    let lines = handles.iter().take(DIFFERENCES_MAX).map(|handle| {
        let of_kernel = kernel.get(handle).copied().unwrap_or(0);
        format!("rule {handle}: {} here, {of_kernel} there", count(handle))
    });
    let lines: Vec<String> = lines.collect();
    let frames: Vec<_> = handles
        .iter()
        .filter_map(|handle| ours.get(handle))
        .collect();
    (!handles.is_empty()).then(|| format!("{}\n{frames:02x?}", lines.join("; ")))
}

/// Compares the counters of a seed. The first line of a failure names the seed.
fn compare(namespace: &Namespace, seed: u64, frames: u64) {
    let mut random = Random::new(seed);
    let text = ruleset(&mut random);
    let frames: Vec<Vec<u8>> = (0..frames).map(|_| frame(&mut random)).collect();
    // Kernels drop frames if the queue of a CPU is full.
    let kernel = (0..ATTEMPTS).find_map(|_| counted(namespace, &text, &frames));
    let kernel = kernel.unwrap_or_else(|| panic!("QUIETWIRE_SEED={seed}: frames are lost\n{text}"));
    let json = namespace.list();
    let decided = filtered(seed, &json, &frames);
    if let Some(differences) = differences(&decided, &kernel) {
        panic!("QUIETWIRE_SEED={seed}: {differences}\n{json}\n{text}");
    }
}

#[test]
fn generated_rulesets_decide_as_those_of_the_kernel_do() {
    let (rulesets, frames) = (
        number("QUIETWIRE_NFT_RULESETS", RULESETS),
        number("QUIETWIRE_NFT_FRAMES", FRAMES),
    );
    let start = number("QUIETWIRE_SEED", u64::from(std::process::id()));
    let namespace = Namespace::new();
    for seed in start..start + rulesets {
        compare(&namespace, seed, frames);
    }
}

#[test]
fn a_plain_search_finds_the_first_rule() {
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n\
                -A FORWARD -p tcp -m tcp --dport 80 --tcp-flags SYN,ACK SYN -j ACCEPT\n\
                -A FORWARD -p tcp -j LOG\n\
                -A FORWARD -s 10.0.0.0/8 -j DROP\nCOMMIT\n";
    let imported = Imported::parse(text, Hook::Forward).unwrap();
    let found = |source: [u8; 4], port: u8, flags: u8| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(source);
        frame.extend([192, 0, 2, 1, 4, 0, 0, port]);
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        linear::search(&imported.rules, &imported.sets, &frame)
    };
    assert_eq!(found([10, 0, 0, 1], 80, 0x02), (Some(0), vec![]));
    assert_eq!(found([10, 0, 0, 1], 80, 0x12), (Some(2), vec![1]));
    assert_eq!(found([10, 0, 0, 1], 22, 0x02), (Some(2), vec![1]));
    assert_eq!(found([192, 0, 2, 9], 22, 0x02), (None, vec![1]));
}

#[test]
fn differences_of_counters_are_named() {
    let ours = BTreeMap::from([(3, vec![vec![1], vec![2]]), (4, vec![vec![3]])]);
    assert_eq!(differences(&ours, &BTreeMap::from([(3, 2), (4, 1)])), None);
    let text = differences(&ours, &BTreeMap::from([(3, 2), (5, 7)])).unwrap();
    assert_eq!(
        text,
        "rule 4: 1 here, 0 there; rule 5: 0 here, 7 there\n[[[03]]]"
    );
}
