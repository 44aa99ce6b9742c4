// SPDX-License-Identifier: Apache-2.0
//! Errors of reports.

use std::path::PathBuf;

/// Error of a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A stored histogram is damaged.
    #[error(
        "the latency histogram of trial {sequence} of step {step}, case {case}, is damaged: {reason} (another program changed or wrote the store; restore it from a copy, or run the study again)"
    )]
    Histogram {
        /// Name of the case.
        case: String,
        /// Row of the step in the store.
        step: i64,
        /// Position of the trial in its step, from 0.
        sequence: u32,
        /// Problem of the histogram.
        reason: String,
    },
    /// The page is not writable.
    #[error("cannot write the page {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
}
