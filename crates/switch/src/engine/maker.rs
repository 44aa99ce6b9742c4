// SPDX-License-Identifier: Apache-2.0
//! The steps of a change that create something. Each can fail, and tests let each fail.

use std::fmt::Debug;

use super::threads::{StartedThread, ThreadStart, start_system_thread};
use crate::error::SwitchError;

/// Factory of ports, threads and tables for the engine.
pub(crate) trait Maker: Debug + Send + Sync {
    /// Called before and after each step, with the name of what it makes.
    ///
    /// # Errors
    /// The step fails, before or after its effect. On a machine it does not fail here.
    fn pass(&self, step: &str) -> Result<(), SwitchError>;

    /// Returns the start of the names of buffer pools, which are those of one switch in the process.
    fn pools(&self) -> &str;

    /// Starts an idle forwarding thread.
    ///
    /// # Errors
    /// [`SwitchError::Thread`].
    fn start_thread(&self, start: ThreadStart<'_>) -> Result<StartedThread, SwitchError>;
}

/// Makes a step, which can fail before and after its effect.
pub(super) fn step<T, E: Into<SwitchError>>(
    maker: &dyn Maker,
    name: &str,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<T, SwitchError> {
    maker.pass(name)?;
    let made = make().map_err(Into::into)?;
    maker.pass(name)?;
    Ok(made)
}

/// Threads of the operating system, and steps that fail by themselves only.
#[derive(Debug)]
pub(super) struct System;

impl Maker for System {
    fn pass(&self, _step: &str) -> Result<(), SwitchError> {
        Ok(())
    }

    fn pools(&self) -> &str {
        "qw-switch"
    }

    fn start_thread(&self, start: ThreadStart<'_>) -> Result<StartedThread, SwitchError> {
        start_system_thread(start)
    }
}
