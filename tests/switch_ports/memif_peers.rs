// SPDX-License-Identifier: Apache-2.0
//! Peers of a memif port that misbehave, on the socket and in the shared memory.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::bystander::Scene;
use crate::memif::*;
use crate::rig::until;
use crate::sockets::{memory, noise};

#[test]
fn a_memif_peer_that_sends_invalid_messages_is_disconnected() {
    let scene = Scene::with_more_victims("memif-talk", "memif", 2, 3);
    let bystander = scene.bystander("4s");
    let mut victims = scene.victims();
    let mut next = || victims.next().unwrap();
    for length in [1, 2, 127, 128, 129, 4096] {
        let peer = Peer::connect(&next());
        peer.send(&noise(length as u64, length), &[]);
        peer.is_refused("noise");
    }
    let (file, event) = (memory(REGION), event());
    let (region, wake) = ([file.as_raw_fd()], [event.as_raw_fd()]);
    // As the first message, with and without files.
    for kind in (0..12).filter(|kind| *kind != INIT) {
        for files in [&[] as &[i32], &region, &[region[0], wake[0], region[0]]] {
            let peer = Peer::connect(&next());
            peer.send(&message(kind, &[]), files);
            peer.is_refused("a message before INIT");
        }
    }
    for wrong in [init(0x0100, 0, 0), init(VERSION, 7, 0), init(VERSION, 0, 1)] {
        let peer = Peer::connect(&next());
        peer.send(&wrong, &region);
        peer.is_refused("an INIT without a matching interface");
    }
    scene.is_alive("noise");
    // Out of order, once the connection has an interface.
    let pipe = nix::unistd::pipe().unwrap();
    let zero = File::open("/dev/zero").unwrap();
    let (pipe, zero) = ([pipe.0.as_raw_fd()], [zero.as_raw_fd()]);
    let ring = |index, region, offset, log2| add_ring(true, index, region, offset, log2);
    let conversations: Vec<Vec<(Vec<u8>, &[i32])>> = vec![
        vec![(init(VERSION, 0, 0), &[])],
        vec![(message(HELLO, &[]), &[])],
        vec![(message(CONNECTED, &[]), &[])],
        vec![(message(99, &[]), &[])],
        vec![(add_region(0, REGION), &[])],
        vec![(add_region(1, REGION), &region)],
        vec![(add_region(65_535, REGION), &region)],
        vec![
            (add_region(0, REGION), &region),
            (add_region(0, REGION), &region),
        ],
        vec![(ring(0, 0, 0, LOG2), &[])],
        vec![(ring(0, 0, 0, LOG2), &pipe)],
        vec![(ring(0, 0, 0, LOG2), &region)],
        vec![(ring(2, 0, 0, LOG2), &wake)],
        vec![(ring(65_535, 0, 0, LOG2), &wake)],
        vec![(ring(0, 0, 0, 15), &wake)],
        vec![(ring(0, 0, 0, 255), &wake)],
        vec![(ring(0, 0, 0, LOG2), &wake), (ring(0, 0, 0, LOG2), &wake)],
        // Missing memory, or less than stated.
        vec![
            (add_region(0, REGION + 1), &region),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, u64::MAX), &region),
            (message(CONNECT, &[]), &[]),
        ],
        vec![(add_region(0, 0), &region), (message(CONNECT, &[]), &[])],
        vec![(add_region(0, REGION), &pipe), (message(CONNECT, &[]), &[])],
        vec![(add_region(0, REGION), &zero), (message(CONNECT, &[]), &[])],
        // Rings outside the memory, or without the cookie.
        vec![(ring(0, 0, 0, LOG2), &wake), (message(CONNECT, &[]), &[])],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 1, 0, LOG2), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 0, u32::MAX, LOG2), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 0, REGION as u32 - 64, LOG2), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 0, 1, LOG2), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 0, 0, 14), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        vec![
            (add_region(0, REGION), &region),
            (ring(0, 0, 0, LOG2), &wake),
            (message(CONNECT, &[]), &[]),
        ],
        // Twice, or more memory later.
        vec![(message(CONNECT, &[]), &[]), (message(CONNECT, &[]), &[])],
        vec![
            (message(CONNECT, &[]), &[]),
            (add_region(0, REGION), &region),
        ],
        vec![(message(CONNECT, &[]), &[]), (ring(0, 0, 0, LOG2), &wake)],
    ];
    for (number, conversation) in conversations.iter().enumerate() {
        let peer = Peer::begun(&next());
        for (octets, files) in conversation {
            peer.send(octets, files);
        }
        peer.is_refused(&format!("conversation {number}"));
        scene.is_alive(&format!("conversation {number}"));
    }
    // More regions than allowed.
    let victim = scene.path("v.sock");
    let peer = Peer::begun(&victim);
    let mut taken = 0;
    while peer.ask(&add_region(taken, REGION), &region) == Some(ACK) {
        taken += 1;
        assert!(taken <= 256);
    }
    drop(peer);
    // Peers that send nothing, and one that does not receive.
    let silent: Vec<Peer> = (0..40).map(|_| Peer::connect(&victim)).collect();
    let deaf = Peer::begun(&victim);
    until("a peer that does not receive is disconnected", || {
        (!deaf.send(&message(ACK, &[]), &[]) || !deaf.send(&add_region(9, 1), &[])).then_some(())
    });
    drop((silent, deaf));
    scene.is_alive("silence");
    bystander.lost_nothing();
    scene.serves("memif");
    assert_eq!(scene.switch.end(), Some(0));
}

