// SPDX-License-Identifier: Apache-2.0
//! Cost of the packet filter by the number of its rules, and the time of its changes.
//!
//! `cargo bench -p quietwire --bench filter_scale` prints, for no rule to 100,000 rules, the forwarding rate of a
//! cross-connect with the smallest frames and the cycles of the filter alone: frames of one flow, which no rule matches,
//! frames that different rules decide on, and a scan of a million addresses. With the most rules, it also prints the same
//! with connection tracking, where every frame of the scan begins a connection, without a limit of new connections. With this limit, it
//! prints what 50,000 known flows get alone, and beside as many frames of a scan, in turns at one switch. Changes of rules
//! and of a set of 10,000 elements are timed from the request to the answer, which the switch sends once the change is in
//! force in the forwarding thread. One forwarding CPU; memif. Requires root and a quiet machine. `-- --help` lists the options.
//!
//! Open vSwitch on DPDK (Debian's openvswitch-switch-dpdk, if it is installed) has as many flows that do the same, over
//! vhost-user. It does not count the cycles of its lookups: `of those, filter` is what a frame costs more than with one flow. VPP (if
//! `vpp` and `vppctl` are in PATH) has a list of the same rules at a cross-connect, over memif; `of those, filter` is its acl-plugin node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use common::device::Device;
use common::known;
use common::lcg::Lcg;
use common::ovs::{self, OpenVSwitch};
use common::record::{Absent, Figure, Point, Run, Side};
use common::switch::{self, Kind, Switch};
use common::vpp::{self, Vpp};
use common::words::{VPP, grouped};
use common::{Load, Machine, Options};
use quietwire_switch::config::Change;
use quietwire_switch::config::rules::{Element, RuleSetting, SetName};
use quietwire_switch::control::{Request, ask};
use serde::de::IgnoredAny;

const RULES: [u32; 5] = [0, 10, 1000, 10_000, 100_000];
const RULES_QUICK: [u32; 2] = [0, 1000];
/// Rules of VPP.
const RULES_VPP: [u32; 2] = [10, 1000];
const ROUNDS: u32 = 5;
/// Addresses of a scan.
const SCANNED: u32 = 1_000_000;
/// Known flows beside a scan, one to each network of the most rules.
const KNOWN: u32 = 50_000;
/// Elements of the set that changes, and changes of a round.
const ELEMENTS: u32 = 10_000;
const CHANGES: u32 = 50;
/// Rules beside one that changes, without the most.
const BESIDE: [u32; 2] = [0, 10_000];
/// Changes of a rule in a round.
const RULE_CHANGES: u32 = 20;
/// First network of the tester's destinations, and of the elements.
const NETWORKS: u32 = 0x1000_0000;
const INSIDE: u32 = 0x0a00_0000;
const QUIETWIRE: &str = "quietwire";
const OPEN_VSWITCH: &str = "Open vSwitch, vhost-user";
/// Time for Open vSwitch to set up its ports and flows again after the tester has connected.
const SETTLE: [&str; 4] = ["--settle", "4s", "--learning-time", "4s"];

/// Frames that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    OneFlow,
    EachRule,
    Scan,
}

impl Traffic {
    const ALL: [Self; 3] = [Self::OneFlow, Self::EachRule, Self::Scan];

    fn name(self) -> &'static str {
        match self {
            Self::OneFlow => "one flow",
            Self::EachRule => "another rule for each frame",
            Self::Scan => "scan",
        }
    }

    /// Returns the number of the tester's destinations.
    fn destinations(self, rules: u32) -> u32 {
        match self {
            Self::OneFlow => 1,
            Self::EachRule => (rules / 2).max(2),
            Self::Scan => SCANNED,
        }
    }
}

/// A filter and its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filter {
    rules: u32,
    traffic: Traffic,
    is_tracked: bool,
}

/// Known flows behind a filter, alone and beside as many frames of a scan, in turns at one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beside {
    rules: u32,
    is_tracked: bool,
}

