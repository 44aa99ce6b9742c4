// SPDX-License-Identifier: Apache-2.0
//! Arrival of segments (RFC 9293, section 3.10.7).

use super::ranges::Range;
use super::round_trip::RoundTrip;
use super::segment::{ACK, FIN, RST, SYN, Segment};
use super::{
    ACK_DUE, Ending, Environment, FIN_RECEIVED, STREAM_MAX, Sink, State, Tcp, count, microseconds,
};

/// Half of the sequence numbers: those behind a number, the others are ahead of it.
const HALF: u32 = 1 << 31;

/// Returns a difference of sequence numbers with its sign.
fn signed(difference: u32) -> i64 {
    i64::from(difference.cast_signed())
}

impl Tcp {
    /// Accepts a segment with its data. Returns the reset to send if the segment belongs to no connection.
    pub(crate) fn receive(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        data: &[u8],
        now: u64,
        sink: &mut impl Sink,
    ) -> Option<Segment> {
        match self.state {
            State::Closed(_) => segment.reset(length(data)),
            State::SynSent => self.receive_in_syn_sent(environment, segment, data, now),
            _ => self.receive_in_order(environment, segment, data, now, sink),
        }
    }

    fn receive_in_syn_sent(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        data: &[u8],
        now: u64,
    ) -> Option<Segment> {
        let is_acknowledged = segment.has(ACK);
        let acknowledged = segment.acknowledgement.wrapping_sub(self.iss);
        if is_acknowledged && (acknowledged != 1 || self.max == 0) {
            return segment.reset(length(data));
        }
        if segment.has(RST) {
            if is_acknowledged {
                self.end(environment, Ending::Refused);
            }
            return None;
        }
        if !segment.has(SYN) {
            count(&mut environment.counters.unexpected);
            return None;
        }
        self.synchronise(segment);
        if is_acknowledged {
            self.establish(environment, u32::from(segment.window), now);
            self.set(ACK_DUE);
        } else {
            // Both ends opened the connection (RFC 9293, section 3.5).
            self.state = State::SynReceived;
            self.nxt = 0;
        }
        None
    }

    /// Ends the handshake: the peer acknowledged the SYN.
    fn establish(&mut self, environment: &mut Environment<'_>, window: u32, now: u64) {
        self.state = State::Established;
        (self.una, self.nxt, self.max) = (1, 1, 1);
        (self.recover, self.retransmitted) = (1, 1);
        self.retries = 0;
        self.window = window;
        if self.timed == 1 {
            self.round_trip
                .measured(microseconds(now).wrapping_sub(self.timed_us));
        } else {
            self.round_trip = RoundTrip::AFTER_LOST_SYN;
        }
        self.timed = 0;
        self.begin_congestion_window();
        self.arm(environment.settings, now);
    }

