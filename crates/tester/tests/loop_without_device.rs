// SPDX-License-Identifier: Apache-2.0
//! Real frames over a real memif link between two ports of the tester: every offered frame is counted. Requires two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    CalibrationOptions, Calibrations, Directions, FrameAccess, FrameSizes, IpVersion, LatencyStart,
    Limits, Preparation, RECEIVE_RING_SIZE, Step, Tester, TesterError, TesterIdle, TesterOptions,
    Trial, TrialResult,
};

/// Duration of a trial, seconds: at the lowest rate, 500 frames.
const DURATION_S: f64 = 0.1;

fn trial(rate: f64, sizes: FrameSizes, directions: Directions) -> Trial {
    Trial {
        warm_up_s: 0.05,
        // One thread has both ends of the link, and empties their rings at the end, even after a stall.
        drain_s: 0.02,
        directions,
        flows: 3,
        mac_addresses: 100,
        low_rate_pps: 5.0,
        ..Trial::new(rate, DURATION_S, sizes)
    }
}

/// Both ends of a link: kind of port and options, for the server first.
const MEMIF: [(&str, &str); 2] = [("memif", "role=server"), ("memif", "role=client")];

/// CPUs of the testers that count frames of each size, and of the tester for everything else. Both run at the same time.
const SIZES_CPU: u32 = 1;
const FIRST_CPU: u32 = 0;

/// Allows one thread at a time to open or close ports: no lock protects DPDK's list of devices.
fn ports_change() -> MutexGuard<'static, ()> {
    static PORTS: Mutex<()> = Mutex::new(());
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(tester: Tester) {
    let _ports_change = ports_change();
    drop(tester);
}

fn tester(eal: &Eal, directory: &Path, pool: &str, access: FrameAccess, cpu: u32) -> Tester {
    linked_tester(eal, directory, pool, access, cpu, MEMIF)
}

fn linked_tester(
    eal: &Eal,
    directory: &Path,
    pool: &str,
    access: FrameAccess,
    cpu: u32,
    [a, b]: [(&str, &str); 2],
) -> Tester {
    let socket = directory.join(format!("{pool}.sock"));
    let port = |name: &str, (kind, options): (&str, &str)| {
        let uri: PortUri = format!("{kind}:{}?{options}", socket.display())
            .parse()
            .unwrap();
        (name.to_owned(), uri)
    };
    let options = TesterOptions {
        cpus: vec![cpu],
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 9000,
        // The host may be busy, so this test covers only the counting.
        limits: Limits {
            pacing_miss_ratio: 1.0,
            stretch_ratio: 10.0,
            overrun_s: 60.0,
            clock_error_ratio: 1.0,
        },
        // A loop learns nothing: frames that a busy host delays past this time change no count.
        preparation: Preparation {
            learning_s: Some(0.01),
            settle_s: 0.005,
        },
        idle: TesterIdle::default(),
        frame_access: access,
    };
    let ports = [port("a", a), port("b", b)];
    let tester = {
        let _ports_change = ports_change();
        Tester::open(eal, pool, &ports, options).unwrap()
    };
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    tester
}

/// Runs a trial, at most 32 times, until the tester offers at least half of the frames and gives a median. A tester that stalls reports
/// it, and has too few frames for the figures, or none that the part of the schedule that it missed could not change.
fn run_unhindered(tester: &mut Tester, trial: &Trial) -> TrialResult {
    let mut runs = (0..32).map(|_| tester.run(trial).unwrap());
    let has_median = |it: &TrialResult| it.latency.samples == 0 || it.latency.p50_ns.is_some();
    let is_enough =
        |it: &TrialResult| it.offered_frames * 2 >= it.scheduled_frames && has_median(it);
    runs.find(is_enough).expect("a tester that can send")
}

