// SPDX-License-Identifier: Apache-2.0
//! Messages between an active switch and its standby, over a stream. All numbers are in network order:
//!
//! | octets | contents |
//! |---|---|
//! | 0 to 3 | octets of the contents, at most [`CONTENTS_MAX`] |
//! | 4 to 7 | kind |
//! | 8 to 15 | sequence: 0 for the first message of a side, then one more for each |
//! | then | contents |
//! | then | CRC-32C of all octets before (32 bits) |
//!
//! | kind | contents | from |
//! |---|---|---|
//! | 1 hello | eight octets `QWSTANDB`, versions of these messages and of records of connections, mappings and balanced connections (16 bits each) | both, first |
//! | 2 connections | up to [`CHANGES_MAX`] changes: 1 (present) or 2 (ended), the record | active |
//! | 3 mappings | octets of the name of the NAT (8 bits), the name, changes as above | active |
//! | 4 heartbeat | none | active |
//! | 5 complete | none: all entries have been sent since the hello or a loss | active |
//! | 6 acknowledgement | sequence of the last message applied (64 bits) | standby |
//! | 7 balanced connections | number of the protocol, address and port of the virtual endpoint (8, 32 and 16 bits), changes as above | active |
//! | 8 configuration | up to [`SETTINGS_MAX`] settings that must be equal: octets of the name (8 bits), the name, digest of the value (32 bits) | active, before all entries and after a change |
//! | 9 limits | limits of tables, up to [`LIMITS_A_MESSAGE`]: octets of the name (8 bits), the name, value (32 bits) | active, after each configuration |
//! | 10 balanced connections of IPv6 | as 7, with an address of 128 bits | active |
//! | 11 mappings of NAT66 and NAT64 | as 3 | active |
//!
//! A message that is damaged, missing, repeated or out of order ends the stream.

// Octets from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod reader;

pub(crate) use reader::{Reader, messages_of, text_of};

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use quietwire_base::crc32c;
use quietwire_tables::balance::{
    BalancedChange, SAVED_BALANCED_IPV6_OCTETS, SAVED_BALANCED_OCTETS, SAVED_BALANCED_VERSION,
    SavedBalanced,
};
use quietwire_tables::connections::{
    ConnectionChange, SAVED_OCTETS, SAVED_VERSION, SavedConnection,
};
use quietwire_tables::nat::{
    MappingChange, NatProtocol, SAVED_MAPPING_IPV6_OCTETS, SAVED_MAPPING_OCTETS,
    SAVED_MAPPING_VERSION, SavedMapping, SavedMappingIpv6,
};

use crate::config::nat::{NAME_MAX, NATS_MAX};

/// Maximum number of changes of a message.
pub(crate) const CHANGES_MAX: usize = 256;
/// Maximum octets of the contents.
pub(crate) const CONTENTS_MAX: usize = 32 * 1024;
/// Maximum number of limits of a message.
pub(crate) const LIMITS_A_MESSAGE: usize = 100;
/// Maximum number of settings that a standby compares, which are in one message: seven of each NAT, labels and zones.
pub(crate) const SETTINGS_MAX: usize = 7 * NATS_MAX + 2;
/// Value of a limit that is not set.
pub(crate) const NO_LIMIT: u32 = u32::MAX;
/// Version of the messages.
const VERSION: u16 = 6;
const MAGIC: [u8; 8] = *b"QWSTANDB";
const HEADER: usize = 16;
const CRC: usize = 4;

const HELLO: u32 = 1;
const CONNECTIONS: u32 = 2;
const MAPPINGS: u32 = 3;
const HEARTBEAT: u32 = 4;
const COMPLETE: u32 = 5;
const ACKNOWLEDGEMENT: u32 = 6;
const BALANCED: u32 = 7;
const CONFIGURATION: u32 = 8;
const LIMITS: u32 = 9;
const BALANCED_IPV6: u32 = 10;
const MAPPINGS_IPV6: u32 = 11;

const PRESENT: u8 = 1;
const ENDED: u8 = 2;

