// SPDX-License-Identifier: Apache-2.0
//! A port of the running switch: its device, its queues and the threads that use them.

use std::sync::Arc;

use quietwire_dpdk::{KernelCounts, PortHandle, TxQueue};

use super::assign::QueueId;
use super::buffers::PortBuffers;
use super::driver_drops::DriverDrops;
use super::links::Link;
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
    /// Number of transmit queues in all.
    pub(crate) tx_queues: u16,
    /// CPUs of the threads that own a transmit queue.
    pub(crate) homes: Vec<u32>,
    /// CPUs of the threads that send through a ring to one of these.
    pub(crate) guests: Vec<u32>,
    /// Transmit queues not assigned to a thread.
    pub(crate) spare_tx: Vec<TxQueue>,
    /// True once its removal has begun. Then it cannot be used again.
    pub(crate) is_closing: bool,
    /// Stage of the port's frames. The control thread holds a reference, so that no forwarding thread frees it.
    pub(crate) stage: Arc<Stage>,
    /// Counts of earlier ports with this number at the time this port was opened.
    pub(crate) base: PortCounts,
    pub(crate) driver: DriverDrops,
    pub(crate) link: Link,
    /// Frames that the kernel has forwarded since this port was opened.
    pub(crate) kernel: KernelCounts,
    pub(crate) _buffers: PortBuffers,
}
