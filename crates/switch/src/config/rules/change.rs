// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of filter rules and their sets.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Action, Element, MalformedAction, RuleSetting, Rules, SetName, SetSetting};
use crate::config::edit::{absent, from_request, remove, replace, wrong};
use crate::config::location::Located;
use crate::config::settings::Settings;
use crate::config::shared_list::{CommonEnds, are_shared};
use crate::error::SwitchError;

impl Settings {
    pub(in crate::config) fn add_rule(
        &mut self,
        rule: RuleSetting,
        before: Option<String>,
    ) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        let location = match before {
            None => rules.len(),
            Some(name) => rules
                .iter()
                .position(|one| one.value.name == name)
                .ok_or_else(|| absent("rule", &name))?,
        };
        rules.insert(location, from_request(Arc::new(rule)));
        Ok(())
    }

    pub(in crate::config) fn set_rule(&mut self, rule: RuleSetting) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        replace(rules, "rule", Arc::new(rule), |one| &one.name)
    }

    pub(in crate::config) fn del_rule(&mut self, name: &str) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        remove(rules, "rule", name, |rule| &rule.name)
    }

    pub(in crate::config) fn set_rules(
        &mut self,
        rules: Option<Vec<RuleSetting>>,
        sets: Option<Vec<SetSetting>>,
        (default, malformed): (Option<Action>, Option<MalformedAction>),
    ) {
        if rules.is_some() || sets.is_some() {
            let sets = sets.unwrap_or_default();
            self.sets = Some(sets.into_iter().map(Arc::new).map(from_request).collect());
        }
        if let Some(rules) = rules {
            self.rules = Some(rules.into_iter().map(Arc::new).map(from_request).collect());
        }
        self.rule_default = default.or(self.rule_default);
        self.rule_malformed = malformed.or(self.rule_malformed);
    }

    pub(in crate::config) fn add_set(&mut self, set: SetSetting) {
        let sets = self.sets.get_or_insert_default();
        sets.push(from_request(Arc::new(set)));
    }

    pub(in crate::config) fn del_set(&mut self, name: &SetName) -> Result<(), SwitchError> {
        let mut rules = self.rules.iter().flatten();
        let user = rules.find(|rule| {
            let mut sets = rule.value.packet.sets();
            let mut of_ports = rule.value.port_sets();
            sets.any(|(_, set)| set == name) || of_ports.any(|set| set == name.0)
        });
        if let Some(rule) = user {
            let what = format!(
                "rule '{}' uses set '{name}' (delete the rule first)",
                rule.value.name
            );
            return Err(wrong("set", what));
        }
        let sets = self.sets.get_or_insert_default();
        remove(sets, "set", &name.0, |set| &set.name.0)
    }

    /// Returns a set to change. Others that share it keep theirs.
    fn set_mut(&mut self, name: &SetName) -> Result<&mut SetSetting, SwitchError> {
        let mut sets = self.sets.iter_mut().flatten();
        let set = sets.find(|set| set.value.name == *name);
        set.map(|set| Arc::make_mut(&mut set.value))
            .ok_or_else(|| absent("set", &name.0))
    }

    pub(in crate::config) fn add_elements(
        &mut self,
        set: &SetName,
        elements: Vec<Element>,
        timeout_s: Option<u32>,
    ) -> Result<(), SwitchError> {
        let set = self.set_mut(set)?;
        let of_set = &mut set.elements;
        let asked = sorted(&elements);
        let mut are_new = vec![true; asked.len()];
        for element in of_set.iter() {
            if let Ok(place) = asked.binary_search(element)
                && let Some(is_new) = are_new.get_mut(place)
            {
                *is_new = false;
            }
        }
        // An element that is added twice is new once.
        let is_new = |element: &Element| {
            let place = asked.binary_search(element).ok();
            let is_new = place.and_then(|place| are_new.get_mut(place));
            is_new.is_some_and(std::mem::take)
        };
        let before = of_set.len();
        of_set.extend(elements.into_iter().filter(is_new));
        if let Some(timeout_s) = timeout_s {
            let new = of_set.iter().skip(before);
            let new = new.map(|element| (*element, timeout_s));
            set.element_timeouts_s.extend(new);
        }
        Ok(())
    }

    pub(in crate::config) fn del_elements(
        &mut self,
        set: &SetName,
        elements: &[Element],
    ) -> Result<(), SwitchError> {
        let set = self.set_mut(set)?;
        for element in elements {
            set.element_timeouts_s.remove(element);
        }
        let of_set = &mut set.elements;
        let asked = sorted(elements);
        let mut are_absent = vec![true; asked.len()];
        of_set.retain(|element| match asked.binary_search(element) {
            Ok(place) => {
                if let Some(is_absent) = are_absent.get_mut(place) {
                    *is_absent = false;
                }
                false
            }
            Err(_) => true,
        });
        let is_absent = |element: &Element| {
            let place = asked.binary_search(element).ok();
            place.and_then(|place| are_absent.get(place)) == Some(&true)
        };
        match elements.iter().find(|element| is_absent(element)) {
            Some(element) => Err(absent("element", &element.to_string())),
            None => Ok(()),
        }
    }

    /// Removes a port that is removed from rules that copy frames to it, and from rules of several ports. The rules stay.
    pub(in crate::config) fn forget_port_in_rules(&mut self, port: &str) {
        let names_port = |rule: &RuleSetting| {
            rule.statements.dup.as_deref() == Some(port)
                || rule.ports.iter().any(|name| name == port)
        };
        // Rules that do not change stay shared with the running plan.
        let mut all = self.rules.iter().flatten();
        let is_concerned = all.any(|rule| names_port(&rule.value));
        let Some(rules) = self.rules.as_mut().filter(|_| is_concerned) else {
            return;
        };
        rules.retain_mut(|rule| {
            if !names_port(&rule.value) {
                return true;
            }
            let RuleSetting {
                ports, statements, ..
            } = Arc::make_mut(&mut rule.value);
            if statements.dup.as_deref() == Some(port) {
                statements.dup = None;
            }
            let had_ports = !ports.is_empty();
            ports.retain(|name| name != port);
            // A rule without ports would be for all.
            !(had_ports && ports.is_empty())
        });
    }

    /// Removes ports and bridges that do not exist from the rules, as if they were removed now. Rules whose inspector does not exist are
    /// removed too.
    pub(crate) fn forget_absent_in_rules(&mut self) {
        let (ports, bridges) = self.absent_in_rules();
        self.forget_rules(|rule| {
            let names = [&rule.port, &rule.from, &rule.statements.inspect];
            let mut names = names.into_iter().flatten();
            let bridge = rule.bridge.as_ref();
            names.any(|name| ports.contains(name))
                || bridge.is_some_and(|one| bridges.contains(one))
        });
        for port in &ports {
            self.forget_port_in_rules(port);
        }
    }

    /// Returns the names of ports and of bridges in rules that do not exist.
    fn absent_in_rules(&self) -> (HashSet<String>, HashSet<String>) {
        let ports = self.ports.iter().flatten();
        let ports: HashSet<&String> = ports.map(|port| &port.name).collect();
        let bridges = self.bridges.iter().flatten();
        let bridges: HashSet<&String> = bridges.map(|bridge| &bridge.name).collect();
        let (mut no_ports, mut no_bridges) = (HashSet::new(), HashSet::new());
        for Located { value, .. } in self.rules.iter().flatten() {
            let names = value.port_names();
            no_ports.extend(names.filter(|name| !ports.contains(name)).cloned());
            let bridge = value.bridge.iter();
            no_bridges.extend(bridge.filter(|name| !bridges.contains(name)).cloned());
        }
        (no_ports, no_bridges)
    }

    /// Checks that a port that is removed is no inspector of a rule: the rule would decide without it.
    ///
    /// # Errors
    /// [`SwitchError::Config`].
    pub(in crate::config) fn check_no_inspector(&self, port: &str) -> Result<(), SwitchError> {
        let mut rules = self.rules.iter().flatten();
        let user = rules.find(|rule| rule.value.statements.inspect.as_deref() == Some(port));
        match user {
            None => Ok(()),
            Some(rule) => Err(wrong(
                "port",
                format!(
                    "'{port}' is the inspector of rule '{}' (delete the rule first)",
                    rule.value.name
                ),
            )),
        }
    }

    /// Removes the rules of a port or bridge that is removed.
    pub(in crate::config) fn forget_rules(&mut self, is_about: impl Fn(&RuleSetting) -> bool) {
        let mut rules = self.rules.iter().flatten();
        // Rules that do not change stay shared with the running plan.
        let is_concerned = rules.any(|rule| is_about(&rule.value));
        if let Some(rules) = self.rules.as_mut().filter(|_| is_concerned) {
            rules.retain(|rule| !is_about(&rule.value));
        }
    }

    /// Returns true if rules, sets and default actions are those of other settings, because both share them. Equal rules that are not
    /// shared are others here.
    pub(in crate::config) fn has_rules_of(&self, other: &Self) -> bool {
        self.shares_rules_with(other)
            && are_shared(self.sets.as_ref(), other.sets.as_ref())
            && self.rule_default == other.rule_default
            && self.rule_malformed == other.rule_malformed
    }

    /// Returns the planned rules that former settings with the same tracking of connections do not have; otherwise all.
    pub(in crate::config) fn new_rules<'rules>(
        &self,
        former: Option<(&Self, &Rules)>,
        rules: &'rules Rules,
    ) -> &'rules [Arc<RuleSetting>] {
        let former = former.filter(|(former, _)| former.connections == self.connections);
        let former = former.map(|(_, former)| &former.rules[..]);
        let ends = CommonEnds::of(former.unwrap_or_default(), &rules.rules, Arc::ptr_eq);
        ends.middle(&rules.rules)
    }

    /// Returns true if the rules are those of other settings, whatever elements their sets have.
    pub(super) fn shares_rules_with(&self, other: &Self) -> bool {
        are_shared(self.rules.as_ref(), other.rules.as_ref())
    }
}

