// SPDX-License-Identifier: Apache-2.0
//! Connection tracking, NAT and load balancing of the whole switch by the number of connections, and beside attacks.
//!
//! `cargo bench -p quietwire --bench tracker_scale` prints the forwarding rate and the cycles a frame of one forwarding CPU with
//! the smallest frames: 1 to 1,000,000 tracked UDP flows, 60,000 flows behind source NAT and a load balancer, and the cycles of a
//! frame that begins a connection. With full tables of up to 4,000,000 connections, it prints the memory of one and the time of
//! `connections restore`. Alone, and beside a scan of all ports, as many frames of a scan and a flood of SYNs, it prints what established
//! connections get, and with short connections the highest rate by RFC 9411, section 7.2, with and without tracking. With four CPUs, two of
//! them forward too. Memif. Requires root and a quiet machine. `-- --help` lists the options.
//!
//! Open vSwitch on DPDK (Debian's openvswitch-switch-dpdk, if it is installed) tracks the same flows, over vhost-user. VPP (if `vpp` and
//! `vppctl` are in PATH) translates the same flows, over memif, by its plugin nat44-ed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "tracker_scale/flows.rs"]
mod flows;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use common::device::{Device, FILL_S, FILLS};
use common::goals::{
    BALANCED, BESIDE_NEW, NEW_TRACKED, NEW_TRANSLATED, SCANNED, SOURCE_NAT, TRACKED_NAT,
    UNDER_FLOOD, WITHOUT_FLOOD, WITHOUT_NEW,
};
use common::known;
use common::lcg::Lcg;
use common::ovs::{self, OpenVSwitch};
use common::packets::Packets;
use common::record::{Absent, Figure, Point, Run, Side};
use common::switch::{self, Kind, Link, Switch, Work};
use common::vpp::{self, Vpp};
use common::words::{VPP, grouped};
use common::{Load, Machine, Options, RING_SIZE, TESTER_CPU};
use serde_json::Value;

const TRACKED: [u32; 3] = [1, 60_000, 1_000_000];
const TRACKED_QUICK: [u32; 2] = [1, 60_000];
/// Flows behind NAT, and established ones beside a scan.
const MANY: u32 = 60_000;
/// New flows behind NAT.
const NEW: u32 = 480_000;
const NEW_TRACKED_FLOWS: u32 = 1_000_000;
/// Groups of the flows of a full table, by the first octets of their destinations.
const GROUPS: [u8; 4] = [16, 32, 48, 64];
/// Flows of each group.
const IN_GROUP: [u32; 3] = [25_000, 250_000, 1_000_000];
const IN_GROUP_QUICK: [u32; 1] = [100_000];
const ROUNDS: u32 = 5;
/// Seconds of requests on open connections.
const REQUESTS_S: f64 = 3.0;
/// Entries for the connections of a scan, beside established ones: so few that nearly each frame of the scan begins a connection.
const FOR_SCAN: u32 = MANY / 16;
const SYNS_A_SECOND: u32 = 1_000_000;
/// Settings of the search for the highest rate of short connections. The pause lets the switch forget closed ones.
const SEARCH: [&str; 3] = ["max-per-s=500000", "resolution-percent=5", "pause-s=1.5"];
const SEARCH_QUICK: [&str; 3] = ["max-per-s=20000", "resolution-percent=20", "pause-s=1.5"];
/// CPUs of the machine with which two of them can forward.
const CPUS_MIN: u32 = 4;
const TWO_CPUS: &str = "1,3";
/// Pairs of hosts among which those of two queues are found. Each has one or the other order of owners in a quarter of all cases.
const PAIRS: u8 = 64;
const QUIETWIRE: &str = "quietwire";
const OPEN_VSWITCH: &str = "Open vSwitch, vhost-user";
const TWO: &str = "quietwire, two forwarding CPUs";
/// Time for Open vSwitch to set up its ports and flows again after the tester has connected.
const SETTLE: [&str; 4] = ["--settle", "4s", "--learning-time", "4s"];
const CROSS_CONNECT: [&str; 2] = ["--cross-connect", "p0,p1"];
/// External addresses of VPP's source NAT: as many as quietwire's.
const VPP_ADDRESSES: &str = "203.0.113.1 - 203.0.113.16";
const WITHOUT_SCAN: &str = "60,000 connections alone";
const HIGHEST: &str = "highest rate of short connections";
const HIGHEST_UNTRACKED: &str = "highest rate of short connections, without tracking";

