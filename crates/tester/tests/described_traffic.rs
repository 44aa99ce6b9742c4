// SPDX-License-Identifier: Apache-2.0
//! Described traffic over a link between two ports of the tester (memif, or virtio-user to vhost-user), with one and with several threads:
//! every offered frame is counted, and the results of all threads are combined.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};
use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    Directions, FrameAccess, FrameSizes, Limits, Preparation, RECEIVE_RING_SIZE, Tester,
    TesterIdle, TesterOptions, Trial, TrialResult,
};

/// Returns a trial of 0.1 s.
fn trial(rate: f64, traffic: &str) -> Trial {
    let traffic = Traffic::parse(traffic, Path::new("test.toml")).unwrap();
    Trial {
        warm_up_s: 0.02,
        // A thread receives what the other one sends, even if the host stalls one of them.
        drain_s: 0.1,
        low_rate_pps: 100.0,
        ..Trial::new(rate, 0.1, FrameSizes::Fixed(128))
    }
    .with_traffic(traffic)
    .unwrap()
}

/// Both ends of a link: kind of port and options, for the server first.
type Link = [(&'static str, &'static str); 2];

const MEMIF: Link = [("memif", "role=server"), ("memif", "role=client")];
const SPLIT: Link = [("vhost", "role=server"), ("virtio-user", "role=client")];
const PACKED: Link = [
    ("vhost", "role=server"),
    ("virtio-user", "role=client&packed=on"),
];

fn tester(
    eal: &Eal,
    directory: &Path,
    pool: &str,
    cpus: &[u32],
    (queues, [a, b]): (u16, Link),
) -> Tester {
    let socket = directory.join(format!("{pool}.sock"));
    let port = |name: &str, (kind, options): (&str, &str)| {
        let uri = format!("{kind}:{}?{options}&queues={queues}", socket.display());
        (name.to_owned(), uri.parse::<PortUri>().unwrap())
    };
    let options = TesterOptions {
        cpus: cpus.to_vec(),
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 9000,
        // The host may be busy, so this test covers only the counting.
        limits: Limits {
            pacing_miss_ratio: 1.0,
            ..Limits::default()
        },
        // A loop learns nothing: frames that a busy host delays past this time change no count.
        preparation: Preparation {
            learning_s: Some(0.01),
            settle_s: 0.005,
        },
        idle: TesterIdle::default(),
        frame_access: FrameAccess::default(),
    };
    let ports = [port("a", a), port("b", b)];
    let tester = Tester::open(eal, pool, &ports, options).unwrap();
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    tester
}

/// Repeats a trial up to 8 times while the host stalls the tester for more than half of it.
fn run(tester: &mut Tester, trial: &Trial) -> TrialResult {
    let mut runs = (0..8).map(|_| tester.run(trial).unwrap());
    let is_enough = |it: &TrialResult| it.offered_frames * 2 >= it.scheduled_frames;
    runs.find(is_enough).expect("a tester that can send")
}

/// Asserts that only full queues lost frames, and that there are no foreign, damaged or duplicate frames.
fn check(result: &TrialResult) {
    let sum = |part: fn(&quietwire_tester::PortResult) -> u64| -> u64 {
        result.ports.iter().map(part).sum()
    };
    assert!(result.offered_frames > 500, "{result:?}");
    assert_eq!(
        result.lost_frames,
        sum(|port| port.refused_frames),
        "{result:?}"
    );
    assert_eq!(sum(|port| port.received_frames), result.received_frames);
    assert_eq!(sum(|port| port.offered_frames), result.offered_frames);
    assert_eq!(sum(|port| port.foreign_frames), 0, "{result:?}");
    assert_eq!(sum(|port| port.misdirected_frames), 0, "{result:?}");
    assert_eq!((result.damaged_frames, result.duplicate_frames), (0, 0));
    assert_eq!(
        (result.health.phantom_frames, result.health.excess_frames),
        (0, 0)
    );
}

const KINDS: [&str; 4] = [
    "[traffic]\nsizes = [[70, 7], [594, 4], [1518, 1]]\nintegrity = true\nflows = { count = 1000, order = \"zipf\" }\n\
     [traffic.ipv4]\ndestination = { first = \"16.0.0.1\", step = 256, count = 1000 }\n",
    "[traffic]\nsizes = { genome = \"3bc2g\" }\nburst = { frames = 50 }\n\
     [[traffic.vlan]]\nid = { first = 1, count = 100 }\n[traffic.ipv6]\n[traffic.tcp]\n",
    "[traffic]\nshares = [3, 1]\nsizes = 200\n[traffic.vxlan]\nvni = { first = 1, count = 64 }\n[traffic.inner.ipv6]\n",
    "[traffic]\nflows = { count = 70000, order = \"uniform\" }\n[traffic.udp]\nsource = { first = 0, count = 65536 }\n",
];

