// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use quietwire_packet::{EtherType, MacAddress, VlanId};

use super::*;
use crate::drops::PortDrops;
use crate::fdb::{Key, Selection};

const AGEING_S: u32 = 10;
const ENTRIES_MAX: u32 = 14;
const TICKS_PER_S: u64 = 1000;

fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend(source);
    frame.extend([0x08, 0x00]);
    frame.resize(60, 0);
    frame
}

fn tagged(destination: [u8; 6], source: [u8; 6], tpid: EtherType, tci: u16) -> Vec<u8> {
    let mut frame = frame(destination, source);
    let tag = [tpid.0.to_be_bytes(), tci.to_be_bytes()].concat();
    frame.splice(12..12, tag);
    frame
}

/// One of few addresses, so that frames share addresses.
fn address() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        12 => (0..8u8).prop_map(|n| [2, 0, 0, 0, 0, n]),
        2 => Just([0xff; 6]),
        2 => (0..2u8).prop_map(|n| [0x01, 0x00, 0x5e, 0, 0, n]),
        1 => (0..0x12u8).prop_map(|n| [0x01, 0x80, 0xc2, 0, 0, n]),
        1 => Just([0; 6]),
    ]
}

fn vlan(number: u16) -> VlanId {
    VlanId::new(number).unwrap()
}

/// One of few VLANs, by number.
const VLANS: [u16; 3] = [1, 64, 4094];

fn some_vlan() -> impl Strategy<Value = VlanId> {
    prop::sample::select(&VLANS).prop_map(vlan)
}

fn vlan_set() -> impl Strategy<Value = VlanSet> {
    prop::collection::vec(some_vlan(), 0..5).prop_map(|vlans| vlans.into_iter().collect())
}

fn tci() -> impl Strategy<Value = u16> {
    let number = prop_oneof![
        8 => prop::sample::select(&VLANS),
        1 => Just(0),
        1 => Just(4095),
        1 => Just(77),
    ];
    (number, prop_oneof![2 => Just(0u16), 1 => 0..16u16])
        .prop_map(|(number, bits)| number | bits << 12)
}

/// Returns a frame with up to three tags, perhaps cut short.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let tpid = prop::sample::select(&[0x8100, 0x8100, 0x88a8, 0x9100]);
    let length = prop_oneof![10 => Just(80), 1 => 0..24usize];
    (
        address(),
        address(),
        prop_oneof![Just(0..1usize), Just(1..2), Just(1..2), Just(2..3)]
            .prop_flat_map(move |count| prop::collection::vec((tpid.clone(), tci()), count)),
        length,
    )
        .prop_map(|(destination, source, tags, length)| {
            let mut frame = frame(destination, source);
            for (tpid, tci) in tags {
                frame = tagged(destination, source, EtherType(tpid), tci)
                    .into_iter()
                    .take(16)
                    .chain(frame.into_iter().skip(12))
                    .collect();
            }
            frame.truncate(length);
            frame
        })
}

fn flooding() -> impl Strategy<Value = Flooding> {
    let all = Just(Flooding::default());
    let some =
        any::<(bool, bool, bool)>().prop_map(|(unknown_unicast, broadcast, multicast)| Flooding {
            unknown_unicast,
            broadcast,
            multicast,
        });
    prop_oneof![3 => all, 1 => some]
}

fn tag_type() -> impl Strategy<Value = TagType> {
    prop_oneof![Just(TagType::Customer), Just(TagType::Service)]
}

fn port_vlans() -> impl Strategy<Value = PortVlans> {
    let trunk = (
        vlan_set(),
        prop::option::of(some_vlan()),
        vlan_set(),
        tag_type(),
    );
    prop_oneof![
        2 => some_vlan().prop_map(PortVlans::Access),
        3 => trunk.prop_map(|(allowed, native, untagged, tag)| PortVlans::Trunk(Box::new(Trunk { allowed, native, untagged, tag }))),
        1 => (some_vlan(), tag_type()).prop_map(|(vlan, tag)| PortVlans::Tunnel(Tunnel { vlan, tag })),
    ]
}

fn limit() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![3 => Just(None), 1 => (1..60u32).prop_map(Some)]
}

fn storm_limits() -> impl Strategy<Value = StormLimits> {
    (limit(), limit(), limit()).prop_map(|(unknown_unicast_pps, broadcast_pps, multicast_pps)| {
        StormLimits {
            unknown_unicast_pps,
            broadcast_pps,
            multicast_pps,
        }
    })
}

