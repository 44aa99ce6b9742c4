// SPDX-License-Identifier: Apache-2.0
//! MAC addresses (IEEE 802, clause 8).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A 48-bit MAC address in wire order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress(pub [u8; 6]);

/// Error: a text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a MAC address (use six pairs of hexadecimal digits, such as 02:00:00:00:00:01)"
)]
pub struct MacAddressError(pub String);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns the address whose last octet is the lowest byte of `value`; the two highest bytes are ignored.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Returns the address as a number, last octet lowest: a key for tables.
    #[must_use]
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Returns true for a group address (the first bit on the wire is set), which includes broadcast.
    #[must_use]
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Returns true for `ff:ff:ff:ff:ff:ff`.
    #[must_use]
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == 0xffff_ffff_ffff
    }

    /// Returns true for a locally administered address (the second bit on the wire is set), as test addresses should be.
    #[must_use]
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 0x02 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    /// Parses `02:00:00:00:00:01` or `02-00-00-00-00-01`: two digits per octet, upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || MacAddressError(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut parts = text.split(separator);
        let mut octets = [0; 6];
        for octet in &mut octets {
            let digits = parts.next().ok_or_else(bad)?;
            // from_str_radix would accept a sign.
            if digits.len() != 2 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *octet = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        match parts.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(bad()),
        }
    }
}

impl TryFrom<String> for MacAddress {
    type Error = MacAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(address: MacAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_addresses_are_reported() {
        for bad in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:0g",
            "02:00:00:00:00:1",
            "02:00:00:00:00:+1",
            "02:00-00:00:00:01",
            "02:00:00:00:00:01 ",
        ] {
            assert_eq!(
                bad.parse::<MacAddress>(),
                Err(MacAddressError(bad.to_owned()))
            );
        }
    }

    #[test]
    fn kinds() {
        let address = |text: &str| text.parse::<MacAddress>().unwrap();
        assert!(address("FF-FF-FF-FF-FF-FF").is_broadcast());
        assert!(MacAddress::BROADCAST.is_multicast());
        assert!(address("01:80:c2:00:00:00").is_multicast());
        assert!(!address("01:80:c2:00:00:00").is_broadcast());
        assert!(!address("02:00:00:00:00:01").is_multicast());
        assert!(address("02:00:00:00:00:01").is_local());
        assert!(!address("00:1b:21:00:00:01").is_local());
        assert_eq!(address("02:00:00:00:00:01").to_u64(), 0x0200_0000_0001);
    }

    proptest! {
        #[test]
        fn text_and_number_and_back(octets in any::<[u8; 6]>()) {
            let address = MacAddress(octets);
            prop_assert_eq!(address.to_string().parse(), Ok(address));
            prop_assert_eq!(MacAddress::from_u64(address.to_u64()), address);
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(serde_json::from_str::<MacAddress>(&json).unwrap(), address);
        }
    }
}
