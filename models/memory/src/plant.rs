// SPDX-License-Identifier: Apache-2.0
//! Planted defects: weaker memory orderings than the code asks for.

use std::cell::Cell;
use std::sync::atomic::Ordering;

/// Part that all accesses of a model lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defect {
    /// Nothing: the code as it is.
    #[default]
    None,
    /// Loads are relaxed.
    RelaxedLoads,
    /// Stores are relaxed.
    RelaxedStores,
    /// Fences have no effect, and `SeqCst` is `AcqRel`.
    NoFences,
}

thread_local! {
    /// All threads of a model are one thread of the system.
    static DEFECT: Cell<Defect> = const { Cell::new(Defect::None) };
}

/// Removes the defect.
struct Planted;

impl Drop for Planted {
    fn drop(&mut self) {
        DEFECT.set(Defect::None);
    }
}

/// Runs `f` with a defect in all accesses.
pub(crate) fn with<T>(defect: Defect, f: impl FnOnce() -> T) -> T {
    DEFECT.set(defect);
    let _planted = Planted;
    f()
}

fn planted() -> Defect {
    DEFECT.get()
}

pub(crate) fn for_load(order: Ordering) -> Ordering {
    match (planted(), order) {
        (Defect::RelaxedLoads, _) => Ordering::Relaxed,
        (_, Ordering::SeqCst) => Ordering::Acquire,
        (_, order) => order,
    }
}

pub(crate) fn for_store(order: Ordering) -> Ordering {
    match (planted(), order) {
        (Defect::RelaxedStores, _) => Ordering::Relaxed,
        (_, Ordering::SeqCst) => Ordering::Release,
        (_, order) => order,
    }
}

pub(crate) fn for_change(order: Ordering) -> Ordering {
    match (planted(), order) {
        (Defect::RelaxedStores, Ordering::AcqRel | Ordering::SeqCst) => Ordering::Acquire,
        (Defect::RelaxedStores, Ordering::Release) => Ordering::Relaxed,
        (Defect::RelaxedLoads, Ordering::AcqRel | Ordering::SeqCst) => Ordering::Release,
        (Defect::RelaxedLoads, Ordering::Acquire) => Ordering::Relaxed,
        (_, Ordering::SeqCst) => Ordering::AcqRel,
        (_, order) => order,
    }
}

pub(crate) fn has_fences() -> bool {
    planted() != Defect::NoFences
}
