// SPDX-License-Identifier: Apache-2.0
//! What the bridge forwards with many MAC addresses, over memif and vhost-user, beside Open vSwitch on DPDK over vhost-user.
//!
//! `cargo bench -p quietwire --bench bridge_scale` prints the medians of rounds in which each is measured in turn. One
//! forwarding CPU, 64-byte frames one way, all addresses in turn, tables that have learned all of them. Half of the
//! addresses are on either side. Wants root, a quiet machine and the Debian package openvswitch-switch-dpdk; without the
//! package, quietwire is measured alone. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::ovs::{self, OpenVSwitch, Tables};
use common::switch::{Kind, Switch};
use common::{Load, Machine, Options, Spread, grouped, plot};

/// MAC addresses in the table: the last is what Open vSwitch has room for.
const ADDRESSES: [u32; 5] = [2, 2_000, 20_000, 200_000, ovs::MAC_TABLE];
const ADDRESSES_QUICK: [u32; 3] = [2, 2_000, 20_000];
const ROUNDS: u32 = 3;
/// How long Open vSwitch may take to learn.
const LEARNING: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Quietwire(Kind),
    OpenVSwitch,
}

const DEVICES: [Device; 3] = [
    Device::Quietwire(Kind::Memif),
    Device::Quietwire(Kind::VhostUser),
    Device::OpenVSwitch,
];

impl Device {
    fn name(self) -> String {
        match self {
            Self::Quietwire(kind) => format!("quietwire, {}", kind.name()),
            Self::OpenVSwitch => "Open vSwitch, vhost-user".to_owned(),
        }
    }
}

/// One device with so many addresses.
#[derive(Debug, serde::Serialize)]
struct Row {
    device: String,
    mac_addresses: u32,
    forwarded_pps: Spread,
    /// Ticks of the time stamp counter that the forwarding thread spent on each frame that it received: what the device
    /// could do where the tester is the limit.
    cycles_a_frame: Option<Spread>,
    /// What the peer had learned when it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    tables: Option<Tables>,
}

/// Frames forwarded a second, and ticks for each where the device tells.
type Measured = (f64, Option<f64>);

struct Bench {
    options: Options,
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
        }
        .rate()
    }

    fn quietwire(&mut self, kind: Kind, addresses: u32) -> Measured {
        let room = (addresses * 2).max(1024).to_string();
        let directory = self.fresh();
        let more = ["--bridge", "br0=p0,p1", "--max-entries", &room];
        let switch = Switch::start(&directory, kind, 2, &more);
        let rate = self.load([0, 1].map(|port| switch.tester_uri(port)), addresses, &[]);
        (rate, switch.cycles_a_frame())
    }

    /// All devices with so many addresses, in turns.
    fn size(&mut self, addresses: u32, devices: &[Device]) -> Vec<Row> {
        let mut rates = vec![Vec::new(); devices.len()];
        let peer = devices.contains(&Device::OpenVSwitch).then(|| {
            let directory = self.fresh();
            Peer::start(self, &directory, addresses)
        });
        for _ in 0..self.options.rounds(ROUNDS) {
            for (device, rates) in devices.iter().zip(&mut rates) {
                rates.push(match (device, &peer) {
                    (Device::Quietwire(kind), _) => self.quietwire(*kind, addresses),
                    (Device::OpenVSwitch, Some(peer)) => peer.rate(self, addresses),
                    (Device::OpenVSwitch, None) => unreachable!("it was started above"),
                });
            }
        }
        let rows = devices.iter().zip(&rates).map(|(device, rates)| Row {
            device: device.name(),
            mac_addresses: addresses,
            forwarded_pps: Spread::of(&rates.iter().map(|one| one.0).collect::<Vec<_>>()),
            cycles_a_frame: spread_of_told(rates),
            tables: peer
                .as_ref()
                .filter(|_| *device == Device::OpenVSwitch)
                .map(|peer| peer.tables),
        });
        rows.collect()
    }
}

