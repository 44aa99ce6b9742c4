// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use super::*;
use crate::config::{Change, Plan, Settings};

const WEB: &str = r#"
[[load-balancer]]
name = "web"
address = "198.51.100.1"
port = 80
max-connections = 1000
[[load-balancer.backend]]
to = "10.0.0.5:8080"
[[load-balancer.backend]]
to = "10.0.0.6:8080"
weight = 3
state = "draining"
"#;

fn settings(text: &str) -> Result<Settings, String> {
    let text =
        format!("forwarding-cpus = \"1\"\nservice-cpus = \"0\"\ncontrol-cpus = \"0\"\n{text}");
    Settings::parse(Path::new("switch.toml"), &text).map_err(|error| error.to_string())
}

fn planned(settings: Settings) -> Result<Plan, String> {
    let plan = settings.plan(&"0-3".parse().unwrap());
    plan.map_err(|error| error.to_string())
}

#[test]
fn settings_lead_to_tables_and_are_written_again() {
    let plan = planned(settings(WEB).unwrap()).unwrap();
    let web = &plan.load_balancers[0];
    assert_eq!(web.table().connections_max, 1000);
    assert_eq!(web.table().endpoint.to_string(), "198.51.100.1:80");
    let states: Vec<(u32, BackendState)> = web
        .backends()
        .iter()
        .map(|one| (one.weight, one.state))
        .collect();
    assert_eq!(states, [(1, BackendState::Up), (3, BackendState::Draining)]);
    let written = Settings::parse(Path::new("written.toml"), &plan.to_toml().unwrap()).unwrap();
    assert_eq!(
        planned(written).unwrap().load_balancers,
        plan.load_balancers
    );
}

#[test]
fn invalid_load_balancers_are_refused() {
    for (text, printed) in [
        (WEB.replace("port = 80\n", "port = 0\n"), "a port from 1"),
        (WEB.replace("198.51.100.1", "224.0.0.1"), "unicast"),
        (WEB.replace("10.0.0.6", "10.0.0.5"), "listed twice"),
        (
            WEB.replace("weight = 3", "weight = 0"),
            "allowed: 1 to 1000",
        ),
        (WEB.replace("= 1000", "= 0"), "max-connections 0"),
        (WEB.replace("draining", "gone"), "gone"),
        (
            WEB.replace("10.0.0.5:8080", "198.51.100.1:80"),
            "endpoint of a server",
        ),
        (format!("{WEB}{WEB}"), "has this name"),
        (
            format!("{WEB}{}", WEB.replace("web", "other")),
            "'web' has this virtual endpoint too",
        ),
    ] {
        let error = settings(&text).and_then(planned).unwrap_err();
        assert!(error.contains(printed), "{error}");
    }
    let direct = WEB.replace("port = 80\n", "port = 80\ndirect-return = true\n");
    let error = settings(&direct).and_then(planned).unwrap_err();
    assert!(
        error.contains("packets keep their port (use port 80)"),
        "{error}"
    );
    let direct = direct.replace(":8080", ":80");
    let plan = settings(&direct).and_then(planned).unwrap();
    assert!(plan.load_balancers[0].table().is_direct);
    assert!(plan.to_toml().unwrap().contains("direct-return = true"));
    let tracked = format!("{direct}[connections]\n");
    let error = settings(&tracked).and_then(planned).unwrap_err();
    assert!(error.contains("does not see the answers"), "{error}");
    let several = Settings {
        forwarding_cpus: Some("1-2".parse().unwrap()),
        ..settings(WEB).unwrap()
    };
    // Each thread has its share of connections.
    let plan = planned(several).unwrap();
    let share = Share::new(1, 3).unwrap();
    let table = plan.load_balancers[0].with_share(share).table();
    assert_eq!(table.connections_max, 334);
}

#[test]
fn both_ip_versions_have_load_balancers_and_none_has_both() {
    let of_ipv6 = WEB
        .replace("web", "web6")
        .replace("198.51.100.1", "2001:db8::80")
        .replace("10.0.0.5:8080", "[2001:db8:1::5]:8080")
        .replace("10.0.0.6:8080", "[2001:db8:1::6]:8080");
    let plan = planned(settings(&format!("{WEB}{of_ipv6}")).unwrap()).unwrap();
    let table = plan.load_balancers[1].table();
    assert_eq!(table.endpoint.to_string(), "[2001:db8::80]:80");
    let written = Settings::parse(Path::new("written.toml"), &plan.to_toml().unwrap()).unwrap();
    assert_eq!(
        planned(written).unwrap().load_balancers,
        plan.load_balancers
    );
    for (former, new, printed) in [
        (
            "2001:db8::80",
            "198.51.100.1",
            "packets keep their IP version (use the version of 198.51.100.1)",
        ),
        (
            "[2001:db8:1::5]:8080",
            "10.0.0.5:8080",
            "packets keep their IP version",
        ),
        (
            "2001:db8::80",
            "ff02::1",
            "[ff02::1]:80 is not a unicast address",
        ),
        ("2001:db8::80", "fe80::1", "unicast"),
        ("2001:db8::80", "::", "unicast"),
        ("[2001:db8:1::5]", "[fe80::5]", "endpoint of a server"),
        (
            "[2001:db8:1::5]",
            "[2001:db8:1::5%3]",
            "endpoint of a server",
        ),
        ("[2001:db8:1::5]", "[2001:db8:1::6]", "listed twice"),
    ] {
        let error = settings(&of_ipv6.replace(former, new))
            .and_then(planned)
            .unwrap_err();
        assert!(error.contains(printed), "{error}");
    }
}

#[test]
fn changes_add_drain_and_remove_backends() {
    let after = |settings: Settings, change: &str| {
        let change: Change = serde_json::from_str(change).unwrap();
        settings.after(change).map_err(|error| error.to_string())
    };
    let mut now = settings("").unwrap();
    for change in [
        r#"{"add-load-balancer":{"name":"web","address":"198.51.100.1","port":80}}"#,
        r#"{"add-backend":{"load_balancer":"web","backend":{"to":"10.0.0.5:80"}}}"#,
        r#"{"set-backend":{"load_balancer":"web","backend":{"to":"10.0.0.5:80","weight":7}}}"#,
        r#"{"set-backend":{"load_balancer":"web","backend":{"to":"10.0.0.5:80","state":"down"}}}"#,
    ] {
        now = after(now, change).unwrap();
    }
    let plan = planned(now.clone()).unwrap();
    let backend = plan.load_balancers[0].backends()[0];
    assert_eq!((backend.weight, backend.state), (7, BackendState::Down));
    let absent = r#"{"del-backend":{"load_balancer":"web","to":"10.0.0.9:80"}}"#;
    let error = after(now.clone(), absent).unwrap_err();
    assert!(error.contains("no such backend: 10.0.0.9:80"), "{error}");
    let now = after(
        now,
        r#"{"del-backend":{"load_balancer":"web","to":"10.0.0.5:80"}}"#,
    )
    .unwrap();
    let now = after(now, r#"{"del-load-balancer":{"name":"web"}}"#).unwrap();
    assert!(planned(now).unwrap().load_balancers.is_empty());
}
