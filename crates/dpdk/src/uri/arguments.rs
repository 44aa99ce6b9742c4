// SPDX-License-Identifier: Apache-2.0
//! DPDK's device arguments of a port.

use super::PortUri;

impl PortUri {
    /// Returns DPDK's device arguments for this port with this number of queue pairs, the `index`-th of its kind in this process.
    /// Empty for ports without a DPDK driver.
    pub(crate) fn device_arguments(&self, index: u32, queues: u16) -> String {
        match self {
            Self::AfXdp {
                interface,
                first_queue,
                copy,
                ..
            } => format!(
                "net_af_xdp{index},iface={interface},start_queue={first_queue},queue_count={queues}{}",
                if *copy { ",force_copy=1" } else { "" },
            ),
            Self::Pcap { rx, tx, repeat } => {
                let mut text = format!("net_pcap{index}");
                for (key, file) in [("rx_pcap", rx), ("tx_pcap", tx)] {
                    if let Some(file) = file {
                        text += &format!(",{key}={}", file.display());
                    }
                }
                if *repeat {
                    text += ",infinite_rx=1";
                }
                text
            }
            Self::Null => format!("net_null{index}"),
            Self::Pci { .. } => self.pci_device().unwrap_or_default(),
            Self::Memif { .. }
            | Self::VirtioUser { .. }
            | Self::Vhost { .. }
            | Self::AfPacket { .. }
            | Self::Veth { .. }
            | Self::Tap { .. } => String::new(),
        }
    }
}
