// SPDX-License-Identifier: Apache-2.0
//! Reader of nftables' JSON (libnftables-json(5)).

use std::collections::{BTreeMap, HashMap};

use quietwire_packet::VlanId;
use quietwire_tables::filter::{
    Action, CtStates, Dscp, Element, EtherType, Protocol, SetName, SetType, TcpFlags,
};
use serde_json::{Map, Value, json};

use super::chains::{Chain, IPV4, IPV6, Missing, Scope, Source, Statement, Target};
use super::condition::{Alternatives, Condition, Wide, complement};
use super::hook::Hook;
use super::icmp::{CODES, CODES_V6, TYPES, TYPES_V6};
use super::marks;
use super::statements::Body;
use crate::config::rules::{SetSetting, StatementSetting};

/// Maximum number of devices of a chain.
const DEVICES_MAX: usize = 64;

/// Table of a ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    family: String,
    name: String,
}

fn text<'json>(object: &'json Map<String, Value>, key: &str) -> &'json str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn table_of(object: &Map<String, Value>) -> Table {
    Table {
        family: text(object, "family").to_owned(),
        name: text(object, "table").to_owned(),
    }
}

fn handle_of(object: &Map<String, Value>) -> String {
    let handle = object.get("handle").and_then(Value::as_u64);
    handle.map_or_else(|| "?".to_owned(), |handle| handle.to_string())
}

/// Returns the objects of a kind in a ruleset.
fn of_kind<'json>(
    list: &'json [Value],
    kind: &'static str,
) -> impl Iterator<Item = &'json Map<String, Value>> {
    list.iter()
        .filter_map(move |object| object.get(kind)?.as_object())
}

/// Returns true for a base chain of a hook that filters packets.
fn is_base(chain: &Map<String, Value>, hook: Hook) -> bool {
    text(chain, "hook") == hook.name() && text(chain, "type") == "filter"
}

/// Reads a ruleset and selects the base chain of a hook.
pub(super) fn read(json: &str, hook: Hook) -> Result<Source, String> {
    let value: Value = serde_json::from_str(json).map_err(|error| format!("no JSON: {error}"))?;
    let list = value.get("nftables").and_then(Value::as_array);
    let list = list.ok_or("no output of `nft -j list ruleset`: key 'nftables' is missing")?;
    let bases = base_chains(list, hook);
    let (first, others) = bases
        .split_first()
        .ok_or_else(|| format!("no chain of type filter with hook {}", hook.name()))?;
    let table = table_of(first);
    let mut source = Source {
        scope: scope(&table.family)?,
        base: text(first, "name").to_owned(),
        first: None,
        devices: devices(first)?,
        policy: match text(first, "policy") {
            "drop" => Action::Drop,
            _ => Action::Accept,
        },
        chains: HashMap::new(),
        sets: Vec::new(),
        missing: Vec::new(),
        others: Vec::new(),
    };
    for other in others {
        add_further_base(&mut source, other, &table, hook);
    }
    list_others(&mut source, list, &table, hook);
    for chain in of_kind(list, "chain").filter(|chain| table_of(chain) == table) {
        let name = text(chain, "name").to_owned();
        source.chains.insert(name, Chain::default());
    }
    for set in of_kind(list, "set").filter(|set| table_of(set) == table) {
        add_set(&mut source, set);
    }
    for rule in of_kind(list, "rule").filter(|rule| table_of(rule) == table) {
        add_rule(&mut source, rule);
    }
    Ok(source)
}

/// Returns the base chains of a hook by priority.
fn base_chains(list: &[Value], hook: Hook) -> Vec<&Map<String, Value>> {
    let priority = |chain: &&Map<String, Value>| chain.get("prio").and_then(Value::as_i64);
    let mut bases: Vec<&Map<String, Value>> = of_kind(list, "chain")
        .filter(|chain| is_base(chain, hook))
        .collect();
    bases.sort_by_key(priority);
    bases
}

/// Adds a base chain after the first one, which is not imported. `table` is the table of the first one.
fn add_further_base(source: &mut Source, other: &Map<String, Value>, table: &Table, hook: Hook) {
    source.missing.push(Missing {
        place: format!("chain {} {}", text(other, "table"), text(other, "name")),
        reason: format!(
            "a second chain with hook {}: only the first by priority, {} {}, is imported",
            hook.name(),
            table.name,
            source.base
        ),
    });
}

