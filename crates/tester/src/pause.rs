// SPDX-License-Identifier: Apache-2.0
//! Pause between trials of a real-time tester.

use std::time::Duration;

/// Sleeps for 75 ms between trials, so that other threads get the tester's CPU.
///
/// From Linux 6.12 on, the kernel takes the CPU from a real-time thread for 50 ms once other threads have waited for almost a second (the
/// fair server of kernel/sched/deadline.c), and only a setting in debugfs prevents it. A trial shorter than that, after a longer pause,
/// is never interrupted. Older kernels limit real-time threads by `sched_rt_runtime_us`.
pub fn leave_cpu() {
    std::thread::sleep(Duration::from_millis(75));
}
