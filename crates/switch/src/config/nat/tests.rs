// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use super::*;
use crate::config::{Change, Plan, Settings};

const FILE: &str = r#"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[[port]]
name = "in"
uri = "null:"
[[port]]
name = "out"
uri = "null:"
[[interface]]
name = "inside"
port = "in"
addresses = ["10.0.0.1/24"]
[[interface]]
name = "outside"
port = "out"
addresses = ["2001:db8::1/64", "198.51.100.1/24", "198.51.100.2/32"]
"#;

fn settings(nat: &str) -> Settings {
    Settings::parse(Path::new("switch.toml"), &format!("{FILE}{nat}")).unwrap()
}

fn plan(nat: &str) -> Result<Plan, String> {
    let settings = Settings::parse(Path::new("switch.toml"), &format!("{FILE}{nat}"));
    let settings = settings.map_err(|error| error.to_string())?;
    let plan = settings.plan(&"0-3".parse().unwrap());
    plan.map_err(|error| error.to_string())
}

const NAT: &str = "
[[nat]]
name = \"internet\"
interface = \"outside\"
";

fn tables(nat: &str) -> NatSettings {
    let plan = plan(nat).unwrap();
    plan.nats[0].tables(&plan.layer3.interfaces[1])
}

#[test]
fn without_addresses_that_of_the_interface_is_used() {
    let tables = tables(NAT);
    let address: Ipv4Addr = "198.51.100.1".parse().unwrap();
    assert_eq!(tables.pool.addresses, [address]);
    assert_eq!(
        (tables.pool.first_port, tables.pool.last_port),
        (1024, 65_535)
    );
    assert_eq!(tables.timeouts, NatTimeouts::default());
}

