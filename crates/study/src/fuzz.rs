// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of study files.

use std::path::Path;

use quietwire_base::fuzz::{check, planted};

use crate::file::StudyFile;
use crate::methods::Estimate;

/// Parses any text as a study file, and estimates the work of an accepted study. An error names the file and the line.
fn fuzz_study(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let file = match StudyFile::parse(text, Path::new("/nonexistent/fuzz.toml")) {
        Ok(file) => file,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("/nonexistent/fuzz.toml:"), "{error}");
            return false;
        }
    };
    let estimate = Estimate::of(&file);
    assert!(estimate.duration_s >= 0.0, "{estimate:?}");
    planted("study-file", || {
        file.cases.len() > 1 && file.trials.duration_s > 30.0
    });
    true
}

#[test]
fn files() {
    check(env!("CARGO_MANIFEST_DIR"), "study-file", fuzz_study);
}
