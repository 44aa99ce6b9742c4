// SPDX-License-Identifier: Apache-2.0
//! Reader of the text of `iptables-save` and `ip6tables-save` (iptables(8), iptables-extensions(8)).

use std::collections::{BTreeSet, HashMap};

use quietwire_tables::filter::{
    Action, CtStates, Dscp, Element, EtherType, MssLimit, Protocol, SetType, TcpFlags,
};

use super::chains::{Chain, IPV4, IPV6, Missing, Scope, Source, Statement, Target};
use super::condition::{Alternatives, Condition, Wide, complement};
use super::hook::Hook;
use super::icmp::{TYPES, TYPES_V6};
use super::statements::{Body, answer_of_iptables};
use crate::config::rules::StatementSetting;

/// Maximum number of words of a line.
const WORDS_MAX: usize = 256;
/// Chains of the kernel.
const BASES: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Tables that are imported. Packets pass `mangle` first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Filter,
    Mangle,
}

impl Table {
    const ALL: [Self; 2] = [Self::Filter, Self::Mangle];

    /// Returns the table with this name, if it is imported.
    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Mangle => "mangle",
        }
    }

    /// Returns the name of a chain among those of all tables. No name has a space.
    fn chain(self, name: &str) -> String {
        match self {
            Self::Filter => name.to_owned(),
            Self::Mangle => format!("mangle {name}"),
        }
    }

    /// Returns a chain as text.
    fn text_of(self, chain: &str) -> String {
        match self {
            Self::Filter => format!("chain {chain}"),
            Self::Mangle => format!("chain {chain} of table mangle"),
        }
    }

    /// Returns the target of a rule of this table.
    ///
    /// # Errors
    /// The target does not decide on packets: the other table does.
    fn target(self, target: Target) -> Result<Target, String> {
        match (self, target) {
            (Self::Mangle, Target::Verdict(Action::Accept)) => {
                Err("'-j ACCEPT' in table mangle cannot be expressed".to_owned())
            }
            (table, Target::Jump(chain)) => Ok(Target::Jump(table.chain(&chain))),
            (_, target) => Ok(target),
        }
    }
}

/// Reads a file and selects the base chain of a hook, in table `filter`, and that of table `mangle` in front of it.
pub(super) fn read(text: &str, hook: Hook) -> Result<Source, String> {
    let base = match hook {
        Hook::Forward => "FORWARD",
        Hook::Input => "INPUT",
        Hook::Prerouting | Hook::Ingress | Hook::Postrouting => {
            return Err(format!(
                "iptables has no filter chain with hook {} (use forward or input)",
                hook.name()
            ));
        }
    };
    let version = version_of(text);
    let mut source = Source {
        scope: Scope::Ip(match version == IPV6 {
            true => &[IPV6],
            false => &[IPV4],
        }),
        base: base.to_owned(),
        first: None,
        devices: Vec::new(),
        policy: Action::Accept,
        chains: HashMap::new(),
        sets: Vec::new(),
        missing: Vec::new(),
        others: Vec::new(),
    };
    let mut table = None;
    let mut table_name = "";
    let mut has_table = false;
    let mut others: BTreeSet<String> = BTreeSet::new();
    for (number, line) in (1usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            continue;
        }
        if let Some(name) = line.strip_prefix('*') {
            (table, table_name) = (Table::of(name), name);
            has_table |= table == Some(Table::Filter);
            continue;
        }
        let Some(table) = table else {
            if !line.starts_with(':') {
                others.insert(format!("table {table_name}"));
            }
            continue;
        };
        match line.strip_prefix(':') {
            Some(chain) => add_chain(&mut source, chain, table),
            None => add_rule(&mut source, (number, line), (table, version)),
        }
    }
    for table in Table::ALL {
        others.extend(add_bases(&mut source, table));
    }
    source.others.extend(others);
    match has_table {
        true => Ok(source),
        false => Err(
            "neither JSON of nftables nor a file of iptables-save: there is no line '*filter'"
                .to_owned(),
        ),
    }
}

