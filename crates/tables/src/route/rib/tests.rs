// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;

const SMALL: Sizes = Sizes {
    ipv4_groups: 64,
    ipv6_nodes: 1 << 12,
    next_hops: 1000,
};

/// The guide has the limits of a VRF.
#[test]
fn limits_are_those_of_the_guide() {
    let page = include_str!("../../../../../docs/router.md").replace(',', "");
    let blocks = Sizes::default().ipv4_groups;
    let text = format!("| IPv4 /24 blocks with longer prefixes | {blocks} per VRF");
    assert!(page.contains(&text), "no '{text}'");
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(last: u64) -> MacAddress {
    MacAddress::from_u64(0x0200_0000_0000 | last)
}

fn link(addresses: &[&str]) -> Link {
    Link {
        vrf: 0,
        addresses: addresses.iter().map(|text| net(text)).collect(),
    }
}

fn links() -> BTreeMap<u16, Link> {
    BTreeMap::from([
        (0, link(&["192.0.2.1/24", "2001:db8:a::1/64"])),
        (1, link(&["198.51.100.1/24", "2001:db8:b::1/64"])),
    ])
}

fn rib() -> Rib {
    let mut rib = Rib::new(SMALL).unwrap();
    rib.add_vrf(0).unwrap();
    rib.set_links(links()).unwrap();
    rib
}

fn via(gateway: Option<&str>, interface: u16) -> Via {
    Via {
        gateway: gateway.map(ip),
        interface,
        weight: 1,
    }
}

fn route(source: Source, target: Target) -> Route {
    Route {
        source,
        metric: 0,
        target,
    }
}

#[test]
fn own_addresses_links_and_broadcasts_have_routes() {
    let rib = rib();
    for (address, next_hop) in [
        ("192.0.2.1", NextHop::Local),
        ("192.0.2.9", NextHop::Glean { interface: 0 }),
        ("192.0.2.255", NextHop::Blackhole),
        ("2001:db8:b::7", NextHop::Glean { interface: 1 }),
        ("203.0.113.1", NextHop::None),
    ] {
        assert_eq!(rib.next_hop(0, ip(address)), next_hop, "{address}");
    }
}

#[test]
fn a_gateway_is_found_and_lost_for_all_its_routes() {
    let mut rib = rib();
    for prefix in ["10.0.0.0/8", "172.16.0.0/12"] {
        let target = Target::Via(vec![via(Some("198.51.100.9"), 1)]);
        rib.add(0, net(prefix), route(Source::Static, target))
            .unwrap();
    }
    let gateway = (1, ip("198.51.100.9"));
    assert_eq!(rib.take_wanted(), [gateway]);
    assert_eq!(rib.neighbours_for(0, ip("10.0.0.1")), [gateway]);
    rib.found(1, gateway.1, mac(9)).unwrap();
    let adjacency = NextHop::Adjacency {
        interface: 1,
        mac: mac(9),
    };
    for address in ["10.0.0.1", "172.16.0.1", "198.51.100.9"] {
        assert_eq!(rib.next_hop(0, ip(address)), adjacency);
    }
    assert!(rib.neighbours_for(0, ip("10.0.0.1")).is_empty());
    assert!(rib.take_wanted().is_empty() && rib.missing_gateways().is_empty());
    rib.lost(1, gateway.1);
    // It is wanted at once, and again while it is missing.
    assert_eq!(rib.take_wanted(), [gateway]);
    assert_eq!(rib.missing_gateways(), [gateway]);
    assert_eq!(
        rib.next_hop(0, ip("10.0.0.1")),
        NextHop::Incomplete { interface: 1 }
    );
    assert_eq!(rib.next_hop(0, gateway.1), NextHop::Glean { interface: 1 });
}

#[test]
fn the_best_source_wins_and_the_next_takes_over() {
    let mut rib = rib();
    let prefix = net("10.0.0.0/8");
    rib.add(0, prefix, route(Source::Kernel, Target::Unreachable))
        .unwrap();
    rib.add(0, prefix, route(Source::Static, Target::Prohibit))
        .unwrap();
    assert_eq!(rib.next_hop(0, ip("10.0.0.1")), NextHop::Prohibit);
    assert!(rib.remove(0, prefix, Source::Static));
    assert_eq!(rib.next_hop(0, ip("10.0.0.1")), NextHop::Unreachable);
    assert!(!rib.remove(0, prefix, Source::Static));
    assert!(rib.remove(0, prefix, Source::Kernel));
    assert_eq!(rib.next_hop(0, ip("10.0.0.1")), NextHop::None);
}

#[test]
fn routes_by_a_removed_interface_are_inactive() {
    let mut rib = rib();
    let both = Target::Via(vec![
        via(Some("192.0.2.9"), 0),
        via(Some("198.51.100.9"), 1),
    ]);
    rib.add(0, net("10.0.0.0/8"), route(Source::Static, both))
        .unwrap();
    let one = Target::Via(vec![via(None, 1)]);
    rib.add(0, net("172.16.0.0/12"), route(Source::Static, one))
        .unwrap();
    rib.found(0, ip("192.0.2.9"), mac(8)).unwrap();
    let mut fewer = links();
    fewer.remove(&1);
    rib.set_links(fewer).unwrap();
    let left = NextHop::Adjacency {
        interface: 0,
        mac: mac(8),
    };
    assert_eq!(rib.next_hop(0, ip("10.0.0.1")), left);
    assert_eq!(rib.next_hop(0, ip("172.16.0.1")), NextHop::None);
    rib.set_links(links()).unwrap();
    assert_eq!(
        rib.next_hop(0, ip("172.16.0.1")),
        NextHop::Glean { interface: 1 }
    );
    rib.found(1, ip("198.51.100.9"), mac(9)).unwrap();
    assert_eq!(rib.targets.gateways_of(rib.look_up(0, ip("10.0.0.1"))), []);
}

#[test]
fn invalid_routes_are_refused() {
    let mut rib = rib();
    let mut add = |prefix, ways| {
        let route = route(Source::Static, Target::Via(ways));
        rib.add(0, net(prefix), route).unwrap_err()
    };
    let prefix = "10.0.0.0/8";
    assert_eq!(add(prefix, vec![via(None, 7)]), RibError::Interface(7));
    let version = add(prefix, vec![via(Some("2001:db8:a::9"), 0)]);
    assert!(matches!(version, RibError::Version(..)));
    let own = add(prefix, vec![via(Some("192.0.2.1"), 0)]);
    assert!(matches!(own, RibError::OwnAddress(_)));
    assert!(matches!(add(prefix, vec![]), RibError::NextHop(_)));
    let none = rib.add(5, net(prefix), route(Source::Static, Target::Blackhole));
    assert_eq!(none, Err(RibError::Vrf(5)));
    assert!(!rib.remove(5, net(prefix), Source::Static));
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize, Source, usize),
    Remove(usize, Source),
    Found(u16, usize),
    Lost(u16, usize),
    Links(bool, bool),
}

