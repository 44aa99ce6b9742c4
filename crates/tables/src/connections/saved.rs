// SPDX-License-Identifier: Apache-2.0
//! Connections as records of a fixed size, for a planned restart.
//!
//! A record is of version [`SAVED_VERSION`]. All numbers are in network order:
//!
//! | octets | contents |
//! |---|---|
//! | 0 to 31 | address that sent the first packet, the other address; one of IPv4 is in the last four octets |
//! | 32 to 35 | their ports |
//! | 36 to 38 | zone, IP protocol |
//! | 39 | number of the state in [`State::ALL`] |
//! | 40 | flags: 1 for IPv6, 2 if both sides have sent packets |
//! | 41 to 43 | 0 |
//! | 44 to 51 | mark, seconds until it expires |
//! | 52 to 75 | packets and octets of each direction |
//! | 76 to 107 | TCP: what each side has sent |
//! | 108 to 123 | label |
//!
//! Records come from outside: [`SavedConnection::read`] refuses impossible ones.

// Records from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::IpAddr;

use super::entry::Entry;
use super::key::{Addresses, Echo, Endpoint, Key, Sorted};
use super::names::{Direction, State};
use super::settings::Seconds;
use super::tcp::Side;

/// Octets of a record.
pub const SAVED_OCTETS: usize = 124;
/// Version of the records. It changes with their contents, and with the numbers of states.
pub const SAVED_VERSION: u16 = 2;

const IS_IPV6: u8 = 1;
const IS_REPLIED: u8 = 2;

/// A saved connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedConnection {
    octets: [u8; SAVED_OCTETS],
}

/// A change of a connection, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// The connection has this state.
    Present(SavedConnection),
    /// The connection has ended. Endpoints, protocol and zone identify it.
    Ended(SavedConnection),
}

/// Contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) sorted: Sorted,
    pub(super) state: State,
    pub(super) is_replied: bool,
    pub(super) mark: u32,
    pub(super) label: u128,
    pub(super) expires_in_s: u32,
    pub(super) packets: [u32; 2],
    pub(super) octets: [u64; 2],
    pub(super) sides: [Side; 2],
}

/// Reads fields one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_be_bytes)
    }
}

/// Writes fields one after the other.
struct Record {
    octets: [u8; SAVED_OCTETS],
    at: usize,
}

impl Record {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        let end = self.at.saturating_add(N);
        if let Some(space) = self.octets.get_mut(self.at..end) {
            space.copy_from_slice(&field);
        }
        self.at = end;
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns true if connections of this protocol have this state.
fn fits(state: State, protocol: u8, is_ipv6: bool) -> bool {
    let icmp = if is_ipv6 { 58 } else { 1 };
    let kind = match protocol {
        6 => "tcp",
        17 | 136 => "udp",
        _ if protocol == icmp => "icmp",
        _ => "other",
    };
    state.name().split('_').next() == Some(kind)
}

impl SavedConnection {
    /// Returns a record of these octets, which [`super::Tracker::restore`] checks.
    #[must_use]
    pub const fn from_octets(octets: [u8; SAVED_OCTETS]) -> Self {
        Self { octets }
    }

    /// Returns the octets.
    #[must_use]
    pub const fn octets(&self) -> &[u8; SAVED_OCTETS] {
        &self.octets
    }

    /// Returns true if the record is one of a connection.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.read().is_some()
    }

    /// Returns the record of an entry with this label; `None` if it is not in use or has expired.
    pub(super) fn of(entry: &Entry, label: u128, now: Seconds) -> Option<Self> {
        let expires_in_s = entry.expires_at.checked_sub(now)?.checked_sub(1)?;
        Self::with_expiry(entry, label, expires_in_s)
    }

    /// Returns the record of an entry that is about to end; `None` if it is not in use.
    pub(super) fn of_ended(entry: &Entry) -> Option<Self> {
        Self::with_expiry(entry, 0, 0)
    }

