// SPDX-License-Identifier: Apache-2.0
//! TCP headers and their options (RFC 9293, section 3.1; RFC 7323, section 2; RFC 2018, sections 2 and 3).

use quietwire_packet::{TCP_HEADER_MIN, TcpHeader};

/// FIN: no more data.
pub(crate) const FIN: u8 = 0x01;
/// SYN: the initial sequence number.
pub(crate) const SYN: u8 = 0x02;
/// RST: there is no such connection.
pub(crate) const RST: u8 = 0x04;
/// PSH: deliver the data.
pub(crate) const PSH: u8 = 0x08;
/// ACK: the acknowledgement number is valid.
pub(crate) const ACK: u8 = 0x10;

/// Longest header, octets.
pub(crate) const HEADER_MAX: usize = 60;
/// Blocks of a SACK option at most.
pub(crate) const BLOCKS_MAX: usize = 4;
/// Largest shift of a window (RFC 7323, section 2.3).
const SHIFT_MAX: u8 = 14;

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MSS: u8 = 2;
const KIND_SCALE: u8 = 3;
const KIND_SACK_PERMITTED: u8 = 4;
const KIND_SACK: u8 = 5;

/// Sequence numbers from the first to before the second.
pub(crate) type Block = (u32, u32);

/// Blocks of a SACK option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    count: u8,
    blocks: [Block; BLOCKS_MAX],
}

impl Blocks {
    /// Adds a block. Does nothing if there is no space.
    pub(crate) fn push(&mut self, block: Block) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.count)) {
            *place = block;
            self.count = self.count.saturating_add(1);
        }
    }

    /// Returns the blocks in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        self.blocks.iter().take(usize::from(self.count)).copied()
    }

    /// Returns true if there are no blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Options of a segment that the tester uses. Others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Maximum segment size, octets of data.
    pub(crate) segment_max: Option<u16>,
    /// Shift of the window.
    pub(crate) shift: Option<u8>,
    /// Whether the sender accepts SACK options.
    pub(crate) permits_sack: bool,
    /// Data received beyond a gap.
    pub(crate) blocks: Blocks,
}

/// Header of a segment without ports and checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Sequence number of the first octet.
    pub(crate) sequence: u32,
    /// Next sequence number that the sender expects.
    pub(crate) acknowledgement: u32,
    /// Control bits.
    pub(crate) flags: u8,
    /// Window, unscaled.
    pub(crate) window: u16,
    /// Options.
    pub(crate) options: Options,
}

impl Segment {
    /// Returns true if all of these control bits are set.
    #[inline]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the number of sequence numbers of the SYN and the FIN.
    pub(crate) fn controls(&self) -> u32 {
        u32::from(self.has(SYN)).saturating_add(self.has(FIN).into())
    }

    /// Reads a header. Returns `None` if an option has an illegal length (RFC 9293, section 3.2).
    pub(crate) fn read(header: &TcpHeader<'_>) -> Option<Self> {
        Some(Self {
            sequence: header.sequence(),
            acknowledgement: header.acknowledgement(),
            flags: header.flags(),
            window: header.window(),
            options: Options::read(header.options())?,
        })
    }

    /// Returns the length of the header, octets.
    #[inline]
    pub(crate) fn header_length(&self) -> usize {
        self.options.length().saturating_add(TCP_HEADER_MIN)
    }

    /// Writes the header with these ports and a checksum of zero. Returns its length in octets.
    pub(crate) fn write(
        &self,
        source_port: u16,
        destination_port: u16,
        into: &mut [u8; HEADER_MAX],
    ) -> usize {
        let length = self.header_length();
        let mut writer = Writer { into, at: 0 };
        writer.add(&source_port.to_be_bytes());
        writer.add(&destination_port.to_be_bytes());
        writer.add(&self.sequence.to_be_bytes());
        writer.add(&self.acknowledgement.to_be_bytes());
        // The data offset counts words of four octets, at most 15.
        let offset = u8::try_from(length / 4).unwrap_or(15) << 4;
        writer.add(&[offset, self.flags]);
        writer.add(&self.window.to_be_bytes());
        writer.add(&[0; 4]);
        self.options.write(&mut writer);
        length
    }

    /// Returns the reset that answers this segment if there is no connection for it (RFC 9293, section 3.5.2); `None` for a reset.
    /// `length` is that of the data, octets.
    pub(crate) fn reset(&self, length: u32) -> Option<Self> {
        if self.has(RST) {
            return None;
        }
        if self.has(ACK) {
            return Some(Self {
                sequence: self.acknowledgement,
                flags: RST,
                ..Self::default()
            });
        }
        let end = self.sequence.wrapping_add(length);
        Some(Self {
            acknowledgement: end.wrapping_add(self.controls()),
            flags: RST | ACK,
            ..Self::default()
        })
    }
}

/// Writer of consecutive octets.
struct Writer<'a> {
    into: &'a mut [u8; HEADER_MAX],
    at: usize,
}

impl Writer<'_> {
    #[inline(always)]
    fn add<const N: usize>(&mut self, octets: &[u8; N]) {
        let places = self.into.get_mut(self.at..);
        if let Some(place) = places.and_then(|places| places.first_chunk_mut()) {
            *place = *octets;
        }
        self.at = self.at.saturating_add(N);
    }
}

impl Options {
    /// Reads options up to their end. Returns `None` if one has an illegal length.
    fn read(mut octets: &[u8]) -> Option<Self> {
        let mut options = Self::default();
        loop {
            let (kind, rest) = match octets.split_first() {
                None | Some((&KIND_END, _)) => return Some(options),
                Some((&KIND_NOP, rest)) => {
                    octets = rest;
                    continue;
                }
                Some((kind, rest)) => (*kind, rest),
            };
            // The length covers the kind and the length itself.
            let (length, rest) = rest.split_first()?;
            let length = usize::from(*length).checked_sub(2)?;
            let (value, rest) = rest.split_at_checked(length)?;
            options.set(kind, value)?;
            octets = rest;
        }
    }

