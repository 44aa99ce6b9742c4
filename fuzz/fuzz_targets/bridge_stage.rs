// SPDX-License-Identifier: Apache-2.0
//! Any frames, whole or cut short, through bridges of many kinds: every frame of a burst gets one decision, and it is the
//! one that the bridge by the book gives, down to the octets that leave.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quietwire_dpdk::BURST_MAX;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_tables::bridge::{
    BridgePort, BridgeTables, Clock, Decisions, Flooding, Ingress, Interface, OverLimit, PortVlans,
    ReferenceBridge, Settings, Storm, StormLimits, TagType, Trunk, Tunnel, VlanSet, carry_out,
    decide_with,
};
use quietwire_tables::fdb::{Fdb, Key, Selection};

const AGEING_S: u32 = 3;
const ENTRIES_MAX: u32 = 20;
const TICKS_PER_S: u64 = 1000;
const PORTS: u16 = 4;

/// Takes what is asked for from the front, or what is left.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

fn octet(input: &mut &[u8]) -> u8 {
    take(input, 1).first().copied().unwrap_or(0)
}

/// One of few VLANs.
fn vlan(choice: u8) -> Option<VlanId> {
    VlanId::new([0, 1, 64, 4094][usize::from(choice & 3)]).ok()
}

fn station(choice: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, choice % 8])
}

fn flooding(bits: u8) -> Flooding {
    Flooding {
        unknown_unicast: bits & 1 == 0,
        broadcast: bits & 2 == 0,
        multicast: bits & 4 == 0,
    }
}

fn port(number: u16, aware: bool, input: &mut &[u8]) -> BridgePort {
    let (kind, of, bits) = (octet(input), octet(input), octet(input));
    let tag = if kind & 0x80 == 0 {
        TagType::Customer
    } else {
        TagType::Service
    };
    let set = |bits: u8| -> VlanSet {
        let chosen = (1..4u8).filter(|n| bits >> n & 1 != 0);
        chosen.filter_map(vlan).collect()
    };
    let vlans = match (aware, kind & 3, vlan(of)) {
        (false, ..) => PortVlans::Transparent,
        (_, 0, Some(vlan)) => PortVlans::Access(vlan),
        (_, 1, Some(vlan)) => PortVlans::Tunnel(Tunnel { vlan, tag }),
        (_, _, native) => PortVlans::Trunk(Box::new(Trunk {
            allowed: set(of >> 2),
            native,
            untagged: set(kind >> 2),
            tag,
        })),
    };
    let limit = |bit: u8| (bits & bit != 0).then_some(u32::from(of >> 3) + 1);
    BridgePort {
        vlans,
        flooding: flooding(if bits & 0x80 == 0 { 0 } else { kind >> 4 }),
        learning: bits & 1 == 0,
        learning_limit: limit(2),
        over_limit: if bits & 4 == 0 {
            OverLimit::Forward
        } else {
            OverLimit::Drop
        },
        split_horizon: (bits & 8 != 0).then_some(u16::from(bits >> 7)),
        storm: StormLimits {
            unknown_unicast_pps: limit(0x10),
            broadcast_pps: limit(0x20),
            multicast_pps: limit(0x40),
        },
        ..BridgePort::new(number)
    }
}

fn settings(input: &mut &[u8]) -> Settings {
    let bits = octet(input);
    let aware = bits & 1 != 0;
    let ports = (0..PORTS).map(|number| {
        if bits & 6 == 0 {
            BridgePort::new(number)
        } else {
            port(number, aware, input)
        }
    });
    Settings {
        ports: ports.collect(),
        interfaces: (bits & 8 != 0)
            .then_some(Interface {
                number: 3,
                vlan: aware.then(|| vlan(1)).flatten(),
                address: station(3),
            })
            .into_iter()
            .collect(),
        flooding: flooding(bits >> 5),
    }
}

/// A frame as it stands in the input, or one whose addresses and tags are of a few, so that they meet.
fn frame(input: &mut &[u8]) -> Vec<u8> {
    let length = usize::from(octet(input) % 64);
    if length < 32 {
        return take(input, length).to_vec();
    }
    let (stations, tags) = (octet(input), octet(input));
    let mut frame = [station(stations).0, station(stations >> 3).0].concat();
    for choice in [tags & 0xf, tags >> 4] {
        let number = vlan(choice).map_or(0, VlanId::get).to_be_bytes();
        match choice >> 2 {
            0 => continue,
            1 => frame.extend([0x81, 0]),
            _ => frame.extend([0x88, 0xa8]),
        }
        frame.extend([number[0] | choice << 4, number[1]]);
    }
    frame.resize(length, 0);
    frame
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let settings = settings(&mut input);
    let Ok(tables) = BridgeTables::new(&settings) else {
        return;
    };
    let fdb = Fdb::new(ENTRIES_MAX, AGEING_S);
    let mut storms: Vec<Storm> = (0..PORTS)
        .map(|port| Storm::new(&tables.storm_limits(port), TICKS_PER_S, 0))
        .collect();
    let mut reference = ReferenceBridge::new(settings, ENTRIES_MAX, AGEING_S, TICKS_PER_S);
    let mut decisions = Decisions::default();
    let mut clock = Clock { now_s: 0, ticks: 0 };
    while !input.is_empty() {
        let step = octet(&mut input);
        let port = u16::from(step & 3);
        clock.ticks += u64::from(step >> 2 & 3) * 700;
        clock.now_s = (clock.ticks / TICKS_PER_S) as u32;
        fdb.sweep(0, fdb.buckets(), clock.now_s);
        reference.sweep(clock.now_s);
        if step & 0x20 != 0 {
            let choice = octet(&mut input);
            let (vlan, address) = (vlan(choice), station(choice >> 2));
            let key = Key::in_vlan(vlan.map_or(0, VlanId::get), address.to_u64());
            match choice >> 6 {
                0 => {
                    fdb.remove(key);
                    reference.remove(vlan, address);
                }
                1 => {
                    let set = fdb.set_static(key, port).is_ok();
                    assert_eq!(set, reference.set_static(vlan, address, port));
                }
                2 => {
                    let port = Some(port);
                    fdb.flush(Selection { port, vlan });
                    reference.flush(port, vlan);
                }
                _ => {
                    fdb.flush(Selection { port: None, vlan });
                    reference.flush(None, vlan);
                }
            }
        }
        assert_eq!(fdb.entries() as usize, reference.entries());
        let from = match step >> 6 {
            0 => Ingress::Interface(port),
            _ => Ingress::Port(port),
        };
        let count = usize::from(octet(&mut input)) % (BURST_MAX + 1);
        let frames: Vec<Vec<u8>> = (0..count).map(|_| frame(&mut input)).collect();
        let mut no_limits = Storm::default();
        let storm = match from {
            Ingress::Port(port) => &mut storms[usize::from(port)],
            Ingress::Interface(_) => &mut no_limits,
        };
        decide_with(
            &tables,
            &fdb,
            from,
            storm,
            clock,
            frames.iter().map(Vec::as_slice),
            &mut decisions,
        );
        assert_eq!(decisions.as_slice().len(), frames.len());
        for (frame, decision) in frames.iter().zip(decisions.as_slice()) {
            let disposition = carry_out(*decision, &tables, from, frame);
            assert_eq!(disposition, reference.forward(from, clock, frame));
        }
    }
});
