// SPDX-License-Identifier: Apache-2.0
//! Captures and traces of a forwarding switch.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};

use pcap_file::pcapng::{Block, PcapNgReader};
use quietwire_switch::observe::TraceEvent;
use quietwire_switch::report::CyclesReport;

use crate::bench::{Bench, command, forwarding_cpu, frame, output, until};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Starts a capture into a file, and waits until it has begun.
pub(crate) fn capture(bench: &Bench, file: &Path, arguments: &[&str]) -> Child {
    let file_name = file.to_str().unwrap();
    let arguments = [&["capture", "--write", file_name], arguments].concat();
    let child = command(bench, &arguments).spawn().unwrap();
    until("the capture begins", || {
        fs::metadata(file)
            .is_ok_and(|file| file.len() > 0)
            .then_some(())
    });
    child
}

fn end(mut child: Child) -> (Option<i32>, String) {
    until("the capture ends", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), printed)
}

/// Returns port, direction, kept octets and length of each frame.
fn read(file: &Path) -> Vec<(String, u32, Vec<u8>, u32)> {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
    let mut reader = PcapNgReader::new(fs::File::open(file).unwrap()).unwrap();
    let (mut ports, mut frames, mut last) = (Vec::new(), Vec::new(), Default::default());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(block) => {
                let name = block.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                ports.push(name.unwrap());
            }
            Block::EnhancedPacket(block) => {
                let flags = block.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Flags(flags) => Some(*flags),
                    _ => None,
                });
                assert!(block.timestamp >= last, "one thread: in order");
                last = block.timestamp;
                frames.push((
                    ports[block.interface_id as usize].clone(),
                    flags.unwrap(),
                    block.data.to_vec(),
                    block.original_len,
                ));
            }
            _ => {}
        }
    }
    frames
}

#[test]
fn a_capture_has_what_came_and_what_went() {
    let mut bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let file = bench.path("all.pcapng");
    let running = capture(&bench, &file, &["--count", "6"]);
    let frames: Vec<Vec<u8>> = (0..3).map(|n| frame(B, A, n)).collect();
    a.send(&frames);
    assert_eq!(b.receive(3), frames);
    let (code, printed) = end(running);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("6 frames captured, 0 missed"), "{printed}");
    let captured = read(&file);
    for (port, way) in [("a", 1), ("b", 2)] {
        let octets: Vec<&Vec<u8>> = captured
            .iter()
            .filter(|one| one.0 == port && one.1 == way)
            .map(|one| &one.2)
            .collect();
        assert_eq!(octets, frames.iter().collect::<Vec<_>>(), "{port}");
    }
    assert_eq!(captured.len(), 6);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(
        mode & 0o777,
        0o600,
        "only the owner may read captured frames"
    );
    // Some of the frames, one direction, and a part of each; until it is interrupted.
    let all = file;
    let file = bench.path("some.pcapng");
    let running = capture(
        &bench,
        &file,
        &[
            "--direction",
            "in",
            "--mac",
            "02:00:00:00:00:07",
            "--snap-length",
            "20",
        ],
    );
    let other = frame([2, 0, 0, 0, 0, 7], A, 9);
    a.send(&[frames[0].clone(), other.clone()]);
    b.receive(2);
    until("the frame is in the file", || {
        (read(&file).len() == 1).then_some(())
    });
    output(Command::new("kill").args(["-INT", &running.id().to_string()]));
    let (code, printed) = end(running);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("1 frames captured"), "{printed}");
    let (port, way, octets, length) = read(&file).remove(0);
    assert_eq!((port.as_str(), way, length as usize), ("a", 1, other.len()));
    assert_eq!(octets, other[..20]);
    drop((a, b));
    assert_eq!(bench.end("TERM"), Some(0));
    bench.release();
    scapy_reads(&all, 6);
}

/// Checks that an independent reader finds this many frames.
fn scapy_reads(file: &Path, count: usize) {
    const SCRIPT: &str =
        "import sys\nfrom scapy.utils import rdpcap\nprint(len(rdpcap(sys.argv[1])))\n";
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("QUIETWIRE_PYTHON must name a Python with scapy (`make test` installs one)");
    let observed = output(Command::new(python).args(["-c", SCRIPT]).arg(file));
    assert_eq!(observed.trim(), count.to_string());
}