fn some_port(number: u16, aware: bool) -> impl Strategy<Value = BridgePort> {
    let vlans = if aware {
        port_vlans().boxed()
    } else {
        Just(PortVlans::Transparent).boxed()
    };
    (
        vlans,
        flooding(),
        prop::bool::weighted(0.9),
        prop_oneof![3 => Just(None), 1 => (1..4u32).prop_map(Some)],
        any::<bool>(),
        prop_oneof![3 => Just(None), 2 => (0..2u16).prop_map(Some)],
        storm_limits(),
    )
        .prop_map(
            move |(vlans, flooding, learning, learning_limit, drops, split_horizon, storm)| {
                BridgePort {
                    number,
                    vlans,
                    flooding,
                    learning,
                    learning_limit,
                    over_limit: if drops {
                        OverLimit::Drop
                    } else {
                        OverLimit::Forward
                    },
                    split_horizon,
                    storm,
                }
            },
        )
}

/// Port numbers; the last is not a port of the bridge.
const PORTS: [u16; 5] = [0, 1, 2, 7, 5];

fn interfaces(aware: bool) -> impl Strategy<Value = Vec<Interface>> {
    let interface = move |number: u16, vlan: Option<VlanId>| Interface {
        number,
        vlan,
        address: MacAddress([2, 0, 0, 0, 0, number as u8]),
    };
    let all: Vec<Interface> = if aware {
        vec![interface(0, Some(vlan(1))), interface(3, Some(vlan(64)))]
    } else {
        vec![interface(3, None)]
    };
    prop::sample::subsequence(all.clone(), 0..=all.len())
}

fn settings() -> impl Strategy<Value = Settings> {
    let plain = Just(Settings {
        ports: PORTS[..4]
            .iter()
            .map(|port| BridgePort::new(*port))
            .collect(),
        ..Settings::default()
    });
    let any = any::<bool>().prop_flat_map(|aware| {
        let ports: Vec<_> = PORTS[..4]
            .iter()
            .map(|port| some_port(*port, aware))
            .collect();
        (ports, interfaces(aware), flooding()).prop_map(|(ports, interfaces, flooding)| Settings {
            ports,
            interfaces,
            flooding,
        })
    });
    prop_oneof![1 => plain, 6 => any]
        .prop_filter("valid settings", |settings| settings.validate().is_ok())
}

