// SPDX-License-Identifier: Apache-2.0
//! Gates: one thread uses a value in short visits; another thread can withdraw the value between two visits.
//!
//! The value is what a queue's thread needs of a connection: rings in memory that a peer shares. When the connection ends,
//! the memory is unmapped. It is never unmapped while the queue's thread uses it, and that thread never waits. A visit costs
//! two plain stores; the keeper pays for the barrier that makes them visible in time (membarrier(2)).
//!
//! The protocol uses one epoch per gate, which is odd while the thread is inside. The keeper removes the pointer, makes
//! every CPU execute a barrier, and reads the epoch. A thread that entered before is inside until the epoch changes; a
//! thread that enters later does not find the pointer.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use nix::libc;

/// Usual upper limit of the duration of a visit, and the interval at which the keeper checks again.
const VISIT: Duration = Duration::from_micros(20);

/// State that both sides share. Generic so that a model checker can run the same protocol.
pub(crate) trait GateState {
    /// Pointer type; 0 means no value.
    type Pointer: Copy + PartialEq;

    fn epoch(&self, order: Ordering) -> u32;
    fn set_epoch(&self, epoch: u32, order: Ordering);
    fn pointer(&self) -> Self::Pointer;
    fn swap_pointer(&self, pointer: Self::Pointer) -> Self::Pointer;
    /// Orders visitor and keeper: if the visitor passes this barrier after setting the epoch, and the keeper passes
    /// [`Self::heavy_barrier`] after removing the pointer, at least one of them sees what the other wrote.
    fn light_barrier(&self);
    fn heavy_barrier(&self);
}

/// Begins a visit and returns the pointer.
#[inline(always)]
pub(crate) fn enter<W: GateState>(words: &W) -> W::Pointer {
    let epoch = words.epoch(Ordering::Relaxed);
    // Release: a keeper that sees this epoch also sees that the previous visit has ended.
    words.set_epoch(epoch.wrapping_add(1), Ordering::Release);
    words.light_barrier();
    words.pointer()
}

/// Ends a visit.
#[inline(always)]
pub(crate) fn leave<W: GateState>(words: &W) {
    let epoch = words.epoch(Ordering::Relaxed);
    words.set_epoch(epoch.wrapping_add(1), Ordering::Release);
}

/// Replaces the pointer. Returns the previous pointer and the epoch in which the visitor may still use it.
pub(crate) fn replace<W: GateState>(words: &W, pointer: W::Pointer) -> (W::Pointer, u32) {
    let former = words.swap_pointer(pointer);
    words.heavy_barrier();
    (former, words.epoch(Ordering::Acquire))
}

/// Returns true if the visit of an epoch has ended.
pub(crate) fn is_out<W: GateState>(words: &W, epoch: u32) -> bool {
    epoch.is_multiple_of(2) || words.epoch(Ordering::Acquire) != epoch
}

/// The words of a gate, in a cache line of their own because the visitor writes often.
#[derive(Debug)]
#[repr(align(128))]
struct Shared<T> {
    epoch: AtomicU32,
    value: AtomicPtr<T>,
    /// Values whose keeper was dropped while the visitor was inside.
    abandoned: Mutex<Vec<Owned<T>>>,
}

/// A boxed value, by its address.
#[derive(Debug)]
struct Owned<T>(*mut T);

// SAFETY: a box of T, which may be sent when T may.
unsafe impl<T: Send> Send for Owned<T> {}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by Box::into_raw, and nothing else owns it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T> Owned<T> {
    fn into_box(self) -> Box<T> {
        let pointer = self.0;
        std::mem::forget(self);
        // SAFETY: as above.
        unsafe { Box::from_raw(pointer) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let pointer = *self.value.get_mut();
        if !pointer.is_null() {
            drop(Owned(pointer));
        }
    }
}

impl<T> GateState for Shared<T> {
    type Pointer = *mut T;

    #[inline(always)]
    fn epoch(&self, order: Ordering) -> u32 {
        self.epoch.load(order)
    }

    #[inline(always)]
    fn set_epoch(&self, epoch: u32, order: Ordering) {
        self.epoch.store(epoch, order);
    }

    #[inline(always)]
    fn pointer(&self) -> *mut T {
        self.value.load(Ordering::Acquire)
    }

    fn swap_pointer(&self, pointer: *mut T) -> *mut T {
        self.value.swap(pointer, Ordering::AcqRel)
    }

    #[inline(always)]
    fn light_barrier(&self) {
        compiler_fence(Ordering::SeqCst);
        if !HAS_MEMBARRIER.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }

