// SPDX-License-Identifier: Apache-2.0
//! Inspection of flows by a program behind a port: packets that wait for verdicts, queries, and answers.
//!
//! A packet waits as a copy in the pool of copies, so it keeps no buffer of the port that received it. [`HELD_MAX`] packets of a thread
//! wait at most, half of them of one port, and those of all threads have a part of the pool ([`HeldBudget`]). The thread looks for verdicts
//! on them once in a turn, and processes a released packet as the stages behind the rules do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool, cycles};
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{
    Answer, Board, HeldPacket, INSPECT_HEADER, Inspect, InspectFlows, NoInspectFlows, PortRules,
    Query, RuleEffect, RuleEffects, Ruling, Verdict, Verdicts,
};
use quietwire_tables::port_mask::PortMask;

use super::effects::put;
use super::lengths::measure;
use super::output::Output;
use super::path::Path;
use crate::counters::{PORTS_MAX, PortCounters};

/// Bursts of packets that wait.
const CHUNKS: usize = 8;
/// Most packets of a thread that wait.
pub(crate) const HELD_MAX: usize = CHUNKS * BURST_MAX;
/// Most packets of a port that wait at a thread, so that there is space for those of others.
const HELD_OF_PORT: usize = HELD_MAX / 2;
/// Most bursts of released packets in a turn: each has one port, and is full unless it is the last one of its port.
pub(super) const RELEASES_MAX: usize = CHUNKS + PORTS_MAX;

/// Number of packets that may wait in addition, at all threads together. The pool of copies has as many buffers for them.
#[derive(Debug, Default)]
pub(crate) struct HeldBudget(AtomicI64);

impl HeldBudget {
    /// Allows more packets.
    pub(crate) fn give(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns true if one more packet may wait.
    pub(super) fn take(&self) -> bool {
        let may_wait = self.0.fetch_sub(1, Ordering::Relaxed) > 0;
        if !may_wait {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        may_wait
    }
}

/// A packet that waits for a verdict.
#[derive(Clone, Copy, Debug)]
struct HeldFrame {
    held: HeldPacket,
    /// Number of the port that received it.
    port: u16,
    /// The decision, once it is made.
    ruling: Option<Ruling>,
}

impl HeldFrame {
    const NONE: Self = Self {
        held: HeldPacket::NONE,
        port: 0,
        ruling: None,
    };
}

/// Packets that wait, in order, and a note on each.
#[derive(Debug)]
struct Chunk {
    frames: Burst,
    notes: [HeldFrame; BURST_MAX],
}

impl Chunk {
    fn new(eal: &Eal) -> Self {
        Self {
            frames: Burst::new(eal),
            notes: [HeldFrame::NONE; BURST_MAX],
        }
    }

    /// Adds a packet. Returns it if there is no space.
    fn push<'eal>(&mut self, frame: Mbuf<'eal>, note: HeldFrame) -> Result<(), Mbuf<'eal>> {
        let place = self.frames.len();
        self.frames.push(frame)?;
        if let Some(place) = self.notes.get_mut(place) {
            *place = note;
        }
        Ok(())
    }

    fn notes(&self) -> &[HeldFrame] {
        self.notes.get(..self.frames.len()).unwrap_or_default()
    }

    fn notes_mut(&mut self) -> &mut [HeldFrame] {
        let count = self.frames.len();
        self.notes.get_mut(..count).unwrap_or_default()
    }
}

/// Inspected flows of a thread, and packets that wait.
#[derive(Debug)]
pub(crate) struct InspectStage {
    /// Number of the thread in queries: its CPU.
    thread: u16,
    flows: InspectFlows,
    /// All but the last one with packets are full.
    chunks: Box<[Chunk]>,
    /// Number of packets that wait.
    count: usize,
    /// Number of those of each port.
    of_ports: Box<[usize]>,
    /// Has one for each packet that waits.
    budget: Arc<HeldBudget>,
    /// Empty between two steps.
    spare: Burst,
}

/// Packets of one port that wait no longer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Released {
    /// Number of the port.
    pub(super) port: u16,
    /// Dropped by a verdict.
    dropped: u64,
    /// Dropped without a verdict.
    without: u64,
    /// Octets of both.
    octets: u64,
    /// Passed without a verdict.
    opened: u64,
}

