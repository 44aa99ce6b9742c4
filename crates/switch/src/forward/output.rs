// SPDX-License-Identifier: Apache-2.0
//! Ways to ports: transmit queues, and rings to the threads that have them.

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{Burst, TxQueue};

use super::segment::CuttingQueue;

/// How frames get to a port.
#[derive(Debug)]
pub(crate) enum Way {
    /// Over a transmit queue that this thread has to itself.
    Queue(TxQueue),
    /// Over a ring to the thread that has one.
    Ring(FrameSender),
    /// Over such a queue, frames with TCP data of any length among the others: those are cut where they have to be.
    Cutting(Box<CuttingQueue>),
}

impl Way {
    /// The transmit queue, if it is a way over one.
    pub(crate) fn into_queue(self) -> Option<TxQueue> {
        match self {
            Self::Queue(tx) => Some(tx),
            Self::Cutting(queue) => Some(queue.into_queue()),
            Self::Ring(_) => None,
        }
    }
}

/// A way to a port and the frames that wait for the end of the burst.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) way: Way,
    pub(crate) waiting: Burst,
}

/// A ring of frames that another thread wants sent.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) frames: FrameReceiver,
    /// Number of the port that they go to.
    pub(crate) port: u16,
}
