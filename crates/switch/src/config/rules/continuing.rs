// SPDX-License-Identifier: Apache-2.0
//! Limits of rules that continue.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quietwire_packet::VlanId;
use quietwire_tables::filter::{CONTINUE_MAX, FurtherMatch, OutMatch, PASSES_MAX, PortRule};

use super::{Action, RuleSetting};
use crate::config::location::Located;
use crate::error::SwitchError;

/// A rule of the settings.
type LocatedRule = Located<Arc<RuleSetting>>;

/// Checks the rules that continue, given the rules that are new, the names of ports and bridges, and the numbers of ports of sets.
///
/// # Errors
/// [`SwitchError::Config`] for a rule beyond the limits, or one that inspects packets that others change.
pub(super) fn check(
    all: &[LocatedRule],
    new: &[LocatedRule],
    names: (&BTreeSet<&str>, &BTreeSet<&str>),
    counts: &HashMap<&str, usize>,
) -> Result<(), SwitchError> {
    let continues = |rule: &LocatedRule| rule.value.action == Action::Continue;
    let inspects = |rule: &LocatedRule| rule.value.statements.inspect.is_some();
    if new.iter().any(continues) {
        check_passes(all, names, counts)?;
    }
    if new.iter().any(|rule| continues(rule) || inspects(rule)) {
        check_inspection(all)?;
    }
    Ok(())
}

/// Checks that all rules that continue can be compiled.
///
/// # Errors
/// [`SwitchError::Config`] for a rule beyond the limits.
pub(super) fn check_passes(
    all: &[LocatedRule],
    names: (&BTreeSet<&str>, &BTreeSet<&str>),
    counts: &HashMap<&str, usize>,
) -> Result<(), SwitchError> {
    let continuing = all.iter();
    let continuing = continuing.filter(|rule| rule.value.action == Action::Continue);
    let continuing: Vec<&LocatedRule> = continuing.collect();
    let rules: Vec<&RuleSetting> = continuing.iter().map(|rule| &*rule.value).collect();
    let beyond = first_beyond(&rules, names, counts);
    match beyond.and_then(|place| continuing.get(place)) {
        Some(Located { value, location }) => Err(location.wrong(format!(
            "rule '{}': too many rules with action continue (maximum: {CONTINUE_MAX}, and {PASSES_MAX} for one packet; remove some, or give them conditions that exclude each other)",
            value.name
        ))),
        None => Ok(()),
    }
}

/// Returns the place of the first of these rules, all of which continue, that is beyond the limits. The names are those of all ports and
/// bridges, and `counts` has the numbers of ports of sets.
pub(super) fn first_beyond(
    rules: &[&RuleSetting],
    names: (&BTreeSet<&str>, &BTreeSet<&str>),
    counts: &HashMap<&str, usize>,
) -> Option<usize> {
    let mut compiled = 0usize;
    // The first one is found without those behind it.
    let few = rules.iter().take_while(|rule| {
        compiled = compiled.saturating_add(rule.times_compiled(counts));
        compiled <= CONTINUE_MAX
    });
    let few: Vec<PortRule> = few.map(|rule| port_rule(rule, names)).collect();
    let beyond = (few.len() < rules.len()).then_some(few.len());
    PortRule::first_without_pass(&few).or(beyond)
}

/// Checks that no rule inspects packets that an earlier rule may have changed.
fn check_inspection(all: &[LocatedRule]) -> Result<(), SwitchError> {
    let changes = |rule: &RuleSetting| {
        let statements = &rule.statements;
        let is_set = statements.set_dscp.is_some() || statements.set_mss.is_some();
        is_set && rule.action == Action::Continue && !rule.is_out()
    };
    let mut rules = all.iter();
    let Some(first) = rules.find(|rule| changes(&rule.value)) else {
        return Ok(());
    };
    match rules.find(|rule| rule.value.statements.inspect.is_some()) {
        Some(Located { value, location }) => Err(location.wrong(format!(
            "rule '{}': inspect excludes earlier rules with set-dscp or set-mss and action continue, such as '{}' (the inspector decides on packets as they were received)",
            value.name, first.value.name
        ))),
        None => Ok(()),
    }
}