impl Released {
    /// Counts what does not reach the next stage, which counts the others.
    pub(super) fn count(&self, counters: &[PortCounters]) {
        if let Some(counters) = counters.get(usize::from(self.port)) {
            counters.dropped(PortDrop::Inspector).add(self.dropped);
            counters.dropped(PortDrop::NoVerdict).add(self.without);
            counters.effect(RuleEffect::InspectOpened).add(self.opened);
            counters
                .rx_frames
                .add(self.dropped.wrapping_add(self.without));
            counters.rx_octets.add(self.octets);
        }
    }
}

/// Returns the time of the time stamp counter, milliseconds.
fn now_ms() -> u64 {
    let ticks_per_ms = (cycles::hz() / 1000).max(1);
    cycles::now().checked_div(ticks_per_ms).unwrap_or_default()
}

fn is_in_one_buffer(packet: &Mbuf<'_>) -> bool {
    packet.octets().len() == packet.length() as usize
}

/// Creates the query about a packet in one buffer. `None` without a buffer for the query.
fn query_frame<'eal>(packet: &Mbuf<'eal>, query: &Query, pool: &Mempool) -> Option<Mbuf<'eal>> {
    let octets = packet.octets();
    let length = u16::try_from(INSPECT_HEADER.saturating_add(octets.len())).ok()?;
    let mut frame = packet.sibling(pool, length)?;
    let (header, rest) = frame
        .octets_mut()?
        .split_first_chunk_mut::<INSPECT_HEADER>()?;
    query.write(header);
    for (to, from) in rest.iter_mut().zip(octets) {
        *to = *from;
    }
    Some(frame)
}

impl InspectStage {
    /// Creates the stage of the thread on a CPU, and its verdicts. About 2.5 MiB.
    ///
    /// # Errors
    /// [`NoInspectFlows`].
    pub(crate) fn new(
        eal: &Eal,
        cpu: u32,
        budget: Arc<HeldBudget>,
    ) -> Result<(Self, Arc<Board>), NoInspectFlows> {
        let board = Arc::new(Board::new()?);
        let stage = Self {
            thread: thread_number(cpu),
            flows: InspectFlows::new(Arc::clone(&board))?,
            chunks: (0..CHUNKS).map(|_| Chunk::new(eal)).collect(),
            count: 0,
            of_ports: vec![0; PORTS_MAX].into_boxed_slice(),
            budget,
            spare: Burst::new(eal),
        };
        Ok((stage, board))
    }

    /// Returns true if packets wait.
    #[inline(always)]
    pub(super) const fn holds(&self) -> bool {
        self.count > 0
    }

    /// Decides on a packet. A packet that has to wait is copied, and the query about it waits in the output of the inspector. Returns the
    /// decision, and true if the packet would have waited, but there was no space.
    fn judge(
        &mut self,
        frame: &Mbuf<'_>,
        inspect: &Inspect,
        (port, zone, restarts, now_ms): (u16, u16, bool, u64),
        (pool, outputs): (&Mempool, &mut [Option<Box<Output>>]),
    ) -> (Ruling, bool) {
        let length = frame.length();
        let octets = (frame.octets(), length as usize, zone);
        let ruling = self.flows.judge(octets, inspect, restarts, now_ms);
        let Ruling::Wait(ticket) = ruling else {
            return (ruling, false);
        };
        let without_space = (Ruling::of_fail(inspect.fail), true);
        let of_port = self.of_ports.get(usize::from(port));
        let has_space = self.count < HELD_MAX && of_port.is_some_and(|count| *count < HELD_OF_PORT);
        if !has_space || !self.budget.take() {
            return without_space;
        }
        // Data to be segmented may be in many buffers, of which all threads have a few thousand.
        let Some(copy) = frame.copy(pool).filter(is_in_one_buffer) else {
            self.budget.give(1);
            return without_space;
        };
        if let Some(query) = self.flows.query(ticket, (self.thread, port, length)) {
            let query = query_frame(&copy, &query, pool);
            if !put(outputs, usize::from(inspect.port), query) {
                self.budget.give(1);
                return without_space;
            }
        }
        let held = self.flows.hold(ticket, inspect, now_ms);
        let note = HeldFrame {
            held,
            port,
            ruling: None,
        };
        let mut chunks = self.chunks.iter_mut();
        if let Some(chunk) = chunks.find(|chunk| chunk.frames.space() > 0)
            && chunk.push(copy, note).is_ok()
        {
            // At most HELD_MAX.
            self.count = self.count.wrapping_add(1);
            if let Some(count) = self.of_ports.get_mut(usize::from(port)) {
                *count = count.wrapping_add(1);
            }
        } else {
            self.budget.give(1);
        }
        (ruling, false)
    }

