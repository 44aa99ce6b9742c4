// SPDX-License-Identifier: Apache-2.0
//! Explanation of the decision on a described packet.

use std::collections::HashMap;

use quietwire_tables::connections::{CtBits, CtValue};
use quietwire_tables::filter::{DescribedPacket, Difference, NameMatch, Protocol};
use serde::{Deserialize, Serialize};

use super::sets::contains_port;
use super::{Action, Direction, Element, RuleSetting, Rules, SetName, port_set};
use crate::config::settings::Settings;
use crate::error::SwitchError;

/// Maximum number of rules in [`RuleCheck::near`].
const NEAR_MAX: usize = 32;
const TCP: Protocol = Protocol(6);

/// A packet and the port that receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ReceivedPacket {
    /// Name of the receiving port.
    pub port: String,
    /// Name of the port that the packet leaves by: the rules for frames that leave decide. Default: those for received frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Its fields.
    pub packet: DescribedPacket,
}

impl ReceivedPacket {
    /// Returns the port whose rules decide.
    pub(crate) fn decisive_port(&self) -> &String {
        self.out.as_ref().unwrap_or(&self.port)
    }
}

/// Decision of the rules on a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCheck {
    /// Name of the rule that decides; `None` for the default.
    pub rule: Option<String>,
    /// Number of the rule, from 0.
    pub number: Option<usize>,
    /// Action for the packet.
    pub action: Action,
    /// Number of earlier rules that do not match.
    pub rules_before: usize,
    /// Names of earlier rules that match and continue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continued: Vec<String>,
    /// Earlier rules that differ from the packet in one field only: the first 32.
    pub near: Vec<NearRule>,
}

/// A rule that nearly matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearRule {
    /// Its name.
    pub rule: String,
    /// Its action.
    pub action: Action,
    /// The field in which the packet differs.
    #[serde(flatten)]
    pub difference: Difference,
}

impl Settings {
    /// Finds the rule of these settings that decides on a packet. The settings may lack the ports: then the ports and bridges of the rules
    /// are taken to exist.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for an invalid rule or packet.
    pub fn check_rules(&self, received: &ReceivedPacket) -> Result<RuleCheck, SwitchError> {
        let of_rules = |name: fn(&RuleSetting) -> &Option<String>| {
            let rules = self.rules.iter().flatten();
            rules.filter_map(move |rule| name(&rule.value).as_deref())
        };
        let mut ports: std::collections::BTreeSet<&str> = std::collections::BTreeSet::new();
        let mut bridges = std::collections::BTreeSet::new();
        ports.extend(self.ports.iter().flatten().map(|port| port.name.as_str()));
        bridges.extend(self.bridges.iter().flatten().map(|one| one.name.as_str()));
        if self.ports.is_none() {
            ports.extend(of_rules(|rule| &rule.port));
            ports.extend(of_rules(|rule| &rule.statements.dup));
            ports.extend(of_rules(|rule| &rule.statements.inspect));
            ports.extend(of_rules(|rule| &rule.from));
            let rules = self.rules.iter().flatten();
            ports.extend(rules.flat_map(|rule| rule.value.ports.iter().map(String::as_str)));
            ports.extend(received.out.as_deref());
            bridges.extend(of_rules(|rule| &rule.bridge));
            ports.insert(&received.port);
        }
        let rules = super::plan(self, &ports, &bridges, None)?;
        for port in [Some(&received.port), received.out.as_ref()]
            .into_iter()
            .flatten()
        {
            if !ports.contains(port.as_str()) {
                return Err(absent_port(port));
            }
        }
        rules.check_packet(received)?;
        let mut all = self.bridges.iter().flatten();
        let bridge = all.find(|bridge| bridge.ports.contains(received.decisive_port()));
        Ok(rules.check(received, bridge.map(|bridge| bridge.name.as_str()), None))
    }
}

/// Returns the error of a port that does not exist.
pub(crate) fn absent_port(name: &str) -> SwitchError {
    SwitchError::Config {
        location: "packet".to_owned(),
        what: format!("no such port: '{name}'"),
    }
}

/// Returns the error of a packet that cannot be.
fn wrong_packet(what: String) -> SwitchError {
    SwitchError::Config {
        location: "packet".to_owned(),
        what,
    }
}