#[test]
fn a_memif_peer_that_lies_in_shared_memory_costs_its_own_port_only() {
    let scene = Scene::new("memif-lie", "memif", 1);
    let bystander = scene.bystander("2s");
    let victim = scene.path("v.sock");
    let errors = |least: u64| {
        until("invalid descriptors are counted", || {
            let port = scene.switch.port("v");
            (port["drops"]["rx_errors"].as_u64() >= Some(least)).then_some(())
        });
    };
    let shared = Shared::new(&victim);
    until("the port is connected", || {
        (scene.switch.port("v")["state"] == "connected").then_some(())
    });
    // The memory cannot be truncated.
    assert!(shared.file.set_len(0).is_err());
    // Invalid buffers: region, length, offset.
    let nowhere = [
        (1, 60, 0),
        (u16::MAX, 60, 0),
        (0, u32::MAX, 0),
        (0, 60, u32::MAX),
        (0, 61, REGION as u32 - 60),
        (0, u32::MAX, u32::MAX),
        (0, REGION as u32 + 1, 0),
        (0, 0, 0),
        // Within the memory, but longer than any frame.
        (0, REGION as u32, 0),
    ];
    let mut head = 0;
    for (region, length, offset) in nowhere {
        shared.describe(0, head, 0, region, length, offset);
        head += 1;
        shared.publish(head);
    }
    errors(nowhere.len() as u64);
    // A valid frame after them is received: they leave nothing behind.
    let place = 2 * RING as u32;
    shared.describe(0, head, 0, 0, 60, place);
    head += 1;
    shared.publish(head);
    until("the valid frame is received", || {
        (scene.switch.port("v")["rx_frames"] == 1).then_some(())
    });
    // Chains without an end, then more slots than exist.
    for slot in 0..SLOTS {
        shared.describe(0, slot, NEXT, 0, 60, place);
    }
    head += SLOTS;
    shared.publish(head);
    errors(nowhere.len() as u64 + 1);
    for claimed in [SLOTS + 1, 1000, u16::MAX, u16::MAX / 2] {
        head = head.wrapping_add(claimed);
        shared.publish(head);
    }
    errors(nowhere.len() as u64 + 5);
    let table = scene.switch.table();
    assert!(
        table.contains("v: the driver counts 14 rx_errors"),
        "{table}"
    );
    scene.is_alive("invalid descriptors");
    drop(shared);

    // Invalid buffers for the port to fill: it receives frames for them from a peer on the other side.
    let sender = Shared::new(&scene.path("w.sock"));
    let shared = Shared::new(&victim);
    let mut sent = 0;
    let mut offer = |count: u16| {
        for _ in 0..count {
            sender.describe(0, sent, 0, 0, 60, place);
            sent = sent.wrapping_add(1);
        }
        sender.publish(sent);
    };
    let mut s2c_head = 0_u16;
    for (region, length, offset) in [
        (1, 2048, 0),
        (u16::MAX, 2048, 0),
        (0, u32::MAX, 0),
        (0, 2048, u32::MAX),
        (0, 0, 0),
        (0, 1, REGION as u32 - 1),
        (0, 59, 0),
    ] {
        for slot in 0..SLOTS {
            shared.describe(RING, slot, NEXT, region, length, offset);
        }
        s2c_head = shared.get(RING + TAIL).wrapping_add(SLOTS);
        shared.set(RING + HEAD, s2c_head);
        offer(20);
    }
    for claimed in [1, SLOTS + 1, u16::MAX] {
        shared.set(RING + HEAD, s2c_head.wrapping_add(claimed));
        offer(20);
    }
    scene.is_alive("invalid buffers");
    assert!(shared.peer.send(&message(ACK, &[]), &[]));
    drop((sender, shared));
    bystander.lost_nothing();
    scene.serves("memif");
    assert_eq!(scene.switch.end(), Some(0));
}
