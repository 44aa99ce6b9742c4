// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of steering rules.

use super::SteerSetting;
use crate::config::edit::{absent, from_request, remove};
use crate::config::settings::Settings;
use crate::error::SwitchError;

impl Settings {
    /// Adds a steering rule before another, or at the end.
    pub(in crate::config) fn add_steer(
        &mut self,
        rule: SteerSetting,
        before: Option<String>,
    ) -> Result<(), SwitchError> {
        let rules = self.steer.get_or_insert_default();
        let place = match before {
            None => rules.len(),
            Some(name) => rules
                .iter()
                .position(|one| one.value.name == name)
                .ok_or_else(|| absent("steering rule", &name))?,
        };
        rules.insert(place, from_request(rule));
        Ok(())
    }

    pub(in crate::config) fn del_steer(&mut self, name: &str) -> Result<(), SwitchError> {
        let rules = self.steer.get_or_insert_default();
        remove(rules, "steering rule", name, |rule| &rule.name)
    }

    /// Removes the steering rules of a port that is removed.
    pub(in crate::config) fn forget_steering_of(&mut self, port: &str) {
        if let Some(rules) = &mut self.steer {
            rules.retain(|rule| {
                rule.value.port != port && rule.value.kernel_port.as_deref() != Some(port)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_dpdk::{CardTarget, STEER_RULES_MAX, SteerMatch, SteerTarget};

    use super::*;
    use crate::config::{Change, Plan};

    const PORTS: &str = "[[port]]\nname = \"wan\"\nuri = \"af-xdp:eth0\"\n[[port]]\nname = \"lan\"\nuri = \"null:\"\n[[port]]\nname = \"tap\"\nuri = \"tap:kernel0\"\n";

    fn settings(rules: &str) -> Result<Settings, SwitchError> {
        Settings::parse(Path::new("switch.toml"), &format!("{PORTS}{rules}"))
    }

    fn planned(settings: Settings) -> Result<Plan, SwitchError> {
        settings.plan(&"0-3".parse().unwrap())
    }

    fn names_of_idle(plan: &Plan) -> Vec<&str> {
        plan.idle_ports().collect()
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.steer.iter().map(|rule| rule.name.as_str()).collect()
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        let rules = "[[steer]]\nname = \"dns\"\nport = \"wan\"\nto = \"switch\"\nsource-mac = \"02:00:00:00:00:01\"\nvlan = 7\nprotocol = \"udp\"\ndestination = \"192.0.2.0/24\"\ndestination-port = \"53\"\n[[steer]]\nname = \"all\"\nport = \"wan\"\nto = \"kernel\"\n";
        let plan = planned(settings(rules).unwrap()).unwrap();
        assert_eq!(names(&plan), ["dns", "all"]);
        let again = Settings::parse(Path::new("again"), &plan.to_toml().unwrap());
        assert_eq!(planned(again.unwrap()).unwrap(), plan);
        assert_eq!(
            plan.device_rules(&plan.ports[0])[0].frames,
            SteerMatch {
                source_mac: Some([2, 0, 0, 0, 0, 1]),
                vlan: Some(7),
                protocol: Some(17),
                destination: Some(([192, 0, 2, 0].into(), 24)),
                destination_ports: Some((53, 53)),
                ..SteerMatch::default()
            }
        );
        assert_eq!(
            plan.device_rules(&plan.ports[0])[1].target,
            SteerTarget::Kernel
        );
        assert_eq!(plan.device_rules(&plan.ports[1]), []);
        assert_eq!(names_of_idle(&plan), ["wan", "lan", "tap"]);
    }

    #[test]
    fn rules_select_queues_and_virtual_functions() {
        let rules = "[[steer]]\nname = \"guest\"\nport = \"wan\"\nto = \"virtual-function\"\nvirtual-function = 2\nvlan = 7\n[[steer]]\nname = \"dns\"\nport = \"wan\"\nto = \"switch\"\nqueue = 0\nprotocol = \"udp\"\n[[steer]]\nname = \"other\"\nport = \"wan\"\nto = \"kernel\"\nqueue = 5\nprotocol = \"tcp\"\n";
        let plan = planned(settings(rules).unwrap()).unwrap();
        let again = Settings::parse(Path::new("again"), &plan.to_toml().unwrap());
        assert_eq!(planned(again.unwrap()).unwrap(), plan);
        let rules = plan.device_rules(&plan.ports[0]);
        let selected: Vec<_> = rules.iter().map(|rule| (rule.target, rule.card)).collect();
        assert_eq!(
            selected,
            [
                (SteerTarget::Kernel, Some(CardTarget::Function(2))),
                (SteerTarget::Switch, Some(CardTarget::Queue(0))),
                (SteerTarget::Kernel, Some(CardTarget::Queue(5))),
            ]
        );
    }

    #[test]
    fn a_port_that_does_not_steer_has_a_tap_for_the_kernel() {
        let rules =
            "[[steer]]\nname = \"dns\"\nport = \"lan\"\nto = \"switch\"\nkernel-port = \"tap\"\n";
        let plan = planned(settings(rules).unwrap()).unwrap();
        let again = Settings::parse(Path::new("again"), &plan.to_toml().unwrap());
        assert_eq!(planned(again.unwrap()).unwrap(), plan);
        assert_eq!(names_of_idle(&plan), ["wan", "lan"]);
        assert_eq!(plan.device_rules(&plan.ports[1]), []);
        let change = serde_json::from_slice::<Change>(br#"{"del-port":{"name":"tap"}}"#).unwrap();
        let without = settings(rules).unwrap().after(change).unwrap();
        assert_eq!(names(&planned(without).unwrap()), [""; 0]);
    }

    #[test]
    fn a_card_with_a_dpdk_driver_selects_queues_and_virtual_functions() {
        let port = "[[port]]\nname = \"card\"\nuri = \"pci:0000:17:00.0?queues=2\"\n";
        let rule = |name: &str, text: &str| {
            format!("[[steer]]\nname = \"{name}\"\nport = \"card\"\n{text}\n")
        };
        let to_queue = "to = \"switch\"\nqueue = 1\nvlan = 7";
        let to_function = "to = \"virtual-function\"\nvirtual-function = 2\nvlan = 8";
        let plan_of =
            |rules: &[String]| settings(&(port.to_owned() + &rules.concat())).and_then(planned);
        let plan = plan_of(&[rule("a", to_queue), rule("b", to_function)]).unwrap();
        let cards = |plan: &Plan| -> Vec<_> {
            let rules = plan.device_rules(&plan.ports[3]);
            rules.iter().map(|rule| rule.card).collect()
        };
        let selected = [Some(CardTarget::Queue(1)), Some(CardTarget::Function(2))];
        assert_eq!(cards(&plan), selected);
        // With a tap, forwarding threads apply all rules, and the card only those that select something.
        let with_tap = |text: &str| format!("{text}\nkernel-port = \"tap\"");
        let plain = "to = \"switch\"\nprotocol = \"udp\"";
        let plan = plan_of(&[
            rule("a", &with_tap(plain)),
            rule("b", &with_tap(to_queue)),
            rule("c", &with_tap(to_function)),
        ]);
        assert_eq!(cards(&plan.unwrap()), selected);
        for (rules, printed) in [
            (
                vec![rule("a", plain)],
                "port 'card' (pci:0000:17:00.0?queues=2) receives all frames",
            ),
            (
                vec![rule("a", "to = \"kernel\"\nqueue = 0\nvlan = 7")],
                "receives all frames of its interface",
            ),
            (
                vec![rule("a", &with_tap(plain)), rule("b", to_queue)],
                "rule 'a' of port 'card' has a kernel-port, and this one has none",
            ),
        ] {
            let error = plan_of(&rules).unwrap_err().to_string();
            assert!(error.contains(printed), "{rules:?}: {error}");
        }
    }

    #[test]
    fn invalid_rules_are_refused() {
        let rule = |text: &str| format!("[[steer]]\n{text}\n");
        let of_lan = |name: &str, tap: &str| {
            rule(&format!(
                "name = \"{name}\"\nport = \"lan\"\nto = \"switch\"\nkernel-port = \"{tap}\""
            ))
        };
        let of_wan = |text: &str| rule(&format!("name = \"x\"\nport = \"wan\"\n{text}"));
        for (rules, printed) in [
            (
                rule("name = \"\"\nport = \"wan\"\nto = \"switch\""),
                "no name",
            ),
            (rule("name = \"x\"\nto = \"switch\""), "port"),
            (of_wan(""), "to"),
            (of_wan("to = \"nowhere\""), "nowhere"),
            (
                of_wan("to = \"switch\"\nqueue = 1"),
                "queue 1 is none of port 'wan', which has queues 0 to 0",
            ),
            (
                of_wan("to = \"virtual-function\""),
                "requires virtual-function = N",
            ),
            (
                of_wan("to = \"kernel\"\nvirtual-function = 1"),
                "requires virtual-function = N",
            ),
            (
                of_wan("to = \"virtual-function\"\nvirtual-function = 1\nqueue = 0"),
                "remove queue",
            ),
            (
                of_wan("to = \"virtual-function\"\nvirtual-function = 255"),
                "no such virtual function: 255",
            ),
            (
                rule(
                    "name = \"x\"\nport = \"lan\"\nto = \"switch\"\nkernel-port = \"tap\"\nqueue = 0",
                ),
                "port 'lan' (null:) cannot select queues",
            ),
            (
                rule("name = \"first\"\nport = \"wan\"\nto = \"kernel\"\nvlan = 2")
                    + &of_wan("to = \"virtual-function\"\nvirtual-function = 1"),
                "before rule 'first', which is not on the card",
            ),
            (
                rule("name = \"x\"\nport = \"dmz\"\nto = \"switch\""),
                "no such port: 'dmz'",
            ),
            (
                rule("name = \"x\"\nport = \"lan\"\nto = \"switch\""),
                "port 'lan' (null:) receives all frames",
            ),
            (
                of_wan("to = \"switch\"\nsource-port = \"5\""),
                "ports require protocol",
            ),
            (
                of_wan("to = \"switch\"\nkernel-port = \"tap\""),
                "remove kernel-port",
            ),
            (of_lan("x", "wan"), "'wan' is not another port on a tap"),
            (of_lan("x", "dmz"), "no such port: 'dmz'"),
            (
                of_lan("x", "tap")
                    + &rule(
                        "name = \"y\"\nport = \"tap\"\nto = \"switch\"\nkernel-port = \"tap2\"",
                    )
                    + "[[port]]\nname = \"tap2\"\nuri = \"tap:kernel1\"\n",
                "both a steered port and a kernel-port",
            ),
            (
                of_lan("x", "tap")
                    + &of_lan("y", "tap2")
                    + "[[port]]\nname = \"tap2\"\nuri = \"tap:kernel1\"\n",
                "use one kernel-port for each port",
            ),
            (
                of_lan("x", "tap") + "[[cross-connect]]\nports = [\"lan\", \"tap\"]\n",
                "port 'tap' already belongs to",
            ),
            (
                of_wan("to = \"switch\"") + &of_wan("to = \"kernel\""),
                "duplicate steering rule 'x'",
            ),
        ] {
            let error = settings(&rules).and_then(planned).unwrap_err().to_string();
            assert!(error.contains(printed), "{rules}: {error}");
            assert!(error.contains("line"), "{rules}: {error}");
        }
        let many = |count: usize| -> String {
            let one = |n| rule(&format!("name = \"{n}\"\nport = \"wan\"\nto = \"switch\""));
            (0..count).map(one).collect()
        };
        assert!(planned(settings(&many(STEER_RULES_MAX)).unwrap()).is_ok());
        let error = planned(settings(&many(STEER_RULES_MAX + 1)).unwrap()).unwrap_err();
        assert!(error.to_string().contains("too many"), "{error}");
    }

    #[test]
    fn rules_are_added_removed_and_forgotten_with_their_port() {
        let change = |json: &str| serde_json::from_slice::<Change>(json.as_bytes()).unwrap();
        let rule = |name: &str, before: &str| {
            change(&format!(
                r#"{{"add-steer":{{"rule":{{"name":"{name}","port":"wan","to":"switch","vlan":3}}{before}}}}}"#
            ))
        };
        let before = |name: &str| format!(r#","before":"{name}""#);
        let settings = settings("").unwrap();
        let settings = settings.after(rule("b", "")).unwrap();
        let settings = settings.after(rule("c", "")).unwrap();
        let settings = settings.after(rule("a", &before("b"))).unwrap();
        assert_eq!(names(&planned(settings.clone()).unwrap()), ["a", "b", "c"]);
        assert!(settings.clone().after(rule("d", &before("none"))).is_err());
        let removed = change(r#"{"del-steer":{"name":"b"}}"#);
        let settings = settings.after(removed.clone()).unwrap();
        assert_eq!(names(&planned(settings.clone()).unwrap()), ["a", "c"]);
        let error = settings.clone().after(removed).unwrap_err().to_string();
        assert!(error.contains("no such steering rule: 'b'"), "{error}");
        let without = settings.after(change(r#"{"del-port":{"name":"wan"}}"#));
        assert_eq!(names(&planned(without.unwrap()).unwrap()), [""; 0]);
    }
}
