// SPDX-License-Identifier: Apache-2.0
//! The pieces of guest memory that a chain of descriptors refers to.

use crate::address_space::{Access, Miss, Piece, Translation, Translator};
use crate::narrow;

use super::header::HEADER_LEN;

/// Maximum number of pieces of a chain, or of all chains of one frame.
pub const PIECES_MAX: usize = 256;
/// Maximum number of descriptors of a chain, including those of an indirect table.
pub const CHAIN_MAX: usize = 256;
/// Maximum length of a frame with its header, octets: the longest that segmentation offload allows, and space for headers.
pub const OCTETS_MAX: u32 = 65_536 + 128;

/// Reason why a chain is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The driver broke a rule.
    Bad,
    /// More than [`PIECES_MAX`] pieces.
    TooMany,
    /// The IOTLB lacks an address.
    Miss(Miss),
}

/// Pieces in the order of their octets.
#[derive(Debug)]
pub struct Chain {
    pieces: [Piece; PIECES_MAX],
    count: usize,
    octets: u64,
}

impl Chain {
    pub(crate) fn new() -> Self {
        Self {
            pieces: [Piece::EMPTY; PIECES_MAX],
            count: 0,
            octets: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.octets = 0;
    }

    /// Returns the octets of all pieces.
    #[inline(always)]
    pub(crate) fn octets(&self) -> u64 {
        self.octets
    }

    #[inline(always)]
    pub(crate) fn pieces(&self) -> &[Piece] {
        self.pieces.get(..self.count).unwrap_or_default()
    }

    /// Adds a buffer.
    #[inline]
    pub(crate) fn push(
        &mut self,
        memory: &mut Translator,
        mut address: u64,
        mut len: u32,
        access: Access,
    ) -> Result<(), Fault> {
        while len > 0 {
            let piece = match memory.translate_guest(address, len, access) {
                Translation::Piece(piece) if !piece.is_empty() => piece,
                Translation::Miss(miss) => return Err(Fault::Miss(miss)),
                _ => return Err(Fault::Bad),
            };
            let place = self.pieces.get_mut(self.count).ok_or(Fault::TooMany)?;
            *place = piece;
            self.count = self.count.saturating_add(1);
            self.octets = self.octets.saturating_add(u64::from(piece.len()));
            len = len.saturating_sub(piece.len());
            address = address.wrapping_add(u64::from(piece.len()));
        }
        Ok(())
    }

    /// Reads the first `len` octets, at most those of a header; returns them and the pieces after them.
    #[inline]
    pub(crate) fn split_header(
        &mut self,
        memory: &Translator,
        len: usize,
    ) -> ([u8; HEADER_LEN], &[Piece]) {
        let mut octets = [0; HEADER_LEN];
        let mut done = 0usize;
        let mut start = 0usize;
        for piece in self.pieces.iter_mut().take(self.count) {
            if let Some(span) = memory.span(*piece)
                && let Some(rest) = octets.get_mut(done..len.min(HEADER_LEN))
            {
                let copied = span.copy_to(rest);
                done = done.saturating_add(copied);
                *piece = piece.skip(narrow::octets(copied));
            }
            if !piece.is_empty() {
                break;
            }
            start = start.saturating_add(1);
        }
        let rest = self.pieces.get(start..self.count).unwrap_or_default();
        (octets, rest)
    }

    /// Writes octets over the pieces until one side ends; returns how many.
    pub(crate) fn write<'s>(
        &self,
        memory: &Translator,
        segments: impl Iterator<Item = &'s [u8]>,
    ) -> u64 {
        let mut pieces = self.pieces().iter();
        let mut piece = Piece::EMPTY;
        let mut written = 0u64;
        for mut segment in segments {
            while !segment.is_empty() {
                if piece.is_empty() {
                    let Some(next) = pieces.next() else {
                        return written;
                    };
                    piece = *next;
                }
                let Some(span) = memory.span(piece) else {
                    return written;
                };
                let copied = span.copy_from(segment);
                if copied == 0 {
                    return written;
                }
                written = written.saturating_add(copied as u64);
                piece = piece.skip(narrow::octets(copied));
                segment = segment.get(copied..).unwrap_or_default();
            }
        }
        written
    }
}

/// Reads octets at a guest address, which may continue in another region.
#[inline]
pub(crate) fn read<const N: usize>(
    memory: &mut Translator,
    mut address: u64,
) -> Result<[u8; N], Fault> {
    let mut octets = [0; N];
    let mut done = 0usize;
    while let Some(rest) = octets.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let piece = match memory.translate_guest(address, narrow::octets(rest.len()), Access::Read)
        {
            Translation::Piece(piece) => piece,
            Translation::Miss(miss) => return Err(Fault::Miss(miss)),
            Translation::Outside => return Err(Fault::Bad),
        };
        let copied = memory.span(piece).map_or(0, |span| span.copy_to(rest));
        if copied == 0 {
            return Err(Fault::Bad);
        }
        done = done.saturating_add(copied);
        address = address.wrapping_add(copied as u64);
    }
    Ok(octets)
}

/// Returns the two words of a descriptor in an indirect table.
#[inline]
pub(crate) fn read_descriptor(
    memory: &mut Translator,
    table: u64,
    index: usize,
) -> Result<(u64, u64), Fault> {
    let offset = index.saturating_mul(super::layout::DESCRIPTOR_LEN);
    let address = table.wrapping_add(offset as u64);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = read::<16>(memory, address)?;
    Ok((
        u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        u64::from_le_bytes([i, j, k, l, m, n, o, p]),
    ))
}

/// Returns the descriptors of an indirect table of `len` octets, if the device handles such a table.
#[inline]
pub(crate) fn table_entries(len: u32) -> Option<usize> {
    let len = len as usize;
    let count = len / super::layout::DESCRIPTOR_LEN;
    (len.is_multiple_of(super::layout::DESCRIPTOR_LEN) && (1..=CHAIN_MAX).contains(&count))
        .then_some(count)
}