// The length of a name has eight bits.
const _: () = assert!(NAME_MAX <= u8::MAX as usize);
// A message of the maximum number of changes fits.
const _: () = assert!(CHANGES_MAX * (1 + SAVED_OCTETS) <= CONTENTS_MAX);
const _: () = assert!(SAVED_MAPPING_OCTETS <= SAVED_MAPPING_IPV6_OCTETS);
const _: () = assert!(1 + NAME_MAX + CHANGES_MAX * (1 + SAVED_MAPPING_IPV6_OCTETS) <= CONTENTS_MAX);
const _: () = assert!(7 + CHANGES_MAX * (1 + SAVED_BALANCED_OCTETS) <= CONTENTS_MAX);
const _: () = assert!(19 + CHANGES_MAX * (1 + SAVED_BALANCED_IPV6_OCTETS) <= CONTENTS_MAX);
const _: () = assert!(SETTINGS_MAX * (1 + NAME_MAX + size_of::<u32>()) <= CONTENTS_MAX);
const _: () = assert!(LIMITS_A_MESSAGE * (1 + NAME_MAX + size_of::<u32>()) <= CONTENTS_MAX);

/// Settings that must be equal on both switches: the name of each, and a digest of its value.
pub(crate) type Digests = Vec<(String, u32)>;

/// Limits of tables that a standby compares with its own: the name of each, and its value, or [`NO_LIMIT`].
pub(crate) type Limits = Vec<(String, u32)>;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The sender has these versions.
    Hello,
    /// Changes of connections.
    Connections(Vec<ConnectionChange>),
    /// Changes of mappings of a NAT.
    Mappings {
        /// Its name.
        nat: String,
        /// The changes.
        changes: Vec<MappingChange>,
    },
    /// Changes of mappings of NAT66 or NAT64.
    MappingsIpv6 {
        /// Its name.
        nat: String,
        /// The changes.
        changes: Vec<MappingChange<SavedMappingIpv6>>,
    },
    /// Changes of connections of a load balancer.
    Balanced {
        /// Protocol of its virtual endpoint.
        protocol: NatProtocol,
        /// The virtual endpoint.
        endpoint: SocketAddrV4,
        /// The changes.
        changes: Vec<BalancedChange>,
    },
    /// Changes of connections of a load balancer of IPv6.
    BalancedIpv6 {
        /// Protocol of its virtual endpoint.
        protocol: NatProtocol,
        /// The virtual endpoint.
        endpoint: SocketAddrV6,
        /// The changes.
        changes: Vec<BalancedChange<SocketAddrV6>>,
    },
    /// Settings of the active switch.
    Configuration(Digests),
    /// Limits of the tables of the active switch.
    Limits(Limits),
    /// The active switch is there.
    Heartbeat,
    /// The standby has all entries.
    Complete,
    /// The standby has applied the messages up to this one.
    Acknowledgement(u64),
}

/// Reason for ending a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// A message is too long.
    #[error("a message is longer than {CONTENTS_MAX} octets")]
    Length,
    /// The contents are damaged.
    #[error("the checksum of a message is wrong")]
    Checksum,
    /// The sequence is another one than the next.
    #[error("message {received} arrived instead of message {expected}")]
    Sequence {
        /// Next sequence.
        expected: u64,
        /// Sequence of the message.
        received: u64,
    },
    /// The peer is another program, or has other versions.
    #[error("the peer is not a quietwire switch of this version (use the same version on both)")]
    Version,
    /// The message has impossible contents.
    #[error("a message has impossible contents")]
    Contents,
    /// The message is one of the other side.
    #[error("a message is not one of the peer's role")]
    Role,
}

/// Splits a field from the front.
fn take<const N: usize>(octets: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = octets.split_first_chunk()?;
    *octets = rest;
    Some(*field)
}

/// Returns the versions that a hello has.
fn versions() -> [u16; 4] {
    [
        VERSION,
        SAVED_VERSION,
        SAVED_MAPPING_VERSION,
        SAVED_BALANCED_VERSION,
    ]
}

/// Reads changes, each a kind and a record.
fn changes_of<T, const N: usize>(
    mut octets: &[u8],
    read: impl Fn(u8, [u8; N]) -> Option<T>,
) -> Option<Vec<T>> {
    let mut changes = Vec::new();
    while !octets.is_empty() {
        let [kind] = take::<1>(&mut octets)?;
        let record = take(&mut octets)?;
        if changes.len() == CHANGES_MAX {
            return None;
        }
        changes.push(read(kind, record)?);
    }
    Some(changes)
}