/// Lists the base chains that are not imported because of their hook or type, and the devices that nft did not print.
fn list_others(source: &mut Source, list: &[Value], table: &Table, hook: Hook) {
    let has_hook =
        |chain: &&Map<String, Value>| chain.contains_key("hook") && !is_base(chain, hook);
    for chain in of_kind(list, "chain").filter(has_hook) {
        source.others.push(format!(
            "chain {} {} {} (hook {})",
            text(chain, "family"),
            text(chain, "table"),
            text(chain, "name"),
            text(chain, "hook")
        ));
    }
    if hook == Hook::Ingress && source.devices.is_empty() {
        source.others.push(format!(
            "the devices of chain {} {} {}, which the JSON of this nft lacks (the rules are for all ports: add port to each)",
            table.family, table.name, source.base
        ));
    }
}

/// Adds a set of the table, or the reason why it cannot be expressed.
fn add_set(source: &mut Source, set: &Map<String, Value>) {
    match read_set(set) {
        Ok(set) => source.sets.push(set),
        Err(reason) => source.missing.push(Missing {
            place: format!("set {} (handle {})", text(set, "name"), handle_of(set)),
            reason,
        }),
    }
}

/// Adds a rule of the table to its chain. The sets of the table must have been added.
fn add_rule(source: &mut Source, rule: &Map<String, Value>) {
    let place = format!("chain {}, handle {}", text(rule, "chain"), handle_of(rule));
    let name = format!("{}-{}", text(rule, "chain"), handle_of(rule));
    let read = read_rule(rule, &source.sets);
    let Some(chain) = source.chains.get_mut(text(rule, "chain")) else {
        return;
    };
    match read {
        Ok(all) => {
            let statement =
                |(conditions, (statements, target)): RuleParts| -> Result<Statement, Missing> {
                    Ok(Statement {
                        place: place.clone(),
                        name: name.clone(),
                        conditions,
                        statements,
                        target,
                    })
                };
            chain.rules.extend(all.into_iter().map(statement));
        }
        Err(reason) => chain.rules.push(Err(Missing { place, reason })),
    }
}

/// Returns the devices of a base chain: a name, a list of names, or none.
fn devices(chain: &Map<String, Value>) -> Result<Vec<String>, String> {
    let list = match chain.get("dev") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    if list.is_empty() || list.len() > DEVICES_MAX {
        return Err(format!("a chain of 0 or more than {DEVICES_MAX} devices"));
    }
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names: Option<Vec<String>> = list.iter().map(name).collect();
    names.ok_or_else(|| "a device without a name".to_owned())
}

/// Returns the packets that chains of a family see.
fn scope(family: &str) -> Result<Scope, String> {
    match family {
        "ip" => Ok(Scope::Ip(&[IPV4])),
        "ip6" => Ok(Scope::Ip(&[IPV6])),
        "inet" => Ok(Scope::Ip(&[IPV4, IPV6])),
        "bridge" | "netdev" => Ok(Scope::Frames),
        _ => Err(format!(
            "chains of family '{family}' are not supported (use ip, ip6, inet, bridge or netdev)"
        )),
    }
}

fn read_set(set: &Map<String, Value>) -> Result<SetSetting, String> {
    let kind = match set.get("type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "ipv4_addr" => SetType::Ipv4Addr,
            "ipv6_addr" => SetType::Ipv6Addr,
            "ether_addr" => SetType::EtherAddr,
            "inet_service" => SetType::InetService,
            "ifname" => SetType::Ifname,
            other => return Err(format!("type {other} is not supported")),
        },
        _ => return Err("concatenated types are not supported".to_owned()),
    };
    let timeout = set.get("timeout").and_then(Value::as_u64);
    let timeout_s = timeout
        .map(|seconds| u32::try_from(seconds).map_err(|_| "timeout is too long".to_owned()))
        .transpose()?;
    let mut elements = Vec::new();
    let mut element_timeouts_s = BTreeMap::new();
    for value in set
        .get("elem")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let (element, timeout_s) = set_element(value)?;
        if element.kind() != kind {
            return Err(format!("element '{element}' does not have type {kind}"));
        }
        element_timeouts_s.extend(timeout_s.map(|seconds| (element, seconds)));
        elements.push(element);
    }
    Ok(SetSetting {
        name: text(set, "name").parse::<SetName>()?,
        kind,
        timeout_s: timeout_s.filter(|seconds| *seconds > 0),
        elements,
        element_timeouts_s,
    })
}

