// SPDX-License-Identifier: Apache-2.0
//! The switch while one of its threads is stopped as by a debugger, while the machine or its clients fail, and while changes fail.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use quietwire_base::random::Random;
use quietwire_switch::config::layer3::{RouteKind, RouteSetting};
use quietwire_switch::control::{Request, ask};
use quietwire_switch::report::{PortReport, QueueReport, RoutesReport, ThreadReport};
use serde::de::IgnoredAny;

use crate::bench::{
    Bench, change, command, frame, free_address, output, refused_with, until, until_printed,
};
use crate::changes::{Flow, TWO_THREADS, restart_from_own_configuration};
use crate::router::router;
use crate::watch::capture;

/// A thread of the switch that does not run until this value is dropped.
pub(crate) struct Stopped {
    resume: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Stopped {
    /// Stops the thread of this name; `None` if there is no such thread.
    pub(crate) fn thread(bench: &Bench, name: &str) -> Option<Self> {
        let tid = tid_of(bench, name)?;
        let (resume, is_resumed) = channel();
        let (stopped, is_stopped) = channel();
        // Only the thread that has stopped another can resume it.
        let tracer = std::thread::spawn(move || {
            let seized = ptrace::seize(tid, ptrace::Options::empty())
                .and_then(|()| ptrace::interrupt(tid))
                .and_then(|()| waitpid(tid, Some(WaitPidFlag::__WALL)));
            let has_stopped = seized.is_ok();
            stopped.send(has_stopped).unwrap();
            let pause = Duration::from_millis(10);
            // The other side ends the wait.
            while is_resumed.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                // If the switch has ended, the kernel keeps it until this side has observed the end of the thread.
                let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
                let status = waitpid(tid, Some(flags));
                if matches!(
                    status,
                    Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_)
                ) {
                    return;
                }
            }
            if has_stopped {
                // The switch may have ended meanwhile.
                let _ = ptrace::detach(tid, None);
            }
        });
        let stopped = Self {
            resume: Some(resume),
            tracer: Some(tracer),
        };
        is_stopped.recv().unwrap().then_some(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.resume.take());
        self.tracer.take().unwrap().join().unwrap();
    }
}

/// Returns the kernel's ID of a thread of the switch.
fn tid_of(bench: &Bench, name: &str) -> Option<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", bench.pid())).unwrap();
    for task in tasks {
        let path = task.unwrap().path();
        // A thread may end at any moment.
        let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            let tid = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            return Some(Pid::from_raw(tid));
        }
    }
    None
}

fn late_threads(bench: &Bench) -> Vec<String> {
    let threads: Vec<ThreadReport> = bench.show("threads");
    let late = threads.into_iter().filter(|one| one.late_s.is_some());
    late.map(|one| one.name).collect()
}

/// Waits until all threads reply again and a change is accepted.
fn wait_for_recovery(bench: &Bench) {
    until("all threads reply", || {
        late_threads(bench).is_empty().then_some(())
    });
    until("a change is accepted", || {
        let arguments = ["set", "threads", "--forwarding-cpus", "0-1"];
        let status = command(bench, &arguments).output().unwrap().status;
        status.success().then_some(())
    });
}

/// Checks that frames pass between two ports in both directions.
fn check_pair(bench: &Bench, names: [&str; 2], number: u8) {
    let [mut one, mut other] = names.map(|name| bench.peer(name));
    for turn in 0..20 {
        let there = frame([0xff; 6], [2, 0, 0, 0, 7, number], turn);
        let back = frame([0xff; 6], [2, 0, 0, 0, 8, number], turn);
        one.send(std::slice::from_ref(&there));
        assert_eq!(other.receive(1), [there], "{names:?}");
        other.send(std::slice::from_ref(&back));
        assert_eq!(one.receive(1), [back], "{names:?}");
    }
}

fn uri(bench: &Bench, name: &str) -> String {
    let path = bench.path(&format!("{name}.sock"));
    format!("memif:{}?role=server", path.display())
}

