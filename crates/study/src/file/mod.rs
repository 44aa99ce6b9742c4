// SPDX-License-Identifier: Apache-2.0
//! The study file: what it may say. Keys are in kebab case and carry their unit; a key that is not known is an error.

mod check;
mod device;
pub(crate) mod limits;
pub(crate) mod locate;
mod published;
mod study_file;
mod tenants;
#[cfg(test)]
mod tests;
mod trials;
mod values;

use std::path::Path;

use crate::methods::{Method, Surroundings};

pub use device::Device;
pub use locate::FileError;
pub use published::{Published, PublishedFigure, Ratio};
pub use quietwire_base::Idle;
pub use study_file::{Case, Neighbours, StudyFile, TesterSettings, Traffic};
pub use trials::Trials;
pub use values::{
    FrameSize, Link, MaxRate, Mode, NeighboursIn, Percent, Pinning, SearchMethod, Switch, Topology,
};

impl StudyFile {
    /// True when addresses are to be learned and looked for, which takes a third port (RFC 2889, section 5.7).
    #[must_use]
    pub fn looks_for_addresses(&self) -> bool {
        let mut methods = self.methods().into_iter();
        methods.any(Method::looks_for_addresses)
    }

    /// How long a device whose table nothing here can empty keeps addresses, seconds: the longest that is said.
    #[must_use]
    pub fn ageing_s(&self) -> Option<f64> {
        let methods = self.methods().into_iter();
        methods.filter_map(Method::ageing_s).reduce(f64::max)
    }

    /// What a method sees of the study, in a case of so many tenants.
    pub(crate) fn surroundings(&self, tenants: Option<u32>) -> Surroundings<'_> {
        Surroundings {
            trials: &self.trials,
            search: self.search.as_ref(),
            has_address_table: self.device.switch == Switch::Other
                || self.device.mode == Mode::Bridge,
            has_own_frames: self.traffic.frames.is_some(),
            tenants,
        }
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