fn ingress() -> impl Strategy<Value = Ingress> {
    prop_oneof![
        8 => prop::sample::select(&PORTS[..4]).prop_map(Ingress::Port),
        1 => prop::sample::select(&[0, 3, 9]).prop_map(Ingress::Interface),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Burst(Ingress, Vec<Vec<u8>>),
    Pass(u32),
    Remove(Option<VlanId>, [u8; 6]),
    SetStatic(Option<VlanId>, [u8; 6], u16),
    Flush(Option<u16>, Option<VlanId>),
}

fn step() -> impl Strategy<Value = Step> {
    let vlan = || prop::option::of(some_vlan());
    let station = || (0..8u8).prop_map(|n| [2, 0, 0, 0, 0, n]);
    let port = || prop::sample::select(&PORTS);
    prop_oneof![
        8 => (ingress(), prop::collection::vec(any_frame(), 0..=BURST_MAX))
            .prop_map(|(from, frames)| Step::Burst(from, frames)),
        2 => (1..6000u32).prop_map(Step::Pass),
        1 => (vlan(), station()).prop_map(|(vlan, address)| Step::Remove(vlan, address)),
        1 => (vlan(), station(), port())
            .prop_map(|(vlan, address, port)| Step::SetStatic(vlan, address, port)),
        1 => (prop::option::of(port()), vlan()).prop_map(|(port, vlan)| Step::Flush(port, vlan)),
    ]
}

/// A bridge and its reference.
struct Pair {
    tables: BridgeTables,
    fdb: Fdb,
    storms: Vec<(u16, Storm)>,
    reference: ReferenceBridge,
    clock: Clock,
    /// Decisions for the last burst.
    decisions: Vec<Decision>,
}

impl Pair {
    fn new(settings: &Settings) -> Self {
        let tables = BridgeTables::new(settings).unwrap();
        let storm = |port: &u16| Storm::new(&tables.storm_limits(*port), TICKS_PER_S, 0);
        let storms = PORTS.iter().map(|port| (*port, storm(port))).collect();
        Self {
            tables,
            storms,
            fdb: Fdb::new(ENTRIES_MAX, AGEING_S),
            reference: ReferenceBridge::new(settings.clone(), ENTRIES_MAX, AGEING_S, TICKS_PER_S),
            clock: Clock {
                now_s: 1,
                ticks: 1000,
            },
            decisions: Vec::new(),
        }
    }

    fn burst(&mut self, from: Ingress, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
        let mut decisions = Decisions::default();
        let mut no_limits = Storm::default();
        let storm = match from {
            Ingress::Port(number) => self.storms.iter_mut().find(|(port, _)| *port == number),
            Ingress::Interface(_) => None,
        };
        let storm = storm.map_or(&mut no_limits, |(_, storm)| storm);
        self.reference.tally = Tally::default();
        let tally = decide_with(
            &self.tables,
            &self.fdb,
            from,
            storm,
            self.clock,
            frames.iter().map(Vec::as_slice),
            &mut decisions,
        );
        prop_assert_eq!(decisions.as_slice().len(), frames.len());
        for (frame, decision) in frames.iter().zip(decisions.as_slice()) {
            let disposition = carry_out(*decision, &self.tables, from, frame);
            let expected = self.reference.forward(from, self.clock, frame);
            prop_assert_eq!(disposition, expected, "{:?} {:02x?}", from, frame);
        }
        self.decisions = decisions.as_slice().to_vec();
        let mut expected = self.reference.tally;
        expected.flapped = tally.flapped;
        if self.tables.is_plain() {
            // Counted once for a run of identical frames.
            expected.not_learned = tally.not_learned;
            expected.static_elsewhere = tally.static_elsewhere;
        }
        prop_assert_eq!(tally, expected);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.decisions.clear();
        match step {
            Step::Burst(from, frames) => self.burst(from, &frames)?,
            Step::Pass(ticks) => {
                self.clock.ticks += u64::from(ticks);
                self.clock.now_s = (self.clock.ticks / TICKS_PER_S) as u32;
                self.fdb.sweep(0, self.fdb.buckets(), self.clock.now_s);
                self.reference.sweep(self.clock.now_s);
            }
            Step::Remove(vlan, address) => {
                self.fdb.remove(key(vlan, address));
                self.reference.remove(vlan, MacAddress(address));
            }
            // A plain bridge does not check whether a port is its own.
            Step::SetStatic(_, _, port) if self.tables.is_plain() && port == PORTS[4] => {}
            Step::SetStatic(vlan, address, port) => {
                let there = self.fdb.set_static(key(vlan, address), port).is_ok();
                let expected = self.reference.set_static(vlan, MacAddress(address), port);
                prop_assert_eq!(there, expected);
            }
            Step::Flush(port, vlan) => {
                self.fdb.flush(Selection { port, vlan });
                self.reference.flush(port, vlan);
            }
        }
        prop_assert_eq!(self.fdb.entries() as usize, self.reference.entries());
        Ok(())
    }
}

fn key(vlan: Option<VlanId>, address: [u8; 6]) -> Key {
    Key::in_vlan(vlan.map_or(0, VlanId::get), MacAddress(address).to_u64())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn does_as_the_bridge_by_the_book(
        settings in settings(), steps in prop::collection::vec(step(), 1..30),
    ) {
        let mut pair = Pair::new(&settings);
        for step in steps {
            pair.step(step)?;
        }
    }

    #[test]
    fn any_bytes_get_one_decision_each(
        settings in settings(), frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..80)
    ) {
        let tables = BridgeTables::new(&settings).unwrap();
        let fdb = Fdb::new(64, AGEING_S);
        let mut decisions = Decisions::default();
        let clock = Clock { now_s: 7, ticks: 7 };
        let tally = decide_with(
            &tables, &fdb, Ingress::Port(2), &mut Storm::default(), clock, frames.iter().map(Vec::as_slice), &mut decisions,
        );
        prop_assert_eq!(decisions.as_slice().len(), frames.len().min(BURST_MAX));
        let short = frames.iter().take(BURST_MAX).filter(|frame| frame.len() < 14).count();
        prop_assert!(tally.drops[PortDrop::Short] >= short as u64);
    }
}