#[test]
fn a_stopped_thread_costs_no_queue_and_refused_changes_leave_nothing() {
    // In this order, the first thread serves a and b, and the second one c and d.
    let bench = Bench::start(
        &["a", "c", "b", "d"],
        &[
            &["--cross-connect", "a,b", "--cross-connect", "c,d"][..],
            &TWO_THREADS,
        ]
        .concat(),
    );
    let cpus = || -> Vec<Option<u32>> {
        let queues: Vec<QueueReport> = bench.show("queues");
        queues.into_iter().map(|queue| queue.cpu).collect()
    };
    assert_eq!(cpus(), [Some(0), Some(1), Some(0), Some(1)]);
    let before = (bench.show::<String>("config"), cpus());
    let socket = uri(&bench, "e");
    let stopped = Stopped::thread(&bench, "qw-fwd-1").unwrap();
    for arguments in [
        &["set", "queue", "a", "0", "--cpu", "1"][..],
        &["set", "queue", "c", "0", "--cpu", "0"],
        &["set", "threads", "--forwarding-cpus", "0"],
        &["add", "port", "e", &socket],
        &["del", "port", "a"],
    ] {
        let message = refused_with(&bench, 1, arguments);
        assert!(message.contains("qw-fwd-1: no reply"), "{message}");
    }
    assert_eq!((bench.show::<String>("config"), cpus()), before);
    assert_eq!(late_threads(&bench), ["qw-fwd-1"]);
    let table = output(&mut bench.show_command("threads"));
    assert!(table.contains("no reply for"), "{table}");
    // The other thread forwards meanwhile.
    check_pair(&bench, ["a", "b"], 1);
    drop(stopped);
    until("the thread replies", || {
        late_threads(&bench).is_empty().then_some(())
    });
    assert_eq!((bench.show::<String>("config"), cpus()), before);
    check_pair(&bench, ["a", "b"], 2);
    check_pair(&bench, ["c", "d"], 3);
    for (port, cpu) in [("a", "1"), ("b", "1"), ("c", "0"), ("a", "0")] {
        change(&bench, &["set", "queue", port, "0", "--cpu", cpu]);
    }
    change(&bench, &["add", "port", "e", &socket]);
    change(&bench, &["set", "threads", "--forwarding-cpus", "0"]);
    check_pair(&bench, ["a", "b"], 4);
    check_pair(&bench, ["c", "d"], 5);
    assert!(bench.files().contains(&"e.sock".to_owned()));
}

/// Returns the number of rounds of tests that cause faults: `QUIETWIRE_FAULT_ROUNDS`, default 2.
pub(crate) fn fault_rounds() -> u64 {
    number_from("QUIETWIRE_FAULT_ROUNDS", 2)
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap())
}

/// Makes one random change, which may fail or be refused.
fn change_at_random(bench: &Bench, random: &mut Random) {
    let socket = uri(bench, "e");
    let cpu = random.one_of("0", &["1"]);
    let port = random.one_of("a", &["b", "c", "d"]);
    let cpus = random.one_of("0", &["1", "0-1", "0-1"]);
    let arguments: &[&str] = match random.below(8) {
        0..=2 => &["set", "threads", "--forwarding-cpus", cpus],
        3 => &["add", "port", "e", &socket, "--bridge", "lan"],
        4 => &["del", "port", "e"],
        5 => &["set", "bridge", "lan", "--del-port", "f"],
        6 => &["set", "bridge", "lan", "--add-port", "f"],
        _ => &["set", "queue", port, "0", "--cpu", cpu],
    };
    let output = command(bench, arguments).output().unwrap();
    let code = output.status.code();
    assert!(
        matches!(code, Some(0..=2)),
        "{arguments:?}: {code:?} {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Makes random changes while a thread is stopped at a random moment, for longer than the switch waits or for a moment.
fn disturb(bench: &Bench, random: &mut Random) {
    let done = AtomicBool::new(false);
    let mut changes = Random::new(random.word());
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                change_at_random(bench, &mut changes);
            }
        });
        // Moments of a random length, in which changes are under way.
        let moment = |random: &mut Random, ms: u64| {
            let end = Instant::now() + Duration::from_micros(random.below(1000 * ms));
            while Instant::now() < end {
                std::thread::yield_now();
            }
        };
        moment(random, 300);
        let name = random.one_of("qw-fwd-0", &["qw-fwd-1"]);
        let stopped = Stopped::thread(bench, name);
        if random.below(4) == 0 {
            moment(random, 50);
        } else {
            // A change fails because of the stopped thread, if a thread was found.
            let is_late = || !late_threads(bench).is_empty();
            until("a thread is late", || {
                (stopped.is_none() || is_late()).then_some(())
            });
            moment(random, 500);
        }
        drop(stopped);
        done.store(true, Ordering::Relaxed);
        changing.join().unwrap();
    });
}

