// SPDX-License-Identifier: Apache-2.0
//! Options of a port.

use super::af_packet::stock::RingStock;
use crate::error::Error;
use crate::steer::SteerRule;
use crate::uri::PortUri;

/// Options of a port.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Name in messages and tables.
    pub name: String,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// True if a device with a DPDK driver may have fewer transmit queues ([`crate::StartedPort::tx`] has them).
    pub fewer_tx_queues: bool,
    /// Descriptors in each receive ring: a power of two, 32 to 16384.
    pub rx_ring_size: u16,
    /// Descriptors in each transmit ring: a power of two, 32 to 16384.
    pub tx_ring_size: u16,
    /// Largest frame with FCS, octets: 64 to 9216. Both sides of a shared-memory port require the same.
    pub frame_size_max: u16,
    /// Whether threads can wait for frames ([`crate::RxQueue::arm`]); a port without receive interrupts is refused then.
    pub rx_interrupts: bool,
    /// Whether the card of a `pci` port cuts frames with TCP data ([`crate::TxQueue::cuts_frames`]), and verifies and computes checksums
    /// ([`crate::TxQueue::leave_checksum`]), if its driver can and the URI allows it. With these offloads, a driver may take longer for
    /// every frame. Also whether a `virtio-user` port negotiates the checksums and the segmentation of its URI.
    pub uses_card_offloads: bool,
    /// Rules about the frames that an `af-xdp` or `pci` port receives ([`crate::PortHandle::steer`]). Without rules, it receives all
    /// frames.
    pub steer: Vec<SteerRule>,
    /// Rings for ports with packet sockets. Without a stock, the port waits until the kernel has created its rings.
    pub ring_stock: Option<RingStock>,
}

impl PortOptions {
    /// Returns options with one queue per direction, rings of 1024 descriptors and no offload.
    #[must_use]
    pub fn new(name: &str, frame_size_max: u16) -> Self {
        Self {
            name: name.to_owned(),
            rx_queues: 1,
            tx_queues: 1,
            fewer_tx_queues: false,
            rx_ring_size: 1024,
            tx_ring_size: 1024,
            frame_size_max,
            rx_interrupts: false,
            uses_card_offloads: false,
            steer: Vec::new(),
            ring_stock: None,
        }
    }

    /// Returns the required space of each buffer of the port's pool, octets.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        buffer_size(self)
    }
}

/// Returns the error of a port that requires receive interrupts and has none.
pub(super) fn no_interrupts(uri: &PortUri, options: &PortOptions) -> Error {
    Error::PortOptions {
        port: options.name.clone(),
        what: format!(
            "{uri} has no receive interrupts, which idle = \"interrupt\" requires (use idle = \"sleep\")"
        ),
    }
}

/// Octets of a frame check sequence, and of the two VLAN tags that a frame may have beyond the largest frame's size.
pub(super) const FCS: u32 = 4;

pub(super) const TAGS: u32 = 8;

/// Octets of an Ethernet header and FCS.
pub(super) const ETHERNET_OVERHEAD: u16 = 18;

/// Smallest MTU of the kernel's interfaces (include/uapi/linux/if_ether.h, ETH_MIN_MTU).
const MTU_MIN: u16 = 68;

/// Returns the MTU of an interface that the port creates: that of the largest frame.
fn interface_mtu(options: &PortOptions) -> u16 {
    options
        .frame_size_max
        .saturating_sub(ETHERNET_OVERHEAD)
        .max(MTU_MIN)
}

/// Returns the MTU that the URI of an interface requests, or that of the largest frame.
///
/// # Errors
/// [`Error::PortOptions`] if packets of this MTU are longer than the largest frame allows.
pub(super) fn requested_mtu(requested: Option<u16>, options: &PortOptions) -> Result<u16, Error> {
    let largest = interface_mtu(options);
    let mtu = requested.unwrap_or(largest);
    if mtu <= largest {
        return Ok(mtu);
    }
    Err(Error::PortOptions {
        port: options.name.clone(),
        what: format!(
            "mtu={mtu} requires frames of up to {} octets, but the largest frame has {} (increase frame-size-max, or use a smaller mtu)",
            mtu.saturating_add(ETHERNET_OVERHEAD),
            options.frame_size_max
        ),
    })
}

