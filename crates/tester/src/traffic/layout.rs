// SPDX-License-Identifier: Apache-2.0
//! Layout of headers in a frame, their values in each flow, and the coverage of their checksums.

use std::ops::Range;

use quietwire_packet::{Checksum, EtherType, IpProtocol};

use super::field::{Field, Kind, Rule};
use super::headers::{
    CUSTOMER_TAG, IPV4_A, IPV4_B, IPV6_A, IPV6_B, MAC_A, MAC_B, PORT_DESTINATION, PORT_SOURCE,
    PROVIDER_TAG, VXLAN_PORT,
};
use super::{Headers, TagType, Traffic, Vlan};

const ETHERNET: usize = 14;
const TAG: usize = 4;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const TCP: usize = 20;
const VXLAN: usize = 8;

/// Default TTL and hop limit.
const TTL: u128 = 64;
/// Default TCP flags: ACK.
const ACK: u128 = 0x10;

/// Checksum of a frame. Inner checksums must be computed before outer ones.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    /// Offset at which the checksum is written.
    pub(crate) at: usize,
    /// Octets that it covers: a header, or everything from an offset on.
    pub(crate) covers: Cover,
}

#[derive(Clone, Debug)]
pub(crate) enum Cover {
    /// An IPv4 header.
    Header(Range<usize>),
    /// UDP or TCP with all following octets, and the addresses of the pseudo header.
    Rest {
        from: usize,
        addresses: Range<usize>,
        protocol: u8,
    },
}

impl Sum {
    /// Returns how often a word of the frame is added to the sum.
    pub(crate) fn times(&self, word: usize) -> u32 {
        match &self.covers {
            Cover::Header(range) => u32::from(range.contains(&word)),
            Cover::Rest {
                from, addresses, ..
            } => u32::from(word >= *from).saturating_add(addresses.contains(&word).into()),
        }
    }

    /// Returns the sum of the covered words of a frame, before the final complement and without the checksum field itself.
    pub(crate) fn constant(&self, frame: &[u8]) -> u32 {
        let mut sum = Checksum::new();
        let mut add = |range: Range<usize>| sum.add(frame.get(range).unwrap_or_default());
        match &self.covers {
            Cover::Header(range) => add(range.clone()),
            Cover::Rest {
                from,
                addresses,
                protocol,
            } => {
                add(*from..frame.len());
                // A frame of odd length is padded with a zero octet.
                let length = frame.len().saturating_sub(*from);
                if length % 2 == 1 {
                    sum.add(&[0]);
                }
                sum.add(frame.get(addresses.clone()).unwrap_or_default());
                sum.add(&length_of(length).to_be_bytes());
                sum.add(&[0, *protocol]);
            }
        }
        u32::from(!sum.finish())
    }

    /// Returns true for a UDP checksum.
    pub(crate) fn is_of_udp(&self) -> bool {
        matches!(self.covers, Cover::Rest { protocol, .. } if protocol == IpProtocol::UDP.0)
    }

    /// Returns true if the checksum covers the payload.
    pub(crate) fn covers_payload(&self) -> bool {
        matches!(self.covers, Cover::Rest { .. })
    }
}

/// Headers of one frame, or of the frame inside VXLAN.
#[derive(Clone, Debug)]
struct Frame {
    macs: [Rule; 2],
    tags: Vec<(u16, Rule, Rule)>,
    ip: IpRules,
    transport: Transport,
}

#[derive(Clone, Debug)]
enum IpRules {
    V4 {
        addresses: [Rule; 2],
        dscp: Rule,
        ttl: Rule,
    },
    V6 {
        addresses: [Rule; 2],
        dscp: Rule,
        ttl: Rule,
        label: Rule,
    },
}

#[derive(Clone, Debug)]
enum Transport {
    Udp {
        ports: [Rule; 2],
        checksum: bool,
    },
    Tcp {
        ports: [Rule; 2],
        flags: Rule,
        sequence: Rule,
    },
}

