// SPDX-License-Identifier: Apache-2.0
//! Tests of peers that attack their port. Two other ports of the same forwarding CPU carry frames and lose none, the
//! switch's memory and descriptors do not grow, the port serves its next peer, and the switch ends on a signal. Requires
//! root, as the switch does.
//!
//! `QUIETWIRE_SEED` repeats the random choices of a run. `QUIETWIRE_HOSTILE_SECONDS` is the duration of each attack,
//! `QUIETWIRE_HOSTILE_HOLE_MIB` the size of the holes that a guest punches into its memory (default: 384), and
//! `QUIETWIRE_HOSTILE_RATE` the rate of the frames beside an attack, both ways together (default: 10,000 per second).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "hostile_peers/descriptors.rs"]
mod descriptors;
#[path = "hostile_peers/eventfds.rs"]
mod eventfds;
#[path = "hostile_peers/fragments.rs"]
mod fragments;
#[path = "peers/memif.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod memif;
#[path = "hostile_peers/modes.rs"]
mod modes;
#[path = "hostile_peers/oversize.rs"]
mod oversize;
#[path = "hostile_peers/packed.rs"]
mod packed;
#[path = "hostile_peers/process.rs"]
mod process;
#[path = "hostile_peers/revoked.rs"]
mod revoked;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod rig;
#[path = "hostile_peers/rng.rs"]
mod rng;
#[path = "hostile_peers/scene.rs"]
mod scene;
#[path = "peers/sockets.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod sockets;
#[path = "hostile_peers/stalls.rs"]
mod stalls;
#[path = "hostile_peers/storms.rs"]
mod storms;
#[path = "peers/vhost.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod vhost;
