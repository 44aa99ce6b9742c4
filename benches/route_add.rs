// SPDX-License-Identifier: Apache-2.0
//! Time from a request for a route until the first frame is forwarded along it, under load.
//!
//! `cargo bench -p quietwire --bench route_add` adds routes one at a time over the control socket of a router that forwards
//! about a million frames per second to 20,000 routes. Among those frames are probes to the network whose route is about to
//! be added; they are dropped until the route exists. The measured time is from just before the request is written until the
//! first probe has returned. One forwarding CPU; memif; the tester, the requesting thread and the switch's control thread
//! share the other CPU. Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use common::record::{Figure, Point, Run};
use common::switch::{self, Kind, Switch};
use common::{DEADLINE, Machine, Options};
use quietwire_dpdk::Registered;
use quietwire_dpdk::thread::set_realtime;
use quietwire_dpdk::{Burst, Eal, Mempool, Port, PortOptions, StartedPort, cycles};
use quietwire_packet::{MacAddress, UdpChecksum, UdpFrame};
use quietwire_switch::config::layer3::{RouteSetting, ViaSetting};
use quietwire_switch::control::{Request, ask};
use serde::de::IgnoredAny;

const ROUNDS: u32 = 5;
const ROUTES_A_ROUND: u32 = 100;
const ROUTES_BEFORE: u32 = 20_000;
/// Networks that have a route from the start, and networks whose routes are added: 16.0.0.0 and 32.0.0.0.
const BEFORE: u32 = 0x1000_0000;
const ADDED: u32 = 0x2000_0000;
const BURST: usize = 32;
const QUIETWIRE: &str = "quietwire";
const FORWARDED: &str = "first frame forwarded";
const ANSWERED: &str = "request answered";
/// Sleep of the traffic thread after a burst.
const PAUSE: Duration = Duration::from_micros(20);
/// Time during which probes are sent before their route is requested: many are sent, and none may return.
const BEFORE_ASKING: Duration = Duration::from_millis(5);

/// State shared by the traffic thread and the requesting thread.
#[derive(Default)]
struct Shared {
    /// The number of the network that probes go to.
    network: AtomicU32,
    /// Number of probes sent to it.
    sent: AtomicU32,
    /// Time at which the first of them returned, ticks; 0 before that.
    observed: AtomicU64,
    frames_sent: AtomicU64,
    stop: AtomicBool,
}

/// Ends the traffic when it is dropped, also after a request that failed.
struct Stop<'a>(&'a Shared);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

/// Times of one route, in microseconds from the request.
struct Sample {
    forwarded_us: f64,
    answered_us: f64,
}

fn address(first: u32, network: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(first + (network << 8) + 1)
}

fn frame(to: Ipv4Addr) -> UdpFrame<'static> {
    UdpFrame {
        destination_mac: MacAddress([2, 1, 0, 0, 0, 0]),
        source_mac: MacAddress([2, 0, 0, 0, 0, 0]),
        tag: None,
        destination_ip: to,
        source_ip: Ipv4Addr::new(192, 0, 2, 2),
        ttl: 64,
        destination_port: 7,
        source_port: 1024,
        udp_checksum: UdpChecksum::Absent,
        payload: &[],
        size_with_fcs: 64,
    }
}

/// Traffic until a stop is requested.
struct Traffic<'a> {
    shared: &'a Shared,
    pool: &'a Mempool,
    ports: [StartedPort; 2],
    random: u32,
}

impl Traffic<'_> {
    fn run(&mut self, eal: &Eal) {
        let _registered = Registered::new(eal).unwrap();
        set_realtime(50).unwrap();
        let (mut sent, mut received) = (Burst::new(eal), Burst::new(eal));
        while !self.shared.stop.load(Ordering::Acquire) {
            self.send(&mut sent);
            self.receive(&mut received);
            sleep(PAUSE);
        }
    }

    /// Sends a burst: one probe, and frames to networks that have a route.
    fn send(&mut self, burst: &mut Burst) {
        if !burst.allocate(self.pool, BURST) {
            return;
        }
        let probed = self.shared.network.load(Ordering::Acquire);
        let (mut first, mut random) = (true, self.random);
        burst.write_each(|blank| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let network = (u64::from(random) * u64::from(ROUTES_BEFORE)) >> 32;
            let to = match std::mem::take(&mut first) {
                true => address(ADDED, probed),
                false => address(BEFORE, network as u32),
            };
            let octets = blank.octets(60).unwrap();
            frame(to).write(octets).unwrap();
        });
        self.random = random;
        let count = self.ports[0].tx[0].send(burst);
        burst.free();
        if count > 0 && self.shared.network.load(Ordering::Acquire) == probed {
            self.shared.sent.fetch_add(1, Ordering::AcqRel);
        }
        self.shared
            .frames_sent
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    fn receive(&mut self, burst: &mut Burst) {
        while self.ports[1].rx[0].receive(burst, BURST) > 0 {
            let now = cycles::now();
            let probed = self.shared.network.load(Ordering::Acquire);
            let wanted = address(ADDED, probed).octets();
            if burst
                .frames()
                .any(|frame| frame.get(30..34) == Some(&wanted[..]))
            {
                let observed = &self.shared.observed;
                let _ = observed.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
            }
            burst.free();
        }
    }
}

