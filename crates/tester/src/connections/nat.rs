// SPDX-License-Identifier: Apache-2.0
//! Changes by a NAT between the ends: the server compares the source of each conversation with the one that the client names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::count;
use super::expected_nat::{Endpoint, ExpectedNat, NatCheck, NatCheckReport};

/// Translated addresses that are listed at most.
const ADDRESSES_MAX: usize = 4096;
/// Translations that are remembered at most, to compare later ones with them.
const MAPPINGS_MAX: usize = 1 << 18;

/// Translations that the server has observed.
#[derive(Debug)]
pub(crate) struct Translations {
    unchanged: u64,
    changed: u64,
    unlisted: u64,
    pool: HashMap<Ipv6Addr, PortRange>,
    mappings: HashMap<Endpoint, Endpoint>,
    same_mapping: u64,
    other_port: u64,
    other_address: u64,
    /// Check against an expectation; `None` without one.
    check: Option<NatCheck>,
}

#[derive(Clone, Copy, Debug)]
struct PortRange {
    conversations: u64,
    first: u16,
    last: u16,
}

/// Translations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranslationReport {
    /// Conversations whose source arrived unchanged.
    pub unchanged: u64,
    /// Conversations whose source arrived changed.
    pub changed: u64,
    /// Translated addresses, sorted.
    pub pool: Vec<PoolAddress>,
    /// Changed conversations with an address that is not in the list, because the list is full.
    pub unlisted: u64,
    /// Later conversations from the same address and port of the client with the same translation (RFC 4787, section 4.1).
    pub same_mapping: u64,
    /// Later conversations from the same address and port of the client with another port.
    pub other_port: u64,
    /// Later conversations from the same address and port of the client with another address.
    pub other_address: u64,
}

/// A translated address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolAddress {
    /// The address.
    pub address: IpAddr,
    /// Conversations from it.
    pub conversations: u64,
    /// Lowest port.
    pub first_port: u16,
    /// Highest port.
    pub last_port: u16,
}

impl Translations {
    /// Creates an empty record, with a check if a translation is expected. It allocates here, and never afterwards.
    pub(crate) fn new(expected: Option<&ExpectedNat>) -> Self {
        Self {
            unchanged: 0,
            changed: 0,
            unlisted: 0,
            pool: HashMap::with_capacity(ADDRESSES_MAX),
            mappings: HashMap::with_capacity(MAPPINGS_MAX),
            same_mapping: 0,
            other_port: 0,
            other_address: 0,
            check: expected.cloned().map(NatCheck::new),
        }
    }

    /// Returns the result of the check; `None` without an expectation.
    pub(crate) fn check_report(&self) -> Option<NatCheckReport> {
        self.check.as_ref().map(NatCheck::report)
    }

    /// Records a conversation: the source that the client names, and the source that arrived.
    pub(crate) fn note(&mut self, meant: Endpoint, arrived: Endpoint) {
        if let Some(check) = &mut self.check {
            check.note(meant, arrived, self.mappings.get(&meant).copied());
        }
        if meant == arrived {
            count(&mut self.unchanged);
            return;
        }
        count(&mut self.changed);
        let (address, port) = arrived;
        let has_space = self.pool.len() < ADDRESSES_MAX;
        match self.pool.get_mut(&address) {
            Some(range) => {
                count(&mut range.conversations);
                range.first = range.first.min(port);
                range.last = range.last.max(port);
            }
            None if has_space => {
                let range = PortRange {
                    conversations: 1,
                    first: port,
                    last: port,
                };
                self.pool.insert(address, range);
            }
            None => count(&mut self.unlisted),
        }
        match self.mappings.get(&meant) {
            Some(before) if *before == arrived => count(&mut self.same_mapping),
            Some((before, _)) if *before == address => count(&mut self.other_port),
            Some(_) => count(&mut self.other_address),
            None if self.mappings.len() < MAPPINGS_MAX => {
                self.mappings.insert(meant, arrived);
            }
            None => {}
        }
    }

    /// Returns the record as a report.
    pub(crate) fn report(&self) -> TranslationReport {
        let listed = self.pool.iter().map(|(address, range)| PoolAddress {
            address: address.to_canonical(),
            conversations: range.conversations,
            first_port: range.first,
            last_port: range.last,
        });
        let mut pool: Vec<PoolAddress> = listed.collect();
        pool.sort_by_key(|listed| listed.address);
        TranslationReport {
            unchanged: self.unchanged,
            changed: self.changed,
            pool,
            unlisted: self.unlisted,
            same_mapping: self.same_mapping,
            other_port: self.other_port,
            other_address: self.other_address,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn endpoint(last: u8, port: u16) -> Endpoint {
        (Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped(), port)
    }

    #[test]
    fn pool_ports_and_repeated_mappings_are_reported() {
        let mut observed = Translations::new(None);
        observed.note(endpoint(1, 10), endpoint(1, 10));
        for (meant, arrived) in [
            (endpoint(1, 10), endpoint(9, 5000)),
            (endpoint(2, 10), endpoint(8, 6000)),
            (endpoint(1, 10), endpoint(9, 5000)),
            (endpoint(1, 10), endpoint(9, 4000)),
            (endpoint(1, 10), endpoint(8, 5000)),
        ] {
            observed.note(meant, arrived);
        }
        let report = observed.report();
        assert_eq!(
            (report.unchanged, report.changed, report.unlisted),
            (1, 5, 0)
        );
        let again = (report.same_mapping, report.other_port, report.other_address);
        assert_eq!(again, (1, 1, 1));
        let pool: Vec<_> = report
            .pool
            .iter()
            .map(|it| {
                (
                    it.address.to_string(),
                    it.conversations,
                    it.first_port,
                    it.last_port,
                )
            })
            .collect();
        let expected: [(&str, u64, u16, u16); 2] =
            [("192.0.2.8", 2, 5000, 6000), ("192.0.2.9", 3, 4000, 5000)];
        let expected =
            expected.map(|(address, count, first, last)| (address.to_owned(), count, first, last));
        assert_eq!(pool, expected);
    }

    #[test]
    fn a_hostile_number_of_addresses_is_counted_and_not_listed() {
        let mut observed = Translations::new(None);
        for number in 0..10_000_u32 {
            let arrived = (Ipv4Addr::from(number).to_ipv6_mapped(), 1);
            observed.note(endpoint(1, 1), arrived);
        }
        let report = observed.report();
        assert_eq!(report.pool.len(), ADDRESSES_MAX);
        assert_eq!(report.unlisted, 10_000 - ADDRESSES_MAX as u64);
    }
}