/// Headers of the frames that one port sends.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    outer: Frame,
    tunnel: Option<(Rule, Frame)>,
}

/// Source of a separate seed for every field.
struct Seeds {
    seed: u64,
    place: u64,
}

impl Seeds {
    fn rule<K: Kind>(&mut self, field: Option<&Field<K>>, default: u128) -> Rule {
        self.place = self.place.wrapping_add(1);
        match field {
            Some(field) => field.rule(self.seed, self.place),
            None => Field::<K>::fixed(default).rule(self.seed, self.place),
        }
    }

    /// Returns the rules of source and destination, exchanged for the mirrored direction.
    fn pair<K: Kind>(
        &mut self,
        [source, destination]: [Option<&Field<K>>; 2],
        [a, b]: [u128; 2],
        is_mirrored: bool,
    ) -> [Rule; 2] {
        let pair = [self.rule(source, a), self.rule(destination, b)];
        if is_mirrored {
            let [source, destination] = pair;
            [destination, source]
        } else {
            pair
        }
    }

    fn frame(&mut self, headers: &Headers, is_mirrored: bool, carries_vxlan: bool) -> Frame {
        let ethernet = &headers.ethernet;
        Frame {
            macs: self.pair(
                [ethernet.source.as_ref(), ethernet.destination.as_ref()],
                [MAC_A, MAC_B],
                is_mirrored,
            ),
            tags: self.tags(&headers.vlan),
            ip: self.ip(headers, is_mirrored),
            transport: self.transport(headers, is_mirrored, carries_vxlan),
        }
    }

    fn tags(&mut self, tags: &[Vlan]) -> Vec<(u16, Rule, Rule)> {
        let tag = |(index, tag): (usize, &Vlan)| {
            let usual = if index.saturating_add(1) < tags.len() {
                TagType::Provider
            } else {
                TagType::Customer
            };
            let tpid = match tag.tag_type.unwrap_or(usual) {
                TagType::Customer => CUSTOMER_TAG,
                TagType::Provider => PROVIDER_TAG,
            };
            let id = self.rule(Some(&tag.id), 0);
            (tpid, id, self.rule(tag.priority.as_ref(), 0))
        };
        tags.iter().enumerate().map(tag).collect()
    }

    fn ip(&mut self, headers: &Headers, is_mirrored: bool) -> IpRules {
        if let Some(ip) = &headers.ipv6 {
            return IpRules::V6 {
                addresses: self.pair(
                    [ip.source.as_ref(), ip.destination.as_ref()],
                    [IPV6_A, IPV6_B],
                    is_mirrored,
                ),
                dscp: self.rule(ip.dscp.as_ref(), 0),
                ttl: self.rule(ip.ttl.as_ref(), TTL),
                label: self.rule(ip.label.as_ref(), 0),
            };
        }
        let ip = headers.ipv4.clone().unwrap_or_default();
        IpRules::V4 {
            addresses: self.pair(
                [ip.source.as_ref(), ip.destination.as_ref()],
                [IPV4_A, IPV4_B],
                is_mirrored,
            ),
            dscp: self.rule(ip.dscp.as_ref(), 0),
            ttl: self.rule(ip.ttl.as_ref(), TTL),
        }
    }

    fn transport(
        &mut self,
        headers: &Headers,
        is_mirrored: bool,
        carries_vxlan: bool,
    ) -> Transport {
        let defaults = [PORT_SOURCE, PORT_DESTINATION].map(u128::from);
        if let Some(tcp) = &headers.tcp {
            let is_reported = tcp.source.is_some() || tcp.destination.is_some();
            return Transport::Tcp {
                ports: self.pair(
                    [tcp.source.as_ref(), tcp.destination.as_ref()],
                    defaults,
                    is_mirrored && is_reported,
                ),
                flags: self.rule(tcp.flags.as_ref(), ACK),
                sequence: self.rule(tcp.sequence.as_ref(), 0),
            };
        }
        let udp = headers.udp.clone().unwrap_or_default();
        let is_reported = udp.source.is_some() || udp.destination.is_some();
        let defaults = if carries_vxlan {
            [u128::from(PORT_SOURCE), u128::from(VXLAN_PORT)]
        } else {
            defaults
        };
        Transport::Udp {
            // Both ends of a tunnel send to VXLAN's port, and default ports are the same in both directions.
            ports: self.pair(
                [udp.source.as_ref(), udp.destination.as_ref()],
                defaults,
                is_mirrored && is_reported && !carries_vxlan,
            ),
            checksum: udp
                .checksum
                .unwrap_or(!carries_vxlan || headers.ipv6.is_some()),
        }
    }
}