    /// Reads the verdicts on packets that wait. Returns true if some wait no longer.
    pub(super) fn settle(&mut self) -> bool {
        let now_ms = now_ms();
        let mut has_decided = false;
        for note in self.chunks.iter_mut().flat_map(Chunk::notes_mut) {
            if note.ruling.is_none() {
                note.ruling = self.flows.release(&note.held, now_ms);
            }
            has_decided |= note.ruling.is_some();
        }
        has_decided
    }

    /// Removes decided packets of one port, and adds those that pass to an empty burst, as far as it has space. `None` if all packets wait.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of packets that wait, at most HELD_MAX"
    )]
    pub(super) fn take_decided(&mut self, passing: &mut Burst) -> Option<Released> {
        let mut notes = self.chunks.iter().flat_map(Chunk::notes);
        let first = notes.find(|note| note.ruling.is_some())?;
        let mut released = Released {
            port: first.port,
            ..Released::default()
        };
        // Packets that still wait move towards the first chunk.
        let mut to = 0;
        for from in 0..CHUNKS {
            let Some(chunk) = self.chunks.get_mut(from) else {
                break;
            };
            let notes = chunk.notes;
            std::mem::swap(&mut chunk.frames, &mut self.spare);
            for (frame, note) in self.spare.drain().zip(notes) {
                let octets = u64::from(frame.length());
                let is_taken = note.port == released.port && passing.space() > 0;
                match note.ruling.filter(|_| is_taken) {
                    Some(Ruling::Pass) => drop(passing.push(frame)),
                    Some(Ruling::FailOpen) => {
                        released.opened += 1;
                        drop(passing.push(frame));
                    }
                    Some(Ruling::Drop) => {
                        released.dropped += 1;
                        released.octets += octets;
                        drop(frame);
                    }
                    Some(Ruling::FailClosed) => {
                        released.without += 1;
                        released.octets += octets;
                        drop(frame);
                    }
                    Some(Ruling::Wait(_)) | None => {
                        append_packet(&mut self.chunks, &mut to, frame, note);
                        continue;
                    }
                }
                self.count = self.count.saturating_sub(1);
                if let Some(count) = self.of_ports.get_mut(usize::from(note.port)) {
                    *count = count.saturating_sub(1);
                }
                self.budget.give(1);
            }
        }
        Some(released)
    }

    /// Drops the packets of a port that wait, without a verdict. Another port may get its number.
    pub(super) fn forget(&mut self, port: u16) {
        let notes = self.chunks.iter_mut().flat_map(Chunk::notes_mut);
        for note in notes.filter(|note| note.port == port && note.ruling.is_none()) {
            self.flows.abandon(&note.held);
            note.ruling = Some(Ruling::FailClosed);
        }
    }

    /// Counts the packets that wait as dropped without a verdict, before the stage is dropped.
    pub(super) fn abandon(&self, counters: &[PortCounters]) {
        for chunk in &self.chunks {
            for (note, length) in chunk.notes().iter().zip(chunk.frames.lengths()) {
                let released = Released {
                    port: note.port,
                    without: 1,
                    octets: u64::from(length),
                    ..Released::default()
                };
                released.count(counters);
            }
        }
    }
}

impl Drop for InspectStage {
    fn drop(&mut self) {
        self.budget.give(self.count);
    }
}

/// Adds a packet to the chunk with the number `to`, or to the next one.
fn append_packet(chunks: &mut [Chunk], to: &mut usize, frame: Mbuf<'_>, note: HeldFrame) {
    let is_full = |chunk: &Chunk| chunk.frames.space() == 0;
    if chunks.get(*to).is_some_and(is_full) {
        *to = to.wrapping_add(1);
    }
    // There are never more packets than before.
    if let Some(chunk) = chunks.get_mut(*to) {
        drop(chunk.push(frame, note));
    }
}

