// SPDX-License-Identifier: Apache-2.0
//! Statements of a rule, which act on frames beside its action.

use quietwire_tables::connections::{LabelBits, MarkBits};
use quietwire_tables::filter::{
    Action, Dscp, INSPECT_PACKETS_MAX, INSPECT_TIMEOUT_MAX_MS, Inspect, InspectFail, MssLimit,
    RejectWith,
};
use serde::{Deserialize, Serialize};

/// Smallest maximum segment size that a rule may set, octets (TCP_MIN_MSS of the kernel, include/net/tcp.h).
pub const MSS_MIN: u16 = 88;
/// Longest prefix of a log, octets.
const PREFIX_MAX: usize = 64;
/// Defaults of inspections: packets of a flow, and the time until a verdict.
const INSPECT_PACKETS: u8 = 8;
const INSPECT_TIMEOUT_MS: u16 = 100;

/// Statements of a rule, in the words of nftables. They apply before the action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StatementSetting {
    /// ICMP error about all rejected packets. Default: a reset of TCP, or 'admin-prohibited'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject_with: Option<RejectWith>,
    /// Logs one of this many matching frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<u32>,
    /// Text in front of lines of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_prefix: Option<String>,
    /// Name of the port that gets a copy of each matching frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dup: Option<String>,
    /// New DSCP of IPv4 and IPv6 packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_dscp: Option<Dscp>,
    /// Limit of the maximum segment size of TCP SYN segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_mss: Option<MssLimit>,
    /// Bits that are set in the marks of connections of matching packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_ct_mark: Option<MarkBits>,
    /// Bits that are set in the labels of connections of matching packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_ct_label: Option<LabelBits>,
    /// Name of the port of an inspector, which decides on the flows of matching frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect: Option<String>,
    /// Packets of a flow that the inspector gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect_packets: Option<u8>,
    /// Longest time until a verdict, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect_timeout_ms: Option<u16>,
    /// Action of the rule on packets without a verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspect_fail: Option<InspectFail>,
}

impl StatementSetting {
    /// Returns true if there are no statements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the key of a statement that sets a value of connections, if there is one.
    fn ct_key(&self) -> Option<&'static str> {
        match (self.set_ct_mark, self.set_ct_label) {
            (Some(_), _) => Some("set-ct-mark"),
            (None, Some(_)) => Some("set-ct-label"),
            (None, None) => None,
        }
    }

    /// Returns the statements as command-line options and values.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let words = [
            (
                "reject-with",
                self.reject_with.map(|with| with.name().to_owned()),
            ),
            ("log", self.log.map(|every| every.to_string())),
            ("log-prefix", self.log_prefix.clone()),
            ("dup", self.dup.clone()),
            ("set-dscp", self.set_dscp.map(|dscp| dscp.to_string())),
            ("set-mss", self.set_mss.map(|mss| mss.to_string())),
            ("set-ct-mark", self.set_ct_mark.map(|mark| mark.to_string())),
            (
                "set-ct-label",
                self.set_ct_label.map(|label| label.to_string()),
            ),
            ("inspect", self.inspect.clone()),
            (
                "inspect-packets",
                self.inspect_packets.map(|packets| packets.to_string()),
            ),
            (
                "inspect-timeout-ms",
                self.inspect_timeout_ms.map(|time| time.to_string()),
            ),
            (
                "inspect-fail",
                self.inspect_fail.map(|fail| fail.name().to_owned()),
            ),
        ];
        let set = words
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        set.collect()
    }

    /// Checks that the statements have an effect, given the action of the rule and whether a port exists.
    ///
    /// # Errors
    /// The problem and its cure.
    pub(super) fn check(
        &self,
        action: Action,
        is_port: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        if self.reject_with.is_some() && action != Action::Reject {
            return Err(format!(
                "reject-with requires action reject (a rule with action {} sends no answer)",
                action.name()
            ));
        }
        if self.log == Some(0) {
            return Err("log is 0 (use 1 to log every frame, or N to log one of N)".to_owned());
        }
        if let Some(prefix) = &self.log_prefix {
            let is_printable = |one: char| one.is_ascii_graphic() || one == ' ';
            if self.log.is_none() {
                return Err("log-prefix requires log (set log)".to_owned());
            }
            if prefix.len() > PREFIX_MAX || !prefix.chars().all(is_printable) {
                return Err(format!(
                    "log-prefix has other than up to {PREFIX_MAX} printable ASCII characters"
                ));
            }
        }
        if let Some(port) = self.dup.as_ref().filter(|port| !is_port(port)) {
            return Err(format!("dup: no such port: '{port}'"));
        }
        if let Some(MssLimit::Octets(mss @ ..MSS_MIN)) = self.set_mss {
            return Err(format!(
                "set-mss is {mss} (allowed: {MSS_MIN} to 65535, or \"{}\")",
                MssLimit::RtMtu
            ));
        }
        let sends = matches!(action, Action::Accept | Action::Continue);
        if !sends && (self.set_dscp.is_some() || self.set_mss.is_some()) {
            return Err(format!(
                "set-dscp and set-mss require action accept or continue (a rule with action {} sends no frame)",
                action.name()
            ));
        }
        if let Some(key) = self.ct_key().filter(|_| action != Action::Accept) {
            return Err(format!(
                "{key} requires action accept (a rule with action {} begins no connection)",
                action.name()
            ));
        }
        self.check_inspection(action, is_port)
    }

    fn check_inspection(
        &self,
        action: Action,
        is_port: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let Some(port) = &self.inspect else {
            let has_options = self.inspect_packets.is_some()
                || self.inspect_timeout_ms.is_some()
                || self.inspect_fail.is_some();
            return match has_options {
                true => Err("inspect-packets, inspect-timeout-ms and inspect-fail require inspect (set inspect)".to_owned()),
                false => Ok(()),
            };
        };
        if !is_port(port) {
            return Err(format!("inspect: no such port: '{port}'"));
        }
        if action != Action::Accept {
            return Err(format!(
                "inspect requires action accept (a rule with action {} decides by itself)",
                action.name()
            ));
        }
        if self.set_dscp.is_some() || self.set_mss.is_some() {
            return Err("inspect excludes set-dscp and set-mss (the inspector decides on packets as they were received)".to_owned());
        }
        if let Some(key) = self.ct_key() {
            return Err(format!("inspect excludes {key} (set it by another rule)"));
        }
        let packets = self.inspect_packets.unwrap_or(INSPECT_PACKETS);
        if !(1..=INSPECT_PACKETS_MAX).contains(&packets) {
            return Err(format!(
                "inspect-packets is {packets} (allowed: 1 to {INSPECT_PACKETS_MAX})"
            ));
        }
        let timeout_ms = self.inspect_timeout_ms.unwrap_or(INSPECT_TIMEOUT_MS);
        if !(1..=INSPECT_TIMEOUT_MAX_MS).contains(&timeout_ms) {
            return Err(format!(
                "inspect-timeout-ms is {timeout_ms} (allowed: 1 to {INSPECT_TIMEOUT_MAX_MS} ms)"
            ));
        }
        Ok(())
    }

    /// Returns the inspection in the form of forwarding threads, given the number of the inspector's port.
    pub(crate) fn inspection(&self, port: u16) -> Inspect {
        Inspect {
            port,
            packets: self.inspect_packets.unwrap_or(INSPECT_PACKETS),
            timeout_ms: self.inspect_timeout_ms.unwrap_or(INSPECT_TIMEOUT_MS),
            fail: self.inspect_fail.unwrap_or_default(),
        }
    }
}
