// SPDX-License-Identifier: Apache-2.0
//! A port of the running switch: its device, its queues and who has them.

use std::sync::Arc;

use quietwire_dpdk::{Mempool, PortHandle, TxQueue};

use super::assign::QueueId;
use super::driver_drops::DriverDrops;
use crate::config::PortPlan;
use crate::counters::QueueCounters;
use crate::forward::Stage;
use crate::report::PortCounts;

/// A receive queue of a port.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    pub(crate) id: QueueId,
    /// CPU of the thread that serves it.
    pub(crate) cpu: Option<u32>,
    pub(crate) counters: Arc<QueueCounters>,
}

/// A port of the running switch.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) plan: PortPlan,
    pub(crate) handle: PortHandle,
    pub(crate) queues: Vec<QueueSlot>,
    /// Transmit queues, whoever has them.
    pub(crate) tx_queues: u16,
    /// CPUs of the threads that have a transmit queue.
    pub(crate) homes: Vec<u32>,
    /// CPUs of the threads that send over a ring to one of these.
    pub(crate) guests: Vec<u32>,
    /// Transmit queues that no thread has.
    pub(crate) spare_tx: Vec<TxQueue>,
    /// What forwarding threads do with its frames. Held here too, so that none of them frees it.
    pub(crate) stage: Arc<Stage>,
    /// What a former port of this number had counted when this one was opened.
    pub(crate) base: PortCounts,
    pub(crate) driver: DriverDrops,
    pub(crate) _pool: Mempool,
}
