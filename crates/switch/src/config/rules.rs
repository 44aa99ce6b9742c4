// SPDX-License-Identifier: Apache-2.0
//! Rules about which frames ports let in, as they are asked for: in the switch's file, in a file of their own, or one by one.

use std::collections::BTreeSet;
use std::path::Path;

use ipnet::IpNet;
use quietwire_packet::VlanId;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::file::{line_of, wrong};
use super::layer3::Placed;
use super::packets::{EtherType, Ports, Protocol, Words};
use super::{Place, Settings};
use crate::error::SwitchError;
use crate::filter::RULES_MAX;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It goes on.
    #[default]
    Accept,
    /// It goes nowhere, without a word to its sender.
    Drop,
}

/// A rule: what becomes of frames that are as it says. What it does not say may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleSetting {
    /// Its name.
    pub name: String,
    /// What becomes of the frames.
    pub action: Action,
    /// The port that they come in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The bridge of that port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// VLAN of their outermost tag, as they come in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// What they carry, behind their tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<EtherType>,
    /// What the IP packet carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Where packets are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    /// Where they are to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpNet>,
    /// Their source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<Ports>,
    /// Their destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Ports>,
}

impl RuleSetting {
    /// What it says of packets.
    pub(crate) fn words(&self) -> Words {
        Words {
            ethertype: self.ethertype,
            protocol: self.protocol,
            source: self.source,
            destination: self.destination,
            source_port: self.source_port,
            destination_port: self.destination_port,
        }
    }
}

/// All rules, and what becomes of frames that none of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleSetting>,
    /// Without a rule that matches. With [`Action::Accept`] a port that no rule is about lets everything in.
    pub default: Action,
}

/// A file of rules: `[[rule]]`, and `rule-default`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    rule_default: Option<Action>,
    #[serde(default)]
    rule: Vec<Spanned<RuleSetting>>,
}

/// What a file of rules says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// The rules, each with its line.
    pub rules: Vec<Placed<RuleSetting>>,
    /// What becomes of the other frames, where it says so.
    pub default: Option<Action>,
}

impl RuleFile {
    /// Reads a file of rules.
    ///
    /// # Errors
    /// [`SwitchError::Unreadable`]; [`SwitchError::Config`] with file, line and key.
    pub fn read(path: &Path) -> Result<Self, SwitchError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SwitchError::Unreadable {
            path: path.to_owned(),
            cause: cause.to_string(),
        })?;
        Self::parse(path, &text)
    }

    /// Reads the text of such a file; `path` is for messages.
    ///
    /// # Errors
    /// [`SwitchError::Config`] with file, line and key.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SwitchError> {
        let file: File = toml::from_str(text).map_err(|error| wrong(path, text, &error))?;
        let placed = |rule: Spanned<RuleSetting>| Placed {
            place: Place::File {
                path: path.to_owned(),
                line: line_of(text, rule.span().start),
                key: "rule",
            },
            value: rule.into_inner(),
        };
        Ok(Self {
            rules: file.rule.into_iter().map(placed).collect(),
            default: file.rule_default,
        })
    }

    /// As settings, which say nothing else.
    #[must_use]
    pub fn settings(self) -> Settings {
        Settings {
            rules: Some(self.rules),
            rule_default: self.default,
            ..Settings::default()
        }
    }
}

/// Plans rules, given the names of ports and bridges.
///
/// # Errors
/// [`SwitchError::Config`] for a rule that can match nothing.
pub(super) fn plan(
    settings: &Settings,
    ports: &BTreeSet<&str>,
    bridges: &BTreeSet<&str>,
) -> Result<Rules, SwitchError> {
    let mut rules: Vec<RuleSetting> = Vec::new();
    for Placed { value, place } in settings.rules.iter().flatten() {
        let name = &value.name;
        if name.is_empty() {
            return Err(place.wrong("the rule has no name"));
        }
        if rules.iter().any(|rule| rule.name == *name) {
            return Err(place.wrong(format!("there are two rules '{name}'")));
        }
        if rules.len() == RULES_MAX {
            return Err(place.wrong(format!("there are more than {RULES_MAX} rules")));
        }
        check_place(value, ports, bridges)
            .and_then(|()| value.words().check())
            .map_err(|what| place.wrong(format!("rule '{name}': {what}")))?;
        rules.push(value.clone());
    }
    Ok(Rules {
        rules,
        default: settings.rule_default.unwrap_or_default(),
    })
}