#[test]
fn invalid_captures_and_traces_are_refused() {
    let bench = Bench::start(&["a", "b"], &["--cross-connect", "a,b"]);
    for (arguments, words) in [
        (
            &["capture", "--write", "/dev/null", "--port", "x"][..],
            "no such port: 'x'",
        ),
        (
            &["capture", "--write", "/dev/null", "--snap-length", "0"],
            "octets",
        ),
        (
            &["capture", "--write", "/nowhere/f", "--count", "1"],
            "/nowhere/f",
        ),
        (&["trace", "--count", "0"], "1 to 10000"),
        (&["trace", "--for", "50ms"], "no frame matched the filter"),
    ] {
        let output = command(&bench, arguments).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(printed.contains(words), "{arguments:?}: {printed}");
    }
    // Nothing remains of that: another one can begin.
    let again = ["capture", "--write", "/dev/null", "--for", "1ms"];
    output(&mut command(&bench, &again));
}

/// Starts a trace, runs `send`, and returns the trace.
pub(crate) fn trace(bench: &Bench, arguments: &[&str], mut send: impl FnMut()) -> Vec<TraceEvent> {
    let arguments = [&["trace", "--json"], arguments].concat();
    let mut child = command(bench, &arguments).spawn().unwrap();
    // It prints when it has begun.
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.starts_with("tracing"), "{line}");
    // A long trace does not fit the pipe.
    let events = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(events).unwrap());
    send();
    let status = until("the trace ends", || child.try_wait().unwrap());
    let text = reader.join().unwrap();
    assert!(status.success(), "{status}: {text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(crate) fn steps(events: &[TraceEvent], packet: u32) -> Vec<(&str, &str)> {
    let mine = events.iter().filter(|event| event.packet == packet);
    mine.map(|event| (event.step.as_str(), event.what.as_str()))
        .collect()
}

#[test]
fn a_trace_reports_what_each_step_did_with_a_frame() {
    let bench = Bench::start(&["a", "b", "c"], &["--bridge", "lan=a,b,c"]);
    let (mut a, mut b, mut c) = (bench.peer("a"), bench.peer("b"), bench.peer("c"));
    // B is known to be on port b.
    b.send(&[frame([0xff; 6], B, 0)]);
    a.receive(1);
    c.receive(1);
    let to_b = frame(B, A, 1);
    let events = trace(&bench, &["--count", "3", "--port", "a"], || {
        a.send(&[to_b.clone(), frame([0xff; 6], A, 2), frame(A, A, 3)]);
    });
    assert_eq!(b.receive(2).len() + c.receive(1).len(), 3);
    assert_eq!(
        steps(&events, 1),
        [
            ("receive", "on port a, queue 0"),
            ("bridge", "lan from port a: to port b"),
            ("send", "to port b"),
        ]
    );
    assert_eq!(
        steps(&events, 2),
        [
            ("receive", "on port a, queue 0"),
            ("bridge", "lan from port a: flooded to all other ports"),
            ("send", "to port b"),
            ("send", "to port c"),
        ]
    );
    assert_eq!(
        steps(&events, 3),
        [
            ("receive", "on port a, queue 0"),
            (
                "bridge",
                "lan from port a: dropped: hairpin (destination on this port)"
            ),
        ]
    );
    let described = events[0].frame.as_ref().unwrap();
    let words = format!(
        "{} octets, 02:00:00:00:00:01 > 02:00:00:00:00:02",
        to_b.len()
    );
    assert!(described.starts_with(&words), "{described}");
    assert!(
        events
            .iter()
            .all(|event| event.thread == format!("qw-fwd-{}", forwarding_cpu()))
    );
}

