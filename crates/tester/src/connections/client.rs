// SPDX-License-Identifier: Apache-2.0
//! The client's end: opens conversations, sends requests, and checks answers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::latency::Recorder;

use super::description::TransportProtocol;
use super::end::Shared;
use super::outcome::{ConversationEnd, FailureCause, Failures};
use super::pattern::Sender;
use super::plan::{Plan, Task};
use super::request::{Contents, Request};
use super::table::{Key, Protocol, Table};
use super::tcp::{Segment, Sink, State, Tcp};
use super::udp::{Step, Udp};
use super::wire::{Addresses, Arrived, Content, Packet, Payload, Transport};
use super::{add, count};

/// Endpoints that are tried for a new conversation.
const TRIES: u32 = 64;

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassCounts {
    pub(crate) opened: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) transactions: u64,
}

/// Counters and times of a client.
#[derive(Debug, Default)]
pub(crate) struct ClientRecord {
    /// Connections whose handshake was completed.
    pub(crate) established: u64,
    pub(crate) failures: Failures,
    /// Datagrams without an answer.
    pub(crate) lost_datagrams: u64,
    /// Octets of payload received and checked.
    pub(crate) received_octets: u64,
    /// Largest number of conversations that were open.
    pub(crate) open_largest: u64,
    /// From the SYN to its answer, nanoseconds.
    pub(crate) handshake: Recorder,
    /// From a request to the first octet of its answer, in TCP, nanoseconds.
    pub(crate) first_octet: Recorder,
    /// From a request to the whole answer, nanoseconds.
    pub(crate) transaction: Recorder,
    /// Answers that arrived after the next request was due.
    pub(crate) late_transactions: u64,
    /// Requests that the client itself sent more than half of their interval too late.
    pub(crate) delayed_requests: u64,
    /// By class.
    pub(crate) classes: Vec<ClassCounts>,
}

#[derive(Debug)]
enum End {
    Tcp(Tcp),
    Udp(Udp),
}

/// One conversation.
#[derive(Debug)]
struct Conversation {
    end: End,
    number: u64,
    /// When the SYN or the request was due, nanoseconds.
    began: u64,
    /// When the next request is due, nanoseconds; 0 if that follows from an answer, or if there is no further request.
    wake: u64,
    request: u32,
    answer: u32,
    /// Answers received.
    done: u32,
    class: u8,
    failure: Option<FailureCause>,
    is_established: bool,
    /// A request has no whole answer yet.
    is_asked: bool,
    /// It is counted as completed, and waits for the end of TIME-WAIT.
    is_completed: bool,
    /// It is in the queue of those that have more to send.
    is_waiting: bool,
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct Client {
    plan: Plan,
    shared: Shared,
    table: Table<Conversation>,
    /// Conversations that had more to send than there was space for.
    waiting: VecDeque<u32>,
    opened: u64,
    turn: u64,
    /// Completed conversations in TIME-WAIT.
    completed_open: u64,
    record: ClientRecord,
    /// Ends of connections, in order, as far as there is space; none unless they are logged.
    log: Vec<ConversationEnd>,
}

/// Check of the octets of a server.
struct Check {
    contents: Contents,
    /// Octets that the server may have sent so far.
    limit: u32,
    is_damaged: bool,
}

impl Sink for Check {
    fn accept(&mut self, offset: u32, octets: &[u8]) -> bool {
        let end = u32::try_from(octets.len()).map(|length| offset.saturating_add(length));
        self.is_damaged |=
            end.is_ok_and(|end| end > self.limit) || !self.contents.is(offset, octets);
        true
    }
}

impl Client {
    /// Creates the client of a plan.
    pub(crate) fn new(plan: Plan) -> Self {
        let record = ClientRecord {
            classes: vec![ClassCounts::default(); plan.class_count()],
            ..ClientRecord::default()
        };
        Self {
            shared: Shared::new(plan.settings, plan.open_max),
            table: Table::new(plan.open_max, plan.seed ^ 1),
            waiting: VecDeque::with_capacity(plan.open_max as usize),
            opened: 0,
            turn: 0,
            completed_open: 0,
            record,
            log: Vec::new(),
            plan,
        }
    }