/// What is said of where frames come in.
fn check_place(
    rule: &RuleSetting,
    ports: &BTreeSet<&str>,
    bridges: &BTreeSet<&str>,
) -> Result<(), String> {
    match (&rule.port, &rule.bridge) {
        (Some(_), Some(_)) => {
            Err("say a port or a bridge: all ports of the bridge are meant then".to_owned())
        }
        (Some(port), None) if !ports.contains(port.as_str()) => {
            Err(format!("there is no port '{port}'"))
        }
        (None, Some(bridge)) if !bridges.contains(bridge.as_str()) => {
            Err(format!("there is no bridge '{bridge}'"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> Result<Rules, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.toml");
        std::fs::write(&path, text).unwrap();
        let file = RuleFile::read(&path).map_err(|error| error.to_string())?;
        let ports = BTreeSet::from(["a", "b"]);
        plan(&file.settings(), &ports, &BTreeSet::from(["lan"])).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "name = \"web\"\naction = \"accept\"\nport = \"a\"\nprotocol = \"tcp\"\ndestination-port = \"80-443\"\n",
            "name = \"arp\"\naction = \"accept\"\nbridge = \"lan\"\nvlan = 7\nethertype = \"arp\"\n",
            "name = \"all\"\naction = \"drop\"\n",
            "name = \"net\"\naction = \"drop\"\nethertype = \"ipv6\"\nsource = \"2001:db8::/32\"\n",
        ] {
            let rules = planned(&format!("rule-default = \"drop\"\n[[rule]]\n{text}")).unwrap();
            assert_eq!(rules.default, Action::Drop);
            assert_eq!(toml::to_string(&rules.rules[0]).unwrap(), text);
        }
        assert_eq!(planned("").unwrap(), Rules::default());
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_with_their_line() {
        let drop = "\n[[rule]]\nname = \"x\"\naction = \"drop\"\n";
        for (more, said) in [
            ("port = \"c\"", "no port 'c'"),
            ("bridge = \"wan\"", "no bridge 'wan'"),
            ("port = \"a\"\nbridge = \"lan\"", "a port or a bridge"),
            ("protocol = \"icmp\"\nsource-port = \"1\"", "have ports"),
            ("vlan = 4095", "line 5"),
            (
                "ethertype = \"arp\"\nsource = \"10.0.0.0/8\"",
                "carry no IP",
            ),
            (
                "source = \"10.0.0.0/8\"\ndestination = \"::/0\"",
                "two versions",
            ),
            ("colour = \"red\"", "colour"),
            ("[[rule]]\nname = \"y\"", "action"),
            ("[[rule]]\nname = \"y\"\naction = \"reject\"", "reject"),
            ("[[rule]]\nname = \"x\"\naction = \"drop\"", "line 5"),
            ("[[rule]]\nname = \"\"\naction = \"drop\"", "no name"),
        ] {
            let error = planned(&format!("{drop}{more}\n")).unwrap_err();
            assert!(
                error.contains(said) && error.contains("rules.toml"),
                "{more}: {error}"
            );
        }
        let many = |count: usize| -> String {
            (0..count)
                .map(|n| format!("[[rule]]\nname = \"{n}\"\naction = \"accept\"\n"))
                .collect()
        };
        assert_eq!(planned(&many(RULES_MAX)).unwrap().rules.len(), RULES_MAX);
        let error = planned(&many(RULES_MAX + 1)).unwrap_err();
        assert!(error.contains("more than 256"), "{error}");
    }
}
