// SPDX-License-Identifier: Apache-2.0

mod attacks;
mod fragments;
mod fuzz;
mod half_open;
mod helpers;
mod labels;
mod packets;
mod restore;
mod sequences;
mod sessions;
mod sources;
mod standby;
mod tcp;

use std::net::IpAddr;

use super::reference::{Content, Sent, TcpSent};
use super::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn end(address: &str, port: u16) -> Endpoint {
    let address: IpAddr = address.parse().unwrap();
    Endpoint { address, port }
}

fn read(sent: &Sent) -> Packet {
    let octets = sent.octets();
    Packet::read(sent.ethertype(), &octets, octets.len(), sent.zone)
}

/// Tracks one packet without creating its connection.
fn classify(tracker: &mut Tracker, sent: &Sent, now: Seconds) -> Tracked {
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[read(sent)], now, &mut tracked);
    tracked[0]
}

/// Tracks one packet, and accepts it.
fn pass(tracker: &mut Tracker, sent: &Sent, now: Seconds) -> Tracked {
    let tracked = classify(tracker, sent, now);
    if tracked.state == CtState::New && tracked.connection.is_none() {
        tracker.commit(&read(sent), now).unwrap();
    }
    tracked
}

/// Returns all connections, page by page.
fn all(tracker: &Tracker) -> Vec<ConnectionInfo> {
    let mut list = Vec::new();
    let mut from = Some(0);
    while let Some(start) = from {
        let page = tracker.list(&ConnectionFilter::default(), start, 2, 3);
        list.extend(page.connections);
        from = page.next;
    }
    list.sort_by_key(|one| (one.zone, one.protocol, one.source, one.destination));
    list
}

/// A TCP conversation between two hosts, whose sequence numbers it counts.
#[derive(Clone, Debug)]
struct Talk {
    zone: u16,
    ends: [Endpoint; 2],
    next: [u32; 2],
    window: u16,
}

impl Talk {
    fn new(client_port: u16) -> Self {
        Self {
            zone: 0,
            ends: [end("10.0.0.1", client_port), end("192.0.2.1", 80)],
            // One side's numbers wrap around soon.
            next: [0xffff_fff0, 1_000_000],
            window: 1000,
        }
    }

    /// Makes a segment of a side: 0 is the client.
    fn segment(&mut self, side: usize, flags: u8, data: u16) -> Sent {
        let sent = self.peek(side, flags, data);
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.next[side] = self.next[side].wrapping_add(u32::from(data) + controls);
        sent
    }

    /// Makes a segment that the conversation does not count.
    fn peek(&self, side: usize, flags: u8, data: u16) -> Sent {
        Sent {
            zone: self.zone,
            source: self.ends[side],
            destination: self.ends[1 - side],
            content: Content::Tcp(TcpSent {
                sequence: self.next[side],
                acknowledgement: self.next[1 - side],
                flags,
                window: self.window,
                scale: None,
                data,
            }),
        }
    }

    /// Makes a segment with other numbers.
    fn shifted(&self, side: usize, flags: u8, sequence: i32, acknowledgement: i32) -> Sent {
        let mut sent = self.peek(side, flags, 0);
        if let Content::Tcp(segment) = &mut sent.content {
            segment.sequence = segment.sequence.wrapping_add_signed(sequence);
            segment.acknowledgement = segment.acknowledgement.wrapping_add_signed(acknowledgement);
        }
        sent
    }

    /// Completes the handshake.
    fn open(&mut self, tracker: &mut Tracker, now: Seconds) {
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let segment = self.segment(side, flags, 0);
            let tracked = pass(tracker, &segment, now);
            assert_eq!(tracked.reason, None, "{segment:?}");
        }
    }
}

fn state(tracker: &Tracker) -> State {
    let list = all(tracker);
    assert_eq!(list.len(), 1);
    list[0].state
}

fn udp(source: Endpoint, destination: Endpoint) -> Sent {
    Sent {
        zone: 0,
        source,
        destination,
        content: Content::Udp(4),
    }
}
