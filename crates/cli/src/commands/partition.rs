// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition`: makes a plan of who gets what, prints it for others, brings it to the machine, verifies it,
//! takes it back.

mod apply;
mod arguments;
mod planning;
mod verify;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Who gets which CPUs, cache, memory and interrupts.
#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    #[command(subcommand)]
    command: PartitionCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionCommand {
    Plan(planning::MakeArgs),
    Derive(planning::DeriveArgs),
    Render(planning::RenderArgs),
    Apply(apply::ApplyArgs),
    Rollback(apply::RollbackArgs),
    Status(apply::StatusArgs),
    Verify(verify::VerifyArgs),
}

pub(crate) fn run(args: &PartitionArgs) -> Result<()> {
    match &args.command {
        PartitionCommand::Plan(args) => planning::run(args),
        PartitionCommand::Derive(args) => planning::run_derive(args),
        PartitionCommand::Render(args) => planning::run_render(args),
        PartitionCommand::Apply(args) => apply::run(args),
        PartitionCommand::Rollback(args) => apply::run_rollback(args),
        PartitionCommand::Status(args) => apply::run_status(args),
        PartitionCommand::Verify(args) => verify::run(args),
    }
}
