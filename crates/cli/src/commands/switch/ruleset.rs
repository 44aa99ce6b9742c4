// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch rules`: checks, compares, replaces and imports filter rules.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use quietwire_base::text_error;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::rules::{
    CtState, Hook, IMPORT_MAX, Imported, LabelBits, MarkBits, NamePattern, ReceivedPacket,
    RuleCheck, RuleDiff, RuleFile, RuleSetting,
};
use quietwire_switch::config::{
    Change, DescribedPacket, Dscp, EtherType, FlagList, Protocol, Settings,
};
use quietwire_switch::control::{Request, Subject, ask};
use serde::de::IgnoredAny;

use super::bridging::parse_vlan;
use super::change::ControlArgs;
use super::confirm::{ConfirmArgs, note_time};
use super::rules::{action_name, action_text, conditions, malformed_name, stage};
use super::table::table;
use crate::exit::{CheckFailed, Usage};
use crate::text::print;
use crate::units::parse_path;

/// Check, compare, replace and import filter rules.
#[derive(Debug, Args)]
pub(super) struct RulesetArgs {
    #[command(subcommand)]
    what: Ruleset,
    #[command(flatten)]
    control: ControlArgs,
}

#[derive(Debug, Subcommand)]
enum Ruleset {
    Check(Box<CheckArgs>),
    Diff(DiffArgs),
    Replace(ReplaceArgs),
    Import(ImportArgs),
    /// Keep the rules and sets of a change with --confirm.
    Confirm,
}

/// Show which rule decides on a packet, and the earlier rules that nearly match.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Check the rules of this configuration file instead of those of the running switch.
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    config: Option<PathBuf>,
    /// Check the rules of this rule file, with the ports of --config.
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    rules: Option<PathBuf>,
    /// Receiving port.
    #[arg(long, value_name = "NAME")]
    port: String,
    /// Check the rules of frames that leave by this port. [default: rules of received frames]
    #[arg(long, value_name = "NAME")]
    out: Option<String>,
    /// VLAN of the outermost tag. [default: no tag]
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    /// EtherType of a packet without IP addresses. [default: none]
    #[arg(long, value_name = "ETHERTYPE")]
    ethertype: Option<EtherType>,
    /// Source address.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Destination address.
    #[arg(long, value_name = "ADDRESS")]
    destination: Option<IpAddr>,
    /// IP protocol: tcp, udp, icmp, ospf and others, or a number.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Source port. [default: 49152 with --destination-port]
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    /// Destination port. [default: none, as in later fragments]
    #[arg(long, value_name = "PORT")]
    destination_port: Option<u16>,
    /// Source MAC address. [default: 00:00:00:00:00:00]
    #[arg(long, value_name = "MAC")]
    source_mac: Option<MacAddress>,
    /// Destination MAC address. [default: 00:00:00:00:00:00]
    #[arg(long, value_name = "MAC")]
    destination_mac: Option<MacAddress>,
    /// TCP flags that are set, such as syn,ack. [default: 0]
    #[arg(long, value_name = "FLAGS")]
    tcp_flags: Option<FlagList>,
    /// Type of ICMP or ICMPv6.
    #[arg(long, value_name = "N")]
    icmp_type: Option<u8>,
    /// Code of ICMP or ICMPv6. [default: 0]
    #[arg(long, value_name = "N")]
    icmp_code: Option<u8>,
    /// DSCP. [default: cs0]
    #[arg(long, value_name = "DSCP")]
    dscp: Option<Dscp>,
    /// State of the connection: new, established, related, invalid or untracked. Required for IP packets if a rule has ct-state.
    /// [default: untracked]
    #[arg(long, value_name = "STATE")]
    ct_state: Option<CtState>,
    /// Mark of the connection, without a mask. [default: 0]
    #[arg(long, value_name = "MARK")]
    ct_mark: Option<MarkBits>,
    /// Label of the connection, without a mask. [default: 0]
    #[arg(long, value_name = "LABEL")]
    ct_label: Option<LabelBits>,
    /// Server name of the TLS connection. [default: not known yet]
    #[arg(long, value_name = "NAME")]
    tls_name: Option<NamePattern>,
    /// Host of the HTTP connection. [default: not known yet]
    #[arg(long, value_name = "NAME")]
    http_host: Option<NamePattern>,
    /// Name in the DNS query. [default: not known yet]
    #[arg(long, value_name = "NAME")]
    dns_name: Option<NamePattern>,
}

/// Compare the rules of a file with those of the running switch. Exits with code 1 if they differ.
#[derive(Debug, Args)]
struct DiffArgs {
    /// File of rules (TOML).
    #[arg(value_parser = parse_path)]
    file: PathBuf,
}

