// SPDX-License-Identifier: Apache-2.0
//! Why a report could not be made.

use std::path::PathBuf;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A stored histogram is not one.
    #[error(
        "the latency histogram of trial {sequence} of case {case} is damaged: {reason}; the store was changed, or written by another program"
    )]
    Histogram {
        /// Name of the case.
        case: String,
        /// Position of the trial in its step, from 0.
        sequence: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// The page could not be written.
    #[error("the page {} cannot be written: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}
