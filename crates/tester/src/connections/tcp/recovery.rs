// SPDX-License-Identifier: Apache-2.0
//! Acknowledgements, losses and congestion (RFC 5681, RFC 6582, RFC 6675).

use super::ranges::{Range, Ranges};
use super::segment::Segment;
use super::{
    CONGESTION_WINDOW_MAX, Environment, RECOVERY, RETRANSMIT_DUE, SACK, SYN_LOST, Tcp, count,
    microseconds,
};

/// Duplicate acknowledgements that indicate a loss (RFC 5681, section 3.2).
const DUPLICATES: u8 = 3;
/// Initial window (RFC 6928, section 2): segments, and octets.
const INITIAL_SEGMENTS: u32 = 10;
const INITIAL_OCTETS: u32 = 14_600;

impl Tcp {
    /// Sets the initial congestion window: one segment if the SYN was lost (RFC 5681, section 3.1).
    pub(super) fn begin_congestion_window(&mut self) {
        let segment = u32::from(self.segment_max);
        self.congestion_window = if self.has(SYN_LOST) {
            segment
        } else {
            let two_segments = segment.saturating_mul(2);
            let segments = segment.saturating_mul(INITIAL_SEGMENTS);
            segments.min(INITIAL_OCTETS.max(two_segments))
        };
    }

    /// Records an acknowledgement, which is not beyond the sent data.
    pub(super) fn acknowledge(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        is_empty: bool,
        now: u64,
    ) {
        let position = segment.acknowledgement.wrapping_sub(self.iss);
        let window = u32::from(segment.window) << self.shift;
        let has_news = self.note_blocks(environment, segment, position);
        if position > self.una {
            self.window = window;
            self.advance(environment, position, now);
        } else if position == self.una {
            let is_update = window > self.window;
            if is_update {
                self.note_window(environment, window, now);
            }
            let is_duplicate = has_news || (is_empty && !is_update && !self.has(SACK));
            if is_duplicate && self.una < self.max {
                self.note_duplicate(environment);
            }
            if self.is_blocked() {
                // The peer is alive and keeps its window shut (RFC 9293, section 3.8.6.1).
                let last = environment.settings.retries.saturating_sub(1);
                self.retries = self.retries.min(last);
            }
        }
        environment.gaps.give_if_empty(&mut self.gaps);
    }

    /// Opens the window.
    fn note_window(&mut self, environment: &Environment<'_>, window: u32, now: u64) {
        self.window = window;
        if self.una == self.max {
            self.retries = 0;
            self.arm(environment.settings, now);
        }
    }

    /// Records the blocks that the peer received beyond a gap. Returns whether they contain something new.
    fn note_blocks(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        acknowledged: u32,
    ) -> bool {
        let blocks = &segment.options.blocks;
        if blocks.is_empty() || !self.has(SACK) {
            return false;
        }
        let (iss, max, first) = (self.iss, self.max, self.una.max(acknowledged));
        let ranges = blocks.iter().map(|(start, end)| Range {
            start: start.wrapping_sub(iss),
            end: end.wrapping_sub(iss),
        });
        // Others are of the past (RFC 2883), or of no stream of this end.
        let is_valid =
            |range: &Range| first < range.start && range.start < range.end && range.end <= max;
        let mut valid = ranges.filter(is_valid).peekable();
        if valid.peek().is_none() {
            return false;
        }
        let Some(gaps) = environment.gaps.take(&mut self.gaps) else {
            // Without space, blocks count as plain duplicates.
            return true;
        };
        let before = gaps.sacked;
        for range in valid {
            if !gaps.sacked.insert(range) {
                make_space(&mut gaps.sacked, range);
            }
        }
        gaps.sacked != before
    }

    /// Takes an acknowledgement of new data.
    fn advance(&mut self, environment: &mut Environment<'_>, position: u32, now: u64) {
        let acknowledged = position.saturating_sub(self.una);
        self.una = position;
        self.nxt = self.nxt.max(position);
        self.retries = 0;
        self.retransmitted = self.retransmitted.max(position);
        if let Some(gaps) = environment.gaps.get_mut(self.gaps) {
            gaps.sacked.remove_before(position);
        }
        if self.timed != 0 && position >= self.timed {
            self.round_trip
                .measured(microseconds(now).wrapping_sub(self.timed_us));
            self.timed = 0;
        }
        if !self.has(RECOVERY) {
            self.duplicates = 0;
            self.grow(acknowledged);
        } else if position >= self.recover {
            self.take(RECOVERY);
            self.take(RETRANSMIT_DUE);
            self.duplicates = 0;
            self.congestion_window = self.slow_start_threshold;
        } else if !self.has(SACK) {
            // A partial acknowledgement (RFC 6582, section 3.2, step 3).
            let segment = u32::from(self.segment_max);
            let deflated = self.congestion_window.saturating_sub(acknowledged);
            self.congestion_window = deflated.saturating_add(segment).max(segment);
            self.set(RETRANSMIT_DUE);
        }
        self.arm(environment.settings, now);
    }

