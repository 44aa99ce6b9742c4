// SPDX-License-Identifier: Apache-2.0
//! TCP connections as a middlebox sees them (RFC 9293): which segments fit, and what state they lead to.
//!
//! Each side has sent data up to `end`, and may send up to `limit`: the highest acknowledgement and window of the other. A segment fits if
//! four inequalities hold (van Rooij, "Real Stateful TCP Packet Filtering in IP Filter", 2001):
//!
//! 1. It ends at `limit` at the latest.
//! 2. It begins at most the largest window of the receiver before `end`.
//! 3. It acknowledges nothing that the receiver has not sent.
//! 4. It acknowledges at most the largest window of its sender less than all that the receiver has sent.
//!
//! A reset closes a connection only at exactly `end`. Others within the window are forwarded and change nothing, because the receiver
//! sends a challenge in response (RFC 5961, section 3.2). So are resets after a takeover, as long as `end` is that of a segment which the
//! other side has not confirmed.

mod saved;

use super::names::{Direction, InvalidReason, State};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const ACK: u8 = 0x10;
const SYN_ACK: u8 = SYN | ACK;
const FIN_ACK: u8 = FIN | ACK;
const RST_ACK: u8 = RST | ACK;
const CONTROL: u8 = FIN | SYN | RST | ACK;

/// Minimum age of acknowledgements that are accepted, octets: windows of one side may shrink before the other reads them.
const ACK_WINDOW_MIN: u32 = 66_000;

/// The parts of a segment that the tracker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    /// Window, unscaled.
    pub(super) window: u16,
    pub(super) flags: u8,
    /// Shift of the window scale option of a SYN.
    pub(super) scale: Option<u8>,
    /// Octets of data.
    pub(super) data: u32,
}

impl Segment {
    const fn control(&self) -> u8 {
        self.flags & CONTROL
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the first sequence number behind the segment. SYN and FIN count as octets.
    fn end(&self) -> u32 {
        let controls = u32::from(self.has(SYN)).wrapping_add(u32::from(self.has(FIN)));
        self.sequence.wrapping_add(self.data).wrapping_add(controls)
    }

    /// Returns true if some host sends these flags together (RFC 9293, section 3.10.7).
    pub(super) const fn has_valid_flags(&self) -> bool {
        matches!(
            self.control(),
            SYN | SYN_ACK | ACK | FIN_ACK | RST | RST_ACK
        )
    }

    /// Returns true for the first segment of a connection: a SYN without acknowledgement.
    pub(super) const fn is_opening(&self) -> bool {
        self.control() == SYN
    }
}

/// The side has acknowledged the SYN of the other.
const HAS_ACKED: u8 = 1;
/// The side has sent a FIN, which is the last octet before `end`.
const HAS_FIN: u8 = 2;
/// The side has sent a SYN.
const HAS_SYN: u8 = 4;
/// The SYN had a window scale option.
const SCALES: u8 = 8;
/// The numbers are those of an earlier moment: another switch has forwarded segments since.
const LOOSE: u8 = 16;
/// The numbers are those of one segment that may be forged: both sides have not confirmed them.
const GUESSED: u8 = 32;

/// State of one side: the numbers that it has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
pub(super) struct Side {
    /// First sequence number behind all that it has sent.
    end: u32,
    /// First sequence number behind all that it may send. Before the other side has sent an acknowledgement: the number behind its SYN.
    limit: u32,
    /// Its highest acknowledgement.
    acked: u32,
    /// Its largest window, in units of the scale, rounded up.
    window: u16,
    scale: u8,
    flags: u8,
}

/// Result of a segment that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The connection is in this state now, and its timeout starts again.
    Enter(State),
    /// The segment is forwarded, and changes nothing.
    Pass,
    /// The segment may begin a new connection in place of a closed one.
    Reopen,
}

/// Returns true if `a` is before `b` in sequence space (RFC 9293, section 3.4).
#[inline(always)]
pub(super) const fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[inline(always)]
const fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}

