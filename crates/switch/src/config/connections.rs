// SPDX-License-Identifier: Apache-2.0
//! Configuration of connection tracking: `[connections]`.

use std::collections::BTreeMap;

use ipnet::IpNet;
use quietwire_tables::connections::{ENTRIES_MAX, Settings, State, TIMEOUT_MAX_S};
use quietwire_tables::filter::Protocol;
use serde::{Deserialize, Serialize};

use super::rules::RuleSetting;
use crate::error::SwitchError;

/// Default maximum number of connections.
const MAX_ENTRIES: u32 = 65_536;

/// Settings of connection tracking. All keys are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConnectionsSetting {
    /// Maximum number of connections. Default: 65536.
    pub max_entries: u32,
    /// Time-outs by the name of the state, in kebab case, seconds. Default: those of [`quietwire_tables::connections::Timeouts`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u32>,
}

impl Default for ConnectionsSetting {
    fn default() -> Self {
        Self {
            max_entries: MAX_ENTRIES,
            timeouts: BTreeMap::new(),
        }
    }
}

/// Connections to show or to remove: those that match all given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConnectionSelection {
    /// IP protocol.
    pub protocol: Option<Protocol>,
    /// Name of the state, such as `tcp_established`.
    pub state: Option<String>,
    /// Prefix of one of the addresses.
    pub address: Option<IpNet>,
    /// One of the ports.
    pub port: Option<u16>,
}

/// Name of a state in configuration files.
fn key_of(state: State) -> String {
    state.name().replace('_', "-")
}

impl ConnectionsSetting {
    /// Returns the settings of the tracker.
    pub(crate) fn tracker(&self) -> Settings {
        let mut settings = Settings::of_size(self.max_entries);
        for state in State::ALL {
            if let Some(seconds) = self.timeouts.get(&key_of(state)) {
                settings.timeouts = settings.timeouts.with(state, *seconds);
            }
        }
        settings
    }

    fn check(&self) -> Result<(), String> {
        let entries = self.max_entries;
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(format!(
                "max-entries {entries} is out of range (allowed: 1 to {ENTRIES_MAX})"
            ));
        }
        for (name, seconds) in &self.timeouts {
            if !State::ALL.into_iter().any(|state| key_of(state) == *name) {
                let names = State::ALL.map(key_of).join(", ");
                return Err(format!("unknown time-out '{name}' (available: {names})"));
            }
            if !(1..=TIMEOUT_MAX_S).contains(seconds) {
                return Err(format!(
                    "time-out '{name}' of {seconds} s is out of range (allowed: 1 to {TIMEOUT_MAX_S})"
                ));
            }
        }
        Ok(())
    }
}

/// Checks the settings, and that no rule requires connections without them.
///
/// # Errors
/// [`SwitchError::Config`].
pub(super) fn check(
    setting: Option<&ConnectionsSetting>,
    rules: &[RuleSetting],
) -> Result<(), SwitchError> {
    let wrong = |location: String, what: String| Err(SwitchError::Config { location, what });
    let Some(setting) = setting else {
        return match rules.iter().find(|rule| rule.ct_state.is_some()) {
            None => Ok(()),
            Some(rule) => wrong(
                format!("rule '{}'", rule.name),
                "ct-state requires connection tracking (add a section [connections])".to_owned(),
            ),
        };
    };
    if let Err(what) = setting.check() {
        return wrong("connections".to_owned(), what);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ConnectionsSetting, String> {
        let setting: ConnectionsSetting =
            toml::from_str(text).map_err(|error| error.to_string())?;
        check(Some(&setting), &[]).map_err(|error| error.to_string())?;
        Ok(setting)
    }

    #[test]
    fn settings_lead_to_those_of_the_tracker() {
        let setting =
            parsed("max-entries = 100\n[timeouts]\ntcp-established = 9\nudp-unreplied = 2\n");
        let tracker = setting.unwrap().tracker();
        assert_eq!((tracker.entries_max, tracker.zone_limits), (100, vec![100]));
        let of = |state| tracker.timeouts.of(state);
        assert_eq!((of(State::TcpEstablished), of(State::UdpUnreplied)), (9, 2));
        assert_eq!(of(State::UdpReplied), 300);
        assert_eq!(parsed("").unwrap(), ConnectionsSetting::default());
    }

    #[test]
    fn impossible_settings_are_refused() {
        for (text, printed) in [
            ("max-entries = 0", "out of range"),
            ("max-entries = 100000000", "out of range"),
            ("[timeouts]\ntcp-open = 1", "available: tcp-syn-sent"),
            ("[timeouts]\ntcp-close = 0", "time-out 'tcp-close' of 0 s"),
            ("colour = 1", "colour"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
    }
}
