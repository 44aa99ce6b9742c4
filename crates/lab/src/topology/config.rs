// SPDX-License-Identifier: Apache-2.0
//! Configuration of quietwire's switch in a topology: the part of a configuration file that the lab does not write itself.

use std::path::Path;

use quietwire_switch::config::Settings;

/// Keys that a configuration may have. The lab writes ports, joins, interfaces, routes, CPUs and memory.
pub const CONFIG_KEYS: [&str; 7] = [
    "rule-default",
    "rule-malformed",
    "rule",
    "set",
    "connections",
    "nat",
    "load-balancer",
];
/// Maximum length, octets.
const LENGTH_MAX: usize = 4 << 20;

/// Checks the keys and the values of a configuration, without the ports and interfaces that it refers to.
///
/// # Errors
/// The first fault, as a clause.
pub(super) fn check_config(text: &str) -> Result<(), String> {
    if text.len() > LENGTH_MAX {
        return Err(format!(
            "its configuration has {} octets (maximum: {LENGTH_MAX})",
            text.len()
        ));
    }
    Settings::parse(Path::new("config"), text).map_err(|error| error.to_string())?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    match table
        .keys()
        .find(|key| !CONFIG_KEYS.contains(&key.as_str()))
    {
        None => Ok(()),
        Some(key) => Err(format!(
            "the lab sets '{key}' itself (a configuration has only {})",
            CONFIG_KEYS.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_what_the_lab_does_not_write() {
        let text = "rule-default = \"drop\"\n[connections]\nmax-entries = 9\n[[nat]]\nname = \"n\"\ninterface = \"i1\"\n\
                    [[rule]]\nname = \"all\"\naction = \"accept\"\nct-state = \"new,established\"\n";
        check_config(text).unwrap();
        check_config("").unwrap();
        for (wrong, part) in [
            ("memory-mib = 64\n", "the lab sets 'memory-mib' itself"),
            (
                "[[port]]\nname = \"p0\"\nuri = \"null:\"\n",
                "the lab sets 'port' itself",
            ),
            ("nat-log = \"/tmp/log\"\n", "the lab sets 'nat-log' itself"),
            ("no-such-key = 1\n", "no-such-key"),
            ("[[rule]]\nname = \"x\"\n", "missing field"),
        ] {
            let error = check_config(wrong).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let long = "#".repeat(LENGTH_MAX + 1);
        assert!(check_config(&long).unwrap_err().contains("maximum"));
    }
}
