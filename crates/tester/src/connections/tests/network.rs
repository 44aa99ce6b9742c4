// SPDX-License-Identifier: Apache-2.0
//! A network between both ends, with faults and a NAT.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_base::random::Random;
use quietwire_packet::MacAddress;

use super::super::session::Session;
use super::super::wire::{Link, Packet, Payload};

/// Delay each way, nanoseconds.
const DELAY_NS: u64 = 1_000_000;
/// Time between two turns of the ends, nanoseconds.
const TURN_NS: u64 = 100_000;

const LINK: Link = Link {
    source: MacAddress([2, 0, 0, 0, 0, 1]),
    destination: MacAddress([2, 0, 0, 0, 0, 2]),
};

/// Probabilities of faults, in ten-thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) delayed: u64,
    /// Packets with another payload and a correct checksum.
    pub(super) damaged: u64,
}

type Endpoint = (Ipv6Addr, u16);

/// A NAT with a pool of addresses and consecutive ports.
#[derive(Debug)]
pub(super) struct Nat {
    addresses: u32,
    first_port: u16,
    forgets: bool,
    next: u32,
    out: HashMap<Endpoint, Endpoint>,
    back: HashMap<Endpoint, Endpoint>,
}

impl Nat {
    pub(super) fn new(addresses: u32, first_port: u16) -> Self {
        Self {
            addresses,
            first_port,
            forgets: false,
            next: 0,
            out: HashMap::new(),
            back: HashMap::new(),
        }
    }

    /// Returns the NAT with a new mapping for each connection.
    pub(super) fn forgetting(self) -> Self {
        Self {
            forgets: true,
            ..self
        }
    }

    fn translated(&mut self, from: Endpoint, begins: bool) -> Endpoint {
        if let Some(to) = self.out.get(&from)
            && !(self.forgets && begins)
        {
            return *to;
        }
        let address = Ipv4Addr::from(0xcb00_7100 + self.next % self.addresses);
        let to = (address.to_ipv6_mapped(), self.first_port + self.next as u16);
        self.next += 1;
        self.out.insert(from, to);
        self.back.insert(to, from);
        to
    }
}

/// Action of a device for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Forward,
    Drop,
    /// It goes back to the end that sent it.
    Return,
}

/// A device between the ends.
type Device = Box<dyn FnMut(&mut [u8]) -> Delivery>;

pub(super) struct Network {
    random: Random,
    faults: Faults,
    pub(super) nat: Option<Nat>,
    pub(super) device: Option<Device>,
    /// It loses everything.
    pub(super) is_broken: bool,
    /// It changes the server's port.
    pub(super) changes_port: bool,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    frames: BTreeMap<u64, (usize, Vec<u8>)>,
    sent: u64,
}

impl Network {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            random: Random::new(seed),
            faults,
            nat: None,
            device: None,
            is_broken: false,
            changes_port: false,
            order: BinaryHeap::new(),
            frames: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Runs both ends until all is over, at most until `limit`. Returns the time, nanoseconds.
    pub(super) fn run(&mut self, session: &mut Session, duration: u64, limit: u64) -> u64 {
        let mut now = 0;
        while now < limit && !(now >= duration && session.is_done(now) && self.frames.is_empty()) {
            self.deliver(session, now);
            session.turn(now);
            for to in [1, 0] {
                let outbox = if to == 1 {
                    session.client.as_mut().unwrap().shared().outbox()
                } else {
                    session.server.as_mut().unwrap().shared().outbox()
                };
                let packets: Vec<Packet> = outbox.drain(..).collect();
                for packet in packets {
                    self.send(to, packet, now);
                }
            }
            now += TURN_NS;
        }
        now
    }

    fn deliver(&mut self, session: &mut Session, now: u64) {
        while let Some(Reverse((time, number))) = self.order.peek().copied()
            && time <= now
        {
            self.order.pop();
            let (to, frame) = self.frames.remove(&number).unwrap();
            if to == 1 {
                session.server.as_mut().unwrap().receive(&frame, now);
            } else {
                session.client.as_mut().unwrap().receive(&frame, now);
            }
        }
    }

    fn draws(&mut self, of_ten_thousand: u64) -> bool {
        self.random.below(10_000) < of_ten_thousand
    }

    fn send(&mut self, mut to: usize, mut packet: Packet, now: u64) {
        if self.is_broken || self.draws(self.faults.lost) {
            return;
        }
        if self.draws(self.faults.damaged)
            && let Some(payload) = packet.payload
        {
            // As a device that mixes up payloads and computes checksums.
            packet.payload = Some(Payload {
                offset: payload.offset + 8,
                ..payload
            });
        }
        self.translate(to, &mut packet);
        let mut frame = vec![0; usize::from(packet.length())];
        packet.write(&LINK, &mut frame);
        match self.device.as_mut().map(|device| device(&mut frame)) {
            Some(Delivery::Drop) => return,
            Some(Delivery::Return) => to = 1 - to,
            Some(Delivery::Forward) | None => {}
        }
        let copies = 1 + u64::from(self.draws(self.faults.duplicated));
        for _ in 0..copies {
            let late = if self.draws(self.faults.delayed) {
                self.random.below(4 * DELAY_NS)
            } else {
                0
            };
            self.order.push(Reverse((now + DELAY_NS + late, self.sent)));
            self.frames.insert(self.sent, (to, frame.clone()));
            self.sent += 1;
        }
    }

    fn translate(&mut self, to: usize, packet: &mut Packet) {
        let addresses = &mut packet.addresses;
        if self.changes_port && to == 1 {
            addresses.destination_port += 1;
        } else if self.changes_port {
            addresses.source_port -= 1;
        }
        let Some(nat) = &mut self.nat else {
            return;
        };
        if to == 1 {
            let begins = matches!(packet.transport, super::super::wire::Transport::Tcp(segment) if segment.flags == super::super::tcp::SYN);
            let from = (addresses.source, addresses.source_port);
            (addresses.source, addresses.source_port) = nat.translated(from, begins);
        } else {
            let from = (addresses.destination, addresses.destination_port);
            let back = nat.back.get(&from).copied().unwrap();
            (addresses.destination, addresses.destination_port) = back;
        }
    }
}
