// SPDX-License-Identifier: Apache-2.0
//! Frames that begin connections, of threads that have time for them and of saturated ones.

use std::sync::Arc;

use quietwire_dpdk::{Eal, Mbuf};
use quietwire_tables::connections::{ConnectionFilter, Settings, Timeouts, Tracker};
use quietwire_tables::filter::{Action, Fallback, PacketMatch, PortRule, RuleCounters, RuleTable};

use super::super::connections::{ConnectionQuery, ConnectionTotals};
use super::super::effects::Effects;
use super::super::path::Leaving;
use super::super::saved::Transfer;
use super::super::telemetry::Telemetry;
use super::*;
use crate::counters::ThreadCounters;
use crate::filter_log::FilterLog;
use crate::testing::eal;

const PORT: usize = 4;
/// Frames of established connections in a burst. Those of a scan follow.
const KNOWN: u16 = 16;
/// Turns in which the thread becomes saturated, and more.
const TURNS: u32 = 600;
/// Fewer such turns, for several of them in a test: each frame of a scan is to another host.
const FEW_TURNS: u32 = 300;

/// Returns a UDP datagram to a host, or its answer.
fn datagram(host: u16, is_answer: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    let [high, low] = host.to_be_bytes();
    let (mut ends, mut ports) = ([[10, 0, 0, 1], [192, 168, high, low]], [[4, 0], [0, 53]]);
    if is_answer {
        ends.reverse();
        ports.reverse();
    }
    frame.extend(ends.concat());
    frame.extend(ports.concat());
    frame.extend([0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// A thread with one port, whose rules accept all frames.
struct World {
    eal: Eal,
    stage: ConnectionStage,
    rules: PortRules,
    pool: Mempool,
    counters: Arc<ThreadCounters>,
    telemetry: Telemetry,
    effects: Effects,
    received: Burst,
    kept: Burst,
    verdicts: Box<Verdicts>,
    spare: Burst,
    scanned: u16,
}

impl World {
    /// Creates a thread that knows the connections of [`KNOWN`] hosts. New ones have one percent of its time.
    fn new(name: &str) -> Self {
        let eal = eal();
        let tracker = Tracker::new(&Settings::of_size(65_536)).unwrap();
        let table = RuleTable::new([], Fallback::default());
        let counters = Arc::new(ThreadCounters::new());
        let mut world = Self {
            stage: ConnectionStage::new(tracker, Some(1)),
            rules: PortRules::new(Arc::new(table), PORT as u16, None),
            pool: Mempool::new(&eal, name, 511, 256).unwrap(),
            telemetry: Telemetry::new(Arc::clone(&counters)),
            counters,
            effects: Effects::new(
                RuleCounters::default().thread(),
                FilterLog::default().writer(),
                &eal,
            ),
            received: Burst::new(&eal),
            kept: Burst::new(&eal),
            verdicts: Box::new([Verdict::Short; BURST_MAX]),
            spare: Burst::new(&eal),
            scanned: KNOWN,
            eal,
        };
        for is_answer in [false, true] {
            let frames: Vec<_> = (0..KNOWN).map(|host| datagram(host, is_answer)).collect();
            assert_eq!(world.turn(&frames), frames);
        }
        world
    }

    /// Processes a burst. Returns the accepted frames.
    fn turn(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for octets in frames {
            let frame = Mbuf::new(&self.eal, &self.pool, octets).unwrap();
            assert!(self.received.push(frame).is_ok());
        }
        let started = self.telemetry.last();
        self.telemetry.lap(Step::Receive);
        self.stage.received(frames.len());
        self.stage.begin_burst(started);
        let mut path = Path {
            received: &mut self.received,
            outputs: &mut [],
            counters: &self.counters.ports,
            telemetry: &mut self.telemetry,
            leaving: Leaving {
                rules: None,
                from: Some(PORT as u16),
                spare: &mut self.spare,
                effects: &mut self.effects,
                pool: &self.pool,
            },
        };
        let context = FilterContext {
            connections: Some(&mut self.stage),
            names: None,
            inspection: None,
            inside: TranslatorsView {
                nat: None,
                balance: None,
                prefixes: None,
            },
            now_s: 0,
            kept: &mut self.kept,
            verdicts: &mut self.verdicts,
            pool: &self.pool,
        };
        let has_any = path.filter(PORT, (&self.rules, 0), context);
        let accepted: Vec<Vec<u8>> = self.received.frames().map(<[u8]>::to_vec).collect();
        assert_eq!(has_any, !accepted.is_empty());
        self.received.free();
        self.telemetry.lap(Step::Send);
        self.stage.end_burst(self.telemetry.last());
        self.stage.end_turn(self.telemetry.last(), false);
        accepted
    }

    /// Processes frames of established connections among those of a scan. Returns the number of accepted frames of the scan.
    fn turn_with_scan(&mut self, scanned: u16) -> u64 {
        let known: Vec<_> = (0..KNOWN).map(|host| datagram(host, false)).collect();
        let of_scan = self.scanned..self.scanned + scanned;
        self.scanned += scanned;
        let scan: Vec<_> = of_scan.map(|host| datagram(host, false)).collect();
        // Some before the scan, and some after it.
        let (first, last) = known.split_at(5);
        let accepted = self.turn(&[first, &scan[..], last].concat());
        let passed: Vec<_> = accepted.iter().filter(|one| known.contains(one)).collect();
        assert_eq!(passed, known.iter().collect::<Vec<_>>());
        (accepted.len() - known.len()) as u64
    }

    /// Returns the number of frames that were dropped for lack of time.
    fn dropped(&self) -> u64 {
        let of_port = &self.counters.ports[PORT];
        let dropped = of_port.dropped(PortDrop::NewShare).get();
        // The next stage counts accepted frames.
        let received = (of_port.rx_frames.get(), of_port.rx_octets.get());
        assert_eq!(received, (dropped, 60 * dropped));
        dropped
    }

    /// Returns the number of connections in the table.
    fn connections(&mut self) -> u64 {
        let mut query = ConnectionQuery {
            filter: ConnectionFilter::default(),
            is_flush: false,
            from: None,
            budget: 0,
            list: Vec::new(),
            external: Vec::new(),
            removed: 0,
            transfer: Transfer::None,
            totals: ConnectionTotals::default(),
        };
        self.stage.answer(&mut query, None, 0);
        query.totals.connections
    }
}

#[test]
fn a_saturated_thread_drops_new_connections_and_forwards_established_ones() {
    let mut world = World::new("new-share-scan");
    let mut accepted = 0;
    for _ in 0..TURNS {
        accepted += world.turn_with_scan(BURST_MAX as u16 - KNOWN);
    }
    let dropped = world.dropped();
    assert!(dropped > 0, "the scan has taken more than its share");
    let sent = u64::from(world.scanned - KNOWN);
    assert_eq!(accepted + dropped, sent);
    // Dropped frames have not changed the table.
    assert_eq!(world.connections(), u64::from(KNOWN) + accepted);
    assert_eq!(world.pool.available(), 511, "a buffer is lost");
}

#[test]
fn the_limit_of_a_saturated_thread_ends_and_begins_by_a_change() {
    let mut world = World::new("new-share-changed");
    let scan = BURST_MAX as u16 - KNOWN;
    let mut turns = |new_share: Option<u32>, is_limited: bool| {
        let stage = &mut world.stage;
        stage.set_limits(Timeouts::default(), u32::MAX, new_share);
        assert_eq!(world.stage.is_limited(), is_limited);
        let before = world.dropped();
        for _ in 0..FEW_TURNS {
            world.turn_with_scan(scan);
        }
        world.dropped() - before
    };
    assert!(turns(Some(1), false) > 0, "the scan has a limit");
    assert!(turns(Some(2), true) > 0, "the thread stays saturated");
    assert_eq!(turns(None, false), 0);
    assert!(turns(Some(1), false) > 0, "the scan has a limit again");
    assert_eq!(world.pool.available(), 511, "a buffer is lost");
}

#[test]
fn a_thread_with_time_drops_no_new_connection() {
    let mut world = World::new("new-share-quiet");
    let mut accepted = 0;
    for _ in 0..TURNS {
        // The queue has no further frames.
        accepted += world.turn_with_scan(BURST_MAX as u16 / 2 - 1 - KNOWN);
    }
    assert_eq!(accepted, u64::from(world.scanned - KNOWN));
    assert_eq!(world.dropped(), 0);
    assert_eq!(world.connections(), u64::from(KNOWN) + accepted);
}

/// Returns a rule that drops packets to these hosts.
fn drop_to(hosts: &str) -> PortRule {
    PortRule::new(
        PacketMatch {
            destination: Some(hosts.parse().unwrap()),
            ..PacketMatch::default()
        },
        Action::Drop,
    )
}

#[test]
fn denied_frames_leave_each_burst_and_the_others_keep_their_order() {
    let mut world = World::new("denied");
    // Hosts 8 to 15.
    let table = RuleTable::new([drop_to("192.168.0.8/29")], Fallback::default());
    world.rules = PortRules::new(Arc::new(table), PORT as u16, None);
    let bursts = [
        vec![9, 1, 15, 2],
        vec![0, 1, 2],
        vec![8, 9],
        vec![3, 8, 4, 8, 8, 5],
        (0..KNOWN).rev().collect(),
    ];
    let mut denied = 0;
    for hosts in bursts {
        let frames =
            |hosts: &[u16]| -> Vec<_> { hosts.iter().map(|host| datagram(*host, false)).collect() };
        let (others, gone): (Vec<u16>, Vec<u16>) = hosts.iter().partition(|host| **host < 8);
        denied += gone.len() as u64;
        assert_eq!(world.turn(&frames(&hosts)), frames(&others));
    }
    let of_port = &world.counters.ports[PORT];
    assert_eq!(of_port.dropped(PortDrop::Denied).get(), denied);
    // The next stage counts accepted frames.
    let received = (of_port.rx_frames.get(), of_port.rx_octets.get());
    assert_eq!(received, (denied, 60 * denied));
    assert_eq!(world.pool.available(), 511, "a buffer is lost");
}