/// Replace all rules and sets by those of a file.
#[derive(Debug, Args)]
struct ReplaceArgs {
    /// File of rules (TOML).
    #[arg(value_parser = parse_path)]
    file: PathBuf,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Convert a ruleset of nftables (`nft -j list ruleset`) or iptables (`iptables-save`) into rules. Exits with code 1 if a rule cannot be
/// expressed.
#[derive(Debug, Args)]
struct ImportArgs {
    /// File, or - for standard input.
    file: PathBuf,
    /// Chains to import: those of this hook.
    #[arg(long, value_enum, default_value_t = HookArg::Forward)]
    hook: HookArg,
    /// Interface of the ruleset and port of the switch that stands for it; repeatable.
    #[arg(long = "rename", value_name = "INTERFACE=PORT", value_parser = parse_rename)]
    renamed: Vec<(String, String)>,
    /// Write the rules that can be expressed, with exit code 0, if others cannot.
    #[arg(long)]
    partial: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HookArg {
    /// Forwarded packets.
    Forward,
    /// Packets for the host.
    Input,
    /// All received packets.
    Prerouting,
    /// All received frames of a device.
    Ingress,
    /// All packets that leave.
    Postrouting,
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let pair = pair.filter(|(interface, port)| !interface.is_empty() && !port.is_empty());
    let (interface, port) = pair.ok_or("expected INTERFACE=PORT, like eth0=uplink")?;
    Ok((interface.to_owned(), port.to_owned()))
}

/// First port of those that clients choose (RFC 6335, section 6).
const CLIENT_PORT: u16 = 49_152;

pub(super) fn run(args: RulesetArgs) -> Result<()> {
    let RulesetArgs { what, control } = args;
    match what {
        Ruleset::Check(args) => check(*args, &control),
        Ruleset::Diff(args) => diff(&args.file, &control),
        Ruleset::Replace(args) => replace(&args, &control),
        Ruleset::Import(args) => import(&args, control.json),
        Ruleset::Confirm => {
            ask::<IgnoredAny>(&control.control_socket, &Request::ConfirmRules)?;
            Ok(())
        }
    }
}

fn check(args: CheckArgs, control: &ControlArgs) -> Result<()> {
    let offline = match (&args.config, &args.rules) {
        (None, None) => None,
        (config, rules) => {
            let config = config.as_deref().map(Settings::read).transpose()?;
            let rules = rules.as_deref().map(RuleFile::read).transpose()?;
            let rules = rules.map(RuleFile::settings).unwrap_or_default();
            Some(rules.over(config.unwrap_or_default()))
        }
    };
    let received = received(args);
    let found = match offline {
        Some(settings) => settings.check_rules(&received)?,
        None => ask(&control.control_socket, &Request::CheckRules(received))?,
    };
    print(match control.json {
        true => serde_json::to_string_pretty(&found)?,
        false => check_text(&found),
    })
}

fn received(args: CheckArgs) -> ReceivedPacket {
    let has_ports = args.source_port.is_some() || args.destination_port.is_some();
    let default = has_ports.then_some(CLIENT_PORT);
    ReceivedPacket {
        port: args.port,
        out: args.out,
        packet: DescribedPacket {
            vlan: args.vlan,
            ethertype: args.ethertype,
            protocol: args.protocol,
            source: args.source,
            destination: args.destination,
            source_port: args.source_port.or(default),
            destination_port: args.destination_port,
            source_mac: args.source_mac,
            destination_mac: args.destination_mac,
            tcp_flags: args.tcp_flags,
            icmp_type: args.icmp_type,
            icmp_code: args.icmp_code,
            dscp: args.dscp,
            ct_state: args.ct_state,
            ct_mark: args.ct_mark,
            ct_label: args.ct_label,
            tls_name: args.tls_name,
            http_host: args.http_host,
            dns_name: args.dns_name,
        },
    }
}

fn check_text(found: &RuleCheck) -> String {
    let action = action_name(found.action);
    let mut text = match (&found.rule, found.rules_before) {
        (Some(rule), 1) => format!("{action} by rule '{rule}', after 1 rule that does not match"),
        (Some(rule), before) => {
            format!("{action} by rule '{rule}', after {before} rules that do not match")
        }
        (None, all) => format!("{action} by default: no rule matches, of {all}"),
    };
    if !found.continued.is_empty() {
        let names = found.continued.join("', '");
        text += &format!("\n\nEarlier rules that match and continue: '{names}'");
    }
    if !found.near.is_empty() {
        let header = ["rule", "action", "differs in", "rule has", "packet has"];
        let mut table = table(header, 5);
        for near in &found.near {
            let difference = &near.difference;
            table.add_row([
                near.rule.as_str(),
                action_name(near.action),
                &difference.field,
                &difference.required,
                difference.packet.as_deref().unwrap_or("-"),
            ]);
        }
        text += &format!("\n\nEarlier rules that differ in one field only:\n\n{table}");
    }
    text
}

fn diff(file: &Path, control: &ControlArgs) -> Result<()> {
    let next = RuleFile::read(file)?.settings();
    let text: String = ask(&control.control_socket, &Request::Show(Subject::Config))?;
    let running = Settings::parse(Path::new("the running configuration"), &text)?;
    let found = RuleDiff::new(&running, &next);
    if control.json {
        print(serde_json::to_string_pretty(&found)?)?;
    } else if !found.is_empty() {
        print(diff_lines(&found).join("\n"))?;
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(CheckFailed(format!(
        "the rules of {} differ from those of the running switch",
        file.display()
    ))
    .into())
}

/// Returns a line for each difference: `-` is the running switch, `+` the file.
fn diff_lines(found: &RuleDiff) -> Vec<String> {
    let line = |sign: char, rule: &RuleSetting| {
        let action = action_text(rule);
        format!(
            "{sign} rule {}: {action}, if {}",
            rule.name,
            conditions(rule)
        )
    };
    let mut lines = Vec::new();
    lines.extend(found.removed.iter().map(|rule| line('-', rule)));
    lines.extend(found.added.iter().map(|rule| line('+', rule)));
    for (before, after) in &found.changed {
        lines.extend([line('-', before), line('+', after)]);
    }
    lines.extend(
        found
            .moved
            .iter()
            .map(|name| format!("~ rule {name}: another place")),
    );
    lines.extend(
        found
            .sets_removed
            .iter()
            .map(|name| format!("- set {name}")),
    );
    lines.extend(found.sets_added.iter().map(|name| format!("+ set {name}")));
    lines.extend(
        found
            .sets_changed
            .iter()
            .map(|name| format!("~ set {name}: other contents")),
    );
    if let Some((before, after)) = found.default {
        let (before, after) = (action_name(before), action_name(after));
        lines.push(format!("~ default: {before}, then {after}"));
    }
    if let Some((before, after)) = found.malformed {
        let (before, after) = (malformed_name(before), malformed_name(after));
        lines.push(format!("~ malformed frames: {before}, then {after}"));
    }
    lines
}

fn replace(args: &ReplaceArgs, control: &ControlArgs) -> Result<()> {
    let confirm_s = args.confirm.seconds()?;
    let file = RuleFile::read(&args.file)?;
    let (default, malformed) = (file.default, file.malformed);
    let staged = stage(&control.control_socket, file)?;
    let Some(confirm_s) = confirm_s else {
        let change = Change::SetRules {
            rules: None,
            sets: None,
            staged: Some(staged),
            default,
            malformed,
        };
        ask::<IgnoredAny>(&control.control_socket, &Request::Change(Box::new(change)))?;
        return Ok(());
    };
    let request = Request::ReplaceRules {
        staged,
        default,
        malformed,
        confirm_s,
    };
    ask::<IgnoredAny>(&control.control_socket, &request)?;
    note_time(confirm_s);
    Ok(())
}

/// Reads at most a little more than the importer accepts.
fn read_ruleset(path: &Path) -> Result<String> {
    let limit = (IMPORT_MAX as u64).saturating_add(1);
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(limit).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text)),
    };
    read.map_err(|error| {
        let error = text_error(error);
        Usage(format!("cannot read {}: {error}", path.display()))
    })?;
    Ok(text)
}