/// Asserts that the latency figures are consistent.
fn assert_latency(result: &TrialResult) {
    let (latency, variation) = (&result.latency, &result.variation);
    assert!(latency.min_ns > 0 && latency.min_ns <= latency.p50_ns.unwrap());
    let percentiles = latency.percentiles();
    assert!(percentiles.iter().flatten().is_sorted());
    assert!(percentiles.iter().flatten().all(|p| *p <= latency.max_ns));
    // A percentile requires ten frames beyond it.
    assert!(latency.samples < 100_000);
    assert_eq!(latency.p99_99_ns, None);
    assert_eq!(variation.pdv.samples, latency.samples);
    assert_eq!(variation.pdv.min_ns, 0);
    assert!(variation.pdv.max_ns <= latency.max_ns - latency.min_ns);
    // Three flows on each sending side, without the frames of the low-rate stream.
    let sides = 1 + u64::from(result.ports[1].offered_frames > 0);
    let low_rate = &result.low_rate;
    assert!(
        (sides..=3 * sides).contains(&low_rate.offered_frames),
        "{low_rate:?}"
    );
    assert_eq!(low_rate.latency.samples, low_rate.received_frames);
    assert_eq!(low_rate.variation.pdv.samples, low_rate.received_frames);
    assert_eq!(
        low_rate.variation.ipdv.samples + low_rate.variation.ipdv.undefined,
        low_rate.offered_frames - sides
    );
    assert_eq!(low_rate.latency.p50_ns, None, "too few frames");
    let ipdv = &variation.ipdv;
    assert_eq!(
        ipdv.samples + ipdv.undefined,
        result.offered_frames - low_rate.offered_frames - 3 * sides
    );
    if result.lost_frames == 0 {
        assert_eq!(ipdv.undefined, 0);
    }
    assert!(ipdv.min_ns <= 0 && ipdv.max_ns >= 0, "{ipdv:?}");
    assert!(ipdv.max_ns.unsigned_abs() <= latency.max_ns);
}

/// Asserts that a tester can be calibrated, and that trials cite the calibration.
fn calibrate(tester: &mut Tester, directory: &Path) {
    let options = CalibrationOptions {
        frame_sizes: vec![FrameSizes::Fixed(64), FrameSizes::Imix],
        directions: Directions::OneWay,
        ip: IpVersion::V4,
        traffic: None,
        warm_up_s: 0.01,
        search_s: 0.05,
        pacing_s: 0.05,
        // A busy host may have no clean rate: then further rates take time, and show nothing.
        steps: 0,
    };
    let mut sizes = 0;
    let calibration = tester
        .calibrate(&options, |step| {
            sizes += usize::from(matches!(step, Step::Size(_)));
        })
        .unwrap();
    assert_eq!((sizes, calibration.sizes.len()), (2, 2));
    assert_eq!(calibration.tester, tester.kind());
    assert_eq!(calibration.tester.ports, ["memif", "memif"]);
    assert!(calibration.timestamp_ns > 0.0 && calibration.clock_span_s > 0.2);
    for size in &calibration.sizes {
        assert!(size.unpaced_pps >= size.clean_rate_pps && size.trials >= 2);
        // A busy host may have no clean rate.
        if size.clean_rate_pps > 0.0 {
            assert_eq!(size.pacing.len(), 3);
            assert!(size.latency_floor.min_ns > 0 && size.generate_cycles > 0.0);
        }
    }
    let path = directory.join("calibration.json");
    let mut all = Calibrations::default();
    all.add(calibration.clone());
    all.write(&path).unwrap();
    assert!(tester.cite(&Calibrations::read(&path).unwrap()));
    let result = tester
        .run(&trial(1e3, FrameSizes::Fixed(64), Directions::OneWay))
        .unwrap();
    let cited = result.calibration.unwrap();
    assert_eq!(cited.clean_rate_pps, calibration.sizes[0].clean_rate_pps);
    assert_eq!(cited.is_exceeded, cited.clean_rate_pps < 1e3);
    let other = trial(1e3, FrameSizes::Fixed(1518), Directions::OneWay);
    assert_eq!(tester.run(&other).unwrap().calibration, None);
    assert!(!tester.cite(&Calibrations::default()));
    calibrate_others(tester, all);
}

