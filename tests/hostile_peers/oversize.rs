// SPDX-License-Identifier: Apache-2.0
//! Frames longer than the switch accepts: dropped and counted at the receiving port; none leaves by another port.

use std::path::Path;
use std::time::Duration;

use crate::memif;
use crate::rig::{until, within};
use crate::rng::Rng;
use crate::scene::Scene;
use crate::vhost;

/// Octets without FCS: more than the default of `frame-size-max` (1518 with FCS), up to the maximum of 16 bits.
const LENGTHS: std::ops::RangeInclusive<u64> = 2000..=65_535;
/// Total number: more than a pool has buffers, in case each frame leaks one.
const FRAMES: u64 = 2000;

/// Kinds of ports: the port's scheme, and the tester's.
#[derive(Clone, Copy)]
enum Attacker {
    Memif,
    Vhost,
}

impl Attacker {
    fn schemes(self) -> [&'static str; 2] {
        match self {
            Self::Memif => ["memif", "memif"],
            Self::Vhost => ["vhost", "virtio-user"],
        }
    }
}

/// Path of frames: a name, the receiving port, the sending port, and the tester's port behind that.
type PortKind = (&'static str, [&'static str; 3]);

const MEMIF: PortKind = (
    "memif",
    [
        "from-memif",
        "memif:DIR/out.sock?role=server",
        "memif:DIR/out.sock?role=client",
    ],
);
const PACKET: PortKind = ("af-packet", ["from-packet", "af-packet:v0", "af-packet:v1"]);
const XDP: PortKind = ("af-xdp", ["from-xdp", "af-xdp:v2", "af-packet:v3"]);

/// Cuts a length into one or several parts.
fn parts(length: u64, most: u64, rng: &mut Rng) -> Vec<u32> {
    let count = if rng.between(0, 1) == 0 {
        1
    } else {
        rng.between(2, most)
    };
    let part = length / count;
    let mut parts = vec![part as u32; count as usize];
    parts[0] += (length % count) as u32;
    parts
}

fn send_over_memif(path: &Path, rng: &mut Rng) {
    let peer = memif::Shared::new(path);
    let (mut head, mut frames) = (0_u16, 0);
    while frames < FRAMES {
        let mut free = u64::from(memif::SLOTS);
        while frames < FRAMES {
            let length = rng.between(*LENGTHS.start(), *LENGTHS.end());
            let parts = parts(length, 8, rng);
            if parts.len() as u64 > free {
                break;
            }
            free -= parts.len() as u64;
            for (number, part) in parts.iter().enumerate() {
                let is_last = number + 1 == parts.len();
                let flags = if is_last { 0 } else { memif::NEXT };
                peer.describe(0, head, flags, 0, *part, 2 * memif::RING as u32);
                head = head.wrapping_add(1);
            }
            frames += 1;
        }
        peer.publish(head);
    }
}

fn send_over_vhost(path: &Path, rng: &mut Rng) {
    let guest = vhost::Guest::start(path);
    let batch = u64::from(vhost::SLOTS) / 2;
    let (mut index, mut frames) = (0_u16, 0);
    while frames < FRAMES {
        let length = rng.between(*LENGTHS.start(), *LENGTHS.end()) + 12;
        let parts = parts(length, 30, rng);
        for (slot, part) in (0..).zip(&parts) {
            let is_last = usize::from(slot) + 1 == parts.len();
            let flags = if is_last { 0 } else { vhost::NEXT };
            let place = vhost::GUEST + vhost::BUFFERS;
            guest.describe(1, slot, place, *part, flags, slot + 1);
        }
        let now = batch.min(FRAMES - frames);
        index = index.wrapping_add(now as u16);
        guest.publish(1, 0, index);
        until("the port takes the frames", || {
            (guest.used(1).0 == index).then_some(())
        });
        frames += now;
    }
}

/// Returns a receiver with space for frames.
fn listens(scene: &Scene) -> memif::Shared {
    let peer = memif::Shared::new(&scene.path("out.sock"));
    for slot in 0..memif::SLOTS {
        let place = 2 * memif::RING + u64::from(slot) * memif::BUFFER;
        let (place, space) = (place as u32, memif::BUFFER as u32);
        peer.describe(memif::RING, slot, 0, 0, space, place);
    }
    peer.set(memif::RING + memif::HEAD, memif::SLOTS);
    peer
}

