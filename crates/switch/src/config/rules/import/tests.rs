// SPDX-License-Identifier: Apache-2.0
//! Imports of rulesets.

mod continued;
mod interfaces;
mod rejects;

use std::path::Path;

use quietwire_tables::filter::{Action, MssLimit};
use serde_json::{Value, json};

use super::*;
use crate::config::rules::RuleFile;

/// Returns name, action and conditions of each rule.
fn lines(imported: &Imported) -> Vec<String> {
    let line = |rule: &RuleSetting| {
        let words = rule.packet.words().into_iter();
        let words: Vec<String> = words.map(|(key, value)| format!("{key}={value}")).collect();
        let port = rule.port.as_ref().map(|port| format!("port={port} "));
        let states = rule.ct_state.map(|states| format!("ct-state={states} "));
        let mark = rule.ct_mark.map(|mark| format!("ct-mark={mark} "));
        let statements = rule.statements.words().into_iter();
        let statements = statements.map(|(key, value)| format!("{key}={value} "));
        format!(
            "{} {} {}{}{}{}{}",
            rule.name,
            rule.action.name(),
            statements.collect::<String>(),
            port.unwrap_or_default(),
            states.unwrap_or_default(),
            mark.unwrap_or_default(),
            words.join(" ")
        )
    };
    imported.rules.iter().map(line).collect()
}

fn missing(imported: &Imported) -> Vec<(&str, &str)> {
    let missing = imported.missing.iter();
    missing
        .map(|one| (one.place.as_str(), one.reason.as_str()))
        .collect()
}

/// Checks that the written file can be read, and has the same rules.
fn read_again(imported: &Imported) {
    let text = imported.to_toml().unwrap();
    let file = RuleFile::parse(Path::new("imported.toml"), &text).unwrap();
    let rules: Vec<RuleSetting> = file.rules.into_iter().map(|rule| rule.value).collect();
    assert_eq!(rules, imported.rules, "{text}");
    let sets: Vec<SetSetting> = file.sets.into_iter().map(|set| set.value).collect();
    assert_eq!(sets, imported.sets);
    assert_eq!(file.default, Some(imported.default));
}

