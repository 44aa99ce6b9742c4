// SPDX-License-Identifier: Apache-2.0
//! Tests of the real `quietwire switch run` with memif server ports and frames from this process. Requires root, as the
//! switch does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "switch_memif/account.rs"]
mod account;
#[path = "switch_memif/bench.rs"]
mod bench;
#[path = "switch_memif/changes.rs"]
mod changes;
#[path = "switch_memif/connections.rs"]
mod connections;
#[path = "switch_memif/ct_state.rs"]
mod ct_state;
#[path = "switch_memif/effects.rs"]
mod effects;
#[path = "switch_memif/faults.rs"]
mod faults;
#[path = "switch_memif/fragments.rs"]
mod fragments;
#[path = "switch_memif/gateways.rs"]
mod gateways;
#[path = "switch_memif/inspect.rs"]
mod inspect;
#[path = "switch_memif/interrupts.rs"]
mod interrupts;
#[path = "switch_memif/ipv6_nat_requirements.rs"]
mod ipv6_nat_requirements;
#[path = "switch_memif/kernel_states.rs"]
mod kernel_states;
#[path = "switch_memif/load.rs"]
mod load;
#[path = "switch_memif/load_balancer.rs"]
mod load_balancer;
#[path = "switch_memif/malformed.rs"]
mod malformed;
#[path = "switch_memif/many_ports.rs"]
mod many_ports;
#[path = "switch_memif/metrics.rs"]
mod metrics;
#[path = "switch_memif/names.rs"]
mod names;
#[path = "switch_memif/nat.rs"]
mod nat;
#[path = "switch_memif/nat64.rs"]
mod nat64;
#[path = "switch_memif/nat66.rs"]
mod nat66;
#[path = "switch_memif/nat_log.rs"]
mod nat_log;
#[path = "switch_memif/nat_requirements.rs"]
mod nat_requirements;
#[path = "switch_memif/prefixes.rs"]
mod prefixes;
#[path = "switch_memif/requirements.rs"]
mod requirements;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod rig;
#[path = "switch_memif/router.rs"]
mod router;
#[path = "switch_memif/rules.rs"]
mod rules;
#[path = "switch_memif/standby.rs"]
mod standby;
#[path = "switch_memif/vlans.rs"]
mod vlans;
#[path = "switch_memif/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use bench::{Bench, Neighbour, Peer, forwarding_cpu, frame, output, quietwire, until};
use quietwire_switch::report::{FdbReport, PortDrop, PortReport, Role, StatsReport, ThreadReport};

/// Returns frames of different lengths and contents, the shortest only an Ethernet header.
fn assorted_frames(count: usize, seed: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| {
            let length = 14 + (n * 131 + seed) % 1500;
            (0..length)
                .map(|at| (at * 7 + n * 13 + seed) as u8)
                .collect()
        })
        .collect()
}

#[test]
fn a_cross_connect_carries_every_octet_both_ways() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let (there, back) = (assorted_frames(300, 1), assorted_frames(300, 2));
    a.send(&there);
    b.send(&back);
    assert_eq!(b.receive(there.len()), there);
    assert_eq!(a.receive(back.len()), back);
    let ports: Vec<PortReport> = bench.show("ports");
    let octets = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    for (port, sent, received) in [(&ports[0], &back, &there), (&ports[1], &there, &back)] {
        let counts = &port.counts;
        assert_eq!((counts.rx_frames, counts.tx_frames), (300, 300));
        assert_eq!(
            (counts.rx_octets, counts.tx_octets),
            (octets(received), octets(sent))
        );
        assert_eq!(counts.drops.sum(), 0);
        assert!(port.link_up && port.group == "cross-connect");
    }
}

#[test]
fn damaged_frames_are_counted_and_the_others_go_on() {
    for arguments in [["--cross-connect", "a,b"], ["--bridge", "lan=a,b"]] {
        let bench = Bench::start(&["a", "b"], &arguments);
        let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
        let sound = assorted_frames(40, 3);
        let mut mixed = Vec::new();
        for (n, frame) in sound.iter().enumerate() {
            mixed.push(vec![0x5a; 1 + n % 13]);
            mixed.push(frame.clone());
        }
        a.send(&mixed);
        assert_eq!(b.receive(sound.len()), sound, "{arguments:?}");
        let ports: Vec<PortReport> = bench.show("ports");
        assert_eq!(ports[0].counts.drops[PortDrop::Short], 40);
        assert_eq!(ports[0].counts.rx_frames, 80);
        assert_eq!(ports[1].counts.tx_frames, 40);
    }
}

