// SPDX-License-Identifier: Apache-2.0
//! Kinds of elements, links, frames and forwarding.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Role of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends and receives frames; starts and ends every chain.
    Tester,
    /// Connects other elements.
    Switch,
    /// A network function with two ports.
    Vnf,
    /// Connects ports of two guests, which are both network cards, without changing frames.
    Relay,
}

/// Place of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementPlace {
    /// A process on the host.
    Host,
    /// A process in separate namespaces.
    Container,
    /// A virtual machine.
    Guest,
}

/// Kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Memory shared by two processes.
    Memif,
    /// A virtio network card and its back end.
    VhostUser,
    /// A pair of kernel interfaces (veth).
    Veth,
    /// A kernel interface (tap) and the process that is its peer.
    Tap,
    /// A network card, with a cable to the tester.
    Pci,
}

/// Encapsulation of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    /// Ethernet: devices read only the Ethernet header. The payload is IPv4.
    #[default]
    L2,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Ethernet in VXLAN in UDP in IPv4 (RFC 7348).
    Vxlan,
}

/// Forwarding mode of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// By ingress port.
    #[default]
    CrossConnect,
    /// By learned MAC addresses, in one bridge per pair of ports.
    Bridge,
}

macro_rules! named_by {
    ($kind:ty, $($value:ident => $name:literal),+ $(,)?) => {
        impl $kind {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// Returns its name in options and files.
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
