// SPDX-License-Identifier: Apache-2.0

mod errors;
mod events;
mod fragments;
mod model;
pub(crate) mod plain;
mod prefix;
mod requirements;
mod several;
mod standby;

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::nat::{
    FilteringBehaviour, HoldDown, MappingBehaviour, Nat, NatDrop, NatOutcome, NatSettings,
    NatTimeouts, PortPool,
};
use plain::{Content, Header, ends_v4, ends_v6, v4, v6};

/// Octets in front of a packet in the buffer, those of an Ethernet header and more.
const SPACE: usize = 14 + HEADROOM;
/// Octets behind a packet in the buffer, as padding.
const PADDING: usize = 7;

fn a6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn a4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn net(text: &str) -> Prefix64 {
    Prefix64::new(text.parse().unwrap()).unwrap()
}

const PREFIX: &str = "2001:db8:64::/96";

fn nat_settings() -> NatSettings {
    NatSettings {
        pool: PortPool {
            addresses: vec![a4("198.51.100.1")],
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

fn settings() -> Nat64Settings {
    Nat64Settings {
        prefix: net(PREFIX),
        clients: Vec::new(),
        clients_max: 8,
    }
}

/// NAT64 and its NAT.
struct Switch {
    nat: Nat,
    nat64: Nat64,
}

impl Switch {
    fn new() -> Self {
        Self::with(&nat_settings(), &settings())
    }

    fn with(nat: &NatSettings, nat64: &Nat64Settings) -> Self {
        Self {
            nat: Nat::new(nat).unwrap(),
            nat64: Nat64::new(nat64).unwrap(),
        }
    }

    /// Passes events on, as a forwarding thread does behind each packet.
    fn pass_events(&mut self) {
        while let Some(event) = self.nat.take_event() {
            let client = self.nat64.note(&mut self.nat, &event);
            client.expect("an event of a client");
        }
    }

    fn expire(&mut self, now: u32) {
        self.nat.expire(now, 4096);
        self.pass_events();
    }

    /// Translates a packet of a client.
    fn send(&mut self, packet: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        let mut buffer = [&[0xee; SPACE][..], packet, &[0xee; PADDING]].concat();
        let place = (SPACE, packet.len() + PADDING);
        let translated = self.nat64.send(&mut self.nat, &mut buffer, place, now);
        self.pass_events();
        let translated = translated?;
        let octets = buffer[translated.start..translated.end].to_vec();
        assert_eq!(octets[0] >> 4, if translated.is_ipv6 { 6 } else { 4 });
        Ok(octets)
    }

    /// Translates a packet from the outside. Returns the identification of its fragments too, if it may be fragmented.
    fn receive_part(&mut self, packet: &[u8], now: u32) -> Result<(Vec<u8>, Option<u32>), NatDrop> {
        let mut buffer = [&[0xee; SPACE][..], packet, &[0xee; PADDING]].concat();
        let length = packet.len() + PADDING;
        let client = self.nat.inside_of(&buffer[SPACE..], length);
        let outcome = self.nat.inbound(&mut buffer[SPACE..], length, now);
        self.pass_events();
        match outcome {
            NatOutcome::Translated => {}
            NatOutcome::Dropped(reason) => return Err(reason),
            outcome => unreachable!("{outcome:?}"),
        }
        assert!(client.is_some_and(crate::nat::is_client_number));
        assert!(self.nat64.is_to_client(&buffer, SPACE));
        let place = (SPACE, length);
        let translated = self.nat64.receive(&mut self.nat, &mut buffer, place)?;
        let octets = buffer[translated.start..translated.end].to_vec();
        assert!(translated.is_ipv6 && octets[0] >> 4 == 6);
        Ok((octets, translated.may_fragment))
    }

    fn receive(&mut self, packet: &[u8], now: u32) -> Result<Vec<u8>, NatDrop> {
        Ok(self.receive_part(packet, now)?.0)
    }

    /// Opens a mapping, and returns its external endpoint.
    fn open(&mut self, client: Ipv6Addr, server: Ipv4Addr, content: &Content) -> (Ipv4Addr, u16) {
        let packet = v6(Header::plain(client, mapped(server)), content);
        let sent = self.send(&packet, 0).unwrap();
        let (source, ..) = ends_v4(&sent);
        source
    }
}

/// Returns the address of a server in the prefix.
fn mapped(server: Ipv4Addr) -> Ipv6Addr {
    let [.., high, low] = Ipv6Addr::from_bits(u128::from(server.to_bits())).segments();
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, high, low)
}

fn client() -> Ipv6Addr {
    a6("2001:db8:1::5")
}

fn server() -> Ipv4Addr {
    a4("203.0.113.80")
}

fn udp(ports: (u16, u16), data: &[u8]) -> Content {
    Content::Udp {
        ports,
        data: data.to_vec(),
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