    fn heavy_barrier(&self) {
        fence(Ordering::SeqCst);
        if HAS_MEMBARRIER.load(Ordering::Relaxed) {
            membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        }
    }
}

/// Set before the first gate is made and never changed afterwards.
static HAS_MEMBARRIER: AtomicBool = AtomicBool::new(false);

// linux/membarrier.h.
const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // Miri knows no such call: both barriers are fences there.
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// The side that owns the value.
#[derive(Debug)]
pub struct GateOwner<T> {
    shared: Arc<Shared<T>>,
    /// Values that were withdrawn while the visitor was inside, each with its epoch.
    former: Vec<(Owned<T>, u32)>,
}

/// The side that uses the value, one thread at a time.
#[derive(Debug)]
pub struct GateReader<T> {
    shared: Arc<Shared<T>>,
}

/// A visit. The value remains valid until the visit is dropped.
#[derive(Debug)]
pub struct GateGuard<'visitor, T> {
    shared: &'visitor Shared<T>,
    value: *mut T,
    _value: PhantomData<&'visitor mut T>,
}

/// Returns the two sides of an empty gate.
#[must_use]
pub fn channel<T: Send>() -> (GateOwner<T>, GateReader<T>) {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        let is_there = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        HAS_MEMBARRIER.store(is_there, Ordering::SeqCst);
    });
    let shared = Arc::new(Shared {
        epoch: AtomicU32::new(0),
        value: AtomicPtr::new(std::ptr::null_mut()),
        abandoned: Mutex::new(Vec::new()),
    });
    let owner = GateOwner {
        shared: Arc::clone(&shared),
        former: Vec::new(),
    };
    (owner, GateReader { shared })
}

impl<T: Send> GateReader<T> {
    /// Begins a visit. Returns `None` if there is no value. Never waits.
    #[inline(always)]
    pub fn enter(&mut self) -> Option<GateGuard<'_, T>> {
        let value = enter(&*self.shared);
        let visit = GateGuard {
            shared: &self.shared,
            value,
            _value: PhantomData,
        };
        // Without a value, the visit ends here.
        (!value.is_null()).then_some(visit)
    }

    /// Returns true while there is a value.
    #[inline(always)]
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.shared.value.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for GateGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        leave(self.shared);
    }
}

impl<T> Deref for GateGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: not null (`enter`); the keeper does not touch the value until the visit has ended, and there is one
        // visitor.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for GateGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.value }
    }
}

impl<T: Send> GateOwner<T> {
    /// Gives the visitor a value. A previous value is withdrawn (see [`Self::close`]).
    pub fn open(&mut self, value: Box<T>) {
        self.close();
        self.shared
            .value
            .store(Box::into_raw(value), Ordering::Release);
    }

    /// Withdraws the value without waiting for the visitor. [`Self::collect`] returns the value once no visit uses it.
    pub fn close(&mut self) {
        let (pointer, epoch) = replace(&*self.shared, std::ptr::null_mut());
        if !pointer.is_null() {
            self.former.push((Owned(pointer), epoch));
        }
    }

    /// Returns the withdrawn values that no visit uses any more, oldest first.
    pub fn collect(&mut self) -> Vec<Box<T>> {
        let shared = &self.shared;
        let (out, inside) = std::mem::take(&mut self.former)
            .into_iter()
            .partition(|(_, epoch)| is_out(&**shared, *epoch));
        self.former = inside;
        let out: Vec<(Owned<T>, u32)> = out;
        out.into_iter().map(|(owned, _)| owned.into_box()).collect()
    }

    /// Withdraws the value and waits, up to `wait`, until no visit uses it. Returns `None` if there is no value or if the
    /// visit does not end in time; in the latter case the value is collected later.
    pub fn take(&mut self, wait: Duration) -> Option<Box<T>> {
        self.close();
        let (owned, epoch) = self.former.pop()?;
        let started = std::time::Instant::now();
        while !is_out(&*self.shared, epoch) {
            if started.elapsed() >= wait {
                self.former.push((owned, epoch));
                return None;
            }
            std::thread::sleep(VISIT);
        }
        Some(owned.into_box())
    }

    /// Returns the visit that may not have observed what this thread wrote before, for [`Self::has_ended`]; `None` if there is
    /// none. Visits that begin later see it.
    #[must_use]
    pub fn visit(&self) -> Option<u32> {
        self.shared.heavy_barrier();
        let epoch = self.shared.epoch(Ordering::Acquire);
        (!is_out(&*self.shared, epoch)).then_some(epoch)
    }

    /// Returns true once a visit has ended.
    #[must_use]
    pub fn has_ended(&self, visit: u32) -> bool {
        is_out(&*self.shared, visit)
    }

    /// Returns the number of withdrawn values that a visit may still use.
    #[must_use]
    pub fn former(&self) -> usize {
        self.former.len()
    }

    /// Returns true while the visitor has a value.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.shared.value.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for GateOwner<T> {
    fn drop(&mut self) {
        let (pointer, epoch) = replace(&*self.shared, std::ptr::null_mut());
        if !pointer.is_null() {
            self.former.push((Owned(pointer), epoch));
        }
        let inside = std::mem::take(&mut self.former)
            .into_iter()
            .filter(|(_, epoch)| !is_out(&*self.shared, *epoch));
        // Dropped with the visitor.
        let mut abandoned = self
            .shared
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        abandoned.extend(inside.map(|(owned, _)| owned));
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
