// SPDX-License-Identifier: Apache-2.0
//! Effects of filter rules on a burst: log, copies to other ports, changed headers, answers to rejected frames.

use std::time::Duration;

use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool, cycles};
use quietwire_tables::filter::{
    Action, Continued, MssLimit, PortRules, RejectWith, Rejection, RuleEffect, RuleEffects,
    RuleLog, Statements, ThreadFrames, Verdict, Verdicts, clamp_mss, clamp_mss_to_mtu, set_dscp,
};
use quietwire_tables::icmp::{ERRORS_PER_SECOND, RateLimit};
use rtrb::Producer;
use std::sync::Arc;

use super::link_mtus::LinkMtus;
use super::output::Output;
use super::telemetry::Telemetry;
use crate::filter_log::LogRecord;

/// Counters of rules, ring of the log, rate limit of answers, and copies of frames that leave, of one thread.
#[derive(Debug)]
pub(crate) struct Effects {
    /// Frames of rules.
    pub(super) frames: ThreadFrames,
    log: Producer<LogRecord>,
    answers: RateLimit,
    /// Empty between two steps.
    copies: Burst,
    /// Number of the port that gets each copy.
    copy_ports: [u16; BURST_MAX],
}

impl Effects {
    pub(crate) fn new(frames: ThreadFrames, log: Producer<LogRecord>, eal: &Eal) -> Self {
        Self {
            frames,
            log,
            answers: RateLimit::new(ERRORS_PER_SECOND),
            copies: Burst::new(eal),
            copy_ports: [0; BURST_MAX],
        }
    }

    /// Returns true if there are copies of frames that leave.
    #[inline(always)]
    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Removes all copies of frames that leave, each with the number of its port.
    pub(super) fn take_copies(&mut self) -> impl Iterator<Item = (Mbuf<'_>, u16)> {
        self.copies.drain().zip(self.copy_ports)
    }

    /// Copies a frame that leaves for another port. Returns false without a buffer, or without space.
    fn copy(&mut self, frame: &Mbuf<'_>, port: u16, pool: &Mempool) -> bool {
        match (self.copy_ports.get_mut(self.copies.len()), frame.copy(pool)) {
            (Some(place), Some(copy)) => {
                *place = port;
                self.copies.push(copy).is_ok()
            }
            _ => false,
        }
    }

    /// Logs a frame of a port.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of ports have 16 bits"
    )]
    pub(super) fn log(
        &mut self,
        log: &Arc<RuleLog>,
        action: Action,
        port: usize,
        frame: &Mbuf<'_>,
    ) -> RuleEffect {
        let record = LogRecord::new(log, action, port as u16, (frame.octets(), frame.length()));
        match self.log.push(record) {
            Ok(()) => RuleEffect::Logged,
            Err(_) => RuleEffect::LogLost,
        }
    }

    /// Answers a rejected frame, by the port that received it, with this error or the default answer.
    pub(super) fn reject(
        &mut self,
        outputs: &mut [Option<Box<Output>>],
        input: usize,
        (frame, with): (&Mbuf<'_>, Option<RejectWith>),
        pool: &Mempool,
    ) -> RuleEffect {
        let to_cut = frame.segment_size().map(|_| frame.length() as usize);
        let Some(rejection) = Rejection::of(frame.octets(), to_cut, with) else {
            return RuleEffect::RejectUnanswerable;
        };
        if !self.answers.take(now()) {
            return RuleEffect::RejectLimited;
        }
        let length = u16::try_from(rejection.frame_length()).ok();
        let answer = length.and_then(|length| frame.sibling(pool, length));
        let answer = answer.and_then(|mut answer| {
            let is_written = rejection.write(frame.octets(), answer.octets_mut()?);
            is_written.then_some(answer)
        });
        match (put(outputs, input, answer), rejection.is_reset()) {
            (true, true) => RuleEffect::TcpReset,
            (true, false) => RuleEffect::IcmpError,
            (false, _) => RuleEffect::RejectUnsent,
        }
    }

    /// Logs, copies and changes frames that leave, before any is dropped. `spare` is empty before and after. Returns the counts, without
    /// those of copies.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most one for each frame and rule of a burst"
    )]
    #[inline(never)]
    pub(super) fn leave(
        &mut self,
        egress: Egress<'_>,
        (rules, verdicts, continued): (&PortRules, &Verdicts, Option<&Continued>),
        (burst, spare): (&mut Burst, &mut Burst),
        pool: &Mempool,
        telemetry: &mut Telemetry,
    ) -> RuleEffects {
        let mut counts = RuleEffects::default();
        for (number, (mut frame, verdict)) in burst.drain().zip(verdicts).enumerate() {
            for (statements, action) in statements_of(rules, (*verdict, number), continued) {
                if let Some(log) = &statements.log
                    && log.samples()
                {
                    counts[self.log(log, action, egress.output, &frame)] += 1;
                }
                if let Some(port) = statements.dup
                    && usize::from(port) != egress.output
                    && !self.copy(&frame, port, pool)
                {
                    counts[RuleEffect::NotDuplicated] += 1;
                }
                if statements.changes_frames() && verdict.accepts() {
                    let egress = Some(egress);
                    frame = changed(frame, (statements, egress), pool, telemetry, &mut counts);
                }
            }
            // `spare` has space for a burst.
            drop(spare.push(frame));
        }
        std::mem::swap(burst, spare);
        counts
    }
}

