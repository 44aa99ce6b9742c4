// SPDX-License-Identifier: Apache-2.0
//! Names of rules as files, requests and reports have them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::super::packet::{Ports, Protocol, as_text};
use super::super::rule_match::OrSet;
use super::found::NAME_MAX;

/// Maximum number of names of a rule.
pub const NAMES_A_RULE_MAX: usize = 64;
/// Longest label, octets (RFC 1035, section 2.3.4).
const LABEL_MAX: usize = 63;
const TCP: Protocol = Protocol(6);
const UDP: Protocol = Protocol(17);

/// Protocol of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// Server name of TLS.
    Tls,
    /// Host of HTTP/1.
    Http,
    /// Question of DNS.
    Dns,
}

impl NameKind {
    /// Number of kinds.
    pub const COUNT: usize = 3;
    /// All kinds.
    pub const ALL: [Self; Self::COUNT] = [Self::Tls, Self::Http, Self::Dns];

    /// Returns its key in files, and its option.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Tls => "tls-name",
            Self::Http => "http-host",
            Self::Dns => "dns-name",
        }
    }

    /// Returns true if the protocol carries such names.
    fn is_of(self, protocol: Protocol) -> bool {
        protocol == TCP || (self == Self::Dns && protocol == UDP)
    }
}

/// Behaviour of a rule for packets whose name cannot be decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameFail {
    /// A rule that accepts does not match, and a rule that drops or rejects does.
    #[default]
    Closed,
    /// A rule that accepts matches, and a rule that drops or rejects does not.
    Open,
}

impl NameFail {
    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }
}

/// A name, in lower case: `www.example.org` alone, or `*.example.org` for all names below `example.org`, of which it is none itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

impl NamePattern {
    /// Returns true for all names below a name.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Returns the name, without `*.`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.strip_prefix("*.").unwrap_or(&self.0)
    }

    /// Returns true if it is this name, or the name is below it. The name is in lower case.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if !self.is_wildcard() {
            return self.0 == name;
        }
        let above = name.strip_suffix(self.name());
        above.is_some_and(|above| above.len() > 1 && above.ends_with('.'))
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let lower = lower.strip_suffix('.').unwrap_or(&lower);
        let name = lower.strip_prefix("*.").unwrap_or(lower);
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || "-_".contains(one);
        let is_label =
            |label: &str| (1..=LABEL_MAX).contains(&label.len()) && label.chars().all(is_allowed);
        match name.len() <= NAME_MAX && name.split('.').all(is_label) {
            true => Ok(Self(lower.to_owned())),
            false => Err(format!(
                "'{text}' is not a name (examples: www.example.org, *.example.org, xn--bcher-kva.example for names that are not ASCII)"
            )),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

as_text!(NamePattern);

/// Names of a rule: of one kind, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NameMatch {
    /// Server names of TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_name: Vec<NamePattern>,
    /// Hosts of HTTP/1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_host: Vec<NamePattern>,
    /// Names that DNS queries ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_name: Vec<NamePattern>,
    /// Behaviour of the rule for packets whose name cannot be decided on. Default: closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_fail: Option<NameFail>,
}

impl NameMatch {
    /// Returns the names of each kind.
    fn all(&self) -> [(NameKind, &[NamePattern]); NameKind::COUNT] {
        [
            (NameKind::Tls, self.tls_name.as_slice()),
            (NameKind::Http, self.http_host.as_slice()),
            (NameKind::Dns, self.dns_name.as_slice()),
        ]
    }

    /// Returns the kind and the names; `None` for a rule without names.
    #[must_use]
    pub fn names(&self) -> Option<(NameKind, &[NamePattern])> {
        let mut all = self.all().into_iter();
        all.find(|(_, names)| !names.is_empty())
    }

    /// Returns true if it is one of the names, or below one. The name is in lower case.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names()
            .is_some_and(|(_, names)| names.iter().any(|one| one.matches(name)))
    }

    /// Returns the names as text, with commas between them.
    #[must_use]
    pub fn list(&self) -> String {
        self.names()
            .map(|(_, names)| list(names))
            .unwrap_or_default()
    }

    /// Returns the action on packets whose name cannot be decided on.
    #[must_use]
    pub fn fail(&self) -> NameFail {
        self.name_fail.unwrap_or_default()
    }

    /// Returns the names as command-line options and values.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let set = self
            .all()
            .into_iter()
            .filter(|(_, names)| !names.is_empty());
        let mut words: Vec<_> = set.map(|(kind, names)| (kind.key(), list(names))).collect();
        words.extend(
            self.name_fail
                .map(|fail| ("name-fail", fail.name().to_owned())),
        );
        words
    }

    /// Checks that a rule with this protocol and these destination ports can have the names.
    ///
    /// # Errors
    /// The problem and its cure.
    pub fn check(
        &self,
        protocol: Option<Protocol>,
        destination_port: Option<&OrSet<Ports>>,
    ) -> Result<(), String> {
        let Some((kind, names)) = self.names() else {
            return match self.name_fail {
                Some(_) => {
                    Err("name-fail requires tls-name, http-host or dns-name (set one)".to_owned())
                }
                None => Ok(()),
            };
        };
        let of_kinds = self.all().into_iter();
        if of_kinds.filter(|(_, names)| !names.is_empty()).count() > 1 {
            return Err(
                "tls-name, http-host and dns-name exclude each other (use a rule for each)"
                    .to_owned(),
            );
        }
        let key = kind.key();
        if names.len() > NAMES_A_RULE_MAX {
            return Err(format!(
                "{key}: too many names (maximum: {NAMES_A_RULE_MAX}; use more rules)"
            ));
        }
        if !protocol.is_some_and(|protocol| kind.is_of(protocol)) {
            let wanted = match kind {
                NameKind::Dns => "tcp or udp",
                _ => "tcp",
            };
            return Err(format!(
                "{key} requires protocol {wanted} (set the protocol)"
            ));
        }
        match destination_port {
            Some(OrSet::Value(_)) => Ok(()),
            _ => Err(format!(
                "{key} requires destination-port: a port or a range, not a set (set the port of the servers)"
            )),
        }
    }
}

