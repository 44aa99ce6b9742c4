// SPDX-License-Identifier: Apache-2.0
//! The translation that a NAT between the ends is meant to make, and its check (RFC 4787, section 4.1; RFC 5382, section 5).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use quietwire_base::locate::{At, LocatedFault};
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use super::count;

/// Address and port.
pub(crate) type Endpoint = (Ipv6Addr, u16);

/// Ranges of addresses of a pool at most.
const POOL_MAX: usize = 64;
/// Violations that are listed at most.
const LISTED_MAX: usize = 8;
/// Client addresses whose translated address is remembered at most.
const PARTNERS_MAX: usize = 1 << 16;

/// Consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// First address.
    pub first: IpAddr,
    /// Last address, of the same version.
    pub last: IpAddr,
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl PoolRange {
    fn contains(&self, address: Ipv6Addr) -> bool {
        (bits(self.first)..=bits(self.last)).contains(&address.to_bits())
    }

    /// Returns the addresses of a prefix; `None` if its length is too large.
    fn of_prefix(address: IpAddr, length: u32) -> Option<Self> {
        let range = |first: IpAddr, last: IpAddr| Some(Self { first, last });
        match address {
            IpAddr::V4(address) => {
                let host = 32u32.checked_sub(length)?;
                let mask = u32::MAX.checked_shl(host).unwrap_or(0);
                let first = address.to_bits() & mask;
                range(
                    Ipv4Addr::from_bits(first).into(),
                    Ipv4Addr::from_bits(first | !mask).into(),
                )
            }
            IpAddr::V6(address) => {
                let host = 128u32.checked_sub(length)?;
                let mask = u128::MAX.checked_shl(host).unwrap_or(0);
                let first = address.to_bits() & mask;
                range(
                    Ipv6Addr::from_bits(first).into(),
                    Ipv6Addr::from_bits(first | !mask).into(),
                )
            }
        }
    }
}

impl fmt::Display for PoolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PoolRange {
    type Err = String;

    /// Parses an address, `FIRST-LAST`, or `ADDRESS/LENGTH`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "'{text}' is not an address, FIRST-LAST or ADDRESS/LENGTH (write 203.0.113.0/28, for example)"
            )
        };
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| wrong());
        let range = if let Some((prefix, length)) = text.split_once('/') {
            let length = length.parse().map_err(|_| wrong())?;
            Self::of_prefix(address(prefix)?, length).ok_or_else(wrong)?
        } else if let Some((first, last)) = text.split_once('-') {
            Self {
                first: address(first)?,
                last: address(last)?,
            }
        } else {
            let only = address(text)?;
            Self {
                first: only,
                last: only,
            }
        };
        let is_one_version = range.first.is_ipv4() == range.last.is_ipv4();
        if is_one_version && bits(range.first) <= bits(range.last) {
            Ok(range)
        } else {
            Err(wrong())
        }
    }
}

impl Serialize for PoolRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PoolRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// `[connections.nat]`: the translation of the clients' addresses and ports that is expected at the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all(deserialize = "kebab-case"))]
pub struct ExpectedNat {
    /// Translated addresses. Without any, sources must arrive unchanged.
    pub pool: Vec<PoolRange>,
    /// First and last translated port.
    pub ports: [u16; 2],
    /// Whether later conversations from the same address and port must have the same mapping (RFC 4787, section 4.1, REQ-1).
    pub same_mapping: bool,
    /// Whether all conversations from an address must have the same translated address (RFC 4787, section 4.1, REQ-2).
    pub paired: bool,
}

impl Default for ExpectedNat {
    /// Expects no translation.
    fn default() -> Self {
        Self {
            pool: Vec::new(),
            ports: [1, u16::MAX],
            same_mapping: false,
            paired: false,
        }
    }
}

impl FromStr for ExpectedNat {
    type Err = String;