/// Returns the number of the thread on a CPU in queries. CPUs beyond it would have the number of another one, and no answer would fit.
fn thread_number(cpu: u32) -> u16 {
    u16::try_from(cpu).unwrap_or(u16::MAX)
}

/// Verdicts of all threads, for the port of an inspector.
#[derive(Debug)]
pub(crate) struct Boards(Vec<(u16, Arc<Board>)>);

impl Boards {
    /// Creates them from the CPU and the verdicts of each thread.
    pub(crate) fn new(boards: impl IntoIterator<Item = (u32, Arc<Board>)>) -> Self {
        let boards = boards.into_iter();
        Self(
            boards
                .map(|(cpu, board)| (thread_number(cpu), board))
                .collect(),
        )
    }

    /// Passes an answer on. Returns false if it fits no query.
    fn answer(&self, port: u16, answer: &Answer) -> bool {
        let mut boards = self.0.iter();
        let board = boards.find(|(thread, _)| *thread == answer.thread);
        board.is_some_and(|(_, board)| board.answer(port, answer.ticket, answer.judgement))
    }
}

/// Frames of a burst that wait or are dropped for an inspection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inspected {
    /// Dropped by a verdict.
    pub(super) dropped: u64,
    /// Dropped without a verdict.
    pub(super) without: u64,
    /// Wait for a verdict.
    pub(super) held: u64,
    /// Octets of these.
    pub(super) held_octets: u64,
}

impl Path<'_> {
    /// Inspects the frames of a port that such rules accept. `zone` is that of the port. `begins` returns true for the number of a frame
    /// whose SYN begins a connection. Frames that do not pass get another verdict, and stay in the burst. `kept` is empty before and after.
    /// No frame waits in any output before and after.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "numbers of ports have 16 bits, and a burst has at most BURST_MAX frames"
    )]
    #[allow(
        clippy::indexing_slicing,
        reason = "the index is an effect, of which each has its count"
    )]
    #[inline(never)]
    pub(super) fn inspect(
        &mut self,
        (input, zone): (usize, u16),
        (rules, verdicts): (&PortRules, &mut Verdicts),
        begins: impl Fn(usize) -> bool,
        mut stage: Option<&mut InspectStage>,
        (kept, pool): (&mut Burst, &Mempool),
    ) -> Inspected {
        let mut effects = RuleEffects::default();
        let mut found = Inspected::default();
        // Ports that queries wait for.
        let mut touched = PortMask::default();
        let now_ms = now_ms();
        let received = self.received.drain().zip(verdicts.iter_mut());
        for (number, (frame, verdict)) in received.enumerate() {
            if let Some((rule, inspect)) = rules.inspection(*verdict) {
                let packet = (input as u16, zone, begins(number), now_ms);
                let (ruling, is_without_space) = match stage.as_deref_mut() {
                    Some(stage) => stage.judge(&frame, inspect, packet, (pool, &mut *self.outputs)),
                    None => (Ruling::of_fail(inspect.fail), true),
                };
                effects[RuleEffect::NotInspected] += u64::from(is_without_space);
                match ruling {
                    Ruling::Pass => {}
                    Ruling::FailOpen => effects[RuleEffect::InspectOpened] += 1,
                    Ruling::Drop => {
                        found.dropped += 1;
                        *verdict = Verdict::Inspected(rule, PortDrop::Inspector);
                    }
                    Ruling::FailClosed => {
                        found.without += 1;
                        *verdict = Verdict::Inspected(rule, PortDrop::NoVerdict);
                    }
                    Ruling::Wait(ticket) => {
                        found.held += 1;
                        found.held_octets += u64::from(frame.length());
                        *verdict = Verdict::Held(rule);
                        if ticket.packet > 0 {
                            effects[RuleEffect::Inspected] += 1;
                            touched.insert(inspect.port);
                        }
                    }
                }
            }
            // `kept` has space for a burst.
            drop(kept.push(frame));
        }
        std::mem::swap(self.received, kept);
        if let Some(counters) = self.counters.get(input) {
            for (effect, count) in effects.iter() {
                counters.effect(effect).add(count);
            }
            counters.dropped(PortDrop::Inspector).add(found.dropped);
            counters.dropped(PortDrop::NoVerdict).add(found.without);
        }
        self.flush_all(touched);
        found
    }

    /// Reads the answers of an inspector.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of ports have 16 bits"
    )]
    #[inline(never)]
    pub(super) fn take_answers(&mut self, input: usize, boards: &Boards) {
        let (octets, _) = measure(self.received);
        let frames = self.received.len() as u64;
        let answers = self.received.frames().filter_map(Answer::read);
        let valid = answers.filter(|answer| boards.answer(input as u16, answer));
        let valid = valid.count() as u64;
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames);
            counters.rx_octets.add(octets);
            counters.effect(RuleEffect::Verdict).add(valid);
            counters
                .dropped(PortDrop::InvalidVerdict)
                .add(frames.saturating_sub(valid));
        }
        self.received.free();
    }
}

