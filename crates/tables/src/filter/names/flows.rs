// SPDX-License-Identifier: Apache-2.0
//! Connections of a forwarding thread whose names rules compare: data that have arrived, and names. All memory is allocated at first.

use std::hash::{BuildHasher, RandomState};

use super::data::{Data, FlowKey};
use super::found::{Found, NAME_MAX, Name};
use super::pattern::NameKind;
use super::table::{Kinds, NameTable};
use super::{dns, http, tls};
use crate::classifier::{Field, Key};

/// Connections of a forwarding thread.
pub const NAME_FLOWS: usize = 16_384;
/// Octets of a connection that are searched for a name.
pub const NAME_DATA_MAX: usize = 4096;
/// Segments with data of a connection that are searched for a name.
const SEGMENTS_MAX: u8 = 16;
/// Places of a bucket.
const WAYS: usize = 4;
const BUCKETS: u64 = (NAME_FLOWS / WAYS) as u64;
/// Connections whose data are kept at a time.
const BUFFERS: usize = 1024;
/// Buffers that are tried for an unused one.
const TRIES: usize = 4;
/// No connection, or no buffer.
const NONE: usize = usize::MAX;

/// State of the search for the name of a connection, in the order in which connections are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// There is no connection.
    Unused,
    /// Its SYN has been received.
    Opened,
    /// Data without a whole name have been received.
    Collecting,
    /// Its name is known.
    Named(NameKind),
    /// It has no name.
    Nameless,
    /// Its name cannot be decided on.
    Undecided,
}

impl Progress {
    const fn rank(self) -> u8 {
        match self {
            Self::Unused => 0,
            Self::Opened => 1,
            Self::Collecting => 2,
            Self::Named(_) | Self::Nameless | Self::Undecided => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: FlowKey,
    /// Time of the last packet, in packets.
    used_at: u64,
    /// Table of `marks`.
    generation: u64,
    marks: u32,
    /// Sequence number behind the data that have been received.
    next: u32,
    progress: Progress,
    /// Segments with new data.
    segments: u8,
    /// Buffer with the data, if there are some without a name.
    buffer: usize,
    /// Octets in the buffer.
    held: usize,
}

impl Flow {
    const UNUSED: Self = Self {
        key: FlowKey::EMPTY,
        used_at: 0,
        generation: 0,
        marks: 0,
        next: 0,
        progress: Progress::Unused,
        segments: 0,
        buffer: NONE,
        held: 0,
    };
}

/// Data of a connection.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// Place of the connection.
    owner: usize,
    octets: [u8; NAME_DATA_MAX],
}

/// A name that is kept.
#[derive(Clone, Copy, Debug)]
struct Stored {
    length: u8,
    octets: [u8; NAME_MAX],
}

/// The memory is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate the memory for names in connections (use rules without names)")]
pub struct NoNameFlows;

/// Connections of a forwarding thread, and their names.
#[derive(Debug)]
pub struct NameFlows {
    flows: Box<[Flow]>,
    names: Box<[Stored]>,
    buffers: Box<[Buffer]>,
    next_buffer: usize,
    hasher: RandomState,
    /// Packets so far.
    clock: u64,
    /// Packets whose name cannot be decided on, since the last [`Self::take_undecidable`].
    undecidable: u64,
}

/// Allocates and writes memory.
fn filled<T: Copy>(count: usize, value: T) -> Result<Box<[T]>, NoNameFlows> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| NoNameFlows)?;
    all.resize(count, value);
    Ok(all.into_boxed_slice())
}

/// Searches data for a name.
type Parser = fn(&[u8], &mut Name) -> Found;

/// Searches the data of a connection. The first protocol that the data may be of decides.
fn find(kinds: Kinds, octets: &[u8], name: &mut Name) -> (Found, NameKind) {
    let parsers: [(NameKind, Parser); NameKind::COUNT] = [
        (NameKind::Tls, tls::find),
        (NameKind::Http, http::find),
        (NameKind::Dns, dns::find_in_stream),
    ];
    for (kind, parser) in parsers {
        if kinds.contains(kind) {
            match parser(octets, name) {
                Found::Nothing => {}
                found => return (found, kind),
            }
        }
    }
    (Found::Nothing, NameKind::Tls)
}

impl NameFlows {
    /// Creates the memory of a thread: about 10 MiB.
    ///
    /// # Errors
    /// [`NoNameFlows`].
    pub fn new() -> Result<Self, NoNameFlows> {
        let stored = Stored {
            length: 0,
            octets: [0; NAME_MAX],
        };
        let buffer = Buffer {
            owner: NONE,
            octets: [0; NAME_DATA_MAX],
        };
        Ok(Self {
            flows: filled(NAME_FLOWS, Flow::UNUSED)?,
            names: filled(NAME_FLOWS, stored)?,
            buffers: filled(BUFFERS, buffer)?,
            next_buffer: 0,
            hasher: RandomState::new(),
            clock: 0,
            undecidable: 0,
        })
    }

