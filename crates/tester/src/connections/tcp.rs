// SPDX-License-Identifier: Apache-2.0
//! One end of a TCP connection (RFC 9293), as a state machine without clock and input: it accepts segments, and returns the segments to
//! send.
//!
//! Payload is not stored: the sender of a stream knows each octet by its offset, and the receiver checks octets when they arrive, in
//! order or not. So the state is small, and only connections with a gap use more (the pool of gaps).
//!
//! Positions in a stream are relative to the initial sequence number of its sender: the SYN is at 0, the first octet at 1, the FIN after
//! the last octet. Streams are shorter than 2^30 octets, so positions are compared as plain numbers.
//!
//! Retransmission: RFC 6298. Congestion: RFC 5681, RFC 6582, RFC 6675 (SACK, RFC 2018). Windows: RFC 7323. Resets: RFC 5961. Every
//! segment with data is acknowledged, because the ends answer at once (RFC 9293, section 3.8.6.3, recommends a delay). There are no time
//! stamps, no urgent data, no keep-alive.

#[cfg(test)]
mod fuzzed;
mod gaps;
mod ranges;
mod receive;
mod recovery;
mod round_trip;
mod segment;
mod send;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use fuzzed::feed;
pub(crate) use gaps::GapPool;
pub(crate) use segment::{ACK, HEADER_MAX, RST, SYN, Segment};
pub(crate) use send::Outgoing;

use super::count;
use gaps::GapIndex;
use round_trip::RoundTrip;

/// Longest stream of one end, octets.
pub(crate) const STREAM_MAX: u32 = 1 << 30;
/// Largest receive window: the largest scaled window (RFC 7323, section 2.3), octets.
pub(crate) const WINDOW_MAX: u32 = 65_535 << 14;
/// Smallest segment that the end sends if more is due, octets of data: a smaller maximum of the peer is ignored.
const SEGMENT_MIN: u16 = 64;
/// Maximum segment size of a peer that does not announce one (RFC 9293, section 3.7.1), octets.
const SEGMENT_DEFAULT: u16 = 536;
/// Largest congestion window, octets.
const CONGESTION_WINDOW_MAX: u32 = 1 << 28;

/// Settings that all connections of an end share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Largest segment, octets of data.
    pub(crate) segment_max: u16,
    /// Receive window, octets, at most [`WINDOW_MAX`].
    pub(crate) window: u32,
    /// Smallest and largest retransmission timeout, nanoseconds.
    pub(crate) timeout_ns: (u64, u64),
    /// Retransmissions of a SYN before the connection fails.
    pub(crate) syn_retries: u8,
    /// Retransmissions of other segments before the connection fails.
    pub(crate) retries: u8,
    /// Longest time without progress if the peer has to act, nanoseconds.
    pub(crate) idle_ns: u64,
    /// Duration of TIME-WAIT, nanoseconds.
    pub(crate) time_wait_ns: u64,
}

impl Settings {
    /// Returns the smallest shift with which a window field holds the receive window.
    fn shift(&self) -> u8 {
        (0..14)
            .find(|shift| self.window >> shift <= u32::from(u16::MAX))
            .unwrap_or(14)
    }
}

/// Counters that all connections of an end share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Segments with a SYN, a FIN or data that were sent again.
    pub(crate) retransmitted: u64,
    /// Retransmission timeouts.
    pub(crate) timeouts: u64,
    /// Segments with data that arrived beyond a gap.
    pub(crate) out_of_order: u64,
    /// Segments without anything that was expected.
    pub(crate) unexpected: u64,
}

/// State that the connections of an end share.
#[derive(Debug)]
pub(crate) struct Environment<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) gaps: &'a mut GapPool,
    pub(crate) counters: &'a mut Counters,
}

/// Receiver of a stream.
pub(crate) trait Sink {
    /// Accepts octets at an offset of the stream. Octets may arrive in any order and more than once. Returns false if they cannot be
    /// accepted now: the peer then sends them again.
    fn accept(&mut self, offset: u32, octets: &[u8]) -> bool;
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Both ends closed it.
    Complete,
    /// The peer refused it.
    Refused,
    /// The peer reset it.
    Reset,
    /// The peer did not answer the SYN.
    NotEstablished,
    /// The peer did not acknowledge.
    TimedOut,
    /// The peer acknowledged, and did nothing else in time.
    Idle,
    /// This end reset it.
    Aborted,
}

