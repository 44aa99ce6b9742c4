// SPDX-License-Identifier: Apache-2.0
//! Replies of the back end.

use super::fields::{Reader, Writer};
use super::payload::{ConfigWrite, InflightArea, read_index};
use super::{Header, MessageError, check_descriptors, check_direction, code};

/// Reply of the back end. Each kind identifies the request that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A number: the requested value, or the acknowledgement of a request, which is 0 for success.
    Number {
        /// Number of the request.
        request: u32,
        /// The value.
        value: u64,
    },
    /// Position at which a ring has stopped; see [`super::RingBase::from_bits`].
    RingBase {
        /// Index of the ring.
        index: u8,
        /// Positions in the message's format.
        bits: u32,
    },
    /// Octets of the configuration space; `None` if the request failed.
    Config(Option<ConfigWrite>),
    /// Area that tracks buffers in flight, and a file descriptor; `None` if there is none.
    Inflight(Option<InflightArea>),
}

impl Reply {
    /// Returns the acknowledgement of a request: success, or not.
    #[must_use]
    pub fn acknowledge(request: u32, is_success: bool) -> Self {
        Self::Number {
            request,
            value: (!is_success).into(),
        }
    }

    /// Parses the message of `header` and `payload` that arrived with `descriptors` file descriptors.
    ///
    /// # Errors
    /// [`MessageError`]: length, a field or the number of file descriptors does not match the reply, or the message is a
    /// request.
    pub fn parse(header: Header, payload: &[u8], descriptors: usize) -> Result<Self, MessageError> {
        check_direction(header, true)?;
        let mut reader = Reader::new(header, payload)?;
        let reply = match header.request() {
            code::GET_VRING_BASE => Self::RingBase {
                index: read_index(&mut reader)?,
                bits: reader.u32()?,
            },
            code::GET_CONFIG if reader.left() == 0 => Self::Config(None),
            code::GET_CONFIG => Self::Config(Some(ConfigWrite::read(&mut reader)?)),
            code::GET_INFLIGHT_FD => Self::Inflight(InflightArea::read(&mut reader)?),
            request => Self::Number {
                request,
                value: reader.u64()?,
            },
        };
        reader.end()?;
        check_descriptors(header.request(), descriptors, reply.descriptors())?;
        Ok(reply)
    }

    /// Returns the number of file descriptors of the reply.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        matches!(self, Self::Inflight(Some(_))).into()
    }

    /// Returns the number of the request that this answers.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::Number { request, .. } => *request,
            Self::RingBase { .. } => code::GET_VRING_BASE,
            Self::Config(_) => code::GET_CONFIG,
            Self::Inflight(_) => code::GET_INFLIGHT_FD,
        }
    }

    /// Returns the message: header and payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let writer = Writer::new();
        let writer = match self {
            Self::Number { value, .. } => writer.u64(*value),
            Self::RingBase { index, bits } => writer.u32((*index).into()).u32(*bits),
            Self::Config(Some(data)) => data.write(writer),
            Self::Config(None) => writer,
            Self::Inflight(area) => InflightArea::write(area.as_ref(), writer),
        };
        writer.finish(self.code(), true, false)
    }
}
