// SPDX-License-Identifier: Apache-2.0
//! Options of `quietwire switch add|set|show` for filter rules of ports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use quietwire_packet::VlanId;
use quietwire_report::TerminalTable;
use quietwire_switch::config::rules::{
    Action, CtStates, Direction, Element, INSPECT_PACKETS_MAX, INSPECT_TIMEOUT_MAX_MS, InspectFail,
    LabelBits, MSS_MIN, MalformedAction, MarkBits, MssLimit, NameFail, NameMatch, NamePattern,
    RejectWith, RuleFile, RuleSetting, SetName, SetSetting, SetType, StatementSetting,
};
use quietwire_switch::config::{Change, Dscp, Staged};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::RulesReport;

use serde::de::IgnoredAny;

use super::bridging::parse_vlan;
use super::confirm::ConfirmArgs;
use super::packet::{RuleMatchArgs, condition_text};
use super::table::table;
use crate::exit::Usage;
use crate::units::parse_path;

/// Rules in one request. A request has space for rules with all conditions and long names.
const RULES_A_REQUEST: usize = 40;
/// Comparisons of rules for a frame that are reported as slow: about ten microseconds.
const COMPARISONS_SLOW: usize = 1_000;
/// Octets of names that count as a rule.
const OCTETS_OF_A_RULE: usize = 512;
/// Elements of sets in one request: the longest has 79 octets.
const ELEMENTS_A_REQUEST: usize = 500;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ActionArg {
    /// Accept frames.
    Accept,
    /// Drop frames silently.
    Drop,
    /// Drop frames and answer with a TCP reset or an ICMP error.
    Reject,
    /// Apply the statements, count, and compare the next rule.
    Continue,
}

