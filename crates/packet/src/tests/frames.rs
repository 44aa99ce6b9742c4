// SPDX-License-Identifier: Apache-2.0
//! Well-formed frames of all parsed kinds, written by etherparse and not by this crate.

use etherparse as ep;
use proptest::prelude::*;

/// Contents of a frame.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) destination: [u8; 6],
    pub(super) source: [u8; 6],
    /// Tag types and control information, outermost first.
    pub(super) tags: Vec<(u16, u16)>,
    pub(super) network: NetworkSpec,
    /// Octets after the packet.
    pub(super) padding: usize,
}

#[derive(Clone, Debug)]
pub(super) enum NetworkSpec {
    Arp {
        operation: u16,
        sender: ([u8; 6], [u8; 4]),
        target: ([u8; 6], [u8; 4]),
    },
    Ipv4 {
        source: [u8; 4],
        destination: [u8; 4],
        /// Words of options.
        options: usize,
        ttl: u8,
        dscp: u8,
        /// Fragment offset in units of eight octets, and the more-fragments flag.
        fragment: (u16, bool),
        transport: TransportSpec,
    },
    Ipv6 {
        source: [u8; 16],
        destination: [u8; 16],
        traffic_class: u8,
        flow_label: u32,
        /// Types of extension headers and their additional length in their own units.
        extensions: Vec<(u8, u8)>,
        /// Fields of a fragment header, if there is one among the extensions.
        fragment: (u16, bool),
        transport: TransportSpec,
    },
}

#[derive(Clone, Debug)]
pub(super) enum TransportSpec {
    Udp {
        ports: (u16, u16),
        payload: Vec<u8>,
    },
    Tcp {
        ports: (u16, u16),
        flags: u8,
        /// Words of options.
        options: usize,
        payload: Vec<u8>,
    },
    Icmp {
        kind: u8,
        code: u8,
        payload: Vec<u8>,
    },
    Other(Vec<u8>),
}

/// GRE, as an example of a protocol that is not parsed.
pub(super) const OTHER_PROTOCOL: u8 = 47;

impl TransportSpec {
    pub(super) fn protocol(&self, ipv6: bool) -> u8 {
        match self {
            Self::Udp { .. } => 17,
            Self::Tcp { .. } => 6,
            Self::Icmp { .. } if ipv6 => 58,
            Self::Icmp { .. } => 1,
            Self::Other(_) => OTHER_PROTOCOL,
        }
    }

    /// Returns the octets of the transport. Transport checksums are not parsed and left at zero.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Udp { ports, payload } => {
                let header = ep::UdpHeader {
                    source_port: ports.0,
                    destination_port: ports.1,
                    length: 8 + payload.len() as u16,
                    checksum: 0,
                };
                [&header.to_bytes()[..], payload].concat()
            }
            Self::Tcp {
                ports,
                flags,
                options,
                payload,
            } => {
                let mut header = ep::TcpHeader::new(ports.0, ports.1, 7, 1024);
                header.set_options_raw(&vec![1; options * 4]).unwrap();
                let mut bytes = header.to_bytes().to_vec();
                bytes[13] = *flags;
                [&bytes[..], payload].concat()
            }
            Self::Icmp {
                kind,
                code,
                payload,
            } => [&[*kind, *code, 0, 0][..], payload].concat(),
            Self::Other(payload) => payload.clone(),
        }
    }
}

/// Returns the extension headers before `last`, and the type of the first.
fn extension_bytes(extensions: &[(u8, u8)], fragment: (u16, bool), last: u8) -> (u8, Vec<u8>) {
    let mut bytes = vec![];
    for (place, (kind, extra)) in extensions.iter().enumerate() {
        let next = ep::IpNumber(extensions.get(place + 1).map_or(last, |e| e.0));
        match *kind {
            44 => {
                let offset = ep::IpFragOffset::try_new(fragment.0).unwrap();
                let header = ep::Ipv6FragmentHeader::new(next, offset, fragment.1, 99);
                bytes.extend_from_slice(&header.to_bytes());
            }
            51 => {
                let icv = vec![0xaa; usize::from(*extra) * 4];
                let header = ep::IpAuthHeader::new(next, 1, 2, &icv).unwrap();
                bytes.extend_from_slice(&header.to_bytes());
            }
            _ => {
                let data = vec![0; 6 + usize::from(*extra) * 8];
                let header = ep::Ipv6RawExtHeader::new_raw(next, &data).unwrap();
                bytes.extend_from_slice(&header.to_bytes());
            }
        }
    }
    (extensions.first().map_or(last, |e| e.0), bytes)
}

