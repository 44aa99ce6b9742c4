// SPDX-License-Identifier: Apache-2.0
//! Tests of the gate, and of its protocol in every order that the memory model allows.

use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, fence};

use super::{GateState, channel, enter, is_out, leave, replace};

#[test]
fn a_value_stays_while_a_visit_uses_it() {
    let (mut owner, mut reader) = channel::<Vec<u8>>();
    assert!(reader.enter().is_none());
    owner.open(Box::new(vec![1]));
    let mut visit = reader.enter().unwrap();
    visit.push(2);
    owner.close();
    assert_eq!((owner.former(), owner.collect().len()), (1, 0));
    // A second value does not end the first one's visit.
    owner.open(Box::new(vec![3]));
    assert_eq!(*visit, [1, 2]);
    drop(visit);
    assert_eq!(owner.collect(), [Box::new(vec![1, 2])]);
    assert_eq!(*reader.enter().unwrap(), [3]);
    assert_eq!(owner.take(Duration::ZERO), Some(Box::new(vec![3])));
    assert!(reader.enter().is_none());
}

#[test]
fn a_visit_that_goes_on_is_distinguished_from_later_ones() {
    let (mut owner, mut reader) = channel::<u8>();
    owner.open(Box::new(1));
    assert_eq!(owner.visit(), None);
    let visit = reader.enter().unwrap();
    let epoch = owner.visit().unwrap();
    assert!(!owner.has_ended(epoch));
    drop(visit);
    assert!(owner.has_ended(epoch));
    assert_eq!(owner.visit(), None);
    let _later = reader.enter().unwrap();
    assert!(owner.has_ended(epoch) && owner.visit() != Some(epoch));
}

#[test]
fn taking_gives_up_after_its_wait_and_keeps_the_value() {
    let (mut owner, mut reader) = channel::<u32>();
    owner.open(Box::new(7));
    let visit = reader.enter().unwrap();
    assert_eq!(owner.take(Duration::from_millis(5)), None);
    assert_eq!(*visit, 7);
    drop(visit);
    assert_eq!(owner.collect(), [Box::new(7)]);
}

#[test]
fn a_keeper_that_goes_leaves_the_value_to_the_visit() {
    let value = std::sync::Arc::new(());
    let (mut owner, mut reader) = channel::<std::sync::Arc<()>>();
    owner.open(Box::new(value.clone()));
    let visit = reader.enter().unwrap();
    drop(owner);
    assert_eq!(std::sync::Arc::strong_count(&visit), 2);
    drop(visit);
    assert!(reader.enter().is_none());
    drop(reader);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}

#[test]
fn threads_that_visit_and_take_away_never_meet() {
    let (mut owner, mut reader) = channel::<[u64; 64]>();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let observed = std::sync::Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut visits = 0_u64;
        while !observed.load(Ordering::Relaxed) {
            if let Some(mut visit) = reader.enter() {
                let first = visit[0];
                assert!(visit.iter().all(|number| *number == first));
                visit.fill(first + 1);
                visits += 1;
            }
        }
        visits
    });
    for round in 0..2000 {
        owner.open(Box::new([round * 1_000_000; 64]));
        std::thread::yield_now();
        if let Some(value) = owner.take(Duration::from_secs(20)) {
            assert!(value.iter().all(|number| *number == value[0]));
        }
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

/// The words of a gate whose barriers are both full fences. membarrier(2) has the same effect on a compiler barrier. Without `BARRIERS`
/// they have no effect, and without `ORDERS` every access is relaxed.
struct Model<const BARRIERS: bool, const ORDERS: bool> {
    epoch: AtomicU32,
    pointer: AtomicUsize,
}

impl<const BARRIERS: bool, const ORDERS: bool> Model<BARRIERS, ORDERS> {
    fn order(order: Ordering) -> Ordering {
        if ORDERS { order } else { Ordering::Relaxed }
    }
}

impl<const BARRIERS: bool, const ORDERS: bool> GateState for Model<BARRIERS, ORDERS> {
    type Pointer = usize;

    fn epoch(&self, order: Ordering) -> u32 {
        self.epoch.load(Self::order(order))
    }

    fn set_epoch(&self, epoch: u32, order: Ordering) {
        self.epoch.store(epoch, Self::order(order));
    }

    fn pointer(&self) -> usize {
        self.pointer.load(Self::order(Ordering::Acquire))
    }

    fn swap_pointer(&self, pointer: usize) -> usize {
        self.pointer.swap(pointer, Self::order(Ordering::AcqRel))
    }

    fn light_barrier(&self) {
        if BARRIERS {
            fence(Ordering::SeqCst);
        }
    }

    fn heavy_barrier(&self) {
        self.light_barrier();
    }
}

/// A mapping: loom reports an access that is not ordered with the unmapping.
struct Memory(loom::cell::UnsafeCell<bool>);

// SAFETY: for the model only, which checks what this promises.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

fn unmap_after_visits<const BARRIERS: bool, const ORDERS: bool>() {
    loom::model(|| {
        let words = Arc::new(Model::<BARRIERS, ORDERS> {
            epoch: AtomicU32::new(0),
            pointer: AtomicUsize::new(1),
        });
        let memory = Arc::new([1, 2].map(|_| Memory(loom::cell::UnsafeCell::new(true))));
        let (its_words, its_memory) = (Arc::clone(&words), Arc::clone(&memory));
        let reader = loom::thread::spawn(move || {
            for _ in 0..2 {
                let pointer = enter(&*its_words);
                if pointer > 0 {
                    // SAFETY: the model checks that nothing writes meanwhile.
                    its_memory[pointer - 1]
                        .0
                        .with(|mapped| assert!(unsafe { *mapped }));
                }
                leave(&*its_words);
            }
        });
        // Detached, and another connection attached at once; the first mapping is unmapped once no visit uses it.
        let (former, epoch) = replace(&*words, 2);
        assert_eq!(former, 1);
        if is_out(&*words, epoch) {
            // SAFETY: the model checks that no visit reads meanwhile.
            memory[former - 1]
                .0
                .with_mut(|mapped| unsafe { *mapped = false });
        }
        let (former, epoch) = replace(&*words, 0);
        if is_out(&*words, epoch) {
            // SAFETY: as above.
            memory[former - 1]
                .0
                .with_mut(|mapped| unsafe { *mapped = false });
        }
        reader.join().unwrap();
    });
}

#[test]
fn memory_is_unmapped_after_the_last_visit_in_every_order() {
    unmap_after_visits::<true, true>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_a_visit_to_unmapped_memory_without_barriers() {
    unmap_after_visits::<false, true>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_a_visit_to_unmapped_memory_without_orders() {
    unmap_after_visits::<true, false>();
}
