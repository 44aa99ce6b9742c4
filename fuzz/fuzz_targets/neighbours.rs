// SPDX-License-Identifier: Apache-2.0
//! Any frames of ARP and neighbour discovery, between questions, packets and time that passes: the table stays within its
//! bounds, no packet is lost without being counted, and what is sent is sound.
#![no_main]

use std::net::IpAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quietwire_packet::{MacAddress, checksum, parse};
use quietwire_tables::neighbour::{Action, InterfaceInfo, Limits, Neighbours};

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const LIMITS: Limits = Limits {
    neighbours: 6,
    waiting: 3,
    waiting_in_all: 8,
    asks_per_second: 5,
};

fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

fn octet(input: &mut &[u8]) -> u8 {
    take(input, 1).first().copied().unwrap_or(0)
}

fn interface_info() -> [InterfaceInfo; 2] {
    let addresses = [
        &["192.0.2.1/24", "2001:db8::1/64"][..],
        &["198.51.100.1/31"],
    ];
    [0u16, 1].map(|number| InterfaceInfo {
        number,
        mac: OWN,
        addresses: addresses[usize::from(number)]
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect(),
    })
}

/// One of few addresses, so that they meet.
fn address(choice: u8) -> IpAddr {
    let host = u16::from(choice % 12);
    match choice >> 6 {
        0 => IpAddr::from([192, 0, 2, host as u8]),
        1 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]),
        2 => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, host]),
        _ => IpAddr::from([198, 51, 100, host as u8]),
    }
}

fn v6(choice: u8) -> [u8; 16] {
    match address(0x40 | choice & 0xbf) {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => [0; 16],
    }
}

fn v4(choice: u8) -> [u8; 4] {
    match address(choice & 0xf) {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}

/// A message as it should be, with octets of the input put over some of its own.
fn frame(input: &mut &[u8]) -> Vec<u8> {
    let (kind, who, whom) = (octet(input), octet(input), octet(input));
    let from = [2, 0, 0, 0, 0, who % 16];
    let mut frame = [&[0xff; 6][..], &from].concat();
    if kind & 1 == 0 {
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + (kind >> 1 & 1)]);
        frame.extend(from);
        frame.extend(v4(who));
        frame.extend([0; 6]);
        frame.extend(v4(whom));
    } else {
        let message = if kind & 2 == 0 { 135 } else { 136 };
        let target = v6(whom);
        let option = if kind & 4 == 0 { 8 } else { 0 };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24 + option, 58, 255]);
        frame.extend(if kind & 8 == 0 { v6(who) } else { [0; 16] });
        frame.extend(target);
        frame.extend([message, 0, 0, 0, kind & 0xe0, 0, 0, 0]);
        frame.extend(if message == 136 { v6(who) } else { target });
        if option > 0 {
            frame.extend([1 + (kind >> 1 & 1), 1]);
            frame.extend(from);
        }
    }
    let patches = octet(input) % 4;
    for _ in 0..patches {
        let (at, value) = (usize::from(octet(input)), octet(input));
        if at == 255 {
            frame.truncate(usize::from(value));
        } else if let Some(place) = frame.get_mut(at) {
            *place = value;
        }
    }
    if kind & 1 == 1 && kind & 0x10 == 0 && frame.len() > 58 {
        frame[56..58].fill(0);
        let length = (frame.len() as u32 - 54).to_be_bytes();
        let pseudo = [&frame[22..54], &length, &[0, 0, 0, 58], &frame[54..]].concat();
        let sum = checksum(&pseudo).to_be_bytes();
        frame[56..58].copy_from_slice(&sum);
    }
    frame
}

/// Counts of packets by result.
#[derive(Default)]
struct Packets {
    given: u64,
    back: u64,
}

impl Packets {
    fn look(&mut self, out: &mut Vec<Action<u32>>) {
        for action in out.drain(..) {
            match action {
                Action::Transmit { interface, frame } => {
                    assert!(interface < 2);
                    let parsed = parse(&frame).expect("what is sent can be parsed");
                    assert!(parsed.arp(&frame).is_some() || parsed.ipv6(&frame).is_some());
                    assert_eq!(frame[6..12], OWN.0);
                    assert!(frame[..6] != [0; 6]);
                }
                Action::Found { mac, packets, .. } => {
                    assert!(!mac.is_multicast() && mac.to_u64() != 0);
                    self.back += packets.len() as u64;
                }
                Action::Unreachable { packets, .. } => self.back += packets.len() as u64,
                Action::Lost { .. } => {}
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let interface_info = interface_info();
    let mut table = Neighbours::new(LIMITS, u64::from(octet(&mut input)));
    let (mut now, mut out, mut packets) = (Duration::ZERO, Vec::new(), Packets::default());
    while !input.is_empty() {
        let step = octet(&mut input);
        let at = &interface_info[usize::from(step >> 7)];
        match step & 7 {
            0 => now += Duration::from_millis(u64::from(octet(&mut input)) * 200),
            1 => {
                packets.given += 1;
                let to = address(octet(&mut input));
                table.resolve(now, at, to, Some(1), &mut out);
            }
            2 => table.resolve(now, at, address(octet(&mut input)), None, &mut out),
            3 => {
                let mac = MacAddress([2, 0, 0, 0, 1, step]);
                table.set(now, at.number, address(octet(&mut input)), mac, &mut out);
            }
            4 if step & 8 == 0 => table.flush(at.number, &mut out),
            4 => {
                table.remove(at.number, address(octet(&mut input)), &mut out);
            }
            5 => {
                let length = usize::from(octet(&mut input));
                let frame = take(&mut input, length);
                table.received_arp(now, at, frame, &mut out);
                table.received_nd(now, at, frame, &mut out);
            }
            _ => {
                let frame = frame(&mut input);
                table.received_arp(now, at, &frame, &mut out);
                table.received_nd(now, at, &frame, &mut out);
            }
        }
        packets.look(&mut out);
        table.tick(
            now,
            |number| interface_info.get(usize::from(number)),
            &mut out,
        );
        packets.look(&mut out);
        assert!(table.next_deadline().is_none_or(|due| due > now));
        assert!(table.list(now).count() <= LIMITS.neighbours);
        let counts = table.counts();
        let lost = counts.overflowed + counts.refused;
        assert!(packets.back + lost <= packets.given);
        assert!(packets.given - packets.back - lost <= LIMITS.waiting_in_all as u64);
    }
    // In the end every waiting side is notified.
    for number in [0, 1] {
        table.flush(number, &mut out);
    }
    packets.look(&mut out);
    let counts = table.counts();
    assert_eq!(
        packets.back + counts.overflowed + counts.refused,
        packets.given
    );
});
