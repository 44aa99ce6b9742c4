// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::path::Path;

use quietwire_base::Fault;
use quietwire_dpdk::DEVICES_MAX;
use quietwire_host::CpuList;

use super::bridging::{BridgingSetting, FloodingSetting};
use super::*;
use crate::counters::PORTS_MAX;
use crate::error::SwitchError;
use quietwire_tables::bridge::PortVlans;

const FILE: &str = r#"
forwarding-cpus = "3"
service-cpus = "0"
control-cpus = "0-1"
idle = "yield"
max-entries = 100

[[port]]
name = "a"
uri = "memif:/run/a.sock?role=server"

[[port]]
name = "b"
uri = "memif:/run/b.sock?role=server"

[[port]]
name = "c"
uri = "null:"

[[port]]
name = "d"
uri = "null:"

[[cross-connect]]
ports = ["a", "b"]

[[bridge]]
name = "lan"
ports = ["c", "d"]
ageing-s = 20
"#;

fn online() -> CpuList {
    "0-3".parse().unwrap()
}

fn parse(text: &str) -> Result<Settings, SwitchError> {
    Settings::parse(Path::new("switch.toml"), text)
}

fn message(result: Result<impl fmt::Debug, SwitchError>, fault: Fault) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.fault(), fault, "{error}");
    error.to_string()
}

/// Returns settings as from the command line: a list of ports, then pairs.
fn flags(ports: &[(&str, &str)], pairs: &[&[&str]]) -> Settings {
    let port = |(name, uri): &(&str, &str)| PortSetting {
        name: (*name).to_owned(),
        uri: (*uri).to_owned(),
        rx_queues: None,
        tx_queues: None,
        rx_cpus: None,
        bridging: BridgingSetting::default(),
        location: Location::Option("--port"),
    };
    let pair = |ports: &&[&str]| CrossConnectSetting {
        ports: ports.iter().map(|name| (*name).to_owned()).collect(),
        location: Location::Option("--cross-connect"),
    };
    Settings {
        ports: Some(ports.iter().map(port).collect()),
        cross_connects: Some(pairs.iter().map(pair).collect()),
        ..Settings::default()
    }
}

const TWO: [(&str, &str); 2] = [("a", "null:"), ("b", "null:")];

#[test]
fn filters_are_enforced_unless_the_file_says_otherwise() {
    let plan = |text: &str| parse(text).unwrap().plan(&online()).unwrap();
    assert_eq!(plan(FILE).seccomp, Seccomp::Enforce);
    let logging = plan(&format!("seccomp = \"log\"\n{FILE}"));
    assert_eq!(logging.seccomp, Seccomp::Log);
    let error = plan(FILE).check_changeable(&logging).unwrap_err();
    assert!(error.to_string().starts_with("seccomp: "), "{error}");
    assert!(logging.to_toml().unwrap().contains("seccomp = \"log\""));
}

#[test]
fn ports_of_any_kind_may_be_added_unless_the_file_says_otherwise() {
    let plan = |text: &str| parse(text).unwrap().plan(&online()).unwrap();
    assert_eq!(plan(FILE).later_ports, LaterPorts::Any);
    let limited = plan(&format!("later-ports = \"memif,tap,netns\"\n{FILE}"));
    let text = limited.to_toml().unwrap();
    assert!(text.contains("later-ports = \"memif,tap,netns\""), "{text}");
    assert_eq!(plan(&text).later_ports, limited.later_ports);
    let error = message(parse("later-ports = \"eth\"\n"), Fault::BadInput);
    assert!(error.contains("unknown kind of ports 'eth'"), "{error}");
}

