// SPDX-License-Identifier: Apache-2.0
//! Flows over the receive queues of cards, and the order of their frames.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quietwire_base::Deadline;
use serde_json::Value;

use crate::guest::Model::{E1000e, Igb, VirtioRss, Vmxnet3};
use crate::guest::{CardGuest, repeat_if_qemu_fails};
use crate::wire::{Carried, Frame, flow_and_sequence};
use crate::{DEADLINE, frames, ports};

/// Flows of an even spread, of both directions, and of a queue that moves.
const FLOWS: u32 = 10_000;
const SOME_FLOWS: u32 = 2_000;
const FEW_FLOWS: u32 = 200;
/// Flows whose frames alternate: several frames of each are under way at the same time.
const ALTERNATING: u32 = 16;
/// Frames under way: a window takes a time that emulation makes long. Rings have at least 256 descriptors, and the socket of the relay has
/// space for 250 frames.
const WINDOW: usize = 128;
/// Time without any frame after which frames count as missing. Emulated CPUs may stand still for seconds if the machine is busy.
const SILENCE: Duration = Duration::from_secs(30);
/// Timeout for the counters of frames that have arrived: a thread counts the frames of a burst when it has forwarded them.
const COUNTED: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);
/// Largest difference between the frames of a queue and their mean, as a share of the mean.
const TOLERANCE: f64 = 0.2;
/// Forwarding CPUs of the switch in the guest.
const CPUS: [u64; 2] = [1, 2];
/// Automatic rebalancing at the low loads of an emulated card.
const REBALANCE: &str = "[rebalance]\nthreshold = 0.0001\nimprovement = 0.00001\n";

/// A receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queue {
    /// CPU of the thread that serves it.
    cpu: u64,
    frames: u64,
}

/// Receive queues of a port by number.
type Queues = BTreeMap<u64, Queue>;

/// Returns the queues of a port.
fn queues(guest: &mut CardGuest, port: &str) -> Queues {
    let queues = guest.show("queues");
    let number =
        |queue: &Value, key: &str| queue[key].as_u64().unwrap_or_else(|| panic!("{queue}"));
    let of_port = queues.iter().filter(|queue| queue["port"] == port);
    of_port
        .map(|queue| {
            let [cpu, frames] = ["cpu", "frames"].map(|key| number(queue, key));
            (number(queue, "queue"), Queue { cpu, frames })
        })
        .collect()
}

/// Returns the queues of a port with the frames that each has received since `before`.
fn received_until_now(guest: &mut CardGuest, port: &str, before: &Queues) -> Queues {
    let mut received = queues(guest, port);
    for (number, queue) in &mut received {
        queue.frames -= before.get(number).map_or(0, |former| former.frames);
    }
    received
}

/// The same, once these are at least `count` frames.
fn received_since(guest: &mut CardGuest, port: &str, before: &Queues, count: u32) -> Queues {
    let mut received = Queues::new();
    let is_counted = Deadline::after(COUNTED).poll(POLL, || {
        received = received_until_now(guest, port, before);
        (sum(&received) >= u64::from(count)).then_some(())
    });
    assert!(
        is_counted.is_some(),
        "port '{port}' has counted {} of {count} frames within {COUNTED:?}: {}",
        sum(&received),
        described(&received)
    );
    received
}

fn sum(queues: &Queues) -> u64 {
    queues.values().map(|queue| queue.frames).sum()
}

fn counts(queues: &Queues) -> Vec<u64> {
    queues.values().map(|queue| queue.frames).collect()
}

/// Describes each queue, for failures.
fn described(queues: &Queues) -> String {
    let describe = |(number, queue): (&u64, &Queue)| {
        format!("queue {number} on CPU {}: {}", queue.cpu, queue.frames)
    };
    let described: Vec<String> = queues.iter().map(describe).collect();
    described.join(", ")
}

/// Checks that a port has so many queues, and that each forwarding CPU serves some of them.
fn all_cpus_serve(queues: &Queues, count: usize) {
    let cpus: BTreeSet<u64> = queues.values().map(|queue| queue.cpu).collect();
    assert!(
        queues.len() == count && cpus == BTreeSet::from(CPUS),
        "{} queues on CPUs {cpus:?} instead of {count} on {CPUS:?}: {}",
        queues.len(),
        described(queues)
    );
}

