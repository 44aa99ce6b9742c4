// SPDX-License-Identifier: Apache-2.0
//! Changes of a running switch while its rings are full in both directions: every frame is received, in a counter of the
//! switch, or refused at a full ring.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use quietwire_base::testing::KillOnDrop;
use quietwire_switch::control::{Request, ask};
use serde_json::{Value, json};

use crate::account::{generate, places};
use crate::bench::{Bench, Neighbour, forwarding_cpu, until};

/// The only reasons for which frames may be lost.
const REASONS: [&str; 3] = ["receive_ring_full", "tx_full", "denied"];
/// Time limit for the changes.
const DEADLINE: Duration = Duration::from_secs(60);
/// Minimum number of rounds of all changes during a load.
const ROUNDS_MIN: u32 = 3;

/// Makes changes in turn until the load ends; returns the number of rounds of all of them.
fn change_under(load: &mut Child, bench: &Bench, changes: &[Value]) -> u32 {
    let control = bench.path("control.sock");
    let began = Instant::now();
    let mut rounds = 0;
    loop {
        for change in changes {
            let request: Request = serde_json::from_value(change.clone()).unwrap();
            let answer = ask::<Value>(&control, &request);
            assert!(answer.is_ok(), "{change}: {answer:?}");
        }
        rounds += 1;
        if load.try_wait().unwrap().is_some() {
            return rounds;
        }
        assert!(began.elapsed() < DEADLINE, "the load does not end");
    }
}

/// Sends as much as the tester can, both ways, while a neighbour uses a part of the switch's CPU. Returns the result of the
/// trial, which is repeated for longer on a machine that takes longer for the changes.
fn overload(bench: &Bench, changes: &[Value]) -> Value {
    let mut observed = Vec::new();
    for duration in ["2s", "8s", "20s"] {
        let (rounds, result) = overload_for(duration, bench, changes);
        if rounds >= ROUNDS_MIN {
            return result;
        }
        observed.push((duration, rounds));
    }
    panic!("less than {ROUNDS_MIN} rounds of changes: {observed:?}");
}

