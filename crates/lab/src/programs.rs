// SPDX-License-Identifier: Apache-2.0
//! Forwarding programs of a topology, as a switch or as a VNF: one file each, all behind one trait.

mod forwarder;
mod guest;
mod installed;
mod kernel;
mod l2fwd;
mod l3fwd;
mod linux_bridge;
mod linux_routing;
mod networks;
mod ovs;
mod ovs_dpdk;
mod ovs_netdev;
mod own_image;
mod quietwire;
mod router;
mod testpmd;
#[cfg(test)]
pub(crate) mod tests;
mod vdev;
mod vpp;

use std::path::Path;

use crate::topology::Program;
use crate::unavailable::Unavailable;

pub(crate) use forwarder::Forwarder;
pub(crate) use guest::{Hypervisor, InGuest, has_guests_card};
pub(crate) use kernel::steer;
pub(crate) use quietwire::check_config;

/// Rules of a firewall without configured rules.
pub const FIREWALL_RULES: &str = include_str!("programs/firewall.toml");

/// Returns the adapter of a program on the host or in a container. `quietwire` is this project's own binary.
pub(crate) fn forwarder_for(program: Program, quietwire: &Path) -> Box<dyn Forwarder> {
    match program {
        Program::Quietwire
        | Program::Firewall
        | Program::QuietwireRouter
        | Program::Nat
        | Program::Tester => Box::new(quietwire::Quietwire::new(quietwire)),
        Program::TestpmdIo => Box::new(testpmd::Testpmd::new("io")),
        Program::TestpmdMac => Box::new(testpmd::Testpmd::new("mac")),
        Program::TestpmdMacswap => Box::new(testpmd::Testpmd::new("macswap")),
        Program::OvsDpdk | Program::OvsDpdkRouter => Box::new(ovs_dpdk::OvsDpdk::default()),
        Program::OvsNetdev => Box::new(ovs_netdev::OvsNetdev::default()),
        Program::LinuxBridge => Box::new(linux_bridge::LinuxBridge),
        Program::LinuxRouting => Box::new(linux_routing::LinuxRouting),
        Program::L2fwd => Box::new(l2fwd::L2fwd::new(quietwire)),
        Program::L3fwd => Box::new(l3fwd::L3fwd::new(quietwire)),
        Program::Vpp => Box::new(vpp::Vpp::default()),
        Program::OwnImage => Box::new(own_image::OwnImage),
    }
}

/// Returns the version of a program on this machine, or the reason why it is unavailable.
///
/// # Errors
/// [`Unavailable`].
pub fn availability(program: Program, quietwire: &Path) -> Result<String, Unavailable> {
    forwarder_for(program, quietwire).probe()
}
