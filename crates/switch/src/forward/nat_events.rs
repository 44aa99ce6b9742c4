// SPDX-License-Identifier: Apache-2.0
//! Events of NAT on their way from a forwarding thread to the log.

use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_tables::connections::SessionEvent;
use quietwire_tables::nat::{BlockEvent, NatEvent};
use quietwire_tables::nat64::Nat64;
use quietwire_tables::nat66::Nat66;
use rtrb::Producer;

/// An event with its time, in ticks of the time stamp counter.
pub(crate) type StampedEvent = (u64, LogEvent);

/// An event for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEvent {
    /// Of NAT, and the IPv6 addresses in it.
    Nat(NatEvent, Ipv6Ends),
    /// A host has got its first block, or returned its last one, and the IPv6 addresses in it.
    Binding(BlockEvent, Ipv6Ends),
    /// A connection with its external endpoints.
    Session(SessionEvent),
    /// This number of events did not reach the log.
    Lost(u64),
}

/// IPv6 addresses that addresses of NAT stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ipv6Ends {
    /// The inside host, of NAT64 and NAT66.
    pub(crate) host: Option<Ipv6Addr>,
    /// The external address, of NAT66.
    pub(crate) external: Option<Ipv6Addr>,
}

/// Returns the IPv6 addresses that the addresses of a mapping stand for.
pub(super) fn ipv6_ends(
    nat64: Option<&Nat64>,
    nat66: Option<&Nat66>,
    internal: Ipv4Addr,
    external: Ipv4Addr,
) -> Ipv6Ends {
    if let Some(nat66) = nat66 {
        return Ipv6Ends {
            host: nat66.host(internal),
            external: nat66.external(external),
        };
    }
    Ipv6Ends {
        host: nat64.and_then(|nat64| nat64.client(internal)),
        external: None,
    }
}

/// The ring from an instance to the log, and the events that it lost.
#[derive(Debug)]
pub(crate) struct EventSink {
    ring: Producer<StampedEvent>,
    /// Whether the log has events of port blocks.
    has_blocks: bool,
    /// Whether the log has events of the external addresses of hosts.
    has_bindings: bool,
    /// Events that did not fit into the ring.
    lost: u64,
    /// Lost events, with those of the tables, that the log knows.
    reported: u64,
}

impl EventSink {
    /// Creates the way to the log. `has_blocks` and `has_bindings` select events of port blocks and of external addresses.
    pub(crate) const fn new(
        ring: Producer<StampedEvent>,
        (has_blocks, has_bindings): (bool, bool),
    ) -> Self {
        Self {
            ring,
            has_blocks,
            has_bindings,
            lost: 0,
            reported: 0,
        }
    }

    /// Passes an event on. Without space, it is counted as lost.
    pub(super) fn push(&mut self, now: u64, event: NatEvent, ends: Ipv6Ends) {
        let NatEvent::Block(block) = event else {
            return self.push_event(now, LogEvent::Nat(event, ends));
        };
        let has_binding = self.has_bindings && block.is_first_or_last;
        // A host has its external address before its blocks, and until it has none.
        if has_binding && block.is_assigned {
            self.push_event(now, LogEvent::Binding(block, ends));
        }
        if self.has_blocks {
            self.push_event(now, LogEvent::Nat(event, ends));
        }
        if has_binding && !block.is_assigned {
            self.push_event(now, LogEvent::Binding(block, ends));
        }
    }

    /// Passes a session on. Without space, it is counted as lost.
    pub(super) fn push_session(&mut self, now: u64, event: SessionEvent) {
        self.push_event(now, LogEvent::Session(event));
    }

    fn push_event(&mut self, now: u64, event: LogEvent) {
        if self.ring.push((now, event)).is_err() {
            self.add_loss(1);
        }
    }

    /// Counts events as lost.
    pub(super) const fn add_loss(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Passes the number of lost events on, if it has grown and the ring has space. `of_tables` is the number of those that the tables lost.
    pub(super) fn report_loss(&mut self, now: u64, of_tables: u64) {
        let lost = self.lost.saturating_add(of_tables);
        let added = lost.saturating_sub(self.reported);
        if added > 0 && self.ring.push((now, LogEvent::Lost(added))).is_ok() {
            self.reported = lost;
        }
    }

    /// Returns the number of events that did not fit into the ring.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use quietwire_tables::nat::{MappingEvent, NatProtocol};
    use rtrb::RingBuffer;

    use super::*;

    #[test]
    fn a_full_ring_loses_events_and_says_so_before_the_next_one() {
        let (ring, mut log) = RingBuffer::new(4);
        let mut sink = EventSink::new(ring, (true, false));
        let event = NatEvent::Mapping(MappingEvent {
            is_created: true,
            protocol: NatProtocol::Udp,
            internal: "10.0.0.5:4000".parse().unwrap(),
            external: "198.51.100.1:1024".parse().unwrap(),
        });
        let ends = Ipv6Ends::default();
        for now in 0..7 {
            sink.report_loss(now, 0);
            sink.push(now, event, ends);
        }
        assert_eq!(sink.lost(), 3);
        // Further events that the tables lost.
        sink.report_loss(7, 2);
        for now in 0..4 {
            assert_eq!(log.pop(), Ok((now, LogEvent::Nat(event, ends))));
        }
        sink.report_loss(8, 2);
        sink.push(8, event, ends);
        sink.report_loss(9, 2);
        assert_eq!(log.pop(), Ok((8, LogEvent::Lost(5))));
        assert_eq!(log.pop(), Ok((8, LogEvent::Nat(event, ends))));
        assert!(log.pop().is_err());
    }

    #[test]
    fn the_first_and_the_last_block_of_a_host_change_its_external_address() {
        let block = |is_assigned, is_first_or_last| BlockEvent {
            is_assigned,
            is_first_or_last,
            host: [10, 0, 0, 5].into(),
            external: [198, 51, 100, 1].into(),
            first_port: 1024,
            last_port: 1535,
        };
        let all = [
            block(true, true),
            block(true, false),
            block(false, false),
            block(false, true),
        ];
        let ends = Ipv6Ends::default();
        let of_block = |one| LogEvent::Nat(NatEvent::Block(one), ends);
        let of_binding = |one| LogEvent::Binding(one, ends);
        let [first, second, third, last] = all;
        let (first_binding, last_binding) = (of_binding(first), of_binding(last));
        for (kinds, expected) in [
            ((false, false), Vec::new()),
            ((true, false), all.map(of_block).to_vec()),
            ((false, true), vec![first_binding, last_binding]),
            (
                (true, true),
                vec![
                    first_binding,
                    of_block(first),
                    of_block(second),
                    of_block(third),
                    of_block(last),
                    last_binding,
                ],
            ),
        ] {
            let (ring, mut log) = RingBuffer::new(8);
            let mut sink = EventSink::new(ring, kinds);
            for event in all {
                sink.push(7, NatEvent::Block(event), ends);
            }
            let mut events = Vec::new();
            while let Ok((time, event)) = log.pop() {
                assert_eq!(time, 7);
                events.push(event);
            }
            assert_eq!(events, expected, "{kinds:?}");
        }
    }
}