/// Selects the chain of a table that packets pass before the base chain. Returns the other chains of the kernel in the table that have rules.
fn add_bases(source: &mut Source, table: Table) -> Vec<String> {
    let mut others = Vec::new();
    for chain in BASES {
        let name = table.chain(chain);
        let has_rules = |chain: &Chain| !chain.rules.is_empty();
        match source.chains.get(&name).is_some_and(has_rules) {
            true if chain != source.base => others.push(table.text_of(chain)),
            true if table == Table::Mangle => source.first = Some(name),
            _ => {}
        }
    }
    others
}

/// Adds a chain, and the policy of a base chain, from a line such as `FORWARD DROP [0:0]`.
fn add_chain(source: &mut Source, line: &str, table: Table) {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let is_dropping = name == source.base && words.next() == Some("DROP");
    match table {
        Table::Filter if is_dropping => source.policy = Action::Drop,
        Table::Mangle if is_dropping => source.missing.push(Missing {
            place: table.text_of(name),
            reason: "policy DROP cannot be expressed (add a rule with -j DROP)".to_owned(),
        }),
        _ => {}
    }
    source.chains.insert(table.chain(name), Chain::default());
}

/// Adds the rule in a line to its chain, or the reason why it is not imported.
fn add_rule(
    source: &mut Source,
    (number, line): (usize, &str),
    (table, version): (Table, EtherType),
) {
    let place = format!("line {number}");
    let (chain, read) = read_rule(line, version);
    let read = read.and_then(|(conditions, (statements, target))| {
        Ok((conditions, (statements, table.target(target)?)))
    });
    let read = match read {
        Ok((conditions, (statements, target))) => Ok(Statement {
            name: format!("{chain}-{number}"),
            place,
            conditions,
            statements,
            target,
        }),
        Err(reason) => Err(Missing { place, reason }),
    };
    match (source.chains.get_mut(&table.chain(&chain)), read) {
        (Some(chain), read) => chain.rules.push(read),
        (None, Err(missing)) => source.missing.push(missing),
        (None, Ok(statement)) => source.missing.push(Missing {
            place: statement.place,
            reason: format!("no such chain: '{chain}'"),
        }),
    }
}

/// Returns the IP version: the first line names the program.
fn version_of(text: &str) -> EtherType {
    let mut lines = text.lines().take(16);
    match lines.any(|line| line.starts_with('#') && line.contains("ip6tables")) {
        true => IPV6,
        false => IPV4,
    }
}

/// Splits a line into words. Words in double quotes may have spaces, and escapes by backslashes.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted => {
                let next = letters.next().ok_or("the line ends behind a backslash")?;
                word.get_or_insert_default().push(next);
            }
            letter if letter.is_whitespace() && !is_quoted => all.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
        if all.len() > WORDS_MAX {
            return Err(format!("more than {WORDS_MAX} words"));
        }
    }
    if is_quoted {
        return Err("a quotation does not end".to_owned());
    }
    all.extend(word);
    Ok(all)
}

/// Conditions and statements of a rule.
type RuleParts = (Vec<Alternatives>, (StatementSetting, Target));

/// Returns the chain of a rule, and its conditions and target.
fn read_rule(line: &str, version: EtherType) -> (String, Result<RuleParts, String>) {
    let words = match words(line) {
        Ok(words) => words,
        Err(reason) => return (String::new(), Err(reason)),
    };
    let mut words = words.iter();
    let mut first = words.next();
    // With counters, a line begins with [packets:octets].
    if first.is_some_and(|word| word.starts_with('[')) {
        first = words.next();
    }
    if first.map(String::as_str) != Some("-A") {
        return (
            String::new(),
            Err("not a rule (expected -A CHAIN)".to_owned()),
        );
    }
    let chain = words.next().cloned().unwrap_or_default();
    let mut options = Options {
        words,
        version,
        conditions: Vec::new(),
        body: Body::default(),
        reject_with: None,
    };
    let read = options.read();
    let conditions = options.conditions;
    let is_reject = options.body.target == Some(Target::Verdict(Action::Reject));
    // The default of iptables, and that of ip6tables, which has the same meaning.
    let kind = options.reject_with.unwrap_or("icmp-port-unreachable");
    let mut body = options.body;
    let read = read.and_then(|()| {
        if is_reject {
            body.statements.reject_with = answer_of_iptables(kind)?;
        }
        Ok((conditions, body.finish()?))
    });
    (chain, read)
}