/// Measurement of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// This number of flows, established.
    Tracked(u32),
    TrackedByOvs(u32),
    /// Flows behind source NAT.
    Nat {
        is_tracked: bool,
    },
    NatByOvs,
    NatByVpp,
    Balanced,
    /// Frames that begin connections.
    New {
        is_translated: bool,
    },
    /// Frames that begin sessions of NAT.
    NewByVpp,
    /// A full table, with this number of flows in each group.
    Full(u32),
    Requests {
        is_flooded: bool,
    },
    /// Established connections, alone or beside a scan.
    Scan {
        is_scanned: bool,
    },
    /// Established connections, alone and beside as many frames that begin connections.
    Beside,
    /// Short connections. Without tracking, the tester or the cross-connect limits their rate.
    Short {
        is_tracked: bool,
    },
    /// The tracker with two forwarding CPUs, or one of them, and this number of receive queues.
    Cpus {
        are_two: bool,
        queues: u16,
    },
    /// Two forwarding CPUs with a receive queue each. All flows of a queue belong to its CPU, or all to the other one.
    OfQueues {
        are_handed_over: bool,
    },
}

const RATES: [Figure; 2] = [Figure::ForwardedPps, Figure::CyclesAFrame];
const NEW_FIGURES: [Figure; 2] = [Figure::NewConnectionCycles, Figure::NewConnectionsPs];
const FULL_FIGURES: [Figure; 4] = [
    Figure::ForwardedPps,
    Figure::CyclesAFrame,
    Figure::OctetsAConnection,
    Figure::LoadedS,
];
const REQUEST_FIGURES: [Figure; 3] = [
    Figure::AnswersPs,
    Figure::FailedConnections,
    Figure::CyclesAFrame,
];
const SCAN_FIGURES: [Figure; 4] = [
    Figure::ForwardedPps,
    Figure::EstablishedPps,
    Figure::CyclesAFrame,
    Figure::LostConnections,
];
impl Case {
    fn name(self) -> String {
        match self {
            Self::Tracked(1) | Self::TrackedByOvs(1) => "tracked, 1 flow".to_owned(),
            Self::Tracked(count) | Self::TrackedByOvs(count) => {
                format!("tracked, {} flows", grouped(u64::from(count)))
            }
            Self::Nat { is_tracked: false } | Self::NatByVpp => SOURCE_NAT.to_owned(),
            Self::Nat { is_tracked: true } | Self::NatByOvs => TRACKED_NAT.to_owned(),
            Self::Balanced => BALANCED.to_owned(),
            Self::New {
                is_translated: false,
            } => NEW_TRACKED.to_owned(),
            Self::New {
                is_translated: true,
            }
            | Self::NewByVpp => NEW_TRANSLATED.to_owned(),
            Self::Full(in_group) => format!("{} connections", grouped(in_groups(in_group))),
            Self::Requests { is_flooded: false } => WITHOUT_FLOOD.to_owned(),
            Self::Requests { is_flooded: true } => UNDER_FLOOD.to_owned(),
            Self::Scan { is_scanned: false } => WITHOUT_SCAN.to_owned(),
            Self::Scan { is_scanned: true } => SCANNED.to_owned(),
            Self::Beside => BESIDE_NEW.to_owned(),
            Self::Short { is_tracked: false } => HIGHEST_UNTRACKED.to_owned(),
            Self::Short { is_tracked: true } => HIGHEST.to_owned(),
            Self::Cpus { queues, .. } => {
                let noun = if queues == 1 { "queue" } else { "queues" };
                format!("tracked, 60,000 flows, {queues} receive {noun}")
            }
            Self::OfQueues {
                are_handed_over: false,
            } => "tracked, 60,000 flows, received by their CPUs".to_owned(),
            Self::OfQueues {
                are_handed_over: true,
            } => "tracked, 60,000 flows, handed over".to_owned(),
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Tracked(_) | Self::TrackedByOvs(_) => "tracked flows",
            Self::Nat { .. } | Self::NatByOvs | Self::NatByVpp | Self::Balanced => {
                "translated flows"
            }
            Self::New { .. } | Self::NewByVpp => "first frames of flows",
            Self::Full(_) => "full tables",
            Self::Requests { .. } => "open connections, each with 20 requests a second",
            Self::Scan { .. } => "scan",
            Self::Beside => "as many frames of a scan",
            Self::Short { .. } => "RFC 9411, section 7.2",
            Self::Cpus { .. } | Self::OfQueues { .. } => "forwarding CPUs",
        }
    }