impl Rules {
    /// Checks that a packet can have its fields, and has those without which the rules cannot decide.
    ///
    /// # Errors
    /// [`SwitchError::Config`].
    pub(crate) fn check_packet(&self, received: &ReceivedPacket) -> Result<(), SwitchError> {
        let (packet, is_out) = (&received.packet, received.out.is_some());
        packet.check().map_err(wrong_packet)?;
        let is_unknown = packet.source.is_some() && packet.ct_state.is_none();
        let mut rules = self.rules.iter();
        match rules.find(|rule| rule.is_out() == is_out && rule.ct_state.is_some()) {
            Some(rule) if is_unknown => Err(wrong_packet(format!(
                "rule '{}' compares the state of connections (set ct-state, such as new)",
                rule.name
            ))),
            _ => Ok(()),
        }
    }

    /// Explains the decision on a packet. `bridge` is that of the port; `found` is the number of the rule as forwarding threads find it.
    /// Default: the first rule without a difference.
    pub(crate) fn check(
        &self,
        received: &ReceivedPacket,
        bridge: Option<&str>,
        found: Option<Option<usize>>,
    ) -> RuleCheck {
        let sets = self.sets.iter();
        let sets: HashMap<&SetName, &[Element]> =
            sets.map(|set| (&set.name, &set.elements[..])).collect();
        let (mut near, mut continued) = (Vec::new(), Vec::new());
        let mut number = found.flatten();
        let end = match found {
            Some(found) => found.unwrap_or(self.rules.len()),
            None => self.rules.len(),
        };
        let mut before = 0usize;
        for (place, rule) in self.rules.iter().take(end).enumerate() {
            let differences = differences(rule, received, bridge, &sets);
            if differences.is_empty() && rule.action == Action::Continue {
                continued.push(rule.name.clone());
                continue;
            }
            if differences.is_empty() && found.is_none() {
                number = Some(place);
                break;
            }
            before = before.saturating_add(1);
            if let [difference] = differences.as_slice()
                && near.len() < NEAR_MAX
            {
                near.push(NearRule {
                    rule: rule.name.clone(),
                    action: rule.action,
                    difference: difference.clone(),
                });
            }
        }
        let rule = number.and_then(|number| self.rules.get(number));
        RuleCheck {
            rule: rule.map(|rule| rule.name.clone()),
            number,
            action: match (rule, &received.out) {
                (Some(rule), _) => rule.action,
                (None, None) => self.default,
                (None, Some(_)) => Action::Accept,
            },
            rules_before: before,
            continued,
            near,
        }
    }
}

/// Returns the fields in which a packet differs from a rule.
fn differences(
    rule: &RuleSetting,
    received: &ReceivedPacket,
    bridge: Option<&str>,
    sets: &HashMap<&SetName, &[Element]>,
) -> Vec<Difference> {
    let vlan = received.packet.vlan.map(|vlan| vlan.to_string());
    let direction = |is_out: bool| match is_out {
        true => Direction::Out.name().to_owned(),
        false => Direction::In.name().to_owned(),
    };
    let (is_out, port) = (received.out.is_some(), received.decisive_port().clone());
    // A set that has the port stands for it.
    let named = |name: &String, port: &String| {
        let of_set = port_set(name).and_then(|set| sets.iter().find(|(name, _)| name.0 == set));
        match of_set.is_some_and(|(_, elements)| contains_port(elements, port)) {
            true => port.clone(),
            false => name.clone(),
        }
    };
    let wanted_port = match rule.ports.contains(&port) {
        true => Some(port.clone()),
        false if !rule.ports.is_empty() => Some(rule.ports.join(",")),
        false => rule.port.as_ref().map(|name| named(name, &port)),
    };
    let wanted_from = rule.from.as_ref();
    let wanted_from = wanted_from.map(|name| named(name, &received.port));
    let own = [
        (
            "direction",
            Some(direction(rule.is_out())),
            Some(direction(is_out)),
        ),
        ("port", wanted_port, Some(port)),
        ("from", wanted_from, Some(received.port.clone())),
        ("bridge", rule.bridge.clone(), bridge.map(str::to_owned)),
        ("vlan", rule.vlan.map(|vlan| vlan.to_string()), vlan),
    ];
    let mut found = Vec::new();
    for (field, wanted, has) in own {
        if let Some(wanted) = wanted.filter(|wanted| Some(wanted) != has.as_ref()) {
            found.push(Difference {
                field: field.to_owned(),
                required: wanted,
                packet: has,
            });
        }
    }
    let state = received.packet.own_ct_state();
    if let Some(states) = rule.ct_state.filter(|states| !states.contains(state)) {
        found.push(Difference {
            field: "ct-state".to_owned(),
            required: states.to_string(),
            packet: Some(state.name().to_owned()),
        });
    }
    found.extend(ct_difference(rule.ct_mark, received.packet.own_mark()));
    found.extend(ct_difference(rule.ct_label, received.packet.own_label()));
    found.extend(name_difference(&rule.names, rule.action, &received.packet));
    let elements = |name: &SetName| sets.get(name).copied().unwrap_or_default();
    found.extend(received.packet.differences(&rule.packet, elements));
    found
}

