// SPDX-License-Identifier: Apache-2.0
//! Frame loss rate sweep.

use proptest::prelude::*;

use super::{drive, invalid, loss_of, rates};
use crate::{
    ConfigError, Findings, LossSweep, LossSweepConfig, LossSweepFindings, Method, Outcome,
    RecordError, SearchResult, SweepValue,
};

fn points(result: &SearchResult) -> &LossSweepFindings {
    match &result.findings {
        Findings::LossSweep(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

fn config(rates_pps: &[f64]) -> LossSweepConfig {
    LossSweepConfig {
        rates_pps: rates_pps.to_vec(),
        trial_duration_s: 1.0,
        max_invalid_repeats: 1,
    }
}

#[test]
fn every_rate_once_and_an_invalid_point_does_not_stop_it() {
    let mut sweep = LossSweep::new(config(&[10.0, 20.0, 40.0, 30.0])).unwrap();
    assert_eq!(
        sweep.record(invalid("early")),
        Err(RecordError::NothingPending)
    );
    // Trial 0 is valid; 1 and 2 are invalid (left out); 3 is invalid, 4 valid; 5 is valid.
    let result = drive(&mut sweep, 10, |trial, rate| match trial {
        1..=3 => invalid(&format!("gap {trial}")),
        _ => loss_of(20.0, rate),
    });
    assert_eq!(rates(&result), [10.0, 20.0, 20.0, 40.0, 40.0, 30.0]);
    let found = points(&result);
    let values: Vec<_> = found.points.iter().map(|p| p.value.clone()).collect();
    assert_eq!(
        values,
        [
            SweepValue::Measured { loss_ratio: 0.0 },
            SweepValue::Invalid {
                reasons: vec!["gap 1".into(), "gap 2".into()]
            },
            SweepValue::Measured { loss_ratio: 0.5 },
            SweepValue::Measured {
                loss_ratio: 1.0 - 20.0 / 30.0
            },
        ]
    );
    assert_eq!(
        sweep.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"loss-sweep""#), "{json}");
    assert_eq!(
        points(&serde_json::from_str(&json).unwrap()).points.len(),
        found.points.len()
    );
}

#[test]
fn steps_of_line_rate() {
    let percent = |first, last, step| LossSweepConfig::of_line_rate(1e7, first, last, step, 1.0, 0);
    let all = percent(1.0, 100.0, 1.0).unwrap().rates_pps;
    assert_eq!(all.len(), 100);
    assert_eq!((all[0], all[49], all[99]), (1e5, 5e6, 1e7));
    let fine = percent(1.0, 100.0, 0.1).unwrap().rates_pps;
    assert_eq!((fine.len(), fine[990]), (991, 1e7));
    // A step that does not reach the last rate ends below it.
    assert_eq!(
        percent(10.0, 100.0, 40.0).unwrap().rates_pps,
        [1e6, 5e6, 9e6]
    );
    assert_eq!(percent(50.0, 50.0, 1.0).unwrap().rates_pps, [5e6]);
    // In binary, 0.2 is slightly less than twice 0.1 above 0.1.
    assert_eq!(percent(0.1, 0.3, 0.1).unwrap().rates_pps.len(), 3);
    assert_eq!(
        percent(2.0, 1.0, 1.0),
        Err(ConfigError::BoundsCrossed {
            min_rate_pps: 2e5,
            max_rate_pps: 1e5
        })
    );
    // The limit is 10,000 rates.
    assert_eq!(percent(0.01, 100.0, 0.01).unwrap().rates_pps.len(), 10_000);
    assert_eq!(
        percent(0.01, 100.01, 0.01),
        Err(ConfigError::TooManyRates {
            points: 10_001.0,
            limit: 10_000
        })
    );
    assert!(matches!(
        percent(1.0, 100.0, 1e-6),
        Err(ConfigError::TooManyRates { .. })
    ));
    assert!(matches!(
        percent(1.0, 100.0, f64::MIN_POSITIVE),
        Err(ConfigError::TooManyRates { .. })
    ));
    assert!(percent(0.0, 100.0, 1.0).is_err());
    assert!(percent(1.0, f64::NAN, 1.0).is_err());
}

#[test]
fn a_list_has_a_limit_too_and_a_bound_of_trials() {
    let of = |count: u32| config(&(1..=count).map(f64::from).collect::<Vec<_>>());
    assert_eq!(of(9_999).validate(), Ok(()));
    assert_eq!(of(10_000).validate(), Ok(()));
    for count in [10_001, 10_002] {
        assert_eq!(
            of(count).validate(),
            Err(ConfigError::TooManyRates {
                points: f64::from(count),
                limit: 10_000
            })
        );
    }
    // Each rate once, and once more if the trial was invalid.
    assert_eq!(of(7).trial_bound(), 14);
}

#[test]
fn bad_parameters_are_named() {
    let error = |config| LossSweep::new(config).unwrap_err();
    assert_eq!(error(config(&[])), ConfigError::NoRates);
    assert_eq!(
        error(config(&[1.0, 2.0, 1.0])),
        ConfigError::RepeatedRate(1.0)
    );
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            error(config(&[1.0, bad])),
            ConfigError::NotPositive {
                name: "rates_pps",
                ..
            }
        ));
        let bad_time = LossSweepConfig {
            trial_duration_s: bad,
            ..config(&[1.0])
        };
        assert!(matches!(error(bad_time), ConfigError::NotPositive { .. }));
    }
}

proptest! {
    #[test]
    fn takes_no_more_trials_than_its_bound(
        count in 1..50usize,
        repeats in 0..4u32,
        valid in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let config = LossSweepConfig {
            rates_pps: (1..=count).map(|n| n as f64).collect(),
            trial_duration_s: 1.0,
            max_invalid_repeats: repeats,
        };
        let bound = config.trial_bound() as usize;
        let mut sweep = LossSweep::new(config.clone()).unwrap();
        let result = drive(&mut sweep, bound, |trial, rate| {
            if valid[trial % valid.len()] { loss_of(10.0, rate) } else { invalid("gap") }
        });
        let found = points(&result);
        let tried: Vec<f64> = found.points.iter().map(|p| p.rate_pps).collect();
        prop_assert_eq!(tried, config.rates_pps);
        for point in &found.points {
            if let SweepValue::Invalid { reasons } = &point.value {
                prop_assert_eq!(reasons.len(), repeats as usize + 1);
            }
        }
    }
}
