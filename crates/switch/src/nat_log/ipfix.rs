// SPDX-License-Identifier: Apache-2.0
//! Events of NAT for an IPFIX collector (RFC 7011; RFC 8158).
//!
//! Each message has its template, so that a collector that starts later, and one that loses messages, can read the next one. Messages go over
//! UDP, and fit into the smallest path MTU that RFC 7011, section 10.3.3, allows to assume.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use quietwire_tables::nat::{NatLimit, NatProtocol};

use super::record::{Record, RecordKind};

/// Version and set IDs (RFC 7011, sections 3.1 and 3.3.2).
const VERSION: u16 = 10;
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;
/// Length of a message header, octets.
const MESSAGE_HEADER: usize = 16;
/// Length of a field of variable length (RFC 7011, section 7).
const VARIABLE: u16 = 0xffff;
/// Maximum length of a name of an instance and of a VRF, octets. The first one has a length of one octet.
const NAME_MAX: usize = 254;
const VRF_NAME_MAX: usize = 63;
/// Packets of 512 octets without the headers of IPv6 and UDP.
const MESSAGE_MAX: usize = 512 - 40 - 8;
/// Offsets in a message.
const LENGTH_AT: usize = 2;
const EXPORT_TIME_AT: usize = 4;
const SEQUENCE_AT: usize = 8;

/// Information elements and their lengths (IANA, IP Flow Information Export Entities): observationTimeMilliseconds, natEvent,
/// protocolIdentifier, sourceTransportPort, postNAPTSourceTransportPort, portRangeStart, portRangeEnd.
const TIME: (u16, u16) = (323, 8);
const EVENT: (u16, u16) = (230, 1);
const PROTOCOL: (u16, u16) = (4, 1);
const PORT: (u16, u16) = (7, 2);
const EXTERNAL_PORT: (u16, u16) = (227, 2);
const FIRST_PORT: (u16, u16) = (361, 2);
const LAST_PORT: (u16, u16) = (362, 2);
/// ingressVRFID, VRFname, natPoolName.
const VRF: (u16, u16) = (234, 4);
const VRF_NAME: (u16, u16) = (236, VARIABLE);
const NAME: (u16, u16) = (284, VARIABLE);
/// sourceIPv4Address, sourceIPv6Address, postNATSourceIPv4Address, postNATSourceIPv6Address.
const HOST: (u16, u16) = (8, 4);
const HOST_IPV6: (u16, u16) = (27, 16);
const EXTERNAL: (u16, u16) = (225, 4);
const EXTERNAL_IPV6: (u16, u16) = (281, 16);
/// natQuotaExceededEvent, maxBIBEntries, maxEntriesPerUser, maxSubscribers.
const QUOTA: (u16, u16) = (466, 4);
const MAPPINGS_MAX: (u16, u16) = (472, 4);
const PORTS_MAX: (u16, u16) = (473, 4);
const HOSTS_MAX: (u16, u16) = (474, 4);
/// notSentFlowTotalCount.
const NOT_SENT: (u16, u16) = (166, 8);

/// Values of natEvent (RFC 8158, section 4.3; IANA, NAT Event Type), each with that of the end of the same: NAT44 BIB, NAT64 BIB, and port
/// block allocation. There are none for NAT66, so its mappings have those of any translation.
const NAT66: (u8, u8) = (1, 2);
const NAT44_BIB: (u8, u8) = (8, 9);
const NAT64_BIB: (u8, u8) = (10, 11);
const BLOCK: (u8, u8) = (16, 17);
const ADDRESSES_EXHAUSTED: u8 = 3;
const PORTS_EXHAUSTED: u8 = 12;
const QUOTA_EXCEEDED: u8 = 13;
/// Values of natQuotaExceededEvent (IANA, NAT Quota Exceeded Event): maximum BIB entries, entries of a user, active hosts.
const QUOTA_MAPPINGS: u32 = 2;
const QUOTA_PORTS: u32 = 3;
const QUOTA_HOSTS: u32 = 4;
/// Protocol of ICMPv6 (IANA).
const ICMPV6: u8 = 58;

/// A template (RFC 7011, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Template {
    id: u16,
    /// Information elements and their lengths.
    fields: &'static [(u16, u16)],
    /// Number of fields in front that are the scope of an options template; 0 for other templates.
    scope: u16,
}

