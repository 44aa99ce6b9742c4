// SPDX-License-Identifier: Apache-2.0
//! Payloads of messages. Those with rules have no public fields: every value follows the rules.

use super::fields::{Reader, Writer};
use super::{CONFIG_MAX, MessageError, TABLE_REGIONS_MAX};
use crate::ring::layout::RING_SIZE_MAX;

/// Region of the guest's memory (section 'Memory region description'). It is not empty and no address in it overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    guest: u64,
    size: u64,
    user: u64,
    offset: u64,
}

impl Region {
    /// Returns a region of `size` octets at guest address `guest`, which the front end maps at `user` and which begins at
    /// `offset` of its file. `None` if it is empty or an address overflows.
    #[must_use]
    pub fn new(guest: u64, size: u64, user: u64, offset: u64) -> Option<Self> {
        // The address after the last octet must be valid too, so that sums of address and size never overflow.
        let fits = |start: u64| start.checked_add(size).is_some();
        (size > 0 && fits(guest) && fits(user) && fits(offset)).then_some(Self {
            guest,
            size,
            user,
            offset,
        })
    }

    /// Returns the guest physical address of the first octet.
    #[must_use]
    pub fn guest_address(&self) -> u64 {
        self.guest
    }

    /// Returns the number of octets, at least 1.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the address of the first octet in the front end.
    #[must_use]
    pub fn user_address(&self) -> u64 {
        self.user
    }

    /// Returns the offset of the first octet in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns true if both regions have a guest address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |region: &Self| region.guest.saturating_add(region.size);
        self.guest < end(other) && other.guest < end(self)
    }

    /// Returns true if guest address, user address and size are equal, which is how REM_MEM_REG identifies a region.
    #[must_use]
    pub fn is_same_range(&self, other: &Self) -> bool {
        (self.guest, self.size, self.user) == (other.guest, other.size, other.user)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (guest, size) = (reader.u64()?, reader.u64()?);
        let (user, offset) = (reader.u64()?, reader.u64()?);
        Self::new(guest, size, user, offset).ok_or_else(|| reader.value("memory region"))
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        writer
            .u64(self.guest)
            .u64(self.size)
            .u64(self.user)
            .u64(self.offset)
    }
}

/// Memory table: 1 to 8 regions without a common guest address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryTable(Vec<Region>);

impl MemoryTable {
    /// Returns a table of regions; `None` if there are none or more than [`TABLE_REGIONS_MAX`], or if two overlap.
    #[must_use]
    pub fn new(regions: Vec<Region>) -> Option<Self> {
        let mut others = regions.iter();
        while let Some(region) = others.next() {
            if others.clone().any(|other| region.overlaps(other)) {
                return None;
            }
        }
        (1..=TABLE_REGIONS_MAX)
            .contains(&regions.len())
            .then_some(Self(regions))
    }

    /// Returns the regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.0
    }

    /// Returns the regions.
    #[must_use]
    pub fn into_regions(self) -> Vec<Region> {
        self.0
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        const REGION: usize = 32;
        const ALL: usize = TABLE_REGIONS_MAX * REGION;
        let count = reader.u32()?;
        reader.u32()?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| (1..=TABLE_REGIONS_MAX).contains(count))
            .ok_or_else(|| reader.value("number of memory regions"))?;
        // The description has space for eight regions; front ends send those in use or all eight.
        if reader.left() != count.saturating_mul(REGION) && reader.left() != ALL {
            return Err(reader.length());
        }
        let mut regions = Vec::with_capacity(count);
        for _ in 0..count {
            regions.push(Region::read(reader)?);
        }
        reader.skip_up_to(ALL);
        Self::new(regions).ok_or_else(|| reader.value("memory region that overlaps another one"))
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        let count = u32::try_from(self.0.len()).unwrap_or_default();
        let writer = writer.u32(count).u32(0);
        self.0
            .iter()
            .fold(writer, |writer, region| region.write(writer))
    }
}

/// Area of a file for the log of written pages. It is not empty and no offset in it overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogArea {
    size: u64,
    offset: u64,
}

impl LogArea {
    /// Returns an area of `size` octets at `offset`; `None` if it is empty or an offset overflows.
    #[must_use]
    pub fn new(size: u64, offset: u64) -> Option<Self> {
        (size > 0 && offset.checked_add(size).is_some()).then_some(Self { size, offset })
    }

