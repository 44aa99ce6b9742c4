// SPDX-License-Identifier: Apache-2.0
//! A port is detached while a thread serves its queue. Its memory is unmapped once the queue has returned, and not before.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use quietwire_memory::check;

use super::{ask, forward, out_of_turn};
use crate::line::{GivenUp, line};
use crate::sync::weaken_replies;

/// The memory of a port. The checker reports an access that is not ordered with the unmapping.
struct Device(UnsafeCell<()>);

impl Device {
    fn touch(&self) {
        self.0.with(|_| ());
    }

    fn unmap(&self) {
        self.0.with_mut(|_| ());
    }
}

/// A receive queue of the port.
struct Queue(Arc<Device>);

enum Order {
    Release,
    Nothing,
}

enum Reply {
    Queue(Option<Queue>),
    Done,
}

/// Mistake of the control thread.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// Unmaps the memory of a port whose thread has not replied.
    UnmapsWithoutReply,
}

/// Detaches a port from a thread that runs, is late, or has stopped.
fn detach(mistake: Mistake) {
    let device = Arc::new(Device(UnsafeCell::new(())));
    let (mut orders, mut commands) = line::<Order, Reply>();
    let queue = Queue(Arc::clone(&device));
    let thread = thread::spawn(move || {
        let mut served = Some(queue);
        forward(
            &mut served,
            &mut commands,
            |served| served.iter().for_each(|queue| queue.0.touch()),
            |served, order| match order {
                Order::Release => Reply::Queue(served.take()),
                Order::Nothing => Reply::Done,
            },
        );
        // A reply without a waiting thread may still be in the ring.
        (served, commands)
    });
    let outcome = ask(&mut orders, Order::Release, Order::Nothing);
    let mut returned = None;
    let mut awaited = None;
    match outcome {
        Ok(GivenUp::Replied(Reply::Queue(queue))) => {
            assert!(queue.is_some(), "the queue was not served");
            returned = queue;
        }
        Ok(GivenUp::Replied(Reply::Done)) => panic!("the reply to another order"),
        // The lock was held: the thread takes nothing, as there was no order.
        Err(Order::Release) => {}
        Err(Order::Nothing) => panic!("not the order that was given"),
        Ok(GivenUp::TakenBack {
            order,
            awaited: number,
        }) => {
            assert!(matches!(order, Order::Release));
            awaited = number;
        }
        Ok(GivenUp::Executing) => {
            // The reply follows, with the queue. The order was the first.
            awaited = Some(1);
        }
    }
    let replied = awaited.and_then(|number| orders.reply_to(number, out_of_turn));
    if let Some(Reply::Queue(Some(queue))) = replied {
        returned = Some(queue);
    }
    if returned.is_some() || mistake == Mistake::UnmapsWithoutReply {
        device.unmap();
    }
    let is_returned = returned.is_some();
    let (served, _commands) = thread.join().unwrap();
    let pending = orders.reply_to(awaited.unwrap_or(0), |_| ());
    let in_reply = matches!(pending, Some(Reply::Queue(Some(_))));
    let places = [is_returned, served.is_some(), in_reply];
    let count = places.iter().filter(|place| **place).count();
    assert_eq!(count, 1, "the queue is in no or in two places");
}

#[test]
fn a_port_is_unmapped_after_its_last_use_in_every_order() {
    check(|| detach(Mistake::None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_a_port_that_is_unmapped_without_a_reply() {
    check(|| detach(Mistake::UnmapsWithoutReply));
}

/// Restores the ring of replies.
struct Weakened;

impl Drop for Weakened {
    fn drop(&mut self) {
        weaken_replies(false);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_replies_without_release_and_acquisition() {
    weaken_replies(true);
    let _restored = Weakened;
    check(|| detach(Mistake::None));
}
