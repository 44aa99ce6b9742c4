// SPDX-License-Identifier: Apache-2.0
//! Kinds of events in the log of NAT: `nat-log-events`.

use quietwire_tables::nat::EventKinds;
use serde::{Deserialize, Serialize};

use crate::error::SwitchError;

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NatLogEvent {
    /// Port blocks that hosts get and return.
    Blocks,
    /// External addresses that hosts get with their first port block, and return with their last one.
    Bindings,
    /// Mappings that begin and end.
    Mappings,
    /// Packets without mapping because of a limit.
    Limits,
    /// Connections that NAT translates, with their remote endpoints.
    Sessions,
}

/// The kinds of events in the log. Default: port blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NatLogEvents(Vec<NatLogEvent>);

impl Default for NatLogEvents {
    fn default() -> Self {
        Self(vec![NatLogEvent::Blocks])
    }
}

impl NatLogEvents {
    /// Returns true for the default.
    pub(in crate::config) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the log has events of port blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.0.contains(&NatLogEvent::Blocks)
    }

    /// Returns true if the log has events of the external addresses of hosts.
    pub(crate) fn has_bindings(&self) -> bool {
        self.0.contains(&NatLogEvent::Bindings)
    }

    /// Returns true if the log has events of connections.
    pub(crate) fn has_sessions(&self) -> bool {
        self.0.contains(&NatLogEvent::Sessions)
    }

    /// Returns the kinds of events of NAT alone, as tables of NAT note them.
    pub(crate) fn kinds(&self) -> EventKinds {
        EventKinds {
            mappings: self.0.contains(&NatLogEvent::Mappings),
            limits: self.0.contains(&NatLogEvent::Limits),
        }
    }
}

/// Checks that the configuration has a log and names a kind if it selects kinds of events, and tracks the connections that it logs.
///
/// # Errors
/// [`SwitchError::Config`].
pub(in crate::config) fn check_log_events(
    (has_log, has_tracking): (bool, bool),
    events: Option<&NatLogEvents>,
) -> Result<(), SwitchError> {
    let what = match events {
        Some(_) if !has_log => "there is no log (set nat-log too)",
        Some(events) if events.0.is_empty() => {
            "no events (use blocks, bindings, mappings, limits or sessions, or remove nat-log)"
        }
        Some(events) if events.has_sessions() && !has_tracking => {
            "sessions are tracked connections (add a section [connections], or remove sessions)"
        }
        _ => return Ok(()),
    };
    Err(SwitchError::Config {
        location: "nat-log-events".to_owned(),
        what: what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::mapping::tests::FILE;
    use super::*;
    use crate::config::{Plan, Settings};

    /// Returns the plan of a configuration with these first lines.
    fn plan(first: &str) -> Result<Plan, String> {
        let settings = Settings::parse(Path::new("switch.toml"), &format!("{first}{FILE}"));
        let settings = settings.map_err(|error| error.to_string())?;
        let plan = settings.plan(&"0-3".parse().unwrap());
        plan.map_err(|error| error.to_string())
    }

    #[test]
    fn kinds_of_events_are_read_and_written_again() {
        let log = "nat-log = \"/var/log/nat\"\n";
        let default = plan(log).unwrap();
        assert!(default.nat_log_events.has_blocks());
        assert_eq!(default.nat_log_events.kinds(), EventKinds::default());
        assert!(!default.nat_log_events.has_sessions());
        assert!(!default.to_toml().unwrap().contains("nat-log-events"));
        let all = format!("{log}nat-log-events = [\"mappings\", \"limits\"]\n");
        let read = plan(&all).unwrap();
        assert!(!read.nat_log_events.has_blocks());
        let kinds = EventKinds {
            mappings: true,
            limits: true,
        };
        assert_eq!(read.nat_log_events.kinds(), kinds);
        let written = read.to_toml().unwrap();
        let again = Settings::parse(Path::new("switch.toml"), &written).unwrap();
        assert_eq!(again.nat_log_events, Some(read.nat_log_events));
        for (text, cure) in [
            ("nat-log-events = [\"blocks\"]\n", "set nat-log too"),
            (&*format!("{log}nat-log-events = []\n"), "remove nat-log"),
            (
                &*format!("{log}nat-log-events = [\"packets\"]\n"),
                "mappings",
            ),
            (
                &*format!("{log}nat-log-events = [\"sessions\"]\n"),
                "add a section [connections]",
            ),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(cure), "{error}");
        }
        let bindings = plan(&format!("{log}nat-log-events = [\"bindings\"]\n")).unwrap();
        let bindings = bindings.nat_log_events;
        assert!(bindings.has_bindings() && !bindings.has_blocks() && !bindings.has_sessions());
        let tracked = format!("{log}nat-log-events = [\"sessions\"]\n{FILE}[connections]\n");
        let settings = Settings::parse(Path::new("switch.toml"), &tracked).unwrap();
        let sessions = settings.plan(&"0-3".parse().unwrap()).unwrap();
        let sessions = sessions.nat_log_events;
        assert!(sessions.has_sessions() && !sessions.has_blocks());
        assert_eq!(sessions.kinds(), EventKinds::default());
    }
}
