// SPDX-License-Identifier: Apache-2.0
//! Pause before the traffic.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Waits for `time`, or until `abort` is set.
pub(super) fn leave_alone(time: Duration, abort: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !abort.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10).min(time));
    }
}
