// SPDX-License-Identifier: Apache-2.0
//! Records of events and their templates: information elements, values and octets (RFC 8158; IANA, IP Flow Information Export Entities).

use std::net::{IpAddr, Ipv4Addr};

use quietwire_tables::nat::{NatLimit, NatProtocol};

use super::super::record::{Record, RecordKind};

/// Length of a field of variable length (RFC 7011, section 7).
const VARIABLE: u16 = 0xffff;
/// Maximum length of a name of an instance and of a VRF, octets. The first one has a length of one octet.
pub(super) const NAME_MAX: usize = 254;
pub(super) const VRF_NAME_MAX: usize = 63;
/// The same for a session, whose longest record fits into a message nevertheless.
pub(super) const SESSION_NAME_MAX: usize = 220;

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
/// natOriginatingAddressRealm and its values (IANA, IP Flow Information Export Entities).
const REALM: (u16, u16) = (229, 1);
const PRIVATE: u8 = 1;
const PUBLIC: u8 = 2;
/// destinationIPv4Address, destinationIPv6Address, destinationTransportPort.
const REMOTE: (u16, u16) = (12, 4);
const REMOTE_IPV6: (u16, u16) = (28, 16);
const REMOTE_PORT: (u16, u16) = (11, 2);
/// postNATDestinationIPv4Address, postNATDestinationIPv6Address, postNAPTDestinationTransportPort.
const INSIDE: (u16, u16) = (226, 4);
const INSIDE_IPV6: (u16, u16) = (282, 16);
const INSIDE_PORT: (u16, u16) = (228, 2);
/// notSentFlowTotalCount.
const NOT_SENT: (u16, u16) = (166, 8);

/// Values of natEvent (RFC 8158, section 4.3; IANA, NAT Event Type), each with that of the end of the same: NAT44 BIB, NAT64 BIB, and port
/// block allocation. There are none for NAT66, so its mappings have those of any translation.
const NAT66: (u8, u8) = (1, 2);
const NAT44_BIB: (u8, u8) = (8, 9);
const NAT64_BIB: (u8, u8) = (10, 11);
const BLOCK: (u8, u8) = (16, 17);
/// Values of natEvent for the begin and the end of a session of NAT44 (RFC 8158, section 4.3).
const NAT44_SESSION: (u8, u8) = (4, 5);
/// Those of address bindings.
const BINDING: (u8, u8) = (14, 15);
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
pub(super) struct Template {
    pub(super) id: u16,
    /// Information elements and their lengths.
    pub(super) fields: &'static [(u16, u16)],
    /// Number of fields in front that are the scope of an options template; 0 for other templates.
    pub(super) scope: u16,
}

const fn template(id: u16, fields: &'static [(u16, u16)]) -> Template {
    let scope = 0;
    Template { id, fields, scope }
}

/// Port blocks of IPv4 hosts, of IPv6 hosts behind IPv4 addresses (NAT64), and of those behind IPv6 addresses (NAT66).
pub(super) const BLOCK_NAT44: Template = template(
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
/// Sessions of NAT44 and NAT66.
const SESSION_NAT44: Template = template(
    270,
    &[
        TIME,
        EVENT,
        REALM,
        HOST,
        EXTERNAL,
        PROTOCOL,
        PORT,
        EXTERNAL_PORT,
        REMOTE,
        REMOTE_PORT,
        INSIDE,
        INSIDE_PORT,
        VRF,
        VRF_NAME,
        NAME,
    ],
);
const SESSION_NAT66: Template = template(
    271,
    &[
        TIME,
        EVENT,
        REALM,
        HOST_IPV6,
        EXTERNAL_IPV6,
        PROTOCOL,
        PORT,
        EXTERNAL_PORT,
        REMOTE_IPV6,
        REMOTE_PORT,
        INSIDE_IPV6,
        INSIDE_PORT,
        VRF,
        VRF_NAME,
        NAME,
    ],
);
/// External addresses of IPv4 hosts and of IPv6 hosts (NAT64, NAT66).
const BINDING_NAT44: Template = template(272, &[TIME, EVENT, HOST, EXTERNAL, NAME]);
const BINDING_NAT64: Template = template(273, &[TIME, EVENT, HOST_IPV6, EXTERNAL, NAME]);
const BINDING_NAT66: Template = template(274, &[TIME, EVENT, HOST_IPV6, EXTERNAL_IPV6, NAME]);
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
pub(super) struct Encoded {
    pub(super) octets: Vec<u8>,
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
    pub(super) fn encode(&mut self, record: &Record<'_>) -> Template {
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
            RecordKind::Binding {
                is_created,
                host,
                external,
            } => {
                self.put([if is_created { BINDING.0 } else { BINDING.1 }]);
                self.put_address(host);
                self.put_address(external);
                let templates = [BINDING_NAT44, BINDING_NAT64, BINDING_NAT66];
                of_addresses(host, external, templates)
            }
            RecordKind::Mapping { .. } => self.encode_mapping(record),
            RecordKind::Session { .. } => self.encode_session(record),
            RecordKind::Limit { .. } => self.encode_limit(record),
            // Above.
            RecordKind::Lost { .. } => LOSS,
        };
        let name_max = match record.kind {
            RecordKind::Session { .. } => SESSION_NAME_MAX,
            _ => NAME_MAX,
        };
        self.put_name(record.nat, name_max);
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

    /// Adds the octets of a session behind its time.
    fn encode_session(&mut self, record: &Record<'_>) -> Template {
        let RecordKind::Session {
            is_created,
            is_inbound,
            protocol,
            internal,
            external,
            remote,
            remote_inside,
        } = record.kind
        else {
            return LOSS;
        };
        let host = internal.ip();
        let (events, template) = if host.is_ipv4() {
            (NAT44_SESSION, SESSION_NAT44)
        } else {
            (NAT66, SESSION_NAT66)
        };
        self.put([if is_created { events.0 } else { events.1 }]);
        self.put([if is_inbound { PUBLIC } else { PRIVATE }]);
        self.put_address(host);
        self.put_address(external.ip());
        self.put([number_of(protocol, host)]);
        self.put(internal.port().to_be_bytes());
        self.put(external.port().to_be_bytes());
        self.put_address(remote.ip());
        self.put(remote.port().to_be_bytes());
        self.put_address(remote_inside.ip());
        self.put(remote_inside.port().to_be_bytes());
        self.put(u32::from(record.vrf.number).to_be_bytes());
        self.put_name(&record.vrf.name, VRF_NAME_MAX);
        template
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

/// Returns a name, truncated to a maximum length in octets.
pub(super) fn shortened(name: &str, octets_max: usize) -> &str {
    let mut end = name.len().min(octets_max);
    while !name.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    name.get(..end).unwrap_or_default()
}
