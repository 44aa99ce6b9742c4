// SPDX-License-Identifier: Apache-2.0
//! Configuration of connection tracking: `[connections]`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use quietwire_tables::connections::{
    ENTRIES_MAX, Helper, LabelBits, MarkBits, Settings, SourceLimits, State, TIMEOUT_MAX_S,
    ZONES_MAX,
};
use quietwire_tables::filter::Protocol;
use serde::{Deserialize, Serialize};

use super::rules::RuleSetting;
use crate::error::SwitchError;

/// Default maximum number of connections.
const MAX_ENTRIES: u32 = 65_536;

/// Default share of the time of a saturated thread for frames that begin connections, percent.
const NEW_SHARE: u32 = 33;
/// Share without a limit, percent.
const NEW_SHARE_MAX: u32 = 100;

/// Default interval at which the active switch sends all entries, seconds.
pub const REFRESH_S: u32 = 30;
/// Maximum interval, seconds.
pub const REFRESH_MAX_S: u32 = 3600;

/// Settings of connection tracking. All keys are optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConnectionsSetting {
    /// Maximum number of connections. Default: 65536.
    pub max_entries: u32,
    /// Maximum number of connections that a source address has begun, in each zone. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_per_source: Option<u32>,
    /// Maximum number of half-open connections. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_half_open: Option<u32>,
    /// Maximum number of half-open connections that a source address has begun, in each zone. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_half_open_per_source: Option<u32>,
    /// Share of the time of a saturated forwarding thread for frames that begin connections, percent, 1 to 100. 100: no limit. Default: 40.
    pub new_share: u32,
    /// Connections have labels, which rules set and match. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub labels: bool,
    /// Protocols whose data announces further connections. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<Helper>,
    /// Timeouts by the name of the state, in kebab case, seconds. Default: those of [`quietwire_tables::connections::Timeouts`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<String, u32>,
    /// Zones. Ports of no zone share a zone without name.
    #[serde(rename = "zone", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<ZoneSetting>,
    /// Replication to a standby, or from the active switch. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationSetting>,
}

/// Role in the replication of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicationRole {
    /// Sends its connections to standbys.
    Active,
    /// Has the connections of the active switch.
    Standby,
}

/// Replication of connections, mappings of NAT and connections of load balancers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReplicationSetting {
    /// Role at the start.
    pub role: ReplicationRole,
    /// Address and TCP port at which standbys connect. Required for the active role; a standby uses it after it has taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Address and TCP port of the active switch. Required for the standby role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// Allows an address other than loopback for `listen`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_remote: bool,
    /// Interval at which the active switch sends all entries, seconds, 1 to [`REFRESH_MAX_S`]. Default: [`REFRESH_S`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<u32>,
}

/// Ports whose connections are apart from those of other ports, such as the ports of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ZoneSetting {
    /// Its name.
    pub name: String,
    /// Ports of the zone. They need not exist.
    pub ports: Vec<String>,
    /// Maximum number of its connections. Default: that of all connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
}

impl Default for ConnectionsSetting {
    fn default() -> Self {
        Self {
            max_entries: MAX_ENTRIES,
            max_per_source: None,
            max_half_open: None,
            max_half_open_per_source: None,
            new_share: NEW_SHARE,
            labels: false,
            helpers: Vec::new(),
            timeouts: BTreeMap::new(),
            zones: Vec::new(),
            replication: None,
        }
    }
}

impl ReplicationRole {
    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }
}

impl ReplicationSetting {
    /// Returns the interval at which all entries are sent.
    pub(crate) fn refresh(&self) -> Duration {
        Duration::from_secs(u64::from(self.refresh.unwrap_or(REFRESH_S)))
    }

