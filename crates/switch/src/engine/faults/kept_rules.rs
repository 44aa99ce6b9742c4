// SPDX-License-Identifier: Apache-2.0
//! Filter rules: few changes compile them, and new threads have all of them before frames.

use std::collections::HashSet;

use quietwire_tables::filter::RuleTable;

use super::*;
use crate::config::rules::{Action, RuleSetting};

const RULES: &str = r#"
[[set]]
name = "ports"
type = "inet_service"
elements = ["1"]
[[rule]]
name = "of several"
action = "reject"
ports = ["c", "d"]
protocol = "udp"
source-port = "@ports"
[[rule]]
name = "like the first"
action = "drop"
port = "a"
protocol = "tcp"
[[rule]]
name = "out"
action = "drop"
direction = "out"
port = "b"
[[rule]]
name = "of lan"
action = "accept"
bridge = "lan"
dup = "r"
[[port]]
name = "ips"
uri = "null:"
[[port]]
name = "ids"
uri = "null:"
[[rule]]
name = "inspected"
action = "accept"
port = "a"
protocol = "udp"
inspect = "ips"
[[rule]]
name = "inspected by another one"
action = "accept"
port = "a"
protocol = "icmp"
inspect = "ids"
"#;

impl Rig {
    fn table(&mut self) -> Arc<RuleTable> {
        let compiled = self.controller.engine().rules.compiled.as_ref();
        Arc::clone(&compiled.unwrap().table)
    }

    /// Returns whether a change leaves the compiled rules as they are.
    fn keeps_rules(&mut self, change: &Value) -> bool {
        let before = self.table();
        self.change(change);
        self.check();
        self.concerns_the_same_ports_as_all_rules();
        Arc::ptr_eq(&before, &self.table())
    }

    /// Compares the few rules that the engine reads at each change with all rules.
    fn concerns_the_same_ports_as_all_rules(&mut self) {
        let engine = self.controller.engine();
        let few: Vec<_> = engine.distinct_rules().cloned().collect();
        let all: Vec<_> = engine.rules.rules.iter().map(|(one, _)| &**one).collect();
        let kinds = |rule: &RuleSetting| {
            let ports = (rule.port.clone(), rule.ports.clone(), rule.from.clone());
            let places = (ports, rule.bridge.clone());
            let statements = (rule.statements.dup.clone(), rule.statements.inspect.clone());
            let is_rejecting = rule.action == Action::Reject;
            (places, statements, rule.is_out(), is_rejecting)
        };
        let of_few: HashSet<_> = few.iter().map(kinds).collect();
        let of_all: HashSet<_> = all.into_iter().map(kinds).collect();
        assert_eq!(of_few, of_all);
        assert_eq!(few.len(), of_all.len(), "{few:?}");
    }
}

#[test]
fn only_changes_of_rules_and_of_their_ports_compile_rules() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{RULES}"));
    for change in [
        json!({"add-port": {"name": "x", "uri": "null:"}}),
        json!({"set-bridge": {"name": "lan", "add_ports": ["x"]}}),
        json!({"add-bridge": {"name": "wan"}}),
        json!({"add-static": {"bridge": "lan", "mac": "02:00:00:00:00:01", "port": "x"}}),
        json!({"set-threads": {"forwarding_cpus": "2-3"}}),
        json!({"del-bridge": {"name": "wan"}}),
        // No rule names it.
        json!({"del-port": {"name": "x"}}),
    ] {
        assert!(rig.keeps_rules(&change), "{change}");
    }
    for change in [
        json!({"add-elements": {"set": "ports", "elements": ["2"]}}),
        json!({"add-rule": {"rule": {"name": "y", "action": "drop", "port": "a"}}}),
        json!({"set-rules": {"default": "drop"}}),
        json!({"del-rule": {"name": "y"}}),
        json!({"del-port": {"name": "d"}}),
        json!({"del-bridge": {"name": "lan"}}),
    ] {
        assert!(!rig.keeps_rules(&change), "{change}");
    }
}

/// The elements of a set of ports are compiled with the rules, which keep their counters.
#[test]
fn changes_of_the_ports_of_a_set_compile_rules() {
    const RULES: &str = r#"
[[set]]
name = "guests"
type = "ifname"
elements = ["a", "later"]
[[rule]]
name = "in"
action = "drop"
port = "@guests"
[[rule]]
name = "out"
action = "drop"
direction = "out"
from = "@guests"
"#;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{RULES}"));
    let state = |rig: &mut Rig| {
        let engine = rig.controller.engine();
        let is_matched = |port: &str, out: Option<&str>| {
            let packet = json!({"ethertype": "arp"});
            let received = read(&json!({"port": port, "out": out, "packet": packet}));
            let found = engine.check_rules(&received);
            found.is_ok_and(|found| found.rule.is_some())
        };
        let ports = ["a", "b", "c", "later"];
        let received = ports.map(|port| is_matched(port, None));
        assert_eq!(ports.map(|port| is_matched(port, Some("c"))), received);
        let rules = engine.rules.rules.iter();
        let counters: Vec<_> = rules.map(|(_, counter)| Arc::clone(counter)).collect();
        (received, counters)
    };
    let (received, before) = state(&mut rig);
    assert_eq!(received, [true, false, false, false]);
    for (change, expected) in [
        (
            json!({"add-elements": {"set": "guests", "elements": ["b"]}}),
            [true, true, false, false],
        ),
        (
            json!({"add-port": {"name": "later", "uri": "null:"}}),
            [true, true, false, true],
        ),
        (
            json!({"del-elements": {"set": "guests", "elements": ["a"]}}),
            [false, true, false, true],
        ),
        (
            json!({"del-port": {"name": "later"}}),
            [false, true, false, false],
        ),
        (
            json!({"del-elements": {"set": "guests", "elements": ["b", "later"]}}),
            [false; 4],
        ),
    ] {
        rig.change(&change);
        rig.check();
        rig.concerns_the_same_ports_as_all_rules();
        let (received, counters) = state(&mut rig);
        assert_eq!(received, expected, "{change}");
        let mut pairs = before.iter().zip(&counters);
        assert!(pairs.all(|(one, now)| Arc::ptr_eq(one, now)), "{change}");
    }
}