/// Returns the first queue whose frames differ too much from the mean, and that mean.
fn uneven_queue(queues: &Queues) -> Option<(u64, f64)> {
    let mean = sum(queues) as f64 / queues.len() as f64;
    let is_uneven = |queue: &Queue| (queue.frames as f64 - mean).abs() > TOLERANCE * mean;
    let uneven = queues.iter().find(|entry| is_uneven(entry.1));
    uneven.map(|(number, _)| (*number, mean))
}

/// Checks that the frames of each queue are near the mean.
fn spread_is_even(queues: &Queues) {
    if let Some((number, mean)) = uneven_queue(queues) {
        panic!(
            "queue {number} is more than {:.0} % away from the mean of {mean:.0} frames: {}",
            TOLERANCE * 100.0,
            described(queues)
        );
    }
}

/// The frames of several flows that have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Arrival {
    frames: usize,
    /// Flows of which every frame has arrived.
    complete_flows: u32,
    /// Frames that arrived after a later one of their flow, or again.
    out_of_order: u32,
    /// The first of them: its flow and sequence number, and the number after the highest one before it.
    first_out_of_order: Option<(u32, u32, u32)>,
}

/// Evaluates frames of flows with so many sequence numbers each. A frame that is missing makes no later one count as out of order.
fn arrival(frames: &[Vec<u8>], sequences: u32) -> Arrival {
    let mut arrival = Arrival {
        frames: frames.len(),
        ..Arrival::default()
    };
    let mut flows: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for frame in frames {
        let (flow, sequence) = flow_and_sequence(frame);
        let (next, count) = flows.entry(flow).or_default();
        *count += 1;
        if sequence >= *next {
            *next = sequence + 1;
        } else {
            arrival.out_of_order += 1;
            let first = arrival.first_out_of_order;
            arrival.first_out_of_order = first.or(Some((flow, sequence, *next)));
        }
    }
    let complete = flows.values().filter(|(_, count)| *count == sequences);
    arrival.complete_flows = u32::try_from(complete.count()).unwrap();
    arrival
}

/// Returns frames of flows. Those of a flow follow each other closely.
fn frames_of_flows(flows: u32, sequences: u32, is_answer: bool) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for first in (0..flows).step_by(ALTERNATING as usize) {
        for sequence in 0..sequences {
            for flow in first..flows.min(first + ALTERNATING) {
                let frame = Frame {
                    is_answer,
                    ..Frame::of(flow, sequence)
                };
                frames.push(frame.octets());
            }
        }
    }
    frames
}

/// Sends frames of flows to the first card, and checks that each flow arrives complete and in order at the second one.
fn flows_arrive_in_order(guest: &mut CardGuest, flows: u32, sequences: u32, is_answer: bool) {
    let sent = frames_of_flows(flows, sequences, is_answer);
    let before = queues(guest, "a");
    let Carried {
        frames,
        lost,
        duration,
    } = guest.wires[0].carry_within(&guest.wires[1], &sent, WINDOW, SILENCE);
    let arrived = arrival(&frames, sequences);
    let expected = Arrival {
        frames: sent.len(),
        complete_flows: flows,
        ..Arrival::default()
    };
    if lost == 0 && arrived == expected {
        return;
    }
    // The counters show the place: a queue without frames, a thread that does not send, a card that drops.
    let received = received_until_now(guest, "a", &before);
    let counters = guest.run(
        "quietwire switch show queues; quietwire switch show stats; quietwire switch show ports --json",
    );
    panic!(
        "{} frames of {flows} flows, {lost} missing after {duration:?}, {} out of order: {arrived:?}; port 'a' received {} frames, {}; \
         {}\n{counters}",
        sent.len(),
        arrived.out_of_order,
        sum(&received),
        described(&received),
        guest.relay_states()
    );
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn flows_spread_evenly_over_the_queues_of_igb_and_stay_in_order() {
    const SEQUENCES: u32 = 2;
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        guest.bind_all();
        guest.switch(&ports(&guest, "?queues=4"), "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        let before = queues(&mut guest, "a");
        all_cpus_serve(&before, 4);
        flows_arrive_in_order(&mut guest, FLOWS, SEQUENCES, false);
        let received = received_since(&mut guest, "a", &before, FLOWS * SEQUENCES);
        assert_eq!(sum(&received), u64::from(FLOWS * SEQUENCES));
        spread_is_even(&received);
        flows_arrive_in_order(&mut guest, FEW_FLOWS, 10, false);
        // A queue that moves takes its flows with it.
        let (queue, cpu) = before
            .iter()
            .map(|(number, queue)| (*number, queue.cpu))
            .next()
            .unwrap();
        let other = CPUS.into_iter().find(|other| *other != cpu).unwrap();
        set_queue(&mut guest, queue, other);
        let moved = queues(&mut guest, "a");
        assert_eq!(moved[&queue].cpu, other, "{}", described(&moved));
        all_queues_receive(&mut guest);
        entries_move(&mut guest);
        busy_queues_move(&mut guest);
        guest.stop_switch();
    });
}

