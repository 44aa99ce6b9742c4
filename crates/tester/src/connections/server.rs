// SPDX-License-Identifier: Apache-2.0
//! The server's end: accepts connections, checks requests, and answers them. It learns from the head of each conversation what the client
//! expects, and what a NAT has changed.

use std::collections::VecDeque;

use super::description::TransportProtocol;
use super::end::Shared;
use super::expected_nat::Endpoint;
use super::fragments::ArrivedFragments;
use super::nat::Translations;
use super::outcome::{FailureCause, Failures};
use super::pattern::{Pattern, Sender};
use super::piece_count::PieceCount;
use super::plan::Plan;
use super::request::{Contents, HEAD, Request};
use super::table::{Key, Protocol, Table};
use super::tcp::{ACK, RST, STREAM_MAX, SYN, Segment, Sink, State, Tcp};
use super::wire::{Addresses, Content, Packet, Payload, Transport};
use super::{add, count};

/// Counters of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerRecord {
    /// Connections whose SYN was accepted.
    pub(crate) accepted: u64,
    /// Connections that ended after all answers.
    pub(crate) completed: u64,
    pub(crate) failures: Failures,
    /// SYNs without space in the table.
    pub(crate) refused: u64,
    /// Datagrams that were answered.
    pub(crate) datagrams: u64,
    /// SYNs of the flood, which have no answer.
    pub(crate) flooded: u64,
    /// Illegal SYNs, which have no answer.
    pub(crate) illegal: u64,
    /// Octets of payload received and checked.
    pub(crate) received_octets: u64,
}

/// Contents of the head of a connection.
#[derive(Clone, Copy, Debug)]
struct Order {
    number: u64,
    request: u32,
    answer: u32,
    count: u32,
}

impl Order {
    /// Returns the order of a head; `None` if its streams are empty or too long.
    fn of(request: &Request) -> Option<Self> {
        let fits = |octets: u32| {
            let all = u64::from(octets).saturating_mul(u64::from(request.count));
            octets > 0 && all <= u64::from(STREAM_MAX)
        };
        let is_valid = request.count > 0
            && request.request >= HEAD
            && fits(request.request)
            && fits(request.answer);
        is_valid.then_some(Self {
            number: request.number,
            request: request.request,
            answer: request.answer,
            count: request.count,
        })
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    tcp: Tcp,
    order: Option<Order>,
    failure: Option<FailureCause>,
    is_waiting: bool,
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Server {
    plan: Plan,
    shared: Shared,
    table: Table<Connection>,
    waiting: VecDeque<u32>,
    translations: Translations,
    /// Account of fragmented datagrams, if the client sends some.
    pieces: Option<PieceCount>,
    record: ServerRecord,
}

/// Check of the octets of a client.
struct Check {
    seed: u64,
    order: Option<Order>,
    /// Source that the client names, if the head has just arrived.
    named: Option<Endpoint>,
    is_damaged: bool,
}

impl Sink for Check {
    fn accept(&mut self, offset: u32, octets: &[u8]) -> bool {
        let Some(order) = &self.order else {
            return self.accept_head(offset, octets);
        };
        let end = u32::try_from(octets.len()).map(|length| offset.saturating_add(length));
        let pattern = Pattern::new(self.seed, order.number, Sender::Client);
        let all = order.request.saturating_mul(order.count);
        let is_beyond = end.is_ok_and(|end| end > all);
        self.is_damaged |= is_beyond || !pattern.is(offset, octets);
        true
    }
}

impl Check {
    /// Accepts the first octets of a stream. The head must be in one segment.
    fn accept_head(&mut self, offset: u32, octets: &[u8]) -> bool {
        if offset != 0 || octets.len() < HEAD as usize {
            return false;
        }
        let request = Request::read(self.seed, Sender::Client, octets);
        let order = request.as_ref().and_then(Order::of);
        let (Some(request), Some(order)) = (request, order) else {
            self.is_damaged = true;
            return true;
        };
        self.named = Some((request.address, request.port));
        self.order = Some(order);
        let rest = octets.get(HEAD as usize..).unwrap_or_default();
        rest.is_empty() || self.accept(HEAD, rest)
    }
}

/// Returns true for a segment that asks for a connection.
fn is_first(segment: &Segment) -> bool {
    segment.has(SYN) && !segment.has(ACK) && !segment.has(RST)
}

impl Server {
    /// Creates the server of a plan.
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            shared: Shared::new(plan.settings, plan.open_max),
            table: Table::new(plan.open_max, plan.seed ^ 2),
            waiting: VecDeque::with_capacity(plan.open_max as usize),
            translations: Translations::new(plan.expected_nat.as_ref()),
            pieces: plan
                .fragments
                .map(|fragments| PieceCount::new(fragments.shape, fragments.sources)),
            record: ServerRecord::default(),
            plan,
        }
    }

