// SPDX-License-Identifier: Apache-2.0
//! Frames longer than the switch takes: dropped where they come in, and counted there; none of them leaves by another port.

use std::time::Duration;

use crate::chance::Chance;
use crate::memif;
use crate::rig::{until, within};
use crate::scene::Scene;
use crate::vhost;

/// Octets without FCS: more than `frame-size-max` is unless told (1518 with FCS), up to what 16 bits can say.
const LENGTHS: std::ops::RangeInclusive<u64> = 2000..=65_535;
/// In all, more than a pool of buffers survives if each takes one away.
const FRAMES: u64 = 2000;

/// How frames are handed over.
#[derive(Clone, Copy)]
enum Attacker {
    Memif,
    Vhost,
}

/// Where the frames would go.
#[derive(Clone, Copy)]
enum Way {
    Memif,
    Packet,
    Xdp,
}

impl Attacker {
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Memif => ["memif", "memif"],
            Self::Vhost => ["vhost", "virtio-user"],
        }
    }
}

impl Way {
    /// The switch's port and the tester's.
    fn uris(self) -> [&'static str; 2] {
        match self {
            Self::Memif => [
                "memif:DIR/w.sock?role=server",
                "memif:DIR/w.sock?role=client",
            ],
            Self::Packet => ["af-packet:v0", "af-packet:v1"],
            Self::Xdp => ["af-xdp:v2", "af-packet:v3"],
        }
    }
}

/// Cuts a length into parts, one or several.
fn parts(length: u64, most: u64, chance: &mut Chance) -> Vec<u32> {
    let count = if chance.next() % 2 == 0 {
        1
    } else {
        chance.between(2, most)
    };
    let part = length / count;
    let mut parts = vec![part as u32; count as usize];
    parts[0] += (length % count) as u32;
    parts
}