    fn with_expiry(entry: &Entry, label: u128, expires_in_s: u32) -> Option<Self> {
        let state = entry.state()?;
        let [lower, higher] = entry.key.endpoints();
        let (source, destination) = match entry.direction(false) {
            Direction::Original => (lower, higher),
            Direction::Reply => (higher, lower),
        };
        let number = State::ALL.iter().position(|one| *one == state)?;
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let is_ipv6 = flag(source.address.is_ipv6(), IS_IPV6);
        let is_replied = flag(entry.is_replied(), IS_REPLIED);
        let mut record = Record {
            octets: [0; SAVED_OCTETS],
            at: 0,
        };
        record.put(bits_of(source.address).to_be_bytes());
        record.put(bits_of(destination.address).to_be_bytes());
        record.put(source.port.to_be_bytes());
        record.put(destination.port.to_be_bytes());
        record.put(entry.key.zone().to_be_bytes());
        record.put([entry.key.protocol(), u8::try_from(number).ok()?]);
        record.put([is_ipv6 | is_replied, 0, 0, 0]);
        record.put(entry.mark.to_be_bytes());
        record.put(expires_in_s.to_be_bytes());
        for packets in entry.packets {
            record.put(packets.to_be_bytes());
        }
        for octets in entry.octets {
            record.put(octets.to_be_bytes());
        }
        for side in entry.sides {
            record.put(side.to_octets());
        }
        record.put(label.to_be_bytes());
        Some(Self {
            octets: record.octets,
        })
    }

    /// Returns both endpoints and the IP protocol; `None` if the record is not a valid connection.
    #[must_use]
    pub fn endpoints(&self) -> Option<([Endpoint; 2], u8)> {
        let key = self.read()?.sorted.key;
        Some((key.endpoints(), key.protocol()))
    }

    /// Reads the contents; `None` if no connection has them.
    pub(super) fn read(&self) -> Option<Saved> {
        let mut fields = Fields(&self.octets);
        let (source, destination) = (fields.u128()?, fields.u128()?);
        let ports = (fields.u16()?, fields.u16()?);
        let (zone, protocol) = (fields.u16()?, fields.u8()?);
        let state = State::ALL.get(usize::from(fields.u8()?)).copied()?;
        let [flags, 0, 0, 0] = fields.take::<4>()? else {
            return None;
        };
        let is_ipv6 = flags & IS_IPV6 != 0;
        if flags & !(IS_IPV6 | IS_REPLIED) != 0 || !fits(state, protocol, is_ipv6) {
            return None;
        }
        let addresses = if is_ipv6 {
            Addresses::V6(source, destination)
        } else {
            Addresses::V4(
                u32::try_from(source).ok()?,
                u32::try_from(destination).ok()?,
            )
        };
        // The first packet of an echo is its request.
        let echo = match state {
            State::IcmpUnreplied | State::IcmpReplied => Echo::Request,
            _ => Echo::None,
        };
        let sorted = Key::sort(addresses, ports, protocol, zone, echo);
        if sorted.key.has_one_endpoint() {
            return None;
        }
        Some(Saved {
            sorted,
            state,
            is_replied: flags & IS_REPLIED != 0,
            mark: fields.u32()?,
            expires_in_s: fields.u32()?,
            packets: [fields.u32()?, fields.u32()?],
            octets: [fields.u64()?, fields.u64()?],
            sides: [
                Side::from_octets(fields.take()?)?,
                Side::from_octets(fields.take()?)?,
            ],
            label: fields.u128()?,
        })
    }

    /// Returns the same connection, seconds later; `None` if it has expired then.
    #[must_use]
    pub fn later(mut self, seconds: u32) -> Option<Self> {
        let left = self.read()?.expires_in_s.checked_sub(seconds)?;
        let field = self.octets.get_mut(EXPIRES_AT)?;
        field.copy_from_slice(&left.to_be_bytes());
        Some(self)
    }
}

/// Place of the seconds until it expires.
const EXPIRES_AT: std::ops::Range<usize> = 48..52;
