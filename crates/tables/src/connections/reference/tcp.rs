// SPDX-License-Identifier: Apache-2.0
//! TCP for the reference: each host counts the octets that it has sent from its SYN on, in numbers that never wrap around.

use crate::connections::names::{Direction, InvalidReason, State};
use crate::connections::reference::sent::TcpSent;

/// A host, as far as its segments show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Host {
    /// Sequence number of its SYN; `None` before the SYN.
    initial: Option<u32>,
    /// Octets that it has sent. The SYN is octet 0, so after a SYN without data this is 1.
    sent: i64,
    /// Octets that it may send.
    may_send: i64,
    /// Largest window that it has advertised, octets.
    window: i64,
    scale: Option<u8>,
    /// It has acknowledged the SYN of the other host.
    has_acknowledged: bool,
    /// Octets of the other host that it has acknowledged.
    acknowledged: i64,
    /// Octets that it has sent including a FIN.
    fin: Option<i64>,
}

/// Effect of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The connection is in this state, and its timeout starts again.
    In(State),
    /// None.
    None,
    /// A new connection may begin.
    New,
}

/// Control bits of a segment.
struct Flags {
    syn: bool,
    ack: bool,
    fin: bool,
    rst: bool,
}

fn flags(segment: &TcpSent) -> Flags {
    let is_set = |bit: u8| segment.flags & bit != 0;
    Flags {
        fin: is_set(1),
        syn: is_set(2),
        rst: is_set(4),
        ack: is_set(16),
    }
}

/// Returns true if a host may send these flags together.
pub(super) fn are_possible(segment: &TcpSent) -> bool {
    let Flags { syn, ack, fin, rst } = flags(segment);
    let controls = u8::from(syn) + u8::from(fin) + u8::from(rst);
    controls <= 1 && (ack || syn || rst)
}

/// Returns true for a SYN without ACK.
pub(super) fn is_opening(segment: &TcpSent) -> bool {
    let Flags { syn, ack, fin, rst } = flags(segment);
    syn && !ack && !fin && !rst
}

/// Returns the octets of sequence space that a segment occupies.
fn length(segment: &TcpSent) -> i64 {
    let flags = flags(segment);
    i64::from(segment.data) + i64::from(flags.syn) + i64::from(flags.fin)
}

fn rounded_up(octets: i64, unit: i64) -> i64 {
    (octets + unit - 1) / unit * unit
}

impl Host {
    pub(super) fn after_syn(segment: &TcpSent) -> Self {
        Self {
            initial: Some(segment.sequence),
            sent: length(segment),
            // Nothing behind the SYN, as far as acknowledgements show.
            may_send: 1,
            window: i64::from(segment.window),
            scale: segment.scale.map(|shift| shift.min(14)),
            ..Self::default()
        }
    }

    /// Returns the number of octets in front of a sequence number, which is at most half of the sequence space from what was sent.
    fn position(&self, sequence: u32) -> i64 {
        let initial = self.initial.unwrap_or(0);
        let last = initial.wrapping_add(self.sent as u32);
        self.sent + i64::from(sequence.wrapping_sub(last).cast_signed())
    }

    fn unit(&self) -> i64 {
        1 << self.scale.unwrap_or(0)
    }

    fn window(&self) -> i64 {
        self.window.max(1)
    }

    /// Returns true if an acknowledgement is of the SYN, or of data that was sent with it.
    fn acknowledges_syn(&self, number: u32) -> bool {
        (1..=self.sent).contains(&self.position(number))
    }

    /// Returns true if the host can have sent a segment with this sequence number.
    pub(super) fn has_sent(&self, sequence: u32, other: &Self) -> bool {
        let position = self.position(sequence);
        let oldest = self.sent - other.window().max(66_000);
        self.initial.is_some() && position < self.sent && position >= oldest
    }
}

/// Applies window scales to both hosts if both sent the option.
fn negotiate(a: &mut Host, b: &mut Host) {
    if a.scale.is_none() || b.scale.is_none() {
        a.scale = None;
        b.scale = None;
    }
    for host in [a, b] {
        host.window = rounded_up(host.window, host.unit());
    }
}

/// Notes the first acknowledgement of a SYN.
fn acknowledge(from: &mut Host, to: &mut Host, segment: &TcpSent) {
    from.may_send = 1 + to.window();
    note_acknowledgement(from, to, segment);
    // The limit before the acknowledgement was none.
    to.may_send = from.acknowledged + advertised(from, segment).max(1);
}

/// Returns the window of a segment in octets; that of a SYN has no scale.
fn advertised(from: &Host, segment: &TcpSent) -> i64 {
    let window = i64::from(segment.window);
    if flags(segment).syn {
        window
    } else {
        window * from.unit()
    }
}

fn note_acknowledgement(from: &mut Host, to: &mut Host, segment: &TcpSent) {
    let position = to.position(segment.acknowledgement);
    from.acknowledged = if from.has_acknowledged {
        from.acknowledged.max(position)
    } else {
        position
    };
    from.has_acknowledged = true;
    let window = rounded_up(advertised(from, segment), from.unit());
    from.window = from.window.max(window);
}

/// Applies a segment.
pub(super) fn apply(
    state: State,
    direction: Direction,
    from: &mut Host,
    to: &mut Host,
    segment: &TcpSent,
) -> Result<Effect, InvalidReason> {
    match (state, direction) {
        (State::TcpSynSent, Direction::Original) => before_answer(from, segment),
        (State::TcpSynSent, Direction::Reply) => first_answer(from, to, segment),
        (State::TcpSynSent2, _) => simultaneous_open(from, to, segment),
        (State::TcpClose, _) if is_opening(segment) => Ok(Effect::New),
        (State::TcpClose, _) => {
            let is_late = from.has_acknowledged || to.has_acknowledged;
            if !is_late || flags(segment).syn {
                return Err(InvalidReason::State);
            }
            fits(from, to, segment)?;
            Ok(Effect::None)
        }
        (State::TcpTimeWait, _)
            if is_opening(segment) && from.position(segment.sequence) >= from.sent =>
        {
            Ok(Effect::New)
        }
        _ => after_opening(state, from, to, segment),
    }
}