fn connection(kind: u8, record: [u8; SAVED_OCTETS]) -> Option<ConnectionChange> {
    let saved = SavedConnection::from_octets(record);
    if !saved.is_valid() {
        return None;
    }
    match kind {
        PRESENT => Some(ConnectionChange::Present(saved)),
        ENDED => Some(ConnectionChange::Ended(saved)),
        _ => None,
    }
}

fn mapping(kind: u8, record: [u8; SAVED_MAPPING_OCTETS]) -> Option<MappingChange> {
    mapping_change(kind, SavedMapping::from_octets(&record)?)
}

fn mapping_ipv6(
    kind: u8,
    record: [u8; SAVED_MAPPING_IPV6_OCTETS],
) -> Option<MappingChange<SavedMappingIpv6>> {
    mapping_change(kind, SavedMappingIpv6::from_octets(&record)?)
}

/// Returns a change of a kind.
fn mapping_change<S>(kind: u8, saved: S) -> Option<MappingChange<S>> {
    match kind {
        PRESENT => Some(MappingChange::Present(saved)),
        ENDED => Some(MappingChange::Ended(saved)),
        _ => None,
    }
}

/// Returns the number of the kind of a change.
const fn mapping_kind<S>(change: &MappingChange<S>) -> u8 {
    match change {
        MappingChange::Present(_) => PRESENT,
        MappingChange::Ended(_) => ENDED,
    }
}

fn balanced(kind: u8, record: [u8; SAVED_BALANCED_OCTETS]) -> Option<BalancedChange> {
    let saved = SavedBalanced::<SocketAddrV4>::from_octets(&record)?;
    match kind {
        PRESENT => Some(BalancedChange::Present(saved)),
        ENDED => Some(BalancedChange::Ended(saved)),
        _ => None,
    }
}

fn balanced_ipv6(
    kind: u8,
    record: [u8; SAVED_BALANCED_IPV6_OCTETS],
) -> Option<BalancedChange<SocketAddrV6>> {
    let saved = SavedBalanced::<SocketAddrV6>::from_octets(&record)?;
    match kind {
        PRESENT => Some(BalancedChange::Present(saved)),
        ENDED => Some(BalancedChange::Ended(saved)),
        _ => None,
    }
}

/// Returns the kind of a change, and its connection.
const fn parts_of<E: Copy>(change: &BalancedChange<E>) -> (u8, SavedBalanced<E>) {
    match change {
        BalancedChange::Present(saved) => (PRESENT, *saved),
        BalancedChange::Ended(saved) => (ENDED, *saved),
    }
}

/// Returns a setting of [`Digests`]. Its name is as a message has it.
pub(crate) fn digest(name: &str, value: &str) -> (String, u32) {
    (sent_name(name), crc32c(value.as_bytes()))
}

/// Returns a limit of [`Limits`]. Its name is as a message has it.
pub(crate) fn limit(name: &str, value: u32) -> (String, u32) {
    (sent_name(name), value)
}

/// Returns a name as a message has it: without control characters, and up to the maximum length.
fn sent_name(name: &str) -> String {
    let mut octets = 0usize;
    let printable = name.chars().filter(|one| !one.is_control());
    let short = printable.take_while(|one| {
        octets = octets.saturating_add(one.len_utf8());
        octets <= NAME_MAX
    });
    short.collect()
}

/// Appends the length of a name and the name, up to the maximum.
fn put_name(name: &str, octets: &mut Vec<u8>) {
    let name = name.as_bytes();
    let name = name.get(..name.len().min(NAME_MAX)).unwrap_or_default();
    octets.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    octets.extend_from_slice(name);
}

/// Reads a name from the front.
fn take_name(octets: &mut &[u8]) -> Option<String> {
    let [length] = take::<1>(octets)?;
    let (name, rest) = octets.split_at_checked(usize::from(length))?;
    *octets = rest;
    Some(std::str::from_utf8(name).ok()?.to_owned())
}

