// SPDX-License-Identifier: Apache-2.0
//! Execution of filter verdicts, before any other stage processes a burst.

use quietwire_dpdk::{BURST_MAX, Burst, Mempool};

use super::connections::ConnectionStage;
use super::effects::Effects;
use super::lengths::measure;
use super::path::Path;
use crate::config::rules::Action;
use crate::counters::Step;
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{PortRules, Verdict, Verdicts};

/// Resources for filtering the frames of one queue.
pub(super) struct FilterContext<'worker> {
    /// Connection tracking, if it is configured.
    pub(super) connections: Option<&'worker mut ConnectionStage>,
    pub(super) now_s: u32,
    /// Empty before and after.
    pub(super) kept: &'worker mut Burst,
    pub(super) effects: &'worker mut Effects,
    /// Pool for copies and answers.
    pub(super) pool: &'worker Mempool,
}

impl Path<'_> {
    /// Drops the malformed frames of a burst, those that the rules refuse, and the first ones of connections for which there is no space.
    /// Returns false if no frame is left.
    #[inline(never)]
    pub(super) fn filter(
        &mut self,
        input: usize,
        rules: &PortRules,
        context: FilterContext<'_>,
    ) -> bool {
        let FilterContext {
            connections,
            now_s,
            kept,
            effects,
            pool,
        } = context;
        let frames = self.received.len();
        let mut verdicts: Verdicts = [Verdict::Default(Action::Drop); BURST_MAX];
        let reasons = match connections {
            Some(stage) => stage.judge(self.received, rules, now_s, &mut verdicts),
            None => {
                let received = self.received.frames().zip(self.received.lengths());
                rules.judge(received, &mut verdicts)
            }
        };
        let dropped = reasons.sum();
        if self.telemetry.is_watched() {
            self.telemetry.filtered(self.received, &verdicts);
        }
        let has_effect =
            |verdict: &Verdict| verdict.rejects() || rules.statements(*verdict).is_some();
        if rules.has_effects() && verdicts.iter().take(frames).any(has_effect) {
            self.apply_effects(input, (rules, &verdicts), effects, pool, kept);
        }
        if dropped > 0 {
            let (octets, _) = measure(self.received);
            if dropped == frames {
                self.received.free();
            } else {
                for (frame, verdict) in self.received.drain().zip(verdicts) {
                    if verdict.accepts() {
                        // `kept` has space for a burst.
                        drop(kept.push(frame));
                    }
                }
                std::mem::swap(self.received, kept);
            }
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
                counters.rx_frames.add(dropped as u64);
                counters.rx_octets.add(octets - measure(self.received).0);
            }
        }
        self.telemetry.lap_of(Step::Filter, frames);
        dropped < frames
    }
}