impl NetworkSpec {
    fn ethertype(&self) -> u16 {
        match self {
            Self::Arp { .. } => 0x0806,
            Self::Ipv4 { .. } => 0x0800,
            Self::Ipv6 { .. } => 0x86dd,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Arp {
                operation,
                sender,
                target,
            } => ep::ArpEthIpv4Packet {
                operation: ep::ArpOperation(*operation),
                sender_mac: sender.0,
                sender_ipv4: sender.1,
                target_mac: target.0,
                target_ipv4: target.1,
            }
            .to_bytes()
            .to_vec(),
            Self::Ipv4 {
                source,
                destination,
                options,
                ttl,
                dscp,
                fragment,
                transport,
            } => {
                let payload = transport.bytes();
                let protocol = ep::IpNumber(transport.protocol(false));
                let length = payload.len() as u16;
                let mut header =
                    ep::Ipv4Header::new(length, *ttl, protocol, *source, *destination).unwrap();
                header.options = vec![1; options * 4][..].try_into().unwrap();
                header.dscp = ep::IpDscp::try_new(*dscp).unwrap();
                header.fragment_offset = ep::IpFragOffset::try_new(fragment.0).unwrap();
                header.more_fragments = fragment.1;
                header.dont_fragment = false;
                header.set_payload_len(payload.len()).unwrap();
                header.header_checksum = header.calc_header_checksum();
                [&header.to_bytes()[..], &payload].concat()
            }
            Self::Ipv6 {
                source,
                destination,
                traffic_class,
                flow_label,
                extensions,
                fragment,
                transport,
            } => {
                let last = transport.protocol(true);
                let (next, mut payload) = extension_bytes(extensions, *fragment, last);
                payload.extend(transport.bytes());
                let header = ep::Ipv6Header {
                    traffic_class: *traffic_class,
                    flow_label: ep::Ipv6FlowLabel::try_new(*flow_label).unwrap(),
                    payload_length: payload.len() as u16,
                    next_header: ep::IpNumber(next),
                    hop_limit: 64,
                    source: *source,
                    destination: *destination,
                };
                [&header.to_bytes()[..], &payload].concat()
            }
        }
    }
}

impl Spec {
    /// Returns the frame, without FCS.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut types: Vec<u16> = self.tags.iter().map(|tag| tag.0).collect();
        types.push(self.network.ethertype());
        let ethernet = ep::Ethernet2Header {
            source: self.source,
            destination: self.destination,
            ether_type: ep::EtherType(types[0]),
        };
        let mut bytes = ethernet.to_bytes().to_vec();
        for ((_, tci), next) in self.tags.iter().zip(&types[1..]) {
            let tag = ep::SingleVlanHeader {
                pcp: ep::VlanPcp::try_new((tci >> 13) as u8).unwrap(),
                drop_eligible_indicator: tci & 0x1000 != 0,
                vlan_id: ep::VlanId::try_new(tci & 0x0fff).unwrap(),
                ether_type: ep::EtherType(*next),
            };
            bytes.extend_from_slice(&tag.to_bytes());
        }
        bytes.extend(self.network.bytes());
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    // The longest fixed ICMP header that etherparse requires has 20 octets.
    prop::collection::vec(any::<u8>(), 16..80)
}

fn transports() -> impl Strategy<Value = TransportSpec> {
    prop_oneof![
        (any::<(u16, u16)>(), payloads())
            .prop_map(|(ports, payload)| TransportSpec::Udp { ports, payload }),
        (any::<(u16, u16)>(), any::<u8>(), 0..=10usize, payloads()).prop_map(
            |(ports, flags, options, payload)| TransportSpec::Tcp {
                ports,
                flags,
                options,
                payload
            }
        ),
        (any::<u8>(), any::<u8>(), payloads()).prop_map(|(kind, code, payload)| {
            TransportSpec::Icmp {
                kind,
                code,
                payload,
            }
        }),
        payloads().prop_map(TransportSpec::Other),
    ]
}

fn fragments() -> impl Strategy<Value = (u16, bool)> {
    prop_oneof![
        3 => Just((0, false)),
        1 => Just((0, true)),
        1 => (1..0x2000u16, any::<bool>()),
    ]
}

/// Returns extension headers in the order of RFC 8200, section 4.1, each of them optional.
fn extensions() -> impl Strategy<Value = Vec<(u8, u8)>> {
    let order = vec![0u8, 60, 43, 44, 51, 60];
    (prop::sample::subsequence(order, 0..=6), 0..4u8)
        .prop_map(|(kinds, extra)| kinds.into_iter().map(|kind| (kind, extra)).collect())
}

fn networks() -> impl Strategy<Value = NetworkSpec> {
    prop_oneof![
        1 => (any::<u16>(), any::<([u8; 6], [u8; 4])>(), any::<([u8; 6], [u8; 4])>()).prop_map(
            |(operation, sender, target)| NetworkSpec::Arp { operation, sender, target }
        ),
        3 => (any::<([u8; 4], [u8; 4])>(), 0..=10usize, any::<u8>(), 0..64u8, fragments(), transports())
            .prop_map(|((source, destination), options, ttl, dscp, fragment, transport)| {
                NetworkSpec::Ipv4 { source, destination, options, ttl, dscp, fragment, transport }
            }),
        3 => (
            any::<([u8; 16], [u8; 16])>(),
            any::<u8>(),
            0..0x10_0000u32,
            extensions(),
            fragments(),
            transports(),
        )
            .prop_map(
                |((source, destination), traffic_class, flow_label, extensions, fragment, transport)| {
                    NetworkSpec::Ipv6 {
                        source,
                        destination,
                        traffic_class,
                        flow_label,
                        extensions,
                        fragment,
                        transport,
                    }
                }
            ),
    ]
}

/// Returns well-formed frames.
pub(super) fn specs() -> impl Strategy<Value = Spec> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    (
        any::<([u8; 6], [u8; 6])>(),
        prop::collection::vec(tag, 0..=2),
        networks(),
        0..20usize,
    )
        .prop_map(|((destination, source), tags, network, padding)| Spec {
            destination,
            source,
            tags,
            network,
            padding,
        })
}