/// Reads names and numbers, at most `count_max`: a standby compares each with all of its own. The names become a part of the log, so they have
/// no control characters.
fn named_numbers(mut octets: &[u8], count_max: usize) -> Option<Vec<(String, u32)>> {
    let mut numbers = Vec::new();
    while !octets.is_empty() {
        if numbers.len() == count_max {
            return None;
        }
        let name = take_name(&mut octets)?;
        if name.chars().any(char::is_control) {
            return None;
        }
        numbers.push((name, u32::from_be_bytes(take(&mut octets)?)));
    }
    Some(numbers)
}

/// Appends a message of a kind.
fn put_frame(kind: u32, sequence: u64, contents: &[u8], octets: &mut Vec<u8>) {
    let length = u32::try_from(contents.len()).unwrap_or(u32::MAX);
    let start = octets.len();
    octets.extend(length.to_be_bytes());
    octets.extend(kind.to_be_bytes());
    octets.extend(sequence.to_be_bytes());
    octets.extend_from_slice(contents);
    let crc = crc32c(octets.get(start..).unwrap_or_default());
    octets.extend(crc.to_be_bytes());
}

impl Message {
    const fn kind(&self) -> u32 {
        match self {
            Self::Hello => HELLO,
            Self::Connections(_) => CONNECTIONS,
            Self::Mappings { .. } => MAPPINGS,
            Self::MappingsIpv6 { .. } => MAPPINGS_IPV6,
            Self::Heartbeat => HEARTBEAT,
            Self::Complete => COMPLETE,
            Self::Acknowledgement(_) => ACKNOWLEDGEMENT,
            Self::Balanced { .. } => BALANCED,
            Self::BalancedIpv6 { .. } => BALANCED_IPV6,
            Self::Configuration(_) => CONFIGURATION,
            Self::Limits(_) => LIMITS,
        }
    }

    fn put_contents(&self, octets: &mut Vec<u8>) {
        match self {
            Self::Hello => {
                octets.extend(MAGIC);
                octets.extend(versions().iter().flat_map(|one| one.to_be_bytes()));
            }
            Self::Connections(changes) => {
                for change in changes.iter().take(CHANGES_MAX) {
                    let (kind, saved) = match change {
                        ConnectionChange::Present(saved) => (PRESENT, saved),
                        ConnectionChange::Ended(saved) => (ENDED, saved),
                    };
                    octets.push(kind);
                    octets.extend_from_slice(saved.octets());
                }
            }
            Self::Configuration(numbers) | Self::Limits(numbers) => {
                for (name, number) in numbers {
                    put_name(name, octets);
                    octets.extend(number.to_be_bytes());
                }
            }
            Self::Mappings { nat, changes } => {
                put_name(nat, octets);
                for change in changes.iter().take(CHANGES_MAX) {
                    octets.push(mapping_kind(change));
                    octets.extend(change.saved().to_octets());
                }
            }
            Self::MappingsIpv6 { nat, changes } => {
                put_name(nat, octets);
                for change in changes.iter().take(CHANGES_MAX) {
                    octets.push(mapping_kind(change));
                    octets.extend(change.saved().to_octets());
                }
            }
            Self::Balanced {
                protocol,
                endpoint,
                changes,
            } => {
                octets.push(*protocol as u8);
                octets.extend(endpoint.ip().octets());
                octets.extend(endpoint.port().to_be_bytes());
                for change in changes.iter().take(CHANGES_MAX) {
                    let (kind, saved) = parts_of(change);
                    octets.push(kind);
                    octets.extend(saved.to_octets());
                }
            }
            Self::BalancedIpv6 {
                protocol,
                endpoint,
                changes,
            } => {
                octets.push(*protocol as u8);
                octets.extend(endpoint.ip().octets());
                octets.extend(endpoint.port().to_be_bytes());
                for change in changes.iter().take(CHANGES_MAX) {
                    let (kind, saved) = parts_of(change);
                    octets.push(kind);
                    octets.extend(saved.to_octets());
                }
            }
            Self::Heartbeat | Self::Complete => {}
            Self::Acknowledgement(sequence) => octets.extend(sequence.to_be_bytes()),
        }
    }

    /// Returns true for entries of NAT or of load balancers.
    pub(crate) const fn is_of_mappings(&self) -> bool {
        matches!(
            self,
            Self::Mappings { .. }
                | Self::MappingsIpv6 { .. }
                | Self::Balanced { .. }
                | Self::BalancedIpv6 { .. }
        )
    }