const PREFIXES: [&str; 6] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.0.2.9/32",
    "192.0.2.128/25",
    "0.0.0.0/0",
    "198.51.100.9/32",
];
const GATEWAYS: [[&str; 2]; 2] = [
    ["192.0.2.9", "192.0.2.10"],
    ["198.51.100.9", "198.51.100.10"],
];

fn target(number: usize) -> Target {
    match number {
        0 => Target::Blackhole,
        1 => Target::Prohibit,
        2 => Target::Via(vec![via(Some(GATEWAYS[0][0]), 0)]),
        3 => Target::Via(vec![via(Some(GATEWAYS[1][0]), 1)]),
        4 => Target::Via(vec![
            via(Some(GATEWAYS[0][1]), 0),
            via(Some(GATEWAYS[1][1]), 1),
        ]),
        _ => Target::Via(vec![via(None, 1)]),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let source = prop::sample::select(vec![Source::Static, Source::Kernel]);
    prop_oneof![
        6 => (0..PREFIXES.len(), source.clone(), 0..6usize).prop_map(|(p, s, t)| Step::Add(p, s, t)),
        3 => (0..PREFIXES.len(), source).prop_map(|(p, s)| Step::Remove(p, s)),
        2 => (0..2u16, 0..2usize).prop_map(|(i, n)| Step::Found(i, n)),
        1 => (0..2u16, 0..2usize).prop_map(|(i, n)| Step::Lost(i, n)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(a, b)| Step::Links(a, b)),
    ]
}

/// Changes of the routing information base, to be replayed on a new one in another order.
#[derive(Default)]
struct Record {
    routes: BTreeMap<(usize, Source), usize>,
    found: BTreeMap<(u16, usize), ()>,
    up: [bool; 2],
}

impl Record {
    fn links(&self) -> BTreeMap<u16, Link> {
        links()
            .into_iter()
            .filter(|(number, _)| self.up[usize::from(*number)])
            .collect()
    }

    /// Replays the changes on a new base, its interfaces and neighbours first.
    fn replay(&self) -> Rib {
        let mut rib = Rib::new(SMALL).unwrap();
        rib.add_vrf(0).unwrap();
        // Routes require existing interfaces.
        rib.set_links(links()).unwrap();
        for ((prefix, source), number) in &self.routes {
            let route = route(*source, target(*number));
            rib.add(0, net(PREFIXES[*prefix]), route).unwrap();
        }
        rib.set_links(self.links()).unwrap();
        for (interface, number) in self.found.keys() {
            let address = ip(GATEWAYS[usize::from(*interface)][*number]);
            rib.found(*interface, address, mac(*number as u64)).unwrap();
        }
        rib
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Regardless of their history, the tables equal those of a base that gets only the final state.
    #[test]
    fn tables_do_not_depend_on_history(steps in prop::collection::vec(step(), 1..60)) {
        let mut rib = rib();
        let mut record = Record { up: [true; 2], ..Record::default() };
        for (epoch, step) in steps.into_iter().enumerate() {
            rib.set_epoch(epoch as u64);
            match step {
                Step::Add(prefix, source, number) => {
                    let added = rib.add(0, net(PREFIXES[prefix]), route(source, target(number)));
                    if added.is_ok() {
                        record.routes.insert((prefix, source), number);
                    }
                }
                Step::Remove(prefix, source) => {
                    let removed = rib.remove(0, net(PREFIXES[prefix]), source);
                    prop_assert_eq!(removed, record.routes.remove(&(prefix, source)).is_some());
                }
                Step::Found(interface, number) if record.up[usize::from(interface)] => {
                    let address = ip(GATEWAYS[usize::from(interface)][number]);
                    rib.found(interface, address, mac(number as u64)).unwrap();
                    record.found.insert((interface, number), ());
                }
                Step::Found(..) => {}
                Step::Lost(interface, number) => {
                    rib.lost(interface, ip(GATEWAYS[usize::from(interface)][number]));
                    record.found.remove(&(interface, number));
                }
                Step::Links(a, b) => {
                    record.up = [a, b];
                    rib.set_links(record.links()).unwrap();
                    record.found.retain(|(interface, _), ()| record.up[usize::from(*interface)]);
                }
            }
            rib.reclaim(epoch as u64);
        }
        let again = record.replay();
        for address in [
            "10.0.0.1", "10.1.0.1", "192.0.2.1", "192.0.2.9", "192.0.2.10", "192.0.2.200", "198.51.100.9",
            "198.51.100.10", "8.8.8.8", "2001:db8:a::5",
        ] {
            let (now, then) = (rib.next_hop(0, ip(address)), again.next_hop(0, ip(address)));
            let same = match (now, then) {
                // Any member of a group: both bases have the same group.
                (NextHop::Adjacency { .. } | NextHop::Incomplete { .. }, NextHop::Adjacency { .. } | NextHop::Incomplete { .. }) => true,
                (now, then) => now == then,
            };
            prop_assert!(same, "{}: {:?} and {:?}", address, now, then);
        }
        prop_assert_eq!(rib.len(0), again.len(0));
        prop_assert_eq!(rib.targets.next_hops(), again.targets.next_hops());
    }
}

#[test]
fn parts_hold_each_route_once_and_are_of_similar_size() {
    let mut rib = Rib::new(Sizes {
        ipv4_groups: 1 << 12,
        ipv6_nodes: 1 << 16,
        ..SMALL
    })
    .unwrap();
    rib.add_vrf(0).unwrap();
    let route = Route {
        source: Source::Static,
        metric: 0,
        target: Target::Blackhole,
    };
    let prefixes: Vec<IpNet> = (0..8192u32)
        .map(|n| format!("10.{}.{}.0/24", n >> 8, n & 0xff).parse().unwrap())
        .chain((0..512).map(|n| format!("2001:db8:{n:x}::/48").parse().unwrap()))
        .collect();
    for prefix in &prefixes {
        rib.add(0, *prefix, route.clone()).unwrap();
    }
    let mut found = Vec::new();
    for part in 0..Rib::PARTS {
        let here: Vec<IpNet> = rib.prefixes_in(0, part).map(|(prefix, _)| prefix).collect();
        // 34 on average.
        assert!(here.len() < 136, "part {part} has {}", here.len());
        let routes: Vec<IpNet> = rib.routes_in(0, part).map(|shown| shown.prefix).collect();
        assert_eq!(routes, here);
        found.extend(here);
    }
    found.sort_unstable();
    let mut expected = prefixes;
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(rib.routes(0).count(), expected.len());
    let shown: Vec<RouteInfo> = rib.routes_to(0, expected[7]).collect();
    assert_eq!((shown.len(), shown[0].prefix), (1, expected[7]));
    assert!(shown[0].is_active);
    assert!(rib.routes_to(0, net("192.0.2.0/24")).next().is_none());
}
