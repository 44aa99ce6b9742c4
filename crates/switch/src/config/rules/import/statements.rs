// SPDX-License-Identifier: Apache-2.0
//! Statements of imported rules: those that filter rules have beside their action.

use quietwire_tables::filter::{Action, Dscp, MssLimit, Protocol, RejectWith};
use serde_json::{Map, Value};

use super::chains::{IPV4, IPV6, Target};
use super::condition::{Alternatives, Condition};
use super::marks;
use crate::config::rules::{MSS_MIN, StatementSetting};

/// Parts of a rule besides its conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) statements: StatementSetting,
    pub(super) target: Option<Target>,
}

impl Body {
    /// Returns statements and target of a rule.
    ///
    /// # Errors
    /// The rule sets a mark, and does not accept.
    pub(super) fn finish(self) -> Result<(StatementSetting, Target), String> {
        let Self {
            mut statements,
            target,
        } = self;
        let target = target.unwrap_or(Target::Next);
        if target != Target::Verdict(Action::Accept) && statements.set_ct_mark.is_some() {
            return Err(
                "'ct mark set' before another verdict than accept cannot be expressed".to_owned(),
            );
        }
        if matches!(target, Target::Verdict(Action::Drop | Action::Reject)) {
            // A frame that is not accepted is not sent.
            statements.set_dscp = None;
            statements.set_mss = None;
        }
        Ok((statements, target))
    }

    /// Sets a field that no statement has set.
    fn set<T>(field: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
        match field.replace(value) {
            None => Ok(()),
            Some(_) => Err(format!("two statements '{name}'")),
        }
    }

    /// Reads a statement of nftables. Returns the conditions that it implies; `None` if it is not one of these statements.
    ///
    /// # Errors
    /// The reason why it cannot be expressed.
    pub(super) fn read_nft(
        &mut self,
        key: &str,
        value: &Value,
    ) -> Result<Option<Vec<Alternatives>>, String> {
        match key {
            "reject" => {
                let (with, implied) = answer_of_nft(value)?;
                self.statements.reject_with = with;
                self.target = Some(Target::Verdict(Action::Reject));
                return Ok(Some(implied.map(|one| vec![one]).into_iter().collect()));
            }
            "log" => self.log(value)?,
            "dup" => self.dup(value)?,
            "mangle" => return self.mangle(value).map(Some),
            _ => return Ok(None),
        }
        Ok(Some(Vec::new()))
    }

    fn log(&mut self, value: &Value) -> Result<(), String> {
        let none = Map::new();
        let options = value.as_object().unwrap_or(&none);
        for (key, value) in options {
            match (key.as_str(), value.as_str()) {
                ("prefix", Some(prefix)) => self.set_prefix(prefix)?,
                _ => return Err(format!("'log {key}' cannot be expressed")),
            }
        }
        self.log_each()
    }

    /// Logs every packet.
    pub(super) fn log_each(&mut self) -> Result<(), String> {
        Self::set(&mut self.statements.log, 1, "log")
    }

    /// Sets the prefix of a log. The log writes a space behind it.
    pub(super) fn set_prefix(&mut self, prefix: &str) -> Result<(), String> {
        let prefix = prefix.trim_end().to_owned();
        let is_usual = |one: char| one.is_ascii_graphic() || one == ' ';
        if prefix.len() > 64 || !prefix.chars().all(is_usual) {
            return Err("a log prefix with other than up to 64 printable characters".to_owned());
        }
        match prefix.is_empty() {
            true => Ok(()),
            false => Self::set(&mut self.statements.log_prefix, prefix, "log prefix"),
        }
    }

    fn dup(&mut self, value: &Value) -> Result<(), String> {
        // In family netdev, the device is the first operand.
        let device = value.get("addr").and_then(Value::as_str);
        let device = device.filter(|name| name.parse::<std::net::IpAddr>().is_err());
        match (device, value.get("dev")) {
            (Some(device), None) => Self::set(&mut self.statements.dup, device.to_owned(), "dup"),
            _ => Err("'dup' to an address cannot be expressed (use a device)".to_owned()),
        }
    }

