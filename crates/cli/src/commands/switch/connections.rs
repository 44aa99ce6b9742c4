// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show connections` and `switch connections flush|save|restore|take-over`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use ipnet::IpNet;
use quietwire_switch::config::Protocol;
use quietwire_switch::config::connections::ConnectionSelection;
use quietwire_switch::config::rules::{LabelBits, MarkBits};
use quietwire_switch::connection_file::{Restored, restore, save};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::{ConnectionReport, ConnectionsReport, MappingReport};

use super::change::ControlArgs;
use super::packet::parse_prefix;
use super::replication;
use super::table::table;
use crate::exit::Usage;
use crate::text::print;
use crate::units::parse_path;

/// Connections of a request.
const PAGE: usize = 4096;

/// Choice of connections, or of mappings of NAT.
#[derive(Clone, Debug, Args)]
pub(super) struct SelectionArgs {
    /// Only connections or mappings of this IP protocol: tcp, udp, icmp and others, or a number.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Only connections in this state, such as tcp_established.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only connections or mappings of an address in this prefix.
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    address: Option<IpNet>,
    /// Only connections or mappings of this port.
    #[arg(long, value_name = "PORT")]
    l4_port: Option<u16>,
    /// Only connections of this zone.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Only connections with these bits of the mark, VALUE or VALUE/MASK.
    #[arg(long, value_name = "MARK")]
    mark: Option<MarkBits>,
    /// Only connections with these bits of the label, VALUE or VALUE/MASK.
    #[arg(long, value_name = "LABEL")]
    label: Option<LabelBits>,
}

impl SelectionArgs {
    fn selection(&self) -> ConnectionSelection {
        ConnectionSelection {
            protocol: self.protocol,
            state: self.state.clone(),
            address: self.address,
            port: self.l4_port,
            zone: self.zone.clone(),
            mark: self.mark,
            label: self.label,
        }
    }

    /// Returns true if a mapping of NAT matches.
    pub(super) fn matches(&self, mapping: &MappingReport) -> bool {
        let ends = [mapping.inside, mapping.outside];
        let of_address = |net: &IpNet| {
            let mut addresses = ends
                .iter()
                .map(SocketAddr::ip)
                .chain(mapping.remote_address);
            addresses.any(|address| net.contains(&address))
        };
        let of_port = |port: u16| {
            let mut ports = ends.iter().map(SocketAddr::port).chain(mapping.remote_port);
            ports.any(|one| one == port)
        };
        let of_protocol = |protocol: Protocol| protocol.to_string() == mapping.protocol;
        self.protocol.is_none_or(of_protocol)
            && self.address.as_ref().is_none_or(of_address)
            && self.l4_port.is_none_or(of_port)
    }

    /// Checks that no option is given that mappings of NAT do not have.
    ///
    /// # Errors
    /// [`Usage`].
    pub(super) fn check_mappings(&self) -> Result<()> {
        let values = self.mark.is_some() || self.label.is_some();
        if self.state.is_some() || self.zone.is_some() || values {
            bail!(Usage(
                "mappings have no state, no zone, no mark and no label (remove --state, --zone, --mark and --label)"
                    .to_owned()
            ));
        }
        Ok(())
    }
}