/// Measurement of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Filter(Filter),
    Beside(Beside),
    /// Open vSwitch with flows that do the same.
    OpenVSwitch(Filter),
    /// VPP with the same rules.
    Vpp(Filter),
    /// Changes with this number of rules beside the one that changes.
    Changes(u32),
}

impl Case {
    /// Returns the points that a turn of the case measures.
    fn points(self) -> Vec<Point> {
        match self {
            Self::Filter(filter) => vec![filter.point()],
            Self::Beside(beside) => [false, true].map(|scan| beside.point(scan)).to_vec(),
            Self::OpenVSwitch(filter) => vec![filter.peer_point(OPEN_VSWITCH)],
            Self::Vpp(filter) => vec![filter.peer_point(VPP)],
            Self::Changes(others) => {
                let points = [ELEMENT, RULE, ADDED].map(|what| change_point(others, what));
                points.to_vec()
            }
        }
    }
}

const FILTER_FIGURES: [Figure; 8] = [
    Figure::ForwardedPps,
    Figure::CyclesAFrame,
    Figure::FilterCyclesAFrame,
    Figure::MoreThanOneRuleCycles,
    Figure::LoadedS,
    Figure::CompileMs,
    Figure::SwapMs,
    Figure::OctetsARule,
];
const PEER_FIGURES: [Figure; 4] = [
    Figure::ForwardedPps,
    Figure::CyclesAFrame,
    Figure::FilterCyclesAFrame,
    Figure::LoadedS,
];
const OVS_FIGURES: [Figure; 4] = [
    Figure::ForwardedPps,
    Figure::CyclesAFrame,
    Figure::MoreThanOneRuleCycles,
    Figure::LoadedS,
];
const CHANGE_FIGURES: [Figure; 3] = [Figure::P50Us, Figure::P99Us, Figure::MaxUs];

impl Filter {
    fn point(self) -> Point {
        let tracking = if self.is_tracked {
            " and connection tracking"
        } else {
            ""
        };
        Point {
            group: format!("rules{tracking}, {}", self.traffic.name()),
            case: format!(
                "{} rules{tracking}, {}",
                grouped(u64::from(self.rules)),
                self.traffic.name()
            ),
            size: (self.rules > 0).then_some(u64::from(self.rules)),
            side: QUIETWIRE.to_owned(),
        }
    }

    fn peer_point(self, side: &str) -> Point {
        Point {
            side: side.to_owned(),
            ..self.point()
        }
    }

    fn measure(self, directory: &Path, options: &Options, run: &mut Run) {
        let config = directory.with_extension("toml");
        let mut more = vec!["--cross-connect", "p0,p1"];
        if self.is_tracked {
            let section = "[connections]\nmax-entries = 500000\nnew-share = 100\n";
            fs::write(&config, section).unwrap();
            more.extend(["--config", config.to_str().unwrap()]);
        }
        let switch = Switch::start(directory, Kind::Memif, 2, &more);
        let loaded_s = replace(&switch, directory, &rules(self.rules));
        let destinations = self.traffic.destinations(self.rules).to_string();
        let load = Load {
            ports: [0, 1].map(|port| switch.tester_uri(port)),
            seconds: options.seconds(),
            more: &["--destinations", &destinations],
            connect: None,
        };
        let point = self.point();
        run.add(&point, Figure::ForwardedPps, Some(load.rate()));
        run.add(&point, Figure::CyclesAFrame, switch.cycles_a_frame());
        let filter = switch.filter_cycles_a_frame();
        run.add(&point, Figure::FilterCyclesAFrame, filter);
        run.add(&point, Figure::LoadedS, Some(loaded_s));
        let of_rules = (self.rules > 0).then(|| OfRules::read(&switch));
        run.add(
            &point,
            Figure::CompileMs,
            of_rules.map(|one| one.compile_ms),
        );
        run.add(&point, Figure::SwapMs, of_rules.map(|one| one.swap_ms));
        let octets = of_rules.map(|one| one.octets / f64::from(self.rules));
        run.add(&point, Figure::OctetsARule, octets);
        if self.traffic == Traffic::EachRule && self.rules > 0 {
            let of_one = of_one_rule(&switch, directory, &load);
            let more = filter.zip(of_one).map(|(all, one)| all - one);
            run.add(&point, Figure::MoreThanOneRuleCycles, more);
        }
    }
}

