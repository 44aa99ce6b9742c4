// SPDX-License-Identifier: Apache-2.0
//! Tests of the protocol between the writer and the readers, in every order that the memory model allows.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};

use super::{Hit, LOOKS, Range, Table, Word};

/// Ranges that differ in each word. Each address of the first is in the second too.
const HIGH: Range = range(20, 29, 200, 2);
const OTHER: Range = range(15, 24, 300, 3);
const LOW: Range = range(0, 9, 100, 1);
/// An address of [`HIGH`] and [`OTHER`].
const IOVA: u64 = 22;

const fn range(first: u64, last: u64, user: u64, permission: u64) -> Range {
    Range {
        first,
        last,
        user,
        permission,
    }
}

fn is(hit: &Hit, range: &Range) -> bool {
    let words = (hit.first, hit.last, hit.user, hit.permission);
    words == (range.first, range.last, range.user, range.permission)
}

/// A word of the model checker. Fences have no effect without `FENCES`, and each access is relaxed without `ORDERS`.
#[derive(Debug, Default)]
struct Model<const FENCES: bool, const ORDERS: bool>(AtomicU64);

impl<const FENCES: bool, const ORDERS: bool> Word for Model<FENCES, ORDERS> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(if ORDERS { order } else { Ordering::Relaxed })
    }

    fn store(&self, value: u64, order: Ordering) {
        let order = if ORDERS { order } else { Ordering::Relaxed };
        self.0.store(value, order);
    }

    fn fence(order: Ordering) {
        if FENCES {
            fence(order);
        }
    }
}

type Exact = Model<true, true>;

fn table<W: Word>(ranges: &[Range]) -> Arc<Table<W>> {
    let table = Table::new(2);
    table.write(ranges.iter());
    Arc::new(table)
}

/// Returns settings of a model with at most three preemptions, or as many as `LOOM_MAX_PREEMPTIONS` states.
fn few_preemptions() -> Builder {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder
}

/// Searches for [`IOVA`] while `after` replaces `before`.
fn find_while_written<W: Word + Send + Sync + 'static>(
    settings: &Builder,
    before: &'static [Range],
    after: &'static [Range],
) {
    settings.check(move || {
        let table = table::<W>(before);
        let its_table = Arc::clone(&table);
        let reader = loom::thread::spawn(move || {
            if let Some(hit) = its_table.find(IOVA, 1) {
                let mut valid = before.iter().chain(after);
                assert!(valid.any(|range| is(&hit, range)), "not a range: {hit:?}");
            }
        });
        table.write(after.iter());
        reader.join().unwrap();
    });
}

#[test]
fn a_range_is_found_whole_while_another_takes_its_place() {
    find_while_written::<Exact>(&few_preemptions(), &[HIGH], &[OTHER]);
}

#[test]
fn a_range_is_found_whole_while_it_moves_up() {
    find_while_written::<Exact>(&few_preemptions(), &[HIGH], &[LOW, HIGH]);
}

#[test]
fn a_range_is_found_whole_while_it_moves_down() {
    find_while_written::<Exact>(&few_preemptions(), &[LOW, HIGH], &[HIGH]);
}

#[test]
#[should_panic(expected = "not a range")]
fn the_model_finds_what_happens_without_fences() {
    find_while_written::<Model<false, true>>(&Builder::new(), &[HIGH], &[OTHER]);
}

#[test]
#[should_panic(expected = "not a range")]
fn the_model_finds_what_happens_without_orders() {
    find_while_written::<Model<true, false>>(&Builder::new(), &[HIGH], &[OTHER]);
}

/// The visits of a reader and the writer: as in `quietwire_memory::gate`, with full fences as its barriers.
#[derive(Debug, Default)]
struct Gate(AtomicU64);

impl Gate {
    fn step(&self) {
        let epoch = self.0.load(Ordering::Relaxed);
        self.0.store(epoch + 1, Ordering::Release);
    }