const BROADCAST: [u8; 6] = [0xff; 6];

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

/// Returns the frames that have arrived at each of some peers, once a last frame from each of two others has arrived.
fn arrived(peers: &mut [Peer], expected: [usize; 3]) -> Vec<Vec<Vec<u8>>> {
    peers
        .iter_mut()
        .zip(expected)
        .map(|(peer, count)| peer.receive(count))
        .collect()
}

#[test]
fn a_bridge_learns_floods_and_filters() {
    let bench = Bench::start(
        &["a", "b", "c"],
        &["--bridge", "lan=a,b,c", "--idle", "yield"],
    );
    let mut peers = ["a", "b", "c"].map(|name| bench.peer(name));

    // No address is known: flooded to all others.
    let first = frame(mac(2), mac(1), 1);
    peers[0].send(std::slice::from_ref(&first));
    assert_eq!(
        arrived(&mut peers, [0, 1, 1]),
        [vec![], vec![first.clone()], vec![first.clone()]]
    );
    // The answer is sent to the requester; a broadcast to all others.
    let (answer, call) = (frame(mac(1), mac(2), 2), frame(BROADCAST, mac(2), 3));
    peers[1].send(&[answer.clone(), call.clone()]);
    assert_eq!(
        arrived(&mut peers, [2, 0, 1]),
        [vec![answer, call.clone()], vec![], vec![call]]
    );
    // Both are known now. Reserved addresses, frames to the port that they arrived on and frames that are too short are not
    // forwarded.
    let sent: Vec<_> = (0..100).map(|n| frame(mac(2), mac(1), n)).collect();
    let kept: Vec<_> = (0..16)
        .map(|n| frame([0x01, 0x80, 0xc2, 0, 0, n], mac(1), n))
        .collect();
    let own = frame(mac(1), mac(1), 9);
    peers[0].send(&kept);
    peers[0].send(&[own, vec![1; 13]]);
    peers[0].send(&sent);
    assert_eq!(arrived(&mut peers, [0, 100, 0])[1], sent);
    // An address that appears at another port is moved there.
    let moved = frame(mac(2), mac(1), 5);
    peers[2].send(std::slice::from_ref(&moved));
    assert_eq!(peers[1].receive(1), [moved]);
    let last = frame(mac(1), mac(2), 6);
    peers[1].send(std::slice::from_ref(&last));
    assert_eq!(peers[2].receive(1), [last]);
    for peer in &mut peers {
        assert_eq!(peer.receive_now(), Vec::<Vec<u8>>::new());
    }

    let stats: StatsReport = bench.show("stats");
    let drops = &stats.ports[0].drops;
    assert_eq!(
        (
            drops[PortDrop::ReservedAddress],
            drops[PortDrop::Filtered],
            drops[PortDrop::Short],
            drops.sum()
        ),
        (16, 1, 1, 18)
    );
    let lan = &stats.bridges[0];
    assert_eq!(
        (lan.learned, lan.moved, lan.entries, lan.flooded),
        (2, 1, 2, 2)
    );
    assert_eq!(lan.max_entries, 65_536);
    let fdb: Vec<FdbReport> = bench.show("fdb");
    let known: BTreeMap<String, String> = fdb
        .into_iter()
        .map(|entry| (entry.mac.to_string(), entry.port))
        .collect();
    let expected = [("02:00:00:00:00:01", "c"), ("02:00:00:00:00:02", "b")];
    assert_eq!(
        known,
        expected.map(|(m, p)| (m.to_owned(), p.to_owned())).into()
    );
    let table = output(&mut bench.show_command("fdb"));
    assert!(
        table.contains("02:00:00:00:00:01") && table.contains("lan"),
        "{table}"
    );
}

