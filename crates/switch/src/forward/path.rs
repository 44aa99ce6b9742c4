// SPDX-License-Identifier: Apache-2.0
//! Execution of the stages' decisions on one burst.

use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{BURST_MAX, Burst, Mempool};
use quietwire_packet::ETHERNET_HEADER_LENGTH;
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{Continued, PortRules, RuleEffect, Statements, Verdict, Verdicts};
use quietwire_tables::port_mask::PortMask;

use super::effects::{Effects, Egress};
use super::lengths::measure;
use super::output::{Output, OutputRules, TxPath};
use super::telemetry::Telemetry;
use crate::counters::{PortCounters, Step};

/// Context of one burst.
pub(super) struct Path<'worker> {
    pub(super) received: &'worker mut Burst,
    pub(super) outputs: &'worker mut [Option<Box<Output>>],
    pub(super) counters: &'worker [PortCounters],
    pub(super) telemetry: &'worker mut Telemetry,
    pub(super) leaving: Leaving<'worker>,
}

/// Context of frames that leave.
pub(super) struct Leaving<'worker> {
    /// Rules of frames that leave, if there are any.
    pub(super) rules: Option<&'worker OutputRules>,
    /// Number of the port that received the burst; `None` for frames of the service thread.
    pub(super) from: Option<u16>,
    /// Empty between two steps.
    pub(super) spare: &'worker mut Burst,
    pub(super) effects: &'worker mut Effects,
    /// Pool for copies of frames that rules change.
    pub(super) pool: &'worker Mempool,
}

impl<'worker> Leaving<'worker> {
    /// Returns the rules that compute the classes of received frames, if rules of frames that leave compare connections.
    #[inline(always)]
    pub(super) fn compared(&self) -> Option<&'worker PortRules> {
        self.rules.and_then(OutputRules::compared)
    }

    /// Drops the frames of a burst that the rules of its output refuse. Returns the octets of the others, given those of all.
    #[inline(always)]
    fn filter(
        &mut self,
        output: usize,
        burst: &mut Burst,
        octets: u64,
        counters: &PortCounters,
        telemetry: &mut Telemetry,
    ) -> u64 {
        match self.rules.and_then(|all| Some((all, all.of(output)?))) {
            None => octets,
            Some(rules) => self.judge(output, rules, (burst, octets), counters, telemetry),
        }
    }

    #[inline(never)]
    fn judge(
        &mut self,
        output: usize,
        (all, rules): (&OutputRules, &PortRules),
        (burst, octets): (&mut Burst, u64),
        counters: &PortCounters,
        telemetry: &mut Telemetry,
    ) -> u64 {
        let mut verdicts: Verdicts = [Verdict::Short; BURST_MAX];
        let frames = burst.frames().zip(burst.lengths());
        let mut continued = rules.continues().then(Continued::default);
        let frames_of_rules = &mut self.effects.frames;
        let out = (&mut verdicts, continued.as_mut(), frames_of_rules);
        let dropped = match all.compared() {
            None => rules.judge_output(frames, self.from, out),
            Some(_) => {
                let frames = frames.zip(burst.classes());
                rules.judge_classified(frames, self.from, out)
            }
        };
        if telemetry.is_watched() {
            telemetry.filtered(burst, &verdicts);
        }
        let has_effect = |verdict: &Verdict| {
            let statements = rules.statements(*verdict);
            statements.is_some_and(Statements::has_effects)
        };
        let continued = continued.as_ref().filter(|continued| continued.has_any());
        let mut decided = verdicts.iter().take(burst.len());
        if rules.has_effects() && (continued.is_some() || decided.any(has_effect)) {
            let bursts = (&mut *burst, &mut *self.spare);
            let rules = (rules, &verdicts, continued);
            let egress = Egress {
                output,
                from: self.from,
                mtus: all.mtus(),
            };
            let effects = &mut self.effects;
            let counts = effects.leave(egress, rules, bursts, self.pool, telemetry);
            for (effect, count) in counts.iter() {
                counters.effect(effect).add(count);
            }
        }
        if dropped == 0 {
            return octets;
        }
        for (frame, verdict) in burst.drain().zip(verdicts) {
            if verdict.accepts() {
                // `spare` has space for a burst.
                drop(self.spare.push(frame));
            }
        }
        std::mem::swap(burst, self.spare);
        counters.dropped(PortDrop::DeniedOut).add(dropped as u64);
        measure(burst).0
    }
}

