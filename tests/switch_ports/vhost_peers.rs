// SPDX-License-Identifier: Apache-2.0
//! Peers of a vhost-user port that misbehave.

use std::os::fd::AsRawFd;

use nix::sys::eventfd::EventFd;

use crate::bystander::Scene;
use crate::rig::until;
use crate::sockets::{memory, noise, send};
use crate::vhost::*;

#[test]
fn a_vhost_peer_that_sends_invalid_messages_is_disconnected() {
    let scene = Scene::with_more_victims("vhost-talk", "vhost", 1, 5);
    let bystander = scene.bystander("5s");
    let mut victims = scene.victims();
    let mut next = || victims.next().unwrap();
    for length in [1, 11, 12, 13, 100, 4096] {
        send(&connect(&next()), &noise(length as u64, length), &[]);
    }
    scene.is_alive("noise");
    let (file, event) = (memory(MEMORY), EventFd::new().unwrap());
    let (file, event) = ([file.as_raw_fd()], [event.as_raw_fd()]);
    // Every request, empty and full of noise, with and without files.
    for request in 0..48 {
        for (payload, files) in [
            (Vec::new(), &[] as &[i32]),
            (noise(request.into(), 8), &[]),
            (noise(request.into(), 8), &event),
            (noise(request.into(), 40), &file),
            (vec![0xff; 200], &file),
        ] {
            send(&connect(&next()), &message(request, &payload), files);
        }
    }
    scene.is_alive("every request");
    // Invalid headers.
    for header in [
        words(&[GET_FEATURES, 0, 0]),
        words(&[GET_FEATURES, 2, 0]),
        words(&[u32::MAX, VERSION, 0]),
        words(&[SET_FEATURES, VERSION, u32::MAX]),
        words(&[SET_FEATURES, VERSION, 0x7fff_ffff]),
        words(&[SET_MEM_TABLE, VERSION, 4096]),
    ] {
        let stream = connect(&next());
        send(&stream, &header, &[]);
        send(&stream, &noise(1, 300), &[]);
    }
    let conversations: Vec<Vec<(Vec<u8>, &[i32])>> = vec![
        vec![(mem_table(0, MEMORY, 0), &[])],
        vec![(mem_table(1, MEMORY, 0), &[])],
        vec![(mem_table(8, MEMORY, 0), &file)],
        vec![(mem_table(9, MEMORY, 0), &file)],
        vec![(mem_table(u32::MAX, MEMORY, 0), &file)],
        vec![(mem_table(1, u64::MAX, 0), &file)],
        vec![(mem_table(1, MEMORY, u64::MAX), &file)],
        vec![(mem_table(1, 0, 0), &file)],
        // More memory than its file has.
        vec![
            (mem_table(1, 2 * MEMORY, 0), &file),
            (vring(SET_VRING_NUM, 0, 256), &[]),
            (
                vring_addr(0, USER + MEMORY, USER + MEMORY, USER + MEMORY),
                &[],
            ),
            (vring_file(SET_VRING_KICK, 0), &event),
            (vring(SET_VRING_NUM, 1, 256), &[]),
            (
                vring_addr(1, USER + MEMORY, USER + MEMORY, USER + MEMORY),
                &[],
            ),
            (vring_file(SET_VRING_KICK, 1), &event),
        ],
        vec![
            (mem_table(1, MEMORY, 4096), &file),
            (vring(SET_VRING_NUM, 0, 256), &[]),
            (
                vring_addr(0, USER + MEMORY - 4096, USER + MEMORY - 4096, USER),
                &[],
            ),
            (vring_file(SET_VRING_KICK, 0), &event),
        ],
        vec![(mem_table(1, MEMORY, 0), &event)],
        vec![(vring(SET_VRING_NUM, 0, 0), &[])],
        vec![(vring(SET_VRING_NUM, 0, 3), &[])],
        vec![(vring(SET_VRING_NUM, 0, u32::MAX), &[])],
        vec![(vring(SET_VRING_NUM, 255, 256), &[])],
        vec![(vring(SET_VRING_NUM, u32::MAX, 256), &[])],
        vec![(vring(SET_VRING_BASE, 0, u32::MAX), &[])],
        vec![(vring(GET_VRING_BASE, 9, 0), &[])],
        vec![(vring(SET_VRING_ENABLE, 77, 1), &[])],
        vec![(vring_addr(0, USER, USER, USER), &[])],
        vec![(vring_addr(200, 0, 0, 0), &[])],
        vec![(vring_file(SET_VRING_KICK, 0), &[])],
        vec![(vring_file(SET_VRING_KICK, 255), &event)],
        vec![(vring_file(SET_VRING_CALL, 255), &event)],
        vec![
            (mem_table(1, MEMORY, 0), &file),
            (vring(SET_VRING_NUM, 0, 256), &[]),
            (vring_addr(0, u64::MAX, u64::MAX, u64::MAX), &[]),
            (vring_file(SET_VRING_KICK, 0), &event),
        ],
        vec![
            (mem_table(1, MEMORY, 0), &file),
            (vring(SET_VRING_NUM, 0, 32_768), &[]),
            (vring_addr(0, USER + MEMORY - 16, USER, USER), &[]),
            (vring_file(SET_VRING_KICK, 0), &event),
        ],
    ];
    for (number, conversation) in conversations.iter().enumerate() {
        let stream = connect(&next());
        for (octets, files) in conversation {
            send(&stream, octets, files);
        }
        settle(&stream);
        scene.is_alive(&format!("conversation {number}"));
    }
    bystander.lost_nothing();
    // Half a message, and silence: other peers are still served.
    let silent = connect(&scene.path("v.sock"));
    send(&silent, &words(&[SET_FEATURES, VERSION, 8]), &[]);
    scene.serves("virtio-user");
    drop(silent);
    assert_eq!(scene.switch.end(), Some(0));
}

