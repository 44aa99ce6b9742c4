// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: any frames from an inspector, and any frames to inspect.

use std::cell::RefCell;

use quietwire_base::fuzz::{check, planted};

use super::*;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Returns true if the octets are an answer.
fn fuzz_inspector(octets: &[u8]) -> bool {
    let answer = Answer::read(octets);
    WORLD.with_borrow_mut(|world| {
        let rule = inspect(2, InspectFail::Closed);
        let ruling = world.judge(0, octets, &rule);
        // Only an answer to a query is accepted.
        if let Some(answer) = answer {
            let is_known = |(held, _): &(HeldPacket, usize)| {
                let ticket = held.ticket();
                (ticket.place, ticket.nonce) == (answer.ticket.place, answer.ticket.nonce)
            };
            let fits = world.held.iter().any(is_known);
            let is_taken = world.board.answer(PORT, answer.ticket, answer.judgement);
            assert!(fits || !is_taken, "{answer:?}");
        }
        if let Ruling::Wait(ticket) = ruling {
            assert!(!world.board.answer(PORT + 1, ticket, Judgement::Accept));
            assert!(world.board.answer(PORT, ticket, Judgement::Drop));
            assert!(!world.board.answer(PORT, ticket, Judgement::Accept));
        }
        // No packet waits beyond its time.
        world.now_ms += 100;
        world.release();
        assert!(world.held.is_empty());
    });
    if let Some(answer) = answer {
        planted("tables-inspector", || {
            answer.judgement == Judgement::Drop && answer.ticket.packet > 200
        });
    }
    answer.is_some()
}

#[test]
fn inspector() {
    check(CRATE, "tables-inspector", fuzz_inspector);
}
