// SPDX-License-Identifier: Apache-2.0
//! The tables compared with the reference table, with overlapping prefixes.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step<P> {
    Insert(P, u32),
    InsertAll(Vec<(P, u32)>),
    Remove(P),
}

/// Steps with these prefixes. Few next hops, so that adjacent prefixes often have the same one.
fn steps<P: Clone + std::fmt::Debug + 'static>(
    prefix: impl Strategy<Value = P> + Clone + 'static,
) -> impl Strategy<Value = Vec<Step<P>>> {
    let route = (prefix.clone(), 1..5u32);
    let step = prop_oneof![
        4 => route.clone().prop_map(|(prefix, hop)| Step::Insert(prefix, hop)),
        1 => prop::collection::vec(route, 1..10).prop_map(Step::InsertAll),
        3 => prefix.prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..120)
}

/// Returns lengths of prefixes up to `longest`. Few are below `short`: such a prefix covers most of a table, and takes the time of thousands
/// of others.
fn length(short: u8, longest: u8) -> impl Strategy<Value = u8> + Clone {
    prop_oneof![1 => 0..short, 23 => short..=longest]
}

/// Returns a few variable bits near the word boundaries of the tables.
fn prefix4() -> impl Strategy<Value = Ipv4Net> + Clone {
    (any::<u32>(), length(8, 32), prop::bool::weighted(0.9)).prop_map(|(bits, length, near)| {
        let address = if near {
            0x0a00_0000 | bits & 0x8001_0383
        } else {
            bits
        };
        Ipv4Net::new(address.into(), length).unwrap()
    })
}

fn prefix6() -> impl Strategy<Value = Ipv6Net> + Clone {
    (any::<u128>(), length(12, 128), prop::bool::weighted(0.9)).prop_map(|(bits, length, near)| {
        const FREE: u128 = 0x8000_3000_0c40_0000_8001_0000_0000_0003;
        let address = if near {
            0x2001_0db8 << 96 | bits & FREE
        } else {
            bits
        };
        Ipv6Net::new(address.into(), length).unwrap()
    })
}

/// Destinations at the edges of a prefix.
fn edges4(prefix: &Ipv4Net) -> [u32; 4] {
    let (first, last) = (prefix.network().to_bits(), prefix.broadcast().to_bits());
    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
}

