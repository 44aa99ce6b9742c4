// SPDX-License-Identifier: Apache-2.0
//! The learning bridge: which port a frame goes to (IEEE 802.1Q, sections 8.6 and 8.7).
//!
//! [`decide`] takes a burst of frames as bytes and gives one decision each. It knows no packet buffers and no
//! ports beyond their numbers, so that it can be tested with any bytes and without DPDK being started.

mod reference;
#[cfg(test)]
mod tests;

use quietwire_dpdk::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use crate::fdb::{Fdb, Hash, Key, Learned, Now};

pub use reference::ReferenceBridge;

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Shorter than an Ethernet header ([`quietwire_packet::Damage::Short`]).
    Short,
    /// The destination is on the port that the frame came from (IEEE 802.1Q, section 8.6.1).
    Filtered,
    /// To one of the addresses 01:80:C2:00:00:00 to 0F, which bridges do not forward (IEEE 802.1Q, section 8.6.3).
    Reserved,
}

/// What is to become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Out of the port with this number.
    Forward(u16),
    /// Out of all other ports of the bridge.
    Flood,
    /// Nowhere.
    Drop(Reason),
}

/// Decisions on a burst of frames, in their order.
#[derive(Debug)]
pub struct Decisions {
    list: [Decision; BURST_MAX],
    len: usize,
    same: bool,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            list: [Decision::Flood; BURST_MAX],
            len: 0,
            same: true,
        }
    }
}

impl Decisions {
    /// The decisions.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[Decision] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    /// The decision on all frames, when it is the same.
    #[inline(always)]
    #[must_use]
    pub fn sole(&self) -> Option<Decision> {
        if self.same {
            self.as_slice().first().copied()
        } else {
            None
        }
    }

    fn clear(&mut self) {
        self.len = 0;
        self.same = true;
    }

    #[inline(always)]
    fn push(&mut self, decision: Decision) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = decision;
            self.len += 1;
            self.same &= decision == self.list[0];
        }
    }
}

/// What happened to the frames of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames flooded.
    pub flooded: u64,
    /// Frames dropped as [`Reason::Short`].
    pub short: u64,
    /// Frames dropped as [`Reason::Filtered`].
    pub filtered: u64,
    /// Frames dropped as [`Reason::Reserved`].
    pub reserved: u64,
    /// Source addresses that were new.
    pub learned: u64,
    /// Source addresses that had been on another port.
    pub moved: u64,
    /// Source addresses that there was no room for.
    pub not_learned: u64,
}

/// Both addresses of a frame, as numbers; [`Addresses::NONE`] for a frame that is too short for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses {
    destination: u64,
    source: u64,
}

impl Addresses {
    const NONE: Self = Self {
        destination: u64::MAX,
        source: u64::MAX,
    };

    #[inline(always)]
    fn read(frame: &[u8]) -> Self {
        let Some(header) = frame.first_chunk::<ETHERNET_HEADER_LENGTH>() else {
            return Self::NONE;
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        // The same as MacAddress::to_u64, each in one load of eight octets.
        Self {
            destination: u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 16,
            source: u64::from_be_bytes([e, f, g, h, i, j, k, l]) & 0xffff_ffff_ffff,
        }
    }
}

/// First bit on the wire of an address given as a number: set for groups.
const GROUP: u64 = 1 << 40;

/// 01:80:C2:00:00:00, and what of an address has to agree with it (IEEE 802.1Q, table 8-1).
const RESERVED: u64 = 0x0180_c200_0000;
const RESERVED_MASK: u64 = 0xffff_ffff_fff0;

#[derive(Clone, Copy)]
struct Hashes {
    destination: Hash,
    source: Hash,
}

/// Decides on a burst (at most [`BURST_MAX`] frames; what is beyond is not looked at) that came in on port
/// `input` at second `now_s`, and learns its source addresses. `decisions` is overwritten.
///
/// Two passes: the first hashes all addresses and asks for their buckets, the second finds them in the cache.
#[inline]
pub fn decide<'frame>(
    fdb: &Fdb,
    input: u16,
    now_s: u32,
    frames: impl Iterator<Item = &'frame [u8]>,
    decisions: &mut Decisions,
) -> Tally {
    let now = fdb.now(now_s);
    let none = Hashes {
        destination: fdb.hash(Key::of_number(0)),
        source: fdb.hash(Key::of_number(0)),
    };
    let mut addresses = [Addresses::NONE; BURST_MAX];
    let mut hashes = [none; BURST_MAX];
    let mut count = 0;
    let mut last = (Addresses::NONE, none);
    for ((frame, addresses), hashes) in frames.zip(&mut addresses).zip(&mut hashes) {
        *addresses = Addresses::read(frame);
        // Frames of one conversation come in runs.
        if *addresses != last.0 {
            last = (*addresses, prepare(fdb, addresses));
        }
        *hashes = last.1;
        count += 1;
    }

    decisions.clear();
    let mut tally = Tally::default();
    let mut last = (Addresses::NONE, Decision::Drop(Reason::Short));
    for (addresses, hashes) in addresses.iter().zip(&hashes).take(count) {
        // What the frame before has taught, this one need not teach again, and it goes the same way.
        if *addresses != last.0 {
            last = (
                *addresses,
                decide_one(fdb, input, now, addresses, hashes, &mut tally),
            );
        }
        count_decision(last.1, &mut tally);
        decisions.push(last.1);
    }
    tally
}

#[inline(always)]
fn prepare(fdb: &Fdb, addresses: &Addresses) -> Hashes {
    let hashes = Hashes {
        destination: fdb.hash(Key::of_number(addresses.destination)),
        source: fdb.hash(Key::of_number(addresses.source)),
    };
    fdb.prefetch(hashes.destination);
    fdb.prefetch(hashes.source);
    hashes
}

#[inline(always)]
fn decide_one(
    fdb: &Fdb,
    input: u16,
    now: Now,
    addresses: &Addresses,
    hashes: &Hashes,
    tally: &mut Tally,
) -> Decision {
    if *addresses == Addresses::NONE {
        return Decision::Drop(Reason::Short);
    }
    let Addresses {
        destination,
        source,
    } = *addresses;
    // Frames that bridges keep to themselves teach nothing either.
    if destination & RESERVED_MASK == RESERVED {
        return Decision::Drop(Reason::Reserved);
    }
    if source & GROUP == 0 && source != 0 {
        match fdb.learn(hashes.source, input, now, u32::MAX) {
            Learned::Known => {}
            Learned::New => tally.learned += 1,
            Learned::Moved | Learned::Flapped => tally.moved += 1,
            Learned::Full | Learned::OverLimit | Learned::Static => tally.not_learned += 1,
        }
    }
    if destination & GROUP != 0 {
        return Decision::Flood;
    }
    match fdb.look_up(hashes.destination, now) {
        Some(port) if port == input => Decision::Drop(Reason::Filtered),
        Some(port) => Decision::Forward(port),
        None => Decision::Flood,
    }
}

#[inline(always)]
fn count_decision(decision: Decision, tally: &mut Tally) {
    match decision {
        Decision::Forward(_) => {}
        Decision::Flood => tally.flooded += 1,
        Decision::Drop(Reason::Short) => tally.short += 1,
        Decision::Drop(Reason::Filtered) => tally.filtered += 1,
        Decision::Drop(Reason::Reserved) => tally.reserved += 1,
    }
}
