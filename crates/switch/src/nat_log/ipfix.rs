// SPDX-License-Identifier: Apache-2.0
//! Events of port blocks for an IPFIX collector (RFC 7011; RFC 8158).
//!
//! Each message has its template, so that a collector that starts later, and one that loses messages, can read the next one. Messages go over
//! UDP, and fit into the smallest path MTU that RFC 7011, section 10.3.3, allows to assume.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// Version, set IDs and template IDs (RFC 7011, sections 3.1, 3.3.2 and 3.4.1).
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
/// Templates of IPv4 hosts, of IPv6 hosts behind IPv4 addresses (NAT64), and of those behind IPv6 addresses (NAT66).
const TEMPLATE: u16 = 256;
const TEMPLATE_NAT64: u16 = 257;
const TEMPLATE_NAT66: u16 = 258;
/// Length of a field of variable length (RFC 7011, section 7).
const VARIABLE: u16 = 0xffff;
/// Longest name with a length of one octet.
const NAME_MAX: usize = 254;
/// Number of information elements of a record.
const FIELD_COUNT: u16 = 7;
/// Information elements and their lengths (IANA, IP Flow Information Export Entities): observationTimeMilliseconds, natEvent,
/// sourceIPv4Address, postNATSourceIPv4Address, portRangeStart, portRangeEnd, natPoolName.
const FIELDS: [(u16, u16); FIELD_COUNT as usize] = [
    (323, 8),
    (230, 1),
    HOST,
    EXTERNAL,
    (361, 2),
    (362, 2),
    (284, VARIABLE),
];
/// Fields of the host: sourceIPv4Address, and in other templates sourceIPv6Address.
const HOST: (u16, u16) = (8, 4);
const HOST_IPV6: (u16, u16) = (27, 16);
/// Fields of the external address: postNATSourceIPv4Address, and in the template of NAT66 postNATSourceIPv6Address.
const EXTERNAL: (u16, u16) = (225, 4);
const EXTERNAL_IPV6: (u16, u16) = (281, 16);
/// Values of natEvent (RFC 8158; IANA, NAT Event Type): port block allocation and de-allocation.
const ALLOCATED: u8 = 16;
const DEALLOCATED: u8 = 17;
/// Packets of 512 octets without the headers of IPv6 and UDP.
const MESSAGE_MAX: usize = 512 - 40 - 8;
/// Offsets in a message.
const LENGTH_AT: usize = 2;
const EXPORT_TIME_AT: usize = 4;
const SEQUENCE_AT: usize = 8;
const DATA_SET_AT: usize = 16 + 8 + FIELDS.len() * 4;

/// An event of a port block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Unix time, milliseconds.
    pub(super) time_ms: u64,
    pub(super) is_assigned: bool,
    pub(super) host: IpAddr,
    pub(super) external: IpAddr,
    pub(super) ports: (u16, u16),
    /// Name of the instance of NAT.
    pub(super) nat: &'a str,
}

/// A message under construction.
#[derive(Debug)]
struct Message {
    octets: Vec<u8>,
    records: u32,
    /// Template of all of its records.
    template: u16,
}

/// Sends events to a collector.
#[derive(Debug)]
pub(crate) struct Exporter {
    out: File,
    message: Message,
    /// Number of records in all messages before.
    sequence: u32,
}

/// Returns a name, truncated to the maximum length.
fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_MAX);
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    name.get(..end).unwrap_or_default()
}

impl Message {
    fn new() -> Self {
        let mut message = Self {
            octets: Vec::with_capacity(MESSAGE_MAX),
            records: 0,
            template: TEMPLATE,
        };
        message.begin();
        message
    }

    /// Begins a message without records: header, template set, header of the data set. Lengths, time and sequence follow at the end.
    fn begin(&mut self) {
        self.records = 0;
        self.octets.clear();
        self.put(VERSION);
        // Length, time, sequence and observation domain 0.
        self.octets.extend([0; 14]);
        self.put(TEMPLATE_SET);
        self.put(8 + 4 * FIELD_COUNT);
        let template = self.template;
        let (host, external) = match template {
            TEMPLATE_NAT66 => (HOST_IPV6, EXTERNAL_IPV6),
            TEMPLATE_NAT64 => (HOST_IPV6, EXTERNAL),
            _ => (HOST, EXTERNAL),
        };
        self.put(template);
        self.put(FIELD_COUNT);
        for field in FIELDS {
            let (element, length) = match field {
                HOST => host,
                EXTERNAL => external,
                field => field,
            };
            self.put(element);
            self.put(length);
        }
        self.put(template);
        self.put(0);
    }