    fn set(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        match kind {
            KIND_MSS => self.segment_max = Some(u16::from_be_bytes(value.try_into().ok()?)),
            KIND_SCALE => {
                let [shift]: [u8; 1] = value.try_into().ok()?;
                self.shift = Some(shift.min(SHIFT_MAX));
            }
            KIND_SACK_PERMITTED => {
                let []: [u8; 0] = value.try_into().ok()?;
                self.permits_sack = true;
            }
            KIND_SACK => {
                let (blocks, []) = value.as_chunks::<8>() else {
                    return None;
                };
                for block in blocks {
                    let [a, b, c, d, e, f, g, h] = *block;
                    let start = u32::from_be_bytes([a, b, c, d]);
                    self.blocks.push((start, u32::from_be_bytes([e, f, g, h])));
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Returns the length of the written options with padding, octets.
    fn length(&self) -> usize {
        let blocks = usize::from(self.blocks.count);
        let of_syn = [
            self.segment_max.is_some(),
            self.shift.is_some(),
            self.permits_sack,
        ];
        let words = of_syn.into_iter().chain([blocks > 0]).filter(|it| *it);
        let length = words.count().saturating_mul(4);
        length.saturating_add(blocks.saturating_mul(8))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        if let Some(octets) = self.segment_max {
            let [a, b] = octets.to_be_bytes();
            writer.add(&[KIND_MSS, 4, a, b]);
        }
        if let Some(shift) = self.shift {
            writer.add(&[KIND_NOP, KIND_SCALE, 3, shift]);
        }
        if self.permits_sack {
            writer.add(&[KIND_NOP, KIND_NOP, KIND_SACK_PERMITTED, 2]);
        }
        if self.blocks.count > 0 {
            let length = self.blocks.count.saturating_mul(8).saturating_add(2);
            writer.add(&[KIND_NOP, KIND_NOP, KIND_SACK, length]);
        }
        for (start, end) in self.blocks.iter() {
            writer.add(&start.to_be_bytes());
            writer.add(&end.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segments() -> impl Strategy<Value = Segment> {
        let blocks = prop::collection::vec(any::<Block>(), 0..=BLOCKS_MAX);
        let syn = (
            any::<Option<u16>>(),
            prop::option::of(0..=SHIFT_MAX),
            any::<bool>(),
        );
        // A segment has either the options of a SYN or blocks, so that they fit 40 octets.
        let options = prop_oneof![
            syn.prop_map(|(segment_max, shift, permits_sack)| Options {
                segment_max,
                shift,
                permits_sack,
                blocks: Blocks::default(),
            }),
            blocks.prop_map(|all| {
                let mut options = Options::default();
                all.into_iter().for_each(|block| options.blocks.push(block));
                options
            }),
        ];
        (
            any::<u32>(),
            any::<u32>(),
            any::<u8>(),
            any::<u16>(),
            options,
        )
            .prop_map(
                |(sequence, acknowledgement, flags, window, options)| Segment {
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                    options,
                },
            )
    }

    proptest! {
        #[test]
        fn written_segments_are_read_back(segment in segments(), source in any::<u16>(), destination in any::<u16>()) {
            let mut octets = [0xee; HEADER_MAX];
            let length = segment.write(source, destination, &mut octets);
            let (header, data) = TcpHeader::split(&octets[..length]).unwrap();
            prop_assert!(data.is_empty());
            prop_assert_eq!((header.source_port(), header.destination_port()), (source, destination));
            prop_assert_eq!(Segment::read(&header), Some(segment));
        }

        #[test]
        fn any_options_are_read_or_refused(octets in prop::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..=40)) {
            if let Some(options) = Options::read(&octets) {
                prop_assert!(options.shift.is_none_or(|shift| shift <= SHIFT_MAX));
                prop_assert!(usize::from(options.blocks.count) <= BLOCKS_MAX);
            }
        }
    }

    #[test]
    fn illegal_lengths_are_refused_and_unknown_options_are_not() {
        for refused in [
            &[2, 3, 1][..],
            &[2, 4, 1],
            &[3, 0],
            &[4, 3, 0],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[77],
            &[77, 1],
        ] {
            assert_eq!(Options::read(refused), None, "{refused:?}");
        }
        for ignored in [
            &[][..],
            &[1, 1, 0, 77],
            &[77, 4, 0, 0],
            &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        ] {
            assert_eq!(
                Options::read(ignored),
                Some(Options::default()),
                "{ignored:?}"
            );
        }
        assert_eq!(Options::read(&[3, 3, 200]).unwrap().shift, Some(SHIFT_MAX));
    }

    #[test]
    fn a_segment_without_a_connection_is_reset_by_its_numbers() {
        let segment = Segment {
            sequence: u32::MAX,
            acknowledgement: 7,
            flags: SYN,
            ..Segment::default()
        };
        let reset = segment.reset(0).unwrap();
        assert_eq!(
            (reset.flags, reset.sequence, reset.acknowledgement),
            (RST | ACK, 0, 0)
        );
        let reset = Segment {
            flags: ACK,
            ..segment
        }
        .reset(100)
        .unwrap();
        assert_eq!((reset.flags, reset.sequence), (RST, 7));
        assert_eq!(
            Segment {
                flags: RST,
                ..segment
            }
            .reset(0),
            None
        );
    }
}
