// SPDX-License-Identifier: Apache-2.0
//! The self-test's stateful device: it follows TCP connections over IPv4, mistreats chosen ones, and keeps a ledger of every
//! connection.
//!
//! It reads and changes frames by itself. Only the sum of RFC 1071 is shared with the tester.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use quietwire_packet::{Checksum, be16_at, be32_at, checksum};
use serde::{Deserialize, Serialize};

/// Connections in the ledger at most. Further ones are forwarded and counted.
const LEDGER_MAX: usize = 1 << 16;

/// Octets of the headers without options.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TCP: usize = 20;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Fault of the device in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionFault {
    /// It answers the SYN with a reset, and the server never sees it.
    Refuse,
    /// It drops every SYN of the server.
    DropSynAck,
    /// Packets of the server come from another address.
    WrongAddress,
    /// It answers the first data of the client with a reset.
    Reset,
    /// It changes an octet of each answer, with correct checksums.
    ChangePayload,
    /// It forgets the connection once it is established, and drops its packets.
    Forget,
}

impl ConnectionFault {
    /// All faults.
    pub const ALL: [Self; 6] = [
        Self::Refuse,
        Self::DropSynAck,
        Self::WrongAddress,
        Self::Reset,
        Self::ChangePayload,
        Self::Forget,
    ];

    /// Returns the name in kebab case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropSynAck => "drop-syn-ack",
            Self::WrongAddress => "wrong-address",
            Self::Reset => "reset",
            Self::ChangePayload => "change-payload",
            Self::Forget => "forget",
        }
    }
}

/// Behaviour of the stateful device in one trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionScript {
    /// Faults, which take turns.
    pub faults: Vec<ConnectionFault>,
    /// A connection has a fault if its number, from 1 in the order of the SYNs, is a multiple of this one.
    pub every: u64,
}

impl ConnectionScript {
    /// Returns the fault of the connection with this number, from 0.
    fn fault(&self, number: u64) -> Option<ConnectionFault> {
        let (number, every) = (number.saturating_add(1), self.every.max(1));
        if self.faults.is_empty() || !number.is_multiple_of(every) {
            return None;
        }
        let turn = number.checked_div(every)?.checked_sub(1)?;
        let index = turn.checked_rem(self.faults.len() as u64)?;
        self.faults.get(usize::try_from(index).ok()?).copied()
    }
}

/// A connection in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerConnection {
    /// Address and port of the client.
    pub source: SocketAddrV4,
    /// Its fault; `None` for a connection that the device forwards.
    pub fault: Option<ConnectionFault>,
    /// Packets of the connection that the device has received.
    pub packets: u64,
    /// Packets that it dropped, changed or answered itself.
    pub touched: u64,
    /// FINs that it forwarded: 2 for a connection that was closed, more if one was sent again.
    pub fins: u64,
    /// Sequence number of the SYN.
    #[serde(skip)]
    syn: u32,
    /// It drops all further packets.
    #[serde(skip)]
    is_over: bool,
}

/// Ledger of the stateful device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLedger {
    /// Connections in the order of their SYNs.
    pub connections: Vec<LedgerConnection>,
    /// Connections beyond the largest number in the ledger.
    pub unlisted: u64,
    /// Frames of no known connection.
    pub others: u64,
    /// Longest time between two turns of the device, nanoseconds.
    pub longest_gap_ns: u64,
}

/// Disposition of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It leaves by the opposite port.
    Forward,
    Drop,
    /// It leaves by the port that received it.
    Return,
}

type Endpoint = (Ipv4Addr, u16);

/// A TCP segment in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    source: Endpoint,
    destination: Endpoint,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    /// Octets of the IP header, of both headers, and of the packet.
    ip_header: usize,
    headers: usize,
    length: usize,
}

