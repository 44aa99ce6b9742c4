// SPDX-License-Identifier: Apache-2.0
//! Descriptions of packets, for the reference, and their octets, for the tracker.

use std::net::IpAddr;

use crate::connections::key::Endpoint;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Zone that it is received in.
    pub zone: u16,
    /// Source. The port of an echo is its identifier.
    pub source: Endpoint,
    /// Destination, of the same version of IP.
    pub destination: Endpoint,
    /// Payload.
    pub content: Content,
}

/// Payload of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Tcp(TcpSent),
    /// A UDP datagram with this number of octets of data.
    Udp(u16),
    /// An ICMP echo request. Both ports are the identifier.
    EchoRequest,
    /// An ICMP echo reply. Both ports are the identifier.
    EchoReply,
    /// An empty packet of an IP protocol without ports.
    Other(u8),
    /// An ICMP error about a packet.
    Error(Box<Sent>),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSent {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement.
    pub acknowledgement: u32,
    /// Control bits from CWR (0x80) to FIN (0x01).
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Shift of the window scale option.
    pub scale: Option<u8>,
    /// Octets of data.
    pub data: u16,
}

impl Sent {
    /// Returns the IP protocol.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        match self.content {
            Content::Tcp(_) => 6,
            Content::Udp(_) => 17,
            Content::Other(protocol) => protocol,
            Content::EchoRequest | Content::EchoReply | Content::Error(_) => {
                if self.source.address.is_ipv4() { 1 } else { 58 }
            }
        }
    }

    /// Returns the EtherType.
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        if self.source.address.is_ipv4() {
            0x0800
        } else {
            0x86dd
        }
    }

    /// Returns the packet from its IP header on. Checksums are 0.
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let payload = self.payload();
        let protocol = self.protocol();
        let mut packet = match (self.source.address, self.destination.address) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let [high, low] = (payload.len() as u16 + 20).to_be_bytes();
                let start = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0];
                [&start[..], &source.octets(), &destination.octets()].concat()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let [high, low] = (payload.len() as u16).to_be_bytes();
                let start = [0x60, 0, 0, 0, high, low, protocol, 64];
                [&start[..], &source.octets(), &destination.octets()].concat()
            }
            // Not a packet.
            _ => Vec::new(),
        };
        packet.extend(payload);
        packet
    }

    fn payload(&self) -> Vec<u8> {
        let (from, to) = (
            self.source.port.to_be_bytes(),
            self.destination.port.to_be_bytes(),
        );
        let is_v4 = self.source.address.is_ipv4();
        match &self.content {
            Content::Tcp(segment) => segment.octets(from, to),
            Content::Udp(data) => {
                let length = (data + 8).to_be_bytes();
                let mut octets = [&from[..], &to, &length, &[0, 0]].concat();
                octets.resize(8 + usize::from(*data), 0);
                octets
            }
            Content::EchoRequest | Content::EchoReply => {
                let kind = match (is_v4, &self.content) {
                    (true, Content::EchoRequest) => 8,
                    (true, _) => 0,
                    (false, Content::EchoRequest) => 128,
                    (false, _) => 129,
                };
                [&[kind, 0, 0, 0][..], &from, &[0, 1]].concat()
            }
            Content::Other(_) => Vec::new(),
            Content::Error(inner) => {
                // Time exceeded, with the header and eight octets of the packet.
                let start = [if is_v4 { 11 } else { 3 }, 0, 0, 0, 0, 0, 0, 0];
                let header = if is_v4 { 20 } else { 40 };
                let mut inner = inner.octets();
                inner.truncate(header + 8);
                [&start[..], &inner].concat()
            }
        }
    }
}

impl TcpSent {
    fn octets(&self, from: [u8; 2], to: [u8; 2]) -> Vec<u8> {
        let options: &[u8] = match self.scale {
            Some(shift) => &[1, 3, 3, shift],
            None => &[],
        };
        let header = 20 + options.len() as u8;
        let mut octets = [&from[..], &to].concat();
        octets.extend(self.sequence.to_be_bytes());
        octets.extend(self.acknowledgement.to_be_bytes());
        octets.extend([(header / 4) << 4, self.flags]);
        octets.extend(self.window.to_be_bytes());
        octets.extend([0; 4]);
        octets.extend(options);
        octets.resize(octets.len() + usize::from(self.data), 0);
        octets
    }
}
