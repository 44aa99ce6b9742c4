// SPDX-License-Identifier: Apache-2.0
//! A description prepared for the packet path: what each conversation does follows from its number.

use std::net::{IpAddr, Ipv6Addr};

use quietwire_base::random::mix;

use super::description::{Connections, Conversation, Size, TransportProtocol};
use super::expected_nat::ExpectedNat;
use super::piece::Shape;
use super::tcp::Settings;
use super::udp::Rhythm;

/// Largest retransmission timeout (RFC 6298, section 2.5), nanoseconds.
const TIMEOUT_MAX_NS: u64 = 60_000_000_000;

/// Consecutive addresses of one end. IPv4 addresses are mapped (RFC 4291, section 2.5.5.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange {
    first: u128,
    count: u32,
}

impl AddressRange {
    pub(crate) fn new(first: IpAddr, count: u32) -> Self {
        let first = match first {
            IpAddr::V4(first) => first.to_ipv6_mapped(),
            IpAddr::V6(first) => first,
        };
        Self {
            first: first.to_bits(),
            count,
        }
    }

    /// Returns the address with a number.
    pub(crate) fn address(&self, number: u16) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.first.wrapping_add(u128::from(number)))
    }

    /// Returns the address that a random number selects.
    pub(crate) fn one_of(&self, random: u64) -> Ipv6Addr {
        let number = random.checked_rem(u64::from(self.count)).unwrap_or(0);
        self.address(u16::try_from(number).unwrap_or(0))
    }

    /// Returns the number of an address; `None` if it is not in the range.
    pub(crate) fn number(&self, address: Ipv6Addr) -> Option<u16> {
        let number = address.to_bits().checked_sub(self.first)?;
        let number = u32::try_from(number).ok()?;
        u16::try_from(number).ok().filter(|_| number < self.count)
    }
}

/// One kind of conversation.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) protocol: TransportProtocol,
    pub(crate) port: u16,
    /// Requests, and their rhythm in UDP.
    pub(crate) rhythm: Rhythm,
    request: (u32, u32),
    answer: (u32, u32),
    /// Random numbers up to this one select this entry or one before it.
    up_to: u64,
}

/// Task of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Index of the class.
    pub(crate) class: u8,
    /// Address of the server.
    pub(crate) server: Ipv6Addr,
    /// Length of a request and of an answer, octets.
    pub(crate) request: u32,
    pub(crate) answer: u32,
}

/// A prepared flood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloodPlan {
    /// SYNs per second.
    pub(crate) rate: f64,
    pub(crate) sources: AddressRange,
}

/// Prepared fragmented datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentPlan {
    /// Datagrams per second.
    pub(crate) rate: f64,
    pub(crate) sources: AddressRange,
    pub(crate) port: u16,
    pub(crate) shape: Shape,
}

/// A prepared description.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) seed: u64,
    pub(crate) open_max: u32,
    pub(crate) clients: AddressRange,
    pub(crate) servers: AddressRange,
    /// Translation that is expected at the server.
    pub(crate) expected_nat: Option<ExpectedNat>,
    /// Flood beside the conversations.
    pub(crate) flood: Option<FloodPlan>,
    /// Illegal SYNs beside the conversations, and their port unless it is that of the flood.
    pub(crate) illegal: Option<(FloodPlan, Option<u16>)>,
    /// Fragmented datagrams beside the conversations.
    pub(crate) fragments: Option<FragmentPlan>,
    first_port: u16,
    /// Ports of an address.
    ports: u32,
    classes: Vec<Class>,
}

/// Returns nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a description are positive and at most a day"
)]
fn nanoseconds(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Returns a share of all random numbers, 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is 0 to 1, and the cast saturates"
)]
fn part_of_all(share: f64) -> u64 {
    (share * 18_446_744_073_709_551_616.0) as u64
}

fn class(description: &Connections, entry: &Conversation, up_to: u64) -> Class {
    let bounds = Size::bounds;
    Class {
        protocol: entry.protocol,
        port: entry.port,
        rhythm: Rhythm {
            count: entry.requests(),
            interval_ns: entry.interval_ms.map(nanoseconds),
            think_ns: nanoseconds(entry.think_ms),
            timeout_ns: nanoseconds(description.answer_timeout_ms),
        },
        request: bounds(entry.request),
        answer: bounds(entry.answer),
        up_to,
    }
}

