// SPDX-License-Identifier: Apache-2.0
//! Limit of the time that a saturated thread spends on frames that begin connections.
//!
//! A thread is saturated if some receive queue may have further frames after each of 256 turns. From then on, frames that begin connections
//! may take a share of the time, and all of the time in which the thread has no frames. A burst with such frames is admitted if there is no
//! debt. The time of an admitted burst beyond that of its other frames is a debt, and so is the time until dropped frames are dropped. The
//! share of the time that passes repays it. So in any period, the share is exceeded by one burst at most.
//!
//! Dropped frames add at most 7/8 of what is repaid meanwhile. Otherwise, a flood whose frames take the whole share until they are dropped
//! would let no connection begin. The time to receive and drop frames depends on their number, and no limit changes it.
//!
//! The caller provides the time in ticks of a clock, and takes no reading for it while the thread is not saturated.

#[cfg(test)]
mod tests;

use quietwire_base::BURST_MAX;

/// Frames of a burst from which on a receive queue may have further ones: half of a burst, because some drivers return no more at once.
const FULL: usize = BURST_MAX / 2;
/// Turns in a row with such a burst before a thread is saturated: several times as many as full receive rings cause after a pause.
const FULL_TURNS: u32 = 256;
/// Part of a second without a drop after which a thread with empty queues is no longer saturated.
const CALM_PARTS: u64 = 10;
/// The part of a repayment that dropped frames leave is one of this number.
const RESERVE_PARTS: u64 = 8;
/// A burst changes an average by one of this number of parts.
const AVERAGE_PARTS: u64 = 8;
/// Frames from which a burst counts for the average.
const AVERAGE_MIN: u64 = 8;
/// Units of a tick in debts, so that a percentage of a tick is a whole number.
const PERCENT: u64 = 100;
/// Units of a tick in averages.
const FRACTION: u64 = 256;

/// Burst in process.
#[derive(Clone, Copy, Debug, Default)]
struct BurstTimes {
    /// Time before the frames were received.
    began: u64,
    /// Time after the lookup of their connections.
    looked_up: u64,
    /// Time after some were dropped.
    dropped: u64,
    /// Frames. None before the lookup.
    frames: u64,
    /// Frames that begin connections.
    first: u64,
    /// They are dropped.
    is_refused: bool,
}

/// State of the limit of one thread. All times are ticks of one clock.
#[derive(Clone, Debug)]
pub struct NewShare {
    /// Share of the time, percent.
    percent: u64,
    /// Ticks without a drop until the end of saturation.
    calm: u64,
    is_saturated: bool,
    full_turns: u32,
    /// A queue had a full burst in this turn.
    has_full: bool,
    /// Time beyond the share, in parts of a tick (`PERCENT`).
    debt: u64,
    /// Repayments since the last burst, in the same unit.
    repaid: u64,
    repaid_at: u64,
    refused_at: u64,
    /// Average time of a frame of a known connection behind its lookup, in parts of a tick (`FRACTION`). 0: not known.
    known: u64,
    burst: BurstTimes,
}

impl NewShare {
    /// Creates the limit of a thread that is not saturated. `percent` is the share, 1 to 100, and `ticks_per_s` the frequency of the clock.
    #[must_use]
    pub fn new(percent: u32, ticks_per_s: u64) -> Self {
        Self {
            percent: u64::from(percent).clamp(1, PERCENT),
            calm: ticks_per_s / CALM_PARTS,
            is_saturated: false,
            full_turns: 0,
            has_full: false,
            debt: 0,
            repaid: 0,
            repaid_at: 0,
            refused_at: 0,
            known: 0,
            burst: BurstTimes::default(),
        }
    }

    /// Changes the share, percent, 1 to 100. A saturated thread stays saturated, and its debt stays.
    pub fn set_percent(&mut self, percent: u32) {
        self.percent = u64::from(percent).clamp(1, PERCENT);
    }

    /// Returns true if frames that begin connections are limited.
    #[inline(always)]
    #[must_use]
    pub const fn is_saturated(&self) -> bool {
        self.is_saturated
    }

    /// Notes the number of frames that a receive queue has returned.
    #[inline(always)]
    pub fn received(&mut self, frames: usize) {
        self.has_full |= frames >= FULL;
    }

    /// Begins a burst. `now` is the time before it was received.
    #[inline(always)]
    pub fn begin(&mut self, now: u64) {
        if self.is_saturated {
            self.repay(now, self.percent);
            self.burst = BurstTimes {
                began: now,
                ..BurstTimes::default()
            };
        }
    }

