// SPDX-License-Identifier: Apache-2.0
//! Reading and writing of fields in the machine's byte order.

use super::{FLAG_NEED_REPLY, FLAG_REPLY, Header, MessageError, VERSION};

/// A payload that is being read.
pub(super) struct Reader<'a> {
    request: u32,
    size: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of a message's payload, whose length must be that of the header.
    pub(super) fn new(header: Header, payload: &'a [u8]) -> Result<Self, MessageError> {
        let reader = Self {
            request: header.request(),
            size: payload.len(),
            rest: payload,
        };
        if header.size() == payload.len() {
            Ok(reader)
        } else {
            Err(reader.length())
        }
    }

    /// Returns the number of remaining octets.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(|| self.length())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, MessageError> {
        self.array::<1>().map(|[octet]| octet)
    }

    pub(super) fn u16(&mut self) -> Result<u16, MessageError> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Returns all remaining octets.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Skips at most `count` octets.
    pub(super) fn skip_up_to(&mut self, count: usize) {
        self.rest = self
            .rest
            .get(count.min(self.rest.len())..)
            .unwrap_or_default();
    }

    /// Checks that no octets remain.
    pub(super) fn end(&self) -> Result<(), MessageError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.length())
        }
    }

    /// Returns the error of a payload whose length is wrong.
    pub(super) fn length(&self) -> MessageError {
        MessageError::Length {
            request: self.request,
            size: self.size,
        }
    }

    /// Returns the error of a field that is out of range.
    pub(super) fn value(&self, field: &'static str) -> MessageError {
        MessageError::Value {
            request: self.request,
            field,
        }
    }
}

/// A message that is being written: space for the header, then the payload.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(vec![0; Header::LENGTH])
    }

    pub(super) fn bytes(mut self, octets: &[u8]) -> Self {
        self.0.extend_from_slice(octets);
        self
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Writes the header and returns the message.
    pub(super) fn finish(mut self, request: u32, is_reply: bool, need_reply: bool) -> Vec<u8> {
        let mut flags = VERSION;
        if is_reply {
            flags |= FLAG_REPLY;
        }
        if need_reply {
            flags |= FLAG_NEED_REPLY;
        }
        // Payloads are bounded by their types, far below 4 GiB.
        let size = u32::try_from(self.0.len().saturating_sub(Header::LENGTH)).unwrap_or(u32::MAX);
        let fields = [request, flags, size]
            .into_iter()
            .flat_map(u32::to_ne_bytes);
        for (to, from) in self.0.iter_mut().zip(fields) {
            *to = from;
        }
        self.0
    }
}