/// Returns a number within bounds.
fn drawn((smallest, largest): (u32, u32), random: u64) -> u32 {
    let values = u64::from(largest.saturating_sub(smallest)).saturating_add(1);
    let more = random.checked_rem(values).unwrap_or(0);
    smallest.saturating_add(u32::try_from(more).unwrap_or(0))
}

impl Plan {
    /// Prepares a valid description.
    pub(crate) fn new(description: &Connections) -> Self {
        let all: f64 = description.mix.iter().map(|entry| entry.share).sum();
        let mut share = 0.0;
        let mut classes = Vec::new();
        for entry in &description.mix {
            share += entry.share / all;
            classes.push(class(description, entry, part_of_all(share)));
        }
        if let Some(last) = classes.last_mut() {
            last.up_to = u64::MAX;
        }
        let [first_port, last_port] = description.client.ports;
        let is_ipv4 = description.server.address.is_ipv4();
        let seed = mix(description.seed);
        Self {
            settings: Settings {
                segment_max: description.mss(),
                window: description.window,
                timeout_ns: (nanoseconds(description.rto_min_ms), TIMEOUT_MAX_NS),
                syn_retries: description.syn_retries,
                retries: description.retries,
                idle_ns: nanoseconds(description.idle_timeout_ms),
                time_wait_ns: nanoseconds(description.time_wait_ms),
            },
            seed,
            open_max: description.open_max,
            clients: AddressRange::new(description.client.address, description.client.count),
            servers: AddressRange::new(description.server.address, description.server.count),
            expected_nat: description.nat.clone(),
            flood: description.flood.as_ref().map(|flood| FloodPlan {
                rate: flood.rate,
                sources: AddressRange::new(flood.first_address(is_ipv4), flood.count),
            }),
            illegal: description.illegal.as_ref().map(|illegal| {
                let flood = FloodPlan {
                    rate: illegal.rate,
                    sources: AddressRange::new(illegal.first_address(is_ipv4), illegal.count),
                };
                (flood, illegal.port)
            }),
            fragments: description
                .fragments
                .as_ref()
                .map(|fragments| FragmentPlan {
                    rate: fragments.rate,
                    sources: AddressRange::new(fragments.first_address(is_ipv4), fragments.count),
                    port: fragments.port,
                    shape: Shape {
                        seed: mix(seed ^ 5),
                        count: fragments.fragments,
                        octets: fragments.octets,
                    },
                }),
            first_port,
            ports: u32::from(last_port.saturating_sub(first_port)).saturating_add(1),
            classes,
        }
    }

    /// Returns a class.
    pub(crate) fn class(&self, index: u8) -> Option<&Class> {
        self.classes.get(usize::from(index))
    }

    /// Returns the number of classes.
    pub(crate) fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// Returns true if a class of this protocol uses the server's port.
    pub(crate) fn serves(&self, protocol: TransportProtocol, port: u16) -> bool {
        let mut classes = self.classes.iter();
        classes.any(|class| class.protocol == protocol && class.port == port)
    }

    /// Returns true if an address is a source of the flood.
    pub(crate) fn is_of_flood(&self, address: Ipv6Addr) -> bool {
        let flood = self.flood.as_ref();
        flood.is_some_and(|flood| flood.sources.number(address).is_some())
    }

    /// Returns true if an address is a source of illegal SYNs.
    pub(crate) fn is_of_illegal(&self, address: Ipv6Addr) -> bool {
        let illegal = self.illegal.as_ref();
        illegal.is_some_and(|(flood, _)| flood.sources.number(address).is_some())
    }

    /// Returns the port of the servers that the flood is for: that of the first class over TCP.
    pub(crate) fn flooded_port(&self) -> Option<u16> {
        let mut classes = self.classes.iter();
        let first = classes.find(|class| class.protocol == TransportProtocol::Tcp);
        first.map(|class| class.port)
    }

