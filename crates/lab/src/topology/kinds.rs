// SPDX-License-Identifier: Apache-2.0
//! Kinds of elements, of links, of frames and of forwarding.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an element is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends and receives; begins and ends every chain.
    Tester,
    /// Connects others.
    Switch,
    /// A network function: two ports, frames go through.
    Vnf,
    /// Joins ports of two guests, which are network cards both, as they are.
    Relay,
}

/// Where an element runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementPlace {
    /// On the host, as it is.
    Host,
    /// A process in namespaces of its own.
    Container,
    /// A virtual machine.
    Guest,
}

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Memory shared by two processes.
    Memif,
    /// A virtio network card and its other side.
    VhostUser,
    /// Two interfaces of the kernel's that are each other's peer.
    Veth,
    /// An interface of the kernel's, and the process that is its other side.
    Tap,
    /// A network card, with a cable to the tester.
    Pci,
}

/// What the frames carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    /// Devices read the Ethernet header only. The payload is IPv4.
    #[default]
    L2,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Ethernet in VXLAN in UDP in IPv4 (RFC 7348).
    Vxlan,
}

/// How switches decide where a frame goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// By the port it came in at.
    #[default]
    CrossConnect,
    /// By learned MAC addresses, in a bridge for each pair of ports.
    Bridge,
}

macro_rules! named_by {
    ($kind:ty, $($value:ident => $name:literal),+ $(,)?) => {
        impl $kind {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Its name, as it is chosen by.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named_by!(Role, Tester => "tester", Switch => "switch", Vnf => "vnf", Relay => "relay");
named_by!(ElementPlace, Host => "host", Container => "container", Guest => "guest");
named_by!(LinkKind, Memif => "memif", VhostUser => "vhost-user", Veth => "veth", Tap => "tap", Pci => "pci");
named_by!(Encapsulation, L2 => "l2", Ipv4 => "ipv4", Ipv6 => "ipv6", Vxlan => "vxlan");
named_by!(Forwarding, CrossConnect => "cross-connect", Bridge => "bridge");