#[test]
fn a_guest_that_lies_in_its_rings_costs_its_own_port_only() {
    let scene = Scene::new("vhost-lie", "vhost", 1);
    let bystander = scene.bystander("3s");
    let victim = scene.path("v.sock");
    let inside = GUEST + BUFFERS;
    let guest = Guest::start(&victim);
    let reported = until("the guest is connected", || {
        let port = scene.switch.port("v");
        port["guest"].is_object().then(|| port["guest"].clone())
    });
    assert_eq!(
        (&reported["rings"], &reported["ring_size"]),
        (&2.into(), &SLOTS.into())
    );
    // The memory cannot be truncated.
    assert!(guest.memory.set_len(0).is_err());
    let features = reported["features"].as_array().unwrap();
    assert!(features.contains(&"version-1".into()), "{reported}");
    drop(guest);
    // Address, length, flags and next of a descriptor that refers to itself or its neighbour.
    let lies = [
        (0, 1514, 0, 0),
        (u64::MAX, 1514, 0, 0),
        (GUEST + MEMORY - 4, 1514, 0, 0),
        (inside, u32::MAX, 0, 0),
        (inside, 0, 0, 0),
        (inside, 4, 0, 0),
        (inside, 1514, NEXT, 0),
        (inside, 1514, NEXT, u16::MAX),
        (inside, 1514, WRITE, 0),
        (inside, 16, INDIRECT, 0),
        (inside, u32::MAX, INDIRECT, 0),
        (0, 160, INDIRECT, 0),
        (inside, 1514, INDIRECT | NEXT, 1),
    ];
    for (number, (address, length, flags, next)) in lies.into_iter().enumerate() {
        let guest = Guest::start(&victim);
        until("the guest is connected", || {
            (scene.switch.port("v")["state"] == "connected").then_some(())
        });
        // The guest sends on ring 1, and receives on ring 0.
        for ring in [1, 0] {
            guest.describe(ring, 0, address, length, flags, next);
            guest.publish(ring, 0, SLOTS);
            guest.publish(ring, u16::MAX, SLOTS / 2);
            guest.publish(ring, 0, u16::MAX);
        }
        scene.is_alive(&format!("lie {number}"));
        drop(guest);
        until("the guest is disconnected", || {
            (scene.switch.port("v")["state"] == "waiting").then_some(())
        });
    }
    bystander.lost_nothing();
    scene.serves("virtio-user");
    assert_eq!(scene.switch.end(), Some(0));
}