/// Options of a rule, read one by one.
struct Options<'line> {
    words: std::slice::Iter<'line, String>,
    version: EtherType,
    conditions: Vec<Alternatives>,
    body: Body,
    /// Kind of the answer of a reject.
    reject_with: Option<&'line str>,
}

impl<'line> Options<'line> {
    fn argument(&mut self, option: &str) -> Result<&'line str, String> {
        let word = self.words.next().map(String::as_str);
        word.ok_or_else(|| format!("{option} without a value"))
    }

    fn read(&mut self) -> Result<(), String> {
        let mut is_not = false;
        while let Some(option) = self.words.next().map(String::as_str) {
            if option == "!" {
                is_not = true;
                continue;
            }
            self.option(option, is_not)?;
            is_not = false;
        }
        Ok(())
    }

    fn option(&mut self, option: &str, is_not: bool) -> Result<(), String> {
        if let Some(field) = wide_field(option) {
            let list = self.argument(option)?;
            return self.wide(field, list, is_not);
        }
        match option {
            "--comment" => {
                self.argument(option)?;
            }
            "--ctstate" | "--state" => self.states(option, is_not)?,
            _ if is_not => return Err(format!("'! {option}' cannot be expressed")),
            "--icmp-type" | "--icmpv6-type" => {
                let text = self.argument(option)?;
                self.icmp(text)?;
            }
            "--mac-source" => {
                let mac = self.argument(option)?.parse::<Element>()?;
                self.conditions.push(Wide::SourceMac.in_element(mac)?);
            }
            "-m" | "--match" => check_extension(self.argument(option)?)?,
            "--reject-with" => self.reject_with = Some(self.argument(option)?),
            "--set-mss" => {
                let limit = self.argument(option)?.parse::<MssLimit>()?;
                self.body.set_mss(limit)?;
            }
            "--clamp-mss-to-pmtu" => self.body.set_mss(MssLimit::RtMtu)?,
            "--set-dscp" => {
                let value = dscp(self.argument(option)?)?;
                self.body.set_dscp(value)?;
            }
            "--set-dscp-class" => {
                let class = self.argument(option)?.to_ascii_lowercase();
                let value = match class.as_str() {
                    "be" => Dscp(0),
                    class => class.parse()?,
                };
                self.body.set_dscp(value)?;
            }
            "--set-tos" => {
                let value = dscp_of_tos(self.argument(option)?)?;
                self.body.set_dscp(value)?;
            }
            "--log-prefix" | "--nflog-prefix" => {
                let prefix = self.argument(option)?;
                self.body.set_prefix(prefix)?;
            }
            "-j" | "--jump" => match self.argument(option)? {
                // Options of NFLOG that select a program cannot be expressed.
                "LOG" | "NFLOG" => self.body.log_each()?,
                // Their options have the values.
                "TCPMSS" | "DSCP" | "TOS" => {}
                "TEE" => {
                    return Err(
                        "'-j TEE' copies packets to an address, which cannot be expressed (add a rule with action continue and dup)"
                            .to_owned(),
                    );
                }
                name => self.body.target = Some(target(name)?),
            },
            _ => {
                let condition = self.condition(option)?;
                self.conditions.extend(condition.map(|one| vec![one]));
            }
        }
        Ok(())
    }

    /// Adds the states of connections that match.
    fn states(&mut self, option: &str, is_not: bool) -> Result<(), String> {
        let names = self.argument(option)?.to_ascii_lowercase();
        let states = names.parse::<CtStates>()?;
        let states = match is_not {
            true => states.complement(),
            false => Some(states),
        };
        // No alternative: no packet has none of all states.
        let conditions = states.into_iter().map(Condition::CtState);
        self.conditions.push(conditions.collect());
        Ok(())
    }

    /// Reads an option with one condition; `None` if all packets meet it.
    fn condition(&mut self, option: &str) -> Result<Option<Condition>, String> {
        Ok(Some(match option {
            "-p" | "--protocol" => match self.argument(option)? {
                "all" => return Ok(None),
                "ipv6-icmp" => Condition::Protocol(Protocol(58)),
                name => Condition::Protocol(name.parse()?),
            },
            "-i" | "--in-interface" => Condition::Port(self.interface(option)?),
            "-o" | "--out-interface" => Condition::OutPort(self.interface(option)?),
            "--syn" => Condition::TcpFlags(TcpFlags {
                value: 0x02,
                mask: 0x17,
            }),
            "--tcp-flags" => {
                let mask = flags(self.argument(option)?)?;
                let value = flags(self.argument(option)?)?;
                if mask == 0 || value & !mask != 0 {
                    return Err("flags that are not in the mask".to_owned());
                }
                Condition::TcpFlags(TcpFlags { value, mask })
            }
            "--dscp" => Condition::Dscp(dscp(self.argument(option)?)?),
            // Of connmark: that of the packet is refused.
            "--mark" => Condition::CtMark(self.argument(option)?.parse()?),
            other => return Err(format!("'{other}' cannot be expressed")),
        }))
    }

    /// Reads the name of one interface.
    fn interface(&mut self, option: &str) -> Result<String, String> {
        let name = self.argument(option)?;
        if name.ends_with('+') || name.starts_with('@') {
            return Err(format!(
                "'{option} {name}' stands for several interfaces (name each)"
            ));
        }
        Ok(name.to_owned())
    }

    /// Adds the alternatives of a list of addresses or ports.
    fn wide(&mut self, field: Wide, list: &str, is_not: bool) -> Result<(), String> {
        let mut elements = Vec::new();
        for one in list.split(',') {
            let is_port = matches!(field, Wide::SourcePort | Wide::DestinationPort);
            let element: Element = match one.split_once(':') {
                Some((first, last)) if is_port => {
                    let first = if first.is_empty() { "0" } else { first };
                    let last = if last.is_empty() { "65535" } else { last };
                    format!("{first}-{last}").parse()?
                }
                _ => with_mask_length(one).parse()?,
            };
            if is_port != (element.kind() == SetType::InetService) {
                return Err(format!("'{one}' is not a value of this option"));
            }
            elements.push(element);
        }
        if is_not {
            elements = complement(&elements)?;
        }
        let mut all = Vec::new();
        for element in elements {
            all.extend(field.in_element(element)?);
        }
        self.conditions.push(all);
        Ok(())
    }

    /// Adds an ICMP type, and the code behind a slash.
    fn icmp(&mut self, text: &str) -> Result<(), String> {
        let (kind, code) = match text.split_once('/') {
            Some((kind, code)) => (kind, Some(code)),
            None => (text, None),
        };
        if kind == "any" {
            return Ok(());
        }
        let names: &[(&str, u8)] = match self.version == IPV6 {
            true => &TYPES_V6,
            false => &TYPES,
        };
        let named = names.iter().find(|(name, _)| *name == kind);
        let kind = named
            .map(|(_, number)| *number)
            .or_else(|| kind.parse().ok())
            .ok_or_else(|| format!("ICMP type '{kind}' cannot be expressed"))?;
        self.conditions.push(vec![Condition::IcmpType(kind)]);
        if let Some(code) = code {
            let code = code
                .parse()
                .map_err(|_| format!("ICMP code '{code}' cannot be expressed"))?;
            self.conditions.push(vec![Condition::IcmpCode(code)]);
        }
        Ok(())
    }
}

