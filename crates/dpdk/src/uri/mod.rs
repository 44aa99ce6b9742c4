// SPDX-License-Identifier: Apache-2.0
//! Ports by URI: `memif:/path?role=server&id=0`, `virtio-user:/path?role=server`,
//! `vhost:/path?role=client`, `af-xdp:IFNAME`, `af-packet:IFNAME`, `tap:IFNAME`,
//! `pcap:?rx=FILE&tx=FILE`, `null:`, `pci:0000:17:00.0`.

mod arguments;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

/// Which side of a socket a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Makes the socket and listens.
    Server,
    /// Connects to a socket made by the peer.
    Client,
}

/// Where a port is and what drives it.
///
/// `queues` is the number of receive queues, and of transmit queues at most, that the port has in this
/// process; where both sides have a say, the peer may use fewer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortUri {
    /// Shared memory, by the memif protocol.
    Memif {
        /// The control socket; `@name` is in the abstract namespace.
        path: PathBuf,
        /// Which side this is. The client brings the memory.
        role: Role,
        /// Interface id on that socket.
        id: u32,
        /// Rings each way.
        queues: u16,
        /// File with the secret that both sides name, 24 octets at most.
        secret_file: Option<PathBuf>,
        /// Memory of the peer's that cannot be sealed against truncation is accepted.
        trust_memory: bool,
    },
    /// Guest side of vhost-user, without a guest.
    VirtioUser {
        /// The vhost-user socket.
        path: PathBuf,
        /// Which side this is.
        role: Role,
        /// Queue pairs.
        queues: u16,
        /// A received frame may be spread over several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
        mergeable: bool,
        /// Packed rings instead of split ones (`VIRTIO_F_RING_PACKED`).
        packed: bool,
    },
    /// Host side of vhost-user.
    Vhost {
        /// The vhost-user socket.
        path: PathBuf,
        /// Which side this is.
        role: Role,
        /// Queue pairs.
        queues: u16,
        /// Whether mergeable receive buffers are offered to the guest (`VIRTIO_NET_F_MRG_RXBUF`).
        mergeable: bool,
        /// Whether the guest is offered to leave checksums to the host (`VIRTIO_NET_F_CSUM`); they are computed when
        /// frames come in, so that every frame that goes on is whole.
        checksum: bool,
        /// Whether both sides may hand over TCP data of up to 64 KiB in one frame, to be cut into segments where that is
        /// needed (`VIRTIO_NET_F_HOST_TSO4` and `6`; `VIRTIO_NET_F_GUEST_TSO4` and `6`).
        tso: bool,
        /// Whether the guest may use addresses of its IOMMU (`VIRTIO_F_ACCESS_PLATFORM`).
        iommu: bool,
        /// Memory of the guest's that cannot be sealed against truncation is accepted.
        trust_memory: bool,
    },
    /// AF_XDP socket on a kernel interface (DPDK `net_af_xdp`).
    AfXdp {
        /// Name of the interface.
        interface: String,
        /// Queues of the interface that are taken over.
        queues: u16,
        /// The first of them.
        first_queue: u16,
        /// Copies frames even where the interface's driver could do without.
        copy: bool,
    },
    /// AF_PACKET sockets on a kernel interface.
    AfPacket {
        /// Name of the interface.
        interface: String,
        /// Sockets that the kernel spreads the frames over.
        queues: u16,
    },
    /// A network interface of the kernel's that this process makes and whose other end it is (DPDK `net_tap`).
    Tap {
        /// Name of the interface.
        interface: String,
        /// Queues of the interface.
        queues: u16,
    },
    /// Frames from a file and to a file (DPDK `net_pcap`).
    Pcap {
        /// The file that frames are read from.
        rx: Option<PathBuf>,
        /// The file that frames are written to; made anew.
        tx: Option<PathBuf>,
        /// Begins again at the file's end, for ever. Its frames are held in memory then.
        repeat: bool,
    },
    /// Swallows what it is given and yields empty frames (DPDK `net_null`).
    Null,
    /// A PCI device bound to a driver that DPDK can use.
    Pci {
        /// Full address: domain:bus:device.function.
        address: String,
        /// Receive queues.
        queues: u16,
    },
}

/// Why a text is not the URI of a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{uri}' is not the URI of a port: {what}. Known forms: memif:/path?role=server|client&id=N, virtio-user:/path?role=server|client, vhost:/path?role=server|client, af-xdp:IFNAME, af-packet:IFNAME, tap:IFNAME, pcap:?rx=FILE&tx=FILE, null:, pci:0000:17:00.0"
)]
pub struct UriError {
    /// The text.
    pub uri: String,
    /// What is wrong with it.
    pub what: String,
}

impl PortUri {
    /// The socket that this side makes itself, if any.
    #[must_use]
    pub fn own_socket(&self) -> Option<&Path> {
        match self.role() {
            Some(Role::Server) => self.socket(),
            _ => None,
        }
    }

