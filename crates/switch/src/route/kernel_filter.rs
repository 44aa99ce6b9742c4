// SPDX-License-Identifier: Apache-2.0
//! Packets that the kernel is to have although they are not for the router's own addresses: those that rules match go to the
//! tap of the interface that they came in by, instead of on.
//!
//! The rules are looked at one by one, after everything else was decided. Without rules there is none of this: a burst
//! costs one look at an `Option`.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, Fragment, Ipv6Header, walk_ipv6_extensions};

use super::decision::{Decision, Decisions, DropReason, Punt};
use super::header::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use super::interfaces::Interfaces;

/// Rules that there can be.
pub const FILTER_RULES_MAX: usize = 64;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// What a rule asks of a packet; what it does not name may be anything. Rules about IP match no fragment but the first
/// when they name ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterRule {
    /// Number of the interface that the packet came in by.
    pub interface: Option<u16>,
    /// Number of the VRF of that interface.
    pub vrf: Option<u16>,
    /// What the frame carries.
    pub ethertype: Option<u16>,
    /// What the IP packet carries, behind extension headers too.
    pub protocol: Option<u8>,
    /// Where the packet is from.
    pub source: Option<IpNet>,
    /// Where it is to go.
    pub destination: Option<IpNet>,
    /// First and last source port.
    pub source_ports: Option<(u16, u16)>,
    /// First and last destination port.
    pub destination_ports: Option<(u16, u16)>,
}

/// A rule as it is compared: numbers only, so that most rules are done with after a word or two.
#[derive(Clone, Copy, Debug)]
struct Flat {
    /// [`ANY`] or a number.
    interface: u32,
    vrf: u32,
    ethertype: u32,
    protocol: u32,
    /// Bits of addresses, and which of them count. IPv4 addresses are as in RFC 4291, section 2.5.5.2.
    source: (u128, u128),
    destination: (u128, u128),
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
    needs_ports: bool,
}

const ANY: u32 = u32::MAX;

/// What is seen of a packet.
#[derive(Clone, Copy, Debug)]
struct Seen {
    interface: u32,
    vrf: u32,
    ethertype: u32,
    /// [`ANY`] where there is none: only rules that do not ask match it.
    protocol: u32,
    source: u128,
    destination: u128,
    ports: Option<(u16, u16)>,
}

/// All rules, with what they have matched.
#[derive(Debug)]
pub struct KernelFilter {
    rules: Vec<Flat>,
    matched: Vec<Arc<AtomicU64>>,
    /// By number of the interface: whether it has a tap.
    taps: Vec<bool>,
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Bits of a prefix, and which of them count.
fn bits_of(prefix: Option<IpNet>) -> (u128, u128) {
    let Some(prefix) = prefix else {
        return (0, 0);
    };
    let beyond = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
    // Of a.b.c.d/0 what makes it an IPv4 address counts still.
    let mask = u128::MAX.checked_shl(beyond).unwrap_or(0);
    (mapped(prefix.addr()) & mask, mask)
}

impl Flat {
    fn new(rule: &FilterRule) -> Self {
        let number = |one: Option<u16>| one.map_or(ANY, u32::from);
        let all = (0, u16::MAX);
        let prefix = rule.source.or(rule.destination);
        let ethertype = prefix.map(|prefix| match prefix {
            IpNet::V4(_) => ETHERTYPE_IPV4,
            IpNet::V6(_) => ETHERTYPE_IPV6,
        });
        Self {
            interface: number(rule.interface),
            vrf: number(rule.vrf),
            ethertype: number(ethertype.or(rule.ethertype)),
            protocol: rule.protocol.map_or(ANY, u32::from),
            source: bits_of(rule.source),
            destination: bits_of(rule.destination),
            source_ports: rule.source_ports.unwrap_or(all),
            destination_ports: rule.destination_ports.unwrap_or(all),
            needs_ports: rule.source_ports.is_some() || rule.destination_ports.is_some(),
        }
    }

    #[inline(always)]
    fn matches(&self, seen: &Seen) -> bool {
        let is = |asked: u32, is: u32| asked == ANY || asked == is;
        let within = |address: u128, (bits, mask): (u128, u128)| address & mask == bits;
        let among = |port: u16, (first, last): (u16, u16)| (first..=last).contains(&port);
        is(self.ethertype, seen.ethertype)
            && is(self.protocol, seen.protocol)
            && is(self.interface, seen.interface)
            && is(self.vrf, seen.vrf)
            && within(seen.destination, self.destination)
            && within(seen.source, self.source)
            && (!self.needs_ports
                || seen.ports.is_some_and(|(from, to)| {
                    among(from, self.source_ports) && among(to, self.destination_ports)
                }))
    }
}

impl Seen {
    #[inline(always)]
    fn read(frame: &[u8], interface: u16, vrf: u16) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
        let [.., a, b] = *ethernet;
        let ethertype = u16::from_be_bytes([a, b]);
        let mut seen = Self {
            interface: u32::from(interface),
            vrf: u32::from(vrf),
            ethertype: u32::from(ethertype),
            protocol: ANY,
            source: 0,
            destination: 0,
            ports: None,
        };
        match ethertype {
            ETHERTYPE_IPV4 => seen.read_v4(packet)?,
            ETHERTYPE_IPV6 => seen.read_v6(packet)?,
            _ => {}
        }
        Some(seen)
    }