    fn check(&self) -> Result<(), String> {
        match self.role {
            ReplicationRole::Active if self.listen.is_none() => {
                return Err("the active role requires an address (add `listen`)".to_owned());
            }
            ReplicationRole::Standby if self.peer.is_none() => {
                return Err(
                    "the standby role requires the address of the active switch (add `peer`)"
                        .to_owned(),
                );
            }
            ReplicationRole::Active | ReplicationRole::Standby => {}
        }
        if let Some(listen) = self.listen
            && !listen.ip().is_loopback()
            && !self.allow_remote
        {
            return Err(format!(
                "every host that reaches {listen} can read the connections (use a loopback address, or `allow-remote = true` in a network of the two switches only)"
            ));
        }
        let refresh = self.refresh.unwrap_or(REFRESH_S);
        if !(1..=REFRESH_MAX_S).contains(&refresh) {
            return Err(format!(
                "refresh of {refresh} s is out of range (allowed: 1 to {REFRESH_MAX_S})"
            ));
        }
        Ok(())
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
    /// Name of the zone.
    pub zone: Option<String>,
    /// Bits of the mark.
    pub mark: Option<MarkBits>,
    /// Bits of the label.
    pub label: Option<LabelBits>,
}

/// Returns the name of a state in configuration files.
fn key_of(state: State) -> String {
    state.name().replace('_', "-")
}

impl ConnectionsSetting {
    /// Returns the settings of the tracker.
    pub(crate) fn tracker(&self) -> Settings {
        let mut settings = Settings::of_size(self.max_entries);
        let limits = self.zones.iter().map(|zone| zone.max_entries);
        let limits = limits.map(|limit| limit.unwrap_or(self.max_entries));
        settings.zone_limits.extend(limits);
        for state in State::ALL {
            if let Some(seconds) = self.timeouts.get(&key_of(state)) {
                settings.timeouts = settings.timeouts.with(state, *seconds);
            }
        }
        settings
    }

    /// Returns the limits of the connections of a source address, if there are any.
    pub(crate) fn source_limits(&self) -> Option<SourceLimits> {
        let no_limit = SourceLimits::default();
        let limits = SourceLimits {
            connections: self.max_per_source.unwrap_or(no_limit.connections),
            half_open: self.max_half_open_per_source.unwrap_or(no_limit.half_open),
        };
        (limits != no_limit).then_some(limits)
    }

    /// Returns the share of the time for frames that begin connections, percent. `None` without a limit.
    pub(crate) fn new_share(&self) -> Option<u32> {
        (self.new_share < NEW_SHARE_MAX).then_some(self.new_share)
    }

    /// Returns the number of the zone of a port: 0 for ports of no zone.
    pub(crate) fn zone_of(&self, port: &str) -> u16 {
        let mut zones = self.zones.iter();
        let at = zones.position(|zone| zone.ports.iter().any(|one| one == port));
        at.and_then(|at| u16::try_from(at.checked_add(1)?).ok())
            .unwrap_or(0)
    }

    /// Returns the number of a zone.
    pub(crate) fn zone_number(&self, name: &str) -> Option<u16> {
        let at = self.zones.iter().position(|zone| zone.name == name)?;
        u16::try_from(at.checked_add(1)?).ok()
    }

    /// Returns the name of a zone. `None` for that of ports of no zone.
    pub(crate) fn zone_name(&self, number: u16) -> Option<&str> {
        let zone = self.zones.get(usize::from(number).checked_sub(1)?)?;
        Some(&zone.name)
    }