/// State of a connection (RFC 9293, section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed(Ending),
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    /// When the timer expires, nanoseconds.
    deadline: u64,
    /// Initial sequence numbers of this end and of the peer.
    iss: u32,
    irs: u32,
    /// Lowest position that is not acknowledged.
    una: u32,
    /// Next position to send; after a timeout it is below `max`.
    nxt: u32,
    /// Position after the highest that was sent.
    max: u32,
    /// Octets of the stream that may be sent so far.
    limit: u32,
    /// Next position expected of the peer.
    expected: u32,
    /// Window of the peer, from `una` on, octets.
    window: u32,
    congestion_window: u32,
    slow_start_threshold: u32,
    /// End of the recovery, or of the last one.
    recover: u32,
    /// Position up to which the recovery has retransmitted.
    retransmitted: u32,
    round_trip: RoundTrip,
    /// Position whose acknowledgement is timed, and when it was sent, microseconds; 0 for none.
    timed: u32,
    timed_us: u32,
    gaps: GapIndex,
    segment_max: u16,
    flags: u16,
    state: State,
    duplicates: u8,
    /// Timeouts in a row.
    retries: u8,
    /// Shift of the peer's windows.
    shift: u8,
}

/// The peer accepts SACK options.
const SACK: u16 = 1 << 0;
/// Both ends scale their windows.
const SCALED: u16 = 1 << 1;
/// An acknowledgement is due.
const ACK_DUE: u16 = 1 << 2;
/// The first unacknowledged segment is due again.
const RETRANSMIT_DUE: u16 = 1 << 3;
/// A loss is being repaired.
const RECOVERY: u16 = 1 << 4;
/// The FIN follows the last octet.
const FIN_WANTED: u16 = 1 << 5;
/// The peer's FIN arrived.
const FIN_RECEIVED: u16 = 1 << 6;
/// A reset is due.
const RESET_DUE: u16 = 1 << 7;
/// A window probe is due.
const PROBE_DUE: u16 = 1 << 8;
/// The SYN was retransmitted.
const SYN_LOST: u16 = 1 << 9;

