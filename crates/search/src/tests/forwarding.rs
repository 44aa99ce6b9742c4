// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate at maximum offered load.

use super::{drive, invalid, rates};
use crate::{
    ConfigError, Findings, Forwarded, ForwardingRate, ForwardingRateConfig, ForwardingRateFindings,
    Outcome, SearchResult,
};

fn config(lower: &[f64]) -> ForwardingRateConfig {
    ForwardingRateConfig {
        max_rate_pps: 100.0,
        lower_rates_pps: lower.to_vec(),
        trial_duration_s: 30.0,
        max_invalid_repeats: 1,
    }
}

fn found(result: &SearchResult) -> &ForwardingRateFindings {
    match &result.findings {
        Findings::ForwardingRate(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

#[test]
fn a_device_that_degrades_forwards_most_at_a_lower_load() {
    let mut method = ForwardingRate::new(config(&[80.0, 60.0, 40.0])).unwrap();
    // Up to 60 frames pass. Each frame above that costs half a frame.
    let result = drive(&mut method, 10, |_, rate| {
        let passed = rate.min(60.0) - 0.5 * (rate - 60.0).max(0.0);
        Outcome::lost(1.0 - passed / rate)
    });
    assert_eq!(rates(&result), [100.0, 80.0, 60.0, 40.0]);
    let found = found(&result);
    assert!((found.at_max_load_pps.unwrap() - 40.0).abs() < 1e-9);
    let most = Forwarded {
        offered_pps: 60.0,
        forwarded_pps: 60.0,
    };
    assert_eq!(found.maximum, Some(most));
    let json = serde_json::to_string(&result).unwrap();
    assert!(
        json.contains(r#""method":"forwarding-rate-at-max-load""#),
        "{json}"
    );
}

#[test]
fn a_load_at_which_the_tester_failed_is_left_out() {
    let mut method = ForwardingRate::new(config(&[50.0])).unwrap();
    let result = drive(&mut method, 10, |_, rate| {
        if rate == 100.0 {
            invalid("gap")
        } else {
            Outcome::lost(0.0)
        }
    });
    assert_eq!(rates(&result), [100.0, 100.0, 50.0]);
    assert_eq!(found(&result).at_max_load_pps, None);
    assert_eq!(found(&result).maximum.unwrap().offered_pps, 50.0);
}

#[test]
fn bad_parameters_are_named() {
    let error = |lower| ForwardingRate::new(config(lower)).unwrap_err();
    assert!(matches!(error(&[101.0]), ConfigError::BoundsCrossed { .. }));
    assert_eq!(error(&[100.0]), ConfigError::RepeatedRate(100.0));
    assert!(matches!(error(&[0.0]), ConfigError::NotPositive { .. }));
}
