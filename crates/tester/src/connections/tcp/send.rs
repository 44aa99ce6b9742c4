// SPDX-License-Identifier: Apache-2.0
//! Choice of the next segment to send (RFC 9293, section 3.8; RFC 6675, section 4).

use super::ranges::Range;
use super::segment::{ACK, FIN, Options, PSH, RST, SYN, Segment};
use super::{
    ACK_DUE, Environment, FIN_WANTED, PROBE_DUE, RECOVERY, RESET_DUE, RETRANSMIT_DUE, SACK, SCALED,
    Settings, State, Tcp, count, microseconds,
};

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) segment: Segment,
    /// Offset of its data in the stream.
    pub(crate) offset: u32,
    /// Length of its data, octets.
    pub(crate) length: u16,
}

impl Tcp {
    /// Returns the next segment to send now; `None` if none is due. The caller sends it: it is not returned again.
    pub(crate) fn next(&mut self, environment: &mut Environment<'_>, now: u64) -> Option<Outgoing> {
        let segment = match self.state {
            State::Closed(_) => {
                let is_due = self.take(RESET_DUE) && self.max > 0;
                return is_due.then(|| self.without_data(environment, RST | ACK));
            }
            State::SynSent | State::SynReceived if self.nxt == 0 => {
                Some(self.synchronisation(environment, now))
            }
            State::SynSent | State::SynReceived => None,
            _ => self.next_of_stream(environment, now),
        };
        segment.or_else(|| {
            let is_due = self.take(ACK_DUE);
            is_due.then(|| self.without_data(environment, ACK))
        })
    }

    /// Returns the SYN, with an acknowledgement from the passive end.
    fn synchronisation(&mut self, environment: &mut Environment<'_>, now: u64) -> Outgoing {
        let settings = environment.settings;
        let is_active = self.state == State::SynSent;
        let options = Options {
            segment_max: Some(settings.segment_max),
            shift: (is_active || self.has(SCALED)).then(|| settings.shift()),
            permits_sack: is_active || self.has(SACK),
            ..Options::default()
        };
        if self.max > 0 {
            count(&mut environment.counters.retransmitted);
            self.timed = 0;
        } else {
            (self.timed, self.timed_us) = (1, microseconds(now));
        }
        (self.nxt, self.max) = (1, 1);
        self.take(ACK_DUE);
        let acknowledgement = self.irs.wrapping_add(self.expected);
        Outgoing {
            segment: Segment {
                sequence: self.iss,
                acknowledgement: if is_active { 0 } else { acknowledgement },
                flags: if is_active { SYN } else { SYN | ACK },
                // Windows of a SYN are not scaled (RFC 7323, section 2.2).
                window: u16::try_from(settings.window).unwrap_or(u16::MAX),
                options,
            },
            offset: 0,
            length: 0,
        }
    }

    fn next_of_stream(&mut self, environment: &mut Environment<'_>, now: u64) -> Option<Outgoing> {
        if self.take(PROBE_DUE) {
            // Below the window, so that the peer answers with its window.
            let mut probe = self.without_data(environment, ACK);
            probe.segment.sequence = probe.segment.sequence.wrapping_sub(1);
            return Some(probe);
        }
        // A segment with data has no space for blocks, so they go first.
        if self.has(ACK_DUE) && !self.blocks(environment).blocks.is_empty() {
            return Some(self.without_data(environment, ACK));
        }
        if self.take(RETRANSMIT_DUE) && self.una < self.max {
            let range = self.first_unacknowledged(environment);
            return Some(self.transmit(environment, range, now));
        }
        if let Some(range) = self.hole(environment, true) {
            return Some(self.transmit(environment, range, now));
        }
        let range = self
            .new_range(environment)
            .or_else(|| self.hole(environment, false))?;
        Some(self.transmit(environment, range, now))
    }

    /// Returns the first segment that is not acknowledged.
    fn first_unacknowledged(&self, environment: &Environment<'_>) -> Range {
        let sacked = environment.gaps.get(self.gaps);
        let sacked = sacked.and_then(|gaps| gaps.sacked.iter().next());
        let end = self
            .una
            .saturating_add(u32::from(self.segment_max))
            .min(self.fin())
            .min(sacked.map_or(u32::MAX, |range| range.start));
        Range {
            start: self.una,
            end: end.max(self.una),
        }
    }

    /// Returns the next range that the recovery retransmits: one that counts as lost, or any before the highest that the peer reported
    /// (`NextSeg` of RFC 6675, section 4, rules 1 and 3).
    fn hole(&self, environment: &Environment<'_>, only_lost: bool) -> Option<Range> {
        if !self.has(RECOVERY) {
            return None;
        }
        let sacked = &environment.gaps.get(self.gaps)?.sacked;
        let segment_max = u32::from(self.segment_max);
        if self.space(environment) < segment_max {
            return None;
        }
        let mut start = self.retransmitted.max(self.una);
        for range in sacked.iter() {
            if start < range.start {
                let is_due = !only_lost || self.is_lost(sacked, start);
                let end = range.start.min(start.saturating_add(segment_max));
                return is_due.then_some(Range { start, end });
            }
            start = start.max(range.end);
        }
        None
    }

