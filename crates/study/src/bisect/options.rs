// SPDX-License-Identifier: Apache-2.0
//! Options of a bisection.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of a bisection.
#[derive(Clone, Debug)]
pub struct BisectOptions {
    /// Directory of the repository.
    pub repository: PathBuf,
    /// A commit without the regression.
    pub good: String,
    /// A descendant of it with the regression.
    pub bad: String,
    /// Command that prints a value as its last line. It runs in the directory of a worktree.
    pub command: Vec<OsString>,
    /// Number of values of each of the two compared commits, at first.
    pub runs: u32,
    /// Time limit of each run.
    pub timeout: Duration,
    /// Confidence of each interval, 0 to 1.
    pub confidence: f64,
    /// Irrelevant effect, as a part of the good commit's value.
    pub margin: f64,
    /// True if a lower value is better.
    pub is_lower_better: bool,
    /// Ends the bisection early.
    pub stop: Arc<AtomicBool>,
}