/// Returns a list of names as text.
fn list(names: &[NamePattern]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.0.as_str()).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_read_in_lower_case_and_without_the_root() {
        for (text, written) in [
            ("example.org", "example.org"),
            ("*.Example.ORG.", "*.example.org"),
            ("localhost", "localhost"),
            ("_dns.resolver.arpa", "_dns.resolver.arpa"),
            ("192.0.2.1", "192.0.2.1"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(pattern(text).to_string(), written);
            let json = serde_json::to_string(&pattern(text)).unwrap();
            assert_eq!(
                serde_json::from_str::<NamePattern>(&json).unwrap(),
                pattern(written)
            );
        }
        let label = "a".repeat(LABEL_MAX);
        assert!(label.parse::<NamePattern>().is_ok());
        let longest = [&label[..], &label[..], &label[..], &label[2..]].join(".");
        assert_eq!(longest.len(), NAME_MAX);
        assert!(longest.parse::<NamePattern>().is_ok());
        for wrong in [
            "",
            ".",
            "*",
            "*.",
            "a..b",
            "*.*.org",
            "w*.example.org",
            "a b.org",
            "bücher.example",
            "example.org:443",
            "[::1]",
            format!("{label}a").as_str(),
            format!("a{longest}").as_str(),
        ] {
            let error = wrong.parse::<NamePattern>().unwrap_err();
            assert!(error.contains("is not a name"), "{error}");
        }
    }

    #[test]
    fn a_wildcard_matches_all_names_below_and_not_its_own() {
        let wildcard = pattern("*.example.org");
        for (name, is_below) in [
            ("www.example.org", true),
            ("a.b.example.org", true),
            ("example.org", false),
            (".example.org", false),
            ("badexample.org", false),
            ("example.org.net", false),
        ] {
            assert_eq!(wildcard.matches(name), is_below, "{name}");
        }
        assert!(pattern("example.org").matches("example.org"));
        assert!(!pattern("example.org").matches("www.example.org"));
    }

    #[test]
    fn names_that_no_packet_can_have_are_refused() {
        let check = |json: &str, protocol: u8, ports: &str| {
            let names: NameMatch = serde_json::from_str(json).unwrap();
            let ports: Option<OrSet<Ports>> = ports.parse().ok();
            names.check(Some(Protocol(protocol)), ports.as_ref())
        };
        for (json, protocol) in [
            ("{}", 1),
            (r#"{"tls-name":["example.org"]}"#, 6),
            (r#"{"http-host":["*.example.org"],"name-fail":"open"}"#, 6),
            (r#"{"dns-name":["example.org"]}"#, 6),
            (r#"{"dns-name":["example.org"],"name-fail":"closed"}"#, 17),
        ] {
            assert_eq!(check(json, protocol, "1-443"), Ok(()), "{json}");
        }
        let many = vec!["a"; NAMES_A_RULE_MAX + 1];
        let many = serde_json::json!({ "tls-name": many }).to_string();
        for (json, protocol, ports, printed) in [
            (r#"{"name-fail":"open"}"#, 6, "443", "name-fail requires"),
            (
                r#"{"tls-name":["a"],"dns-name":["a"]}"#,
                6,
                "443",
                "exclude each other",
            ),
            (r#"{"tls-name":["a"]}"#, 17, "443", "protocol tcp (set"),
            (r#"{"dns-name":["a"]}"#, 132, "53", "protocol tcp or udp"),
            (r#"{"http-host":["a"]}"#, 6, "", "requires destination-port"),
            (r#"{"http-host":["a"]}"#, 6, "@web", "not a set"),
            (many.as_str(), 6, "443", "too many names"),
        ] {
            let error = check(json, protocol, ports).unwrap_err();
            assert!(error.contains(printed), "{json}: {error}");
        }
    }
}