impl Path<'_> {
    #[inline(always)]
    pub(super) fn cross_connect(&mut self, input: usize, output: usize) {
        let (octets, short) = measure(self.received);
        let frames = self.received.len() as u64;
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames);
            counters.rx_octets.add(octets);
            counters.dropped(PortDrop::Short).add(short);
        }
        if short == 0 {
            self.send_all(input, output, octets);
        } else {
            self.send_with_header(output);
        }
    }

    /// Sends the whole burst unchanged.
    #[inline(always)]
    pub(super) fn send_all(&mut self, input: usize, output: usize, octets: u64) {
        match (self.outputs.get_mut(output), self.counters.get(output)) {
            (Some(Some(place)), Some(counters)) => {
                let burst = &mut *self.received;
                let leaving = &mut self.leaving;
                let octets = leaving.filter(output, burst, octets, counters, self.telemetry);
                if !burst.is_empty() {
                    transmit(
                        &mut place.tx_path,
                        burst,
                        octets,
                        counters,
                        self.telemetry,
                        output,
                    );
                }
                self.send_copies(output);
            }
            _ => self.no_output(input),
        }
    }

    /// Sends the frames that have an Ethernet header.
    #[cold]
    fn send_with_header(&mut self, output: usize) {
        if let Some(Some(place)) = self.outputs.get_mut(output) {
            for frame in self.received.drain() {
                if frame.length() as usize >= ETHERNET_HEADER_LENGTH {
                    // The output has space: it never gets more than the received burst.
                    drop(place.waiting.push(frame));
                }
            }
        }
        self.flush(output);
    }

    /// Sends the waiting frames of an output.
    #[inline(always)]
    pub(super) fn flush(&mut self, output: usize) {
        if let (Some(Some(place)), Some(counters)) =
            (self.outputs.get_mut(output), self.counters.get(output))
            && !place.waiting.is_empty()
        {
            let (octets, _) = measure(&place.waiting);
            let Output { tx_path, waiting } = &mut **place;
            let leaving = &mut self.leaving;
            let octets = leaving.filter(output, waiting, octets, counters, self.telemetry);
            if !waiting.is_empty() {
                transmit(tx_path, waiting, octets, counters, self.telemetry, output);
            }
            self.send_copies(output);
        }
    }

    /// Sends the copies of frames that have left by a port.
    #[inline(always)]
    fn send_copies(&mut self, output: usize) {
        if self.leaving.rules.is_some() && self.leaving.effects.has_copies() {
            self.send_all_copies(output);
        }
    }

    /// Sends copies, those for one port together as far as they follow each other. Rules of frames that leave do not apply to them.
    #[inline(never)]
    fn send_all_copies(&mut self, output: usize) {
        let (spare, effects) = (&mut *self.leaving.spare, &mut *self.leaving.effects);
        let mut to = None;
        let mut send = |burst: &mut Burst, to: Option<u16>| {
            let Some(to) = to.map(usize::from) else {
                return;
            };
            let copies = burst.len() as u64;
            let effect = match (self.outputs.get_mut(to), self.counters.get(to)) {
                (Some(Some(place)), Some(counters)) => {
                    let (octets, _) = measure(burst);
                    transmit(
                        &mut place.tx_path,
                        burst,
                        octets,
                        counters,
                        self.telemetry,
                        to,
                    );
                    RuleEffect::Duplicated
                }
                _ => RuleEffect::NotDuplicated,
            };
            burst.free();
            if let Some(counters) = self.counters.get(output) {
                counters.effect(effect).add(copies);
            }
        };
        for (copy, port) in effects.take_copies() {
            if to.is_some_and(|to| to != port) {
                send(&mut *spare, to);
            }
            to = Some(port);
            // `spare` is empty, and has space for a burst.
            drop(spare.push(copy));
        }
        send(spare, to);
    }

    /// Sends the waiting frames of these outputs.
    #[inline(always)]
    pub(super) fn flush_all(&mut self, outputs: PortMask) {
        for output in outputs.ports() {
            self.flush(usize::from(output));
        }
    }

    /// Drops the burst of a port without a stage.
    #[cold]
    pub(super) fn drop_all(&mut self, input: usize) {
        let (octets, _) = measure(self.received);
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(self.received.len() as u64);
            counters.rx_octets.add(octets);
        }
        self.no_output(input);
    }

    #[cold]
    fn no_output(&mut self, input: usize) {
        if let Some(counters) = self.counters.get(input) {
            let frames = self.received.len() as u64;
            counters.dropped(PortDrop::NoOutput).add(frames);
        }
        self.received.free();
    }
}