    /// Appends the message with a sequence. It has at most [`CHANGES_MAX`] changes.
    pub(crate) fn put(&self, sequence: u64, octets: &mut Vec<u8>) {
        let mut contents = Vec::new();
        self.put_contents(&mut contents);
        put_frame(self.kind(), sequence, &contents, octets);
    }

    fn read(kind: u32, mut contents: &[u8]) -> Result<Self, WireError> {
        let message = match kind {
            HELLO => {
                let is_known = take(&mut contents) == Some(MAGIC);
                let same = |version: u16| version.to_be_bytes();
                let expected = versions().map(same).concat();
                if !is_known || *contents != *expected {
                    return Err(WireError::Version);
                }
                return Ok(Self::Hello);
            }
            CONNECTIONS => changes_of(contents, connection).map(Self::Connections),
            MAPPINGS => Self::read_mappings(contents),
            MAPPINGS_IPV6 => Self::read_mappings_ipv6(contents),
            BALANCED => Self::read_balanced(contents),
            BALANCED_IPV6 => Self::read_balanced_ipv6(contents),
            CONFIGURATION => named_numbers(contents, SETTINGS_MAX).map(Self::Configuration),
            LIMITS => named_numbers(contents, LIMITS_A_MESSAGE).map(Self::Limits),
            HEARTBEAT if contents.is_empty() => Some(Self::Heartbeat),
            COMPLETE if contents.is_empty() => Some(Self::Complete),
            ACKNOWLEDGEMENT => {
                let sequence = take(&mut contents).map(u64::from_be_bytes);
                let sequence = sequence.filter(|_| contents.is_empty());
                sequence.map(Self::Acknowledgement)
            }
            _ => None,
        };
        message.ok_or(WireError::Contents)
    }

    fn read_balanced(mut contents: &[u8]) -> Option<Self> {
        let [protocol] = take::<1>(&mut contents)?;
        let address = take::<4>(&mut contents)?;
        let port = u16::from_be_bytes(take::<2>(&mut contents)?);
        Some(Self::Balanced {
            protocol: NatProtocol::ALL.get(usize::from(protocol)).copied()?,
            endpoint: SocketAddrV4::new(Ipv4Addr::from(address), port),
            changes: changes_of(contents, balanced)?,
        })
    }

    fn read_balanced_ipv6(mut contents: &[u8]) -> Option<Self> {
        let [protocol] = take::<1>(&mut contents)?;
        let address = take::<16>(&mut contents)?;
        let port = u16::from_be_bytes(take::<2>(&mut contents)?);
        Some(Self::BalancedIpv6 {
            protocol: NatProtocol::ALL.get(usize::from(protocol)).copied()?,
            endpoint: SocketAddrV6::new(Ipv6Addr::from(address), port, 0, 0),
            changes: changes_of(contents, balanced_ipv6)?,
        })
    }

    fn read_mappings(mut contents: &[u8]) -> Option<Self> {
        Some(Self::Mappings {
            nat: take_name(&mut contents)?,
            changes: changes_of(contents, mapping)?,
        })
    }

