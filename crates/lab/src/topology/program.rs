// SPDX-License-Identifier: Apache-2.0
//! Programs of elements, and the links that each supports.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::kinds::{ElementPlace, LinkKind, Role};

/// Program of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The built-in tester.
    Tester,
    /// quietwire's switch.
    Quietwire,
    /// quietwire's switch as a firewall, with filter rules.
    Firewall,
    /// quietwire's switch as a router.
    QuietwireRouter,
    /// quietwire's switch as a router that translates addresses.
    Nat,
    /// `dpdk-testpmd`, frames unchanged.
    TestpmdIo,
    /// `dpdk-testpmd`, sets new MAC addresses.
    TestpmdMac,
    /// `dpdk-testpmd`, swaps source and destination MAC address.
    TestpmdMacswap,
    /// Open vSwitch on DPDK.
    OvsDpdk,
    /// Open vSwitch on DPDK as a router.
    OvsDpdkRouter,
    /// Open vSwitch in user space, without DPDK.
    OvsNetdev,
    /// A bridge of the kernel.
    LinuxBridge,
    /// The kernel as a router.
    LinuxRouting,
    /// `dpdk-l2fwd`, of DPDK's examples.
    L2fwd,
    /// `dpdk-l3fwd`, of DPDK's examples.
    L3fwd,
    /// VPP, of FD.io.
    Vpp,
    /// The user's own image, which forwards without an agent.
    OwnImage,
}

impl Program {
    /// All programs for a switch or a VNF.
    pub const ALL: [Self; 16] = [
        Self::Quietwire,
        Self::Firewall,
        Self::QuietwireRouter,
        Self::Nat,
        Self::TestpmdIo,
        Self::TestpmdMac,
        Self::TestpmdMacswap,
        Self::OvsDpdk,
        Self::OvsDpdkRouter,
        Self::OvsNetdev,
        Self::LinuxBridge,
        Self::LinuxRouting,
        Self::L2fwd,
        Self::L3fwd,
        Self::Vpp,
        Self::OwnImage,
    ];

    /// Returns its name in options and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tester => "tester",
            Self::Quietwire => "quietwire",
            Self::Firewall => "firewall",
            Self::QuietwireRouter => "quietwire-router",
            Self::Nat => "nat",
            Self::TestpmdIo => "testpmd-io",
            Self::TestpmdMac => "testpmd-mac",
            Self::TestpmdMacswap => "testpmd-macswap",
            Self::OvsDpdk => "ovs-dpdk",
            Self::OvsDpdkRouter => "ovs-dpdk-router",
            Self::OvsNetdev => "ovs-netdev",
            Self::LinuxBridge => "linux-bridge",
            Self::LinuxRouting => "linux-routing",
            Self::L2fwd => "l2fwd",
            Self::L3fwd => "l3fwd",
            Self::Vpp => "vpp",
            Self::OwnImage => "own-image",
        }
    }

    /// Returns true if it supports this role.
    #[must_use]
    pub fn suits(self, role: Role) -> bool {
        match role {
            Role::Tester => self == Self::Tester,
            Role::Switch => !matches!(self, Self::Tester | Self::OwnImage),
            Role::Vnf => self.is_vnf(),
            Role::Relay => self == Self::Quietwire,
        }
    }

    /// Returns true if it can be a VNF, which has two ports.
    fn is_vnf(self) -> bool {
        self.runs_in_containers()
            || matches!(
                self,
                Self::LinuxBridge | Self::LinuxRouting | Self::OwnImage
            )
    }

    /// Returns true if it runs in a container.
    #[must_use]
    pub fn runs_in_containers(self) -> bool {
        matches!(
            self,
            Self::Quietwire
                | Self::Firewall
                | Self::QuietwireRouter
                | Self::Nat
                | Self::TestpmdIo
                | Self::TestpmdMac
                | Self::TestpmdMacswap
        )
    }

    /// Returns true if it runs in a guest.
    #[must_use]
    pub fn runs_in_guests(self) -> bool {
        self.is_vnf()
    }

    /// Returns true if it forwards by IP addresses and rewrites MAC addresses.
    #[must_use]
    pub fn routes(self) -> bool {
        matches!(
            self,
            Self::LinuxRouting
                | Self::QuietwireRouter
                | Self::Nat
                | Self::OvsDpdkRouter
                | Self::L3fwd
        )
    }

    /// Returns true if it is quietwire's switch, which accepts a configuration file.
    #[must_use]
    pub fn is_quietwire(self) -> bool {
        matches!(
            self,
            Self::Quietwire | Self::Firewall | Self::QuietwireRouter | Self::Nat
        )
    }

    /// Returns true if several of them can be VNFs of a chain, with a network between each two.
    #[must_use]
    pub fn routes_in_chains(self) -> bool {
        matches!(self, Self::QuietwireRouter | Self::Nat)
    }

    /// Returns true if it routes between two ports only, so that its chain can have no other element.
    #[must_use]
    pub fn routes_alone(self) -> bool {
        matches!(self, Self::OvsDpdkRouter | Self::L3fwd)
    }

    /// Returns the kinds of links that it supports, the fastest first.
    #[must_use]
    pub fn links(self, place: ElementPlace) -> &'static [LinkKind] {
        use LinkKind::{Memif, Pci, Tap, Veth, VhostUser};
        if place == ElementPlace::Guest {
            // A network card of the guest, whatever its back end.
            return &[VhostUser, Tap, Pci];
        }
        match self {
            // Memif ports of Open vSwitch receive but do not send with DPDK 22.11.
            Self::OvsDpdk | Self::OvsDpdkRouter => &[VhostUser, Pci],
            Self::OvsNetdev | Self::LinuxBridge | Self::LinuxRouting => &[Veth, Tap, Pci],
            Self::Tester | Self::Quietwire | Self::Firewall | Self::QuietwireRouter | Self::Nat => {
                &[Memif, VhostUser, Veth, Tap, Pci]
            }
            Self::TestpmdIo
            | Self::TestpmdMac
            | Self::TestpmdMacswap
            | Self::L2fwd
            | Self::L3fwd
            | Self::Vpp
            | Self::OwnImage => &[Memif, VhostUser, Veth, Pci],
        }
    }

    /// Returns true if its ports are kernel interfaces: it accepts a tap that another process creates, and creates none itself.
    #[must_use]
    pub fn is_of_the_kernel(self) -> bool {
        matches!(
            self,
            Self::OvsNetdev | Self::LinuxBridge | Self::LinuxRouting
        )
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
