// SPDX-License-Identifier: Apache-2.0
//! Turns of a run. A turn that fails leaves its round empty, and the run continues. After a signal, no further turn begins.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::record::{Point, Run};

/// Set by the first signal.
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes SIGINT and SIGTERM end the run after the current turn, so that the run is stored. A second signal ends the process.
pub(crate) fn end_on_signals() {
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal does no more than set the flag.
        let ends = flag::register_conditional_shutdown(signal, 1, Arc::clone(&INTERRUPTED));
        let sets = flag::register(signal, Arc::clone(&INTERRUPTED));
        ends.and(sets).expect("a signal handler");
    }
}

/// Returns true if a signal ends the run.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

impl Run {
    /// Measures a turn, which adds a value to each figure of these points. Returns true if it has succeeded. If `measure` panics, the
    /// figures of the points have no value in this round, so that the rounds of all sides stay paired. Without effect after a signal.
    pub(crate) fn turn(&mut self, points: &[Point], measure: impl FnOnce(&mut Self)) -> bool {
        if is_interrupted() {
            return false;
        }
        let before: Vec<usize> = self
            .series
            .iter()
            .map(|series| series.rounds.len())
            .collect();
        // What the turn leaves half done is repaired below, and no other turn uses its processes and directories.
        if catch_unwind(AssertUnwindSafe(|| measure(self))).is_ok() {
            return true;
        }
        // A signal may also have ended the programs of the turn.
        let is_round = !is_interrupted();
        for (index, series) in self.series.iter_mut().enumerate() {
            if points.contains(&series.point) {
                let length = before.get(index).copied().unwrap_or(0);
                series.rounds.truncate(length);
                series.rounds.extend(is_round.then_some(None));
            }
        }
        if is_round {
            self.failed += 1;
            for point in points {
                eprintln!("a round without figures: {}, {}", point.case, point.side);
            }
        }
        false
    }

    /// Returns true if no figure of the run has a value, although some were expected.
    pub(crate) fn is_without_values(&self) -> bool {
        !self.series.is_empty() && self.series.iter().all(|series| series.values().is_empty())
    }

    /// Returns the number of rounds that the longest figure has.
    pub(crate) fn longest(&self) -> u32 {
        let lengths = self.series.iter().map(|series| series.rounds.len());
        lengths.max().unwrap_or(0) as u32
    }
}