/// Does the same for this time. Returns the number of rounds of changes too.
fn overload_for(duration: &str, bench: &Bench, changes: &[Value]) -> (u32, Value) {
    let _neighbour = Neighbour::on(forwarding_cpu());
    let trial = ["--rate", "max", "--duration", duration, "--warm-up", "0s"];
    let more = ["--flows", "8", "--drain", "1s", "--cpus", "0", "--json"];
    let mut command = generate(bench, &[&trial[..], &more].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut load = KillOnDrop(command.spawn().unwrap());
    // Large results do not fit the pipe.
    let mut stdout = load.0.stdout.take().unwrap();
    let read = std::thread::spawn(move || std::io::read_to_string(&mut stdout).unwrap());
    until("frames flow", || {
        assert!(load.0.try_wait().unwrap().is_none(), "the tester ended");
        let ports: Vec<Value> = bench.show("ports");
        let flows = |port: &Value| port["rx_frames"].as_u64() > Some(0);
        ports[..2].iter().all(flows).then_some(())
    });
    let rounds = change_under(&mut load.0, bench, changes);
    let code = load.0.wait().unwrap().code();
    // A tester that was stalled reports it, but its counts are valid.
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    let result = serde_json::from_str(&read.join().unwrap()).unwrap();
    (rounds, result)
}

/// Checks that offered frames are received or at a place, and that none is duplicated or misdirected.
fn assert_accounted(result: &Value) {
    let count = |value: &Value| value.as_u64().unwrap();
    let places = places(result);
    let lost: u64 = places.iter().map(|(.., frames)| frames).sum();
    assert_eq!(
        count(&result["offered_frames"]),
        count(&result["received_frames"]) + lost
    );
    for key in ["duplicate_frames", "damaged_frames", "stale_frames"] {
        assert_eq!(result[key], 0, "{key}");
    }
    let mut refused = Vec::new();
    for port in result["ports"].as_array().unwrap() {
        assert_eq!(port["misdirected_frames"], 0, "{port}");
        assert_eq!(port["foreign_frames"], 0, "{port}");
        refused.push(count(&port["refused_frames"]));
    }
    assert!(refused.iter().all(|frames| *frames > 0), "{refused:?}");
    let health = &result["health"];
    assert_eq!(health["phantom_frames"], 0, "{health}");
    assert_eq!(health["receive_drops"], 0, "{health}");
    for (port, reason, frames) in places {
        assert!(
            REASONS.contains(&reason.as_str()),
            "{port} {reason} {frames}"
        );
        if reason == "receive_ring_full" {
            let index = usize::from(port == "b");
            assert_eq!(refused[index], frames, "{port}");
        }
    }
}

fn rule(name: &str, port: &str, source_port: &str) -> Value {
    json!({ "name": name, "action": "drop", "port": port, "protocol": "udp", "source-port": source_port })
}

#[test]
fn ports_bridges_rules_and_routes_change_at_full_rings() {
    let bench = Bench::alone(&["a", "b"], &["--bridge", "lan=a,b"]);
    // No peer is connected to these.
    let memif = |name: &str| {
        let socket = bench.path(name).with_extension("sock");
        format!("memif:{}?role=server", socket.display())
    };
    let routes: Vec<Value> = (0..50)
        .map(|network| json!({ "prefix": format!("10.1.{network}.0/24"), "via": [{ "address": "10.0.0.2" }] }))
        .collect();
    let prefixes: Vec<Value> = routes.iter().map(|route| route["prefix"].clone()).collect();
    let change = |change: Value| json!({ "change": change });
    let changes = [
        // Independent of the load.
        change(json!({ "add-port": { "name": "x", "uri": memif("x") } })),
        change(json!({ "add-port": { "name": "m", "uri": memif("m") } })),
        change(json!({ "add-bridge": { "name": "other", "ports": ["m"] } })),
        change(json!({ "set-bridge": { "name": "other", "add_ports": ["x"] } })),
        change(json!({ "set-bridge": { "name": "other", "del_ports": ["x"] } })),
        // In the bridge of the load: its tables are rebuilt.
        change(json!({ "set-bridge": { "name": "lan", "add_ports": ["x"] } })),
        change(json!({ "set-bridge": { "name": "lan", "ageing_s": 200 } })),
        change(json!({ "set-bridge": { "name": "lan", "del_ports": ["x"], "ageing_s": 300 } })),
        // Rules are added and removed, one by one and all at once.
        change(json!({ "add-rule": { "rule": rule("first", "a", "1024") } })),
        change(json!({ "set-rule": rule("first", "b", "1025") })),
        change(
            json!({ "set-rules": { "rules": [rule("second", "a", "1026"), rule("third", "b", "1026-1027")] } }),
        ),
        change(json!({ "del-rule": { "name": "second" } })),
        change(json!({ "set-rules": { "rules": [] } })),
        // A router in addition to the load.
        change(
            json!({ "add-interface": { "name": "r", "port": "x", "addresses": ["10.0.0.1/24"] } }),
        ),
        json!({ "add-routes": routes }),
        json!({ "del-routes": { "vrf": null, "prefixes": prefixes } }),
        change(json!({ "del-interface": { "name": "r" } })),
        change(json!({ "del-bridge": { "name": "other" } })),
        change(json!({ "del-port": { "name": "m" } })),
        change(json!({ "del-port": { "name": "x" } })),
    ];
    let before: String = bench.show("config");
    let result = overload(&bench, &changes);
    assert_accounted(&result);
    let denied = places(&result)
        .into_iter()
        .filter(|(_, reason, _)| reason == "denied");
    let ports: Vec<String> = denied.map(|(port, ..)| port).collect();
    assert!(
        ports.contains(&"a".to_owned()) && ports.contains(&"b".to_owned()),
        "{ports:?}"
    );
    let after: String = bench.show("config");
    assert_eq!(
        after.replace("ageing-s = 300\n", ""),
        before.replace("ageing-s = 300\n", "")
    );
}

#[test]
fn threads_and_queues_change_at_full_rings() {
    let arguments = [
        "--cross-connect",
        "a,b",
        "--forwarding-cpus",
        "0,1",
        "--pinning",
        "none",
    ];
    let bench = Bench::alone(&["a", "b"], &arguments);
    let to =
        |port: &str, cpu: u32| json!({ "move-queue": { "port": port, "queue": 0, "cpu": cpu } });
    let on = |cpus: &str| json!({ "change": { "set-threads": { "forwarding_cpus": cpus } } });
    let changes = [
        to("a", 0),
        to("b", 1),
        to("a", 1),
        to("b", 0),
        on("1"),
        on("0-1"),
        on("0"),
        on("0-1"),
    ];
    let result = overload(&bench, &changes);
    assert_accounted(&result);
}
