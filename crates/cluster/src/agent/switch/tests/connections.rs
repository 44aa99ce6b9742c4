// SPDX-License-Identifier: Apache-2.0
//! Connection tracking of a `DataPlane`.

use quietwire_switch::config::connections::ConnectionsSetting;

use super::*;

pub(super) fn tracking(max_entries: u32) -> ConnectionTracking {
    ConnectionTracking {
        max_entries: Some(max_entries),
        ..ConnectionTracking::default()
    }
}

#[test]
fn connections_are_tracked_before_rules_are_set_and_until_they_are_removed() {
    let mut switch = FakeSwitch::default();
    // Without a port, rules are set again in each pass.
    let start = |switch: &FakeSwitch, start: &str| {
        switch.start_again(start);
        switch.names.borrow_mut().ports.insert("p".to_owned());
    };
    start(&switch, "1");
    let mut made = OwnObjects::default();
    let rules = "[[rule]]\nname = \"x\"\naction = \"drop\"\nct-state = \"new\"\n";
    let mut wanted = DataPlaneSpec {
        connections: Some(tracking(100)),
        rules: Some(rules.to_owned()),
        ..DataPlaneSpec::default()
    };
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["connections 100", "rules 1"]);
    let text = serde_json::to_string(&made).unwrap();
    assert_eq!(serde_json::from_str::<OwnObjects>(&text).unwrap(), made);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
    // The message about what requires a restart is that of the switch, until the next start.
    switch.rejects = Some("connections 200");
    wanted.connections = Some(tracking(200));
    for _ in 0..2 {
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        assert_eq!(rejected[0].object, "connections");
        assert_eq!(rejected[0].message, "connections 200: no");
        assert_eq!(changes(&switch), [""; 0]);
    }
    switch.rejects = None;
    start(&switch, "2");
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["connections 200", "rules 1"]);
    wanted.connections = Some(ConnectionTracking {
        enabled: Some(false),
        ..tracking(200)
    });
    wanted.rules = None;
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["rules 0", "-connections"]);
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn connection_tracking_of_the_file_of_the_switch_stays() {
    let switch = FakeSwitch::default();
    let of_file = |start: &str, max_entries: u32| {
        switch.start_again(start);
        let setting = settings::connections(&tracking(max_entries)).unwrap();
        let setting = serde_json::to_value(setting).unwrap();
        switch.names.borrow_mut().connections = Some(setting);
    };
    of_file("1", 100);
    let mut made = OwnObjects::default();
    let mut wanted = DataPlaneSpec {
        connections: Some(tracking(100)),
        ..DataPlaneSpec::default()
    };
    // It is as the resource requests.
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    for other in [
        tracking(200),
        ConnectionTracking {
            enabled: Some(false),
            ..tracking(100)
        },
    ] {
        wanted.connections = Some(other);
        let rejected = bring(&switch, &wanted, &mut made).unwrap();
        assert!(rejected[0].message.contains("no DataPlane"), "{rejected:?}");
    }
    wanted.connections = None;
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
    assert!(made.is_empty(), "{made:?}");
    // That of the agent does not become that of a file with the next start.
    switch.start_again("2");
    wanted.connections = Some(tracking(100));
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), ["connections 100"]);
    of_file("3", 300);
    wanted.connections = None;
    assert_eq!(bring(&switch, &wanted, &mut made), Ok(Vec::new()));
    assert_eq!(changes(&switch), [""; 0]);
}

#[test]
fn settings_of_connections_are_those_of_the_configuration_file() {
    let tracking: ConnectionTracking = serde_json::from_value(json!({
        "enabled": true, "maxEntries": 1000, "maxPerSource": 100, "maxHalfOpen": 200, "maxHalfOpenPerSource": 50,
        "newShare": 30, "labels": true, "helpers": ["ftp", "tftp"],
        "timeouts": {
            "tcpSynSent": 1, "tcpSynSent2": 2, "tcpSynRecv": 3, "tcpEstablished": 4, "tcpFinWait": 5, "tcpCloseWait": 6,
            "tcpLastAck": 7, "tcpTimeWait": 8, "tcpClose": 9, "udpUnreplied": 10, "udpReplied": 11, "icmpUnreplied": 12,
            "icmpReplied": 13, "otherUnreplied": 14, "otherReplied": 15,
        },
        "zones": [{ "name": "red", "ports": ["p"], "maxEntries": 10 }],
    }))
    .unwrap();
    let text = r#"
[connections]
max-entries = 1000
max-per-source = 100
max-half-open = 200
max-half-open-per-source = 50
new-share = 30
labels = true
helpers = ["ftp", "tftp"]
[connections.timeouts]
tcp-syn-sent = 1
tcp-syn-sent2 = 2
tcp-syn-recv = 3
tcp-established = 4
tcp-fin-wait = 5
tcp-close-wait = 6
tcp-last-ack = 7
tcp-time-wait = 8
tcp-close = 9
udp-unreplied = 10
udp-replied = 11
icmp-unreplied = 12
icmp-replied = 13
other-unreplied = 14
other-replied = 15
[[connections.zone]]
name = "red"
ports = ["p"]
max-entries = 10
"#;
    let file = Settings::parse(Path::new("switch.toml"), text).unwrap();
    let connections = settings::connections(&tracking).unwrap();
    assert_eq!(connections, file.connections.unwrap());
    let empty = settings::connections(&ConnectionTracking::default());
    assert_eq!(empty, Ok(ConnectionsSetting::default()));
}
