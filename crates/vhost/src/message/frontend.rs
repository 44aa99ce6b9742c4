// SPDX-License-Identifier: Apache-2.0
//! Requests of the front end.

use super::fields::{Reader, Writer};
use super::payload::{
    ConfigWrite, InflightArea, IotlbEntry, IotlbFields, IotlbRange, LogArea, MemoryTable,
    Permission, Region, RingAddresses, RingEvent, RingSize, read_index, read_inflight,
    write_inflight,
};
use super::{CONFIG_MAX, Header, MessageError, check_descriptors, check_direction, code};

/// Request of the front end (section 'Front-end message types'). The session checks indices of rings against the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontendRequest {
    /// Asks for the features that the back end offers.
    GetFeatures,
    /// Sets the features in use.
    SetFeatures(u64),
    /// Starts the session.
    SetOwner,
    /// Deprecated and ignored.
    ResetOwner,
    /// Replaces the memory table. One file descriptor for each region.
    SetMemoryTable(MemoryTable),
    /// Sets the log of written pages. One file descriptor.
    SetLogBase(LogArea),
    /// Sets the eventfd that reports writes to the log. One file descriptor.
    SetLogEvent,
    /// Sets the size of a ring.
    SetRingSize {
        /// Index of the ring.
        index: u8,
        /// Number of entries.
        size: RingSize,
    },
    /// Sets the addresses of a ring.
    SetRingAddresses {
        /// Index of the ring.
        index: u8,
        /// The addresses.
        addresses: RingAddresses,
    },
    /// Sets the position at which a ring starts; see [`super::RingBase::from_bits`], which depends on the features in use.
    SetRingBase {
        /// Index of the ring.
        index: u8,
        /// Positions in the message's format.
        bits: u32,
    },
    /// Stops a ring and asks for its position.
    GetRingBase {
        /// Index of the ring.
        index: u8,
    },
    /// Sets the eventfd by which the front end notifies the back end, and starts the ring.
    SetRingKick(RingEvent),
    /// Sets the eventfd by which the back end notifies the front end.
    SetRingCall(RingEvent),
    /// Sets the eventfd by which the back end reports errors.
    SetRingError(RingEvent),
    /// Asks for the protocol features that the back end offers.
    GetProtocolFeatures,
    /// Sets the protocol features in use.
    SetProtocolFeatures(u64),
    /// Asks for the largest number of queue pairs.
    GetQueueNumber,
    /// Enables or disables a ring.
    SetRingEnable {
        /// Index of the ring.
        index: u8,
        /// True to enable it.
        is_enabled: bool,
    },
    /// Asks for a RARP broadcast of this MAC address.
    SendRarp([u8; 6]),
    /// Sets the MTU. The session checks it, because the reply states whether it is valid.
    SetMtu(u64),
    /// Sets the socket for requests of the back end. One file descriptor.
    SetRequestChannel,
    /// Adds an entry to the IOTLB.
    IotlbUpdate(IotlbEntry),
    /// Removes a range from the IOTLB.
    IotlbInvalidate(IotlbRange),
    /// Asks for octets of the configuration space.
    GetConfig {
        /// Offset of the first octet.
        offset: u32,
        /// Number of octets, 1 to 256.
        size: u16,
        /// Flags of the request.
        flags: u32,
    },
    /// Writes to the configuration space.
    SetConfig(ConfigWrite),
    /// Asks for an area that tracks buffers in flight.
    GetInflight {
        /// Number of rings.
        rings: u16,
        /// Entries of each ring.
        ring_size: RingSize,
    },
    /// Restores an area that tracks buffers in flight. One file descriptor.
    SetInflight(InflightArea),
    /// Resets the device.
    ResetDevice,
    /// Asks for the largest number of memory regions.
    GetMemorySlots,
    /// Adds a memory region. One file descriptor.
    AddRegion(Region),
    /// Removes a memory region. An accompanying file descriptor is closed.
    RemoveRegion(Region),
    /// Sets the device status (virtio 1.2, section 2.1).
    SetStatus(u8),
    /// Asks for the device status.
    GetStatus,
    /// A request that this codec does not know.
    Unknown(u32),
}