#[test]
fn after_threads_stopped_in_the_middle_of_changes_every_port_forwards() {
    let seed = number_from("QUIETWIRE_SEED", 1 + u64::from(std::process::id()));
    let rounds = fault_rounds();
    eprintln!("QUIETWIRE_SEED={seed}");
    let mut random = Random::new(seed);
    let bench = Bench::start(
        &["a", "b", "c", "d", "f"],
        &[
            &["--cross-connect", "a,b", "--bridge", "lan=c,d,f"][..],
            &TWO_THREADS,
        ]
        .concat(),
    );
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    for round in 0..rounds {
        let mut flow = Flow::new(&mut a, &mut b);
        let bench = &bench;
        flow.during(|| disturb(bench, &mut random));
        wait_for_recovery(bench);
        eprintln!("round {round}");
        for pair in [["c", "d"], ["d", "c"]] {
            check_pair(bench, pair, round as u8);
        }
        let mut back = Flow::new(&mut b, &mut a);
        back.during(|| ());
    }
    // Whatever the changes were, the configuration can be shown and starts the same switch.
    let config: String = bench.show("config");
    assert!(
        config.contains("\"a\"") && config.contains("lan"),
        "{config}"
    );
}

/// Returns the lines of the switch's log that contain a text.
fn logged(bench: &Bench, text: &str) -> usize {
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    log.lines().filter(|line| line.contains(text)).count()
}

/// Checks that a change is refused with this exit code and message and changes nothing, and that the configuration still starts the switch.
fn check_refused(bench: &Bench, code: i32, arguments: &[&str], part: &str) {
    let before: String = bench.show("config");
    let message = refused_with(bench, code, arguments);
    assert!(message.contains(part), "{message}");
    assert_eq!(bench.show::<String>("config"), before, "{arguments:?}");
}

#[test]
fn an_entry_that_does_not_fit_into_the_bridge_is_refused() {
    let arguments = ["--bridge", "lan=a,b", "--max-entries", "2"];
    let bench = Bench::start(&["a", "b"], &arguments);
    let add = |mac: &str| {
        let arguments = ["add", "fdb", "lan", mac, "a"];
        command(&bench, &arguments).output().unwrap()
    };
    for mac in ["02:00:00:00:00:01", "02:00:00:00:00:02"] {
        let output = add(mac);
        assert!(output.status.success(), "{output:?}");
    }
    let third = ["add", "fdb", "lan", "02:00:00:00:00:03", "a"];
    check_refused(&bench, 2, &third, "no space for 02:00:00:00:00:03");
    check_pair(&bench, ["a", "b"], 1);
    restart_from_own_configuration(bench);
}

#[test]
fn a_bridge_table_without_memory_is_refused() {
    let bench = Bench::start(&["a", "b"], &["--bridge", "lan=a,b"]);
    let pid = bench.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size_kib: u64 = size
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    // 64 MiB more than the process has.
    let limit = (size_kib << 10) + (64 << 20);
    let limit = format!("--as={limit}:{limit}");
    output(Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]));
    let arguments = ["add", "bridge", "large", "--max-entries", "16777216"];
    check_refused(&bench, 3, &arguments, "out of memory");
    check_pair(&bench, ["a", "b"], 1);
    change(&bench, &["add", "bridge", "small", "--max-entries", "16"]);
}

