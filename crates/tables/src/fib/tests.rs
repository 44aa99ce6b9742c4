// SPDX-License-Identifier: Apache-2.0

mod model;
mod readers;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::*;

fn v4(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

fn hop4(routes: &Ipv4Routes, text: &str) -> u32 {
    let address: Ipv4Addr = text.parse().unwrap();
    routes.fib().look_up(address.to_bits())
}

fn hop6(routes: &Ipv6Routes, text: &str) -> u32 {
    let address: Ipv6Addr = text.parse().unwrap();
    routes.fib().look_up(address.to_bits())
}

#[test]
fn the_longest_prefix_wins() {
    let mut routes = Ipv4Routes::new(16).unwrap();
    for (prefix, hop) in [
        ("0.0.0.0/0", 1),
        ("10.0.0.0/8", 2),
        ("10.1.0.0/16", 3),
        ("10.1.1.0/24", 4),
        ("10.1.1.128/25", 5),
        ("10.1.1.200/32", 6),
    ] {
        assert_eq!(routes.insert(v4(prefix), hop), Ok(None));
    }
    for (address, hop) in [
        ("192.0.2.1", 1),
        ("10.200.0.1", 2),
        ("10.1.200.1", 3),
        ("10.1.1.1", 4),
        ("10.1.1.129", 5),
        ("10.1.1.200", 6),
    ] {
        assert_eq!(hop4(&routes, address), hop, "{address}");
    }
    assert_eq!(routes.remove(v4("10.1.1.0/24")), Some(4));
    assert_eq!(hop4(&routes, "10.1.1.1"), 3);
    assert_eq!(hop4(&routes, "10.1.1.129"), 5);
    assert_eq!(routes.insert(v4("10.1.1.129/25"), 7), Ok(Some(5)));
    assert_eq!(routes.get(v4("10.1.1.128/25")), Some(7));
    assert_eq!((routes.len(), routes.groups()), (5, 1));
    routes.remove(v4("10.1.1.128/25"));
    routes.remove(v4("10.1.1.200/32"));
    assert_eq!((routes.len(), routes.groups()), (3, 0));
    assert_eq!(routes.remove(v4("0.0.0.0/0")), Some(1));
    assert_eq!(hop4(&routes, "192.0.2.1"), NO_ROUTE);

    let mut routes = Ipv6Routes::new(1024).unwrap();
    for (prefix, hop) in [
        ("::/0", 1),
        ("2001::/16", 2),
        ("2001:db8::/32", 3),
        ("2001:db8:1::/48", 4),
        ("2001:db8:1:2::/64", 5),
        ("2001:db8:1:2::3/128", 6),
    ] {
        assert_eq!(routes.insert(v6(prefix), hop), Ok(None));
    }
    for (address, hop) in [
        ("fd00::1", 1),
        ("2001:1::1", 2),
        ("2001:db8:9::1", 3),
        ("2001:db8:1:9::1", 4),
        ("2001:db8:1:2::4", 5),
        ("2001:db8:1:2::3", 6),
    ] {
        assert_eq!(hop6(&routes, address), hop, "{address}");
    }
    for (prefix, hop) in [("2001::/16", 2), ("2001:db8:1:2::/64", 5)] {
        assert_eq!(routes.remove(v6(prefix)), Ok(Some(hop)));
    }
    assert_eq!(hop6(&routes, "2001:1::1"), 1);
    assert_eq!(hop6(&routes, "2001:db8:1:2::4"), 4);
    assert_eq!(hop6(&routes, "2001:db8:1:2::3"), 6);
    assert_eq!(routes.get(v6("2001:db8::/32")), Some(3));
    for prefix in [
        "::/0",
        "2001:db8::/32",
        "2001:db8:1::/48",
        "2001:db8:1:2::3/128",
    ] {
        assert!(routes.remove(v6(prefix)).unwrap().is_some());
    }
    assert_eq!((routes.len(), routes.nodes()), (0, 0));
}

#[test]
fn a_full_table_reports_it_and_stays_unchanged() {
    let mut routes = Ipv4Routes::new(2).unwrap();
    for prefix in ["10.0.0.1/32", "10.0.1.1/32"] {
        routes.insert(v4(prefix), 1).unwrap();
    }
    let full = routes.insert(v4("10.0.2.1/32"), 1);
    assert_eq!(full, Err(FibError::Full("10.0.2.1/32".parse().unwrap())));
    assert_eq!(hop4(&routes, "10.0.2.1"), NO_ROUTE);
    // A freed group is reused after its epoch.
    routes.set_epoch(1);
    routes.remove(v4("10.0.0.1/32"));
    assert!(routes.insert(v4("10.0.2.1/32"), 1).is_err());
    routes.reclaim(2);
    assert_eq!(routes.insert(v4("10.0.2.1/32"), 1), Ok(None));
    assert_eq!(
        routes.insert(v4("10.0.2.1/32"), 0),
        Err(FibError::NextHop(0))
    );
    assert_eq!(
        routes.insert(v4("10.0.2.1/32"), 1 << 24),
        Err(FibError::NextHop(1 << 24))
    );

    let mut routes = Ipv6Routes::new(16).unwrap();
    routes.insert(v6("2001:db8::/48"), 1).unwrap();
    let full = routes.insert(v6("2001:db8:5555:5555:5555:5555:5555:5555/128"), 2);
    assert!(matches!(full, Err(FibError::Full(_))));
    assert_eq!(hop6(&routes, "2001:db8::1"), 1);
    assert_eq!(
        hop6(&routes, "2001:db8:5555:5555:5555:5555:5555:5555"),
        NO_ROUTE
    );
    assert_eq!(routes.len(), 1);
    routes.reclaim(1);
    assert_eq!(routes.insert(v6("2001:db8::/47"), 3), Ok(None));
    assert_eq!(hop6(&routes, "2001:db8:1::1"), 3);
}
