// SPDX-License-Identifier: Apache-2.0
//! Kinds of ports that may be added while the switch runs.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use quietwire_dpdk::PortKind;
use serde::{Deserialize, Serialize};

/// Texts for all kinds, for no kind, and for the option `netns` of ports.
const ANY: &str = "any";
const NONE: &str = "none";
const NETNS: &str = "netns";

/// Kinds of ports that may be added while the switch runs: `any`, `none`, or a list like `memif,tap,netns`. `netns` allows ports in other
/// network namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LaterPorts {
    /// Ports of every kind, in any network namespace.
    #[default]
    Any,
    /// Some ports.
    Only {
        /// Their kinds.
        kinds: BTreeSet<PortKind>,
        /// Whether their interfaces may be in other network namespaces.
        netns: bool,
    },
}

impl LaterPorts {
    /// Returns true if ports of this kind may be added.
    #[must_use]
    pub fn has(&self, kind: PortKind) -> bool {
        match self {
            Self::Any => true,
            Self::Only { kinds, .. } => kinds.contains(&kind),
        }
    }

    /// Returns the same, with another kind of ports.
    #[must_use]
    pub fn with(&self, kind: PortKind) -> Self {
        let mut all = self.clone();
        if let Self::Only { kinds, .. } = &mut all {
            kinds.insert(kind);
        }
        all
    }

    /// Returns the same, with other network namespaces.
    #[must_use]
    pub fn with_netns(&self) -> Self {
        let mut all = self.clone();
        if let Self::Only { netns, .. } = &mut all {
            *netns = true;
        }
        all
    }
}

impl fmt::Display for LaterPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Only { kinds, netns } = self else {
            return f.write_str(ANY);
        };
        let names = kinds.iter().map(|kind| kind.name());
        let names: Vec<&str> = names.chain(netns.then_some(NETNS)).collect();
        if names.is_empty() {
            return f.write_str(NONE);
        }
        f.write_str(&names.join(","))
    }
}

impl FromStr for LaterPorts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == ANY {
            return Ok(Self::Any);
        }
        let (mut kinds, mut netns) = (BTreeSet::new(), false);
        for name in text.split(',').filter(|_| text != NONE) {
            let kind = PortKind::ALL.into_iter().find(|kind| kind.name() == name);
            match kind {
                Some(kind) => {
                    kinds.insert(kind);
                }
                None if name == NETNS => netns = true,
                None => {
                    let known = PortKind::ALL.map(PortKind::name).join(", ");
                    return Err(format!(
                        "unknown kind of ports '{name}' (use {ANY}, {NONE}, or a list of {known} and {NETNS})"
                    ));
                }
            }
        }
        Ok(Self::Only { kinds, netns })
    }
}

impl TryFrom<String> for LaterPorts {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LaterPorts> for String {
    fn from(ports: LaterPorts) -> Self {
        ports.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_printed() {
        for text in ["any", "none", "netns", "memif,vhost", "tap,veth,netns"] {
            assert_eq!(text.parse::<LaterPorts>().unwrap().to_string(), text);
        }
        for kind in PortKind::ALL {
            let only: LaterPorts = kind.name().parse().unwrap();
            for other in PortKind::ALL {
                assert_eq!(only.has(other), other == kind);
            }
            assert!(LaterPorts::Any.has(kind));
        }
        let none: LaterPorts = "none".parse().unwrap();
        let more = none.with(PortKind::Tap).with_netns();
        assert_eq!(more.to_string(), "tap,netns");
        let any = LaterPorts::default();
        assert_eq!(any, LaterPorts::Any);
        assert_eq!(any.with(PortKind::Tap).with_netns(), any);
    }

    #[test]
    fn an_unknown_kind_is_named_with_the_known_ones() {
        for (text, name) in [("", ""), ("tap,", ""), ("memif,any", "any")] {
            let error = text.parse::<LaterPorts>().unwrap_err();
            for part in [&*format!("ports '{name}'"), "pci, pcap, null and netns"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