/// Time at which the attacked ports are opened: ports added later have separate buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    AtStart,
    Later,
}

fn open(kind: &str, attacker: Attacker, ways: &[PortKind], opened: Opened) -> Scene {
    let [scheme, _] = attacker.schemes();
    let victims: Vec<String> = ways
        .iter()
        .map(|(_, [from, ..])| format!("{scheme}:DIR/{from}.sock?role=server"))
        .collect();
    let pairs: Vec<String> = ways
        .iter()
        .map(|(to, [from, ..])| format!("{from},{to}"))
        .collect();
    let outs = ways.iter().map(|(to, [_, uri, _])| (*to, *uri));
    let ins = ways.iter().zip(&victims);
    let ins = ins.map(|((_, [from, ..]), uri)| (*from, uri.as_str()));
    if opened == Opened::AtStart {
        let ports: Vec<(&str, &str)> = outs.chain(ins).collect();
        let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
        return Scene::new(kind, &ports, &pairs);
    }
    let ports: Vec<(&str, &str)> = outs.collect();
    let scene = Scene::new(kind, &ports, &[]);
    for (from, uri) in ins {
        scene.add_port(from, uri);
    }
    for (to, [from, ..]) in ways {
        scene.switch.change(&["add", "cross-connect", from, to]);
    }
    scene
}

fn are_dropped(kind: &str, attacker: Attacker, ways: &[PortKind], opened: Opened) {
    let scene = open(kind, attacker, ways, opened);
    let mut rng = Rng::new();
    let (mut sent, mut arrived) = (0, 0);
    scene.withstands(|| {
        sent += FRAMES;
        for (to, [from, ..]) in ways {
            let receiver = (*to == "memif").then(|| listens(&scene));
            let path = scene.path(&format!("{from}.sock"));
            match attacker {
                Attacker::Memif => send_over_memif(&path, &mut rng),
                Attacker::Vhost => send_over_vhost(&path, &mut rng),
            }
            scene.comes_to(from, "waiting");
            if let Some(receiver) = receiver {
                arrived += receiver.get(memif::RING + memif::TAIL);
            }
            // The traffic beside the attack is checked before the counters.
            let _ = within(Duration::from_secs(2), || {
                (scene.errors(from) == sent).then_some(())
            });
        }
    });
    let mut wrong = Vec::new();
    for (to, [from, ..]) in ways {
        let count = |port: &str, name: &str| scene.switch.port(port)[name].as_u64().unwrap();
        let observed = (
            scene.errors(from),
            count(from, "rx_frames"),
            count(to, "tx_frames"),
        );
        if observed != (sent, 0, 0) {
            wrong.push(format!("to {to}: {observed:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "rx_errors, rx_frames and tx_frames of {sent}: {wrong:?}"
    );
    assert_eq!(arrived, 0, "buffers of the receiver were filled");
    // No buffer was leaked.
    let [_, client] = attacker.schemes();
    for (_, [from, _, tester]) in ways {
        let uri = format!("{client}:DIR/{from}.sock?role=client");
        scene.serves([&uri, tester], 5000);
    }
    scene.ends();
}

#[test]
fn frames_of_a_memif_peer_that_are_too_long_are_dropped() {
    let ways = [MEMIF, PACKET, XDP];
    are_dropped("long-memif", Attacker::Memif, &ways, Opened::AtStart);
}

#[test]
fn frames_that_are_too_long_of_a_memif_peer_that_comes_later_are_dropped() {
    are_dropped("later-memif", Attacker::Memif, &[XDP], Opened::Later);
}

#[test]
fn frames_of_a_guest_that_are_too_long_are_dropped() {
    let ways = [MEMIF, PACKET, XDP];
    are_dropped("long-vhost", Attacker::Vhost, &ways, Opened::AtStart);
}

#[test]
fn frames_that_are_too_long_of_a_guest_that_comes_later_are_dropped() {
    are_dropped("later-vhost", Attacker::Vhost, &[XDP], Opened::Later);
}
