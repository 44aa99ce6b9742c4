// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::connections::{ClientSide, Connections, ConversationLoad, Flood, Fragments, Illegal};
use crate::trial::FrameSizes;

fn trial(rate_pps: f64) -> Trial {
    Trial {
        warm_up_s: 0.1,
        drain_s: 0.1,
        ..Trial::new(rate_pps, 1.0, FrameSizes::Fixed(64))
    }
}

fn device(text: &str) -> SimulatedDevice {
    SimulatedDevice::new(text.parse().unwrap())
}

#[test]
fn frames_beyond_a_fixed_capacity_are_lost() {
    let mut device = device("capacity=2M");
    let held = device.run(&trial(2e6)).unwrap();
    assert_eq!((held.lost_frames, held.offered_frames), (0, 2_000_000));
    assert_eq!(held.latency.samples, held.received_frames);
    let lost = device.run(&trial(4e6)).unwrap();
    assert_eq!(lost.lost_frames, 2_000_000);
    assert!(lost.latency.mean_ns > held.latency.mean_ns / 2.0);
    assert!(lost.started_unix_ns > held.started_unix_ns);
}

#[test]
fn models_lose_frames_as_configured() {
    let loss = |options: &str, rate_pps| {
        let mut device = device(options);
        let losses: Vec<f64> = (0..400)
            .map(|_| device.run(&trial(rate_pps)).unwrap().loss_ratio)
            .collect();
        losses
    };
    let part = |losses: &[f64]| {
        losses.iter().filter(|loss| **loss > 0.0).count() as f64 / losses.len() as f64
    };
    assert!((part(&loss("capacity=2M,noise=0.1", 2e6)) - 0.5).abs() < 0.1);
    let banded = loss("capacity=2M,band=0.5,band-chance=0.25", 1.5e6);
    assert!((part(&banded) - 0.25).abs() < 0.08);
    assert!(
        banded
            .iter()
            .all(|loss| *loss == 0.0 || (*loss - 1.0 / 3.0).abs() < 1e-6)
    );
    assert!((loss("capacity=2M,degrades=0.5", 3e6)[0] - 0.5).abs() < 1e-6);
    assert!((loss("base-loss=0.001", 1e6)[0] - 0.001).abs() < 1e-9);
    let mut failing = device("invalid=0.3");
    let failed = (0..400).filter(|_| !failing.run(&trial(1e6)).unwrap().is_valid());
    assert!((failed.count() as f64 / 400.0 - 0.3).abs() < 0.1);
}

#[test]
fn more_than_the_link_carries_is_an_invalid_trial() {
    let result = device("line-rate=1M").run(&trial(2e6)).unwrap();
    assert!(!result.is_valid());
    assert_eq!(result.offered_frames, 1_000_000);
    let unpaced = device("line-rate=1M").run_unpaced(&trial(1.0)).unwrap();
    assert!(unpaced.is_valid());
    assert_eq!(unpaced.achieved_rate_pps, 1e6);
}

#[test]
fn bursts_up_to_the_size_of_the_buffer_pass() {
    // The buffer fills at the difference of both rates: at twice the capacity, 2000 frames fill a buffer of 1000.
    let mut device = device("capacity=1M,line-rate=2M,buffer=1000");
    assert_eq!(device.burst(&trial(1.0), 2000).unwrap().lost_frames, 0);
    assert_eq!(device.burst(&trial(1.0), 4000).unwrap().lost_frames, 1000);
}