#[test]
fn a_trace_follows_frames_through_the_router_and_its_service() {
    let bench = Bench::start(&["a", "b"], &[]);
    for (name, mac, address) in [
        ("a", "02:00:00:00:00:0a", "192.0.2.1/24"),
        ("b", "02:00:00:00:00:0b", "198.51.100.1/24"),
    ] {
        let arguments = [
            "add",
            "interface",
            &format!("{name}0"),
            "--port",
            name,
            "--mac",
            mac,
            "--address",
            address,
        ]
        .map(str::to_owned);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        output(&mut command(&bench, &arguments));
    }
    output(&mut command(
        &bench,
        &[
            "add",
            "neighbour",
            "b0",
            "198.51.100.9",
            "02:00:00:00:00:02",
        ],
    ));
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let packet = |to: [u8; 4], ttl, echo: bool| {
        let builder = etherparse::PacketBuilder::ethernet2(A, [2, 0, 0, 0, 0, 0xa]);
        let builder = builder.ipv4([192, 0, 2, 7], to, ttl);
        let mut frame = Vec::new();
        if echo {
            let builder = builder.icmpv4_echo_request(1, 2);
            builder.write(&mut frame, b"hello").unwrap();
        } else {
            builder.udp(1, 2).write(&mut frame, b"hello").unwrap();
        }
        frame
    };
    let events = trace(&bench, &["--count", "3", "--source", "192.0.2.7"], || {
        a.send(&[
            packet([198, 51, 100, 9], 64, false),
            packet([192, 0, 2, 1], 64, true),
            packet([198, 51, 100, 9], 1, false),
        ]);
    });
    b.receive(1);
    assert_eq!(
        steps(&events, 1),
        [
            ("receive", "on port a, queue 0"),
            (
                "route",
                "from interface a0: out of interface b0 to 02:00:00:00:00:02"
            ),
            ("send", "to port b"),
        ]
    );
    let sent = events.iter().find(|event| event.step == "send").unwrap();
    assert!(
        sent.frame.as_ref().unwrap().contains("hops 63, UDP 1 > 2"),
        "{sent:?}"
    );
    assert_eq!(
        steps(&events, 2),
        [
            ("receive", "on port a, queue 0"),
            ("route", "from interface a0: to the service thread: for-us"),
            ("service", "echo request answered"),
        ]
    );
    assert_eq!(
        steps(&events, 3)[1..],
        [
            (
                "route",
                "from interface a0: to the service thread: time-exceeded"
            ),
            ("service", "ICMP error sent"),
        ]
    );
}

#[test]
fn cycles_are_reported_by_step() {
    let bench = Bench::alone(&["a", "b"], &["--bridge", "lan=a,b"]);
    let (mut a, mut b) = (bench.peer("a"), bench.peer("b"));
    let frames: Vec<Vec<u8>> = (0..200).map(|n| frame(B, A, n)).collect();
    for some in frames.chunks(20) {
        a.send(some);
        assert_eq!(b.receive(some.len()).len(), some.len());
    }
    let report: CyclesReport = bench.show("cycles");
    let of = |name: &str| {
        let step = report.threads[0]
            .steps
            .iter()
            .find(|step| step.step == name);
        step.unwrap().clone()
    };
    for name in ["receive", "bridge", "send"] {
        let step = of(name);
        assert_eq!(step.frames, 200, "{name}");
        assert!(step.bursts >= 4 && step.cycles > 0, "{step:?}");
    }
    assert!(of("idle").cycles > 0);
    let queue = report
        .queues
        .iter()
        .find(|queue| queue.port == "a")
        .unwrap();
    assert_eq!(queue.frames, 200);
    assert_eq!(queue.burst_sizes.iter().sum::<u64>(), of("receive").bursts);
    // The steps account for the whole time. A thread that is off its CPU at either end of an interval changes it by that time: there is an
    // interval without that.
    until("the steps account for an interval", || {
        let mut shown = bench.show_command("cycles");
        let interval = output(shown.args(["--for", "250ms", "--json"]));
        let report: CyclesReport = serde_json::from_str(&interval).unwrap();
        let all: u64 = report.threads[0].steps.iter().map(|step| step.cycles).sum();
        let share = all as f64 / report.hz as f64 / report.uptime_s;
        println!("the steps account for {share} of the time");
        (0.9..1.1).contains(&share).then_some(())
    });
    let text = output(bench.show_command("cycles").args(["--for", "50ms"]));
    assert!(text.contains("idle") && text.contains("33-64"), "{text}");
}