/// Returns the elements in order, each once: most requests have one element, and sets have 10,000.
fn sorted(elements: &[Element]) -> Vec<Element> {
    let mut sorted = elements.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::RuleFile;
    use super::*;
    use crate::config::Change;

    fn settings(text: &str) -> Settings {
        RuleFile::parse(Path::new("rules.toml"), text)
            .unwrap()
            .settings()
    }

    fn change(json: &str) -> Change {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_rule_stays_if_the_port_of_its_copies_is_removed() {
        let mut several =
            settings("[[rule]]\nname = \"x\"\naction = \"drop\"\nports = [\"a\", \"b\"]\n");
        let mut settings =
            settings("[[rule]]\nname = \"x\"\naction = \"drop\"\nlog = 1\ndup = \"spy\"\n");
        settings.forget_port_in_rules("a");
        let dup = |settings: &Settings| {
            let rule = &settings.rules.as_ref().unwrap()[0].value;
            (rule.statements.log, rule.statements.dup.clone())
        };
        assert_eq!(dup(&settings), (Some(1), Some("spy".to_owned())));
        settings.forget_port_in_rules("spy");
        assert_eq!(dup(&settings), (Some(1), None));
        several.forget_port_in_rules("a");
        assert_eq!(several.rules.as_ref().unwrap()[0].value.ports, ["b"]);
        several.forget_port_in_rules("b");
        assert!(several.rules.unwrap().is_empty());
    }

    #[test]
    fn the_port_of_an_inspector_stays_as_long_as_a_rule_names_it() {
        let port = |name: &str| format!("[[port]]\nname = \"{name}\"\nuri = \"null:\"\n");
        let rule = "[[rule]]\nname = \"x\"\naction = \"accept\"\nport = \"a\"\ninspect = \"ips\"\n";
        let text = format!("{}{}{rule}", port("a"), port("ips"));
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        let del = |name: &str| change(&format!(r#"{{"del-port":{{"name":"{name}"}}}}"#));
        let error = settings.clone().after(del("ips")).unwrap_err().to_string();
        let printed = "'ips' is the inspector of rule 'x' (delete the rule first)";
        assert!(error.contains(printed), "{error}");
        // Without the port of the rule, there is no rule.
        let without = settings.after(del("a")).unwrap();
        assert!(without.after(del("ips")).is_ok());
    }

    #[test]
    fn a_source_guard_or_steering_rules_of_an_inspector_are_refused() {
        let text = "[[port]]\nname = \"a\"\nuri = \"null:\"\n\
                    [[port]]\nname = \"ips\"\nuri = \"af-xdp:eth0\"\nbridging = { source-guard = [] }\n\
                    [[rule]]\nname = \"x\"\naction = \"accept\"\nport = \"a\"\ninspect = \"ips\"\n";
        let planned = |text: &str| {
            let settings = Settings::parse(Path::new("switch.toml"), text).unwrap();
            settings
                .plan(&"0-3".parse().unwrap())
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(planned(text), Ok(()));
        let guarded = text.replace("source-guard = []", "source-guard = [\"192.0.2.7\"]");
        let steer = |port: &str| {
            format!("{text}[[steer]]\nname = \"dns\"\nport = \"{port}\"\nto = \"switch\"\n")
        };
        for (text, printed) in [
            (guarded, "rule 'x': inspect: port 'ips' has a source guard"),
            (steer("ips"), "port 'ips' has steering rule 'dns'"),
        ] {
            let error = planned(&text).unwrap_err();
            assert!(error.contains(printed), "{error}");
            assert!(error.contains("switch.toml, line"), "{error}");
        }
    }

    #[test]
    fn added_elements_may_have_a_timeout_of_their_own() {
        let text = "[[set]]\nname = \"a\"\ntype = \"inet_service\"\nelements = [\"1\"]\n";
        let timeouts = |settings: &Settings| -> Vec<String> {
            let set = &settings.sets.as_ref().unwrap()[0].value;
            let timeouts = set.element_timeouts_s.iter();
            timeouts
                .map(|(element, seconds)| format!("{element} {seconds}"))
                .collect()
        };
        let add = r#"{"add-elements":{"set":"a","elements":["1","2","3"],"timeout_s":60}}"#;
        let settings = settings(text).after(change(add)).unwrap();
        assert_eq!(timeouts(&settings), ["2 60", "3 60"]);
        let again = r#"{"add-elements":{"set":"a","elements":["3","4"],"timeout_s":5}}"#;
        let settings = settings.after(change(again)).unwrap();
        assert_eq!(timeouts(&settings), ["2 60", "3 60", "4 5"]);
        let del = r#"{"del-elements":{"set":"a","elements":["3"]}}"#;
        let settings = settings.after(change(del)).unwrap();
        assert_eq!(timeouts(&settings), ["2 60", "4 5"]);
        let without = r#"{"add-elements":{"set":"a","elements":["3"]}}"#;
        let settings = settings.after(change(without)).unwrap();
        assert_eq!(timeouts(&settings), ["2 60", "4 5"]);
    }

    #[test]
    fn sets_are_changed_element_by_element() {
        let start = "[[set]]\nname = \"a\"\ntype = \"inet_service\"\nelements = [\"1\"]\n\
                     [[rule]]\nname = \"x\"\naction = \"drop\"\nprotocol = \"udp\"\nsource-port = \"@a\"\n";
        let after = |json: &str| settings(start).after(change(json));
        let elements = |json: &str| {
            let sets = after(json).unwrap().sets.unwrap();
            let all = sets.iter().flat_map(|set| &set.value.elements);
            all.map(ToString::to_string).collect::<Vec<_>>()
        };
        let add = r#"{"add-elements":{"set":"a","elements":["2-3"]}}"#;
        assert_eq!(elements(add), ["1", "2-3"]);
        let del = r#"{"del-elements":{"set":"a","elements":["1"]}}"#;
        assert_eq!(elements(del), [""; 0]);
        let new = r#"{"add-set":{"name":"b","type":"inet_service","elements":["9"]}}"#;
        assert_eq!(elements(new), ["1", "9"]);
        // Elements of the set, and those that a request repeats, are added once.
        let again = r#"{"add-elements":{"set":"a","elements":["3","1","2","3"]}}"#;
        assert_eq!(elements(again), ["1", "3", "2"]);
        let twice = r#"{"del-elements":{"set":"a","elements":["1","1"]}}"#;
        assert_eq!(elements(twice), [""; 0]);
        // New rules replace all sets.
        assert_eq!(elements(r#"{"set-rules":{"rules":[]}}"#), [""; 0]);
        assert_eq!(elements(r#"{"set-rules":{"default":"drop"}}"#), ["1"]);
        for (wrong, printed) in [
            (
                r#"{"add-elements":{"set":"c","elements":["2"]}}"#,
                "no such set: 'c'",
            ),
            (
                r#"{"del-elements":{"set":"a","elements":["2"]}}"#,
                "no such element: '2'",
            ),
            (r#"{"del-set":{"name":"a"}}"#, "rule 'x' uses set 'a'"),
            (r#"{"del-set":{"name":"c"}}"#, "no such set: 'c'"),
        ] {
            let error = after(wrong).unwrap_err().to_string();
            assert!(error.contains(printed), "{wrong}: {error}");
        }
    }
}