#[cfg(test)]
mod tests {
    use quietwire_dpdk::MergedFrame;
    use quietwire_tables::filter::{InspectFail, Judgement};

    use super::*;
    use crate::counters::ThreadCounters;
    use crate::testing::eal;

    const INSPECTOR: u16 = 4;
    const RULE: Inspect = Inspect {
        port: INSPECTOR,
        packets: 2,
        timeout_ms: u16::MAX,
        fail: InspectFail::Closed,
    };

    /// Returns a datagram of a client with this number.
    fn datagram(client: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(client.to_be_bytes());
        frame.extend([0, 53, 0, 8, 0, 0]);
        frame.resize(60, 0);
        frame
    }

    /// A ring to the inspector in place of a port.
    struct World {
        stage: InspectStage,
        board: Arc<Board>,
        budget: Arc<HeldBudget>,
        outputs: Vec<Option<Box<Output>>>,
        pool: Mempool,
        eal: Eal,
    }

    fn world(eal: &Eal, name: &str) -> World {
        let budget = Arc::new(HeldBudget::default());
        budget.give(HELD_MAX);
        let (stage, board) = InspectStage::new(eal, 3, Arc::clone(&budget)).unwrap();
        let (sender, _) = quietwire_dpdk::ring::channel(eal, 1024);
        let mut outputs: Vec<Option<Box<Output>>> = (0..PORTS_MAX).map(|_| None).collect();
        outputs[usize::from(INSPECTOR)] = Some(Box::new(Output {
            tx_path: crate::forward::TxPath::Ring(sender),
            waiting: Burst::new(eal),
        }));
        World {
            stage,
            board,
            budget,
            outputs,
            pool: Mempool::new(eal, name, 2047, 256).unwrap(),
            eal: eal.clone(),
        }
    }

    impl World {
        /// Judges a datagram of a client, which a port has received. Returns the decision, and the query if there is one.
        fn judge(&mut self, port: u16, client: u16) -> (Ruling, Option<Vec<u8>>) {
            let frame = Mbuf::new(&self.eal, &self.pool, &datagram(client)).unwrap();
            let buffers = (&self.pool, &mut self.outputs[..]);
            let (ruling, _) = self
                .stage
                .judge(&frame, &RULE, (port, 0, true, now_ms()), buffers);
            let output = self.outputs[usize::from(INSPECTOR)].as_mut().unwrap();
            let query = output.waiting.frames().next().map(<[u8]>::to_vec);
            output.waiting.free();
            (ruling, query)
        }

        /// Judges a datagram in two buffers, whose sender has requested segments.
        fn judge_large(&mut self, client: u16) -> (Ruling, bool) {
            let mut octets = datagram(client);
            octets.resize(200, 0);
            let part = || {
                let frame = Mbuf::new(&self.eal, &self.pool, &octets).unwrap();
                frame.into_exclusive().ok().unwrap()
            };
            let mut merged = MergedFrame::new(part());
            merged.append(part(), 42);
            let frame = merged.finish(100);
            let buffers = (&self.pool, &mut self.outputs[..]);
            self.stage
                .judge(&frame, &RULE, (5, 0, true, now_ms()), buffers)
        }

        /// Answers a query through the boards of all threads.
        fn answer(&self, query: &[u8], kind: u8) -> bool {
            let boards = Boards::new([
                (9, Arc::new(Board::new().unwrap())),
                (3, Arc::clone(&self.board)),
            ]);
            let mut answer = query[..INSPECT_HEADER].to_vec();
            answer[15] = kind;
            boards.answer(INSPECTOR, &Answer::read(&answer).unwrap())
        }

