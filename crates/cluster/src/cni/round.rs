// SPDX-License-Identifier: Apache-2.0
//! A round over the attachments of a node.

use std::path::Path;
use std::time::Duration;

use super::record::{self, AttachmentLock};
use super::reply::CniError;

/// Result of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// Names of the attachments that were removed, or attached again.
    pub(crate) ports: Vec<String>,
    /// Errors. The next round tries those attachments again.
    pub(crate) errors: Vec<String>,
}

impl Round {
    /// Changes attachments of a directory of records, each under its lock. An attachment whose lock another call has stays as it is.
    ///
    /// `find` returns what `change` requires, by name of the attachment; `None` if the attachment stays, which requires no lock. It runs again
    /// under the lock: another call may have changed the attachment before. `change` returns false if the attachment stays.
    pub(super) fn over<T>(
        directory: &Path,
        mut find: impl FnMut(&str) -> Option<T>,
        mut change: impl FnMut(&str, T) -> Result<bool, CniError>,
    ) -> Self {
        let mut round = Self::default();
        let names = match record::names(directory) {
            Ok(names) => names,
            Err(error) => {
                round.errors.push(error.to_string());
                return round;
            }
        };
        for name in names {
            if find(&name).is_none() {
                continue;
            }
            let done = match AttachmentLock::acquire(directory, &name, Duration::ZERO) {
                Ok(Some(_lock)) => find(&name).map_or(Ok(false), |found| change(&name, found)),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match done {
                Ok(true) => round.ports.push(name),
                Ok(false) => {}
                Err(error) => round.errors.push(format!("port {name}: {error}")),
            }
        }
        round
    }
}
