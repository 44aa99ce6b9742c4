// SPDX-License-Identifier: Apache-2.0
//! Execution of filter verdicts, before any other stage processes a burst.

#[cfg(test)]
mod tests;

use quietwire_dpdk::{BURST_MAX, Burst, Mempool};

use super::connections::ConnectionStage;
use super::effects::{changed, put, statements_of};
use super::inspect::{InspectStage, Inspected};
use super::path::Path;
use super::stage::FilteredStage;
use super::translate::TranslatorsView;
use crate::counters::Step;
use quietwire_tables::drops::{PortDrop, PortDrops};
use quietwire_tables::filter::{
    Continued, NameFlows, PortRules, RuleEffect, RuleEffects, SourceGuard, Statements, Verdict,
    Verdicts,
};
use quietwire_tables::port_mask::PortMask;

/// Resources for filtering the frames of one queue.
pub(super) struct FilterContext<'worker> {
    /// Connection tracking, if it is configured.
    pub(super) connections: Option<&'worker mut ConnectionStage>,
    /// Memory for names in connections, if rules compare them.
    pub(super) names: Option<&'worker mut NameFlows>,
    /// Inspected flows, if rules inspect some.
    pub(super) inspection: Option<&'worker mut InspectStage>,
    /// Translators of the destinations of received packets.
    pub(super) inside: TranslatorsView<'worker>,
    pub(super) now_s: u32,
    /// Empty before and after.
    pub(super) kept: &'worker mut Burst,
    /// Verdicts of an earlier burst: memory that no burst has to initialise.
    pub(super) verdicts: &'worker mut Verdicts,
    /// Pool for copies and answers.
    pub(super) pool: &'worker Mempool,
}

/// Returns the places of the first `frames` verdicts that do not accept their frames, one bit each. There is no branch per frame.
#[inline(always)]
fn refused_places(verdicts: &Verdicts, frames: usize) -> u64 {
    let mut refused = 0;
    for (place, verdict) in verdicts.iter().take(frames).enumerate() {
        refused |= u64::from(!verdict.accepts()) << place;
    }
    refused
}

/// Returns this verdict at places, one bit each, and an accepting one elsewhere.
#[cold]
fn verdicts_at(places: u64, verdict: Verdict) -> Verdicts {
    std::array::from_fn(|place| match places >> place & 1 {
        0 => Verdict::Short,
        _ => verdict,
    })
}

