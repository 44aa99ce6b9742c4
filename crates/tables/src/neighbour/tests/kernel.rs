// SPDX-License-Identifier: Apache-2.0
//! Kernel neighbours in combination with dynamic and static ones.

use super::*;

const OTHER: MacAddress = MacAddress::from_u64(0x0200_0000_0002);
const ADDRESS: &str = "192.0.2.9";

impl Table {
    fn kernel_has(&mut self, now: Duration, address: &str, mac: MacAddress, is_permanent: bool) {
        let reported = (mac, is_permanent);
        self.neighbours.kernel_has(
            now,
            &self.interface_info,
            ip(address),
            reported,
            &mut self.out,
        );
    }

    fn kernel_lost(&mut self, now: Duration, address: &str) {
        self.neighbours
            .kernel_lost(now, 3, ip(address), &mut self.out);
    }

    fn observed(&self, address: &str) -> Option<(State, Origin, Option<MacAddress>)> {
        let mut all = self.neighbours.list(Duration::ZERO);
        all.find(|shown| shown.address == ip(address))
            .map(|shown| (shown.state, shown.origin, shown.mac))
    }
}

#[test]
fn a_permanent_neighbour_of_the_kernel_stays_until_the_kernel_removes_it() {
    let mut table = Table::new();
    table.kernel_has(s(0), ADDRESS, THEIRS, true);
    let set = Some((State::Permanent, Origin::Kernel, Some(THEIRS)));
    assert_eq!(table.observed(ADDRESS), set);
    // Regardless of messages on the link.
    table.arp(s(1), &arp_reply([192, 0, 2, 9], OTHER));
    assert_eq!(table.observed(ADDRESS), set);
    assert!(table.tick(s(1_000)).is_empty());
    // A different MAC address from the kernel is a change.
    table.kernel_has(s(2), ADDRESS, OTHER, true);
    assert!(matches!(table.out[..], [Action::Found { mac: OTHER, .. }]));
    table.out.clear();
    table.kernel_lost(s(3), ADDRESS);
    assert!(matches!(table.out[..], [Action::Lost { .. }]));
    assert_eq!(table.observed(ADDRESS), None);
}

#[test]
fn neighbours_that_the_kernel_no_longer_confirms_are_probed_by_the_router() {
    let mut table = Table::new();
    table.kernel_has(s(0), ADDRESS, THEIRS, false);
    assert!(matches!(table.out[..], [Action::Found { mac: THEIRS, .. }]));
    table.out.clear();
    let kernels = (State::Reachable, Origin::Kernel, Some(THEIRS));
    assert_eq!(table.observed(ADDRESS), Some(kernels));
    table.kernel_lost(s(1), ADDRESS);
    assert_eq!(table.state(ADDRESS), Some(State::Stale));
    assert!(matches!(table.tick(s(6))[..], [Action::Transmit { .. }]));
    table.arp(s(6), &arp_reply([192, 0, 2, 9], THEIRS));
    let found = (State::Reachable, Origin::Found, Some(THEIRS));
    assert_eq!(table.observed(ADDRESS), Some(found));
    // A neighbour that the kernel lost no longer originates from it.
    table.kernel_lost(s(7), ADDRESS);
    assert_eq!(table.observed(ADDRESS), Some(found));
}

#[test]
fn static_neighbours_precede_those_of_the_kernel() {
    let mut table = Table::new();
    for was_known in [false, true] {
        if was_known {
            table.kernel_has(s(0), ADDRESS, OTHER, true);
        }
        assert!(
            table
                .neighbours
                .set(s(0), 3, ip(ADDRESS), THEIRS, &mut table.out)
        );
        let set = Some((State::Permanent, Origin::Static, Some(THEIRS)));
        assert_eq!(table.observed(ADDRESS), set);
        for is_permanent in [false, true] {
            table.kernel_has(s(1), ADDRESS, OTHER, is_permanent);
            table.kernel_lost(s(1), ADDRESS);
            assert_eq!(table.observed(ADDRESS), set);
        }
        table.neighbours.forget_kernel(s(2), 3, &mut table.out);
        assert_eq!(table.observed(ADDRESS), set);
        table.neighbours.remove(3, ip(ADDRESS), &mut table.out);
    }
}

#[test]
fn impossible_neighbours_of_the_kernel_are_ignored() {
    let mut table = Table::new();
    for address in ["192.0.2.255", "192.0.2.1", "198.51.100.1", "ff02::1", "::"] {
        table.kernel_has(s(0), address, THEIRS, true);
    }
    for mac in [MacAddress::BROADCAST, MacAddress::from_u64(0), OURS] {
        table.kernel_has(s(0), ADDRESS, mac, true);
    }
    assert_eq!(table.neighbours.list(s(0)).count(), 0);
    table.kernel_has(s(0), "fe80::9", THEIRS, true);
    table.kernel_has(s(0), ADDRESS, THEIRS, false);
    assert_eq!(table.neighbours.list(s(0)).count(), 2);
    // The tap of another interface goes.
    table.neighbours.forget_kernel(s(1), 4, &mut table.out);
    assert!(table.observed("fe80::9").is_some());
    // The tap is removed: permanent neighbours of the kernel are removed with it, others are probed.
    table.neighbours.forget_kernel(s(1), 3, &mut table.out);
    assert_eq!(table.observed("fe80::9"), None);
    assert_eq!(table.state(ADDRESS), Some(State::Stale));
}
