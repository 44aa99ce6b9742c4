// SPDX-License-Identifier: Apache-2.0
//! The study file. Keys are in kebab case and contain their unit; an unknown key is an error.

mod check;
mod connections;
mod device;
mod earlier;
pub(crate) mod external;
pub(crate) mod limits;
pub(crate) mod locate;
mod objective;
mod published;
mod study_file;
mod tenants;
#[cfg(test)]
mod tests;
mod trials;
mod values;

use std::path::Path;

use quietwire_tester::connections::Connections;

use crate::methods::{Method, StudyContext, usual_connections};

pub use device::Device;
pub use locate::FileError;
pub use objective::{Measure, Objective, Point, Quantity, Unit};
pub use published::{Published, PublishedFigure, Ratio};
pub use quietwire_base::Idle;
pub use study_file::{Case, Neighbours, StudyFile, TesterSettings, Traffic};
pub use trials::Trials;
pub use values::{
    CardDriver, CaseMonitors, EarlierIsolation, FrameSize, Link, MaxRate, Mode, NeighboursIn,
    Percent, SearchMethod, Switch, Topology,
};

impl StudyFile {
    /// Returns true if addresses are learned and looked up, which requires a third port (RFC 2889, section 5.7).
    #[must_use]
    pub fn measures_addresses(&self) -> bool {
        let mut methods = self.methods().into_iter();
        methods.any(Method::measures_addresses)
    }

    /// Returns the longest configured ageing time, seconds, for a device whose address table quietwire cannot flush.
    #[must_use]
    pub fn ageing_s(&self) -> Option<f64> {
        let methods = self.methods().into_iter();
        methods.filter_map(Method::ageing_s).reduce(f64::max)
    }

    /// Returns true if a method opens connections, which requires two ports.
    #[must_use]
    pub fn opens_connections(&self) -> bool {
        let mut methods = self.methods().into_iter();
        methods.any(Method::opens_connections)
    }

    /// Returns the connections that the methods for stateful devices open.
    #[must_use]
    pub fn conversations(&self) -> Connections {
        let given = self.connections.as_deref();
        given.cloned().unwrap_or_else(usual_connections)
    }

    /// Returns the part of the study that a method uses, in a case with this number of tenants.
    pub(crate) fn surroundings(&self, tenants: Option<u32>) -> StudyContext<'_> {
        StudyContext {
            trials: &self.trials,
            search: self.search.as_ref(),
            has_address_table: self.device.switch == Switch::Other
                || self.device.mode == Mode::Bridge,
            has_own_frames: self.traffic.frames.is_some(),
            frame_sizes: self.traffic.frame_sizes.len(),
            connections: self.connections.as_deref(),
            tenants,
        }
    }

    /// Reads and checks a study file.
    ///
    /// # Errors
    /// [`FileError`], with file, line and key.
    pub fn read(path: &Path) -> Result<(Self, String), FileError> {
        let text = locate::read(path)?;
        Ok((Self::parse(&text, path)?, text))
    }

    /// Parses and checks the text of a study file. `path` is used in errors only.
    ///
    /// # Errors
    /// [`FileError`], with file, line and key.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let file: Self = toml::from_str(text).map_err(|error| {
            earlier::refusal(text, path).unwrap_or_else(|| locate::of_toml(text, path, &error))
        })?;
        file.checked(text, path)
    }

    /// Parses and checks the text of a study in a store, which may have keys of earlier versions.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_stored(text: &str, path: &Path) -> Result<Self, FileError> {
        Self::parse(text, path).or_else(|error| match earlier::stored(text) {
            Some(file) => file.checked(text, path),
            None => Err(error),
        })
    }

    fn checked(mut self, text: &str, path: &Path) -> Result<Self, FileError> {
        self.add_tenants();
        match check::first_fault(&self) {
            None => Ok(self),
            Some(fault) => Err(locate::of_fault(text, path, fault)),
        }
    }
}
