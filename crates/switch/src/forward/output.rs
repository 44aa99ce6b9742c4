// SPDX-License-Identifier: Apache-2.0
//! Outputs to ports: transmit queues, and rings to threads that own one.

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{Burst, TxQueue};

use quietwire_tables::filter::PortRules;

use super::link_mtus::LinkMtus;
use super::segment::SegmentingQueue;
use crate::counters::PORTS_MAX;

/// Path of frames to a port.
#[derive(Debug)]
pub(crate) enum TxPath {
    /// A transmit queue owned by this thread.
    Queue(TxQueue),
    /// A ring to the thread that owns a transmit queue.
    Ring(FrameSender),
    /// A transmit queue for frames with TCP data of any length. Frames that the peer does not accept whole are segmented.
    Segmenting(Box<SegmentingQueue>),
}

impl TxPath {
    /// Returns the transmit queue, if there is one.
    pub(crate) fn into_queue(self) -> Option<TxQueue> {
        match self {
            Self::Queue(tx) => Some(tx),
            Self::Segmenting(queue) => Some(queue.into_queue()),
            Self::Ring(_) => None,
        }
    }
}

/// An output to a port, and the frames that wait for the end of the burst.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) tx_path: TxPath,
    pub(crate) waiting: Burst,
}

/// Rules of frames that leave.
#[derive(Debug)]
pub(crate) struct OutputRules {
    /// By number of the port.
    rules: Box<[Option<PortRules>]>,
    mtus: LinkMtus,
    /// All rules, if some rule of frames that leave compares connections.
    compared: Option<PortRules>,
}

impl OutputRules {
    /// Creates the rules of no port, with the MTUs of links. `compared`: all rules, if some rule of frames that leave compares connections.
    pub(crate) fn new(mtus: LinkMtus, compared: Option<PortRules>) -> Self {
        Self {
            rules: (0..PORTS_MAX).map(|_| None).collect(),
            mtus,
            compared,
        }
    }

    /// Returns the rules that compute the classes of received frames, if rules of frames that leave compare connections.
    #[inline(always)]
    pub(super) const fn compared(&self) -> Option<&PortRules> {
        self.compared.as_ref()
    }

    /// Returns the MTUs of links.
    pub(super) const fn mtus(&self) -> &LinkMtus {
        &self.mtus
    }

    /// Sets the rules of a port.
    pub(crate) fn set(&mut self, port: u16, rules: PortRules) {
        if let Some(place) = self.rules.get_mut(usize::from(port)) {
            *place = Some(rules);
        }
    }

    /// Returns the rules of a port, if it has any.
    #[inline(always)]
    pub(super) fn of(&self, port: usize) -> Option<&PortRules> {
        self.rules.get(port)?.as_ref()
    }
}

/// A ring of frames to send for another thread.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) frames: FrameReceiver,
    /// Number of the destination port.
    pub(crate) port: u16,
}