    fn side(self) -> &'static str {
        match self {
            Self::TrackedByOvs(_) | Self::NatByOvs => OPEN_VSWITCH,
            Self::NatByVpp | Self::NewByVpp => VPP,
            Self::Cpus { are_two: true, .. } | Self::OfQueues { .. } => TWO,
            _ => QUIETWIRE,
        }
    }

    fn figures(self) -> &'static [Figure] {
        match self {
            Self::New { .. } | Self::NewByVpp => &NEW_FIGURES,
            Self::Full(_) => &FULL_FIGURES,
            Self::Requests { .. } => &REQUEST_FIGURES,
            Self::Scan { .. } => &SCAN_FIGURES,
            Self::Beside => &known::FIGURES,
            Self::Short { .. } => &[Figure::ConnectionsPs],
            Self::Cpus { .. } | Self::OfQueues { .. } => &[Figure::ForwardedPps],
            _ => &RATES,
        }
    }

    fn point(self) -> Point {
        let size = match self {
            Self::Tracked(count) | Self::TrackedByOvs(count) => Some(u64::from(count)),
            Self::Full(in_group) => Some(in_groups(in_group)),
            _ => None,
        };
        Point {
            group: self.group().to_owned(),
            case: self.name(),
            size,
            side: self.side().to_owned(),
        }
    }

    /// Returns the points that a turn of the case measures.
    fn points(self) -> Vec<Point> {
        let point = self.point();
        match self {
            Self::Beside => [WITHOUT_NEW, BESIDE_NEW]
                .map(|case| Point {
                    case: case.to_owned(),
                    ..point.clone()
                })
                .to_vec(),
            _ => vec![point],
        }
    }

    fn measure(self, directory: &Path, (options, turns): (&Options, &mut Lcg), run: &mut Run) {
        let mut turn = Turn {
            directory,
            options,
            run,
            point: self.point(),
        };
        match self {
            Self::Tracked(count) => turn.tracked(count),
            Self::TrackedByOvs(count) => turn.tracked_by_ovs(count),
            Self::Nat { is_tracked } => turn.nat(is_tracked),
            Self::NatByOvs => turn.nat_of_ovs(),
            Self::NatByVpp => turn.nat_of_vpp(),
            Self::Balanced => turn.balanced(),
            Self::New { is_translated } => turn.new_connections(is_translated),
            Self::NewByVpp => turn.new_sessions_of_vpp(),
            Self::Full(in_group) => turn.full(in_group),
            Self::Requests { is_flooded } => turn.requests(is_flooded),
            Self::Scan { is_scanned } => turn.scan(is_scanned),
            Self::Beside => turn.beside(&self.points(), turns),
            Self::Short { is_tracked } => turn.short(is_tracked),
            Self::Cpus { are_two, queues } => turn.cpus(are_two, queues),
            Self::OfQueues { are_handed_over } => turn.of_queues(are_handed_over),
        }
    }
}

/// Returns the number of flows of all groups.
fn in_groups(in_group: u32) -> u64 {
    u64::from(in_group) * GROUPS.len() as u64
}

/// Returns the section of the configuration for this number of connections.
fn connections(entries: u32, timeouts: &str) -> String {
    format!("[connections]\nmax-entries = {entries}\n[connections.timeouts]\n{timeouts}")
}

/// Returns the same without a limit of new connections, for runs that are about them, or begin many.
fn unlimited(entries: u32, timeouts: &str) -> String {
    let section = connections(entries, timeouts);
    section.replacen("max-entries", "new-share = 100\nmax-entries", 1)
}

/// The measurements of a turn.
struct Turn<'a> {
    directory: &'a Path,
    options: &'a Options,
    run: &'a mut Run,
    point: Point,
}

