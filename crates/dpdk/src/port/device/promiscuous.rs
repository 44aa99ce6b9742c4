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
        let further = match self.enable_allmulticast_mode() {
            true => " and to multicast addresses",
            false => "",
        };
        tracing::warn!(
            "port '{}': it receives only frames to its own MAC address{further}, because the driver refuses promiscuous mode: {} (for a virtual function, use trust=on)",
            self.name,
            error::text(code)
        );
    }

    /// Enables the receipt of all multicast frames. Returns false if the driver refuses it.
    fn enable_allmulticast_mode(&mut self) -> bool {
        // SAFETY: started.
        let code = unsafe {
            if sys::rte_eth_allmulticast_get(self.id) == 1 {
                return true;
            }
            sys::rte_eth_allmulticast_enable(self.id)
        };
        self.is_made_allmulticast = code == 0;
        self.is_made_allmulticast
    }

    /// Disables the modes that the port has enabled on a card that was not removed.
    pub(super) fn disable_promiscuous_mode(&mut self) {
        let promiscuous = std::mem::take(&mut self.is_made_promiscuous);
        let allmulticast = std::mem::take(&mut self.is_made_allmulticast);
        if self.is_removed() {
            return;
        }
        if promiscuous {
            // SAFETY: started.
            let code = unsafe { sys::rte_eth_promiscuous_disable(self.id) };
            self.note_mode("promiscuous mode", code);
        }
        if allmulticast {
            // SAFETY: started.
            let code = unsafe { sys::rte_eth_allmulticast_disable(self.id) };
            self.note_mode("the receipt of all multicast frames", code);
        }
    }

    fn note_mode(&self, mode: &str, code: i32) {
        if code != 0 {
            let (port, cause) = (&self.name, error::text(code));
            tracing::debug!("port '{port}': cannot disable {mode}: {cause}");
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

    #[test]
    fn the_receipt_of_multicast_is_disabled_only_if_the_port_has_enabled_it() {
        let eal = crate::testing::eal();
        let options = PortOptions::new("multicast", 1518);
        let pool = Mempool::new(&eal, "multicast", 4095, options.data_room()).unwrap();
        let uri = "null:".parse().unwrap();
        let mut device = Device::open(&eal, &uri, &options, &pool).unwrap();
        device.start(&options).unwrap();
        // SAFETY: started.
        let mode = |device: &Device| unsafe { sys::rte_eth_allmulticast_get(device.id) };
        let began = mode(&device);
        assert!(!device.is_made_allmulticast);
        let is_enabled = device.enable_allmulticast_mode();
        assert_eq!(mode(&device) == 1, is_enabled);
        assert_eq!(device.is_made_allmulticast, is_enabled && began == 0);
        // A second request changes nothing.
        let is_made = device.is_made_allmulticast;
        assert_eq!(device.enable_allmulticast_mode(), is_enabled);
        assert_eq!(device.is_made_allmulticast, is_made);
        device.disable_promiscuous_mode();
        assert_eq!((mode(&device), device.is_made_allmulticast), (began, false));
    }
}
