// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of ports and cross-connects.

use quietwire_host::CpuSequence;
use serde::{Deserialize, Serialize};

use super::bridging::BridgingSetting;
use super::edit::{absent, wrong};
use super::location::Location;
use super::settings::{CrossConnectSetting, PortSetting, Settings};
use crate::error::SwitchError;

/// Longest name of a port, octets.
pub const PORT_NAME_MAX: usize = 63;

/// Returns true if a port can have this name: 1 to [`PORT_NAME_MAX`] ASCII letters, digits, `_`, `.` and `-`. The schema of `DataPlane` has
/// the same rule.
#[must_use]
pub fn is_port_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    (1..=PORT_NAME_MAX).contains(&name.len()) && name.chars().all(is_allowed)
}

/// Checks the name of a port.
///
/// # Errors
/// A message with the beginning of the name.
pub(super) fn check_port_name(name: &str) -> Result<(), String> {
    if is_port_name(name) {
        return Ok(());
    }
    let shown: String = name.chars().take(PORT_NAME_MAX).collect();
    let rest = if shown == name { "" } else { "…" };
    Err(format!(
        "port name '{}{rest}' is invalid (use 1 to {PORT_NAME_MAX} ASCII letters, digits, '_', '.' and '-')",
        shown.escape_debug()
    ))
}

/// A new port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddPort {
    /// Its name.
    pub name: String,
    /// Its device URI.
    pub uri: String,
    /// Receive queues. Default: 1.
    pub rx_queues: Option<u16>,
    /// Transmit queues.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, round robin.
    pub rx_cpus: Option<CpuSequence>,
    /// The bridge to add it to.
    pub bridge: Option<String>,
    /// Its bridging settings.
    #[serde(default)]
    pub bridging: BridgingSetting,
}

impl Settings {
    pub(super) fn port(&mut self, name: &str) -> Result<&mut PortSetting, SwitchError> {
        self.ports
            .get_or_insert_default()
            .iter_mut()
            .find(|port| port.name == name)
            .ok_or_else(|| absent("port", name))
    }

    pub(super) fn add_port(&mut self, port: AddPort) -> Result<(), SwitchError> {
        if let Some(bridge) = &port.bridge {
            let bridge = self.bridge(bridge)?;
            bridge.ports.push(port.name.clone());
            bridge.location = Location::Request;
        }
        self.ports.get_or_insert_default().push(PortSetting {
            name: port.name,
            uri: port.uri,
            rx_queues: port.rx_queues,
            tx_queues: port.tx_queues,
            rx_cpus: port.rx_cpus,
            bridging: port.bridging,
            location: Location::Request,
        });
        Ok(())
    }

    pub(super) fn del_port(&mut self, name: &str) -> Result<(), SwitchError> {
        self.port(name)?;
        self.ports
            .get_or_insert_default()
            .retain(|port| port.name != name);
        self.cross_connects
            .get_or_insert_default()
            .retain(|pair| !pair.ports.iter().any(|port| port == name));
        self.forget_port_in_bridges(name);
        self.forget_interfaces_of(name);
        self.forget_rules(|rule| {
            let ports = [&rule.port, &rule.from].map(Option::as_deref);
            ports.contains(&Some(name))
        });
        self.check_no_inspector(name)?;
        self.forget_port_in_rules(name);
        self.forget_steering_of(name);
        Ok(())
    }

    pub(super) fn add_cross_connect(&mut self, ports: Vec<String>) {
        self.cross_connects
            .get_or_insert_default()
            .push(CrossConnectSetting {
                ports,
                location: Location::Request,
            });
    }

    pub(super) fn del_cross_connect(&mut self, port: &str) -> Result<(), SwitchError> {
        let pairs = self.cross_connects.get_or_insert_default();
        let before = pairs.len();
        pairs.retain(|pair| !pair.ports.iter().any(|one| one == port));
        if pairs.len() == before {
            return Err(wrong(
                "cross-connect",
                format!("port '{port}' is in no cross-connect"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_of_plain_characters() {
        let longest = "a".repeat(PORT_NAME_MAX);
        for name in ["a", "7", "left-1", "eth0.100", "_", &longest] {
            assert_eq!(check_port_name(name), Ok(()), "{name}");
        }
        let long = "a".repeat(1 << 20);
        for (name, shown) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("a\n", "'a\\n'"),
            ("a\u{1b}[2J", "'a\\u{1b}[2J'"),
            ("a,b", "'a,b'"),
            ("a=b", "'a=b'"),
            ("@a", "'@a'"),
            ("a/b", "'a/b'"),
            ("ä", "'ä'"),
            (&long, "aaa…'"),
        ] {
            let error = check_port_name(name).unwrap_err();
            assert!(error.contains(shown), "{error}");
            assert!(error.contains("use 1 to 63 ASCII letters"), "{error}");
            assert!(
                error.len() < 300 && !error.contains(char::is_control),
                "{error}"
            );
        }
    }
}