/// Descriptors of a table in the memory, as address, length, flags and next.
type Table<'a> = &'a [(u64, u32, u16, u16)];

/// Address of tables that descriptors refer to.
const TABLE: u64 = 0x6_0000;

#[test]
fn invalid_chains_and_tables_of_a_guest_are_dropped_and_counted() {
    let scene = Scene::new("vhost-table", "vhost", 1);
    let victim = scene.path("v.sock");
    let inside = GUEST + BUFFERS;
    let table = GUEST + TABLE;
    let long: Vec<(u64, u32, u16, u16)> = (0..SLOTS + 1)
        .map(|next| (inside, 64, NEXT, next + 1))
        .collect();
    let huge = [(inside, 0x7_0000, NEXT, 1), (inside, 0x7_0000, 0, 0)];
    // Contents of the ring from descriptor 0 on, and of the table.
    let lies: [(Table, Table); 13] = [
        // Loops, in the ring and in a table.
        (&[(inside, 64, NEXT, 1), (inside, 64, NEXT, 0)], &[]),
        (
            &[(table, 32, INDIRECT, 0)],
            &[(inside, 64, NEXT, 1), (inside, 64, NEXT, 0)],
        ),
        (&[(inside, 64, NEXT, 0)], &[]),
        // Beyond the ring, and beyond the table.
        (&[(inside, 64, NEXT, SLOTS)], &[]),
        (&[(table, 16, INDIRECT, 0)], &[(inside, 64, NEXT, 1)]),
        // Tables in tables, in chains, empty, too large, and outside the memory.
        (&[(table, 16, INDIRECT, 0)], &[(table, 16, INDIRECT, 0)]),
        (
            &[(table, 16, INDIRECT | NEXT, 1), (inside, 64, 0, 0)],
            &[(inside, 64, 0, 0)],
        ),
        (
            &[(inside, 64, NEXT, 1), (table, 16, INDIRECT, 0)],
            &[(inside, 64, 0, 0)],
        ),
        (&[(table, 15, INDIRECT, 0)], &[(inside, 64, 0, 0)]),
        (&[(table, 16 * (SLOTS as u32 + 1), INDIRECT, 0)], &long),
        (&[(GUEST + MEMORY - 8, 32, INDIRECT, 0)], &[]),
        // More octets than a frame has, within the memory and beyond.
        (&huge, &[]),
        (
            &[(inside, 64, NEXT, 1), (GUEST + MEMORY - 4, 64, 0, 0)],
            &[],
        ),
    ];
    let mut errors = 0;
    for (number, (ring, entries)) in lies.into_iter().enumerate() {
        let guest = Guest::start(&victim);
        until("the guest is connected", || {
            (scene.switch.port("v")["state"] == "connected").then_some(())
        });
        for (slot, (address, length, flags, next)) in (0..).zip(ring) {
            guest.describe(1, slot, *address, *length, *flags, *next);
        }
        for (slot, (address, length, flags, next)) in (0..).zip(entries) {
            let place = TABLE + 16 * slot;
            guest.write(place, &longs(&[*address]));
            guest.write(place + 8, &words(&[*length]));
            guest.write(
                place + 12,
                &[flags.to_le_bytes(), next.to_le_bytes()].concat(),
            );
        }
        guest.publish(1, 0, 3);
        errors += 3;
        // Every one is returned, empty.
        until(&format!("lie {number}"), || {
            (guest.used(1).0 == 3).then_some(())
        });
        until(&format!("lie {number} is counted"), || {
            let port = scene.switch.port("v");
            (port["drops"]["rx_errors"].as_u64() == Some(errors)).then_some(())
        });
        // The next one is valid, and is accepted.
        guest.describe(1, 0, inside, 12 + 64, 0, 0);
        guest.publish(1, 0, 4);
        until("a valid one is accepted", || {
            (guest.used(1).0 == 4).then_some(())
        });
        let port = scene.switch.port("v");
        assert_eq!(port["drops"]["rx_errors"].as_u64(), Some(errors), "{port}");
        drop(guest);
        until("the guest is disconnected", || {
            (scene.switch.port("v")["state"] == "waiting").then_some(())
        });
    }
    scene.serves("virtio-user");
    assert_eq!(scene.switch.end(), Some(0));
}
