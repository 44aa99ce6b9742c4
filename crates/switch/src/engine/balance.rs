// SPDX-License-Identifier: Apache-2.0
//! Selection of receive queues to move so that the load of the busiest forwarding thread decreases. A pure function of measured loads, so
//! that it supports dry runs.
//!
//! Load is the share of a CPU that a queue's frames cost. Queues move one after another from the busiest thread to the least busy one, as
//! long as a move lowers the highest load by more than the hysteresis. The hysteresis prevents a queue with a varying load from moving back
//! and forth.
//!
//! If no move of a queue helps, entries of a card's redirection table move from a queue of the busiest thread to a queue of the same card on
//! another thread. All entries of a queue count as equally busy.

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
    /// Entries of the redirection table that select it, 0 without a table.
    pub(crate) entries: u16,
}

/// Cost of each queue at the last sample.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    pub(super) observed: BTreeMap<QueueId, u64>,
    pub(super) shares: BTreeMap<QueueId, f64>,
    pub(super) at: Option<Instant>,
}

/// A proposed move of a queue, or of a part of its flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) id: QueueId,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The part that moves; `None` for the whole queue.
    pub(crate) part: Option<Part>,
    pub(crate) reason: MoveReason,
}

/// Entries of a redirection table that move to another queue of the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) to_queue: u16,
    pub(crate) entries: u16,
}

/// Reason of a move: loads before and after, shares of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MoveReason {
    /// Load of what moves.
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
        && let Some(found) =
            best_move(&loads, cpus, rules).or_else(|| best_part(&loads, cpus, rules))
    {
        apply(&mut loads, &found);
        moves.push(found);
    }
    moves
}

/// Changes loads to those expected after a move.
fn apply(loads: &mut [Load], found: &Move) {
    for load in loads.iter_mut() {
        let is_moved = load.id == found.id;
        match found.part {
            None if is_moved => load.cpu = found.to,
            Some(part) if is_moved => {
                load.entries = load.entries.saturating_sub(part.entries);
                load.share -= found.reason.queue;
            }
            Some(part) if load.id == (found.id.0, part.to_queue) => {
                load.entries = load.entries.saturating_add(part.entries);
                load.share += found.reason.queue;
            }
            _ => {}
        }
    }
}

/// Returns the load of each CPU.
fn totals(loads: &[Load], cpus: &[u32]) -> BTreeMap<u32, f64> {
    let mut totals: BTreeMap<u32, f64> = cpus.iter().map(|cpu| (*cpu, 0.0)).collect();
    for load in loads {
        *totals.entry(load.cpu).or_default() += load.share;
    }
    totals
}

fn best_move(loads: &[Load], cpus: &[u32], rules: &Rules) -> Option<Move> {
    let totals = totals(loads, cpus);
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
        part: None,
        reason: MoveReason {
            queue: best.share,
            from_before,
            to_before,
        },
    })
}