fn spread_of_told(measured: &[Measured]) -> Option<Spread> {
    let told: Vec<f64> = measured.iter().filter_map(|one| one.1).collect();
    (!told.is_empty()).then(|| Spread::of(&told))
}

/// Open vSwitch, stopped unless it is measured.
struct Peer {
    ovs: OpenVSwitch,
    tables: Tables,
}

/// It sets its ports up anew whenever the tester comes, seconds on ordinary pages.
const SETTLE: [&str; 4] = ["--settle", "4s", "--learning-time", "4s"];

impl Peer {
    /// Starts it and has it learn all addresses, once: it keeps them from round to round.
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
            learning.join().expect("the tester teaches it");
            ovs.tables()
        });
        ovs.pause();
        Self { ovs, tables }
    }

    fn rate(&self, bench: &Bench, addresses: u32) -> Measured {
        self.ovs.go_on();
        self.ovs.raise_flow_limit();
        self.ovs.clear_cycles();
        let ports = [0, 1].map(|port| self.ovs.tester_uri(port));
        let rate = bench.load(ports, addresses, &SETTLE);
        let cycles = self.ovs.cycles_a_frame();
        self.ovs.pause();
        (rate, cycles)
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let mut devices = DEVICES.to_vec();
    if !ovs::is_installed() {
        eprintln!(
            "no Open vSwitch: `apt-get install openvswitch-switch-dpdk` brings it; quietwire is measured alone"
        );
        devices.retain(|device| *device != Device::OpenVSwitch);
    }
    devices.retain(|device| options.wants(&device.name()));
    let sizes = if options.quick {
        &ADDRESSES_QUICK[..]
    } else {
        &ADDRESSES
    };
    let circumstances = common::circumstances(&options, ROUNDS);
    let mut bench = Bench {
        options: options.clone(),
        directory: tempfile::tempdir().unwrap(),
        runs: 0,
    };
    let rows: Vec<Row> = sizes
        .iter()
        .flat_map(|size| bench.size(*size, &devices))
        .collect();
    if options.json {
        let document =
            serde_json::json!({ "bench": "bridge_scale", "run": circumstances, "rows": rows });
        println!("{document:#}");
    } else {
        print(&rows);
    }
    if let Some(directory) = &options.svg {
        draw(directory, &devices, &rows);
    }
}

fn print(rows: &[Row]) {
    println!(
        "| 64 B, MAC addresses | device | forwarded, Mpps: median | min | max | cycles a frame: median |"
    );
    println!("|---|---|---|---|---|---|");
    for row in rows {
        let addresses = grouped(u64::from(row.mac_addresses));
        let cycles = row.cycles_a_frame.map_or(f64::NAN, |cycles| cycles.median);
        println!(
            "| {addresses} | {} | {} | {cycles:.0} |",
            row.device,
            row.forwarded_pps.mpps()
        );
    }
    for row in rows {
        if let Some(Tables {
            mac_addresses,
            flows,
        }) = row.tables
        {
            println!(
                "{} of {} addresses learned by {}, {flows} flows",
                mac_addresses, row.mac_addresses, row.device
            );
        }
    }
}

fn draw(directory: &Path, devices: &[Device], rows: &[Row]) {
    let series: Vec<plot::Series> = devices
        .iter()
        .map(|device| {
            let name = device.name();
            let of_device = rows.iter().filter(|row| row.device == name);
            let points = of_device.map(|row| (u64::from(row.mac_addresses), row.forwarded_pps));
            plot::Series {
                points: points.collect(),
                name,
            }
        })
        .collect();
    let labels = plot::Labels {
        title: "Bridge: 64-byte frames, one forwarding CPU",
        below: "MAC addresses",
        left: "forwarded, Mpps",
        unit: 1e6,
    };
    plot::draw(directory, "bridge_scale", &labels, &series);
}