/// Returns the field of an option with a list of addresses or ports.
fn wide_field(option: &str) -> Option<Wide> {
    Some(match option {
        "-s" | "--source" => Wide::Source,
        "-d" | "--destination" => Wide::Destination,
        "--sport" | "--source-port" | "--sports" | "--source-ports" => Wide::SourcePort,
        "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
            Wide::DestinationPort
        }
        _ => return None,
    })
}

/// Checks that the options of an extension can be expressed.
fn check_extension(name: &str) -> Result<(), String> {
    match name {
        "tcp" | "udp" | "sctp" | "dccp" | "udplite" | "multiport" | "comment" | "icmp"
        | "icmp6" | "mac" | "dscp" | "conntrack" | "connmark" | "state" => Ok(()),
        other => Err(format!("'-m {other}' cannot be expressed")),
    }
}

/// Returns the target of a rule by its name.
fn target(name: &str) -> Result<Target, String> {
    Ok(match name {
        "ACCEPT" => Target::Verdict(Action::Accept),
        "DROP" => Target::Verdict(Action::Drop),
        "REJECT" => Target::Verdict(Action::Reject),
        // The names of extensions are in capitals, and so may be those of chains.
        "RETURN" | "QUEUE" | "NFQUEUE" | "MARK" | "CONNMARK" | "NOTRACK" | "SNAT" | "DNAT"
        | "MASQUERADE" | "REDIRECT" | "SET" | "CT" | "AUDIT" | "CLASSIFY" | "CHECKSUM" | "TTL"
        | "HL" | "ECN" | "TPROXY" | "TRACE" | "TCPOPTSTRIP" | "IDLETIMER" => {
            return Err(format!("'-j {name}' cannot be expressed"));
        }
        chain => Target::Jump(chain.to_owned()),
    })
}

