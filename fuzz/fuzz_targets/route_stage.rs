// SPDX-License-Identifier: Apache-2.0
//! Any frames, whole or cut short, through a router: every frame of a burst gets one decision, the same as alone, and what
//! goes on is sound afterwards, in one piece or in several that the link takes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use quietwire_dpdk::BURST_MAX;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress, checksum};
use quietwire_tables::fib::{Ipv4Routes, Ipv6Routes};
use quietwire_tables::route::{
    Adjacency, Decision, Decisions, Interface, InterfaceBinding, Interfaces, NextHop, NextHopWriter,
    Router, Source, Urpf, Vrf, decide, fragments, rewrite,
};

const INTERFACES: u16 = 3;
const NEIGHBOUR: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x99]);

fn station(number: u16) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number as u8])
}

/// Different kinds of next hops, by the two highest bits of destinations; everything else has no route.
static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let mut writer = NextHopWriter::new(64).expect("room for 64 next hops");
    let mut ipv4 = Ipv4Routes::new(8).expect("room for a table");
    let mut ipv6 = Ipv6Routes::new(256).expect("room for a table");
    let sent = |interface| NextHop::Adjacency {
        interface,
        mac: NEIGHBOUR,
    };
    let ways = [0, 1].map(|number| writer.add(sent(number)).expect("room"));
    let group = writer.add_group(&ways.map(|way| (way, 1))).expect("room");
    let glean = NextHop::Glean { interface: 2 };
    let glean = writer.add(glean).expect("room");
    let local = writer.add(NextHop::Local).expect("room");
    for (v4, v6, hop) in [
        ("0.0.0.0/2", "::/2", ways[1]),
        ("64.0.0.0/2", "4000::/2", group),
        ("128.0.0.0/2", "8000::/2", glean),
        ("192.0.0.0/3", "c000::/3", local),
    ] {
        let (v4, v6) = (v4.parse().expect("prefix"), v6.parse().expect("prefix"));
        ipv4.insert(v4, hop).expect("room");
        ipv6.insert(v6, hop).expect("room");
    }
    let interface = |number: u16| Interface {
        place: InterfaceBinding::Port(number),
        vlan: None,
        mac: station(number),
        mtu: [1500, 68, 1280][usize::from(number)],
        vrf: 0,
        urpf: [Urpf::Off, Urpf::Strict, Urpf::Loose][usize::from(number)],
        ipv4: true,
        ipv6: number != 1,
    };
    Router {
        interfaces: Interfaces::new((0..INTERFACES).map(|number| (number, interface(number)))),
        vrfs: vec![Vrf {
            ipv4: ipv4.fib(),
            ipv6: ipv6.fib(),
        }],
        next_hops: writer.shared(),
        kernel_filter: None,
    }
});

/// Octets of the input as a frame; most of them to the interface, with a type and a checksum that let them in.
fn frame(input: &mut &[u8]) -> (Vec<u8>, u16) {
    let [choice, length, rest @ ..] = *input else {
        *input = &[];
        return (Vec::new(), 0);
    };
    let (octets, rest) = rest.split_at(usize::from(*length).min(rest.len()));
    *input = rest;
    let number = u16::from(choice & 3);
    if choice & 0x80 != 0 {
        return (octets.to_vec(), number);
    }
    let kind = if choice & 4 == 0 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    let mut frame = [&station(number).0[..], &NEIGHBOUR.0, &kind, octets].concat();
    let packet = &mut frame[ETHERNET_HEADER_LENGTH..];
    let header_length = packet
        .first()
        .map_or(0, |first| usize::from(first & 0xf) * 4);
    if choice & 4 == 0 && header_length >= 20 && packet.len() >= header_length {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..header_length]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
    }
    (frame, number)
}

fn check_sent(mut frame: Vec<u8>, to: Adjacency, in_pieces: bool) {
    let before = frame.clone();
    let out = ROUTER
        .interfaces
        .get(to.interface())
        .expect("an interface that is there");
    assert!(rewrite(&mut frame, Source::new(out.mac), to));
    let packet = &frame[ETHERNET_HEADER_LENGTH..];
    let at = if packet[0] >> 4 == 4 { 8 } else { 7 };
    assert_eq!(packet[at] + 1, before[ETHERNET_HEADER_LENGTH + at]);
    assert!(packet[at] > 0);
    if packet[0] >> 4 == 4 {
        assert_eq!(checksum(&packet[..usize::from(packet[0] & 0xf) * 4]), 0);
    }
    if !in_pieces {
        return;
    }
    for piece in fragments(packet, out.mtu) {
        let mut buffer = vec![0; piece.frame_length()];
        assert!(piece.write(&[0; ETHERNET_HEADER_LENGTH], &mut buffer));
        let piece = &buffer[ETHERNET_HEADER_LENGTH..];
        assert!(piece.len() <= usize::from(out.mtu));
        assert_eq!(checksum(&piece[..usize::from(piece[0] & 0xf) * 4]), 0);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    while !input.is_empty() {
        let mut burst = Vec::new();
        while !input.is_empty() && burst.len() < BURST_MAX {
            burst.push(frame(&mut input));
        }
        let interfaces: Vec<u16> = burst.iter().map(|(_, interface)| *interface).collect();
        let mut decisions = Decisions::default();
        let frames = burst.iter().map(|(frame, _)| frame.as_slice());
        let tally = decide(&ROUTER, frames, &interfaces, &mut decisions);
        assert_eq!(decisions.iter().len(), burst.len());
        let counted =
            tally.forwarded + tally.punted.iter().sum::<u64>() + tally.dropped.iter().sum::<u64>();
        assert_eq!(counted, burst.len() as u64);
        for ((frame, interface), decision) in burst.into_iter().zip(decisions.iter()) {
            let mut alone = Decisions::default();
            decide(
                &ROUTER,
                [frame.as_slice()].into_iter(),
                &[interface],
                &mut alone,
            );
            assert!(alone.iter().eq([decision]));
            match decision {
                Decision::Forward(to) => check_sent(frame, to, false),
                Decision::Fragment(to) => check_sent(frame, to, true),
                Decision::Punt(_) | Decision::Drop(_) => {}
            }
        }
    }
});
