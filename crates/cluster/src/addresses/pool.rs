// SPDX-License-Identifier: Apache-2.0
//! Choice of a free address from the ranges and the reservations of a network. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::resources::{NetworkSpec, Range, Reservation};

/// Reasons for which a pod gets no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// A part of the network cannot be parsed. The API server refuses such networks.
    #[error("'{text}' of the network is not {expected}")]
    Malformed {
        /// The text.
        text: String,
        /// Description of a valid value.
        expected: &'static str,
    },
    /// A requested address that the network does not have.
    #[error("no subnet of the network has {0} for pods")]
    Outside(IpAddr),
    /// A requested address that is kept for another pod.
    #[error("{address} is reserved for pod '{pod}'")]
    Reserved {
        /// The address.
        address: IpAddr,
        /// Name of the pod.
        pod: String,
    },
    /// Another pod has the address.
    #[error("another pod has {0}")]
    Taken(IpAddr),
    /// Pods have all addresses.
    #[error("the network has no free address")]
    Full,
}

/// Addresses of a range, as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    subnet: IpNet,
    first: u128,
    last: u128,
    gateway: Option<IpAddr>,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn parse(text: &str) -> Result<IpAddr, PoolError> {
    text.parse().map_err(|_| PoolError::Malformed {
        text: text.to_owned(),
        expected: "an IP address",
    })
}

impl Span {
    fn new(range: &Range) -> Result<Self, PoolError> {
        let subnet: IpNet = range.subnet.parse().map_err(|_| PoolError::Malformed {
            text: range.subnet.clone(),
            expected: "a prefix",
        })?;
        let mut first = number(subnet.network());
        let mut last = number(subnet.broadcast());
        // The first address of a subnet is that of the network (RFC 1812, section 4.2.3.1) or of all routers (RFC 4291, section 2.6.1), and
        // the last one of IPv4 is that of all hosts. A link of two addresses has neither (RFC 3021, RFC 6164).
        if last.saturating_sub(first) > 1 {
            first = first.saturating_add(1);
            if subnet.addr().is_ipv4() {
                last = last.saturating_sub(1);
            }
        }
        if let Some(text) = &range.first {
            first = first.max(number(parse(text)?));
        }
        if let Some(text) = &range.last {
            last = last.min(number(parse(text)?));
        }
        Ok(Self {
            subnet,
            first,
            last,
            gateway: range.gateway.as_deref().map(parse).transpose()?,
        })
    }

    fn is_ipv4(&self) -> bool {
        self.subnet.addr().is_ipv4()
    }

    fn address(&self, number: u128) -> Option<IpAddr> {
        if self.is_ipv4() {
            let number = u32::try_from(number).ok()?;
            return Some(Ipv4Addr::from(number).into());
        }
        Some(Ipv6Addr::from(number).into())
    }

    /// Returns the addresses once, beginning `start` addresses after the first.
    fn addresses(&self, start: u64) -> impl Iterator<Item = IpAddr> + '_ {
        let width = self.last.checked_sub(self.first);
        let start = u128::from(start);
        let offset = width.map_or(0, |width| match width.checked_add(1) {
            Some(size) => start.checked_rem(size).unwrap_or_default(),
            None => start,
        });
        let begin = self.first.saturating_add(offset);
        let both = width.map(|_| (begin..=self.last).chain(self.first..begin));
        both.into_iter()
            .flatten()
            .filter_map(move |number| self.address(number))
    }
}

/// Ranges and reservations of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    spans: Vec<Span>,
    reserved: BTreeMap<IpAddr, Reservation>,
}

impl Pool {
    /// Reads ranges and reservations of a network.
    ///
    /// # Errors
    /// [`PoolError::Malformed`].
    pub(super) fn new(spec: &NetworkSpec) -> Result<Self, PoolError> {
        let spans: Result<_, _> = spec.ranges.iter().map(Span::new).collect();
        let reserved = spec
            .reservations
            .iter()
            .map(|it| Ok((parse(&it.address)?, it.clone())));
        Ok(Self {
            spans: spans?,
            reserved: reserved.collect::<Result<_, _>>()?,
        })
    }

