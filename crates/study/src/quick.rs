// SPDX-License-Identifier: Apache-2.0
//! A study made short, to see that it runs on a machine. What comes of it says so, and is no figure.

use crate::file::StudyFile;
use crate::methods::QUICK_DURATION_S;

/// Longest warm-up and drain, seconds. Devices that share CPUs hold frames for a while.
const AROUND_S: f64 = 0.1;
/// How often an invalid trial is made again.
const INVALID_REPEATS: u32 = 2;

impl StudyFile {
    /// The text of a study with the same cases and methods, and as little of each as can be: one round, short trials, coarse
    /// searches. It says of itself that it is quick.
    ///
    /// # Errors
    /// Why it cannot be written, in words.
    pub fn quick(&self) -> Result<String, String> {
        let mut file = self.clone();
        file.quick = true;
        file.rounds = 1;
        file.traffic.frame_sizes.truncate(1);
        file.trials.duration_s = file.trials.duration_s.min(QUICK_DURATION_S);
        file.trials.warm_up_s = file.trials.warm_up_s.min(AROUND_S);
        file.trials.drain_s = file.trials.drain_s.min(AROUND_S);
        file.trials.invalid_repeats = file.trials.invalid_repeats.min(INVALID_REPEATS);
        // They are made of the plan again.
        file.cases.retain(|case| case.tenants.is_none());
        file.shorten_methods();
        toml::to_string(&file).map_err(|error| error.to_string())
    }
}
