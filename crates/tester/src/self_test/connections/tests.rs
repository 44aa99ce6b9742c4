// SPDX-License-Identifier: Apache-2.0
//! The tester's ends over a simulated network with the device and its faults.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::super::connection_device::{ConnectionDevice, Disposition};
use super::*;
use crate::connections::{Delivery, run_through};

fn options(faults: &[ConnectionFault]) -> ConnectionSelfTestOptions {
    ConnectionSelfTestOptions {
        rate: 200.0,
        duration_s: 0.5,
        faults: faults.to_vec(),
        seed: 1,
    }
}

/// Runs a trial in simulated time.
fn run(faults: &[ConnectionFault], every: u64, seed: u64) -> (ConnectionLedger, ConnectionResult) {
    let script = ConnectionScript {
        faults: faults.to_vec(),
        every,
    };
    let device = Rc::new(RefCell::new(ConnectionDevice::new(script)));
    let within = Rc::clone(&device);
    let description = Connections {
        seed,
        ..options(faults).description()
    };
    let result = run_through(&description, 0.5, move |frame| {
        match within.borrow_mut().judge(frame) {
            Disposition::Forward => Delivery::Forward,
            Disposition::Drop => Delivery::Drop,
            Disposition::Return => Delivery::Return,
        }
    });
    let device = Rc::try_unwrap(device).unwrap().into_inner();
    (device.into_ledger(), result)
}

fn judged(ledger: &ConnectionLedger, result: &ConnectionResult) -> Verdict {
    verdict(ledger, result, &figures(ledger, result))
}

#[test]
fn the_account_agrees_with_the_ledger_for_every_fault() {
    for (name, faults) in options(&ConnectionFault::ALL).cases() {
        let (ledger, result) = run(&faults, EVERY, 1);
        assert_eq!(ledger.connections.len(), 100, "{name}");
        let expected = if faults.is_empty() { 0 } else { 14 };
        let chosen = ledger.connections.iter().filter(|it| it.fault.is_some());
        assert_eq!(chosen.count() as u64, expected, "{name}");
        assert_eq!(judged(&ledger, &result), Verdict::Agrees, "{name}");
        let failed: u64 = result.client.unwrap().failed.values().sum();
        assert_eq!(failed, expected, "{name}");
    }
}

#[test]
fn a_wrong_account_differs_with_the_connection() {
    let (ledger, mut result) = run(&[ConnectionFault::Refuse], EVERY, 1);
    let place = result
        .ends
        .iter()
        .position(|it| it.failure.is_some())
        .unwrap();
    // The tester takes a refused connection for one that was reset.
    result.ends[place].failure = Some(FailureCause::Reset);
    let source = result.ends[place].source;
    let Verdict::Differs(reasons) = judged(&ledger, &result) else {
        panic!("a wrong outcome was not noticed")
    };
    let expected =
        format!("connection from {source}: refused by the device's ledger, reset by the tester");
    assert_eq!(reasons, [expected]);
    // Two connections that are exchanged leave all sums as they are.
    let (ledger, mut result) = run(&[ConnectionFault::Refuse], EVERY, 1);
    let place = result
        .ends
        .iter()
        .position(|it| it.failure.is_some())
        .unwrap();
    let other = result
        .ends
        .iter()
        .position(|it| it.failure.is_none())
        .unwrap();
    let failure = result.ends[place].failure.take();
    result.ends[other].failure = failure;
    assert!(figures(&ledger, &result).iter().all(Figure::agrees));
    assert!(matches!(judged(&ledger, &result), Verdict::Differs(_)));
    // A connection that is missing.
    let (ledger, mut result) = run(&[], EVERY, 1);
    result.ends.pop();
    assert!(matches!(judged(&ledger, &result), Verdict::Differs(_)));
}

#[test]
fn connection_cases_that_prove_nothing_do_not_pass() {
    let (mut ledger, mut result) = run(&[], EVERY, 1);
    ledger.longest_gap_ns = GAP_NS_MAX + 1;
    assert!(matches!(judged(&ledger, &result), Verdict::NotProven(_)));
    ledger.longest_gap_ns = 0;
    if let Some(client) = &mut result.client {
        client.unfinished = 1;
    }
    assert!(matches!(judged(&ledger, &result), Verdict::NotProven(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn the_account_agrees_for_any_mixture_of_faults(
        faults in prop::sample::subsequence(ConnectionFault::ALL.to_vec(), 0..=ConnectionFault::ALL.len()),
        every in 1u64..6,
        seed: u64,
    ) {
        let (ledger, result) = run(&faults, every, seed);
        prop_assert_eq!(judged(&ledger, &result), Verdict::Agrees);
        prop_assert_eq!(result.ends.len(), ledger.connections.len());
    }
}