    /// Returns the memory of a conversation, octets.
    #[cfg(test)]
    pub(crate) fn octets_per_conversation() -> usize {
        // The queue of those that have more to send is the last part.
        Table::<Conversation>::octets_per_entry() + size_of::<u32>()
    }

    /// Returns the parts that both kinds of ends have.
    pub(crate) fn shared(&mut self) -> &mut Shared {
        &mut self.shared
    }

    /// Returns the counters and times.
    pub(crate) fn record(&self) -> &ClientRecord {
        &self.record
    }

    /// Logs the ends of at most `most` connections.
    pub(crate) fn log_ends(&mut self, most: usize) {
        self.log = Vec::with_capacity(most);
    }

    /// Returns the logged ends.
    pub(crate) fn take_log(&mut self) -> Vec<ConversationEnd> {
        std::mem::take(&mut self.log)
    }

    /// Logs the end of a connection, if there is space.
    fn log_end(&mut self, key: &Key, failure: Option<FailureCause>) {
        if self.log.len() < self.log.capacity() {
            let address = self.plan.clients.address(key.local).to_canonical();
            self.log.push(ConversationEnd {
                source: SocketAddr::new(address, key.local_port),
                failure,
            });
        }
    }

    /// Returns the number of conversations opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns the number of conversations that are neither completed nor failed.
    pub(crate) fn open_count(&self) -> u64 {
        (self.table.len() as u64).saturating_sub(self.completed_open)
    }

    /// Returns the counts of completed conversations, of answers, and of octets received so far.
    pub(crate) fn mark(&self) -> [u64; 3] {
        let classes = self.record.classes.iter();
        let (mut completed, mut transactions) = (0, 0);
        for class in classes {
            add(&mut completed, class.completed);
            add(&mut transactions, class.transactions);
        }
        [completed, transactions, self.record.received_octets]
    }

    /// Opens the next conversation. Returns false if the table is full, or no endpoint is free.
    pub(crate) fn open(&mut self, now: u64) -> bool {
        let task = self.plan.task(self.opened);
        let Some(key) = self.free_key(&task) else {
            return false;
        };
        let end = match key.protocol {
            Protocol::Tcp => {
                let initial = self.plan.initial_sequence(self.opened, 0);
                End::Tcp(Tcp::connect(&self.plan.settings, initial, now))
            }
            Protocol::Udp => End::Udp(Udp::new(now)),
        };
        let conversation = Conversation {
            end,
            number: self.opened,
            began: now,
            wake: 0,
            request: task.request,
            answer: task.answer,
            done: 0,
            class: task.class,
            failure: None,
            is_established: false,
            is_asked: false,
            is_completed: false,
            is_waiting: false,
        };
        let Some(entry) = self.table.insert(key, conversation) else {
            return false;
        };
        count(&mut self.opened);
        self.count(task.class, |counts| count(&mut counts.opened));
        self.record.open_largest = self.record.open_largest.max(self.open_count());
        self.advance(entry, now);
        true
    }

    /// Returns the key of a new conversation with a free endpoint.
    fn free_key(&mut self, task: &Task) -> Option<Key> {
        let class = self.plan.class(task.class)?;
        for _ in 0..TRIES {
            let (local, local_port) = self.plan.client_endpoint(self.turn);
            self.turn = self.turn.wrapping_add(1);
            let key = Key {
                remote: task.server,
                remote_port: class.port,
                local_port,
                local,
                protocol: match class.protocol {
                    TransportProtocol::Tcp => Protocol::Tcp,
                    TransportProtocol::Udp => Protocol::Udp,
                },
            };
            if self.table.find(&key).is_none() {
                return Some(key);
            }
        }
        None
    }

    fn count(&mut self, class: u8, count: impl FnOnce(&mut ClassCounts)) {
        if let Some(counts) = self.record.classes.get_mut(usize::from(class)) {
            count(counts);
        }
    }

    /// Returns the addresses of the packets that a conversation sends.
    fn addresses(&self, key: &Key) -> Addresses {
        Addresses {
            source: self.plan.clients.address(key.local),
            destination: key.remote,
            source_port: key.local_port,
            destination_port: key.remote_port,
        }
    }

