// SPDX-License-Identifier: Apache-2.0
//! Helpers: connections that the data of others announces. FTP announces its data connections (RFC 959, RFC 2428), and a TFTP server
//! answers from another port than that of the request (RFC 1350, section 4). Packets of an expected connection are related until the other
//! side answers.
//!
//! A helper expects connections between the two hosts of the announcing connection only, and only to ports from 1024 on (RFC 2577, section
//! 3), each once and for a minute. It changes no packet, and reads only data at the start of a packet.

mod ftp;

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};

use super::key::Endpoint;
use super::names::{Direction, Helper};
use super::packet::{Kind, Packet, data_of};
use super::settings::Seconds;

const FTP_PORT: u16 = 21;
const TFTP_PORT: u16 = 69;
/// Lowest port of an expected connection.
const PORT_MIN: u16 = 1024;
/// Time for which a connection is expected, seconds.
const EXPECTED_S: Seconds = 60;
/// Expected connections at a time, at most. Each has its place in one of some sets of places.
const SETS: usize = 256;
/// The same, for hashes.
const SETS_U64: u64 = SETS as u64;
const PLACES_OF_SET: usize = 4;

/// Endpoints of a packet, that of the sender first.
pub(super) type Ends = [Endpoint; 2];

/// A connection that may begin: from any port of a host to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Expected {
    zone: u16,
    protocol: u8,
    from: IpAddr,
    to: Endpoint,
}

#[derive(Clone, Copy, Debug)]
struct Awaited {
    expected: Expected,
    /// First second at which the connection is no longer expected.
    expires_at: Seconds,
}

const NOTHING: Awaited = Awaited {
    expected: Expected {
        zone: 0,
        protocol: 0,
        from: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        to: Endpoint {
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 0,
        },
    },
    expires_at: 0,
};

/// Helpers of a tracker, and the connections that they expect.
#[derive(Debug)]
pub(super) struct Helpers {
    has_ftp: bool,
    has_tftp: bool,
    places: Box<[Awaited]>,
    /// Secret of the sets, so that no host can choose connections of one set.
    secret: RandomState,
    /// First second at which no connection is expected.
    idle_at: Seconds,
}

impl Helpers {
    pub(super) fn new(helpers: &[Helper]) -> Self {
        Self {
            has_ftp: helpers.contains(&Helper::Ftp),
            has_tftp: helpers.contains(&Helper::Tftp),
            places: vec![NOTHING; SETS * PLACES_OF_SET].into_boxed_slice(),
            secret: RandomState::new(),
            idle_at: 0,
        }
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.places[..])
    }

    /// Reads the data of an accepted packet, and expects the connection that it announces. `direction` is that of the packet within its
    /// connection.
    pub(super) fn read(
        &mut self,
        packet: &Packet,
        (ends, direction): (Ends, Direction),
        (frame, length): (&[u8], usize),
        now: Seconds,
    ) {
        let [sender, receiver] = ends;
        let server_port = match direction {
            Direction::Original => receiver.port,
            Direction::Reply => sender.port,
        };
        let of = match packet.kind {
            Kind::Tcp(_) if self.has_ftp && server_port == FTP_PORT => expected_by_ftp,
            Kind::Udp if self.has_tftp && server_port == TFTP_PORT => expected_by_tftp,
            _ => return,
        };
        let data = data_of(frame, length).unwrap_or_default();
        let Some(to) = of(data, sender, direction).filter(|to| to.port >= PORT_MIN) else {
            return;
        };
        let expected = Expected {
            zone: packet.key.zone(),
            protocol: packet.key.protocol(),
            from: receiver.address,
            to,
        };
        self.expect(expected, now);
    }

    /// Returns true if the connection of a first packet is expected.
    pub(super) fn expects(&self, packet: &Packet, ends: Ends, now: Seconds) -> bool {
        if self.idle_at <= now {
            return false;
        }
        let expected = expected_of(packet, ends);
        let places = self.places.get(self.set_of(&expected));
        let mut places = places.unwrap_or_default().iter();
        places.any(|one| one.expires_at > now && one.expected == expected)
    }

    /// Ends the expectation of a connection that has begun. Returns true if it was expected.
    pub(super) fn take(&mut self, packet: &Packet, ends: Ends, now: Seconds) -> bool {
        if self.idle_at <= now {
            return false;
        }
        let expected = expected_of(packet, ends);
        let set = self.set_of(&expected);
        let places = self.places.get_mut(set).unwrap_or_default();
        let found = places.iter_mut().find(|one| one.expected == expected);
        let expires_at = found.map_or(0, |one| std::mem::take(&mut one.expires_at));
        expires_at > now
    }

    /// Expects a connection, in place of the oldest one of its set if there is no space.
    fn expect(&mut self, expected: Expected, now: Seconds) {
        let set = self.set_of(&expected);
        let places = self.places.get_mut(set).unwrap_or_default();
        // The place of the same connection comes first.
        let place = places
            .iter_mut()
            .min_by_key(|one| (one.expected != expected, one.expires_at));
        let expires_at = now.saturating_add(EXPECTED_S).saturating_add(1);
        if let Some(place) = place {
            *place = Awaited {
                expected,
                expires_at,
            };
            self.idle_at = expires_at;
        }
    }

    fn set_of(&self, expected: &Expected) -> std::ops::Range<usize> {
        let set = usize::try_from(self.secret.hash_one(expected) % SETS_U64).unwrap_or(0);
        let first = set.saturating_mul(PLACES_OF_SET);
        first..first.saturating_add(PLACES_OF_SET)
    }
}

fn expected_of(packet: &Packet, [sender, receiver]: Ends) -> Expected {
    Expected {
        zone: packet.key.zone(),
        protocol: packet.key.protocol(),
        from: sender.address,
        to: receiver,
    }
}

/// Returns the endpoint at which the sender of data on an FTP control connection accepts a data connection. `None` for another address than
/// its own.
fn expected_by_ftp(data: &[u8], sender: Endpoint, direction: Direction) -> Option<Endpoint> {
    let announced = match direction {
        Direction::Original => ftp::of_client(data),
        Direction::Reply => ftp::of_server(data),
    }?;
    let is_own = announced
        .address
        .is_none_or(|address| address == sender.address);
    is_own.then_some(Endpoint {
        address: sender.address,
        port: announced.port,
    })
}

/// Returns the endpoint to which the server of a TFTP request answers, from another port than that of the request.
fn expected_by_tftp(data: &[u8], sender: Endpoint, direction: Direction) -> Option<Endpoint> {
    // RFC 1350, section 5: opcodes of a read request and of a write request, and a file name.
    let is_request = matches!(data, [0, 1 | 2, _, ..]) && direction == Direction::Original;
    is_request.then_some(sender)
}
