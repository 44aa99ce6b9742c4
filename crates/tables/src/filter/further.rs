// SPDX-License-Identifier: Apache-2.0
//! Fields that only some rules compare: MAC addresses, TCP flags, ICMP types and codes, DSCP. They are read only if there are such rules.

use quietwire_packet::{Fragment, IpProtocol, MacAddress, walk_ipv6_extensions};

use super::pattern::{IPV4, IPV4_HEADER, IPV6, IPV6_HEADER};
use super::rule_match::{FurtherMatch, OutMatch};
use super::sets::bit;
use crate::classifier::{Field, Key, Rule};
use crate::port_mask::PortMask;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMPV6: u8 = 58;
/// All bits of a MAC address.
const MAC: u64 = 0xffff_ffff_ffff;

/// Makes the key of a received frame that of one that leaves. `from` is the port that received it, if any did.
#[inline(always)]
pub(super) fn mark_output(key: &mut Key, from: Option<u16>) {
    key.set(Field::IS_OUT, 1);
    key.clear(Field::FROM_PORT);
    if let Some(port) = from.filter(|port| is_port(*port)) {
        key.set(Field::FROM_PORT, u32::from(port));
        key.set(Field::HAS_FROM_PORT, 1);
    }
}

/// Returns false for a number that no port has.
#[inline(always)]
fn is_port(number: u16) -> bool {
    usize::from(number) < PortMask::PORTS
}

/// Adds the condition that a rule for frames that leave requires.
fn required(rule: Rule, out: OutMatch) -> Rule {
    let rule = rule.with(Field::IS_OUT, 1);
    match out.from {
        Some(port) => received_by(rule, port),
        None => rule,
    }
}

/// Requires the port by which a frame leaves, or the one that received it.
fn with_port(rule: Rule, field: Field, port: u16) -> Rule {
    match is_port(port) {
        true => rule.with(field, u32::from(port)),
        // No frame passes a port that does not exist.
        false => rule.with_bits(Field::METADATA, bit(usize::MAX), bit(usize::MAX)),
    }
}

/// Adds the port that received a frame that leaves to a rule.
pub(super) fn received_by(rule: Rule, port: u16) -> Rule {
    with_port(rule, Field::FROM_PORT, port).with(Field::HAS_FROM_PORT, 1)
}

/// Returns a rule with each of several ports: the rule itself if there are none. `with` adds a port.
pub(super) fn for_each(
    ports: PortMask,
    rule: Rule,
    with: impl Fn(Rule, u16) -> Rule,
) -> impl Iterator<Item = Rule> {
    let one = ports.is_empty().then_some(rule);
    let each = ports.ports().map(move |port| with(rule, port));
    one.into_iter().chain(each)
}

/// Fields that some rule or set of a table compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) macs: bool,
    /// TCP flags, ICMP types or DSCP.
    pub(super) details: bool,
}

impl Compared {
    /// Returns true if no rule compares such fields.
    #[inline(always)]
    pub(super) const fn is_nothing(self) -> bool {
        !self.macs && !self.details
    }

    /// Returns these fields and others.
    pub(super) const fn with(self, other: Self) -> Self {
        Self {
            macs: self.macs || other.macs,
            details: self.details || other.details,
        }
    }
}

impl FurtherMatch {
    /// Returns the fields that are set.
    pub(super) fn compared(&self) -> Compared {
        Compared {
            macs: self.source_mac.is_some() || self.destination_mac.is_some(),
            details: self.tcp_flags.is_some() || self.icmp.is_some() || self.dscp.is_some(),
        }
    }

    /// Adds the port of a rule to it: the ingress port, or the one that frames leave by.
    pub(super) fn at_port(&self, rule: Rule, port: u16) -> Rule {
        match self.out {
            Some(_) => with_port(rule, Field::OUT_PORT, port),
            None => rule.with(Field::INGRESS_PORT, u32::from(port)),
        }
    }

