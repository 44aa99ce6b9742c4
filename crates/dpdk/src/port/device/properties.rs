// SPDX-License-Identifier: Apache-2.0
//! Properties of a device that DPDK reports: rings, link, NUMA node, MAC address.

use std::mem;

use super::Device;
use crate::mempool::Mempool;
use crate::sys;
use crate::uri::PortUri;

impl Device {
    /// Returns the descriptors of the first receive and the first transmit queue, if the driver reports them.
    pub(crate) fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        // SAFETY: plain integers and pointers, for which zero is a value; the port exists and has these queues.
        unsafe {
            let mut rx: sys::rte_eth_rxq_info = mem::zeroed();
            let mut tx: sys::rte_eth_txq_info = mem::zeroed();
            (
                (sys::rte_eth_rx_queue_info_get(self.id, 0, &raw mut rx) == 0)
                    .then_some(rx.nb_desc),
                (sys::rte_eth_tx_queue_info_get(self.id, 0, &raw mut tx) == 0)
                    .then_some(tx.nb_desc),
            )
        }
    }

    /// Returns the link speed, Mbit/s; none without a link or if it is unknown.
    pub(crate) fn speed_mbps(&self) -> Option<u32> {
        if !matches!(self.uri, PortUri::Pci { .. }) {
            return None;
        }
        let mut speed = 0;
        // SAFETY: the port exists.
        unsafe { sys::qw_link(self.id, &raw mut speed) };
        (speed != 0 && speed != u32::MAX).then_some(speed)
    }

    /// Returns true at the first call after the driver has reported that the device was reset by its physical function or its firmware.
    pub(crate) fn take_reset(&self) -> bool {
        // SAFETY: a call without preconditions.
        matches!(self.uri, PortUri::Pci { .. }) && unsafe { sys::qw_take_reset(self.id) == 1 }
    }

    /// Returns true while a peer is connected or the link is up.
    pub(crate) fn link_is_up(&self) -> bool {
        let mut speed = 0;
        // SAFETY: the port exists.
        unsafe { sys::qw_link(self.id, &raw mut speed) == 1 }
    }

    /// Returns the pool of its receive buffers.
    pub(crate) fn pool(&self) -> &Mempool {
        &self._pool
    }

    /// Returns the nearest NUMA node of the device; none for a virtual device or if the machine does not report it.
    pub(crate) fn node(&self) -> Option<u32> {
        // SAFETY: the port exists. Without a node the result is negative.
        let node = unsafe { sys::rte_eth_dev_socket_id(self.id) };
        match self.uri {
            PortUri::Pci { .. } => u32::try_from(node).ok(),
            _ => None,
        }
    }

    /// Returns the port's MAC address.
    pub(crate) fn mac_address(&self) -> [u8; 6] {
        // SAFETY: plain octets; the port exists.
        unsafe {
            let mut address: sys::rte_ether_addr = mem::zeroed();
            sys::rte_eth_macaddr_get(self.id, &raw mut address);
            address.addr_bytes
        }
    }
}