    /// Returns the parts that both kinds of ends have.
    pub(crate) fn shared(&mut self) -> &mut Shared {
        &mut self.shared
    }

    /// Returns the counters.
    pub(crate) fn record(&self) -> &ServerRecord {
        &self.record
    }

    /// Returns the translations observed so far.
    pub(crate) fn translations(&self) -> &Translations {
        &self.translations
    }

    /// Returns the fragmented datagrams that arrived; `None` if the client sends none.
    pub(crate) fn arrived_fragments(&self) -> Option<ArrivedFragments> {
        self.pieces.as_ref().map(PieceCount::counts)
    }

    /// Takes a frame that arrived.
    pub(crate) fn receive(&mut self, frame: &[u8], now: u64) {
        if let Some(pieces) = &mut self.pieces
            && pieces.receive(frame)
        {
            return;
        }
        let Some(arrived) = self.shared.read(frame) else {
            return;
        };
        let Some(local) = self.plan.servers.number(arrived.addresses.destination) else {
            count(&mut self.shared.others.foreign);
            return;
        };
        match arrived.content {
            Content::Udp(data) => match &mut self.pieces {
                Some(pieces) if pieces.is_source(arrived.addresses.source) => {
                    pieces.receive_whole(data);
                }
                _ => self.receive_datagram(&arrived.addresses, data),
            },
            Content::Tcp(segment, _) if self.plan.is_of_illegal(arrived.addresses.source) => {
                add(&mut self.record.illegal, u64::from(is_first(&segment)));
            }
            Content::Tcp(segment, _) if self.plan.is_of_flood(arrived.addresses.source) => {
                // A device may also reset the connections that no client completes.
                add(&mut self.record.flooded, u64::from(is_first(&segment)));
            }
            Content::Tcp(segment, data) => {
                let key = Key {
                    remote: arrived.addresses.source,
                    remote_port: arrived.addresses.source_port,
                    local_port: arrived.addresses.destination_port,
                    local,
                    protocol: Protocol::Tcp,
                };
                match self.table.find(&key) {
                    Some(entry) => self.receive_segment(entry, &key, &segment, data, now),
                    None => self.accept(&key, &segment, data, now),
                }
            }
        }
    }

    /// Accepts a connection. Resets segments that do not ask for one that can be accepted.
    fn accept(&mut self, key: &Key, segment: &Segment, data: &[u8], now: u64) {
        if !is_first(segment) || !self.plan.serves(TransportProtocol::Tcp, key.local_port) {
            count(&mut self.shared.others.stray);
            self.reset(key, segment, data);
            return;
        }
        let initial = self.plan.initial_sequence(self.record.accepted, 1);
        let connection = Connection {
            tcp: Tcp::accept(&self.plan.settings, segment, initial, now),
            order: None,
            failure: None,
            is_waiting: false,
        };
        let Some(entry) = self.table.insert(*key, connection) else {
            count(&mut self.record.refused);
            self.reset(key, segment, data);
            return;
        };
        count(&mut self.record.accepted);
        self.advance(entry, now);
    }

    fn reset(&mut self, key: &Key, segment: &Segment, data: &[u8]) {
        let length = u32::try_from(data.len()).unwrap_or(0);
        let addresses = self.addresses(key);
        self.shared.push_reset(addresses, segment.reset(length));
    }

    /// Returns the addresses of the packets that a connection sends.
    fn addresses(&self, key: &Key) -> Addresses {
        Addresses {
            source: self.plan.servers.address(key.local),
            destination: key.remote,
            source_port: key.local_port,
            destination_port: key.remote_port,
        }
    }

    fn receive_segment(&mut self, entry: u32, key: &Key, segment: &Segment, data: &[u8], now: u64) {
        let Some(connection) = self.table.get_mut(entry) else {
            return;
        };
        let mut check = Check {
            seed: self.plan.seed,
            order: connection.order,
            named: None,
            is_damaged: false,
        };
        let tcp = &mut connection.tcp;
        let before = tcp.received();
        let mut environment = self.shared.environment();
        let reset = tcp.receive(&mut environment, segment, data, now, &mut check);
        let octets = tcp.received().saturating_sub(before);
        add(&mut self.record.received_octets, u64::from(octets));
        connection.order = check.order;
        if check.is_damaged {
            connection.failure = Some(FailureCause::Damaged);
            tcp.abort(&mut environment);
        }
        if let Some(named) = check.named {
            self.translations.note(named, (key.remote, key.remote_port));
        }
        let addresses = self.addresses(key);
        self.shared.push_reset(addresses, reset);
        self.advance(entry, now);
    }