    /// Takes a frame that arrived.
    pub(crate) fn receive(&mut self, frame: &[u8], now: u64) {
        let Some(arrived) = self.shared.read(frame) else {
            return;
        };
        let Some(local) = self.plan.clients.number(arrived.addresses.destination) else {
            count(&mut self.shared.others.foreign);
            return;
        };
        let key = Key {
            remote: arrived.addresses.source,
            remote_port: arrived.addresses.source_port,
            local_port: arrived.addresses.destination_port,
            local,
            protocol: match arrived.content {
                Content::Tcp(..) => Protocol::Tcp,
                Content::Udp(_) => Protocol::Udp,
            },
        };
        match self.table.find(&key) {
            Some(entry) => self.receive_of(entry, &key, &arrived, now),
            None => {
                count(&mut self.shared.others.stray);
                if let Content::Tcp(segment, data) = arrived.content {
                    let length = u32::try_from(data.len()).unwrap_or(0);
                    let addresses = self.addresses(&key);
                    self.shared.push_reset(addresses, segment.reset(length));
                }
            }
        }
    }

    fn receive_of(&mut self, entry: u32, key: &Key, arrived: &Arrived<'_>, now: u64) {
        match arrived.content {
            Content::Tcp(segment, data) => self.receive_segment(entry, key, &segment, data, now),
            Content::Udp(data) => self.receive_answer(entry, data, now),
        }
        self.advance(entry, now);
    }

    fn receive_segment(&mut self, entry: u32, key: &Key, segment: &Segment, data: &[u8], now: u64) {
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        let End::Tcp(tcp) = &mut conversation.end else {
            return;
        };
        let asked = u32::from(conversation.is_asked);
        let answered = conversation.answer.saturating_mul(conversation.done);
        let mut check = Check {
            contents: Contents::of_server(self.plan.seed, conversation.number),
            limit: conversation
                .answer
                .saturating_mul(conversation.done.saturating_add(asked)),
            is_damaged: false,
        };
        let before = tcp.received();
        let mut environment = self.shared.environment();
        let reset = tcp.receive(&mut environment, segment, data, now, &mut check);
        let octets = tcp.received().saturating_sub(before);
        add(&mut self.record.received_octets, u64::from(octets));
        if conversation.is_asked && before <= answered && tcp.received() > answered {
            let taken_ns = now.saturating_sub(conversation.began);
            self.record.first_octet.record(taken_ns, 1);
        }
        if check.is_damaged {
            conversation.failure = Some(FailureCause::Damaged);
            tcp.abort(&mut environment);
        }
        let addresses = self.addresses(key);
        self.shared.push_reset(addresses, reset);
    }

    fn receive_answer(&mut self, entry: u32, data: &[u8], now: u64) {
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        let Some(class) = self.plan.class(conversation.class) else {
            return;
        };
        let End::Udp(udp) = &mut conversation.end else {
            return;
        };
        let Some(request) = Request::read(self.plan.seed, Sender::Server, data) else {
            conversation.failure = Some(FailureCause::Damaged);
            return;
        };
        if request.number != conversation.number {
            // A late answer to an earlier conversation with the same ports.
            count(&mut self.shared.others.stray);
            return;
        }
        let contents = Contents::of_datagram(self.plan.seed, &request, Sender::Server);
        if !u32::try_from(data.len()).is_ok_and(|length| length == conversation.answer)
            || !contents.is(0, data)
        {
            conversation.failure = Some(FailureCause::Damaged);
            return;
        }
        let Some(taken_ns) = udp.answer(&class.rhythm, request.index, now) else {
            count(&mut self.shared.others.stray);
            return;
        };
        let octets = u64::from(conversation.answer);
        add(&mut self.record.received_octets, octets);
        self.record.transaction.record(taken_ns, 1);
        let class = conversation.class;
        self.count(class, |counts| count(&mut counts.transactions));
    }

    /// Acts on the timers that have expired, of at most `most` conversations.
    pub(crate) fn expire(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            let Some(entry) = self.table.fire(now) else {
                return;
            };
            if let Some(conversation) = self.table.get_mut(entry)
                && let End::Tcp(tcp) = &mut conversation.end
            {
                tcp.expire(&mut self.shared.environment(), now);
            }
            self.advance(entry, now);
        }
    }