// One test: the EAL can be started once in a process.
#[test]
fn what_is_described_is_received() {
    let directory = tempfile::tempdir().unwrap();
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        memory_mib: 256,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-described-{}", std::process::id()),
    })
    .unwrap();
    // One thread; two threads with one port each; two threads with one queue pair of both ports each.
    for (pool, cpus, queues, link) in [
        ("one", &[0u32] as &[u32], 1, MEMIF),
        ("ports", &[0, 1], 1, MEMIF),
        ("queues", &[0, 1], 2, MEMIF),
        ("split", &[0], 1, SPLIT),
        ("packed", &[0, 1], 2, PACKED),
    ] {
        let mut tester = tester(&eal, directory.path(), pool, cpus, (queues, link));
        // Frames in the rings, and once in packet buffers.
        let in_buffers = (queues == 2).then_some(FrameAccess::PacketBuffers);
        let accesses = [in_buffers, Some(FrameAccess::InPlace)];
        let kinds = accesses.into_iter().flatten();
        for (access, kind) in kinds.flat_map(|access| KINDS.map(|kind| (access, kind))) {
            tester.set_frame_access(access);
            let result = run(&mut tester, &trial(50e3, kind));
            check(&result);
            assert_eq!(result.reordered_frames, 0, "{result:?}");
            assert_eq!(result.latency.samples, result.received_frames);
            assert!(result.low_rate.received_frames > 0, "{result:?}");
            let [a, b] = [0, 1].map(|port| result.ports[port].offered_frames as f64);
            let expected = if kind.contains("shares") { 3.0 } else { 1.0 };
            // The schedule is exact; a busy host may offer less.
            if result.health.unsent_frames == 0 {
                assert!((a / b - expected).abs() < 0.01, "{a} {b}");
            }
        }
        let plain = Trial {
            traffic: None,
            flows: 7,
            ..trial(50e3, KINDS[0])
        };
        check(&run(&mut tester, &plain));
        // An odd number of frames: two threads share one schedule.
        let odd = Trial {
            offered_rate_pps: 40_005.0,
            duration_s: 0.2,
            directions: Directions::OneWay,
            ..plain.clone()
        };
        let result = run(&mut tester, &odd);
        check(&result);
        assert_eq!(result.scheduled_frames, 8001, "{result:?}");
        assert_eq!(
            result.offered_frames + result.health.unsent_frames,
            result.scheduled_frames
        );
        if queues == 2 {
            let alone = Trial { flows: 1, ..plain };
            let error = tester.run(&alone).unwrap_err().to_string();
            assert!(error.contains("2 queues and 1 flows"), "{error}");
        }
    }

    for (pool, link) in [("replay", MEMIF), ("replay-split", SPLIT)] {
        replayed(&eal, directory.path(), pool, link);
    }
}

fn replayed(eal: &Eal, directory: &Path, pool: &str, link: Link) {
    let path = directory.join("frames.pcap");
    let mut writer = PcapWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for number in 0..100u8 {
        let frame = vec![number; 60 + usize::from(number)];
        let time = Duration::from_micros(100 * u64::from(number));
        let packet = PcapPacket::new(time, frame.len() as u32, &frame);
        writer.write_packet(&packet).unwrap();
    }
    drop(writer);
    let mut tester = tester(eal, directory, pool, &[0], (1, link));
    let file = |rest: &str| {
        format!(
            "[traffic]\ndirections = \"one-way\"\nreplay = {{ file = \"{}\"{rest} }}\n",
            path.display()
        )
    };
    // Each round has 100 frames in 10 ms: 2000 frames in the trial's 0.2 s, or 4000 at twice the speed.
    for (rest, frames) in [
        (", timing = \"file\"", 2000),
        (", timing = \"file\", speed = 2.0", 4000),
        ("", 1000),
    ] {
        let trial = Trial {
            duration_s: 0.2,
            ..trial(5e3, &file(rest))
        };
        let result = run(&mut tester, &trial);
        check(&result);
        assert_eq!(result.scheduled_frames, frames, "{rest}");
        assert_eq!(result.latency.samples, 0);
    }
    std::fs::write(&path, b"no capture").unwrap();
    let traffic = Traffic::parse(&file(""), Path::new("t.toml")).unwrap();
    let plain = trial(5e3, "[traffic]\n");
    let error = plain.with_traffic(traffic).unwrap_err().to_string();
    assert!(
        error.contains("frames.pcap") && error.contains("neither"),
        "{error}"
    );
}
