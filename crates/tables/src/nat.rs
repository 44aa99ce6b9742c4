// SPDX-License-Identifier: Apache-2.0
//! NAT44: translation of IPv4 addresses and ports between an inside and an outside.
//!
//! By default, a mapping belongs to an inside endpoint (address, port, protocol) and an external endpoint, whatever the remote hosts:
//! endpoint-independent mapping (RFC 4787, REQ-1; RFC 5382, REQ-1; RFC 5508, REQ-1) and filtering (RFC 4787, REQ-8; RFC 5382, REQ-3). Rules
//! on the state of connections ([`crate::connections`]) filter by remote hosts, and so does address-dependent filtering
//! ([`FilteringBehaviour`]). With another [`MappingBehaviour`], a mapping also depends on the remote address, or on the remote address and
//! port, and accepts packets of these only. That does not conform to REQ-1.
//!
//! Each forwarding thread has its own [`Nat`], without locks. [`Nat::new`] makes all allocations, and every operation takes a bounded number
//! of steps. A mapping takes 32 octets, its index 8 to 16, and each external address 768 KiB: the table from external ports to mappings, by
//! which no two mappings share an external endpoint (RFC 4787, REQ-3; RFC 5382, REQ-7: no port overloading).
//!
//! With several forwarding CPUs, each has a [`Share`](crate::share::Share) of the port blocks, and those of a host are all on one CPU,
//! except for packets to external addresses of hosts of other CPUs. So the port of an answer determines the CPU that translates it.
//!
//! The numbers of IPv6 clients ([`crate::nat64`]) are inside addresses too. No packet from outside has one as its source.
//! [`crate::nat66`] has a NAT of its own, in which numbers stand for inside and external addresses.
//!
//! Hosts with a one-to-one translation ([`Pair`]) keep their ports, have no mappings, and are reached from the outside at any port.
//!
//! A host has blocks of ports of one external address (RFC 4787, REQ-2: paired), and gets them when it needs them. Only blocks have
//! to be logged (RFC 6888, REQ-14): [`Nat::take_events`].
//!
//! | requirement | here |
//! |---|---|
//! | RFC 4787, REQ-3a: ports stay below 1024, or from 1024 on | if the pool has ports of both ranges, and the host can have a block of this one |
//! | RFC 4787, REQ-4: parity of the port | preserved if the host has a port of that parity left |
//! | RFC 4787, REQ-5; RFC 5382, REQ-5; RFC 5508, REQ-2: timeouts | [`NatTimeouts`] |
//! | RFC 4787, REQ-6: outbound packets refresh | yes; inbound packets only for IPv6 clients (RFC 6146, section 3.5) |
//! | RFC 7857, section 7.1: resets and ICMP errors of a host do not refresh | yes |
//! | RFC 4787, REQ-9; RFC 5382, REQ-8; RFC 5508, REQ-7: hairpinning | yes, with external source addresses |
//! | RFC 4787, REQ-12; RFC 5382, REQ-10; RFC 5508, REQ-6: errors end no mapping | yes; errors change nothing |
//! | RFC 5382, REQ-2: all sequences of TCP, simultaneous open included | yes |
//! | RFC 5382, REQ-4: no answer to unsolicited SYNs | none is sent |
//! | RFC 5382, REQ-9; RFC 5508, REQ-3, REQ-4, REQ-5: errors are translated | yes, with the packets in them |
//! | RFC 4787, REQ-14, REQ-14a: fragments | those behind the first one; others [wait](crate::fragment_order) or are dropped ([`NatDrop::Fragment`]) |
//! | RFC 4787, REQ-7: conflicts with an external address that the network assigns | external addresses are configured |
//! | RFC 4787, REQ-10; RFC 5382, REQ-6: gateways of applications are disabled | there are none: the data of packets stays |
//! | RFC 4787, REQ-11: the same behaviour at any time | yes |
//! | RFC 4787, REQ-13; RFC 5508, REQ-10: errors of the router itself | yes, about the packet as its sender has sent it |
//! | RFC 5508, REQ-8; RFC 6888, REQ-11: errors about packets without space | yes, except for packets between inside hosts ([`RouterDrop`]) |
//! | RFC 5508, REQ-11: other ICMP messages | dropped ([`NatDrop::IcmpType`]) |
//! | RFC 6888, REQ-1, REQ-2 and REQ-7: requirements of the other RFCs | as above |
//! | RFC 6888, REQ-3: size and contiguity of the pool | up to [`EXTERNALS_MAX`] addresses, contiguous or not |
//! | RFC 6888, REQ-4 and REQ-5: limits of ports and memory of a subscriber | port blocks of a host |
//! | RFC 6888, REQ-6: destinations without translation | the caller does not pass their packets |
//! | RFC 6888, REQ-8: no new mapping of a port for 120 s after its last one | no other host has the block ([`HoldDown`]); computed blocks have one host each |
//! | RFC 6888, REQ-9: PCP | no |
//! | RFC 6888, REQ-10: management | mappings are listed, filtered and flushed |
//! | RFC 6888, REQ-12: no destinations in the log | none ([`BlockEvent`], [`MappingEvent`]) |
//! | RFC 6888, REQ-13: use of all ports | a host uses all ports of its blocks |
//! | RFC 6888, REQ-15: ports that are hard to guess | drawn at random in the blocks of the host |
//! | RFC 7422: blocks that are computed from the address of the host | [`PortPool::deterministic`] |
//! | RFC 6864, section 5.3.1: identifications of an external address | fragmented datagrams get one of the translator |
//!
//! [`RouterDrop`]: crate::drops::RouterDrop::is_without_space

mod behaviour;
mod deterministic;
mod event;
mod filtering;
pub(crate) mod first_fragment;
mod free_blocks;
mod joined;
mod mapping;
mod names;
pub(crate) mod packet;
mod pairs;
mod pool;
mod replicate_ipv6;
pub(crate) mod rewrite;
mod saved;
mod saved_ipv6;
mod settings;
#[cfg(test)]
mod tests;
mod translator;

pub use behaviour::MappingBehaviour;
pub(crate) use deterministic::Deterministic;
pub use event::{BlockEvent, EventKinds, LimitEvent, MappingEvent, NatEvent, NatLimit};
pub use filtering::FilteringBehaviour;
pub use mapping::MappingInfo;
pub(crate) use names::{CLIENT_NUMBERS, HOST_ELSEWHERE};
pub use names::{NatDrop, NatProtocol, is_client_number};
pub use pool::PoolGrowth;
pub use replicate_ipv6::{ChangesIpv6, ReplicateIpv6};
pub use saved::{MappingChange, SAVED_MAPPING_OCTETS, SAVED_MAPPING_VERSION, SavedMapping};
pub use saved_ipv6::{SAVED_MAPPING_IPV6_OCTETS, SavedMappingIpv6};
pub use settings::{
    EXTERNALS_MAX, FORWARDS_MAX, Forward, HoldDown, MAPPINGS_MAX, NatSettings, NatSettingsError,
    NatTimeouts, PAIRS_MAX, Pair, PortPool,
};
pub use translator::{Nat, NatCounters, NatOutcome};