    fn mangle(&mut self, value: &Value) -> Result<Vec<Alternatives>, String> {
        let wrong = || format!("'mangle {value}' cannot be expressed");
        let key = value.get("key").ok_or_else(wrong)?;
        let new = value.get("value").ok_or_else(wrong)?;
        let text = |object: &Value, key: &str| -> String {
            let text = object.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        if let Some(ct) = key.get("ct") {
            let name = text(ct, "key");
            if name != "mark" {
                return Err(format!("'ct {name} set' cannot be expressed"));
            }
            let bits = marks::set_bits(new)?;
            Self::set(&mut self.statements.set_ct_mark, bits, "ct mark set")?;
            return Ok(Vec::new());
        }
        if let Some(payload) = key.get("payload") {
            let header = text(payload, "protocol");
            let implied = match (header.as_str(), text(payload, "field").as_str()) {
                ("ip", "dscp") => IPV4,
                ("ip6", "dscp") => IPV6,
                (header, field) => {
                    return Err(format!("'{header} {field} set' cannot be expressed"));
                }
            };
            let dscp = match new {
                Value::String(name) => name.parse::<Dscp>()?,
                Value::Number(number) => number.to_string().parse::<Dscp>()?,
                _ => return Err(wrong()),
            };
            self.set_dscp(dscp)?;
            return Ok(vec![vec![Condition::Ethertype(implied)]]);
        }
        let option = key.get("tcp option").ok_or_else(wrong)?;
        if text(option, "name") != "maxseg" {
            return Err(wrong());
        }
        let number = new.as_u64().and_then(|mss| u16::try_from(mss).ok());
        let of_path = new.pointer("/rt/key").and_then(Value::as_str);
        let limit = match (number, of_path) {
            (Some(octets), _) => MssLimit::Octets(octets),
            (None, Some("mtu")) => MssLimit::RtMtu,
            _ => {
                return Err(
                    "'tcp option maxseg size set' to other than a number or 'rt mtu'".to_owned(),
                );
            }
        };
        self.set_mss(limit)?;
        Ok(vec![vec![Condition::Protocol(Protocol(6))]])
    }

    /// Sets the DSCP.
    pub(super) fn set_dscp(&mut self, dscp: Dscp) -> Result<(), String> {
        Self::set(&mut self.statements.set_dscp, dscp, "dscp set")
    }

    /// Limits the maximum segment size.
    pub(super) fn set_mss(&mut self, limit: MssLimit) -> Result<(), String> {
        match limit {
            MssLimit::Octets(mss @ ..MSS_MIN) => Err(format!(
                "maximum segment size {mss} (allowed: {MSS_MIN} to 65535)"
            )),
            limit => Self::set(&mut self.statements.set_mss, limit, "maxseg size set"),
        }
    }
}

/// Returns the answer of a reject of nftables, `None` for a reset of TCP, and the condition that it implies.
fn answer_of_nft(value: &Value) -> Result<(Option<RejectWith>, Option<Condition>), String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let (kind, name) = (text("type"), text("expr"));
    let implied = match kind {
        // The default.
        None => return Ok((Some(RejectWith::PortUnreachable), None)),
        Some("tcp reset") => return Ok((None, Some(Condition::Protocol(Protocol(6))))),
        Some("icmp") => Some(Condition::Ethertype(IPV4)),
        Some("icmpv6") => Some(Condition::Ethertype(IPV6)),
        Some(_) => None,
    };
    let with = match (kind, name) {
        (Some("icmp" | "icmpv6" | "icmpx"), Some("port-unreachable")) => {
            RejectWith::PortUnreachable
        }
        (Some("icmp" | "icmpv6" | "icmpx"), Some("admin-prohibited")) => {
            RejectWith::AdminProhibited
        }
        (Some("icmp" | "icmpx"), Some("host-unreachable"))
        | (Some("icmpv6"), Some("addr-unreachable")) => RejectWith::HostUnreachable,
        (Some("icmp"), Some("net-unreachable")) | (Some("icmpv6" | "icmpx"), Some("no-route")) => {
            RejectWith::NoRoute
        }
        (Some("icmp"), Some("host-prohibited")) => RejectWith::HostProhibited,
        (Some("icmp"), Some("net-prohibited")) => RejectWith::NetProhibited,
        (kind, name) => {
            return Err(format!(
                "'reject with {} {}' cannot be expressed",
                kind.unwrap_or_default(),
                name.unwrap_or_default()
            ));
        }
    };
    Ok((Some(with), implied))
}

/// Returns the answer of `--reject-with` of iptables; `None` for a reset of TCP.
pub(super) fn answer_of_iptables(kind: &str) -> Result<Option<RejectWith>, String> {
    Ok(Some(match kind {
        "tcp-reset" => return Ok(None),
        "icmp-port-unreachable" | "icmp6-port-unreachable" => RejectWith::PortUnreachable,
        "icmp-host-unreachable" | "icmp6-addr-unreachable" => RejectWith::HostUnreachable,
        "icmp-net-unreachable" | "icmp6-no-route" => RejectWith::NoRoute,
        "icmp-admin-prohibited" | "icmp6-adm-prohibited" => RejectWith::AdminProhibited,
        "icmp-host-prohibited" => RejectWith::HostProhibited,
        "icmp-net-prohibited" => RejectWith::NetProhibited,
        _ => return Err(format!("'--reject-with {kind}' cannot be expressed")),
    }))
}