const fn template(id: u16, fields: &'static [(u16, u16)]) -> Template {
    let scope = 0;
    Template { id, fields, scope }
}

/// Port blocks of IPv4 hosts, of IPv6 hosts behind IPv4 addresses (NAT64), and of those behind IPv6 addresses (NAT66).
const BLOCK_NAT44: Template = template(
    256,
    &[TIME, EVENT, HOST, EXTERNAL, FIRST_PORT, LAST_PORT, NAME],
);
const BLOCK_NAT64: Template = template(
    257,
    &[
        TIME, EVENT, HOST_IPV6, EXTERNAL, FIRST_PORT, LAST_PORT, NAME,
    ],
);
const BLOCK_NAT66: Template = template(
    258,
    &[
        TIME,
        EVENT,
        HOST_IPV6,
        EXTERNAL_IPV6,
        FIRST_PORT,
        LAST_PORT,
        NAME,
    ],
);
/// Mappings of the same.
const MAPPING_NAT44: Template = template(
    259,
    &[
        TIME,
        EVENT,
        HOST,
        EXTERNAL,
        PROTOCOL,
        PORT,
        EXTERNAL_PORT,
        VRF,
        VRF_NAME,
        NAME,
    ],
);
const MAPPING_NAT64: Template = template(
    260,
    &[
        TIME,
        EVENT,
        HOST_IPV6,
        EXTERNAL,
        PROTOCOL,
        PORT,
        EXTERNAL_PORT,
        VRF,
        VRF_NAME,
        NAME,
    ],
);
const MAPPING_NAT66: Template = template(
    261,
    &[
        TIME,
        EVENT,
        HOST_IPV6,
        EXTERNAL_IPV6,
        PROTOCOL,
        PORT,
        EXTERNAL_PORT,
        VRF,
        VRF_NAME,
        NAME,
    ],
);
/// Exhausted addresses, exhausted ports of an IPv4 address and of an IPv6 address.
const NO_ADDRESSES: Template = template(262, &[TIME, EVENT, NAME]);
const NO_PORTS: Template = template(263, &[TIME, EVENT, EXTERNAL, PROTOCOL, NAME]);
const NO_PORTS_IPV6: Template = template(264, &[TIME, EVENT, EXTERNAL_IPV6, PROTOCOL, NAME]);
/// Exceeded quotas: mappings, hosts, ports of an IPv4 host and of an IPv6 host.
const FULL_MAPPINGS: Template = template(265, &[TIME, EVENT, QUOTA, MAPPINGS_MAX, NAME]);
const FULL_HOSTS: Template = template(266, &[TIME, EVENT, QUOTA, HOSTS_MAX, NAME]);
const FULL_HOST: Template = template(267, &[TIME, EVENT, QUOTA, PORTS_MAX, HOST, NAME]);
const FULL_HOST_IPV6: Template = template(268, &[TIME, EVENT, QUOTA, PORTS_MAX, HOST_IPV6, NAME]);
/// Lost events (RFC 7011, section 4.3).
const LOSS: Template = Template {
    id: 269,
    fields: &[NAME, TIME, NOT_SENT],
    scope: 1,
};

/// The octets of a record.
#[derive(Debug, Default)]
struct Encoded {
    octets: Vec<u8>,
}