    /// Sends what conversations still have to send, as long as there is space for it.
    pub(crate) fn resume(&mut self, now: u64) {
        for _ in 0..self.waiting.len() {
            if self.shared.space() == 0 {
                return;
            }
            let Some(entry) = self.waiting.pop_front() else {
                return;
            };
            if let Some(conversation) = self.table.get_mut(entry) {
                conversation.is_waiting = false;
            }
            self.advance(entry, now);
        }
    }

    /// Advances a conversation: sends requests and packets, or ends it.
    fn advance(&mut self, entry: u32, now: u64) {
        let Some(key) = self.table.key(entry).copied() else {
            return;
        };
        let is_tcp = key.protocol == Protocol::Tcp;
        if is_tcp {
            self.converse(entry, now);
            self.transmit(entry, &key, now);
            self.end_connection(entry, &key);
        } else {
            self.send_datagrams(entry, &key, now);
        }
    }

    /// Counts what has happened on a connection, and provides the next request.
    fn converse(&mut self, entry: u32, now: u64) {
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        let End::Tcp(tcp) = &mut conversation.end else {
            return;
        };
        let Some(class) = self.plan.class(conversation.class) else {
            return;
        };
        let (settings, rhythm) = (&self.plan.settings, class.rhythm);
        if !tcp.is_established() {
            return;
        }
        if !conversation.is_established {
            conversation.is_established = true;
            count(&mut self.record.established);
            let taken_ns = now.saturating_sub(conversation.began);
            self.record.handshake.record(taken_ns, 1);
            conversation.began = now;
            conversation.is_asked = true;
            let interval_ns = rhythm.interval_ns;
            conversation.wake =
                interval_ns.map_or(0, |interval_ns| now.saturating_add(interval_ns));
            tcp.provide(settings, conversation.request, now);
        }
        let mut answered = 0;
        let answers = tcp.received().checked_div(conversation.answer.max(1));
        let has_answer = answers.is_some_and(|answers| answers > conversation.done);
        if conversation.is_asked && has_answer {
            conversation.is_asked = false;
            conversation.done = conversation.done.saturating_add(1);
            answered = 1;
            let is_late = rhythm.interval_ns.is_some() && now > conversation.wake;
            add(&mut self.record.late_transactions, u64::from(is_late));
            let taken_ns = now.saturating_sub(conversation.began);
            self.record.transaction.record(taken_ns, 1);
            if conversation.done == rhythm.count {
                conversation.wake = 0;
                tcp.finish();
            } else if rhythm.interval_ns.is_none() {
                conversation.wake = now.saturating_add(rhythm.think_ns).max(1);
            }
        }
        if !conversation.is_asked && conversation.wake != 0 && now >= conversation.wake {
            let due = conversation.wake;
            // A late tester makes no answer late.
            conversation.began = now;
            conversation.is_asked = true;
            conversation.wake = 0;
            if let Some(interval_ns) = rhythm.interval_ns {
                conversation.wake = due.saturating_add(interval_ns);
                // After a late answer, the device has delayed the request.
                let is_delayed = answered == 0 && now.saturating_sub(due) > interval_ns / 2;
                add(&mut self.record.delayed_requests, u64::from(is_delayed));
            }
            let requests = conversation.done.saturating_add(1);
            let octets = conversation.request.saturating_mul(requests);
            tcp.provide(settings, octets, now);
        }
        if tcp.is_finished_by_peer() && conversation.done < rhythm.count {
            conversation.failure = Some(FailureCause::ClosedEarly);
            tcp.abort(&mut self.shared.environment());
        }
        let class = conversation.class;
        self.count(class, |counts| add(&mut counts.transactions, answered));
    }

    /// Sends the segments that are due, as long as there is space.
    fn transmit(&mut self, entry: u32, key: &Key, now: u64) {
        let addresses = self.addresses(key);
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        let End::Tcp(tcp) = &mut conversation.end else {
            return;
        };
        let request = Request {
            number: conversation.number,
            request: conversation.request,
            answer: conversation.answer,
            count: self
                .plan
                .class(conversation.class)
                .map_or(1, |class| class.rhythm.count),
            index: 0,
            address: addresses.source,
            port: addresses.source_port,
        };
        let seed = self.plan.seed;
        while self.shared.space() > 0 {
            let Some(outgoing) = tcp.next(&mut self.shared.environment(), now) else {
                return;
            };
            let contents = || Contents::of_client(seed, &request);
            self.shared.push_segment(addresses, outgoing, contents);
        }
        if !std::mem::replace(&mut conversation.is_waiting, true) {
            self.waiting.push_back(entry);
        }
    }

