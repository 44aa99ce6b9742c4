// SPDX-License-Identifier: Apache-2.0
//! Addresses (RFC 6052).

use proptest::prelude::*;

use super::*;

#[test]
fn addresses_are_those_of_the_rfc() {
    let address = a4("192.0.2.33");
    // RFC 6052, section 2.4, table 1.
    for (prefix, expected) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ] {
        let prefix = net(prefix);
        let mapped = prefix.ipv6_of(address.to_bits()).map(Ipv6Addr::from_bits);
        assert_eq!(mapped, Some(a6(expected)));
        let back = prefix.ipv4_of(a6(expected).to_bits());
        assert_eq!(back, Some(address.to_bits()), "{prefix}");
    }
}

#[test]
fn prefixes_of_other_lengths_and_kinds_are_refused() {
    for (prefix, printed) in [
        ("2001:db8::/33", "use /32, /40, /48, /56, /64 or /96"),
        ("2001:db8::/128", "use /32, /40, /48, /56, /64 or /96"),
        ("2001:db8:0:0:100::/96", "must be 0"),
        ("ff0e::/96", "unicast"),
        ("fe80::/64", "unicast"),
        ("::/96", "unicast"),
    ] {
        let error = Prefix64::new(prefix.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains(printed), "{error}");
    }
}

#[test]
fn the_well_known_prefix_contains_global_addresses_only() {
    let well_known = net("64:ff9b::/96");
    let own = net(PREFIX);
    for (address, is_global) in [
        ("9.9.9.9", true),
        ("11.0.0.0", true),
        ("100.63.255.255", true),
        ("100.128.0.0", true),
        ("10.0.0.1", false),
        ("100.64.0.1", false),
        ("169.254.0.1", false),
        ("172.31.255.255", false),
        ("192.0.2.1", false),
        ("192.168.0.1", false),
        ("198.19.0.1", false),
        ("203.0.113.1", false),
    ] {
        let address = a4(address).to_bits();
        assert_eq!(well_known.ipv6_of(address).is_some(), is_global);
        let mapped = own.ipv6_of(address).unwrap();
        let well_known_one = mapped & 0xffff_ffff | a6("64:ff9b::").to_bits();
        assert_eq!(well_known.ipv4_of(well_known_one).is_some(), is_global);
    }
    for address in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        assert_eq!(own.ipv6_of(a4(address).to_bits()), None);
    }
}

#[test]
fn a_prefix_contains_private_addresses_only_if_they_are_allowed() {
    let with = net(PREFIX);
    let without = with.without_private();
    for (address, is_private) in [
        ("9.9.9.9", false),
        ("9.255.255.255", false),
        ("10.0.0.0", true),
        ("10.255.255.255", true),
        ("11.0.0.0", false),
        ("100.64.0.1", true),
        ("100.128.0.0", false),
        ("169.254.169.254", true),
        ("172.15.255.255", false),
        ("172.16.0.1", true),
        ("172.32.0.0", false),
        ("192.168.255.255", true),
        ("192.169.0.0", false),
        ("198.51.100.1", false),
    ] {
        let address = a4(address).to_bits();
        let mapped = with.ipv6_of(address).unwrap();
        assert_eq!(with.ipv4_of(mapped), Some(address));
        let expected = (!is_private).then_some(mapped);
        assert_eq!(without.ipv6_of(address), expected, "{address:x}");
        assert_eq!(without.ipv4_of(mapped), expected.map(|_| address));
        assert!(without.contains(mapped));
    }
}

/// The address by RFC 6052, section 2.2, as text: hexadecimal digits of the prefix, of the address, and zeros.
fn obvious(prefix: Ipv6Addr, length: usize, address: Ipv4Addr) -> Ipv6Addr {
    let digits: String = prefix
        .octets()
        .iter()
        .map(|one| format!("{one:02x}"))
        .collect();
    let mut text: String = digits[..length / 4].to_owned();
    for octet in address.octets() {
        if text.len() == 16 {
            text.push_str("00");
        }
        text.push_str(&format!("{octet:02x}"));
    }
    text.push_str(&"0".repeat(32 - text.len()));
    Ipv6Addr::from_bits(u128::from_str_radix(&text, 16).unwrap())
}

proptest! {
    #[test]
    fn each_address_is_that_of_the_plain_model_and_returns(
        prefix in 0x2000_0000_0000_0000_u64..0x4000_0000_0000_0000,
        length in prop::sample::select(vec![32usize, 40, 48, 56, 64, 96]),
        address: u32,
        others in 1..=u128::from(u64::MAX),
    ) {
        let bits = u128::from(prefix) << 64 & !(u128::MAX >> length);
        let start = Ipv6Addr::from_bits(bits);
        let prefix = net(&format!("{start}/{length}"));
        prop_assert_eq!(prefix.to_string(), format!("{start}/{length}"));
        let expected = obvious(start, length, Ipv4Addr::from_bits(address));
        match prefix.ipv6_of(address) {
            Some(mapped) => {
                prop_assert_eq!(Ipv6Addr::from_bits(mapped), expected);
                prop_assert!(prefix.contains(mapped));
                prop_assert_eq!(prefix.ipv4_of(mapped), Some(address));
                // Of all addresses with the same IPv4 address, one is used.
                let other = mapped ^ others;
                if let Some(back) = prefix.ipv4_of(other) {
                    prop_assert!(back != address);
                }
            }
            None => prop_assert!(matches!(address >> 24, 0 | 127 | 224..)),
        }
    }
}