impl Path<'_> {
    /// Applies rules to a burst. Returns false if no frame is left.
    #[inline(always)]
    pub(super) fn pass_rules(
        &mut self,
        input: usize,
        stage: &FilteredStage,
        context: FilterContext<'_>,
    ) -> bool {
        match &stage.rules {
            Some(rules) => self.filter(input, (rules, stage.zone), context),
            None => true,
        }
    }

    /// Drops the frames whose sources the guard does not allow. Returns false if no frame is left.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a burst has at most BURST_MAX frames, and those that are left are some of them"
    )]
    #[inline(never)]
    pub(super) fn pass_guard(&mut self, input: usize, guard: &SourceGuard) -> bool {
        let frames = self.received.len();
        let mut verdicts: Verdicts = [Verdict::Short; BURST_MAX];
        let mut drops = PortDrops::default();
        let mut dropped = 0;
        let received = self.received.frames().zip(self.received.lengths());
        for ((octets, length), verdict) in received.zip(&mut verdicts) {
            if let Some(reason) = guard.violation(octets, length as usize) {
                *verdict = Verdict::Guarded(reason);
                drops[reason] += 1;
                dropped += 1;
            }
        }
        if dropped > 0 {
            if self.telemetry.is_watched() {
                // A frame that passes has no event.
                self.telemetry.filtered(self.received, &verdicts);
            }
            let (_, octets) = self.received.free_at(refused_places(&verdicts, frames));
            if let Some(counters) = self.counters.get(input) {
                for (reason, count) in drops.iter() {
                    counters.dropped(reason).add(count);
                }
                counters.rx_frames.add(dropped as u64);
                counters.rx_octets.add(octets);
            }
        }
        self.telemetry.lap_of(Step::Filter, frames);
        dropped < frames
    }

    /// Drops the malformed frames of a burst, those that the rules refuse, and the first ones of connections for which there is no space.
    /// Returns false if no frame is left.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "a burst has at most BURST_MAX frames, and those that are held or left are some of them"
    )]
    #[inline(never)]
    fn filter(
        &mut self,
        input: usize,
        (rules, zone): (&PortRules, u16),
        context: FilterContext<'_>,
    ) -> bool {
        let FilterContext {
            mut connections,
            names,
            inspection,
            inside,
            now_s,
            kept,
            verdicts,
            pool,
        } = context;
        let all = self.received.len();
        if let Some(stage) = connections.as_deref_mut() {
            stage.track(self.received, inside, (zone, now_s));
            if stage.is_limited() && !self.admit_first(input, stage) {
                self.telemetry.lap_of(Step::Filter, all);
                return false;
            }
        }
        let frames = self.received.len();
        let mut continued = rules.continues().then(Continued::default);
        let frames_of_rules = &mut self.leaving.effects.frames;
        let out = (&mut *verdicts, continued.as_mut(), frames_of_rules);
        let mut names = names.filter(|_| rules.has_names());
        let reasons = match (connections.as_deref_mut(), names.as_deref_mut()) {
            (Some(stage), names) => stage.judge(self.received, rules, (now_s, names), out),
            (None, Some(names)) => {
                let received = self.received.frames().zip(self.received.lengths());
                rules.judge_named(received, &[], names, out)
            }
            (None, None) => {
                let received = self.received.frames().zip(self.received.lengths());
                rules.judge(received, out)
            }
        };
        if let Some(output) = self.leaving.compared() {
            match connections.as_deref() {
                Some(stage) => stage.classify(self.received, (rules, output), verdicts),
                None => self.received.set_classes(std::iter::repeat(0)),
            }
        }
        if let Some(names) = names
            && let Some(counters) = self.counters.get(input)
        {
            let undecidable = names.take_undecidable();
            counters
                .effect(RuleEffect::NameUndecidable)
                .add(undecidable);
        }
        let inspected = match rules.inspects() {
            true => {
                let connections = connections.as_deref();
                let begins = |number| connections.is_none_or(|stage| stage.begins(number));
                let rules = (rules, &mut *verdicts);
                self.inspect((input, zone), rules, begins, inspection, (&mut *kept, pool))
            }
            false => Inspected::default(),
        };
        let stopped = inspected.dropped + inspected.without + inspected.held;
        let dropped = reasons.sum() + stopped as usize;
        if self.telemetry.is_watched() {
            self.telemetry.filtered(self.received, verdicts);
        }
        let has_effect = |verdict: &Verdict| {
            let statements = rules.statements(*verdict);
            verdict.rejects() || statements.is_some_and(Statements::has_effects)
        };
        let continued = continued.as_ref().filter(|continued| continued.has_any());
        let mut decided = verdicts.iter().take(frames);
        if rules.has_effects() && (continued.is_some() || decided.any(has_effect)) {
            self.apply_effects(input, (rules, &*verdicts, continued), pool, kept);
        }
        if dropped > 0 {
            let refused = refused_places(verdicts, self.received.len());
            let (_, octets) = self.received.free_at(refused);
            // The next stage counts accepted frames.
            if let Some(counters) = self.counters.get(input) {
                counters
                    .dropped(PortDrop::Denied)
                    .add(reasons.denied as u64);
                counters
                    .dropped(PortDrop::Rejected)
                    .add(reasons.rejected as u64);
                counters
                    .dropped(PortDrop::Malformed)
                    .add(reasons.malformed as u64);
                counters
                    .dropped(PortDrop::ConnectionRefused)
                    .add(reasons.refused as u64);
                // Held frames are counted when they wait no longer.
                counters.rx_frames.add(dropped as u64 - inspected.held);
                counters.rx_octets.add(octets - inspected.held_octets);
            }
        }
        self.telemetry.lap_of(Step::Filter, all);
        dropped < frames
    }

    /// Drops the frames of a tracked burst that begin connections if the thread has no time for them. Returns false if no frame is left.
    #[inline(never)]
    fn admit_first(&mut self, input: usize, stage: &mut ConnectionStage) -> bool {
        self.telemetry.lap(Step::Filter);
        let places = stage.without_time(self.telemetry.last());
        if places == 0 {
            return true;
        }
        stage.forget(places);
        if self.telemetry.is_watched() {
            let verdicts = verdicts_at(places, Verdict::Guarded(PortDrop::NewShare));
            self.telemetry.filtered(self.received, &verdicts);
        }
        let (frames, octets) = self.received.free_at(places);
        if let Some(counters) = self.counters.get(input) {
            counters.drop_received(PortDrop::NewShare, frames as u64, octets);
        }
        self.telemetry.lap(Step::Filter);
        stage.has_dropped(self.telemetry.last());
        !self.received.is_empty()
    }

    /// Applies the effects of the rules to the received frames, before any is dropped. `kept` is empty before and after. No frame waits in
    /// any output before and after.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "numbers of ports have 16 bits, and effects are at most one for each frame and rule of a burst"
    )]
    #[inline(never)]
    fn apply_effects(
        &mut self,
        input: usize,
        (rules, verdicts, continued): (&PortRules, &Verdicts, Option<&Continued>),
        pool: &Mempool,
        kept: &mut Burst,
    ) {
        let effects = &mut *self.leaving.effects;
        let mut counts = RuleEffects::default();
        // Ports that frames wait for.
        let mut touched = PortMask::default();
        let received = self.received.drain().zip(verdicts);
        for (number, (mut frame, verdict)) in received.enumerate() {
            for (statements, action) in statements_of(rules, (*verdict, number), continued) {
                if let Some(log) = &statements.log
                    && log.samples()
                {
                    counts[effects.log(log, action, input, &frame)] += 1;
                }
                if let Some(port) = statements.dup.map(usize::from)
                    && port != input
                {
                    let copy = frame.copy(pool);
                    counts[match put(self.outputs, port, copy) {
                        true => RuleEffect::Duplicated,
                        false => RuleEffect::NotDuplicated,
                    }] += 1;
                    touched.insert(port as u16);
                }
                if statements.changes_frames() && verdict.accepts() {
                    frame = changed(frame, (statements, None), pool, self.telemetry, &mut counts);
                }
            }
            if verdict.rejects() {
                let statements = rules.statements(*verdict);
                let with = statements.and_then(|statements| statements.reject_with);
                counts[effects.reject(self.outputs, input, (&frame, with), pool)] += 1;
                touched.insert(input as u16);
            }
            // `kept` has space for a burst.
            drop(kept.push(frame));
        }
        std::mem::swap(self.received, kept);
        if let Some(counters) = self.counters.get(input) {
            for (effect, count) in counts.iter() {
                counters.effect(effect).add(count);
            }
        }
        self.flush_all(touched);
    }
}