    /// Parses `none`, or ranges of addresses and the words `ports=FIRST-LAST`, `same-mapping` and `paired`, separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut expected = Self::default();
        if text == "none" {
            return Ok(expected);
        }
        for part in text.split(',') {
            match part.trim() {
                "same-mapping" => expected.same_mapping = true,
                "paired" => expected.paired = true,
                word => match word.strip_prefix("ports=") {
                    Some(ports) => expected.ports = parse_ports(ports)?,
                    None => expected.pool.push(word.parse()?),
                },
            }
        }
        if expected.pool.is_empty() {
            return Err(format!(
                "'{text}' has no pool of addresses (write 203.0.113.0/28,ports=1024-65535, for example, or none)"
            ));
        }
        match expected.first_fault() {
            None => Ok(expected),
            Some(fault) => Err(fault.message),
        }
    }
}

fn parse_ports(text: &str) -> Result<[u16; 2], String> {
    let ports = text
        .split_once('-')
        .and_then(|(first, last)| Some([first.parse().ok()?, last.parse().ok()?]));
    ports.ok_or_else(|| format!("'{text}' are not ports (write ports=1024-65535, for example)"))
}

impl ExpectedNat {
    /// Returns the first error with its path below `[connections.nat]`.
    pub(super) fn first_fault(&self) -> Option<LocatedFault> {
        let fault = |key: &'static str, message: String| {
            Some(LocatedFault {
                path: vec![At::Key(key)],
                message,
            })
        };
        let [first, last] = self.ports;
        if self.pool.len() > POOL_MAX {
            let message = format!("the pool has more than {POOL_MAX} ranges of addresses");
            return fault("pool", message);
        }
        if first == 0 || first > last {
            return fault("ports", "ports are [first, last], from 1 on".to_owned());
        }
        if self.pool.is_empty() && (self.same_mapping || self.paired) {
            let message = "without a pool, sources arrive unchanged (add pool, or remove same-mapping and paired)";
            return fault("pool", message.to_owned());
        }
        None
    }
}

/// Fault of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NatFault {
    /// The source arrived unchanged, although a translation is expected.
    Unchanged,
    /// The source arrived changed, although no translation is expected.
    Changed,
    /// The address is not in the pool.
    OutsidePool,
    /// The port is not among the expected ones.
    OutsidePorts,
    /// An earlier conversation from the same address and port had another mapping.
    OtherMapping,
    /// An earlier conversation from the same address had another translated address.
    OtherAddress,
}

impl NatFault {
    const ALL: [Self; 6] = [
        Self::Unchanged,
        Self::Changed,
        Self::OutsidePool,
        Self::OutsidePorts,
        Self::OtherMapping,
        Self::OtherAddress,
    ];

    /// Returns the fault in words, as tables show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Unchanged => "not translated",
            Self::Changed => "translated",
            Self::OutsidePool => "outside the pool",
            Self::OutsidePorts => "outside the ports",
            Self::OtherMapping => "with another mapping",
            Self::OtherAddress => "with another address of the pool",
        }
    }
}

/// A conversation whose translation is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatViolation {
    /// The fault.
    pub fault: NatFault,
    /// Source as the client knows it.
    pub source: SocketAddr,
    /// Source as it arrived at the server.
    pub arrived: SocketAddr,
}

/// Result of the check of translations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatCheckReport {
    /// The expectation.
    pub expected: ExpectedNat,
    /// Conversations that were checked.
    pub conversations: u64,
    /// Conversations with at least one fault.
    pub violating: u64,
    /// Conversations with each fault.
    pub faults: BTreeMap<NatFault, u64>,
    /// First violations.
    pub first: Vec<NatViolation>,
}

/// Check of translations against an expectation. It allocates when it is created, and never afterwards.
#[derive(Debug)]
pub(crate) struct NatCheck {
    expected: ExpectedNat,
    conversations: u64,
    violating: u64,
    faults: [u64; NatFault::ALL.len()],
    first: Vec<NatViolation>,
    /// Translated address of each client address.
    partners: HashMap<Ipv6Addr, Ipv6Addr>,
}