/// Sends a burst of this number of octets and drops frames that the output does not accept. Frames sent through a ring are counted by the
/// thread that owns the queue.
#[expect(
    clippy::cast_possible_truncation,
    reason = "numbers of ports have 16 bits"
)]
#[inline(always)]
fn transmit(
    tx_path: &mut TxPath,
    burst: &mut Burst,
    octets: u64,
    counters: &PortCounters,
    telemetry: &mut Telemetry,
    port: usize,
) {
    telemetry.count(Step::Send, burst.len());
    if telemetry.is_watched() {
        transmit_watched(tx_path, burst, octets, counters, telemetry, port as u16);
    } else {
        send(tx_path, burst, octets, counters);
    }
}

#[cold]
#[inline(never)]
fn transmit_watched(
    tx_path: &mut TxPath,
    burst: &mut Burst,
    octets: u64,
    counters: &PortCounters,
    telemetry: &mut Telemetry,
    port: u16,
) {
    telemetry.offered(port, matches!(tx_path, TxPath::Ring(_)), burst);
    let sent = send(tx_path, burst, octets, counters);
    telemetry.sent(port, sent);
}

/// Sends a burst. Returns the number of accepted frames.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "refused frames and those that are left are some of the burst"
)]
#[inline(always)]
fn send(tx_path: &mut TxPath, burst: &mut Burst, octets: u64, counters: &PortCounters) -> usize {
    let sent = match tx_path {
        TxPath::Queue(tx) => tx.send(burst),
        TxPath::Ring(ring) => return hand_over(ring, burst, counters),
        TxPath::Segmenting(queue) => return queue.transmit(burst, counters),
    };
    let mut sent_octets = octets - burst.take_refused();
    if !burst.is_empty() {
        sent_octets -= measure(burst).0;
        counters.dropped(PortDrop::TxFull).add(burst.len() as u64);
        burst.free();
    }
    counters.tx_frames.add(sent as u64);
    counters.tx_octets.add(sent_octets);
    sent
}

#[inline(never)]
fn hand_over(ring: &mut FrameSender, burst: &mut Burst, counters: &PortCounters) -> usize {
    let sent = ring.send(burst);
    counters.dropped(PortDrop::TxFull).add(burst.len() as u64);
    burst.free();
    sent
}

/// Sends frames for another thread.
pub(super) fn send_relayed(
    burst: &mut Burst,
    outputs: &mut [Option<Box<Output>>],
    counters: &[PortCounters],
    telemetry: &mut Telemetry,
    port: u16,
) {
    let port = usize::from(port);
    if telemetry.is_watched() {
        telemetry.adopt(burst);
    }
    if let (Some(Some(place)), Some(counters)) = (outputs.get_mut(port), counters.get(port)) {
        let (octets, _) = measure(burst);
        transmit(&mut place.tx_path, burst, octets, counters, telemetry, port);
    }
    burst.free();
    if telemetry.is_watched() {
        telemetry.finish();
    }
}
