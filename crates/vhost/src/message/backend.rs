// SPDX-License-Identifier: Apache-2.0
//! Requests of the back end, over the channel of SET_BACKEND_REQ_FD.

use super::fields::{Reader, Writer};
use super::payload::{IotlbFields, Permission};
use super::{Header, MessageError, backend_code, check_descriptors, check_direction};

/// Request of the back end (section 'Back-end message types').
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendRequest {
    /// The IOTLB has no entry that allows this access.
    IotlbMiss {
        /// I/O virtual address.
        iova: u64,
        /// The access.
        permission: Permission,
    },
    /// The entry of the IOTLB does not allow this access.
    IotlbAccessFail {
        /// I/O virtual address.
        iova: u64,
        /// The access.
        permission: Permission,
    },
    /// The configuration space has changed.
    ConfigChange,
    /// A request that this codec does not know or quietwire does not support.
    Unknown(u32),
}

impl BackendRequest {
    /// Parses the message of `header` and `payload` that arrived with `descriptors` file descriptors.
    ///
    /// # Errors
    /// [`MessageError`]: length, a field or the number of file descriptors does not match the request, or the message is a
    /// reply.
    pub fn parse(header: Header, payload: &[u8], descriptors: usize) -> Result<Self, MessageError> {
        check_direction(header, false)?;
        let mut reader = Reader::new(header, payload)?;
        let request = match header.request() {
            backend_code::IOTLB_MSG => {
                let fields = IotlbFields::read(&mut reader)?;
                let iova = fields.iova;
                let permission = Permission::from_bits(fields.permission)
                    .ok_or_else(|| reader.value("permission of the IOTLB message"))?;
                match fields.kind {
                    IotlbFields::MISS => Self::IotlbMiss { iova, permission },
                    IotlbFields::ACCESS_FAIL => Self::IotlbAccessFail { iova, permission },
                    _ => return Err(reader.value("type of the IOTLB message")),
                }
            }
            backend_code::CONFIG_CHANGE_MSG => Self::ConfigChange,
            unknown => return Ok(Self::Unknown(unknown)),
        };
        reader.end()?;
        check_descriptors(header.request(), descriptors, 0)?;
        Ok(request)
    }

    /// Returns the number of the request.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::IotlbMiss { .. } | Self::IotlbAccessFail { .. } => backend_code::IOTLB_MSG,
            Self::ConfigChange => backend_code::CONFIG_CHANGE_MSG,
            Self::Unknown(request) => *request,
        }
    }

    /// Returns the message: header and payload. `need_reply` asks for an acknowledgement.
    #[must_use]
    pub fn encode(&self, need_reply: bool) -> Vec<u8> {
        let writer = Writer::new();
        let iotlb = |iova, permission: Permission, kind| IotlbFields {
            iova,
            size: 0,
            user: 0,
            permission: permission.bits(),
            kind,
        };
        let writer = match *self {
            Self::IotlbMiss { iova, permission } => {
                iotlb(iova, permission, IotlbFields::MISS).write(writer)
            }
            Self::IotlbAccessFail { iova, permission } => {
                iotlb(iova, permission, IotlbFields::ACCESS_FAIL).write(writer)
            }
            Self::ConfigChange | Self::Unknown(_) => writer,
        };
        writer.finish(self.code(), false, need_reply)
    }

    /// Returns the acknowledgement of the front end: success, or not.
    #[must_use]
    pub fn acknowledge(&self, is_success: bool) -> Vec<u8> {
        Writer::new()
            .u64((!is_success).into())
            .finish(self.code(), true, false)
    }

    /// Parses an acknowledgement of the front end. Returns the request's number, and true for success.
    ///
    /// # Errors
    /// [`MessageError`]: the message is not a reply, does not have 8 octets, or has file descriptors.
    pub fn parse_acknowledgement(
        header: Header,
        payload: &[u8],
        descriptors: usize,
    ) -> Result<(u32, bool), MessageError> {
        check_direction(header, true)?;
        let mut reader = Reader::new(header, payload)?;
        let value = reader.u64()?;
        reader.end()?;
        check_descriptors(header.request(), descriptors, 0)?;
        Ok((header.request(), value == 0))
    }
}
