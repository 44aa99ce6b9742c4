// SPDX-License-Identifier: Apache-2.0
//! `quietwire host`: what the machine is, and how quiet its CPUs are.

mod jitter;

use anyhow::Result;
use clap::{Args, Subcommand};

/// What the machine is, and how quiet its CPUs are.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    Jitter(jitter::JitterArgs),
}

pub(crate) fn run(args: &HostArgs) -> Result<()> {
    match &args.command {
        HostCommand::Jitter(args) => jitter::run(args),
    }
}