#[test]
fn an_interface_that_the_kernel_refuses_leaves_nothing() {
    let mut bench = Bench::new(&["a", "b"], &[]);
    bench.start_without_ipv6();
    change(&bench, &["add", "vrf", "red"]);
    let add = [
        "add",
        "interface",
        "a0",
        "--port",
        "a",
        "--address",
        "192.0.2.1/24",
        "--address",
        "2001:db8::1/64",
        "--kernel",
        "qw-faults",
    ];
    check_refused(&bench, 3, &add, "qw-faults");
    let interfaces: serde_json::Value = bench.show("interfaces");
    assert_eq!(interfaces, serde_json::json!([]));
    // The name is free again, and the same without IPv6 works.
    let without = [&add[..7], &add[9..]].concat();
    change(&bench, &without);
    // An interface that is there stays as it is.
    let mut set = add;
    set[0] = "set";
    check_refused(&bench, 3, &set, "qw-faults");
    let text: String = bench.show("config");
    assert!(
        text.contains("192.0.2.1/24") && !text.contains("2001:db8"),
        "{text}"
    );
}

#[test]
fn clients_that_wait_or_vanish_delay_no_other() {
    let address = free_address();
    let bench = Bench::start(
        &["a", "b"],
        &["--bridge", "lan=a,b", "--metrics", &address.to_string()],
    );
    let path = bench.path("control.sock");
    let mut idle: Vec<UnixStream> = (0..200)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    for (number, stream) in idle.iter_mut().enumerate() {
        // Some are in the middle of a request, some ask and read nothing, some have closed one direction.
        let text: &[u8] = [&b""[..], b"{\"show\":", b"{\"show\":\"ports\"}\n"][number % 3];
        // The switch may have closed the connection for another client.
        let _ = stream.write_all(text);
        if number % 5 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    let slow: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            let text: &[u8] = [&b""[..], b"GET /metr"][number % 2];
            let _ = stream.write_all(text);
            stream
        })
        .collect();
    // Longer than a request takes on a busy machine, and shorter than any timeout of the clients above.
    let timeout = Duration::from_secs(4);
    for _ in 0..5 {
        let asked = Instant::now();
        let ports: Vec<PortReport> = bench.show("ports");
        assert_eq!(ports.len(), 2);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("quietwire_switch_thread_late_seconds"),
            "{answer}"
        );
        let waited = asked.elapsed();
        assert!(
            waited < timeout,
            "an idle client was waited for: {waited:?}"
        );
    }
    drop((idle, slow));
}

#[test]
fn without_file_descriptors_the_switch_neither_spins_nor_floods_its_log() {
    let bench = Bench::quiet(&["a", "b"], &["--bridge", "lan=a,b"]);
    let path = bench.path("control.sock");
    let pid = bench.pid().to_string();
    let limit = |files: usize| {
        let limit = format!("--nofile={files}:");
        output(Command::new("prlimit").args(["--pid", &pid, &limit]));
    };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    limit(open);
    let crowd: Vec<UnixStream> = (0..20)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    until("the lack is logged", || {
        (logged(&bench, "cannot accept clients") > 0).then_some(())
    });
    // The time in which a spinning thread would log thousands of lines.
    let cpu_before = cpu_ticks(&bench, "qw-control");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let used = cpu_ticks(&bench, "qw-control") - cpu_before;
    assert_eq!(logged(&bench, "cannot accept clients"), 1);
    // In ticks of 10 ms: a spinning thread uses most of 200, on a busy machine a good part of them.
    assert!(used < 40, "the control thread used {used} of 200 ticks");
    limit(1024);
    let shown: Vec<PortReport> = bench.show("ports");
    assert_eq!(shown.len(), 2);
    drop(crowd);
}

#[test]
fn a_capture_whose_reader_is_killed_ends_by_itself() {
    let bench = Bench::quiet(&["a", "b"], &["--cross-connect", "a,b"]);
    let file = bench.path("killed.pcapng");
    let mut running = capture(&bench, &file, &[]);
    let refused = command(&bench, &["capture", "--write", "/dev/null"])
        .output()
        .unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(printed.contains("another capture is running"), "{printed}");
    running.kill().unwrap();
    running.wait().unwrap();
    until_printed("another may begin", || {
        let mut next = command(
            &bench,
            &["capture", "--write", "/dev/null", "--for", "10ms"],
        );
        next.output().unwrap().status.success().then_some(())
    });
}