    /// Returns the next range that was not sent, or not since the last timeout.
    fn new_range(&self, environment: &Environment<'_>) -> Option<Range> {
        // After a timeout, data that the peer has reported is not sent again.
        let (mut start, mut stop) = (self.nxt, u32::MAX);
        let gaps = environment.gaps.get(self.gaps);
        for range in gaps.iter().flat_map(|gaps| gaps.sacked.iter()) {
            if range.start > start {
                stop = range.start;
                break;
            }
            start = start.max(range.end);
        }
        let pending = self.fin().saturating_sub(start);
        if pending == 0 {
            let is_fin_due = self.has(FIN_WANTED) && start == self.fin() && self.window > 0;
            return is_fin_due.then_some(Range { start, end: start });
        }
        let segment_max = u32::from(self.segment_max);
        let window_end = self.una.saturating_add(self.window);
        let in_window = window_end.saturating_sub(start);
        let whole = pending.min(segment_max).min(stop.saturating_sub(start));
        let length = whole.min(in_window);
        // Small segments only at the end, or if nothing else will open the window (RFC 9293, section 3.8.6.2.1).
        let is_worth_it = length == whole || start == self.una;
        let is_allowed = length > 0 && is_worth_it && self.space(environment) >= length;
        is_allowed.then_some(Range {
            start,
            end: start.saturating_add(length),
        })
    }

    /// Returns a segment with a range of the stream, and the FIN if it follows.
    fn transmit(&mut self, environment: &mut Environment<'_>, range: Range, now: u64) -> Outgoing {
        let length = range.length();
        let Range { start, mut end } = range;
        let mut flags = ACK;
        if end == self.fin() {
            if length > 0 {
                flags |= PSH;
            }
            if self.has(FIN_WANTED) {
                flags |= FIN;
                end = end.saturating_add(1);
                self.state = match self.state {
                    State::Established => State::FinWait1,
                    State::CloseWait => State::LastAck,
                    other => other,
                };
            }
        }
        let was_quiet = self.una == self.max;
        if start < self.max {
            count(&mut environment.counters.retransmitted);
            // Karn's algorithm (RFC 6298, section 3).
            self.timed = 0;
        } else if self.timed == 0 {
            (self.timed, self.timed_us) = (end, microseconds(now));
        }
        if self.has(RECOVERY) && start < self.max {
            self.retransmitted = self.retransmitted.max(end);
        }
        self.nxt = self.nxt.max(end);
        self.max = self.max.max(end);
        if was_quiet {
            self.arm(environment.settings, now);
        }
        let mut outgoing = self.without_data(environment, flags);
        outgoing.segment.sequence = self.iss.wrapping_add(start);
        outgoing.segment.options = Options::default();
        outgoing.offset = start.saturating_sub(1);
        outgoing.length = u16::try_from(length).unwrap_or(u16::MAX);
        outgoing
    }

    /// Returns a segment without data after all that was sent, so that it is in order even after a timeout. It has an acknowledgement
    /// and the blocks received beyond gaps.
    fn without_data(&mut self, environment: &Environment<'_>, flags: u8) -> Outgoing {
        self.take(ACK_DUE);
        let settings = environment.settings;
        Outgoing {
            segment: Segment {
                sequence: self.iss.wrapping_add(self.max),
                acknowledgement: self.irs.wrapping_add(self.expected),
                flags,
                window: self.window_field(settings),
                options: self.blocks(environment),
            },
            offset: 0,
            length: 0,
        }
    }

    fn window_field(&self, settings: &Settings) -> u16 {
        let shift = if self.has(SCALED) {
            settings.shift()
        } else {
            0
        };
        u16::try_from(settings.window >> shift).unwrap_or(u16::MAX)
    }

    /// Returns the blocks received beyond gaps, beginning with the one that was received last (RFC 2018, section 4).
    fn blocks(&self, environment: &Environment<'_>) -> Options {
        let mut options = Options::default();
        let gaps = environment.gaps.get(self.gaps);
        let Some(gaps) = gaps.filter(|_| self.has(SACK)) else {
            return options;
        };
        let is_recent = |range: &Range| (range.start..range.end).contains(&gaps.recent);
        let recent = gaps.received.iter().filter(is_recent);
        let others = gaps.received.iter().filter(|range| !is_recent(range));
        for range in recent.chain(others) {
            let number = |position: u32| self.irs.wrapping_add(position);
            options
                .blocks
                .push((number(range.start), number(range.end)));
        }
        options
    }
}
