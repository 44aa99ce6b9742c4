// SPDX-License-Identifier: Apache-2.0
//! The study file: what it may say. Keys are in kebab case and carry their unit; a key that is not known is an error.

mod application;
mod check;
mod device;
mod locate;
mod methods;
mod procedures;
mod published;
mod study_file;
mod tenants;
#[cfg(test)]
mod tests;
mod values;

use std::path::Path;

use quietwire_search::{ConfigError, LossRatio, MlrGoal};

pub use application::ApplicationPlan;
pub use device::Device;
pub use locate::FileError;
pub use methods::{ForwardingRatePlan, LatencyPlanSection, LossDistributionPlan, SoakPlan};
pub(crate) use procedures::Throughput;
pub use procedures::{
    AddressCachingPlan, AddressLearningRatePlan, BackToBackPlan, ResetPlan, SystemRecoveryPlan,
};
pub use published::{Published, PublishedFigure, Ratio};
pub use quietwire_base::Idle;
pub use study_file::{
    Case, Goal, LatencyProbe, Neighbours, Search, StudyFile, Sweep, TesterSettings, Traffic, Trials,
};
pub use tenants::TenantsPlan;
pub use values::{
    FrameSize, Link, MaxRate, Mode, NeighboursIn, Percent, Pinning, SearchMethod, Switch, Topology,
};

/// FD.io's: so many full trials' lengths are measured at a load.
const DURATION_SUM_TRIALS: f64 = 21.0;

impl Goal {
    /// The goal as MLRsearch takes it, with what is left out filled in: FD.io's values, and trials as long as others.
    pub(crate) fn mlr(&self, trials: &Trials) -> Result<MlrGoal, ConfigError> {
        let final_trial_duration_s = self.final_trial_duration_s.unwrap_or(trials.duration_s);
        Ok(MlrGoal {
            final_trial_duration_s,
            duration_sum_s: self
                .duration_sum_s
                .unwrap_or(DURATION_SUM_TRIALS * final_trial_duration_s),
            loss_ratio: LossRatio::new(self.loss_ratio)?,
            exceed_ratio: self.exceed_ratio.unwrap_or(0.5),
            width: self.width_percent.map_or(0.005, |width| width.of(1.0)),
            initial_trial_duration_s: self
                .initial_trial_duration_s
                .unwrap_or(final_trial_duration_s),
        })
    }
}

impl StudyFile {
    /// True when addresses are to be learned and looked for, which takes a third port (RFC 2889, section 5.7).
    #[must_use]
    pub fn looks_for_addresses(&self) -> bool {
        self.address_caching.is_some() || self.address_learning_rate.is_some()
    }

    /// How long a device that nobody here can empty keeps addresses, seconds: the longest that is said.
    #[must_use]
    pub fn ageing_s(&self) -> Option<f64> {
        let caching = self.address_caching.as_ref().and_then(|plan| plan.ageing_s);
        let learning = self.address_learning_rate.as_ref();
        let learning = learning.and_then(|plan| plan.ageing_s);
        caching.into_iter().chain(learning).reduce(f64::max)
    }

    /// Reads and checks a study file.
    ///
    /// # Errors
    /// [`FileError`], with file, line and key.
    pub fn read(path: &Path) -> Result<(Self, String), FileError> {
        let text = std::fs::read_to_string(path).map_err(|error| FileError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok((Self::parse(&text, path)?, text))
    }

    /// Reads and checks the text of a study file. `path` is only told in errors.
    ///
    /// # Errors
    /// [`FileError`], with file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let mut file: Self =
            toml::from_str(text).map_err(|error| locate::of_toml(text, path, &error))?;
        file.add_tenants();
        match check::first_fault(&file) {
            None => Ok(file),
            Some(fault) => Err(locate::of_fault(text, path, fault)),
        }
    }
}
