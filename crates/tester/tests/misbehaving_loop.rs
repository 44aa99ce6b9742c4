// SPDX-License-Identifier: Apache-2.0
//! Real frames through a misbehaving device: the tester must report each fault, and must not compute figures from impossible counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use quietwire_dpdk::Registered;
use quietwire_dpdk::{
    Burst, Eal, EalOptions, HugePages, Mbuf, Mempool, Port, PortOptions, PortUri, StartedPort,
};
use quietwire_packet::update_checksum_u16;
use quietwire_tester::{
    Directions, FrameAccess, FrameSizes, Limits, Preparation, RECEIVE_RING_SIZE, Tester,
    TesterError, TesterIdle, TesterOptions, Trial, TrialResult, Validity,
};

/// Behaviour of the device.
#[repr(u8)]
#[derive(Clone, Copy, Debug)]
enum Habit {
    Forward,
    /// Sends each frame twice.
    Duplicate,
    /// Sends a frame and one more with a sequence number far ahead.
    Invent,
    /// Forwards each frame and sends a copy back to the sending port; every tenth frame goes back only.
    Flood,
    /// Changes the flow number in frames of the counted part.
    Renumber,
    /// Flips one bit near the end of every frame.
    Damage,
    /// Sends every frame back to the sending port.
    Reflect,
    /// Receives frames and sends none.
    Swallow,
    /// Drops the frames received on its right port, and forwards the others.
    SwallowRight,
    /// Closes its ports and ends.
    Unplug,
}

/// Offsets in a frame of 64 octets: UDP checksum, flow, sequence number.
const UDP_CHECKSUM: usize = 40;
const FLOW: usize = 46;
const SEQUENCE: usize = 48;
/// Timeout of a device that does not come back, seconds.
const LIMIT_S: f64 = 0.3;
/// Timeout of a device that comes back, and of one that dies, seconds.
const LONG_S: f64 = 60.0;
/// Longest lifetime of the device.
const LIFE: Duration = Duration::from_secs(300);
/// Timeout until frames come through.
const READY_DEADLINE: Duration = Duration::from_secs(20);

fn open(eal: &Eal, pool: &Mempool, path: &Path, name: &str) -> StartedPort {
    let uri: PortUri = format!("memif:{}?role=client", path.display())
        .parse()
        .unwrap();
    let options = PortOptions::new(name, 1518);
    Port::open(eal, &uri, &options, pool)
        .unwrap()
        .start()
        .unwrap()
}

fn misbehave<'eal>(
    habit: u8,
    number: u64,
    mut frame: Mbuf<'eal>,
    pool: &Mempool,
    on: &mut Burst,
    back: &mut Burst,
) {
    // The checksum is updated as well, so the frame is not damaged.
    let change = |frame: &mut Mbuf<'eal>, at: usize, octet: u8| {
        let octets = frame.octets_mut().unwrap();
        let word = |octets: &[u8], at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let before = word(octets, at & !1);
        octets[at] = octet;
        let after = word(octets, at & !1);
        let checksum = update_checksum_u16(word(octets, UDP_CHECKSUM), before, after);
        octets[UDP_CHECKSUM..UDP_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    };
    let is_learning = frame.octets()[SEQUENCE - 4] % 2 == 1;
    if habit == Habit::Duplicate as u8 {
        drop(on.push(frame.copy(pool).unwrap()));
    } else if habit == Habit::Invent as u8 {
        let mut other = frame.copy(pool).unwrap();
        change(&mut other, SEQUENCE + 2, 0x40);
        drop(on.push(other));
    } else if habit == Habit::Renumber as u8 && !is_learning {
        change(&mut frame, FLOW + 1, 0x7f);
    } else if habit == Habit::Damage as u8 {
        let octets = frame.octets_mut().unwrap();
        let last = octets.len() - 2;
        octets[last] ^= 0x10;
    } else if habit == Habit::Reflect as u8 {
        drop(back.push(frame));
        return;
    } else if habit == Habit::Flood as u8 && !is_learning {
        drop(back.push(frame.copy(pool).unwrap()));
        if number.is_multiple_of(10) {
            return;
        }
    }
    drop(on.push(frame));
}