    fn read_mappings_ipv6(mut contents: &[u8]) -> Option<Self> {
        Some(Self::MappingsIpv6 {
            nat: take_name(&mut contents)?,
            changes: changes_of(contents, mapping_ipv6)?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads messages from octets, up to the first error.
    pub(crate) fn read_all(octets: &[u8]) -> (Vec<Message>, Option<WireError>) {
        let (mut reader, mut messages) = (Reader::default(), Vec::new());
        reader.push(octets);
        loop {
            match reader.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return (messages, None),
                Err(error) => return (messages, Some(error)),
            }
        }
    }

    /// Writes messages, with sequences from 0 on.
    pub(crate) fn written(messages: &[Message]) -> Vec<u8> {
        let mut octets = Vec::new();
        for (sequence, message) in (0..).zip(messages) {
            message.put(sequence, &mut octets);
        }
        octets
    }

    /// Makes a stream of a hello and parts: kind (8 bits), length (16 bits), contents.
    pub(crate) fn framed(mut parts: &[u8]) -> Vec<u8> {
        let mut octets = written(&[Message::Hello]);
        for sequence in 1.. {
            let Some([kind, high, low]) = take::<3>(&mut parts) else {
                break;
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let (contents, rest) = parts.split_at(length.min(parts.len()));
            put_frame(u32::from(kind), sequence, contents, &mut octets);
            parts = rest;
        }
        octets
    }

    /// Returns a connection of UDP between 10.0.0.1, port N, and 10.0.0.2, port 53, in both directions.
    pub(crate) fn saved_connection(port: u16) -> SavedConnection {
        let mut octets = [0; SAVED_OCTETS];
        octets[12..16].copy_from_slice(&[10, 0, 0, 1]);
        octets[28..32].copy_from_slice(&[10, 0, 0, 2]);
        octets[32..34].copy_from_slice(&port.to_be_bytes());
        octets[35] = 53;
        octets[38..41].copy_from_slice(&[17, 10, 2]);
        octets[51] = 30;
        SavedConnection::from_octets(octets)
    }

    pub(crate) fn saved_mapping(port: u16) -> SavedMapping {
        let mut octets = [0; SAVED_MAPPING_OCTETS];
        octets[0] = 1;
        octets[2..4].copy_from_slice(&port.to_be_bytes());
        octets[4..8].copy_from_slice(&[10, 0, 0, 1]);
        octets[8..14].copy_from_slice(&[198, 51, 100, 1, 4, 0]);
        SavedMapping::from_octets(&octets).unwrap()
    }

    #[test]
    fn messages_are_read_from_their_text() {
        let mapping = Message::Mappings {
            nat: "x".to_owned(),
            changes: vec![MappingChange::Present(saved_mapping(7))],
        };
        for messages in [
            vec![],
            vec![mapping.clone()],
            vec![mapping, Message::Complete],
        ] {
            assert_eq!(messages_of(&text_of(&messages)), Ok(messages));
        }
        assert_eq!(messages_of(""), Err(WireError::Contents));
        assert_eq!(messages_of("?"), Err(WireError::Contents));
        // The hello, and a part of the message behind it.
        let text = text_of(&[Message::Complete]);
        assert_eq!(messages_of(&text[..56]), Err(WireError::Contents));
    }

    fn connections() -> impl Strategy<Value = Vec<ConnectionChange>> {
        let one = (any::<bool>(), 1..u16::MAX).prop_map(|(is_ended, port)| {
            let saved = saved_connection(port);
            match is_ended {
                true => ConnectionChange::Ended(saved),
                false => ConnectionChange::Present(saved),
            }
        });
        prop::collection::vec(one, 0..20)
    }

    fn mappings() -> impl Strategy<Value = Vec<MappingChange>> {
        let one = (any::<bool>(), any::<u16>()).prop_map(|(is_ended, port)| {
            let saved = saved_mapping(port);
            match is_ended {
                true => MappingChange::Ended(saved),
                false => MappingChange::Present(saved),
            }
        });
        prop::collection::vec(one, 0..20)
    }

    fn mappings_ipv6() -> impl Strategy<Value = Vec<MappingChange<SavedMappingIpv6>>> {
        let end = |address: u128, port: u16| SocketAddrV6::new(address.into(), port, 0, 0);
        let one = (any::<bool>(), any::<bool>(), any::<(u128, u16)>());
        let one = one.prop_map(move |(is_ended, is_answered, (address, port))| {
            let saved = SavedMappingIpv6 {
                protocol: NatProtocol::Tcp,
                is_answered,
                internal: end(address, port),
                external: end(!address, !port),
            };
            match is_ended {
                true => MappingChange::Ended(saved),
                false => MappingChange::Present(saved),
            }
        });
        prop::collection::vec(one, 0..20)
    }

    fn balanced_connections() -> impl Strategy<Value = Vec<BalancedChange>> {
        let one = (any::<bool>(), any::<bool>(), any::<u16>()).prop_map(
            |(is_ended, is_closing, port)| {
                let saved = SavedBalanced {
                    client: SocketAddrV4::new([192, 0, 2, 1].into(), port),
                    backend: SocketAddrV4::new([10, 0, 0, 6].into(), 8080),
                    is_closing,
                };
                match is_ended {
                    true => BalancedChange::Ended(saved),
                    false => BalancedChange::Present(saved),
                }
            },
        );
        prop::collection::vec(one, 0..20)
    }

    fn balanced_ipv6_connections() -> impl Strategy<Value = Message> {
        let end = |address: u128, port: u16| SocketAddrV6::new(address.into(), port, 0, 0);
        let one = (any::<bool>(), any::<bool>(), any::<(u128, u16)>());
        let one = one.prop_map(move |(is_ended, is_closing, (address, port))| {
            let saved = SavedBalanced {
                client: end(address, port),
                backend: end(!address, 8080),
                is_closing,
            };
            match is_ended {
                true => BalancedChange::Ended(saved),
                false => BalancedChange::Present(saved),
            }
        });
        let changes = prop::collection::vec(one, 0..20);
        (any::<u16>(), changes).prop_map(move |(port, changes)| Message::BalancedIpv6 {
            protocol: NatProtocol::Udp,
            endpoint: end(7, port),
            changes,
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            connections().prop_map(Message::Connections),
            ("[a-z]{0,40}", mappings())
                .prop_map(|(nat, changes)| Message::Mappings { nat, changes }),
            ("[a-z]{0,40}", mappings_ipv6())
                .prop_map(|(nat, changes)| Message::MappingsIpv6 { nat, changes }),
            (any::<u16>(), balanced_connections()).prop_map(|(port, changes)| Message::Balanced {
                protocol: NatProtocol::Tcp,
                endpoint: SocketAddrV4::new([198, 51, 100, 1].into(), port),
                changes,
            }),
            balanced_ipv6_connections(),
            prop::collection::vec(("[a-z' ]{0,40}", any::<u32>()), 0..9)
                .prop_map(Message::Configuration),
            prop::collection::vec(("[a-z' ]{0,40}", any::<u32>()), 0..9).prop_map(Message::Limits),
            Just(Message::Heartbeat),
            Just(Message::Complete),
            any::<u64>().prop_map(Message::Acknowledgement),
        ]
    }

    fn messages() -> impl Strategy<Value = Vec<Message>> {
        prop::collection::vec(message(), 1..8).prop_map(|mut messages| {
            messages.insert(0, Message::Hello);
            messages
        })
    }

    proptest! {
        #[test]
        fn messages_are_read_as_they_are_written_in_any_pieces(
            messages in messages(),
            sizes in prop::collection::vec(1..200usize, 1..20),
        ) {
            let octets = written(&messages);
            let (mut reader, mut read) = (Reader::default(), Vec::new());
            let (mut rest, mut sizes) = (&octets[..], sizes.into_iter().cycle());
            while !rest.is_empty() {
                let (piece, others) = rest.split_at(sizes.next().unwrap().min(rest.len()));
                reader.push(piece);
                rest = others;
                while let Some(message) = reader.next().unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(&read, &messages);
            prop_assert!(!reader.has_rest());
            prop_assert_eq!(reader.count(), messages.len() as u64);
        }

        #[test]
        fn a_changed_octet_is_found(messages in messages(), at: prop::sample::Index, bit in 0..8u8) {
            let mut octets = written(&messages);
            let at = at.index(octets.len());
            octets[at] ^= 1 << bit;
            let (read, _) = read_all(&octets);
            // A length that has become greater only waits for more octets.
            prop_assert!(read.len() < messages.len());
            prop_assert_eq!(&read[..], &messages[..read.len()]);
        }

        #[test]
        fn a_lost_repeated_or_reordered_message_ends_the_stream(
            messages in messages(),
            at: prop::sample::Index,
            change in 0..3u8,
        ) {
            let each: Vec<Vec<u8>> = (0..)
                .zip(&messages)
                .map(|(sequence, message)| {
                    let mut octets = Vec::new();
                    message.put(sequence, &mut octets);
                    octets
                })
                .collect();
            // Without the last message, nothing is missing yet.
            let at = at.index(each.len() - 1);
            let mut changed = each;
            match change {
                0 => drop(changed.remove(at)),
                1 => changed.insert(at, changed[at].clone()),
                _ => changed.swap(at, at + 1),
            }
            let (read, error) = read_all(&changed.concat());
            let is_sequence = matches!(error, Some(WireError::Sequence { .. }));
            prop_assert!(is_sequence, "{:?}", error);
            prop_assert_eq!(&read[..], &messages[..read.len()]);
        }
    }

    #[test]
    fn other_peers_and_impossible_messages_are_refused() {
        let error = |octets: &[u8]| read_all(octets).1;
        assert_eq!(error(b"GET / HTTP/1.1\r\n\r\n"), Some(WireError::Length));
        // Another version, another first message, a second hello.
        let mut other = written(&[Message::Hello]);
        other[HEADER + 9] = 7;
        let end = other.len() - CRC;
        let crc = crc32c(&other[..end]).to_be_bytes();
        other[end..].copy_from_slice(&crc);
        assert_eq!(error(&other), Some(WireError::Version));
        let beginning = written(&[Message::Heartbeat]);
        assert_eq!(error(&beginning), Some(WireError::Version));
        let twice = written(&[Message::Hello, Message::Hello]);
        assert_eq!(error(&twice), Some(WireError::Version));
        let impossible = SavedConnection::from_octets([0xff; SAVED_OCTETS]);
        let changes = vec![ConnectionChange::Present(impossible)];
        let messages = [Message::Hello, Message::Connections(changes)];
        assert_eq!(error(&written(&messages)), Some(WireError::Contents));
        assert_eq!(Message::read(12, &[]), Err(WireError::Contents));
        assert_eq!(
            Message::read(MAPPINGS_IPV6, &[0, 1]),
            Err(WireError::Contents)
        );
        assert_eq!(
            Message::read(BALANCED_IPV6, &[0; 18]),
            Err(WireError::Contents)
        );
        assert_eq!(Message::read(HEARTBEAT, &[0]), Err(WireError::Contents));
        assert_eq!(Message::read(MAPPINGS, &[3, 1]), Err(WireError::Contents));
        // A name of any length is read as it was sent.
        let name = format!("ports of NAT '\n{}'", "ü".repeat(NAME_MAX));
        let setting = digest(&name, "1-2");
        assert!((NAME_MAX - 1..=NAME_MAX).contains(&setting.0.len()));
        let messages = [Message::Hello, Message::Configuration(vec![setting])];
        assert_eq!(read_all(&written(&messages)), (messages.to_vec(), None));
        for settings in [&b"\x01a\0\0\0"[..], b"\x01\n\0\0\0\0", b"\x01\xff\0\0\0\0"] {
            for kind in [CONFIGURATION, LIMITS] {
                let read = Message::read(kind, settings);
                assert_eq!(read, Err(WireError::Contents));
            }
        }
        for (kind, count) in [(CONFIGURATION, SETTINGS_MAX), (LIMITS, LIMITS_A_MESSAGE)] {
            let numbers = |count: usize| Message::read(kind, &b"\x01a\0\0\0\x07".repeat(count));
            assert!(numbers(count).is_ok());
            assert_eq!(numbers(count + 1), Err(WireError::Contents));
        }
        assert_eq!(
            Message::read(ACKNOWLEDGEMENT, &[0; 9]),
            Err(WireError::Contents)
        );
        let one = [&[PRESENT][..], &[0; SAVED_MAPPING_OCTETS]].concat();
        let too_many = [vec![0], one.repeat(CHANGES_MAX + 1)].concat();
        assert_eq!(Message::read(MAPPINGS, &too_many), Err(WireError::Contents));
    }

    #[test]
    fn full_messages_fit() {
        let changes = vec![ConnectionChange::Present(saved_connection(7)); CHANGES_MAX];
        let name = "n".repeat(NAME_MAX);
        let of_nat = vec![MappingChange::Ended(saved_mapping(7)); CHANGES_MAX];
        let end = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, 0);
        let ipv6 = SavedMappingIpv6 {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: end,
            external: end,
        };
        let settings = vec![digest(&name, "7"); SETTINGS_MAX];
        let limits = vec![limit(&name, 7); LIMITS_A_MESSAGE];
        let messages = [
            Message::Hello,
            Message::Configuration(settings),
            Message::Connections(changes),
            Message::Mappings {
                nat: name.clone(),
                changes: of_nat,
            },
            Message::MappingsIpv6 {
                nat: name,
                changes: vec![MappingChange::Present(ipv6); CHANGES_MAX],
            },
            Message::Limits(limits),
        ];
        let (read, error) = read_all(&written(&messages));
        assert_eq!((&read[..], error), (&messages[..], None));
    }
}