/// Asserts that IPv6 frames and described frames can be calibrated as well, in addition to the others.
fn calibrate_others(tester: &mut Tester, mut all: Calibrations) {
    let described =
        "[traffic]\nsizes = 128\nintegrity = true\n[traffic.flows]\ncount = 64\norder = \"zipf\"\n";
    let described = Traffic::parse(described, Path::new("t.toml")).unwrap();
    let base = CalibrationOptions {
        frame_sizes: vec![FrameSizes::Fixed(84)],
        directions: Directions::OneWay,
        ip: IpVersion::V6,
        traffic: None,
        warm_up_s: 0.01,
        search_s: 0.03,
        pacing_s: 0.03,
        steps: 0,
    };
    let of_traffic = CalibrationOptions {
        ip: IpVersion::V4,
        traffic: Some(described.clone()),
        ..base.clone()
    };
    for options in [&base, &of_traffic] {
        let calibration = tester.calibrate(options, |_| ()).unwrap();
        assert_eq!(calibration.sizes.len(), 1);
        assert!(calibration.sizes[0].generate_cycles > 0.0);
        all.add(calibration);
    }
    assert!(tester.cite(&all));
    let plain = trial(1e3, FrameSizes::Fixed(64), Directions::OneWay);
    let ipv6 = Trial {
        ip: IpVersion::V6,
        ..trial(1e3, FrameSizes::Fixed(84), Directions::OneWay)
    };
    let with_traffic = plain.clone().with_traffic(described).unwrap();
    for asked in [&plain, &ipv6, &with_traffic] {
        let result = tester.run(asked).unwrap();
        assert!(result.calibration.is_some(), "{asked:?}");
        assert_eq!(
            result.calibration,
            tester.cited(asked, result.achieved_rate_pps)
        );
    }
    assert!(!tester.cite(&Calibrations::default()));
    for text in [
        "[traffic]\nreplay = { file = \"absent.pcap\" }\n",
        "[traffic]\nburst = { frames = 4, gap-us = 100.0 }\n",
    ] {
        let traffic = Traffic::parse(text, Path::new("t.toml")).unwrap();
        let options = CalibrationOptions {
            traffic: Some(traffic),
            ..base.clone()
        };
        let error = tester.calibrate(&options, |_| ()).unwrap_err();
        assert!(matches!(error, TesterError::BadTrial(_)), "{error}");
    }
}

/// Checks the counts of frames of each size in one direction and in both.
fn check_counts(tester: &mut Tester, directions: &[Directions]) {
    for (sizes, rate) in [
        (FrameSizes::Fixed(64), 200e3),
        (FrameSizes::Fixed(1518), 50e3),
        (FrameSizes::Fixed(9000), 5e3),
        (FrameSizes::Imix, 50e3),
    ] {
        for &directions in directions {
            let result = run_unhindered(tester, &trial(rate, sizes, directions));
            let asked = rate * DURATION_S;
            assert!(result.is_valid(), "{:?}", result.validity);
            assert!(
                (result.scheduled_frames as f64 - asked).abs() <= 2.0,
                "{result:?}"
            );
            assert_eq!(
                result.offered_frames + result.health.unsent_frames,
                result.scheduled_frames
            );
            assert_eq!(
                result.received_frames + result.lost_frames,
                result.offered_frames
            );
            assert_eq!(
                result.lost_frames,
                result
                    .ports
                    .iter()
                    .map(|port| port.refused_frames)
                    .sum::<u64>(),
                "{result:?}"
            );
            assert_eq!((result.duplicate_frames, result.reordered_frames), (0, 0));
            assert_eq!(result.latency.samples, result.received_frames);
            assert_latency(&result);
            let health = &result.health;
            assert_eq!((health.phantom_frames, health.excess_frames), (0, 0));
            let sending = result.ports.iter().filter(|port| port.offered_frames > 0);
            assert_eq!(
                health.burst_gaps.samples + health.stalled_gaps.samples,
                health.bursts - sending.count() as u64
            );
            assert!(health.burst_time_ns > 0.0);
            assert!(result.ports.iter().all(|port| port.link_losses == 0));
            assert_eq!(
                result
                    .ports
                    .iter()
                    .map(|port| port.foreign_frames)
                    .sum::<u64>(),
                0
            );
            let idle = result.ports[1].offered_frames == 0;
            assert_eq!(idle, directions == Directions::OneWay);
        }
    }
}