    /// Returns the number of the client's address, and the port, of the `turn`-th endpoint. Addresses take turns, then ports.
    pub(crate) fn client_endpoint(&self, turn: u64) -> (u16, u16) {
        let addresses = u64::from(self.clients.count);
        let endpoints = addresses.saturating_mul(u64::from(self.ports));
        let index = turn.checked_rem(endpoints).unwrap_or(0);
        let address = index.checked_rem(addresses).unwrap_or(0);
        let address = u16::try_from(address).unwrap_or(0);
        let port = index.checked_div(addresses).unwrap_or(0);
        let port = u16::try_from(port).unwrap_or(0);
        (address, self.first_port.saturating_add(port))
    }

    /// Returns the task of the conversation with a number.
    pub(crate) fn task(&self, number: u64) -> Task {
        let random = mix(self.seed ^ mix(number));
        let selected = self.classes.iter().position(|class| random <= class.up_to);
        let index = u8::try_from(selected.unwrap_or(0)).unwrap_or(0);
        let sizes = (mix(random ^ 1), mix(random ^ 2));
        let (request, answer) = self.class(index).map_or((0, 0), |class| {
            (drawn(class.request, sizes.0), drawn(class.answer, sizes.1))
        });
        Task {
            class: index,
            server: self.servers.one_of(mix(random ^ 3)),
            request,
            answer,
        }
    }

    /// Returns the initial sequence number of a connection (RFC 9293, section 3.4.1): it follows from its number and its end.
    pub(crate) fn initial_sequence(&self, number: u64, end: u64) -> u32 {
        let [a, b, c, d, ..] = mix(self.seed.rotate_left(17) ^ mix(number) ^ end).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::new(&Connections::parse(text, Path::new("c.toml")).unwrap())
    }

    #[test]
    fn conversations_follow_the_mix() {
        let plan = plan(
            "[connections.server]\ncount = 10\n\
             [[connections.mix]]\nname = \"a\"\nshare = 3.0\nport = 80\nrequest = [100, 200]\nanswer = 5\n\
             [[connections.mix]]\nname = \"b\"\nport = 81\nrequest = 60\nanswer = 7\n",
        );
        let tasks: Vec<Task> = (0..10_000).map(|number| plan.task(number)).collect();
        let first = tasks.iter().filter(|task| task.class == 0).count();
        assert!((7_200..7_800).contains(&first), "{first}");
        let sizes: BTreeSet<u32> = tasks
            .iter()
            .filter(|task| task.class == 0)
            .map(|task| task.request)
            .collect();
        assert_eq!(
            (sizes.first(), sizes.last(), sizes.len()),
            (Some(&100), Some(&200), 101)
        );
        assert!(
            tasks
                .iter()
                .all(|task| task.answer == if task.class == 0 { 5 } else { 7 })
        );
        let servers: BTreeSet<Ipv6Addr> = tasks.iter().map(|task| task.server).collect();
        assert_eq!(servers.len(), 10);
        assert!(
            servers
                .iter()
                .all(|server| plan.servers.number(*server).is_some())
        );
        assert_eq!(plan.task(17), tasks[17]);
    }

    #[test]
    fn every_endpoint_is_used_before_one_repeats() {
        let plan = plan("[connections.client]\ncount = 3\nports = [65534, 65535]\n");
        let endpoints: Vec<(u16, u16)> = (0..7).map(|turn| plan.client_endpoint(turn)).collect();
        let different: BTreeSet<_> = endpoints.iter().take(6).collect();
        assert_eq!(different.len(), 6);
        assert_eq!(endpoints[..3], [(0, 65534), (1, 65534), (2, 65534)]);
        assert_eq!(endpoints[6], endpoints[0]);
    }

    #[test]
    fn addresses_have_numbers() {
        let range = AddressRange::new("198.18.0.254".parse().unwrap(), 3);
        assert_eq!(range.address(2).to_canonical().to_string(), "198.18.1.0");
        let number = |text: &str| {
            let address = match text.parse().unwrap() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            range.number(address)
        };
        assert_eq!(number("198.18.1.0"), Some(2));
        for outside in ["198.18.0.253", "198.18.1.1", "::1", "ffff::1"] {
            assert_eq!(number(outside), None, "{outside}");
        }
    }
}
