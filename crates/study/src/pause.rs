// SPDX-License-Identifier: Apache-2.0
//! Pauses between trials.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::Deadline;

/// Pause before the first repeat of an invalid trial. It doubles with each further repeat.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// Interval between checks of `stop`.
const POLL: Duration = Duration::from_millis(20);

/// Returns the pause before the next trial after this number of consecutive invalid ones. A disturbance of the tester may end in this
/// time.
pub(crate) fn after_invalid(in_a_row: u32) -> Duration {
    let doublings = in_a_row.saturating_sub(1);
    let pause = FIRST.saturating_mul(2_u32.saturating_pow(doublings));
    if in_a_row == 0 {
        Duration::ZERO
    } else {
        pause.min(LONGEST)
    }
}

/// Waits for this time, or until `stop` is set.
pub(crate) fn wait(pause: Duration, stop: &AtomicBool) {
    Deadline::after(pause).poll(POLL, || stop.load(Ordering::Relaxed).then_some(()));
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let ms = |in_a_row| after_invalid(in_a_row).as_millis();
        assert_eq!([0, 1, 2, 3, 4].map(ms), [0, 100, 200, 400, 800]);
        assert_eq!(
            [6, 7, 8, 40, u32::MAX].map(ms),
            [3200, 5000, 5000, 5000, 5000]
        );
    }

    #[test]
    fn a_pause_ends_when_the_end_is_wanted() {
        let began = Instant::now();
        wait(Duration::from_secs(3600), &AtomicBool::new(true));
        wait(Duration::from_millis(1), &AtomicBool::new(false));
        assert!(began.elapsed() < Duration::from_secs(1800));
    }
}
