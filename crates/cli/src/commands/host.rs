// SPDX-License-Identifier: Apache-2.0
//! `quietwire host`: what the machine is, and how quiet its CPUs are.

mod alike;
mod jitter;
mod show;

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use show::open;

/// What the machine is, and how quiet its CPUs are.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    Show(show::ShowArgs),
    Record(show::RecordArgs),
    Jitter(jitter::JitterArgs),
}

pub(crate) fn run(args: &HostArgs) -> Result<()> {
    match &args.command {
        HostCommand::Show(args) => show::run(args),
        HostCommand::Record(args) => show::run_record(args),
        HostCommand::Jitter(args) => jitter::run(args),
    }
}
