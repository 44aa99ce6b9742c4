// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show mappings` and `switch mappings flush|save|restore|block`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use quietwire_switch::config::nat::{BlockQuery, MappingSelection};
use quietwire_switch::config::{Protocol, Settings};
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::mapping_file::{restore, save};
use quietwire_switch::report::{MappingReport, MappingsReport, NatReport, RestoredMappingsReport};

use super::change::ControlArgs;
use super::connections;
use super::nat::blocks_text;
use super::packet::parse_prefix;
use super::table::table;
use crate::exit::CheckFailed;
use crate::text::print;
use crate::units::parse_path;

/// Mappings of a request.
const PAGE: usize = 4096;
/// Bits of a position in the list of all mappings that are the position in the list of one NAT. The higher ones are the number of the NAT:
/// a switch has at most 16 NATs, each with fewer than 2^28 mappings.
const POSITION_BITS: u32 = 28;
/// Mask of these bits.
const POSITION_MASK: u32 = (1 << POSITION_BITS) - 1;

/// Remove mappings of NAT, keep them over a restart, or compute the host of an external port.
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
    /// Print the computed port block of an inside host, or of an external port (NAT with block-allocation = "deterministic").
    Block(BlockArgs),
}

#[derive(Debug, Args)]
struct BlockArgs {
    /// Inside address like 10.0.0.5, or external address and port like 198.51.100.1:2048.
    #[arg(value_name = "HOST|ADDRESS:PORT")]
    query: BlockQuery,
    /// Use this configuration file instead of the configuration of the running switch.
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    config: Option<PathBuf>,
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
        MappingsCommand::Block(block) => computed(block, &args.control)?,
    })
}

/// Returns the text of computed port blocks.
fn computed(args: &BlockArgs, control: &ControlArgs) -> Result<String> {
    let settings = match &args.config {
        Some(file) => Settings::read(file)?,
        None => {
            let text: String = ask(control.socket(), &Request::Show(Subject::Config))?;
            Settings::parse(Path::new("the running configuration"), &text)?
        }
    };
    let blocks = settings.computed_blocks(args.query)?;
    if blocks.is_empty() {
        let what = match args.query {
            BlockQuery::Host(host) => host.to_string(),
            BlockQuery::External(external) => external.to_string(),
        };
        return Err(CheckFailed(format!(
            "{what} is in no computed port block (dynamic blocks are in nat-log)"
        ))
        .into());
    }
    Ok(match control.json {
        true => serde_json::to_string_pretty(&blocks)?,
        false => blocks_text(&blocks),
    })
}

/// Formats the number of saved entries by result.
fn rendered(report: &RestoredMappingsReport) -> String {
    format!(
        "restored: {}\nalready there: {}\nwithout space: {}\ninvalid: {}",
        report.restored, report.known, report.full, report.invalid
    )
}

/// Shows a page of the matching mappings of all instances: up to `limit`, from the position `from` on.
pub(super) fn show(
    selection: &connections::SelectionArgs,
    (from, limit): (usize, usize),
    socket: &Path,
    is_json: bool,
) -> Result<()> {
    selection.check_mappings()?;
    let first = connections::position("mapping", from)?;
    let nats: Vec<NatReport> = ask(socket, &Request::Show(Subject::Nat))?;
    let mut report = MappingsReport {
        mappings: Vec::new(),
        next: Some(first),
    };
    while let Some(position) = report.next
        && report.mappings.len() < limit
    {
        let (number, start) = parts_of(position);
        let Some(nat) = nats.get(number) else {
            report.next = None;
            break;
        };
        let space = limit.saturating_sub(report.mappings.len());
        let following = number.saturating_add(1);
        let page = page(nat, selection, (start, space), |request| {
            Ok(ask(socket, request)?)
        })?;
        let page_mappings = page.mappings.into_iter();
        let matching = page_mappings.filter(|one| selection.matches(one));
        report.mappings.extend(matching);
        report.next = match page.next {
            Some(start) => position_of(number, start),
            None if following < nats.len() => position_of(following, 0),
            None => None,
        };
    }
    report.mappings.truncate(limit);
    print(if is_json {
        serde_json::to_string_pretty(&report)?
    } else {
        let more = report.next.map_or_else(String::new, |next| {
            format!("\n\nmore mappings: use --from {next}, or --limit")
        });
        format!("{}{more}", table_of(&report.mappings))
    })
}

