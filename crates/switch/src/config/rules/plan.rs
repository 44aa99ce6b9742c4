// SPDX-License-Identifier: Apache-2.0
//! Validation of filter rules.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Action, RuleSetting, Rules, SetName, SetSetting, SetType, sets};
use crate::config::location::{Located, Location};
use crate::config::settings::Settings;
use crate::error::SwitchError;
use quietwire_tables::filter::{NameMatch, RULES_MAX, RuleMatch, SET_USES_MAX};

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
    let sets = sets::plan(
        settings
            .sets
            .as_deref()
            .map(Vec::as_slice)
            .unwrap_or_default(),
    )?;
    let kinds = |sets: &[SetSetting]| -> Vec<(SetName, SetType)> {
        let kinds = sets.iter().map(|set| (set.name.clone(), set.kind));
        kinds.collect()
    };
    let kept = former.filter(|(former, rules)| {
        settings.shares_rules_with(former) && kinds(&sets) == kinds(&rules.sets)
    });
    let rules = match kept {
        Some((_, former)) => former.rules.clone(),
        None => check_all(settings, &sets, ports, bridges)?.into(),
    };
    Ok(Rules {
        rules,
        sets,
        default: settings.rule_default.unwrap_or_default(),
        malformed: settings.rule_malformed.unwrap_or_default(),
    })
}

/// Returns all rules after a check of each.
fn check_all(
    settings: &Settings,
    sets: &[SetSetting],
    ports: &BTreeSet<&str>,
    bridges: &BTreeSet<&str>,
) -> Result<Vec<RuleSetting>, SwitchError> {
    let kinds: HashMap<&SetName, SetType> = sets.iter().map(|set| (&set.name, set.kind)).collect();
    let mut rules: Vec<RuleSetting> = Vec::new();
    let mut names: HashSet<&str> = HashSet::new();
    let mut compiled = 0usize;
    for Located { value, location } in settings.rules.iter().flatten() {
        let name = &value.name;
        if name.is_empty() {
            return Err(location.wrong("the rule has no name"));
        }
        if !names.insert(name) {
            return Err(location.wrong(format!("duplicate rule '{name}' (use unique names)")));
        }
        if rules.len() == RULES_MAX {
            return Err(location.wrong(format!("too many rules (maximum: {RULES_MAX})")));
        }
        compiled = compiled.saturating_add(value.ports.len().max(1));
        if compiled > RULES_MAX {
            return Err(location.wrong(format!(
                "rule '{name}': too many rules (maximum: {RULES_MAX}; a rule with ports counts for each)"
            )));
        }
        check_position(value, ports, bridges)
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
        rules.push(value.clone());
    }
    let located = settings.rules.iter().flatten();
    if let Some(rule) = excess(located.clone().map(|one| &one.value))
        && let Some(Located { location, .. }) =
            located.clone().find(|one| one.value.name == rule.name)
    {
        return Err(location.wrong(format!(
            "rule '{}': the rules use too many pairs of a field and a set, and lists of names (maximum: {SET_USES_MAX} in sum; use fewer sets and lists)",
            rule.name
        )));
    }
    Ok(rules)
}

