// SPDX-License-Identifier: Apache-2.0
//! Events of NAT for an IPFIX collector (RFC 7011; RFC 8158).
//!
//! Each message has its template, so that a collector that starts later, and one that loses messages, can read the next one. Messages go over
//! UDP, and fit into the smallest path MTU that RFC 7011, section 10.3.3, allows to assume.

mod encoded;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use super::record::Record;
use encoded::{BLOCK_NAT44, Encoded, Template};

/// Version and set IDs (RFC 7011, sections 3.1 and 3.3.2).
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// Length of a message header, octets.
const MESSAGE_HEADER: usize = 16;
/// Packets of 512 octets without the headers of IPv6 and UDP.
const MESSAGE_MAX: usize = 512 - 40 - 8;
/// Offsets in a message.
const LENGTH_AT: usize = 2;
const EXPORT_TIME_AT: usize = 4;
const SEQUENCE_AT: usize = 8;

/// A message under construction.
#[derive(Debug)]
struct Message {
    octets: Vec<u8>,
    records: u32,
    /// Instance of NAT of its last record.
    nat: String,
    /// Template of all of its records.
    template: Template,
    /// Offset of the data set.
    data_at: usize,
    /// The record that is added.
    encoded: Encoded,
}

/// Events that the collector did not get.
#[derive(Debug)]
pub(super) struct SendError {
    /// Their numbers, by instance of NAT.
    pub(super) lost: Vec<(String, u32)>,
    pub(super) cause: io::Error,
}

/// Sends events to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    out: File,
    message: Message,
    /// Number of records in all messages before.
    sequence: u32,
    /// Instance of the last message that was sent, and number of its records: the next write reports whether the collector has refused it.
    last: (String, u32),
}

fn length_of(octets: usize) -> [u8; 2] {
    u16::try_from(octets).unwrap_or(u16::MAX).to_be_bytes()
}

impl Message {
    fn new() -> Self {
        let mut message = Self {
            octets: Vec::with_capacity(MESSAGE_MAX),
            records: 0,
            nat: String::new(),
            template: BLOCK_NAT44,
            data_at: 0,
            encoded: Encoded::default(),
        };
        message.begin();
        message
    }

    /// Begins a message without records: header, template set, header of the data set. Lengths, time and sequence follow at the end.
    fn begin(&mut self) {
        let Template { id, fields, scope } = self.template;
        self.records = 0;
        self.octets.clear();
        self.put(VERSION);
        // Length, time, sequence and observation domain 0.
        self.octets.extend([0; 14]);
        let set = match scope {
            0 => TEMPLATE_SET,
            _ => OPTIONS_TEMPLATE_SET,
        };
        self.put(set);
        // The length follows.
        self.put(0);
        self.put(id);
        self.put(u16::try_from(fields.len()).unwrap_or(u16::MAX));
        if scope > 0 {
            self.put(scope);
        }
        for (element, length) in fields {
            self.put(*element);
            self.put(*length);
        }
        self.data_at = self.octets.len();
        let length = self.data_at.saturating_sub(MESSAGE_HEADER);
        self.set(MESSAGE_HEADER + LENGTH_AT, length_of(length));
        self.put(id);
        self.put(0);
    }

    fn put(&mut self, number: u16) {
        self.octets.extend(number.to_be_bytes());
    }

    /// Adds a record. Returns false if the message has no space for it, or records of another template.
    fn add(&mut self, record: &Record<'_>) -> bool {
        let template = self.encoded.encode(record);
        if template != self.template {
            if self.records > 0 {
                return false;
            }
            self.template = template;
            self.begin();
        }
        let size = self.encoded.octets.len();
        if self.records > 0 && self.octets.len().saturating_add(size) > MESSAGE_MAX {
            return false;
        }
        self.octets.extend_from_slice(&self.encoded.octets);
        self.records = self.records.saturating_add(1);
        record.nat.clone_into(&mut self.nat);
        true
    }

    fn set<const N: usize>(&mut self, at: usize, field: [u8; N]) {
        let rest = self.octets.get_mut(at..).unwrap_or_default();
        if let Some(place) = rest.first_chunk_mut() {
            *place = field;
        }
    }

    /// Completes the message.
    fn end(&mut self, export_time_s: u32, sequence: u32) -> &[u8] {
        let total = self.octets.len();
        self.set(LENGTH_AT, length_of(total));
        self.set(EXPORT_TIME_AT, export_time_s.to_be_bytes());
        self.set(SEQUENCE_AT, sequence.to_be_bytes());
        let length_at = self.data_at.saturating_add(LENGTH_AT);
        self.set(length_at, length_of(total.saturating_sub(self.data_at)));
        &self.octets
    }
}

impl Exporter {
    /// Creates an exporter that sends to this address from now on.
    ///
    /// # Errors
    /// Those of the operating system, such as an address without a route.
    pub(crate) fn connect(collector: SocketAddr) -> io::Result<Self> {
        let local = match collector {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(local)?;
        socket.connect(collector)?;
        // A full queue must not stop the control thread.
        socket.set_nonblocking(true)?;
        // Each write is a datagram.
        Ok(Self::new(File::from(OwnedFd::from(socket))))
    }

    fn new(out: File) -> Self {
        Self {
            out,
            message: Message::new(),
            sequence: 0,
            last: (String::new(), 0),
        }
    }

    /// Adds an event. A full message is sent first.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub(super) fn add(&mut self, record: &Record<'_>, now_s: u32) -> Result<(), SendError> {
        let mut sent = Ok(());
        if !self.message.add(record) {
            sent = self.flush(now_s);
            // An empty message has space for every record.
            self.message.add(record);
        }
        sent
    }

    /// Sends the events that wait, which are of one instance.
    ///
    /// # Errors
    /// Events that are lost: of this message, or of the one before. They count in the sequence, so the collector finds out.
    pub(super) fn flush(&mut self, now_s: u32) -> Result<(), SendError> {
        let count = self.message.records;
        if count == 0 {
            return Ok(());
        }
        let octets = self.message.end(now_s, self.sequence);
        let (refused, sent) = match self.out.write_all(octets) {
            // An ICMP error about the message before, and the kernel has not sent this one (udp(7)).
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (Some(error), self.out.write_all(octets))
            }
            sent => (None, sent),
        };
        let before = std::mem::take(&mut self.last);
        let own = (self.message.nat.clone(), count);
        self.sequence = self.sequence.wrapping_add(count);
        self.message.begin();
        let (mut lost, mut cause) = (Vec::new(), None);
        if let Some(error) = refused {
            lost.extend((before.1 > 0).then_some(before));
            cause = Some(error);
        }
        match sent {
            Ok(()) => self.last = own,
            Err(error) => {
                lost.push(own);
                cause = Some(error);
            }
        }
        cause.map_or(Ok(()), |cause| Err(SendError { lost, cause }))
    }
}
