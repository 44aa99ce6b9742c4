// SPDX-License-Identifier: Apache-2.0
//! Comparison of the switch and the tester with DPDK's testpmd, and of the switch with VPP (if `vpp` and `vppctl` are in PATH), on the
//! same ports, in turns, in one run.
//!
//! `cargo bench -p quietwire --bench peers` prints the medians of the rounds, and the goals, which are ratios to the peer.
//! One forwarding CPU, 64-byte frames, memif. Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::PathBuf;

use common::record::{Figure, Point, Run};
use common::switch::{self, Kind, Switch};
use common::testpmd::{self, Testpmd};
use common::vpp::{self, Vpp};
use common::words::VPP;
use common::{DEVICE_CPU, Load, Machine, Options, TESTER_CPU, WITHOUT_DEVICE, forwarded};

const ROUNDS: u32 = 9;
const GROUP: &str = "64 B, memif";
/// Cases, with the tester's option values.
const DIRECTIONS: [(&str, &str); 2] = [("one way", "one-way"), ("both ways", "both")];

/// A forwarding device.
#[derive(Clone, Copy)]
enum Device {
    Testpmd(&'static str),
    Quietwire(&'static [&'static str]),
    /// VPP's cross-connect.
    Vpp,
}

const BRIDGE: &[&str] = &["--bridge", "br0=p0,p1", "--memory-mib", "256"];

/// Devices by the names of their sides, with the tester's MAC addresses on each of its ports.
const DEVICES: [(&str, Device, &str); 6] = [
    ("testpmd io", Device::Testpmd("io"), "1"),
    ("testpmd mac", Device::Testpmd("mac"), "1"),
    (
        "quietwire, cross-connect",
        Device::Quietwire(&["--cross-connect", "p0,p1", "--memory-mib", "256"]),
        "1",
    ),
    (
        "quietwire, bridge, 1 MAC address",
        Device::Quietwire(BRIDGE),
        "1",
    ),
    (
        "quietwire, bridge, 20,000 MAC addresses",
        Device::Quietwire(BRIDGE),
        "20000",
    ),
    (VPP, Device::Vpp, "1"),
];

/// Case with generating on one CPU and checking on the other, without a device.
const GENERATE_AND_CHECK: &str = "generate and check";
const TESTERS: [&str; 2] = ["testpmd txonly to rxonly", "quietwire's tester"];

struct Bench<'a> {
    options: &'a Options,
    directory: PathBuf,
    runs: u32,
}

impl Bench<'_> {
    fn fresh(&mut self) -> PathBuf {
        self.runs += 1;
        self.directory.join(self.runs.to_string())
    }

    fn load<'a>(&self, ports: [String; 2], more: &'a [&'a str]) -> Load<'a> {
        Load {
            ports,
            seconds: self.options.seconds(),
            more,
            connect: None,
        }
    }

    /// Measures a device in one turn.
    fn forward(&mut self, run: &mut Run, point: &Point, device: Device, more: &[&str]) {
        let directory = self.fresh();
        let (result, cycles) = match device {
            Device::Testpmd(mode) => {
                let device = Testpmd::forward(&directory, mode);
                let ports = [0, 1].map(|port| device.tester_uri(port));
                (self.load(ports, more).offer(), None)
            }
            Device::Quietwire(options) => {
                let device = Switch::start(&directory, Kind::Memif, 2, options);
                let ports = [0, 1].map(|port| device.tester_uri(port));
                let result = self.load(ports, more).offer();
                (result, device.cycles_a_frame())
            }
            Device::Vpp => {
                let device = Vpp::start(&directory, &[], "");
                device.cross_connect();
                let seconds = self.options.seconds();
                let result = device.with_load(seconds, more, |load| load.offer());
                (result, device.cycles_a_frame())
            }
        };
        let offered = result["achieved_rate_pps"].as_f64();
        run.add(point, Figure::OfferedPps, offered);
        run.add(point, Figure::ForwardedPps, Some(forwarded(&result)));
        run.add(point, Figure::CyclesAFrame, cycles);
    }

    /// Measures a tester without a device in one turn.
    fn without_device(&mut self, name: &str) -> f64 {
        let directory = self.fresh();
        if name == TESTERS[0] {
            let receiver = Testpmd::receive(&directory.with_extension("rx"));
            let _sender = receiver.generate(&directory.with_extension("tx"), "txonly");
            return receiver.received_pps();
        }
        std::fs::create_dir(&directory).unwrap();
        let socket = directory.join("p.sock");
        let ports =
            ["server", "client"].map(|role| format!("memif:{}?role={role}", socket.display()));
        let cpus = format!("{TESTER_CPU},{DEVICE_CPU}");
        let more = [&WITHOUT_DEVICE[..], &["--cpus", cpus.as_str()]].concat();
        forwarded(&self.load(ports, &more).offer_to_itself())
    }
}

fn point(case: &str, side: &str) -> Point {
    Point {
        group: GROUP.to_owned(),
        case: case.to_owned(),
        size: None,
        side: side.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "peers", rounds, seconds);
    run.sides = vec![testpmd::side("testpmd"), switch::side("quietwire")];
    let mut devices = DEVICES.to_vec();
    if !vpp::is_installed() {
        devices.retain(|(name, ..)| *name != VPP);
    }
    devices.retain(|(name, ..)| options.wants(name));
    let has_vpp = devices.iter().any(|(name, ..)| *name == VPP);
    vpp::declare(&mut run, has_vpp, "cross-connect");
    let mut testers = TESTERS.to_vec();
    testers.retain(|name| options.wants(name));
    for (case, _) in DIRECTIONS {
        for (side, device, _) in &devices {
            let has_cycles = matches!(device, Device::Quietwire(_) | Device::Vpp);
            let cycles = has_cycles.then_some(Figure::CyclesAFrame);
            let figures = [Figure::OfferedPps, Figure::ForwardedPps];
            let figures: Vec<Figure> = figures.into_iter().chain(cycles).collect();
            run.expect(&point(case, side), &figures);
        }
    }
    for name in &testers {
        run.expect(&point(GENERATE_AND_CHECK, name), &[Figure::ForwardedPps]);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench {
        options: &options,
        directory: directory.path().to_owned(),
        runs: 0,
    };
    let mut turns = options.turns();
    for _ in 0..rounds {
        for direction in turns.order(DIRECTIONS.len()) {
            let (case, word) = DIRECTIONS[direction];
            for index in turns.order(devices.len()) {
                let (side, device, addresses) = devices[index];
                let more = ["--direction", word, "--mac-addresses", addresses];
                let point = point(case, side);
                run.turn(std::slice::from_ref(&point), |run| {
                    bench.forward(run, &point, device, &more);
                });
            }
        }
        for index in turns.order(testers.len()) {
            let point = point(GENERATE_AND_CHECK, testers[index]);
            run.turn(std::slice::from_ref(&point), |run| {
                let rate = bench.without_device(testers[index]);
                run.add(&point, Figure::ForwardedPps, Some(rate));
            });
        }
    }
    common::finish(&options, run);
}
