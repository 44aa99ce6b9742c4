// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads that sleep until a receive interrupt.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use quietwire_switch::report::{PortReport, Role, ThreadReport};

use crate::bench::{Bench, frame, output, quietwire, until};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn start(ports: &[&str], arguments: &[&str]) -> Bench {
    let arguments = [arguments, &["--idle", "interrupt"]].concat();
    Bench::start(ports, &arguments)
}

/// The forwarding threads.
fn threads(bench: &Bench) -> Vec<ThreadReport> {
    let threads: Vec<ThreadReport> = bench.show("threads");
    let forwarding = |thread: &ThreadReport| thread.role == Role::Forwarding;
    threads.into_iter().filter(forwarding).collect()
}

fn until_asleep(bench: &Bench) {
    until("the thread sleeps", || {
        let threads = threads(bench);
        assert!(threads.iter().all(|thread| thread.is_asleep.is_some()));
        let is_asleep = |thread: &ThreadReport| thread.is_asleep == Some(true);
        threads.iter().all(is_asleep).then_some(())
    });
}

#[test]
fn a_frame_wakes_a_sleeping_thread_and_none_is_lost_in_stop_and_go() {
    let bench = start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    for number in 0..5 {
        until_asleep(&bench);
        let there = [frame(B, A, number)];
        a.send(&there);
        assert_eq!(b.receive(1), there);
        until_asleep(&bench);
        let back = [frame(A, B, number)];
        b.send(&back);
        assert_eq!(a.receive(1), back);
    }
    // Bursts both ways with pauses around the time after which a thread sleeps.
    let mut sent = 10;
    for round in 0..400_usize {
        let many = |seed: usize| (round * 31 + seed) % 200 + 1;
        let there: Vec<_> = (0..many(7)).map(|n| frame(B, A, n as u8)).collect();
        let back: Vec<_> = (0..many(90)).map(|n| frame(A, B, n as u8)).collect();
        a.send(&there);
        b.send(&back);
        assert_eq!(b.receive(there.len()), there, "round {round}");
        assert_eq!(a.receive(back.len()), back, "round {round}");
        sent += (there.len() + back.len()) as u64;
        let pause = Duration::from_micros((round as u64 * 37) % 400);
        let began = Instant::now();
        while began.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
    let ports: Vec<PortReport> = bench.show("ports");
    let received: u64 = ports.iter().map(|port| port.counts.rx_frames).sum();
    let dropped: u64 = ports.iter().map(|port| port.counts.drops.sum()).sum();
    assert_eq!((received, dropped), (sent, 0));
}

#[test]
fn an_idle_thread_uses_little_of_its_cpu_and_still_obeys() {
    let bench = start(&["a", "b"], &["--cross-connect", "a,b"]);
    let peers = (bench.peer("a"), bench.peer("b"));
    until_asleep(&bench);
    let thread = threads(&bench).remove(0);
    let busy_ns = || -> u64 {
        let path = format!("/proc/{}/schedstat", thread.tid);
        let text = fs::read_to_string(path).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (before, began) = (busy_ns(), Instant::now());
    until("a second has passed", || {
        (began.elapsed() >= Duration::from_secs(1)).then_some(())
    });
    let share = (busy_ns() - before) as f64 / began.elapsed().as_nanos() as f64;
    assert!(share < 0.3, "{share} of the CPU");
    let text = output(&mut bench.show_command("threads"));
    assert!(text.contains("asleep"), "{text}");
    drop(peers);
    let mut change = quietwire();
    change.args(["switch", "del", "port", "b", "--control-socket"]);
    output(change.arg(bench.path("control.sock")));
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports.len(), 1);
}

#[test]
fn threads_that_send_for_each_other_wake_each_other() {
    let cpus = "0,1";
    let bench = start(
        &["a", "b"],
        &[
            "--cross-connect",
            "a,b",
            "--forwarding-cpus",
            cpus,
            "--service-cpus",
            cpus,
            "--control-cpus",
            cpus,
            "--pinning",
            "none",
        ],
    );
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    for round in 0..50 {
        if round % 10 == 0 {
            until_asleep(&bench);
        }
        let there: Vec<_> = (0..300u32).map(|n| frame(B, A, n as u8)).collect();
        a.send(&there);
        assert_eq!(b.receive(there.len()), there, "round {round}");
        let back: Vec<_> = (0..300u32).map(|n| frame(A, B, n as u8)).collect();
        b.send(&back);
        assert_eq!(a.receive(back.len()), back, "round {round}");
    }
    let ports: Vec<PortReport> = bench.show("ports");
    assert!(ports.iter().all(|port| port.counts.drops.sum() == 0));
}

#[test]
fn a_port_without_receive_interrupts_is_refused_by_name() {
    let bench = Bench::new(&["a"], &[]);
    let printed = bench.refused(2, &["--idle", "interrupt", "--port", "sink=null:"]);
    let parts = [
        "port 'sink'",
        "no receive interrupts",
        "use idle = \"sleep\"",
    ];
    assert!(parts.iter().all(|part| printed.contains(part)), "{printed}");
    drop(bench);
    let bench = start(&["a"], &[]);
    let mut add = Command::new(env!("CARGO_BIN_EXE_quietwire"));
    add.args(["switch", "add", "port", "sink", "null:", "--control-socket"]);
    let refused = add.arg(bench.path("control.sock")).output().unwrap();
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{printed}");
    assert!(parts.iter().all(|part| printed.contains(part)), "{printed}");
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports.len(), 1);
}
