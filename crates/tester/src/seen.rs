// SPDX-License-Identifier: Apache-2.0
//! What one port received in a trial.

use crate::frame::{Epoch, Signature, signature_place};
use crate::latency::{Delays, Recorder, Sample, Samples, Scale};
use crate::tracker::{Arrival, FlowTracker};
use crate::trial::Trial;

/// What a lane received.
#[derive(Debug)]
pub(crate) struct Seen {
    epoch: Epoch,
    /// Where frames have their signature.
    place: usize,
    scale: Scale,
    /// Flows of one port: those of the load, and the low-rate stream after them.
    pub(crate) flows: usize,
    /// By source port, then flow.
    pub(crate) trackers: Vec<FlowTracker>,
    pub(crate) latency: Recorder,
    pub(crate) delays: Delays,
    /// Of the low-rate streams.
    pub(crate) samples: Samples,
    pub(crate) foreign: u64,
    /// Frames of this trial's mark, of a port or flow that it has not.
    pub(crate) unknown: u64,
}

impl Seen {
    /// For a trial among `ports` ports.
    pub(crate) fn new(epoch: Epoch, trial: &Trial, ports: usize, ticks_per_second: u64) -> Self {
        let flows = usize::from(trial.flows) + 1;
        let low_rate_frames = (trial.low_rate_pps * trial.duration_s).ceil() as usize + 2;
        Self {
            epoch,
            place: signature_place(trial.ip),
            scale: Scale::new(ticks_per_second),
            flows,
            trackers: vec![FlowTracker::default(); ports * flows],
            latency: Recorder::default(),
            delays: Delays::new(ports * flows),
            samples: Samples::with_capacity(low_rate_frames * ports),
            foreign: 0,
            unknown: 0,
        }
    }

    /// Takes note of frames that arrived together at tick `now`.
    #[inline(always)]
    pub(crate) fn record<'frame>(&mut self, frames: impl Iterator<Item = &'frame [u8]>, now: u64) {
        // Frames of one transmit burst carry one time stamp: their latency is worked out and recorded once.
        let (mut stamp, mut delay_ns, mut count, mut even) = (now, 0, 0, 0);
        for frame in frames {
            let Some(signature) = Signature::read(frame, self.place)
                .filter(|signature| signature.epoch == self.epoch)
            else {
                self.foreign += u64::from(!Signature::is_of_warm_up(frame, self.place, self.epoch));
                continue;
            };
            let flow = usize::from(signature.flow);
            let index = usize::from(signature.port) * self.flows + flow;
            let Some(tracker) = self.trackers.get_mut(index).filter(|_| flow < self.flows) else {
                self.unknown += 1;
                continue;
            };
            let arrival = tracker.record(signature.sequence);
            if arrival == Arrival::Duplicate {
                continue;
            }
            if signature.tick != stamp {
                if count > 0 {
                    self.latency.record(delay_ns, count);
                }
                (stamp, count) = (signature.tick, 0);
                delay_ns = self.scale.ns(now.saturating_sub(stamp));
            }
            count += 1;
            if flow + 1 == self.flows {
                self.samples.add(Sample {
                    port: signature.port,
                    sequence: signature.sequence,
                    delay_ns,
                });
            } else {
                even += self
                    .delays
                    .record(index, tracker, signature.sequence, arrival, delay_ns);
            }
        }
        if count > 0 {
            self.latency.record(delay_ns, count);
        }
        self.delays.record_even(even);
    }
}