impl Beside {
    fn point(self, is_scanned: bool) -> Point {
        let tracking = if self.is_tracked {
            " and connection tracking"
        } else {
            ""
        };
        let rules = grouped(u64::from(self.rules));
        let known = grouped(u64::from(KNOWN));
        let scan = if is_scanned {
            "beside as many frames of a scan"
        } else {
            "alone"
        };
        Point {
            group: "as many frames of a scan as of known flows".to_owned(),
            case: format!("{rules} rules{tracking}, {known} known flows {scan}"),
            size: None,
            side: QUIETWIRE.to_owned(),
        }
    }

    fn measure(self, directory: &Path, (options, turns): (&Options, &mut Lcg), run: &mut Run) {
        let config = directory.with_extension("toml");
        let mut more = vec!["--cross-connect", "p0,p1"];
        if self.is_tracked {
            // The scan has so few entries that nearly each of its frames begins a connection.
            let entries = KNOWN + KNOWN / 16;
            fs::write(&config, format!("[connections]\nmax-entries = {entries}\n")).unwrap();
            more.extend(["--config", config.to_str().unwrap()]);
        }
        let device = Device {
            switch: Switch::start(directory, Kind::Memif, 2, &more),
            directory: directory.to_owned(),
            seconds: options.seconds(),
        };
        replace(&device.switch, directory, &rules(self.rules));
        if self.is_tracked {
            let known = device.describe("known.toml", &known::to_networks(16, KNOWN));
            device.fill(&known, "both", u64::from(KNOWN));
            let total = device.number("total");
            assert!(total <= f64::from(KNOWN), "{total} connections");
        }
        let loads = known::measure(&device, (KNOWN, self.is_tracked), turns);
        for (is_scanned, values) in [false, true].into_iter().zip(loads) {
            let point = self.point(is_scanned);
            for (figure, value) in known::FIGURES.into_iter().zip(values) {
                run.add(&point, figure, value);
            }
        }
    }
}

/// Measures Open vSwitch with one flow, and with as many more as the filter has rules.
fn measure_peer(filter: Filter, directory: &Path, options: &Options, run: &mut Run) {
    let ovs = OpenVSwitch::start(directory, 2);
    let destinations = filter.traffic.destinations(filter.rules).to_string();
    let more = [&SETTLE[..], &["--destinations", destinations.as_str()]].concat();
    let load = || {
        ovs.raise_flow_limit();
        ovs.clear_cycles();
        let load = Load {
            ports: [0, 1].map(|port| ovs.tester_uri(port)),
            seconds: options.seconds(),
            more: &more,
            connect: None,
        };
        (load.rate(), ovs.cycles_a_frame())
    };
    ovs.replace_flows(&flows(0));
    let (_, without) = load();
    let began = Instant::now();
    ovs.replace_flows(&flows(filter.rules));
    let loaded_s = began.elapsed().as_secs_f64();
    let (rate, cycles) = load();
    let point = filter.peer_point(OPEN_VSWITCH);
    let more = cycles.zip(without).map(|(with, without)| with - without);
    run.add(&point, Figure::ForwardedPps, Some(rate));
    run.add(&point, Figure::CyclesAFrame, cycles);
    run.add(&point, Figure::MoreThanOneRuleCycles, more);
    run.add(&point, Figure::LoadedS, Some(loaded_s));
}

