// SPDX-License-Identifier: Apache-2.0
//! Ports by URI: `memif:/path?role=server&id=0`, `virtio-user:/path?role=server`,
//! `vhost:/path?role=client`, `af-xdp:IFNAME`, `af-packet:IFNAME`, `veth:IFNAME`, `tap:IFNAME`,
//! `pcap:?rx=FILE&tx=FILE`, `null:`, `pci:0000:17:00.0`.

mod arguments;
mod function;
mod kind;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use quietwire_packet::MacAddress;

pub use function::FunctionSettings;
pub use kind::PortKind;

/// Role of a port at its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Creates the socket and listens.
    Server,
    /// Connects to the peer's socket.
    Client,
}

/// Flow control of a card by PAUSE frames (IEEE 802.3, annex 31B), in the words of `ethtool -A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowControl {
    /// The card neither obeys nor sends PAUSE frames.
    Off,
    /// The card obeys received ones.
    Rx,
    /// The card sends them when its receive queues fill.
    Tx,
    /// Both.
    On,
}

impl FlowControl {
    /// All values.
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::Rx, Self::Tx, Self::On];

    /// Returns its name in URIs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::On => "on",
        }
    }
}

/// Place and driver of a port.
///
/// `queues` is the number of receive queues, and the largest number of transmit queues, of the port in this
/// process. If both sides negotiate it, the peer may use fewer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortUri {
    /// Shared memory, by the memif protocol.
    Memif {
        /// The control socket; `@name` is in the abstract namespace.
        path: PathBuf,
        /// Role of the port. The client provides the memory.
        role: Role,
        /// Interface id on that socket.
        id: u32,
        /// Rings per direction.
        queues: u16,
        /// File with the common secret of both sides, at most 24 octets.
        secret_file: Option<PathBuf>,
        /// True to accept peer memory that cannot be sealed against truncation.
        trust_memory: bool,
    },
    /// Guest side of vhost-user, without a guest.
    VirtioUser {
        /// The vhost-user socket.
        path: PathBuf,
        /// Role of the port.
        role: Role,
        /// Queue pairs.
        queues: u16,
        /// True to allow received frames in several buffers (`VIRTIO_NET_F_MRG_RXBUF`). Each buffer holds the largest frame without it.
        mergeable: bool,
        /// True for packed rings instead of split rings (`VIRTIO_F_RING_PACKED`).
        packed: bool,
        /// True to leave checksums to the back end and to accept incomplete ones from it, if it offers that (`VIRTIO_NET_F_CSUM`,
        /// `VIRTIO_NET_F_GUEST_CSUM`).
        checksum: bool,
        /// True to exchange frames with up to 64 KiB of TCP or UDP data, if the back end offers that (`VIRTIO_NET_F_HOST_TSO4` and `6`,
        /// `VIRTIO_NET_F_HOST_USO`, and those of `GUEST`). `mergeable` and `checksum` are true then.
        tso: bool,
    },
    /// Host side of vhost-user.
    Vhost {
        /// The vhost-user socket.
        path: PathBuf,
        /// Role of the port.
        role: Role,
        /// Queue pairs.
        queues: u16,
        /// True to offer mergeable receive buffers to the guest (`VIRTIO_NET_F_MRG_RXBUF`).
        mergeable: bool,
        /// True to offer checksum offload to the guest (`VIRTIO_NET_F_CSUM`). The port computes checksums of received frames, so
        /// that every frame it passes on is complete.
        checksum: bool,
        /// True to allow both sides frames with up to 64 KiB of TCP data, which are cut into segments when
        /// needed (`VIRTIO_NET_F_HOST_TSO4` and `6`; `VIRTIO_NET_F_GUEST_TSO4` and `6`).
        tso: bool,
        /// True to allow the guest addresses of its IOMMU (`VIRTIO_F_ACCESS_PLATFORM`).
        iommu: bool,
        /// True to accept guest memory that cannot be sealed against truncation.
        trust_memory: bool,
    },
    /// AF_XDP socket on a kernel interface (DPDK `net_af_xdp`).
    AfXdp {
        /// Name of the interface.
        interface: String,
        /// Number of queues of the interface that the port uses.
        queues: u16,
        /// The first of these queues.
        first_queue: u16,
        /// True to copy frames even if the interface's driver supports zero copy.
        copy: bool,
    },
    /// AF_PACKET sockets on a kernel interface.
    AfPacket {
        /// Name of the interface.
        interface: String,
        /// Number of sockets over which the kernel spreads frames.
        queues: u16,
        /// True to merge TCP segments that leave in one burst.
        gro: bool,
    },
    /// A pair of kernel network interfaces that this process creates (veth(4)), with AF_PACKET sockets on the near end.
    Veth {
        /// Name of the near end, which is in the network namespace of the process.
        interface: String,
        /// Name of the far end.
        peer: String,
        /// Network namespace of the far end: a name (ip-netns(8)) or an absolute path. Otherwise it is that of the process.
        netns: Option<String>,
        /// Number of sockets over which the kernel spreads frames.
        queues: u16,
        /// MTU of both ends, octets; that of the largest frame if there is none.
        mtu: Option<u16>,
        /// MAC address of the near end; the kernel chooses one if there is none.
        mac: Option<MacAddress>,
        /// MAC address of the far end; the kernel chooses one if there is none.
        peer_mac: Option<MacAddress>,
        /// True to keep the pair after the port is closed.
        persist: bool,
        /// True to merge TCP segments that leave in one burst.
        gro: bool,
    },
    /// A kernel network interface that this process creates and serves.
    Tap {
        /// Name of the interface.
        interface: String,
        /// Queues of the interface.
        queues: u16,
        /// MTU, octets; that of the largest frame if there is none.
        mtu: Option<u16>,
        /// MAC address of the interface; the kernel chooses one if there is none.
        mac: Option<MacAddress>,
        /// Network namespace of the interface: a name (ip-netns(8)) or an absolute path. Otherwise it is that of the process.
        netns: Option<String>,
        /// True to keep the interface after the port is closed.
        persist: bool,
        /// True to merge TCP segments that leave in one burst.
        gro: bool,
    },
    /// Frames from a file and to a file (DPDK `net_pcap`).
    Pcap {
        /// File from which frames are read.
        rx: Option<PathBuf>,
        /// File to which frames are written; an existing file is replaced.
        tx: Option<PathBuf>,
        /// True to repeat the file endlessly. The frames are then kept in memory.
        repeat: bool,
    },
    /// Discards transmitted frames and receives empty frames (DPDK `net_null`).
    Null,
    /// A PCI device with a driver that DPDK supports.
    Pci {
        /// Full address: domain:bus:device.function.
        address: String,
        /// Receive queues.
        queues: u16,
        /// True for a hash key (RSS) that gives both directions of a flow the same queue.
        symmetric_rss: bool,
        /// True to let the card verify checksums of TCP and UDP in received frames and compute those of transmitted ones, if its driver can.
        checksum: bool,
        /// True to let the card cut frames with up to 64 KiB of TCP data, if its driver can.
        tso: bool,
        /// True to let the card drop the frames of filter rules that drop many.
        hw_offload: bool,
        /// Flow control of the card. Default: unchanged.
        flow_control: Option<FlowControl>,
        /// Arguments of the DPDK driver (`name=value`, separated by commas).
        devargs: Option<String>,
        /// Virtual functions that the physical function gets if it has none. The port deletes them when it is closed. Default: none.
        functions: Option<u16>,
        /// Settings of a virtual function.
        function: FunctionSettings,
    },
}