/// The comparison above is meaningful only if its frames exercise every rule.
#[test]
fn the_comparison_meets_every_rule() {
    let observed = std::cell::RefCell::new(BTreeMap::new());
    let strategy = (settings(), prop::collection::vec(step(), 1..30));
    let note = |what: String| {
        *observed.borrow_mut().entry(what).or_insert(0) += 1;
    };
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig::with_cases(300),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let met = runner.run(&strategy, |(settings, steps)| {
        let mut pair = Pair::new(&settings);
        for step in steps {
            pair.step(step)?;
            pair.decisions.iter().for_each(|decision| match decision {
                Decision::Forward(_) => note("forward".to_owned()),
                Decision::Local(_, action) => note(format!("local {}", kind(*action))),
                Decision::ForwardTag(_, action) => note(kind(*action).to_owned()),
                Decision::Flood => note("flood".to_owned()),
                Decision::FloodSet(flood) => {
                    for copy in pair.tables.copies(*flood, Ingress::Port(0)) {
                        note(match copy {
                            Copy::Port(_, action) => format!("flood {}", kind(action)),
                            Copy::Interface(_, action) => {
                                format!("flood to interface {}", kind(action))
                            }
                        });
                    }
                }
                Decision::Drop(reason) => note(format!("{reason:?}")),
            });
        }
        Ok(())
    });
    assert!(met.is_ok(), "{met:?}");
    let expected = [
        "forward",
        "local none",
        "local pop",
        "pop",
        "push",
        "replace",
        "flood",
        "flood none",
        "flood pop",
        "flood push",
        "flood replace",
        "flood to interface none",
        "flood to interface pop",
        "Short",
        "Filtered",
        "ReservedAddress",
        "FrameType",
        "NotMember",
        "NoMember",
        "SplitHorizon",
        "NotFlooded",
        "StormUnknownUnicast",
        "StormBroadcast",
        "StormMulticast",
        "OverLimit",
        "NoInput",
    ];
    let observed = observed.into_inner();
    for what in expected {
        assert!(
            observed.get(what).is_some_and(|times: &u32| *times >= 5),
            "{what}: {observed:?}"
        );
    }
}

fn kind(action: TagAction) -> &'static str {
    match action {
        TagAction::None => "none",
        TagAction::Pop => "pop",
        TagAction::Push(_) => "push",
        TagAction::Replace(_) => "replace",
    }
}

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn decide_all(fdb: &Fdb, input: u16, now_s: u32, frames: &[Vec<u8>]) -> (Vec<Decision>, Tally) {
    let mut decisions = Decisions::default();
    let tally = decide(
        fdb,
        input,
        now_s,
        frames.iter().map(Vec::as_slice),
        &mut decisions,
    );
    (decisions.as_slice().to_vec(), tally)
}

#[test]
fn decisions_are_counted() {
    let fdb = Fdb::new(2, AGEING_S);
    let (decisions, tally) = decide_all(
        &fdb,
        0,
        1,
        &[
            frame(B, A),
            frame(B, A),
            frame(A, B),
            frame([0xff; 6], [2, 0, 0, 0, 0, 3]),
        ],
    );
    assert_eq!(
        decisions,
        [
            Decision::Flood,
            Decision::Flood,
            Decision::Drop(PortDrop::Filtered),
            Decision::Flood
        ]
    );
    assert_eq!(
        tally,
        Tally {
            flooded: 3,
            dropped: 1,
            drops: PortDrops::of(|reason| u64::from(reason == PortDrop::Filtered)),
            learned: 2,
            not_learned: 1,
            ..Tally::default()
        }
    );
    let (decisions, tally) = decide_all(&fdb, 5, 1, &[frame(B, A)]);
    assert_eq!(decisions, [Decision::Forward(0)]);
    assert_eq!((tally.moved, tally.learned), (1, 0));
    assert_eq!(
        decide_all(&fdb, 0, 1, &[frame(A, B)]).0,
        [Decision::Forward(5)]
    );
}

#[test]
fn one_decision_for_all_is_detected() {
    let fdb = Fdb::new(64, AGEING_S);
    let mut decisions = Decisions::default();
    let mut common = |frames: &[Vec<u8>]| {
        decide(&fdb, 0, 1, frames.iter().map(Vec::as_slice), &mut decisions);
        decisions.common()
    };
    assert_eq!(common(&[frame(B, A), frame(B, A)]), Some(Decision::Flood));
    assert_eq!(common(&[frame(B, A), frame(A, B)]), None);
    assert_eq!(common(&[frame(B, A), frame(B, A), vec![]]), None);
    assert_eq!(common(&[vec![]]), Some(Decision::Drop(PortDrop::Short)));
}

