// SPDX-License-Identifier: Apache-2.0
//! A look-up leads over two or three tables: the route's next hop number, the buckets of a group, the next hop. A reader that sees a new
//! number must see the next hop that it stands for.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use loom::thread;
use quietwire_memory::{Defect, check, found};
use quietwire_tables::fib::{Ipv4Routes, NO_ROUTE};
use quietwire_tables::route::{NextHop, NextHopWriter};

const BEFORE: NextHop = NextHop::Glean { interface: 1 };
const AFTER: NextHop = NextHop::Glean { interface: 2 };

fn prefix(address: u32, length: u8) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::from_bits(address), length).unwrap()
}

/// Gives a prefix its first route while a thread looks it up.
fn resolve(length: u8) {
    let mut routes = Ipv4Routes::new(1).unwrap();
    let mut hops = NextHopWriter::new(1).unwrap();
    if length > 31 {
        let before = hops.add(BEFORE).unwrap();
        routes.insert(prefix(1, 32), before).unwrap();
    }
    let (fib, shared) = (routes.fib(), hops.shared());
    let thread = thread::spawn(move || {
        for _ in 0..2 {
            let number = fib.look_up(1);
            if number != NO_ROUTE {
                let hop = shared.get(number);
                assert!(hop == BEFORE || hop == AFTER, "{hop:?}: no next hop");
            }
        }
    });
    let after = hops.add(AFTER).unwrap();
    let bits = if length == 0 {
        0
    } else {
        u32::MAX << (32 - length)
    };
    routes.insert(prefix(1 & bits, length), after).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_new_route_leads_to_its_next_hop_in_every_order() {
    for length in [0, 31, 32] {
        check(move || resolve(length));
    }
}

#[test]
fn the_model_finds_weak_orders_of_next_hops() {
    for length in [0, 31, 32] {
        for defect in [Defect::RelaxedStores, Defect::RelaxedLoads] {
            let message = found(defect, move || resolve(length));
            assert!(message.contains("no next hop"), "{message}");
        }
    }
}

/// A group gets a new member while a thread selects one of its members.
fn regroup(in_place: bool) {
    let mut hops = NextHopWriter::new(1).unwrap();
    let before = hops.add(BEFORE).unwrap();
    let group = hops.add_group(&[(before, 1)]).unwrap();
    if in_place {
        // No space for other buckets: those of the group are changed.
        let other = (0..).map_while(|_| hops.add_group(&[(before, 1)]).ok());
        assert!(other.count() > 0);
    }
    let shared = hops.shared();
    let readers = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        for _ in 0..2 {
            let NextHop::Group(buckets) = readers.get(group) else {
                panic!("not a group");
            };
            let hop = readers.choose(buckets, 0);
            assert!(hop == BEFORE || hop == AFTER, "{hop:?}: no next hop");
        }
    });
    let after = hops.add(AFTER).unwrap();
    hops.set_group(group, &[(after, 1)]).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_new_member_of_a_group_is_a_next_hop_in_every_order() {
    check(|| regroup(false));
    check(|| regroup(true));
}

#[test]
fn the_model_finds_weak_orders_of_members() {
    for in_place in [false, true] {
        for defect in [Defect::RelaxedStores, Defect::RelaxedLoads] {
            let message = found(defect, move || regroup(in_place));
            assert!(message.contains("no next hop"), "{message}");
        }
    }
}
