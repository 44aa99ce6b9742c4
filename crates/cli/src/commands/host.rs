// SPDX-License-Identifier: Apache-2.0
//! `quietwire host`: the hardware inventory, and the jitter of CPUs.

mod grouped;
mod jitter;
mod show;

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use show::{open, read_machine};

/// Show the hardware inventory, and measure the jitter of CPUs.
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
