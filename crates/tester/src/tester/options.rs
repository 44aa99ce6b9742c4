// SPDX-License-Identifier: Apache-2.0
//! Options of a tester.

use serde::{Deserialize, Serialize};

use crate::judge::Limits;
use crate::trial::Trial;

/// Shortest time for the start of the threads and the learning frames before a trial, seconds.
const LEAD_S: f64 = 0.02;
/// Rate at which learning frames extend that time, frames per second.
const LEARNING_RATE_PPS: f64 = 1e6;

/// Options of a tester.
#[derive(Clone, Debug)]
pub struct TesterOptions {
    /// CPUs of the tester's threads. Ports are distributed over them in turn. One CPU can serve all ports.
    pub cpus: Vec<u32>,
    /// Real-time priority of the threads (SCHED_FIFO, 1 to 99); `None` for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// Descriptors in each transmit ring of each port: a power of two.
    pub ring_size: u16,
    /// Descriptors in each receive ring of each port, a power of two. A peer that determines the ring size overrides it. Default:
    /// [`RECEIVE_RING_SIZE`](super::RECEIVE_RING_SIZE).
    pub receive_ring_size: u16,
    /// Largest frame of any trial, octets with FCS.
    pub frame_size_max: u16,
    /// Limits beyond which a trial is invalid.
    pub limits: Limits,
    /// Preparation of the device before the traffic.
    pub preparation: Preparation,
    /// Whether threads leave their CPU to others between bursts.
    pub idle: TesterIdle,
    /// Access to frames.
    pub frame_access: FrameAccess,
}

/// Access of the tester to the frames that it writes and reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameAccess {
    /// In the rings of memif and virtio-user ports; at other ports in packet buffers. Single frames (learning, the
    /// low-rate stream) always pass through packet buffers.
    #[default]
    InPlace,
    /// In packet buffers, which the port copies to and from its rings.
    PacketBuffers,
}

/// Action of a thread of the tester if no frame is due and none has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TesterIdle {
    /// Poll again at once: the highest rates, and the least of the tester's own in latencies.
    #[default]
    Poll,
    /// Sleep for 50 µs or more, so that other threads get a part of the CPU during a trial. Frames that become due meanwhile
    /// leave in a burst, and latencies include the time until the thread wakes up.
    Sleep,
}

/// Preparation of the device before the traffic of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preparation {
    /// Time limit for the learning frames of all addresses, seconds, in case the device accepts them slowly. Default: one second per
    /// million addresses.
    pub learning_s: Option<f64>,
    /// Wait after the learning frames, seconds (RFC 2544, section 23, requires a wait as well).
    pub settle_s: f64,
}

impl Preparation {
    /// Returns the time for the start of the threads and the learning frames, seconds.
    pub(crate) fn lead_s(self, trial: &Trial) -> f64 {
        let frames = match &trial.traffic {
            Some(traffic) => traffic.flow_count(),
            None => trial.mac_addresses,
        };
        let usual = f64::from(frames) / LEARNING_RATE_PPS;
        LEAD_S + self.learning_s.unwrap_or(usual)
    }
}