fn socket_address((address, port): Endpoint) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

impl NatCheck {
    pub(crate) fn new(expected: ExpectedNat) -> Self {
        let partners = if expected.paired { PARTNERS_MAX } else { 0 };
        Self {
            expected,
            conversations: 0,
            violating: 0,
            faults: [0; NatFault::ALL.len()],
            first: Vec::with_capacity(LISTED_MAX),
            partners: HashMap::with_capacity(partners),
        }
    }

    /// Checks a conversation: the source that the client names, the source that arrived, and that of an earlier conversation from the same
    /// source.
    pub(crate) fn note(&mut self, meant: Endpoint, arrived: Endpoint, before: Option<Endpoint>) {
        count(&mut self.conversations);
        let mut is_first = true;
        for (index, fault) in NatFault::ALL.into_iter().enumerate() {
            if !self.is_fault(fault, meant, arrived, before) {
                continue;
            }
            if let Some(faults) = self.faults.get_mut(index) {
                count(faults);
            }
            if std::mem::take(&mut is_first) {
                count(&mut self.violating);
                if self.first.len() < LISTED_MAX {
                    self.first.push(NatViolation {
                        fault,
                        source: socket_address(meant),
                        arrived: socket_address(arrived),
                    });
                }
            }
        }
        let has_space = self.partners.len() < PARTNERS_MAX;
        if self.expected.paired && (has_space || self.partners.contains_key(&meant.0)) {
            self.partners.entry(meant.0).or_insert(arrived.0);
        }
    }

    fn is_fault(
        &self,
        fault: NatFault,
        meant: Endpoint,
        arrived: Endpoint,
        before: Option<Endpoint>,
    ) -> bool {
        let expected = &self.expected;
        let is_translated = !expected.pool.is_empty();
        let [first_port, last_port] = expected.ports;
        match fault {
            NatFault::Unchanged => is_translated && meant == arrived,
            NatFault::Changed => !is_translated && meant != arrived,
            NatFault::OutsidePool => {
                let is_in = |range: &PoolRange| range.contains(arrived.0);
                is_translated && meant != arrived && !expected.pool.iter().any(is_in)
            }
            NatFault::OutsidePorts => {
                let is_in = (first_port..=last_port).contains(&arrived.1);
                is_translated && meant != arrived && !is_in
            }
            NatFault::OtherMapping => {
                expected.same_mapping && before.is_some_and(|before| before != arrived)
            }
            NatFault::OtherAddress => {
                let partner = self.partners.get(&meant.0);
                expected.paired && partner.is_some_and(|partner| *partner != arrived.0)
            }
        }
    }