/// Returns the ports of inspectors, each with the name and the location of its first rule.
pub(in crate::config) fn inspectors(
    settings: &Settings,
) -> impl Iterator<Item = (&str, &str, &Location)> {
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
pub(in crate::config) fn check_inspectors(settings: &Settings) -> Result<(), SwitchError> {
    for (port, rule, location) in inspectors(settings) {
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

/// Checks the ingress port and bridge.
fn check_position(
    rule: &RuleSetting,
    ports: &BTreeSet<&str>,
    bridges: &BTreeSet<&str>,
) -> Result<(), String> {
    check_direction(rule, ports)?;
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
        (Some(port), None) if !ports.contains(port.as_str()) => {
            Err(format!("no such port: '{port}'"))
        }
        (None, Some(bridge)) if !bridges.contains(bridge.as_str()) => {
            Err(format!("no such bridge: '{bridge}'"))
        }
        _ => Ok(()),
    }
}

/// Checks what only one direction has.
fn check_direction(rule: &RuleSetting, ports: &BTreeSet<&str>) -> Result<(), String> {
    match &rule.from {
        Some(_) if !rule.is_out() => {
            return Err("from requires direction = \"out\" (use port)".to_owned());
        }
        Some(port) if !ports.contains(port.as_str()) => {
            return Err(format!("from: no such port: '{port}'"));
        }
        _ => {}
    }
    if !rule.is_out() {
        return Ok(());
    }
    let statements = &rule.statements;
    let is_for_received = statements.dup.is_some() || statements.inspect.is_some();
    if rule.action == Action::Reject || is_for_received {
        return Err(
            "direction = \"out\" excludes reject, dup and inspect (use them for received frames)"
                .to_owned(),
        );
    }
    if rule.names != NameMatch::default() {
        return Err("tls-name, http-host and dns-name require direction = \"in\" (names are read when frames are received)".to_owned());
    }
    match rule.ct_state {
        Some(_) => Err("ct-state requires direction = \"in\" (connections are tracked when frames are received)".to_owned()),
        None => Ok(()),
    }
}

/// Checks that rules refer to few enough pairs of a field and a set, and lists of names. Returns the first rule that refers to one more.
fn excess<'rules>(rules: impl Iterator<Item = &'rules RuleSetting>) -> Option<&'rules RuleSetting> {
    let mut uses = HashSet::new();
    let mut names = HashSet::new();
    for rule in rules {
        uses.extend(rule.packet.sets());
        let is_accepting = rule.action == Action::Accept;
        names.extend(
            rule.names
                .names()
                .map(|list| (list, is_accepting, rule.names.fail())),
        );
        if uses.len().saturating_add(names.len()) > SET_USES_MAX {
            return Some(rule);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{MalformedAction, RuleFile};
    use super::*;

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

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "name = \"web\"\naction = \"accept\"\nport = \"a\"\nprotocol = \"tcp\"\ndestination-port = \"80-443\"\n",
            "name = \"arp\"\naction = \"accept\"\nbridge = \"lan\"\nvlan = 7\nethertype = \"arp\"\n",
            "name = \"all\"\naction = \"drop\"\n",
            "name = \"syn\"\naction = \"drop\"\nprotocol = \"tcp\"\nsource-mac = \"02:00:00:00:00:01\"\ntcp-flags = \"syn / syn,ack\"\ndscp = \"ef\"\n",
            "name = \"ping\"\naction = \"accept\"\nprotocol = \"icmp\"\nicmp-type = 8\nicmp-code = 0\n",
            "name = \"net\"\naction = \"drop\"\nethertype = \"ipv6\"\nsource = \"2001:db8::/32\"\n",
            "name = \"no\"\naction = \"reject\"\nprotocol = \"tcp\"\nlog = 10\nlog-prefix = \"no:\"\ndup = \"b\"\n",
            "name = \"some\"\naction = \"drop\"\nports = [\"a\", \"b\"]\nvlan = 7\n",
            "name = \"leave\"\naction = \"drop\"\ndirection = \"out\"\nport = \"a\"\nfrom = \"b\"\n",
            "name = \"tls\"\naction = \"accept\"\nprotocol = \"tcp\"\ndestination-port = \"443\"\ntls-name = [\"example.org\", \"*.example.org\"]\nname-fail = \"open\"\n",
            "name = \"ips\"\naction = \"accept\"\nport = \"a\"\ninspect = \"b\"\ninspect-packets = 3\ninspect-timeout-ms = 50\ninspect-fail = \"open\"\n",
            "name = \"voice\"\naction = \"accept\"\nprotocol = \"udp\"\nset-dscp = \"ef\"\nset-mss = 1400\n",
        ] {
            let rules = planned(&format!("rule-default = \"drop\"\n[[rule]]\n{text}")).unwrap();
            assert_eq!(rules.default, Action::Drop);
            assert_eq!(toml::to_string(&rules.rules[0]).unwrap(), text);
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
        for (more, printed) in [
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
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_with_their_line() {
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
            ("direction = \"out\"\ndup = \"a\"", "excludes reject, dup"),
            (
                "direction = \"out\"\nset-mss = 1000",
                "require action accept",
            ),
            (
                "direction = \"out\"\nct-state = \"new\"",
                "ct-state requires",
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
                "excludes reject, dup",
            ),
            ("set-mss = 87", "allowed: 88 to 65535"),
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