/// Neither the settings nor the counters of other rules are copied.
#[test]
fn a_change_of_one_rule_leaves_all_others_as_they_are() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{RULES}"));
    for (change, gone, new) in [
        (
            json!({"set-rule": {"name": "like the first", "action": "accept", "port": "a"}}),
            1,
            1,
        ),
        (json!({"del-rule": {"name": "of several"}}), 1, 0),
        (
            json!({"add-rule": {"rule": {"name": "y", "action": "drop", "port": "d"}, "before": "out"}}),
            0,
            1,
        ),
        (
            json!({"set-rule": {"name": "y", "action": "reject", "ports": ["c", "d"]}}),
            1,
            1,
        ),
        (
            json!({"add-elements": {"set": "ports", "elements": ["2"]}}),
            0,
            0,
        ),
        (json!({"set-rules": {"malformed": "match"}}), 0, 0),
    ] {
        let before = Arc::clone(&rig.controller.engine().rules.rules);
        rig.change(&change);
        rig.check();
        rig.concerns_the_same_ports_as_all_rules();
        let after = Arc::clone(&rig.controller.engine().rules.rules);
        let same = after.iter().filter(|(rule, count)| {
            let mut former = before.iter();
            former.any(|one| Arc::ptr_eq(&one.0, rule) && Arc::ptr_eq(&one.1, count))
        });
        let same = same.count();
        assert_eq!(
            (before.len() - same, after.len() - same),
            (gone, new),
            "{change}"
        );
    }
}

/// Rules of one port that differ in their inspectors only: queries have to reach both.
#[test]
fn a_port_reaches_the_inspectors_of_all_its_rules() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{RULES}"));
    rig.check();
    let engine = rig.controller.engine();
    let [a, r, ips, ids] = ["a", "r", "ips", "ids"].map(|name| engine.number(name).unwrap());
    assert_eq!(engine.ports_of_effects(a), BTreeSet::from([r, ips, ids]));
    assert!(engine.reach(a).is_superset(&BTreeSet::from([ips, ids])));
}

/// Copies of frames that leave by a port have to reach their port from each port whose frames leave by it.
#[test]
fn ports_reach_those_of_the_copies_of_frames_that_leave() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rule = "[[port]]\nname = \"spy\"\nuri = \"null:\"\n\
               [[rule]]\nname = \"copied\"\naction = \"continue\"\ndirection = \"out\"\nport = \"b\"\ndup = \"spy\"\n";
    let mut rig = Rig::with(&format!("{START}{rule}"));
    rig.check();
    let engine = rig.controller.engine();
    let [a, b, c, spy] = ["a", "b", "c", "spy"].map(|name| engine.number(name).unwrap());
    let of_ports = |ports: &[u16]| engine.ports_of_copies(&ports.iter().copied().collect());
    assert_eq!(of_ports(&[a, b]), BTreeSet::from([spy]));
    assert!(of_ports(&[a, c]).is_empty());
    assert!(engine.reach(a).contains(&spy));
    assert!(!engine.reach(c).contains(&spy));
    rig.change(&json!({"del-rule": {"name": "copied"}}));
    assert!(!rig.controller.engine().reach(a).contains(&spy));
}

/// A rule is compiled for the numbers of its port and of its inspector, which other ports may get.
#[test]
fn rules_are_compiled_again_once_their_port_has_another_number() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["a", "ips"] {
        let mut rig = Rig::with(&format!("{START}{RULES}"));
        let before = rig.table();
        let engine = rig.controller.engine();
        let number = engine.number(name).unwrap();
        engine.retire(&[number]);
        rig.settle();
        rig.change(&json!({"add-port": {"name": "x", "uri": "null:"}}));
        let engine = rig.controller.engine();
        assert_eq!(engine.rules.numbers[name], None);
        assert!(!Arc::ptr_eq(&before, &rig.table()), "{name}");
    }
}

#[test]
fn a_new_thread_has_all_rules_before_it_gets_frames_of_others() {
    const RULES: &str = r#"
[[rule]]
name = "names"
action = "drop"
port = "a"
protocol = "tcp"
destination-port = "443"
tls-name = ["www.example.org"]
[[rule]]
name = "out"
action = "drop"
direction = "out"
port = "b"
[[port]]
name = "i"
uri = "null:"
[[rule]]
name = "inspected"
action = "accept"
inspect = "i"
"#;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = Rig::with(&format!("{START}{RULES}[connections]\nmax-entries = 64\n"));
    rig.change(&json!({"set-threads": {"forwarding_cpus": "2-5"}}));
    rig.check();
    let orders = rig.faults.1.lock().unwrap().clone();
    let of_new = orders.iter().filter(|(cpu, _)| *cpu == 5);
    let of_new: Vec<&str> = of_new.map(|(_, name)| *name).collect();
    let place = |name: &str| of_new.iter().position(|one| *one == name);
    let before = ["output rules", "names", "inspection", "fragments"].map(place);
    assert!(before.iter().all(Option::is_some), "{of_new:?}");
    assert!(
        before.into_iter().max() < Some(place("share")),
        "{of_new:?}"
    );
}