    fn put(&mut self, number: u16) {
        self.octets.extend(number.to_be_bytes());
    }

    /// Adds a record. Returns false if the message has no space for it, or records of the other template.
    fn add(&mut self, record: &Record<'_>) -> bool {
        let template = match (record.host, record.external) {
            (IpAddr::V4(_), _) => TEMPLATE,
            (IpAddr::V6(_), IpAddr::V4(_)) => TEMPLATE_NAT64,
            (IpAddr::V6(_), IpAddr::V6(_)) => TEMPLATE_NAT66,
        };
        if template != self.template {
            if self.records > 0 {
                return false;
            }
            self.template = template;
            self.begin();
        }
        let name = shortened(record.nat);
        let length = |address: IpAddr| if address.is_ipv6() { 16_usize } else { 4 };
        let addresses = length(record.host).saturating_add(length(record.external));
        // Time, event, two ports, and the length of the name.
        let size = addresses.saturating_add(name.len());
        let size = size.saturating_add(8 + 1 + 2 + 2 + 1);
        if self.records > 0 && self.octets.len().saturating_add(size) > MESSAGE_MAX {
            return false;
        }
        self.octets.extend(record.time_ms.to_be_bytes());
        self.octets.push(if record.is_assigned {
            ALLOCATED
        } else {
            DEALLOCATED
        });
        for address in [record.host, record.external] {
            match address {
                IpAddr::V4(address) => self.octets.extend(address.octets()),
                IpAddr::V6(address) => self.octets.extend(address.octets()),
            }
        }
        self.put(record.ports.0);
        self.put(record.ports.1);
        self.octets.push(u8::try_from(name.len()).unwrap_or(0));
        self.octets.extend(name.as_bytes());
        self.records = self.records.saturating_add(1);
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
        let length = |octets: usize| u16::try_from(octets).unwrap_or(u16::MAX).to_be_bytes();
        let total = self.octets.len();
        self.set(LENGTH_AT, length(total));
        self.set(EXPORT_TIME_AT, export_time_s.to_be_bytes());
        self.set(SEQUENCE_AT, sequence.to_be_bytes());
        self.set(DATA_SET_AT + 2, length(total.saturating_sub(DATA_SET_AT)));
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
        }
    }

    /// Adds an event. A full message is sent first.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub(super) fn add(&mut self, record: &Record<'_>, now_s: u32) -> Result<(), (u32, io::Error)> {
        let mut sent = Ok(());
        if !self.message.add(record) {
            sent = self.flush(now_s);
            // An empty message has space for every record.
            self.message.add(record);
        }
        sent
    }

    /// Sends the events that wait.
    ///
    /// # Errors
    /// The number of events that are lost, and why. They count in the sequence, so the collector finds out.
    pub(super) fn flush(&mut self, now_s: u32) -> Result<(), (u32, io::Error)> {
        let count = self.message.records;
        if count == 0 {
            return Ok(());
        }
        let sent = self.out.write_all(self.message.end(now_s, self.sequence));
        self.sequence = self.sequence.wrapping_add(count);
        self.message.begin();
        sent.map_err(|cause| (count, cause))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn record(nat: &str, first: u16) -> Record<'_> {
        Record {
            time_ms: 0x0102_0304_0506_0708,
            is_assigned: first == 1024,
            host: [10, 0, 0, 5].into(),
            external: [198, 51, 100, 1].into(),
            ports: (first, first + 511),
            nat,
        }
    }

    /// Reads the records of a message by its template: number, length and octets of each field.
    fn read(message: &[u8]) -> Vec<Vec<(u16, Vec<u8>)>> {
        let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        assert_eq!(number(0), 10);
        assert_eq!(usize::from(number(2)), message.len());
        assert_eq!(number(16), 2);
        let template = number(20);
        let data = 16 + usize::from(number(18));
        let fields: Vec<(u16, u16)> = (0..usize::from(number(22)))
            .map(|field| (number(24 + 4 * field), number(26 + 4 * field)))
            .collect();
        assert_eq!(
            (number(data), data + usize::from(number(data + 2))),
            (template, message.len())
        );
        let (mut at, mut records) = (data + 4, Vec::new());
        while at < message.len() {
            let mut record = Vec::new();
            for (element, length) in &fields {
                let mut length = usize::from(*length);
                if length == 0xffff {
                    length = usize::from(message[at]);
                    at += 1;
                }
                record.push((*element, message[at..at + length].to_vec()));
                at += length;
            }
            records.push(record);
        }
        records
    }

    #[test]
    fn a_message_has_its_template_and_each_event() {
        let mut message = Message::new();
        assert!(message.add(&record("internet", 1024)));
        assert!(message.add(&record("internet", 1536)));
        let octets = message.end(0x0a0b_0c0d, 7).to_vec();
        assert_eq!(
            octets[4..16],
            [0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 7, 0, 0, 0, 0]
        );
        let expected = |event: u8, ports: [u8; 4]| -> Vec<(u16, Vec<u8>)> {
            vec![
                (323, vec![1, 2, 3, 4, 5, 6, 7, 8]),
                (230, vec![event]),
                (8, vec![10, 0, 0, 5]),
                (225, vec![198, 51, 100, 1]),
                (361, ports[..2].to_vec()),
                (362, ports[2..].to_vec()),
                (284, b"internet".to_vec()),
            ]
        };
        assert_eq!(
            read(&octets),
            [expected(16, [4, 0, 5, 255]), expected(17, [6, 0, 7, 255])]
        );
    }

    #[test]
    fn clients_have_a_template_with_ipv6_addresses() {
        let mut message = Message::new();
        let client = Record {
            host: [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5].into(),
            ..record("internet", 1024)
        };
        assert!(message.add(&client) && message.add(&client));
        // One message has one template.
        assert!(!message.add(&record("internet", 1024)));
        let octets = message.end(0, 0).to_vec();
        assert_eq!(octets[20..22], [1, 1]);
        let records = read(&octets);
        assert_eq!((records.len(), records[1].len()), (2, 7));
        let host = vec![0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(records[1][2], (27, host));
        message.begin();
        assert!(message.add(&record("internet", 1024)));
        let octets = message.end(0, 0).to_vec();
        assert_eq!(octets[20..22], [1, 0]);
        assert_eq!(read(&octets)[0][2], (8, vec![10, 0, 0, 5]));
    }

    #[test]
    fn hosts_behind_ipv6_addresses_have_a_template_of_their_own() {
        let mut message = Message::new();
        let client = Record {
            host: [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5].into(),
            ..record("internet", 1024)
        };
        let external = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let host = Record {
            external: external.into(),
            ..client
        };
        assert!(message.add(&host) && message.add(&host) && !message.add(&client));
        let octets = message.end(0, 0).to_vec();
        assert_eq!(octets[20..22], [1, 2]);
        let records = read(&octets);
        assert_eq!((records.len(), records[1].len()), (2, 7));
        assert_eq!(records[1][2].0, 27);
        assert_eq!(records[1][3], (281, external.to_vec()));
    }

    #[test]
    fn long_names_are_shortened_and_messages_stay_short() {
        let long = "ä".repeat(200);
        assert_eq!(shortened(&long).len(), 254);
        assert_eq!(shortened("internet"), "internet");
        let mut message = Message::new();
        let count = (0..100)
            .take_while(|_| message.add(&record("internet", 1024)))
            .count();
        let octets = message.end(0, 0);
        assert!(octets.len() <= MESSAGE_MAX && count > 5, "{count}");
        assert_eq!(read(octets).len(), count);
        message.begin();
        assert!(message.add(&record(&long, 1024)));
        assert_eq!(read(message.end(0, 0))[0][6].1.len(), 254);
    }

    #[test]
    fn a_collector_gets_datagrams_whose_sequence_counts_the_events() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut exporter = Exporter::connect(collector.local_addr().unwrap()).unwrap();
        for _ in 0..30 {
            exporter.add(&record("internet", 1024), 1).unwrap();
        }
        exporter.flush(1).unwrap();
        exporter.flush(1).unwrap();
        let mut counted = 0;
        while counted < 30 {
            let mut octets = [0; 1024];
            let length = collector.recv(&mut octets).unwrap();
            let sequence = u32::from_be_bytes([octets[8], octets[9], octets[10], octets[11]]);
            assert_eq!(sequence, counted);
            counted += read(&octets[..length]).len() as u32;
        }
        assert_eq!(counted, 30);
    }

    #[test]
    fn events_that_cannot_be_sent_are_counted() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut exporter = Exporter::new(full);
        exporter.add(&record("internet", 1024), 1).unwrap();
        exporter.add(&record("internet", 1536), 1).unwrap();
        let (count, _) = exporter.flush(1).unwrap_err();
        assert_eq!((count, exporter.sequence), (2, 2));
        assert!(exporter.flush(1).is_ok());
    }
}
