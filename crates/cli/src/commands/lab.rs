// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab`: what studies set up on the machine, and its undoing.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use quietwire_lab::{STATE_DIRECTORY, clean};

use crate::exit::CheckFailed;
use crate::text::print;

/// What studies set up on the machine: processes, CPU sets, settings, sockets.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Undo what a study left behind that was killed. A study that runs is left alone.
    Clean(CleanArgs),
}

#[derive(Debug, Args)]
struct CleanArgs {
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print what was undone as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LabArgs) -> Result<()> {
    match &args.command {
        LabCommand::Clean(args) => run_clean(args),
    }
}

fn run_clean(args: &CleanArgs) -> Result<()> {
    let report = clean(&args.state_directory)?;
    if args.json {
        print(serde_json::to_string_pretty(&report)?)?;
    } else if let Some(owner) = &report.busy {
        print(format!("a lab is up, of process {owner}: left alone"))?;
    } else if report.undone.is_empty() {
        print("nothing was left behind")?;
    } else {
        for (change, outcome) in &report.undone {
            print(format!("{change}: {outcome}"))?;
        }
    }
    let failures = report.failures().count();
    if failures > 0 {
        return Err(CheckFailed(format!(
            "{failures} changes could not be undone; they are listed above"
        ))
        .into());
    }
    Ok(())
}