/// A customer's tagged frame through a provider: in through a tunnel, over a trunk, and out again unchanged.
#[test]
fn a_customers_tags_go_through_a_tunnel_untouched() {
    let tunnel = |number| BridgePort {
        vlans: PortVlans::Tunnel(Tunnel {
            vlan: vlan(100),
            tag: TagType::Service,
        }),
        ..BridgePort::new(number)
    };
    let trunk = BridgePort {
        vlans: PortVlans::Trunk(Box::new(Trunk {
            tag: TagType::Service,
            ..Trunk::new(VlanSet::all())
        })),
        ..BridgePort::new(2)
    };
    let settings = Settings {
        ports: vec![tunnel(1), trunk, tunnel(3)],
        ..Settings::default()
    };
    let tables = BridgeTables::new(&settings).unwrap();
    let fdb = Fdb::new(64, AGEING_S);
    let disposition = |from, frame: &[u8]| {
        let mut decisions = Decisions::default();
        let clock = Clock { now_s: 1, ticks: 0 };
        let mut storm = Storm::default();
        decide_with(
            &tables,
            &fdb,
            from,
            &mut storm,
            clock,
            [frame.to_vec()].iter().map(Vec::as_slice),
            &mut decisions,
        );
        carry_out(decisions.as_slice()[0], &tables, from, frame)
    };
    let customers = tagged(B, A, EtherType::VLAN, 0x2005);
    let mut outside = customers.clone();
    outside.splice(12..12, [0x88, 0xa8, 0, 100]);
    let exits = [
        (Exit::Port(2), outside.clone()),
        (Exit::Port(3), customers.clone()),
    ];
    assert_eq!(
        disposition(Ingress::Port(1), &customers),
        Disposition::Forwarded(exits.into())
    );
    let reply = |to, from| {
        let mut frame = tagged(to, from, EtherType::VLAN, 0x2005);
        frame.splice(12..12, [0x88, 0xa8, 0xa0, 100]);
        frame
    };
    let arrived = [(Exit::Port(1), tagged(A, B, EtherType::VLAN, 0x2005))];
    assert_eq!(
        disposition(Ingress::Port(2), &reply(A, B)),
        Disposition::Forwarded(arrived.into())
    );
}

#[test]
fn invalid_bridges_are_reported() {
    let with = |ports: Vec<BridgePort>| Settings {
        ports,
        ..Settings::default()
    };
    let port = BridgePort::new;
    let access = |number, of| BridgePort {
        vlans: PortVlans::Access(vlan(of)),
        ..port(number)
    };
    let error = |settings: Settings| settings.validate().unwrap_err().to_string();
    assert!(error(with(vec![])).contains("no ports"));
    assert!(error(with(vec![port(5000)])).contains("below 2048"));
    assert!(error(with(vec![port(1), port(1)])).contains("twice"));
    assert!(
        error(with(vec![port(1), access(2, 7)])).contains("port 2 has VLANs and port 1 has none")
    );
    let trunk = BridgePort {
        vlans: PortVlans::Trunk(Box::new(Trunk::new(VlanSet::NONE))),
        ..port(3)
    };
    assert!(error(with(vec![trunk])).contains("trunk without VLANs"));
    let trunk = BridgePort {
        vlans: PortVlans::Trunk(Box::new(Trunk::new(VlanSet::all()))),
        ..port(3)
    };
    let tunnel = BridgePort {
        vlans: PortVlans::Tunnel(Tunnel {
            vlan: vlan(9),
            tag: TagType::Service,
        }),
        ..port(4)
    };
    assert!(
        error(with(vec![trunk, tunnel])).contains("VLAN 9: the tag type is 0x8100 on trunk port 3")
    );
    let limited = BridgePort {
        learning_limit: Some(0),
        ..port(1)
    };
    assert!(error(with(vec![limited])).contains("port 1: the learning limit is 0"));
    let interface = |number, of: Option<u16>, address| Interface {
        number,
        vlan: of.map(vlan),
        address: MacAddress(address),
    };
    let with_interfaces = |ports, interfaces| Settings {
        ports,
        interfaces,
        ..Settings::default()
    };
    let bad = [
        (vec![port(1)], vec![interface(1, Some(5), A)], "no VLANs"),
        (
            vec![access(1, 5)],
            vec![interface(1, None, A)],
            "set the VLAN of the interface",
        ),
        (
            vec![port(1)],
            vec![interface(1, None, [1; 6])],
            "not a unicast MAC address",
        ),
        (
            vec![port(1)],
            vec![interface(1, None, A), interface(2, None, B)],
            "interfaces 1 and 2",
        ),
    ];
    for (ports, interfaces, what) in bad {
        let error = error(with_interfaces(ports, interfaces));
        assert!(error.contains(what), "{error}");
    }
}
