// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition`: makes a partition plan, renders it for other programs, applies it, verifies it and rolls it back.

mod apply;
mod arguments;
mod planning;
mod verify;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Partition CPUs, cache, memory and interrupts of this machine.
#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    #[command(subcommand)]
    command: PartitionCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionCommand {
    Plan(planning::PlanningArgs),
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
