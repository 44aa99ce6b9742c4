// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a search's parameters, and with the way it is driven.

/// Why a search cannot begin with these parameters. `name` is the parameter's field name.
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
    /// The floor lies over the ceiling.
    #[error(
        "min_rate_pps {min_rate_pps} is over max_rate_pps {max_rate_pps}; swap them or widen the range"
    )]
    BoundsCrossed {
        /// Lowest rate allowed.
        min_rate_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// The first rate is one that the bounds forbid.
    #[error(
        "start_rate_pps {start_rate_pps} is outside {min_rate_pps} to {max_rate_pps}; start between the bounds"
    )]
    StartOutsideBounds {
        /// First rate to try.
        start_rate_pps: f64,
        /// Lowest rate allowed.
        min_rate_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// The search would stop before its first halving.
    #[error(
        "resolution_pps {resolution_pps} is over start_step_pps {start_step_pps}; the search halves the step until it is under the resolution, so the resolution must not be larger"
    )]
    ResolutionOverStep {
        /// Step under which the search stops.
        resolution_pps: f64,
        /// First step.
        start_step_pps: f64,
    },
    /// The first step is lost in rounding, so the linear phase would stand still.
    #[error(
        "start_step_pps {start_step_pps} is too small beside max_rate_pps {max_rate_pps} to change it; use a larger step"
    )]
    StepVanishes {
        /// First step.
        start_step_pps: f64,
        /// Highest rate allowed.
        max_rate_pps: f64,
    },
    /// An exceed ratio outside \[0, 1), or not a number.
    #[error(
        "the exceed ratio {0} is not in [0, 1); 0 means that no trial may lose too much, 0.5 that half of the time may"
    )]
    ExceedRatio(f64),
    /// A width that bounds can't have.
    #[error("the width {0} is not from 1e-9 to under 1; 0.005 means bounds 0.5 % apart")]
    Width(f64),
    /// First trials longer than full-length ones.
    #[error(
        "initial_trial_duration_s {initial_s} is over final_trial_duration_s {final_s}; first trials must not be longer than full-length ones"
    )]
    InitialOverFinal {
        /// Length of first trials, seconds.
        initial_s: f64,
        /// Length of full-length trials, seconds.
        final_s: f64,
    },
    /// A device that forwards as fast as bursts can come never has to store one.
    #[error(
        "throughput_pps {throughput_pps} is not under max_rate_pps {max_rate_pps}; bursts tell something only of devices that are slower than the medium"
    )]
    NothingToStore {
        /// Throughput of the device.
        throughput_pps: f64,
        /// Rate of bursts.
        max_rate_pps: f64,
    },
    /// Two ways to say how many trials a rate gets.
    #[error("best_of is {0} beside a number of trials at each rate; leave it at 1")]
    BestOfBesideTrials(u32),
    /// A confidence level outside (0, 1), or not a number.
    #[error("the confidence {0} is not between 0 and 1; 0.95 is usual")]
    Confidence(f64),
    /// A search for nothing.
    #[error("goals is empty; a search needs at least one goal")]
    NoGoals,
    /// A sweep without rates.
    #[error("rates_pps is empty; a sweep needs at least one rate")]
    NoRates,
    /// The same rate twice in a sweep.
    #[error("rates_pps holds {0} more than once; a sweep tries each rate once")]
    RepeatedRate(f64),
    /// A sweep with more points than anyone can wait for.
    #[error("the sweep would have {points} points, over the limit of {limit}; use a larger step")]
    TooManyRates {
        /// Points asked for, rounded.
        points: f64,
        /// Most points allowed.
        limit: u32,
    },
}

/// Why an outcome was not taken. The search is as it was before the call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// No trial was asked for since the last outcome.
    #[error(
        "no trial is pending: call step() first, and record exactly one outcome for each request it gives"
    )]
    NothingPending,
    /// A ratio that no trial can have.
    #[error(
        "the loss ratio {0} of the trial is not in [0, 1]; a trial without a usable ratio must be recorded as invalid"
    )]
    LossRatio(f64),
    /// A duration that no trial can have.
    #[error(
        "the effective duration {0} s of the trial is not a finite number above zero; leave it out where it is not known"
    )]
    EffectiveDuration(f64),
    /// What cannot have been seen of the action that was asked for.
    #[error("{observation} cannot be what was seen of {action}")]
    WrongObservation {
        /// What was asked.
        action: String,
        /// What was told.
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

/// Checks that the lowest rate is not over the highest one.
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

/// `value` when it is finite and above zero.
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
