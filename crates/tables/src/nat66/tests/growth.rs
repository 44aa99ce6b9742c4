// SPDX-License-Identifier: Apache-2.0
//! NAT66 that gets further external addresses while it is in use.

use super::*;
use crate::nat::PoolGrowth;
use crate::share::Share;

/// Returns settings with these external addresses, each with one block of eight ports, for one host.
fn of(externals: &[Ipv6Addr]) -> (NatSettings, Nat66Settings) {
    let mut nat = nat_settings();
    nat.pool.addresses = (0..externals.len()).map(external_number).collect();
    nat.pool.last_port = 1024 + 7;
    nat.pool.block_size = 8;
    nat.pool.blocks_per_host = 1;
    let nat66 = Nat66Settings {
        externals: externals.to_vec(),
        ..settings()
    };
    (nat, nat66)
}

fn grow(switch: &mut Switch, known: usize, (nat, nat66): &(NatSettings, Nat66Settings)) {
    let mut growth = PoolGrowth::new(&nat.pool, known, Share::WHOLE).unwrap();
    assert!(switch.nat.grow(&mut growth) && switch.nat66.grow(&nat66.externals));
}

#[test]
fn a_full_pool_grows_and_established_mappings_stay() {
    // A lower address and a higher one than the first.
    let externals = [external(), a6("2001:db8::"), a6("2001:db8:1::1")];
    let [first, second, third] = [1, 2, 3].map(|count| of(&externals[..count]));
    assert!(second.1.extends(&first.1) && third.1.extends(&first.1));
    assert!(!first.1.extends(&second.1) && !first.1.extends(&first.1));
    let mut switch = Switch::with(&first.0, &first.1);
    let content = udp((5000, 53));
    let other = a6("fd00:1::7");
    let mut opened = vec![(host(), switch.open(host(), &content))];
    let packet = v6(Header::plain(neighbour(), remote()), &content);
    assert_eq!(switch.send(&packet, 0), Err(NatDrop::NoPorts));
    grow(&mut switch, 1, &second);
    opened.push((neighbour(), switch.open(neighbour(), &content)));
    grow(&mut switch, 2, &third);
    opened.push((other, switch.open(other, &content)));
    for ((inside, (address, port)), expected) in opened.iter().zip(externals) {
        assert_eq!(*address, expected);
        assert!(switch.nat66.is_external(address.to_bits()));
        // The mapping is the same for a further packet, and answers arrive.
        assert_eq!(switch.open(*inside, &content), (*address, *port));
        let answer = v6(Header::plain(remote(), *address), &udp((53, *port)));
        let received = switch.receive(&answer, 0).unwrap();
        assert_eq!(ends_v6(&received).1, (*inside, 5000));
    }
}

#[test]
fn a_growth_of_other_addresses_changes_nothing() {
    let externals = [external(), a6("2001:db8::9")];
    let (nat, nat66) = of(&externals);
    let mut switch = Switch::with(&nat, &nat66);
    assert!(!switch.nat66.grow(&externals[..1]));
    assert!(
        !switch
            .nat66
            .grow(&[externals[1], externals[0], a6("2001:db8::7")])
    );
    assert!(!switch.nat66.is_external(a6("2001:db8::7").to_bits()));
    assert!(switch.nat66.grow(&externals));
    for (number, address) in externals.into_iter().enumerate() {
        assert_eq!(
            switch.nat66.external(external_number(number)),
            Some(address)
        );
    }
}