/// Starts the device: it forwards frames between two ports according to the current habit.
fn device(
    eal: Eal,
    left: &Path,
    right: &Path,
    habit: Arc<AtomicU8>,
    swallowed: Arc<AtomicU64>,
) -> JoinHandle<()> {
    let (left, right) = (left.to_owned(), right.to_owned());
    spawn(move || {
        let pool =
            Mempool::new(&eal, "device", 8192, PortOptions::new("", 1518).data_room()).unwrap();
        let _registered = Registered::new(&eal).unwrap();
        let mut ports = [
            open(&eal, &pool, &left, "l"),
            open(&eal, &pool, &right, "r"),
        ];
        let (mut received, mut on, mut back) =
            (Burst::new(&eal), Burst::new(&eal), Burst::new(&eal));
        let (began, mut number) = (Instant::now(), 0);
        while began.elapsed() < LIFE {
            let habit = habit.load(Ordering::Relaxed);
            if habit == Habit::Unplug as u8 {
                return;
            }
            for side in [0, 1] {
                ports[side].rx[0].receive(&mut received, 16);
                for frame in received.drain() {
                    if habit == Habit::Swallow as u8
                        || (habit == Habit::SwallowRight as u8 && side == 1)
                    {
                        swallowed.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    number += 1;
                    misbehave(habit, number, frame, &pool, &mut on, &mut back);
                }
                for (port, burst) in [(1 - side, &mut on), (side, &mut back)] {
                    ports[port].tx[0].send(burst);
                    burst.free();
                }
            }
            std::thread::yield_now();
        }
    })
}

fn trial() -> Trial {
    Trial {
        drain_s: 0.1,
        directions: Directions::OneWay,
        // Slow enough for a device that shares its CPU.
        ..Trial::new(2e3, 0.1, FrameSizes::Fixed(64))
    }
}

fn reasons(result: &TrialResult) -> String {
    result.validity.text().unwrap_or_default()
}

/// Restarts the device under load. It comes back, or not, or with one direction only.
fn restarts(tester: &mut Tester, habit: &AtomicU8, swallowed: &AtomicU64) {
    let become_ = |next: Habit| habit.store(next as u8, Ordering::Relaxed);
    // Once the device drops frames, no older frames are on their way out of it.
    let die = |next: Habit| {
        let before = swallowed.load(Ordering::Relaxed);
        become_(next);
        let began = Instant::now();
        while swallowed.load(Ordering::Relaxed) == before {
            if began.elapsed().as_secs_f64() > LONG_S {
                return Err("it does not die".to_owned());
            }
            std::thread::yield_now();
        }
        Ok(())
    };
    let both = Trial {
        directions: Directions::Both,
        ..trial()
    };
    for gone in [Habit::Swallow, Habit::SwallowRight] {
        become_(Habit::Forward);
        let observed = tester.outage(&both, LIMIT_S, &mut || die(gone)).unwrap();
        // No figure, and no failure of the tester: the device behaves like this.
        assert_eq!(
            (observed.lost_frames, observed.gap_s),
            (None, None),
            "{gone:?}"
        );
        assert_eq!(observed.validity, Validity::Valid, "{gone:?}");
    }

    become_(Habit::Forward);
    let observed = tester
        .outage(&both, LONG_S, &mut || {
            die(Habit::Swallow)?;
            become_(Habit::Forward);
            Ok(())
        })
        .unwrap();
    assert_eq!(observed.validity, Validity::Valid);
    assert!(
        observed.lost_frames.is_some_and(|lost| lost > 0),
        "{observed:?}"
    );
    let gap_s = observed.gap_s.unwrap();
    assert!(gap_s > 0.0 && gap_s < LONG_S, "{observed:?}");

    let abort = tester.abort_flag();
    let stop = Arc::clone(&abort);
    let error = tester.outage(&both, LONG_S, &mut || {
        die(Habit::Swallow)?;
        stop.store(true, Ordering::Relaxed);
        Ok(())
    });
    assert!(matches!(error, Err(TesterError::Aborted)), "{error:?}");
    abort.store(false, Ordering::Relaxed);
}

/// Asserts that the tester counts what each kind of device did.
fn misbehaves(tester: &mut Tester, habit: &AtomicU8) {
    let mut run = |next: Habit| {
        habit.store(next as u8, Ordering::Relaxed);
        tester.run(&trial()).unwrap()
    };

    let result = run(Habit::Forward);
    assert_eq!(reasons(&result), "");
    assert!(result.received_frames > 0, "{result:?}");

    let result = run(Habit::Duplicate);
    assert!(result.duplicate_frames > 0, "{result:?}");
    assert!(
        result.received_frames <= result.offered_frames,
        "{result:?}"
    );
    assert_eq!(
        result.latency.samples, result.received_frames,
        "first copies only"
    );
    assert_eq!(reasons(&result), "");

    let result = run(Habit::Invent);
    assert!(result.health.phantom_frames > 0, "{result:?}");
    assert!(
        reasons(&result).contains("were never sent"),
        "{:?}",
        result.validity
    );

    let result = run(Habit::Renumber);
    assert_eq!(result.received_frames, 0, "{result:?}");
    assert!(result.health.phantom_frames > 0, "{result:?}");
    assert!(
        reasons(&result).contains("were never sent"),
        "{:?}",
        result.validity
    );

    // Flooded copies do not compensate for the lost tenth.
    let result = run(Habit::Flood);
    assert!(result.lost_frames > 0, "{result:?}");
    let misdirected: u64 = result
        .ports
        .iter()
        .map(|port| port.misdirected_frames)
        .sum();
    assert!(misdirected > 0, "{result:?}");
    assert_eq!(
        result.received_frames + result.lost_frames,
        result.offered_frames
    );

    // Every frame comes back damaged.
    let result = run(Habit::Damage);
    assert_eq!(result.received_frames, 0, "{result:?}");
    assert!(result.damaged_frames > 0, "{result:?}");
    assert_eq!(
        (result.loss_ratio, result.lost_frames),
        (1.0, result.offered_frames)
    );

    // Frames at the port that sent them are lost, unless the trial is reflected.
    let result = run(Habit::Reflect);
    assert_eq!(
        (result.received_frames, result.loss_ratio),
        (0, 1.0),
        "{result:?}"
    );
    assert!(result.ports[0].misdirected_frames > 0, "{result:?}");
    // Such a device is ready, whatever it does with the frames.
    let both_ways = Trial {
        directions: Directions::Both,
        ..trial()
    };
    let is_through = tester.wait_until_through(&both_ways, READY_DEADLINE);
    assert!(is_through.unwrap());
    let reflected = tester
        .run(&Trial {
            reflected: true,
            rate_tolerance_pps: None,
            ..trial()
        })
        .unwrap();
    assert!(reflected.received_frames > 0, "{reflected:?}");
    assert_eq!(reflected.ports[0].misdirected_frames, 0, "{reflected:?}");
}

// One test: the EAL can be started once in a process.
#[test]
fn impossible_results_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let eal = Eal::start(&EalOptions {
        control_cpus: vec![0, 1],
        memory_mib: 192,
        huge_pages: HugePages::Never,
        pci_devices: Vec::new(),
        file_prefix: format!("quietwire-misbehaving-{}", std::process::id()),
    })
    .unwrap();
    let paths = ["left", "right"].map(|name| directory.path().join(name));
    let uri = |path: &Path| -> PortUri {
        format!("memif:{}?role=server", path.display())
            .parse()
            .unwrap()
    };
    let options = TesterOptions {
        cpus: vec![0],
        realtime_priority: None,
        ring_size: 1024,
        receive_ring_size: RECEIVE_RING_SIZE,
        frame_size_max: 1518,
        // The host may be busy, so this test covers only what the device did.
        limits: Limits {
            pacing_miss_ratio: 1.0,
            stretch_ratio: 10.0,
            overrun_s: 60.0,
            clock_error_ratio: 1.0,
        },
        preparation: Preparation::default(),
        idle: TesterIdle::default(),
        frame_access: FrameAccess::default(),
    };
    let ports = [
        ("a".to_owned(), uri(&paths[0])),
        ("b".to_owned(), uri(&paths[1])),
    ];
    let mut tester = Tester::open(&eal, "tester", &ports, options).unwrap();
    let habit = Arc::new(AtomicU8::new(Habit::Forward as u8));
    let swallowed = Arc::new(AtomicU64::new(0));
    let device = device(
        eal.clone(),
        &paths[0],
        &paths[1],
        Arc::clone(&habit),
        Arc::clone(&swallowed),
    );
    tester.wait_for_links(Duration::from_secs(20)).unwrap();
    for access in [FrameAccess::PacketBuffers, FrameAccess::InPlace] {
        tester.set_frame_access(access);
        misbehaves(&mut tester, &habit);
    }
    restarts(&mut tester, &habit, &swallowed);

    // The link goes down during a trial.
    let long = Trial {
        duration_s: 1.0,
        ..trial()
    };
    let unplug = Arc::clone(&habit);
    habit.store(Habit::Forward as u8, Ordering::Relaxed);
    let hand = spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        unplug.store(Habit::Unplug as u8, Ordering::Relaxed);
    });
    let result = tester.run(&long).unwrap();
    hand.join().unwrap();
    device.join().unwrap();
    assert!(
        reasons(&result).contains("lost its link"),
        "{:?}",
        result.validity
    );
    assert!(
        result.ports.iter().any(|port| port.link_losses > 0),
        "{result:?}"
    );
}