fn octet(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

/// Writes octets, if they fit.
fn put(frame: &mut [u8], at: usize, octets: &[u8]) {
    let rest = frame.get_mut(at..).unwrap_or_default();
    if let Some(place) = rest.get_mut(..octets.len()) {
        place.copy_from_slice(octets);
    }
}

impl View {
    /// Reads a frame; `None` unless it is a whole TCP segment over IPv4.
    fn of(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(ETHERNET..)?;
        let first = octet(packet, 0)?;
        let is_fragment = be16_at(packet, 6)? & 0x3fff != 0;
        let is_tcp = be16_at(frame, 12)? == 0x0800 && first >> 4 == 4 && octet(packet, 9)? == 6;
        if !is_tcp || is_fragment {
            return None;
        }
        // Both headers have their length in units of four octets.
        let ip_header = usize::from((first & 0x0f) << 2);
        let length = usize::from(be16_at(packet, 2)?);
        let segment = packet.get(ip_header..)?;
        let tcp_header = usize::from((octet(segment, 12)? & 0xf0) >> 2);
        let headers = ip_header.saturating_add(tcp_header);
        let is_whole =
            ip_header >= IPV4 && tcp_header >= TCP && headers <= length && length <= packet.len();
        let address = |at| Some(Ipv4Addr::from_bits(be32_at(packet, at)?));
        let view = Self {
            source: (address(12)?, be16_at(segment, 0)?),
            destination: (address(16)?, be16_at(segment, 2)?),
            sequence: be32_at(segment, 4)?,
            acknowledgement: be32_at(segment, 8)?,
            flags: octet(segment, 13)?,
            ip_header,
            headers,
            length,
        };
        is_whole.then_some(view)
    }

    fn has_data(&self) -> bool {
        self.length > self.headers
    }

    /// Computes the checksums of a changed frame.
    fn complete(&self, frame: &mut [u8]) {
        let end = ETHERNET.saturating_add(self.ip_header);
        let tcp_checksum = end.saturating_add(16);
        let whole = ETHERNET.saturating_add(self.length);
        put(frame, ETHERNET + 10, &[0, 0]);
        let sum = frame.get(ETHERNET..end).map_or(0, checksum);
        put(frame, ETHERNET + 10, &sum.to_be_bytes());
        put(frame, tcp_checksum, &[0, 0]);
        let mut sum = Checksum::new();
        sum.add(frame.get(ETHERNET + 12..ETHERNET + 20).unwrap_or_default());
        let length = self.length.saturating_sub(self.ip_header);
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        let [high, low] = length.to_be_bytes();
        sum.add(&[0, 6, high, low]);
        sum.add(frame.get(end..whole).unwrap_or_default());
        put(frame, tcp_checksum, &sum.finish().to_be_bytes());
    }

    /// Turns the frame into a reset for its sender (RFC 9293, section 3.10.7.1).
    fn reset(&self, frame: &mut [u8]) {
        let addresses = frame.first_chunk::<12>().copied().unwrap_or_default();
        put(frame, 0, addresses.get(6..).unwrap_or_default());
        put(frame, 6, addresses.get(..6).unwrap_or_default());
        frame.iter_mut().skip(ETHERNET).for_each(|octet| *octet = 0);
        let (sequence, acknowledgement, flags) = if self.flags & ACK != 0 {
            (self.acknowledgement, 0, RST)
        } else {
            (0, self.sequence.wrapping_add(1), RST | ACK)
        };
        let length = u16::try_from(IPV4 + TCP).unwrap_or(u16::MAX);
        put(frame, ETHERNET, &[0x45, 0]);
        put(frame, ETHERNET + 2, &length.to_be_bytes());
        put(frame, ETHERNET + 6, &[0x40, 0, 64, 6]);
        put(frame, ETHERNET + 12, &self.destination.0.octets());
        put(frame, ETHERNET + 16, &self.source.0.octets());
        let segment = frame.get_mut(ETHERNET + IPV4..).unwrap_or_default();
        put(segment, 0, &self.destination.1.to_be_bytes());
        put(segment, 2, &self.source.1.to_be_bytes());
        put(segment, 4, &sequence.to_be_bytes());
        put(segment, 8, &acknowledgement.to_be_bytes());
        put(segment, 12, &[0x50, flags]);
        let reset = Self {
            ip_header: IPV4,
            headers: IPV4 + TCP,
            length: IPV4 + TCP,
            ..*self
        };
        reset.complete(frame);
    }
}

/// The stateful device.
#[derive(Debug)]
pub(crate) struct ConnectionDevice {
    script: ConnectionScript,
    /// Places in the ledger by client and server.
    places: HashMap<(Endpoint, Endpoint), usize>,
    ledger: ConnectionLedger,
}

impl ConnectionDevice {
    pub(crate) fn new(script: ConnectionScript) -> Self {
        Self {
            script,
            places: HashMap::new(),
            ledger: ConnectionLedger::default(),
        }
    }

    /// Notes the time between two turns of the device, nanoseconds.
    pub(crate) fn note_gap(&mut self, gap_ns: u64) {
        self.ledger.longest_gap_ns = self.ledger.longest_gap_ns.max(gap_ns);
    }

    /// Returns the ledger.
    pub(crate) fn into_ledger(self) -> ConnectionLedger {
        self.ledger
    }

    /// Returns the place of the connection of a segment, and whether the client sent it. A new SYN begins a connection.
    fn find_or_begin(&mut self, view: &View) -> Option<(usize, bool)> {
        let key = (view.source, view.destination);
        let known = self.places.get(&key).copied();
        if view.flags & (SYN | ACK) == SYN {
            let is_again = known
                .and_then(|place| self.ledger.connections.get(place))
                .is_some_and(|connection| connection.syn == view.sequence);
            if !is_again {
                return self.begin(view).map(|place| (place, true));
            }
        }
        if let Some(place) = known {
            return Some((place, true));
        }
        let place = self.places.get(&(view.destination, view.source))?;
        Some((*place, false))
    }

    fn begin(&mut self, view: &View) -> Option<usize> {
        let place = self.ledger.connections.len();
        if place >= LEDGER_MAX {
            self.ledger.unlisted = self.ledger.unlisted.saturating_add(1);
            return None;
        }
        let (address, port) = view.source;
        self.ledger.connections.push(LedgerConnection {
            source: SocketAddrV4::new(address, port),
            fault: self.script.fault(place as u64),
            packets: 0,
            touched: 0,
            fins: 0,
            syn: view.sequence,
            is_over: false,
        });
        self.places.insert((view.source, view.destination), place);
        Some(place)
    }

    /// Decides on a frame, and changes it.
    pub(crate) fn judge(&mut self, frame: &mut [u8]) -> Disposition {
        let place = View::of(frame).and_then(|view| Some((view, self.find_or_begin(&view)?)));
        let Some((view, (place, is_of_client))) = place else {
            self.ledger.others = self.ledger.others.saturating_add(1);
            return Disposition::Forward;
        };
        let Some(connection) = self.ledger.connections.get_mut(place) else {
            return Disposition::Forward;
        };
        connection.packets = connection.packets.saturating_add(1);
        let disposition = match connection.fault {
            _ if connection.is_over => Some(Disposition::Drop),
            None => None,
            Some(fault) => fault.act(connection, &view, is_of_client, frame),
        };
        let is_touched = u64::from(disposition.is_some());
        connection.touched = connection.touched.saturating_add(is_touched);
        let disposition = disposition.unwrap_or(Disposition::Forward);
        let is_fin = disposition == Disposition::Forward && view.flags & FIN != 0;
        connection.fins = connection.fins.saturating_add(u64::from(is_fin));
        disposition
    }
}

impl ConnectionFault {
    /// Applies the fault to a segment; `None` if the segment is forwarded unchanged.
    fn act(
        self,
        connection: &mut LedgerConnection,
        view: &View,
        is_of_client: bool,
        frame: &mut [u8],
    ) -> Option<Disposition> {
        match self {
            Self::Refuse => {
                connection.is_over = true;
                view.reset(frame);
                Some(Disposition::Return)
            }
            Self::DropSynAck => {
                (!is_of_client && view.flags & SYN != 0).then_some(Disposition::Drop)
            }
            Self::WrongAddress if !is_of_client => {
                let (address, _) = view.source;
                let other = Ipv4Addr::from_bits(address.to_bits() ^ 0x80);
                put(frame, ETHERNET + 12, &other.octets());
                view.complete(frame);
                Some(Disposition::Forward)
            }
            Self::Reset if is_of_client && view.has_data() => {
                connection.is_over = true;
                view.reset(frame);
                Some(Disposition::Return)
            }
            Self::ChangePayload if !is_of_client && view.has_data() => {
                let last = ETHERNET.saturating_add(view.length).saturating_sub(1);
                if let Some(octet) = frame.get_mut(last) {
                    *octet ^= 0x55;
                }
                view.complete(frame);
                Some(Disposition::Forward)
            }
            Self::Forget if is_of_client && view.has_data() => {
                connection.is_over = true;
                Some(Disposition::Drop)
            }
            Self::WrongAddress | Self::Reset | Self::ChangePayload | Self::Forget => None,
        }
    }
}