/// Returns the entries of a redirection table whose move lowers the load of the busiest thread most. A queue keeps at least one entry.
fn best_part(loads: &[Load], cpus: &[u32], rules: &Rules) -> Option<Move> {
    let totals = totals(loads, cpus);
    let (from, from_before) = extreme(&totals, f64::gt)?;
    if from_before < rules.threshold {
        return None;
    }
    let busy = loads
        .iter()
        .filter(|load| load.cpu == from && load.entries > 1);
    let pairs = busy.flat_map(|load| {
        let others = loads.iter().filter(move |other| {
            other.id.0 == load.id.0 && other.cpu != from && cpus.contains(&other.cpu)
        });
        others.map(move |other| (load, other))
    });
    let found = pairs.filter_map(|(load, other)| {
        let to_before = totals.get(&other.cpu).copied()?;
        let of_entry = load.share / f64::from(load.entries);
        // Both threads are equally busy afterwards.
        let wanted = ((from_before - to_before) / 2.0 / of_entry).round();
        let entries = whole(wanted).min(load.entries.saturating_sub(1));
        let moved = of_entry * f64::from(entries);
        let after = (from_before - moved).max(to_before + moved);
        (from_before - after >= rules.improvement).then_some((
            after,
            Move {
                id: load.id,
                from,
                to: other.cpu,
                part: Some(Part {
                    to_queue: other.id.1,
                    entries,
                }),
                reason: MoveReason {
                    queue: moved,
                    from_before,
                    to_before,
                },
            },
        ))
    });
    found
        .min_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, found)| found)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "values beyond the limits of 16 bits become these limits, and NaN becomes 0"
)]
const fn whole(number: f64) -> u16 {
    number as u16
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
            entries: 0,
        }
    }

    /// A queue of port 0 whose card has a table.
    fn with_entries(queue: u16, cpu: u32, share: f64, entries: u16) -> Load {
        Load {
            id: (0, queue),
            entries,
            ..load(0, cpu, share)
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

    #[test]
    fn entries_of_a_table_move_if_no_queue_does() {
        let loads = [with_entries(0, 1, 0.9, 64), with_entries(1, 2, 0.1, 64)];
        let moves = balance(&loads, &[1, 2], &Rules::default());
        let [found] = moves[..] else {
            panic!("{moves:?}")
        };
        assert_eq!((found.id, found.from, found.to), ((0, 0), 1, 2));
        // 28 of 64 entries have 44 % of the load of the queue.
        let part = Part {
            to_queue: 1,
            entries: 28,
        };
        assert_eq!(found.part, Some(part));
        assert_eq!(
            found.reason.to_string(),
            "queue load 39 %, thread loads change from 90 % and 10 % to 51 % and 49 %"
        );
        // A queue that can move goes first, mapped queues give entries, and the last entry stays.
        let both = [
            with_entries(0, 1, 0.5, 64),
            with_entries(1, 2, 0.1, 64),
            load(1, 1, 0.4),
        ];
        assert_eq!(balance(&both, &[1, 2], &Rules::default())[0].part, None);
        let mapped = [
            Load {
                is_mapped: true,
                ..with_entries(0, 1, 0.9, 2)
            },
            with_entries(1, 2, 0.0, 126),
        ];
        let moves = balance(&mapped, &[1, 2], &Rules::default());
        assert_eq!(moves[0].part.unwrap().entries, 1);
        let single = [with_entries(0, 1, 0.9, 1), with_entries(1, 2, 0.1, 127)];
        assert!(balance(&single, &[1, 2], &Rules::default()).is_empty());
        // The queues of another port do not share the table.
        let other = [with_entries(0, 1, 0.9, 64), load(1, 2, 0.1)];
        assert!(balance(&other, &[1, 2], &Rules::default()).is_empty());
    }

    proptest! {
        #[test]
        fn the_highest_load_falls_with_every_move_and_then_nothing_is_left_to_do(
            shares in prop::collection::vec(
                (0.0..1.0f64, 0u32..4, any::<bool>(), 0u16..3, 0u16..200),
                0..40,
            )
        ) {
            let rules = Rules { moves_max: 1000, ..Rules::default() };
            let cpus = [0, 1, 2, 3];
            let mut loads: Vec<Load> = shares
                .iter()
                .enumerate()
                .map(|(queue, (share, cpu, is_mapped, port, entries))| Load {
                    id: (*port, queue as u16),
                    is_mapped: *is_mapped,
                    entries: *entries,
                    ..load(*port, *cpu, *share)
                })
                .collect();
            let total = |loads: &[Load], cpu: u32| -> f64 {
                loads.iter().filter(|load| load.cpu == cpu).map(|load| load.share).sum()
            };
            for found in balance(&loads.clone(), &cpus, &rules) {
                let higher = total(&loads, found.from).max(total(&loads, found.to));
                let entries: u16 = loads.iter().map(|load| load.entries).sum();
                for load in loads.iter().filter(|load| load.id == found.id) {
                    prop_assert!(!load.is_mapped || found.part.is_some());
                }
                apply(&mut loads, &found);
                prop_assert_eq!(loads.iter().map(|load| load.entries).sum::<u16>(), entries);
                prop_assert!(loads.iter().all(|load| load.share > -1e-9));
                let after = total(&loads, found.from).max(total(&loads, found.to));
                prop_assert!(after <= higher - rules.improvement + 1e-9);
            }
            prop_assert!(balance(&loads, &cpus, &rules).is_empty());
        }
    }
}
