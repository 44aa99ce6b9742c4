// SPDX-License-Identifier: Apache-2.0
//! Counters of one queue: written by the thread that owns the queue, read by any thread.

use quietwire_base::Counter;

use super::stats::PortStats;

/// Counters of a queue, in a separate cache line because its thread writes them every burst.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct QueueCounters {
    /// Frames received or sent.
    pub(crate) frames: Counter,
    /// Octets of these frames.
    pub(crate) octets: Counter,
    /// Invalid descriptor chains, and indices out of range.
    pub(crate) malformed: Counter,
    /// Frames longer than the port's largest frame.
    pub(crate) too_long: Counter,
    /// Frames lost because the pool had no buffer.
    pub(crate) no_buffers: Counter,
    /// Frames that are too large for the peer's buffers, or that could not be copied.
    pub(crate) refused: Counter,
    /// Interrupts sent to the peer.
    pub(crate) notifications: Counter,
}

/// Returns names and values of a queue's additional counters.
fn named(counters: &QueueCounters) -> [(&'static str, u64); 5] {
    [
        ("malformed_buffers", counters.malformed.get()),
        ("too_long", counters.too_long.get()),
        ("no_buffers", counters.no_buffers.get()),
        ("refused", counters.refused.get()),
        ("notifications", counters.notifications.get()),
    ]
}

/// Returns the sums over all queues.
pub(crate) fn sum<'queue>(
    rx: impl IntoIterator<Item = &'queue QueueCounters>,
    tx: impl IntoIterator<Item = &'queue QueueCounters>,
) -> PortStats {
    let add = |sum: &mut u64, counter: &Counter| *sum = sum.saturating_add(counter.get());
    let mut stats = PortStats::default();
    for queue in rx {
        add(&mut stats.rx_frames, &queue.frames);
        add(&mut stats.rx_octets, &queue.octets);
        for errors in [&queue.malformed, &queue.too_long, &queue.refused] {
            add(&mut stats.rx_errors, errors);
        }
        add(&mut stats.rx_no_buffers, &queue.no_buffers);
    }
    for queue in tx {
        add(&mut stats.tx_frames, &queue.frames);
        add(&mut stats.tx_octets, &queue.octets);
        for errors in [&queue.malformed, &queue.too_long, &queue.refused] {
            add(&mut stats.tx_errors, errors);
        }
    }
    stats
}

/// Returns the counters that are not 0, named like DPDK's extended statistics (`rx_q0_malformed_buffers`).
pub(crate) fn extended<'queue>(
    direction: &str,
    queues: impl IntoIterator<Item = &'queue QueueCounters>,
) -> Vec<(String, u64)> {
    queues
        .into_iter()
        .enumerate()
        .flat_map(|(index, queue)| {
            named(queue).map(|(name, value)| (format!("{direction}_q{index}_{name}"), value))
        })
        .filter(|(_, value)| *value > 0)
        .collect()
}
