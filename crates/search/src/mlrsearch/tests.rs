// SPDX-License-Identifier: Apache-2.0
//! Tests of MLRsearch: cases computed by hand, properties, and a comparison with the library of the document's authors.

mod beside_library;
mod by_hand;
mod by_steps;
mod devices;
mod golden;
mod properties;

use crate::{LossRatio, MlrGoal, MlrSearchConfig};

fn config(goals: Vec<MlrGoal>) -> MlrSearchConfig {
    MlrSearchConfig {
        goals,
        min_rate_pps: 9_001.0,
        max_rate_pps: 29.76e6,
        max_invalid_repeats: 0,
        max_trials: 10_000,
    }
}

fn ratio(ratio: f64) -> LossRatio {
    LossRatio::new(ratio).unwrap()
}
