// SPDX-License-Identifier: Apache-2.0
//! Imports of rules without a verdict, and of timeouts of elements.

use super::*;

#[test]
fn elements_of_sets_keep_their_timeouts() {
    let text = ruleset(
        "ip",
        "accept",
        &[json!([is(payload("ip", "saddr"), json!("@admins")), {"drop": null}])],
        &[],
    );
    let mut parsed: Value = serde_json::from_str(&text).unwrap();
    let list = parsed["nftables"].as_array_mut().unwrap();
    let set = list.iter_mut().find_map(|one| one.get_mut("set")).unwrap();
    set["elem"] = json!([
        "192.0.2.1",
        {"elem": {"val": "192.0.2.2", "timeout": 60, "expires": 45}},
        {"elem": {"val": {"prefix": {"addr": "198.51.100.0", "len": 24}}, "timeout": 3600}},
        {"elem": {"val": "192.0.2.3", "expires": 0}},
        {"elem": {"val": "192.0.2.4", "counter": {"packets": 0, "bytes": 0}}},
    ]);
    let imported = import(&parsed.to_string());
    assert_eq!(missing(&imported), []);
    let [set] = &imported.sets[..] else {
        panic!("{:?}", imported.sets);
    };
    assert_eq!(set.elements.len(), 5);
    let timeouts = set.element_timeouts_s.iter();
    let timeouts: Vec<String> = timeouts
        .map(|(element, seconds)| format!("{element} {seconds}"))
        .collect();
    assert_eq!(
        timeouts,
        ["192.0.2.2 45", "192.0.2.3 1", "198.51.100.0/24 3600"]
    );
}