    /// Answers a datagram. Each is answered by itself, without a memory.
    fn receive_datagram(&mut self, addresses: &Addresses, data: &[u8]) {
        let is_served = self
            .plan
            .serves(TransportProtocol::Udp, addresses.destination_port);
        if !is_served {
            count(&mut self.shared.others.stray);
            return;
        }
        let seed = self.plan.seed;
        let request = Request::read(seed, Sender::Client, data).filter(|request| {
            let is_whole = u32::try_from(data.len()).is_ok_and(|it| it == request.request);
            let fits = request.answer <= u32::from(self.plan.settings.segment_max);
            let contents = Contents::of_datagram(seed, request, Sender::Client);
            is_whole && fits && request.answer >= HEAD && contents.is(0, data)
        });
        let Some(request) = request else {
            self.record.failures.add(FailureCause::Damaged);
            return;
        };
        count(&mut self.record.datagrams);
        let octets = u64::from(request.request);
        add(&mut self.record.received_octets, octets);
        if request.index == 0 {
            let arrived = (addresses.source, addresses.source_port);
            self.translations
                .note((request.address, request.port), arrived);
        }
        let length = u16::try_from(request.answer).unwrap_or(u16::MAX);
        self.shared.push(Packet {
            addresses: Addresses {
                source: addresses.destination,
                destination: addresses.source,
                source_port: addresses.destination_port,
                destination_port: addresses.source_port,
            },
            transport: Transport::Udp,
            payload: Some(Payload {
                contents: Contents::of_datagram(seed, &request, Sender::Server),
                offset: 0,
                length,
            }),
        });
    }

    /// Acts on the timers that have expired, of at most `most` connections.
    pub(crate) fn expire(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            let Some(entry) = self.table.fire(now) else {
                return;
            };
            if let Some(connection) = self.table.get_mut(entry) {
                connection.tcp.expire(&mut self.shared.environment(), now);
            }
            self.advance(entry, now);
        }
    }

    /// Sends what connections still have to send, as long as there is space for it.
    pub(crate) fn resume(&mut self, now: u64) {
        for _ in 0..self.waiting.len() {
            if self.shared.space() == 0 {
                return;
            }
            let Some(entry) = self.waiting.pop_front() else {
                return;
            };
            if let Some(connection) = self.table.get_mut(entry) {
                connection.is_waiting = false;
            }
            self.advance(entry, now);
        }
    }

    /// Advances a connection: sends answers and segments, or ends it.
    fn advance(&mut self, entry: u32, now: u64) {
        let Some(key) = self.table.key(entry).copied() else {
            return;
        };
        self.answer(entry, now);
        self.transmit(entry, &key, now);
        self.end_connection(entry);
    }

    /// Provides the answers to the requests received, and closes after the client.
    fn answer(&mut self, entry: u32, now: u64) {
        let Some(connection) = self.table.get_mut(entry) else {
            return;
        };
        let tcp = &mut connection.tcp;
        if !tcp.is_established() {
            return;
        }
        let requests = connection.order.map_or(0, |order| {
            let requests = tcp.received().checked_div(order.request).unwrap_or(0);
            let answers = requests.saturating_mul(order.answer);
            tcp.provide(&self.plan.settings, answers, now);
            requests
        });
        if tcp.is_finished_by_peer() {
            let is_early = connection.order.is_none_or(|order| requests < order.count);
            if is_early {
                connection.failure = Some(FailureCause::ClosedEarly);
            }
            tcp.finish();
        }
    }

    /// Sends the segments that are due, as long as there is space.
    fn transmit(&mut self, entry: u32, key: &Key, now: u64) {
        let addresses = self.addresses(key);
        let Some(connection) = self.table.get_mut(entry) else {
            return;
        };
        let seed = self.plan.seed;
        let number = connection.order.map_or(0, |order| order.number);
        while self.shared.space() > 0 {
            let next = connection.tcp.next(&mut self.shared.environment(), now);
            let Some(outgoing) = next else {
                return;
            };
            let contents = || Contents::of_server(seed, number);
            self.shared.push_segment(addresses, outgoing, contents);
        }
        if !std::mem::replace(&mut connection.is_waiting, true) {
            self.waiting.push_back(entry);
        }
    }

    /// Counts and removes a connection that has ended, and sets the timer of others.
    fn end_connection(&mut self, entry: u32) {
        let Some(connection) = self.table.get_mut(entry) else {
            return;
        };
        let State::Closed(ending) = connection.tcp.state() else {
            let deadline = connection.tcp.deadline();
            self.table.set_timer(entry, deadline);
            return;
        };
        // A reset that is still due waits for space.
        if connection.is_waiting {
            return;
        }
        let failure = connection.failure.or(FailureCause::of_ending(ending));
        self.table.remove(entry);
        match failure {
            None => count(&mut self.record.completed),
            Some(cause) => self.record.failures.add(cause),
        }
    }
}
