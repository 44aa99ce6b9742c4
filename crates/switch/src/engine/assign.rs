// SPDX-License-Identifier: Apache-2.0
//! Assignment of receive queues to forwarding threads, as a pure function.
//!
//! A queue mapped to a CPU by configuration goes to that CPU. Any other queue stays with its thread as long as the thread exists. A new
//! queue goes to the thread with the fewest queues, preferring threads on the memory node of the queue's port.

use std::collections::BTreeMap;

/// A receive queue: port and queue number.
pub(crate) type QueueId = (u16, u16);

/// A queue to assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    /// The CPU that it is mapped to by configuration.
    pub(crate) mapped_to: Option<u32>,
    /// Memory node of the port, if known.
    pub(crate) node: Option<u32>,
    /// The CPU of the thread that serves it now.
    pub(crate) served_by: Option<u32>,
}

/// A forwarding thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) cpu: u32,
    /// Memory node of the CPU, if known.
    pub(crate) node: Option<u32>,
}

/// Returns the CPU for each queue. Queues mapped to CPUs without a thread are assigned like unmapped ones. The result is empty if there are
/// no threads.
pub(crate) fn assign(queues: &[Queue], threads: &[Thread]) -> BTreeMap<QueueId, u32> {
    let mut counts: BTreeMap<u32, usize> = threads.iter().map(|thread| (thread.cpu, 0)).collect();
    let mut found = BTreeMap::new();
    for fixed in [
        |queue: &Queue| queue.mapped_to,
        |queue: &Queue| queue.served_by,
    ] {
        for queue in queues {
            if !found.contains_key(&queue.id)
                && let Some(cpu) = fixed(queue)
                && let Some(count) = counts.get_mut(&cpu)
            {
                *count = count.saturating_add(1);
                found.insert(queue.id, cpu);
            }
        }
    }
    for queue in queues {
        if found.contains_key(&queue.id) {
            continue;
        }
        let far = |thread: &Thread| matches!((queue.node, thread.node), (Some(port), Some(cpu)) if port != cpu);
        let best = threads
            .iter()
            .min_by_key(|thread| (far(thread), counts.get(&thread.cpu).copied(), thread.cpu));
        if let Some(thread) = best {
            let count = counts.entry(thread.cpu).or_default();
            *count = count.saturating_add(1);
            found.insert(queue.id, thread.cpu);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(
        port: u16,
        mapped_to: Option<u32>,
        served_by: Option<u32>,
        node: Option<u32>,
    ) -> Queue {
        Queue {
            id: (port, 0),
            mapped_to,
            node,
            served_by,
        }
    }

    fn threads(cpus: &[(u32, u32)]) -> Vec<Thread> {
        let thread = |(cpu, node): &(u32, u32)| Thread {
            cpu: *cpu,
            node: Some(*node),
        };
        cpus.iter().map(thread).collect()
    }

    #[test]
    fn new_queues_go_round() {
        let queues: Vec<_> = (0..5).map(|port| queue(port, None, None, None)).collect();
        let found = assign(&queues, &threads(&[(2, 0), (3, 0)]));
        let cpus: Vec<u32> = found.values().copied().collect();
        assert_eq!(cpus, [2, 3, 2, 3, 2]);
    }

    #[test]
    fn configured_cpus_precede_former_threads_and_these_the_balance() {
        let queues = [
            queue(0, None, Some(3), None),
            queue(1, Some(2), Some(3), None),
            queue(2, None, Some(3), None),
            queue(3, Some(9), None, None),
        ];
        let found = assign(&queues, &threads(&[(2, 0), (3, 0)]));
        assert_eq!(found[&(0, 0)], 3);
        assert_eq!(found[&(1, 0)], 2);
        assert_eq!(found[&(2, 0)], 3);
        // CPU 9 has no thread: the queue goes to the thread with the fewest queues.
        assert_eq!(found[&(3, 0)], 2);
    }

    #[test]
    fn the_node_of_the_port_precedes_the_balance() {
        let queues: Vec<_> = (0..4)
            .map(|port| queue(port, None, None, Some(1)))
            .collect();
        let found = assign(&queues, &threads(&[(0, 0), (8, 1), (9, 1)]));
        assert_eq!(found.values().copied().collect::<Vec<_>>(), [8, 9, 8, 9]);
        // No thread on that node: any thread.
        let found = assign(&queues, &threads(&[(0, 0)]));
        assert!(found.values().all(|cpu| *cpu == 0));
        assert!(assign(&queues, &[]).is_empty());
    }
}