/// Returns the position in the list of all mappings: that of a mapping in the list of a NAT, and the number of this NAT.
fn position_of(nat: usize, start: u32) -> Option<u32> {
    let nat = u32::try_from(nat).ok()?;
    nat.checked_mul(1 << POSITION_BITS)?.checked_add(start)
}

/// Returns the number of the NAT of a position, and the position in its list.
const fn parts_of(position: u32) -> (usize, u32) {
    let start = position & POSITION_MASK;
    ((position >> POSITION_BITS) as usize, start)
}

/// Returns mappings of a NAT from a position on, at most `space` of which match, with the position to continue from.
fn page(
    nat: &NatReport,
    selection: &connections::SelectionArgs,
    (from, space): (u32, usize),
    ask: impl Fn(&Request) -> Result<MappingsReport>,
) -> Result<MappingsReport> {
    let request = |limit| Request::ShowMappings {
        nat: nat.name.clone(),
        limit,
        from,
    };
    let report = ask(&request(PAGE))?;
    let mappings = report.mappings.iter().enumerate();
    let mut matching = mappings.filter(|(_, one)| selection.matches(one));
    let last = matching.nth(space.saturating_sub(1));
    let count = last.map_or(report.mappings.len(), |(at, _)| at.saturating_add(1));
    if count == report.mappings.len() {
        return Ok(report);
    }
    // Only the switch knows the position behind the last mapping that is shown.
    ask(&request(count))
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
    use std::cell::RefCell;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        selection: connections::SelectionArgs,
    }

    #[test]
    fn a_position_has_the_number_of_the_nat() {
        for (nat, start) in [(0, 0), (0, 70_000), (1, 0), (15, (1 << 28) - 1)] {
            let position = position_of(nat, start).unwrap();
            assert_eq!(parts_of(position), (nat, start));
        }
        assert_eq!(position_of(16, 0), None);
    }

    /// A table of 10 entries at every third position, every second one of which is of TCP.
    #[test]
    fn a_page_ends_behind_the_last_mapping_that_matches() {
        let mapping = |number: u32| MappingReport {
            nat: "internet".to_owned(),
            protocol: ["udp", "tcp"][number as usize % 2].to_owned(),
            inside: SocketAddr::from(([10, 0, 0, 5], 4000 + number as u16)),
            outside: SocketAddr::from(([198, 51, 100, 1], 1024 + number as u16)),
            remote_address: None,
            remote_port: None,
            expires_in_s: Some(300),
        };
        let limits = RefCell::new(Vec::new());
        let switch = |request: &Request| {
            let Request::ShowMappings { limit, from, .. } = request else {
                panic!("{request:?}");
            };
            limits.borrow_mut().push(*limit);
            let numbers: Vec<u32> = (from.div_ceil(3)..10).take(*limit).collect();
            let next = numbers.last().map(|last| 3 * last + 1);
            Ok(MappingsReport {
                mappings: numbers.into_iter().map(mapping).collect(),
                next: next.filter(|next| *next < 28),
            })
        };
        let nat = NatReport::default();
        let pages = |arguments: &[&str], space: usize| {
            let line = Line::parse_from(["show"].iter().chain(arguments));
            let (mut inside, mut from) = (Vec::new(), Some(0));
            while let Some(start) = from {
                let page = page(&nat, &line.selection, (start, space), switch).unwrap();
                let all = page.mappings.iter();
                let matching = all.filter(|one| line.selection.matches(one));
                let ports: Vec<u16> = matching.map(|one| one.inside.port() - 4000).collect();
                assert!(ports.len() <= space, "{ports:?}");
                inside.extend(ports);
                from = page.next;
            }
            inside
        };
        let all: Vec<u16> = (0..10).collect();
        for space in [1, 3, 10, 1000] {
            assert_eq!(pages(&[], space), all, "{space}");
            let tcp = pages(&["--protocol", "tcp"], space);
            assert_eq!(tcp, [1, 3, 5, 7, 9], "{space}");
        }
        // A large page is one request.
        limits.borrow_mut().clear();
        pages(&["--protocol", "tcp"], 1000);
        assert_eq!(*limits.borrow(), [PAGE]);
    }

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