/// Moves a queue of the first card to another CPU.
fn set_queue(guest: &mut CardGuest, queue: u64, cpu: u64) {
    guest.run(&format!("quietwire switch set queue a {queue} --cpu {cpu}"));
}

/// Checks that flows arrive in order, and that each queue of the first card receives some of them.
fn all_queues_receive(guest: &mut CardGuest) {
    const SEQUENCES: u32 = 10;
    let before = queues(guest, "a");
    flows_arrive_in_order(guest, FEW_FLOWS, SEQUENCES, false);
    let received = received_since(guest, "a", &before, FEW_FLOWS * SEQUENCES);
    let is_in_use = received.values().all(|queue| queue.frames > 0);
    assert!(is_in_use, "{}", described(&received));
}

/// Moves half of the flows of a queue of the first card to its next queue. Checks that the next queue then receives three times as much, and
/// that flows stay complete and in order.
fn entries_move(guest: &mut CardGuest) {
    const SEQUENCES: u32 = 2;
    let entries = |guest: &mut CardGuest| -> Vec<u64> {
        let queues = guest.show("queues");
        let of_port = queues.iter().filter(|queue| queue["port"] == "a");
        of_port
            .map(|queue| {
                queue["entries"]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{queue}"))
            })
            .collect()
    };
    assert_eq!(entries(guest), [32; 4]);
    guest.run("quietwire switch set queue a 0 --to-queue 1 --entries 16");
    assert_eq!(entries(guest), [16, 48, 32, 32]);
    let before = queues(guest, "a");
    flows_arrive_in_order(guest, FLOWS, SEQUENCES, false);
    let received = received_since(guest, "a", &before, FLOWS * SEQUENCES);
    // As if each queue had entries of its own.
    let of_entry = sum(&received) as f64 / 128.0;
    for (queue, entries) in received.values().zip([16.0, 48.0, 32.0, 32.0]) {
        let expected = of_entry * entries;
        let is_near = (queue.frames as f64 - expected).abs() <= TOLERANCE * expected;
        assert!(is_near, "{expected}: {}", described(&received));
    }
}

/// Starts the switch again with automatic rebalancing, and all queues of the first card on one CPU. Checks that the switch moves some of
/// them under traffic, and that flows stay complete and in order meanwhile.
fn busy_queues_move(guest: &mut CardGuest) {
    guest.run(&format!("cat >/tmp/rebalance.toml <<'END'\n{REBALANCE}END"));
    let uris = ports(guest, "?queues=4");
    guest.switch(&uris, "--cross-connect a,b --config /tmp/rebalance.toml");
    guest.port_becomes("a", "up");
    guest.port_becomes("b", "up");
    let [busy, other] = CPUS;
    for queue in queues(guest, "a").into_keys() {
        set_queue(guest, queue, busy);
    }
    let before = queues(guest, "a");
    let are_on_one = before.values().all(|queue| queue.cpu == busy);
    assert!(are_on_one, "{}", described(&before));
    let moved = Deadline::after(DEADLINE).poll(POLL, || {
        all_queues_receive(guest);
        let now = queues(guest, "a");
        now.values().any(|queue| queue.cpu == other).then_some(())
    });
    let moves = guest.show("moves");
    let is_by_load = |one: &Value| {
        let reason = one["reason"].as_str();
        one["port"] == "a"
            && one["from"] == busy
            && one["to"] == other
            && reason.is_some_and(|reason| reason.starts_with("queue load "))
    };
    assert!(
        moved.is_some() && moves.iter().any(is_by_load),
        "{moves:?}\n{}",
        guest.log()
    );
    all_queues_receive(guest);
}