    /// Returns the number of octets, at least 1.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the offset in the file at which the page of guest address 0 has its bit.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (size, offset) = (reader.u64()?, reader.u64()?);
        Self::new(size, offset).ok_or_else(|| reader.value("log area"))
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        writer.u64(self.size).u64(self.offset)
    }
}

/// Number of entries of a ring: 1 to 32,768 (virtio 1.2, sections 2.7 and 2.8). The session checks the rest, since the rules
/// of split and packed rings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingSize(u16);

impl RingSize {
    /// Returns a size; `None` if it is out of range.
    #[must_use]
    pub fn new(entries: u16) -> Option<Self> {
        (1..=RING_SIZE_MAX)
            .contains(&entries)
            .then_some(Self(entries))
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Addresses of a ring's areas (section 'A vring address description').
///
/// They are user addresses of the front end, or I/O virtual addresses if `ACCESS_PLATFORM` is negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddresses {
    /// Descriptor table, or the packed ring.
    pub descriptors: u64,
    /// Available ring, or the driver's event suppression structure.
    pub available: u64,
    /// Used ring, or the device's event suppression structure.
    pub used: u64,
    /// Guest address of the used ring in the log, if writes to the used ring are logged.
    pub log: Option<u64>,
}

/// The bit of the flags of SET_VRING_ADDR that asks for logging (section 'Migration').
const RING_FLAG_LOG: u32 = 1;

impl RingAddresses {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(u8, Self), MessageError> {
        let (index, flags) = (read_index(reader)?, reader.u32()?);
        if flags & !RING_FLAG_LOG != 0 {
            return Err(reader.value("flags of the ring"));
        }
        let (descriptors, used) = (reader.u64()?, reader.u64()?);
        let (available, log) = (reader.u64()?, reader.u64()?);
        let log = (flags & RING_FLAG_LOG != 0).then_some(log);
        Ok((
            index,
            Self {
                descriptors,
                available,
                used,
                log,
            },
        ))
    }

    pub(super) fn write(&self, index: u8, writer: Writer) -> Writer {
        let flags = if self.log.is_some() { RING_FLAG_LOG } else { 0 };
        writer
            .u32(index.into())
            .u32(flags)
            .u64(self.descriptors)
            .u64(self.used)
            .u64(self.available)
            .u64(self.log.unwrap_or(0))
    }
}

/// Start or stop positions of a ring (sections 'A vring descriptor index for split virtqueues' and 'Vring descriptor indices
/// for packed virtqueues').
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingBase {
    /// Split ring. The index of the used ring is in the ring's memory.
    Split {
        /// Index of the available ring, a free-running counter.
        available: u16,
    },
    /// Packed ring. An index has 15 bits.
    Packed {
        /// Position of the next available descriptor.
        available: u16,
        /// The driver's wrap counter at that position.
        available_wrap: bool,
        /// Position of the next used descriptor.
        used: u16,
        /// The device's wrap counter at that position.
        used_wrap: bool,
    },
}

impl RingBase {
    /// Returns the positions of a ring that starts for the first time (virtio 1.2, section 2.8.1: wrap counters are 1).
    #[must_use]
    pub fn initial(is_packed: bool) -> Self {
        if is_packed {
            Self::Packed {
                available: 0,
                available_wrap: true,
                used: 0,
                used_wrap: true,
            }
        } else {
            Self::Split { available: 0 }
        }
    }

    /// Returns positions from the message's format; `None` if reserved bits of a split ring are set.
    #[must_use]
    pub fn from_bits(bits: u32, is_packed: bool) -> Option<Self> {
        let [a, b, c, d] = bits.to_le_bytes();
        let (low, high) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        if is_packed {
            Some(Self::Packed {
                available: low & 0x7fff,
                available_wrap: low & 0x8000 != 0,
                used: high & 0x7fff,
                used_wrap: high & 0x8000 != 0,
            })
        } else {
            (high == 0).then_some(Self::Split { available: low })
        }
    }

