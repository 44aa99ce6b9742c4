// SPDX-License-Identifier: Apache-2.0
//! An end that receives any octets as segments.

use quietwire_packet::TcpHeader;

use super::*;

const SETTINGS: Settings = Settings {
    segment_max: 1460,
    window: 100_000,
    timeout_ns: (200_000_000, 60_000_000_000),
    syn_retries: 3,
    retries: 6,
    idle_ns: 1_000_000_000,
    time_wait_ns: 1_000_000_000,
};

/// Accepts all octets but those at one offset.
struct Picky;

impl Sink for Picky {
    fn accept(&mut self, offset: u32, _octets: &[u8]) -> bool {
        offset != 77
    }
}

/// Feeds segments to an end that connects from sequence number 1000. Each has its length, header and data, in front of it. Returns the
/// segments that could be read.
pub(crate) fn feed(mut octets: &[u8]) -> Vec<Segment> {
    let (mut gaps, mut counters) = (GapPool::new(1), Counters::default());
    let mut environment = Environment {
        settings: &SETTINGS,
        gaps: &mut gaps,
        counters: &mut counters,
    };
    let mut tcp = Tcp::connect(&SETTINGS, 1000, 0);
    let mut read = Vec::new();
    for now in 0.. {
        drain(&mut tcp, &mut environment, now);
        let Some((length, rest)) = octets.split_first() else {
            break;
        };
        let Some((segment, rest)) = rest.split_at_checked(usize::from(*length)) else {
            break;
        };
        octets = rest;
        let Ok((header, data)) = TcpHeader::split(segment) else {
            continue;
        };
        let Some(segment) = Segment::read(&header) else {
            continue;
        };
        read.push(segment);
        tcp.receive(&mut environment, &segment, data, now, &mut Picky);
        tcp.provide(&SETTINGS, 100 * u32::try_from(read.len()).unwrap(), now);
        if read.len() % 5 == 4 {
            let deadline = tcp.deadline();
            tcp.expire(&mut environment, deadline);
        }
        if read.len() == 10 {
            tcp.finish();
        }
    }
    read
}

fn drain(tcp: &mut Tcp, environment: &mut Environment<'_>, now: u64) {
    let mut sent = 0;
    while tcp.next(environment, now).is_some() {
        sent += 1;
        assert!(sent < 10_000, "{tcp:?}");
    }
    assert!(
        tcp.una <= tcp.nxt && tcp.nxt <= tcp.max && tcp.max <= tcp.fin() + 1,
        "{tcp:?}"
    );
}