    fn enter(&self) {
        self.step();
        fence(Ordering::SeqCst);
    }

    fn leave(&self) {
        self.step();
    }

    /// Returns true if visits from now on see what this thread wrote before, and earlier visits have ended.
    fn has_passed(&self) -> bool {
        fence(Ordering::SeqCst);
        let epoch = self.0.load(Ordering::Acquire);
        epoch.is_multiple_of(2) || self.0.load(Ordering::Acquire) != epoch
    }
}

/// Removes a range and replies, once earlier visits have ended if `waits`.
fn remove_and_reply(waits: bool) {
    loom::model(move || {
        let shared = Arc::new((
            table::<Exact>(&[HIGH]),
            Gate::default(),
            AtomicBool::new(false),
        ));
        let its = Arc::clone(&shared);
        let reader = loom::thread::spawn(move || {
            let (table, gate, is_answered) = &*its;
            let mut kept = Hit::NONE;
            for _ in 0..2 {
                gate.enter();
                if !table.is_current(&kept) {
                    kept = table.find(IOVA, 1).unwrap_or(Hit::NONE);
                }
                if kept.translate(IOVA).is_some() {
                    assert!(!is_answered.load(Ordering::Relaxed), "used after removal");
                }
                gate.leave();
            }
        });
        let (table, gate, is_answered) = &*shared;
        table.write([].iter());
        if gate.has_passed() || !waits {
            is_answered.store(true, Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_removed_range_is_not_used_once_its_removal_is_answered() {
    remove_and_reply(true);
}

#[test]
#[should_panic(expected = "used after removal")]
fn the_model_finds_a_reply_that_does_not_wait_for_visits() {
    remove_and_reply(false);
}

#[test]
fn a_range_that_was_written_before_is_found_at_the_first_look() {
    loom::model(|| {
        let table = table::<Exact>(&[HIGH]);
        let is_written = Arc::new(AtomicBool::new(false));
        let (its_table, its_flag) = (Arc::clone(&table), Arc::clone(&is_written));
        let reader = loom::thread::spawn(move || {
            if its_flag.load(Ordering::Acquire) {
                assert!(its_table.find(IOVA, 1).is_none());
                let low = its_table.find(5, 1).expect("a written range");
                assert!(is(&low, &LOW) && its_table.is_current(&low));
            }
        });
        table.write([LOW].iter());
        is_written.store(true, Ordering::Release);
        reader.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a written range")]
fn the_model_finds_a_flag_that_is_set_before_the_range() {
    loom::model(|| {
        let table = table::<Exact>(&[HIGH]);
        let is_written = Arc::new(AtomicBool::new(false));
        let (its_table, its_flag) = (Arc::clone(&table), Arc::clone(&is_written));
        let reader = loom::thread::spawn(move || {
            if its_flag.load(Ordering::Acquire) {
                its_table.find(5, 1).expect("a written range");
            }
        });
        is_written.store(true, Ordering::Release);
        table.write([LOW].iter());
        reader.join().unwrap();
    });
}

/// A word that has another value at each reading.
#[derive(Debug, Default)]
struct Restless(Cell<u64>);

impl Word for Restless {
    fn load(&self, _order: Ordering) -> u64 {
        self.0.replace(self.0.get() + 2)
    }

    fn store(&self, value: u64, _order: Ordering) {
        self.0.set(value);
    }

    fn fence(_order: Ordering) {}
}

#[test]
fn a_reader_gives_up_while_the_table_keeps_changing() {
    let table: Table<Restless> = Table::new(1024);
    table.count.0.set(1024);
    assert!(table.find(1, LOOKS).is_none());
    let loads = |word: &Restless| word.0.get() / 2;
    assert_eq!(loads(&table.sequence), 2 * LOOKS as u64);
    let of_entries: u64 = table.entries.iter().map(|entry| loads(&entry.first)).sum();
    // A binary search, and the entry that it found.
    assert!((1..=LOOKS as u64 * (11 + 1)).contains(&of_entries));
}