/// Change the tracked connections of a running switch.
#[derive(Debug, Args)]
pub(super) struct ConnectionsArgs {
    #[command(subcommand)]
    command: ConnectionsCommand,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum ConnectionsCommand {
    /// Remove connections: all, or those that match all options. Prints their number.
    Flush(SelectionArgs),
    /// Save all connections into a file, for a restart. Prints their number.
    Save(FileArgs),
    /// Restore saved connections after a restart. Prints their number by result.
    Restore(FileArgs),
    /// Make a standby the active switch. Prints its replication.
    TakeOver,
}

#[derive(Debug, Args)]
struct FileArgs {
    /// File of saved connections.
    #[arg(value_name = "FILE", value_parser = parse_path)]
    file: PathBuf,
}

pub(super) fn run(args: &ConnectionsArgs) -> Result<()> {
    let socket = args.control.socket();
    print(match &args.command {
        ConnectionsCommand::Flush(selection) => {
            let request = Request::FlushConnections(selection.selection());
            let removed: u64 = ask(socket, &request)?;
            removed.to_string()
        }
        ConnectionsCommand::Save(FileArgs { file }) => save(socket, file)?.to_string(),
        ConnectionsCommand::Restore(FileArgs { file }) => rendered_result(&restore(socket, file)?),
        ConnectionsCommand::TakeOver => replication::render(&ask(socket, &Request::TakeOver)?),
    })
}

/// Formats the number of saved connections by result.
fn rendered_result(restored: &Restored) -> String {
    let report = &restored.report;
    format!(
        "restored: {}\nexpired: {}\nalready there: {}\nwithout space: {}\ninvalid: {}",
        report.restored, restored.expired, report.known, report.full, report.invalid
    )
}

/// Shows a page of connections: up to `limit`, from the position `from` on.
pub(super) fn show(
    selection: &SelectionArgs,
    (from, limit): (usize, usize),
    socket: &Path,
    is_json: bool,
) -> Result<()> {
    let first = position("connection", from)?;
    let mut report = page(selection, limit, first, socket)?;
    while let Some(from) = report.next
        && report.connections.len() < limit
    {
        let left = limit.saturating_sub(report.connections.len());
        let next = page(selection, left, from, socket)?;
        report.next = next.next;
        report.connections.extend(next.connections);
    }
    report.connections.truncate(limit);
    print(if is_json {
        serde_json::to_string_pretty(&report)?
    } else {
        rendered(&report)
    })
}

/// Returns the value of `--from` as a position in a list of connections or mappings.
///
/// # Errors
/// [`Usage`].
pub(super) fn position(subject: &str, from: usize) -> Result<u32> {
    let Ok(position) = u32::try_from(from) else {
        bail!(Usage(format!(
            "no {subject} is at position {from} (--from must be at most {})",
            u32::MAX
        )));
    };
    Ok(position)
}

fn page(
    selection: &SelectionArgs,
    limit: usize,
    from: u32,
    socket: &Path,
) -> Result<ConnectionsReport> {
    let request = Request::ShowConnections {
        selection: selection.selection(),
        limit: limit.min(PAGE),
        from,
    };
    Ok(ask(socket, &request)?)
}

fn rendered(report: &ConnectionsReport) -> String {
    let header = [
        "protocol",
        "source",
        "destination",
        "outside",
        "state",
        "mark",
        "label",
        "expires s",
        "packets",
        "octets",
    ];
    let mut table = table(header, 7);
    for one in &report.connections {
        let ConnectionReport {
            packets: [sent, answered],
            octets: [sent_octets, answered_octets],
            ..
        } = one;
        table.add_row([
            one.protocol.to_string(),
            end(one.source, one.source_port),
            end(one.destination, one.destination_port),
            external(one),
            one.state.clone(),
            one.mark.clone().unwrap_or_default(),
            one.label.clone().unwrap_or_default(),
            one.expires_in_s.to_string(),
            format!("{sent}/{answered}"),
            format!("{sent_octets}/{answered_octets}"),
        ]);
    }
    let more = report.next.map_or_else(String::new, |next| {
        format!(" (more connections: use --from {next}, or --limit)")
    });
    format!(
        "{table}\n\n{} of {} entries in use, {} half-open{more}",
        report.total, report.max_entries, report.half_open
    )
}

/// Returns the external endpoints that NAT has for the connection.
fn external(connection: &ConnectionReport) -> String {
    let ends = [connection.external_source, connection.external_destination];
    let ends: Vec<String> = ends.iter().flatten().map(SocketAddr::to_string).collect();
    ends.join(" ")
}

fn end(address: IpAddr, port: u16) -> String {
    SocketAddr::new(address, port).to_string()
}