/// Checks that a trial does not wait for the end of its drain once every frame has arrived.
fn ends_when_complete(tester: &mut Tester) {
    let trial = Trial {
        drain_s: 3600.0,
        ..trial(5e3, FrameSizes::Fixed(64), Directions::Both)
    };
    let abort = tester.abort_flag();
    let (ended, end) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if end.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            abort.store(true, Ordering::Relaxed);
        }
    });
    tester.set_ends_when_complete(true);
    let result = tester.run(&trial);
    drop(ended);
    watch.join().unwrap();
    tester.set_ends_when_complete(false);
    let result = result.expect("a trial that ends by itself");
    assert!(result.offered_frames > 0, "{result:?}");
    assert_eq!(result.received_frames, result.offered_frames, "{result:?}");
}

// One test: the EAL can be started once in a process.
#[test]
fn what_is_offered_is_received() {
    let directory = tempfile::tempdir().unwrap();
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        // For the buffers of two testers.
        memory_mib: 384,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-test-{}", std::process::id()),
    })
    .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sizes_are_counted(&eal, directory.path()));
        one_loop_is_enough(&eal, directory.path());
    });
}

/// Counts frames of each size on each kind of link, with each access to frames.
fn sizes_are_counted(eal: &Eal, directory: &Path) {
    for access in [FrameAccess::PacketBuffers, FrameAccess::InPlace] {
        let mut tester = tester(eal, directory, "sizes", access, SIZES_CPU);
        check_counts(&mut tester, &[Directions::OneWay, Directions::Both]);
        close(tester);
    }
    for (number, options) in [
        "role=client",
        "role=client&packed=on",
        "role=client&mergeable=on",
    ]
    .into_iter()
    .enumerate()
    {
        let link = [("vhost", "role=server"), ("virtio-user", options)];
        let pool = format!("guest{number}");
        let access = FrameAccess::InPlace;
        let mut tester = linked_tester(eal, directory, &pool, access, SIZES_CPU, link);
        check_counts(&mut tester, &[Directions::Both]);
        close(tester);
    }
}

