// SPDX-License-Identifier: Apache-2.0
//! Validation of filter rules.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::{
    Action, LabelBits, MarkBits, MssLimit, NameFail, NamePattern, RuleSetting, Rules, SetName,
    SetSetting, SetType, continuing, port_set, sets,
};
use crate::config::location::{Located, Location};
use crate::config::settings::Settings;
use crate::config::shared_list::{CommonEnds, SharedList};
use crate::error::SwitchError;
use quietwire_tables::filter::{NameKind, NameMatch, RULES_MAX, RuleMatch, SET_USES_MAX, SetField};

/// A rule of the settings.
type LocatedRule = Located<Arc<RuleSetting>>;

/// Plans rules and sets, given the names of ports and bridges, and former settings with their rules if no port or bridge was removed since:
/// rules that have not changed are not checked again, unless names or types of sets have changed.
///
/// # Errors
/// [`SwitchError::Config`] for a rule that cannot match, or an invalid set.
pub(in crate::config) fn plan(
    settings: &Settings,
    ports: &BTreeSet<&str>,
    bridges: &BTreeSet<&str>,
    former: Option<(&Settings, &Rules)>,
) -> Result<Rules, SwitchError> {
    let default = settings.rule_default.unwrap_or_default();
    if default == Action::Continue {
        return Err(SwitchError::Config {
            location: "rules".to_owned(),
            what: "rule-default is continue (use accept, drop or reject)".to_owned(),
        });
    }
    let former_sets = former.map(|(former, rules)| (slice(&former.sets), &rules.sets[..]));
    let sets = sets::plan(slice(&settings.sets), former_sets.unwrap_or_default())?;
    let kept = former.filter(|(_, rules)| kinds(&sets).eq(kinds(&rules.sets)));
    if kept.is_some_and(|(_, rules)| has_more_ports(&rules.sets, &sets)) {
        let all = slice(&settings.rules);
        let counts = sets::port_counts(sets.iter().map(|set| &**set));
        check_compiled(all, &counts)?;
        continuing::check_passes(all, (ports, bridges), &counts)?;
    }
    let rules = match kept {
        Some((former, rules)) if settings.shares_rules_with(former) => rules.rules.clone(),
        kept => {
            let checked = kept.map(|(_, rules)| &rules.rules[..]);
            let checked = checked.unwrap_or_default();
            check_all(slice(&settings.rules), checked, &sets, (ports, bridges))?.into()
        }
    };
    Ok(Rules {
        rules,
        sets,
        default,
        malformed: settings.rule_malformed.unwrap_or_default(),
    })
}

/// Returns a list of settings.
fn slice<T>(list: &Option<SharedList<T>>) -> &[T] {
    list.as_ref().map(|list| &list[..]).unwrap_or_default()
}

/// Returns names and types of sets.
fn kinds(sets: &[Arc<SetSetting>]) -> impl Iterator<Item = (&SetName, SetType)> {
    sets.iter().map(|set| (&set.name, set.kind))
}

/// Returns true if a set of ports has more elements than before: rules of it are compiled more often. Both lists have the same sets.
fn has_more_ports(former: &[Arc<SetSetting>], sets: &[Arc<SetSetting>]) -> bool {
    let mut both = former.iter().zip(sets);
    both.any(|(former, now)| {
        now.kind == SetType::Ifname && now.elements.len() > former.elements.len()
    })
}

/// Returns all rules. Those that the former ones do not have are checked. The former ones were checked with the same ports, bridges and
/// sets, or with fewer ports and bridges.
fn check_all(
    all: &[LocatedRule],
    former: &[Arc<RuleSetting>],
    sets: &[Arc<SetSetting>],
    (ports, bridges): (&BTreeSet<&str>, &BTreeSet<&str>),
) -> Result<Vec<Arc<RuleSetting>>, SwitchError> {
    let ends = CommonEnds::of(former, all, |one, now| Arc::ptr_eq(one, &now.value));
    let (gone, new) = (ends.middle(former), ends.middle(all));
    let counts = sets::port_counts(sets.iter().map(|set| &**set));
    check_names(all, gone, new)?;
    check_number(all, gone, new, &counts)?;
    let kinds: HashMap<&SetName, SetType> = kinds(sets).collect();
    for Located { value, location } in new {
        let name = &value.name;
        check_position(value, (ports, bridges), &kinds)
            .and_then(|()| value.packet.check(|name| kinds.get(name).copied()))
            .and_then(|()| {
                let RuleMatch {
                    protocol,
                    destination_port,
                    ..
                } = &value.packet;
                value.names.check(*protocol, destination_port.as_ref())
            })
            .and_then(|()| {
                let is_port = |name: &str| ports.contains(name);
                value.statements.check(value.action, is_port)
            })
            .map_err(|what| location.wrong(format!("rule '{name}': {what}")))?;
    }
    check_uses(all, gone, new)?;
    continuing::check(all, new, (ports, bridges), &counts)?;
    Ok(all.iter().map(|rule| Arc::clone(&rule.value)).collect())
}

