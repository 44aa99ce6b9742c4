// SPDX-License-Identifier: Apache-2.0
//! Frames between switch and inspector. Numbers are big-endian.
//!
//! | offset | octets | field |
//! |---|---|---|
//! | 0 | 12 | MAC addresses |
//! | 12 | 2 | EtherType [`INSPECT_ETHERTYPE`] |
//! | 14 | 1 | version: 1 |
//! | 15 | 1 | kind: 0 query; answers: 1 continue, 2 accept, 3 drop |
//! | 16 | 2 | forwarding thread |
//! | 18 | 2 | place of the flow |
//! | 20 | 4 | number of the flow at this place |
//! | 24 | 1 | number of the packet in the flow, from 1 |
//! | 25 | 1 | packets of the flow that the inspector gets |
//! | 26 | 2 | number of the port that received the packet |
//! | 28 | 4 | length of the packet's frame |
//! | 32 | | the frame, as it was received |
//!
//! An answer has the header of the query with another kind. The switch does not read what follows the header.

/// EtherType of queries and answers: the first one for local experiments (IEEE 802, section 9.2.4).
pub const INSPECT_ETHERTYPE: u16 = 0x88b5;
/// Octets in front of the inspected frame.
pub const INSPECT_HEADER: usize = 32;
const VERSION: u8 = 1;
const QUERY: u8 = 0;
/// To all stations, from a locally administered address.
const ADDRESSES: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0];

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Place of the flow in the table of its thread.
    pub place: u16,
    /// Number of the flow at this place.
    pub nonce: u32,
    /// Number of the packet in the flow, from 1. 0 for a packet that waits without a query, behind others of its flow.
    pub packet: u8,
}

/// Query of the switch: the packet and its circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Number of the forwarding thread.
    pub thread: u16,
    /// The packet.
    pub ticket: Ticket,
    /// Packets of the flow that the inspector gets.
    pub packets: u8,
    /// Number of the port that received the packet.
    pub port: u16,
    /// Octets of the frame.
    pub length: u32,
}

impl Query {
    /// Writes the header.
    pub const fn write(&self, header: &mut [u8; INSPECT_HEADER]) {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = ADDRESSES;
        let [m, n] = INSPECT_ETHERTYPE.to_be_bytes();
        let [thread_high, thread_low] = self.thread.to_be_bytes();
        let [place_high, place_low] = self.ticket.place.to_be_bytes();
        let [n0, n1, n2, n3] = self.ticket.nonce.to_be_bytes();
        let [port_high, port_low] = self.port.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let packet = self.ticket.packet;
        *header = [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
            l,
            m,
            n,
            VERSION,
            QUERY,
            thread_high,
            thread_low,
            place_high,
            place_low,
            n0,
            n1,
            n2,
            n3,
            packet,
            self.packets,
            port_high,
            port_low,
            l0,
            l1,
            l2,
            l3,
        ];
    }
}

/// Decision of an inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// This packet and the ones before it pass, and the flow is not decided yet.
    Continue,
    /// All packets of the flow pass.
    Accept,
    /// All packets of the flow are dropped.
    Drop,
}

/// Answer of an inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the forwarding thread.
    pub thread: u16,
    /// The packet.
    pub ticket: Ticket,
    /// The decision.
    pub judgement: Judgement,
}

impl Answer {
    /// Reads a received frame. `None` if it is not an answer.
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let header = frame.first_chunk::<INSPECT_HEADER>()?;
        let [
            ..,
            a,
            b,
            version,
            kind,
            thread_high,
            thread_low,
            place_high,
            place_low,
            n0,
            n1,
            n2,
            n3,
            packet,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
        ] = *header;
        if u16::from_be_bytes([a, b]) != INSPECT_ETHERTYPE || version != VERSION {
            return None;
        }
        let judgement = match kind {
            1 => Judgement::Continue,
            2 => Judgement::Accept,
            3 => Judgement::Drop,
            _ => return None,
        };
        Some(Self {
            thread: u16::from_be_bytes([thread_high, thread_low]),
            ticket: Ticket {
                place: u16::from_be_bytes([place_high, place_low]),
                nonce: u32::from_be_bytes([n0, n1, n2, n3]),
                packet,
            },
            judgement,
        })
    }
}