    fn check_zones(&self) -> Result<(), String> {
        let zones_max = usize::from(ZONES_MAX).saturating_sub(1);
        if self.zones.len() > zones_max {
            return Err(format!("too many zones (maximum: {zones_max})"));
        }
        let (mut names, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for ZoneSetting {
            name,
            ports: of_zone,
            max_entries,
        } in &self.zones
        {
            if name.is_empty() || !names.insert(name) {
                return Err(format!(
                    "zone '{name}': the name is empty or of another zone (use unique names)"
                ));
            }
            if let Some(port) = of_zone.iter().find(|port| !ports.insert(*port)) {
                return Err(format!(
                    "zone '{name}': port '{port}' is in a zone already (list it once)"
                ));
            }
            let limit = max_entries.unwrap_or(self.max_entries);
            if !(1..=self.max_entries).contains(&limit) {
                return Err(format!(
                    "zone '{name}': max-entries {limit} is out of range (allowed: 1 to {}, the maximum of all connections)",
                    self.max_entries
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let entries = self.max_entries;
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(format!(
                "max-entries {entries} is out of range (allowed: 1 to {ENTRIES_MAX})"
            ));
        }
        for (key, limit) in [
            ("max-per-source", self.max_per_source),
            ("max-half-open", self.max_half_open),
            ("max-half-open-per-source", self.max_half_open_per_source),
        ] {
            if let Some(limit) = limit
                && !(1..=entries).contains(&limit)
            {
                return Err(format!(
                    "{key} {limit} is out of range (allowed: 1 to {entries}, the maximum of all connections)"
                ));
            }
        }
        let share = self.new_share;
        if !(1..=NEW_SHARE_MAX).contains(&share) {
            return Err(format!(
                "new-share of {share} % is out of range (allowed: 1 to {NEW_SHARE_MAX})"
            ));
        }
        for (name, seconds) in &self.timeouts {
            if !State::ALL.into_iter().any(|state| key_of(state) == *name) {
                let names = State::ALL.map(key_of).join(", ");
                return Err(format!("unknown timeout '{name}' (available: {names})"));
            }
            if !(1..=TIMEOUT_MAX_S).contains(seconds) {
                return Err(format!(
                    "timeout '{name}' of {seconds} s is out of range (allowed: 1 to {TIMEOUT_MAX_S})"
                ));
            }
        }
        if let Some(replication) = &self.replication {
            let checked = replication.check();
            checked.map_err(|what| format!("replication: {what}"))?;
        }
        self.check_zones()
    }
}

/// Checks the replication without connection tracking.
///
/// # Errors
/// [`SwitchError::Config`].
pub(super) fn check_replication(
    setting: Option<&ReplicationSetting>,
    is_tracked: bool,
) -> Result<(), SwitchError> {
    let Some(setting) = setting else {
        return Ok(());
    };
    let checked = match is_tracked {
        true => Err(
            "the section [connections] has a section of its own for this (use [connections.replication])"
                .to_owned(),
        ),
        false => setting.check(),
    };
    checked.map_err(|what| SwitchError::Config {
        location: "replication".to_owned(),
        what,
    })
}

/// Returns the first key whose change from one section to another requires a restart. Timeouts, `max-half-open` and `new-share` can change at
/// run time. Without replication, the section can be added and removed.
pub(super) fn fixed_key(
    (former, next): (Option<&ConnectionsSetting>, Option<&ConnectionsSetting>),
) -> Option<&'static str> {
    let (Some(former), Some(next)) = (former, next) else {
        let mut either = former.into_iter().chain(next);
        let is_replicated = either.any(|one| one.replication.is_some());
        return is_replicated.then_some("connections.replication");
    };
    let ConnectionsSetting {
        max_entries,
        max_per_source,
        max_half_open: _,
        max_half_open_per_source,
        new_share: _,
        labels,
        helpers,
        timeouts: _,
        zones,
        replication,
    } = former;
    first_set([
        ("connections.max-entries", *max_entries != next.max_entries),
        (
            "connections.max-per-source",
            *max_per_source != next.max_per_source,
        ),
        (
            "connections.max-half-open-per-source",
            *max_half_open_per_source != next.max_half_open_per_source,
        ),
        ("connections.labels", *labels != next.labels),
        ("connections.helpers", *helpers != next.helpers),
        ("connections.zone", *zones != next.zones),
        ("connections.replication", *replication != next.replication),
    ])
}

/// Checks the settings, and that no rule requires connections without them.
///
/// # Errors
/// [`SwitchError::Config`].
pub(super) fn check(
    setting: Option<&ConnectionsSetting>,
    rules: &[Arc<RuleSetting>],
) -> Result<(), SwitchError> {
    let wrong = |location: String, what: String| Err(SwitchError::Config { location, what });
    let of_rule = |rule: &RuleSetting| format!("rule '{}'", rule.name);
    let has_labels = setting.is_some_and(|setting| setting.labels);
    let mut labelled = rules
        .iter()
        .filter_map(|rule| Some((rule, label_key(rule)?)));
    if !has_labels && let Some((rule, key)) = labelled.next() {
        return wrong(
            of_rule(rule),
            format!(
                "{key} requires labels of connections (set labels = true in the section [connections])"
            ),
        );
    }
    let Some(setting) = setting else {
        let mut tracked = rules
            .iter()
            .filter_map(|rule| Some((rule, tracking_key(rule)?)));
        return match tracked.next() {
            None => Ok(()),
            Some((rule, key)) => wrong(
                of_rule(rule),
                format!("{key} requires connection tracking (add a section [connections])"),
            ),
        };
    };
    if let Err(what) = setting.check() {
        return wrong("connections".to_owned(), what);
    }
    Ok(())
}

/// Returns the key of a rule that requires labels of connections, if it has one.
fn label_key(rule: &RuleSetting) -> Option<&'static str> {
    first_set([
        ("ct-label", rule.ct_label.is_some()),
        ("set-ct-label", rule.statements.set_ct_label.is_some()),
    ])
}

/// Returns the key of a rule that requires connection tracking, if it has one.
fn tracking_key(rule: &RuleSetting) -> Option<&'static str> {
    first_set([
        ("ct-state", rule.ct_state.is_some()),
        ("ct-mark", rule.ct_mark.is_some()),
        ("set-ct-mark", rule.statements.set_ct_mark.is_some()),
    ])
}

/// Returns the first key that is set.
fn first_set<const N: usize>(keys: [(&'static str, bool); N]) -> Option<&'static str> {
    let mut set = keys.into_iter().filter(|(_, is_set)| *is_set);
    set.next().map(|(key, _)| key)
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
        let source = |text: &str| parsed(text).unwrap().source_limits();
        let limited = "max-half-open = 9\nmax-half-open-per-source = 3\n";
        let limits = SourceLimits {
            half_open: 3,
            ..SourceLimits::default()
        };
        assert_eq!((source(""), source(limited)), (None, Some(limits)));
        let setting = parsed(limited).unwrap();
        assert_eq!(setting.max_half_open, Some(9));
        assert_eq!(
            parsed(&toml::to_string(&setting).unwrap()).unwrap(),
            setting
        );
        let shares = ["", "new-share = 30", "new-share = 100"];
        let shares = shares.map(|text| parsed(text).unwrap().new_share());
        assert_eq!(shares, [Some(33), Some(30), None]);
        let written = toml::to_string(&parsed("new-share = 30").unwrap()).unwrap();
        assert!(written.contains("new-share = 30"), "{written}");
        let helping = parsed("helpers = [\"ftp\", \"tftp\"]\n").unwrap();
        assert_eq!(helping.helpers, Helper::ALL);
        let written = toml::to_string(&helping).unwrap();
        assert_eq!(parsed(&written).unwrap(), helping);
        let error = parsed("helpers = [\"sip\"]\n").unwrap_err();
        assert!(error.contains("sip"), "{error}");
    }

    /// Returns a rule with this key.
    fn rule(key: &str, value: &str) -> [Arc<RuleSetting>; 1] {
        let rule = serde_json::json!({"name": "a", "action": "accept", key: value});
        let rule: RuleSetting = crate::testing::read(&rule);
        [Arc::new(rule)]
    }

    #[test]
    fn rules_with_marks_require_connection_tracking() {
        let setting = ConnectionsSetting::default();
        for key in ["ct-mark", "set-ct-mark"] {
            let rules = rule(key, "0x1/0x3");
            assert!(check(Some(&setting), &rules).is_ok());
            let error = check(None, &rules).unwrap_err().to_string();
            let expected = format!("rule 'a': {key} requires connection tracking");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn rules_with_labels_require_them() {
        let with = parsed("labels = true\n").unwrap();
        assert!(with.labels);
        assert_eq!(parsed(&toml::to_string(&with).unwrap()).unwrap(), with);
        let without = ConnectionsSetting::default();
        for key in ["ct-label", "set-ct-label"] {
            let rules = rule(key, "0x1/0x3");
            assert!(check(Some(&with), &rules).is_ok());
            for setting in [None, Some(&without)] {
                let error = check(setting, &rules).unwrap_err().to_string();
                let expected = format!("rule 'a': {key} requires labels of connections");
                assert!(error.contains(&expected), "{error}");
            }
        }
    }

    #[test]
    fn ports_are_in_zones_with_limits() {
        let text = "max-entries = 100\n[[zone]]\nname = \"red\"\nports = [\"a\", \"b\"]\nmax-entries = 7\n\
                    [[zone]]\nname = \"blue\"\nports = [\"c\"]\n";
        let setting = parsed(text).unwrap();
        assert_eq!(setting.tracker().zone_limits, [100, 7, 100]);
        let zones = ["a", "b", "c", "d"].map(|port| setting.zone_of(port));
        assert_eq!(zones, [1, 1, 2, 0]);
        assert_eq!(setting.zone_number("blue"), Some(2));
        let names = [0, 1, 2, 3].map(|zone| setting.zone_name(zone));
        assert_eq!(names, [None, Some("red"), Some("blue"), None]);
        let written = toml::to_string(&setting).unwrap();
        assert_eq!(parsed(&written).unwrap(), setting);
    }

    #[test]
    fn both_roles_of_replication_are_read_and_written() {
        for text in [
            "[replication]\nrole = \"active\"\nlisten = \"[::1]:9476\"\n",
            "[replication]\nrole = \"active\"\nlisten = \"192.0.2.1:9476\"\nallow-remote = true\nrefresh = 5\n",
            "[replication]\nrole = \"standby\"\npeer = \"192.0.2.1:9476\"\nlisten = \"127.0.0.1:9476\"\n",
        ] {
            let setting = parsed(text).unwrap();
            let written = toml::to_string(&setting).unwrap();
            assert_eq!(parsed(&written).unwrap(), setting, "{written}");
        }
        let text = "[replication]\nrole = \"standby\"\npeer = \"127.0.0.1:9476\"\n";
        let replication = parsed(text).unwrap().replication.unwrap();
        assert_eq!(replication.role, ReplicationRole::Standby);
        assert_eq!(replication.refresh(), Duration::from_secs(30));
    }

    #[test]
    fn impossible_settings_are_refused() {
        for (text, printed) in [
            ("max-entries = 0", "out of range"),
            ("max-entries = 100000000", "out of range"),
            ("max-per-source = 0", "max-per-source 0 is out of range"),
            ("max-half-open = 0", "max-half-open 0 is out of range"),
            ("new-share = 0", "new-share of 0 % is out of range"),
            ("new-share = 101", "new-share of 101 % is out of range"),
            (
                "max-entries = 9\nmax-half-open-per-source = 10",
                "max-half-open-per-source 10 is out of range (allowed: 1 to 9",
            ),
            ("[timeouts]\ntcp-open = 1", "available: tcp-syn-sent"),
            ("[timeouts]\ntcp-close = 0", "timeout 'tcp-close' of 0 s"),
            ("colour = 1", "colour"),
            (
                "[[zone]]\nname = \"a\"\nports = [\"p\"]\nmax-entries = 70000",
                "1 to 65536",
            ),
            (
                "[[zone]]\nname = \"a\"\nports = [\"p\", \"p\"]",
                "'p' is in a zone",
            ),
            (
                "[[zone]]\nname = \"a\"\nports = []\n[[zone]]\nname = \"a\"\nports = []",
                "use unique names",
            ),
            ("[replication]\nrole = \"active\"", "add `listen`"),
            (
                "[replication]\nrole = \"standby\"\nlisten = \"127.0.0.1:9476\"",
                "add `peer`",
            ),
            (
                "[replication]\nrole = \"active\"\nlisten = \"192.0.2.1:9476\"",
                "allow-remote = true",
            ),
            (
                "[replication]\nrole = \"active\"\nlisten = \"127.0.0.1:9476\"\nrefresh = 0",
                "refresh of 0 s",
            ),
            ("[replication]\nrole = \"backup\"", "backup"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
    }
}