/// Returns the CPU time of a thread of the switch, in ticks (proc(5): utime and stime).
fn cpu_ticks(bench: &Bench, name: &str) -> u64 {
    let tid = tid_of(bench, name).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/task/{tid}/stat", bench.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Checks that a switch ends in time while one of its threads is stopped, names the thread, and starts again.
fn ends_beside_a_stopped_thread(name: &str, is_forwarding: bool) {
    let mut bench = Bench::quiet(
        &["a", "b"],
        &[&["--cross-connect", "a,b"][..], &TWO_THREADS].concat(),
    );
    let mut client = UnixStream::connect(bench.path("control.sock")).unwrap();
    client.write_all(b"{\"show\":").unwrap();
    let stopped = Stopped::thread(&bench, name).unwrap();
    // A change waits for the stopped thread when the signal arrives.
    let mut waiting = command(&bench, &["set", "queue", "a", "0", "--cpu", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    assert_eq!(bench.end("TERM"), Some(1), "{name}");
    // The switch gives itself four seconds.
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(8), "{name}: {waited:?}");
    assert_eq!(logged(&bench, &format!("threads {name} do not end")), 1);
    let is_changed = waiting.wait().unwrap().success();
    assert!(!(is_forwarding && is_changed), "{name}");
    drop(stopped);
    drop(client);
    bench.start_again();
    bench.take();
    check_pair(&bench, ["a", "b"], 1);
    bench.release();
    assert_eq!(bench.end("TERM"), Some(0), "{name}");
}

#[test]
fn the_switch_ends_beside_a_stopped_thread_and_reports_what_it_leaves() {
    // The switches wait at the same time.
    std::thread::scope(|scope| {
        for (name, is_forwarding) in [
            ("qw-fwd-1", true),
            ("qw-service", false),
            ("qw-control", false),
        ] {
            scope.spawn(move || ends_beside_a_stopped_thread(name, is_forwarding));
        }
    });
}

#[test]
fn many_routes_are_listed_page_by_page_each_once() {
    let bench = router();
    let prefixes: Vec<IpNet> = (0..40_000u32)
        .map(|n| format!("10.{}.{}.0/24", n >> 8, n & 0xff).parse().unwrap())
        .collect();
    let path = bench.path("control.sock");
    for prefixes in prefixes.chunks(400) {
        let route = |prefix: &IpNet| RouteSetting {
            prefix: *prefix,
            vrf: None,
            kind: Some(RouteKind::Blackhole),
            via: Vec::new(),
        };
        let routes = prefixes.iter().map(route).collect();
        ask::<IgnoredAny>(&path, &Request::AddRoutes(routes)).unwrap();
    }
    let within = Some("10.0.0.0/8".parse().unwrap());
    let page = |limit, after| -> RoutesReport {
        let request = Request::ShowRoutes {
            vrf: None,
            prefix: within,
            limit,
            after,
        };
        ask(&path, &request).unwrap()
    };
    // No reply is larger than a page, whatever the limit is.
    let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let report = page(1_000_000, after);
        assert_eq!(report.total, 40_000);
        listed.extend(report.routes.iter().map(|route| route.prefix));
        pages += 1;
        after = report.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, &listed), (3, &prefixes));
    let first = page(3, None);
    assert_eq!((first.routes.len(), first.next), (3, Some(prefixes[2])));
    // The command reads all pages.
    let arguments = [
        "show",
        "routes",
        "--prefix",
        "10.0.0.0/8",
        "--limit",
        "30000",
        "--json",
    ];
    let report: RoutesReport =
        serde_json::from_str(&output(&mut command(&bench, &arguments))).unwrap();
    let shown: Vec<IpNet> = report.routes.iter().map(|route| route.prefix).collect();
    assert_eq!(shown, prefixes[..30_000]);
    let text: String = bench.show("config");
    assert_eq!(text.matches("blackhole").count(), 40_000);
}
