// SPDX-License-Identifier: Apache-2.0
//! Properties derived from an interface's addresses.

use super::*;

#[test]
fn the_link_local_address_is_made_of_the_mac_address() {
    let of = |mac: u64| {
        let interface_info = InterfaceInfo {
            mac: MacAddress::from_u64(mac),
            ..interface_info()
        };
        IpAddr::V6(interface_info.link_local())
    };
    // RFC 4291, appendix A: the universal/local bit is inverted, and ff:fe is inserted in the middle.
    assert_eq!(of(0x0011_2233_4455), ip("fe80::211:22ff:fe33:4455"));
    assert_eq!(of(0x0200_0000_000a), ip("fe80::ff:fe00:a"));
}

#[test]
fn link_local_addresses_are_on_the_link_of_an_interface_with_ipv6() {
    let with = interface_info();
    let without = InterfaceInfo {
        addresses: vec!["192.0.2.1/24".parse().unwrap()],
        ..interface_info()
    };
    assert!(with.has_ipv6() && !without.has_ipv6());
    let link_local = IpAddr::V6(with.link_local());
    assert!(with.is_own(link_local) && !without.is_own(link_local));
    for (address, is_with, is_without) in [
        ("fe80::1", true, false),
        ("2001:db8::2", true, false),
        ("2001:db8:1::2", false, false),
        ("192.0.2.200", true, true),
        ("192.0.3.1", false, false),
    ] {
        let found = [
            with.is_on_link(ip(address)),
            without.is_on_link(ip(address)),
        ];
        assert_eq!(found, [is_with, is_without], "{address}");
    }
}

#[test]
fn the_source_is_of_the_same_link_or_at_least_version() {
    let mut interface_info = interface_info();
    interface_info
        .addresses
        .push("198.51.100.1/24".parse().unwrap());
    for (to, source) in [
        ("192.0.2.9", Some("192.0.2.1")),
        ("198.51.100.9", Some("198.51.100.1")),
        ("203.0.113.1", Some("192.0.2.1")),
        ("2001:db8::9", Some("2001:db8::1")),
        ("2001:db8:9::9", Some("2001:db8::1")),
        ("fe80::1", Some("fe80::ff:fe00:a")),
    ] {
        assert_eq!(interface_info.source_for(ip(to)), source.map(ip), "{to}");
    }
    interface_info.addresses.remove(1);
    assert_eq!(interface_info.source_for(ip("2001:db8::9")), None);
}
