// SPDX-License-Identifier: Apache-2.0
//! The line between the control thread and a forwarding thread: numbered orders one way, one reply per order the other way.
//!
//! A model checker runs this file in every order of both threads (`models/switch`), with its own atomics, locks and rings in place of
//! those of [`super::sync`].

use super::sync::{
    Arc, AtomicBool, Consumer, Mutex, MutexGuard, Ordering, Producer, TryLockError, channel,
    wait_for,
};

/// Slot for one order to a forwarding thread.
#[derive(Debug)]
struct OrderSlot<O> {
    /// True while there is an order. The only part that a forwarding thread reads every turn.
    is_full: AtomicBool,
    /// Neither side ever waits for this lock.
    order: Mutex<Option<(u64, O)>>,
}

impl<O> OrderSlot<O> {
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<(u64, O)>>> {
        match self.order.try_lock() {
            Ok(order) => Some(order),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct OrderSender<O, R> {
    slot: Arc<OrderSlot<O>>,
    replies: Consumer<(u64, R)>,
    /// Number of the last order.
    number: u64,
}

/// The forwarding thread's end.
#[derive(Debug)]
pub(crate) struct OrderReceiver<O, R> {
    slot: Arc<OrderSlot<O>>,
    replies: Producer<(u64, R)>,
}

/// State of an order without a reply in time.
#[derive(Debug)]
pub(crate) enum GivenUp<O, R> {
    /// The reply arrived at the last moment.
    Replied(R),
    /// The order was not and will never be executed.
    TakenBack {
        /// The order.
        order: O,
        /// Number of the order whose reply will show that the thread runs again. `None` if it could not be given.
        awaited: Option<u64>,
    },
    /// The thread is executing the order. Its reply follows.
    Executing,
}

/// Creates both ends of a line.
pub(crate) fn line<O, R>() -> (OrderSender<O, R>, OrderReceiver<O, R>) {
    let (reply_writer, reply_reader) = channel();
    let slot = Arc::new(OrderSlot {
        is_full: AtomicBool::new(false),
        order: Mutex::new(None),
    });
    let sender = OrderSender {
        slot: Arc::clone(&slot),
        replies: reply_reader,
        number: 0,
    };
    let receiver = OrderReceiver {
        slot,
        replies: reply_writer,
    };
    (sender, receiver)
}

impl<O, R> OrderReceiver<O, R> {
    /// Returns true if there is an order.
    #[inline(always)]
    pub(crate) fn has_order(&self) -> bool {
        self.slot.is_full.load(Ordering::Acquire)
    }

    /// Takes the order. `None` if the control thread is taking it back at this moment.
    pub(crate) fn take(&mut self) -> Option<(u64, O)> {
        let mut order = self.slot.try_lock()?;
        self.slot.is_full.store(false, Ordering::Relaxed);
        order.take()
    }

    /// Replies to the order with this number.
    pub(crate) fn reply(&mut self, number: u64, reply: R) {
        // The ring has space: there is one order at a time, and the control thread reads the replies of earlier ones first.
        drop(self.replies.push((number, reply)));
    }

    /// Calls `f` while the lock of the slot is held.
    #[cfg(test)]
    pub(crate) fn while_locked<T>(&self, f: impl FnOnce() -> T) -> T {
        let _held = self.slot.try_lock();
        f()
    }
}

impl<O, R> OrderSender<O, R> {
    /// Puts an order into the slot, which is empty, and returns its number. The error returns the order: the thread stopped while it
    /// held the lock.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    pub(crate) fn put(&mut self, order: O) -> Result<u64, O> {
        let lock = || self.slot.try_lock();
        let Some(mut place) = wait_for(lock) else {
            return Err(order);
        };
        self.number += 1;
        *place = Some((self.number, order));
        self.slot.is_full.store(true, Ordering::Release);
        drop(place);
        Ok(self.number)
    }

    /// Removes an order from the slot. `None` if the thread has taken it, or is about to.
    pub(crate) fn take_back(&mut self, number: u64) -> Option<O> {
        let lock = || self.slot.try_lock();
        let mut place = wait_for(lock)?;
        let (_, order) = place.take_if(|(given, _)| *given == number)?;
        self.slot.is_full.store(false, Ordering::Relaxed);
        Some(order)
    }

    /// Returns the reply to the order with this number, if it has arrived. Replies to other orders are dropped, and their numbers passed to
    /// `ignored`: there are none unless the program has a defect.
    pub(crate) fn reply_to(&mut self, number: u64, mut ignored: impl FnMut(u64)) -> Option<R> {
        while let Ok((given, reply)) = self.replies.pop() {
            if given == number {
                return Some(reply);
            }
            ignored(given);
        }
        None
    }

    /// Withdraws an order without reply, and gives the thread an order `check` instead, whose reply shows that the thread runs again.
    pub(crate) fn give_up(
        &mut self,
        number: u64,
        check: O,
        ignored: impl FnMut(u64),
    ) -> GivenUp<O, R> {
        if let Some(order) = self.take_back(number) {
            let awaited = self.put(check).ok();
            return GivenUp::TakenBack { order, awaited };
        }
        match self.reply_to(number, ignored) {
            Some(reply) => GivenUp::Replied(reply),
            None => GivenUp::Executing,
        }
    }

    /// Returns true if the thread has dropped its end. Its last reply may still be there.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.replies.is_abandoned()
    }
}