#[test]
fn recovery_restart_and_addresses_are_those_of_the_options() {
    let mut device =
        device("capacity=1M,recovery=5ms,restart=200ms,addresses=100,learning-rate=1000,noise=0");
    let step = |overload_pps, reduced_pps| StepDown {
        overload_pps,
        overload_s: 1.0,
        reduced_pps,
        reduced_s: 1.0,
    };
    let mut recovered = |step| {
        device
            .step_down(&trial(1.0), step)
            .unwrap()
            .recovered_after_s
    };
    assert_eq!(recovered(step(1.1e6, 0.5e6)), Some(0.005));
    assert_eq!(recovered(step(0.9e6, 0.5e6)), Some(0.0));
    assert_eq!(recovered(step(3e6, 1.5e6)), None);

    let mut restarts = 0;
    let outage = device
        .outage(&trial(1000.0), 1.0, &mut || {
            restarts += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!((restarts, outage.lost_frames), (1, Some(200)));
    let never = device.outage(&trial(1000.0), 0.1, &mut || Ok(())).unwrap();
    assert_eq!(never.lost_frames, None);
    let failed = device.outage(&trial(1000.0), 1.0, &mut || Err("no".to_owned()));
    assert!(matches!(failed, Err(TesterError::Restart(_))));

    let mut flooded = |addresses, rate_pps| {
        device.forget().unwrap();
        device.learn(&trial(rate_pps), addresses).unwrap();
        device
            .probe(&trial(1000.0), addresses)
            .unwrap()
            .flooded_frames
    };
    assert_eq!(flooded(100, 1000.0), 0);
    assert_eq!(flooded(150, 1000.0), 50);
    assert_eq!(flooded(100, 2000.0), 50);
}

fn conversations(load: ConversationLoad) -> ConversationRun {
    ConversationRun {
        description: Connections {
            client: ClientSide {
                count: 16,
                ..ClientSide::default()
            },
            ..Connections::default()
        },
        load,
        duration_s: 1.0,
        drain_s: 1.0,
        pause_s: 0.0,
        answer: None,
    }
}

#[test]
fn a_flood_through_a_simulated_device_is_refused() {
    let mut run = conversations(ConversationLoad::Connections { per_s: 100.0 });
    run.description.flood = Some(Flood {
        rate: 1000.0,
        address: None,
        count: 100,
    });
    let error = device("capacity=2M")
        .converse(&run)
        .unwrap_err()
        .to_string();
    assert!(error.contains("have no flood"), "{error}");
}

#[test]
fn a_simulated_device_forwards_illegal_traffic_and_loses_fragments_as_its_options_say() {
    let mut run = conversations(ConversationLoad::Connections { per_s: 10_000.0 });
    run.description.illegal = Some(Illegal {
        rate: 1000.0,
        address: None,
        count: 100,
        port: None,
    });
    run.description.fragments = Some(Fragments {
        rate: 500.0,
        fragments: 2,
        octets: 512,
        address: None,
        count: 100,
        port: 9,
    });
    let outcome = |options: &str| {
        let outcome = device(options).converse(&run).unwrap();
        let cause = |name: &str| outcome.causes.get(name).copied().unwrap_or(0);
        let causes = (cause("illegal_forwarded"), cause("fragmented_lost"));
        (outcome.failed, causes)
    };
    assert_eq!(outcome(""), (0, (0, 0)));
    assert_eq!(outcome("illegal-forwarded=0.01"), (10, (10, 0)));
    assert_eq!(outcome("fragmented-lost=0.1"), (50, (0, 50)));
    // Traffic beside the connections uses up to 2,000 frames per second of the capacity.
    assert_eq!(outcome("capacity=112k"), (0, (0, 0)));
    assert!(outcome("capacity=111k").0 > 0);
}

#[test]
fn a_stateful_device_accepts_what_its_limits_permit() {
    let failed = |options: &str, load| {
        device(options)
            .converse(&conversations(load))
            .unwrap()
            .failed
    };
    let opened = |per_s| ConversationLoad::Connections { per_s };
    assert_eq!(failed("connection-rate=5000", opened(5_000.0)), 0);
    let over = failed("connection-rate=5000", opened(10_000.0));
    assert!((4_990..=5_000).contains(&over), "{over}");
    // Closed connections fill a small table before they are forgotten.
    assert_eq!(
        failed("connections=1000,closed-timeout=500ms", opened(1_900.0)),
        0
    );
    assert!(failed("connections=1000,closed-timeout=500ms", opened(2_100.0)) > 0);
    let open = |connections| ConversationLoad::Open {
        connections,
        opening_per_s: 10_000.0,
    };
    assert_eq!(failed("connections=3000", open(3_000)), 0);
    assert_eq!(failed("connections=3000", open(3_001)), 1);
    assert_eq!(failed("idle-timeout=400ms", open(100)), 100);
    // Eleven packets of a connection with one transaction, and four of a transaction.
    assert_eq!(failed("capacity=1.1M", opened(100_000.0)), 0);
    assert_eq!(failed("capacity=1.1M", opened(110_000.0)), 10_000);
    let asked = |per_s| ConversationLoad::Transactions {
        connections: 1_000,
        per_s,
    };
    assert_eq!(failed("capacity=400k", asked(100_000.0)), 0);
    assert_eq!(failed("capacity=400k", asked(125_000.0)), 25_000);
    let transfer = ConversationLoad::Transfer {
        connections: 10,
        transactions: 10,
    };
    let carried = device("capacity=4M")
        .converse(&conversations(transfer))
        .unwrap();
    assert_eq!(
        (carried.failed, carried.received_bps),
        (0, 1e6 * 128.0 * 8.0)
    );
}

#[test]
fn a_stateful_device_forgets_between_runs_and_a_link_limits_the_tester() {
    let mut small = device("connections=1000,closed-timeout=2s");
    let mut run = conversations(ConversationLoad::Connections { per_s: 900.0 });
    assert_eq!(small.converse(&run).unwrap().failed, 0);
    // The connections of the first run fill the table.
    assert!(small.converse(&run).unwrap().failed > 0);
    run.pause_s = 5.0;
    let mut small = device("connections=1000,closed-timeout=2s");
    assert_eq!(small.converse(&run).unwrap().failed, 0);
    assert_eq!(small.converse(&run).unwrap().failed, 0);
    let run = conversations(ConversationLoad::Connections { per_s: 2e5 });
    let limited = device("line-rate=1.1M").converse(&run).unwrap();
    assert!(!limited.validity().reasons().is_empty());
    assert_eq!(limited.achieved, Some(1e5));
}

#[test]
fn the_simulated_clock_stands_still_at_its_end() {
    // The third connection is due after 634 years. 64 bits of nanoseconds are 584 years.
    let mut device = device("connection-rate=1e-10");
    for _ in 0..2 {
        let transfer = ConversationLoad::Transfer {
            connections: 10,
            transactions: 10,
        };
        let outcome = device.converse(&conversations(transfer)).unwrap();
        assert_eq!(outcome.attempted, 10);
        assert!(outcome.failed <= outcome.attempted, "{outcome:?}");
    }
    let result = device.run(&trial(1e6)).unwrap();
    assert_eq!(result.started_unix_ns, u64::MAX);
}

#[test]
fn an_abort_ends_a_trial() {
    let mut device = device("");
    device.abort_flag().store(true, Ordering::Relaxed);
    assert!(matches!(device.run(&trial(1.0)), Err(TesterError::Aborted)));
}

#[test]
fn wrong_parameters_are_reported_with_their_key() {
    for (text, key) in [
        ("speed=1", "speed"),
        ("capacity", "capacity"),
        ("capacity=-1", "capacity"),
        ("capacity=1T", "capacity"),
        ("noise=1.5", "noise"),
        ("latency=5", "latency"),
        ("buffer=1.5", "buffer"),
        ("seed=x", "seed"),
    ] {
        assert_eq!(text.parse::<SimOptions>().unwrap_err().key, key, "{text}");
    }
}

proptest! {
    #[test]
    fn options_can_be_written_and_read_again(
        capacity in 1.0f64..1e10, noise in 0.0f64..=1.0, latency in 0.0f64..1.0, seed: u64, addresses: u32,
    ) {
        let options = SimOptions { capacity_pps: capacity, noise, latency_s: latency, seed, addresses, ..SimOptions::default() };
        prop_assert_eq!(options.to_string().parse::<SimOptions>().unwrap(), options);
    }

    #[test]
    fn counts_are_sound_whatever_the_options(
        rate in 1.0f64..2e7, noise in 0.0f64..=1.0, degrades in 0.0f64..=1.0, base_loss in 0.0f64..=1.0, seed: u64,
    ) {
        let mut device = SimulatedDevice::new(SimOptions { noise, degrades, base_loss, seed, ..SimOptions::default() });
        let result = device.run(&trial(rate)).unwrap();
        prop_assert!(result.received_frames <= result.offered_frames);
        prop_assert_eq!(result.lost_frames, result.offered_frames - result.received_frames);
        prop_assert!((0.0..=1.0).contains(&result.loss_ratio));
        prop_assert_eq!(result.latency.samples, result.received_frames);
        let again = SimulatedDevice::new(SimOptions { noise, degrades, base_loss, seed, ..SimOptions::default() }).run(&trial(rate)).unwrap();
        prop_assert_eq!(result, again);
    }
}
