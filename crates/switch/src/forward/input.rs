// SPDX-License-Identifier: Apache-2.0
//! A receive queue of a forwarding thread.

use std::sync::Arc;

use quietwire_dpdk::RxQueue;

use super::stage::Stage;
use crate::counters::QueueCounters;
use quietwire_tables::bridge::Storm;

/// A receive queue and the stage of its frames.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) rx: RxQueue,
    /// Number of the port.
    pub(crate) port: u16,
    /// Number of the queue among the port's receive queues.
    pub(crate) queue: u16,
    pub(crate) stage: Arc<Stage>,
    /// Storm state of the port.
    pub(super) storm: Storm,
    pub(crate) counters: Arc<QueueCounters>,
}

impl Input {
    /// Creates the input of a queue.
    pub(crate) fn new(
        rx: RxQueue,
        (port, queue): (u16, u16),
        stage: Arc<Stage>,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            rx,
            port,
            queue,
            storm: stage.storm(),
            stage,
            counters,
        }
    }

    /// Replaces the stage.
    pub(crate) fn set_stage(&mut self, stage: Arc<Stage>) {
        self.storm = stage.storm();
        self.stage = stage;
    }
}
