// SPDX-License-Identifier: Apache-2.0
//! What DPDK is told of a port: its device arguments.

use super::{PortUri, Role};

/// What the arguments of a device depend on beside its URI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceSizes {
    /// Descriptors of a receive queue: a power of two.
    pub(crate) rx_ring_size: u16,
    /// Octets of a shared buffer, which holds the largest frame.
    pub(crate) buffer_size: u16,
    /// Octets of the largest frame.
    pub(crate) frame_size: u16,
    /// Queue pairs to open.
    pub(crate) queues: u16,
}

/// The driver of memif ports: the one in `memif/`, which believes nothing that its peer says, or DPDK's own.
const MEMIF: &str = if cfg!(own_drivers) {
    "net_qwmemif"
} else {
    "net_memif"
};

/// The driver of vhost ports: the one in `vhost/`, which moves frames by whole bursts, or DPDK's own.
pub(super) const VHOST: &str = if cfg!(own_drivers) {
    "net_qwvhost"
} else {
    "net_vhost"
};

/// tpacket2_hdr and sockaddr_ll of linux/if_packet.h, aligned, and the room that the kernel leaves before a frame.
const PACKET_HEADER: usize = 128;
/// What net_af_packet takes unless told otherwise.
const PACKET_FRAME_MIN: usize = 2048;
const PAGE: usize = 4096;

impl PortUri {
    /// DPDK's device arguments for this port, the `index`-th of its kind in this process.
    pub(crate) fn device_arguments(&self, index: u32, sizes: DeviceSizes) -> String {
        let DeviceSizes {
            rx_ring_size,
            buffer_size,
            frame_size,
            queues,
        } = sizes;
        match self {
            Self::Memif { path, role, id, .. } => format!(
                "{MEMIF}{index},role={role},id={id},socket={},socket-abstract=no,rsize={},bsize={buffer_size}",
                path.display(),
                rx_ring_size.ilog2(),
            ),
            Self::VirtioUser {
                path,
                role,
                mergeable,
                packed,
                ..
            } => {
                let mut text = format!(
                    "net_virtio_user{index},path={},queues={queues},queue_size={rx_ring_size}",
                    path.display(),
                );
                for (is_wanted, argument) in [
                    (*role == Role::Server, ",server=1"),
                    // The number of queues in use is told on the control queue.
                    (queues > 1, ",cq=1"),
                    (!mergeable, ",mrg_rxbuf=0"),
                    (*packed, ",packed_vq=1"),
                ] {
                    if is_wanted {
                        text += argument;
                    }
                }
                text
            }
            Self::Vhost {
                path, role, tso, ..
            } => format!(
                "{VHOST}{index},iface={},queues={queues}{}{}",
                path.display(),
                match role {
                    Role::Server => "",
                    Role::Client => ",client=1",
                },
                if *tso { ",tso=1" } else { "" },
            ),
            Self::AfXdp {
                interface,
                first_queue,
                copy,
                ..
            } => format!(
                "net_af_xdp{index},iface={interface},start_queue={first_queue},queue_count={queues}{}",
                if *copy { ",force_copy=1" } else { "" },
            ),
            Self::AfPacket { interface, .. } => {
                let frame = (usize::from(frame_size) + PACKET_HEADER)
                    .next_power_of_two()
                    .max(PACKET_FRAME_MIN);
                let block = frame.max(PAGE);
                format!(
                    "net_af_packet{index},iface={interface},qpairs={queues},framesz={frame},blocksz={block},framecnt={rx_ring_size}"
                )
            }
            Self::Tap { interface, .. } => format!("net_tap{index},iface={interface}"),
            Self::Pcap { rx, tx, repeat } => {
                let mut text = format!("net_pcap{index}");
                for (key, file) in [("rx_pcap", rx), ("tx_pcap", tx)] {
                    if let Some(file) = file {
                        text += &format!(",{key}={}", file.display());
                    }
                }
                if *repeat {
                    text += ",infinite_rx=1";
                }
                text
            }
            Self::Null => format!("net_null{index}"),
            Self::Pci { address, .. } => address.clone(),
        }
    }
}
