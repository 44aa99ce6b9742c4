// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show mappings` and `switch mappings flush|save|restore`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use quietwire_switch::config::Protocol;
use quietwire_switch::config::nat::MappingSelection;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::mapping_file::{restore, save};
use quietwire_switch::report::{MappingReport, MappingsReport, NatReport, RestoredMappingsReport};

use super::change::ControlArgs;
use super::connections;
use super::packet::parse_prefix;
use super::table::table;
use crate::text::print;
use crate::units::parse_path;

/// Mappings of a request.
const PAGE: usize = 4096;

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
    /// Only mappings with an inside, external or remote address in this prefix.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    address: Option<IpNet>,
    /// Only mappings with this inside, external or remote port.
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

/// Shows up to `limit` matching mappings of all instances.
pub(super) fn show(
    selection: &connections::SelectionArgs,
    limit: usize,
    socket: &Path,
    is_json: bool,
) -> Result<()> {
    selection.check_mappings()?;
    let nats: Vec<NatReport> = ask(socket, &Request::Show(Subject::Nat))?;
    let (mut mappings, mut has_more) = (Vec::new(), false);
    for nat in &nats {
        let mut from = Some(0);
        while let Some(position) = from
            && mappings.len() < limit
        {
            let page: MappingsReport = ask(
                socket,
                &Request::ShowMappings {
                    nat: nat.name.clone(),
                    limit: PAGE,
                    from: position,
                },
            )?;
            let page_mappings = page.mappings.into_iter();
            mappings.extend(page_mappings.filter(|one| selection.matches(one)));
            from = page.next;
        }
        has_more |= from.is_some();
    }
    has_more |= mappings.len() > limit;
    mappings.truncate(limit);
    print(if is_json {
        serde_json::to_string_pretty(&mappings)?
    } else {
        let more = if has_more {
            "\n\nmore mappings: use --limit"
        } else {
            ""
        };
        format!("{}{more}", table_of(&mappings))
    })
}

/// Formats the remote endpoint that a mapping depends on.
fn remote_of(mapping: &MappingReport) -> String {
    match (mapping.remote_address, mapping.remote_port) {
        (Some(address), Some(port)) => SocketAddr::new(address, port).to_string(),
        (Some(address), None) => address.to_string(),
        (None, _) => "any".to_owned(),
    }
}

fn table_of(mappings: &[MappingReport]) -> String {
    let header = [
        "nat",
        "protocol",
        "inside",
        "outside",
        "remote",
        "expires s",
    ];
    let mut table = table(header, 5);
    for one in mappings {
        let expires = one.expires_in_s.map(|seconds| seconds.to_string());
        table.add_row([
            one.nat.clone(),
            one.protocol.clone(),
            one.inside.to_string(),
            one.outside.to_string(),
            remote_of(one),
            expires.unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_endpoints_are_shown_as_far_as_a_mapping_depends_on_them() {
        let mapping = |remote_address: Option<&str>, remote_port| MappingReport {
            nat: "internet".to_owned(),
            protocol: "udp".to_owned(),
            inside: "10.0.0.5:4000".parse().unwrap(),
            outside: "198.51.100.1:1024".parse().unwrap(),
            remote_address: remote_address.map(|address| address.parse().unwrap()),
            remote_port,
            expires_in_s: Some(300),
        };
        for (one, shown) in [
            (mapping(None, None), "any"),
            (mapping(Some("192.0.2.1"), None), "192.0.2.1"),
            (mapping(Some("192.0.2.1"), Some(53)), "192.0.2.1:53"),
        ] {
            assert_eq!(remote_of(&one), shown);
        }
    }
}
