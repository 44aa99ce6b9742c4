// SPDX-License-Identifier: Apache-2.0
//! Likely causes of errors that DPDK's drivers do not explain.

use quietwire_base::net_device;

use crate::uri::PortUri;

/// Largest MTU of both ends of a veth pair with an XDP program, octets: a page of 4 KiB has a frame, the headroom of XDP and the kernel's
/// description of the buffer (drivers/net/veth.c, veth_xdp_set: 4096 - 256 - 320 - 14). Network cards have similar limits.
const XDP_MTU: u32 = 3506;

/// Returns the most likely cause if a driver's error is not specific.
pub(super) fn hint(uri: &PortUri) -> &'static str {
    match uri {
        PortUri::Pci { .. } => {
            "(no DPDK driver supports this card, or the program was started without PCI ports and therefore without the PCI bus)"
        }
        _ => "",
    }
}

/// Returns the likely cause of an unspecific error of a device that was found: AF_XDP limits the MTU, and a queue of an interface has one
/// user.
pub(super) fn likely_cause(uri: &PortUri) -> String {
    let PortUri::AfXdp { interface, .. } = uri else {
        return String::new();
    };
    match net_device::value::<u32>(interface, "mtu") {
        Some(mtu) if mtu > XDP_MTU => format!(
            "; the MTU of {mtu} octets may be too large for XDP (set at most {XDP_MTU} on this interface and on the other end of a pair, or use af-packet)"
        ),
        _ => "; another program, such as another switch, may have the queue (stop it, or choose other queues with first-queue=N)".to_owned(),
    }
}