    fn receive_in_order(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        data: &[u8],
        now: u64,
        sink: &mut impl Sink,
    ) -> Option<Segment> {
        let next = self.irs.wrapping_add(self.expected);
        let start = signed(segment.sequence.wrapping_sub(next));
        if !self.is_acceptable(environment, segment, data, start) {
            self.refuse(environment, segment, start, now);
            return None;
        }
        if segment.has(RST) {
            self.receive_reset(environment, start);
            return None;
        }
        if segment.has(SYN) {
            // A challenge (RFC 5961, section 4).
            self.set(ACK_DUE);
            return None;
        }
        if !segment.has(ACK) {
            return None;
        }
        let acknowledged = segment.acknowledgement.wrapping_sub(self.iss);
        if self.state == State::SynReceived {
            if acknowledged != 1 || self.max == 0 {
                return segment.reset(length(data));
            }
            let window = u32::from(segment.window) << self.shift;
            self.establish(environment, window, now);
        }
        if acknowledged > self.max && acknowledged < HALF {
            self.set(ACK_DUE);
            return None;
        }
        if acknowledged <= self.max {
            self.acknowledge(environment, segment, data.is_empty(), now);
        }
        self.note_fin_acknowledged(environment, now);
        if matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            self.receive_data(environment, data, start, now, sink);
            self.receive_fin(environment, segment, data, now);
        } else if !data.is_empty() || segment.has(FIN) {
            self.set(ACK_DUE);
        }
        None
    }

    /// Returns true if a segment is within the receive window (RFC 9293, section 3.4). `start` is its distance from the next position.
    fn is_acceptable(
        &self,
        environment: &Environment<'_>,
        segment: &Segment,
        data: &[u8],
        start: i64,
    ) -> bool {
        let window = i64::from(self.receive_window(environment.settings));
        let length = i64::from(length(data).saturating_add(segment.controls()));
        if length == 0 {
            (0..=window).contains(&start)
        } else {
            start < window && start.saturating_add(length) > 0
        }
    }

    /// Answers a segment outside the window.
    fn refuse(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        start: i64,
        now: u64,
    ) {
        count(&mut environment.counters.unexpected);
        if segment.has(RST) {
            return;
        }
        if self.state == State::SynReceived && segment.has(SYN) && start == -1 {
            // The peer did not receive the SYN.
            self.nxt = 0;
            return;
        }
        if self.state == State::TimeWait && segment.has(FIN) {
            self.arm(environment.settings, now);
        }
        self.set(ACK_DUE);
    }

    /// Accepts a reset only if it has the expected number (RFC 5961, section 3), and in TIME-WAIT none (RFC 1337).
    fn receive_reset(&mut self, environment: &mut Environment<'_>, start: i64) {
        match self.state {
            State::TimeWait => {}
            _ if start != 0 => self.set(ACK_DUE),
            State::SynReceived => self.end(environment, Ending::Refused),
            _ => self.end(environment, Ending::Reset),
        }
    }

    /// Changes the state if the peer has acknowledged the FIN.
    fn note_fin_acknowledged(&mut self, environment: &mut Environment<'_>, now: u64) {
        if self.una <= self.fin() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.arm(environment.settings, now);
            }
            State::Closing => {
                self.state = State::TimeWait;
                self.arm(environment.settings, now);
            }
            State::LastAck => self.end(environment, Ending::Complete),
            _ => {}
        }
    }

    fn receive_data(
        &mut self,
        environment: &mut Environment<'_>,
        data: &[u8],
        start: i64,
        now: u64,
        sink: &mut impl Sink,
    ) {
        if data.is_empty() {
            return;
        }
        self.set(ACK_DUE);
        let window = i64::from(self.receive_window(environment.settings));
        // The part within the window. `start` is less than the window, and the data end after 0.
        let skipped = usize::try_from(start.saturating_neg()).unwrap_or(0);
        let to_end = usize::try_from(window.saturating_sub(start)).unwrap_or(0);
        let kept = to_end.min(data.len());
        let Some(data) = data.get(skipped..kept).filter(|data| !data.is_empty()) else {
            count(&mut environment.counters.unexpected);
            return;
        };
        let ahead = u32::try_from(start.max(0)).unwrap_or(0);
        let position = self.expected.saturating_add(ahead);
        let end = position.saturating_add(length(data));
        if end > STREAM_MAX {
            // More than any conversation has: never acknowledged.
            count(&mut environment.counters.unexpected);
            return;
        }
        if position > self.expected {
            self.receive_beyond_gap(environment, position, data, sink);
            return;
        }
        if !sink.accept(position.saturating_sub(1), data) {
            return;
        }
        self.expected = end;
        if let Some(gaps) = environment.gaps.get_mut(self.gaps) {
            self.expected = gaps.received.absorb(end).max(end);
            environment.gaps.give_if_empty(&mut self.gaps);
        }
        if self.una == self.max {
            self.arm(environment.settings, now);
        }
    }

    fn receive_beyond_gap(
        &mut self,
        environment: &mut Environment<'_>,
        position: u32,
        data: &[u8],
        sink: &mut impl Sink,
    ) {
        count(&mut environment.counters.out_of_order);
        let range = Range {
            start: position,
            end: position.saturating_add(length(data)),
        };
        // Without space the data are dropped, and the peer sends them again.
        let Some(gaps) = environment.gaps.take(&mut self.gaps) else {
            return;
        };
        if let Some(received) = gaps.received.with(range)
            && sink.accept(position.saturating_sub(1), data)
        {
            gaps.received = received;
            gaps.recent = position;
        }
        environment.gaps.give_if_empty(&mut self.gaps);
    }

    fn receive_fin(
        &mut self,
        environment: &mut Environment<'_>,
        segment: &Segment,
        data: &[u8],
        now: u64,
    ) {
        if !segment.has(FIN) {
            return;
        }
        self.set(ACK_DUE);
        // Only if all data before it have arrived. The peer sends it again otherwise.
        let next = self.irs.wrapping_add(self.expected);
        let fin = segment.sequence.wrapping_add(length(data));
        if fin != next {
            return;
        }
        self.expected = self.expected.saturating_add(1);
        self.set(FIN_RECEIVED);
        self.state = match self.state {
            State::FinWait1 => State::Closing,
            State::FinWait2 => State::TimeWait,
            _ => State::CloseWait,
        };
        if self.state != State::Closing {
            self.arm(environment.settings, now);
        }
    }
}

/// Returns the number of octets of a segment's data. A frame has less than 2^16.
fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}
