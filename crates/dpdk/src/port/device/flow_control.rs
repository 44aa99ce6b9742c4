// SPDX-License-Identifier: Apache-2.0
//! Flow control of a card, which is restored when its port is closed: drivers that share a card with the kernel keep it.

use super::Device;
use crate::error::{self, Error};
use crate::sys;
use crate::uri::{FlowControl, PortUri};

/// Returns the value of DPDK (rte_ethdev.h, `enum rte_eth_fc_mode`).
const fn mode_of(control: FlowControl) -> i32 {
    match control {
        FlowControl::Off => 0,
        FlowControl::Rx => 1,
        FlowControl::Tx => 2,
        FlowControl::On => 3,
    }
}

/// Returns the flow control of a value of DPDK; none for an error.
fn of_mode(mode: i32) -> Option<FlowControl> {
    let mut all = FlowControl::ALL.into_iter();
    all.find(|control| mode_of(*control) == mode)
}

impl Device {
    /// Returns the flow control that the driver of a card reports; none if it has none. Most drivers report the mode in effect, which is
    /// [`FlowControl::Off`] without a link.
    pub(crate) fn flow_control(&self) -> Option<FlowControl> {
        if !matches!(self.uri, PortUri::Pci { .. }) {
            return None;
        }
        // SAFETY: the port exists.
        of_mode(unsafe { sys::qw_flow_control(self.id) })
    }

    /// Sets the flow control that the URI requests.
    pub(super) fn set_flow_control(&mut self) -> Result<(), Error> {
        let PortUri::Pci {
            flow_control: Some(control),
            ..
        } = self.uri
        else {
            return Ok(());
        };
        let (mode, mut former) = (mode_of(control), 0);
        // SAFETY: started; the shim writes a number.
        let code = unsafe { sys::qw_set_flow_control(self.id, mode, &raw mut former) };
        self.check(
            code,
            "setting flow control (remove flow-control if the card has none)",
        )?;
        if former != mode {
            self.former_flow_control = Some(former);
        }
        Ok(())
    }

    /// Restores the former one on a card that was not removed.
    pub(super) fn restore_flow_control(&mut self) {
        let Some(former) = self.former_flow_control.take() else {
            return;
        };
        if self.is_removed() {
            return;
        }
        let mut last = 0;
        // SAFETY: as above.
        let code = unsafe { sys::qw_set_flow_control(self.id, former, &raw mut last) };
        if code != 0 {
            tracing::warn!(
                "port '{}': cannot restore flow control: {}",
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
    fn a_device_without_flow_control_reports_it() {
        let eal = crate::testing::eal();
        let options = PortOptions::new("flow-control", 1518);
        let pool = Mempool::new(&eal, "flow-control", 4095, options.data_room()).unwrap();
        let uri = "null:".parse().unwrap();
        let mut device = Device::open(&eal, &uri, &options, &pool).unwrap();
        device.start(&options).unwrap();
        let mut former = 7;
        // SAFETY: started; the shim writes a number.
        let code = unsafe { sys::qw_set_flow_control(device.id, 0, &raw mut former) };
        assert_eq!((code, former), (-nix::libc::ENOTSUP, 7));
        // SAFETY: the port exists.
        let mode = unsafe { sys::qw_flow_control(device.id) };
        assert_eq!((mode, of_mode(mode)), (-nix::libc::ENOTSUP, None));
        assert_eq!(device.flow_control(), None);
        // No URI requests it.
        device.set_flow_control().unwrap();
        assert_eq!(device.former_flow_control, None);
    }

    #[test]
    fn modes_are_those_of_dpdk() {
        let modes = FlowControl::ALL.map(mode_of);
        let of_dpdk = [
            sys::RTE_ETH_FC_NONE,
            sys::RTE_ETH_FC_RX_PAUSE,
            sys::RTE_ETH_FC_TX_PAUSE,
            sys::RTE_ETH_FC_FULL,
        ];
        assert_eq!(modes.map(i64::from), of_dpdk.map(i64::from));
        assert_eq!(modes.map(of_mode), FlowControl::ALL.map(Some));
        assert_eq!(of_mode(4), None);
    }
}