/// Returns a value as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Reads an element of a named set, and the seconds that it has left, or its timeout.
fn set_element(value: &Value) -> Result<(Element, Option<u32>), String> {
    let inner = value.get("elem").and_then(Value::as_object);
    let Some((inner, plain)) = inner.and_then(|inner| Some((inner, inner.get("val")?))) else {
        return Ok((element(value)?, None));
    };
    if plain.get("elem").is_some() {
        return Err(format!("'{value}' cannot be expressed"));
    }
    let seconds = inner.get("expires").or_else(|| inner.get("timeout"));
    let seconds = seconds.and_then(Value::as_u64).map(u32::try_from);
    let seconds = seconds.transpose().map_err(|_| "timeout is too long")?;
    // An element without time left expires at once.
    Ok((element(plain)?, seconds.map(|seconds| seconds.max(1))))
}

/// Reads an element of a set: a value, a prefix, a range, or one of these with properties.
fn element(value: &Value) -> Result<Element, String> {
    let wrong = || format!("'{value}' cannot be expressed");
    if let Some(text) = scalar(value) {
        return match service(&text) {
            Some(port) => Ok(Element::Ports(port, port)),
            None => text.parse(),
        };
    }
    let object = value.as_object().ok_or_else(wrong)?;
    if let Some(prefix) = object.get("prefix") {
        let address = prefix.get("addr").and_then(Value::as_str);
        let length = prefix.get("len").and_then(Value::as_u64);
        let (address, length) = address.zip(length).ok_or_else(wrong)?;
        return format!("{address}/{length}").parse();
    }
    if let Some([first, last]) = object
        .get("range")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        let (first, last) = scalar(first).zip(scalar(last)).ok_or_else(wrong)?;
        return format!("{first}-{last}").parse();
    }
    if let Some(inner) = object.get("elem") {
        let is_plain = inner.get("timeout").is_none() && inner.get("expires").is_none();
        let value = inner.get("val").filter(|_| is_plain);
        let value = value.ok_or("an element with a timeout of its own cannot be expressed")?;
        // The value of an element is not an element with properties again.
        return match value.get("elem") {
            None => element(value),
            Some(_) => Err(wrong()),
        };
    }
    Err(wrong())
}

/// Returns the port of a service that nftables writes by name (IANA, Service Name and Transport Protocol Port Number Registry).
fn service(name: &str) -> Option<u16> {
    const SERVICES: [(&str, u16); 12] = [
        ("ftp", 21),
        ("ssh", 22),
        ("telnet", 23),
        ("smtp", 25),
        ("domain", 53),
        ("http", 80),
        ("ntp", 123),
        ("snmp", 161),
        ("bgp", 179),
        ("https", 443),
        ("imaps", 993),
        ("pop3s", 995),
    ];
    let found = SERVICES.iter().find(|(one, _)| *one == name);
    found.map(|(_, port)| *port)
}

/// Conditions and statements of a rule.
type RuleParts = (Vec<Alternatives>, (StatementSetting, Target));

/// Returns conditions, statements and target of a rule, for each verdict if it has a map of them. No packet meets two of a map. Statements in
/// front of further conditions are a part of their own.
fn read_rule(rule: &Map<String, Value>, sets: &[SetSetting]) -> Result<Vec<RuleParts>, String> {
    let mut conditions: Vec<Alternatives> = Vec::new();
    let mut verdicts: Option<Verdicts> = None;
    let mut parts: Vec<RuleParts> = Vec::new();
    let mut body = Body::default();
    let mut link = Link {
        is_of_frames: matches!(text(rule, "family"), "bridge" | "netdev"),
        ..Link::default()
    };
    let expressions = rule.get("expr").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let object = expression.as_object().filter(|object| object.len() == 1);
        let (key, value) = object
            .and_then(|object| object.iter().next())
            .ok_or("unknown expression")?;
        if body.target.is_some() || verdicts.is_some() {
            return Err(format!("'{key}' behind the verdict cannot be expressed"));
        }
        if let Some(implied) = body.read_nft(key, value)? {
            conditions.extend(implied);
            continue;
        }
        if matches!(key.as_str(), "match" | "vmap") && !body.statements.is_empty() {
            parts.push((conditions.clone(), std::mem::take(&mut body).finish()?));
        }
        match key.as_str() {
            "vmap" => {
                let map = value.get("key").ok_or("'vmap' without a key")?;
                conditions.extend(link.implied_by(&json!({ "left": map })));
                verdicts = Some(read_verdicts(map, value, sets)?);
            }
            "match" => {
                conditions.extend(read_match(value, sets)?);
                conditions.extend(link.implied_by(value));
            }
            // Each filter rule counts.
            "counter" | "comment" => {}
            "accept" => body.target = Some(Target::Verdict(Action::Accept)),
            "drop" => body.target = Some(Target::Verdict(Action::Drop)),
            "jump" => body.target = Some(jump(value)?),
            other => return Err(format!("'{other}' cannot be expressed")),
        }
    }
    let Some(verdicts) = verdicts else {
        parts.push((conditions, body.finish()?));
        return Ok(parts);
    };
    for (more, target) in verdicts {
        let body = Body {
            target: Some(target),
            ..body.clone()
        };
        let conditions = conditions.iter().cloned().chain(more).collect();
        parts.push((conditions, body.finish()?));
    }
    Ok(parts)
}

