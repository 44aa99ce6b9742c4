// SPDX-License-Identifier: Apache-2.0
//! The header before each frame of a network device (virtio 1.2, section 5.1.6).

use crate::narrow;

/// Octets of the header with VIRTIO_F_VERSION_1 or VIRTIO_NET_F_MRG_RXBUF.
pub const HEADER_LEN: usize = 12;
/// Octets of the header with neither: it lacks `num_buffers` (section 5.1.6.1).
pub const HEADER_LEN_LEGACY: usize = 10;

/// `flags`: the receiver computes a checksum from `csum_start` on (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum was verified (`VIRTIO_NET_HDR_F_DATA_VALID`).
pub const FLAG_DATA_VALID: u8 = 2;

/// `gso_type`: one frame (`VIRTIO_NET_HDR_GSO_NONE`).
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: fragments of UDP (`VIRTIO_NET_HDR_GSO_UDP`).
pub const GSO_UDP: u8 = 3;
/// `gso_type`: TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: datagrams of UDP (`VIRTIO_NET_HDR_GSO_UDP_L4`).
pub const GSO_UDP_L4: u8 = 5;
/// Bit of `gso_type`: the TCP header has a bit of explicit congestion notification (`VIRTIO_NET_HDR_GSO_ECN`).
pub const GSO_ECN: u8 = 0x80;

/// The octets of a header, in two words that stay in registers.
///
/// With separate fields, a header would be stored in parts that the next load spans, and that load would wait for all of
/// them. Most headers are all zero, and their fields are never needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawHeader {
    /// All fields up to `csum_start`.
    first: u64,
    /// `csum_offset` and `num_buffers`.
    last: u32,
}

impl RawHeader {
    /// The header of a complete frame.
    pub const PLAIN: Self = Self { first: 0, last: 0 };

    /// Returns the header of these octets. A header of [`HEADER_LEN_LEGACY`] octets is extended by two that are 0.
    #[inline(always)]
    #[must_use]
    pub const fn new(octets: &[u8; HEADER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *octets;
        Self {
            first: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            last: u32::from_le_bytes([i, j, k, l]),
        }
    }

    /// Returns the header's octets. The first [`HEADER_LEN_LEGACY`] are the header without `num_buffers`.
    #[inline(always)]
    #[must_use]
    pub const fn octets(self) -> [u8; HEADER_LEN] {
        let [a, b, c, d, e, f, g, h] = self.first.to_le_bytes();
        let [i, j, k, l] = self.last.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Returns true if no offload is left to the receiver.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.first & (0xff00 | FLAG_NEEDS_CSUM as u64) == 0
    }

    /// Returns true if the receiver must segment the frame.
    #[inline(always)]
    #[must_use]
    pub const fn is_segmented(self) -> bool {
        self.first & 0xff00 != 0
    }

    /// Returns the number of chains that the frame is spread over.
    #[inline(always)]
    #[must_use]
    pub const fn num_buffers(self) -> u16 {
        narrow::low_u16((self.last >> 16) as u64)
    }

    /// Returns the header with another number of chains.
    #[inline(always)]
    #[must_use]
    pub const fn with_num_buffers(self, count: u16) -> Self {
        Self {
            last: self.last & 0xffff | (count as u32) << 16,
            ..self
        }
    }

    /// Returns the fields.
    #[must_use]
    pub const fn parse(self) -> OffloadHeader {
        OffloadHeader::parse(&self.octets())
    }
}

impl From<OffloadHeader> for RawHeader {
    fn from(header: OffloadHeader) -> Self {
        Self::new(&header.encode())
    }
}

/// Offloads that the sender of a frame leaves to its receiver: checksums and segmentation. All zero for a complete frame.
///
/// The values are those of the peer and are not checked against the frame.
// Laid out like the header itself, so that little is moved to read or write one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OffloadHeader {
    /// Bits `FLAG_…`.
    pub flags: u8,
    /// One of `GSO_…`, and [`GSO_ECN`].
    pub gso_type: u8,
    /// Octets of the headers before the payload to be segmented: a hint.
    pub hdr_len: u16,
    /// Octets of payload of each segment.
    pub gso_size: u16,
    /// Offset of the first octet that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum from `csum_start`.
    pub csum_offset: u16,
    /// Chains that the frame is spread over. The ring's sender sets it.
    pub num_buffers: u16,
}

impl OffloadHeader {
    /// Returns true if no offload is left to the receiver.
    #[inline(always)]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.flags & FLAG_NEEDS_CSUM == 0 && self.gso_type == GSO_NONE
    }

    /// Returns the header of these octets. A header of [`HEADER_LEN_LEGACY`] octets is extended by two that are 0.
    #[inline(always)]
    #[must_use]
    pub const fn parse(octets: &[u8; HEADER_LEN]) -> Self {
        let [flags, gso_type, a, b, c, d, e, f, g, h, i, j] = *octets;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_le_bytes([a, b]),
            gso_size: u16::from_le_bytes([c, d]),
            csum_start: u16::from_le_bytes([e, f]),
            csum_offset: u16::from_le_bytes([g, h]),
            num_buffers: u16::from_le_bytes([i, j]),
        }
    }

    /// Returns the header's octets. The first [`HEADER_LEN_LEGACY`] are the header without `num_buffers`.
    #[inline(always)]
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_LEN] {
        let [a, b] = self.hdr_len.to_le_bytes();
        let [c, d] = self.gso_size.to_le_bytes();
        let [e, f] = self.csum_start.to_le_bytes();
        let [g, h] = self.csum_offset.to_le_bytes();
        let [i, j] = self.num_buffers.to_le_bytes();
        [self.flags, self.gso_type, a, b, c, d, e, f, g, h, i, j]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let header = OffloadHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type: GSO_TCPV4 | GSO_ECN,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
            num_buffers: 0x090a,
        };
        assert_eq!(header.encode(), [1, 0x81, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9]);
        assert!(!header.is_plain());
        assert!(OffloadHeader::default().is_plain());
        let raw = RawHeader::from(header);
        assert!(raw.is_segmented());
        assert_eq!(raw.num_buffers(), 0x090a);
        assert_eq!(
            raw.with_num_buffers(3).parse(),
            OffloadHeader {
                num_buffers: 3,
                ..header
            }
        );
    }

    proptest! {
        #[test]
        fn any_octets_come_back(octets in any::<[u8; HEADER_LEN]>()) {
            let header = OffloadHeader::parse(&octets);
            prop_assert_eq!(header.encode(), octets);
            let raw = RawHeader::new(&octets);
            prop_assert_eq!(raw.octets(), octets);
            prop_assert_eq!(raw.parse(), header);
            prop_assert_eq!(raw.is_plain(), header.is_plain());
            prop_assert_eq!(raw.is_segmented(), header.gso_type != GSO_NONE);
            prop_assert_eq!(raw.num_buffers(), header.num_buffers);
        }
    }
}
