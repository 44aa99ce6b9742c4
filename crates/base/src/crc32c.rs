// SPDX-License-Identifier: Apache-2.0
//! CRC-32C, the checksum of iSCSI and SCTP. It detects every damage of up to 32 consecutive bits.

/// Castagnoli's polynomial, reflected (RFC 3720, section 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC of each octet.
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "the compiler evaluates it, and refuses an index out of range"
)]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let mut value = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            bit += 1;
        }
        table[octet] = value;
        octet += 1;
    }
    table
};

/// Returns the CRC-32C of the octets (RFC 3720, section 12.1; RFC 9260, appendix A).
#[inline(always)]
#[must_use]
pub fn crc32c(octets: &[u8]) -> u32 {
    !octets.iter().fold(u32::MAX, |crc, octet| {
        let index = (crc ^ u32::from(*octet)) & 0xff;
        #[expect(clippy::indexing_slicing, reason = "8 bits, for 256 entries")]
        let of_octet = TABLE[index as usize];
        (crc >> 8) ^ of_octet
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_are_those_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // Appendix B.4, in the order of the wire.
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    }
}