/// Conditions and target of each verdict of a map.
type Verdicts = Vec<(Vec<Alternatives>, Target)>;

/// Reads the verdicts of an anonymous map of this key.
fn read_verdicts(key: &Value, value: &Value, sets: &[SetSetting]) -> Result<Verdicts, String> {
    let pairs = value.get("data").and_then(|data| data.get("set"));
    let pairs = pairs
        .and_then(Value::as_array)
        .ok_or("a named map cannot be expressed (use an anonymous one)")?;
    let mut all = Vec::new();
    for pair in pairs {
        let wrong = || format!("'{pair}' in a map cannot be expressed");
        let Some([right, verdict]) = pair.as_array().map(Vec::as_slice) else {
            return Err(wrong());
        };
        let verdict = verdict.as_object().filter(|verdict| verdict.len() == 1);
        let (name, value) = verdict
            .and_then(|verdict| verdict.iter().next())
            .ok_or_else(wrong)?;
        let target = match name.as_str() {
            "accept" => Target::Verdict(Action::Accept),
            "drop" => Target::Verdict(Action::Drop),
            "jump" => jump(value)?,
            // As without this pair, the next rule decides.
            "continue" => continue,
            _ => return Err(wrong()),
        };
        let matched = json!({ "op": "==", "left": key, "right": right });
        all.push((read_match(&matched, sets)?, target));
    }
    Ok(all)
}

fn jump(value: &Value) -> Result<Target, String> {
    let chain = value.get("target").and_then(Value::as_str);
    let chain = chain.ok_or("'jump' without a chain")?;
    Ok(Target::Jump(chain.to_owned()))
}

/// Headers of the link layer that a rule compares.
///
/// Behind a match on `ether`, nftables compares the EtherType behind the addresses to find an IP header, and behind one on `vlan`, that of the
/// tag. Without either, it compares the protocol of the packet, which is behind the tags.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// The chain sees frames. Chains of IP see packets, whose protocol is known.
    is_of_frames: bool,
    has_ether: bool,
    has_vlan: bool,
}

impl Link {
    /// Notes a match. Returns the condition that it adds: no tag.
    fn implied_by(&mut self, value: &Value) -> Option<Alternatives> {
        let left = value.get("left")?;
        let left = match left.get("&").and_then(Value::as_array) {
            Some(masked) => masked.first()?,
            None => left,
        };
        let payload = left.get("payload")?.as_object()?;
        let is_read_behind_addresses = match (text(payload, "protocol"), text(payload, "field")) {
            ("ether", "type") => true,
            ("ether", _) => {
                self.has_ether = true;
                false
            }
            ("vlan", _) => {
                self.has_vlan = true;
                false
            }
            ("ip" | "ip6" | "icmp" | "icmpv6", _) => self.has_ether,
            _ => false,
        };
        let is_untagged = self.is_of_frames && is_read_behind_addresses && !self.has_vlan;
        is_untagged.then(|| vec![Condition::Tagged(false)])
    }
}

/// Left side of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Wide(Wide),
    Port,
    OutPort,
    Vlan,
    Ethertype,
    Nfproto,
    Protocol,
    TcpFlags,
    IcmpType,
    IcmpCode,
    Icmpv6Type,
    Icmpv6Code,
    Dscp,
    CtState,
    CtMark,
}

