// SPDX-License-Identifier: Apache-2.0
//! Tests the rules that docs/firewall.md shows.

use std::path::Path;

use super::{Action, ReceivedPacket, RuleFile};

/// Returns the indented TOML examples of the guide.
fn examples() -> Vec<String> {
    let guide = include_str!("../../../../../docs/firewall.md");
    let mut examples = vec![String::new()];
    for line in guide.lines() {
        match line.strip_prefix("    ") {
            Some(code) if !code.starts_with("quietwire ") => {
                if let Some(example) = examples.last_mut() {
                    *example += code;
                    *example += "\n";
                }
            }
            _ if line.is_empty() => {}
            _ => examples.push(String::new()),
        }
    }
    examples.retain(|example| example.contains("[[rule]]"));
    examples
}

#[test]
fn rules_of_the_guide_decide_as_documented() {
    let examples = examples();
    let [guest, management, continued, names, inspected] = &examples[..] else {
        panic!("{examples:?}");
    };
    for (example, port, packet, expected) in [
        (
            guest,
            "uplink",
            r#""ethertype":"arp""#,
            (Some("arp"), Action::Accept),
        ),
        (
            guest,
            "uplink",
            r#""protocol":"tcp","source-port":9,"destination-port":443,"tcp-flags":"syn""#,
            (Some("https"), Action::Accept),
        ),
        (
            guest,
            "uplink",
            r#""protocol":"tcp","source-port":9,"destination-port":22,"tcp-flags":"syn""#,
            (Some("no-new-connections"), Action::Drop),
        ),
        (
            guest,
            "uplink",
            r#""protocol":"tcp","source-port":80,"destination-port":5000,"tcp-flags":"syn,ack""#,
            (Some("replies"), Action::Accept),
        ),
        (
            guest,
            "uplink",
            r#""protocol":"udp","source-port":53,"destination-port":5000"#,
            (Some("names"), Action::Accept),
        ),
        (
            guest,
            "uplink",
            r#""protocol":"udp","source-port":54,"destination-port":5000"#,
            (None, Action::Drop),
        ),
        (
            guest,
            "vm",
            r#""protocol":"udp","source-port":54,"destination-port":5000"#,
            (Some("guest"), Action::Accept),
        ),
        (
            management,
            "x",
            r#""protocol":"tcp","source-port":9,"destination-port":22"#,
            (Some("management"), Action::Accept),
        ),
        (
            management,
            "x",
            r#""protocol":"udp","source-port":9,"destination-port":22"#,
            (None, Action::Accept),
        ),
        (
            continued,
            "vm",
            r#""protocol":"udp","source-port":9,"destination-port":5060"#,
            (Some("guest"), Action::Accept),
        ),
        (
            names,
            "vm",
            r#""protocol":"tcp","source-port":9,"destination-port":443,"tcp-flags":"syn""#,
            (Some("our-names"), Action::Accept),
        ),
        (
            names,
            "vm",
            r#""protocol":"tcp","source-port":9,"destination-port":443,"tls-name":"www.example.org""#,
            (Some("our-names"), Action::Accept),
        ),
        (
            names,
            "vm",
            r#""protocol":"tcp","source-port":9,"destination-port":443,"tls-name":"example.net""#,
            (Some("no-other-tls"), Action::Drop),
        ),
        (
            names,
            "vm",
            r#""protocol":"udp","source-port":9,"destination-port":53,"dns-name":"www.ads.example""#,
            (Some("no-ads"), Action::Drop),
        ),
        (
            names,
            "vm",
            r#""protocol":"udp","source-port":9,"destination-port":53,"dns-name":"example.org""#,
            (None, Action::Accept),
        ),
        (
            inspected,
            "vm",
            r#""protocol":"tcp","source-port":9,"destination-port":443"#,
            (Some("to-the-web"), Action::Accept),
        ),
        (
            inspected,
            "uplink",
            r#""protocol":"tcp","source-port":443,"destination-port":9"#,
            (Some("from-the-web"), Action::Accept),
        ),
    ] {
        let addresses = r#""source":"192.0.2.53","destination":"10.0.0.5","#;
        let addresses = if packet.contains("arp") {
            ""
        } else {
            addresses
        };
        let json = format!(r#"{{"port":"{port}","packet":{{{addresses}{packet}}}}}"#);
        let received: ReceivedPacket = serde_json::from_str(&json).unwrap();
        let settings = RuleFile::parse(Path::new("guide.toml"), example).unwrap();
        let found = settings.settings().check_rules(&received).unwrap();
        assert_eq!((found.rule.as_deref(), found.action), expected, "{json}");
    }
}