    /// Returns positions in the message's format.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Split { available } => available.into(),
            Self::Packed {
                available,
                available_wrap,
                used,
                used_wrap,
            } => {
                let half =
                    |index: u16, wrap: bool| u32::from(index & 0x7fff) | u32::from(wrap) << 15;
                half(available, available_wrap) | half(used, used_wrap) << 16
            }
        }
    }
}

/// Ring of an eventfd message, and whether the message has a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingEvent {
    /// Index of the ring.
    pub index: u8,
    /// True if a file descriptor comes with the message; otherwise the side polls.
    pub has_descriptor: bool,
}

impl RingEvent {
    const NO_DESCRIPTOR: u64 = 1 << 8;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let value = reader.u64()?;
        let has_descriptor = value & Self::NO_DESCRIPTOR == 0;
        let index = u8::try_from(value & !Self::NO_DESCRIPTOR)
            .map_err(|_| reader.value("index of the ring"))?;
        Ok(Self {
            index,
            has_descriptor,
        })
    }

    pub(super) fn write(self, writer: Writer) -> Writer {
        let flag = if self.has_descriptor {
            0
        } else {
            Self::NO_DESCRIPTOR
        };
        writer.u64(u64::from(self.index) | flag)
    }
}

/// Accesses that an entry of the IOTLB allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Read and write.
    ReadWrite,
}

impl Permission {
    /// Returns true if reading is allowed.
    #[must_use]
    pub fn may_read(self) -> bool {
        self != Self::Write
    }

    /// Returns true if writing is allowed.
    #[must_use]
    pub fn may_write(self) -> bool {
        self != Self::Read
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            3 => Some(Self::ReadWrite),
            _ => None,
        }
    }

    pub(super) fn bits(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadWrite => 3,
        }
    }
}

/// Entry of the IOTLB: a range of I/O virtual addresses and its user address. It is not empty and no address overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IotlbEntry {
    iova: u64,
    size: u64,
    user: u64,
    permission: Permission,
}

impl IotlbEntry {
    /// Returns an entry; `None` if it is empty or an address overflows.
    #[must_use]
    pub fn new(iova: u64, size: u64, user: u64, permission: Permission) -> Option<Self> {
        let last = size.checked_sub(1)?;
        let fits = |start: u64| start.checked_add(last).is_some();
        (fits(iova) && fits(user)).then_some(Self {
            iova,
            size,
            user,
            permission,
        })
    }

    /// Returns the first I/O virtual address.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Returns the number of octets, at least 1.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the first user address.
    #[must_use]
    pub fn user_address(&self) -> u64 {
        self.user
    }

    /// Returns the permitted accesses.
    #[must_use]
    pub fn permission(&self) -> Permission {
        self.permission
    }
}

/// Range of I/O virtual addresses, first and last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IotlbRange {
    first: u64,
    last: u64,
}

impl IotlbRange {
    /// Returns the range of `size` octets at `iova`, truncated at the end of the address space. Size 0 at address 0 is the
    /// whole address space, whose size exceeds 64 bits. `None` for other empty ranges.
    #[must_use]
    pub fn new(iova: u64, size: u64) -> Option<Self> {
        match size.checked_sub(1) {
            Some(more) => Some(Self {
                first: iova,
                last: iova.saturating_add(more),
            }),
            None => (iova == 0).then_some(Self {
                first: 0,
                last: u64::MAX,
            }),
        }
    }

    /// Returns the first address.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last address.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }
}

/// IOTLB message in wire format (section 'An IOTLB message').
pub(super) struct IotlbFields {
    pub(super) iova: u64,
    pub(super) size: u64,
    pub(super) user: u64,
    pub(super) permission: u8,
    pub(super) kind: u8,
}

impl IotlbFields {
    pub(super) const MISS: u8 = 1;
    pub(super) const UPDATE: u8 = 2;
    pub(super) const INVALIDATE: u8 = 3;
    pub(super) const ACCESS_FAIL: u8 = 4;
    /// Octets after the fields: the C structure is padded to its alignment.
    const PADDING: usize = 6;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (iova, size, user) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (permission, kind) = (reader.u8()?, reader.u8()?);
        reader.skip_up_to(Self::PADDING);
        Ok(Self {
            iova,
            size,
            user,
            permission,
            kind,
        })
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        writer
            .u64(self.iova)
            .u64(self.size)
            .u64(self.user)
            .bytes(&[self.permission, self.kind])
            .bytes(&[0; Self::PADDING])
    }
}

