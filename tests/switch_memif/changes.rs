// SPDX-License-Identifier: Apache-2.0
//! Changes of a running switch while frames flow: none is lost or reordered.

use std::collections::BTreeMap;

use quietwire_switch::Rules;
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::{
    FdbReport, MoveReport, ObjectsReport, PortReport, QueueReport, ThreadReport,
};
use serde_json::Value;

use crate::bench::{Bench, Peer, change, command, frame, output, refused_with, until};

/// Frames of one flow, numbered.
pub(crate) struct Flow<'bench> {
    from: &'bench mut Peer,
    to: &'bench mut Peer,
    sent: u32,
    received: u32,
}

impl<'bench> Flow<'bench> {
    /// Creates a flow from one peer to another.
    pub(crate) const fn new(from: &'bench mut Peer, to: &'bench mut Peer) -> Self {
        Self {
            from,
            to,
            sent: 0,
            received: 0,
        }
    }

    /// Sends while `busy` runs, and a little longer; every frame must arrive once and in order.
    pub(crate) fn during<T: Send>(&mut self, busy: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let work = scope.spawn(busy);
            let mut more = 20;
            while more > 0 {
                if work.is_finished() {
                    more -= 1;
                }
                let burst: Vec<Vec<u8>> = (0..16)
                    .map(|n| {
                        let mut frame = frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], 0);
                        frame[20..24].copy_from_slice(&(self.sent + n).to_be_bytes());
                        frame
                    })
                    .collect();
                self.from.send(&burst);
                self.sent += 16;
                // Never more frames under way than the smallest ring holds.
                until("frames of the flow arrive", || {
                    for frame in self.to.receive_now() {
                        let number = u32::from_be_bytes(frame[20..24].try_into().unwrap());
                        assert_eq!(number, self.received, "lost or reordered");
                        self.received += 1;
                    }
                    (self.received + 256 > self.sent).then_some(())
                });
            }
            let done = work.join().unwrap();
            until("the last frames arrive", || {
                self.received += self.to.receive_now().len() as u32;
                (self.received >= self.sent).then_some(())
            });
            assert_eq!(self.received, self.sent);
            done
        })
    }
}

/// Both CPUs forward on a machine with two: other programs share them.
pub(crate) const TWO_THREADS: [&str; 4] = ["--forwarding-cpus", "0,1", "--pinning", "none"];

#[test]
fn ports_and_bridges_come_and_go_beside_others() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let mut flow = Flow::new(&mut a, &mut b);
    let uri = |name: &str| {
        let path = bench.path(&format!("{name}.sock"));
        format!("memif:{}?role=server", path.display())
    };
    let before: String = bench.show("config");
    let bench = &bench;
    flow.during(|| {
        change(bench, &["add", "port", "c", &uri("c")]);
        change(bench, &["add", "bridge", "lan", "c"]);
        change(bench, &["add", "port", "d", &uri("d"), "--bridge", "lan"]);
    });
    let (mut c, mut d) = (bench.peer("c"), bench.peer("d"));
    let hello = frame([0xff; 6], [2, 0, 0, 0, 0, 3], 1);
    c.send(std::slice::from_ref(&hello));
    assert_eq!(d.receive(1), [hello]);
    let fdb: Vec<FdbReport> = bench.show("fdb");
    assert_eq!((fdb.len(), fdb[0].port.as_str()), (1, "c"));

    // An invalid change changes nothing.
    let with_lan: String = bench.show("config");
    for (arguments, part) in [
        (&["add", "port", "c", "null:"][..], "duplicate port 'c'"),
        (
            &["add", "port", "e", "memif:/nowhere/e?role=server"],
            "create it",
        ),
        (
            &["add", "bridge", "wan", "a"],
            "port 'a' already belongs to the cross-connect",
        ),
        (
            &["add", "port", "e", "null:", "--bridge", "wan"],
            "no such bridge: 'wan'",
        ),
        (&["del", "port", "x"], "no such port: 'x'"),
        (&["set", "bridge", "lan", "--del-port", "a"], "not a member"),
        (
            &["set", "threads", "--forwarding-cpus", "4000"],
            "is not online",
        ),
        (
            &["set", "queue", "a", "7", "--cpu", "1"],
            "no receive queue 7",
        ),
    ] {
        let message = refused_with(bench, 2, arguments);
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    assert_eq!(bench.show::<String>("config"), with_lan);
    let objects: ObjectsReport = ask(&bench.path("control.sock"), &Request::Objects).unwrap();
    assert_eq!(objects.ports, ["a", "b", "c", "d"]);
    assert_eq!(
        (objects.bridges, objects.vrfs),
        (vec!["lan".to_owned()], Vec::new())
    );

    flow.during(|| {
        change(bench, &["set", "bridge", "lan", "--del-port", "d"]);
        change(bench, &["del", "port", "c"]);
        change(bench, &["del", "port", "d"]);
        change(bench, &["del", "bridge", "lan"]);
    });
    assert_eq!(bench.show::<String>("config"), before);
    assert_eq!(bench.files(), ["a.sock", "b.sock", "control.sock"]);
    // A port number is used again, but its counters start at 0.
    change(bench, &["add", "port", "e", &uri("e")]);
    let ports: Vec<PortReport> = bench.show("ports");
    assert_eq!(ports[2].counts.name, "e");
    assert_eq!(ports[2].counts.rx_frames, 0);
}