/// Error of an invalid port URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{uri}' is not the URI of a port: {what} (use memif:/path?role=server|client&id=N, virtio-user:/path?role=server|client, vhost:/path?role=server|client, af-xdp:IFNAME, af-packet:IFNAME, veth:IFNAME, tap:IFNAME, pcap:?rx=FILE&tx=FILE, null: or pci:0000:17:00.0)"
)]
pub struct UriError {
    /// The text.
    pub uri: String,
    /// The problem.
    pub what: String,
}

impl PortUri {
    /// Returns the kind of the port.
    #[must_use]
    pub const fn kind(&self) -> PortKind {
        match self {
            Self::Memif { .. } => PortKind::Memif,
            Self::VirtioUser { .. } => PortKind::VirtioUser,
            Self::Vhost { .. } => PortKind::Vhost,
            Self::AfXdp { .. } => PortKind::AfXdp,
            Self::AfPacket { .. } => PortKind::AfPacket,
            Self::Veth { .. } => PortKind::Veth,
            Self::Tap { .. } => PortKind::Tap,
            Self::Pcap { .. } => PortKind::Pcap,
            Self::Null => PortKind::Null,
            Self::Pci { .. } => PortKind::Pci,
        }
    }

    /// Returns the network namespace of the interface that the port creates, or of its far end, if the URI names one.
    #[must_use]
    pub fn network_namespace(&self) -> Option<&str> {
        match self {
            Self::Tap { netns, .. } | Self::Veth { netns, .. } => netns.as_deref(),
            _ => None,
        }
    }

