// SPDX-License-Identifier: Apache-2.0
//! The client's end of a UDP conversation, as a state machine without clock and input.
//!
//! Without an interval, each request waits for the answer to the one before, as resolvers do. With an interval, requests leave on schedule,
//! as voice and video do. The server answers each datagram by itself and has no state.

/// Timing of the datagrams of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// Datagrams of the client.
    pub(crate) count: u32,
    /// Time from one datagram to the next, nanoseconds; `None` if each waits for an answer.
    pub(crate) interval_ns: Option<u64>,
    /// Time from an answer to the next request without an interval, nanoseconds.
    pub(crate) think_ns: u64,
    /// Time in which an answer must arrive, nanoseconds.
    pub(crate) timeout_ns: u64,
}

/// Action of a conversation at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It sends the datagram with this index.
    Send(u32),
    /// It waits until this time, nanoseconds.
    Wait(u64),
    /// It is over. The value is the number of datagrams without an answer.
    Over(u32),
}

/// State of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Udp {
    /// When the first datagram is due, nanoseconds.
    began: u64,
    /// When the last one was sent, or the next one is due after an answer, nanoseconds.
    at: u64,
    sent: u32,
    answered: u32,
    /// Highest index that was answered, plus 1.
    highest: u32,
    /// The 64 indices below `highest` that were answered, the highest in the lowest bit.
    observed: u64,
}

impl Udp {
    /// Begins a conversation.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            began: now,
            at: now,
            sent: 0,
            answered: 0,
            highest: 0,
            observed: 0,
        }
    }

    /// Returns the action at `now`. A datagram to send counts as sent.
    pub(crate) fn step(&mut self, rhythm: &Rhythm, now: u64) -> Step {
        let Some(interval_ns) = rhythm.interval_ns else {
            return self.step_by_answers(rhythm, now);
        };
        if self.answered == rhythm.count {
            return Step::Over(0);
        }
        let due = self.due(self.sent, interval_ns);
        if self.sent < rhythm.count {
            if now < due {
                return Step::Wait(due);
            }
            return self.send();
        }
        let last = self.due(self.sent.saturating_sub(1), interval_ns);
        self.wait_or_end(rhythm, last, now)
    }

    fn step_by_answers(&mut self, rhythm: &Rhythm, now: u64) -> Step {
        if self.answered < self.sent {
            return self.wait_or_end(rhythm, self.at, now);
        }
        if self.sent == rhythm.count {
            return Step::Over(0);
        }
        if now < self.at {
            return Step::Wait(self.at);
        }
        self.at = now;
        self.send()
    }

    /// Counts the next datagram as sent.
    fn send(&mut self) -> Step {
        let index = self.sent;
        self.sent = index.saturating_add(1);
        Step::Send(index)
    }

    /// Waits for answers to the requests sent at `sent`.
    fn wait_or_end(&self, rhythm: &Rhythm, sent: u64, now: u64) -> Step {
        let end = sent.saturating_add(rhythm.timeout_ns);
        if now < end {
            Step::Wait(end)
        } else {
            Step::Over(rhythm.count.saturating_sub(self.answered))
        }
    }

    fn due(&self, index: u32, interval_ns: u64) -> u64 {
        let after_ns = interval_ns.saturating_mul(u64::from(index));
        self.began.saturating_add(after_ns)
    }

    /// Takes an answer. Returns the time since its request, nanoseconds; `None` if it is not expected or a duplicate.
    pub(crate) fn answer(&mut self, rhythm: &Rhythm, index: u32, now: u64) -> Option<u64> {
        if index >= self.sent || !self.mark(index) {
            return None;
        }
        self.answered = self.answered.saturating_add(1);
        if let Some(interval_ns) = rhythm.interval_ns {
            return now.checked_sub(self.due(index, interval_ns));
        }
        let taken_ns = now.saturating_sub(self.at);
        self.at = now.saturating_add(rhythm.think_ns);
        Some(taken_ns)
    }

    /// Marks an index as answered. Returns false if it was, or if it is more than 63 below the highest.
    fn mark(&mut self, index: u32) -> bool {
        let after = index.saturating_add(1);
        if after > self.highest {
            let shift = after.saturating_sub(self.highest);
            self.observed = self.observed.checked_shl(shift).unwrap_or(0) | 1;
            self.highest = after;
            return true;
        }
        let below = self.highest.saturating_sub(after);
        let Some(bit) = 1_u64.checked_shl(below) else {
            return false;
        };
        let is_new = self.observed & bit == 0;
        self.observed |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_request_waits_for_the_answer_before_it() {
        let rhythm = Rhythm {
            count: 2,
            interval_ns: None,
            think_ns: 5 * MS,
            timeout_ns: 100 * MS,
        };
        let mut udp = Udp::new(10 * MS);
        assert_eq!(udp.step(&rhythm, 10 * MS), Step::Send(0));
        assert_eq!(udp.step(&rhythm, 11 * MS), Step::Wait(110 * MS));
        assert_eq!(udp.answer(&rhythm, 1, 12 * MS), None);
        assert_eq!(udp.answer(&rhythm, 0, 12 * MS), Some(2 * MS));
        assert_eq!(udp.answer(&rhythm, 0, 12 * MS), None);
        assert_eq!(udp.step(&rhythm, 12 * MS), Step::Wait(17 * MS));
        assert_eq!(udp.step(&rhythm, 17 * MS), Step::Send(1));
        let mut unanswered = udp;
        assert_eq!(unanswered.step(&rhythm, 117 * MS), Step::Over(1));
        assert_eq!(udp.answer(&rhythm, 1, 18 * MS), Some(MS));
        assert_eq!(udp.step(&rhythm, 18 * MS), Step::Over(0));
    }

    #[test]
    fn a_stream_keeps_its_schedule() {
        let rhythm = Rhythm {
            count: 3,
            interval_ns: Some(20 * MS),
            think_ns: 0,
            timeout_ns: 50 * MS,
        };
        let mut udp = Udp::new(0);
        assert_eq!(udp.step(&rhythm, 0), Step::Send(0));
        assert_eq!(udp.step(&rhythm, 1), Step::Wait(20 * MS));
        // A late tester sends due requests at once.
        assert_eq!(udp.step(&rhythm, 45 * MS), Step::Send(1));
        assert_eq!(udp.step(&rhythm, 45 * MS), Step::Send(2));
        // The answer took the time since its request was due.
        assert_eq!(udp.answer(&rhythm, 2, 46 * MS), Some(6 * MS));
        assert_eq!(udp.step(&rhythm, 46 * MS), Step::Wait(90 * MS));
        assert_eq!(udp.answer(&rhythm, 0, 47 * MS), Some(47 * MS));
        assert_eq!(udp.step(&rhythm, 90 * MS), Step::Over(1));
    }

    proptest! {
        #[test]
        fn each_answer_counts_once(indices in prop::collection::vec(0u32..60, 1..200)) {
            let rhythm = Rhythm { count: 60, interval_ns: Some(1), think_ns: 0, timeout_ns: 1 };
            let mut udp = Udp::new(0);
            while let Step::Send(_) = udp.step(&rhythm, 100) {}
            let mut plain = BTreeSet::new();
            for index in indices {
                prop_assert_eq!(udp.answer(&rhythm, index, 1_000).is_some(), plain.insert(index));
            }
            let missing = 60 - plain.len() as u32;
            prop_assert_eq!(udp.step(&rhythm, 1_000_000), Step::Over(missing));
        }
    }
}