fn import(args: &ImportArgs, is_json: bool) -> Result<()> {
    let hook = match args.hook {
        HookArg::Forward => Hook::Forward,
        HookArg::Input => Hook::Input,
        HookArg::Prerouting => Hook::Prerouting,
        HookArg::Ingress => Hook::Ingress,
        HookArg::Postrouting => Hook::Postrouting,
    };
    let imported = Imported::parse(&read_ruleset(&args.file)?, hook);
    let mut imported =
        imported.map_err(|what| Usage(format!("{}: {what}", args.file.display())))?;
    imported.rename_ports(&args.renamed);
    if is_json {
        let report = serde_json::json!({
            "rules": imported.rules.len(),
            "sets": imported.sets.len(),
            "missing": imported.missing,
            "others": imported.others,
        });
        print(serde_json::to_string_pretty(&report)?)?;
    }
    for other in &imported.others {
        tracing::info!("not imported: {other}");
    }
    for missing in &imported.missing {
        tracing::warn!("{}: {}", missing.place, missing.reason);
    }
    let is_written = imported.missing.is_empty() || args.partial;
    if is_written && !is_json {
        let text = imported.to_toml().map_err(anyhow::Error::msg);
        print(text.context("cannot write the rules")?)?;
    }
    match is_written {
        true => Ok(()),
        false => Err(CheckFailed(format!(
            "{} rules or sets of {} cannot be expressed (remove them, or write the others with --partial)",
            imported.missing.len(),
            args.file.display()
        ))
        .into()),
    }
}
