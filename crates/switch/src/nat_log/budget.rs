// SPDX-License-Identifier: Apache-2.0
//! Rate of the log: events that the control thread may write and send in a turn, and their distribution over instances.

use std::time::Instant;

/// Events of all instances in a second, at most.
pub(super) const EVENTS_A_SECOND: usize = 50_000;
/// Events of a turn, at most: those of a fifth of a second.
pub(super) const EVENTS_A_TURN: usize = EVENTS_A_SECOND / 5;
const MICROSECONDS: u128 = 1_000_000;

/// Events that may be written now.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
    /// Time at which it was raised; none at first.
    raised: Option<Instant>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: EVENTS_A_TURN,
            raised: None,
        }
    }
}

impl Budget {
    /// Raises the budget by the time that has passed, and returns it.
    pub(super) fn raise(&mut self, now: Instant) -> usize {
        let raised = *self.raised.get_or_insert(now);
        let passed = now.saturating_duration_since(raised).as_micros();
        let added = passed.saturating_mul(EVENTS_A_SECOND as u128);
        let added = added.checked_div(MICROSECONDS).unwrap_or(0);
        let added = usize::try_from(added).unwrap_or(usize::MAX);
        // Short times add up to one event.
        if added > 0 {
            self.raised = Some(now);
            self.left = self.left.saturating_add(added).min(EVENTS_A_TURN);
        }
        self.left
    }

    /// Lowers the budget by a number of events.
    pub(super) fn spend(&mut self, events: usize) {
        self.left = self.left.saturating_sub(events);
    }
}

/// Distributes a number of events over rings with these numbers of waiting events: the same to each, and what is left in their order.
pub(super) fn shares(available: usize, waiting: &[usize]) -> Vec<usize> {
    let each = available.checked_div(waiting.len()).unwrap_or(0);
    let mut shares: Vec<usize> = waiting.iter().map(|count| each.min(*count)).collect();
    let given = shares.iter().copied().fold(0, usize::saturating_add);
    let mut left = available.saturating_sub(given);
    for (share, count) in shares.iter_mut().zip(waiting) {
        let added = left.min(count.saturating_sub(*share));
        *share = share.saturating_add(added);
        left = left.saturating_sub(added);
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_budget_has_the_rate_for_long_and_for_short_turns() {
        for turn in [
            Duration::from_micros(7),
            Duration::from_millis(1),
            Duration::from_millis(100),
        ] {
            let (mut budget, mut now, mut sum) = (Budget::default(), Instant::now(), 0);
            let end = now + Duration::from_secs(1);
            while now < end {
                let events = budget.raise(now);
                assert!(events <= EVENTS_A_TURN);
                budget.spend(events);
                sum += events;
                now += turn;
            }
            let expected = EVENTS_A_SECOND + EVENTS_A_TURN;
            assert!(sum <= expected, "{turn:?}: {sum}");
            // Rounding, and the last turn.
            assert!(sum >= EVENTS_A_SECOND * 3 / 4, "{turn:?}: {sum}");
        }
        let mut budget = Budget::default();
        let now = Instant::now();
        assert_eq!(budget.raise(now), EVENTS_A_TURN);
        budget.spend(EVENTS_A_TURN);
        assert_eq!(budget.raise(now), 0);
        // A long pause adds no more than a turn.
        let late = now + Duration::from_secs(1000);
        assert_eq!(budget.raise(late), EVENTS_A_TURN);
    }

    #[test]
    fn each_ring_has_a_share_and_what_others_do_not_need() {
        assert_eq!(shares(100, &[10, 20, 30]), [10, 20, 30]);
        assert_eq!(shares(90, &[1000, 1000, 1000]), [30, 30, 30]);
        assert_eq!(shares(90, &[1000, 0, 10]), [80, 0, 10]);
        assert_eq!(shares(usize::MAX, &[5, 7]), [5, 7]);
        assert_eq!(shares(0, &[5]), [0]);
        assert!(shares(10, &[]).is_empty());
    }
}