fn send_over_memif(scene: &Scene, count: u64, chance: &mut Chance) {
    let peer = memif::Shared::new(&scene.path("v.sock"));
    let (mut head, mut frames) = (0_u16, 0);
    while frames < count {
        let mut free = u64::from(memif::SLOTS);
        while frames < count {
            let length = chance.between(*LENGTHS.start(), *LENGTHS.end());
            let parts = parts(length, 8, chance);
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

fn send_over_vhost(scene: &Scene, count: u64, chance: &mut Chance) {
    let guest = vhost::Guest::start(&scene.path("v.sock"));
    let batch = u64::from(vhost::SLOTS) / 2;
    let (mut index, mut frames) = (0_u16, 0);
    while frames < count {
        let length = chance.between(*LENGTHS.start(), *LENGTHS.end()) + 12;
        let parts = parts(length, 30, chance);
        for (slot, part) in (0..).zip(&parts) {
            let is_last = usize::from(slot) + 1 == parts.len();
            let flags = if is_last { 0 } else { vhost::NEXT };
            let place = vhost::GUEST + vhost::BUFFERS;
            guest.describe(1, slot, place, *part, flags, slot + 1);
        }
        let now = batch.min(count - frames);
        index = index.wrapping_add(now as u16);
        guest.publish(1, 0, index);
        until("the port takes the frames", || {
            (guest.used(1).0 == index).then_some(())
        });
        frames += now;
    }
}

/// A receiver with room for frames.
fn listens(scene: &Scene) -> memif::Shared {
    let peer = memif::Shared::new(&scene.path("w.sock"));
    for slot in 0..memif::SLOTS {
        let place = 2 * memif::RING + u64::from(slot) * memif::BUFFER;
        peer.describe(memif::RING, slot, 0, 0, memif::BUFFER as u32, place as u32);
    }
    peer.set(memif::RING + memif::HEAD, memif::SLOTS);
    peer
}

/// When the attacked port is opened: ports that come later have buffers of their own.
#[derive(Clone, Copy)]
enum Opened {
    AtStart,
    Later,
}

fn are_dropped(kind: &str, attacker: Attacker, way: Way, opened: Opened) {
    let [scheme, client] = attacker.names();
    let [out, tester] = way.uris();
    let victim = format!("{scheme}:DIR/v.sock?role=server");
    let scene = match opened {
        Opened::AtStart => Scene::new(kind, &[("v", &victim), ("w", out)], &["v,w"]),
        Opened::Later => {
            let scene = Scene::new(kind, &[("w", out)], &[]);
            scene.add_port("v", &victim);
            scene.switch.change(&["add", "cross-connect", "v", "w"]);
            scene
        }
    };
    let mut chance = Chance::new();
    let mut sent = 0;
    let mut arrived = 0;
    scene.withstands(|| {
        let receiver = matches!(way, Way::Memif).then(|| listens(&scene));
        match attacker {
            Attacker::Memif => send_over_memif(&scene, FRAMES, &mut chance),
            Attacker::Vhost => send_over_vhost(&scene, FRAMES, &mut chance),
        }
        sent += FRAMES;
        scene.comes_to("v", "waiting");
        if let Some(receiver) = receiver {
            arrived += receiver.get(memif::RING + memif::TAIL);
        }
        // Whatever is wrong with the counters, the traffic beside the attack comes first.
        let _ = within(Duration::from_secs(2), || {
            (scene.errors("v") == sent).then_some(())
        });
    });
    let [from, to] = ["v", "w"].map(|name| scene.switch.port(name));
    let counted = (
        "rx_errors",
        scene.errors("v"),
        "rx_frames",
        &from["rx_frames"],
    );
    assert_eq!(
        counted,
        ("rx_errors", sent, "rx_frames", &0.into()),
        "{from}"
    );
    assert_eq!(
        ("tx_frames", &to["tx_frames"]),
        ("tx_frames", &0.into()),
        "{to}"
    );
    assert_eq!(arrived, 0, "buffers of the receiver were filled");
    // No buffer went with them.
    let uri = format!("{client}:DIR/v.sock?role=client");
    scene.serves([&uri, tester], 5000);
    scene.ends();
}

#[test]
#[ignore = "all 4000 are taken for frames, rx_errors stays 0"]
fn frames_that_are_too_long_from_a_memif_peer_to_memif_are_dropped() {
    are_dropped(
        "long-memif-memif",
        Attacker::Memif,
        Way::Memif,
        Opened::AtStart,
    );
}

#[test]
#[ignore = "all 4000 are taken for frames, rx_errors stays 0, and 3992 count as sent"]
fn frames_that_are_too_long_from_a_memif_peer_to_af_packet_are_dropped() {
    are_dropped(
        "long-memif-packet",
        Attacker::Memif,
        Way::Packet,
        Opened::AtStart,
    );
}

#[test]
#[ignore = "the port stops taking frames for good within the first 2000"]
fn frames_that_are_too_long_from_a_memif_peer_to_af_xdp_are_dropped() {
    are_dropped("long-memif-xdp", Attacker::Memif, Way::Xdp, Opened::AtStart);
}

#[test]
#[ignore = "frames of the bystander are lost"]
fn frames_that_are_too_long_from_a_memif_peer_that_comes_later_to_af_xdp_are_dropped() {
    are_dropped("long-memif-later", Attacker::Memif, Way::Xdp, Opened::Later);
}

#[test]
#[ignore = "all 4000 are taken for frames, rx_errors stays 0"]
fn frames_that_are_too_long_from_a_guest_to_memif_are_dropped() {
    are_dropped(
        "long-vhost-memif",
        Attacker::Vhost,
        Way::Memif,
        Opened::AtStart,
    );
}

#[test]
#[ignore = "all 4000 are taken for frames, rx_errors stays 0, and 3992 count as sent"]
fn frames_that_are_too_long_from_a_guest_to_af_packet_are_dropped() {
    are_dropped(
        "long-vhost-packet",
        Attacker::Vhost,
        Way::Packet,
        Opened::AtStart,
    );
}

#[test]
#[ignore = "the port stops taking frames for good within the first 2000"]
fn frames_that_are_too_long_from_a_guest_to_af_xdp_are_dropped() {
    are_dropped("long-vhost-xdp", Attacker::Vhost, Way::Xdp, Opened::AtStart);
}

#[test]
#[ignore = "frames of the bystander are lost"]
fn frames_that_are_too_long_from_a_guest_that_comes_later_to_af_xdp_are_dropped() {
    are_dropped("long-vhost-later", Attacker::Vhost, Way::Xdp, Opened::Later);
}