#[test]
fn every_idle_is_read_and_a_port_without_interrupts_is_named() {
    for idle in Idle::ALL {
        let text = format!("idle = \"{}\"\n", idle.name());
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        assert_eq!(settings.idle, Some(idle));
        let planned = settings.plan(&"0-3".parse().unwrap());
        assert_eq!(planned.unwrap().idle, idle);
    }
    let plan = |uri: &str, idle: Idle| {
        let text = format!(
            "idle = \"{}\"\n[[port]]\nname = \"a\"\nuri = \"memif:/a.sock?role=server\"\n[[port]]\nname = \"b\"\nuri = \"{uri}\"\n",
            idle.name()
        );
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        settings.plan(&"0-3".parse().unwrap())
    };
    for uri in [
        "vhost:/b.sock?role=server",
        "memif:/b.sock?role=server",
        "af-packet:b",
        "af-xdp:b",
        "veth:b",
        "tap:b",
        "pci:0000:17:00.0",
    ] {
        assert_eq!(plan(uri, Idle::Interrupt).unwrap().idle, Idle::Interrupt);
    }
    for uri in ["null:", "virtio-user:/b.sock?role=client"] {
        assert_eq!(plan(uri, Idle::Sleep).unwrap().idle, Idle::Sleep);
        let error = plan(uri, Idle::Interrupt).unwrap_err().to_string();
        for part in [
            "switch.toml, line 5",
            "port 'b'",
            "no receive interrupts",
            "use idle = \"sleep\"",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn receive_queues_are_mapped_in_the_order_of_their_cpus() {
    let text = "forwarding-cpus = \"1-3\"\n[[port]]\nname = \"a\"\nuri = \"null:\"\nrx-queues = 4\nrx-cpus = \"3,1,1\"\n";
    let settings = Settings::parse(Path::new("switch.toml"), text).unwrap();
    let plan = settings.plan(&"0-3".parse().unwrap()).unwrap();
    let cpus: Vec<Option<u32>> = (0..4).map(|queue| plan.ports[0].cpu_of(queue)).collect();
    assert_eq!(cpus, [Some(3), Some(1), Some(1), Some(3)]);
    assert!(plan.to_toml().unwrap().contains("rx-cpus = \"3,1,1\""));
}

#[test]
fn a_file_becomes_a_plan() {
    let plan = parse(FILE).unwrap().plan(&online()).unwrap();
    assert_eq!(
        plan.ports[0].uri.to_string(),
        "memif:/run/a.sock?role=server&id=0"
    );
    assert_eq!(plan.groups[0], Group::CrossConnect([0, 1]));
    assert_eq!(
        plan.groups[1],
        Group::Bridge(BridgePlan {
            name: "lan".to_owned(),
            ports: vec![2, 3],
            max_entries: 100,
            ageing_s: 20,
            kernel_forwarding: None,
            flooding: FloodingSetting::default(),
            statics: SharedList::default()
        })
    );
    assert_eq!(plan.control_cpus.to_string(), "0-1");
    assert_eq!((plan.idle, plan.pinning), (Idle::Yield, Pinning::Roles));
    assert_eq!((plan.rx_ring_size, plan.tx_ring_size), (1024, 1024));
    assert_eq!(plan.control_socket, Path::new(CONTROL_SOCKET_DEFAULT));
}

#[test]
fn the_command_line_wins_over_the_file() {
    let flags = Settings {
        idle: Some(Idle::Poll),
        forwarding_cpus: Some("2".parse().unwrap()),
        ..flags(&TWO, &[&["b", "a"]])
    };
    let file = Settings {
        bridges: None,
        ..parse(FILE).unwrap()
    };
    let plan = flags.over(file).plan(&online()).unwrap();
    assert_eq!(plan.ports.len(), 2);
    assert_eq!(plan.groups, [Group::CrossConnect([1, 0])]);
    assert_eq!(plan.idle, Idle::Poll);
    assert_eq!(plan.forwarding_cpus.to_string(), "2");
    assert_eq!(plan.service_cpus.to_string(), "0");
}

#[test]
fn default_cpus_are_chosen() {
    let chosen = |settings: Settings, online: &str| {
        let plan = settings.plan(&online.parse().unwrap()).unwrap();
        [plan.forwarding_cpus, plan.service_cpus, plan.control_cpus].map(|cpus| cpus.to_string())
    };
    let two = || flags(&TWO, &[&["a", "b"]]);
    assert_eq!(chosen(two(), "0-3"), ["3", "0-2", "0-2"]);
    let control_on_3 = Settings {
        control_cpus: Some("3".parse().unwrap()),
        ..two()
    };
    assert_eq!(chosen(control_on_3, "0-3"), ["2", "0-1,3", "3"]);
    let unpinned = Settings {
        pinning: Some(Pinning::None),
        ..two()
    };
    assert_eq!(chosen(unpinned, "0"), ["0", "0", "0"]);
    let error = message(
        two().plan(&"0".parse().unwrap()),
        Fault::MissingPrerequisite,
    );
    assert!(
        error.contains("no CPU is left for service threads"),
        "{error}"
    );
}

#[test]
fn wrong_cpus_are_named() {
    for (forwarding, service, control, part) in [
        (
            "4",
            "0",
            "0",
            "forwarding-cpus: CPU 4 is not online (online CPUs: 0-3",
        ),
        ("3", "9", "0", "service-cpus: CPU 9 is not online"),
        ("3", "0", "2-3", "control-cpus: CPU 3 is a forwarding CPU"),
        ("2-3", "2", "0", "service-cpus: CPU 2 is a forwarding CPU"),
        ("", "0", "0", "forwarding-cpus: the CPU list is empty"),
    ] {
        let settings = Settings {
            forwarding_cpus: Some(forwarding.parse().unwrap()),
            service_cpus: Some(service.parse().unwrap()),
            control_cpus: Some(control.parse().unwrap()),
            ..flags(&TWO, &[&["a", "b"]])
        };
        let error = message(settings.plan(&online()), Fault::BadInput);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn invalid_options_are_reported_by_name() {
    let twins = [("a", "vhost:/v.sock"), ("b", "vhost:/v.sock")];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a [&'a str]], &'a str);
    let cases: [Case<'_>; 8] = [
        (
            &TWO,
            &[&["a", "x"]],
            "--cross-connect: no such port: 'x' (defined ports: a, b",
        ),
        (
            &[],
            &[&["a", "x"]],
            "no such port: 'a' (no ports are defined",
        ),
        (
            &TWO,
            &[&["a", "a"]],
            "port 'a' already belongs to the cross-connect a,a",
        ),
        (
            &TWO,
            &[&["a", "b"], &["b", "a"]],
            "port 'b' already belongs to the cross-connect a,b",
        ),
        (&TWO, &[&["a"]], "requires two ports (1 given)"),
        (&[TWO[0], TWO[0]], &[&["a", "b"]], "duplicate port 'a'"),
        (
            &twins,
            &[&["a", "b"]],
            "use the same URI vhost:/v.sock?role=server",
        ),
        (
            &[("a", "memif:/x"), TWO[1]],
            &[&["a", "b"]],
            "--port: port 'a': 'memif:/x' is not the URI",
        ),
    ];
    for (ports, pairs, part) in cases {
        let error = message(flags(ports, pairs).plan(&online()), Fault::BadInput);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn wrong_files_are_named_with_line_and_key() {
    for (text, parts) in [
        ("\nidle = \"doze\"", ["line 2, key 'idle'", "`doze`"]),
        (
            "rx-ring = 3",
            ["line 1, key 'rx-ring'", "unknown field `rx-ring`"],
        ),
        (
            "forwarding-cpus = 1",
            ["line 1, key 'forwarding-cpus'", "expected a string"],
        ),
        (
            "forwarding-cpus = \"x\"",
            ["line 1, key 'forwarding-cpus'", "'x' is not a CPU number"],
        ),
        ("memory-mib = -1", ["line 1, key 'memory-mib'", "-1"]),
        ("[[port]]\nname = \"a\"", ["line 1", "missing field `uri`"]),
        ("[[port]\n", ["line 1", "]"]),
    ] {
        let error = message(parse(text), Fault::BadInput);
        assert!(error.starts_with("switch.toml, line"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
    }
    for (from, to, parts) in [
        (
            "[\"c\", \"d\"]",
            "[\"c\", \"z\"]",
            ["line 27, key 'bridge'", "no such port: 'z'"],
        ),
        (
            "[\"c\", \"d\"]",
            "[\"c\", \"a\"]",
            ["line 27, key 'bridge'", "belongs to the cross-connect a,b"],
        ),
        (
            "ageing-s = 20",
            "ageing-s = 0",
            ["line 27, key 'bridge'", "ageing-s is 0"],
        ),
        (
            "max-entries = 100",
            "max-entries = 0",
            ["line 27, key 'bridge'", "max-entries is 0"],
        ),
        (
            "\"null:\"",
            "\"token:x\"",
            ["line 16, key 'port'", "'token:x'"],
        ),
    ] {
        let error = message(
            parse(&FILE.replace(from, to)).unwrap().plan(&online()),
            Fault::BadInput,
        );
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(matches!(
        Settings::read(Path::new("/nowhere/switch.toml")),
        Err(SwitchError::Unreadable { .. })
    ));
}

#[test]
fn a_port_beyond_the_limit_is_refused_with_its_line() {
    let plan = |uri: fn(usize) -> String, count: usize| {
        let port = |number: usize| {
            let uri = uri(number);
            format!("[[port]]\nname = \"p{number}\"\nuri = \"{uri}\"\n")
        };
        let ports: Vec<String> = (0..count).map(port).collect();
        parse(&ports.concat()).unwrap().plan(&online())
    };
    // As many devices of DPDK as possible, and other ports.
    let uri = |number: usize| match number {
        0..DEVICES_MAX => "null:".to_owned(),
        _ => format!("memif:/run/{number}.sock?role=server"),
    };
    assert_eq!(plan(uri, PORTS_MAX).unwrap().ports.len(), 256);
    let error = message(plan(uri, PORTS_MAX + 1), Fault::BadInput);
    assert!(
        error.starts_with("switch.toml, line 769, key 'port': port 'p256': too many ports"),
        "{error}"
    );
    assert!(error.contains("maximum: 256"), "{error}");
    let error = message(
        plan(|_| "null:".to_owned(), DEVICES_MAX + 1),
        Fault::BadInput,
    );
    assert!(
        error.starts_with("switch.toml, line 97, key 'port': port 'p32': too many ports of the"),
        "{error}"
    );
    assert!(error.contains("maximum: 32"), "{error}");
}

#[test]
fn a_name_that_no_port_can_have_is_refused_with_its_line() {
    let text = FILE.replace("name = \"a\"", "name = \"a\\u001b\"");
    assert_ne!(text, FILE);
    let error = message(parse(&text).unwrap().plan(&online()), Fault::BadInput);
    let place = "switch.toml, line 8, key 'port': port name 'a\\u{1b}' is invalid (use 1 to 63";
    assert!(error.starts_with(place), "{error}");
    let settings = flags(&TWO, &[]);
    for name in ["c d", "", &"c".repeat(64)] {
        let added = serde_json::json!({"add-port": {"name": name, "uri": "null:"}});
        let change: Change = serde_json::from_value(added).unwrap();
        let after = settings.clone().after(change).unwrap();
        let error = message(after.plan(&online()), Fault::BadInput);
        assert!(error.starts_with("the request: port "), "{error}");
    }
}

#[test]
fn ports_in_no_group_are_named() {
    let three = [TWO[0], TWO[1], ("c", "null:")];
    let plan = flags(&three, &[&["a", "b"]]).plan(&online()).unwrap();
    assert_eq!(plan.idle_ports().collect::<Vec<_>>(), ["c"]);
}

#[test]
fn queues_are_mapped_in_turn() {
    let text = FILE.replace(
        "uri = \"memif:/run/a.sock?role=server\"",
        "uri = \"memif:/run/a.sock?role=server\"\nrx-queues = 3\nrx-cpus = \"2-3\"",
    );
    let error = message(parse(&text).unwrap().plan(&online()), Fault::BadInput);
    assert!(error.contains("line 8, key 'port'"), "{error}");
    assert!(error.contains("must be forwarding CPUs (3)"), "{error}");
    let text = text.replace("forwarding-cpus = \"3\"", "forwarding-cpus = \"2-3\"");
    let plan = parse(&text).unwrap().plan(&online()).unwrap();
    let cpus: Vec<_> = (0..3).map(|queue| plan.ports[0].cpu_of(queue)).collect();
    assert_eq!(cpus, [Some(2), Some(3), Some(2)]);
    assert_eq!(plan.ports[1].cpu_of(0), None);
    let error = message(
        parse(&text.replace("rx-queues = 3", "rx-queues = 0"))
            .unwrap()
            .plan(&online()),
        Fault::BadInput,
    );
    assert!(
        error.contains("rx-queues is out of range (allowed: 1 to 64)"),
        "{error}"
    );
}

#[test]
fn a_written_configuration_gives_the_same_plan() {
    let plan = parse(FILE).unwrap().plan(&online()).unwrap();
    let text = plan.to_toml().unwrap();
    assert_eq!(
        parse(&text).unwrap().plan(&online()).unwrap(),
        plan,
        "{text}"
    );
    let routed = FILE.replace(
        "[[cross-connect]]\nports = [\"a\", \"b\"]",
        "[[vrf]]\nname = \"blue\"\n[[interface]]\nname = \"a0\"\nport = \"a\"\nvlan = 7\nvrf = \"blue\"\naddresses = [\"192.0.2.1/24\"]\nkernel = \"qw-a\"\n[[kernel-filter]]\nname = \"bgp\"\ninterface = \"a0\"\nprotocol = \"tcp\"\ndestination-port = \"179\"",
    );
    let plan = parse(&routed).unwrap().plan(&online()).unwrap();
    assert_eq!(plan.idle_ports().collect::<Vec<_>>(), ["b"]);
    assert_eq!(plan.layer3.kernel_filters.len(), 1);
    let text = plan.to_toml().unwrap();
    assert_eq!(
        parse(&text).unwrap().plan(&online()).unwrap(),
        plan,
        "{text}"
    );
    let bridged = FILE
        .replace("uri = \"null:\"\n", "uri = \"null:\"\nbridging = { trunk = \"5-7\", storm = { broadcast-pps = 9 } }\n")
        .replace("ageing-s = 20", "ageing-s = 20\nkernel-forwarding = true\nflooding = { multicast = false }\n[[fdb]]\nbridge = \"lan\"\nmac = \"02:00:00:00:00:01\"\nvlan = 5\nport = \"c\"");
    let plan = parse(&bridged).unwrap().plan(&online()).unwrap();
    let text = plan.to_toml().unwrap();
    assert_eq!(
        parse(&text).unwrap().plan(&online()).unwrap(),
        plan,
        "{text}"
    );
    let mixed = FILE.replacen(
        "uri = \"null:\"\n",
        "uri = \"null:\"\nbridging = { access = 5 }\n",
        1,
    );
    // Port d has no VLAN settings: it is in all VLANs.
    let plan = parse(&mixed).unwrap().plan(&online()).unwrap();
    let Group::Bridge(bridge) = &plan.groups[1] else {
        panic!();
    };
    let settings = bridge
        .settings(&plan.ports, |index| u16::try_from(index).ok(), Vec::new())
        .unwrap();
    assert!(settings.validate().is_ok());
    assert!(matches!(settings.ports[1].vlans, PortVlans::Trunk(_)));
    let empty = Settings::default().plan(&online()).unwrap();
    let text = empty.to_toml().unwrap();
    assert_eq!(parse(&text).unwrap().plan(&online()).unwrap(), empty);
}

/// There may be 100,000 static entries, too.
#[test]
fn static_entries_are_planned_again_only_if_a_change_concerns_them() {
    let entry = "[[fdb]]\nbridge = \"lan\"\nmac = \"02:00:00:00:00:01\"\nport = \"c\"\n";
    let settings = parse(&format!("{FILE}{entry}")).unwrap();
    let plan = settings.clone().plan(&online()).unwrap();
    let statics = |plan: &Plan| {
        let mut bridges = plan.groups.iter();
        let found = bridges.find_map(|group| match group {
            Group::Bridge(bridge) => Some(bridge.statics.clone()),
            Group::CrossConnect(_) => None,
        });
        found.unwrap()
    };
    let after = |change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        let next = settings.clone().after(change).unwrap();
        let after = next.clone().plan_after(&online(), Some((&settings, &plan)));
        let after = after.unwrap();
        assert_eq!(after, next.plan(&online()).unwrap());
        statics(&after)
    };
    for change in [
        r#"{"add-port":{"name":"e","uri":"null:"}}"#,
        r#"{"set-threads":{"forwarding_cpus":"2-3"}}"#,
    ] {
        assert!(after(change).is_shared_with(&statics(&plan)), "{change}");
    }
    for (change, count) in [
        (
            r#"{"add-static":{"bridge":"lan","mac":"02:00:00:00:00:02","port":"d"}}"#,
            2,
        ),
        (
            r#"{"add-port":{"name":"e","uri":"null:","bridge":"lan"}}"#,
            1,
        ),
    ] {
        let entries = after(change);
        assert_eq!(entries.len(), count, "{change}");
        // The entry itself is not copied.
        let former = statics(&plan);
        let is_shared = std::sync::Arc::ptr_eq(&entries[0], &former[0]);
        assert!(is_shared, "{change}");
    }
    let removed = r#"{"del-static":{"bridge":"lan","mac":"02:00:00:00:00:01"}}"#;
    assert!(after(removed).is_empty());
}

/// There may be 100,000 rules, and any number of changes that do not concern them.
#[test]
fn rules_are_planned_again_only_if_a_change_concerns_them() {
    let rules = r#"
[[set]]
name = "ports"
type = "inet_service"
elements = ["1"]
[[rule]]
name = "of a"
action = "drop"
port = "a"
protocol = "udp"
source-port = "@ports"
[[rule]]
name = "of lan"
action = "accept"
bridge = "lan"
dup = "b"
[[rule]]
name = "out"
action = "drop"
direction = "out"
port = "a"
from = "c"
"#;
    let settings = parse(&format!("{FILE}{rules}")).unwrap();
    let plan = settings.clone().plan(&online()).unwrap();
    let keeps_rules = |change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        let next = settings.clone().after(change).unwrap();
        let former = Some((&settings, &plan));
        let after = next.clone().plan_after(&online(), former).unwrap();
        assert_eq!(after, next.plan(&online()).unwrap());
        std::sync::Arc::ptr_eq(&after.rules, &plan.rules)
    };
    for change in [
        r#"{"add-port":{"name":"e","uri":"null:","bridge":"lan"}}"#,
        r#"{"set-bridge":{"name":"lan","del_ports":["c"]}}"#,
        r#"{"del-port":{"name":"d"}}"#,
        r#"{"set-threads":{"forwarding_cpus":"2-3"}}"#,
    ] {
        assert!(keeps_rules(change), "{change}");
    }
    for change in [
        r#"{"del-port":{"name":"a"}}"#,
        r#"{"del-port":{"name":"b"}}"#,
        r#"{"del-port":{"name":"c"}}"#,
        r#"{"del-bridge":{"name":"lan"}}"#,
        r#"{"add-elements":{"set":"ports","elements":["2"]}}"#,
        r#"{"del-rule":{"name":"of a"}}"#,
        r#"{"set-rules":{"default":"drop"}}"#,
        r#"{"set-rules":{"malformed":"match"}}"#,
    ] {
        assert!(!keeps_rules(change), "{change}");
    }
}

#[test]
fn changes_edit_what_was_asked_for() {
    let after = |change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        parse(FILE).unwrap().after(change)?.plan(&online())
    };
    let names = |plan: &Plan| {
        plan.ports
            .iter()
            .map(|port| port.name.clone())
            .collect::<Vec<_>>()
    };
    let plan = after(r#"{"add-port":{"name":"e","uri":"null:","bridge":"lan"}}"#).unwrap();
    assert_eq!(names(&plan), ["a", "b", "c", "d", "e"]);
    assert_eq!(plan.groups[1].ports(), [2, 3, 4]);
    let plan = after(r#"{"del-port":{"name":"a"}}"#).unwrap();
    assert_eq!(
        plan.groups.len(),
        1,
        "removing the port did not remove its cross-connect"
    );
    assert_eq!(plan.idle_ports().collect::<Vec<_>>(), ["b"]);
    let plan = after(r#"{"set-bridge":{"name":"lan","del_ports":["c"],"ageing_s":7}}"#).unwrap();
    let Group::Bridge(lan) = &plan.groups[1] else {
        panic!()
    };
    assert_eq!((lan.ports.as_slice(), lan.ageing_s), (&[3][..], 7));
    assert_eq!(lan.kernel_forwarding, None);
    let plan = after(r#"{"set-bridge":{"name":"lan","kernel_forwarding":true}}"#).unwrap();
    let Group::Bridge(lan) = &plan.groups[1] else {
        panic!()
    };
    assert_eq!(lan.kernel_forwarding, Some(true));
    let plan = after(r#"{"set-threads":{"forwarding_cpus":"2-3"}}"#).unwrap();
    assert_eq!(plan.forwarding_cpus.to_string(), "2-3");
    for (change, part) in [
        (r#"{"del-port":{"name":"x"}}"#, "no such port: 'x'"),
        (r#"{"del-bridge":{"name":"x"}}"#, "no such bridge: 'x'"),
        (
            r#"{"del-cross-connect":{"port":"c"}}"#,
            "port 'c' is in no cross-connect",
        ),
        (
            r#"{"set-bridge":{"name":"lan","del_ports":["a"]}}"#,
            "port 'a' is not a member",
        ),
        (
            r#"{"set-bridge":{"name":"lan","add_ports":["a"]}}"#,
            "the request: port 'a' already belongs to the cross-connect a,b",
        ),
        (
            r#"{"add-port":{"name":"a","uri":"null:"}}"#,
            "duplicate port 'a'",
        ),
        (
            r#"{"add-interface":{"name":"c0","port":"c"}}"#,
            "the request: port 'c' already belongs to the bridge 'lan'",
        ),
        (r#"{"del-vrf":{"name":"blue"}}"#, "no such VRF: 'blue'"),
        (
            r#"{"set-interface":{"name":"c0","port":"c"}}"#,
            "no such interface: 'c0'",
        ),
        (
            r#"{"set-threads":{"forwarding_cpus":"0"}}"#,
            "service-cpus: CPU 0 is a forwarding CPU",
        ),
    ] {
        let error = message(after(change), Fault::BadInput);
        assert!(error.contains(part), "{error}");
    }
}

/// The guide lists the settings that cannot change at run time.
#[test]
fn settings_that_require_a_restart_are_those_of_the_guide() {
    let tracked = format!("{FILE}[connections]\n");
    let plan = parse(&tracked).unwrap().plan(&online()).unwrap();
    plan.check_changeable(&plan).unwrap();
    type Change = (&'static str, fn(&mut Plan));
    fn of(plan: &mut Plan) -> &mut super::connections::ConnectionsSetting {
        plan.connections.as_mut().unwrap()
    }
    fn standby() -> super::connections::ReplicationSetting {
        super::connections::ReplicationSetting {
            role: super::connections::ReplicationRole::Standby,
            listen: None,
            peer: Some(([127, 0, 0, 1], 9476).into()),
            allow_remote: false,
            refresh: None,
        }
    }
    let changes: [Change; 25] = [
        ("service-cpus", |plan| plan.service_cpus = CpuList::new()),
        ("control-cpus", |plan| plan.control_cpus = CpuList::new()),
        ("rx-ring-size", |plan| plan.rx_ring_size *= 2),
        ("tx-ring-size", |plan| plan.tx_ring_size *= 2),
        ("frame-size-max", |plan| plan.frame_size_max += 1),
        ("idle", |plan| plan.idle = quietwire_base::Idle::Sleep),
        ("pinning", |plan| plan.pinning = Pinning::None),
        ("huge-pages", |plan| plan.huge_pages = HugePages::Require),
        ("memory-mib", |plan| plan.memory_mib += 1),
        ("user", |plan| plan.user = Some("other".to_owned())),
        ("seccomp", |plan| {
            plan.seccomp = quietwire_base::Seccomp::Off;
        }),
        ("later-ports", |plan| {
            plan.later_ports = "none".parse().unwrap();
        }),
        ("metrics", |plan| {
            plan.metrics = Some(([127, 0, 0, 1], 9475).into());
        }),
        ("control-socket", |plan| {
            plan.control_socket = "/run/other.sock".into();
        }),
        ("connections.max-entries", |plan| of(plan).max_entries += 1),
        ("connections.max-per-source", |plan| {
            of(plan).max_per_source = Some(1);
        }),
        ("connections.max-half-open-per-source", |plan| {
            of(plan).max_half_open_per_source = Some(1);
        }),
        ("connections.labels", |plan| of(plan).labels = true),
        ("connections.helpers", |plan| {
            of(plan).helpers = vec![quietwire_tables::connections::Helper::Ftp];
        }),
        ("connections.zone", |plan| {
            of(plan).zones = vec![super::connections::ZoneSetting {
                name: "red".to_owned(),
                ports: Vec::new(),
                max_entries: None,
            }];
        }),
        ("connections.replication", |plan| {
            of(plan).replication = Some(standby());
        }),
        ("replication", |plan| plan.replication = Some(standby())),
        ("nat-log", |plan| plan.nat_log = Some("/var/log/nat".into())),
        ("nat-log-collector", |plan| {
            plan.nat_log_collector = Some(([127, 0, 0, 1], 4739).into());
        }),
        ("nat-log-events", |plan| {
            plan.nat_log_events = serde_json::from_str("[\"limits\"]").unwrap();
        }),
    ];
    let names = changes.map(|(name, _)| format!("`{name}`")).join(", ");
    let page = include_str!("../../../../docs/switch.md").replace('\n', " ");
    let sentence = format!("These keys require a restart: {names}.");
    assert!(page.contains(&sentence), "no '{sentence}'");
    for (name, change) in changes {
        let mut next = plan.clone();
        change(&mut next);
        let error = plan.check_changeable(&next).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("restart the switch"),
            "{error}"
        );
    }
    // Connection tracking itself begins and ends at run time, unless it is replicated.
    let mut next = plan.clone();
    of(&mut next).timeouts = [("udp-replied".to_owned(), 9)].into();
    of(&mut next).max_half_open = Some(9);
    of(&mut next).new_share = 10;
    plan.check_changeable(&next).unwrap();
    next.connections = None;
    plan.check_changeable(&next).unwrap();
    next.check_changeable(&plan).unwrap();
    let mut replicated = plan.clone();
    of(&mut replicated).replication = Some(standby());
    for (from, to) in [(&next, &replicated), (&replicated, &next)] {
        let error = from.check_changeable(to).unwrap_err().to_string();
        assert!(error.contains("connections.replication"), "{error}");
    }
}

#[test]
fn connection_tracking_begins_and_ends_by_changes() {
    let change = |settings: Settings, change: serde_json::Value| {
        settings.after(serde_json::from_str(&change.to_string()).unwrap())
    };
    let set = serde_json::json!({ "set-connections": { "max-entries": 100 } });
    let settings = change(parse(FILE).unwrap(), set).unwrap();
    let rule = serde_json::json!({ "add-rule": {
        "rule": { "name": "known", "action": "accept", "ct-state": "established" },
    } });
    let settings = change(settings, rule).unwrap();
    let plan = settings.clone().plan(&online()).unwrap();
    assert_eq!(plan.connections.as_ref().unwrap().max_entries, 100);
    // A rule requires it, also if the rule was checked before.
    let ended = change(settings.clone(), serde_json::json!("del-connections")).unwrap();
    let planned = ended.plan_after(&online(), Some((&settings, &plan)));
    let error = message(planned, Fault::BadInput);
    assert!(error.contains("rule 'known'"), "{error}");
    let none = change(parse(FILE).unwrap(), serde_json::json!("del-connections"));
    let error = message(none, Fault::BadInput);
    assert!(error.contains("connections"), "{error}");
}