/// Returns a DSCP by its number, which is hexadecimal, or its name.
fn dscp(text: &str) -> Result<Dscp, String> {
    let number = text
        .strip_prefix("0x")
        .map(|digits| u8::from_str_radix(digits, 16));
    match number {
        Some(Ok(number @ 0..64)) => Ok(Dscp(number)),
        Some(_) => Err(format!("'{text}' is not a DSCP")),
        None => Ok(text.parse()?),
    }
}

/// Returns the DSCP that target TOS sets: value and mask of the octet, of which the DSCP is six bits (RFC 2474, section 3).
fn dscp_of_tos(text: &str) -> Result<Dscp, String> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let bits = text.split_once('/');
    match bits.map(|(value, mask)| (number(value), number(mask))) {
        Some((Some(value), Some(0xfc))) if value & 3 == 0 => Ok(Dscp(value >> 2)),
        _ => Err(format!(
            "'--set-tos {text}' cannot be expressed (use the mask 0xfc, which is the DSCP)"
        )),
    }
}

/// Returns the bits of a list of flags.
fn flags(list: &str) -> Result<u8, String> {
    match list {
        "ALL" => return Ok(0x3f),
        "NONE" => return Ok(0),
        _ => {}
    }
    let mut bits = 0;
    for name in list.split(',') {
        bits |= name.to_ascii_lowercase().parse::<TcpFlags>()?.mask;
    }
    Ok(bits)
}

/// Replaces a netmask behind a slash, such as 255.255.255.0, by its length.
fn with_mask_length(text: &str) -> String {
    let Some((address, mask)) = text.split_once('/') else {
        return text.to_owned();
    };
    let Ok(mask) = mask.parse::<std::net::Ipv4Addr>() else {
        return text.to_owned();
    };
    let bits = mask.to_bits();
    match bits.leading_ones() == bits.count_ones() {
        true => format!("{address}/{}", bits.count_ones()),
        false => text.to_owned(),
    }
}
