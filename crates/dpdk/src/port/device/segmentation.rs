// SPDX-License-Identifier: Apache-2.0
//! TCP segmentation by the card of a port (TSO), for frames with up to 64 KiB of TCP data that guests and kernels leave to be cut.

use crate::burst::Mbuf;
use crate::mempool::Mempool;
use crate::sys;
use crate::sys::field;
use crate::uri::PortUri;

/// rte_ethdev.h, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, RTE_ETH_TX_OFFLOAD_TCP_CKSUM and RTE_ETH_TX_OFFLOAD_TCP_TSO: macros that bindgen cannot
/// read.
const TX_OFFLOAD_IPV4_CKSUM: u64 = 1 << 1;
const TX_OFFLOAD_TCP_CKSUM: u64 = 1 << 3;
const TX_OFFLOAD_TCP_TSO: u64 = 1 << 5;
/// rte_ethdev.h, RTE_ETH_TX_OFFLOAD_MULTI_SEGS: the same.
pub(super) const TX_OFFLOAD_MULTI_SEGS: u64 = 1 << 15;

/// Part of a transmit ring that one frame may use: a ring has space for several.
const RING_PART: u16 = 4;

/// TCP segmentation of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CardSegmentation {
    /// True if the driver must be requested to compute the checksums of the segments' IPv4 headers. Others do it unasked, or their host
    /// does.
    has_ipv4_checksums: bool,
    /// Maximum number of buffers of a frame.
    buffers_max: u16,
}

impl CardSegmentation {
    /// Returns the segmentation of a card whose driver has it, unless the URI disables it.
    pub(super) fn of(uri: &PortUri, info: &sys::rte_eth_dev_info) -> Option<Self> {
        const REQUIRED: u64 = TX_OFFLOAD_TCP_TSO | TX_OFFLOAD_TCP_CKSUM | TX_OFFLOAD_MULTI_SEGS;
        let is_wanted = matches!(uri, PortUri::Pci { tso: true, .. });
        if !is_wanted || info.tx_offload_capa & REQUIRED != REQUIRED {
            return None;
        }
        Some(Self {
            has_ipv4_checksums: info.tx_offload_capa & TX_OFFLOAD_IPV4_CKSUM != 0,
            // A driver that states no limit has 0 or the largest number here.
            buffers_max: match info.tx_desc_lim.nb_seg_max {
                0 => u16::MAX,
                most => most,
            },
        })
    }

    /// Returns the offloads of the driver that it requires.
    pub(super) const fn offloads(self) -> u64 {
        let ipv4 = if self.has_ipv4_checksums {
            TX_OFFLOAD_IPV4_CKSUM
        } else {
            0
        };
        TX_OFFLOAD_TCP_TSO | TX_OFFLOAD_TCP_CKSUM | ipv4
    }

    /// Returns the segmentation with transmit rings of this many descriptors.
    pub(super) fn in_ring(self, descriptors: u16) -> Self {
        Self {
            buffers_max: self.buffers_max.min(descriptors / RING_PART),
            ..self
        }
    }

    /// Prepares a frame with a request for segments for a transmit queue of this card: drivers have limits, and the form of the checksum
    /// field depends on them. The error returns the frame without the request. `pool` has the buffers of the port.
    pub(super) fn prepare<'eal>(
        self,
        (port, queue): (u16, u16),
        pool: &Mempool,
        frame: Mbuf<'eal>,
    ) -> Result<Mbuf<'eal>, Mbuf<'eal>> {
        let frame = in_usual_buffers(pool, frame).map_err(without_request)?;
        let mut mbuf = frame.mbuf;
        // SAFETY: the frame owns its buffers. The driver reads and writes within the headers whose lengths are in the request.
        let is_ready = unsafe {
            let flags = field::ol_flags(mbuf);
            if self.has_ipv4_checksums && *flags & sys::IS_IPV4 != 0 {
                *flags |= sys::IPV4_CHECKSUM;
            }
            *field::nb_segs(mbuf) <= self.buffers_max
                && sys::qw_tx_prepare(port, queue, &raw mut mbuf, 1) == 1
        };
        if is_ready {
            Ok(frame)
        } else {
            Err(without_request(frame))
        }
    }
}

/// Returns the frame, copied to buffers of the pool if one of its buffers is larger. The error returns the frame itself if the pool has too
/// few buffers.
///
/// A driver keeps the buffers of sent frames until it needs their descriptors again. Ports on kernel interfaces have few large
/// buffers, and a tap receives no frame while all of them are in use.
fn in_usual_buffers<'eal>(pool: &Mempool, frame: Mbuf<'eal>) -> Result<Mbuf<'eal>, Mbuf<'eal>> {
    if !frame.has_larger_buffer(pool.data_room()) {
        return Ok(frame);
    }
    let copy = frame.copy_tso_frame(pool);
    copy.ok_or(frame)
}

/// Removes the request for segments.
fn without_request(frame: Mbuf<'_>) -> Mbuf<'_> {
    // SAFETY: the frame owns its buffers.
    unsafe {
        *field::ol_flags(frame.mbuf) &=
            !(sys::TO_CUT | sys::IPV4_CHECKSUM | sys::IS_IPV4 | sys::IS_IPV6);
    }
    frame
}
