// SPDX-License-Identifier: Apache-2.0
//! Entries of redirection tables that move from queue to queue. DPDK's null device has a table of 128 entries.

use super::*;

/// Adds a port with two queues to threads on two CPUs.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.change(&json!({"set-threads": {"forwarding_cpus": "2-3"}}));
    rig.change(
        &json!({"add-port": {"name": "x", "uri": "null:", "rx-queues": 2, "rx-cpus": "2,3"}}),
    );
    rig
}

fn move_entries(rig: &mut Rig, port: &str, queue: u16, to_queue: u16, entries: u16) -> Answer {
    let request = json!({"move-entries": {"port": port, "queue": queue, "to_queue": to_queue, "entries": entries}});
    rig.ask(&request, When::Never, Random::new(0), false)
}

/// Returns the number of entries that select each queue of the port.
fn entries(rig: &mut Rig) -> Vec<Option<u16>> {
    let queues = rig.controller.engine().queue_reports();
    let of_port = queues.into_iter().filter(|queue| queue.port == "x");
    of_port.map(|queue| queue.entries).collect()
}

#[test]
fn entries_move_to_another_queue_of_the_card() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = rig();
    assert_eq!(entries(&mut rig), [Some(64), Some(64)]);
    let Answer::Ok { result, .. } = move_entries(&mut rig, "x", 0, 1, 28) else {
        panic!("not moved");
    };
    let expected =
        json!({"port": "x", "queue": 0, "to_queue": 1, "entries": 28, "from": 2, "to": 3});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(result[key], *value, "{result}");
    }
    assert_eq!(entries(&mut rig), [Some(36), Some(92)]);
    // The queue waited while the other one was emptied.
    let executed: Vec<_> = rig
        .faults
        .1
        .lock()
        .unwrap()
        .iter()
        .rev()
        .take(8)
        .copied()
        .collect();
    assert!(
        executed.contains(&(3, "release")) && executed.contains(&(3, "adopt")),
        "{executed:?}"
    );
    rig.check();
    let refused = [
        (("nowhere", 0, 1, 1), "no such port"),
        (("x", 2, 1, 1), "no receive queue 2"),
        (("x", 0, 2, 1), "no receive queue 2"),
        (("x", 0, 0, 1), "another queue"),
        (("x", 0, 1, 0), "at least one entry"),
        (
            ("x", 0, 1, 37),
            "36 entries of the redirection table of port 'x' select queue 0",
        ),
    ];
    for ((port, queue, to_queue, count), part) in refused {
        let Answer::Error { message, fault } = move_entries(&mut rig, port, queue, to_queue, count)
        else {
            panic!("{part}");
        };
        assert!(
            message.contains(part) && fault == Fault::BadInput,
            "{message}"
        );
    }
    assert_eq!(entries(&mut rig), [Some(36), Some(92)]);
}

#[test]
fn the_table_is_as_before_if_a_thread_does_not_reply() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rig = rig();
    let request = json!({"move-entries": {"port": "x", "queue": 0, "to_queue": 1, "entries": 9}});
    let mut failures = 0;
    for at in 0..8 {
        let before = entries(&mut rig);
        let answer = rig.ask(&request, When::Once(at), Random::new(at), false);
        rig.settle();
        rig.check();
        if matches!(answer, Answer::Error { .. }) {
            failures += 1;
            assert_eq!(entries(&mut rig), before, "fault {at}");
        }
    }
    assert!(failures > 1, "{failures}");
}