/// Checks everything for which one link is enough: latencies, single directions, IPv6, calibrations, errors.
fn one_loop_is_enough(eal: &Eal, directory: &Path) {
    let mut tester = tester(eal, directory, "first", FrameAccess::InPlace, FIRST_CPU);
    // Even with half of the frames, twelve lie beyond the 99.99th percentile.
    let long = Trial {
        duration_s: 1.2,
        ..trial(200e3, FrameSizes::Fixed(64), Directions::OneWay)
    };
    let result = run_unhindered(&mut tester, &long);
    let latency = &result.latency;
    assert!(latency.samples >= 100_000, "{result:?}");
    let p50_ns = latency.p50_ns.unwrap();
    assert!(p50_ns <= latency.max_ns, "{latency:?}");
    match latency.p99_99_ns {
        Some(p99_99_ns) => assert!(
            p50_ns <= p99_99_ns && p99_99_ns <= latency.max_ns,
            "{latency:?}"
        ),
        // The tester left out frames beyond the percentile, or sent them late.
        None => {
            let health = &result.health;
            let missed = health.unsent_frames + health.late_frames;
            let allowed = result.scheduled_frames as f64 * 0.9e-4;
            assert!(missed as f64 >= allowed, "{result:?}");
        }
    }
    let since_due = Trial {
        latency_start: LatencyStart::Due,
        ..long
    };
    let result = run_unhindered(&mut tester, &since_due);
    let latency = &result.latency;
    assert!(latency.min_ns > 0, "{latency:?}");
    let unsent = result.health.unsent_frames as f64;
    if unsent < result.scheduled_frames as f64 * 0.9e-4 {
        // Frames sent late are among the samples.
        let p99_99_ns = latency.p99_99_ns.expect("enough frames");
        assert!(p99_99_ns <= latency.max_ns, "{latency:?}");
    }

    let reverse = trial(50e3, FrameSizes::Fixed(64), Directions::Reverse);
    let result = run_unhindered(&mut tester, &reverse);
    let sends = result.ports.iter().map(|port| port.offered_frames > 0);
    assert_eq!(Vec::from_iter(sends), [false, true]);
    assert_eq!(
        result.received_frames + result.lost_frames,
        result.offered_frames
    );
    let limit = Duration::from_secs(10);
    assert!(tester.wait_until_through(&reverse, limit).unwrap());

    let ipv6 = Trial {
        ip: IpVersion::V6,
        destinations: 1000,
        ..trial(50e3, FrameSizes::Fixed(84), Directions::Both)
    };
    let result = tester.run(&ipv6).unwrap();
    assert!(result.offered_frames > 0, "{result:?}");
    let refused: u64 = result.ports.iter().map(|port| port.refused_frames).sum();
    assert_eq!(result.lost_frames, refused, "{result:?}");
    assert_eq!((result.duplicate_frames, result.reordered_frames), (0, 0));
    let error = tester
        .run(&Trial {
            frame_sizes: FrameSizes::Imix,
            ..ipv6
        })
        .unwrap_err();
    assert!(
        error.to_string().contains("IPv6 frames require 84"),
        "{error}"
    );

    let unpaced = tester
        .run_unpaced(&trial(1.0, FrameSizes::Fixed(64), Directions::OneWay))
        .unwrap();
    assert_eq!(unpaced.health.unsent_frames, 0);
    assert_eq!(unpaced.scheduled_frames, unpaced.offered_frames);
    assert!(unpaced.offered_frames > 10_000, "{unpaced:?}");

    ends_when_complete(&mut tester);
    calibrate(&mut tester, directory);

    let error = tester
        .run(&trial(f64::NAN, FrameSizes::Fixed(64), Directions::Both))
        .unwrap_err();
    assert!(error.to_string().contains("offered_rate_pps"), "{error}");
    let error = tester
        .run(&trial(1.0, FrameSizes::Fixed(63), Directions::Both))
        .unwrap_err();
    assert!(error.to_string().contains("frame size"), "{error}");

    tester.abort_flag().store(true, Ordering::Relaxed);
    assert!(
        tester
            .run(&trial(1e3, FrameSizes::Fixed(64), Directions::Both))
            .is_err()
    );

    // The ports are released with the tester, so their sockets can be created again.
    close(tester);
    assert!(!directory.join("first.sock").exists());
    let again = self::tester(eal, directory, "first", FrameAccess::InPlace, FIRST_CPU);
    close(again);

    // Without a peer, there is an error instead of a hang.
    let options = || TesterOptions {
        cpus: vec![FIRST_CPU],
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 1518,
        limits: Limits::default(),
        preparation: Preparation::default(),
        idle: TesterIdle::default(),
        frame_access: FrameAccess::default(),
    };
    let port = |role: &str| -> (String, PortUri) {
        let path = directory.join("nobody.sock");
        (
            "a".to_owned(),
            format!("memif:{}?role={role}", path.display())
                .parse()
                .unwrap(),
        )
    };
    let _ports_change = ports_change();
    let error = Tester::open(eal, "lonely", &[port("client")], options()).unwrap_err();
    assert!(error.to_string().contains("start the peer"), "{error}");
    let lonely = Tester::open(eal, "lonely", &[port("server")], options()).unwrap();
    let error = lonely
        .wait_for_links(Duration::from_millis(50))
        .unwrap_err();
    assert!(error.to_string().contains("no link on a"), "{error}");
}