    /// Returns the result.
    pub(crate) fn report(&self) -> NatCheckReport {
        let counts = NatFault::ALL.into_iter().zip(self.faults);
        NatCheckReport {
            expected: self.expected.clone(),
            conversations: self.conversations,
            violating: self.violating,
            faults: counts.filter(|(_, count)| *count > 0).collect(),
            first: self.first.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn endpoint(address: [u8; 4], port: u16) -> Endpoint {
        (Ipv4Addr::from(address).to_ipv6_mapped(), port)
    }

    fn check(text: &str) -> NatCheck {
        NatCheck::new(text.parse().unwrap())
    }

    fn faults(check: &NatCheck) -> Vec<(NatFault, u64)> {
        check.report().faults.into_iter().collect()
    }

    #[test]
    fn each_fault_of_a_translation_is_counted_once() {
        let inside = |last| endpoint([10, 0, 0, last], 1024);
        let mut checked = check("203.0.113.0/30,ports=2000-2999,same-mapping,paired");
        let mut note = |meant: Endpoint, arrived: Endpoint, before: Option<Endpoint>| {
            checked.note(meant, arrived, before);
        };
        let good = endpoint([203, 0, 113, 3], 2500);
        note(inside(1), good, None);
        note(inside(1), good, Some(good));
        note(inside(2), inside(2), None);
        note(inside(3), endpoint([203, 0, 113, 4], 2000), None);
        note(inside(4), endpoint([203, 0, 113, 0], 3000), None);
        // Another port of the right address, and another address.
        note(inside(1), endpoint([203, 0, 113, 3], 2501), Some(good));
        note((inside(1).0, 9), endpoint([203, 0, 113, 2], 2500), None);
        let report = checked.report();
        assert_eq!((report.conversations, report.violating), (7, 5));
        let expected = [
            (NatFault::Unchanged, 1),
            (NatFault::OutsidePool, 1),
            (NatFault::OutsidePorts, 1),
            (NatFault::OtherMapping, 1),
            (NatFault::OtherAddress, 1),
        ];
        assert_eq!(faults(&checked), expected);
        assert_eq!(report.first.len(), 5);
        assert_eq!(report.first[0].source.to_string(), "10.0.0.2:1024");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["faults"]["outside_pool"], 1);
        assert_eq!(json["expected"]["pool"][0], "203.0.113.0-203.0.113.3");
    }

    #[test]
    fn no_translation_may_be_expected() {
        let mut checked = check("none");
        checked.note(endpoint([10, 0, 0, 1], 1), endpoint([10, 0, 0, 1], 1), None);
        assert_eq!(checked.report().violating, 0);
        checked.note(endpoint([10, 0, 0, 1], 1), endpoint([10, 0, 0, 1], 2), None);
        assert_eq!(faults(&checked), [(NatFault::Changed, 1)]);
    }

    #[test]
    fn pools_are_read() {
        let pool = |text: &str| text.parse::<PoolRange>().map(|range| range.to_string());
        for (text, expected) in [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9/32", "203.0.113.9"),
            ("203.0.113.9/24", "203.0.113.0-203.0.113.255"),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
            ("203.0.113.1-203.0.113.9", "203.0.113.1-203.0.113.9"),
            ("2001:db8::/127", "2001:db8::-2001:db8::1"),
        ] {
            assert_eq!(pool(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "x",
            "203.0.113.9/33",
            "203.0.113.9-203.0.113.1",
            "203.0.113.9-2001:db8::1",
            "2001:db8::/129",
            "1.2.3.4/x",
        ] {
            assert!(pool(text).is_err(), "{text}");
        }
        for text in [
            "ports=1-2",
            "203.0.113.9,ports=9-1",
            "203.0.113.9,ports=9",
            "203.0.113.9,paire",
        ] {
            assert!(text.parse::<ExpectedNat>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn counts_of_a_hostile_nat_add_up(
            arrivals in prop::collection::vec((0u8..4, 1u16..5, any::<u8>(), any::<u16>()), 0..200),
        ) {
            let mut checked = check("203.0.113.0/25,ports=1000-2000,paired");
            for (client, port, last, translated) in &arrivals {
                let meant = endpoint([10, 0, 0, *client], *port);
                checked.note(meant, endpoint([203, 0, 113, *last], *translated), None);
            }
            let report = checked.report();
            let of = |fault| report.faults.get(&fault).copied().unwrap_or(0);
            prop_assert_eq!(report.conversations, arrivals.len() as u64);
            let outside = arrivals.iter().filter(|it| it.2 >= 128).count() as u64;
            prop_assert_eq!(of(NatFault::OutsidePool), outside);
            let wrong = arrivals.iter().filter(|it| !(1000..=2000).contains(&it.3)).count() as u64;
            prop_assert_eq!(of(NatFault::OutsidePorts), wrong);
            let sum: u64 = report.faults.values().sum();
            prop_assert!(report.violating <= sum && sum <= 3 * report.violating);
            prop_assert!(report.first.len() <= LISTED_MAX);
        }
    }
}
