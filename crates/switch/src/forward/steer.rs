// SPDX-License-Identifier: Apache-2.0
//! Execution of steering rules, before any other stage processes a burst.

use quietwire_dpdk::{BURST_MAX, Burst};

use super::lengths::measure;
use super::path::Path;
use super::stage::SteeredStage;
use crate::counters::Step;
use quietwire_tables::drops::PortDrop;

impl Path<'_> {
    /// Sends the frames for the kernel to its port. Returns false if no frame is left. `kept` is empty before and after.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the burst has fewer octets after frames are taken out"
    )]
    #[inline(never)]
    pub(super) fn steer(&mut self, input: usize, stage: &SteeredStage, kept: &mut Burst) -> bool {
        let frames = self.received.len();
        if self.leaving.compared().is_some() {
            // Frames for the kernel pass no rules of received frames, so no connection is known.
            self.received.set_classes(std::iter::repeat(0));
        }
        let mut is_for_kernel = [false; BURST_MAX];
        let for_kernel = stage
            .rules
            .judge(self.received.frames(), &mut is_for_kernel);
        self.telemetry.lap_of(Step::Filter, frames);
        if for_kernel == 0 {
            return true;
        }
        if for_kernel == frames {
            self.cross_connect(input, stage.kernel);
            return false;
        }
        let (octets, _) = measure(self.received);
        let mut output = self.outputs.get_mut(stage.kernel).and_then(Option::as_mut);
        let has_output = output.is_some();
        for (frame, is_for_kernel) in self.received.drain().zip(is_for_kernel) {
            // Both have space for a burst. Without output, the frame is dropped.
            match (is_for_kernel, &mut output) {
                (false, _) => drop(kept.push(frame)),
                (true, Some(place)) => drop(place.waiting.push(frame)),
                (true, None) => drop(frame),
            }
        }
        std::mem::swap(self.received, kept);
        // The next stage counts its frames.
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(for_kernel as u64);
            counters.rx_octets.add(octets - measure(self.received).0);
            if !has_output {
                counters.dropped(PortDrop::NoOutput).add(for_kernel as u64);
            }
        }
        self.flush(stage.kernel);
        true
    }
}
