// SPDX-License-Identifier: Apache-2.0
//! `quietwire study list`, and the dry run of a study.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use quietwire_lab::{LabOptions, STATE_DIRECTORY};
use quietwire_study::{StudyFile, StudyPreview, ready_made};
use serde_json::{Value, json};

use crate::text::{fold, print, terminal_width};

/// List ready-made studies with their duration without invalid trials, and cases unavailable on this machine.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print the list as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> Result<()> {
    let options = LabOptions {
        state_directory: PathBuf::from(STATE_DIRECTORY),
        program: std::env::current_exe().context("path of this program")?,
    };
    let all = ready_made()
        .iter()
        .map(|ready| {
            let file = ready.file()?;
            let preview = StudyPreview::of(&file, &options);
            Ok((file, preview))
        })
        .collect::<Result<Vec<_>>>()?;
    if args.json {
        let all: Vec<Value> = all
            .iter()
            .map(|(file, preview)| study_json(file, preview))
            .collect();
        return print(serde_json::to_string_pretty(&all)?);
    }
    for (index, (file, preview)) in all.iter().enumerate() {
        if index > 0 {
            print("")?;
        }
        print(lines(file, preview, false).join("\n"))?;
    }
    Ok(())
}

/// Prints the cases and the estimate of a study. Runs nothing.
pub(super) fn dry_run(file: &StudyFile, options: &LabOptions, is_json: bool) -> Result<()> {
    let preview = StudyPreview::of(file, options);
    if is_json {
        return print(serde_json::to_string_pretty(&study_json(file, &preview))?);
    }
    print(lines(file, &preview, true).join("\n"))
}

/// Describes the number of cases, trials and the duration without invalid trials.
pub(super) fn estimate(preview: &StudyPreview) -> String {
    let left_out = preview.cases.iter();
    let left_out = left_out.filter(|case| case.unavailable.is_some()).count();
    let cases = preview.cases.len();
    let available = match left_out {
        0 => cases.to_string(),
        _ => format!("{} of {cases}", cases.saturating_sub(left_out)),
    };
    format!(
        "{available} {}, up to {} trials in up to {}, plus repeats of invalid trials",
        if cases == 1 { "case" } else { "cases" },
        preview.trials,
        time(preview.duration_s)
    )
}

/// Formats a duration: in seconds below one minute, otherwise in minutes, rounded up.
fn time(seconds: f64) -> String {
    if seconds < 60.0 {
        format!("{} s", seconds.ceil())
    } else {
        format!("{} min", (seconds / 60.0).ceil())
    }
}

fn study_json(file: &StudyFile, preview: &StudyPreview) -> Value {
    json!({
        "name": file.name,
        "title": file.title,
        "rounds": file.rounds,
        "is_quick": file.quick,
        "preview": preview,
    })
}

fn lines(file: &StudyFile, preview: &StudyPreview, with_cases: bool) -> Vec<String> {
    let width = usize::from(terminal_width());
    let mut lines = vec![
        format!("{}: {}", file.name, file.title),
        format!("  {}", estimate(preview)),
    ];
    for case in &preview.cases {
        match &case.unavailable {
            Some(why) => lines.push(format!("  {}: unavailable: {why}", case.name)),
            None if with_cases => lines.push(format!("  {}: {}", case.name, case.device)),
            None => {}
        }
    }
    lines.iter().map(|line| fold(line, width, 4)).collect()
}