    /// Counts and removes a connection that has ended, and sets the timer of others.
    fn end_connection(&mut self, entry: u32, key: &Key) {
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        let End::Tcp(tcp) = &mut conversation.end else {
            return;
        };
        let state = tcp.state();
        let has_all = self
            .plan
            .class(conversation.class)
            .is_some_and(|class| conversation.done == class.rhythm.count);
        let State::Closed(ending) = state else {
            let mut deadline = tcp.deadline();
            if conversation.wake != 0 && !conversation.is_asked {
                deadline = deadline.min(conversation.wake);
            }
            let is_over = state == State::TimeWait && has_all;
            if is_over && !std::mem::replace(&mut conversation.is_completed, true) {
                let class = conversation.class;
                count(&mut self.completed_open);
                self.count(class, |counts| count(&mut counts.completed));
                self.log_end(key, None);
            }
            self.table.set_timer(entry, deadline);
            return;
        };
        let (class, was_completed) = (conversation.class, conversation.is_completed);
        let failure = conversation
            .failure
            .or(FailureCause::of_ending(ending))
            .or((!has_all).then_some(FailureCause::ClosedEarly));
        // A reset that is still due waits for space.
        if conversation.is_waiting {
            return;
        }
        self.table.remove(entry);
        if !was_completed {
            self.log_end(key, failure);
        }
        match failure {
            _ if was_completed => self.completed_open = self.completed_open.saturating_sub(1),
            None => self.count(class, |counts| count(&mut counts.completed)),
            Some(cause) => self.fail(class, cause),
        }
    }

    fn fail(&mut self, class: u8, cause: FailureCause) {
        self.record.failures.add(cause);
        self.count(class, |counts| count(&mut counts.failed));
    }

    /// Sends the datagrams that are due. Counts and removes the conversation if it is over.
    fn send_datagrams(&mut self, entry: u32, key: &Key, now: u64) {
        let addresses = self.addresses(key);
        while self.shared.space() > 0 {
            let Some(conversation) = self.table.get_mut(entry) else {
                return;
            };
            let Some(class) = self.plan.class(conversation.class) else {
                return;
            };
            let End::Udp(udp) = &mut conversation.end else {
                return;
            };
            match udp.step(&class.rhythm, now) {
                Step::Send(index) => {
                    let request = Request {
                        number: conversation.number,
                        request: conversation.request,
                        answer: conversation.answer,
                        count: class.rhythm.count,
                        index,
                        address: addresses.source,
                        port: addresses.source_port,
                    };
                    let length = u16::try_from(conversation.request).unwrap_or(u16::MAX);
                    self.shared.push(Packet {
                        addresses,
                        transport: Transport::Udp,
                        payload: Some(Payload {
                            contents: Contents::of_datagram(
                                self.plan.seed,
                                &request,
                                Sender::Client,
                            ),
                            offset: 0,
                            length,
                        }),
                    });
                }
                Step::Wait(until) => {
                    self.table.set_timer(entry, until);
                    return;
                }
                Step::Over(lost) => {
                    if conversation.is_waiting {
                        return;
                    }
                    let class = conversation.class;
                    let no_answer = (lost > 0).then_some(FailureCause::NoAnswer);
                    let failure = conversation.failure.or(no_answer);
                    add(&mut self.record.lost_datagrams, u64::from(lost));
                    self.table.remove(entry);
                    match failure {
                        None => self.count(class, |counts| count(&mut counts.completed)),
                        Some(cause) => self.fail(class, cause),
                    }
                    return;
                }
            }
        }
        let Some(conversation) = self.table.get_mut(entry) else {
            return;
        };
        if !std::mem::replace(&mut conversation.is_waiting, true) {
            self.waiting.push_back(entry);
        }
    }
}
