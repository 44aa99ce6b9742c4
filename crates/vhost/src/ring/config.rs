// SPDX-License-Identifier: Apache-2.0
//! Configuration of a ring: addresses, memory, negotiated features.

use super::dirty_log::DirtyLog;
use super::inflight::InflightRegion;
use super::{header, layout};
use crate::address_space::{Access, AddressSpace, Miss, PartError, RingPart};
use crate::features::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_LOG_ALL, F_RING_PACKED, F_VERSION_1, NET_F_CSUM,
    NET_F_HOST_TSO4, NET_F_HOST_TSO6, NET_F_MRG_RXBUF,
};

/// The negotiated features that a ring depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(crate) is_packed: bool,
    pub(crate) is_mergeable: bool,
    pub(crate) is_modern: bool,
    pub(crate) has_indirect: bool,
    pub(crate) has_event_index: bool,
    pub(crate) has_log: bool,
    /// The driver may leave checksums or segmentation to the device.
    pub(crate) has_offloads: bool,
}

impl Features {
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            is_packed: bits & F_RING_PACKED != 0,
            is_mergeable: bits & NET_F_MRG_RXBUF != 0,
            is_modern: bits & F_VERSION_1 != 0,
            has_indirect: bits & F_INDIRECT_DESC != 0,
            has_event_index: bits & F_EVENT_IDX != 0,
            has_log: bits & F_LOG_ALL != 0,
            has_offloads: bits & (NET_F_CSUM | NET_F_HOST_TSO4 | NET_F_HOST_TSO6) != 0,
        }
    }

    /// Returns the length of the header before each frame, octets (section 5.1.6.1).
    pub(crate) const fn header_len(self) -> usize {
        if self.is_modern || self.is_mergeable {
            header::HEADER_LEN
        } else {
            header::HEADER_LEN_LEGACY
        }
    }
}

/// Configuration of a ring.
#[derive(Clone, Debug)]
pub struct RingConfig<'a> {
    /// Entries.
    pub size: u16,
    /// User address of the descriptor table (split) or ring (packed); an I/O virtual address if there is an IOTLB.
    pub descriptors: u64,
    /// Address of the available ring (split) or the driver's event suppression structure (packed), of the same kind.
    pub driver: u64,
    /// Address of the used ring (split) or the device's event suppression structure (packed), of the same kind.
    pub device: u64,
    /// The guest's memory.
    pub space: &'a AddressSpace,
    /// The base that the front end sets (`VHOST_USER_SET_VRING_BASE`). A split ring continues at the index of its used ring
    /// instead, so that a chain that a previous device did not return is taken again.
    pub base: u32,
    /// Negotiated features, as their bits.
    pub features: u64,
    /// The log of written pages, used if `features` has VHOST_F_LOG_ALL.
    pub log: Option<DirtyLog>,
    /// Guest address at which writes to the used ring (split) or the device's event suppression structure (packed) are
    /// logged. Default: the guest address of its region.
    pub ring_log_address: Option<u64>,
    /// Tracking of chains that are taken and not returned.
    pub inflight: Option<InflightRegion>,
}

impl RingConfig<'_> {
    /// Returns true if a part of the ring lies in a range of addresses. When the front end invalidates that part of the
    /// IOTLB, the ring stops and is started again.
    #[must_use]
    pub fn overlaps(&self, first: u64, last: u64) -> bool {
        let size = self.size;
        let is_packed = Features::from_bits(self.features).is_packed;
        let lens = if is_packed {
            let event = layout::packed::EVENT_LEN;
            [layout::packed::ring_len(size), event, event]
        } else {
            [
                layout::split::descriptors_len(size),
                layout::split::avail_len(size),
                layout::split::used_len(size),
            ]
        };
        let starts = [self.descriptors, self.driver, self.device];
        starts.into_iter().zip(lens).any(|(start, len)| {
            let end = start.saturating_add(len as u64);
            start <= last && first < end
        })
    }

    /// Returns a part of the ring.
    pub(crate) fn part(
        &self,
        name: &'static str,
        address: u64,
        len: usize,
        access: Access,
    ) -> Result<RingPart<'_>, RingError> {
        self.space
            .ring_part(address, len, access)
            .map_err(|error| match error {
                PartError::Outside => RingError::Outside(name, address),
                PartError::Miss(miss) => RingError::Miss(miss),
            })
    }
}

/// Reason why a ring cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The number of entries is invalid.
    #[error(
        "virtqueue: size {0} is invalid (split: a power of two up to 32768; packed: 1 to 32768)"
    )]
    Size(u16),
    /// The base is a slot that a packed ring does not have.
    #[error("virtqueue: base {0:#x} is outside the ring")]
    Base(u32),
    /// A part of the ring is not within one region.
    #[error("virtqueue: {0} at {1:#x} is not within one memory region")]
    Outside(&'static str, u64),
    /// A part of the ring is not aligned.
    #[error("virtqueue: {0} is misaligned, or exceeds its memory region")]
    Misaligned(&'static str),
    /// An address of the ring is missing in the IOTLB. The front end may add it; the ring can then be started.
    #[error("virtqueue: the IOTLB lacks address {:#x} of the ring", .0.iova)]
    Miss(Miss),
    /// The inflight region is too short, or was created for another queue.
    #[error("virtqueue: the inflight region does not fit the ring")]
    Inflight,
}