        /// Returns port and frames of each burst that passes.
        fn release(&mut self) -> Vec<(u16, Vec<Vec<u8>>)> {
            let mut all = Vec::new();
            let mut passing = Burst::new(&self.eal);
            self.stage.settle();
            while let Some(released) = self.stage.take_decided(&mut passing) {
                assert!(all.len() <= RELEASES_MAX);
                let frames = passing.frames().map(<[u8]>::to_vec).collect();
                all.push((released.port, frames));
                passing.free();
            }
            all
        }
    }

    #[test]
    fn queries_have_the_frame_and_answers_release_it() {
        let eal = eal();
        let mut world = world(&eal, "inspect");
        let (ruling, query) = world.judge(7, 1000);
        let query = query.unwrap();
        assert!(matches!(ruling, Ruling::Wait(ticket) if ticket.packet == 1));
        assert_eq!(query[INSPECT_HEADER..], datagram(1000));
        assert_eq!(query[16..18], [0, 3], "the thread");
        assert_eq!(query[26..28], [0, 7], "the port");
        assert!(world.stage.holds() && world.release().is_empty());
        assert!(world.answer(&query, 2));
        assert!(!world.answer(&query, 3), "decided");
        assert_eq!(world.release(), [(7, vec![datagram(1000)])]);
        assert!(!world.stage.holds());
        assert_eq!(world.judge(8, 1000), (Ruling::Pass, None));
        assert_eq!(world.pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn packets_of_several_ports_are_released_in_their_order_and_no_buffer_is_lost() {
        let eal = eal();
        let mut world = world(&eal, "inspect-ports");
        // As many packets as may wait, of two ports in turn: four of each client, and queries about two of them.
        let clients = 0..HELD_MAX as u16 / 4;
        let mut queries = Vec::new();
        for round in 0..4 {
            for client in clients.clone() {
                let (ruling, query) = world.judge(client % 2, client);
                assert!(matches!(ruling, Ruling::Wait(_)), "{client}");
                assert_eq!(query.is_some(), round < 2, "{client}");
                if round == 1 {
                    queries.push(query.unwrap());
                }
            }
        }
        assert_eq!(world.judge(0, 60_000).0, Ruling::FailClosed, "no space");
        // Every third client is accepted, every third one dropped, and the others wait.
        for (client, query) in queries.iter().enumerate() {
            match client % 3 {
                1 => assert!(world.answer(query, 2)),
                2 => assert!(world.answer(query, 3)),
                _ => {}
            }
        }
        let released = world.release();
        for port in 0..2 {
            let of_port = released.iter().filter(|(one, _)| *one == port);
            let frames: Vec<Vec<u8>> = of_port.flat_map(|(_, frames)| frames.clone()).collect();
            let passing = clients
                .clone()
                .filter(|one| one % 2 == port && one % 3 == 1);
            let passing: Vec<Vec<u8>> = passing.map(datagram).collect();
            let four: Vec<Vec<u8>> = std::iter::repeat_n(passing, 4).flatten().collect();
            assert_eq!(frames, four, "port {port}");
        }
        let waiting = queries.len().div_ceil(3);
        assert_eq!(world.stage.count, 4 * waiting);
        // The inspector has received two packets of each of the others and does not decide.
        for (client, query) in queries.iter().enumerate() {
            if client % 3 == 0 {
                assert!(world.answer(query, 1), "{client}");
            }
        }
        let passed: usize = world.release().iter().map(|(_, frames)| frames.len()).sum();
        assert_eq!((passed, world.stage.count), (2 * waiting, 0));
        assert_eq!(world.pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn packets_of_one_port_leave_space_for_those_of_others() {
        let eal = eal();
        let mut world = world(&eal, "inspect-share");
        let half = u16::try_from(HELD_OF_PORT).unwrap();
        for client in 0..half {
            let (ruling, _) = world.judge(5, client);
            assert!(matches!(ruling, Ruling::Wait(_)), "{client}");
        }
        let free = world.pool.available();
        assert_eq!(world.judge(5, half).0, Ruling::FailClosed);
        assert_eq!(world.pool.available(), free);
        for client in 0..half {
            let (ruling, _) = world.judge(6, 10_000 + client);
            assert!(matches!(ruling, Ruling::Wait(_)), "{client}");
        }
        world.stage.forget(5);
        world.release();
        let (ruling, _) = world.judge(5, 20_000);
        assert!(matches!(ruling, Ruling::Wait(_)), "space again");
        assert_eq!(world.stage.of_ports[5..7], [1, HELD_OF_PORT]);
        for port in [5, 6] {
            world.stage.forget(port);
        }
        world.release();
        assert_eq!((world.stage.count, world.stage.of_ports[6]), (0, 0));
        assert_eq!(world.pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn packets_of_all_threads_have_a_part_of_the_pool() {
        let eal = eal();
        let mut world = world(&eal, "inspect-budget");
        let waits = |world: &mut World, client| matches!(world.judge(5, client).0, Ruling::Wait(_));
        // Another thread has all but two.
        for _ in 0..HELD_MAX - 2 {
            assert!(world.budget.take());
        }
        assert!(waits(&mut world, 1) && waits(&mut world, 2));
        assert!(!waits(&mut world, 3));
        world.stage.forget(5);
        world.release();
        assert!(waits(&mut world, 4) && waits(&mut world, 5));
        let World {
            stage,
            budget,
            pool,
            ..
        } = world;
        // The thread ends while packets wait.
        drop(stage);
        assert!(budget.take() && budget.take() && !budget.take());
        assert_eq!(pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn data_in_several_buffers_do_not_wait() {
        let eal = eal();
        let mut world = world(&eal, "inspect-large");
        for _ in 0..2 {
            assert!(matches!(world.judge(5, 1000).0, Ruling::Wait(_)));
        }
        // A packet behind those that the inspector gets waits without a query.
        let (ruling, query) = world.judge(5, 1000);
        assert!(matches!(ruling, Ruling::Wait(_)) && query.is_none());
        let free = world.pool.available();
        assert_eq!(world.judge_large(1000), (Ruling::FailClosed, true));
        assert_eq!((world.stage.count, world.pool.available()), (3, free));
        world.stage.forget(5);
        world.release();
        assert_eq!(world.pool.available(), 2047, "a buffer is lost");
        let budget = (0..=HELD_MAX).filter(|_| world.budget.take()).count();
        assert_eq!(
            budget, HELD_MAX,
            "a packet that does not wait has its place"
        );
    }

    #[test]
    fn packets_that_wait_when_the_stage_ends_are_counted() {
        let eal = eal();
        let mut world = world(&eal, "inspect-end");
        for client in 0..3 {
            world.judge(5, client);
        }
        let counters = ThreadCounters::new();
        world.stage.abandon(&counters.ports);
        let of_port = &counters.ports[5];
        assert_eq!(of_port.dropped(PortDrop::NoVerdict).get(), 3);
        assert_eq!((of_port.rx_frames.get(), of_port.rx_octets.get()), (3, 180));
        let World { stage, pool, .. } = world;
        drop(stage);
        assert_eq!(pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn packets_of_a_port_that_leaves_do_not_wait() {
        let eal = eal();
        let mut world = world(&eal, "inspect-port");
        let (_, query) = world.judge(5, 1000);
        for (port, client) in [(6, 1001), (5, 1002)] {
            world.judge(port, client);
        }
        world.stage.forget(5);
        assert_eq!(world.release(), [(5, Vec::new())]);
        assert_eq!(world.stage.count, 1);
        // The inspector may still decide on the flow.
        assert!(world.answer(&query.unwrap(), 2));
        assert_eq!(world.judge(5, 1000), (Ruling::Pass, None));
        world.stage.forget(6);
        world.release();
        assert_eq!(world.pool.available(), 2047, "a buffer is lost");
    }

    #[test]
    fn an_answer_to_a_query_of_another_thread_fits_nothing() {
        let eal = eal();
        let mut world = world(&eal, "inspect-other");
        let (_, query) = world.judge(7, 1000);
        let mut query = query.unwrap();
        assert_eq!(query[15], 0);
        query[17] = 9;
        assert!(!world.answer(&query, 2), "another thread");
        query[17] = 8;
        assert!(!world.answer(&query, 2), "no such thread");
        query[17] = 3;
        query[15] = 2;
        let answer = Answer::read(&query).unwrap();
        assert_eq!(answer.judgement, Judgement::Accept);
        let boards = Boards::new([(3, Arc::clone(&world.board))]);
        assert!(!boards.answer(INSPECTOR + 1, &answer), "another port");
        assert!(boards.answer(INSPECTOR, &answer));
    }
}
