// SPDX-License-Identifier: Apache-2.0
//! Loads of methods over a simulated network.

use proptest::prelude::*;

use super::super::methods::{ConversationLoad, ConversationOutcome, ConversationRun};
use super::super::result::{ConnectionHealth, ConnectionResult, RunTimes, assemble};
use super::super::session::Session;
use super::super::{ClientSide, Connections, OPEN_MAX};
use super::network::{Faults, Network};
use crate::validity::InvalidCause;

const SECOND: f64 = 1e9;

fn run(load: ConversationLoad) -> ConversationRun {
    ConversationRun {
        description: Connections {
            client: ClientSide {
                count: 4,
                ..ClientSide::default()
            },
            ..Connections::default()
        },
        load,
        duration_s: 0.5,
        drain_s: 2.0,
        pause_s: 0.0,
        answer: None,
    }
}

fn result_of(
    run: &ConversationRun,
    network: &mut Network,
    health: ConnectionHealth,
) -> (ConversationOutcome, ConnectionResult) {
    let prepared = run.prepare().unwrap();
    let nanoseconds = |seconds: f64| (seconds * SECOND) as u64;
    let duration = nanoseconds(prepared.opening_s);
    let mut session = Session::new(&prepared.description, duration)
        .with_window(prepared.window_s.map(nanoseconds));
    let limit = duration + nanoseconds(prepared.drain_s);
    let elapsed_ns = network.run(&mut session, duration, limit);
    let times = RunTimes {
        started_unix_ns: 1,
        duration_s: prepared.opening_s,
        elapsed_s: elapsed_ns as f64 / SECOND,
    };
    let result = assemble(session, &prepared.description, times, health).unwrap();
    (run.outcome(&prepared, &result), result)
}

fn outcome(load: ConversationLoad, faults: Faults) -> ConversationOutcome {
    let mut network = Network::new(1, faults);
    let (outcome, _) = result_of(&run(load), &mut network, ConnectionHealth::default());
    assert!(outcome.failed <= outcome.attempted, "{outcome:?}");
    outcome
}

#[test]
fn a_clean_network_fails_no_attempt_of_any_load() {
    let opened = outcome(
        ConversationLoad::Connections { per_s: 2_000.0 },
        Faults::default(),
    );
    assert_eq!((opened.attempted, opened.failed), (1_000, 0), "{opened:?}");
    assert!(
        (1_900.0..2_100.0).contains(&opened.connections_per_s),
        "{opened:?}"
    );
    // A millisecond each way: two round trips to the answer of a request.
    assert_eq!(opened.first_octet.samples, 1_000);
    assert!(opened.first_octet.min_ns >= 2_000_000, "{opened:?}");
    assert!(opened.first_octet.mean_ns <= opened.last_octet.mean_ns);

    let open = outcome(
        ConversationLoad::Open {
            connections: 500,
            opening_per_s: 2_000.0,
        },
        Faults::default(),
    );
    assert_eq!(
        (open.attempted, open.failed, open.open_largest),
        (500, 0, 500),
        "{open:?}"
    );

    let asked = outcome(
        ConversationLoad::Transactions {
            connections: 50,
            per_s: 2_500.0,
        },
        Faults::default(),
    );
    // 75 requests of each connection, 20 ms apart: for a second in which they are opened, and half a second with all of them.
    assert_eq!((asked.attempted, asked.failed), (3_750, 0), "{asked:?}");
    assert!(
        (2_400.0..2_600.0).contains(&asked.transactions_per_s),
        "{asked:?}"
    );

    let moved = outcome(
        ConversationLoad::Transfer {
            connections: 5,
            transactions: 10,
        },
        Faults::default(),
    );
    assert_eq!(moved.failed, 0);
    assert!(
        moved.received_bps > 0.0 && moved.transactions_per_s > 100.0,
        "{moved:?}"
    );
}