fn router(directory: &Path) -> Switch {
    let switch = Switch::start(directory, Kind::Memif, 2, &[]);
    switch.route_between(["192.0.2.1/24", "198.51.100.1/24"], "198.51.100.2");
    let mut routes = String::from("32.0.0.0/8 blackhole\n");
    for network in 0..ROUTES_BEFORE {
        let prefix = Ipv4Addr::from_bits(BEFORE + (network << 8));
        writeln!(routes, "{prefix}/24 198.51.100.2,b0").unwrap();
    }
    let file = directory.join("routes");
    std::fs::write(&file, routes).unwrap();
    assert!(switch.command(&["add", "routes", file.to_str().unwrap()]));
    switch
}

fn open(eal: &Eal, switch: &Switch, pool: &Mempool) -> [StartedPort; 2] {
    let ports = [0, 1].map(|number| {
        let uri = switch.tester_uri(number).parse().unwrap();
        let options = PortOptions::new(&format!("t{number}"), 1518);
        Port::open(eal, &uri, &options, pool)
            .unwrap()
            .start()
            .unwrap()
    });
    common::wait_until("links", DEADLINE, || {
        ports.iter().all(|port| port.handle.link_is_up())
    });
    ports
}

/// Adds routes under load; returns the times of each, and the load in frames per second.
fn round(eal: &Eal, directory: &Path, round: u32) -> (Vec<Sample>, f64) {
    let switch = router(directory);
    let options = PortOptions::new("", 1518);
    let pool = Mempool::new(eal, &format!("round{round}"), 16_384, options.data_room()).unwrap();
    let shared = Shared::default();
    let mut traffic = Traffic {
        shared: &shared,
        pool: &pool,
        ports: open(eal, &switch, &pool),
        random: 1,
    };
    scope(|scope| {
        let running = scope.spawn(move || traffic.run(eal));
        let stop = Stop(&shared);
        let began = Instant::now();
        let samples = (1..=ROUTES_A_ROUND)
            .map(|network| add(&switch, &shared, network))
            .collect();
        let rate =
            shared.frames_sent.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
        drop(stop);
        running.join().unwrap();
        (samples, rate)
    })
}

/// Sends probes to a network, adds its route, and waits for the first probe that returns.
fn add(switch: &Switch, shared: &Shared, network: u32) -> Sample {
    shared.network.store(network, Ordering::Release);
    shared.observed.store(0, Ordering::Release);
    shared.sent.store(0, Ordering::Release);
    sleep(BEFORE_ASKING);
    common::wait_until("probes", DEADLINE, || {
        shared.sent.load(Ordering::Acquire) > 10
    });
    assert_eq!(
        shared.observed.load(Ordering::Acquire),
        0,
        "forwarded without a route"
    );
    let prefix = format!("{}/24", Ipv4Addr::from_bits(ADDED + (network << 8)));
    let request = Request::AddRoutes(vec![RouteSetting {
        prefix: prefix.parse().unwrap(),
        vrf: None,
        kind: None,
        via: vec![ViaSetting {
            address: Some("198.51.100.2".parse().unwrap()),
            interface: None,
            weight: None,
            onlink: false,
        }],
    }]);
    let socket = switch.control_socket();
    let asked = cycles::now();
    ask::<IgnoredAny>(&socket, &request).unwrap();
    let answered = cycles::now();
    let began = Instant::now();
    let observed = loop {
        match shared.observed.load(Ordering::Acquire) {
            0 => assert!(
                began.elapsed() < DEADLINE,
                "nothing is forwarded to {prefix}"
            ),
            observed => break observed,
        }
        sleep(PAUSE);
    };
    let microseconds = |tick: u64| tick.saturating_sub(asked) as f64 * 1e6 / cycles::hz() as f64;
    Sample {
        forwarded_us: microseconds(observed),
        answered_us: microseconds(answered),
    }
}

/// Adds the percentiles of a round's routes.
fn record(run: &mut Run, case: &str, times: impl Iterator<Item = f64>) {
    let mut sorted: Vec<f64> = times.collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() as f64 * share).ceil() as usize).max(1) - 1];
    let figures = [Figure::P50Us, Figure::P99Us, Figure::MaxUs];
    for (figure, share) in figures.into_iter().zip([0.5, 0.99, 1.0]) {
        run.add(&point(case), figure, Some(at(share)));
    }
}

fn point(case: &str) -> Point {
    Point {
        group: format!("from the request to, {ROUTES_A_ROUND} routes a round"),
        case: case.to_owned(),
        size: None,
        side: QUIETWIRE.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let mut run = common::begin(&options, "route_add", rounds, 0.0);
    run.sides.push(switch::side(QUIETWIRE));
    let eal = common::start_dpdk("route-add", 128);
    for number in 0..rounds {
        let own = directory.path().join(number.to_string());
        run.turn(&[FORWARDED, ANSWERED].map(point), |run| {
            let (samples, load) = round(&eal, &own, number);
            let forwarded = samples.iter().map(|sample| sample.forwarded_us);
            record(run, FORWARDED, forwarded);
            let answered = samples.iter().map(|sample| sample.answered_us);
            record(run, ANSWERED, answered);
            run.add(&point(FORWARDED), Figure::LoadPps, Some(load));
        });
    }
    common::finish(&options, run);
}
