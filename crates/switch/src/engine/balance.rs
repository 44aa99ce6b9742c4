// SPDX-License-Identifier: Apache-2.0
//! Selection of receive queues to move so that the load of the busiest forwarding thread decreases. A pure function of measured loads, so
//! that it supports dry runs.
//!
//! Load is the share of a CPU that a queue's frames cost. Queues move one after another from the busiest thread to the least busy one, as
//! long as a move lowers the highest load by more than the hysteresis. The hysteresis prevents a queue with a varying load from moving back
//! and forth.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use super::assign::QueueId;
use crate::config::rebalance::Rules;

/// Load of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) id: QueueId,
    /// CPU of the thread that serves it.
    pub(crate) cpu: u32,
    /// Share of a CPU, 0 to 1.
    pub(crate) share: f64,
    /// Mapped by configuration, so it never moves.
    pub(crate) is_mapped: bool,
}

/// Cost of each queue at the last sample.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    pub(super) observed: BTreeMap<QueueId, u64>,
    pub(super) shares: BTreeMap<QueueId, f64>,
    pub(super) at: Option<Instant>,
}

/// A proposed move of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) id: QueueId,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) reason: MoveReason,
}

/// Reason of a move: loads before and after, shares of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MoveReason {
    pub(crate) queue: f64,
    pub(crate) from_before: f64,
    pub(crate) to_before: f64,
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        write!(
            f,
            "queue load {:.0} %, thread loads change from {:.0} % and {:.0} % to {:.0} % and {:.0} %",
            percent(self.queue),
            percent(self.from_before),
            percent(self.to_before),
            percent(self.from_before - self.queue),
            percent(self.to_before + self.queue),
        )
    }
}

/// Returns the moves worth making, in order. `cpus` are all CPUs that can take a queue.
pub(crate) fn balance(loads: &[Load], cpus: &[u32], rules: &Rules) -> Vec<Move> {
    let mut loads = loads.to_vec();
    let mut moves = Vec::new();
    while moves.len() < rules.moves_max
        && let Some(found) = best_move(&loads, cpus, rules)
    {
        for load in loads.iter_mut().filter(|load| load.id == found.id) {
            load.cpu = found.to;
        }
        moves.push(found);
    }
    moves
}

fn best_move(loads: &[Load], cpus: &[u32], rules: &Rules) -> Option<Move> {
    let mut totals: BTreeMap<u32, f64> = cpus.iter().map(|cpu| (*cpu, 0.0)).collect();
    for load in loads {
        *totals.entry(load.cpu).or_default() += load.share;
    }
    let (from, from_before) = extreme(&totals, f64::gt)?;
    let (to, to_before) = extreme(&totals, f64::lt)?;
    if from_before < rules.threshold || from == to {
        return None;
    }
    // The higher of the two loads after the move.
    let after = |load: &Load| (from_before - load.share).max(to_before + load.share);
    let best = loads
        .iter()
        .filter(|load| load.cpu == from && !load.is_mapped)
        .min_by(|a, b| after(a).total_cmp(&after(b)))?;
    (from_before - after(best) >= rules.improvement).then_some(Move {
        id: best.id,
        from,
        to,
        reason: MoveReason {
            queue: best.share,
            from_before,
            to_before,
        },
    })
}

/// Returns the first thread whose load exceeds all others in the given order.
fn extreme(totals: &BTreeMap<u32, f64>, beyond: fn(&f64, &f64) -> bool) -> Option<(u32, f64)> {
    let mut found: Option<(u32, f64)> = None;
    for (cpu, total) in totals {
        if found.is_none_or(|(_, best)| beyond(total, &best)) {
            found = Some((*cpu, *total));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(port: u16, cpu: u32, share: f64) -> Load {
        Load {
            id: (port, 0),
            cpu,
            share,
            is_mapped: false,
        }
    }

    #[test]
    fn the_queue_that_helps_most_goes_to_the_least_busy() {
        let loads = [
            load(0, 1, 0.5),
            load(1, 1, 0.4),
            load(2, 2, 0.3),
            load(3, 3, 0.1),
        ];
        let moves = balance(&loads, &[1, 2, 3], &Rules::default());
        assert_eq!(moves.len(), 1);
        assert_eq!((moves[0].id, moves[0].from, moves[0].to), ((1, 0), 1, 3));
        assert_eq!(
            moves[0].reason.to_string(),
            "queue load 40 %, thread loads change from 90 % and 10 % to 50 % and 50 %"
        );
    }

    #[test]
    fn little_load_little_gain_and_maps_stay() {
        let rules = Rules::default();
        let idle = [load(0, 1, 0.3), load(1, 1, 0.3)];
        assert!(balance(&idle, &[1, 2], &rules).is_empty());
        // One heavy queue: moving it only moves the load.
        assert!(balance(&[load(0, 1, 0.95)], &[1, 2], &rules).is_empty());
        let even = [load(0, 1, 0.45), load(1, 1, 0.5), load(2, 2, 0.9)];
        assert!(balance(&even, &[1, 2], &rules).is_empty());
        let mapped = [
            Load {
                is_mapped: true,
                ..load(0, 1, 0.5)
            },
            load(1, 1, 0.01),
        ];
        assert!(balance(&mapped, &[1, 2], &rules).is_empty());
    }

    proptest! {
        #[test]
        fn the_highest_load_falls_with_every_move_and_then_nothing_is_left_to_do(
            shares in prop::collection::vec((0.0..1.0f64, 0u32..4, any::<bool>()), 0..40)
        ) {
            let rules = Rules { moves_max: 1000, ..Rules::default() };
            let cpus = [0, 1, 2, 3];
            let mut loads: Vec<Load> = shares
                .iter()
                .enumerate()
                .map(|(port, (share, cpu, is_mapped))| Load {
                    is_mapped: *is_mapped,
                    ..load(port as u16, *cpu, *share)
                })
                .collect();
            let total = |loads: &[Load], cpu: u32| -> f64 {
                loads.iter().filter(|load| load.cpu == cpu).map(|load| load.share).sum()
            };
            for found in balance(&loads.clone(), &cpus, &rules) {
                let higher = total(&loads, found.from).max(total(&loads, found.to));
                for load in loads.iter_mut().filter(|load| load.id == found.id) {
                    prop_assert!(!load.is_mapped);
                    load.cpu = found.to;
                }
                let after = total(&loads, found.from).max(total(&loads, found.to));
                prop_assert!(after <= higher - rules.improvement + 1e-9);
            }
            prop_assert!(balance(&loads, &cpus, &rules).is_empty());
        }
    }
}