    /// Returns for each family with a range whether it is IPv4.
    pub(super) fn families(&self) -> impl Iterator<Item = bool> + '_ {
        let has_range = move |is_ipv4: &bool| self.spans.iter().any(|it| it.is_ipv4() == *is_ipv4);
        [true, false].into_iter().filter(has_range)
    }

    /// Returns the MAC address that is reserved for a pod, with one of its addresses.
    pub(super) fn mac(&self, pod: &str) -> Option<&str> {
        let mut of_pod = self.reserved.values().filter(|it| it.pod == pod);
        of_pod.find_map(|it| it.mac.as_deref())
    }

    fn is_gateway(&self, address: IpAddr) -> bool {
        self.spans.iter().any(|it| it.gateway == Some(address))
    }

    /// Checks that a pod may have an address, even if another pod has it now. It may be outside of the first and the last address of its range.
    ///
    /// # Errors
    /// [`PoolError::Outside`], [`PoolError::Reserved`].
    pub(super) fn check(&self, address: IpAddr, pod: &str) -> Result<(), PoolError> {
        let subnet = self.subnet(address);
        let is_usable = subnet.is_some_and(|subnet| {
            let edges = [subnet.network(), subnet.broadcast()];
            let has_edges = number(edges[1]).saturating_sub(number(edges[0])) > 1;
            let is_edge = address == edges[0] || (address.is_ipv4() && address == edges[1]);
            !(has_edges && is_edge)
        });
        if !is_usable || self.is_gateway(address) {
            return Err(PoolError::Outside(address));
        }
        match self.reserved.get(&address) {
            Some(it) if it.pod != pod => Err(PoolError::Reserved {
                address,
                pod: it.pod.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn subnet(&self, address: IpAddr) -> Option<IpNet> {
        let mut spans = self.spans.iter();
        spans
            .find(|it| it.subnet.contains(&address))
            .map(|it| it.subnet)
    }

    /// Returns a free address for a pod: the reserved one, or a free one of the ranges of its family in their order. `start`
    /// spreads the choices of nodes that choose at the same time.
    ///
    /// # Errors
    /// [`PoolError::Full`]; [`PoolError::Taken`]: another pod has the reserved address; [`PoolError::Outside`]: no range has it.
    pub(super) fn choose(
        &self,
        is_ipv4: bool,
        pod: &str,
        start: u64,
        taken: &BTreeSet<IpAddr>,
    ) -> Result<IpAddr, PoolError> {
        let mut reserved = self.reserved.iter();
        let own = reserved.find(|(address, it)| it.pod == pod && address.is_ipv4() == is_ipv4);
        if let Some((address, _)) = own {
            if self.subnet(*address).is_none() {
                return Err(PoolError::Outside(*address));
            }
            return match taken.contains(address) {
                true => Err(PoolError::Taken(*address)),
                false => Ok(*address),
            };
        }
        let is_free = |address: &IpAddr| {
            !taken.contains(address)
                && !self.reserved.contains_key(address)
                && !self.is_gateway(*address)
        };
        // The search ends at the latest one address after those that are in use, reserved or gateways.
        let spans = self.spans.iter().filter(|it| it.is_ipv4() == is_ipv4);
        let mut free = spans.filter_map(|span| span.addresses(start).find(&is_free));
        free.next().ok_or(PoolError::Full)
    }

    /// Returns an address with the length of its prefix and its gateway.
    pub(super) fn describe(&self, address: IpAddr) -> Option<(IpNet, Option<IpAddr>)> {
        let mut spans = self.spans.iter();
        let span = spans.find(|it| it.subnet.contains(&address))?;
        let net = IpNet::new(address, span.subnet.prefix_len()).ok()?;
        Some((net, span.gateway))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(subnet: &str) -> Range {
        Range {
            subnet: subnet.to_owned(),
            ..Range::default()
        }
    }

    fn pool(ranges: &[Range], reservations: &[(&str, &str)]) -> Pool {
        let reservation = |(address, pod): &(&str, &str)| Reservation {
            address: (*address).to_owned(),
            pod: (*pod).to_owned(),
            mac: Some("02:00:00:00:00:01".to_owned()),
        };
        Pool::new(&NetworkSpec {
            ranges: ranges.to_vec(),
            reservations: reservations.iter().map(reservation).collect(),
            ..NetworkSpec::default()
        })
        .unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn reservations_and_gateways_are_no_free_addresses() {
        let lan = Range {
            first: Some("10.66.0.10".to_owned()),
            last: Some("10.66.0.12".to_owned()),
            gateway: Some("10.66.0.11".to_owned()),
            ..range("10.66.0.0/24")
        };
        let kept = [
            ("10.66.0.10", "db"),
            ("10.66.0.40", "web"),
            ("10.67.0.1", "old"),
        ];
        let pool = pool(&[lan], &kept);
        let mut taken = BTreeSet::new();
        let choose = |pod: &str, taken: &BTreeSet<IpAddr>| pool.choose(true, pod, 0, taken);
        assert_eq!(choose("other", &taken), Ok(ip("10.66.0.12")));
        assert_eq!(choose("db", &taken), Ok(ip("10.66.0.10")));
        assert_eq!(choose("web", &taken), Ok(ip("10.66.0.40")));
        assert_eq!(
            choose("old", &taken),
            Err(PoolError::Outside(ip("10.67.0.1")))
        );
        assert_eq!(pool.mac("db"), Some("02:00:00:00:00:01"));
        assert_eq!(pool.mac("other"), None);
        taken.insert(ip("10.66.0.12"));
        assert_eq!(choose("other", &taken), Err(PoolError::Full));
        taken.insert(ip("10.66.0.10"));
        assert_eq!(
            choose("db", &taken),
            Err(PoolError::Taken(ip("10.66.0.10")))
        );
        assert_eq!(pool.choose(false, "other", 0, &taken), Err(PoolError::Full));
        let net: IpNet = "10.66.0.12/24".parse().unwrap();
        assert_eq!(
            pool.describe(ip("10.66.0.12")),
            Some((net, Some(ip("10.66.0.11"))))
        );
    }

    #[test]
    fn a_pod_may_request_addresses_of_its_network_only() {
        let lan = Range {
            first: Some("10.66.0.10".to_owned()),
            gateway: Some("10.66.0.1".to_owned()),
            ..range("10.66.0.0/24")
        };
        let pool = pool(&[lan, range("fd00:66::/64")], &[("10.66.0.20", "db")]);
        let check = |address: &str, pod: &str| pool.check(ip(address), pod);
        assert_eq!(check("10.66.0.2", "a"), Ok(()));
        assert_eq!(check("10.66.0.20", "db"), Ok(()));
        assert_eq!(check("fd00:66::5", "a"), Ok(()));
        for outside in [
            "10.66.0.0",
            "10.66.0.255",
            "10.66.0.1",
            "10.67.0.1",
            "fd00:66::",
        ] {
            let error = Err(PoolError::Outside(ip(outside)));
            assert_eq!(check(outside, "a"), error, "{outside}");
        }
        let error = check("10.66.0.20", "a").unwrap_err().to_string();
        assert_eq!(error, "10.66.0.20 is reserved for pod 'db'");
        assert_eq!(pool.families().collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn the_largest_ranges_have_addresses() {
        for (subnet, start) in [
            ("::/0", u64::MAX),
            ("fd00::/64", u64::MAX),
            ("fd00::/127", 1),
        ] {
            let pool = pool(&[range(subnet)], &[]);
            let first = pool.choose(false, "a", start, &BTreeSet::new()).unwrap();
            let second = pool.choose(false, "b", start, &BTreeSet::from([first]));
            assert_ne!(second.unwrap(), first, "{subnet}");
        }
        let host = pool(&[range("10.0.0.7/32")], &[]);
        let chosen = host.choose(true, "a", 3, &BTreeSet::new());
        assert_eq!(chosen, Ok(ip("10.0.0.7")));
    }

    proptest! {
        /// Every free address is found, and no other, compared with a list of all addresses.
        #[test]
        fn a_free_address_is_found_if_there_is_one(
            length in 26_u8..=32,
            bounds in any::<Option<(u8, u8)>>(),
            used in prop::collection::btree_set(0_u8..64, 0..64),
            reserved in prop::collection::btree_set(0_u8..64, 0..4),
            gateway in prop::option::of(0_u8..64),
            start in any::<u64>(),
        ) {
            let text = |octet: u8| format!("10.0.0.{octet}");
            let size = 1_u16 << (32 - length);
            let inside = |octet: u8| u16::from(octet) < size;
            let bounds = bounds.map(|(a, b)| (a % 64, b % 64)).filter(|(a, b)| inside(*a) && inside(*b));
            let gateway = gateway.filter(|octet| inside(*octet));
            let lan = Range {
                first: bounds.map(|(first, _)| text(first)),
                last: bounds.map(|(_, last)| text(last)),
                gateway: gateway.map(text),
                ..range(&format!("10.0.0.0/{length}"))
            };
            let names: Vec<String> = reserved.iter().map(|octet| text(*octet)).collect();
            let kept: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "db")).collect();
            let pool = pool(&[lan], &kept);
            let taken: BTreeSet<IpAddr> = used.iter().map(|octet| ip(&text(*octet))).collect();
            let (first, last) = bounds.unwrap_or((0, 63));
            let free: BTreeSet<IpAddr> = (0_u8..64)
                .filter(|octet| inside(*octet) && (first..=last).contains(octet))
                .filter(|octet| size <= 2 || (*octet != 0 && u16::from(*octet) != size - 1))
                .filter(|octet| !used.contains(octet) && !reserved.contains(octet) && gateway != Some(*octet))
                .map(|octet| ip(&text(octet)))
                .collect();
            match pool.choose(true, "web", start, &taken) {
                Ok(chosen) => prop_assert!(free.contains(&chosen), "{chosen} of {free:?}"),
                Err(error) => prop_assert!(free.is_empty(), "{error}: {free:?}"),
            }
        }
    }
}
