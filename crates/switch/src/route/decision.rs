// SPDX-License-Identifier: Apache-2.0
//! What can become of a packet.

use quietwire_dpdk::BURST_MAX;
use quietwire_packet::MacAddress;

/// Why a packet goes to the service thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Punt {
    /// ARP, for the interface's neighbours (RFC 826).
    Arp,
    /// It is for the router itself, or for a group that it may be in.
    ForUs,
    /// The neighbour that it is to go to is not known: it waits while the neighbour is asked for.
    Neighbour,
    /// There is no route (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
    NoRoute,
    /// The route says that there is no way.
    Unreachable,
    /// The route says that it may not.
    Prohibited,
    /// Its time to live is over (RFC 1812, section 5.3.1; RFC 8200, section 3).
    TimeExceeded,
    /// It is larger than the next link takes, and may not be cut (RFC 1191, RFC 8201).
    TooBig,
    /// A rule gives it to the kernel.
    KernelFilter,
}

impl Punt {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Arp,
        Self::ForUs,
        Self::Neighbour,
        Self::NoRoute,
        Self::Unreachable,
        Self::Prohibited,
        Self::TimeExceeded,
        Self::TooBig,
        Self::KernelFilter,
    ];

    /// Its name, in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::ForUs => "for-us",
            Self::Neighbour => "neighbour",
            Self::NoRoute => "no-route",
            Self::Unreachable => "unreachable",
            Self::Prohibited => "prohibited",
            Self::TimeExceeded => "time-exceeded",
            Self::TooBig => "too-big",
            Self::KernelFilter => "kernel-filter",
        }
    }
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropReason {
    /// No interface has frames of this VLAN, or without a tag.
    NoInterface,
    /// The frame is for another station.
    NotForUs,
    /// Neither IPv4, IPv6 nor ARP, or the interface has no address of its kind.
    UnknownProtocol,
    /// The header is shorter than it has to be, or lies about its lengths (RFC 1812, section 5.2.2).
    HeaderError,
    /// The checksum of the IPv4 header is wrong.
    ChecksumError,
    /// An address that nobody can have there (RFC 1812, section 5.3.7; RFC 3927; RFC 4291; RFC 6890).
    Martian,
    /// The source has no way back (RFC 3704).
    Urpf,
    /// A packet to one station in a frame to many (RFC 1812, section 5.3.4).
    BroadcastFrame,
    /// A group or broadcast address that is not forwarded.
    Multicast,
    /// The sender chose the way (RFC 7126, sections 4.3 and 4.4).
    SourceRoute,
    /// The route says so.
    Blackhole,
    /// A piece of a packet that would have to be cut once more, and ends beyond the largest packet (RFC 791, section 3.1).
    FragmentOffset,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::NoInterface,
        Self::NotForUs,
        Self::UnknownProtocol,
        Self::HeaderError,
        Self::ChecksumError,
        Self::Martian,
        Self::Urpf,
        Self::BroadcastFrame,
        Self::Multicast,
        Self::SourceRoute,
        Self::Blackhole,
        Self::FragmentOffset,
    ];

    /// Its name, in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoInterface => "no-interface",
            Self::NotForUs => "not-for-us",
            Self::UnknownProtocol => "unknown-protocol",
            Self::HeaderError => "header-error",
            Self::ChecksumError => "checksum-error",
            Self::Martian => "martian",
            Self::Urpf => "urpf",
            Self::BroadcastFrame => "broadcast-frame",
            Self::Multicast => "multicast",
            Self::SourceRoute => "source-route",
            Self::Blackhole => "blackhole",
            Self::FragmentOffset => "fragment-offset",
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on by this interface, to this neighbour.
    Forward {
        /// Number of the interface.
        interface: u16,
        /// The neighbour.
        mac: MacAddress,
    },
    /// The same in pieces.
    Fragment {
        /// Number of the interface.
        interface: u16,
        /// The neighbour.
        mac: MacAddress,
    },
    /// The service thread sees to it.
    Punt(Punt),
    /// It is dropped.
    Drop(DropReason),
}

/// One decision for each frame of a burst.
#[derive(Clone, Debug)]
pub struct Decisions {
    decisions: [Decision; BURST_MAX],
    len: usize,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            decisions: [Decision::Drop(DropReason::NoInterface); BURST_MAX],
            len: 0,
        }
    }
}

impl Decisions {
    /// The decisions.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[Decision] {
        self.decisions.get(..self.len).unwrap_or(&[])
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline(always)]
    pub(super) fn push(&mut self, decision: Decision) {
        if let Some(place) = self.decisions.get_mut(self.len) {
            *place = decision;
            self.len += 1;
        }
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: usize, decision: Decision) {
        if let Some(place) = self.decisions.get_mut(index) {
            *place = decision;
        }
    }
}

/// How many packets of a burst met what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets that go on.
    pub forwarded: u64,
    /// Those of them that go in pieces.
    pub fragmented: u64,
    /// Packets for the service thread, by reason.
    pub punted: [u64; Punt::ALL.len()],
    /// Packets dropped, by reason.
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Tally {
    #[inline(always)]
    pub(super) fn count(&mut self, decision: Decision) {
        match decision {
            Decision::Forward { .. } => self.forwarded += 1,
            Decision::Fragment { .. } => {
                self.forwarded += 1;
                self.fragmented += 1;
            }
            Decision::Punt(punt) => {
                if let Some(count) = self.punted.get_mut(punt as usize) {
                    *count += 1;
                }
            }
            Decision::Drop(reason) => {
                if let Some(count) = self.dropped.get_mut(reason as usize) {
                    *count += 1;
                }
            }
        }
    }
}
