// SPDX-License-Identifier: Apache-2.0
//! Promiscuous mode of a card, which is disabled again when its port is closed: drivers that share a card with the kernel keep it, and so
//! does the physical function of a virtual function.

use super::Device;
use crate::error;
use crate::sys;
use crate::uri::PortUri;

impl Device {
    /// Enables promiscuous mode. If the driver of a card refuses it, as for a virtual function without trust, the port receives frames to
    /// its own address and, if the driver allows it, to all multicast addresses.
    pub(super) fn enable_promiscuous_mode(&mut self) {
        // SAFETY: started.
        let code = unsafe {
            if sys::rte_eth_promiscuous_get(self.id) == 1 {
                return;
            }
            sys::rte_eth_promiscuous_enable(self.id)
        };
        self.is_made_promiscuous = code == 0;
        // A virtual device that does not support promiscuous mode receives all frames anyway.
        if code == 0 || !matches!(self.uri, PortUri::Pci { .. }) {
            return;
        }
        // SAFETY: as above.
        let multicast = unsafe { sys::rte_eth_allmulticast_enable(self.id) };
        let further = match multicast {
            0 => " and to multicast addresses",
            _ => "",
        };
        tracing::warn!(
            "port '{}': it receives only frames to its own MAC address{further}, because the driver refuses promiscuous mode: {} (for a virtual function, use trust=on)",
            self.name,
            error::text(code)
        );
    }

    /// Disables the promiscuous mode that the port has enabled on a card that was not removed.
    pub(super) fn disable_promiscuous_mode(&mut self) {
        if !std::mem::take(&mut self.is_made_promiscuous) || self.is_removed() {
            return;
        }
        // SAFETY: as above.
        let code = unsafe { sys::rte_eth_promiscuous_disable(self.id) };
        if code != 0 {
            tracing::debug!(
                "port '{}': cannot disable promiscuous mode: {}",
                self.name,
                error::text(code)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mempool::Mempool;
    use crate::port::options::PortOptions;

    #[test]
    fn promiscuous_mode_is_disabled_only_if_the_port_has_enabled_it() {
        let eal = crate::testing::eal();
        let options = PortOptions::new("promiscuous", 1518);
        let pool = Mempool::new(&eal, "promiscuous", 4095, options.data_room()).unwrap();
        let uri = "null:".parse().unwrap();
        let mut device = Device::open(&eal, &uri, &options, &pool).unwrap();
        device.start(&options).unwrap();
        // SAFETY: started.
        let mode = |device: &Device| unsafe { sys::rte_eth_promiscuous_get(device.id) };
        let began = mode(&device);
        let is_made = device.is_made_promiscuous;
        device.enable_promiscuous_mode();
        assert_eq!(
            (mode(&device), device.is_made_promiscuous),
            (began, is_made)
        );
        device.disable_promiscuous_mode();
        assert!(!device.is_made_promiscuous);
        assert_eq!(mode(&device) == 1, began == 1 && !is_made);
    }
}