impl Turn<'_> {
    fn add(&mut self, figure: Figure, value: Option<f64>) {
        self.run.add(&self.point, figure, value);
    }

    /// Starts a switch with a configuration, which may be empty, and further arguments.
    fn device(&self, name: &str, config: &str, arguments: &[&str]) -> Device {
        self.device_with(Link::of(Kind::Memif), name, config, arguments)
    }

    fn device_with(&self, link: Link, name: &str, config: &str, arguments: &[&str]) -> Device {
        let directory = self.directory.join(name);
        let file = self.directory.join(format!("{name}.toml"));
        fs::write(&file, config).unwrap();
        let mut all = arguments.to_vec();
        if !config.is_empty() {
            all.extend(["--config", file.to_str().unwrap()]);
        }
        let binary = Path::new(common::QUIETWIRE);
        Device {
            switch: Switch::of_build(binary, &directory, link, 2, &all),
            directory,
            seconds: self.options.seconds(),
        }
    }

    /// Measures flows that the switch knows.
    fn rates(&mut self, device: &Device, flows: &Path) {
        self.rates_of(device, || device.rate(flows));
    }

    fn rates_of(&mut self, device: &Device, rate: impl FnOnce() -> f64) {
        let before = device.work();
        let rate = rate();
        let cycles = device.work().since(before).cycles_a_frame();
        self.add(Figure::ForwardedPps, Some(rate));
        self.add(Figure::CyclesAFrame, cycles);
    }

    fn tracked(&mut self, count: u32) {
        let device = self.device("switch", &unlimited(2 * count, ""), &CROSS_CONNECT);
        let flows = device.describe("flows.toml", &known::to_networks(16, count));
        device.fill(&flows, "both", u64::from(count));
        match Self::destinations_of(count) {
            Some(count) => self.rates_of(&device, || device.rate_to(count)),
            None => self.rates(&device, &flows),
        }
    }

    /// Returns the number of destinations if the tester can draw the flows by it, which takes it less time than described flows: it has
    /// another destination if there is only one.
    fn destinations_of(count: u32) -> Option<u32> {
        (count > 1).then_some(count)
    }

    /// Starts a router, and NAT at its second interface for `count` flows.
    fn router(&self, config: &str, count: u32) -> Device {
        let device = self.device("switch", config, &[]);
        let switch = &device.switch;
        let addresses = ["192.0.2.1/24", "198.51.100.1/24"];
        switch.route_between(addresses, "198.51.100.2");
        let route = ["add", "route", "0.0.0.0/0", "--via", "198.51.100.2,b0"];
        assert!(switch.command(&route), "the route");
        if count > 0 {
            let mappings = (2 * count).to_string();
            let external: Vec<String> = (1..=16).map(|last| format!("203.0.113.{last}")).collect();
            let mut add = vec![
                "add",
                "nat",
                "internet",
                "b0",
                "--max-mappings",
                mappings.as_str(),
            ];
            for address in &external {
                add.extend(["--address", address.as_str()]);
            }
            assert!(switch.command(&add), "the NAT");
        }
        device
    }

    fn nat(&mut self, is_tracked: bool) {
        let config = match is_tracked {
            true => unlimited(2 * MANY, ""),
            false => String::new(),
        };
        let device = self.router(&config, MANY);
        let flows = device.describe("flows.toml", &flows::of_hosts(MANY, "16.0.0.1"));
        device.send(&flows, "one-way");
        self.rates(&device, &flows);
    }

    fn balanced(&mut self) {
        let device = self.router("", 0);
        let most = (2 * MANY).to_string();
        let add = ["add", "load-balancer", "web", "192.0.2.1:7", "--protocol"];
        let with = [
            "udp",
            "--max-connections",
            most.as_str(),
            "--backend",
            "198.51.100.2:7",
        ];
        let added = device.switch.command(&[&add[..], &with[..]].concat());
        assert!(added, "the load balancer");
        let flows = device.describe("flows.toml", &flows::of_hosts(MANY, "192.0.2.1"));
        device.send(&flows, "one-way");
        self.rates(&device, &flows);
    }

    /// Measures frames that begin connections: those of the first run, without its further frames, which cost as much as those of the
    /// second run.
    fn new_connections(&mut self, is_translated: bool) {
        let quick = self.options.quick;
        let (device, flows) = if is_translated {
            let count = if quick { MANY } else { NEW };
            let device = self.router(&unlimited(2 * count, ""), count);
            (device, flows::of_hosts(count, "16.0.0.1"))
        } else {
            let count = if quick { MANY } else { NEW_TRACKED_FLOWS };
            let config = unlimited(2 * count, "");
            let device = self.device("switch", &config, &CROSS_CONNECT);
            (device, known::to_networks(16, count))
        };
        let flows = device.describe("flows.toml", &flows);
        let before = device.work();
        device.send(&flows, "one-way");
        let after = device.work();
        let created = device.created();
        device.send(&flows, "one-way");
        let known = device.work().since(after).cycles_a_frame();
        let cycles = cycles_of_new(after.since(before), created, known);
        self.add(Figure::NewConnectionCycles, cycles);
        let shown = device.switch.shown(&["cycles"]);
        let hz = shown.as_ref().and_then(|shown| shown["hz"].as_f64());
        let rate = cycles.zip(hz).map(|(cycles, hz)| hz / cycles);
        self.add(Figure::NewConnectionsPs, rate);
    }

    /// Starts VPP as a router with the addresses of quietwire's, and NAT for `count` flows. Returns it with a file of the flows.
    fn vpp(&self, count: u32) -> (Vpp, String) {
        let vpp = Vpp::start(&self.directory.join("vpp"), &[vpp::NAT], "");
        vpp.route_between(["192.0.2.1/24", "198.51.100.1/24"], "198.51.100.2");
        let all = (Ipv4Addr::UNSPECIFIED.into(), 0);
        vpp.add_routes("198.51.100.2", std::iter::once(all));
        vpp.translate(VPP_ADDRESSES, 2 * count);
        let file = self.directory.join("traffic.toml");
        fs::write(&file, flows::of_hosts(count, "16.0.0.1")).unwrap();
        (vpp, file.to_str().unwrap().to_owned())
    }

    /// Measures VPP with flows that it translates already.
    fn nat_of_vpp(&mut self) {
        let (vpp, flows) = self.vpp(MANY);
        let more = ["--traffic", flows.as_str(), "--direction", "one-way"];
        vpp.with_load(FILL_S, &more, |load| load.send());
        let rate = vpp.with_load(self.options.seconds(), &more, |load| load.rate());
        let cycles = vpp.cycles_a_frame();
        let sessions = vpp.sessions();
        let is_whole = sessions >= f64::from(MANY);
        assert!(is_whole, "VPP has {sessions} of {MANY} sessions");
        self.add(Figure::ForwardedPps, Some(rate));
        self.add(Figure::CyclesAFrame, cycles);
    }

    /// Measures frames that begin sessions in VPP, in the same way as [`Self::new_connections`]. The cycles of known sessions are those of
    /// the first run without new ones.
    fn new_sessions_of_vpp(&mut self) {
        let count = if self.options.quick { MANY } else { NEW };
        let (vpp, flows) = self.vpp(count);
        let more = ["--traffic", flows.as_str(), "--direction", "one-way"];
        let send = || {
            vpp.with_load(FILL_S, &more, |load| load.send());
            (vpp.work(), vpp.sessions())
        };
        let (first, created) = send();
        let mut sessions = created;
        let known = (0..FILLS).find_map(|_| {
            let (work, now) = send();
            let before = std::mem::replace(&mut sessions, now);
            work.filter(|_| before == now)?.cycles_a_frame()
        });
        let cycles = first.and_then(|first| cycles_of_new(first, created, known));
        self.add(Figure::NewConnectionCycles, cycles);
        let hz = self.run.machine.ghz * 1e9;
        self.add(Figure::NewConnectionsPs, cycles.map(|cycles| hz / cycles));
    }

    fn full(&mut self, in_group: u32) {
        let entries = in_group * GROUPS.len() as u32;
        // Connections without an answer stay.
        let config = unlimited(entries, "udp-unreplied = 3600\n");
        let device = self.device("switch", &config, &CROSS_CONNECT);
        let mut flows = PathBuf::new();
        let mut filled = 0;
        for first in GROUPS {
            let text = known::to_networks(first, in_group);
            flows = device.describe(&format!("{first}.toml"), &text);
            filled += u64::from(in_group);
            device.fill(&flows, "one-way", filled);
        }
        self.rates(&device, &flows);
        let octets = device.number("octets") / device.number("max_entries");
        self.add(Figure::OctetsAConnection, Some(octets));
        let saved = self.directory.join("connections");
        let saved = saved.to_str().unwrap();
        assert!(device.switch.command(&["connections", "save", saved]));
        drop(device);
        let device = self.device("restored", &config, &CROSS_CONNECT);
        let began = Instant::now();
        assert!(device.switch.command(&["connections", "restore", saved]));
        let loaded_s = began.elapsed().as_secs_f64();
        let restored = device.number("total");
        let is_whole = restored >= filled as f64;
        assert!(is_whole, "{restored} of {filled} connections are restored");
        self.add(Figure::LoadedS, Some(loaded_s));
    }

    /// Offers frames, some of established connections.
    fn established(&mut self, device: &Device, offered: &Path) {
        let (packets, work) = (Packets::of(&device.switch), device.work());
        let rate = device.rate(offered);
        let cycles = device.work().since(work).cycles_a_frame();
        let established = Packets::of(&device.switch).established_share_since(&packets);
        self.add(Figure::ForwardedPps, Some(rate));
        self.add(
            Figure::EstablishedPps,
            established.map(|share| share * rate),
        );
        self.add(Figure::CyclesAFrame, cycles);
    }

    /// Measures frames of established connections, alone or among those of a scan.
    fn scan(&mut self, is_scanned: bool) {
        // Those of the scan replace each other.
        let device = self.device("switch", &unlimited(2 * MANY, ""), &CROSS_CONNECT);
        let open = device.describe("open.toml", &flows::to_all_ports(Some(MANY)));
        device.fill(&open, "both", u64::from(MANY));
        let offered = match is_scanned {
            true => device.describe("scan.toml", &flows::to_all_ports(None)),
            false => open.clone(),
        };
        self.established(&device, &offered);
        // Connections that the switch has forgotten begin again.
        let created = device.created();
        device.send(&open, "one-way");
        let lost = device.created() - created;
        self.add(Figure::LostConnections, Some(lost));
    }

    /// Measures frames of established connections, alone and beside as many frames that begin connections.
    fn beside(&mut self, points: &[Point], turns: &mut Lcg) {
        let device = self.device("switch", &connections(MANY + FOR_SCAN, ""), &CROSS_CONNECT);
        let open = device.describe("open.toml", &known::to_networks(16, MANY));
        device.fill(&open, "both", u64::from(MANY));
        let loads = known::measure(&device, (MANY, true), turns);
        for (point, values) in points.iter().zip(loads) {
            for (figure, value) in known::FIGURES.into_iter().zip(values) {
                self.run.add(point, figure, value);
            }
        }
    }

    fn requests(&mut self, is_flooded: bool) {
        let device = self.device("switch", &connections(500_000, ""), &CROSS_CONNECT);
        let text = flows::requests(is_flooded.then_some(SYNS_A_SECOND));
        let file = device.describe("connections.toml", &text);
        let mut command = tester(&device, "generate", &file);
        let duration_s = self.options.seconds_or(REQUESTS_S);
        command.args(["--duration", &format!("{:.0}ms", duration_s * 1e3)]);
        command.args(["--drain", "5s"]);
        let result = result_of(&mut command);
        let client = result.as_ref().map(|result| &result["client"]);
        let answers = client.and_then(|client| client["sustained"]["transaction_rate"].as_f64());
        self.add(Figure::AnswersPs, answers);
        let failed = client.and_then(|client| {
            let causes = client["failed"].as_object()?.values();
            Some(causes.filter_map(Value::as_f64).sum::<f64>())
        });
        self.add(Figure::FailedConnections, failed);
        let cycles = answers.and_then(|_| device.work().cycles_a_frame());
        self.add(Figure::CyclesAFrame, cycles);
    }

    fn short(&mut self, is_tracked: bool) {
        let config = match is_tracked {
            true => connections(1_000_000, "tcp-time-wait = 1\ntcp-close = 1\n"),
            false => String::new(),
        };
        let device = self.device("switch", &config, &CROSS_CONNECT);
        let file = device.describe("connections.toml", flows::short_connections());
        let mut command = tester(&device, "measure", &file);
        command.arg("connections-per-second");
        command.args(["--duration", "500ms"]);
        let settings = match self.options.quick {
            true => SEARCH_QUICK,
            false => SEARCH,
        };
        for setting in settings {
            command.args(["--set", setting]);
        }
        let result = result_of(&mut command);
        let highest = result.as_ref().and_then(|result| {
            let methods = &result["summary"]["sizes"][0]["cases"][0]["methods"];
            methods[0]["findings"]["highest_held"].as_f64()
        });
        self.add(Figure::ConnectionsPs, highest);
    }

    fn cpus(&mut self, are_two: bool, queues: u16) {
        let link = Link {
            queues,
            ..Link::of(Kind::Memif)
        };
        let config = unlimited(4 * MANY, "");
        let device = self.device_with(link, "switch", &config, &CROSS_CONNECT);
        if are_two {
            let set = ["set", "threads", "--forwarding-cpus", TWO_CPUS];
            assert!(device.switch.command(&set), "two forwarding CPUs");
        }
        let flows = device.describe("flows.toml", &known::to_networks(16, MANY));
        device.fill(&flows, "both", u64::from(MANY));
        let rate = device.rate(&flows);
        self.add(Figure::ForwardedPps, Some(rate));
    }

    /// Measures flows that symmetric hashing would assign to the receive queues of their CPUs, or the reverse. Addresses determine the CPU of
    /// a flow, so suitable ones are tried out.
    fn of_queues(&mut self, are_handed_over: bool) {
        let link = Link {
            queues: 2,
            ..Link::of(Kind::Memif)
        };
        let config = unlimited(4 * MANY, "");
        let device = self.device_with(link, "switch", &config, &CROSS_CONNECT);
        let set = ["set", "threads", "--forwarding-cpus", TWO_CPUS];
        assert!(device.switch.command(&set), "two forwarding CPUs");
        let found = (0..PAIRS).find(|number| {
            let two = device.describe("two.toml", &flows::of_two_queues(*number, 2));
            let [received, handed_over] = device.received_and_handed_over();
            device.send(&two, "one-way");
            let [received_now, handed_over_now] = device.received_and_handed_over();
            assert!(received_now > received, "no frame arrives");
            let share = (handed_over_now - handed_over) / (received_now - received);
            if are_handed_over {
                share > 0.95
            } else {
                share < 0.05
            }
        });
        let number = found.expect("hosts whose flows have the wanted owners");
        let flows = device.describe("flows.toml", &flows::of_two_queues(number, MANY));
        device.fill(&flows, "both", u64::from(MANY));
        let rate = device.rate(&flows);
        self.add(Figure::ForwardedPps, Some(rate));
    }

    /// Measures Open vSwitch with tracked flows that it knows.
    fn tracked_by_ovs(&mut self, count: u32) {
        let flows = known::to_networks(16, count);
        let destinations = Self::destinations_of(count).map(|count| count.to_string());
        let of_destinations = destinations
            .as_deref()
            .map(|count| ["--destinations", count]);
        self.of_ovs((&flows, "both"), of_destinations, &flows::of_ovs(false));
    }

    /// Measures Open vSwitch with translated flows that it knows. Answers would have to be to translated sources, which the tester does not
    /// know.
    fn nat_of_ovs(&mut self) {
        let flows = flows::of_hosts(MANY, "16.0.0.1");
        self.of_ovs((&flows, "one-way"), None, &flows::of_ovs(true));
    }

    /// Measures Open vSwitch with described flows that it received in a first run, in one direction or both. `known` are the same flows in another
    /// way.
    fn of_ovs(&mut self, (text, first): (&str, &str), known: Option<[&str; 2]>, flows: &str) {
        let own = self.directory.join("ovs");
        let ovs = OpenVSwitch::start(&own, 2);
        ovs.replace_flows(flows);
        let file = own.join("traffic.toml");
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let load = |traffic: &[&str], seconds: f64| {
            ovs.raise_flow_limit();
            ovs.clear_cycles();
            let more = [&SETTLE[..], traffic].concat();
            let load = Load {
                ports: [0, 1].map(|port| ovs.tester_uri(port)),
                seconds,
                more: &more,
                connect: None,
            };
            load.rate()
        };
        load(&["--traffic", file, "--direction", first], FILL_S);
        let described = ["--traffic", file, "--direction", "one-way"];
        let known = known.as_ref().map_or(&described[..], |known| known);
        let rate = load(known, self.options.seconds());
        let cycles = ovs.cycles_a_frame();
        self.add(Figure::ForwardedPps, Some(rate));
        self.add(Figure::CyclesAFrame, cycles);
    }
}