    /// Notes the end of the lookup, and how many frames of the burst begin connections. Returns false if these frames must be dropped:
    /// [`Self::dropped`] follows. Called for the bursts of a saturated thread.
    #[must_use]
    pub fn looked_up(&mut self, now: u64, (frames, first): (usize, usize)) -> bool {
        let is_refused = self.is_saturated && self.debt > 0 && first > 0;
        self.burst = BurstTimes {
            looked_up: now,
            dropped: now,
            frames: frames as u64,
            first: first as u64,
            is_refused,
            ..self.burst
        };
        !is_refused
    }

    /// Notes that the frames which begin connections have been dropped.
    pub fn dropped(&mut self, now: u64) {
        self.burst.dropped = now;
        self.refused_at = now;
    }

    /// Ends a burst, after its frames were sent.
    #[inline(always)]
    pub fn end(&mut self, now: u64) {
        if self.is_saturated && self.burst.frames > 0 {
            self.account(now);
        }
    }

    /// Ends a turn of the thread. In an idle one, there was no frame. Without saturation, frames that begin connections have no limit.
    #[inline(always)]
    pub fn end_turn(&mut self, now: u64, is_idle: bool) {
        if std::mem::take(&mut self.has_full) {
            self.full_turns = self.full_turns.saturating_add(1);
            if !self.is_saturated && self.full_turns >= FULL_TURNS {
                self.saturate(now);
            }
        } else {
            self.full_turns = 0;
            if self.is_saturated {
                self.rest(now, is_idle);
            }
        }
    }

    #[cold]
    fn saturate(&mut self, now: u64) {
        *self = Self {
            is_saturated: true,
            debt: 0,
            repaid: 0,
            repaid_at: now,
            refused_at: now,
            known: 0,
            burst: BurstTimes::default(),
            ..*self
        };
    }

    /// Ends a turn of a saturated thread after which no queue had further frames.
    #[cold]
    fn rest(&mut self, now: u64, is_idle: bool) {
        self.repay(now, if is_idle { PERCENT } else { self.percent });
        if now.saturating_sub(self.refused_at) >= self.calm {
            self.is_saturated = false;
        }
    }

    /// Repays a part of the time that has passed. A clock that goes back counts as standing still.
    fn repay(&mut self, now: u64, percent: u64) {
        let passed = now.saturating_sub(self.repaid_at);
        self.repaid_at = self.repaid_at.max(now);
        let gained = passed.saturating_mul(percent);
        self.repaid = self.repaid.saturating_add(gained);
        self.debt = self.debt.saturating_sub(gained);
    }

    /// Adds the time of the frames of a burst that begin connections to the debt.
    fn account(&mut self, now: u64) {
        let burst = std::mem::take(&mut self.burst);
        let others = burst.frames.saturating_sub(burst.first);
        let part_of_first = |ticks: u64| {
            let parts = ticks.saturating_mul(burst.first);
            parts.checked_div(burst.frames).unwrap_or(0)
        };
        // Each frame takes an equal part of the time until here.
        let lookup = part_of_first(burst.looked_up.saturating_sub(burst.began));
        let rest = now.saturating_sub(burst.dropped);
        let repaid = std::mem::take(&mut self.repaid);
        let added = if burst.is_refused {
            self.average(rest, others);
            let drop = burst.dropped.saturating_sub(burst.looked_up);
            let spent = lookup.saturating_add(drop).saturating_mul(PERCENT);
            spent.min(repaid.saturating_sub(repaid / RESERVE_PARTS))
        } else if burst.first == 0 {
            self.average(rest, others);
            0
        } else {
            let of_others = self.known.saturating_mul(others) / FRACTION;
            let beyond = rest.saturating_sub(of_others).max(part_of_first(rest));
            lookup.saturating_add(beyond).saturating_mul(PERCENT)
        };
        self.debt = self.debt.saturating_add(added);
    }

    /// Adds a burst without frames that begin connections to the average time of a frame.
    fn average(&mut self, ticks: u64, frames: u64) {
        if frames < AVERAGE_MIN {
            return;
        }
        let scaled = ticks.saturating_mul(FRACTION);
        let of_frame = scaled.checked_div(frames).unwrap_or(0);
        self.known = match self.known {
            0 => of_frame,
            known => known
                .saturating_sub(known / AVERAGE_PARTS)
                .saturating_add(of_frame / AVERAGE_PARTS),
        };
    }
}