fn edges6(prefix: &Ipv6Net) -> [u128; 4] {
    let (first, last) = (prefix.network().to_bits(), prefix.broadcast().to_bits());
    [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn ipv4_agrees_with_the_reference(steps in steps(prefix4())) {
        let mut routes = Ipv4Routes::new(1 << 12).unwrap();
        let mut reference = ReferenceFib::default();
        let mut observed = Vec::new();
        for (epoch, step) in steps.iter().enumerate() {
            routes.set_epoch(epoch as u64);
            let touched: Vec<Ipv4Net> = match step {
                Step::Insert(prefix, hop) => {
                    let former = reference.insert((*prefix).into(), *hop);
                    prop_assert_eq!(routes.insert(*prefix, *hop), Ok(former));
                    vec![*prefix]
                }
                Step::InsertAll(all) => {
                    for (prefix, hop) in all {
                        let former = reference.insert((*prefix).into(), *hop);
                        prop_assert_eq!(routes.insert(*prefix, *hop), Ok(former));
                    }
                    all.iter().map(|(prefix, _)| *prefix).collect()
                }
                Step::Remove(prefix) => {
                    prop_assert_eq!(routes.remove(*prefix), reference.remove((*prefix).into()));
                    vec![*prefix]
                }
            };
            routes.reclaim(epoch as u64);
            observed.extend(touched.iter().flat_map(edges4));
            prop_assert_eq!(routes.len(), reference.len());
            let fib = routes.fib();
            for burst in observed.chunks(64) {
                let mut found = [0; 64];
                fib.look_up_burst(burst, &mut found);
                for (destination, found) in burst.iter().zip(found) {
                    let address = Ipv4Addr::from_bits(*destination);
                    prop_assert_eq!(found, reference.look_up(address.into()), "{}", address);
                    prop_assert_eq!(found, fib.look_up(*destination));
                }
            }
            if observed.len() > 512 {
                observed.drain(..256);
            }
        }
    }

    #[test]
    fn ipv6_agrees_with_the_reference(steps in steps(prefix6())) {
        let mut routes = Ipv6Routes::new(1 << 14).unwrap();
        let mut reference = ReferenceFib::default();
        let mut observed = Vec::new();
        for (epoch, step) in steps.iter().enumerate() {
            routes.set_epoch(epoch as u64);
            let touched: Vec<Ipv6Net> = match step {
                Step::Insert(prefix, hop) => {
                    let former = reference.insert((*prefix).into(), *hop);
                    prop_assert_eq!(routes.insert(*prefix, *hop), Ok(former));
                    vec![*prefix]
                }
                Step::InsertAll(all) => {
                    for (prefix, hop) in all {
                        reference.insert((*prefix).into(), *hop);
                    }
                    prop_assert_eq!(routes.insert_all(all.clone()), Ok(()));
                    all.iter().map(|(prefix, _)| *prefix).collect()
                }
                Step::Remove(prefix) => {
                    let former = reference.remove((*prefix).into());
                    prop_assert_eq!(routes.get(*prefix), former);
                    prop_assert_eq!(routes.remove(*prefix), Ok(former));
                    vec![*prefix]
                }
            };
            routes.reclaim(epoch as u64);
            observed.extend(touched.iter().flat_map(edges6));
            prop_assert_eq!(routes.len(), reference.len());
            let fib = routes.fib();
            for burst in observed.chunks(64) {
                let mut found = [0; 64];
                fib.look_up_burst(burst, &mut found);
                for (destination, found) in burst.iter().zip(found) {
                    let address = Ipv6Addr::from_bits(*destination);
                    prop_assert_eq!(found, reference.look_up(address.into()), "{}", address);
                    prop_assert_eq!(found, fib.look_up(*destination));
                }
            }
            if observed.len() > 512 {
                observed.drain(..256);
            }
        }
        // A table is empty after all routes are removed.
        let left: Vec<IpNet> = reference.prefixes().collect();
        for prefix in left {
            if let IpNet::V6(prefix) = prefix {
                prop_assert!(routes.remove(prefix).unwrap().is_some());
            }
        }
        prop_assert_eq!(routes.nodes(), 0);
    }

    /// With very little space, changes fail sometimes, and look-ups always match the successful changes.
    #[test]
    fn a_crowded_ipv6_table_stays_whole(steps in steps(prefix6())) {
        let mut routes = Ipv6Routes::new(64).unwrap();
        let mut reference = ReferenceFib::default();
        let mut observed: Vec<u128> = Vec::new();
        for (epoch, step) in steps.iter().enumerate() {
            routes.set_epoch(epoch as u64);
            match step {
                Step::Insert(prefix, hop) => {
                    observed.extend(edges6(prefix));
                    if routes.insert(*prefix, *hop).is_ok() {
                        reference.insert((*prefix).into(), *hop);
                    }
                }
                Step::InsertAll(all) => {
                    observed.extend(all.iter().flat_map(|(prefix, _)| edges6(prefix)));
                    if routes.insert_all(all.clone()).is_ok() {
                        for (prefix, hop) in all {
                            reference.insert((*prefix).into(), *hop);
                        }
                    }
                }
                Step::Remove(prefix) => {
                    if routes.remove(*prefix).is_ok() {
                        reference.remove((*prefix).into());
                    }
                }
            }
            routes.reclaim(epoch as u64);
            prop_assert_eq!(routes.len(), reference.len());
            for destination in &observed {
                let address = Ipv6Addr::from_bits(*destination);
                let found = routes.fib().look_up(*destination);
                prop_assert_eq!(found, reference.look_up(address.into()), "{}", address);
            }
            if observed.len() > 128 {
                observed.drain(..64);
            }
        }
    }
}
