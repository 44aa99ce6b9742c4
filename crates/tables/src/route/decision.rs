// SPDX-License-Identifier: Apache-2.0
//! Routing decisions of packets.

use std::fmt;

use quietwire_base::BURST_MAX;
use quietwire_packet::MacAddress;

use crate::drops::RouterDrop;
use crate::named;

named! {
    /// Reason for passing a packet to the service thread.
    pub enum Punt {
        /// ARP packet, for neighbour resolution on the interface (RFC 826).
        Arp = "arp";
        /// Packet to the router itself, or to a group it may be a member of.
        ForUs = "for-us";
        /// The next-hop neighbour is not resolved: the packet waits for resolution.
        Neighbour = "neighbour";
        /// No route (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
        NoRoute = "no-route";
        /// Unreachable route.
        Unreachable = "unreachable";
        /// Prohibit route.
        Prohibited = "prohibited";
        /// TTL or hop limit exceeded (RFC 1812, section 5.3.1; RFC 8200, section 3).
        TimeExceeded = "time-exceeded";
        /// Larger than the MTU of the next link, and must not be fragmented (RFC 1191, RFC 8201).
        TooBig = "too-big";
        /// Matched by a kernel filter.
        KernelFilter = "kernel-filter";
    }
}

/// Egress interface and neighbour of a packet: the interface number, below 4096, in the bits above the MAC address. It stays one word from
/// the next hop table to the frame, because a word load after octet stores would stall.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Adjacency(u64);

impl Adjacency {
    const MAC_BITS: u32 = 48;
    const BITS: u32 = 60;

    /// Creates an adjacency of an interface number and a neighbour on its link.
    #[must_use]
    pub const fn new(interface: u16, mac: MacAddress) -> Self {
        Self::of_word((interface as u64) << Self::MAC_BITS | mac.to_u64())
    }

    /// Creates an adjacency from the lowest bits of a word.
    #[allow(clippy::arithmetic_side_effects, reason = "BITS is below 64")]
    #[inline(always)]
    pub(super) const fn of_word(word: u64) -> Self {
        Self(word & ((1 << Self::BITS) - 1))
    }

    /// Returns the number of the interface.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the bits above those of the MAC address are masked to 16"
    )]
    #[inline(always)]
    #[must_use]
    pub const fn interface(self) -> u16 {
        (self.0 >> Self::MAC_BITS) as u16
    }

    /// Returns the neighbour's MAC address as a number ([`MacAddress::to_u64`]).
    #[allow(clippy::arithmetic_side_effects, reason = "MAC_BITS is below 64")]
    #[inline(always)]
    #[must_use]
    pub const fn mac_number(self) -> u64 {
        self.0 & ((1 << Self::MAC_BITS) - 1)
    }

    /// Returns the MAC address of the neighbour.
    #[must_use]
    pub const fn mac(self) -> MacAddress {
        MacAddress::from_u64(self.mac_number())
    }
}

impl fmt::Debug for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on interface {}", self.mac(), self.interface())
    }
}

/// Routing decision for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forward through this interface to this neighbour.
    Forward(Adjacency),
    /// Forward in fragments.
    Fragment(Adjacency),
    /// Pass to the service thread.
    Punt(Punt),
    /// Drop.
    Drop(RouterDrop),
}

/// A decision in one word. The common cases are tested without unpacking it, because a load of separately written parts would stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionWord(u64);

impl DecisionWord {
    /// Creates a decision of a word, such as that of a next hop.
    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        Self(word)
    }

    /// Returns the adjacency of a packet that is forwarded unfragmented, the most common decision.
    #[inline(always)]
    #[must_use]
    pub fn forwarded(self) -> Option<Adjacency> {
        (self.0 >> Adjacency::BITS == FORWARD).then_some(Adjacency::of_word(self.0))
    }

    /// Returns the decision.
    #[inline(always)]
    #[must_use]
    pub fn decision(self) -> Decision {
        Decision::of_word(self.0)
    }
}

/// Positions in a burst, one bit each.
pub(super) type Places = u64;
const _: () = assert!(BURST_MAX <= Places::BITS as usize);

/// Decisions for a burst, one word per frame.
#[derive(Clone, Debug)]
pub struct Decisions {
    words: [u64; BURST_MAX],
    len: usize,
    /// The interface by which all frames leave unfragmented, if it is known that there is one.
    exit: Option<u16>,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            words: [0; BURST_MAX],
            len: 0,
            exit: None,
        }
    }
}

/// The word of a resolved neighbour among the next hops is the decision to forward to it.
pub(super) const FORWARD: u64 = 7;
const FRAGMENT: u64 = 1;
const PUNT: u64 = 2;
const DROP: u64 = 3;

impl Decision {
    #[inline(always)]
    const fn word(self) -> u64 {
        match self {
            Self::Forward(to) => FORWARD << Adjacency::BITS | to.0,
            Self::Fragment(to) => FRAGMENT << Adjacency::BITS | to.0,
            Self::Punt(punt) => PUNT << Adjacency::BITS | punt as u64,
            Self::Drop(reason) => DROP << Adjacency::BITS | reason as u64,
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the numbers of reasons are small"
    )]
    #[inline(always)]
    fn of_word(word: u64) -> Self {
        let to = Adjacency::of_word(word);
        match word >> Adjacency::BITS {
            FORWARD => Self::Forward(to),
            FRAGMENT => Self::Fragment(to),
            kind => Self::of_other(kind, to.0 as usize),
        }
    }

