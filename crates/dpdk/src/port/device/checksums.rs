// SPDX-License-Identifier: Apache-2.0
//! Checksums of TCP and UDP by the card of a port: it verifies those of received frames, and computes those of frames that the switch cuts
//! or that guests and kernels left incomplete.

use crate::sys;
use crate::uri::PortUri;

/// rte_ethdev.h, RTE_ETH_RX_OFFLOAD_UDP_CKSUM and RTE_ETH_RX_OFFLOAD_TCP_CKSUM, and the same for RTE_ETH_TX_OFFLOAD: macros that bindgen
/// cannot read.
const UDP: u64 = 1 << 2;
const TCP: u64 = 1 << 3;

/// Offloads of a card that a port uses for checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CardChecksums {
    /// Of received frames.
    pub(super) rx: u64,
    /// Of transmitted frames.
    pub(super) tx: u64,
}

impl CardChecksums {
    /// Returns those that the driver of a card has, unless the URI disables them.
    pub(super) const fn of(uri: &PortUri, info: &sys::rte_eth_dev_info) -> Self {
        let has = match uri {
            PortUri::Pci { checksum: true, .. } => UDP | TCP,
            _ => 0,
        };
        Self {
            rx: info.rx_offload_capa & has,
            tx: info.tx_offload_capa & has,
        }
    }

    /// Returns true if the card computes the checksum of TCP, or that of UDP.
    pub(super) const fn computes(self, is_tcp: bool) -> bool {
        let offload = if is_tcp { TCP } else { UDP };
        self.tx & offload != 0
    }
}