/// Reads a match: the conditions on its field, and those that the field implies.
fn read_match(value: &Value, sets: &[SetSetting]) -> Result<Vec<Alternatives>, String> {
    let part = |key: &str| {
        value
            .get(key)
            .ok_or_else(|| format!("match without '{key}'"))
    };
    let op = part("op")?.as_str().unwrap_or_default();
    let (left, right) = (part("left")?, part("right")?);
    let (left, mask) = match left.get("&").and_then(Value::as_array).map(Vec::as_slice) {
        Some([left, mask]) => (left, Some(mask)),
        _ => (left, None),
    };
    let (left, mut conditions) = read_left(left)?;
    let is_not = match op {
        "==" | "in" => false,
        "!=" => true,
        _ => return Err(format!("operator '{op}' cannot be expressed")),
    };
    match (left, mask) {
        (Left::TcpFlags, _) => conditions.push(flags(op, mask, right)?),
        (Left::CtMark, mask) => {
            conditions.push(marks::alternatives(op, mask, &values(right)?)?);
        }
        (Left::CtState, None) => conditions.push(ct_states(op, right)?),
        (_, Some(_)) => return Err("'&' of this field cannot be expressed".to_owned()),
        (Left::Wide(field), None) => {
            conditions.push(match set_name(right) {
                Some(_) if is_not => {
                    return Err("'!=' of a named set cannot be expressed".to_owned());
                }
                Some(name) => vec![field.in_set(known_set(name, sets)?)],
                None => wide(field, &values(right)?, is_not)?,
            });
        }
        (_, None) if is_not => return Err("'!=' of this field cannot be expressed".to_owned()),
        (Left::Port | Left::OutPort, None) if set_name(right).is_some() => {
            let name = known_set(set_name(right).unwrap_or_default(), sets)?;
            let name = format!("@{name}");
            conditions.push(vec![match left {
                Left::OutPort => Condition::OutPort(name),
                _ => Condition::Port(name),
            }]);
        }
        (left, None) => {
            let values = values(right)?;
            let all: Result<Alternatives, String> =
                values.iter().map(|value| narrow(left, value)).collect();
            conditions.push(all?);
        }
    }
    Ok(conditions)
}

/// Returns the name of a named set on the right side.
fn set_name(right: &Value) -> Option<&str> {
    right.as_str()?.strip_prefix('@')
}

fn known_set(name: &str, sets: &[SetSetting]) -> Result<SetName, String> {
    let set = sets.iter().find(|set| set.name.0 == name);
    set.map(|set| set.name.clone())
        .ok_or_else(|| format!("set '{name}' is missing"))
}

/// Returns the values of the right side: one, or those of an anonymous set.
fn values(right: &Value) -> Result<Vec<&Value>, String> {
    match right.get("set") {
        None => Ok(vec![right]),
        Some(Value::Array(list)) => Ok(list.iter().collect()),
        Some(_) => Err("a map cannot be expressed".to_owned()),
    }
}

fn wide(field: Wide, values: &[&Value], is_not: bool) -> Result<Alternatives, String> {
    let elements: Result<Vec<Element>, String> =
        values.iter().map(|value| element(value)).collect();
    let mut elements = elements?;
    if is_not {
        elements = complement(&elements)?;
    }
    let mut all = Vec::new();
    for element in elements {
        all.extend(field.in_element(element)?);
    }
    Ok(all)
}

fn ethertype(ethertype: EtherType) -> Alternatives {
    vec![Condition::Ethertype(ethertype)]
}

fn protocol(number: u8) -> Alternatives {
    vec![Condition::Protocol(Protocol(number))]
}

/// Reads the left side: the field, and the conditions that it implies.
fn read_left(left: &Value) -> Result<(Left, Vec<Alternatives>), String> {
    let payload = left.get("payload").and_then(Value::as_object);
    let meta = left.get("meta").and_then(Value::as_object);
    if let Some(ct) = left.get("ct").and_then(Value::as_object) {
        return match text(ct, "key") {
            "state" => Ok((Left::CtState, Vec::new())),
            "mark" => Ok((Left::CtMark, Vec::new())),
            key => Err(format!("'ct {key}' cannot be expressed")),
        };
    }
    match (payload, meta) {
        (Some(payload), _) => read_payload(text(payload, "protocol"), text(payload, "field")),
        (None, Some(meta)) => {
            let left = match text(meta, "key") {
                "iifname" | "iif" => Left::Port,
                "oifname" | "oif" => Left::OutPort,
                "l4proto" => Left::Protocol,
                "protocol" => Left::Ethertype,
                "nfproto" => Left::Nfproto,
                key => return Err(format!("'meta {key}' cannot be expressed")),
            };
            Ok((left, Vec::new()))
        }
        (None, None) => {
            let key = left.as_object().and_then(|object| object.keys().next());
            let key = key.map_or("value", String::as_str);
            Err(format!("a match on '{key}' cannot be expressed"))
        }
    }
}

