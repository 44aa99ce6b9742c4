// SPDX-License-Identifier: Apache-2.0
//! Bursts, overloads, restarts and address runs over real memif links without a device, with exact frame counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_tester::{
    Directions, FrameAccess, FrameSizes, Limits, Preparation, RECEIVE_RING_SIZE, StepDown, Tester,
    TesterError, TesterIdle, TesterOptions, Trial, Validity,
};

const LIMIT_S: f64 = 20.0;

fn trial(rate: f64, directions: Directions) -> Trial {
    Trial {
        warm_up_s: 0.02,
        drain_s: 0.05,
        directions,
        low_rate_pps: 5.0,
        ..Trial::new(rate, 0.1, FrameSizes::Fixed(64))
    }
}

fn port(directory: &Path, socket: &str, role: &str) -> (String, PortUri) {
    let path = directory.join(socket);
    let uri = format!("memif:{}?role={role}", path.display());
    (format!("{socket}-{role}"), uri.parse().unwrap())
}

fn open(eal: &Eal, pool: &str, ports: &[(String, PortUri)]) -> Tester {
    let options = TesterOptions {
        cpus: vec![0],
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 1518,
        // The host may be busy, so this test covers only the counting.
        limits: Limits {
            pacing_miss_ratio: 1.0,
            stretch_ratio: 1e3,
            overrun_s: 60.0,
            clock_error_ratio: 1.0,
        },
        preparation: Preparation {
            learning_s: Some(0.05),
            settle_s: 0.0,
        },
        idle: TesterIdle::default(),
        frame_access: FrameAccess::default(),
    };
    Tester::open(eal, pool, ports, options).unwrap()
}

/// Asserts that only a busy host made the result invalid.
fn assert_valid_or(validity: &Validity, part: &str) {
    if let Validity::Invalid(reasons) = validity {
        assert!(
            reasons.iter().all(|reason| reason.text.contains(part)),
            "{reasons:?}"
        );
    }
}

fn bursts(tester: &mut Tester) {
    for (frames, directions) in [
        (1, Directions::OneWay),
        (1001, Directions::Both),
        (5000, Directions::OneWay),
        (1000, Directions::Reverse),
    ] {
        let asked = trial(1.0, directions);
        let result = tester.burst(&asked, frames).unwrap();
        assert_eq!(result.trial, asked);
        assert_eq!(
            (result.offered_frames, result.scheduled_frames),
            (frames, frames)
        );
        let refused: u64 = result.ports.iter().map(|port| port.refused_frames).sum();
        assert_eq!(result.lost_frames, refused, "{result:?}");
        assert_eq!(result.low_rate.offered_frames, 0);
        assert_valid_or(&result.validity, "not back to back");
        let of_ports: Vec<u64> = result
            .ports
            .iter()
            .map(|port| port.offered_frames)
            .collect();
        match directions {
            Directions::Both => {
                assert!(of_ports[0].abs_diff(of_ports[1]) == 1, "{of_ports:?}");
            }
            Directions::OneWay => assert_eq!(of_ports, [frames, 0]),
            Directions::Reverse => assert_eq!(of_ports, [0, frames]),
        }
    }
}

fn overload(tester: &mut Tester) {
    let step = StepDown {
        overload_pps: 200e3,
        overload_s: 0.1,
        reduced_pps: 20e3,
        reduced_s: 0.1,
    };
    let observed = tester
        .step_down(&trial(1.0, Directions::Both), step)
        .unwrap();
    assert_valid_or(&observed.validity, "schedule");
    // A loop loses nothing, unless the host preempts the tester for longer than the rings can bridge.
    assert!(
        observed.recovered_after_s.is_none_or(|it| it <= 0.1),
        "{observed:?}"
    );
}

fn restarts(tester: &mut Tester) {
    let mut restarts = 0;
    let observed = tester
        .outage(&trial(50e3, Directions::Both), LIMIT_S, &mut || {
            restarts += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(restarts, 1);
    assert!(observed.lost_frames.is_some());
    assert!(
        observed
            .gap_s
            .is_some_and(|gap_s| gap_s > 0.0 && gap_s < LIMIT_S),
        "{observed:?}"
    );
    let error = tester
        .outage(&trial(50e3, Directions::OneWay), LIMIT_S, &mut || {
            Err("it is nailed down".to_owned())
        })
        .unwrap_err();
    assert!(matches!(&error, TesterError::Restart(_)), "{error}");
    assert!(error.to_string().contains("nailed down"), "{error}");
}

/// Runs procedures with a peer that receives frames and sends none.
fn silence(tester: &mut Tester) {
    let alone = trial(1e3, Directions::OneWay);
    let mut restart = || panic!("restarted although no frame came through before");
    let observed = tester.outage(&alone, LIMIT_S, &mut restart).unwrap();
    assert_eq!((observed.lost_frames, observed.gap_s), (None, None));
    let Validity::Invalid(reasons) = &observed.validity else {
        panic!("{observed:?}");
    };
    assert!(
        reasons[0].text.contains("forwarded no frame"),
        "{reasons:?}"
    );
    let step = StepDown {
        overload_pps: 2e3,
        overload_s: 0.05,
        reduced_pps: 1e3,
        reduced_s: 0.05,
    };
    let observed = tester.step_down(&alone, step).unwrap();
    assert_eq!(observed.recovered_after_s, None);
    let result = tester.burst(&alone, 100).unwrap();
    assert_eq!(result.lost_frames, 100);
    assert_eq!(result.validity, Validity::Valid);
}

/// Runs address procedures with a third port that is connected and receives nothing.
fn addresses(tester: &mut Tester) {
    let validity = tester
        .learn(&trial(200e3, Directions::OneWay), 3000)
        .unwrap();
    assert_valid_or(&validity, "took");
    let observed = tester.probe(&trial(200e3, Directions::Both), 3000).unwrap();
    assert_eq!(
        (observed.flooded_frames, observed.lost_frames),
        (0, 0),
        "{observed:?}"
    );
    assert_eq!(observed.validity, Validity::Valid);
    // Other trials do not use the third port.
    let result = tester.run(&trial(10e3, Directions::Both)).unwrap();
    assert_eq!(result.ports.len(), 2);
}

// One test: the EAL can be started once in a process.
#[test]
fn procedures_count_every_frame() {
    let directory = tempfile::tempdir().unwrap();
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0],
        memory_mib: 192,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-procedures-{}", std::process::id()),
    })
    .unwrap();
    let port = |socket: &str, role: &str| port(directory.path(), socket, role);
    let pair = [port("loop", "server"), port("loop", "client")];
    let mut tester = open(&eal, "two", &pair);
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    bursts(&mut tester);
    overload(&mut tester);
    restarts(&mut tester);
    let error = tester
        .learn(&trial(1e3, Directions::OneWay), 5)
        .unwrap_err();
    assert!(error.to_string().contains("require three"), "{error}");
    drop(tester);

    let mut three = pair.to_vec();
    three.push(port("monitor", "server"));
    let mut tester = open(&eal, "three", &three);
    let other = open(&eal, "other", &[port("monitor", "client")]);
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    addresses(&mut tester);
    drop((tester, other));

    let mut tester = open(&eal, "alone", &[port("quiet", "server")]);
    let other = open(&eal, "mute", &[port("quiet", "client")]);
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    silence(&mut tester);
    drop(other);
}