/// Checks that all rules have names of their own. Only new names are compared with others.
fn check_names(
    all: &[LocatedRule],
    gone: &[Arc<RuleSetting>],
    new: &[LocatedRule],
) -> Result<(), SwitchError> {
    let mut names: HashSet<&str> = HashSet::new();
    let duplicate = |rule: &LocatedRule| {
        let name = &rule.value.name;
        let what = format!("duplicate rule '{name}' (use unique names)");
        rule.location.wrong(what)
    };
    for rule in new {
        let name = rule.value.name.as_str();
        if name.is_empty() {
            return Err(rule.location.wrong("the rule has no name"));
        }
        if !names.insert(name) {
            return Err(duplicate(rule));
        }
    }
    for rule in gone {
        names.remove(rule.name.as_str());
    }
    if names.is_empty() || new.len() == all.len() {
        return Ok(());
    }
    // Each new name is at one rule, or at a second one.
    let mut owners: HashSet<&str> = HashSet::with_capacity(names.len());
    for rule in all {
        let name = names.get(rule.value.name.as_str());
        if name.is_some_and(|name| !owners.insert(name)) {
            return Err(duplicate(rule));
        }
    }
    Ok(())
}

/// Checks the number of rules, given the numbers of ports of sets.
fn check_number(
    all: &[LocatedRule],
    gone: &[Arc<RuleSetting>],
    new: &[LocatedRule],
    counts: &HashMap<&str, usize>,
) -> Result<(), SwitchError> {
    if let Some(rule) = all.get(RULES_MAX) {
        let what = format!("too many rules (maximum: {RULES_MAX})");
        return Err(rule.location.wrong(what));
    }
    let count = |rule: &RuleSetting| rule.times_compiled(counts);
    let sum_of_gone: usize = gone.iter().map(|rule| count(rule)).sum();
    let sum_of_new: usize = new.iter().map(|rule| count(&rule.value)).sum();
    if sum_of_new <= sum_of_gone {
        return Ok(());
    }
    check_compiled(all, counts)
}

/// Checks the number of compiled rules. A rule with several ports is compiled once for each.
fn check_compiled(all: &[LocatedRule], counts: &HashMap<&str, usize>) -> Result<(), SwitchError> {
    let mut compiled = 0usize;
    for Located { value, location } in all {
        compiled = compiled.saturating_add(value.times_compiled(counts));
        if compiled > RULES_MAX {
            return Err(location.wrong(format!(
                "rule '{}': too many rules (maximum: {RULES_MAX}; a rule with ports counts for each, and one with a set of ports for each element)",
                value.name
            )));
        }
    }
    Ok(())
}

/// Pairs of a field and a set, lists of names, and bits of marks and labels, that rules refer to.
#[derive(Debug, Default)]
struct RuleReferences<'rules> {
    sets: HashSet<(SetField, &'rules SetName)>,
    names: HashSet<NamesUse<'rules>>,
    marks: HashSet<MarkBits>,
    labels: HashSet<LabelBits>,
}

/// Names in connections, whether their rule accepts, and its action on names that cannot be decided on.
type NamesUse<'rules> = ((NameKind, &'rules [NamePattern]), bool, NameFail);

impl<'rules> RuleReferences<'rules> {
    fn of(rules: impl Iterator<Item = &'rules RuleSetting>) -> Self {
        let mut uses = Self::default();
        rules.for_each(|rule| uses.add(rule));
        uses
    }

    fn add(&mut self, rule: &'rules RuleSetting) {
        self.sets.extend(rule.packet.sets());
        let is_accepting = rule.action == Action::Accept;
        let names = rule.names.names();
        let fail = rule.names.fail();
        self.names
            .extend(names.map(|list| (list, is_accepting, fail)));
        self.marks.extend(rule.ct_mark);
        self.labels.extend(rule.ct_label);
    }

    fn count(&self) -> usize {
        let of_sets = self.sets.len().saturating_add(self.names.len());
        let of_connections = self.marks.len().saturating_add(self.labels.len());
        of_sets.saturating_add(of_connections)
    }

    fn is_within(&self, other: &Self) -> bool {
        self.sets.is_subset(&other.sets)
            && self.names.is_subset(&other.names)
            && self.marks.is_subset(&other.marks)
            && self.labels.is_subset(&other.labels)
    }
}