/// Returns the effect of a further segment of the host that sent a SYN, before an answer.
fn before_answer(from: &mut Host, segment: &TcpSent) -> Result<Effect, InvalidReason> {
    let flags = flags(segment);
    if is_opening(segment) {
        *from = Host::after_syn(segment);
        return Ok(Effect::In(State::TcpSynSent));
    }
    if !flags.rst {
        return Err(InvalidReason::State);
    }
    if from.position(segment.sequence) != from.sent {
        return Err(InvalidReason::Sequence);
    }
    Ok(Effect::In(State::TcpClose))
}

/// Returns the effect of the other host's answer to a SYN.
fn first_answer(
    from: &mut Host,
    to: &mut Host,
    segment: &TcpSent,
) -> Result<Effect, InvalidReason> {
    let flags = flags(segment);
    if is_opening(segment) {
        *from = Host::after_syn(segment);
        negotiate(from, to);
        return Ok(Effect::In(State::TcpSynSent2));
    }
    if !(flags.ack && (flags.syn || flags.rst)) {
        return Err(InvalidReason::State);
    }
    if !to.acknowledges_syn(segment.acknowledgement) {
        return Err(InvalidReason::Acknowledgement);
    }
    if flags.rst {
        return Ok(Effect::In(State::TcpClose));
    }
    *from = Host::after_syn(segment);
    negotiate(from, to);
    acknowledge(from, to, segment);
    Ok(Effect::In(State::TcpSynRecv))
}

/// Returns the effect of a segment after both hosts have sent a SYN.
fn simultaneous_open(
    from: &mut Host,
    to: &mut Host,
    segment: &TcpSent,
) -> Result<Effect, InvalidReason> {
    let flags = flags(segment);
    let acknowledges = flags.ack && to.acknowledges_syn(segment.acknowledgement);
    let is_behind = from.position(segment.sequence) == from.sent;
    if flags.fin {
        return Err(InvalidReason::State);
    }
    if flags.rst {
        return if acknowledges || is_behind {
            Ok(Effect::In(State::TcpClose))
        } else {
            Err(InvalidReason::Sequence)
        };
    }
    if flags.syn && from.initial != Some(segment.sequence) {
        return Err(InvalidReason::Syn);
    }
    if !flags.ack {
        return Ok(Effect::In(State::TcpSynSent2));
    }
    if !(flags.syn || is_behind && segment.data == 0) {
        return Err(InvalidReason::Sequence);
    }
    if !acknowledges {
        return Err(InvalidReason::Acknowledgement);
    }
    acknowledge(from, to, segment);
    Ok(Effect::In(State::TcpSynRecv))
}

/// Checks a segment against what both hosts have sent and advertised.
fn fits(from: &Host, to: &Host, segment: &TcpSent) -> Result<(), InvalidReason> {
    let flags = flags(segment);
    let start = from.position(segment.sequence);
    let end = start + length(segment);
    if end > from.may_send || start < from.sent - to.window() {
        return Err(InvalidReason::Sequence);
    }
    if from.fin.is_some_and(|fin| end > fin) || (flags.fin && end < from.sent) {
        return Err(InvalidReason::Sequence);
    }
    if flags.rst || !flags.ack {
        return Ok(());
    }
    let acknowledged = to.position(segment.acknowledgement);
    let oldest = to.sent - from.window().max(66_000);
    if acknowledged > to.sent || acknowledged < oldest {
        return Err(InvalidReason::Acknowledgement);
    }
    Ok(())
}

/// Returns the effect of a segment of either host after the first acknowledgement.
fn after_opening(
    state: State,
    from: &mut Host,
    to: &mut Host,
    segment: &TcpSent,
) -> Result<Effect, InvalidReason> {
    let flags = flags(segment);
    let start = from.position(segment.sequence);
    let end = start + length(segment);
    if flags.syn && end > from.sent {
        return Err(InvalidReason::Syn);
    }
    fits(from, to, segment)?;
    if flags.rst {
        let ends = start == from.sent && state != State::TcpTimeWait;
        return Ok(if ends {
            Effect::In(State::TcpClose)
        } else {
            Effect::None
        });
    }
    if !flags.ack {
        return Ok(Effect::None);
    }
    from.sent = from.sent.max(end);
    if flags.fin {
        from.fin = Some(from.sent);
    }
    note_acknowledgement(from, to, segment);
    let limit = to.position(segment.acknowledgement) + advertised(from, segment).max(1);
    to.may_send = to.may_send.max(limit);
    Ok(Effect::In(state_of(from, to)))
}

fn state_of(a: &Host, b: &Host) -> State {
    if !(a.has_acknowledged && b.has_acknowledged) {
        return State::TcpSynRecv;
    }
    let is_acknowledged = |one: &Host, other: &Host| one.fin.map(|fin| other.acknowledged >= fin);
    match (is_acknowledged(a, b), is_acknowledged(b, a)) {
        (None, None) => State::TcpEstablished,
        (Some(false), None) | (None, Some(false)) => State::TcpFinWait,
        (Some(true), None) | (None, Some(true)) => State::TcpCloseWait,
        (Some(true), Some(true)) => State::TcpTimeWait,
        (Some(_), Some(_)) => State::TcpLastAck,
    }
}