#[test]
fn an_answer_after_the_next_request_was_due_is_late() {
    // A retransmission takes 200 ms, ten intervals.
    let faults = Faults {
        lost: 100,
        ..Faults::default()
    };
    let load = ConversationLoad::Transactions {
        connections: 50,
        per_s: 2_500.0,
    };
    let late = outcome(load, faults);
    assert!(
        late.failed > 0 && late.causes.contains_key("late"),
        "{late:?}"
    );
    // A tester that did not run for longer than half of the interval may have caused it itself.
    let stalled = ConnectionHealth {
        longest_gap_ns: 11_000_000,
        ..ConnectionHealth::default()
    };
    let (stalled, _) = result_of(&run(load), &mut Network::new(1, faults), stalled);
    assert_eq!(
        stalled.validity().cause(),
        Some(InvalidCause::ReceiveGap),
        "{stalled:?}"
    );
    // So may one without idle time.
    let busy = ConnectionHealth {
        idle_ratio: Some(0.001),
        ..ConnectionHealth::default()
    };
    let (busy, _) = result_of(&run(load), &mut Network::new(1, faults), busy);
    assert_eq!(busy.validity().cause(), Some(InvalidCause::RateMissed));
    assert!(busy.achieved.is_some_and(|achieved| achieved > 0.0));
}

#[test]
fn connections_with_retransmission_timeouts_fail_unless_the_tester_stalled() {
    let faults = Faults {
        lost: 200,
        ..Faults::default()
    };
    let load = ConversationLoad::Connections { per_s: 1_000.0 };
    let lossy = outcome(load, faults);
    // Each connection has ten packets or more. The loss of the last acknowledgement is none.
    assert!((20..200).contains(&lossy.failed), "{lossy:?}");
    assert!(lossy.causes.contains_key("not_established"), "{lossy:?}");
    assert!(lossy.causes.contains_key("timed_out"), "{lossy:?}");
    assert_eq!(lossy.invalid, []);
    let stalled = ConnectionHealth {
        longest_gap_ns: 101_000_000,
        ..ConnectionHealth::default()
    };
    let (stalled, _) = result_of(&run(load), &mut Network::new(1, faults), stalled);
    assert_eq!(stalled.validity().cause(), Some(InvalidCause::ReceiveGap));
}

#[test]
fn loads_that_are_not_possible_are_refused() {
    let error = |run: &ConversationRun| run.validate().unwrap_err();
    let too_many = run(ConversationLoad::Open {
        connections: 300_000,
        opening_per_s: 1e5,
    });
    assert!(
        error(&too_many).contains("addresses and ports"),
        "{}",
        error(&too_many)
    );
    let mut with_udp = run(ConversationLoad::Connections { per_s: 1.0 });
    with_udp.description.mix[0].protocol = super::super::TransportProtocol::Udp;
    assert!(error(&with_udp).contains("uses UDP"));
    let mut one_end = run(ConversationLoad::Connections { per_s: 1.0 });
    one_end.description.role = super::super::Role::Client;
    assert!(error(&one_end).contains("both ends"));
    for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(
            run(ConversationLoad::Connections { per_s })
                .validate()
                .is_err()
        );
    }
    // The tables have space for what the load opens, and no more than they can have.
    let fast = run(ConversationLoad::Connections { per_s: 1e8 });
    assert_eq!(fast.prepare().unwrap().description.open_max, OPEN_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_attempt_is_counted_once(
        seed: u64,
        lost in 0u64..400,
        damaged in 0u64..300,
        kind in 0u8..3,
    ) {
        let load = match kind {
            0 => ConversationLoad::Connections { per_s: 400.0 },
            1 => ConversationLoad::Open { connections: 100, opening_per_s: 1_000.0 },
            _ => ConversationLoad::Transactions { connections: 20, per_s: 400.0 },
        };
        let faults = Faults { lost, damaged, ..Faults::default() };
        let run = run(load);
        let (outcome, result) = result_of(&run, &mut Network::new(seed, faults), ConnectionHealth::default());
        let client = result.client.unwrap();
        let failed: u64 = client.failed.values().sum();
        prop_assert_eq!(client.completed + failed + client.unfinished, client.opened);
        prop_assert!(outcome.failed <= outcome.attempted);
        match load {
            ConversationLoad::Transactions { .. } => {
                let missing = outcome.attempted - client.transactions;
                prop_assert_eq!(outcome.failed, (missing + client.late_transactions).min(outcome.attempted));
                prop_assert_eq!(outcome.attempted, 20 * 30);
            }
            _ => {
                prop_assert_eq!(outcome.attempted, client.opened);
                prop_assert_eq!(outcome.attempted, client.completed + outcome.failed);
                prop_assert_eq!(outcome.failed, failed + client.unfinished);
            }
        }
        let causes: u64 = outcome.causes.iter().filter(|(name, _)| *name != "late").map(|(_, count)| count).sum();
        prop_assert_eq!(causes, failed + client.unfinished);
    }
}
