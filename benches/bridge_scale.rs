// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate of the bridge with many MAC addresses, over memif and vhost-user, compared with Open vSwitch on DPDK over
//! vhost-user, and with VPP over memif.
//!
//! `cargo bench -p quietwire --bench bridge_scale` prints the medians of rounds in which all devices take turns. One
//! forwarding CPU, 64-byte frames one way, all addresses in turn, tables that have learned all of them. Half of the
//! addresses are on each side. Requires root and a quiet machine. Open vSwitch is measured if the Debian package
//! openvswitch-switch-dpdk is installed, and VPP if `vpp` and `vppctl` are in PATH. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::lcg::Lcg;
use common::ovs::{self, OpenVSwitch, Tables};
use common::record::{Absent, Figure, Point, Run};
use common::switch::{self, Kind, Switch};
use common::vpp::{self, Vpp};
use common::words::{VPP, grouped};
use common::{Load, Machine, Options};

/// MAC addresses in the table; the last is the maximum of Open vSwitch.
const ADDRESSES: [u32; 5] = [2, 2_000, 20_000, 200_000, ovs::MAC_TABLE];
const ADDRESSES_QUICK: [u32; 3] = [2, 2_000, 20_000];
const ROUNDS: u32 = 5;
/// Number of addresses whose learning takes most of a second.
const MANY: u32 = 500_000;
/// Numbers of addresses with which VPP is measured.
const OF_VPP: [u32; 3] = [2, 20_000, 1_000_000];
/// Time limit for Open vSwitch to learn.
const LEARNING: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Quietwire(Kind),
    /// quietwire with two addresses, for any size: the reference for ratios within a round.
    WithTwo(Kind),
    OpenVSwitch,
    Vpp,
}

const DEVICES: [Device; 6] = [
    Device::Quietwire(Kind::Memif),
    Device::WithTwo(Kind::Memif),
    Device::Quietwire(Kind::VhostUser),
    Device::WithTwo(Kind::VhostUser),
    Device::OpenVSwitch,
    Device::Vpp,
];

impl Device {
    fn name(self) -> String {
        match self {
            Self::Quietwire(kind) => format!("quietwire, {}", kind.name()),
            Self::WithTwo(kind) => format!("quietwire, {}, 2 addresses", kind.name()),
            Self::OpenVSwitch => "Open vSwitch, vhost-user".to_owned(),
            Self::Vpp => VPP.to_owned(),
        }
    }
}

/// Forwarded frames per second, and cycles per frame if the device reports them.
type Measured = (f64, Option<f64>);

struct Bench {
    options: Options,
    turns: Lcg,
    directory: tempfile::TempDir,
    runs: u32,
}

impl Bench {
    fn fresh(&mut self) -> std::path::PathBuf {
        self.runs += 1;
        self.directory.path().join(self.runs.to_string())
    }

    fn load(&self, ports: [String; 2], addresses: u32, more: &[&str]) -> f64 {
        let each_side = (addresses / 2).to_string();
        let more = [&["--mac-addresses", &each_side], more].concat();
        let seconds = self.options.seconds();
        Load {
            ports,
            seconds,
            more: &more,
            connect: None,
        }
        .rate()
    }

    fn quietwire(&mut self, kind: Kind, addresses: u32) -> Measured {
        let space = (addresses * 2).max(1024).to_string();
        let directory = self.fresh();
        let more = ["--bridge", "br0=p0,p1", "--max-entries", &space];
        let switch = Switch::start(&directory, kind, 2, &more);
        let more: &[&str] = match addresses {
            0..MANY => &[],
            // If other programs wait for the tester's CPU, the kernel takes it away for 50 ms once in 0.95 s. With this
            // option, that happens before frames are counted.
            _ => &["--learning-time", "800ms"],
        };
        let rate = self.load([0, 1].map(|port| switch.tester_uri(port)), addresses, more);
        (rate, switch.cycles_a_frame())
    }

    /// Makes VPP learn all addresses with a first load, and measures it with a second one.
    fn vpp(&mut self, run: &mut Run, addresses: u32) -> Measured {
        const FIRST_S: f64 = 0.1;
        let vpp = Vpp::bridge(&self.fresh(), addresses);
        let each_side = (addresses / 2).to_string();
        let mut more = vec!["--mac-addresses", each_side.as_str()];
        if addresses >= MANY {
            more.extend(["--learning-time", "4s"]);
        }
        vpp.with_load(FIRST_S, &more, |load| load.send());
        let rate = vpp.with_load(self.options.seconds(), &more, |load| load.rate());
        let cycles = vpp.cycles_a_frame();
        let point = point(Device::Vpp, addresses);
        run.add(&point, Figure::Learned, Some(vpp.learned()));
        (rate, cycles)
    }