/// Measures VPP, whose list permits all frames that no other rule matches.
fn measure_vpp(filter: Filter, directory: &Path, options: &Options, run: &mut Run) {
    let vpp = Vpp::start(directory, &[vpp::ACL], "");
    vpp.cross_connect();
    let began = Instant::now();
    vpp.filter(&acl(filter.rules), filter.rules + 1);
    let loaded_s = began.elapsed().as_secs_f64();
    let destinations = filter.traffic.destinations(filter.rules).to_string();
    let more = ["--destinations", destinations.as_str()];
    let rate = vpp.with_load(options.seconds(), &more, |load| load.rate());
    let point = filter.peer_point(VPP);
    run.add(&point, Figure::ForwardedPps, Some(rate));
    run.add(&point, Figure::CyclesAFrame, vpp.cycles_a_frame());
    let filter = vpp.filter_cycles_a_frame();
    run.add(&point, Figure::FilterCyclesAFrame, filter);
    run.add(&point, Figure::LoadedS, Some(loaded_s));
}

/// Returns network and port of a rule.
fn network_and_port(number: u32) -> (Ipv4Addr, u32) {
    let network = Ipv4Addr::from_bits(NETWORKS + ((number / 2) << 8));
    (network, 1024 + number % 50_000)
}

/// Returns flows of Open vSwitch that do as [`rules`] do: no two of them match the same packets, so that one priority is enough.
fn flows(count: u32) -> String {
    let mut text = "priority=1,in_port=p0,actions=output:p1\n".to_owned();
    for number in 0..count {
        let (network, port) = network_and_port(number);
        let (matched, action) = match number % 2 {
            0 => (format!("udp,nw_dst={network}/24"), "output:p1"),
            _ => (format!("tcp,nw_dst={network}/24,tp_dst={port}"), "drop"),
        };
        writeln!(text, "priority=2,in_port=p0,{matched},actions={action}").unwrap();
    }
    text
}

/// Returns a list of VPP's rules that does as [`rules`] do: the last rule permits all other packets.
fn acl(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (network, port) = network_and_port(number);
        match number % 2 {
            0 => write!(text, "permit dst {network}/24 proto 17, "),
            _ => write!(text, "deny dst {network}/24 proto 6 dport {port}, "),
        }
        .unwrap();
    }
    text + "permit src 0.0.0.0/0 dst 0.0.0.0/0"
}

/// Returns the rules as a file: in turns one that accepts the UDP packets to a network, and one that drops TCP packets to a port there. The
/// networks are those of the tester, in its order.
fn rules(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (network, port) = network_and_port(number);
        let (action, rest) = match number % 2 {
            0 => ("accept", "protocol = \"udp\"".to_owned()),
            _ => (
                "drop",
                format!("protocol = \"tcp\"\ndestination-port = \"{port}\""),
            ),
        };
        write!(
            text,
            "[[rule]]\nname = \"r{number}\"\naction = \"{action}\"\ndestination = \"{network}/24\"\n{rest}\n"
        )
        .unwrap();
    }
    text
}

/// Replaces the rules. Returns the time that the command took, seconds.
fn replace(switch: &Switch, directory: &Path, rules: &str) -> f64 {
    let file = directory.join("rules.toml");
    fs::write(&file, rules).unwrap();
    let began = Instant::now();
    assert!(switch.command(&["rules", "replace", file.to_str().unwrap()]));
    began.elapsed().as_secs_f64()
}

/// Returns the cycles of the filter per frame of the same load with one rule, which matches all frames.
fn of_one_rule(switch: &Switch, directory: &Path, load: &Load<'_>) -> Option<f64> {
    let before = switch.filter_work()?;
    replace(
        switch,
        directory,
        "[[rule]]\nname = \"all\"\naction = \"accept\"\n",
    );
    load.rate();
    let after = switch.filter_work()?;
    after.since(before).cycles_a_frame()
}

/// Numbers that the switch reports about its rules.
#[derive(Clone, Copy)]
struct OfRules {
    /// Memory of the compiled rules.
    octets: f64,
    /// Compilation of all rules.
    compile_ms: f64,
    /// From then on until the forwarding thread has them.
    swap_ms: f64,
}