/// Area of a file that tracks buffers in flight (section 'Inflight description'). Its rings have 1 to 32,768 entries and no
/// offset overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightArea {
    size: u64,
    offset: u64,
    rings: u16,
    ring_size: RingSize,
}

impl InflightArea {
    /// Returns an area of `size` octets at `offset` for `rings` rings of `ring_size` entries; `None` if it is empty, has no
    /// rings, or an offset overflows.
    #[must_use]
    pub fn new(size: u64, offset: u64, rings: u16, ring_size: RingSize) -> Option<Self> {
        (size > 0 && rings > 0 && offset.checked_add(size).is_some()).then_some(Self {
            size,
            offset,
            rings,
            ring_size,
        })
    }

    /// Returns the number of octets, at least 1.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of rings, at least 1.
    #[must_use]
    pub fn rings(&self) -> u16 {
        self.rings
    }

    /// Returns the entries of each ring.
    #[must_use]
    pub fn ring_size(&self) -> RingSize {
        self.ring_size
    }

    /// Writes the description; `None` is written with size 0, which means no area.
    pub(super) fn write(area: Option<&Self>, writer: Writer) -> Writer {
        let (size, offset) = area.map_or((0, 0), |area| (area.size, area.offset));
        let (rings, ring_size) = area.map_or((0, 0), |area| (area.rings, area.ring_size.get()));
        write_inflight(writer, size, offset, rings, ring_size)
    }

    /// Reads the description of an area; `None` if its size is 0.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, MessageError> {
        let (size, offset, rings, ring_size) = read_inflight(reader)?;
        if size == 0 {
            return Ok(None);
        }
        let ring_size =
            RingSize::new(ring_size).ok_or_else(|| reader.value("size of the rings"))?;
        Self::new(size, offset, rings, ring_size)
            .map(Some)
            .ok_or_else(|| reader.value("inflight area"))
    }
}

/// Reads size and offset of the area, number and size of rings.
pub(super) fn read_inflight(reader: &mut Reader<'_>) -> Result<(u64, u64, u16, u16), MessageError> {
    let (size, offset) = (reader.u64()?, reader.u64()?);
    let (rings, ring_size) = (reader.u16()?, reader.u16()?);
    // The C structure is padded to its alignment.
    reader.skip_up_to(4);
    Ok((size, offset, rings, ring_size))
}

/// Writes size and offset of the area, number and size of rings.
pub(super) fn write_inflight(
    writer: Writer,
    size: u64,
    offset: u64,
    rings: u16,
    ring_size: u16,
) -> Writer {
    writer
        .u64(size)
        .u64(offset)
        .u16(rings)
        .u16(ring_size)
        .u32(0)
}

/// Write to the configuration space: 1 to 256 octets (section 'Virtio device config space').
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWrite {
    offset: u32,
    flags: u32,
    data: Vec<u8>,
}

impl ConfigWrite {
    /// Returns a write of `data` at `offset`; `None` if it is empty or longer than [`CONFIG_MAX`] octets.
    #[must_use]
    pub fn new(offset: u32, flags: u32, data: Vec<u8>) -> Option<Self> {
        (1..=CONFIG_MAX).contains(&data.len()).then_some(Self {
            offset,
            flags,
            data,
        })
    }

    /// Returns the offset in the configuration space.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the flags: 1 during live migration.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the octets.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (offset, size, flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if usize::try_from(size) != Ok(reader.left()) {
            return Err(reader.length());
        }
        let data = reader.rest().to_vec();
        Self::new(offset, flags, data).ok_or_else(|| reader.value("size of the access"))
    }

    pub(super) fn write(&self, writer: Writer) -> Writer {
        let size = u32::try_from(self.data.len()).unwrap_or_default();
        writer
            .u32(self.offset)
            .u32(size)
            .u32(self.flags)
            .bytes(&self.data)
    }
}

/// Reads the index of a ring; the protocol supports 256 rings.
pub(super) fn read_index(reader: &mut Reader<'_>) -> Result<u8, MessageError> {
    u8::try_from(reader.u32()?).map_err(|_| reader.value("index of the ring"))
}
