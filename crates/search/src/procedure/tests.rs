// SPDX-License-Identifier: Apache-2.0
//! Procedures on simulated devices.

use crate::RecordError;
use proptest::prelude::*;

use super::*;
use crate::ConfigError;

/// Runs a procedure to its end, with at most `limit` actions.
fn drive(
    procedure: &mut dyn Procedure,
    limit: usize,
    mut bench: impl FnMut(Action) -> Observation,
) -> ProcedureResult {
    for _ in 0..=limit {
        match procedure.step() {
            ProcedureStep::Done(result) => {
                assert_eq!(
                    procedure.record(Observation::Done),
                    Err(RecordError::NothingPending)
                );
                let json = serde_json::to_string(&result).unwrap();
                let tag = format!(r#""method":"{}""#, procedure.name());
                assert!(json.contains(&tag), "{json}");
                return *result;
            }
            ProcedureStep::Do(action) => {
                assert_eq!(procedure.step(), ProcedureStep::Do(action));
                procedure.record(bench(action)).unwrap();
            }
        }
    }
    panic!("{} did not end within {limit} actions", procedure.name());
}

fn failed(reason: &str) -> Observation {
    Observation::Invalid {
        reason: reason.to_owned(),
        achieved_per_s: None,
    }
}

fn bursts() -> BackToBackConfig {
    BackToBackConfig {
        max_rate_pps: 10_000.0,
        throughput_pps: 7_500.0,
        max_burst_frames: 20_000,
        resolution_frames: 1,
        repeats: 3,
        pause_s: 2.0,
        confidence: 0.95,
        max_invalid_repeats: 1,
    }
}

/// Returns a device that buffers `frames` frames and forwards 7,500 of 10,000 frames per second.
fn stores(frames: u64) -> impl Fn(Action) -> Observation {
    move |action| match action {
        Action::Burst { frames: sent, .. } => Observation::Passed {
            lost_frames: (sent / 4).saturating_sub(frames),
            rate_pps: None,
        },
        other => panic!("unexpected action {other:?}"),
    }
}

#[test]
fn bursts_tell_the_buffer() {
    let mut method = BackToBack::new(bursts()).unwrap();
    let result = drive(&mut method, 100, stores(1_000));
    assert_eq!(result.end, ProcedureEnd::Finished);
    let ProcedureFindings::BackToBack(found) = result.findings else {
        panic!("findings of another method")
    };
    // A quarter of 4,003 is 1,000 whole frames, which fit the buffer. Of 4,004, it is one more.
    assert_eq!(found.longest_frames, [4_003; 3]);
    assert_eq!(found.at_limit, 0);
    let implied = found.implied_buffer_s.unwrap();
    assert!((implied - 0.4003).abs() < 1e-12);
    // A quarter of the time, because the device forwards at three quarters of the rate.
    assert!((found.corrected_buffer_s.unwrap() - 0.4003 / 4.0).abs() < 1e-12);
}

#[test]
fn bursts_count_at_the_rate_that_they_went_out_at() {
    let found = |rate| {
        let mut method = BackToBack::new(bursts()).unwrap();
        let device = stores(1_000);
        let bench = move |action| match device(action) {
            // The rate of bursts with loss is irrelevant.
            Observation::Passed { lost_frames, .. } => Observation::Passed {
                lost_frames,
                rate_pps: Some(if lost_frames > 0 { 1.0 } else { rate }),
            },
            other => other,
        };
        match drive(&mut method, 100, bench).findings {
            ProcedureFindings::BackToBack(found) => found,
            other => panic!("findings of another method: {other:?}"),
        }
    };
    let fast = found(20_000.0);
    assert_eq!(fast.burst_rate_pps.unwrap().mean, 20_000.0);
    let implied = fast.implied_buffer_s.unwrap();
    assert!((implied - 4003.0 / 20_000.0).abs() < 1e-12);
    // 7,500 of 20,000 frames were forwarded meanwhile.
    assert!((fast.corrected_buffer_s.unwrap() - implied * 0.625).abs() < 1e-12);
    // Bursts at or below the forwarding rate fill no buffer.
    assert_eq!(found(7_000.0).corrected_buffer_s, None);
}

#[test]
fn bursts_have_limits_and_failures() {
    let of = |frames| {
        let mut method = BackToBack::new(bursts()).unwrap();
        match drive(&mut method, 100, stores(frames)).findings {
            ProcedureFindings::BackToBack(found) => found,
            other => panic!("findings of another method: {other:?}"),
        }
    };
    assert_eq!(
        (of(5_000).longest_frames, of(5_000).at_limit),
        (vec![20_000; 3], 3)
    );
    let mut method = BackToBack::new(bursts()).unwrap();
    let result = drive(&mut method, 2, |_| failed("gap"));
    assert_eq!(result.history.len(), 2);
    assert!(matches!(
        result.end,
        ProcedureEnd::Invalid { reasons, .. } if reasons == ["gap", "gap"]
    ));
    let error = |change: fn(&mut BackToBackConfig)| {
        let mut config = bursts();
        change(&mut config);
        BackToBack::new(config).unwrap_err()
    };
    assert!(matches!(
        error(|c| c.throughput_pps = 10_000.0),
        ConfigError::NothingToStore { .. }
    ));
    assert_eq!(
        error(|c| c.repeats = 0),
        ConfigError::Zero { name: "repeats" }
    );
    assert_eq!(error(|c| c.confidence = 2.0), ConfigError::Confidence(2.0));
    assert!(matches!(
        error(|c| c.pause_s = f64::NAN),
        ConfigError::NotPositive { .. }
    ));
}

#[test]
fn impossible_observations_are_refused() {
    let mut method = BackToBack::new(bursts()).unwrap();
    assert_eq!(
        method.record(Observation::Done),
        Err(RecordError::NothingPending)
    );
    let passed = |lost_frames, rate_pps| Observation::Passed {
        lost_frames,
        rate_pps,
    };
    refused(
        &mut method,
        [
            Observation::Done,
            Observation::Recovered { after_s: None },
            passed(20_001, None),
            passed(0, Some(0.0)),
            passed(0, Some(-1.0)),
            passed(0, Some(f64::INFINITY)),
        ],
    );
    method.record(passed(20_000, Some(1.0))).unwrap();

    let mut method = SystemRecovery::new(recovery()).unwrap();
    let after = |after_s| Observation::Recovered {
        after_s: Some(after_s),
    };
    let wrong = [-0.1, 10.1, f64::INFINITY, f64::NAN].map(after);
    refused(&mut method, wrong);
    method.record(after(0.0)).unwrap();
    method.step();
    method.record(after(10.0)).unwrap();

    let mut method = Reset::new(reset()).unwrap();
    let gap = |gap_s| Observation::Restored {
        lost_frames: Some(1),
        gap_s: Some(gap_s),
    };
    refused(&mut method, [-0.1, f64::INFINITY, f64::NAN].map(gap));
    method.record(gap(0.0)).unwrap();

    let mut method = AddressCaching::new(caching()).unwrap();
    for _ in 0..2 {
        method.step();
        method.record(Observation::Done).unwrap();
    }
    let probed = |lost_frames| Observation::Probed {
        flooded_frames: 0,
        lost_frames,
    };
    refused(&mut method, [Observation::Done, probed(65_537)]);
    method.record(probed(65_536)).unwrap();
}

/// Gets an action and asserts that these observations of it are refused.
fn refused(method: &mut dyn Procedure, wrong: impl IntoIterator<Item = Observation>) {
    let asked = method.step();
    for wrong in wrong {
        let refused = method.record(wrong.clone());
        assert!(
            matches!(refused, Err(RecordError::WrongObservation { .. })),
            "{wrong:?} was accepted"
        );
        assert_eq!(method.step(), asked);
    }
}

fn recovery() -> SystemRecoveryConfig {
    SystemRecoveryConfig {
        throughput_pps: 1_000.0,
        max_rate_pps: 1_050.0,
        overload_s: 60.0,
        reduced_s: 10.0,
        repeats: 3,
        confidence: 0.95,
        max_invalid_repeats: 1,
    }
}

fn reset() -> ResetConfig {
    ResetConfig {
        kind: RestartKind::Software,
        rate_pps: 1_000.0,
        limit_s: 30.0,
        repeats: 3,
        confidence: 0.95,
        max_invalid_repeats: 0,
    }
}

#[test]
fn repeated_procedures_name_bad_parameters() {
    type Change<C> = fn(&mut C);
    let changes: [(Change<SystemRecoveryConfig>, _); 3] = [
        (|c| c.confidence = 1.0, ConfigError::Confidence(1.0)),
        (|c| c.repeats = 0, ConfigError::Zero { name: "repeats" }),
        (
            |c| c.overload_s = 0.0,
            ConfigError::NotPositive {
                name: "overload_s",
                value: 0.0,
            },
        ),
    ];
    for (change, error) in changes {
        let mut config = recovery();
        change(&mut config);
        assert_eq!(SystemRecovery::new(config).unwrap_err(), error);
    }
    let changes: [(Change<ResetConfig>, _); 3] = [
        (|c| c.confidence = 0.0, ConfigError::Confidence(0.0)),
        (|c| c.repeats = 0, ConfigError::Zero { name: "repeats" }),
        (
            |c| c.limit_s = -1.0,
            ConfigError::NotPositive {
                name: "limit_s",
                value: -1.0,
            },
        ),
    ];
    for (change, error) in changes {
        let mut config = reset();
        change(&mut config);
        assert_eq!(Reset::new(config).unwrap_err(), error);
    }
    let rates = AddressLearningRateConfig {
        addresses: 1,
        max_rate_pps: 1,
        resolution_pps: 0,
        probe_rate_pps: 1.0,
        max_invalid_repeats: 0,
    };
    assert_eq!(
        AddressLearningRate::new(rates).unwrap_err(),
        ConfigError::Zero {
            name: "resolution_pps"
        }
    );
}

#[test]
fn a_switch_that_keeps_no_address_has_no_capacity() {
    let mut method = AddressCaching::new(caching()).unwrap();
    let mut switch = Switch {
        keeps: 0,
        learns_pps: 1e9,
        known: 0,
    };
    let result = drive(&mut method, 2 * 3 * 18, |action| switch.sees(action));
    let ProcedureFindings::AddressCaching(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!((found.capacity_addresses, found.is_limit), (None, false));
}

#[test]
fn recovery_is_measured_from_the_reduction() {
    let config = recovery();
    let mut method = SystemRecovery::new(config.clone()).unwrap();
    let mut observed = [Some(1.0), None, Some(2.0)].into_iter();
    let mut count = 0;
    let result = drive(&mut method, 10, |action| {
        // 110 % exceeds the highest rate of the tester.
        assert_eq!(
            action,
            Action::StepDown {
                overload_pps: 1_050.0,
                overload_s: 60.0,
                reduced_pps: 525.0,
                reduced_s: 10.0
            }
        );
        count += 1;
        if count == 2 {
            return failed("gap");
        }
        Observation::Recovered {
            after_s: observed.next().unwrap(),
        }
    });
    let ProcedureFindings::SystemRecovery(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!(found.recoveries_s, [Some(1.0), None, Some(2.0)]);
    let recovery = found.recovery_s.unwrap();
    assert_eq!((recovery.count, recovery.mean), (2, 1.5));
    assert_eq!(
        SystemRecoveryConfig {
            max_rate_pps: 2_000.0,
            ..config
        }
        .overload_pps(),
        1_100.0
    );
}

#[test]
fn resets_are_reported_by_loss_and_by_time() {
    let mut method = Reset::new(reset()).unwrap();
    let mut observed = [(Some(1_500), Some(1.6)), (None, None), (Some(2_500), None)].into_iter();
    let result = drive(&mut method, 10, |_| {
        let (lost_frames, gap_s) = observed.next().unwrap();
        Observation::Restored { lost_frames, gap_s }
    });
    let ProcedureFindings::Reset(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!(
        found.outages,
        [
            Some(Outage {
                by_loss_s: 1.5,
                by_time_s: Some(1.6)
            }),
            None,
            Some(Outage {
                by_loss_s: 2.5,
                by_time_s: None
            }),
        ]
    );
    assert_eq!(found.reset_s.unwrap().mean, 2.0);
}

/// A switch that stores a limited number of addresses and learns a limited number per second. Frames to other addresses are flooded.
struct Switch {
    keeps: u32,
    learns_pps: f64,
    known: u32,
}

impl Switch {
    fn sees(&mut self, action: Action) -> Observation {
        match action {
            Action::FlushFdb => self.known = 0,
            Action::Learn {
                addresses,
                rate_pps,
            } => {
                assert_eq!(self.known, 0, "learning without a flush");
                let part = (self.learns_pps / rate_pps).min(1.0);
                self.known = self.keeps.min((f64::from(addresses) * part) as u32);
            }
            Action::Probe { addresses, .. } => {
                return Observation::Probed {
                    flooded_frames: u64::from(addresses - self.known.min(addresses)),
                    lost_frames: 0,
                };
            }
            other => panic!("unexpected action {other:?}"),
        }
        Observation::Done
    }
}

fn caching() -> AddressCachingConfig {
    AddressCachingConfig {
        max_addresses: 65_536,
        resolution_addresses: 1,
        learning_rate_pps: 1_000.0,
        probe_rate_pps: 1_000.0,
        max_invalid_repeats: 5,
    }
}

proptest! {
    #[test]
    fn the_capacity_for_addresses_is_found(
        keeps in 0..80_000u32,
        resolution in 1..500u32,
        fails_at in 0..60usize,
    ) {
        let config = AddressCachingConfig { resolution_addresses: resolution, ..caching() };
        let mut method = AddressCaching::new(config).unwrap();
        let mut switch = Switch { keeps, learns_pps: 1e9, known: 0 };
        let mut count = 0;
        let result = drive(&mut method, 2 * 3 * 18 + 3, |action| {
            count += 1;
            // A failure during the sequence restarts the number.
            if count == fails_at + 1 { failed("gap") } else { switch.sees(action) }
        });
        let ProcedureFindings::AddressCaching(found) = result.findings else {
            panic!("findings of another method")
        };
        let capacity = found.capacity_addresses.unwrap_or(0);
        prop_assert!(capacity <= keeps);
        prop_assert!(capacity + resolution > keeps.min(65_536), "{} of {}", capacity, keeps);
        prop_assert_eq!(found.is_limit, keeps >= 65_536);
    }

    #[test]
    fn the_learning_rate_is_found(learns_pps in 0..120_000u32, resolution_pps in 1..500u32) {
        let config = AddressLearningRateConfig {
            addresses: 1_000_000,
            max_rate_pps: 100_000,
            resolution_pps,
            probe_rate_pps: 1_000.0,
            max_invalid_repeats: 0,
        };
        let mut method = AddressLearningRate::new(config).unwrap();
        let mut switch = Switch { keeps: u32::MAX, learns_pps: f64::from(learns_pps), known: 0 };
        let result = drive(&mut method, 2 * 3 * 18, |action| switch.sees(action));
        let ProcedureFindings::AddressLearningRate(found) = result.findings else {
            panic!("findings of another method")
        };
        let rate = found.learning_rate_pps.unwrap_or(0);
        prop_assert!(rate <= learns_pps);
        prop_assert!(rate + resolution_pps > learns_pps.min(100_000));
        prop_assert_eq!(found.is_limit, learns_pps >= 100_000);
    }
}

#[test]
fn one_frame_that_is_held_up_does_not_lessen_the_capacity() {
    let mut method = AddressCaching::new(caching()).unwrap();
    let mut switch = Switch {
        keeps: 50_000,
        learns_pps: 1e9,
        known: 0,
    };
    let mut probes = 0;
    let result = drive(&mut method, 2 * 3 * 18 + 3, |action| {
        let observed = switch.sees(action);
        probes += u32::from(matches!(action, Action::Probe { .. }));
        match observed {
            // Every other probe loses one frame, although the switch knows all addresses.
            Observation::Probed {
                flooded_frames: 0, ..
            } if probes % 2 == 1 => Observation::Probed {
                flooded_frames: 0,
                lost_frames: 1,
            },
            observed => observed,
        }
    });
    let ProcedureFindings::AddressCaching(found) = result.findings else {
        panic!("findings of another method")
    };
    assert_eq!(found.capacity_addresses, Some(50_000));
}

#[test]
fn addresses_have_limits_to_be_named() {
    let error = |change: fn(&mut AddressCachingConfig)| {
        let mut config = caching();
        change(&mut config);
        AddressCaching::new(config).unwrap_err()
    };
    assert_eq!(
        error(|c| c.max_addresses = 0),
        ConfigError::Zero {
            name: "max_addresses"
        }
    );
    assert!(matches!(
        error(|c| c.learning_rate_pps = 0.0),
        ConfigError::NotPositive { .. }
    ));
}