impl FrontendRequest {
    /// Parses the message of `header` and `payload` that arrived with `descriptors` file descriptors.
    ///
    /// # Errors
    /// [`MessageError`]: length, a field or the number of file descriptors does not match the request, or the message is a
    /// reply.
    pub fn parse(header: Header, payload: &[u8], descriptors: usize) -> Result<Self, MessageError> {
        check_direction(header, false)?;
        let mut reader = Reader::new(header, payload)?;
        let request = match Self::parse_ring(header.request(), &mut reader)? {
            Some(request) => request,
            None => Self::parse_device(header.request(), &mut reader)?,
        };
        if matches!(request, Self::Unknown(_)) {
            return Ok(request);
        }
        reader.end()?;
        request.check_descriptors(descriptors)?;
        Ok(request)
    }

    /// Parses requests about a ring; `None` for others.
    fn parse_ring(request: u32, reader: &mut Reader<'_>) -> Result<Option<Self>, MessageError> {
        Ok(Some(match request {
            code::SET_VRING_NUM => {
                let (index, number) = (read_index(reader)?, reader.u32()?);
                let size = u16::try_from(number).ok().and_then(RingSize::new);
                Self::SetRingSize {
                    index,
                    size: size.ok_or_else(|| reader.value("size of the ring"))?,
                }
            }
            code::SET_VRING_ADDR => {
                let (index, addresses) = RingAddresses::read(reader)?;
                Self::SetRingAddresses { index, addresses }
            }
            code::SET_VRING_BASE => Self::SetRingBase {
                index: read_index(reader)?,
                bits: reader.u32()?,
            },
            code::GET_VRING_BASE => {
                let index = read_index(reader)?;
                // Its meaning is that of a protocol feature that quietwire does not offer.
                reader.u32()?;
                Self::GetRingBase { index }
            }
            code::SET_VRING_KICK => Self::SetRingKick(RingEvent::read(reader)?),
            code::SET_VRING_CALL => Self::SetRingCall(RingEvent::read(reader)?),
            code::SET_VRING_ERR => Self::SetRingError(RingEvent::read(reader)?),
            code::SET_VRING_ENABLE => {
                let index = read_index(reader)?;
                let is_enabled = match reader.u32()? {
                    0 => false,
                    1 => true,
                    _ => return Err(reader.value("state of the ring")),
                };
                Self::SetRingEnable { index, is_enabled }
            }
            _ => return Ok(None),
        }))
    }

    /// Parses requests about the device.
    fn parse_device(request: u32, reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        Ok(match request {
            code::GET_FEATURES => Self::GetFeatures,
            code::SET_FEATURES => Self::SetFeatures(reader.u64()?),
            code::SET_OWNER => Self::SetOwner,
            code::RESET_OWNER => Self::ResetOwner,
            code::SET_MEM_TABLE => Self::SetMemoryTable(MemoryTable::read(reader)?),
            code::SET_LOG_BASE => Self::SetLogBase(LogArea::read(reader)?),
            code::SET_LOG_FD => Self::SetLogEvent,
            code::GET_PROTOCOL_FEATURES => Self::GetProtocolFeatures,
            code::SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(reader.u64()?),
            code::GET_QUEUE_NUM => Self::GetQueueNumber,
            code::SEND_RARP => {
                let [a, b, c, d, e, f, _, _] = reader.u64()?.to_ne_bytes();
                Self::SendRarp([a, b, c, d, e, f])
            }
            code::NET_SET_MTU => Self::SetMtu(reader.u64()?),
            code::SET_BACKEND_REQ_FD => Self::SetRequestChannel,
            code::IOTLB_MSG => Self::parse_iotlb(reader)?,
            code::GET_CONFIG => {
                let write = ConfigWrite::read(reader)?;
                let size = u16::try_from(write.data().len());
                let size = size.map_err(|_| reader.value("size of the access"))?;
                Self::GetConfig {
                    offset: write.offset(),
                    size,
                    flags: write.flags(),
                }
            }
            code::SET_CONFIG => Self::SetConfig(ConfigWrite::read(reader)?),
            code::GET_INFLIGHT_FD => {
                let (_, _, rings, ring_size) = read_inflight(reader)?;
                let ring_size = RingSize::new(ring_size);
                let ring_size = ring_size.ok_or_else(|| reader.value("size of the rings"))?;
                if rings == 0 {
                    return Err(reader.value("number of rings"));
                }
                Self::GetInflight { rings, ring_size }
            }
            code::SET_INFLIGHT_FD => Self::SetInflight(
                InflightArea::read(reader)?.ok_or_else(|| reader.value("inflight area"))?,
            ),
            code::RESET_DEVICE => Self::ResetDevice,
            code::GET_MAX_MEM_SLOTS => Self::GetMemorySlots,
            code::ADD_MEM_REG => {
                reader.u64()?;
                Self::AddRegion(Region::read(reader)?)
            }
            code::REM_MEM_REG => {
                reader.u64()?;
                Self::RemoveRegion(Region::read(reader)?)
            }
            code::SET_STATUS => {
                let status = u8::try_from(reader.u64()?);
                Self::SetStatus(status.map_err(|_| reader.value("device status"))?)
            }
            code::GET_STATUS => Self::GetStatus,
            unknown => Self::Unknown(unknown),
        })
    }