#[test]
fn rules_without_a_verdict_become_rules_that_continue() {
    let accept = json!({"accept": null});
    let address = || is(payload("ip", "saddr"), json!("10.0.0.1"));
    let rules = [
        json!([is(payload("tcp", "dport"), json!(22)), {"counter": null}]),
        json!([{"log": {"prefix": "all: "}}, {"jump": {"target": "guests"}}]),
        json!([address(), {"log": null}, is(payload("tcp", "dport"), json!(80)), {"drop": null}]),
        json!([{"mangle": {"key": payload("ip", "dscp"), "value": "ef"}}]),
        json!([is(payload("ip", "dscp"), json!("cs1")), accept]),
        json!([is(payload("tcp", "flags"), json!("syn")), {"mangle": {"key": maxseg(), "value": 1400}}]),
    ];
    let guests = [json!([is(payload("udp", "dport"), json!(53)), accept])];
    let imported = import(&ruleset("ip", "accept", &rules, &guests));
    assert_eq!(
        lines(&imported),
        [
            "forward-10 continue ethertype=ipv4 protocol=tcp destination-port=22",
            "forward-11 continue log=1 log-prefix=all: ethertype=ipv4",
            "guests-16 accept ethertype=ipv4 protocol=udp destination-port=53",
            "forward-12 continue log=1 ethertype=ipv4 source=10.0.0.1/32",
            "forward-12.2 drop ethertype=ipv4 protocol=tcp source=10.0.0.1/32 destination-port=80",
            "forward-13 continue set-dscp=ef ethertype=ipv4",
            "forward-15 continue set-mss=1400 ethertype=ipv4 protocol=tcp tcp-flags=syn / fin,syn,rst,psh,ack,urg,ecn,cwr",
        ]
    );
    let [(place, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "rule forward-14");
    assert!(reason.contains("behind 'dscp set'"), "{reason}");

    // More than a packet may match.
    let many = vec![json!([{"counter": null}]); 18];
    let imported = import(&ruleset("ip", "accept", &many, &[]));
    assert_eq!(imported.rules.len(), 16);
    let places: Vec<&str> = missing(&imported).into_iter().map(|one| one.0).collect();
    assert_eq!(places, ["rule forward-26", "rule forward-27"]);
    let text = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -o b -p tcp\n\
                -A FORWARD -o b -j DROP\nCOMMIT\n";
    let imported = import(text);
    assert_eq!(
        lines(&imported),
        [
            "FORWARD-3 continue port=b ethertype=ipv4 protocol=tcp",
            "FORWARD-4 drop port=b ethertype=ipv4",
        ]
    );
    assert!(imported.rules.iter().all(RuleSetting::is_out));
}

/// The range of addresses becomes 66 prefixes, and no packet matches two of them.
#[test]
fn a_rule_without_a_verdict_on_flags_and_a_range_of_addresses_is_expressed() {
    let range = json!({"range": ["2001:db8::1", "2001:db8:0:2::"]});
    let flags = json!({"match": {
        "op": "==", "left": {"&": [payload("tcp", "flags"), "ack"]}, "right": "ack",
    }});
    let counts = json!([is(payload("ip6", "saddr"), range.clone()), flags, {"counter": null}]);
    let imported = import(&ruleset("ip6", "accept", &[counts], &[]));
    assert_eq!(missing(&imported), []);
    assert_eq!(imported.rules.len(), 66);

    // A packet with both flags matches two rules for each prefix.
    let flags =
        json!({"match": {"op": "in", "left": payload("tcp", "flags"), "right": ["syn", "ack"]}});
    let counts = json!([is(payload("ip6", "saddr"), range), flags, {"counter": null}]);
    let imported = import(&ruleset("ip6", "accept", &[counts], &[]));
    let [(place, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "chain forward, handle 10");
    assert!(reason.contains("one of several flags or marks"), "{reason}");
}

#[test]
fn segments_limited_by_iptables_become_those_of_rules_that_continue() {
    let text = |option: &str| {
        format!(
            "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS {option}\n-A FORWARD -i a -j DROP\nCOMMIT\n"
        )
    };
    // The MTU is that of the port that a packet leaves by. The next rules stay those of received frames.
    for (option, mss, is_out) in [
        ("--set-mss 1300", "1300", false),
        ("--clamp-mss-to-pmtu", "rt-mtu", true),
    ] {
        let imported = import(&text(option));
        assert_eq!(missing(&imported), []);
        let expected = format!(
            "FORWARD-3 continue set-mss={mss} ethertype=ipv4 protocol=tcp tcp-flags=syn / syn,rst"
        );
        assert_eq!(lines(&imported)[0], expected);
        let are_out: Vec<bool> = imported.rules.iter().map(RuleSetting::is_out).collect();
        assert_eq!(are_out, [is_out, false]);
    }
    let imported = import(&text("--set-mss 70"));
    let [(place, reason)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "line 3");
    assert!(reason.contains("allowed: 88"), "{reason}");
}

#[test]
fn targets_of_iptables_without_a_verdict_become_rules_that_continue() {
    let text = "*mangle
:PREROUTING ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:VOICE - [0:0]
-A PREROUTING -j MARK --set-xmark 0x1/0xffffffff
-A FORWARD -i a -o b -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A FORWARD -p udp -m udp --dport 5060 -j VOICE
-A FORWARD -p tcp -m tcp --dport 22 -j DSCP --set-dscp-class CS2
-A FORWARD -p icmp -j TOS --set-tos 0x28/0xfc
-A VOICE -j DSCP --set-dscp 0x2e
-A VOICE -s 192.0.2.0/24 -j DROP
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:VOICE - [0:0]
-A FORWARD -p udp -j NFLOG --nflog-prefix \"udp: \"
-A FORWARD -p udp -j VOICE
-A VOICE -j ACCEPT
COMMIT
";
    let imported = import(text);
    assert_eq!(missing(&imported), []);
    assert_eq!(imported.others, ["chain PREROUTING of table mangle"]);
    assert_eq!(
        lines(&imported),
        [
            "FORWARD-6 continue set-mss=rt-mtu port=b ethertype=ipv4 protocol=tcp tcp-flags=syn / syn,rst",
            "VOICE-10 continue set-dscp=ef ethertype=ipv4 protocol=udp destination-port=5060",
            "VOICE-11 drop protocol=udp source=192.0.2.0/24 destination-port=5060",
            "FORWARD-8 continue set-dscp=cs2 ethertype=ipv4 protocol=tcp destination-port=22",
            "FORWARD-9 continue set-dscp=af11 ethertype=ipv4 protocol=icmp",
            "FORWARD-17 continue log=1 log-prefix=udp: ethertype=ipv4 protocol=udp",
            "VOICE-19 accept ethertype=ipv4 protocol=udp",
            "policy-ipv4 drop ethertype=ipv4",
        ]
    );
    let first = &imported.rules[0];
    assert!(first.is_out());
    assert_eq!(first.from.as_deref(), Some("a"));
    let others = &imported.rules[1..];
    assert!(!others.iter().any(RuleSetting::is_out));

    for (rule, reason) in [
        ("DSCP --set-dscp 0x40", "not a DSCP"),
        ("DSCP --set-dscp-class AF99", "'af99' is not a DSCP"),
        ("TOS --set-tos 0x10/0xff", "use the mask 0xfc"),
        ("TOS --set-tos 0x11/0xfc", "use the mask 0xfc"),
        ("TOS --set-tos 16", "use the mask 0xfc"),
        ("TEE --gateway 10.0.0.9", "copies packets to an address"),
        ("NFLOG --nflog-group 5", "'--nflog-group' cannot be"),
        ("CHECKSUM --checksum-fill", "'-j CHECKSUM' cannot be"),
        ("ACCEPT", "'-j ACCEPT' in table mangle"),
        ("NOWHERE", "no such chain"),
    ] {
        let text = format!(
            "*mangle\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j {rule}\nCOMMIT\n*filter\nCOMMIT\n"
        );
        let imported = Imported::parse(&text, Hook::Forward).unwrap();
        let found = missing(&imported);
        let is_missing = found.iter().any(|(_, text)| text.contains(reason));
        assert!(is_missing, "{rule}: {found:?}");
        assert!(imported.rules.is_empty(), "{rule}");
    }
    let text = "*mangle\n:FORWARD DROP [0:0]\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
    let imported = Imported::parse(text, Hook::Forward).unwrap();
    let [(place, _)] = missing(&imported)[..] else {
        panic!("{:?}", imported.missing);
    };
    assert_eq!(place, "chain FORWARD of table mangle");
}

/// Rules of an accepted frame do not apply behind its verdict, so these rules stay one list.
#[test]
fn segments_limited_behind_a_verdict_make_all_rules_those_of_frames_that_leave() {
    let clamp = "-A FORWARD -p tcp -j TCPMSS --clamp-mss-to-pmtu";
    let log = "-A FORWARD -o b -p tcp -j LOG";
    let dscp = "-A FORWARD -m dscp --dscp 0x2e -j TCPMSS --clamp-mss-to-pmtu";
    let accept = "-A FORWARD -p tcp -m tcp --dport 22 -j ACCEPT";
    for (first, second) in [(accept, clamp), (log, clamp), (dscp, accept)] {
        let text = format!("*filter\n:FORWARD ACCEPT [0:0]\n{first}\n{second}\nCOMMIT\n");
        let imported = import(&text);
        assert_eq!(missing(&imported), []);
        assert_eq!(imported.rules.len(), 2);
        assert!(imported.rules.iter().all(RuleSetting::is_out), "{text}");
    }
}
