// SPDX-License-Identifier: Apache-2.0
//! Handles: numbers that name an object, and the table of all objects.
//!
//! A handle has the kind of its object, the slot in the table, and the number of objects that the slot has had. So a handle of a destroyed
//! object is refused, even if the slot has a new one. The table has a fixed size, and finding an object takes no lock: the lock of the
//! object itself is only ever tried, and only by those who have its handle.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::classifier::Classifier;
use crate::status::Status;
use crate::tracker::ConnectionTable;

/// Maximum number of objects of a process: `QW_HANDLES_MAX`.
pub(crate) const HANDLES_MAX: usize = 1024;

/// Bits of a handle, from the least significant one: slot, generation, kind.
const GENERATION: u32 = 24;
const KIND: u32 = 56;
const SLOT: u64 = (1 << GENERATION) - 1;

/// Kind of an object. No handle is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rules.
    Classifier = 1,
    /// Connections.
    Tracker = 2,
}

/// An object that a handle names.
#[derive(Debug)]
pub(crate) enum Object {
    /// Rules.
    Classifier(Box<Classifier>),
    /// Connections.
    Tracker(Box<ConnectionTable>),
}

impl Object {
    const fn kind(&self) -> Kind {
        match self {
            Self::Classifier(_) => Kind::Classifier,
            Self::Tracker(_) => Kind::Tracker,
        }
    }
}

/// A slot of the table, in a cache line of its own: threads use different objects.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// Increases when an object is created and when it is destroyed: odd while the object exists.
    generation: AtomicU32,
    /// The slot has an object, or a thread is about to give it one.
    is_taken: AtomicBool,
    object: Mutex<Option<Object>>,
}

static SLOTS: [Slot; HANDLES_MAX] = [const {
    Slot {
        generation: AtomicU32::new(0),
        is_taken: AtomicBool::new(false),
        object: Mutex::new(None),
    }
}; HANDLES_MAX];

/// A locked slot. `is_damaged`: a function panicked while it used the object.
struct Locked {
    object: MutexGuard<'static, Option<Object>>,
    is_damaged: bool,
}

impl Slot {
    fn try_lock(&'static self) -> Result<Locked, Status> {
        let (object, is_damaged) = match self.object.try_lock() {
            Ok(object) => (object, false),
            Err(TryLockError::Poisoned(poisoned)) => (poisoned.into_inner(), true),
            Err(TryLockError::WouldBlock) => return Err(Status::Busy),
        };
        Ok(Locked { object, is_damaged })
    }

    /// Returns true if the slot has the object that a handle names, as long as it is locked.
    fn has(&self, generation: u32) -> bool {
        self.generation.load(Ordering::Acquire) == generation
    }
}

/// Returns the slot of a handle and its generation.
fn find(handle: u64, kind: Kind) -> Result<(&'static Slot, u32), Status> {
    let is_of_kind = handle >> KIND == kind as u64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the 32 bits of the generation; the kind is above them"
    )]
    let generation = (handle >> GENERATION) as u32;
    let slot = SLOTS.get((handle & SLOT) as usize);
    match slot {
        Some(slot) if is_of_kind && generation % 2 == 1 && slot.has(generation) => {
            Ok((slot, generation))
        }
        _ => Err(Status::Handle),
    }
}

/// Adds an object and returns its handle.
///
/// # Errors
/// [`Status::Limit`] if there is no free slot.
pub(crate) fn insert(object: Object) -> Result<u64, Status> {
    for (number, slot) in (0u64..).zip(&SLOTS) {
        let was_taken = slot.is_taken.swap(true, Ordering::Acquire);
        if was_taken {
            continue;
        }
        // Another thread may just be finding out that the former object is gone.
        let Ok(mut locked) = slot.try_lock() else {
            slot.is_taken.store(false, Ordering::Release);
            continue;
        };
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        let kind = object.kind() as u64;
        *locked.object = Some(object);
        slot.generation.store(generation, Ordering::Release);
        return Ok(kind << KIND | u64::from(generation) << GENERATION | number);
    }
    Err(Status::Limit)
}

/// Calls a function with an object.
fn with<T>(
    handle: u64,
    kind: Kind,
    call: impl FnOnce(&mut Object) -> Result<T, Status>,
) -> Result<T, Status> {
    let (slot, generation) = find(handle, kind)?;
    let mut locked = slot.try_lock()?;
    if !slot.has(generation) {
        return Err(Status::Handle);
    }
    let Some(object) = &mut *locked.object else {
        return Err(Status::Handle);
    };
    if locked.is_damaged {
        return Err(Status::Internal);
    }
    call(object)
}

/// Calls a function with the rules of a handle.
///
/// # Errors
/// [`Status::Handle`], [`Status::Busy`], [`Status::Internal`], those of the function.
pub(crate) fn with_classifier<T>(
    handle: u64,
    call: impl FnOnce(&Classifier) -> Result<T, Status>,
) -> Result<T, Status> {
    with(handle, Kind::Classifier, |object| match object {
        Object::Classifier(classifier) => call(classifier),
        Object::Tracker(_) => Err(Status::Handle),
    })
}

