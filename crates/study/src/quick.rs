// SPDX-License-Identifier: Apache-2.0
//! Shortened studies (`--quick`), to check that a study runs on a machine. Their results are marked and are not usable as figures.

use crate::file::StudyFile;
use crate::methods::QUICK_DURATION_S;

/// Maximum warm-up and drain, seconds. Devices that share CPUs hold frames for a while.
const AROUND_S: f64 = 0.1;
/// Maximum number of repeats of an invalid trial.
const INVALID_REPEATS: u32 = 2;

impl StudyFile {
    /// Returns the text of a study with the same cases and methods but as little of each as possible: one round, short trials, coarse
    /// searches. The text is marked as quick.
    ///
    /// # Errors
    /// Why the text cannot be written.
    pub fn quick(&self) -> Result<String, String> {
        let mut file = self.clone();
        file.quick = true;
        file.rounds = 1;
        file.traffic.frame_sizes.truncate(1);
        file.trials.duration_s = file.trials.duration_s.min(QUICK_DURATION_S);
        file.trials.warm_up_s = file.trials.warm_up_s.min(AROUND_S);
        file.trials.drain_s = file.trials.drain_s.min(AROUND_S);
        file.trials.invalid_repeats = file.trials.invalid_repeats.min(INVALID_REPEATS);
        // The cases of tenants are generated from the plan again.
        file.cases.retain(|case| case.tenants.is_none());
        file.shorten_methods();
        toml::to_string(&file).map_err(|error| error.to_string())
    }
}