    /// Returns the number of packets since the last call whose name could not be decided on.
    pub fn take_undecidable(&mut self) -> u64 {
        std::mem::take(&mut self.undecidable)
    }

    /// Counts a packet whose name cannot be decided on, and returns its marks.
    fn undecidable(&mut self, names: &NameTable) -> u32 {
        self.undecidable = self.undecidable.saturating_add(1);
        names.undecided
    }

    /// Returns the marks of a frame with this key. `restarts`: a SYN begins a connection in place of one with the same ports.
    #[inline(always)]
    pub(in super::super) fn marks(
        &mut self,
        names: &NameTable,
        key: &Key,
        frame: &[u8],
        restarts: bool,
    ) -> u32 {
        let kinds = names.kinds_of(key);
        match kinds.is_empty() {
            true => 0,
            false => self.marks_of_frame(names, key, frame, (kinds, restarts)),
        }
    }

    #[inline(never)]
    fn marks_of_frame(
        &mut self,
        names: &NameTable,
        key: &Key,
        frame: &[u8],
        (kinds, restarts): (Kinds, bool),
    ) -> u32 {
        match Data::read(frame, key.get(Field::INGRESS_PORT)) {
            Some(data) if data.is_tcp => self.marks_of_segment(names, &data, kinds, restarts),
            Some(data) => self.marks_of_datagram(names, &data),
            None => self.undecidable(names),
        }
    }

    fn marks_of_segment(
        &mut self,
        names: &NameTable,
        data: &Data<'_>,
        kinds: Kinds,
        restarts: bool,
    ) -> u32 {
        self.clock = self.clock.wrapping_add(1);
        let bucket = self.bucket(&data.flow);
        let found = self.place_of(bucket, &data.flow);
        let place = match found {
            _ if data.is_opening() && restarts => Some(self.begin(bucket, found, data)),
            found => found,
        };
        let Some((place, flow)) = place.and_then(|place| Some((place, self.flows.get_mut(place)?)))
        else {
            // A segment without data has no name; the start of data that follow is not known.
            return match data.length {
                0 => names.pending,
                _ => self.undecidable(names),
            };
        };
        flow.used_at = self.clock;
        match flow.progress {
            Progress::Nameless => 0,
            Progress::Undecided => self.undecidable(names),
            Progress::Named(kind) => {
                if flow.generation != names.generation {
                    flow.generation = names.generation;
                    let name = self.names.get(place).map(Stored::octets);
                    flow.marks = names.marks_of(kind, name.unwrap_or_default());
                }
                flow.marks
            }
            Progress::Opened | Progress::Collecting if data.length == 0 => names.pending,
            Progress::Unused | Progress::Opened | Progress::Collecting => {
                self.collect(place, names, data, kinds)
            }
        }
    }

    fn marks_of_datagram(&mut self, names: &NameTable, data: &Data<'_>) -> u32 {
        let mut name = Name::EMPTY;
        match dns::find(data.octets, &mut name) {
            Found::Name => names.marks_of(NameKind::Dns, name.octets()),
            Found::Nothing => 0,
            Found::More | Found::Undecidable => self.undecidable(names),
        }
    }

    /// Returns the first place of the bucket of a connection.
    fn bucket(&self, key: &FlowKey) -> usize {
        let bucket = self.hasher.hash_one(key).checked_rem(BUCKETS).unwrap_or(0);
        usize::try_from(bucket).unwrap_or(0).saturating_mul(WAYS)
    }

    fn place_of(&self, bucket: usize, key: &FlowKey) -> Option<usize> {
        let mut places = bucket..bucket.saturating_add(WAYS);
        places.find(|place| {
            let flow = self.flows.get(*place);
            flow.is_some_and(|flow| flow.progress != Progress::Unused && flow.key == *key)
        })
    }

    /// Begins a connection in its former place, or in place of the one that is missed least. Returns the place.
    fn begin(&mut self, bucket: usize, found: Option<usize>, data: &Data<'_>) -> usize {
        let places = bucket..bucket.saturating_add(WAYS);
        let worth = |place: &usize| {
            let flow = self.flows.get(*place);
            flow.map_or((u8::MAX, u64::MAX), |flow| {
                (flow.progress.rank(), flow.used_at)
            })
        };
        let place = found.or_else(|| places.min_by_key(worth)).unwrap_or(bucket);
        self.free_buffer(place);
        if let Some(flow) = self.flows.get_mut(place) {
            *flow = Flow {
                key: data.flow,
                next: data.sequence,
                progress: Progress::Opened,
                ..Flow::UNUSED
            };
        }
        place
    }

