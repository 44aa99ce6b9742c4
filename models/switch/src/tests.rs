// SPDX-License-Identifier: Apache-2.0
//! Models of the control thread and one forwarding thread.

mod detach;
mod grace;
mod next_hops;

use loom::thread;

use crate::line::{GivenUp, OrderReceiver, OrderSender};

/// Turns of the forwarding thread. Each ends with at most one order.
const TURNS: usize = 3;

/// Runs a forwarding thread: `burst`, then an order if there is one, and the same again.
fn forward<S, O, R>(
    state: &mut S,
    orders: &mut OrderReceiver<O, R>,
    burst: impl Fn(&S),
    carry_out: impl Fn(&mut S, O) -> R,
) {
    for _ in 0..TURNS {
        burst(state);
        if orders.has_order()
            && let Some((number, order)) = orders.take()
        {
            let reply = carry_out(state, order);
            orders.reply(number, reply);
        }
        thread::yield_now();
    }
}

fn out_of_turn(number: u64) {
    panic!("a reply to order {number} out of turn");
}

/// Gives an order and looks for the reply a few times, as if the timeout passed then.
fn ask<O, R>(line: &mut OrderSender<O, R>, order: O, check: O) -> Result<GivenUp<O, R>, O> {
    let number = line.put(order)?;
    for _ in 0..2 {
        if let Some(reply) = line.reply_to(number, out_of_turn) {
            return Ok(GivenUp::Replied(reply));
        }
        thread::yield_now();
    }
    Ok(line.give_up(number, check, out_of_turn))
}
