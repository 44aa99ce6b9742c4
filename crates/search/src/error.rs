// SPDX-License-Identifier: Apache-2.0
//! Errors in a search's parameters, and in the sequence of calls.

/// Error in the parameters of a search. `name` is the parameter's field name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A loss ratio outside \[0, 1), or not a number.
    #[error("the loss ratio {0} is not in [0, 1); 0 means no loss at all, 0.0001 means 0.01 %")]
    LossRatio(f64),
    /// A value that must be finite and above zero.
    #[error("{name} is {value}; it must be a finite number above zero")]
    NotPositive {
        /// Name of the parameter.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// A count that must be at least one.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// Name of the parameter.
        name: &'static str,
    },
    /// The lowest rate exceeds the highest rate.
    #[error(
        "min_rate_pps {min_rate_pps} exceeds max_rate_pps {max_rate_pps} (swap them, or widen the range)"
    )]
    BoundsCrossed {
        /// Lowest rate allowed.
        min_rate_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// The first rate is outside the bounds.
    #[error(
        "start_rate_pps {start_rate_pps} is outside {min_rate_pps} to {max_rate_pps} (start within the bounds)"
    )]
    StartOutsideBounds {
        /// First rate to try.
        start_rate_pps: f64,
        /// Lowest rate allowed.
        min_rate_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// The search would end before its first bisection step.
    #[error(
        "resolution_pps {resolution_pps} exceeds start_step_pps {start_step_pps} (the search halves the step until it is below the resolution)"
    )]
    ResolutionOverStep {
        /// Step below which the search ends.
        resolution_pps: f64,
        /// First step.
        start_step_pps: f64,
    },
    /// The first step is lost in rounding, so the linear phase would not advance.
    #[error(
        "start_step_pps {start_step_pps} is too small to change max_rate_pps {max_rate_pps} (use a larger step)"
    )]
    StepVanishes {
        /// First step.
        start_step_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// An exceed ratio outside \[0, 1), or not a number.
    #[error(
        "the exceed ratio {0} is not in [0, 1); 0 means that no trial may exceed the loss ratio, 0.5 that half of the duration may"
    )]
    ExceedRatio(f64),
    /// A width that bounds cannot have.
    #[error("the width {0} is not in [1e-9, 1); 0.005 means bounds 0.5 % apart")]
    Width(f64),
    /// The first trials are longer than full-length ones.
    #[error(
        "initial_trial_duration_s {initial_s} exceeds final_trial_duration_s {final_s} (first trials must not be longer than full-length ones)"
    )]
    InitialOverFinal {
        /// Length of first trials, seconds.
        initial_s: f64,
        /// Length of full-length trials, seconds.
        final_s: f64,
    },
    /// The device forwards at the burst rate, so it never buffers a frame.
    #[error(
        "throughput_pps {throughput_pps} is not below max_rate_pps {max_rate_pps} (the test requires a device that is slower than the medium)"
    )]
    NothingToStore {
        /// Throughput of the device.
        throughput_pps: f64,
        /// Rate of bursts.
        max_rate_pps: f64,
    },
    /// The number of trials per rate is given twice.
    #[error(
        "best_of is {0}, but the number of trials per rate is given separately (set best_of to 1)"
    )]
    BestOfBesideTrials(u32),
    /// A confidence level outside (0, 1), or not a number.
    #[error("the confidence {0} is not between 0 and 1 (use a value such as 0.95)")]
    Confidence(f64),
    /// The search has no goals.
    #[error("goals is empty; a search needs at least one goal")]
    NoGoals,
    /// The sweep has no rates.
    #[error("rates_pps is empty; a sweep needs at least one rate")]
    NoRates,
    /// The sweep has the same rate twice.
    #[error("rates_pps contains {0} more than once (a sweep tries each rate once)")]
    RepeatedRate(f64),
    /// The sweep has too many points.
    #[error("the sweep has {points} points, more than the limit of {limit} (use a larger step)")]
    TooManyRates {
        /// Number of points, rounded.
        points: f64,
        /// Largest number of points.
        limit: u32,
    },
}

/// Error of recording an outcome. The search is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// No trial is pending.
    #[error(
        "no trial is pending: call step() first, and record exactly one outcome for each request"
    )]
    NothingPending,
    /// The loss ratio is impossible.
    #[error(
        "the loss ratio {0} of the trial is not in [0, 1] (record a trial without a usable ratio as invalid)"
    )]
    LossRatio(f64),
    /// The duration is impossible.
    #[error(
        "the effective duration {0} s of the trial is not a finite number above zero (leave it out if it is unknown)"
    )]
    EffectiveDuration(f64),
    /// The observation does not fit the pending action.
    #[error("observation {observation} does not fit action {action}")]
    WrongObservation {
        /// The action.
        action: String,
        /// The observation.
        observation: String,
    },
}

/// Returns `value` if it is a level of confidence: between 0 and 1, both excluded.
pub(crate) fn confidence(value: f64) -> Result<f64, ConfigError> {
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(ConfigError::Confidence(value))
    }
}

/// Checks that the lowest rate does not exceed the highest one.
pub(crate) fn ordered(min_rate_pps: f64, max_rate_pps: f64) -> Result<(), ConfigError> {
    if min_rate_pps <= max_rate_pps {
        Ok(())
    } else {
        Err(ConfigError::BoundsCrossed {
            min_rate_pps,
            max_rate_pps,
        })
    }
}

/// Returns `value` if it is finite and above zero.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<f64, ConfigError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(ConfigError::NotPositive { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_of_confidence_is_between_0_and_1() {
        for good in [1e-9, 0.5, 0.95, 1.0 - 1e-9] {
            assert_eq!(confidence(good), Ok(good));
        }
        for bad in [-1.0, 0.0, 1.0, 2.0, f64::INFINITY] {
            assert_eq!(confidence(bad), Err(ConfigError::Confidence(bad)));
        }
        assert!(confidence(f64::NAN).is_err());
    }

    #[test]
    fn bounds_may_meet_but_not_cross() {
        assert_eq!((ordered(1.0, 2.0), ordered(2.0, 2.0)), (Ok(()), Ok(())));
        assert_eq!(
            ordered(2.1, 2.0),
            Err(ConfigError::BoundsCrossed {
                min_rate_pps: 2.1,
                max_rate_pps: 2.0
            })
        );
    }
}