impl From<ActionArg> for Action {
    fn from(action: ActionArg) -> Self {
        match action {
            ActionArg::Accept => Self::Accept,
            ActionArg::Drop => Self::Drop,
            ActionArg::Reject => Self::Reject,
            ActionArg::Continue => Self::Continue,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DefaultArg {
    /// Accept frames.
    Accept,
    /// Drop frames silently.
    Drop,
    /// Drop frames and answer with a TCP reset or an ICMP error.
    Reject,
}

impl From<DefaultArg> for Action {
    fn from(action: DefaultArg) -> Self {
        match action {
            DefaultArg::Accept => Self::Accept,
            DefaultArg::Drop => Self::Drop,
            DefaultArg::Reject => Self::Reject,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MalformedArg {
    /// Drop frames silently.
    Drop,
    /// Compare their readable headers with the rules.
    Match,
}

impl From<MalformedArg> for MalformedAction {
    fn from(action: MalformedArg) -> Self {
        match action {
            MalformedArg::Drop => Self::Drop,
            MalformedArg::Match => Self::Match,
        }
    }
}

/// A filter rule.
#[derive(Debug, Args)]
pub(super) struct RuleArgs {
    /// Name.
    name: String,
    /// Action for matching frames.
    #[arg(long, value_enum)]
    action: ActionArg,
    /// Received frames, or frames that leave. [default: in]
    #[arg(long, value_enum)]
    direction: Option<DirectionArg>,
    /// Receiving port, or port that frames leave by, or a set of ports: @NAME. [default: any]
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Several ports instead of --port, like a,b. [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["port", "bridge"])]
    ports: Vec<String>,
    /// Bridge of the port. [default: any]
    #[arg(long, value_name = "NAME", conflicts_with = "port")]
    bridge: Option<String>,
    /// Receiving port of frames that leave, or a set of ports: @NAME. [default: any]
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// VLAN of the outermost tag of received frames. [default: any, or no tag]
    #[arg(long, value_name = "VLAN", value_parser = parse_vlan)]
    vlan: Option<VlanId>,
    /// States of connection tracking, such as established,related. Requires the section `connections` of the configuration. [default: any]
    #[arg(long, value_name = "STATES")]
    ct_state: Option<CtStates>,
    /// Bits of the connection's mark, VALUE or VALUE/MASK. Requires `connections`. [default: any]
    #[arg(long, value_name = "MARK")]
    ct_mark: Option<MarkBits>,
    /// Bits of the connection's label, VALUE or VALUE/MASK. Requires `labels` in `connections`. [default: any]
    #[arg(long, value_name = "LABEL")]
    ct_label: Option<LabelBits>,
    #[command(flatten)]
    packet: RuleMatchArgs,
    #[command(flatten)]
    names: NameArgs,
    #[command(flatten)]
    statements: StatementArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

/// Names in the first packets of connections.
#[derive(Debug, Args)]
struct NameArgs {
    /// Server names of TLS, such as www.example.org,*.example.net. [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_name: Vec<NamePattern>,
    /// Hosts of HTTP/1. [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    http_host: Vec<NamePattern>,
    /// Names in DNS queries. [default: any]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    dns_name: Vec<NamePattern>,
    /// Block or pass packets whose name is undecidable. [default: closed]
    #[arg(long, value_enum)]
    name_fail: Option<NameFailArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NameFailArg {
    /// Block: a rule that accepts does not match, other rules match.
    Closed,
    /// Pass: a rule that accepts matches, other rules do not.
    Open,
}

impl From<NameFailArg> for NameFail {
    fn from(fail: NameFailArg) -> Self {
        match fail {
            NameFailArg::Closed => Self::Closed,
            NameFailArg::Open => Self::Open,
        }
    }
}

impl From<NameArgs> for NameMatch {
    fn from(args: NameArgs) -> Self {
        let NameArgs {
            tls_name,
            http_host,
            dns_name,
            name_fail,
        } = args;
        Self {
            tls_name,
            http_host,
            dns_name,
            name_fail: name_fail.map(NameFail::from),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DirectionArg {
    /// Received frames.
    In,
    /// Frames that leave.
    Out,
}

impl From<DirectionArg> for Direction {
    fn from(direction: DirectionArg) -> Self {
        match direction {
            DirectionArg::In => Self::In,
            DirectionArg::Out => Self::Out,
        }
    }
}

/// Statements of a rule beside its action.
#[derive(Debug, Args)]
struct StatementArgs {
    /// Answer all rejected packets with this ICMP error. [default: TCP reset, or admin-prohibited]
    #[arg(long, value_enum)]
    reject_with: Option<RejectWithArg>,
    /// Log one of N matching frames. [default: no log]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    log: Option<u32>,
    /// Text in front of lines of the log, up to 64 characters. [default: none]
    #[arg(long, value_name = "TEXT", requires = "log")]
    log_prefix: Option<String>,
    /// Send a copy of each matching frame to this port. [default: none]
    #[arg(long, value_name = "PORT")]
    dup: Option<String>,
    /// Set the DSCP of matching IP packets: a name such as ef, or 0 to 63. [default: unchanged]
    #[arg(long, value_name = "DSCP")]
    set_dscp: Option<Dscp>,
    /// Lower the MSS of matching TCP SYN segments: 88 to 65535 octets, or rt-mtu. [default: unchanged]
    #[arg(long, value_name = "MSS", value_parser = parse_mss)]
    set_mss: Option<MssLimit>,
    /// Set bits of the connection's mark, VALUE or VALUE/MASK. [default: unchanged]
    #[arg(long, value_name = "MARK")]
    set_ct_mark: Option<MarkBits>,
    /// Set bits of the connection's label, VALUE or VALUE/MASK. [default: unchanged]
    #[arg(long, value_name = "LABEL")]
    set_ct_label: Option<LabelBits>,
    /// Hold packets of new flows until the inspector behind this port decides. [default: none]
    #[arg(long, value_name = "PORT")]
    inspect: Option<String>,
    /// Packets of a flow that the inspector gets, 1 to 64. [default: 8]
    #[arg(long, value_name = "N", requires = "inspect",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(INSPECT_PACKETS_MAX)))]
    inspect_packets: Option<u8>,
    /// Longest time until a verdict, 1 to 10000 ms. [default: 100]
    #[arg(long, value_name = "MS", requires = "inspect",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(INSPECT_TIMEOUT_MAX_MS)))]
    inspect_timeout_ms: Option<u16>,
    /// Action for packets without a verdict. [default: closed]
    #[arg(long, value_enum, requires = "inspect")]
    inspect_fail: Option<InspectFailArg>,
}

fn parse_mss(text: &str) -> Result<MssLimit, String> {
    match text.parse()? {
        MssLimit::Octets(octets @ ..MSS_MIN) => Err(format!(
            "{octets} is too small (allowed: {MSS_MIN} to 65535, or {})",
            MssLimit::RtMtu
        )),
        limit => Ok(limit),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RejectWithArg {
    /// Port unreachable.
    PortUnreachable,
    /// Host unreachable; IPv6: address unreachable.
    HostUnreachable,
    /// Network unreachable; IPv6: no route.
    NoRoute,
    /// Communication prohibited.
    AdminProhibited,
    /// Communication with the host prohibited; IPv6: as admin-prohibited.
    HostProhibited,
    /// Communication with the network prohibited; IPv6: as admin-prohibited.
    NetProhibited,
}

impl From<RejectWithArg> for RejectWith {
    fn from(with: RejectWithArg) -> Self {
        match with {
            RejectWithArg::PortUnreachable => Self::PortUnreachable,
            RejectWithArg::HostUnreachable => Self::HostUnreachable,
            RejectWithArg::NoRoute => Self::NoRoute,
            RejectWithArg::AdminProhibited => Self::AdminProhibited,
            RejectWithArg::HostProhibited => Self::HostProhibited,
            RejectWithArg::NetProhibited => Self::NetProhibited,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InspectFailArg {
    /// Drop them.
    Closed,
    /// Accept them.
    Open,
}

impl From<InspectFailArg> for InspectFail {
    fn from(fail: InspectFailArg) -> Self {
        match fail {
            InspectFailArg::Closed => Self::Closed,
            InspectFailArg::Open => Self::Open,
        }
    }
}

impl From<StatementArgs> for StatementSetting {
    fn from(args: StatementArgs) -> Self {
        let StatementArgs {
            reject_with,
            log,
            log_prefix,
            dup,
            set_dscp,
            set_mss,
            set_ct_mark,
            set_ct_label,
            inspect,
            inspect_packets,
            inspect_timeout_ms,
            inspect_fail,
        } = args;
        Self {
            reject_with: reject_with.map(RejectWith::from),
            log,
            log_prefix,
            dup,
            set_dscp,
            set_mss,
            set_ct_mark,
            set_ct_label,
            inspect,
            inspect_packets,
            inspect_timeout_ms,
            inspect_fail: inspect_fail.map(InspectFail::from),
        }
    }
}

/// A rule and its position.
#[derive(Debug, Args)]
pub(super) struct AddRuleArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// Insert before this rule. [default: at the end]
    #[arg(long, value_name = "NAME")]
    before: Option<String>,
}

/// All filter rules.
#[derive(Debug, Args)]
pub(super) struct SetRulesArgs {
    /// Replace all rules by those of a file (TOML).
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    file: Option<PathBuf>,
    /// Action for frames that no rule matches. [default: that of the file, or unchanged]
    #[arg(long, value_enum)]
    default: Option<DefaultArg>,
    /// Action for malformed frames at ports with rules. [default: that of the file, or unchanged]
    #[arg(long, value_enum)]
    malformed: Option<MalformedArg>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

impl RuleArgs {
    /// Returns the time for the confirmation.
    pub(super) const fn confirm(&self) -> ConfirmArgs {
        self.confirm
    }

    pub(super) fn setting(self) -> RuleSetting {
        RuleSetting {
            name: self.name,
            action: self.action.into(),
            direction: self.direction.map(Direction::from),
            from: self.from,
            ports: self.ports,
            port: self.port,
            bridge: self.bridge,
            vlan: self.vlan,
            ct_state: self.ct_state,
            ct_mark: self.ct_mark,
            ct_label: self.ct_label,
            packet: self.packet.into(),
            names: self.names.into(),
            statements: self.statements.into(),
        }
    }
}

impl AddRuleArgs {
    /// Returns the time for the confirmation.
    pub(super) const fn confirm(&self) -> ConfirmArgs {
        self.rule.confirm()
    }

    pub(super) fn change(self) -> Change {
        Change::AddRule {
            rule: self.rule.setting(),
            before: self.before,
        }
    }
}

impl SetRulesArgs {
    /// Returns the time for the confirmation.
    pub(super) const fn confirm(&self) -> ConfirmArgs {
        self.confirm
    }

    /// # Errors
    /// The file cannot be read, or no option is given.
    pub(super) fn change(self, socket: &Path) -> Result<Change> {
        if self.file.is_none() && self.default.is_none() && self.malformed.is_none() {
            return Err(Usage(
                "nothing to change (use --file, --default or --malformed)".to_owned(),
            )
            .into());
        }
        let file = self.file.as_deref().map(RuleFile::read).transpose()?;
        let default = self.default.map(Action::from);
        let malformed = self.malformed.map(MalformedAction::from);
        let of_file = (
            file.as_ref().and_then(|file| file.default),
            file.as_ref().and_then(|file| file.malformed),
        );
        let staged = file.map(|file| stage(socket, file)).transpose()?;
        Ok(Change::SetRules {
            rules: None,
            sets: None,
            staged,
            default: default.or(of_file.0),
            malformed: malformed.or(of_file.1),
        })
    }
}

/// Distributes rules over requests. Rules with many names count as several.
fn requests(rules: Vec<RuleSetting>) -> Vec<Vec<RuleSetting>> {
    let weight = |rule: &RuleSetting| {
        let of_names = rule.names.list().len().div_ceil(OCTETS_OF_A_RULE);
        of_names.saturating_add(1)
    };
    let (mut requests, mut sum): (Vec<Vec<RuleSetting>>, usize) = (Vec::new(), 0);
    for rule in rules {
        let own = weight(&rule);
        sum = sum.saturating_add(own);
        match requests.last_mut() {
            Some(last) if sum <= RULES_A_REQUEST => last.push(rule),
            _ => {
                requests.push(vec![rule]);
                sum = own;
            }
        }
    }
    requests
}

/// Stages the rules and sets of a file in as many requests as they require. Returns their numbers.
pub(super) fn stage(socket: &Path, file: RuleFile) -> Result<Staged> {
    let rules: Vec<RuleSetting> = file.rules.into_iter().map(|rule| rule.value).collect();
    let sets: Vec<SetSetting> = file.sets.into_iter().map(|set| set.value).collect();
    let mut staged = Staged::default();
    // The first request of each kind replaces what another client has staged, even if there is nothing to stage.
    let none = Vec::new();
    ask::<IgnoredAny>(socket, &Request::StageRules { at: 0, rules: none })?;
    for rules in requests(rules) {
        let at = staged.rules;
        staged.rules = staged.rules.saturating_add(rules.len());
        ask::<IgnoredAny>(socket, &Request::StageRules { at, rules })?;
    }
    let none = Vec::new();
    ask::<IgnoredAny>(socket, &Request::StageSets { at: 0, sets: none })?;
    for set in &sets {
        // With its timeout, an element is there twice.
        let count = match set.element_timeouts_s.is_empty() {
            true => ELEMENTS_A_REQUEST,
            false => ELEMENTS_A_REQUEST / 3,
        };
        let mut parts: Vec<&[Element]> = set.elements.chunks(count).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let timeout_of = |element: &Element| {
            let seconds = set.element_timeouts_s.get(element)?;
            Some((*element, *seconds))
        };
        for elements in parts {
            let part = SetSetting {
                name: set.name.clone(),
                kind: set.kind,
                timeout_s: set.timeout_s,
                elements: elements.to_vec(),
                element_timeouts_s: elements.iter().filter_map(timeout_of).collect(),
            };
            let request = Request::StageSets {
                at: staged.sets,
                sets: vec![part],
            };
            ask::<IgnoredAny>(socket, &request)?;
            staged.sets = staged.sets.saturating_add(1);
        }
    }
    Ok(staged)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum SetTypeArg {
    /// IPv4 addresses, prefixes and ranges.
    Ipv4Addr,
    /// IPv6 addresses, prefixes and ranges.
    Ipv6Addr,
    /// MAC addresses.
    EtherAddr,
    /// Ports and ranges of ports.
    InetService,
    /// Names of ports of the switch.
    Ifname,
}

/// A set of addresses, ports or names of ports.
#[derive(Debug, Args)]
pub(super) struct SetDefinitionArgs {
    /// Name. Rules refer to it as @NAME.
    name: SetName,
    /// Type of the elements.
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    kind: SetTypeArg,
    /// Remove each element after this time, seconds. Default: never.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    timeout_s: Option<u32>,
    /// Elements, such as 10.0.0.0/8 or 5000-5010.
    elements: Vec<Element>,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

impl SetDefinitionArgs {
    /// Returns the time for the confirmation.
    pub(super) const fn confirm(&self) -> ConfirmArgs {
        self.confirm
    }

    pub(super) fn change(self) -> Change {
        Change::AddSet(SetSetting {
            name: self.name,
            kind: match self.kind {
                SetTypeArg::Ipv4Addr => SetType::Ipv4Addr,
                SetTypeArg::Ipv6Addr => SetType::Ipv6Addr,
                SetTypeArg::EtherAddr => SetType::EtherAddr,
                SetTypeArg::InetService => SetType::InetService,
                SetTypeArg::Ifname => SetType::Ifname,
            },
            timeout_s: self.timeout_s,
            elements: self.elements,
            element_timeouts_s: BTreeMap::new(),
        })
    }
}

/// Returns the name of an action.
pub(super) const fn action_name(action: Action) -> &'static str {
    action.name()
}

/// Returns the action of a rule and its statements as in the command that adds it.
pub(super) fn action_text(rule: &RuleSetting) -> String {
    let statements = condition_text(rule.statements.words().into_iter());
    match statements.is_empty() {
        true => action_name(rule.action).to_owned(),
        false => format!("{} {statements}", action_name(rule.action)),
    }
}

/// Returns the name of an action for malformed frames.
pub(super) const fn malformed_name(action: MalformedAction) -> &'static str {
    match action {
        MalformedAction::Drop => "drop",
        MalformedAction::Match => "match",
    }
}

/// Returns the conditions of a rule as in the command that adds it.
pub(super) fn conditions(rule: &RuleSetting) -> String {
    let direction = rule.direction.map(Direction::name);
    let location = [
        ("direction", direction.map(ToOwned::to_owned)),
        ("port", rule.port.clone()),
        (
            "ports",
            (!rule.ports.is_empty()).then(|| rule.ports.join(",")),
        ),
        ("bridge", rule.bridge.clone()),
        ("from", rule.from.clone()),
        ("vlan", rule.vlan.map(|vlan| vlan.to_string())),
        ("ct-state", rule.ct_state.map(|states| states.to_string())),
        ("ct-mark", rule.ct_mark.map(|mark| mark.to_string())),
        ("ct-label", rule.ct_label.map(|label| label.to_string())),
    ];
    let location = location
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    let names = rule.names.words();
    let conditions = condition_text(location.chain(rule.packet.words()).chain(names));
    match conditions.is_empty() {
        true => "any".to_owned(),
        false => conditions,
    }
}

/// Formats a page of rules.
pub(super) fn render(report: RulesReport) -> String {
    let mut text = String::new();
    if let Some(left_s) = report.unconfirmed_s {
        text += &format!(
            "new rules: the former ones return in {left_s} s (run `quietwire switch rules confirm` to keep the new ones)\n\n"
        );
    }
    let more = report
        .next
        .map(|next| (report.total.saturating_sub(next), next));
    let comparisons = report.comparisons_max;
    text += &rules(report).to_string();
    if comparisons >= COMPARISONS_SLOW {
        text += &format!(
            "\na frame may be compared with {comparisons} rules one by one (separate them by addresses, protocols or ports, or use a set)"
        );
    }
    if let Some((count, next)) = more {
        text += &format!("\n{count} more rules (run with --from {next})");
    }
    text
}

/// Formats the rules in order, with their match as in the command that adds them, then the default action and the one for malformed frames.
fn rules(report: RulesReport) -> TerminalTable {
    let mut table = table(["name", "frames that", "action", "frames"], 3);
    for report in report.rules {
        let rule = RuleSetting {
            name: report.name,
            action: report.action,
            direction: report.direction,
            from: report.from,
            ports: report.ports,
            port: report.port,
            bridge: report.bridge,
            vlan: report.vlan,
            ct_state: report.ct_state,
            ct_mark: report.ct_mark,
            ct_label: report.ct_label,
            packet: report.packet,
            names: NameMatch {
                tls_name: report.tls_name,
                http_host: report.http_host,
                dns_name: report.dns_name,
                name_fail: report.name_fail,
            },
            statements: StatementSetting {
                reject_with: report.reject_with,
                log: report.log,
                log_prefix: report.log_prefix,
                dup: report.dup,
                set_dscp: report.set_dscp,
                set_mss: report.set_mss,
                set_ct_mark: report.set_ct_mark,
                set_ct_label: report.set_ct_label,
                inspect: report.inspect,
                inspect_packets: report.inspect_packets,
                inspect_timeout_ms: report.inspect_timeout_ms,
                inspect_fail: report.inspect_fail,
            },
        };
        let conditions = conditions(&rule);
        let mut action = action_text(&rule);
        if !report.offloaded.is_empty() {
            let ports: Vec<String> = report.offloaded.into_keys().collect();
            action += &format!(" (card of {})", ports.join(", "));
        }
        table.add_row([rule.name, conditions, action, report.frames.to_string()]);
    }
    table.add_row([
        "(default)",
        "no rule matches",
        action_name(report.default),
        &report.default_frames.to_string(),
    ]);
    table.add_row([
        "(malformed)",
        "have malformed headers",
        malformed_name(report.malformed),
        &report.malformed_frames.to_string(),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use quietwire_switch::control::REQUEST_MAX;

    use super::*;

    #[test]
    fn rules_that_are_compared_one_by_one_are_reported() {
        let text = |comparisons: usize| {
            let report = serde_json::json!({
                "rules": [], "default": "accept", "default_frames": 0, "comparisons_max": comparisons,
            });
            render(serde_json::from_value(report).unwrap())
        };
        assert!(!text(COMPARISONS_SLOW - 1).contains("one by one"));
        assert!(text(4321).contains("with 4321 rules one by one"));
    }

    #[test]
    fn requests_with_many_rules_and_names_are_short_enough() {
        let name = format!("{}.example", "a".repeat(60));
        let rule = |number: usize| -> RuleSetting {
            let names = vec![name.as_str(); if number.is_multiple_of(3) { 64 } else { 0 }];
            serde_json::from_value(serde_json::json!({
                "name": format!("rule-{number}"), "action": "drop", "protocol": "tcp",
                "destination-port": "443", "tls-name": names,
            }))
            .unwrap()
        };
        let rules: Vec<RuleSetting> = (0..200).map(rule).collect();
        let requests = requests(rules.clone());
        assert!(requests.len() > 5);
        for rules in &requests {
            let request = Request::StageRules {
                at: 100_000,
                rules: rules.clone(),
            };
            assert!(serde_json::to_vec(&request).unwrap().len() < REQUEST_MAX);
        }
        assert_eq!(requests.concat(), rules);
    }
}