#[test]
fn all_keys_lead_to_settings_of_the_tables_and_are_written_again() {
    let text = format!(
        "{NAT}addresses = [\"198.51.100.2\", \"203.0.113.1\"]
sources = [\"10.0.0.0/24\"]
excluded-destinations = [\"172.16.0.0/12\"]
ports = \"2000-2999\"
block-size = 100
blocks-per-host = 2
max-mappings = 500
max-hosts = 10
timeouts = {{ udp = 30, icmp = 5 }}
[[nat.publish]]
protocol = \"tcp\"
port = 443
to = \"10.0.0.5:8443\"
[[nat.publish]]
protocol = \"udp\"
port = 53
to = \"10.0.0.6:53\"
address = \"203.0.113.1\"
[[nat.one-to-one]]
inside = \"10.0.0.9\"
outside = \"203.0.113.9\"
"
    );
    let tables = tables(&text);
    assert_eq!(tables.pool.block_size, 100);
    assert_eq!((tables.mappings_max, tables.hosts_max), (500, 10));
    assert_eq!((tables.timeouts.udp_s, tables.timeouts.icmp_s), (30, 5));
    let externals: Vec<String> = tables
        .forwards
        .iter()
        .map(|one| one.external.to_string())
        .collect();
    assert_eq!(externals, ["198.51.100.2:443", "203.0.113.1:53"]);
    assert_eq!(tables.pairs.len(), 1);
    let plan = plan(&text).unwrap();
    let written = Settings::parse(Path::new("written.toml"), &plan.to_toml().unwrap()).unwrap();
    let again = written.plan(&"0-3".parse().unwrap()).unwrap();
    assert_eq!(again.nats, plan.nats);
}

#[test]
fn invalid_nat_settings_are_refused_with_the_cure() {
    for (text, printed) in [
        (
            NAT.replace("outside", "other"),
            "nat 'internet': no such interface: 'other'",
        ),
        (format!("{NAT}{NAT}"), "another NAT has this name"),
        (
            format!("{NAT}{}", NAT.replace("internet", "b")),
            "nat 'internet' is at the interface 'outside' already",
        ),
        (
            format!("{NAT}addresses = [\"198.51.100.7\"]"),
            "add 198.51.100.7/32 to the addresses of interface 'outside'",
        ),
        (
            format!("{NAT}addresses = [\"10.0.0.1\"]"),
            "is an address of interface 'inside'",
        ),
        (format!("{NAT}addresses = [\"224.0.0.1\"]"), "unicast"),
        (format!("{NAT}ports = \"9-1\""), "FIRST-LAST"),
        (format!("{NAT}block-size = 0"), "block of 0 ports"),
        (format!("{NAT}timeouts = {{ udp = 0 }}"), "timeout 'udp'"),
        (format!("{NAT}colour = 1"), "colour"),
        (
            format!("{NAT}excluded-destinations = [\"2001:db8:2::/48\"]"),
            "excluded destination 2001:db8:2::/48 is not of the IP version",
        ),
        (
            format!(
                "{NAT}[[nat.publish]]\nprotocol = \"tcp\"\nport = 1\nto = \"10.0.0.2:1\"\naddress = \"192.0.2.1\""
            ),
            "not an external address of the pool",
        ),
        (
            format!(
                "{NAT}sources = [\"10.0.0.0/24\"]\n[[nat.one-to-one]]\ninside = \"10.0.1.9\"\noutside = \"203.0.113.9\""
            ),
            "published host 10.0.1.9 is not in sources",
        ),
    ] {
        let error = plan(&text).unwrap_err();
        assert!(error.contains(printed), "{error}");
    }
    // A name of the maximum length has fewer characters than octets.
    for (count, is_allowed) in [(127, true), (128, false)] {
        let name = format!("n{}", "ü".repeat(count));
        let planned = plan(&NAT.replace("internet", &name));
        assert_eq!(planned.is_ok(), is_allowed);
        if let Err(error) = planned {
            let printed = "the name of the NAT has 257 octets (use at most 255)";
            assert!(error.contains(printed) && !error.contains(&name), "{error}");
        }
    }
    let several = FILE.replace("forwarding-cpus = \"1\"", "forwarding-cpus = \"1-2\"");
    let planned = |keys: &str| {
        let text = format!("{several}{NAT}{keys}");
        let settings = Settings::parse(Path::new("switch.toml"), &text).unwrap();
        let plan = settings.plan(&"0-3".parse().unwrap());
        plan.map_err(|error| error.to_string())
    };
    for (keys, printed) in [
        ("", "2 forwarding CPUs require `sources`"),
        ("sources = [\"0.0.0.0/0\"]", "without 0.0.0.0/0"),
        (
            "sources = [\"10.0.0.0/24\"]\nports = \"1024-2047\"\nblock-size = 1024",
            "1 port blocks are too few for 2 forwarding CPUs",
        ),
    ] {
        let error = planned(keys).unwrap_err();
        assert!(error.contains(printed), "{error}");
    }
    assert!(planned("sources = [\"10.0.0.0/24\"]").is_ok());
}

#[test]
fn changes_add_and_remove_instances_and_published_ports() {
    let after = |settings: Settings, change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        settings.after(change)
    };
    let settings = settings("");
    let add = r#"{"add-nat":{"name":"internet","interface":"outside"}}"#;
    let settings = after(settings, add).unwrap();
    let publish = r#"{"add-publish":{"nat":"internet","publish":{"protocol":"tcp","port":443,"to":"10.0.0.5:443"}}}"#;
    let settings = after(settings, publish).unwrap();
    let plan = settings.clone().plan(&"0-3".parse().unwrap()).unwrap();
    assert_eq!(plan.nats[0].publish.len(), 1);
    let absent = r#"{"del-publish":{"nat":"internet","protocol":"udp","port":443}}"#;
    let error = after(settings.clone(), absent).unwrap_err().to_string();
    assert!(error.contains("udp port 443 is not published"), "{error}");
    let del = r#"{"del-publish":{"nat":"internet","protocol":"tcp","port":443}}"#;
    let settings = after(settings, del).unwrap();
    let settings = after(settings, r#"{"del-nat":{"name":"internet"}}"#).unwrap();
    assert!(
        settings
            .clone()
            .plan(&"0-3".parse().unwrap())
            .unwrap()
            .nats
            .is_empty()
    );
    let error = after(settings, r#"{"del-nat":{"name":"internet"}}"#).unwrap_err();
    assert!(
        error.to_string().contains("no such NAT: 'internet'"),
        "{error}"
    );
}

#[test]
fn a_nat_gets_further_addresses_behind_its_own() {
    let after = |settings: Settings, change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        settings.after(change)
    };
    let add = r#"{"add-nat-address":{"nat":"internet","address":"203.0.113.1"}}"#;
    let settings = settings(NAT);
    let plan = |settings: &Settings| settings.clone().plan(&"0-3".parse().unwrap());
    let tables = |plan: &Plan| plan.nats[0].tables(&plan.layer3.interfaces[1]);
    let first = tables(&plan(&settings).unwrap());
    let settings = after(settings, add).unwrap();
    let second = tables(&plan(&settings).unwrap());
    // The default address of the interface stays the first one.
    let expected = ["198.51.100.1", "203.0.113.1"].map(|one| one.parse::<Ipv4Addr>().unwrap());
    assert_eq!(second.pool.addresses, expected);
    assert!(second.extends(&first));
    let twice = after(settings.clone(), add).unwrap();
    let error = plan(&twice).unwrap_err().to_string();
    assert!(error.contains("203.0.113.1 is listed twice"), "{error}");
    for (change, printed) in [
        (add.replace("203.0.113.1", "2001:db8::9"), "are of IPv4 ("),
        (add.replace("internet", "other"), "no such NAT: 'other'"),
    ] {
        let error = after(settings.clone(), &change).unwrap_err().to_string();
        assert!(error.contains(printed), "{error}");
    }
}

#[test]
fn endpoints_that_were_published_before_are_not_newly_published() {
    let with = |published: &[(&str, u16, &str)]| {
        let mut text = NAT.to_owned();
        for (protocol, port, to) in published {
            text += &format!(
                "[[nat.publish]]\nprotocol = \"{protocol}\"\nport = {port}\nto = \"{to}\"\n"
            );
        }
        plan(&text).unwrap().nats[0].clone()
    };
    let (first, second) = ("10.0.0.5:80", "10.0.0.6:80");
    let none = with(&[]);
    let one = with(&[("tcp", 443, first)]);
    let socket = |text: &str| -> SocketAddrV4 { text.parse().unwrap() };
    let tcp = (NatProtocol::Tcp, socket(first));
    assert_eq!(one.newly_published(&none), [tcp]);
    assert!(none.newly_published(&one).is_empty());
    // Another external port, another protocol, another host.
    let other = with(&[("udp", 443, first), ("tcp", 444, first), ("tcp", 1, second)]);
    let expected = [
        (NatProtocol::Tcp, socket(second)),
        (NatProtocol::Udp, socket(first)),
    ];
    assert_eq!(other.newly_published(&one), expected);
}

#[test]
fn a_collector_requires_a_log() {
    let collector = Some(([192, 0, 2, 9], 4739).into());
    assert!(check_collector(true, collector).is_ok());
    assert!(check_collector(false, None).is_ok());
    let error = check_collector(false, collector).unwrap_err().to_string();
    assert!(error.contains("set nat-log too"), "{error}");
}