#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn both_directions_of_a_flow_have_one_queue_of_igb_with_a_symmetric_key() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[Igb, Igb]);
        guest.bind_all();
        guest.switch(
            &ports(&guest, "?queues=4&rss=symmetric"),
            "--cross-connect a,b",
        );
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        let of_directions = [false, true].map(|is_answer| {
            let before = queues(&mut guest, "a");
            flows_arrive_in_order(&mut guest, SOME_FLOWS, 1, is_answer);
            received_since(&mut guest, "a", &before, SOME_FLOWS)
        });
        spread_is_even(&of_directions[0]);
        assert_eq!(counts(&of_directions[0]), counts(&of_directions[1]));
        guest.stop_switch();
    });
}

/// The kernel of the host may send some frames of its own into the tap of the card.
#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn flows_spread_evenly_over_the_queues_of_virtio_and_stay_in_order() {
    const SEQUENCES: u32 = 2;
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[VirtioRss, Igb]);
        guest.bind_all();
        guest.switch(&ports(&guest, "?queues=4"), "--cross-connect a,b");
        guest.port_becomes("a", "up");
        guest.port_becomes("b", "up");
        let before = queues(&mut guest, "a");
        all_cpus_serve(&before, 4);
        flows_arrive_in_order(&mut guest, FLOWS, SEQUENCES, false);
        let received = received_since(&mut guest, "a", &before, FLOWS * SEQUENCES);
        spread_is_even(&received);
        flows_arrive_in_order(&mut guest, FEW_FLOWS, 10, false);
        guest.stop_switch();
    });
}

/// Emulated, neither card spreads flows, so one queue may have all frames.
#[test]
#[ignore = "requires QEMU 10 of scripts/emulated-cards; make test-cards runs it"]
fn cards_that_do_not_spread_flows_forward_with_several_queues() {
    repeat_if_qemu_fails(|| {
        let mut guest = CardGuest::boot(&[E1000e, Vmxnet3]);
        guest.bind_all();
        guest.switch(&ports(&guest, "?queues=2"), "--cross-connect a,b");
        for (name, from, to) in [("a", 0, 1), ("b", 1, 0)] {
            guest.port_becomes(name, "up");
            let before = queues(&mut guest, name);
            assert_eq!(before.len(), 2, "{}", described(&before));
            guest.wires[from].carries(&guest.wires[to], &frames(100, 1514));
            let received = received_since(&mut guest, name, &before, 100);
            assert_eq!(sum(&received), 100, "{}", described(&received));
        }
        guest.stop_switch();
    });
}

/// Requires no card.
#[test]
fn missing_frames_do_not_count_as_out_of_order() {
    let sent = frames_of_flows(20, 3, false);
    let expected = Arrival {
        frames: 60,
        complete_flows: 20,
        ..Arrival::default()
    };
    assert_eq!(arrival(&sent, 3), expected);
    // The first frame of a flow is missing.
    let missing = Arrival {
        frames: 59,
        complete_flows: 19,
        ..Arrival::default()
    };
    assert_eq!(arrival(&sent[1..], 3), missing);
    // Frames 0 and 1 of flow 2 change their places.
    let mut swapped = sent.clone();
    swapped.swap(2, 2 + ALTERNATING as usize);
    let late = Arrival {
        out_of_order: 1,
        first_out_of_order: Some((2, 0, 2)),
        ..expected
    };
    assert_eq!(arrival(&swapped, 3), late);
    // A frame that arrives twice.
    let repeated = [&sent[..], &sent[..1]].concat();
    let again = arrival(&repeated, 3);
    assert_eq!((again.frames, again.complete_flows), (61, 19));
    assert_eq!(again.first_out_of_order, Some((0, 0, 3)));
}

/// Requires no card.
#[test]
fn queues_far_from_the_mean_are_named() {
    let queues = |frames: [u64; 4]| -> Queues {
        let of_cpu = |(number, frames): (u64, u64)| {
            let cpu = CPUS[(number % 2) as usize];
            (number, Queue { cpu, frames })
        };
        (0..).zip(frames).map(of_cpu).collect()
    };
    assert_eq!(uneven_queue(&queues([2500, 3000, 2500, 2000])), None);
    let uneven = queues([2500, 2500, 3001, 1999]);
    assert_eq!(uneven_queue(&uneven), Some((2, 2500.0)));
    assert_eq!(
        described(&uneven),
        "queue 0 on CPU 1: 2500, queue 1 on CPU 2: 2500, queue 2 on CPU 1: 3001, queue 3 on CPU 2: 1999"
    );
    all_cpus_serve(&uneven, 4);
}