fn read_payload(header: &str, field: &str) -> Result<(Left, Vec<Alternatives>), String> {
    let port = match field {
        "sport" => Some(Left::Wide(Wide::SourcePort)),
        "dport" => Some(Left::Wide(Wide::DestinationPort)),
        _ => None,
    };
    let transport = match header {
        "tcp" => Some(6),
        "udp" => Some(17),
        "dccp" => Some(33),
        "sctp" => Some(132),
        "udplite" => Some(136),
        _ => None,
    };
    let wide = |field: Wide| Left::Wide(field);
    Ok(match (header, field) {
        ("ether", "saddr") => (wide(Wide::SourceMac), Vec::new()),
        ("ether", "daddr") => (wide(Wide::DestinationMac), Vec::new()),
        ("ether", "type") => (Left::Ethertype, Vec::new()),
        ("vlan", "id") => (Left::Vlan, Vec::new()),
        ("ip", "saddr") => (wide(Wide::Source), vec![ethertype(IPV4)]),
        ("ip", "daddr") => (wide(Wide::Destination), vec![ethertype(IPV4)]),
        ("ip", "protocol") => (Left::Protocol, vec![ethertype(IPV4)]),
        ("ip", "dscp") => (Left::Dscp, vec![ethertype(IPV4)]),
        ("ip6", "saddr") => (wide(Wide::Source), vec![ethertype(IPV6)]),
        ("ip6", "daddr") => (wide(Wide::Destination), vec![ethertype(IPV6)]),
        ("ip6", "dscp") => (Left::Dscp, vec![ethertype(IPV6)]),
        ("ip6", "nexthdr") => {
            return Err("'ip6 nexthdr' is the first header only (use meta l4proto)".to_owned());
        }
        ("icmp", "type") => (Left::IcmpType, vec![ethertype(IPV4), protocol(1)]),
        ("icmp", "code") => (Left::IcmpCode, vec![ethertype(IPV4), protocol(1)]),
        ("icmpv6", "type") => (Left::Icmpv6Type, vec![ethertype(IPV6), protocol(58)]),
        ("icmpv6", "code") => (Left::Icmpv6Code, vec![ethertype(IPV6), protocol(58)]),
        ("tcp", "flags") => (Left::TcpFlags, vec![protocol(6)]),
        // The rule has to name the protocol.
        ("th", "sport" | "dport") => (port.ok_or("no port")?, Vec::new()),
        _ => match (transport, port) {
            (Some(number), Some(port)) => (port, vec![protocol(number)]),
            _ => return Err(format!("'{header} {field}' cannot be expressed")),
        },
    })
}

/// Returns the condition that a field has a value.
fn narrow(left: Left, value: &Value) -> Result<Condition, String> {
    let text = scalar(value).ok_or_else(|| format!("'{value}' cannot be expressed"))?;
    let number = |names: &[(&str, u8)]| {
        let named = names.iter().find(|(name, _)| *name == text);
        named
            .map(|(_, number)| *number)
            .or_else(|| text.parse().ok())
            .ok_or_else(|| format!("'{text}' cannot be expressed"))
    };
    Ok(match left {
        Left::Port | Left::OutPort if text.contains('*') || text.starts_with('@') => {
            return Err(format!(
                "'{text}' stands for several interfaces (name each)"
            ));
        }
        Left::Port => Condition::Port(text),
        Left::OutPort => Condition::OutPort(text),
        Left::Vlan => {
            let vlan = text.parse().ok().and_then(|vlan| VlanId::new(vlan).ok());
            Condition::Vlan(vlan.ok_or_else(|| format!("'{text}' is not a VLAN"))?)
        }
        Left::Nfproto => match text.as_str() {
            "ipv4" => Condition::Ethertype(IPV4),
            "ipv6" => Condition::Ethertype(IPV6),
            _ => return Err(format!("'meta nfproto {text}' cannot be expressed")),
        },
        Left::Ethertype => Condition::Ethertype(match text.as_str() {
            "ip" => IPV4,
            "ip6" => IPV6,
            other => other.parse()?,
        }),
        Left::Protocol => Condition::Protocol(match text.as_str() {
            "ipv6-icmp" => Protocol(58),
            other => other.parse()?,
        }),
        Left::IcmpType => Condition::IcmpType(number(&TYPES)?),
        Left::Icmpv6Type => Condition::IcmpType(number(&TYPES_V6)?),
        Left::IcmpCode => Condition::IcmpCode(number(&CODES)?),
        Left::Icmpv6Code => Condition::IcmpCode(number(&CODES_V6)?),
        Left::Dscp => Condition::Dscp(text.parse::<Dscp>()?),
        Left::Wide(_) | Left::TcpFlags | Left::CtState | Left::CtMark => {
            return Err("this field has a list of values".to_owned());
        }
    })
}