/// Returns how the mark or label of a connection differs from the bits that a rule requires.
fn ct_difference<V: CtValue>(required: Option<CtBits<V>>, value: V) -> Option<Difference> {
    let bits = required.filter(|bits| !bits.matches(value))?;
    Some(Difference {
        field: format!("ct-{}", V::NAME),
        required: bits.to_string(),
        packet: Some(format!("{value:#x}")),
    })
}

/// Returns the difference between the names of a rule and that of a packet. Before the name of a connection, a rule that accepts has none.
fn name_difference(
    names: &NameMatch,
    action: Action,
    packet: &DescribedPacket,
) -> Option<Difference> {
    let (kind, _) = names.names()?;
    let has = packet.name();
    let is_same = match has {
        Some((is, name)) => is == kind && names.contains(name),
        None => action == Action::Accept && packet.protocol == Some(TCP),
    };
    (!is_same).then(|| Difference {
        field: kind.key().to_owned(),
        required: names.list(),
        packet: has
            .filter(|(is, _)| *is == kind)
            .map(|(_, name)| name.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = r#"
rule-default = "drop"

[[set]]
name = "admins"
type = "ipv4_addr"
elements = ["192.0.2.0/24"]

[[rule]]
name = "ssh"
action = "accept"
port = "uplink"
protocol = "tcp"
source = "@admins"
destination-port = "22"

[[rule]]
name = "other"
action = "drop"
vlan = 7

[[rule]]
name = "web"
action = "accept"
protocol = "tcp"
destination-port = "80-443"
"#;

    fn check(packet: &str) -> Result<RuleCheck, String> {
        check_with(FILE, packet)
    }

    fn check_with(file: &str, packet: &str) -> Result<RuleCheck, String> {
        let settings = super::super::RuleFile::parse(Path::new("rules.toml"), file).unwrap();
        let received: ReceivedPacket = serde_json::from_str(packet).unwrap();
        let found = settings.settings().check_rules(&received);
        found.map_err(|error| error.to_string())
    }

    fn tcp(port: &str, source: &str, destination_port: u16) -> RuleCheck {
        check(&format!(
            r#"{{"port":"{port}","packet":{{"source":"{source}","destination":"10.0.0.1","protocol":"tcp","source-port":1024,"destination-port":{destination_port}}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn rules_that_continue_are_reported_beside_the_deciding_one() {
        let rule = |name: &str, action: &str, keys: &str| {
            format!("[[rule]]\nname = \"{name}\"\naction = \"{action}\"\n{keys}\n")
        };
        let file = rule("count", "continue", "")
            + &rule("vlan", "continue", "vlan = 7")
            + &rule("log", "continue", "port = \"a\"\nlog = 1")
            + &rule("drop", "drop", "port = \"a\"")
            + &rule("behind", "continue", "");
        let of = |port: &str| {
            let packet = format!(r#"{{"port":"{port}","packet":{{"ethertype":"arp"}}}}"#);
            let found = check_with(&file, &packet).unwrap();
            (found.rule, found.rules_before, found.continued)
        };
        let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let dropped = Some("drop".to_owned());
        assert_eq!(of("a"), (dropped, 1, names(["count", "log"])));
        assert_eq!(of("b"), (None, 3, names(["count", "behind"])));
    }

    #[test]
    fn a_set_of_ports_matches_each_of_them() {
        let file = "[[set]]\nname = \"guests\"\ntype = \"ifname\"\nelements = [\"a\", \"b\"]\n\
                    [[rule]]\nname = \"in\"\naction = \"drop\"\nport = \"@guests\"\n\
                    [[rule]]\nname = \"out\"\naction = \"drop\"\ndirection = \"out\"\n\
                    port = \"c\"\nfrom = \"@guests\"\n";
        let check = |ports: &str| {
            let packet = format!(r#"{{{ports},"packet":{{"ethertype":"arp"}}}}"#);
            let found = check_with(file, &packet).unwrap();
            let near = found.near.into_iter();
            let near = near.map(|one| format!("{} {}", one.rule, one.difference.required));
            (found.rule, near.collect::<Vec<_>>())
        };
        let rule = |name: &str| (Some(name.to_owned()), Vec::new());
        assert_eq!(check(r#""port":"a""#), rule("in"));
        assert_eq!(check(r#""port":"b","out":"c""#), rule("out"));
        assert_eq!(
            check(r#""port":"c""#),
            (None, vec!["in @guests".to_owned()])
        );
        let near = vec!["out @guests".to_owned()];
        assert_eq!(check(r#""port":"d","out":"c""#), (None, near));
    }

    #[test]
    fn the_deciding_rule_and_near_ones_are_reported() {
        let ssh = tcp("uplink", "192.0.2.9", 22);
        assert_eq!((ssh.rule.as_deref(), ssh.number), (Some("ssh"), Some(0)));
        assert_eq!(
            (ssh.action, ssh.rules_before, ssh.near.len()),
            (Action::Accept, 0, 0)
        );
        let outside = tcp("uplink", "198.51.100.1", 22);
        assert_eq!((outside.rule, outside.action), (None, Action::Drop));
        assert_eq!(outside.rules_before, 3);
        let near: Vec<String> = outside
            .near
            .iter()
            .map(|near| {
                format!(
                    "{} {} {}",
                    near.rule, near.difference.field, near.difference.required
                )
            })
            .collect();
        assert_eq!(
            near,
            [
                "ssh source @admins",
                "other vlan 7",
                "web destination-port 80-443"
            ]
        );
        let inside = tcp("inside", "192.0.2.9", 22);
        assert_eq!(inside.near[0].difference.field, "port");
        assert_eq!(tcp("x", "192.0.2.9", 443).rule.as_deref(), Some("web"));
        let error = check(r#"{"port":"x","packet":{"protocol":"tcp"}}"#).unwrap_err();
        assert!(error.contains("requires source and destination"), "{error}");
    }

    #[test]
    fn rules_of_frames_that_leave_decide_on_them_only() {
        let file = "rule-default = \"drop\"\n[[rule]]\nname = \"guests\"\naction = \"drop\"\n\
                    direction = \"out\"\nport = \"b\"\nfrom = \"a\"\n";
        let check = |ports: &str| {
            let text = format!(r#"{{{ports},"packet":{{"ethertype":"arp"}}}}"#);
            let found = check_with(file, &text).unwrap();
            let near = found.near.iter().map(|near| near.difference.field.clone());
            (found.rule, found.action, near.collect::<Vec<_>>())
        };
        let rule = || Some("guests".to_owned());
        assert_eq!(
            check(r#""port":"a","out":"b""#),
            (rule(), Action::Drop, vec![])
        );
        let from = vec!["from".to_owned()];
        assert_eq!(
            check(r#""port":"c","out":"b""#),
            (None, Action::Accept, from)
        );
        let direction = vec!["direction".to_owned()];
        // As received, it differs in the direction, and in the port.
        assert_eq!(check(r#""port":"a""#), (None, Action::Drop, vec![]));
        // Only rules of this direction require the state of the packet.
        let with_state = format!("{file}ct-state = \"new\"\n");
        let packet = |more: &str| {
            let fields = r#""source":"10.0.0.1","destination":"10.0.0.2","protocol":"udp""#;
            format!(r#"{{"port":"a",{more},"packet":{{{fields}"#)
        };
        let leaves = packet(r#""out":"b""#);
        let error = check_with(&with_state, &format!("{leaves}}}}}")).unwrap_err();
        assert!(error.contains("set ct-state"), "{error}");
        for (state, rule) in [("new", Some("guests")), ("established", None)] {
            let text = format!(r#"{leaves},"ct-state":"{state}"}}}}"#);
            let found = check_with(&with_state, &text).unwrap();
            assert_eq!(found.rule.as_deref(), rule, "{state}");
        }
        let received = packet(r#""out":null"#);
        assert!(check_with(&with_state, &format!("{received}}}}}")).is_ok());
        let any = file.replace("port = \"b\"\nfrom = \"a\"\n", "");
        let found = check_with(&any, r#"{"port":"a","packet":{"ethertype":"arp"}}"#).unwrap();
        let near: Vec<String> = found
            .near
            .into_iter()
            .map(|near| near.difference.field)
            .collect();
        assert_eq!(near, direction);
    }

    #[test]
    fn names_are_compared_and_packets_before_the_name_are_accepted_only() {
        let file = "rule-default = \"drop\"\n\
            [[rule]]\nname = \"bad\"\naction = \"drop\"\nprotocol = \"tcp\"\n\
            destination-port = \"443\"\ntls-name = [\"bad.example.org\", \"x.example\"]\n\
            [[rule]]\nname = \"good\"\naction = \"accept\"\nprotocol = \"tcp\"\n\
            destination-port = \"443\"\ntls-name = [\"*.example.org\"]\n";
        let check = |name: &str| {
            let found = check_with(
                file,
                &format!(
                    r#"{{"port":"x","packet":{{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"tcp","source-port":9,"destination-port":443{name}}}}}"#
                ),
            )
            .unwrap();
            (found.rule, found.near)
        };
        let (rule, near) = check("");
        assert_eq!(rule.as_deref(), Some("good"));
        let difference = &near[0].difference;
        assert_eq!(
            (difference.field.as_str(), difference.required.as_str()),
            ("tls-name", "bad.example.org,x.example")
        );
        assert_eq!(difference.packet, None);
        let (rule, _) = check(r#","tls-name":"BAD.example.org""#);
        assert_eq!(rule.as_deref(), Some("bad"));
        let (rule, near) = check(r#","tls-name":"www.example.org""#);
        assert_eq!((rule.as_deref(), near.len()), (Some("good"), 1));
        let (rule, near) = check(r#","tls-name":"example.org""#);
        assert_eq!((rule, near.len()), (None, 2));
        assert_eq!(near[1].difference.packet.as_deref(), Some("example.org"));
        let (rule, _) = check(r#","http-host":"www.example.org""#);
        assert_eq!(rule, None);
        let file = "rule-default = \"drop\"\n\
            [[rule]]\nname = \"ours\"\naction = \"accept\"\nprotocol = \"udp\"\n\
            destination-port = \"53\"\ndns-name = [\"a.example\"]\n";
        for (name, expected) in [("", None), (r#","dns-name":"a.example""#, Some("ours"))] {
            let packet = format!(
                r#"{{"port":"x","packet":{{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"udp","source-port":9,"destination-port":53{name}}}}}"#
            );
            let found = check_with(file, &packet).unwrap();
            assert_eq!(found.rule.as_deref(), expected);
        }
    }

    #[test]
    fn rules_on_marks_and_labels_decide_by_those_of_the_connection() {
        for key in ["ct-mark", "ct-label"] {
            let file = format!(
                "rule-default = \"drop\"\n[[rule]]\nname = \"guests\"\naction = \"accept\"\n\
                 {key} = \"0x1/0x3\"\n"
            );
            let check = |value: &str| {
                let packet = format!(
                    r#"{{"port":"x","packet":{{"source":"10.0.0.1","destination":"10.0.0.2","ct-state":"new"{value}}}}}"#
                );
                check_with(&file, &packet).unwrap()
            };
            let found = check(&format!(r#","{key}":"0x5""#));
            assert_eq!(found.rule.as_deref(), Some("guests"));
            for (value, has) in [(String::new(), "0x0"), (format!(r#","{key}":"7""#), "0x7")] {
                let found = check(&value);
                assert_eq!(found.rule, None);
                let difference = &found.near[0].difference;
                let expected = (key, "0x1/0x3", Some(has));
                let shown = (
                    difference.field.as_str(),
                    difference.required.as_str(),
                    difference.packet.as_deref(),
                );
                assert_eq!(shown, expected);
            }
        }
    }

    #[test]
    fn rules_on_states_require_the_state_of_the_packet() {
        let file = "rule-default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\n\
                    ct-state = \"established,related\"\n";
        let check = |state: &str| {
            check_with(
                file,
                &format!(
                    r#"{{"port":"x","packet":{{"source":"10.0.0.1","destination":"10.0.0.2"{state}}}}}"#
                ),
            )
        };
        let error = check("").unwrap_err();
        assert!(error.contains("rule 'answers' compares"), "{error}");
        let answer = check(r#","ct-state":"related""#).unwrap();
        assert_eq!(answer.rule.as_deref(), Some("answers"));
        let first = check(r#","ct-state":"new""#).unwrap();
        assert_eq!((first.rule, first.action), (None, Action::Drop));
        let difference = &first.near[0].difference;
        assert_eq!(
            (difference.field.as_str(), difference.packet.as_deref()),
            ("ct-state", Some("new"))
        );
        let arp = check_with(file, r#"{"port":"x","packet":{"ethertype":"arp"}}"#).unwrap();
        assert_eq!(arp.rule, None);
    }
}
