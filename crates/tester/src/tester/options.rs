// SPDX-License-Identifier: Apache-2.0
//! Options of a tester.

use serde::{Deserialize, Serialize};

use crate::judge::Limits;
use crate::trial::Trial;

/// How long threads get to be ready before a trial, and learning frames to be sent, seconds.
const LEAD_S: f64 = 0.02;
/// Learning frames per second that fit into the lead, so that many addresses lengthen it.
const LEARNING_RATE_PPS: f64 = 1e6;

/// How the tester is to work.
#[derive(Clone, Debug)]
pub struct TesterOptions {
    /// CPUs of the tester's threads. Ports are dealt out to them in turn; one CPU serves all ports well.
    pub cpus: Vec<u32>,
    /// Real-time priority of the threads (SCHED_FIFO, 1 to 99); none for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// Descriptors in each transmit ring of each port: a power of two.
    pub ring_size: u16,
    /// Descriptors in each receive ring of each port, if the peer does not decide it: a power of two. Default:
    /// [`RECEIVE_RING_SIZE`](super::RECEIVE_RING_SIZE).
    pub receive_ring_size: u16,
    /// Largest frame that will be asked for, octets with FCS.
    pub frame_size_max: u16,
    /// When a trial is invalid.
    pub limits: Limits,
    /// What the device gets before the traffic.
    pub preparation: Preparation,
    /// Whether threads leave their CPU to others between bursts.
    pub idle: TesterIdle,
}

/// What a thread of the tester does when nothing more is due and nothing more has come.
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

/// What a device gets to make itself ready in, before the traffic of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preparation {
    /// How long the learning frames of all addresses may take, seconds, where the device takes them slowly; unless said,
    /// a second per million.
    pub learning_s: Option<f64>,
    /// How long nothing is sent after them (RFC 2544, section 23, waits as well), seconds.
    pub settle_s: f64,
}

impl Preparation {
    /// How long the threads and the learning frames get, seconds.
    pub(crate) fn lead_s(self, trial: &Trial) -> f64 {
        let frames = match &trial.traffic {
            Some(traffic) => traffic.flow_count(),
            None => trial.mac_addresses,
        };
        let usual = f64::from(frames) / LEARNING_RATE_PPS;
        LEAD_S + self.learning_s.unwrap_or(usual)
    }
}