/// Returns the cycles of a frame that begins a connection: of the first frames, `created` do so, and the others have the cycles of known
/// connections.
fn cycles_of_new(first: Work, created: f64, known: Option<f64>) -> Option<f64> {
    let known = known.filter(|_| created > 0.0)?;
    Some((first.cycles - (first.frames - created) * known) / created)
}

/// Returns a command of the tester that opens connections through the device.
fn tester(device: &Device, name: &str, description: &Path) -> Command {
    let mut command = Command::new(common::QUIETWIRE);
    command.args([name, "--json", "--isolation", "none"]);
    command.args(["--cpus", TESTER_CPU, "--ring-size", RING_SIZE]);
    for port in [0, 1] {
        command.args(["--port", &device.switch.tester_uri(port)]);
    }
    command.arg("--connections").arg(description);
    command
}

/// Runs the tester. Returns its result; `None` if the tester failed.
fn result_of(command: &mut Command) -> Option<Value> {
    let output = command.output().expect("the tester runs");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        eprintln!("no result: {errors}");
        return None;
    }
    serde_json::from_slice(&output.stdout).ok()
}

fn cases(options: &Options) -> Vec<Case> {
    let counts = match options.quick {
        true => &TRACKED_QUICK[..],
        false => &TRACKED,
    };
    let mut cases: Vec<Case> = counts.iter().copied().map(Case::Tracked).collect();
    if ovs::is_installed() {
        cases.extend(counts.iter().copied().map(Case::TrackedByOvs));
    }
    cases.extend([false, true].map(|is_tracked| Case::Nat { is_tracked }));
    if ovs::is_installed() {
        cases.push(Case::NatByOvs);
    }
    if vpp::is_installed() {
        cases.push(Case::NatByVpp);
    }
    cases.push(Case::Balanced);
    cases.extend([false, true].map(|is_translated| Case::New { is_translated }));
    if vpp::is_installed() {
        cases.push(Case::NewByVpp);
    }
    let in_group = match options.quick {
        true => &IN_GROUP_QUICK[..],
        false => &IN_GROUP,
    };
    cases.extend(in_group.iter().copied().map(Case::Full));
    cases.extend([false, true].map(|is_flooded| Case::Requests { is_flooded }));
    cases.extend([false, true].map(|is_scanned| Case::Scan { is_scanned }));
    cases.push(Case::Beside);
    cases.extend([false, true].map(|is_tracked| Case::Short { is_tracked }));
    if common::cpus() >= CPUS_MIN {
        for queues in [1, 2] {
            cases.extend([false, true].map(|are_two| Case::Cpus { are_two, queues }));
        }
        cases.extend([false, true].map(|are_handed_over| Case::OfQueues { are_handed_over }));
    }
    cases.retain(|case| options.wants(&case.name()) || options.wants(case.side()));
    cases
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let mut run = common::begin(&options, "tracker_scale", rounds, options.seconds());
    run.sides.push(switch::side(QUIETWIRE));
    let cases = cases(&options);
    let has_vpp = cases.iter().any(|case| case.side() == VPP);
    vpp::declare(&mut run, has_vpp, "nat44-ed with 16 addresses");
    match cases.iter().any(|case| case.side() == OPEN_VSWITCH) {
        true => run.sides.push(Side {
            notes: "netdev bridge, flows with `ct`, and `nat` to 16 addresses; rings as its defaults are".to_owned(),
            ..ovs::side(OPEN_VSWITCH)
        }),
        false => run.absent.push(Absent {
            side: OPEN_VSWITCH.to_owned(),
            reason: "not installed (Debian's openvswitch-switch-dpdk), or not selected".to_owned(),
        }),
    }
    match cases.iter().any(|case| case.side() == TWO) {
        true => run.sides.push(switch::side(TWO)),
        false => run.absent.push(Absent {
            side: TWO.to_owned(),
            reason: format!("the machine has fewer than {CPUS_MIN} CPUs, or not selected"),
        }),
    }
    for case in &cases {
        for point in case.points() {
            run.expect(&point, case.figures());
        }
    }
    let mut turns = options.turns();
    for round in 0..rounds {
        for index in turns.order(cases.len()) {
            let own = directory.path().join(format!("{round}-{index}"));
            fs::create_dir(&own).unwrap();
            let case = cases[index];
            run.turn(&case.points(), |run| {
                case.measure(&own, (&options, &mut turns), run)
            });
            fs::remove_dir_all(&own).unwrap();
        }
    }
    common::finish(&options, run);
}
