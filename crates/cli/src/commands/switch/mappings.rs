// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch mappings flush|save|restore`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use quietwire_switch::config::Protocol;
use quietwire_switch::config::nat::MappingSelection;
use quietwire_switch::control::{Request, ask};
use quietwire_switch::mapping_file::{restore, save};
use quietwire_switch::report::RestoredMappingsReport;

use super::change::ControlArgs;
use super::packet::parse_prefix;
use crate::text::print;
use crate::units::parse_path;

/// Remove mappings of NAT, or keep them over a restart.
#[derive(Debug, Args)]
pub(super) struct MappingsArgs {
    #[command(subcommand)]
    command: MappingsCommand,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum MappingsCommand {
    /// Remove mappings: all, or those that match all options. Prints their number.
    Flush(SelectionArgs),
    /// Save all mappings, and the connections of load balancers, into a file, for a restart. Prints their number.
    Save(FileArgs),
    /// Restore saved entries after a restart. Prints their number by result.
    Restore(FileArgs),
}

#[derive(Debug, Args)]
struct SelectionArgs {
    /// Only mappings of this NAT.
    #[arg(long, value_name = "NAT")]
    nat: Option<String>,
    /// Only mappings of this IP protocol: tcp, udp or icmp.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Only mappings with an inside or external address in this prefix.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    address: Option<IpNet>,
    /// Only mappings with this inside or external port.
    #[arg(long, value_name = "PORT")]
    l4_port: Option<u16>,
}

impl SelectionArgs {
    fn selection(&self) -> MappingSelection {
        MappingSelection {
            nat: self.nat.clone(),
            protocol: self.protocol,
            address: self.address,
            port: self.l4_port,
        }
    }
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
        MappingsCommand::Flush(selection) => {
            let removed: u64 = ask(socket, &Request::FlushMappings(selection.selection()))?;
            removed.to_string()
        }
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
