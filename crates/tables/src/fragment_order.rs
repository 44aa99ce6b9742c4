// SPDX-License-Identifier: Apache-2.0
//! Order of fragments: later fragments that arrive before the first one of their datagram wait for it (RFC 4787, section 11). Behind it, they
//! are processed as if they had arrived after it.
//!
//! This table decides and does not have the frames: its user stores the fragments of a place together. The table has a fixed size, and every
//! operation takes a bounded number of steps. The datagrams of a source are all in one set of places, and a set holds a part of all fragments,
//! so a source that sends fragments without first ones leaves space for most others.

use std::hash::{BuildHasher, RandomState};

use crate::filter::after_tags;
use crate::fragments::{DatagramId, Datagrams, FragmentPart, WAYS};

const SETS: usize = 8;
/// The same, for hashes.
const SETS_U64: u64 = SETS as u64;
/// Datagrams whose fragments wait, at most: 16 of a source, and all sources of a set together.
pub const HELD_DATAGRAMS: usize = SETS * WAYS;
/// Fragments that wait, at most.
pub const HELD_FRAGMENTS: usize = 256;
/// Fragments of a source that wait, at most, and of all sources of its set: those of the longest datagram, at an MTU of 1500 octets.
pub const HELD_OF_SOURCE: usize = 64;
/// Seconds of the coarse clock after which a fragment waits no longer: 1 to 2 s.
const TIMEOUT_S: u32 = 2;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Octets of an untagged frame up to the fragment offset of IPv4, which is behind the next header of IPv6.
const FRONT: usize = 22;

/// Returns false for frames of which no fragment is in: a comparison for most frames. `octets` are those of the first buffer.
#[inline(always)]
#[must_use]
pub fn may_be_fragment(octets: &[u8]) -> bool {
    let Some(front) = octets.first_chunk::<FRONT>() else {
        return false;
    };
    match [front[12], front[13]] {
        IPV4 => is_part(front[20], front[21]),
        IPV6 => is_extension(front[20]),
        [0x81, 0x00] | [0x88, 0xa8] => may_be_behind_tags(octets),
        _ => false,
    }
}

/// The same for a tagged frame.
fn may_be_behind_tags(octets: &[u8]) -> bool {
    let behind = after_tags(octets).and_then(|(_, rest)| rest.split_first_chunk::<2>());
    let front = behind.and_then(|(ethertype, packet)| Some((*ethertype, packet.first_chunk()?)));
    let Some((ethertype, front)): Option<(_, &[u8; 8])> = front else {
        return false;
    };
    match ethertype {
        IPV4 => is_part(front[6], front[7]),
        IPV6 => is_extension(front[6]),
        _ => false,
    }
}

/// Returns true if the flags and the fragment offset of IPv4 are those of a fragment: more fragments, or an offset.
#[inline(always)]
const fn is_part(high: u8, low: u8) -> bool {
    high & 0x3f != 0 || low != 0
}

/// Returns true for an IPv6 extension header that a fragment has, or that may be in front of it.
#[inline(always)]
const fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 51 | 60)
}

/// A fragment in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFragment {
    part: FragmentPart,
}

impl FrameFragment {
    /// Returns the fragment in a frame, behind up to two tags. `octets` are those of the first buffer. `zone` keeps networks apart. `None` for
    /// whole datagrams and other frames.
    #[must_use]
    pub fn of_frame(octets: &[u8], zone: u16) -> Option<Self> {
        let (_, rest) = after_tags(octets)?;
        let (ethertype, packet) = rest.split_first_chunk::<2>()?;
        let part = match *ethertype {
            IPV4 => FragmentPart::of_ipv4(packet, zone),
            IPV6 => FragmentPart::of_ipv6(packet, zone),
            _ => None,
        };
        Some(Self { part: part? })
    }

    /// Returns true for the first fragment of a datagram.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.part.offset == 0
    }
}

/// Decision on a fragment that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first fragment, or a later one behind it: process it now.
    Pass,
    /// A later fragment without the first one: store it in the place with this number.
    Hold(usize),
    /// The same, without space.
    Overflow,
}

/// Reason for which the fragments of a place wait no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// The first one has arrived.
    FirstArrived,
    /// It has not arrived in time.
    Timeout,
}

/// A place whose fragments wait no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedPlace {
    /// Number of the place, which is free again.
    pub place: usize,
    /// Port that received the fragments.
    pub port: u16,
    /// The reason.
    pub cause: ReleaseCause,
}

/// Fragments of a datagram that wait, all from one port.
#[derive(Clone, Copy, Debug)]
struct HeldDatagram {
    id: DatagramId,
    port: u16,
    /// Number of fragments, at least one.
    count: usize,
    /// First second in which they wait no longer.
    ends_at: u32,
    /// The first fragment has arrived.
    is_ready: bool,
}

/// First fragments that have arrived, and places of later ones that wait.
#[derive(Debug)]
pub struct FragmentOrder {
    firsts: Datagrams<()>,
    /// Sets of [`WAYS`].
    places: Box<[Option<HeldDatagram>]>,
    /// Number of fragments that wait, by set.
    of_sets: [usize; SETS],
    /// Number of all fragments that wait.
    held: usize,
    /// Number of places whose first fragment has arrived.
    ready: usize,
    /// Second for which no place is expired.
    checked_at: u32,
    /// Chooses sets, so that no sender can choose those of others.
    secret: RandomState,
}

