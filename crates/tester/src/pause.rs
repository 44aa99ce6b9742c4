// SPDX-License-Identifier: Apache-2.0
//! The pause between trials of a real-time tester.

use std::time::Duration;

/// Leaves the tester's CPU to other threads for 75 ms, between trials. From Linux 6.12 on the kernel takes the CPU from a
/// real-time thread for 50 ms once others have waited for almost a second (the fair server of kernel/sched/deadline.c), and only
/// a setting of debugfs prevents it; a trial shorter than that, after a longer pause, is never interrupted. Older kernels
/// limit real-time threads by `sched_rt_runtime_us`.
pub fn leave_cpu() {
    std::thread::sleep(Duration::from_millis(75));
}