fn payload(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn is(left: Value, right: Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

/// Returns a ruleset with a base chain `forward` and a chain `guests`, which have these rules.
fn ruleset(family: &str, policy: &str, forward: &[Value], guests: &[Value]) -> String {
    let chain = |name: &str| json!({"family": family, "table": "filter", "name": name});
    let mut base = chain("forward");
    for (key, value) in [
        ("type", json!("filter")),
        ("hook", json!("forward")),
        ("prio", json!(0)),
        ("policy", json!(policy)),
    ] {
        base[key] = value;
    }
    let mut list = vec![
        json!({"metainfo": {"version": "1.1.3"}}),
        json!({"table": {"family": family, "name": "filter"}}),
        json!({"chain": base}),
        json!({"chain": chain("guests")}),
        json!({"set": {
            "family": family, "table": "filter", "name": "admins", "handle": 3, "type": "ipv4_addr",
            "elem": [{"prefix": {"addr": "192.0.2.0", "len": 24}}, "198.51.100.1"],
        }}),
    ];
    let mut handle = 10;
    for (chain, rules) in [("forward", forward), ("guests", guests)] {
        for expr in rules {
            list.push(json!({"rule": {
                "family": family, "table": "filter", "chain": chain, "handle": handle, "expr": expr,
            }}));
            handle += 1;
        }
    }
    json!({"nftables": list}).to_string()
}

fn import(text: &str) -> Imported {
    let imported = Imported::parse(text, Hook::Forward).unwrap();
    read_again(&imported);
    imported
}

#[test]
fn a_ruleset_of_nftables_becomes_rules_and_sets() {
    let accept = json!({"accept": null});
    let text = ruleset(
        "inet",
        "drop",
        &[
            json!([is(payload("ip", "saddr"), json!("@admins")), is(payload("tcp", "dport"), json!(22)), {"counter": {"packets": 1, "bytes": 60}}, accept]),
            json!([
                is(
                    payload("udp", "dport"),
                    json!({"set": [53, {"range": [5000, 5010]}]})
                ),
                accept
            ]),
            json!([is(json!({"meta": {"key": "iifname"}}), json!("guest0")), {"jump": {"target": "guests"}}]),
            json!([
                is(payload("icmpv6", "type"), json!("nd-neighbor-solicit")),
                accept
            ]),
            json!([{"match": {"op": "!=", "left": payload("tcp", "dport"), "right": 25}}, {"drop": null}]),
        ],
        &[
            json!([
                is(
                    json!({"&": [payload("tcp", "flags"), ["syn", "ack"]]}),
                    json!("syn")
                ),
                accept
            ]),
            json!([{"drop": null}]),
        ],
    );
    let imported = import(&text);
    assert!(imported.missing.is_empty(), "{:?}", imported.missing);
    assert_eq!(imported.default, Action::Accept);
    assert_eq!(imported.sets.len(), 1);
    assert_eq!(
        lines(&imported),
        [
            "forward-10 accept ethertype=ipv4 protocol=tcp source=@admins destination-port=22",
            "forward-11 accept protocol=udp destination-port=53",
            "forward-11.2 accept protocol=udp destination-port=5000-5010",
            "guests-15 accept port=guest0 protocol=tcp tcp-flags=syn / syn,ack",
            "guests-16 drop port=guest0 ethertype=ipv4",
            "guests-16.2 drop port=guest0 ethertype=ipv6",
            "forward-13 accept ethertype=ipv6 protocol=icmpv6 icmp-type=135",
            "forward-14 drop protocol=tcp destination-port=0-24",
            "forward-14.2 drop protocol=tcp destination-port=26-65535",
            "policy-ipv4 drop ethertype=ipv4",
            "policy-ipv6 drop ethertype=ipv6",
        ]
    );
}

#[test]
fn unsupported_rules_of_nftables_are_reported_by_their_handle() {
    let accept = json!({"accept": null});
    let cases = [
        (
            json!([is(json!({"ct": {"key": "label"}}), json!(1)), accept]),
            "'ct label' cannot be expressed",
        ),
        (
            json!([is(mark(), json!({"range": [1, 5]})), accept]),
            "'ct mark ==' of this value",
        ),
        (
            json!([{"match": {"op": "!=", "left": mark(), "right": 0}}, accept]),
            "'ct mark !=' of this value",
        ),
        (
            json!([is(json!({"&": [mark(), 3]}), json!(4)), accept]),
            "bits that are not in the mask",
        ),
        (
            json!([{"mangle": {"key": mark(), "value": {"^": [mark(), 1]}}}, accept]),
            "'ct mark set {",
        ),
        (
            json!([{"mangle": {"key": mark(), "value": 1}}, {"drop": null}]),
            "'ct mark set' before another verdict",
        ),
        (
            json!([{"mangle": {"key": {"ct": {"key": "label"}}, "value": 1}}, accept]),
            "'ct label set'",
        ),
        (
            json!([is(json!({"ct": {"key": "state"}}), json!("open")), accept]),
            "'open' is not a state of connections",
        ),
        (
            json!([is(payload("tcp", "dport"), json!(22)), {"reject": {"type": "icmp", "expr": "prot-unreachable"}}]),
            "'reject with icmp prot-unreachable' cannot be expressed",
        ),
        (
            json!([{"reject": {"type": "icmpx", "expr": "host-prohibited"}}]),
            "'reject with icmpx host-prohibited'",
        ),
        (
            json!([{"reject": {"type": "icmpv6"}}]),
            "'reject with icmpv6 '",
        ),
        (
            json!([{"log": {"group": 2}}, accept]),
            "'log group' cannot be expressed",
        ),
        (
            json!([{"match": {"op": "in", "left": payload("tcp", "flags"), "right": ["syn", "rst"]}}, {"log": null}]),
            "one of several flags or marks",
        ),
        (
            json!([{"mangle": {"key": mark(), "value": 1}}]),
            "'ct mark set' before another verdict",
        ),
        (
            json!([{"dup": {"addr": "10.0.0.1", "dev": "eth0"}}, accept]),
            "'dup' to an address",
        ),
        (
            json!([{"mangle": {"key": payload("ip", "ttl"), "value": 1}}, accept]),
            "'ip ttl set'",
        ),
        (
            json!([{"mangle": {"key": maxseg(), "value": {"rt": {"key": "nexthop"}}}}, accept]),
            "to other than a number",
        ),
        (
            json!([is(payload("ip", "ttl"), json!(1)), accept]),
            "'ip ttl'",
        ),
        (
            json!([is(payload("ip", "saddr"), json!("@guests")), accept]),
            "set 'guests' is missing",
        ),
        (
            json!([{"match": {"op": "!=", "left": payload("ip", "saddr"), "right": "@admins"}}, accept]),
            "'!=' of a named set",
        ),
        (
            json!([is(json!({"meta": {"key": "oifname"}}), json!("b*")), accept]),
            "several interfaces",
        ),
        (
            json!([
                is(json!({"meta": {"key": "iifname"}}), json!("tap*")),
                accept
            ]),
            "several interfaces",
        ),
        (json!([{"jump": {"target": "nowhere"}}]), "no such chain"),
        (
            json!([{"jump": {"target": "forward"}}]),
            "jumps within one another",
        ),
        (
            json!([{"match": {"op": "<", "left": payload("tcp", "dport"), "right": 9}}, accept]),
            "operator '<'",
        ),
        (
            json!([{"match": {"left": 1}}, accept]),
            "match without 'op'",
        ),
        (json!([is(json!(1), json!(1)), accept]), "'value'"),
        (
            json!([{"accept": null}, {"log": null}]),
            "behind the verdict",
        ),
    ];
    for (expr, reason) in cases {
        let imported = import(&ruleset("ip", "accept", std::slice::from_ref(&expr), &[]));
        assert!(imported.rules.is_empty(), "{expr}");
        let [(place, text)] = missing(&imported)[..] else {
            panic!("{expr}: {:?}", imported.missing);
        };
        assert!(text.contains(reason), "{expr}: {text}");
        assert!(place.contains("10") || place == "nowhere", "{place}");
    }
    // Rules behind a missing one are imported.
    let policy_fail = json!([{"reject": {"type": "icmpv6", "expr": "policy-fail"}}]);
    let rules = [policy_fail, json!([{"drop": null}])];
    let imported = import(&ruleset("ip", "accept", &rules, &[]));
    assert_eq!(lines(&imported), ["forward-11 drop ethertype=ipv4"]);
    for (text, reason) in [
        ("{}", "'nftables' is missing"),
        ("{", "no JSON"),
        (
            "{\"nftables\":[]}",
            "no chain of type filter with hook forward",
        ),
        ("", "neither JSON"),
    ] {
        let error = Imported::parse(text, Hook::Forward).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn rules_on_mac_addresses_and_ip_headers_match_untagged_frames() {
    let accept = json!({"accept": null});
    let mac = || is(payload("ether", "saddr"), json!("02:00:00:00:00:01"));
    let address = || is(payload("ip", "saddr"), json!("10.0.0.1"));
    let rules = [
        json!([mac(), address(), accept]),
        json!([address(), mac(), accept]),
        json!([
            mac(),
            is(payload("vlan", "id"), json!(7)),
            address(),
            accept
        ]),
        json!([mac(), is(payload("tcp", "dport"), json!(22)), accept]),
        json!([is(payload("ether", "type"), json!("arp")), accept]),
    ];
    let text = ruleset("bridge", "accept", &rules, &[]);
    let imported = import(&text);
    assert_eq!(missing(&imported), []);
    let tagged: Vec<Option<bool>> = imported
        .rules
        .iter()
        .map(|rule| rule.packet.tagged)
        .collect();
    assert_eq!(tagged, [Some(false), None, None, None, Some(false)]);
}

#[test]
fn a_chain_with_output_interfaces_becomes_rules_of_frames_that_leave() {
    let interface = |key: &str, name: &str| is(json!({"meta": {"key": key}}), json!(name));
    let accept = json!({"accept": null});
    let state =
        json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "established"}});
    let rules = [
        json!([
            interface("iifname", "eth0"),
            interface("oifname", "tap0"),
            is(payload("tcp", "dport"), json!(22)),
            accept
        ]),
        json!([interface("oifname", "eth0"), accept]),
        json!([is(payload("udp", "dport"), json!(53)), accept]),
        json!([state, accept]),
    ];
    let mut imported = import(&ruleset("bridge", "drop", &rules, &[]));
    imported.rename_ports(&[("eth0".to_owned(), "uplink".to_owned())]);
    assert_eq!(missing(&imported), []);
    let directions = imported.rules.iter().map(|rule| {
        assert!(rule.is_out());
        let name = |port: &Option<String>| port.clone().unwrap_or_default();
        format!("{} {}>{}", rule.name, name(&rule.from), name(&rule.port))
    });
    assert_eq!(
        directions.collect::<Vec<_>>(),
        [
            "forward-10 uplink>tap0",
            "forward-11 >uplink",
            "forward-12 >",
            "forward-13 >",
            "policy >"
        ]
    );
    assert_eq!(imported.default, Action::Accept);
    let text = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -i a -o b -j ACCEPT\nCOMMIT\n";
    let imported = import(text);
    let ports: Vec<_> = imported
        .rules
        .iter()
        .map(|rule| (&rule.from, &rule.port))
        .collect();
    let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
    assert_eq!(ports, [(&a, &b), (&None, &None)]);
}

#[test]
fn maps_of_verdicts_become_a_rule_for_each_verdict() {
    let map = |key: Value, pairs: Value| json!({"vmap": {"key": key, "data": {"set": pairs}}});
    let (accept, drop) = (json!({"accept": null}), json!({"drop": null}));
    let rules = [
        json!([map(
            json!({"ct": {"key": "state"}}),
            json!([["invalid", drop], ["established", accept]])
        )]),
        json!([{"counter": null}, map(
            json!({"meta": {"key": "iifname"}}),
            json!([["eth0", {"jump": {"target": "guests"}}], ["eth1", drop]])
        )]),
        json!([
            is(payload("ip", "saddr"), json!("@admins")),
            map(
                payload("tcp", "dport"),
                json!([[22, accept], [{"range": [8000, 8080]}, drop], [80, {"continue": null}]])
            )
        ]),
    ];
    let guests = [json!([accept])];
    let imported = import(&ruleset("ip", "accept", &rules, &guests));
    assert_eq!(missing(&imported), []);
    let lines: Vec<String> = lines(&imported)
        .iter()
        .map(|line| {
            line.replace("ethertype=ipv4 ", "")
                .replace(" ethertype=ipv4", "")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "forward-10 drop ct-state=invalid ethertype=ipv4",
            "forward-10.2 accept ct-state=established ethertype=ipv4",
            "guests-13 accept port=eth0 ethertype=ipv4",
            "forward-11 drop port=eth1 ethertype=ipv4",
            "forward-12 accept protocol=tcp source=@admins destination-port=22",
            "forward-12.2 drop protocol=tcp source=@admins destination-port=8000-8080",
        ]
        .map(|line| line.replace(" ethertype=ipv4", ""))
    );
    let key = || payload("tcp", "dport");
    for (expression, reason) in [
        (map(key(), json!([[22, {"return": null}]])), "in a map"),
        (map(key(), json!([[22]])), "in a map"),
        (map(key(), json!("@verdicts")), "a named map"),
        (json!({"vmap": {"data": {"set": []}}}), "without a key"),
        (
            map(json!({"concat": [key(), key()]}), json!([[22, accept]])),
            "'concat'",
        ),
    ] {
        let imported = import(&ruleset("ip", "accept", &[json!([expression])], &[]));
        assert!(
            missing(&imported)[0].1.contains(reason),
            "{expression}: {:?}",
            imported.missing
        );
    }
}

/// A chain at the ingress of devices sees no frames of others.
#[test]
fn a_chain_of_devices_becomes_rules_of_their_ports() {
    let import_of = |device: Value| {
        let chain = json!({
            "family": "netdev", "table": "t", "name": "c", "type": "filter", "hook": "ingress", "prio": 0,
            "dev": device, "policy": "drop",
        });
        let expr = json!([is(payload("tcp", "dport"), json!(22)), {"accept": null}]);
        let rule =
            json!({"family": "netdev", "table": "t", "chain": "c", "handle": 4, "expr": expr});
        let text = json!({"nftables": [{"chain": chain}, {"rule": rule}]}).to_string();
        Imported::parse(&text, Hook::Ingress)
    };
    let mut imported = import_of(json!("eth0")).unwrap();
    assert_eq!(missing(&imported), []);
    imported.rename_ports(&[("eth0".to_owned(), "uplink".to_owned())]);
    read_again(&imported);
    assert_eq!(imported.default, Action::Accept);
    assert_eq!(
        lines(&imported),
        [
            "c-4 accept port=uplink protocol=tcp destination-port=22",
            "policy-eth0 drop port=uplink ",
        ]
    );
    let imported = import_of(json!(["eth0", "eth1"])).unwrap();
    let ports: Vec<_> = imported
        .rules
        .iter()
        .map(|rule| rule.port.as_deref())
        .collect();
    assert_eq!(
        ports,
        [Some("eth0"), Some("eth1"), Some("eth0"), Some("eth1")]
    );
    // nftables 1.0.6 does not write the device.
    let text = r#"{"nftables": [{"chain": {"family": "netdev", "table": "t", "name": "c", "type": "filter", "hook": "ingress", "prio": 0}}]}"#;
    let imported = Imported::parse(text, Hook::Ingress).unwrap();
    assert!(imported.others[0].starts_with("the devices of chain netdev t c"));
    for wrong in [json!([]), json!(7), json!(vec!["eth0"; 65])] {
        assert!(import_of(wrong.clone()).is_err(), "{wrong}");
    }
}

/// The usual limit of the segment size towards a tunnel.
#[test]
fn statements_of_a_chain_with_output_interfaces_are_kept_except_copies() {
    let to_tunnel = || is(json!({"meta": {"key": "oifname"}}), json!("tun0"));
    let accept = json!({"accept": null});
    let rules = [
        json!([to_tunnel(), is(payload("tcp", "flags"), json!("syn")), {"mangle": {"key": maxseg(), "value": 1300}}, accept]),
        json!([to_tunnel(), is(payload("udp", "dport"), json!(25)), {"log": {"prefix": "mail"}}, {"drop": null}]),
        json!([is(payload("udp", "dport"), json!(53)), {"dup": {"addr": "eth9"}}, accept]),
    ];
    let imported = import(&ruleset("ip", "accept", &rules, &[]));
    let [(place, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "rule forward-12");
    assert!(reason.starts_with("dup in a chain"), "{reason}");
    let rules: Vec<_> = imported.rules.iter().take(2).collect();
    assert!(rules.iter().all(|rule| rule.is_out()));
    let of = |number: usize| &rules[number].statements;
    assert_eq!(of(0).set_mss, Some(MssLimit::Octets(1300)));
    assert_eq!(
        (of(1).log, of(1).log_prefix.as_deref()),
        (Some(1), Some("mail"))
    );
}

/// The port that a packet leaves by has the MTU, so all rules of the chain become those of frames that leave.
#[test]
fn segments_limited_to_the_path_are_those_of_frames_that_leave() {
    let syn = is(payload("tcp", "flags"), json!("syn"));
    let rt_mtu = json!({"mangle": {"key": maxseg(), "value": {"rt": {"key": "mtu"}}}});
    let accept = json!({"accept": null});
    let from = is(json!({"meta": {"key": "iifname"}}), json!("tap0"));
    let rules = [
        json!([from, syn, rt_mtu, accept]),
        json!([is(payload("udp", "dport"), json!(25)), {"drop": null}]),
    ];
    let imported = import(&ruleset("ip", "drop", &rules, &[]));
    assert_eq!(missing(&imported), []);
    assert!(imported.rules.iter().all(RuleSetting::is_out));
    let first = &imported.rules[0];
    assert_eq!(first.statements.set_mss, Some(MssLimit::RtMtu));
    assert_eq!((first.from.as_deref(), &first.port), (Some("tap0"), &None));
    assert_eq!(imported.rules[1].action, Action::Drop);
}

#[test]
fn a_chain_of_packets_that_leave_becomes_rules_of_frames_that_leave() {
    let state = json!({"ct": {"key": "state"}});
    let new = json!({"match": {"op": "in", "left": state, "right": "new"}});
    let from = is(json!({"meta": {"key": "iifname"}}), json!("tap0"));
    let rules = [json!([from, new, {"drop": null}])];
    let text = ruleset("ip", "accept", &rules, &[]);
    let text = text.replace(r#""hook":"forward""#, r#""hook":"postrouting""#);
    let imported = Imported::parse(&text, Hook::Postrouting).unwrap();
    assert_eq!(missing(&imported), []);
    assert_eq!(imported.default, Action::Accept);
    let [rule] = &imported.rules[..] else {
        panic!("{:?}", imported.rules);
    };
    assert!(rule.is_out());
    assert_eq!((rule.from.as_deref(), &rule.port), (Some("tap0"), &None));
    assert_eq!(rule.ct_state.unwrap().to_string(), "new");
    // Without rules, the policy is one.
    let text = text.replace(r#""policy":"accept""#, r#""policy":"drop""#);
    let imported = Imported::parse(&text, Hook::Postrouting).unwrap();
    assert_eq!(imported.default, Action::Accept);
    assert!(imported.rules.iter().all(RuleSetting::is_out));
    assert!(imported.rules.len() > 1);
    assert!(Imported::parse("*filter\nCOMMIT\n", Hook::Postrouting).is_err());
}

fn maxseg() -> Value {
    json!({"tcp option": {"name": "maxseg", "field": "size"}})
}

#[test]
fn statements_become_those_of_rules() {
    let accept = json!({"accept": null});
    let rules = [
        json!([is(payload("tcp", "dport"), json!(22)), {"counter": null}, {"log": {"prefix": "ssh: "}}, {"reject": {"type": "tcp reset"}}]),
        json!([is(payload("tcp", "flags"), json!("syn")), {"mangle": {"key": maxseg(), "value": 1400}}, accept]),
        json!([{"mangle": {"key": payload("ip", "dscp"), "value": "ef"}}, accept]),
        json!([is(payload("udp", "dport"), json!(53)), {"dup": {"addr": "eth9"}}, {"log": null}, {"drop": null}]),
        json!([{"reject": {"type": "icmp", "expr": "admin-prohibited"}}]),
    ];
    let mut imported = import(&ruleset("ip", "accept", &rules, &[]));
    assert_eq!(missing(&imported), []);
    imported.rename_ports(&[("eth9".to_owned(), "spy".to_owned())]);
    assert_eq!(
        lines(&imported),
        [
            "forward-10 reject log=1 log-prefix=ssh: ethertype=ipv4 protocol=tcp destination-port=22",
            "forward-11 accept set-mss=1400 ethertype=ipv4 protocol=tcp tcp-flags=syn / fin,syn,rst,psh,ack,urg,ecn,cwr",
            "forward-12 accept set-dscp=ef ethertype=ipv4",
            "forward-13 drop log=1 dup=spy ethertype=ipv4 protocol=udp destination-port=53",
            "forward-14 reject reject-with=admin-prohibited ethertype=ipv4",
        ]
    );
}

fn mark() -> Value {
    json!({"ct": {"key": "mark"}})
}

/// The expressions are those that nft 1.0.6 prints.
#[test]
fn marks_of_connections_become_those_of_rules() {
    let accept = json!({"accept": null});
    let masked = |op: &str, mask: u32, value: u32| json!({"match": {"op": op, "left": {"&": [mark(), mask]}, "right": value}});
    let set = |value: Value| json!({"mangle": {"key": mark(), "value": value}});
    let new = json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}});
    let rules = [
        json!([is(mark(), json!(1)), accept]),
        json!([masked("==", 3, 1), accept]),
        json!([masked("!=", 3, 0), accept]),
        json!([is(mark(), json!({"set": [1, 2]})), accept]),
        json!([is(mark(), json!(0)), {"drop": null}]),
        json!([masked("==", 3, 1), masked("==", 6, 4), accept]),
        json!([masked("==", 3, 1), masked("==", 1, 0), accept]),
        json!([{"vmap": {"key": mark(), "data": {"set": [[1, accept], [2, {"drop": null}]]}}}]),
        json!([new, set(json!(7)), accept]),
        json!([
            set(json!({"|": [{"&": [mark(), 0xffff_fffd_u32]}, 1]})),
            accept
        ]),
        json!([set(json!({"|": [mark(), 4]})), accept]),
        json!([set(json!({"&": [mark(), 255]})), accept]),
    ];
    let imported = import(&ruleset("ip", "accept", &rules, &[]));
    assert_eq!(missing(&imported), []);
    let expected = [
        "forward-10 accept ct-mark=0x1",
        "forward-11 accept ct-mark=0x1/0x3",
        "forward-12 accept ct-mark=0x1/0x1",
        "forward-12.2 accept ct-mark=0x2/0x2",
        "forward-13 accept ct-mark=0x1",
        "forward-13.2 accept ct-mark=0x2",
        "forward-14 drop ct-state=new,established,related ct-mark=0x0",
        "forward-15 accept ct-mark=0x5/0x7",
        "forward-17 accept ct-mark=0x1",
        "forward-17.2 drop ct-mark=0x2",
        "forward-18 accept set-ct-mark=0x7 ct-state=new",
        "forward-19 accept set-ct-mark=0x1/0x3",
        "forward-20 accept set-ct-mark=0x4/0x4",
        "forward-21 accept set-ct-mark=0x0/0xffffff00",
    ];
    assert_eq!(
        lines(&imported),
        expected.map(|line| format!("{line} ethertype=ipv4"))
    );
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n\
                -A FORWARD -m connmark --mark 0x1/0xff -j ACCEPT\n\
                -A FORWARD -m mark --mark 0x1 -j DROP\nCOMMIT\n";
    let imported = import(text);
    assert_eq!(
        lines(&imported),
        ["FORWARD-3 accept ct-mark=0x1/0xff ethertype=ipv4"]
    );
    let [(_, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert!(reason.contains("'-m mark'"), "{reason}");
    // Rules of frames that leave compare marks, and do not set them.
    let leaving = json!([
        is(json!({"meta": {"key": "oifname"}}), json!("tap0")),
        accept
    ]);
    let of_state = json!([new, {"drop": null}]);
    let compares = json!([is(mark(), json!(1)), accept]);
    let rules = [leaving.clone(), compares, of_state];
    let imported = import(&ruleset("bridge", "accept", &rules, &[]));
    assert_eq!(missing(&imported), []);
    let all_leave = imported.rules.iter().all(RuleSetting::is_out);
    assert!(all_leave, "{:?}", imported.rules);
    assert!(imported.rules[1].ct_mark.is_some());
    assert_eq!(imported.rules[2].ct_state.unwrap().to_string(), "new");
    let sets = json!([set(json!(1)), accept]);
    let imported = import(&ruleset("bridge", "accept", &[leaving, sets], &[]));
    let [(place, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "rule forward-11");
    assert!(reason.contains("ct mark set in a chain"), "{reason}");
}

#[test]
fn states_of_connections_become_those_of_rules() {
    let state = |op: &str, right: Value| json!({"match": {"op": op, "left": {"ct": {"key": "state"}}, "right": right}});
    let accept = json!({"accept": null});
    let rules = [
        json!([state("in", json!(["established", "related"])), accept]),
        json!([state("in", json!("invalid")), {"drop": null}]),
        json!([state("==", json!({"set": ["new", "untracked"]})), accept]),
        json!([
            state("!=", json!("invalid")),
            state("in", json!(["new", "invalid"])),
            accept
        ]),
        json!([
            state("in", json!("new")),
            state("in", json!("related")),
            accept
        ]),
    ];
    let imported = import(&ruleset("ip", "accept", &rules, &[]));
    assert_eq!(missing(&imported), []);
    assert_eq!(
        lines(&imported),
        [
            "forward-10 accept ct-state=established,related ethertype=ipv4",
            "forward-11 drop ct-state=invalid ethertype=ipv4",
            "forward-12 accept ct-state=new,untracked ethertype=ipv4",
            "forward-13 accept ct-state=new ethertype=ipv4",
        ]
    );
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n\
                -A FORWARD -m state ! --state NEW,INVALID -j ACCEPT\n\
                -A FORWARD -m conntrack --ctstate SNAT -j DROP\nCOMMIT\n";
    let imported = import(text);
    assert_eq!(
        lines(&imported),
        ["FORWARD-3 accept ct-state=established,related,untracked ethertype=ipv4"]
    );
    let [(_, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert!(reason.contains("'snat' is not a state"), "{reason}");
}

const IPTABLES: &str = "\
# Generated by iptables-save v1.8.11 (nf_tables)
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -j DNAT --to-destination 10.0.0.2
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [10:840]
:GUESTS - [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -s 192.0.2.0/24 -p tcp -m tcp --dport 22 -m comment --comment \"for \\\"admins\\\"\" -j ACCEPT
-A FORWARD -i guest0 -j GUESTS
-A FORWARD ! -s 10.0.0.0/8 -d 10.0.0.0/255.0.0.0 -j DROP
[7:420] -A GUESTS -p udp -m multiport --dports 53,123,5000:5010 -j ACCEPT
-A GUESTS -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A GUESTS -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP
-A GUESTS -j REJECT --reject-with icmp-proto-unreachable
COMMIT
";

#[test]
fn a_file_of_iptables_save_becomes_rules() {
    let imported = import(IPTABLES);
    assert_eq!(
        missing(&imported),
        [(
            "line 17",
            "'--reject-with icmp-proto-unreachable' cannot be expressed"
        )]
    );
    assert_eq!(imported.others, ["table nat"]);
    let lines = lines(&imported);
    assert_eq!(
        lines[..7],
        [
            "FORWARD-10 accept ct-state=established,related ethertype=ipv4",
            "FORWARD-11 accept protocol=tcp source=192.0.2.0/24 destination-port=22",
            "GUESTS-14 accept port=guest0 ethertype=ipv4 protocol=udp destination-port=53",
            "GUESTS-14.2 accept port=guest0 ethertype=ipv4 protocol=udp destination-port=123",
            "GUESTS-14.3 accept port=guest0 ethertype=ipv4 protocol=udp destination-port=5000-5010",
            "GUESTS-15 accept port=guest0 ethertype=ipv4 protocol=icmp icmp-type=8",
            "GUESTS-16 drop port=guest0 ethertype=ipv4 protocol=tcp tcp-flags=syn / fin,syn,rst,ack",
        ]
    );
    // All addresses but a prefix of 8 bits: eight prefixes.
    assert_eq!(lines.len(), 7 + 8 + 1);
    assert!(
        lines[7].ends_with("source=0.0.0.0/5 destination=10.0.0.0/8"),
        "{}",
        lines[7]
    );
    assert_eq!(lines[15], "policy-ipv4 drop ethertype=ipv4");
}

#[test]
fn interfaces_become_ports_and_other_chains_are_listed() {
    let mut imported = import(IPTABLES);
    imported.rename_ports(&[("guest0".to_owned(), "vm".to_owned())]);
    let ports: Vec<&str> = imported
        .rules
        .iter()
        .filter_map(|rule| rule.port.as_deref())
        .collect();
    assert_eq!(ports, ["vm"; 5]);
    let text = ruleset("ip", "accept", &[], &[]);
    let error = Imported::parse(&text, Hook::Input).unwrap_err();
    assert!(error.contains("hook input"), "{error}");
    let mut parsed: Value = serde_json::from_str(&text).unwrap();
    let other = json!({"chain": {
        "family": "ip", "table": "nat", "name": "out", "type": "nat", "hook": "postrouting", "prio": 100,
    }});
    parsed["nftables"].as_array_mut().unwrap().push(other);
    let imported = import(&parsed.to_string());
    assert_eq!(imported.others, ["chain ip nat out (hook postrouting)"]);
}

#[test]
fn unsupported_rules_of_iptables_are_reported_by_their_line() {
    for (rule, reason) in [
        ("-A FORWARD -o eth+ -j ACCEPT", "several interfaces"),
        ("-A FORWARD -i eth+ -j ACCEPT", "several interfaces"),
        ("-A FORWARD -p tcp -m tcp ! --syn -j ACCEPT", "'! --syn'"),
        ("-A FORWARD -j LOG --log-level 7", "'--log-level'"),
        (
            "-A FORWARD -j REJECT --reject-with icmp6-policy-fail",
            "'--reject-with icmp6-policy-fail'",
        ),
        ("-A FORWARD -s", "-s without a value"),
        ("-A FORWARD -s 10.0.0.0/33 -j DROP", "not an element"),
        ("-A FORWARD -j NOWHERE", "no such chain"),
        (
            "-A FORWARD -m comment --comment \"x -j DROP",
            "quotation does not end",
        ),
        ("-X", "not a rule"),
        ("-A OTHER -j DROP", "no such chain: 'OTHER'"),
    ] {
        let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n{rule}\nCOMMIT\n");
        let imported = import(&text);
        assert!(imported.rules.is_empty(), "{rule}");
        let [(_, text)] = missing(&imported)[..] else {
            panic!("{rule}: {:?}", imported.missing);
        };
        assert!(text.contains(reason), "{rule}: {text}");
    }
    let six = "# Generated by ip6tables-save v1.8.11\n*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p ipv6-icmp -m icmp6 --icmpv6-type 128/0 -j ACCEPT\nCOMMIT\n";
    assert_eq!(
        lines(&import(six)),
        [
            "FORWARD-4 accept ethertype=ipv6 protocol=icmpv6 icmp-type=128 icmp-code=0",
            "policy-ipv6 drop ethertype=ipv6"
        ]
    );
}

/// A rule of statements only becomes a part of the rule behind it, which decides on all of its packets.
#[test]
fn logs_in_front_of_a_verdict_become_those_of_its_rule() {
    let text = "*filter
:FORWARD ACCEPT [0:0]
:REFUSED - [0:0]
-A FORWARD -p tcp -m tcp --dport 22 -j LOG --log-prefix \"ssh: \"
-A FORWARD -p tcp -m tcp --dport 22 -j DROP
-A FORWARD -p udp -j LOG
-A FORWARD -j REFUSED
-A REFUSED -s 10.0.0.0/8 -j LOG
-A REFUSED -j DROP
COMMIT
";
    let imported = import(text);
    assert_eq!(
        lines(&imported),
        [
            "FORWARD-4 drop log=1 log-prefix=ssh: ethertype=ipv4 protocol=tcp destination-port=22",
            "FORWARD-6 continue log=1 ethertype=ipv4 protocol=udp",
            "REFUSED-8 drop log=1 source=10.0.0.0/8",
            "REFUSED-9 drop ethertype=ipv4",
        ]
    );
    assert_eq!(missing(&imported), []);

    let to = |port: u16| is(payload("udp", "dport"), json!(port));
    let rules = [
        json!([to(53), {"dup": {"addr": "eth9"}}]),
        json!([to(53), {"log": {"prefix": "dns"}}]),
        json!([to(53), {"counter": null}, {"drop": null}]),
        // The next rule logs, or decides on fewer packets, or there is none.
        json!([to(25), {"log": null}]),
        json!([to(25), {"log": null}, {"drop": null}]),
        json!([{"log": null}]),
        json!([to(80), {"accept": null}]),
        json!([to(443), {"log": null}]),
    ];
    let imported = import(&ruleset("inet", "accept", &rules, &[]));
    assert_eq!(
        lines(&imported),
        [
            "forward-10 drop log=1 log-prefix=dns dup=eth9 protocol=udp destination-port=53",
            "forward-13 continue log=1 protocol=udp destination-port=25",
            "forward-14 drop log=1 protocol=udp destination-port=25",
            "forward-15 continue log=1 ethertype=ipv4",
            "forward-15.2 continue log=1 ethertype=ipv6",
            "forward-16 accept protocol=udp destination-port=80",
            "forward-17 continue log=1 protocol=udp destination-port=443",
        ]
    );
    assert_eq!(missing(&imported), []);
}