impl Encoded {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.octets.extend(field);
    }

    fn put_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.put(address.octets()),
            IpAddr::V6(address) => self.put(address.octets()),
        }
    }

    fn put_name(&mut self, name: &str, octets_max: usize) {
        let name = shortened(name, octets_max);
        self.put([u8::try_from(name.len()).unwrap_or(0)]);
        self.octets.extend(name.as_bytes());
    }

    /// Replaces the octets by those of a record. Returns its template.
    fn encode(&mut self, record: &Record<'_>) -> Template {
        self.octets.clear();
        if let RecordKind::Lost { total, .. } = record.kind {
            self.put_name(record.nat, NAME_MAX);
            self.put(record.time_ms.to_be_bytes());
            self.put(total.to_be_bytes());
            return LOSS;
        }
        self.put(record.time_ms.to_be_bytes());
        let template = match record.kind {
            RecordKind::Block {
                is_assigned,
                host,
                external,
                ports,
            } => {
                self.put([if is_assigned { BLOCK.0 } else { BLOCK.1 }]);
                self.put_address(host);
                self.put_address(external);
                self.put(ports.0.to_be_bytes());
                self.put(ports.1.to_be_bytes());
                of_addresses(host, external, [BLOCK_NAT44, BLOCK_NAT64, BLOCK_NAT66])
            }
            RecordKind::Mapping { .. } => self.encode_mapping(record),
            RecordKind::Limit { .. } => self.encode_limit(record),
            // Above.
            RecordKind::Lost { .. } => LOSS,
        };
        self.put_name(record.nat, NAME_MAX);
        template
    }

    /// Adds the octets of a mapping behind its time.
    fn encode_mapping(&mut self, record: &Record<'_>) -> Template {
        let RecordKind::Mapping {
            is_created,
            protocol,
            internal,
            external,
        } = record.kind
        else {
            return LOSS;
        };
        let (host, outside) = (internal.ip(), external.ip());
        let events = of_addresses(host, outside, [NAT44_BIB, NAT64_BIB, NAT66]);
        self.put([if is_created { events.0 } else { events.1 }]);
        self.put_address(host);
        self.put_address(outside);
        self.put([number_of(protocol, host)]);
        self.put(internal.port().to_be_bytes());
        self.put(external.port().to_be_bytes());
        self.put(u32::from(record.vrf.number).to_be_bytes());
        self.put_name(&record.vrf.name, VRF_NAME_MAX);
        of_addresses(host, outside, [MAPPING_NAT44, MAPPING_NAT64, MAPPING_NAT66])
    }

    /// Adds the octets of a limit behind its time.
    fn encode_limit(&mut self, record: &Record<'_>) -> Template {
        let RecordKind::Limit {
            limit,
            protocol,
            host,
            external,
            maximum,
        } = record.kind
        else {
            return LOSS;
        };
        match limit {
            NatLimit::Addresses => {
                self.put([ADDRESSES_EXHAUSTED]);
                NO_ADDRESSES
            }
            NatLimit::Ports => {
                let external = external.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                self.put([PORTS_EXHAUSTED]);
                self.put_address(external);
                self.put([protocol.map_or(0, |one| number_of(one, external))]);
                match external {
                    IpAddr::V4(_) => NO_PORTS,
                    IpAddr::V6(_) => NO_PORTS_IPV6,
                }
            }
            NatLimit::Mappings => self.encode_quota(QUOTA_MAPPINGS, maximum, FULL_MAPPINGS),
            NatLimit::Hosts => self.encode_quota(QUOTA_HOSTS, maximum, FULL_HOSTS),
            NatLimit::HostBlocks => {
                let host = host.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                let template = match host {
                    IpAddr::V4(_) => FULL_HOST,
                    IpAddr::V6(_) => FULL_HOST_IPV6,
                };
                self.encode_quota(QUOTA_PORTS, maximum, template);
                self.put_address(host);
                template
            }
        }
    }

    /// Adds the octets of an exceeded quota behind its time. Returns the template.
    fn encode_quota(&mut self, quota: u32, maximum: Option<u32>, template: Template) -> Template {
        self.put([QUOTA_EXCEEDED]);
        self.put(quota.to_be_bytes());
        self.put(maximum.unwrap_or(0).to_be_bytes());
        template
    }
}

/// Returns that of NAT44, NAT64 and NAT66 which is of these addresses.
fn of_addresses<T>(host: IpAddr, external: IpAddr, [nat44, nat64, nat66]: [T; 3]) -> T {
    match (host, external) {
        (IpAddr::V4(_), _) => nat44,
        (IpAddr::V6(_), IpAddr::V4(_)) => nat64,
        (IpAddr::V6(_), IpAddr::V6(_)) => nat66,
    }
}

/// Returns the number of a protocol in packets of this address (IANA, Protocol Numbers).
const fn number_of(protocol: NatProtocol, address: IpAddr) -> u8 {
    match protocol {
        NatProtocol::Tcp => 6,
        NatProtocol::Udp => 17,
        NatProtocol::Icmp if address.is_ipv6() => ICMPV6,
        NatProtocol::Icmp => 1,
    }
}

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

/// Returns a name, truncated to a maximum length in octets.
fn shortened(name: &str, octets_max: usize) -> &str {
    let mut end = name.len().min(octets_max);
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    name.get(..end).unwrap_or_default()
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
            lost.push(before);
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