    #[inline(always)]
    fn read_v4(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<IPV4_HEADER>()?;
        let [.., a, b, c, d, e, f, g, h] = *header;
        self.source = mapped(IpAddr::from([a, b, c, d]));
        self.destination = mapped(IpAddr::from([e, f, g, h]));
        self.protocol = u32::from(header[9]);
        // Of a datagram in pieces the first one has the ports.
        if u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0 {
            self.read_ports(packet.get(usize::from(header[0] & 0xf) * 4..)?);
        }
        Some(())
    }

    #[inline(always)]
    fn read_v6(&mut self, packet: &[u8]) -> Option<()> {
        let (header, addresses) = packet.split_first_chunk::<8>()?;
        let (source, rest) = addresses.split_first_chunk::<16>()?;
        self.source = u128::from_be_bytes(*source);
        self.destination = u128::from_be_bytes(*rest.first_chunk::<16>()?);
        let payload = packet.get(IPV6_HEADER..)?;
        let (protocol, payload) = match header[6] {
            // Most packets have no extension headers.
            protocol @ (6 | 17 | 58) => (protocol, Some(payload)),
            _ => {
                let (header, payload) = Ipv6Header::split(packet).ok()?;
                match walk_ipv6_extensions(header.next_header(), payload) {
                    Ok(walked) if walked.fragment == Fragment::Later => (walked.protocol.0, None),
                    Ok(walked) => (walked.protocol.0, payload.get(walked.length..)),
                    // What cannot be walked over has its addresses nevertheless.
                    Err(_) => return Some(()),
                }
            }
        };
        self.protocol = u32::from(protocol);
        if let Some(payload) = payload {
            self.read_ports(payload);
        }
        Some(())
    }

    #[inline(always)]
    fn read_ports(&mut self, payload: &[u8]) {
        if has_ports(self.protocol)
            && let Some([a, b, c, d]) = payload.first_chunk::<4>()
        {
            self.ports = Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
        }
    }
}

/// TCP, UDP, DCCP, SCTP, UDP-Lite: source and destination port come first.
#[inline(always)]
const fn has_ports(protocol: u32) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

/// Whether rules may say otherwise. What is damaged, for another station, or from a source that is not to be believed, stays
/// dropped; what goes to the service thread for the router's own sake gets to the kernel from there.
#[inline(always)]
const fn is_open(decision: Decision) -> bool {
    match decision {
        Decision::Forward(_) | Decision::Fragment(_) => true,
        Decision::Punt(punt) => !matches!(punt, Punt::Arp | Punt::ForUs),
        Decision::Drop(reason) => matches!(
            reason,
            DropReason::UnknownProtocol
                | DropReason::Martian
                | DropReason::Multicast
                | DropReason::Blackhole
        ),
    }
}

impl KernelFilter {
    /// Of rules, each with the count of what it matched, and the numbers of the interfaces that have taps. Rules beyond
    /// [`FILTER_RULES_MAX`] are left out.
    #[must_use]
    pub fn new(
        rules: impl IntoIterator<Item = (FilterRule, Arc<AtomicU64>)>,
        taps: impl IntoIterator<Item = u16>,
    ) -> Self {
        let (rules, matched) = rules
            .into_iter()
            .take(FILTER_RULES_MAX)
            .map(|(rule, matched)| (Flat::new(&rule), matched))
            .unzip();
        let mut has_tap = Vec::new();
        for interface in taps.into_iter().map(usize::from) {
            if has_tap.len() <= interface {
                has_tap.resize(interface + 1, false);
            }
            has_tap[interface] = true;
        }
        Self {
            rules,
            matched,
            taps: has_tap,
        }
    }

    /// Changes decisions on frames that a rule matches; the first one that does counts it.
    #[inline(never)]
    pub(super) fn apply<'a>(
        &self,
        all: &Interfaces,
        frames: impl Iterator<Item = &'a [u8]>,
        interfaces: &[u16],
        decisions: &mut Decisions,
    ) {
        let mut matched = [0u64; FILTER_RULES_MAX];
        for (place, (frame, number)) in frames.zip(interfaces).enumerate() {
            let Some(decision) = decisions.get(place) else {
                break;
            };
            let has_tap = self.taps.get(usize::from(*number)) == Some(&true);
            if !has_tap || !is_open(decision) {
                continue;
            }
            let Some(interface) = all.get(*number) else {
                continue;
            };
            let Some(seen) = Seen::read(frame, *number, interface.vrf) else {
                continue;
            };
            let mut rules = self.rules.iter().zip(&mut matched);
            if let Some((_, count)) = rules.find(|(rule, _)| rule.matches(&seen)) {
                *count += 1;
                decisions.set(place, Decision::Punt(Punt::KernelFilter));
            }
        }
        for (sum, count) in self.matched.iter().zip(matched) {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
