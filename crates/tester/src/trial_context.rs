// SPDX-License-Identifier: Apache-2.0
//! Common data of the lanes of a trial, and their construction.

use std::sync::Arc;

use quietwire_dpdk::{Eal, Mempool};

use crate::backlog::Ring;
use crate::checksums::Checksums;
use crate::clock::ticks_per_second;
use crate::error::TesterError;
use crate::frame::{Epoch, FrameWriter, Varied, signature_place};
use crate::lane::{Lane, Rings, Role};
use crate::narrow::{self, whole};
use crate::received::{FrameIdentity, Received};
use crate::tester::{Ready, TesterPort, number_of, peer_of};
use crate::tracker::window_for;
use crate::trial::Trial;
use crate::trial_run::{Addressing, TrialProfile};
use crate::writer::{Described, Replayed, Share, Writer, tracked_flows};

/// Assumed rate of a port that sends as fast as possible, frames per second: its upper bound.
const UNPACED_RATE_PPS: f64 = 5e7;

/// Common data of all lanes of a trial.
pub(crate) struct TrialContext<'a> {
    pub(crate) eal: &'a Eal,
    pub(crate) pool: &'a Mempool,
    pub(crate) trial: &'a Trial,
    pub(crate) epoch: Epoch,
    pub(crate) profile: &'a TrialProfile,
    /// Number of ports that take part.
    pub(crate) ports: usize,
    /// Number of those ports that form pairs.
    pub(crate) paired: usize,
    pub(crate) ready: Option<&'a Ready>,
    /// Requested number of descriptors of each receive ring.
    pub(crate) receive_ring_size: u16,
    /// True if frames may be written and read where they lie in the rings.
    pub(crate) may_be_in_place: bool,
}

