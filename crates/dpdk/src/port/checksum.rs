// SPDX-License-Identifier: Apache-2.0
//! Completion of checksums that a sender on this machine left to the network card (checksum offload).

use quietwire_base::crc32c;
use quietwire_packet::{UDP_CHECKSUM_OFFSET, checksum, udp_checksum};

/// Offset of the checksum of SCTP in its header, octets (RFC 9260, section 3.1).
const SCTP: usize = 8;

/// Writes the checksum over `frame` from octet `start` to its end, `offset` octets after `start` (virtio 1.2, section
/// 5.1.6.2.1). The field has the sum of the pseudo header. Returns false and changes nothing if the field is not
/// within the frame.
#[must_use]
pub(in crate::port) fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(data) = frame.get_mut(start..) else {
        return false;
    };
    let width = if offset == SCTP { 4 } else { 2 };
    if data.get(offset..).is_none_or(|rest| rest.len() < width) {
        return false;
    }
    if offset == SCTP {
        // No other protocol has its checksum at this offset. The checksum field counts as zero.
        write(data, offset, [0; 4]);
        let sum = crc32c(data);
        return write(data, offset, sum.to_le_bytes());
    }
    let sum = match offset {
        UDP_CHECKSUM_OFFSET => udp_checksum(checksum(data)),
        _ => checksum(data),
    };
    write(data, offset, sum.to_be_bytes())
}

fn write<const N: usize>(data: &mut [u8], at: usize, octets: [u8; N]) -> bool {
    let rest = data.get_mut(at..).unwrap_or_default();
    match rest.first_chunk_mut::<N>() {
        Some(place) => {
            *place = octets;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: the sum is 0xddf2.
        let mut frame = [0, 0, 0, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert!(complete(&mut frame, 0, 0));
        assert_eq!(frame[..2], (!0xddf2u16).to_be_bytes());
    }

    #[test]
    fn the_check_value_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4: 32 octets of zeroes are aa 36 91 8a on the wire.
        let mut frame = [0; 32];
        assert!(complete(&mut frame, 0, SCTP));
        assert_eq!(frame[8..12], [0xaa, 0x36, 0x91, 0x8a]);
    }

    #[test]
    fn udp_is_never_without_a_checksum() {
        let mut frame = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        assert!(complete(&mut frame, 0, UDP_CHECKSUM_OFFSET));
        assert_eq!(frame[6..], [0xff, 0xff]);
        let mut other = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        assert!(complete(&mut other, 0, 4));
        assert_eq!(other[4..], [0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn a_complete_checksum_verifies(
            mut frame in prop::collection::vec(any::<u8>(), 0..200),
            start in 0usize..220,
            offset in 0usize..40,
        ) {
            let before = frame.clone();
            let width = if offset == SCTP { 4 } else { 2 };
            let fits = start + offset + width <= frame.len();
            prop_assert_eq!(complete(&mut frame, start, offset), fits);
            if !fits {
                prop_assert_eq!(frame, before);
                return Ok(());
            }
            let place = start + offset..start + offset + width;
            prop_assert_eq!(&frame[..place.start], &before[..place.start]);
            prop_assert_eq!(&frame[place.end..], &before[place.end..]);
            if offset != SCTP && offset % 2 == 0 {
                // The former value of the field counts as the pseudo header's sum.
                let all = [&before[place.clone()], &frame[start..]].concat();
                prop_assert!([0, 0xffff].contains(&checksum(&all)));
            }
        }
    }
}
