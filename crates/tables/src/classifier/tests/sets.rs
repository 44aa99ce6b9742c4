// SPDX-License-Identifier: Apache-2.0
//! Large rule sets by kind, and keys that hit them.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::{Field, Key, Rule};

/// xorshift64* (Vigna, 2016): the same numbers each time.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn ipv4(random: &mut Random, length: u8) -> IpNet {
    // Networks of sixteen providers.
    let bits = (random.below(16) as u32 * 0x0b00_0000).wrapping_add(random.next() as u32 >> 8);
    Ipv4Net::new(bits.into(), length).unwrap().trunc().into()
}

fn ipv6(random: &mut Random, length: u8) -> IpNet {
    let high = (0x2001_0db8_u128 << 96) | (u128::from(random.below(1 << 20)) << 72);
    let bits = high | u128::from(random.next());
    Ipv6Net::new(bits.into(), length).unwrap().trunc().into()
}

const SERVICES: [u16; 8] = [22, 25, 53, 80, 123, 443, 3306, 8080];

fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// Filters of a router: mostly specific prefixes on both sides and a service.
fn acl(random: &mut Random) -> Rule {
    let source = one(random, &[0, 16, 24, 24, 32, 32]);
    let destination = one(random, &[16, 24, 28, 32, 32, 32]);
    let rule = match source {
        0 => Rule::ANY,
        _ => Rule::ANY.with_source(ipv4(random, source)),
    };
    let rule = rule.with_destination(ipv4(random, destination));
    let port = one(random, &SERVICES);
    match random.below(4) {
        0 => rule.with_protocol(1),
        1 => rule.with_protocol(17).with_ports(0..=65_535, port..=port),
        _ => rule.with_protocol(6).with_ports(0..=65_535, port..=port),
    }
}

/// Filters of a firewall: many without a prefix, and ranges of ports.
fn firewall(random: &mut Random) -> Rule {
    let mut rule = Rule::ANY.with_protocol(one(random, &[6, 17]));
    if random.below(4) > 0 {
        let length = one(random, &[16, 24, 32]);
        rule = rule.with_source(ipv4(random, length));
    }
    if random.below(4) > 0 {
        let length = one(random, &[8, 24, 32]);
        rule = rule.with_destination(ipv4(random, length));
    }
    let port = one(random, &SERVICES);
    let high = random.below(60_000) as u16 + 1024;
    match random.below(4) {
        0 => rule.with_ports(1024..=65_535, port..=port),
        1 => rule.with_ports(0..=65_535, high..=high + 100),
        2 => rule.with_ports(0..=65_535, high..=high),
        _ => rule.with_ports(0..=65_535, port..=port),
    }
}

/// Chains of IP, with both versions.
fn chain(random: &mut Random) -> Rule {
    let lengths = [24, 28, 32];
    match random.below(3) {
        0 => {
            let (source, destination) = (ipv6(random, 48), ipv6(random, 64));
            Rule::ANY.with_source(source).with_destination(destination)
        }
        1 => {
            let length = one(random, &[56, 64, 128]);
            Rule::ANY.with_source(ipv6(random, length)).with_protocol(6)
        }
        _ => {
            let (from, to) = (one(random, &lengths), one(random, &lengths));
            Rule::ANY
                .with_source(ipv4(random, from))
                .with_destination(ipv4(random, to))
        }
    }
}

/// Rules of guests: their port, MAC address and VLAN.
fn guests(random: &mut Random) -> Rule {
    let guest = random.below(200);
    let rule = Rule::ANY.with(Field::INGRESS_PORT, guest as u32);
    match random.below(3) {
        0 => rule.with_macs((0x5254_0000_0000 + random.below(4000), u64::MAX), (0, 0)),
        1 => rule.with_vlan(random.below(4095) as u16),
        _ => rule.with_source(ipv4(random, 32)),
    }
}

/// Overlapping rectangles of ports: no bits separate them.
fn rectangles(random: &mut Random) -> Rule {
    let mut range = || {
        let (a, b) = (random.next() as u16, random.next() as u16);
        a.min(b)..=a.max(b)
    };
    Rule::ANY.with_ports(range(), range())
}

/// One to three bits anywhere.
fn bits(random: &mut Random) -> Rule {
    let mut rule = Rule::ANY;
    for _ in 0..=random.below(3) {
        let bit = 1u32 << random.below(32);
        rule = rule.with_bits(Field::METADATA, random.next() as u32, bit);
    }
    rule
}

/// Nested prefixes, most of them empty to all but one address.
fn nested(random: &mut Random) -> Rule {
    let (from, to) = (random.below(33) as u8, random.below(33) as u8);
    let of = |length| IpNet::from(Ipv4Net::new(0x0a0a_0a0au32.into(), length).unwrap().trunc());
    let port = random.next() as u16;
    Rule::ANY
        .with_source(of(from))
        .with_destination(of(to))
        .with_ports(port..=port, 0..=65_535)
}

/// Makes a rule of a kind.
type Make = fn(&mut Random) -> Rule;

/// Returns sets of this number of rules.
pub(super) fn all(count: usize) -> Vec<(&'static str, Vec<Rule>)> {
    let kinds: [(&str, Make); 7] = [
        ("acl", acl),
        ("firewall", firewall),
        ("chain", chain),
        ("guests", guests),
        ("adversarial: rectangles", rectangles),
        ("adversarial: bits", bits),
        ("adversarial: nested", nested),
    ];
    let set = |(name, rule): (&'static str, Make)| {
        let mut random = Random(11);
        let mut rules: Vec<Rule> = (0..count).map(|_| rule(&mut random)).collect();
        // The last one of a policy.
        rules.push(Rule::ANY.with(Field::IS_IPV4, 1));
        (name, rules)
    };
    kinds.into_iter().map(set).collect()
}

/// Returns keys that most often match some rule: the bits that a rule does not compare are random.
pub(super) fn keys(rules: &[Rule], count: usize) -> Vec<Key> {
    let mut random = Random(13);
    let key = |_| {
        let rule = rules[random.below(rules.len() as u64) as usize];
        let mut key = Key::EMPTY;
        for (word, (value, mask)) in key.words.iter_mut().zip(rule.value.iter().zip(&rule.mask)) {
            *word = *value | (random.next() as u32 & !mask);
        }
        let mut within =
            |(first, last): (u16, u16)| first + random.below(u64::from(last - first) + 1) as u16;
        let (source, destination) = (within(rule.source_ports), within(rule.destination_ports));
        key.words[super::super::key::PORTS] = (u32::from(source) << 16) | u32::from(destination);
        if random.below(8) == 0 {
            key.words[random.below(16) as usize] ^= 1 << random.below(32);
        }
        key
    };
    (0..count).map(key).collect()
}