    #[inline(never)]
    fn of_other(kind: u64, number: usize) -> Self {
        let punt = Punt::ALL.get(number).copied().filter(|_| kind == PUNT);
        let reason = RouterDrop::ALL.get(number).copied();
        match (punt, reason) {
            (Some(punt), _) => Self::Punt(punt),
            (None, reason) => Self::Drop(reason.unwrap_or(RouterDrop::NoInterface)),
        }
    }
}

impl Decisions {
    /// Returns the decisions.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Decision> + Clone + '_ {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        words.iter().map(|word| Decision::of_word(*word))
    }

    /// Returns the decisions as words, to test the common cases first.
    #[inline(always)]
    pub fn words(&self) -> impl ExactSizeIterator<Item = DecisionWord> + Clone + '_ {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        words.iter().map(|word| DecisionWord(*word))
    }

    /// Returns the decision for the frame at this position.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Decision> {
        Some(self.word(place)?.decision())
    }

    /// Returns the decision for the frame at this position, as a word.
    #[inline(always)]
    pub(super) fn word(&self, place: usize) -> Option<DecisionWord> {
        let word = self.words.get(..self.len)?.get(place)?;
        Some(DecisionWord(*word))
    }

    /// Returns the interface by which all frames leave unfragmented. `None` also if the frames were not compared.
    #[inline(always)]
    #[must_use]
    pub const fn exit(&self) -> Option<u16> {
        self.exit
    }

    /// Resets to this number of identical decisions.
    #[inline(always)]
    pub(super) fn begin(&mut self, count: usize, decision: Decision) {
        self.exit = None;
        self.len = count.min(BURST_MAX);
        if let Some(words) = self.words.get_mut(..self.len) {
            words.fill(decision.word());
        }
    }

    /// Returns the words, to set those of packets that are forwarded unfragmented: the words of their next hops.
    #[inline(always)]
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        self.words.get_mut(..self.len).unwrap_or_default()
    }

    /// Sets the interface by which all frames leave unfragmented.
    #[inline(always)]
    pub(super) fn set_exit(&mut self, exit: Option<u16>) {
        self.exit = exit;
    }

    /// Counts the decisions.
    #[inline(always)]
    pub(super) fn tally(&self) -> Tally {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        if self.exit.is_some() {
            return Tally {
                forwarded: words.len() as u64,
                ..Tally::default()
            };
        }
        let forwarded = words
            .iter()
            .map(|word| u64::from(word >> Adjacency::BITS == FORWARD));
        let mut tally = Tally {
            forwarded: forwarded.sum(),
            ..Tally::default()
        };
        if tally.forwarded < words.len() as u64 {
            self.iter().for_each(|decision| tally.count_other(decision));
        }
        tally
    }

    #[inline(always)]
    pub(super) fn set(&mut self, index: usize, decision: Decision) {
        self.exit = None;
        if let Some(place) = self.words.get_mut(index) {
            *place = decision.word();
        }
    }
}

/// Counters of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets forwarded.
    pub forwarded: u64,
    /// Packets forwarded in fragments.
    pub fragmented: u64,
    /// Packets punted to the service thread, by reason.
    pub punted: [u64; Punt::ALL.len()],
    /// Packets dropped, by reason.
    pub dropped: [u64; RouterDrop::ALL.len()],
}

impl Tally {
    /// Counts a decision other than plain forwarding.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts at most BURST_MAX packets"
    )]
    #[inline(never)]
    fn count_other(&mut self, decision: Decision) {
        match decision {
            Decision::Forward(_) => {}
            Decision::Fragment(_) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_every_decision() {
        let mut decisions = Decisions::default();
        let mut check = |decision: Decision| {
            decisions.begin(1, Decision::Drop(RouterDrop::NoInterface));
            decisions.set(0, decision);
            assert_eq!(decisions.get(0), Some(decision));
            let word = decisions.words().next().unwrap();
            assert_eq!(word.decision(), decision);
            let forwarded = match decision {
                Decision::Forward(to) => Some(to),
                _ => None,
            };
            assert_eq!(word.forwarded(), forwarded);
            let tally = decisions.tally();
            let sums = [&tally.punted[..], &tally.dropped[..]].map(|all| all.iter().sum::<u64>());
            let expected = match decision {
                Decision::Forward(_) => (1, 0, [0, 0]),
                Decision::Fragment(_) => (1, 1, [0, 0]),
                Decision::Punt(_) => (0, 0, [1, 0]),
                Decision::Drop(_) => (0, 0, [0, 1]),
            };
            assert_eq!((tally.forwarded, tally.fragmented, sums), expected);
        };
        for interface in 0..4096 {
            for mac in [0, 1, 0xffff_ffff_ffff] {
                let to = Adjacency::new(interface, MacAddress::from_u64(mac));
                assert_eq!((to.interface(), to.mac_number()), (interface, mac));
                check(Decision::Forward(to));
                check(Decision::Fragment(to));
            }
        }
        let others = Punt::ALL.iter().map(|punt| Decision::Punt(*punt));
        let drops = RouterDrop::ALL.iter().map(|reason| Decision::Drop(*reason));
        others.chain(drops).for_each(check);
    }
}
