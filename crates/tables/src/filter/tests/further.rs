// SPDX-License-Identifier: Apache-2.0
//! Further fields and sets compared with a search by description: the frames are made from descriptions, so the reference parses nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use quietwire_base::BURST_MAX;
use quietwire_packet::{MacAddress, VlanId};

use super::super::*;
use crate::port_mask::PortMask;

/// A packet by its fields.
#[derive(Clone, Debug)]
struct Described {
    source_mac: u8,
    destination_mac: u8,
    is_tagged: bool,
    source: IpAddr,
    destination: IpAddr,
    dscp: u8,
    is_later: bool,
    protocol: u8,
    /// Ports, or ICMP type and code.
    numbers: (u16, u16),
    flags: u8,
}

/// A rule by its fields.
#[derive(Clone, Debug, Default)]
struct Wanted {
    protocol: Option<u8>,
    further: FurtherMatch,
    sets: Vec<(SetField, u32)>,
}

fn mac(last: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, last])
}

fn v4(bits: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, bits & 1, bits).into()
}

fn v6(bits: u8) -> IpAddr {
    let low = u16::from(bits);
    Ipv6Addr::new(0x2001, 0xdb8, low & 1, 0, 0, 0, 0, low).into()
}

fn packet() -> impl Strategy<Value = Described> {
    let protocol = prop::sample::select(&[1u8, 6, 17, 58]);
    (
        (0..4u8, 0..4u8, any::<bool>(), any::<bool>()),
        (0..16u8, 0..16u8, 0..4u8, prop::bool::weighted(0.1)),
        (protocol, 0..6u16, 0..6u16, any::<u8>()),
    )
        .prop_map(
            |(
                (source_mac, destination_mac, is_tagged, is_ipv6),
                (source, destination, dscp, is_later),
                (protocol, first, second, flags),
            )| {
                let address = if is_ipv6 { v6 } else { v4 };
                Described {
                    source_mac,
                    destination_mac,
                    is_tagged,
                    source: address(source),
                    destination: address(destination),
                    dscp,
                    is_later,
                    protocol,
                    numbers: (first, second),
                    flags,
                }
            },
        )
}

impl Described {
    fn payload(&self) -> Vec<u8> {
        let (first, second) = self.numbers;
        let mut octets = Vec::new();
        match self.protocol {
            1 | 58 => octets.extend([first as u8, second as u8]),
            _ => octets.extend([first.to_be_bytes(), second.to_be_bytes()].concat()),
        }
        octets.resize(24, 0);
        if self.protocol == 6 {
            octets[12] = 0x50;
            octets[13] = self.flags;
        }
        octets
    }

    fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(mac(self.destination_mac).0);
        frame.extend(mac(self.source_mac).0);
        if self.is_tagged {
            frame.extend([0x81, 0, 0, 9]);
        }
        let payload = self.payload();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let offset = if self.is_later { 8 } else { 0 };
                frame.extend([8, 0, 0x45, self.dscp << 2, 0, 44, 0, 0, 0, offset]);
                frame.extend([64, self.protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = if self.is_later { 32 } else { 24 };
                let next = if self.is_later { 44 } else { self.protocol };
                frame.extend([0x86, 0xdd, 0x60 | (self.dscp >> 2), self.dscp << 6, 0, 0]);
                frame.extend([0, length, next, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                if self.is_later {
                    frame.extend([self.protocol, 0, 0, 64, 0, 0, 0, 0]);
                }
            }
            _ => unreachable!("both addresses have one version"),
        }
        frame.extend(payload);
        frame
    }

    fn described(&self) -> DescribedPacket {
        let has_ports = [6, 17].contains(&self.protocol) && !self.is_later;
        let (first, second) = self.numbers;
        DescribedPacket {
            protocol: Some(Protocol(self.protocol)),
            source: Some(self.source),
            destination: Some(self.destination),
            source_port: has_ports.then_some(first),
            destination_port: has_ports.then_some(second),
            source_mac: Some(mac(self.source_mac)),
            destination_mac: Some(mac(self.destination_mac)),
            tcp_flags: (has_ports && self.protocol == 6).then_some(FlagList(self.flags)),
            icmp_type: self.is_icmp().then_some(first as u8),
            icmp_code: self.is_icmp().then_some(second as u8),
            dscp: Some(Dscp(self.dscp)),
            vlan: self.is_tagged.then(|| VlanId::new(9).unwrap()),
            ..DescribedPacket::default()
        }
    }

    fn is_icmp(&self) -> bool {
        let own = if self.source.is_ipv4() { 1 } else { 58 };
        self.protocol == own && !self.is_later
    }

    fn is_in(&self, field: SetField, set: &[Element]) -> bool {
        let has_ports = [6, 17].contains(&self.protocol) && !self.is_later;
        let address = |wanted: IpAddr| {
            set.iter().any(|element| match (element, wanted) {
                (Element::Ipv4(first, last), IpAddr::V4(one)) => (*first..=*last).contains(&one),
                (Element::Ipv6(first, last), IpAddr::V6(one)) => (*first..=*last).contains(&one),
                _ => false,
            })
        };
        let port = |wanted: u16| {
            has_ports
                && set.iter().any(|element| {
                    matches!(element, Element::Ports(first, last) if (*first..=*last).contains(&wanted))
                })
        };
        match field {
            SetField::Source => address(self.source),
            SetField::Destination => address(self.destination),
            SetField::SourcePort => port(self.numbers.0),
            SetField::DestinationPort => port(self.numbers.1),
            SetField::SourceMac => set.contains(&Element::Mac(mac(self.source_mac))),
            SetField::DestinationMac => set.contains(&Element::Mac(mac(self.destination_mac))),
        }
    }

    fn is_as(&self, wanted: &Wanted, sets: &[Vec<Element>]) -> bool {
        let further = wanted.further;
        let (kind, code) = self.numbers;
        wanted.protocol.is_none_or(|one| one == self.protocol)
            && further
                .source_mac
                .is_none_or(|one| one == mac(self.source_mac))
            && further
                .destination_mac
                .is_none_or(|one| one == mac(self.destination_mac))
            && further.dscp.is_none_or(|one| one.0 == self.dscp)
            && further.tagged.is_none_or(|one| one == self.is_tagged)
            && further.tcp_flags.is_none_or(|flags| {
                self.protocol == 6 && !self.is_later && self.flags & flags.mask == flags.value
            })
            && further.icmp.is_none_or(|(wanted, wanted_code)| {
                self.is_icmp()
                    && u16::from(wanted) == kind
                    && wanted_code.is_none_or(|one| u16::from(one) == code)
            })
            && wanted
                .sets
                .iter()
                .all(|(field, set)| self.is_in(*field, &sets[*set as usize]))
    }
}

fn element(kind: u8) -> BoxedStrategy<Element> {
    let text = |text: &'static str| text.parse::<Element>().unwrap();
    match kind {
        0 => prop_oneof![
            Just(text("10.0.0.0/24")),
            Just(text("10.0.0.0/16")),
            Just(text("10.0.0.2-10.0.0.11")),
            (0..16u8).prop_map(|bits| v4(bits).to_string().parse().unwrap()),
        ]
        .boxed(),
        1 => prop_oneof![
            Just(text("2001:db8::/48")),
            Just(text("2001:db8::/32")),
            Just(text("2001:db8:0::2-2001:db8:1::7")),
            (0..16u8).prop_map(|bits| v6(bits).to_string().parse().unwrap()),
        ]
        .boxed(),
        2 => (0..6u16, 0..4u16)
            .prop_map(|(first, more)| Element::Ports(first, first + more))
            .boxed(),
        _ => (0..4u8).prop_map(|last| Element::Mac(mac(last))).boxed(),
    }
}

/// Eight sets: two of each type.
fn sets() -> impl Strategy<Value = Vec<Vec<Element>>> {
    let set = |kind: u8| prop::collection::vec(element(kind), 0..5);
    let pair = |kind: u8| (set(kind), set(kind)).prop_map(|(a, b)| vec![a, b]);
    (pair(0), pair(1), pair(2), pair(3)).prop_map(|(a, b, c, d)| [a, b, c, d].concat())
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let used = (0..SetField::COUNT, 0..2u32, 0..2u32).prop_map(|(field, version, second)| {
        let field = SetField::ALL[field];
        let first = match field {
            SetField::Source | SetField::Destination => 2 * version,
            SetField::SourcePort | SetField::DestinationPort => 4,
            SetField::SourceMac | SetField::DestinationMac => 6,
        };
        (field, first + second)
    });
    let flags = prop::sample::select(&[(0x02, 0x12), (0, 0x01), (0x10, 0x10)]);
    let icmp = (0..6u8, prop::option::of(0..6u8));
    (
        prop::option::weighted(0.3, prop::sample::select(&[1u8, 6, 17, 58])),
        prop::option::weighted(0.15, 0..4u8),
        prop::option::weighted(0.15, 0..4u8),
        prop::option::weighted(0.15, flags),
        prop::option::weighted(0.15, icmp),
        prop::option::weighted(0.2, 0..4u8),
        prop::collection::vec(used, 0..3),
        prop::option::weighted(0.15, any::<bool>()),
    )
        .prop_map(
            |(protocol, source, destination, flags, icmp, dscp, sets, tagged)| Wanted {
                protocol,
                further: FurtherMatch {
                    source_mac: source.map(mac),
                    destination_mac: destination.map(mac),
                    tcp_flags: flags.map(|(value, mask)| TcpFlags { value, mask }),
                    icmp,
                    dscp: dscp.map(Dscp),
                    tagged,
                    out: None,
                    ports: PortMask::default(),
                    from_ports: PortMask::default(),
                },
                sets,
            },
        )
}

/// Returns true for a rule that a file can have: one value or set for each field.
fn is_of_a_file(wanted: &Wanted) -> bool {
    let has_macs = wanted.further.source_mac.is_some() || wanted.further.destination_mac.is_some();
    let mut fields = Vec::new();
    wanted.sets.iter().all(|(field, _)| {
        let is_new = !(fields.contains(field) || has_macs && field.is_mac());
        fields.push(*field);
        is_new
    })
}

/// Returns a rule as files have it. The names of sets are their numbers.
fn as_match(wanted: &Wanted) -> RuleMatch {
    fn set<T>(wanted: &Wanted, field: SetField) -> Option<OrSet<T>> {
        let used = wanted.sets.iter().find(|(one, _)| *one == field);
        used.map(|(_, set)| OrSet::Set(SetName(set.to_string())))
    }
    let further = wanted.further;
    RuleMatch {
        protocol: wanted.protocol.map(Protocol),
        source: set(wanted, SetField::Source),
        destination: set(wanted, SetField::Destination),
        source_port: set(wanted, SetField::SourcePort),
        destination_port: set(wanted, SetField::DestinationPort),
        source_mac: set(wanted, SetField::SourceMac).or(further.source_mac.map(OrSet::Value)),
        destination_mac: set(wanted, SetField::DestinationMac)
            .or(further.destination_mac.map(OrSet::Value)),
        tcp_flags: further.tcp_flags,
        icmp_type: further.icmp.map(|icmp| icmp.0),
        icmp_code: further.icmp.and_then(|icmp| icmp.1),
        dscp: further.dscp,
        tagged: further.tagged,
        ..RuleMatch::default()
    }
}

fn rule(wanted: &Wanted) -> PortRule {
    PortRule {
        port: None,
        group: None,
        vlan: None,
        packet: PacketMatch {
            protocol: wanted.protocol.map(Protocol),
            ..PacketMatch::default()
        },
        further: wanted.further,
        sets: wanted.sets.clone(),
        ct_states: None,
        mark: None,
        label: None,
        action: Action::Drop,
        frames: Arc::default(),
    }
}

/// Returns the rules that a table finds.
fn found(table: RuleTable, packets: &[Described]) -> Vec<Option<u32>> {
    let port = PortRules::new(Arc::new(table), 0, None);
    let frames: Vec<Vec<u8>> = packets.iter().map(Described::frame).collect();
    let received: Vec<(&[u8], u32)> = frames
        .iter()
        .map(|frame| (&frame[..], frame.len() as u32))
        .collect();
    let mut verdicts = [Verdict::Short; BURST_MAX];
    port.judge(received.iter().copied(), &mut verdicts);
    let number = |verdict: &Verdict| match verdict {
        Verdict::Rule(number, _) => Some(*number),
        Verdict::Default(_) => None,
        other => panic!("{other:?}"),
    };
    verdicts[..packets.len()].iter().map(number).collect()
}

fn expected(rules: &[Wanted], sets: &[Vec<Element>], packets: &[Described]) -> Vec<Option<u32>> {
    let first = |packet: &Described| {
        let place = rules.iter().position(|rule| packet.is_as(rule, sets));
        place.map(|place| u32::try_from(place).unwrap())
    };
    packets.iter().map(first).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn further_fields_and_sets_decide_as_the_reference(
        rules in prop::collection::vec(wanted(), 0..20),
        first in sets(),
        second in sets(),
        packets in prop::collection::vec(packet(), 1..BURST_MAX),
    ) {
        let table = RuleTable::with_sets(rules.iter().map(rule), &first, Fallback::default());
        // The same rules with other elements, without a compilation of the rules.
        let other = table.with_elements(&second);
        let wanted = expected(&rules, &first, &packets);
        prop_assert_eq!(&found(table, &packets), &wanted);
        prop_assert_eq!(found(other, &packets), expected(&rules, &second, &packets));
        // By description, in the compiled rules and rule by rule.
        let table = RuleTable::with_sets(rules.iter().map(rule), &first, Fallback::default());
        let port = PortRules::new(Arc::new(table), 0, None);
        let elements = |name: &SetName| &first[name.0.parse::<usize>().unwrap()][..];
        for (packet, wanted) in packets.iter().zip(wanted) {
            let described = packet.described();
            prop_assert_eq!(described.check(), Ok(()));
            prop_assert_eq!(port.find(&described), wanted);
            for rule in rules.iter().filter(|rule| is_of_a_file(rule)) {
                let is_same = described.differences(&as_match(rule), elements).is_empty();
                prop_assert_eq!(is_same, packet.is_as(rule, &first), "{:?} {:?}", rule, packet);
            }
        }
    }
}

#[test]
fn rules_beyond_the_maximum_of_sets_match_nothing() {
    let using = |set: u32| {
        rule(&Wanted {
            sets: vec![(SetField::DestinationPort, set)],
            ..Wanted::default()
        })
    };
    let last = SET_USES_MAX as u32;
    // All sets but the last are empty.
    let mut sets = vec![Vec::new(); SET_USES_MAX];
    sets.push(vec![Element::Ports(0, 65_535)]);
    let udp = [Described {
        source_mac: 1,
        destination_mac: 2,
        is_tagged: false,
        source: v4(1),
        destination: v4(2),
        dscp: 0,
        is_later: false,
        protocol: 17,
        numbers: (1, 2),
        flags: 0,
    }];
    let table = RuleTable::with_sets((1..=last).map(using), &sets, Fallback::default());
    assert_eq!(found(table, &udp), [Some(last - 1)]);
    let table = RuleTable::with_sets((0..=last).map(using), &sets, Fallback::default());
    assert_eq!(found(table, &udp), [None]);
}

/// Elements that are added to and removed from large sets, of which the others stay compiled.
#[test]
fn elements_of_large_sets_decide_as_those_that_are_compiled_alone() {
    let rules = || {
        (0..2).map(|set| {
            rule(&Wanted {
                sets: vec![(SetField::Source, set)],
                ..Wanted::default()
            })
        })
    };
    let address = |number: u32| Ipv4Addr::from(0x0a00_0000 + number);
    let element = |number: u32| address(number).to_string().parse::<Element>().unwrap();
    let mut sets = vec![(0..3000).map(element).collect::<Vec<_>>(), Vec::new()];
    sets[1].push("10.0.0.0/24".parse().unwrap());
    let mut table = RuleTable::with_sets(rules(), &sets, Fallback::default());
    type Change<'a> = &'a dyn Fn(&mut Vec<Vec<Element>>);
    let changes: [Change<'_>; 5] = [
        &|sets| sets[0].retain(|one| *one != element(7)),
        &|sets| sets[0].push(element(9000)),
        &|sets| sets[1].insert(0, "10.0.35.0/24".parse().unwrap()),
        &|sets| sets[1].truncate(1),
        &|sets| sets[0].truncate(3),
    ];
    let packets: Vec<Described> = [0, 2, 7, 8, 300, 2999, 8999, 9000, 20_000]
        .into_iter()
        .map(|number| Described {
            source_mac: 1,
            destination_mac: 2,
            is_tagged: false,
            source: address(number).into(),
            destination: v4(2),
            dscp: 0,
            is_later: false,
            protocol: 17,
            numbers: (1, 2),
            flags: 0,
        })
        .collect();
    for (number, change) in changes.into_iter().enumerate() {
        change(&mut sets);
        table = table.with_elements(&sets);
        let alone = RuleTable::with_sets(rules(), &sets, Fallback::default());
        let again = table.with_elements(&sets);
        assert_eq!(found(again, &packets), found(alone, &packets), "{number}");
    }
}
