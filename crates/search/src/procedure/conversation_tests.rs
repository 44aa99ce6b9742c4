// SPDX-License-Identifier: Apache-2.0
//! Methods for conversations on simulated devices.

use proptest::prelude::*;

use super::*;
use crate::{ConfigError, LossRatio, RecordError};

/// Runs a procedure to its end, with at most `limit` actions.
fn drive(
    procedure: &mut dyn Procedure,
    limit: usize,
    mut device: impl FnMut(ConversationTrial) -> Observation,
) -> ProcedureResult {
    for _ in 0..=limit {
        match procedure.step() {
            ProcedureStep::Done(result) => {
                let json = serde_json::to_string(&result).unwrap();
                let tag = format!(r#""method":"{}""#, procedure.name());
                assert!(json.contains(&tag), "{json}");
                let read: ProcedureResult = serde_json::from_str(&json).unwrap();
                assert_eq!((&read.end, &read.history), (&result.end, &result.history));
                return *result;
            }
            ProcedureStep::Do(action) => {
                assert_eq!(procedure.step(), ProcedureStep::Do(action));
                let Action::Converse(trial) = action else {
                    panic!("unexpected action {action:?}")
                };
                procedure.record(device(trial)).unwrap();
            }
        }
    }
    panic!("{} did not end within {limit} actions", procedure.name());
}

fn config(quantity: ConversationQuantity) -> ConversationSearchConfig {
    ConversationSearchConfig {
        quantity,
        max: 100_000.0,
        step: 20_000.0,
        resolution: 500.0,
        failure_ratio: LossRatio::ZERO,
        duration_s: 1.0,
        pause_s: 0.0,
        answer: None,
        connections: 1_000,
        opening_per_s: 10_000.0,
        best_of: 1,
        max_invalid_repeats: 5,
    }
}

fn counts(attempted: u64, failed: u64) -> Observation {
    Observation::Conversed(Box::new(ConversationCounts {
        attempted,
        failed: failed.min(attempted),
        ..ConversationCounts::default()
    }))
}

fn invalid(achieved_per_s: Option<f64>) -> Observation {
    Observation::Invalid {
        reason: "the tester stalled".to_owned(),
        achieved_per_s,
    }
}

/// Returns a device that serves so many attempts, and fails all others.
fn serves(capacity: f64) -> impl Fn(ConversationTrial) -> Observation {
    move |trial| {
        let attempted = (trial.load.value() * trial.duration_s) as u64;
        counts(attempted, attempted.saturating_sub(capacity as u64))
    }
}

fn found(result: ProcedureResult) -> ConversationSearchFindings {
    match result.findings {
        ProcedureFindings::ConnectionsPerSecond(found)
        | ProcedureFindings::ConcurrentConnections(found)
        | ProcedureFindings::TransactionsPerSecond(found) => *found,
        other => panic!("findings of another method: {other:?}"),
    }
}

const QUANTITIES: [ConversationQuantity; 3] = [
    ConversationQuantity::ConnectionsPerSecond,
    ConversationQuantity::ConcurrentConnections,
    ConversationQuantity::TransactionsPerSecond,
];

proptest! {
    #[test]
    fn every_capacity_is_found_to_within_the_resolution(
        capacity in 600u32..99_000,
        invalid_every in 2usize..20,
    ) {
        for quantity in QUANTITIES {
            let mut search = ConversationSearch::new(config(quantity)).unwrap();
            let device = serves(f64::from(capacity));
            let (mut count, mut lowest) = (0, f64::INFINITY);
            let result = drive(&mut search, 100, |trial| {
                count += 1;
                // Invalid trials count neither for nor against the device.
                if count % invalid_every == 0 {
                    return invalid(None);
                }
                let value = trial.load.value();
                if value > f64::from(capacity) + 1.0 {
                    lowest = value.min(lowest);
                }
                device(trial)
            });
            prop_assert_eq!(&result.end, &ProcedureEnd::Finished);
            prop_assert_eq!(result.history.len(), count);
            let found = found(result);
            prop_assert!(!found.is_limit());
            let highest = found.highest_held.unwrap();
            prop_assert!(highest <= f64::from(capacity) + 1.0, "{} of {}", highest, capacity);
            prop_assert!(highest + 500.0 >= f64::from(capacity), "{} of {}", highest, capacity);
            prop_assert_eq!(found.held.unwrap().failed, 0);
            prop_assert!(found.failed.unwrap().failed > 0);
            let lowest_failed = found.lowest_failed.unwrap();
            prop_assert!(highest < lowest_failed && lowest_failed <= lowest);
            prop_assert_eq!(found.failed_at_or_under_highest_held, 0);
        }
    }
}

#[test]
fn the_highest_value_that_is_allowed_is_a_lower_bound() {
    let mut search = ConversationSearch::new(config(QUANTITIES[0])).unwrap();
    let found = found(drive(&mut search, 100, serves(1e9)));
    assert!(found.is_limit());
    assert_eq!(found.highest_held, Some(100_000.0));
    assert_eq!((found.failed, found.lowest_failed), (None, None));
}

#[test]
fn a_device_that_serves_nothing_has_no_result() {
    let mut search = ConversationSearch::new(config(QUANTITIES[1])).unwrap();
    let found = found(drive(&mut search, 100, serves(0.0)));
    assert_eq!(found.end, Some(ConversationSearchEnd::NothingHeld));
    assert_eq!(found.highest_held, None);
}

#[test]
fn failures_up_to_the_goal_hold() {
    let goal = ConversationSearchConfig {
        failure_ratio: LossRatio::new(0.1).unwrap(),
        ..config(QUANTITIES[0])
    };
    let bound = goal.trial_bound() as usize;
    let mut search = ConversationSearch::new(goal).unwrap();
    let result = drive(&mut search, 100, serves(45_000.0));
    assert!((2..=bound).contains(&result.history.len()), "{bound}");
    let found = found(result);
    // A tenth of 50,000 fails.
    let highest = found.highest_held.unwrap();
    assert!((49_500.0..=50_000.0).contains(&highest), "{highest}");
    assert!(found.held.unwrap().failed > 0);
}

#[test]
fn a_tester_that_is_the_limit_is_no_loss() {
    // The tester reaches 30,000 per second, the device more.
    let mut search = ConversationSearch::new(config(QUANTITIES[0])).unwrap();
    let device = serves(1e9);
    let result = drive(&mut search, 100, |trial| {
        if trial.load.value() > 30_000.0 {
            invalid(Some(30_000.0))
        } else {
            device(trial)
        }
    });
    let found = found(result);
    assert!(found.is_limit(), "{found:?}");
    assert_eq!(found.highest_held, Some(28_500.0));
    assert_eq!(found.failed, None);
    // A tester that always fails ends the search with its reasons.
    let mut search = ConversationSearch::new(config(QUANTITIES[0])).unwrap();
    let result = drive(&mut search, 100, |_| invalid(None));
    let ProcedureEnd::Invalid { reasons, .. } = &result.end else {
        panic!("{result:?}")
    };
    assert_eq!(reasons.len(), 6);
    let found = self::found(result);
    assert_eq!(found.end, Some(ConversationSearchEnd::TesterFailed));
    assert_eq!(found.highest_held, None);
}

#[test]
fn a_value_that_fails_once_is_tried_again_if_the_goal_allows_it() {
    let best_of = ConversationSearchConfig {
        best_of: 2,
        ..config(QUANTITIES[2])
    };
    let mut search = ConversationSearch::new(best_of).unwrap();
    let device = serves(70_000.0);
    let mut count = 0;
    let result = drive(&mut search, 100, |trial| {
        count += 1;
        if count % 2 == 1 {
            counts(1_000, 1)
        } else {
            device(trial)
        }
    });
    let highest = found(result).highest_held.unwrap();
    assert!((69_500.0..=70_000.0).contains(&highest), "{highest}");
}

#[test]
fn the_lowest_value_that_failed_has_the_counts_of_its_first_trial() {
    let best_of = ConversationSearchConfig {
        best_of: 2,
        ..config(QUANTITIES[2])
    };
    let mut search = ConversationSearch::new(best_of).unwrap();
    let mut tries = std::collections::BTreeMap::<u64, u64>::new();
    let result = drive(&mut search, 100, |trial| {
        let value = trial.load.value();
        if value <= 30_000.0 {
            return counts(1_000, 0);
        }
        let failed = tries.entry(value as u64).or_default();
        *failed += 1;
        counts(1_000, *failed)
    });
    let found = found(result);
    let (value, failures) = tries.first_key_value().unwrap();
    assert_eq!(found.lowest_failed.map(|it| it as u64), Some(*value));
    assert_eq!((found.failed.unwrap().failed, *failures), (1, 2));
}

fn throughput() -> ConnectionThroughputConfig {
    ConnectionThroughputConfig {
        connections: 10,
        transactions: 10,
        answer: Some(100_000),
        repeats: 3,
        duration_s: 1.0,
        pause_s: 0.0,
        confidence: 0.95,
        max_invalid_repeats: 1,
    }
}

#[test]
fn throughput_is_the_mean_of_its_trials() {
    let mut method = ConnectionThroughput::new(throughput()).unwrap();
    let mut rates = [1e9, 2e9, 3e9].into_iter();
    let mut count = 0;
    let result = drive(&mut method, 10, |trial| {
        assert_eq!(trial.answer, Some(100_000));
        count += 1;
        if count == 2 {
            return invalid(None);
        }
        Observation::Conversed(Box::new(ConversationCounts {
            attempted: 10,
            received_bps: rates.next().unwrap(),
            tester_idle_ratio: Some(0.005),
            ..ConversationCounts::default()
        }))
    });
    let ProcedureFindings::ConnectionThroughput(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!(found.received_bps.unwrap().mean, 2e9);
    assert_eq!(found.runs.len(), 3);
    // The tester had no time left: the device may do more.
    assert!(found.is_limit);
    let mut method = ConnectionThroughput::new(throughput()).unwrap();
    let result = drive(&mut method, 10, |_| {
        Observation::Conversed(Box::new(ConversationCounts {
            attempted: 10,
            tester_idle_ratio: Some(0.01),
            ..ConversationCounts::default()
        }))
    });
    let ProcedureFindings::ConnectionThroughput(found) = result.findings else {
        panic!("findings of another method")
    };
    assert!(!found.is_limit);
}

fn latency(rate: TransactionRate) -> TransactionLatencyConfig {
    TransactionLatencyConfig {
        rate,
        connections: 1_000,
        answer: None,
        repeats: 3,
        duration_s: 1.0,
        pause_s: 0.0,
        max_invalid_repeats: 1,
    }
}

fn timed(mean_ns: f64) -> Observation {
    Observation::Conversed(Box::new(ConversationCounts {
        attempted: 1_000,
        last_octet: Some(TimeSummary {
            samples: 1_000,
            mean_ns,
            ..TimeSummary::default()
        }),
        ..ConversationCounts::default()
    }))
}

#[test]
fn latency_is_measured_at_a_share_of_the_rate_that_a_search_finds() {
    let rate = TransactionRate::Found {
        percent: 50.0,
        search: Box::new(config(QUANTITIES[2])),
    };
    let mut method = TransactionLatency::new(latency(rate)).unwrap();
    let device = serves(60_000.0);
    let mut times = [30.0, 10.0, 20.0].into_iter();
    let mut made = 0;
    let result = drive(&mut method, 100, |trial| {
        made += 1;
        // Half of the rate found: the search has ended.
        if trial.load.value() <= 30_000.0 && made > 3 {
            timed(times.next().unwrap())
        } else {
            device(trial)
        }
    });
    assert_eq!(result.history.len(), made);
    let ProcedureFindings::TransactionLatency(found) = result.findings else {
        panic!("findings of another method")
    };
    let per_s = found.per_s.unwrap();
    assert!((29_750.0..=30_000.0).contains(&per_s), "{per_s}");
    let median = found.median_ns(|run| run.last_octet, |times| Some(times.mean_ns));
    assert_eq!(median, Some(20.0));
    assert_eq!(found.median_ns(|run| run.first_octet, |_| Some(0.0)), None);
    // Without a rate that holds, there is nothing to measure.
    let rate = TransactionRate::Found {
        percent: 50.0,
        search: Box::new(config(QUANTITIES[2])),
    };
    let mut method = TransactionLatency::new(latency(rate)).unwrap();
    let result = drive(&mut method, 100, serves(0.0));
    let ProcedureFindings::TransactionLatency(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!((found.per_s, found.runs.len()), (None, 0));
}

#[test]
fn a_given_rate_needs_no_search() {
    let rate = TransactionRate::Fixed { per_s: 500.0 };
    let mut method = TransactionLatency::new(latency(rate)).unwrap();
    let result = drive(&mut method, 3, |trial| {
        assert_eq!(trial.load.value(), 500.0);
        timed(1.0)
    });
    assert_eq!(result.history.len(), 3);
}

#[test]
fn counts_of_zero_and_impossible_times_are_refused() {
    let zero = |result: Result<(), ConfigError>| match result {
        Err(ConfigError::Zero { name }) => name,
        other => panic!("{other:?}"),
    };
    let changed = |change: fn(&mut ConnectionThroughputConfig)| {
        let mut config = throughput();
        change(&mut config);
        config.validate()
    };
    assert!(throughput().validate().is_ok());
    assert_eq!(zero(changed(|it| it.connections = 0)), "connections");
    assert_eq!(zero(changed(|it| it.transactions = 0)), "transactions");
    assert_eq!(zero(changed(|it| it.repeats = 0)), "repeats");
    assert!(matches!(
        changed(|it| it.duration_s = 0.0),
        Err(ConfigError::NotPositive {
            name: "duration_s",
            ..
        })
    ));
    let fixed = || latency(TransactionRate::Fixed { per_s: 500.0 });
    let changed = |change: fn(&mut TransactionLatencyConfig)| {
        let mut config = fixed();
        change(&mut config);
        config.validate()
    };
    assert!(fixed().validate().is_ok());
    assert_eq!(zero(changed(|it| it.connections = 0)), "connections");
    assert_eq!(zero(changed(|it| it.repeats = 0)), "repeats");
    assert!(matches!(
        changed(|it| it.rate = TransactionRate::Fixed { per_s: -1.0 }),
        Err(ConfigError::NotPositive { name: "per_s", .. })
    ));
}

#[test]
fn wrong_parameters_and_observations_are_refused() {
    let error = |change: fn(&mut ConversationSearchConfig)| {
        let mut config = config(QUANTITIES[0]);
        change(&mut config);
        ConversationSearch::new(config).unwrap_err()
    };
    assert!(matches!(
        error(|it| it.max = f64::NAN),
        ConfigError::NotPositive { name: "max", .. }
    ));
    assert!(matches!(
        error(|it| it.step = 200_000.0),
        ConfigError::BoundsCrossed { .. }
    ));
    assert!(matches!(
        error(|it| it.connections = 0),
        ConfigError::Zero {
            name: "connections"
        }
    ));
    let mut search = ConversationSearch::new(config(QUANTITIES[0])).unwrap();
    assert_eq!(
        search.record(counts(1, 0)),
        Err(RecordError::NothingPending)
    );
    search.step();
    // More failures than attempts, and no attempt at all.
    for (attempted, failed, received_bps) in
        [(1, 2, 0.0), (0, 0, 0.0), (1, 0, -1.0), (1, 0, f64::NAN)]
    {
        let impossible = Observation::Conversed(Box::new(ConversationCounts {
            attempted,
            failed,
            received_bps,
            ..ConversationCounts::default()
        }));
        assert!(matches!(
            search.record(impossible),
            Err(RecordError::WrongObservation { .. })
        ));
    }
    search.record(counts(1, 0)).unwrap();
}