impl Side {
    /// Creates the side that sent this SYN.
    pub(super) fn opening(segment: &Segment) -> Self {
        Self {
            end: segment.end(),
            limit: segment.sequence.wrapping_add(1),
            acked: 0,
            window: segment.window,
            scale: segment.scale.unwrap_or(0),
            flags: HAS_SYN | if segment.scale.is_some() { SCALES } else { 0 },
        }
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Notes that the side may have sent more meanwhile. What it has sent up to a FIN is known.
    pub(super) const fn note_unseen_segments(&mut self) {
        if self.has(HAS_SYN) && !self.has(HAS_FIN) {
            self.flags |= LOOSE;
        }
    }

    /// Returns true if the side itself has confirmed its numbers. Two forged segments that fit each other confirm nothing: then its numbers
    /// are still guessed.
    const fn is_confirmed(&self) -> bool {
        !self.has(LOOSE) && !self.has(GUESSED)
    }

    /// Returns its largest window, octets: at least 1, for probes of a closed window.
    fn window_octets(&self) -> u32 {
        (u32::from(self.window) << self.scale).max(1)
    }

    /// Returns true if an acknowledgement covers the SYN of this side, and nothing that it has not sent. Only before the other side has
    /// acknowledged.
    const fn is_acknowledged_by(&self, number: u32) -> bool {
        !is_before(number, self.limit) && !is_before(self.end, number)
    }

    /// Returns true if this TCP segment of the side, which an ICMP error contains, is within what it has sent (RFC 5927, section 4.1).
    pub(super) fn has_sent(&self, sequence: u32, other: &Self) -> bool {
        self.has(HAS_SYN)
            && is_before(sequence, self.end)
            && !is_before(
                sequence,
                self.end
                    .wrapping_sub(other.window_octets().max(ACK_WINDOW_MIN)),
            )
    }

    /// Notes that later fragments of a segment end at this number, if the side may send so much and has not closed.
    pub(super) fn extend(&mut self, end: u32) {
        let is_allowed = !is_before(self.limit, end) && !self.has(HAS_FIN);
        if is_allowed && is_before(self.end, end) {
            self.end = end;
        }
    }

    /// Returns a window in units of the scale of this side. The window of a SYN has no scale (RFC 7323, section 2.2).
    fn units(&self, segment: &Segment) -> u16 {
        if !segment.has(SYN) {
            return segment.window;
        }
        let unit = 1u32 << self.scale;
        let units = u32::from(segment.window).div_ceil(unit);
        u16::try_from(units).unwrap_or(u16::MAX)
    }
}

/// Agrees on window scales after both SYNs: both sides scale, or none (RFC 7323, section 2.2). Until then, windows are octets.
fn agree_on_scales(a: &mut Side, b: &mut Side) {
    let both_scale = a.has(SCALES) && b.has(SCALES);
    for side in [a, b] {
        if !both_scale {
            side.scale = 0;
        }
        let units = u32::from(side.window).div_ceil(1 << side.scale);
        side.window = u16::try_from(units).unwrap_or(u16::MAX);
    }
}

/// Returns the octets that a segment allows the other side to send beyond its acknowledgement.
fn allowed(from: &Side, segment: &Segment) -> u32 {
    let scale = if segment.has(SYN) { 0 } else { from.scale };
    (u32::from(segment.window) << scale).max(1)
}

/// Judges a segment of a connection in this state, and changes what the sides have sent. The flags must be valid.
///
/// # Errors
/// The reason why the segment does not fit. Nothing changes in that case.
#[inline]
pub(super) fn step(
    state: State,
    direction: Direction,
    from: &mut Side,
    to: &mut Side,
    segment: &Segment,
) -> Result<Step, InvalidReason> {
    match state {
        State::TcpSynSent => match direction {
            Direction::Original => step_of_opener(from, segment),
            Direction::Reply => step_of_answerer(from, to, segment),
        },
        State::TcpSynSent2 => step_of_simultaneous_open(from, to, segment),
        State::TcpClose => step_after_reset(from, to, segment),
        // RFC 9293, section 3.6.1; RFC 6191: a SYN behind the last sequence number.
        State::TcpTimeWait if segment.is_opening() && !is_before(segment.sequence, from.end) => {
            Ok(Step::Reopen)
        }
        _ => step_of_open(state, from, to, segment),
    }
}

/// Returns the step for a segment before an answer: the SYN again, or a reset of the side that sent it.
fn step_of_opener(from: &mut Side, segment: &Segment) -> Result<Step, InvalidReason> {
    match segment.control() {
        SYN => {
            *from = Side::opening(segment);
            Ok(Step::Enter(State::TcpSynSent))
        }
        RST | RST_ACK if segment.sequence == from.end => Ok(Step::Enter(State::TcpClose)),
        RST | RST_ACK => Err(InvalidReason::Sequence),
        _ => Err(InvalidReason::State),
    }
}

/// Returns the step for the first answer (RFC 9293, section 3.10.7.3).
fn step_of_answerer(
    from: &mut Side,
    to: &mut Side,
    segment: &Segment,
) -> Result<Step, InvalidReason> {
    let is_acknowledged = to.is_acknowledged_by(segment.acknowledgement);
    match segment.control() {
        SYN => {
            *from = Side::opening(segment);
            agree_on_scales(from, to);
            Ok(Step::Enter(State::TcpSynSent2))
        }
        SYN_ACK if is_acknowledged => {
            *from = Side::opening(segment);
            agree_on_scales(from, to);
            acknowledge_opening(from, to, segment);
            Ok(Step::Enter(State::TcpSynRecv))
        }
        RST_ACK if is_acknowledged => Ok(Step::Enter(State::TcpClose)),
        SYN_ACK | RST_ACK => Err(InvalidReason::Acknowledgement),
        _ => Err(InvalidReason::State),
    }
}

/// Returns the step for a segment after both sides have sent a SYN, and neither has acknowledged.
fn step_of_simultaneous_open(
    from: &mut Side,
    to: &mut Side,
    segment: &Segment,
) -> Result<Step, InvalidReason> {
    let is_acknowledged = to.is_acknowledged_by(segment.acknowledgement);
    let is_same_syn = segment.sequence.wrapping_add(1) == from.limit;
    match segment.control() {
        SYN if is_same_syn => Ok(Step::Enter(State::TcpSynSent2)),
        SYN_ACK if !is_same_syn => Err(InvalidReason::Syn),
        SYN => Err(InvalidReason::Syn),
        ACK if segment.sequence != from.end || segment.data > 0 => Err(InvalidReason::Sequence),
        SYN_ACK | ACK if is_acknowledged => {
            acknowledge_opening(from, to, segment);
            Ok(Step::Enter(State::TcpSynRecv))
        }
        SYN_ACK | ACK => Err(InvalidReason::Acknowledgement),
        RST_ACK if is_acknowledged => Ok(Step::Enter(State::TcpClose)),
        RST | RST_ACK if segment.sequence == from.end => Ok(Step::Enter(State::TcpClose)),
        RST | RST_ACK => Err(InvalidReason::Sequence),
        _ => Err(InvalidReason::State),
    }
}

/// Sets the limits of both sides after the first acknowledgement of a SYN.
fn acknowledge_opening(from: &mut Side, to: &mut Side, segment: &Segment) {
    from.limit = from.limit.wrapping_add(to.window_octets());
    to.limit = segment.acknowledgement.wrapping_add(allowed(from, segment));
    from.window = from.window.max(from.units(segment));
    from.acked = segment.acknowledgement;
    from.flags |= HAS_ACKED;
}

/// Returns the step for a segment after a reset: a new connection, or segments that were on their way.
fn step_after_reset(from: &Side, to: &Side, segment: &Segment) -> Result<Step, InvalidReason> {
    if segment.is_opening() {
        return Ok(Step::Reopen);
    }
    let has_both = from.has(HAS_ACKED) || to.has(HAS_ACKED);
    if !has_both || segment.has(SYN) {
        return Err(InvalidReason::State);
    }
    check(from, to, segment)?;
    Ok(Step::Pass)
}

/// Returns the step for a segment after the first acknowledgement.
fn step_of_open(
    state: State,
    from: &mut Side,
    to: &mut Side,
    segment: &Segment,
) -> Result<Step, InvalidReason> {
    // Only SYNs of the handshake may be sent again. A new SYN never begins a connection in place of an open one (RFC 5961, section 4.2).
    if segment.has(SYN) && is_before(from.end, segment.end()) {
        return Err(InvalidReason::Syn);
    }
    if from.has(LOOSE) || to.has(LOOSE) {
        settle(from, to, segment)?;
    } else {
        check(from, to, segment)?;
    }
    if segment.has(RST) {
        // The sender of a forged segment that has set the numbers of a side knows the exact one. The host answers a reset itself, with a
        // challenge if its number is not the expected one (RFC 5961, section 3.2).
        let is_exact = segment.sequence == from.end && !from.has(GUESSED);
        // RFC 1337: a reset does not end TIME-WAIT.
        return Ok(match state {
            State::TcpTimeWait => Step::Pass,
            _ if is_exact => Step::Enter(State::TcpClose),
            _ => Step::Pass,
        });
    }
    if !segment.has(ACK) {
        return Ok(Step::Pass);
    }
    from.end = later(from.end, segment.end());
    from.window = from.window.max(from.units(segment));
    // The first acknowledgement of a side has nothing to be compared with.
    from.acked = match from.has(HAS_ACKED) {
        true => later(from.acked, segment.acknowledgement),
        false => segment.acknowledgement,
    };
    from.flags |= HAS_ACKED | if segment.has(FIN) { HAS_FIN } else { 0 };
    let limit = segment.acknowledgement.wrapping_add(allowed(from, segment));
    to.limit = later(to.limit, limit);
    Ok(Step::Enter(state_of(from, to)))
}

/// Judges a segment while the numbers of a side are those of an earlier moment. A segment that fits confirms its sender. Another one sets
/// the numbers and confirms nothing, so a forged segment does not block the next one of the host, even if it has a FIN. Resets and SYNs set
/// no numbers. Until both sides are confirmed, no reset is obeyed at numbers that were set, and a segment of either side sets them again.
#[cold]
fn settle(from: &mut Side, to: &mut Side, segment: &Segment) -> Result<(), InvalidReason> {
    let gives_numbers = segment.has(ACK) && !segment.has(RST);
    let Err(reason) = check(from, to, segment) else {
        if gives_numbers {
            from.flags &= !LOOSE;
            if !to.has(LOOSE) {
                from.flags &= !GUESSED;
                to.flags &= !GUESSED;
            }
        }
        return Ok(());
    };
    // The FIN of a side that is not confirmed may be forged.
    let has_ended = from.has(HAS_FIN) && from.is_confirmed();
    if segment.has(SYN) || has_ended {
        return Err(reason);
    }
    if !gives_numbers {
        return Ok(());
    }
    let acknowledgement = segment.acknowledgement;
    if !to.is_confirmed() {
        to.end = acknowledgement;
        to.limit = acknowledgement.wrapping_add(allowed(from, segment));
        to.flags |= LOOSE | GUESSED;
    } else if is_before(to.end, acknowledgement) {
        return Err(InvalidReason::Acknowledgement);
    }
    from.flags &= !HAS_FIN;
    from.flags |= LOOSE | GUESSED;
    from.end = segment.end();
    from.limit = from.end.wrapping_add(to.window_octets());
    from.acked = acknowledgement;
    Ok(())
}

/// Checks the four inequalities; of a reset, only those about its sequence number.
#[inline]
fn check(from: &Side, to: &Side, segment: &Segment) -> Result<(), InvalidReason> {
    let end = segment.end();
    let oldest = from.end.wrapping_sub(to.window_octets());
    if is_before(from.limit, end) || is_before(segment.sequence, oldest) {
        return Err(InvalidReason::Sequence);
    }
    // Nothing follows a FIN.
    let is_behind_fin = from.has(HAS_FIN) && is_before(from.end, end);
    let is_early_fin = segment.has(FIN) && is_before(end, from.end);
    if is_behind_fin || is_early_fin {
        return Err(InvalidReason::Sequence);
    }
    if segment.has(RST) || !segment.has(ACK) {
        return Ok(());
    }
    let acknowledgement = segment.acknowledgement;
    let oldest = to
        .end
        .wrapping_sub(from.window_octets().max(ACK_WINDOW_MIN));
    if is_before(to.end, acknowledgement) || is_before(acknowledgement, oldest) {
        return Err(InvalidReason::Acknowledgement);
    }
    Ok(())
}

/// Returns the state after the first acknowledgement.
fn state_of(a: &Side, b: &Side) -> State {
    let is_closed = |one: &Side, other: &Side| !is_before(other.acked, one.end);
    match (a.has(HAS_FIN), b.has(HAS_FIN)) {
        _ if !a.has(HAS_ACKED) || !b.has(HAS_ACKED) => State::TcpSynRecv,
        (false, false) => State::TcpEstablished,
        (true, false) if is_closed(a, b) => State::TcpCloseWait,
        (false, true) if is_closed(b, a) => State::TcpCloseWait,
        (true, true) if is_closed(a, b) && is_closed(b, a) => State::TcpTimeWait,
        (true, true) => State::TcpLastAck,
        _ => State::TcpFinWait,
    }
}
