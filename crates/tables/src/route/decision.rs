// SPDX-License-Identifier: Apache-2.0
//! What can become of a packet.

use std::fmt;

use quietwire_base::BURST_MAX;
use quietwire_packet::MacAddress;

use crate::drops::RouterDrop;
use crate::named;

named! {
    /// Why a packet goes to the service thread.
    pub enum Punt {
        /// ARP, for the interface's neighbours (RFC 826).
        Arp = "arp";
        /// It is for the router itself, or for a group that it may be in.
        ForUs = "for-us";
        /// The neighbour that it is to go to is not known: it waits while the neighbour is asked for.
        Neighbour = "neighbour";
        /// There is no route (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
        NoRoute = "no-route";
        /// The route says that there is no way.
        Unreachable = "unreachable";
        /// The route says that it may not.
        Prohibited = "prohibited";
        /// Its time to live is over (RFC 1812, section 5.3.1; RFC 8200, section 3).
        TimeExceeded = "time-exceeded";
        /// It is larger than the next link takes, and may not be cut (RFC 1191, RFC 8201).
        TooBig = "too-big";
        /// A rule gives it to the kernel.
        KernelFilter = "kernel-filter";
    }
}

/// Where a packet leaves, and to whom: an interface's number, below 4096, in the bits above the neighbour's MAC address. It
/// is one word from the table of next hops to the frame: octets written one by one and read as one have to be waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Adjacency(u64);

impl Adjacency {
    const MAC_BITS: u32 = 48;
    const BITS: u32 = 60;

    /// Of an interface's number and a neighbour on its link.
    #[must_use]
    pub const fn new(interface: u16, mac: MacAddress) -> Self {
        Self::of_word((interface as u64) << Self::MAC_BITS | mac.to_u64())
    }

    /// Of a word's lowest bits.
    #[inline(always)]
    pub(super) const fn of_word(word: u64) -> Self {
        Self(word & ((1 << Self::BITS) - 1))
    }

    /// Number of the interface.
    #[inline(always)]
    #[must_use]
    pub const fn interface(self) -> u16 {
        (self.0 >> Self::MAC_BITS) as u16
    }

    /// The neighbour's address as a number ([`MacAddress::to_u64`]).
    #[inline(always)]
    #[must_use]
    pub const fn mac_number(self) -> u64 {
        self.0 & ((1 << Self::MAC_BITS) - 1)
    }

    /// The neighbour.
    #[must_use]
    pub const fn mac(self) -> MacAddress {
        MacAddress::from_u64(self.mac_number())
    }
}

impl fmt::Debug for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by interface {}", self.mac(), self.interface())
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes on by this interface, to this neighbour.
    Forward(Adjacency),
    /// The same in pieces.
    Fragment(Adjacency),
    /// The service thread sees to it.
    Punt(Punt),
    /// It is dropped.
    Drop(RouterDrop),
}

/// A decision in one word. It is asked for what most packets get without being taken apart: parts that are written one by one
/// and read together have to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionWord(u64);

impl DecisionWord {
    /// Where the packet goes on as it is, as most do.
    #[inline(always)]
    #[must_use]
    pub fn forwarded(self) -> Option<Adjacency> {
        (self.0 >> Adjacency::BITS == FORWARD).then_some(Adjacency::of_word(self.0))
    }

    /// The decision.
    #[inline(always)]
    #[must_use]
    pub fn decision(self) -> Decision {
        Decision::of_word(self.0)
    }
}

/// Places of a burst, a bit each.
pub(super) type Places = u64;
const _: () = assert!(BURST_MAX <= Places::BITS as usize);

/// One decision for each frame of a burst, each in a word.
#[derive(Clone, Debug)]
pub struct Decisions {
    words: [u64; BURST_MAX],
    len: usize,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            words: [0; BURST_MAX],
            len: 0,
        }
    }
}

const FORWARD: u64 = 0;
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
    /// The decisions.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Decision> + Clone + '_ {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        words.iter().map(|word| Decision::of_word(*word))
    }

    /// The decisions, for those who look at what most get first.
    #[inline(always)]
    pub fn words(&self) -> impl ExactSizeIterator<Item = DecisionWord> + Clone + '_ {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        words.iter().map(|word| DecisionWord(*word))
    }

    /// The decision on the frame at this place.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Decision> {
        let word = self.words.get(..self.len)?.get(place)?;
        Some(Decision::of_word(*word))
    }

    /// Begins anew with so many that are alike.
    #[inline(always)]
    pub(super) fn begin(&mut self, count: usize, decision: Decision) {
        self.len = count.min(BURST_MAX);
        if let Some(words) = self.words.get_mut(..self.len) {
            words.fill(decision.word());
        }
    }

    /// A packet goes on as it is.
    #[inline(always)]
    pub(super) fn forward(&mut self, index: usize, to: Adjacency) {
        if let Some(place) = self.words.get_mut(index) {
            *place = FORWARD << Adjacency::BITS | to.0;
        }
    }

    /// How many there are of each.
    #[inline(always)]
    pub(super) fn tally(&self) -> Tally {
        let words = self.words.get(..self.len).unwrap_or(&[]);
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
        if let Some(place) = self.words.get_mut(index) {
            *place = decision.word();
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
    pub dropped: [u64; RouterDrop::ALL.len()],
}

impl Tally {
    /// Counts what does not just go on.
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