/// Returns the time in microseconds modulo 2^32.
fn microseconds(ns: u64) -> u32 {
    let [a, b, c, d, ..] = (ns / 1_000).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl Tcp {
    /// Creates the active end. [`Self::next`] returns its SYN.
    pub(crate) fn connect(settings: &Settings, iss: u32, now: u64) -> Self {
        Self::new(settings, State::SynSent, iss, now)
    }

    /// Creates the passive end of a connection that a SYN requests. [`Self::next`] returns its SYN and ACK.
    pub(crate) fn accept(settings: &Settings, syn: &Segment, iss: u32, now: u64) -> Self {
        let mut tcp = Self::new(settings, State::SynReceived, iss, now);
        tcp.synchronise(syn);
        tcp
    }

    fn new(settings: &Settings, state: State, iss: u32, now: u64) -> Self {
        let mut tcp = Self {
            deadline: u64::MAX,
            iss,
            irs: 0,
            una: 0,
            nxt: 0,
            max: 0,
            limit: 0,
            expected: 0,
            window: 0,
            congestion_window: 0,
            slow_start_threshold: CONGESTION_WINDOW_MAX,
            recover: 0,
            retransmitted: 0,
            round_trip: RoundTrip::default(),
            timed: 0,
            timed_us: 0,
            gaps: GapIndex::NONE,
            segment_max: settings.segment_max,
            flags: 0,
            state,
            duplicates: 0,
            retries: 0,
            shift: 0,
        };
        tcp.arm(settings, now);
        tcp
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns true once the handshake is over, until the connection is closed.
    pub(crate) fn is_established(&self) -> bool {
        !matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Closed(_)
        )
    }

    /// Returns the number of octets received in order.
    pub(crate) fn received(&self) -> u32 {
        let controls = u32::from(self.has(FIN_RECEIVED)).saturating_add(1);
        self.expected.saturating_sub(controls)
    }

    /// Returns true if the peer sends no more data.
    pub(crate) fn is_finished_by_peer(&self) -> bool {
        self.has(FIN_RECEIVED)
    }

    /// Returns when [`Self::expire`] is due, nanoseconds.
    pub(crate) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Permits to send the octets before offset `limit` of the stream, at most [`STREAM_MAX`]. Has no effect after [`Self::finish`].
    pub(crate) fn provide(&mut self, settings: &Settings, limit: u32, now: u64) {
        if self.has(FIN_WANTED) {
            return;
        }
        let before = self.limit;
        self.limit = self.limit.max(limit.min(STREAM_MAX));
        if self.limit > before && self.una == self.max && self.is_established() {
            self.arm(settings, now);
        }
    }

    /// Closes the stream after the octets provided so far.
    pub(crate) fn finish(&mut self) {
        self.set(FIN_WANTED);
    }

    /// Resets the connection.
    pub(crate) fn abort(&mut self, environment: &mut Environment<'_>) {
        if !matches!(self.state, State::Closed(_)) {
            self.reset(environment, Ending::Aborted);
        }
    }

    /// Acts on the timer if it has expired.
    pub(crate) fn expire(&mut self, environment: &mut Environment<'_>, now: u64) {
        if now < self.deadline {
            return;
        }
        let settings = environment.settings;
        match self.state {
            State::Closed(_) => self.deadline = u64::MAX,
            State::TimeWait => self.end(environment, Ending::Complete),
            State::SynSent | State::SynReceived => {
                if self.retries >= settings.syn_retries {
                    return self.end(environment, Ending::NotEstablished);
                }
                self.retries = self.retries.saturating_add(1);
                self.nxt = 0;
                self.set(SYN_LOST);
                count(&mut environment.counters.timeouts);
                self.arm(settings, now);
            }
            _ if self.una == self.max && !self.is_blocked() => {
                self.reset(environment, Ending::Idle);
            }
            _ if self.retries >= settings.retries => self.reset(environment, Ending::TimedOut),
            _ => {
                self.retries = self.retries.saturating_add(1);
                if self.una == self.max {
                    self.set(PROBE_DUE);
                } else {
                    self.go_back(environment);
                }
                self.arm(settings, now);
            }
        }
    }

    /// Ends the connection and returns its gaps to the pool.
    fn end(&mut self, environment: &mut Environment<'_>, ending: Ending) {
        environment.gaps.give(&mut self.gaps);
        self.state = State::Closed(ending);
        self.deadline = u64::MAX;
    }

    /// Ends the connection with a reset.
    fn reset(&mut self, environment: &mut Environment<'_>, ending: Ending) {
        self.set(RESET_DUE);
        self.end(environment, ending);
    }

    /// Takes the peer's numbers and options from its SYN.
    fn synchronise(&mut self, syn: &Segment) {
        let options = &syn.options;
        let of_peer = options.segment_max.unwrap_or(SEGMENT_DEFAULT);
        self.irs = syn.sequence;
        self.expected = 1;
        self.window = u32::from(syn.window);
        self.segment_max = self.segment_max.min(of_peer).max(SEGMENT_MIN);
        if let Some(shift) = options.shift {
            self.shift = shift;
            self.set(SCALED);
        }
        if options.permits_sack {
            self.set(SACK);
        }
    }

    /// Returns true if octets or the FIN wait for a window.
    fn is_blocked(&self) -> bool {
        let has_more = self.nxt <= self.limit || (self.has(FIN_WANTED) && self.nxt == self.fin());
        self.window == 0 && has_more
    }

    /// Returns the position of the FIN, after the last octet.
    fn fin(&self) -> u32 {
        self.limit.saturating_add(1)
    }

    /// Sets the timer for the next event of the connection.
    fn arm(&mut self, settings: &Settings, now: u64) {
        let is_handshake = matches!(self.state, State::SynSent | State::SynReceived);
        let wait_ns = if self.state == State::TimeWait {
            settings.time_wait_ns
        } else if is_handshake || self.una < self.max || self.is_blocked() {
            self.round_trip
                .timeout_ns(self.retries, settings.timeout_ns)
        } else {
            settings.idle_ns
        };
        self.deadline = now.saturating_add(wait_ns);
    }

    /// Returns the receive window, octets.
    fn receive_window(&self, settings: &Settings) -> u32 {
        let shift = if self.has(SCALED) {
            settings.shift()
        } else {
            0
        };
        (settings.window >> shift).min(u32::from(u16::MAX)) << shift
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    /// Clears a flag. Returns whether it was set.
    fn take(&mut self, flag: u16) -> bool {
        let was_set = self.has(flag);
        self.flags &= !flag;
        was_set
    }
}
