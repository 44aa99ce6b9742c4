// SPDX-License-Identifier: Apache-2.0
//! Execution of filter verdicts, before any other stage processes a burst.

use quietwire_dpdk::{BURST_MAX, Burst};

use super::connections::ConnectionStage;
use super::lengths::measure;
use super::path::Path;
use crate::config::rules::Action;
use crate::counters::Step;
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{PortRules, Verdict, Verdicts};

impl Path<'_> {
    /// Drops the malformed frames of a burst, those that the rules refuse, and the first ones of connections for which there is no space.
    /// Returns false if no frame is left. `kept` is empty before and after.
    #[inline(never)]
    pub(super) fn filter(
        &mut self,
        input: usize,
        rules: &PortRules,
        (connections, now_s): (Option<&mut ConnectionStage>, u32),
        kept: &mut Burst,
    ) -> bool {
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
