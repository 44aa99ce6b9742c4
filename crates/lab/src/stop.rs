// SPDX-License-Identifier: Apache-2.0
//! The request to end, which every long operation polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::LabError;

/// A flag that requests the end of everything; a signal handler sets it. The default flag is never set.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns true after a stop request.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag, which a request sets.
    #[must_use]
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Fails after a stop request.
    ///
    /// # Errors
    /// [`LabError::Aborted`].
    pub fn check(&self) -> Result<(), LabError> {
        if self.is_wanted() {
            Err(LabError::Aborted)
        } else {
            Ok(())
        }
    }
}

impl From<&Arc<AtomicBool>> for Stop {
    fn from(flag: &Arc<AtomicBool>) -> Self {
        Self(Arc::clone(flag))
    }
}
