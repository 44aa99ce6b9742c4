// SPDX-License-Identifier: Apache-2.0
//! Place of a base chain.

/// Chain to import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// Forwarded packets.
    #[default]
    Forward,
    /// Packets for the host.
    Input,
    /// All received packets.
    Prerouting,
    /// All received frames of a device (nftables only).
    Ingress,
    /// All packets that leave (nftables only).
    Postrouting,
}

impl Hook {
    /// Returns the name in nftables; iptables has it in capitals.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Input => "input",
            Self::Prerouting => "prerouting",
            Self::Ingress => "ingress",
            Self::Postrouting => "postrouting",
        }
    }

    /// Returns true if the packets of the chain leave.
    pub(super) const fn is_out(self) -> bool {
        matches!(self, Self::Postrouting)
    }
}
