// SPDX-License-Identifier: Apache-2.0
//! Imports of sets of interfaces.

use super::*;

fn interface(key: &str, name: &str) -> Value {
    is(json!({"meta": {"key": key}}), json!(name))
}

/// Returns a ruleset of family `ip` with these rules and a set `guests` of interfaces.
fn with_set(rules: &[Value], elements: &Value) -> String {
    let mut parsed: Value = serde_json::from_str(&ruleset("ip", "accept", rules, &[])).unwrap();
    let set = json!({"set": {
        "family": "ip", "table": "filter", "name": "guests", "handle": 4, "type": "ifname",
        "elem": elements,
    }});
    // Sets are in front of the rules that refer to them.
    let list = parsed["nftables"].as_array_mut().unwrap();
    list.insert(1, set);
    parsed.to_string()
}

#[test]
fn sets_of_interfaces_become_sets_of_ports() {
    let (accept, drop) = (json!({"accept": null}), json!({"drop": null}));
    let rules = [
        json!([
            interface("iifname", "@guests"),
            is(payload("tcp", "dport"), json!(25)),
            drop
        ]),
        json!([
            is(
                json!({"meta": {"key": "iifname"}}),
                json!({"set": ["a", "b"]})
            ),
            accept
        ]),
    ];
    let elements = json!(["tap0", {"elem": {"val": "tap1", "timeout": 60}}]);
    let mut imported = import(&with_set(&rules, &elements));
    assert_eq!(missing(&imported), []);
    imported.rename_ports(&[("tap1".to_owned(), "vm".to_owned())]);
    read_again(&imported);
    let [set] = &imported.sets[..] else {
        panic!("{:?}", imported.sets);
    };
    let elements: Vec<String> = set.elements.iter().map(ToString::to_string).collect();
    assert_eq!(elements, ["tap0", "vm"]);
    let timeouts: Vec<String> = set
        .element_timeouts_s
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(timeouts, ["vm"]);
    assert_eq!(
        lines(&imported),
        [
            "forward-10 drop port=@guests ethertype=ipv4 protocol=tcp destination-port=25",
            "forward-11 accept port=a ethertype=ipv4",
            "forward-11.2 accept port=b ethertype=ipv4",
        ]
    );
    // The set is that of the interfaces that received packets.
    let rules = [json!([
        interface("iifname", "@guests"),
        interface("oifname", "eth0"),
        drop
    ])];
    let imported = import(&with_set(&rules, &json!(["tap0"])));
    assert_eq!(missing(&imported), []);
    let [rule] = &imported.rules[..] else {
        panic!("{:?}", imported.rules);
    };
    assert!(rule.is_out());
    let ports = (rule.from.as_deref(), rule.port.as_deref());
    assert_eq!(ports, (Some("@guests"), Some("eth0")));
}

#[test]
fn other_conditions_on_sets_of_interfaces_are_reported() {
    let accept = json!({"accept": null});
    let not =
        json!({"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "@guests"}});
    let both = json!([
        interface("iifname", "@guests"),
        interface("iifname", "tap0"),
        accept
    ]);
    for (rule, reason) in [
        (both, "one of them a set"),
        (json!([not, accept]), "'!=' of this field"),
        (
            json!([interface("iifname", "@none"), accept]),
            "set 'none' is missing",
        ),
        (
            json!([interface("iifname", "tap*"), accept]),
            "several interfaces",
        ),
    ] {
        let imported = import(&with_set(&[rule], &json!(["tap0"])));
        assert!(imported.rules.is_empty(), "{:?}", imported.rules);
        let [(_, text)] = missing(&imported)[..] else {
            panic!("{:?}", imported.missing);
        };
        assert!(text.contains(reason), "{text}");
    }
    let rules = [json!([interface("iifname", "@guests"), accept])];
    let imported = import(&with_set(&rules, &json!(["tap*"])));
    let found = missing(&imported);
    assert!(found[0].1.contains("'tap*' is not an element"), "{found:?}");
}