    /// Measures all devices with this many addresses, in turns.
    fn size(&mut self, run: &mut Run, addresses: u32, devices: &[Device]) {
        let mut peer = None;
        if devices.contains(&Device::OpenVSwitch) {
            let directory = self.fresh();
            // If it fails, the turns of this peer fail.
            run.turn(&[], |_| {
                peer = Some(Peer::start(self, &directory, addresses));
            });
        }
        for _ in 0..self.options.rounds(ROUNDS) {
            for device in self.turns.order(devices.len()) {
                let device = devices[device];
                let point = point(device, addresses);
                run.turn(std::slice::from_ref(&point), |run| {
                    let (rate, cycles) = match (device, &peer) {
                        (Device::Quietwire(kind), _) => self.quietwire(kind, addresses),
                        (Device::WithTwo(kind), _) => self.quietwire(kind, ADDRESSES[0]),
                        (Device::Vpp, _) => self.vpp(run, addresses),
                        (Device::OpenVSwitch, Some(peer)) => peer.rate(self, addresses),
                        (Device::OpenVSwitch, None) => panic!("Open vSwitch did not start"),
                    };
                    run.add(&point, Figure::ForwardedPps, Some(rate));
                    run.add(&point, Figure::CyclesAFrame, cycles);
                });
            }
        }
        if let Some(Peer { tables, .. }) = peer {
            let point = point(Device::OpenVSwitch, addresses);
            run.add(&point, Figure::Learned, Some(tables.mac_addresses as f64));
            run.add(&point, Figure::Flows, Some(tables.flows as f64));
        }
    }
}

/// Returns the devices for a number of addresses: the smallest size has no other to compare with.
fn of_size(devices: &[Device], addresses: u32) -> Vec<Device> {
    let is_needed = |device: &&Device| match device {
        Device::WithTwo(_) => addresses != ADDRESSES[0],
        Device::Vpp => OF_VPP.contains(&addresses),
        Device::Quietwire(_) | Device::OpenVSwitch => true,
    };
    devices.iter().filter(is_needed).copied().collect()
}

fn point(device: Device, addresses: u32) -> Point {
    Point {
        group: "64 B, one way, MAC addresses".to_owned(),
        case: grouped(u64::from(addresses)),
        size: Some(u64::from(addresses)),
        side: device.name(),
    }
}

/// Open vSwitch, stopped while others are measured.
struct Peer {
    ovs: OpenVSwitch,
    tables: Tables,
}

/// Open vSwitch sets up its ports again whenever a tester connects, which takes seconds on ordinary pages.
const SETTLE: [&str; 4] = ["--settle", "4s", "--learning-time", "4s"];

impl Peer {
    /// Starts Open vSwitch and makes it learn all addresses once: it keeps them from round to round.
    fn start(bench: &Bench, directory: &Path, addresses: u32) -> Self {
        let ovs = OpenVSwitch::start(directory, 2);
        let tables = std::thread::scope(|scope| {
            let ports = [0, 1].map(|port| ovs.tester_uri(port));
            let time = format!(
                "{}s",
                (LEARNING.as_secs() * u64::from(addresses) / 500_000).max(4)
            );
            let learning = scope.spawn(move || {
                bench.load(
                    ports,
                    addresses,
                    &["--settle", "4s", "--learning-time", &time],
                )
            });
            let began = Instant::now();
            while !learning.is_finished() && began.elapsed() < LEARNING * 3 {
                ovs.raise_flow_limit();
                std::thread::sleep(Duration::from_millis(200));
            }
            learning.join().expect("the tester ends");
            ovs.tables()
        });
        ovs.pause();
        Self { ovs, tables }
    }

    fn rate(&self, bench: &Bench, addresses: u32) -> Measured {
        let _awake = self.ovs.awake();
        self.ovs.raise_flow_limit();
        self.ovs.clear_cycles();
        let ports = [0, 1].map(|port| self.ovs.tester_uri(port));
        let rate = bench.load(ports, addresses, &SETTLE);
        (rate, self.ovs.cycles_a_frame())
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "bridge_scale", rounds, seconds);
    let mut devices = DEVICES.to_vec();
    if !ovs::is_installed() {
        run.absent.push(Absent {
            side: Device::OpenVSwitch.name(),
            reason: "not installed (Debian's openvswitch-switch-dpdk)".to_owned(),
        });
        devices.retain(|device| *device != Device::OpenVSwitch);
    }
    if !vpp::is_installed() {
        devices.retain(|device| *device != Device::Vpp);
    }
    devices.retain(|device| options.wants(&device.name()));
    let has_vpp = devices.contains(&Device::Vpp);
    vpp::declare(
        &mut run,
        has_vpp,
        "bridge domain without ageing, with a bucket for each address",
    );
    run.sides.push(switch::side("quietwire"));
    if devices.contains(&Device::OpenVSwitch) {
        run.sides.push(ovs::side(&Device::OpenVSwitch.name()));
    }
    let sizes = if options.quick {
        &ADDRESSES_QUICK[..]
    } else {
        &ADDRESSES
    };
    for addresses in sizes {
        for device in of_size(&devices, *addresses) {
            let figures = [Figure::ForwardedPps, Figure::CyclesAFrame];
            run.expect(&point(device, *addresses), &figures);
        }
    }
    let mut bench = Bench {
        turns: options.turns(),
        options: options.clone(),
        directory: tempfile::tempdir().unwrap(),
        runs: 0,
    };
    for size in bench.turns.order(sizes.len()) {
        let devices = of_size(&devices, sizes[size]);
        bench.size(&mut run, sizes[size], &devices);
    }
    common::finish(&options, run);
}
