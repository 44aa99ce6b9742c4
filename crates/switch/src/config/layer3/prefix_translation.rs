// SPDX-License-Identifier: Apache-2.0
//! Prefix translation of an interface (RFC 6296).

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv6Net};
use quietwire_tables::nptv6::{PrefixPair, PrefixPairError};
use serde::{Deserialize, Serialize};

/// Prefixes that an outside interface translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PrefixTranslationSetting {
    /// Prefix of the inside hosts, up to 64 bits.
    pub inside: Ipv6Net,
    /// Prefix that they have outside, up to 64 bits.
    pub outside: Ipv6Net,
}

impl PrefixTranslationSetting {
    /// Returns the pair of prefixes.
    ///
    /// # Errors
    /// [`PrefixPairError`].
    pub(crate) fn pair(&self) -> Result<PrefixPair, PrefixPairError> {
        PrefixPair::new(self.inside, self.outside)
    }

    /// Returns the prefix of external addresses: the outside prefix, extended by zeros if it is the shorter one (RFC 6296, section 3.1).
    pub(super) fn external(&self) -> Ipv6Net {
        let length = self.inside.prefix_len().max(self.outside.prefix_len());
        Ipv6Net::new(self.outside.network(), length).unwrap_or(self.outside)
    }

    /// Checks the prefixes against each other and against the addresses of their interface.
    pub(super) fn check(&self, addresses: &[IpNet]) -> Result<(), String> {
        let pair = self
            .pair()
            .map_err(|error| format!("prefix-translation: {error}"))?;
        for net in addresses {
            if let IpAddr::V6(address) = net.addr()
                && pair.is_external(address.to_bits())
            {
                return Err(format!(
                    "prefix-translation: address {address} of the interface is in the outside prefix, and would be translated (use another \
                     address)"
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for PrefixTranslationSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefixes = text.split_once(',');
        let prefixes = prefixes
            .and_then(|(inside, outside)| Some((inside.parse().ok()?, outside.parse().ok()?)));
        let (inside, outside) = prefixes.ok_or_else(|| {
            format!(
                "'{text}' are not two IPv6 prefixes (example: fd01:203:405::/48,2001:db8:1::/48)"
            )
        })?;
        Ok(Self { inside, outside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_sense_are_refused() {
        let check = |text: &str, address: &str| {
            let setting: PrefixTranslationSetting = text.parse()?;
            setting.check(&[address.parse().unwrap()])
        };
        let good = "fd01:203:405::/48,2001:db8:1::/48";
        assert_eq!(check(good, "2001:db8::1/64"), Ok(()));
        for (text, address, printed) in [
            (good, "2001:db8:1::1/64", "is in the outside prefix"),
            ("fd01::/48,fd01::/56", "10.0.0.1/24", "the same prefix"),
            ("fd01::/48,2001:db8::/80", "10.0.0.1/24", "from 1 to 64"),
            ("fd01::/48", "10.0.0.1/24", "are not two IPv6 prefixes"),
            (
                "10.0.0.0/8,2001:db8::/48",
                "10.0.0.1/24",
                "are not two IPv6 prefixes",
            ),
        ] {
            let error = check(text, address).unwrap_err();
            assert!(error.contains(printed), "{error}");
        }
    }
}