/// Calls a function with the connections of a handle.
///
/// # Errors
/// As [`with_classifier`].
pub(crate) fn with_tracker<T>(
    handle: u64,
    call: impl FnOnce(&mut ConnectionTable) -> Result<T, Status>,
) -> Result<T, Status> {
    with(handle, Kind::Tracker, |object| match object {
        Object::Tracker(table) => call(table),
        Object::Classifier(_) => Err(Status::Handle),
    })
}

/// Removes an object, also a damaged one.
///
/// # Errors
/// [`Status::Handle`], [`Status::Busy`].
pub(crate) fn remove(handle: u64, kind: Kind) -> Result<(), Status> {
    let (slot, generation) = find(handle, kind)?;
    let mut locked = slot.try_lock()?;
    if !slot.has(generation) {
        return Err(Status::Handle);
    }
    let object = locked.object.take().ok_or(Status::Handle)?;
    slot.generation
        .store(generation.wrapping_add(1), Ordering::Release);
    slot.object.clear_poison();
    drop(locked);
    // A slot whose generations are used up is not used again.
    if generation != u32::MAX {
        slot.is_taken.store(false, Ordering::Release);
    }
    // Freeing its memory takes time: the slot is free before.
    drop(object);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::layout::TrackerSettings;

    fn tracker() -> u64 {
        let settings = TrackerSettings {
            entries_max: 1,
            ..TrackerSettings::EMPTY
        };
        let table = ConnectionTable::new(&settings).unwrap();
        insert(Object::Tracker(Box::new(table))).unwrap()
    }

    #[test]
    fn a_handle_of_a_destroyed_object_is_refused_even_if_its_place_is_used_again() {
        let first = tracker();
        assert_eq!(with_tracker(first, |_| Ok(7)), Ok(7));
        assert_eq!(with_classifier(first, |_| Ok(7)), Err(Status::Handle));
        assert_eq!(remove(first, Kind::Classifier), Err(Status::Handle));
        assert_eq!(remove(first, Kind::Tracker), Ok(()));
        let others: Vec<u64> = (0..8).map(|_| tracker()).collect();
        assert!(!others.contains(&first));
        assert_eq!(with_tracker(first, |_| Ok(7)), Err(Status::Handle));
        assert_eq!(remove(first, Kind::Tracker), Err(Status::Handle));
        for other in others {
            assert_eq!(remove(other, Kind::Tracker), Ok(()));
        }
    }

    #[test]
    fn numbers_that_are_no_handles_are_refused() {
        let handle = tracker();
        // Other slots of the table may have an object of another test.
        let outside = HANDLES_MAX.trailing_zeros();
        for bit in outside..u64::BITS {
            let other = handle ^ 1 << bit;
            assert_eq!(with_tracker(other, |_| Ok(7)), Err(Status::Handle), "{bit}");
        }
        for other in [0, u64::MAX, handle | SLOT] {
            assert_eq!(with_tracker(other, |_| Ok(7)), Err(Status::Handle));
        }
        assert_eq!(remove(handle, Kind::Tracker), Ok(()));
    }

    #[test]
    fn new_objects_disturb_no_thread_that_uses_its_own() {
        let handle = tracker();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                for _ in 0..200 {
                    let other = tracker();
                    assert_eq!(remove(other, Kind::Tracker), Ok(()));
                    assert_eq!(remove(other, Kind::Tracker), Err(Status::Handle));
                }
            });
            while !other.is_finished() {
                assert_eq!(with_tracker(handle, |_| Ok(())), Ok(()));
            }
        });
        assert_eq!(remove(handle, Kind::Tracker), Ok(()));
    }

    #[test]
    fn an_object_in_use_is_busy() {
        let handle = tracker();
        let inner = with_tracker(handle, |_| {
            Ok((
                with_tracker(handle, |_| Ok(())),
                remove(handle, Kind::Tracker),
            ))
        });
        assert_eq!(inner, Ok((Err(Status::Busy), Err(Status::Busy))));
        assert_eq!(remove(handle, Kind::Tracker), Ok(()));
    }

    #[test]
    fn an_object_that_a_panic_left_can_only_be_destroyed() {
        let handle = tracker();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            with_tracker(handle, |_| -> Result<(), Status> { panic!("planted") })
        }));
        assert!(panicked.is_err());
        assert_eq!(with_tracker(handle, |_| Ok(())), Err(Status::Internal));
        assert_eq!(remove(handle, Kind::Tracker), Ok(()));
        // The slot is as good as new.
        let again = tracker();
        assert_eq!(with_tracker(again, |_| Ok(())), Ok(()));
        assert_eq!(remove(again, Kind::Tracker), Ok(()));
    }
}