/// Checks that the rules refer to few enough pairs of a field and a set, lists of names, and bits of marks and labels.
fn check_uses(
    all: &[LocatedRule],
    gone: &[Arc<RuleSetting>],
    new: &[LocatedRule],
) -> Result<(), SwitchError> {
    let of_gone = RuleReferences::of(gone.iter().map(|rule| &**rule));
    let of_new = RuleReferences::of(new.iter().map(|rule| &*rule.value));
    if of_new.is_within(&of_gone) {
        return Ok(());
    }
    let mut uses = RuleReferences::default();
    for Located { value, location } in all {
        uses.add(value);
        if uses.count() > SET_USES_MAX {
            return Err(location.wrong(format!(
                "rule '{}': the rules use too many pairs of a field and a set, lists of names, marks, and labels (maximum: {SET_USES_MAX} in sum; use fewer of them)",
                value.name
            )));
        }
    }
    Ok(())
}

/// The port of an inspector, and the name and the location of the first rule of it.
type Inspector<'settings> = (&'settings str, &'settings str, &'settings Location);

/// Returns the ports of inspectors.
pub(in crate::config) fn inspectors(settings: &Settings) -> impl Iterator<Item = Inspector<'_>> {
    let mut known = BTreeSet::new();
    let rules = settings.rules.iter().flatten();
    rules.filter_map(move |Located { value, location }| {
        let port = value.statements.inspect.as_deref()?;
        known
            .insert(port)
            .then_some((port, value.name.as_str(), location))
    })
}