#[test]
fn a_full_bridge_continues_to_flood_and_ages_addresses() {
    let arguments = [
        "--bridge",
        "lan=a,b,c",
        "--max-entries",
        "4",
        "--ageing-s",
        "1",
    ];
    let bench = Bench::start(&["a", "b", "c"], &arguments);
    let mut peers = ["a", "b", "c"].map(|name| bench.peer(name));
    let many: Vec<_> = (0..50).map(|n| frame(mac(200), mac(n), n)).collect();
    peers[0].send(&many);
    assert_eq!(arrived(&mut peers, [0, 50, 50])[1..], [many.clone(), many]);
    let stats: StatsReport = bench.show("stats");
    let lan = &stats.bridges[0];
    assert_eq!((lan.learned, lan.not_learned), (4, 46));
    let aged = until("addresses age", || {
        let stats: StatsReport = bench.show("stats");
        Some(stats.bridges[0].clone()).filter(|lan| lan.entries == 0)
    });
    assert_eq!(aged.aged, 4);
    assert_eq!(bench.show::<Vec<FdbReport>>("fdb"), []);
}

#[test]
fn threads_keep_to_their_cpus_and_sockets_to_their_owner() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let threads: Vec<ThreadReport> = bench.show("threads");
    let with = |role| threads.iter().filter(move |thread| thread.role == role);
    let forwarding: Vec<_> = with(Role::Forwarding)
        .map(|thread| thread.cpus.to_string())
        .collect();
    assert_eq!(forwarding, [forwarding_cpu().to_string()]);
    assert_eq!(with(Role::Service).count(), 1);
    assert!(with(Role::Control).count() >= 3, "{threads:?}");
    for thread in &threads {
        let on_it = thread.cpus.iter().any(|cpu| cpu.0 == forwarding_cpu());
        assert_eq!(on_it, thread.role == Role::Forwarding, "{thread:?}");
    }
    for name in ["a.sock", "b.sock", "control.sock"] {
        let mode = fs::metadata(bench.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    for subject in ["ports", "threads", "stats"] {
        let table = output(&mut bench.show_command(subject));
        assert!(
            table.contains("qw-fwd-") || table.contains("memif:"),
            "{table}"
        );
    }
    let table = output(bench.show_command("stats").args(["--for", "20ms"]));
    assert!(
        table.contains("per second") && table.contains("empty polls"),
        "{table}"
    );
    let polls = |bench: &Bench| bench.show::<StatsReport>("stats").threads[0].polls;
    let before = polls(&bench);
    until("the thread polls", || {
        (polls(&bench) > before).then_some(())
    });
}

#[test]
fn the_end_is_clean() {
    for signal in ["TERM", "INT"] {
        let mut bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
        let mut peer = bench.peer("a");
        peer.send(&assorted_frames(64, 4));
        assert_eq!(bench.end(signal), Some(0));
        assert_eq!(bench.files(), Vec::<String>::new());
    }
}

#[test]
fn a_switch_takes_over_from_one_that_was_killed() {
    let mut bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    assert_eq!(bench.end("KILL"), None);
    assert_eq!(bench.files(), ["a.sock", "b.sock", "control.sock"]);
    bench.start_again();
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let frames = assorted_frames(10, 5);
    a.send(&frames);
    assert_eq!(b.receive(10), frames);
    assert_eq!(bench.end("TERM"), Some(0));
    assert_eq!(bench.files(), Vec::<String>::new());
}

/// Runs neighbours on the forwarding CPU, so that the forwarding thread is often interrupted within a burst when its peer's
/// memory is removed.
#[test]
fn the_switch_outlives_its_peers() {
    let bench = Bench::alone(&["a", "b"], &["--cross-connect", "a,b"]);
    let _neighbours = [(); 4].map(|()| Neighbour::on(forwarding_cpu()));
    for _ in 0..2 * faults::fault_rounds() {
        let before = bench.show::<StatsReport>("stats").ports[0].rx_frames;
        let mut generator = bench.generator();
        until("frames flow", || {
            let stats: StatsReport = bench.show("stats");
            (stats.ports[1].tx_frames > before && stats.ports[0].rx_frames > before + 10_000)
                .then_some(())
        });
        generator.kill().unwrap();
        generator.wait().unwrap();
        until("the links are down", || {
            let ports: Vec<PortReport> = bench.show("ports");
            ports.iter().all(|port| !port.link_up).then_some(())
        });
    }
    let before = bench.show::<StatsReport>("stats").ports[1].tx_frames;
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let frames = assorted_frames(100, 6);
    a.send(&frames);
    assert_eq!(b.receive(100), frames);
    // Counters of a port are not reset with a new peer.
    assert_eq!(
        bench.show::<StatsReport>("stats").ports[1].tx_frames,
        before + 100
    );
}

#[test]
fn a_switch_ends_with_its_parent() {
    let mut bench = Bench::new(
        &["a", "b"],
        &["--cross-connect", "a,b", "--exit-with-parent"],
    );
    bench.start_under_shell();
    assert_eq!(bench.end("KILL"), None);
    until("the sockets go", || bench.files().is_empty().then_some(()));
}

#[test]
fn two_switches_do_not_share_sockets() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let same_control = bench.refused(2, &[]);
    assert!(
        same_control.contains("another switch is listening"),
        "{same_control}"
    );
    let other = bench.path("other.sock");
    let same_ports = bench.refused(2, &["--control-socket", other.to_str().unwrap()]);
    assert!(
        same_ports.contains("another process listens on"),
        "{same_ports}"
    );
    assert_eq!(bench.files(), ["a.sock", "b.sock", "control.sock"]);
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports.len(), 2);
}