/// Ends the switch and starts it from the configuration that it showed, which it then shows again.
pub(crate) fn restart_from_own_configuration(mut bench: Bench) {
    let shown = output(&mut bench.show_command("config"));
    let file = bench.path("switch.toml");
    std::fs::write(&file, &shown).unwrap();
    assert_eq!(bench.end("TERM"), Some(0));
    let mut bench = bench.only(&["--config", &file.display().to_string()]);
    bench.start_again();
    assert_eq!(output(&mut bench.show_command("config")), shown);
}

#[test]
fn the_shown_configuration_starts_the_same_switch() {
    let bench = Bench::start(
        &["a", "b", "c"],
        &["--bridge", "lan=a,b", "--ageing-s", "7"],
    );
    change(&bench, &["set", "bridge", "lan", "--add-port", "c"]);
    restart_from_own_configuration(bench);
}

#[test]
fn queues_move_between_threads_without_loss_or_disorder() {
    let bench = Bench::start(
        &["a", "b"],
        &[&["--cross-connect", "a,b"][..], &TWO_THREADS].concat(),
    );
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let mut flow = Flow::new(&mut a, &mut b);
    let bench = &bench;
    flow.during(|| {
        for turn in 0..20 {
            let cpu = (turn % 2).to_string();
            change(bench, &["set", "queue", "a", "0", "--cpu", &cpu]);
        }
    });
    let queues: Vec<QueueReport> = bench.show("queues");
    assert_eq!(queues[0].cpu, Some(1));
    assert_eq!(queues[0].frames, u64::from(flow.sent));
    let moves: Vec<MoveReport> = bench.show("moves");
    assert!(moves.len() >= 19, "{moves:?}");
    assert!(
        moves
            .iter()
            .all(|one| one.reason == "by request" && one.from != one.to)
    );

    // Threads end and start again; the remaining one serves all.
    flow.during(|| {
        for cpus in ["1", "0-1", "0", "0-1"] {
            change(bench, &["set", "threads", "--forwarding-cpus", cpus]);
        }
    });
    let threads: Vec<ThreadReport> = bench.show("threads");
    let names = ["qw-fwd-0", "qw-fwd-1"]
        .map(|name| threads.iter().filter(|thread| thread.name == name).count());
    assert_eq!(names, [1, 1]);
    let ports: Vec<PortReport> = bench.show("ports");
    let counts: BTreeMap<&str, (u64, u64)> = ports
        .iter()
        .map(|port| {
            (
                port.counts.name.as_str(),
                (port.counts.rx_frames, port.counts.tx_frames),
            )
        })
        .collect();
    let sent = u64::from(flow.sent);
    assert_eq!(counts["a"], (sent, 0), "counters of ended threads are kept");
    assert_eq!(counts["b"], (0, sent));
    assert!(ports.iter().all(|port| port.counts.drops.sum() == 0));
}

/// Moves queues by these rules, or reports which would be moved.
fn rebalance(bench: &Bench, rules: Rules, dry_run: bool) -> Vec<MoveReport> {
    let rules = Some(rules);
    let request = Request::Rebalance { dry_run, rules };
    ask(&bench.path("control.sock"), &request).unwrap()
}

#[test]
fn load_is_balanced_when_asked_and_reported_when_not() {
    let bench = Bench::alone(
        &["a", "b", "c", "d"],
        &[
            &["--cross-connect", "a,b", "--cross-connect", "c,d"][..],
            &TWO_THREADS,
        ]
        .concat(),
    );
    for queue in ["a", "c"] {
        change(&bench, &["set", "queue", queue, "0", "--cpu", "0"]);
    }
    // Without traffic, no move is worthwhile.
    let answer = output(&mut command(&bench, &["rebalance", "--dry-run"]));
    assert_eq!(answer, "no move improves the balance\n");
    let answer = output(&mut command(&bench, &["rebalance", "--json"]));
    assert_eq!(
        serde_json::from_str::<Value>(&answer).unwrap(),
        Value::Array(vec![])
    );
    // Both queues receive frames, and one thread serves both.
    let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|name| bench.peer(name));
    let sent = frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], 0);
    let mut exchange = || {
        for (from, to) in [(&mut a, &mut b), (&mut c, &mut d)] {
            from.send(std::slice::from_ref(&sent));
            assert_eq!(to.receive(1), std::slice::from_ref(&sent));
        }
    };
    // By port: the CPU and the load of its queue.
    let queues = || -> BTreeMap<String, (Option<u32>, Option<f64>)> {
        let queues: Vec<QueueReport> = bench.show("queues");
        let of_port = |queue: QueueReport| (queue.port, (queue.cpu, queue.load));
        queues.into_iter().map(of_port).collect()
    };
    until("both queues have a load", || {
        exchange();
        let queues = queues();
        let has_load = |port: &&str| queues[*port].1.is_some_and(|load| load > 0.0);
        ["a", "c"].iter().all(has_load).then_some(())
    });
    let any_load = Rules {
        threshold: 1e-12,
        improvement: 1e-12,
        ..Rules::default()
    };
    let cpus = || ["a", "c"].map(|port| queues()[port].0);
    let would = rebalance(&bench, any_load, true);
    assert_eq!(would.len(), 1, "{would:?}");
    assert_eq!(cpus(), [Some(0), Some(0)], "a dry run moves nothing");
    let moved = rebalance(&bench, any_load, false);
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert_eq!((moved[0].from, moved[0].to), (0, 1));
    assert!(moved[0].reason.contains("queue load"), "{moved:?}");
    let mut cpus = cpus();
    cpus.sort();
    assert_eq!(cpus, [Some(0), Some(1)]);
    exchange();
}