/// Returns the longest frame that a port accepts, octets without FCS.
pub(super) fn length_max(options: &PortOptions) -> u32 {
    let length = u32::from(options.frame_size_max).saturating_sub(FCS);
    length
        .saturating_add(TAGS)
        .min(u32::from(buffer_size(options)))
}

/// Largest frame of an `af-xdp` port with FCS, octets: a page of 4 KiB has the frame, the kernel's headroom and the descriptions of the
/// buffer by DPDK (net/xdp/xdp_umem.c, xdp_umem_reg: 4096 - 64 - 128 - 128 - 256, and FCS).
pub(super) const XDP_FRAME_SIZE_MAX: u16 = 3524;

/// Returns the size of a buffer that fits the largest frame, octets. Thus no frame requires several buffers of the pool or in
/// shared memory.
pub(super) fn buffer_size(options: &PortOptions) -> u16 {
    const LINE: u16 = 64;
    const BUFFER_SIZE_MIN: u16 = 2048;
    /// Space before each frame in a buffer of AF_XDP, without FCS (include/uapi/linux/bpf.h, XDP_PACKET_HEADROOM).
    const XDP_HEADROOM: u16 = 256 - 4;
    let headroom = if options.frame_size_max > XDP_FRAME_SIZE_MAX {
        0
    } else {
        XDP_HEADROOM
    };
    options
        .frame_size_max
        .saturating_add(headroom)
        .next_multiple_of(LINE)
        .max(BUFFER_SIZE_MIN)
}

pub(super) fn check_options(options: &PortOptions) -> Result<(), Error> {
    const RING: std::ops::RangeInclusive<u16> = 32..=16384;
    const FRAME: std::ops::RangeInclusive<u16> = 64..=9216;
    let wrong = |what: String| {
        Err(Error::PortOptions {
            port: options.name.clone(),
            what,
        })
    };
    for (which, size) in [
        ("receive", options.rx_ring_size),
        ("transmit", options.tx_ring_size),
    ] {
        if !size.is_power_of_two() || !RING.contains(&size) {
            return wrong(format!(
                "the {which} ring size {size} is not a power of two from 32 to 16384"
            ));
        }
    }
    if options.rx_queues == 0 || options.tx_queues == 0 {
        return wrong("a port requires at least one receive and one transmit queue".to_owned());
    }
    if !FRAME.contains(&options.frame_size_max) {
        return wrong(format!(
            "the largest frame of {} octets is not in the range 64 to 9216",
            options.frame_size_max
        ));
    }
    Ok(())
}

/// Returns the number of queue pairs of a device.
pub(super) fn pairs(options: &PortOptions) -> u16 {
    options.rx_queues.max(options.tx_queues)
}

/// Checks that all queues of a device with queue pairs are read. Such a device receives on all queues, and frames of an unread
/// queue would be lost.
pub(super) fn check_pairs(uri: &PortUri, options: &PortOptions) -> Result<(), Error> {
    let (rx, tx) = (options.rx_queues, options.tx_queues);
    let wrong = |what: String| {
        Err(Error::PortOptions {
            port: options.name.clone(),
            what,
        })
    };
    if uri.queues() != 1 && uri.queues() != rx {
        return wrong(format!(
            "{uri} has {} queues but {rx} receive queues, so frames of the other queues would be lost",
            uri.queues()
        ));
    }
    let in_pairs = matches!(
        uri,
        PortUri::VirtioUser { .. }
            | PortUri::Vhost { .. }
            | PortUri::AfXdp { .. }
            | PortUri::AfPacket { .. }
            | PortUri::Veth { .. }
            | PortUri::Tap { .. }
    );
    if in_pairs && tx > rx {
        return wrong(format!(
            "{tx} transmit and {rx} receive queues requested, but {uri} has queue pairs (request as many receive queues)"
        ));
    }
    Ok(())
}