    /// Adds data to a connection and searches them.
    fn collect(&mut self, place: usize, names: &NameTable, data: &Data<'_>, kinds: Kinds) -> u32 {
        let Some(flow) = self.flows.get_mut(place) else {
            return self.undecidable(names);
        };
        let known = flow.next.wrapping_sub(data.sequence);
        if known.cast_signed() < 0 {
            // Data are missing before it: they were lost, or are late. The connection can still be decided on when they arrive.
            return self.undecidable(names);
        }
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        if known >= data.length {
            // Sent again.
            return names.pending;
        }
        let fresh = data.octets.get(known..).unwrap_or_default();
        let space = NAME_DATA_MAX.saturating_sub(flow.held);
        let is_cut = !data.is_whole || fresh.len() > space;
        let fresh = fresh.get(..space).unwrap_or(fresh);
        let length = u32::try_from(data.length).unwrap_or(u32::MAX);
        flow.next = data.sequence.wrapping_add(length);
        flow.segments = flow.segments.saturating_add(1);
        let is_last = is_cut || flow.segments >= SEGMENTS_MAX;
        let is_first = flow.progress == Progress::Opened;
        let mut name = Name::EMPTY;
        // Most names are in the first segment, which is not copied.
        let (found, kind) = match is_first {
            true => find(kinds, fresh, &mut name),
            false => match self.hold(place, fresh) {
                Some(octets) => find(kinds, octets, &mut name),
                None => (Found::Undecidable, NameKind::Tls),
            },
        };
        let is_held =
            found != Found::More || is_last || !is_first || self.hold(place, fresh).is_some();
        let found = match found {
            Found::More if is_last || !is_held => Found::Undecidable,
            found => found,
        };
        self.settle(place, names, (found, kind), &name)
    }

    /// Adds data to those of a connection, for which there is space. Returns all of them; `None` if others have replaced the former.
    fn hold(&mut self, place: usize, fresh: &[u8]) -> Option<&[u8]> {
        if self.flows.get(place)?.buffer == NONE {
            let number = self.take_buffer(place)?;
            self.flows.get_mut(place)?.buffer = number;
        }
        let flow = self.flows.get_mut(place)?;
        let buffer = self.buffers.get_mut(flow.buffer)?;
        if buffer.owner != place {
            return None;
        }
        let end = flow.held.checked_add(fresh.len())?;
        buffer
            .octets
            .get_mut(flow.held..end)?
            .copy_from_slice(fresh);
        flow.held = end;
        buffer.octets.get(..end)
    }

    /// Takes an unused buffer, or that of a connection that had it for long.
    fn take_buffer(&mut self, owner: usize) -> Option<usize> {
        let mut number = self.next_buffer;
        for _ in 0..TRIES {
            number = self.next_buffer;
            let next = number.saturating_add(1);
            self.next_buffer = next.checked_rem(self.buffers.len())?;
            if self.buffers.get(number)?.owner == NONE {
                break;
            }
        }
        self.buffers.get_mut(number)?.owner = owner;
        Some(number)
    }

    fn free_buffer(&mut self, place: usize) {
        let number = self.flows.get_mut(place).map(|flow| {
            flow.held = 0;
            std::mem::replace(&mut flow.buffer, NONE)
        });
        if let Some(buffer) = number.and_then(|number| self.buffers.get_mut(number))
            && buffer.owner == place
        {
            buffer.owner = NONE;
        }
    }

    /// Keeps what is known of a connection, and returns the marks of the packet.
    fn settle(
        &mut self,
        place: usize,
        names: &NameTable,
        (found, kind): (Found, NameKind),
        name: &Name,
    ) -> u32 {
        let (progress, marks) = match found {
            Found::More => (Progress::Collecting, names.pending),
            Found::Name => (Progress::Named(kind), names.marks_of(kind, name.octets())),
            Found::Nothing => (Progress::Nameless, 0),
            Found::Undecidable => (Progress::Undecided, self.undecidable(names)),
        };
        if let Some(flow) = self.flows.get_mut(place) {
            flow.progress = progress;
            flow.marks = marks;
            flow.generation = names.generation;
        }
        if found != Found::More {
            self.free_buffer(place);
        }
        if found == Found::Name
            && let Some(stored) = self.names.get_mut(place)
        {
            stored.set(name.octets());
        }
        marks
    }
}

impl Stored {
    fn octets(&self) -> &[u8] {
        let octets = self.octets.get(..usize::from(self.length));
        octets.unwrap_or_default()
    }

    fn set(&mut self, name: &[u8]) {
        self.length = u8::try_from(name.len()).unwrap_or(0);
        for (place, octet) in self.octets.iter_mut().zip(name) {
            *place = *octet;
        }
    }
}
