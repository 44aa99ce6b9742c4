// SPDX-License-Identifier: Apache-2.0

mod growth;
mod model;
mod requirements;
mod several;
mod standby;

use std::net::{Ipv6Addr, SocketAddrV6};

use super::*;
use crate::nat::{
    FORWARDS_MAX, FilteringBehaviour, Forward, HoldDown, MappingBehaviour, Nat, NatDrop,
    NatOutcome, NatSettings, NatTimeouts, PortPool,
};
use crate::nat64::tests::plain::{Content, Header, ends_v6, error_v6, v6, v6_around};

/// Octets behind a packet in the buffer, as padding.
const PADDING: usize = 7;

fn a6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn host() -> Ipv6Addr {
    a6("fd00:1::5")
}

fn neighbour() -> Ipv6Addr {
    a6("fd00:1::6")
}

fn remote() -> Ipv6Addr {
    a6("2001:db8:f::80")
}

fn external() -> Ipv6Addr {
    a6("2001:db8::1")
}

fn nat_settings() -> NatSettings {
    NatSettings {
        pool: PortPool {
            addresses: vec![external_number(0)],
            first_port: 1024,
            last_port: 1024 + 255,
            block_size: 16,
            blocks_per_host: 2,
            deterministic: Vec::new(),
            hold_down: HoldDown::default(),
        },
        forwards: Vec::new(),
        pairs: Vec::new(),
        mappings_max: 1000,
        hosts_max: 8,
        mapping: MappingBehaviour::default(),
        filtering: FilteringBehaviour::default(),
        timeouts: NatTimeouts::default(),
    }
}

fn settings() -> Nat66Settings {
    Nat66Settings {
        externals: vec![external()],
        hosts_max: 8,
    }
}

/// NAT66 and its NAT.
struct Switch {
    nat: Nat,
    nat66: Nat66,
}

type Translate = fn(&mut Nat66, &mut Nat, &mut [u8], usize, u32) -> NatOutcome;

impl Switch {
    fn new() -> Self {
        Self::with(&nat_settings(), &settings())
    }

    fn with(nat: &NatSettings, nat66: &Nat66Settings) -> Self {
        Self {
            nat: Nat::new(nat).unwrap(),
            nat66: Nat66::new(nat66).unwrap(),
        }
    }

    /// Passes events on, as a forwarding thread does behind each packet.
    fn pass_events(&mut self) {
        while let Some(event) = self.nat.take_event() {
            let host = self.nat66.note(&mut self.nat, &event);
            host.expect("an event of a host");
        }
    }

    fn set_forwards(&mut self, forwards: &[Forward<SocketAddrV6>]) -> usize {
        let without_space = self.nat66.set_forwards(&mut self.nat, forwards);
        self.pass_events();
        without_space
    }

    fn expire(&mut self, now: u32) {
        self.nat.expire(now, 4096);
        self.pass_events();
    }

    fn run(&mut self, packet: &[u8], now: u32, translate: Translate) -> (NatOutcome, Vec<u8>) {
        let mut buffer = [packet, &[0xee; PADDING]].concat();
        let length = buffer.len();
        let outcome = translate(&mut self.nat66, &mut self.nat, &mut buffer, length, now);
        self.pass_events();
        assert_eq!(buffer[packet.len()..], [0xee; PADDING]);
        buffer.truncate(packet.len());
        (outcome, buffer)
    }

    /// Translates a packet from the inside.
    fn send(&mut self, packet: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        match self.run(packet, now, Nat66::outbound) {
            (NatOutcome::Translated, sent) => Ok(sent),
            (NatOutcome::Dropped(reason), _) => Err(reason),
            (outcome, _) => unreachable!("{outcome:?}"),
        }
    }

    /// Translates a packet from the outside.
    fn receive(&mut self, packet: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        match self.run(packet, now, Nat66::inbound) {
            (NatOutcome::Translated, received) => Ok(received),
            (NatOutcome::Dropped(reason), _) => Err(reason),
            (outcome, _) => unreachable!("{outcome:?}"),
        }
    }

    /// Opens a mapping, and returns its external endpoint.
    fn open(&mut self, from: Ipv6Addr, content: &Content) -> (Ipv6Addr, u16) {
        let packet = v6(Header::plain(from, remote()), content);
        ends_v6(&self.send(&packet, 0).unwrap()).0
    }
}

fn udp(ports: (u16, u16)) -> Content {
    Content::Udp {
        ports,
        data: b"data".to_vec(),
        has_checksum: true,
    }
}

fn tcp(ports: (u16, u16), flags: u8) -> Content {
    Content::Tcp {
        ports,
        flags,
        data: b"data".to_vec(),
    }
}

fn echo(identifier: u16, is_reply: bool) -> Content {
    Content::Echo {
        is_reply,
        identifier,
        sequence: 7,
        data: b"ping".to_vec(),
    }
}