/// Returns the conditions of a rule, with the places of ports and bridges as their numbers, and without those that exclude no other rule. A
/// set of ports excludes none: it may have any ports later.
fn port_rule(rule: &RuleSetting, (ports, bridges): (&BTreeSet<&str>, &BTreeSet<&str>)) -> PortRule {
    let number = |names: &BTreeSet<&str>, name: &String| {
        let place = names.iter().position(|one| one == name);
        place.and_then(|place| u16::try_from(place).ok())
    };
    let port = |name: &String| number(ports, name);
    let from = rule.from.as_ref().and_then(port);
    PortRule {
        port: rule.port.as_ref().and_then(port),
        group: rule.bridge.as_ref().and_then(|name| number(bridges, name)),
        vlan: rule.vlan.map(VlanId::get),
        packet: rule.packet.packet(),
        further: FurtherMatch {
            out: rule.is_out().then_some(OutMatch { from }),
            ports: rule.ports.iter().filter_map(port).collect(),
            ..rule.packet.further()
        },
        sets: Vec::new(),
        ct_states: rule.ct_state,
        mark: None,
        label: None,
        action: rule.action,
        frames: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RuleFile, plan};
    use super::*;

    fn planned(text: &str) -> Result<(), String> {
        let file = RuleFile::parse(std::path::Path::new("rules.toml"), text);
        let settings = file.map_err(|error| error.to_string())?.settings();
        let ports = BTreeSet::from(["a", "b", "c"]);
        let bridges = BTreeSet::from(["lan", "wan"]);
        let planned = plan(&settings, &ports, &bridges, None);
        planned.map(drop).map_err(|error| error.to_string())
    }

    /// Returns rules that continue, with these names and keys.
    fn rules(name: &str, keys: &[String]) -> String {
        let rule = |(number, keys): (usize, &String)| {
            format!("[[rule]]\nname = \"{name}-{number}\"\naction = \"continue\"\n{keys}\n")
        };
        keys.iter().enumerate().map(rule).collect()
    }

    #[test]
    fn too_many_rules_that_continue_for_one_packet_are_refused() {
        for keys in [
            "",
            "log = 1",
            "vlan = 7",
            "set-mss = 1400",
            "direction = \"out\"",
        ] {
            let keys = vec![keys.to_owned(); PASSES_MAX + 1];
            planned(&rules("a", &keys[1..])).unwrap();
            let error = planned(&rules("a", &keys)).unwrap_err();
            assert!(error.contains("rule 'a-16': too many rules"), "{error}");
            assert!(error.contains("rules.toml"), "{error}");
        }
        // Conditions that exclude each other.
        let each: [fn(usize) -> String; 7] = [
            |n| format!("vlan = {n}"),
            |n| format!("ethertype = \"0x90{n:02x}\""),
            |n| format!("source = \"10.0.{n}.0/24\""),
            |n| format!("protocol = \"tcp\"\ndestination-port = \"{}\"", 100 + n),
            |n| format!("source-mac = \"02:00:00:00:00:{n:02x}\""),
            |n| format!("protocol = \"icmp\"\nicmp-type = {n}"),
            |n| format!("dscp = \"{n}\""),
        ];
        for keys in each {
            let keys: Vec<String> = (1..40).map(keys).collect();
            planned(&rules("a", &keys)).unwrap();
        }
        let at = |key: &str| vec![key.to_owned(); PASSES_MAX];
        for [one, other] in [
            ["port = \"a\"", "ports = [\"b\", \"c\"]"],
            ["bridge = \"lan\"", "bridge = \"wan\""],
            ["direction = \"in\"", "direction = \"out\""],
            [
                "direction = \"out\"\nfrom = \"a\"",
                "direction = \"out\"\nfrom = \"b\"",
            ],
        ] {
            let text = rules("a", &at(one)) + &rules("b", &at(other));
            planned(&text).unwrap();
            let error = planned(&(text + &rules("c", &at(other)[..1]))).unwrap_err();
            assert!(error.contains("rule 'c-0': too many"), "{error}");
        }
        // A rule of a set of ports counts for each element.
        let names: Vec<String> = (0..128).map(|n| format!("\"p{n}\"")).collect();
        let names = names.join(", ");
        let set = format!("[[set]]\nname = \"s\"\ntype = \"ifname\"\nelements = [{names}]\n");
        let of_set = |n: usize| format!("port = \"@s\"\nvlan = {n}");
        let of_sets: Vec<String> = (1..=CONTINUE_MAX / 128 + 1).map(of_set).collect();
        planned(&(set.clone() + &rules("a", &of_sets[1..]))).unwrap();
        let error = planned(&(set + &rules("a", &of_sets))).unwrap_err();
        assert!(error.contains("rule 'a-32': too many"), "{error}");
        let many: Vec<String> = (0..=CONTINUE_MAX)
            .map(|n| format!("source = \"10.{}.{}.0/24\"", n / 256, n % 256))
            .collect();
        planned(&rules("a", &many[1..])).unwrap();
        let error = planned(&rules("a", &many)).unwrap_err();
        assert!(error.contains("rule 'a-4096': too many"), "{error}");
    }

    #[test]
    fn a_rule_that_continues_has_no_statement_that_requires_a_verdict() {
        for (keys, printed) in [
            ("set-ct-mark = \"1\"", "set-ct-mark requires action accept"),
            (
                "set-ct-label = \"1\"",
                "set-ct-label requires action accept",
            ),
            ("inspect = \"b\"", "inspect requires action accept"),
        ] {
            let error = planned(&rules("a", &[keys.to_owned()])).unwrap_err();
            assert!(error.contains(printed), "{keys}: {error}");
        }
        let error = planned("rule-default = \"continue\"\n").unwrap_err();
        assert!(error.contains("rule-default is continue"), "{error}");
        let inspect = "[[rule]]\nname = \"i\"\naction = \"accept\"\ninspect = \"b\"\n";
        let changes = rules("a", &["set-dscp = \"ef\"".to_owned()]);
        planned(&format!("{inspect}{changes}")).unwrap();
        let error = planned(&format!("{changes}{inspect}")).unwrap_err();
        assert!(
            error.contains("rule 'i': inspect excludes") && error.contains("'a-0'"),
            "{error}"
        );
        let logs = rules("a", &["log = 1\ndup = \"c\"".to_owned()]);
        planned(&format!("{logs}{inspect}")).unwrap();
    }
}