/// Returns the alternatives of a match on states of connections: a name, a list, or an anonymous set.
fn ct_states(op: &str, right: &Value) -> Result<Alternatives, String> {
    let wrong = || format!("'ct state {op} {right}' cannot be expressed");
    let list = match right.get("set").unwrap_or(right) {
        Value::Array(list) => list.as_slice(),
        other => std::slice::from_ref(other),
    };
    let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let states = names.ok_or_else(wrong)?.join(",").parse::<CtStates>()?;
    let states = match op {
        "==" | "in" => Some(states),
        "!=" => states.complement(),
        _ => return Err(wrong()),
    };
    // No alternative: no packet has none of all states.
    Ok(states.into_iter().map(Condition::CtState).collect())
}

/// Returns the bits of flags: a name, a list, or `{"|": [...]}`.
fn flag_bits(value: &Value) -> Result<u8, String> {
    let wrong = || format!("'{value}' are no TCP flags");
    let list = match value {
        Value::Array(list) => list.as_slice(),
        Value::Object(object) => {
            let list = object.get("|").or_else(|| object.get("set"));
            list.and_then(Value::as_array).ok_or_else(wrong)?
        }
        other => std::slice::from_ref(other),
    };
    let mut bits = 0;
    for one in list {
        bits |= match one {
            Value::Number(number) => {
                let number = number.as_u64().and_then(|number| u8::try_from(number).ok());
                number.ok_or_else(wrong)?
            }
            Value::String(name) => name.parse::<TcpFlags>().map(|flags| flags.mask)?,
            // Older versions nest `|` in pairs, once for each flag.
            Value::Object(object) if object.contains_key("|") => {
                let inner = object
                    .get("|")
                    .and_then(Value::as_array)
                    .ok_or_else(wrong)?;
                let names: Option<Vec<&str>> = inner.iter().map(Value::as_str).collect();
                let names = names.ok_or_else(wrong)?;
                let mut bits = 0;
                for name in names {
                    bits |= name.parse::<TcpFlags>()?.mask;
                }
                bits
            }
            _ => return Err(wrong()),
        };
    }
    Ok(bits)
}

/// Returns the alternatives of a match on TCP flags.
fn flags(op: &str, mask: Option<&Value>, right: &Value) -> Result<Alternatives, String> {
    let value = flag_bits(right)?;
    let condition = |value: u8, mask: u8| Condition::TcpFlags(TcpFlags { value, mask });
    match (op, mask) {
        ("==", Some(mask)) => {
            let mask = flag_bits(mask)?;
            match mask != 0 && value & !mask == 0 {
                true => Ok(vec![condition(value, mask)]),
                false => Err("flags that are not in the mask".to_owned()),
            }
        }
        ("!=", Some(mask)) if value == 0 => Ok(each_bit(flag_bits(mask)?, condition)),
        ("==", None) => Ok(vec![condition(value, 0xff)]),
        // Any of the flags.
        ("in", None) => Ok(each_bit(value, condition)),
        _ => Err(format!("'{op}' of these flags cannot be expressed")),
    }
}

/// Returns the alternatives that one of the bits is set.
fn each_bit(bits: u8, condition: impl Fn(u8, u8) -> Condition) -> Alternatives {
    let each = [1, 2, 4, 8, 16, 32, 64, 128u8].into_iter();
    each.filter(|bit| bits & bit != 0)
        .map(|bit| condition(bit, bit))
        .collect()
}