#[test]
fn wrong_input_is_named_and_leaves_nothing() {
    let cpu = forwarding_cpu().to_string();
    let cases: [(&[&str], &str); 8] = [
        (
            &["--cross-connect", "a,x"],
            "--cross-connect: no such port: 'x'",
        ),
        (
            &["--bridge", "lan=a,b,a"],
            "port 'a' already belongs to the bridge 'lan'",
        ),
        (
            &["--cross-connect", "a,b", "--forwarding-cpus", "8000"],
            "CPU 8000 is not online",
        ),
        (
            &["--cross-connect", "a,b", "--control-cpus", &cpu],
            "is a forwarding CPU",
        ),
        (
            &["--cross-connect", "a,b", "--rx-ring-size", "1000"],
            "1000 is not a power of two",
        ),
        (
            &["--cross-connect", "a,b", "--idle", "doze"],
            "possible values: poll, yield, sleep",
        ),
        (
            &["--cross-connect", "a,b", "--port", "c"],
            "expected NAME=URI",
        ),
        (
            &["--config", "/nowhere/switch.toml"],
            "cannot read the configuration /nowhere/switch.toml",
        ),
    ];
    for (arguments, part) in cases {
        let bench = Bench::new(&["a", "b"], &[]);
        let message = bench.refused(2, arguments);
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert_eq!(bench.files(), Vec::<String>::new(), "{arguments:?}");
    }
    // After the first port is open and the memory is allocated.
    let elsewhere = "b=memif:/nowhere/b.sock?role=server";
    let bench = Bench::new(&["a"], &["--cross-connect", "a,b", "--port", elsewhere]);
    let message = bench.refused(2, &[]);
    assert!(message.contains("create it"), "{message}");
    assert_eq!(bench.files(), Vec::<String>::new());
    let message = bench.refused(3, &["--memory-mib", "8"]);
    assert!(message.contains("--memory-mib"), "{message}");
    assert_eq!(bench.files(), Vec::<String>::new());
}

#[test]
fn a_configuration_file_and_the_command_line_give_the_same_switch() {
    let bench = Bench::new(&["a", "b"], &[]);
    let file = bench.path("switch.toml");
    let text = "[[bridge]]\nname = \"lan\"\nports = [\"a\", \"b\"]\ncolour = \"red\"\n";
    fs::write(&file, text).unwrap();
    let message = bench.refused(2, &["--config", file.to_str().unwrap()]);
    assert!(
        message.contains("switch.toml, line 4, key 'colour'"),
        "{message}"
    );
    fs::write(&file, text.replace("colour = \"red\"", "ageing-s = 7")).unwrap();
    let mut bench = bench.with(&["--config", file.to_str().unwrap()]);
    bench.start_again();
    let ports: Vec<PortReport> = bench.show("ports");
    assert!(ports.iter().all(|port| port.group == "lan"));
}

#[test]
fn commands_without_a_running_switch_report_it() {
    let mut command: Command = quietwire();
    let asked = command.args([
        "switch",
        "show",
        "ports",
        "--control-socket",
        "/nowhere/s.sock",
    ]);
    let output = asked.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("no switch is listening"), "{message}");
}