impl<'a> TrialContext<'a> {
    /// Creates the lanes of a port, one for each pair of its queues.
    pub(crate) fn lanes(
        &self,
        port: &'a mut TesterPort,
        index: usize,
    ) -> Result<Vec<Lane<'a>>, TesterError> {
        // DPDK numbers queues with 16 bits.
        let queues = port.port.rx.len().min(port.port.tx.len());
        let queues = u16::try_from(queues).unwrap_or(u16::MAX);
        if queues == 0 {
            return Err(TesterError::Result(format!("port {index} has no queues")));
        }
        if u32::from(queues) > self.flows() {
            return Err(TesterError::BadTrial(format!(
                "a port has {queues} queues and {} flows (use at least one flow per queue)",
                self.flows()
            )));
        }
        let handle = &port.port.handle;
        let rings = Rings {
            // A peer may have set another size.
            receive: Ring::new(
                handle.ring_sizes().0.unwrap_or(self.receive_ring_size),
                self.trial.frame_size_largest(),
            ),
            transmit: handle.ring_sizes().1.unwrap_or(0),
            drops_when_full: port.drops_when_full,
            may_be_in_place: self.may_be_in_place,
        };
        let pairs = port.port.rx.iter_mut().zip(&mut port.port.tx);
        let lanes = (0..queues).zip(pairs).map(|(queue, (rx, tx))| {
            let share = Share {
                index: queue,
                of: queues,
            };
            let role = Role {
                port: index,
                share: self
                    .trial
                    .share_of_port(index, self.profile.senders.count()),
                of_port: share,
                transmits: self.profile.senders.has(index),
                has_low_rate: queue == 0,
                burst: 0,
                arrival_rate_pps: self
                    .arrival_rate_pps(index)
                    .map(|rate_pps| rate_pps / f64::from(queues)),
            };
            Ok(Lane::new(
                self.eal,
                (rx, tx, handle),
                self.pool,
                rings,
                role,
                self.writer(index, share)?,
                self.received(index, queues),
            ))
        });
        lanes.collect()
    }

    fn flows(&self) -> u32 {
        let capture = self.ready.and_then(|ready| ready.capture.as_ref());
        match self.ready.and_then(|ready| ready.programs.first()) {
            _ if capture.is_some() => 1,
            Some(program) => program.flows(),
            None => u32::from(self.trial.flows),
        }
    }

    /// Returns the port whose frames count at a port.
    fn source_of(&self, index: usize) -> usize {
        if self.trial.reflected {
            index
        } else {
            peer_of(index, self.paired)
        }
    }

    /// Returns the highest rate of the frames that count at a port, frames per second; `None` if the trial has no rate.
    fn arrival_rate_pps(&self, index: usize) -> Option<f64> {
        let share = self
            .trial
            .share_of_port(self.source_of(index), self.profile.senders.count());
        Some(self.profile.pace.highest_rate_pps()? * share)
    }

    /// Returns the highest rate of a single flow, frames per second.
    fn flow_rate_pps(&self) -> f64 {
        let rate_pps = self.profile.pace.rate_pps().unwrap_or(UNPACED_RATE_PPS);
        let program = self.ready.and_then(|ready| ready.programs.first());
        if program.is_some() {
            // A description may draw one flow more often than others.
            rate_pps
        } else {
            rate_pps / f64::from(self.flows().max(1))
        }
    }

    fn received(&self, index: usize, queues: u16) -> Received {
        let program = self.ready.and_then(|ready| ready.programs.first());
        let place = program.map_or(signature_place(self.trial.ip), |program| program.place());
        let load_flows = tracked_flows(self.flows(), queues.into()) as usize;
        // The last one is the low-rate stream.
        let flows = load_flows.saturating_add(1);
        let pattern = self.ready.and_then(|ready| ready.pattern.clone());
        let checksums = match program {
            Some(program) => Checksums::new(program.covers().to_vec()),
            None => Checksums::of_plain(self.trial.ip),
        };
        let identity = FrameIdentity {
            place,
            flows,
            source: self.source_of(index),
            window: window_for(self.flow_rate_pps(), self.ports.saturating_mul(flows)),
            checksums,
            pattern,
            replayed: self
                .ready
                .and_then(|ready| ready.capture.clone())
                .map(|capture| (capture, peer_of(index, self.paired))),
        };
        let low_rate_frames = whole((self.trial.low_rate_pps * self.trial.duration_s).ceil());
        let low_rate_frames = low_rate_frames.saturating_add(2);
        Received::new(
            self.epoch,
            narrow::index(low_rate_frames),
            identity,
            self.ports,
            ticks_per_second(),
        )
    }

    fn writer(&self, index: usize, share: Share) -> Result<Writer, TesterError> {
        let port = number_of(index);
        if let Some(capture) = self.ready.and_then(|ready| ready.capture.clone()) {
            return Ok(Writer::Replayed(Replayed::new(capture)));
        }
        if let Some(ready) = self.ready {
            let program = ready.programs.get(index).map(Arc::clone);
            let program = program
                .ok_or_else(|| TesterError::Result(format!("port {index} has no frames")))?;
            return Ok(Writer::Described(Box::new(Described::new(
                program, port, share,
            ))));
        }
        let peer = peer_of(index, self.paired);
        // A port that only receives still sends its learning frames.
        let writer = FrameWriter::new(self.trial, port, number_of(peer), share)
            .map_err(|error| TesterError::BadTrial(error.to_string()))?;
        let sends = self.profile.senders.has(index);
        let writer = match self.profile.addressing {
            Addressing::AsAsked => writer,
            Addressing::FromMany(count) if sends => writer.varying(Varied::Source, count),
            Addressing::ToMany(count) if sends => writer.varying(Varied::Destination, count),
            // This port has the destination address of the frames.
            Addressing::FromMany(_) if index < self.paired => writer,
            Addressing::FromMany(_) | Addressing::ToMany(_) => writer.silent(),
        };
        Ok(Writer::Plain(Box::new(writer)))
    }
}