impl Layout {
    /// Creates the headers of a port's frames. Every second port sends the mirror image of the first port's headers.
    pub(crate) fn new(traffic: &Traffic, port: u8) -> Self {
        let is_mirrored = port % 2 == 1;
        let (outer, inner) = traffic.headers();
        let mut seeds = Seeds {
            seed: traffic.seed,
            place: 0,
        };
        let outer = seeds.frame(&outer, is_mirrored, inner.is_some());
        let tunnel = inner.map(|(vxlan, inner)| {
            let vni = seeds.rule(Some(&vxlan.vni), 0);
            (vni, seeds.frame(&inner, is_mirrored, false))
        });
        Self { outer, tunnel }
    }

    /// Returns the length of all headers, octets.
    pub(crate) fn length(&self) -> usize {
        let tunnel = self.tunnel.as_ref();
        let inner = tunnel.map_or(0, |(_, inner)| inner.length().saturating_add(VXLAN));
        self.outer.length().saturating_add(inner)
    }

    /// Writes the headers of a flow's frame of `frame.len()` octets. The checksums stay zero.
    pub(crate) fn write(&self, flow: u32, frame: &mut [u8]) {
        self.outer.write(flow, frame);
        let Some((vni, inner)) = &self.tunnel else {
            return;
        };
        let Some(rest) = frame.get_mut(self.outer.length()..) else {
            return;
        };
        let Some((vxlan, rest)) = rest.split_first_chunk_mut::<VXLAN>() else {
            return;
        };
        // RFC 7348, section 5: the flag I, and the VNI in the three octets before the last.
        let [_, a, b, c] = vni.double_word(flow).to_be_bytes();
        *vxlan = [0x08, 0, 0, 0, a, b, c, 0];
        inner.write(flow, rest);
    }

    /// Returns the checksums in the order of their computation.
    pub(crate) fn sums(&self) -> Vec<Sum> {
        let mut sums = Vec::new();
        if let Some((_, inner)) = &self.tunnel {
            inner.sums(self.outer.length().saturating_add(VXLAN), &mut sums);
        }
        self.outer.sums(0, &mut sums);
        sums
    }
}

impl Frame {
    fn ip_at(&self) -> usize {
        let tags = self.tags.len().saturating_mul(TAG);
        tags.saturating_add(ETHERNET)
    }

    fn transport_at(&self) -> usize {
        let ip = match self.ip {
            IpRules::V4 { .. } => IPV4,
            IpRules::V6 { .. } => IPV6,
        };
        self.ip_at().saturating_add(ip)
    }