    /// The kernel interface that the port takes over, if any. It is there before the port is.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::AfXdp { interface, .. } | Self::AfPacket { interface, .. } => Some(interface),
            _ => None,
        }
    }

    /// True where the peer's receive queue is shared memory: a frame that it has no room for was
    /// offered to the peer and lost there. False where transmission happens by a device or kernel of this host.
    #[must_use]
    pub fn is_shared_memory(&self) -> bool {
        self.socket().is_some()
    }

    /// Receive queues that the port has in this process unless told otherwise.
    #[must_use]
    pub fn queues(&self) -> u16 {
        match self {
            Self::Memif { queues, .. }
            | Self::VirtioUser { queues, .. }
            | Self::Vhost { queues, .. }
            | Self::AfXdp { queues, .. }
            | Self::AfPacket { queues, .. }
            | Self::Tap { queues, .. }
            | Self::Pci { queues, .. } => *queues,
            Self::Pcap { .. } | Self::Null => 1,
        }
    }

    /// Buffers of the port's pool that its driver keeps beside those in the rings.
    #[must_use]
    pub fn buffers_kept(&self) -> u32 {
        /// ETH_AF_XDP_NUM_BUFFERS of net_af_xdp: what a socket keeps for the kernel.
        const AF_XDP: u32 = 4096;
        /// 64 KiB in buffers of 2 KiB, twice a burst of frames.
        const TSO: u32 = 32 * 2 * crate::BURST_MAX as u32;
        match self {
            Self::AfXdp { queues, .. } => AF_XDP * u32::from(*queues),
            // A file that cannot be read is named when the port is opened.
            Self::Pcap {
                rx: Some(path),
                repeat: true,
                ..
            } => crate::pcap::frames(path).unwrap_or(0),
            // A burst of the longest frames that is received, and one on its way out.
            Self::Vhost {
                queues, tso: true, ..
            } => TSO * u32::from(*queues),
            _ => 0,
        }
    }

    /// Returns false if no thread can wait for frames of such a port. Whether a device of DPDK's has receive interrupts is found when
    /// it is started.
    #[must_use]
    pub fn may_have_interrupts(&self) -> bool {
        matches!(
            self,
            Self::Memif { .. }
                | Self::Vhost { .. }
                | Self::AfPacket { .. }
                | Self::Tap { .. }
                | Self::Pci { .. }
        )
    }

    /// True where frames with TCP data of any length may come in, with the request to cut them.
    #[must_use]
    pub fn has_segmentation(&self) -> bool {
        matches!(self, Self::Vhost { tso: true, .. })
    }

    /// True when memory of the peer's that cannot be sealed against truncation is accepted.
    #[must_use]
    pub fn trusts_memory(&self) -> bool {
        matches!(
            self,
            Self::Memif {
                trust_memory: true,
                ..
            } | Self::Vhost {
                trust_memory: true,
                ..
            }
        )
    }

    /// Which side of its socket the port is, where it has one.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Memif { role, .. } | Self::VirtioUser { role, .. } | Self::Vhost { role, .. } => {
                Some(*role)
            }
            _ => None,
        }
    }

    /// The socket that the port uses, made by itself or by its peer.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Self::Memif { path, .. } | Self::VirtioUser { path, .. } | Self::Vhost { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

impl fmt::Display for PortUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, place) = match self {
            Self::Memif { path, .. } => ("memif", path.display().to_string()),
            Self::VirtioUser { path, .. } => ("virtio-user", path.display().to_string()),
            Self::Vhost { path, .. } => ("vhost", path.display().to_string()),
            Self::AfXdp { interface, .. } => ("af-xdp", interface.clone()),
            Self::AfPacket { interface, .. } => ("af-packet", interface.clone()),
            Self::Tap { interface, .. } => ("tap", interface.clone()),
            Self::Pcap { .. } => ("pcap", String::new()),
            Self::Null => ("null", String::new()),
            Self::Pci { address, .. } => ("pci", address.clone()),
        };
        write!(f, "{scheme}:{place}")?;
        for (index, option) in self.options().iter().enumerate() {
            write!(f, "{}{option}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl PortUri {
    /// Options as they stand in the URI; those that have their usual value are left out.
    fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let mut when = |is_unusual: bool, option: String| {
            if is_unusual {
                options.push(option);
            }
        };
        if let Some(role) = self.role() {
            when(true, format!("role={role}"));
        }
        if let Self::Memif { id, .. } = self {
            when(true, format!("id={id}"));
        }
        when(self.queues() != 1, format!("queues={}", self.queues()));
        match self {
            Self::VirtioUser {
                mergeable, packed, ..
            } => {
                when(!mergeable, "mergeable=off".to_owned());
                when(*packed, "packed=on".to_owned());
            }
            Self::Vhost {
                mergeable,
                checksum,
                tso,
                iommu,
                ..
            } => {
                when(!mergeable, "mergeable=off".to_owned());
                when(!checksum, "checksum=off".to_owned());
                when(*tso, "tso=on".to_owned());
                when(*iommu, "iommu=on".to_owned());
            }
            Self::AfXdp {
                first_queue, copy, ..
            } => {
                when(*first_queue != 0, format!("first-queue={first_queue}"));
                when(*copy, "copy=on".to_owned());
            }
            Self::Pcap { rx, tx, repeat } => {
                for (key, file) in [("rx", rx), ("tx", tx)] {
                    if let Some(file) = file {
                        when(true, format!("{key}={}", file.display()));
                    }
                }
                when(*repeat, "loop=on".to_owned());
            }
            _ => {}
        }
        if let Self::Memif {
            secret_file: Some(file),
            ..
        } = self
        {
            when(true, format!("secret-file={}", file.display()));
        }
        when(self.trusts_memory(), "trust-memory=on".to_owned());
        options
    }
}