/// Ports of frames that leave, and the MTUs of their links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egress<'rules> {
    /// Number of the port that they leave by.
    pub(super) output: usize,
    /// Number of the port that received them, if any did.
    pub(super) from: Option<u16>,
    /// MTUs of the links.
    pub(super) mtus: &'rules LinkMtus,
}

/// Lowers the maximum segment size of a frame. The limit of the MTU requires the egress of the frame.
fn limit_mss(octets: &mut [u8], limit: MssLimit, egress: Option<Egress<'_>>) -> bool {
    match limit {
        MssLimit::Octets(mss) => clamp_mss(octets, mss),
        MssLimit::RtMtu => egress.is_some_and(|egress| {
            clamp_mss_to_mtu(octets, |vlan| {
                egress.mtus.of_path(egress.output, vlan, egress.from)
            })
        }),
    }
}

/// Returns the statements for the frame with this number in a burst, in the order of their rules, each with the action of the rule.
pub(super) fn statements_of<'rules>(
    rules: &'rules PortRules,
    (verdict, number): (Verdict, usize),
    continued: Option<&'rules Continued>,
) -> impl Iterator<Item = (&'rules Statements, Action)> {
    let passed = continued.map_or(&[][..], |continued| continued.of(number));
    let passed = passed.iter().filter_map(move |rule| {
        let statements = rules.statements_of(*rule)?;
        Some((statements, Action::Continue))
    });
    let action = match verdict {
        Verdict::Rule(_, action) => action,
        Verdict::Held(_) => Action::Accept,
        _ => Action::Drop,
    };
    let own = rules.statements(verdict);
    passed.chain(own.map(|statements| (statements, action)))
}

/// Returns the time of the time stamp counter.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the frequency is not 0, and the remainder is less than a second"
)]
fn now() -> Duration {
    let (ticks, hz) = (cycles::now(), cycles::hz().max(1));
    let nanoseconds = (ticks % hz).saturating_mul(1_000_000_000) / hz;
    Duration::from_secs(ticks / hz) + Duration::from_nanos(nanoseconds)
}

/// Adds a frame to the burst of a port. Returns false if there is no frame, no such output or no space.
pub(super) fn put(
    outputs: &mut [Option<Box<Output>>],
    port: usize,
    frame: Option<Mbuf<'_>>,
) -> bool {
    match (outputs.get_mut(port), frame) {
        (Some(Some(place)), Some(frame)) => place.waiting.push(frame).is_ok(),
        _ => false,
    }
}

/// Changes a frame as a rule says, given its egress if it leaves. A shared frame is copied first.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "at most one for each frame and rule of a burst"
)]
pub(super) fn changed<'eal>(
    mut frame: Mbuf<'eal>,
    (statements, egress): (&Statements, Option<Egress<'_>>),
    pool: &Mempool,
    telemetry: &mut Telemetry,
    counts: &mut RuleEffects,
) -> Mbuf<'eal> {
    if frame.front_mut().is_none()
        && let Some(copy) = frame.copy(pool)
    {
        telemetry.copied(frame.buffer(), copy.buffer());
        frame = copy;
    }
    // The checksum of TCP data that will be segmented is not complete, so an update would be wrong. Such data has no SYN.
    let is_whole = frame.segment_size().is_none();
    let Some(octets) = frame.front_mut() else {
        counts[RuleEffect::NotChanged] += 1;
        return frame;
    };
    if let Some(dscp) = statements.dscp {
        counts[RuleEffect::DscpSet] += u64::from(set_dscp(octets, dscp.0));
    }
    if let Some(limit) = statements.mss.filter(|_| is_whole) {
        counts[RuleEffect::MssClamped] += u64::from(limit_mss(octets, limit, egress));
    }
    frame
}