    /// Enlarges the congestion window (RFC 5681, section 3.1).
    fn grow(&mut self, acknowledged: u32) {
        let segment = u32::from(self.segment_max);
        let window = self.congestion_window.max(segment);
        let more = if window < self.slow_start_threshold {
            acknowledged.min(segment)
        } else {
            let square = segment.saturating_mul(segment);
            square.checked_div(window).unwrap_or(0).max(1)
        };
        self.congestion_window = window.saturating_add(more).min(CONGESTION_WINDOW_MAX);
    }

    /// Takes a duplicate acknowledgement, or one with new blocks.
    fn note_duplicate(&mut self, environment: &Environment<'_>) {
        self.duplicates = self.duplicates.saturating_add(1);
        let sacked = environment.gaps.get(self.gaps).map(|gaps| gaps.sacked);
        if self.has(RECOVERY) {
            if sacked.is_none_or(|sacked| sacked.is_empty()) {
                // A segment has left the network (RFC 5681, section 3.2, step 4).
                let segment = u32::from(self.segment_max);
                let inflated = self.congestion_window.saturating_add(segment);
                self.congestion_window = inflated.min(CONGESTION_WINDOW_MAX);
            }
            return;
        }
        // Duplicates of what was sent before the last loss prove nothing (RFC 6582, section 3.2, step 2).
        let is_lost = sacked.is_some_and(|sacked| self.is_lost(&sacked, self.una));
        if (self.duplicates < DUPLICATES && !is_lost) || self.una < self.recover {
            return;
        }
        let segment = u32::from(self.segment_max);
        self.slow_start_threshold = self.half_of_flight();
        self.congestion_window = self.slow_start_threshold;
        if sacked.is_none_or(|sacked| sacked.is_empty()) {
            let left = segment.saturating_mul(DUPLICATES.into());
            self.congestion_window = self.congestion_window.saturating_add(left);
        }
        self.recover = self.max;
        self.retransmitted = self.una;
        self.set(RECOVERY);
        self.set(RETRANSMIT_DUE);
    }

    /// Returns half of what is in flight, and at least two segments (RFC 5681, section 3.1, equation 4).
    fn half_of_flight(&self) -> u32 {
        let half = self.max.saturating_sub(self.una) / 2;
        half.max(u32::from(self.segment_max).saturating_mul(2))
    }

    /// Begins again at the first unacknowledged position after a timeout (RFC 5681, section 3.1; RFC 2018, section 8).
    pub(super) fn go_back(&mut self, environment: &mut Environment<'_>) {
        count(&mut environment.counters.timeouts);
        let segment = u32::from(self.segment_max);
        if self.retries == 1 {
            self.slow_start_threshold = self.half_of_flight();
        }
        self.congestion_window = segment;
        self.nxt = self.una;
        self.recover = self.max;
        self.retransmitted = self.una;
        self.duplicates = 0;
        self.timed = 0;
        self.take(RECOVERY);
        self.take(RETRANSMIT_DUE);
        if let Some(gaps) = environment.gaps.get_mut(self.gaps) {
            gaps.sacked = Ranges::default();
        }
        environment.gaps.give_if_empty(&mut self.gaps);
    }

    /// Returns true if enough beyond a position has arrived for it to count as lost (`IsLost` of RFC 6675, section 4).
    pub(super) fn is_lost(&self, sacked: &Ranges, position: u32) -> bool {
        let beyond = || sacked.iter().filter(|range| range.start > position);
        let octets: u32 = beyond().map(|range| range.length()).sum();
        let threshold = u32::from(self.segment_max).saturating_mul(u32::from(DUPLICATES - 1));
        octets > threshold || beyond().count() >= usize::from(DUPLICATES)
    }

    /// Returns the octets that the congestion window permits to send.
    pub(super) fn space(&self, environment: &Environment<'_>) -> u32 {
        let in_flight = self.in_flight(environment);
        self.congestion_window.saturating_sub(in_flight)
    }

    /// Returns the estimate of the octets in the network (`SetPipe` of RFC 6675, section 4).
    fn in_flight(&self, environment: &Environment<'_>) -> u32 {
        let Some(gaps) = environment.gaps.get(self.gaps) else {
            return self.nxt.saturating_sub(self.una);
        };
        let sacked = &gaps.sacked;
        if !self.has(RECOVERY) {
            let arrived = sacked.iter().map(|range| {
                let end = range.end.min(self.nxt);
                end.saturating_sub(range.start)
            });
            let sent = self.nxt.saturating_sub(self.una);
            return sent.saturating_sub(arrived.sum());
        }
        let of_hole = |start: u32, end: u32| {
            let again = self.retransmitted.clamp(start, end).saturating_sub(start);
            let first = if self.is_lost(sacked, start) {
                0
            } else {
                end.saturating_sub(start)
            };
            first.saturating_add(again)
        };
        let (mut octets, mut start) = (0_u32, self.una);
        for range in sacked.iter() {
            let end = range.start.max(start);
            octets = octets.saturating_add(of_hole(start, end));
            start = range.end.max(start);
        }
        octets.saturating_add(self.nxt.saturating_sub(start))
    }
}

/// Adds a range in place of the last one if it is before it: holes are repaired from the lowest on.
fn make_space(sacked: &mut Ranges, range: Range) {
    let last = sacked.iter().next_back();
    if last.is_some_and(|last| range.start < last.start) {
        sacked.remove_last();
        // There is space now.
        let _ = sacked.insert(range);
    }
}
