// SPDX-License-Identifier: Apache-2.0
//! Conversations over a real memif link between the client's and the server's port of a tester.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_tester::connections::Connections;
use quietwire_tester::{
    FrameAccess, Limits, Preparation, RECEIVE_RING_SIZE, Tester, TesterError, TesterIdle,
    TesterOptions,
};

fn tester(eal: &Eal, directory: &Path, ports: usize) -> Tester {
    let socket = directory.join("loop.sock");
    let port = |name: &str, role: &str| {
        let uri: PortUri = format!("memif:{}?role={role}", socket.display())
            .parse()
            .unwrap();
        (name.to_owned(), uri)
    };
    let options = TesterOptions {
        cpus: vec![0],
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 1518,
        limits: Limits::default(),
        preparation: Preparation::default(),
        // The host may be busy: others need the CPU, too.
        idle: TesterIdle::Sleep,
        frame_access: FrameAccess::default(),
    };
    let ports = &[port("a", "server"), port("b", "client")][..ports];
    Tester::open(eal, "connections", ports, options).unwrap()
}

const TCP: &str = "
[connections]
rate = 2000.0
[connections.client]
count = 50
[connections.server]
count = 5
[[connections.mix]]
name = \"web\"
share = 3.0
port = 80
request = 100
answer = [1, 10000]
transactions = 2
[[connections.mix]]
name = \"dns\"
protocol = \"udp\"
port = 53
request = 60
answer = 200
";

/// One large answer, so that windows and acknowledgements matter.
const LARGE: &str = "
[connections]
concurrent = 1
[[connections.mix]]
name = \"large\"
port = 80
request = 100
answer = 10000000
transactions = 1
";

fn description(text: &str) -> Connections {
    Connections::parse(text, Path::new("c.toml")).unwrap()
}

/// DPDK starts once in a process, so one test does all.
#[test]
fn conversations_over_a_link_are_complete() {
    let options = EalOptions {
        control_cpus: vec![0],
        memory_mib: 64,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-connections-{}", std::process::id()),
    };
    let eal = Eal::start(&options).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut tester = tester(&eal, directory.path(), 2);
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));

    let result = tester
        .run_connections(&description(TCP), second, minute)
        .unwrap();
    let (client, server) = (
        result.client.clone().unwrap(),
        result.server.clone().unwrap(),
    );
    assert!(client.opened > 0, "{result:?}");
    assert_eq!(client.completed, client.opened, "{result:?}");
    assert!(
        client.failed.is_empty() && server.failed.is_empty(),
        "{result:?}"
    );
    assert_eq!(client.established, client.mix[0].opened);
    assert_eq!(
        client.transactions,
        2 * client.mix[0].opened + client.mix[1].opened
    );
    assert_eq!(server.accepted, client.established);
    assert_eq!(server.datagrams, client.mix[1].opened);
    assert_eq!(
        (server.translations.unchanged, server.translations.changed),
        (client.opened, 0)
    );
    assert_eq!(client.tcp.damaged_frames + server.tcp.damaged_frames, 0);

    let result = tester
        .run_connections(&description(LARGE), Duration::from_millis(1), minute)
        .unwrap();
    let client = result.client.unwrap();
    assert_eq!(client.completed, client.opened, "{client:?}");
    assert_eq!(client.received_octets, 10_000_000 * client.opened);

    // Without a rate, or with the wrong number of ports, nothing begins.
    for (text, reason) in [
        ("[connections]\n", "neither a rate nor a number"),
        (
            "[connections]\nrate = 1.0\nrole = \"client\"\n",
            "require 1 ports, and 2",
        ),
        (
            "[connections]\nrate = 1.0\nmss = 8000\n",
            "use a smaller mss",
        ),
    ] {
        let error = tester.run_connections(&description(text), second, second);
        let error = error.unwrap_err();
        assert!(matches!(error, TesterError::BadTrial(_)));
        assert!(error.to_string().contains(reason), "{error}");
    }
}