    /// Adds the fields to a rule of the classifier.
    pub(super) fn compiled(&self, mut rule: Rule) -> Rule {
        let bits = |mac: Option<MacAddress>| mac.map_or((0, 0), |mac| (mac.to_u64(), MAC));
        if self.compared().macs {
            rule = rule.with_macs(bits(self.source_mac), bits(self.destination_mac));
        }
        if let Some(flags) = self.tcp_flags {
            rule = rule.with_tcp_flags(flags.value, flags.mask);
        }
        if let Some((kind, code)) = self.icmp {
            rule = rule.with_icmp(kind, code);
        }
        if let Some(dscp) = self.dscp {
            let value = u32::from(dscp.0);
            rule = rule.with(Field::DSCP, value).with(Field::HAS_DSCP, 1);
        }
        if let Some(tagged) = self.tagged {
            rule = rule.with(Field::IS_TAGGED, u32::from(tagged));
        }
        if let Some(out) = self.out {
            rule = required(rule, out);
        }
        rule
    }
}

impl Compared {
    /// Sets the fields of a frame in its key. `frame` begins with the MAC addresses, `rest` with the EtherType behind the tags.
    #[inline(never)]
    pub(super) fn read(self, frame: &[u8], rest: &[u8], key: &mut Key) {
        if self.macs
            && let Some((destination, octets)) = frame.split_first_chunk::<6>()
            && let Some(source) = octets.first_chunk::<6>()
        {
            key.set_macs(
                MacAddress(*source).to_u64(),
                MacAddress(*destination).to_u64(),
            );
        }
        if self.details {
            // Truncation keeps the fields read so far.
            let _ = read_details(rest, key);
        }
    }
}

/// Sets TCP flags, ICMP type and code, and DSCP.
fn read_details(rest: &[u8], key: &mut Key) -> Option<()> {
    let ([a, b], packet) = rest.split_first_chunk::<2>()?;
    match u16::from_be_bytes([*a, *b]) {
        IPV4 => {
            let header = packet.first_chunk::<IPV4_HEADER>()?;
            let length = usize::from(header[0] & 0xf).wrapping_mul(4);
            if header[0] >> 4 != 4 || length < IPV4_HEADER {
                return None;
            }
            set_dscp(key, header[1] >> 2);
            // Only the first fragment of a datagram has flags and types.
            let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
            let payload = packet.get(length..).filter(|_| is_first)?;
            read_transport(header[9], ICMP, payload, key)
        }
        IPV6 => {
            let header = packet.first_chunk::<IPV6_HEADER>()?;
            if header[0] >> 4 != 6 {
                return None;
            }
            // The traffic class is behind the version; its first six bits are the DSCP (RFC 8200, section 7).
            set_dscp(key, ((header[0] & 0xf) << 2) | (header[1] >> 6));
            let payload = packet.get(IPV6_HEADER..)?;
            let walked = walk_ipv6_extensions(IpProtocol(header[6]), payload).ok()?;
            if walked.fragment == Fragment::Later {
                return None;
            }
            read_transport(
                walked.protocol.0,
                ICMPV6,
                payload.get(walked.length..)?,
                key,
            )
        }
        _ => None,
    }
}

fn set_dscp(key: &mut Key, dscp: u8) {
    key.set(Field::DSCP, u32::from(dscp));
    key.set(Field::HAS_DSCP, 1);
}

/// Sets TCP flags, or the type and code of `icmp`, the protocol number of ICMP in this version of IP.
fn read_transport(protocol: u8, icmp: u8, payload: &[u8], key: &mut Key) -> Option<()> {
    if protocol == TCP {
        // RFC 9293, section 3.1: the flags are the 14th octet.
        key.set(Field::TCP_FLAGS, u32::from(*payload.get(13)?));
        key.set(Field::HAS_TCP_FLAGS, 1);
    } else if protocol == icmp {
        let [kind, code] = *payload.first_chunk::<2>()?;
        key.set_icmp(kind, code);
    }
    Some(())
}