impl OfRules {
    fn read(switch: &Switch) -> Self {
        let mut command = Command::new(common::QUIETWIRE);
        command.args(["switch", "show", "rules", "--json", "--control-socket"]);
        let output = command.arg(switch.control_socket()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |key: &str| report[key].as_f64().expect(key);
        Self {
            octets: number("octets"),
            compile_ms: number("compile_us") / 1000.0,
            swap_ms: number("swap_us") / 1000.0,
        }
    }
}

fn change_point(others: u32, what: &str) -> Point {
    let others = grouped(u64::from(others));
    Point {
        group: format!("from the request to the answer, {CHANGES} changes of elements a round"),
        case: format!("{what}, {others} other rules"),
        size: None,
        side: QUIETWIRE.to_owned(),
    }
}

const ELEMENT: &str = "an element of 10,000";
const RULE: &str = "a rule";
const ADDED: &str = "a rule added or removed";

/// Times changes of a set and of a rule.
fn measure_changes(others: u32, directory: &Path, run: &mut Run) {
    let switch = Switch::start(directory, Kind::Memif, 2, &["--cross-connect", "p0,p1"]);
    let address = |number: u32| Ipv4Addr::from_bits(INSIDE + 7 * number).to_string();
    let elements: Vec<String> = (0..ELEMENTS)
        .map(|number| format!("\"{}\"", address(number)))
        .collect();
    let set = format!(
        "[[set]]\nname = \"inside\"\ntype = \"ipv4_addr\"\nelements = [{}]\n\
         [[rule]]\nname = \"inside\"\naction = \"drop\"\nsource = \"@inside\"\n{}",
        elements.join(", "),
        rules(others)
    );
    replace(&switch, directory, &set);
    let socket = switch.control_socket();
    let request = |change: Change| {
        let began = Instant::now();
        ask::<IgnoredAny>(&socket, &Request::Change(Box::new(change))).unwrap();
        began.elapsed().as_secs_f64() * 1e6
    };
    let name = || -> SetName { "inside".parse().unwrap() };
    let mut times = Vec::new();
    for number in 0..CHANGES / 2 {
        let elements = || -> Vec<Element> { vec![address(ELEMENTS + number).parse().unwrap()] };
        times.push(request(Change::AddElements {
            set: name(),
            elements: elements(),
            timeout_s: None,
        }));
        times.push(request(Change::DelElements {
            set: name(),
            elements: elements(),
        }));
    }
    record(run, &change_point(others, ELEMENT), times);
    let rule = |number: u32| -> RuleSetting {
        let rule = serde_json::json!({
            "name": "inside", "action": "drop", "protocol": "udp", "source": "@inside",
            "destination-port": (number + 1).to_string(),
        });
        serde_json::from_value(rule).unwrap()
    };
    let times = (0..RULE_CHANGES).map(|number| request(Change::SetRule(rule(number))));
    record(run, &change_point(others, RULE), times.collect());
    // In the middle of the others, and not where the last change was.
    let mut times = Vec::new();
    for number in 0..RULE_CHANGES / 2 {
        let name = format!("added {number}");
        let middle = others / 2 + number;
        times.push(request(Change::AddRule {
            rule: RuleSetting {
                name: name.clone(),
                ..rule(number)
            },
            before: (middle < others).then(|| format!("r{middle}")),
        }));
        times.push(request(Change::DelRule { name }));
    }
    record(run, &change_point(others, ADDED), times);
}

/// Adds the percentiles of a round's times.
fn record(run: &mut Run, point: &Point, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
    for (figure, share) in CHANGE_FIGURES.into_iter().zip([0.5, 0.99, 1.0]) {
        run.add(point, figure, Some(at(share)));
    }
}

fn cases(options: &Options) -> Vec<Case> {
    let sizes = if options.quick {
        &RULES_QUICK[..]
    } else {
        &RULES
    };
    let most = sizes.last().copied().unwrap_or(0);
    let filter = |rules: u32, traffic: Traffic, is_tracked: bool| {
        Case::Filter(Filter {
            rules,
            traffic,
            is_tracked,
        })
    };
    let mut cases = Vec::new();
    for traffic in Traffic::ALL {
        cases.extend(sizes.iter().map(|rules| filter(*rules, traffic, false)));
    }
    cases.extend([Traffic::OneFlow, Traffic::Scan].map(|traffic| filter(most, traffic, true)));
    for is_tracked in [false, true] {
        cases.push(Case::Beside(Beside {
            rules: most,
            is_tracked,
        }));
    }
    if ovs::is_installed() {
        let with_rules = sizes.iter().copied().filter(|rules| *rules > 0);
        cases.extend(with_rules.map(|rules| {
            Case::OpenVSwitch(Filter {
                rules,
                traffic: Traffic::EachRule,
                is_tracked: false,
            })
        }));
    }
    if vpp::is_installed() {
        let with_rules = RULES_VPP.into_iter().filter(|rules| sizes.contains(rules));
        cases.extend(with_rules.map(|rules| {
            Case::Vpp(Filter {
                rules,
                traffic: Traffic::EachRule,
                is_tracked: false,
            })
        }));
    }
    let beside = BESIDE.into_iter().filter(|rules| *rules < most);
    // One rule has the set, and one is added: a switch has at most 100,000.
    cases.extend(beside.chain([most - 2]).map(Case::Changes));
    cases.retain(|case| match case {
        Case::Filter(filter) => options.wants(&filter.point().case),
        Case::Beside(beside) => options.wants(&beside.point(true).case),
        Case::OpenVSwitch(filter) => {
            options.wants(OPEN_VSWITCH) || options.wants(&filter.point().case)
        }
        Case::Vpp(filter) => options.wants(VPP) || options.wants(&filter.point().case),
        Case::Changes(_) => options.wants("changes"),
    });
    cases
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let mut run = common::begin(&options, "filter_scale", rounds, options.seconds());
    run.sides.push(switch::side(QUIETWIRE));
    let cases = cases(&options);
    let has_vpp = cases.iter().any(|case| matches!(case, Case::Vpp(_)));
    let notes = "cross-connect, a list of the same rules and one for all other frames";
    vpp::declare(&mut run, has_vpp, notes);
    let has_peer = cases
        .iter()
        .any(|case| matches!(case, Case::OpenVSwitch(_)));
    match has_peer {
        true => run.sides.push(Side {
            notes: "netdev bridge, a flow for each rule and one for all other frames, flows stay; rings as its defaults are".to_owned(),
            ..ovs::side(OPEN_VSWITCH)
        }),
        false => run.absent.push(Absent {
            side: OPEN_VSWITCH.to_owned(),
            reason: "not installed (Debian's openvswitch-switch-dpdk), or not selected".to_owned(),
        }),
    }
    for case in &cases {
        match case {
            Case::Filter(filter) => run.expect(&filter.point(), &FILTER_FIGURES),
            Case::Beside(_) => {
                for point in case.points() {
                    run.expect(&point, &known::FIGURES);
                }
            }
            Case::OpenVSwitch(filter) => {
                run.expect(&filter.peer_point(OPEN_VSWITCH), &OVS_FIGURES);
            }
            Case::Vpp(filter) => run.expect(&filter.peer_point(VPP), &PEER_FIGURES),
            Case::Changes(others) => {
                for what in [ELEMENT, RULE, ADDED] {
                    run.expect(&change_point(*others, what), &CHANGE_FIGURES);
                }
            }
        }
    }
    let mut turns = options.turns();
    for round in 0..rounds {
        for index in turns.order(cases.len()) {
            let own = directory.path().join(format!("{round}-{index}"));
            let case = cases[index];
            run.turn(&case.points(), |run| match case {
                Case::Filter(filter) => filter.measure(&own, &options, run),
                Case::Beside(beside) => beside.measure(&own, (&options, &mut turns), run),
                Case::OpenVSwitch(filter) => measure_peer(filter, &own, &options, run),
                Case::Vpp(filter) => measure_vpp(filter, &own, &options, run),
                Case::Changes(others) => measure_changes(others, &own, run),
            });
            // A turn that failed may have made no directory.
            let _ = fs::remove_dir_all(&own);
        }
    }
    common::finish(&options, run);
}