/// Checks that the port of an inspector has neither a source guard nor steering rules: the switch does not apply them to answers.
///
/// # Errors
/// [`SwitchError::Config`].
pub(in crate::config) fn check_inspectors(
    settings: &Settings,
    inspectors: &[Inspector<'_>],
) -> Result<(), SwitchError> {
    for &(port, rule, location) in inspectors {
        let mut ports = settings.ports.iter().flatten();
        let guard = ports
            .find(|one| one.name == port)
            .and_then(|one| one.bridging.source_guard.as_ref());
        if guard.is_some_and(|guard| !guard.is_empty()) {
            return Err(location.wrong(format!(
                "rule '{rule}': inspect: port '{port}' has a source guard, which does not apply to an inspector (remove source-guard)"
            )));
        }
        let mut steer = settings.steer.iter().flatten();
        if let Some(one) = steer.find(|one| one.value.port == port) {
            return Err(location.wrong(format!(
                "rule '{rule}': inspect: port '{port}' has steering rule '{}', which does not apply to an inspector (delete the steering rule)",
                one.value.name
            )));
        }
    }
    Ok(())
}

/// Checks that a port exists, or a set of ports: `@name`.
fn check_port(
    name: &str,
    ports: &BTreeSet<&str>,
    kinds: &HashMap<&SetName, SetType>,
) -> Result<(), String> {
    let Some(set) = port_set(name) else {
        return match ports.contains(name) {
            true => Ok(()),
            false => Err(format!("no such port: '{name}'")),
        };
    };
    let kind = kinds.iter().find(|(name, _)| name.0 == set);
    match kind.map(|(_, kind)| *kind) {
        Some(SetType::Ifname) => Ok(()),
        Some(kind) => Err(format!(
            "set '{set}' has type {kind}, which ports do not have (use a set of type ifname)"
        )),
        None => Err(format!("no such set: '{set}'")),
    }
}

/// Checks the ingress port and bridge, given the types of sets.
fn check_position(
    rule: &RuleSetting,
    (ports, bridges): (&BTreeSet<&str>, &BTreeSet<&str>),
    kinds: &HashMap<&SetName, SetType>,
) -> Result<(), String> {
    check_direction(rule, ports, kinds)?;
    let inspector = rule.statements.inspect.as_ref();
    let mut own = rule.port.iter().chain(&rule.ports);
    if let Some(port) = own.find(|port| inspector == Some(*port)) {
        return Err(format!(
            "inspect: '{port}' is a port of the rule (frames of an inspector pass no rules)"
        ));
    }
    if rule.vlan.is_some() && rule.packet.tagged == Some(false) {
        return Err("vlan and tagged = false exclude each other (remove one)".to_owned());
    }
    if !rule.ports.is_empty() && (rule.port.is_some() || rule.bridge.is_some()) {
        return Err("ports excludes port and bridge (set one of them)".to_owned());
    }
    if let Some(port) = rule
        .ports
        .iter()
        .find(|port| !ports.contains(port.as_str()))
    {
        return Err(format!("no such port: '{port}'"));
    }
    match (&rule.port, &rule.bridge) {
        (Some(_), Some(_)) => Err(
            "port and bridge exclude each other (a rule with a bridge applies to all of its ports)"
                .to_owned(),
        ),
        (Some(port), None) => check_port(port, ports, kinds),
        (None, Some(bridge)) if !bridges.contains(bridge.as_str()) => {
            Err(format!("no such bridge: '{bridge}'"))
        }
        _ => Ok(()),
    }
}

/// Checks what only one direction has.
fn check_direction(
    rule: &RuleSetting,
    ports: &BTreeSet<&str>,
    kinds: &HashMap<&SetName, SetType>,
) -> Result<(), String> {
    match &rule.from {
        Some(_) if !rule.is_out() => {
            return Err("from requires direction = \"out\" (use port)".to_owned());
        }
        Some(port) => check_port(port, ports, kinds).map_err(|what| format!("from: {what}"))?,
        None => {}
    }
    let statements = &rule.statements;
    if !rule.is_out() {
        return match statements.set_mss {
            Some(MssLimit::RtMtu) => Err(format!(
                "set-mss = \"{}\" requires direction = \"out\" (the port that a frame leaves by is not known when it is received)",
                MssLimit::RtMtu
            )),
            _ => Ok(()),
        };
    }
    if rule.action == Action::Reject || statements.inspect.is_some() {
        return Err(
            "direction = \"out\" excludes reject and inspect (use them for received frames)"
                .to_owned(),
        );
    }
    if rule.names != NameMatch::default() {
        return Err("tls-name, http-host and dns-name require direction = \"in\" (names are read when frames are received)".to_owned());
    }
    let of_connections = [
        ("set-ct-mark", statements.set_ct_mark.is_some()),
        ("set-ct-label", statements.set_ct_label.is_some()),
    ];
    match of_connections.into_iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(format!(
            "{key} requires direction = \"in\" (connections are tracked when frames are received)"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MalformedAction, RuleFile};
    use super::*;
    use crate::config::Change;
    use crate::counters::PORTS_MAX;

    fn planned(text: &str) -> Result<Rules, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.toml");
        std::fs::write(&path, text).unwrap();
        let file = RuleFile::read(&path).map_err(|error| error.to_string())?;
        let ports = BTreeSet::from(["a", "b"]);
        let bridges = BTreeSet::from(["lan"]);
        plan(&file.settings(), &ports, &bridges, None).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_checked_again_once_a_set_has_another_type() {
        let settings = |kind: &str, element: &str| {
            let text = format!(
                "[[set]]\nname = \"s\"\ntype = \"{kind}\"\nelements = [\"{element}\"]\n\
                 [[rule]]\nname = \"r\"\naction = \"drop\"\nsource = \"@s\"\n"
            );
            let file = RuleFile::parse(std::path::Path::new("rules.toml"), &text);
            file.unwrap().settings()
        };
        let none = BTreeSet::new();
        let before = settings("ipv4_addr", "10.0.0.1");
        let rules = plan(&before, &none, &none, None).unwrap();
        let with_sets_of = |other: Settings| Settings {
            sets: other.sets,
            ..before.clone()
        };
        let after = with_sets_of(settings("ipv4_addr", "10.0.0.2"));
        let planned = plan(&after, &none, &none, Some((&before, &rules))).unwrap();
        assert!(planned.rules.is_shared_with(&rules.rules));
        assert_ne!(planned.sets, rules.sets);
        let after = with_sets_of(settings("inet_service", "80"));
        let refused = plan(&after, &none, &none, Some((&before, &rules)));
        assert_eq!(
            refused.unwrap_err().to_string(),
            plan(&after, &none, &none, None).unwrap_err().to_string()
        );
    }

    /// Returns the number of elements that a list has in common with a former one, without copies.
    fn count_shared<T>(former: &[Arc<T>], now: &[Arc<T>]) -> usize {
        let former: HashSet<*const T> = former.iter().map(Arc::as_ptr).collect();
        let now = now.iter().map(Arc::as_ptr);
        now.filter(|one| former.contains(one)).count()
    }

    #[test]
    fn a_change_shares_all_other_rules_and_sets() {
        let text = "[[set]]\nname = \"s\"\ntype = \"inet_service\"\nelements = [\"1\", \"2\"]\n\
                    [[set]]\nname = \"t\"\ntype = \"inet_service\"\nelements = [\"1\", \"2\", \"1\"]\n\
                    [[rule]]\nname = \"a\"\naction = \"drop\"\n\
                    [[rule]]\nname = \"b\"\naction = \"drop\"\nprotocol = \"udp\"\nsource-port = \"@s\"\n\
                    [[rule]]\nname = \"c\"\naction = \"drop\"\nports = [\"a\", \"b\"]\n";
        let file = RuleFile::parse(std::path::Path::new("rules.toml"), text);
        let before = file.unwrap().settings();
        let (ports, bridges) = (BTreeSet::from(["a", "b"]), BTreeSet::new());
        let former = plan(&before, &ports, &bridges, None).unwrap();
        let after = |json: &str| {
            let change: Change = serde_json::from_str(json).unwrap();
            let settings = before.clone().after(change).unwrap();
            let planned = plan(&settings, &ports, &bridges, Some((&before, &former)));
            let alone = plan(&settings, &ports, &bridges, None);
            assert_eq!(planned.as_ref().ok(), alone.as_ref().ok(), "{json}");
            planned.map_err(|error| error.to_string())
        };
        for (json, rules, sets) in [
            (r#"{"set-rule":{"name":"b","action":"accept"}}"#, 2, 2),
            (
                r#"{"set-rule":{"name":"a","action":"accept","protocol":"tcp","destination-port":"@t"}}"#,
                2,
                2,
            ),
            (
                r#"{"add-rule":{"rule":{"name":"d","action":"drop"}}}"#,
                3,
                2,
            ),
            (
                r#"{"add-rule":{"rule":{"name":"d","action":"drop"},"before":"b"}}"#,
                3,
                2,
            ),
            (r#"{"del-rule":{"name":"a"}}"#, 2, 2),
            (r#"{"set-rules":{"default":"drop"}}"#, 3, 2),
            (r#"{"add-elements":{"set":"s","elements":["3"]}}"#, 3, 1),
            (r#"{"add-elements":{"set":"t","elements":["3","1"]}}"#, 3, 1),
            (r#"{"del-elements":{"set":"s","elements":["1"]}}"#, 3, 1),
            (r#"{"add-set":{"name":"u","type":"ether_addr"}}"#, 3, 2),
        ] {
            let planned = after(json).unwrap();
            let shared_rules = count_shared(&former.rules, &planned.rules);
            let shared_sets = count_shared(&former.sets, &planned.sets);
            assert_eq!((shared_rules, shared_sets), (rules, sets), "{json}");
        }
        for (json, printed) in [
            (
                r#"{"add-rule":{"rule":{"name":"a","action":"drop"}}}"#,
                "duplicate rule 'a'",
            ),
            (
                r#"{"add-rule":{"rule":{"name":"c","action":"drop"},"before":"a"}}"#,
                "duplicate rule 'c'",
            ),
            (
                r#"{"set-rule":{"name":"a","action":"drop","port":"x"}}"#,
                "no such port: 'x'",
            ),
            (
                r#"{"set-rule":{"name":"c","action":"drop","protocol":"tcp","destination-port":"@v"}}"#,
                "no such set: 'v'",
            ),
            (
                r#"{"add-set":{"name":"s","type":"ether_addr"}}"#,
                "duplicate set 's'",
            ),
            (
                r#"{"add-elements":{"set":"s","elements":["10.0.0.1"]}}"#,
                "has type ipv4_addr",
            ),
        ] {
            let error = after(json).unwrap_err();
            assert!(error.contains(printed), "{json}: {error}");
        }
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "name = \"web\"\naction = \"accept\"\nport = \"a\"\nprotocol = \"tcp\"\ndestination-port = \"80-443\"\n",
            "name = \"arp\"\naction = \"accept\"\nbridge = \"lan\"\nvlan = 7\nethertype = \"arp\"\n",
            "name = \"all\"\naction = \"drop\"\n",
            "name = \"syn\"\naction = \"drop\"\nprotocol = \"tcp\"\nsource-mac = \"02:00:00:00:00:01\"\ntcp-flags = \"syn / syn,ack\"\ndscp = \"ef\"\n",
            "name = \"ping\"\naction = \"accept\"\nprotocol = \"icmp\"\nicmp-type = 8\nicmp-code = 0\n",
            "name = \"net\"\naction = \"drop\"\nethertype = \"ipv6\"\nsource = \"2001:db8::/32\"\n",
            "name = \"no\"\naction = \"reject\"\nprotocol = \"tcp\"\nreject-with = \"port-unreachable\"\nlog = 10\nlog-prefix = \"no:\"\ndup = \"b\"\n",
            "name = \"some\"\naction = \"drop\"\nports = [\"a\", \"b\"]\nvlan = 7\n",
            "name = \"leave\"\naction = \"drop\"\ndirection = \"out\"\nport = \"a\"\nfrom = \"b\"\n",
            "name = \"tls\"\naction = \"accept\"\nprotocol = \"tcp\"\ndestination-port = \"443\"\ntls-name = [\"example.org\", \"*.example.org\"]\nname-fail = \"open\"\n",
            "name = \"ips\"\naction = \"accept\"\nport = \"a\"\ninspect = \"b\"\ninspect-packets = 3\ninspect-timeout-ms = 50\ninspect-fail = \"open\"\n",
            "name = \"voice\"\naction = \"accept\"\nprotocol = \"udp\"\nset-dscp = \"ef\"\nset-mss = 1400\n",
        ] {
            let rules = planned(&format!("rule-default = \"drop\"\n[[rule]]\n{text}")).unwrap();
            assert_eq!(rules.default, Action::Drop);
            assert_eq!(toml::to_string(&*rules.rules[0]).unwrap(), text);
        }
        assert_eq!(planned("").unwrap(), Rules::default());
        for (text, malformed) in [
            ("", MalformedAction::Drop),
            ("rule-malformed = \"drop\"", MalformedAction::Drop),
            ("rule-malformed = \"match\"", MalformedAction::Match),
        ] {
            assert_eq!(planned(text).unwrap().malformed, malformed, "{text}");
        }
        let error = planned("rule-malformed = \"accept\"").unwrap_err();
        assert!(
            error.contains("rules.toml") && error.contains("match"),
            "{error}"
        );
    }

    #[test]
    fn sets_are_planned_with_their_rules() {
        let sets = "[[set]]\nname = \"inside\"\ntype = \"ipv4_addr\"\ntimeout-s = 60\nelements = [\"10.0.0.0/8\", \"10.0.0.0/8\", \"192.0.2.1-192.0.2.9\"]\n";
        let rule = "[[rule]]\nname = \"x\"\naction = \"drop\"\nsource = \"@inside\"\n";
        let rules = planned(&format!("{sets}{rule}")).unwrap();
        assert_eq!(rules.sets[0].elements.len(), 2);
        assert_eq!(rules.sets[0].timeout_s, Some(60));
        let own = planned(&format!(
            "{rule}{sets}element-timeouts-s = {{ \"10.0.0.0/8\" = 5 }}\n"
        ));
        let own = Arc::clone(&own.unwrap().sets[0]);
        assert_eq!(own.element_timeouts_s.len(), 1);
        for (more, printed) in [
            (
                "[[set]]\nname = \"a\"\ntype = \"ipv4_addr\"\nelements = [\"10.0.0.1\"]\nelement-timeouts-s = { \"10.0.0.2\" = 5 }",
                "the set has no element '10.0.0.2'",
            ),
            (
                "[[set]]\nname = \"a\"\ntype = \"ipv4_addr\"\nelements = [\"10.0.0.1\"]\nelement-timeouts-s = { \"10.0.0.1\" = 0 }",
                "'10.0.0.1' is 0",
            ),
            (
                "[[set]]\nname = \"inside\"\ntype = \"ether_addr\"",
                "duplicate set 'inside'",
            ),
            (
                "[[set]]\nname = \"a\"\ntype = \"ether_addr\"\nelements = [\"10.0.0.1\"]",
                "type ether_addr",
            ),
            (
                "[[set]]\nname = \"a\"\ntype = \"ipv4_addr\"\nelements = [\"10.0.0\"]",
                "not an element",
            ),
            (
                "[[set]]\nname = \"a\"\ntype = \"ipv4_addr\"\ntimeout-s = 0",
                "timeout-s is 0",
            ),
            (
                "[[set]]\nname = \"a b\"\ntype = \"ipv4_addr\"",
                "not a name of a set",
            ),
            ("[[set]]\nname = \"a\"\ntype = \"verdict\"", "verdict"),
            (
                "[[rule]]\nname = \"y\"\naction = \"drop\"\nsource = \"@outside\"",
                "no such set: 'outside'",
            ),
            (
                "[[rule]]\nname = \"y\"\naction = \"drop\"\nsource-mac = \"@inside\"",
                "ether_addr",
            ),
        ] {
            let error = planned(&format!("{sets}{rule}{more}\n")).unwrap_err();
            assert!(
                error.contains(printed) && error.contains("rules.toml"),
                "{more}: {error}"
            );
        }
        let many = |count: usize| -> String {
            let of = |n| {
                format!(
                    "[[set]]\nname = \"s{n}\"\ntype = \"ipv4_addr\"\n[[rule]]\nname = \"{n}\"\naction = \"drop\"\nsource = \"@s{n}\"\n"
                )
            };
            (0..count).map(of).collect()
        };
        assert_eq!(
            planned(&many(SET_USES_MAX)).unwrap().sets.len(),
            SET_USES_MAX
        );
        let error = planned(&many(SET_USES_MAX + 1)).unwrap_err();
        assert!(error.contains("too many pairs"), "{error}");
        let named = |name: &str, action: &str, names: &str| {
            format!(
                "[[rule]]\nname = \"{name}\"\naction = \"{action}\"\nprotocol = \"udp\"\ndestination-port = \"53\"\ndns-name = [{names}]\n"
            )
        };
        // Lists of names count as sets do, the same list only once for each action.
        let names = named("a", "drop", "\"a.example\"")
            + &named("b", "drop", "\"a.example\"")
            + &named("c", "reject", "\"a.example\"");
        planned(&(many(SET_USES_MAX - 1) + &names)).unwrap();
        for one_more in [
            named("d", "accept", "\"a.example\""),
            named("d", "drop", "\"b.example\""),
        ] {
            let text = many(SET_USES_MAX - 1) + &names + &one_more;
            let error = planned(&text).unwrap_err();
            assert!(error.contains("too many pairs"), "{error}");
        }
        // So do bits of labels, the same ones only once.
        let labelled = |name: &str, bits: &str| {
            format!("[[rule]]\nname = \"{name}\"\naction = \"drop\"\nct-label = \"{bits}\"\n")
        };
        let labels = labelled("a", "1/1") + &labelled("b", "0x1/0x1");
        planned(&(many(SET_USES_MAX - 1) + &labels)).unwrap();
        let marked = labelled("d", "1").replace("ct-label", "ct-mark");
        planned(&(many(SET_USES_MAX - 2) + &labels + &marked)).unwrap();
        let error = planned(&(many(SET_USES_MAX - 1) + &labels + &marked)).unwrap_err();
        assert!(error.contains("too many pairs"), "{error}");
        let text = many(SET_USES_MAX - 1) + &labels + &labelled("c", "1");
        let error = planned(&text).unwrap_err();
        assert!(error.contains("too many pairs"), "{error}");
    }

    #[test]
    fn rules_refer_to_sets_of_ports_that_need_not_exist() {
        let set = "[[set]]\nname = \"guests\"\ntype = \"ifname\"\nelements = [\"a\", \"vm9\"]\n\
                   [[set]]\nname = \"web\"\ntype = \"inet_service\"\n";
        let rule = |keys: &str| {
            planned(&format!(
                "{set}[[rule]]\nname = \"x\"\naction = \"drop\"\n{keys}\n"
            ))
        };
        for keys in [
            "port = \"@guests\"",
            "direction = \"out\"\nport = \"@guests\"\nfrom = \"@guests\"",
            "direction = \"out\"\nport = \"a\"\nfrom = \"@guests\"",
        ] {
            rule(keys).unwrap();
        }
        for (keys, printed) in [
            ("port = \"@none\"", "no such set: 'none'"),
            ("port = \"@web\"", "set 'web' has type inet_service"),
            ("port = \"@guests\"\nbridge = \"lan\"", "port and bridge"),
            ("from = \"@guests\"", "from requires direction"),
            (
                "direction = \"out\"\nfrom = \"@web\"",
                "from: set 'web' has type",
            ),
            ("source = \"@guests\"", "which source does not have"),
        ] {
            let error = rule(keys).unwrap_err();
            assert!(error.contains(printed), "{keys}: {error}");
        }
    }

    #[test]
    fn a_rule_of_a_set_of_ports_counts_for_each_element() {
        let text = |count: usize, ports: usize| -> String {
            let names: Vec<String> = (0..ports).map(|n| format!("\"p{n}\"")).collect();
            let set = format!(
                "[[set]]\nname = \"guests\"\ntype = \"ifname\"\nelements = [{}]\n",
                names.join(", ")
            );
            let keys =
                "action = \"drop\"\ndirection = \"out\"\nport = \"@guests\"\nfrom = \"@guests\"\n";
            let rules = (0..count).map(|n| format!("[[rule]]\nname = \"{n}\"\n{keys}"));
            set + &rules.collect::<String>()
        };
        planned(&text(RULES_MAX / 1024, 32)).unwrap();
        let error = planned(&text(RULES_MAX / 1024 + 1, 32)).unwrap_err();
        assert!(error.contains("rule '97': too many rules"), "{error}");
        assert!(error.contains("a set of ports for each element"), "{error}");
        // A switch does not have so many ports.
        planned(&text(1, 2 * PORTS_MAX)).unwrap();
        assert!(planned(&text(2, 2 * PORTS_MAX)).is_err());
        // Rules do not change with the elements of their sets, but are compiled more often.
        let (ports, bridges) = (BTreeSet::new(), BTreeSet::new());
        let text = text(RULES_MAX / 1024, 32);
        let file = RuleFile::parse(std::path::Path::new("rules.toml"), &text);
        let settings = file.unwrap().settings();
        let rules = plan(&settings, &ports, &bridges, None).unwrap();
        let mut more = settings.clone();
        let name = SetName("guests".to_owned());
        more.add_elements(&name, vec!["another".parse().unwrap()], None)
            .unwrap();
        assert!(more.shares_rules_with(&settings));
        let error = plan(&more, &ports, &bridges, Some((&settings, &rules))).unwrap_err();
        assert!(error.to_string().contains("too many rules"), "{error}");
    }

    #[test]
    fn invalid_rules_are_refused_with_their_line() {
        let drop = "\n[[rule]]\nname = \"x\"\naction = \"drop\"\n";
        for (more, printed) in [
            ("port = \"c\"", "no such port: 'c'"),
            ("bridge = \"wan\"", "no such bridge: 'wan'"),
            ("port = \"a\"\nbridge = \"lan\"", "port and bridge exclude"),
            (
                "protocol = \"icmp\"\nsource-port = \"1\"",
                "ports require protocol",
            ),
            ("vlan = 4095", "line 5"),
            (
                "ethertype = \"arp\"\nsource = \"10.0.0.0/8\"",
                "carry no IP",
            ),
            (
                "source = \"10.0.0.0/8\"\ndestination = \"::/0\"",
                "different IP versions",
            ),
            ("colour = \"red\"", "colour"),
            ("[[rule]]\nname = \"y\"", "action"),
            ("[[rule]]\nname = \"y\"\naction = \"refuse\"", "refuse"),
            ("vlan = 7\ntagged = false", "exclude each other"),
            ("ports = [\"a\", \"c\"]", "no such port: 'c'"),
            ("ports = [\"a\"]\nbridge = \"lan\"", "ports excludes"),
            ("from = \"a\"", "from requires direction"),
            (
                "direction = \"out\"\nfrom = \"c\"",
                "from: no such port: 'c'",
            ),
            ("direction = \"out\"\ndup = \"c\"", "dup: no such port: 'c'"),
            (
                "direction = \"out\"\nset-mss = 1000",
                "require action accept",
            ),
            (
                "direction = \"out\"\nset-ct-label = \"1\"",
                "set-ct-label requires direction",
            ),
            (
                "direction = \"out\"\nset-ct-mark = \"1\"",
                "set-ct-mark requires direction",
            ),
            ("ct-mark = \"red\"", "not a mark of up to 32 bits"),
            ("set-ct-mark = \"1\"", "set-ct-mark requires action accept"),
            ("ct-label = \"red\"", "not a label of up to 128 bits"),
            ("ct-label = \"4/3\"", "set the bits in the mask"),
            (
                "set-ct-label = \"1\"",
                "set-ct-label requires action accept",
            ),
            (
                "direction = \"out\"\nprotocol = \"tcp\"\ndestination-port = \"443\"\ntls-name = [\"a.example\"]",
                "require direction",
            ),
            (
                "protocol = \"tcp\"\ntls-name = [\"a.example\"]",
                "tls-name requires destination-port",
            ),
            ("tls-name = [\"a b\"]", "'a b' is not a name"),
            ("name-fail = \"open\"", "name-fail requires"),
            ("name-fail = \"shut\"", "shut"),
            ("direction = \"up\"", "up"),
            (
                "reject-with = \"no-route\"",
                "reject-with requires action reject",
            ),
            ("reject-with = \"reset\"", "reset"),
            ("log = 0", "log is 0"),
            ("log-prefix = \"x\"", "requires log"),
            ("log = 1\nlog-prefix = \"\\u001b\"", "printable"),
            ("dup = \"c\"", "dup: no such port: 'c'"),
            ("set-dscp = \"ef\"", "require action accept"),
            ("inspect = \"c\"", "inspect: no such port: 'c'"),
            ("inspect = \"b\"", "inspect requires action accept"),
            ("inspect-packets = 3", "require inspect"),
            ("inspect-fail = \"shut\"", "shut"),
            ("port = \"b\"\ninspect = \"b\"", "'b' is a port of the rule"),
            (
                "direction = \"out\"\ninspect = \"b\"",
                "excludes reject and inspect",
            ),
            ("set-mss = 87", "allowed: 88 to 65535"),
            ("set-mss = \"rt-mtu\"", "requires direction = \"out\""),
            (
                "direction = \"out\"\nset-mss = \"rt-mtu\"",
                "require action accept",
            ),
            ("set-mss = \"mtu\"", "rt-mtu"),
            ("[[rule]]\nname = \"x\"\naction = \"drop\"", "line 5"),
            ("[[rule]]\nname = \"\"\naction = \"drop\"", "no name"),
        ] {
            let error = planned(&format!("{drop}{more}\n")).unwrap_err();
            assert!(
                error.contains(printed) && error.contains("rules.toml"),
                "{more}: {error}"
            );
        }
        let inspect = "\n[[rule]]\nname = \"x\"\naction = \"accept\"\ninspect = \"b\"\n";
        for (more, printed) in [
            ("inspect-packets = 0", "allowed: 1 to 64"),
            ("inspect-packets = 65", "allowed: 1 to 64"),
            ("inspect-timeout-ms = 0", "allowed: 1 to 10000 ms"),
            ("inspect-timeout-ms = 10001", "allowed: 1 to 10000 ms"),
            ("set-mss = 1000", "inspect excludes set-dscp and set-mss"),
            ("set-ct-mark = \"1\"", "inspect excludes set-ct-mark"),
            ("set-ct-label = \"1\"", "inspect excludes set-ct-label"),
        ] {
            let error = planned(&format!("{inspect}{more}\n")).unwrap_err();
            assert!(error.contains(printed), "{more}: {error}");
        }
        let many = |count: usize| -> String {
            (0..count)
                .map(|n| format!("[[rule]]\nname = \"{n}\"\naction = \"accept\"\n"))
                .collect()
        };
        assert_eq!(planned(&many(RULES_MAX)).unwrap().rules.len(), RULES_MAX);
        let error = planned(&many(RULES_MAX + 1)).unwrap_err();
        assert!(
            error.contains("too many rules (maximum: 100000)"),
            "{error}"
        );
    }
}
