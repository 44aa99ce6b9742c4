// SPDX-License-Identifier: Apache-2.0
//! Kinds of ports.

/// Kind of a port: the scheme of its URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortKind {
    /// Shared memory, by the memif protocol.
    Memif,
    /// Host side of vhost-user.
    Vhost,
    /// Guest side of vhost-user.
    VirtioUser,
    /// A kernel network interface that the port creates and serves.
    Tap,
    /// A pair of kernel network interfaces that the port creates.
    Veth,
    /// AF_PACKET sockets on a kernel interface.
    AfPacket,
    /// AF_XDP sockets on a kernel interface.
    AfXdp,
    /// A network card.
    Pci,
    /// Files with frames.
    Pcap,
    /// A port without a peer.
    Null,
}

impl PortKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Memif,
        Self::Vhost,
        Self::VirtioUser,
        Self::Tap,
        Self::Veth,
        Self::AfPacket,
        Self::AfXdp,
        Self::Pci,
        Self::Pcap,
        Self::Null,
    ];

    /// Returns true for ports with a driver of DPDK, of which a process has at most [`crate::DEVICES_MAX`]. The others have drivers of this
    /// crate.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::AfXdp | Self::Pci | Self::Pcap | Self::Null)
    }

    /// Returns the scheme.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memif => "memif",
            Self::Vhost => "vhost",
            Self::VirtioUser => "virtio-user",
            Self::Tap => "tap",
            Self::Veth => "veth",
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
            Self::Pci => "pci",
            Self::Pcap => "pcap",
            Self::Null => "null",
        }
    }
}