    fn length(&self) -> usize {
        let transport = match self.transport {
            Transport::Udp { .. } => UDP,
            Transport::Tcp { .. } => TCP,
        };
        self.transport_at().saturating_add(transport)
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Udp { .. } => IpProtocol::UDP.0,
            Transport::Tcp { .. } => IpProtocol::TCP.0,
        }
    }

    fn sums(&self, start: usize, sums: &mut Vec<Sum>) {
        let ip = start.saturating_add(self.ip_at());
        let transport = start.saturating_add(self.transport_at());
        let of_ip = |from: usize, to: usize| ip.saturating_add(from)..ip.saturating_add(to);
        let offset = match self.transport {
            Transport::Udp {
                checksum: false, ..
            } => None,
            Transport::Udp { .. } => Some(6),
            Transport::Tcp { .. } => Some(16),
        };
        let addresses = match self.ip {
            IpRules::V4 { .. } => of_ip(12, IPV4),
            IpRules::V6 { .. } => of_ip(8, IPV6),
        };
        sums.extend(offset.map(|offset| Sum {
            at: transport.saturating_add(offset),
            covers: Cover::Rest {
                from: transport,
                addresses,
                protocol: self.protocol(),
            },
        }));
        if let IpRules::V4 { .. } = self.ip {
            sums.push(Sum {
                at: ip.saturating_add(10),
                covers: Cover::Header(of_ip(0, IPV4)),
            });
        }
    }

    /// Writes into a frame. The caller ensures that it is long enough.
    fn write(&self, flow: u32, frame: &mut [u8]) {
        let length = frame.len();
        let mut out = Writer { frame, at: 0 };
        let [source, destination] = &self.macs;
        out.put(&destination.mac(flow));
        out.put(&source.mac(flow));
        for (tpid, id, priority) in &self.tags {
            let tci = priority.word(flow) << 13 | id.word(flow);
            out.word(*tpid);
            out.word(tci);
        }
        let from = |offset: usize| length.saturating_sub(offset);
        self.write_ip(flow, from(self.ip_at()), &mut out);
        self.write_transport(flow, from(self.transport_at()), &mut out);
    }

    fn write_ip(&self, flow: u32, length: usize, out: &mut Writer<'_>) {
        match &self.ip {
            IpRules::V4 {
                addresses: [source, destination],
                dscp,
                ttl,
            } => {
                out.word(EtherType::IPV4.0);
                out.put(&[0x45, dscp.octet(flow) << 2]);
                out.word(length_of(length));
                // Identification 0 and not fragmented, so DF is set (RFC 6864, section 4.1).
                out.put(&[0, 0, 0x40, 0]);
                out.put(&[ttl.octet(flow), self.protocol(), 0, 0]);
                out.put(&source.double_word(flow).to_be_bytes());
                out.put(&destination.double_word(flow).to_be_bytes());
            }
            IpRules::V6 {
                addresses: [source, destination],
                dscp,
                ttl,
                label,
            } => {
                out.word(EtherType::IPV6.0);
                let first = 6u32 << 28 | dscp.double_word(flow) << 22 | label.double_word(flow);
                out.put(&first.to_be_bytes());
                out.word(length_of(length.saturating_sub(IPV6)));
                out.put(&[self.protocol(), ttl.octet(flow)]);
                out.put(&source.value(flow).to_be_bytes());
                out.put(&destination.value(flow).to_be_bytes());
            }
        }
    }

    fn write_transport(&self, flow: u32, length: usize, out: &mut Writer<'_>) {
        match &self.transport {
            Transport::Udp {
                ports: [source, destination],
                ..
            } => {
                out.word(source.word(flow));
                out.word(destination.word(flow));
                out.word(length_of(length));
                out.word(0);
            }
            Transport::Tcp {
                ports: [source, destination],
                flags,
                sequence,
            } => {
                out.word(source.word(flow));
                out.word(destination.word(flow));
                out.put(&sequence.double_word(flow).to_be_bytes());
                // Acknowledgment number 0, a header of five words, a window of 65535, no urgent data.
                out.put(&[0, 0, 0, 0, 0x50, flags.octet(flow), 0xff, 0xff, 0, 0, 0, 0]);
            }
        }
    }
}

/// Returns a length for a header: a frame has at most 9,000 octets.
fn length_of(octets: usize) -> u16 {
    u16::try_from(octets).unwrap_or(u16::MAX)
}

struct Writer<'a> {
    frame: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) {
        let end = self.at.saturating_add(octets.len());
        if let Some(place) = self.frame.get_mut(self.at..end) {
            place.copy_from_slice(octets);
        }
        self.at = end;
    }

    fn word(&mut self, word: u16) {
        self.put(&word.to_be_bytes());
    }
}