    /// Returns the socket that this side creates, if any.
    #[must_use]
    pub fn own_socket(&self) -> Option<&Path> {
        match self.role() {
            Some(Role::Server) => self.socket(),
            _ => None,
        }
    }

    /// Returns the existing kernel interface that the port uses, if any.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::AfXdp { interface, .. } | Self::AfPacket { interface, .. } => Some(interface),
            _ => None,
        }
    }

    /// Returns true if the peer's receive queue is shared memory. A frame without space there was
    /// offered to the peer and lost by it. Returns false if a device or kernel of this host transmits.
    #[must_use]
    pub fn is_shared_memory(&self) -> bool {
        self.socket().is_some()
    }

    /// Returns the PCI device of the port, if it is one, as DPDK's option `-a` takes it: the address and the arguments of the driver.
    #[must_use]
    pub fn pci_device(&self) -> Option<String> {
        match self {
            Self::Pci {
                address,
                devargs: Some(devargs),
                ..
            } => Some(format!("{address},{devargs}")),
            Self::Pci { address, .. } => Some(address.clone()),
            _ => None,
        }
    }

    /// Returns the default number of receive queues of the port in this process.
    #[must_use]
    pub fn queues(&self) -> u16 {
        match self {
            Self::Memif { queues, .. }
            | Self::VirtioUser { queues, .. }
            | Self::Vhost { queues, .. }
            | Self::AfXdp { queues, .. }
            | Self::AfPacket { queues, .. }
            | Self::Veth { queues, .. }
            | Self::Tap { queues, .. }
            | Self::Pci { queues, .. } => *queues,
            Self::Pcap { .. } | Self::Null => 1,
        }
    }

    /// Returns true if the port holds buffers of its pool only during a call, because the kernel copies each frame that it receives or
    /// sends. Such ports can share a pool: no peer can keep its buffers.
    #[must_use]
    pub const fn copies_frames(&self) -> bool {
        matches!(self, Self::AfPacket { .. } | Self::Veth { .. })
    }

    /// Returns the number of buffers of the port's pool that its driver holds in addition to those in the rings. `data_room` is the size
    /// of each, octets.
    #[must_use]
    pub fn buffers_kept(&self, data_room: u16) -> u32 {
        /// ETH_AF_XDP_NUM_BUFFERS of net_af_xdp: buffers that a socket keeps for the kernel.
        const AF_XDP: u32 = 4096;
        let size = u32::from(data_room.max(1));
        let burst = u32::try_from(crate::BURST_MAX).unwrap_or(u32::MAX);
        // Frames of 64 KiB, twice a burst.
        let tso = 65_536_u32
            .div_ceil(size)
            .saturating_mul(2)
            .saturating_mul(burst);
        match self {
            Self::AfXdp { queues, .. } => AF_XDP.saturating_mul(u32::from(*queues)),
            // The opening of the port reports a file that cannot be read.
            Self::Pcap {
                rx: Some(path),
                repeat: true,
                ..
            } => crate::pcap::frames(path).unwrap_or(0),
            // A burst of the longest frames that is received, and one that is transmitted.
            Self::Vhost {
                queues, tso: true, ..
            }
            | Self::VirtioUser {
                queues, tso: true, ..
            } => tso.saturating_mul(u32::from(*queues)),
            // A call receives 320 KiB of such frames at most.
            Self::AfPacket { queues, .. } | Self::Veth { queues, .. } => {
                let of_a_queue = (1_u32 << 20).checked_div(size).unwrap_or(0);
                of_a_queue.saturating_mul(u32::from(*queues))
            }
            _ => 0,
        }
    }

    /// Returns false if no thread can wait for frames of such a port. Whether a device of DPDK's has receive interrupts is found when
    /// it is started.
    #[must_use]
    pub fn may_have_interrupts(&self) -> bool {
        matches!(
            self,
            Self::Memif { .. } | Self::Vhost { .. } | Self::Pci { .. }
        ) || self.is_signalled_by_kernel()
    }

    /// Returns true if the kernel of this machine signals each received frame of such a port, whether or not a thread waits for it.
    #[must_use]
    pub fn is_signalled_by_kernel(&self) -> bool {
        matches!(
            self,
            Self::AfXdp { .. } | Self::AfPacket { .. } | Self::Veth { .. } | Self::Tap { .. }
        )
    }

    /// Returns true if the port may receive frames with TCP or UDP data of any length that request segmentation.
    #[must_use]
    pub fn has_segmentation(&self) -> bool {
        matches!(
            self,
            Self::Vhost { tso: true, .. }
                | Self::VirtioUser { tso: true, .. }
                | Self::AfPacket { .. }
                | Self::Veth { .. }
                | Self::Tap { .. }
        )
    }

    /// Returns true if the card of the port drops the frames of filter rules that drop many.
    #[must_use]
    pub fn offloads_rules(&self) -> bool {
        matches!(
            self,
            Self::Pci {
                hw_offload: true,
                ..
            }
        )
    }

    /// Returns true if the port merges TCP segments and UDP datagrams that leave in one burst.
    #[must_use]
    pub fn merges_segments(&self) -> bool {
        matches!(
            self,
            Self::AfPacket { gro: true, .. }
                | Self::Veth { gro: true, .. }
                | Self::Tap { gro: true, .. }
        )
    }

    /// Returns true if the port accepts peer memory that cannot be sealed against truncation.
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

    /// Returns the role of the port at its socket, if it has one.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Memif { role, .. } | Self::VirtioUser { role, .. } | Self::Vhost { role, .. } => {
                Some(*role)
            }
            _ => None,
        }
    }

    /// Returns the socket of the port, created by itself or by its peer.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match self {
            Self::Memif { path, .. } | Self::VirtioUser { path, .. } | Self::Vhost { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }
}

