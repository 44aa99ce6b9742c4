// SPDX-License-Identifier: Apache-2.0
//! Ports whose frames the kernel may forward by itself: those of kind `veth`.

use quietwire_packet::{ETHERNET_HEADER_LENGTH, VlanId};

use super::{Backend, PortHandle, af_packet, veth};
use crate::error::Error;
use crate::kernel_forwarding::{KernelForwarding, KernelPort};

impl PortHandle {
    /// Lets the kernel decide on the frames that a `veth` port receives. With a VLAN, these are its untagged frames. `number` is that of the
    /// port in reports.
    ///
    /// # Errors
    /// [`Error::KernelForwarding`]: another kind of port, or the kernel's error. The port receives all frames then.
    pub fn join_kernel_forwarding(
        &self,
        forwarding: &KernelForwarding,
        number: u16,
        vlan: Option<VlanId>,
    ) -> Result<KernelPort, Error> {
        let Some((interface, pair)) = self.kernel_ends() else {
            return Err(Error::KernelForwarding {
                step: "the kind of the port",
                cause: format!(
                    "port '{}' is not a veth port (use such a port)",
                    self.inner.name
                ),
            });
        };
        let port = forwarding.attach(pair.index(), number)?;
        let set = interface.set_filter(Some(forwarding.filter()));
        let set = set.map_err(|(step, error)| Error::KernelForwarding {
            step,
            cause: error.desc().to_owned(),
        });
        if let Err(error) = set.and_then(|()| port.start(vlan)) {
            self.leave_kernel_forwarding(port);
            return Err(error);
        }
        Ok(port)
    }

    /// Undoes [`Self::join_kernel_forwarding`].
    pub fn leave_kernel_forwarding(&self, port: KernelPort) {
        // The filter keeps no frame from the sockets then.
        drop(port);
        let Some((interface, _)) = self.kernel_ends() else {
            return;
        };
        if let Err((step, error)) = interface.set_filter(None) {
            let (name, cause) = (&self.inner.name, error.desc());
            tracing::warn!("port '{name}' keeps a filter that passes all frames: {step}: {cause}");
        }
    }

    /// Returns the length of the longest frame that a `veth` port sends now, octets without FCS and tags; none for other ports, or if the
    /// interface is gone.
    #[must_use]
    pub fn kernel_length_max(&self) -> Option<u32> {
        let (interface, _) = self.kernel_ends()?;
        let length = interface.mtu()?.checked_add(ETHERNET_HEADER_LENGTH)?;
        u32::try_from(length).ok()
    }

    fn kernel_ends(&self) -> Option<(&af_packet::Interface, &veth::Pair)> {
        match (&self.inner.backend, &self.inner.pair) {
            (Backend::AfPacket(interface), Some(pair)) => Some((interface, pair)),
            _ => None,
        }
    }
}
