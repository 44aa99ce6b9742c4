// SPDX-License-Identifier: Apache-2.0
//! Choice of a study: a ready-made one, or a study file.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use quietwire_study::{StudyFile, ready, ready_made};

use crate::exit::Usage;

/// Returns the study with this name or path, and its text, unchanged or as the quick version.
pub(super) fn read(study: &str, is_quick: bool) -> Result<(StudyFile, String)> {
    let path = Path::new(study);
    let (file, text) = match ready(study) {
        Some(ready) => (ready.file()?, ready.text.to_owned()),
        None if is_study_name(study) && !path.exists() => {
            let names: Vec<&str> = ready_made().iter().map(|ready| ready.name).collect();
            bail!(Usage(format!(
                "'{study}' is neither a ready-made study nor a file (ready-made: {})",
                names.join(", ")
            )));
        }
        None => StudyFile::read(path)?,
    };
    if !is_quick {
        return Ok((file, text));
    }
    let text = file
        .quick()
        .map_err(|error| anyhow!("cannot make a quick version of {study}: {error}"))?;
    Ok((StudyFile::parse(&text, path)?, text))
}

/// Returns true if the text has neither a slash nor a dot, so that it is not the path of a study file.
fn is_study_name(study: &str) -> bool {
    !study.contains('/') && !study.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_chosen_by_name_or_path() {
        let (file, text) = read("noisy-neighbours", false).unwrap();
        assert_eq!(file.name, "noisy-neighbours");
        assert!(text.contains("# Noisy neighbours") && !file.quick);
        let (quick, text) = read("noisy-neighbours", true).unwrap();
        assert!(quick.quick && text.contains("quick = true"));
        let error = read("no-such-study", false).unwrap_err().to_string();
        assert!(error.contains("switch-shootout"), "{error}");
        for path in ["no-such.toml", "./no-such"] {
            let error = read(path, false).unwrap_err().to_string();
            assert!(
                error.contains(path) && !error.contains("ready-made"),
                "{error}"
            );
        }
    }
}