/// Returns the name of a pair's far end if the URI has none.
fn default_peer(interface: &str, netns: Option<&str>) -> String {
    match netns {
        Some(_) => "eth0".to_owned(),
        None => format!("{interface}-peer"),
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
        let place = match self {
            Self::Memif { path, .. } | Self::VirtioUser { path, .. } | Self::Vhost { path, .. } => {
                path.display().to_string()
            }
            Self::AfXdp { interface, .. }
            | Self::AfPacket { interface, .. }
            | Self::Veth { interface, .. }
            | Self::Tap { interface, .. } => interface.clone(),
            Self::Pcap { .. } | Self::Null => String::new(),
            Self::Pci { address, .. } => address.clone(),
        };
        write!(f, "{}:{place}", self.kind().name())?;
        for (index, option) in self.options().iter().enumerate() {
            write!(f, "{}{option}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl PortUri {
    /// Returns the options as text of the URI. Options with default values are left out.
    fn options(&self) -> Vec<String> {
        let (id, secret_file) = match self {
            Self::Memif {
                id, secret_file, ..
            } => (Some(id), secret_file.as_deref()),
            _ => (None, None),
        };
        let mut options = vec![
            value("role", self.role()),
            value("id", id),
            value("queues", Some(self.queues()).filter(|queues| *queues != 1)),
        ];
        options.extend(self.own_options());
        options.extend([
            flag(self.merges_segments(), "gro=on"),
            value("secret-file", secret_file.map(Path::display)),
            flag(self.trusts_memory(), "trust-memory=on"),
        ]);
        options.into_iter().flatten().collect()
    }

    /// Returns the options that few kinds of ports have; `None` for a default value.
    fn own_options(&self) -> Vec<Option<String>> {
        match self {
            Self::VirtioUser {
                mergeable,
                packed,
                checksum,
                tso,
                ..
            } => vec![
                flag(*mergeable && !*tso, "mergeable=on"),
                flag(*packed, "packed=on"),
                flag(*checksum && !*tso, "checksum=on"),
                flag(*tso, "tso=on"),
            ],
            Self::Vhost {
                mergeable,
                checksum,
                tso,
                iommu,
                ..
            } => vec![
                flag(!mergeable, "mergeable=off"),
                flag(!checksum, "checksum=off"),
                flag(*tso, "tso=on"),
                flag(*iommu, "iommu=on"),
            ],
            Self::AfXdp {
                first_queue, copy, ..
            } => vec![
                value(
                    "first-queue",
                    Some(first_queue).filter(|queue| **queue != 0),
                ),
                flag(*copy, "copy=on"),
            ],
            Self::Veth {
                interface,
                peer,
                netns,
                mtu,
                mac,
                peer_mac,
                persist,
                ..
            } => {
                let usual_peer = default_peer(interface, netns.as_deref());
                vec![
                    value("netns", netns.as_ref()),
                    value("peer", Some(peer).filter(|peer| **peer != usual_peer)),
                    value("mtu", mtu.as_ref()),
                    value("mac", mac.as_ref()),
                    value("peer-mac", peer_mac.as_ref()),
                    flag(*persist, "persist=on"),
                ]
            }
            Self::Tap {
                mtu,
                mac,
                netns,
                persist,
                ..
            } => vec![
                value("mtu", mtu.as_ref()),
                value("mac", mac.as_ref()),
                value("netns", netns.as_ref()),
                flag(*persist, "persist=on"),
            ],
            Self::Pci {
                symmetric_rss,
                checksum,
                tso,
                hw_offload,
                flow_control,
                devargs,
                functions,
                function,
                ..
            } => {
                let mut options = vec![
                    flag(*symmetric_rss, "rss=symmetric"),
                    flag(!*checksum, "checksum=off"),
                    flag(!*tso, "tso=off"),
                    flag(*hw_offload, "hw-offload=on"),
                    value("flow-control", flow_control.map(FlowControl::name)),
                    value("devargs", devargs.as_ref()),
                    value("functions", functions.as_ref()),
                ];
                options.extend(function.options().into_iter().map(Some));
                options
            }
            Self::Pcap { rx, tx, repeat } => vec![
                value("rx", rx.as_deref().map(Path::display)),
                value("tx", tx.as_deref().map(Path::display)),
                flag(*repeat, "loop=on"),
            ],
            Self::Memif { .. } | Self::AfPacket { .. } | Self::Null => Vec::new(),
        }
    }
}

/// Returns an option that is not the default.
fn flag(is_given: bool, option: &str) -> Option<String> {
    is_given.then(|| option.to_owned())
}

/// Returns an option with its value.
fn value(key: &str, value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| format!("{key}={value}"))
}