impl FragmentOrder {
    /// Creates an empty table with all of its memory, about 0.3 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            firsts: Datagrams::new(),
            places: vec![None; HELD_DATAGRAMS].into_boxed_slice(),
            of_sets: [0; SETS],
            held: 0,
            ready: 0,
            checked_at: 0,
            secret: RandomState::new(),
        }
    }

    /// Returns the number of fragments that wait.
    #[inline(always)]
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Decides on a fragment that a port receives in the second `now`. After a first fragment, [`Self::release`] returns the places of the
    /// later ones.
    pub fn arrive(&mut self, fragment: &FrameFragment, port: u16, now: u32) -> Arrival {
        let id = fragment.part.id;
        if fragment.is_first() {
            self.firsts.note(id, (), now);
            if self.held > 0 {
                self.make_ready(&id);
            }
            return Arrival::Pass;
        }
        if self.firsts.find(&id, now).is_some() {
            return Arrival::Pass;
        }
        match self.hold(id, port, now) {
            Some(place) => Arrival::Hold(place),
            None => Arrival::Overflow,
        }
    }

    /// Notes that the first fragment of a datagram has arrived.
    fn make_ready(&mut self, id: &DatagramId) {
        let start = self.set_of(id).saturating_mul(WAYS);
        let set = self.places.get_mut(start..).unwrap_or_default();
        let held = set.iter_mut().take(WAYS).flatten();
        for one in held.filter(|one| one.id == *id && !one.is_ready) {
            one.is_ready = true;
            self.ready = self.ready.saturating_add(1);
        }
    }

    /// Returns the place of a further fragment; `None` without space.
    fn hold(&mut self, id: DatagramId, port: u16, now: u32) -> Option<usize> {
        let number = self.set_of(&id);
        let of_set = self.of_sets.get_mut(number)?;
        if self.held >= HELD_FRAGMENTS || *of_set >= HELD_OF_SOURCE {
            return None;
        }
        let start = number.saturating_mul(WAYS);
        let set = self.places.get_mut(start..)?;
        let set = set.get_mut(..WAYS)?;
        let is_own = |place: &Option<HeldDatagram>| {
            place.is_some_and(|one| one.id == id && one.port == port)
        };
        let own = set.iter().position(is_own);
        let way = own.or_else(|| set.iter().position(Option::is_none))?;
        let place = set.get_mut(way)?;
        let one = place.get_or_insert(HeldDatagram {
            id,
            port,
            count: 0,
            ends_at: now.saturating_add(TIMEOUT_S),
            is_ready: false,
        });
        one.count = one.count.saturating_add(1);
        *of_set = of_set.saturating_add(1);
        self.held = self.held.saturating_add(1);
        Some(start.saturating_add(way))
    }

    /// Revokes an [`Arrival::Hold`] whose fragment could not be stored in this place.
    pub fn cancel(&mut self, place: usize) {
        let Some(Some(one)) = self.places.get_mut(place) else {
            return;
        };
        if one.count > 1 {
            one.count = one.count.saturating_sub(1);
            self.subtract(place, 1);
        } else {
            self.take(place);
        }
    }

    /// Frees a place whose fragments wait no longer in the second `now`. `None` if all wait.
    pub fn release(&mut self, now: u32) -> Option<ReleasedPlace> {
        if self.ready == 0 && self.checked_at == now {
            return None;
        }
        let is_over = |place: &Option<HeldDatagram>| {
            place.is_some_and(|one| one.is_ready || one.ends_at <= now)
        };
        let Some(place) = self.places.iter().position(is_over) else {
            self.checked_at = now;
            return None;
        };
        let one = self.take(place)?;
        let cause = match one.is_ready {
            true => ReleaseCause::FirstArrived,
            false => ReleaseCause::Timeout,
        };
        Some(ReleasedPlace {
            place,
            port: one.port,
            cause,
        })
    }

    /// Frees a place with fragments of a port, whatever they wait for. Returns its number; `None` if no fragment of the port waits.
    pub fn forget(&mut self, port: u16) -> Option<usize> {
        let is_of_port = |place: &Option<HeldDatagram>| place.is_some_and(|one| one.port == port);
        let place = self.places.iter().position(is_of_port)?;
        self.take(place)?;
        Some(place)
    }

    /// Returns the places whose fragments wait: the number of each, and the port of its fragments.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, u16)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(place, one)| one.map(|one| (place, one.port)))
    }

    /// Returns the number of the set of a datagram's source.
    fn set_of(&self, id: &DatagramId) -> usize {
        usize::try_from(self.secret.hash_one(id.source) % SETS_U64).unwrap_or(0)
    }

    /// Frees a place.
    fn take(&mut self, place: usize) -> Option<HeldDatagram> {
        let one = self.places.get_mut(place)?.take()?;
        self.subtract(place, one.count);
        if one.is_ready {
            self.ready = self.ready.saturating_sub(1);
        }
        Some(one)
    }

    /// Subtracts fragments of a place from the numbers of those that wait.
    fn subtract(&mut self, place: usize, count: usize) {
        self.held = self.held.saturating_sub(count);
        if let Some(of_set) = self.of_sets.get_mut(place / WAYS) {
            *of_set = of_set.saturating_sub(count);
        }
    }
}

impl Default for FragmentOrder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