    fn parse_iotlb(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let fields = IotlbFields::read(reader)?;
        match fields.kind {
            IotlbFields::UPDATE => {
                let permission = Permission::from_bits(fields.permission)
                    .ok_or_else(|| reader.value("permission of the IOTLB entry"))?;
                IotlbEntry::new(fields.iova, fields.size, fields.user, permission)
                    .map(Self::IotlbUpdate)
                    .ok_or_else(|| reader.value("IOTLB entry"))
            }
            IotlbFields::INVALIDATE => IotlbRange::new(fields.iova, fields.size)
                .map(Self::IotlbInvalidate)
                .ok_or_else(|| reader.value("IOTLB range")),
            _ => Err(reader.value("type of the IOTLB message")),
        }
    }

    fn check_descriptors(&self, count: usize) -> Result<(), MessageError> {
        let expected = match self {
            // Some front ends send one (section on REM_MEM_REG).
            Self::RemoveRegion(_) => count.min(1),
            _ => self.descriptors(),
        };
        check_descriptors(self.code(), count, expected)
    }

    /// Returns the number of file descriptors of the request.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        match self {
            Self::SetMemoryTable(table) => table.regions().len(),
            Self::SetLogBase(_)
            | Self::SetLogEvent
            | Self::SetRequestChannel
            | Self::SetInflight(_)
            | Self::AddRegion(_) => 1,
            Self::SetRingKick(event) | Self::SetRingCall(event) | Self::SetRingError(event) => {
                event.has_descriptor.into()
            }
            _ => 0,
        }
    }

    /// Returns the number of the request.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::GetFeatures => code::GET_FEATURES,
            Self::SetFeatures(_) => code::SET_FEATURES,
            Self::SetOwner => code::SET_OWNER,
            Self::ResetOwner => code::RESET_OWNER,
            Self::SetMemoryTable(_) => code::SET_MEM_TABLE,
            Self::SetLogBase(_) => code::SET_LOG_BASE,
            Self::SetLogEvent => code::SET_LOG_FD,
            Self::SetRingSize { .. } => code::SET_VRING_NUM,
            Self::SetRingAddresses { .. } => code::SET_VRING_ADDR,
            Self::SetRingBase { .. } => code::SET_VRING_BASE,
            Self::GetRingBase { .. } => code::GET_VRING_BASE,
            Self::SetRingKick(_) => code::SET_VRING_KICK,
            Self::SetRingCall(_) => code::SET_VRING_CALL,
            Self::SetRingError(_) => code::SET_VRING_ERR,
            Self::GetProtocolFeatures => code::GET_PROTOCOL_FEATURES,
            Self::SetProtocolFeatures(_) => code::SET_PROTOCOL_FEATURES,
            Self::GetQueueNumber => code::GET_QUEUE_NUM,
            Self::SetRingEnable { .. } => code::SET_VRING_ENABLE,
            Self::SendRarp(_) => code::SEND_RARP,
            Self::SetMtu(_) => code::NET_SET_MTU,
            Self::SetRequestChannel => code::SET_BACKEND_REQ_FD,
            Self::IotlbUpdate(_) | Self::IotlbInvalidate(_) => code::IOTLB_MSG,
            Self::GetConfig { .. } => code::GET_CONFIG,
            Self::SetConfig(_) => code::SET_CONFIG,
            Self::GetInflight { .. } => code::GET_INFLIGHT_FD,
            Self::SetInflight(_) => code::SET_INFLIGHT_FD,
            Self::ResetDevice => code::RESET_DEVICE,
            Self::GetMemorySlots => code::GET_MAX_MEM_SLOTS,
            Self::AddRegion(_) => code::ADD_MEM_REG,
            Self::RemoveRegion(_) => code::REM_MEM_REG,
            Self::SetStatus(_) => code::SET_STATUS,
            Self::GetStatus => code::GET_STATUS,
            Self::Unknown(request) => *request,
        }
    }

    /// Returns the message: header and payload. `need_reply` asks for an acknowledgement.
    #[must_use]
    pub fn encode(&self, need_reply: bool) -> Vec<u8> {
        let writer = Writer::new();
        let writer = match self {
            Self::SetFeatures(value) | Self::SetProtocolFeatures(value) | Self::SetMtu(value) => {
                writer.u64(*value)
            }
            Self::SetStatus(status) => writer.u64((*status).into()),
            Self::SetMemoryTable(table) => table.write(writer),
            Self::SetLogBase(area) => area.write(writer),
            Self::SetRingSize { index, size } => writer.u32((*index).into()).u32(size.get().into()),
            Self::SetRingAddresses { index, addresses } => addresses.write(*index, writer),
            Self::SetRingBase { index, bits } => writer.u32((*index).into()).u32(*bits),
            Self::GetRingBase { index } => writer.u32((*index).into()).u32(0),
            Self::SetRingEnable { index, is_enabled } => {
                writer.u32((*index).into()).u32((*is_enabled).into())
            }
            Self::SetRingKick(event) | Self::SetRingCall(event) | Self::SetRingError(event) => {
                event.write(writer)
            }
            Self::SendRarp(address) => writer.bytes(address).u16(0),
            Self::IotlbUpdate(entry) => IotlbFields {
                iova: entry.iova(),
                size: entry.size(),
                user: entry.user_address(),
                permission: entry.permission().bits(),
                kind: IotlbFields::UPDATE,
            }
            .write(writer),
            Self::IotlbInvalidate(range) => IotlbFields {
                iova: range.first(),
                // Wraps to 0 for the whole address space, as `IotlbRange::new` reads it.
                size: range.last().wrapping_sub(range.first()).wrapping_add(1),
                user: 0,
                permission: 0,
                kind: IotlbFields::INVALIDATE,
            }
            .write(writer),
            Self::GetConfig {
                offset,
                size,
                flags,
            } => {
                let space = [0; CONFIG_MAX];
                let space = space.get(..usize::from(*size)).unwrap_or(&space);
                writer
                    .u32(*offset)
                    .u32((*size).into())
                    .u32(*flags)
                    .bytes(space)
            }
            Self::SetConfig(write) => write.write(writer),
            Self::GetInflight { rings, ring_size } => {
                write_inflight(writer, 0, 0, *rings, ring_size.get())
            }
            Self::SetInflight(area) => InflightArea::write(Some(area), writer),
            Self::AddRegion(region) | Self::RemoveRegion(region) => region.write(writer.u64(0)),
            Self::GetFeatures
            | Self::SetOwner
            | Self::ResetOwner
            | Self::SetLogEvent
            | Self::GetProtocolFeatures
            | Self::GetQueueNumber
            | Self::SetRequestChannel
            | Self::ResetDevice
            | Self::GetMemorySlots
            | Self::GetStatus
            | Self::Unknown(_) => writer,
        };
        writer.finish(self.code(), false, need_reply)
    }
}
