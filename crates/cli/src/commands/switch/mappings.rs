// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch mappings save|restore`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use quietwire_switch::mapping_file::{restore, save};
use quietwire_switch::report::RestoredMappingsReport;

use super::change::ControlArgs;
use crate::text::print;
use crate::units::parse_path;

/// Keep the mappings of NAT and the connections of load balancers over a restart.
#[derive(Debug, Args)]
pub(super) struct MappingsArgs {
    #[command(subcommand)]
    command: MappingsCommand,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum MappingsCommand {
    /// Save all entries into a file, for a restart. Prints their number.
    Save(FileArgs),
    /// Restore saved entries after a restart. Prints their number by result.
    Restore(FileArgs),
}

#[derive(Debug, Args)]
struct FileArgs {
    /// File of saved entries.
    #[arg(value_name = "FILE", value_parser = parse_path)]
    file: PathBuf,
}

pub(super) fn run(args: &MappingsArgs) -> Result<()> {
    let socket = args.control.socket();
    print(match &args.command {
        MappingsCommand::Save(FileArgs { file }) => save(socket, file)?.to_string(),
        MappingsCommand::Restore(FileArgs { file }) => rendered(&restore(socket, file)?),
    })
}

/// Formats the number of saved entries by result.
fn rendered(report: &RestoredMappingsReport) -> String {
    format!(
        "restored: {}\nalready there: {}\nwithout space: {}\ninvalid: {}",
        report.restored, report.known, report.full, report.invalid
    )
}
