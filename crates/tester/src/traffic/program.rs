// SPDX-License-Identifier: Apache-2.0
//! Description prepared for the packet path: one template per frame size, the words that differ between flows, and the sums of all
//! covered octets that are known in advance.
//!
//! Each frame costs a copy of its template, a store per varied word, the signature, and an addition and a fold per checksum, independent
//! of the headers. A buffer that has a frame of the same template already needs no copy.

mod checksum;
mod space;

use quietwire_base::random::mix;
use quietwire_memory::Span;
use quietwire_packet::{fold_sum, udp_checksum};

use super::draw::{ZipfTable, halves};
use super::field::{EXPONENT, Order};
use super::integrity::{self, Pattern};
use super::layout::{Cover, Layout, Sum};
use super::{Flows, Traffic};
use crate::frame::{SIGNATURE, Signature};

use checksum::sum;
use space::FrameSpace;

/// Flows with individual sequence numbers. If there are more flows, several share a sequence.
pub(crate) const TRACKED_MAX: u32 = 65_535;
/// Octets of the FCS. Frame sizes include it, buffers do not.
const FCS: u16 = 4;
/// Largest number of checksums in a frame: two of transport protocols, two of IPv4.
const SUMS_MAX: usize = 4;

/// Frame of one size with the octets that all flows share, and zeros where flows differ.
#[derive(Clone, Debug)]
struct Template {
    octets: Box<[u8]>,
    /// Sum of the covered octets of the template, for each checksum.
    sums: [u32; SUMS_MAX],
}

/// Place of a checksum, and whether it covers the payload and whether it must not be zero.
#[derive(Clone, Copy, Debug)]
struct FieldOffset {
    at: usize,
    covers_payload: bool,
    is_of_udp: bool,
}

/// Prepared frames of a port.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    templates: Vec<Template>,
    /// Index of each frame's template, in transmit order.
    sequence: Box<[u16]>,
    /// Offsets of the words that differ between flows.
    varied: Box<[u16]>,
    /// Values of these words, flow by flow.
    values: Box<[[u8; 2]]>,
    places: Vec<FieldOffset>,
    /// Contribution of the varied words, for each flow and checksum.
    sums: Box<[u32]>,
    flows: u32,
    order: Drawing,
    /// Offset of the signature.
    place: usize,
    /// Coverage of each checksum.
    covers: Vec<Cover>,
    has_integrity: bool,
}

/// Contents of a buffer that the next frame is written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferContents {
    /// Nothing that the frame has.
    Other,
    /// The octets behind the head, from [`Program::write_tail`].
    Tail,
    /// A frame of the same template.
    Template,
}

/// Order of the flows.
#[derive(Clone, Debug)]
enum Drawing {
    Sequential,
    Uniform { seed: u64 },
    Zipf { seed: u64, table: ZipfTable },
}

impl Program {
    /// Prepares the frames of one port.
    ///
    /// # Errors
    /// A sentence, if a size does not hold the headers and the signature.
    pub(crate) fn new(traffic: &Traffic, sizes: &[u16], port: u8) -> Result<Self, String> {
        let layout = Layout::new(traffic, port);
        let smallest = smallest(traffic);
        if let Some(size) = sizes.iter().find(|size| **size < smallest) {
            return Err(format!(
                "frames of {size} octets are too small: the headers and the tester's signature require {smallest} octets with FCS"
            ));
        }
        let flows = traffic.flow_count();
        let place = layout.length();
        let varied = varied_words(&layout, flows);
        let sums = layout.sums();
        let (values, flow_sums) = of_flows(&layout, flows, &varied, &sums);
        let mut distinct: Vec<u16> = sizes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let pattern = Pattern::new(traffic.seed);
        let templates = distinct
            .iter()
            .map(|size| template(&layout, *size, &varied, &sums, &pattern, traffic.integrity))
            .collect();
        let index_of = |size: &u16| place_of(distinct.binary_search(size).unwrap_or(0));
        Ok(Self {
            templates,
            sequence: sizes.iter().map(index_of).collect(),
            varied: varied.iter().map(|place| place_of(*place)).collect(),
            values,
            places: sums
                .iter()
                .map(|sum| FieldOffset {
                    at: sum.at,
                    covers_payload: sum.covers_payload(),
                    is_of_udp: sum.is_of_udp(),
                })
                .collect(),
            sums: flow_sums,
            flows,
            order: drawing(
                traffic.flows.as_ref(),
                flows,
                traffic.seed ^ u64::from(port),
            ),
            place,
            covers: sums.into_iter().map(|sum| sum.covers).collect(),
            has_integrity: traffic.integrity,
        })
    }

    /// Returns the number of frames after which the sizes repeat.
    pub(crate) fn sequence_length(&self) -> usize {
        self.sequence.len()
    }

    /// Returns the number of flows of the port.
    pub(crate) fn flows(&self) -> u32 {
        self.flows
    }

    /// Returns the flow of a port's n-th frame.
    #[inline(always)]
    pub(crate) fn flow(&self, number: u64, next: u32) -> u32 {
        match &self.order {
            Drawing::Sequential => next,
            Drawing::Uniform { seed } => {
                let random = mix(seed.wrapping_add(number));
                let (high, _) = halves(random);
                halves(u64::from(high).wrapping_mul(self.flows.into())).0
            }
            Drawing::Zipf { seed, table } => table.draw(mix(seed.wrapping_add(number))),
        }
    }

    /// Returns the length without FCS of the frame at a position of the size sequence, octets.
    #[inline(always)]
    pub(crate) fn length(&self, position: usize) -> u16 {
        let template = self.template(position);
        template.map_or(0, |template| place_of(template.octets.len()))
    }

    #[inline(always)]
    fn template(&self, position: usize) -> Option<&Template> {
        self.templates
            .get(usize::from(*self.sequence.get(position)?))
    }

    /// Writes a whole frame. Returns false if its length differs from the one at that position.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        position: usize,
        flow: u32,
        signature: Signature,
        frame: &mut [u8],
    ) -> bool {
        let Some(template) = self.template(position) else {
            return false;
        };
        if frame.len() != template.octets.len() {
            return false;
        }
        frame.copy_from_slice(&template.octets);
        self.write_changes(template, flow, signature, frame);
        true
    }

    /// Writes the frame at a position to the start of memory shared with a peer, without the octets that are there already.
    #[inline(always)]
    pub(crate) fn write_shared(
        &self,
        position: usize,
        flow: u32,
        signature: Signature,
        (mut octets, contents): (Span<'_>, BufferContents),
    ) {
        let Some(template) = self.template(position) else {
            return;
        };
        match contents {
            BufferContents::Other => {
                octets.copy_from(&template.octets);
            }
            BufferContents::Tail => {
                octets.copy_from(template.octets.get(..self.head()).unwrap_or_default());
            }
            BufferContents::Template => {}
        }
        self.write_changes(template, flow, signature, &mut octets);
    }

    /// Writes the octets behind the head of the longest frame. A shorter frame of the port has the first of them.
    #[cold]
    pub(crate) fn write_tail(&self, octets: Span<'_>) {
        let longest = self.templates.last();
        let tail = longest.and_then(|longest| longest.octets.get(self.head()..));
        octets
            .split_at(self.head())
            .1
            .copy_from(tail.unwrap_or_default());
    }

    /// Returns the index of the template at a position of the size sequence.
    #[inline(always)]
    pub(crate) fn template_index(&self, position: usize) -> u16 {
        self.sequence.get(position).copied().unwrap_or(0)
    }

    /// Returns the octets at the front in which frames differ: headers, signature, and the seal if there is one.
    #[inline(always)]
    pub(crate) fn head(&self) -> usize {
        let seal = if self.has_integrity {
            integrity::SEAL
        } else {
            0
        };
        self.place.wrapping_add(SIGNATURE).wrapping_add(seal)
    }

    /// Writes what differs from the template.
    #[inline(always)]
    fn write_changes<S: FrameSpace + ?Sized>(
        &self,
        template: &Template,
        flow: u32,
        signature: Signature,
        frame: &mut S,
    ) {
        let words = self.varied.len();
        let first = (flow as usize).wrapping_mul(words);
        let values = self.values.get(first..first.wrapping_add(words));
        let values = values.unwrap_or_default();
        for (place, value) in self.varied.iter().zip(values) {
            frame.put(usize::from(*place), *value);
        }
        let octets = signature.octets();
        frame.put(self.place, octets);
        let mut payload = sum(&octets);
        if self.has_integrity {
            let length = template.octets.len().saturating_sub(self.place);
            let seal = integrity::seal(&octets, place_of(length));
            frame.put(self.place.wrapping_add(SIGNATURE), seal);
            payload = payload.wrapping_add(sum(&seal));
        }
        let first = (flow as usize).wrapping_mul(self.places.len());
        let of_flow = self.sums.get(first..).unwrap_or_default();
        let sums = template.sums.iter().zip(of_flow);
        for (place, (constant, varied)) in self.places.iter().zip(sums) {
            let known = u64::from(*constant).wrapping_add(u64::from(*varied));
            let covered = if place.covers_payload { payload } else { 0 };
            let checksum = !fold_sum(known.wrapping_add(covered));
            let checksum = if place.is_of_udp {
                udp_checksum(checksum)
            } else {
                checksum
            };
            frame.put(place.at, checksum.to_be_bytes());
            // The following checksums are outer ones and cover this one.
            payload = payload.wrapping_add(u64::from(checksum));
        }
    }

    /// Returns the coverage of the checksums.
    pub(crate) fn covers(&self) -> &[Cover] {
        &self.covers
    }

    /// Returns the offset of the signature.
    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

impl Traffic {
    /// Returns the smallest frame that holds all headers and the tester's signature, octets with FCS.
    #[must_use]
    pub fn frame_size_min(&self) -> u16 {
        smallest(self)
    }
}

/// Returns the smallest frame that holds all headers and the signature, octets with FCS.
pub(crate) fn smallest(traffic: &Traffic) -> u16 {
    let seal = if traffic.integrity {
        integrity::SEAL
    } else {
        0
    };
    let needed = Layout::new(traffic, 0)
        .length()
        .saturating_add(SIGNATURE)
        .saturating_add(seal)
        .saturating_add(usize::from(FCS));
    place_of(needed).max(*super::genome::SIZES.start())
}

/// Converts a length, an offset in a frame, or an index of one of its sizes: a frame has at most 9,000 octets, and a sequence has no more
/// sizes.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "less than 16 bits; this is called for each frame"
)]
const fn place_of(octets: usize) -> u16 {
    debug_assert!(octets <= u16::MAX as usize);
    octets as u16
}

fn drawing(flows: Option<&Flows>, count: u32, seed: u64) -> Drawing {
    let seed = mix(seed);
    match flows.map(|flows| (flows.order, flows.exponent)) {
        Some((Order::Uniform, _)) => Drawing::Uniform { seed },
        Some((Order::Zipf, exponent)) => Drawing::Zipf {
            seed,
            table: ZipfTable::new(count, exponent.unwrap_or(EXPONENT)),
        },
        Some((Order::Sequential, _)) | None => Drawing::Sequential,
    }
}

/// Returns a frame that consists of headers only. Its length fields are the same for all flows.
fn heads(layout: &Layout) -> Vec<u8> {
    vec![0; layout.length().next_multiple_of(2)]
}

/// Returns the words in which any flow differs from the first.
fn varied_words(layout: &Layout, flows: u32) -> Vec<usize> {
    let (mut first, mut other) = (heads(layout), heads(layout));
    layout.write(0, &mut first);
    let mut varies = vec![false; first.len() / 2];
    for flow in 1..flows {
        layout.write(flow, &mut other);
        let words = first.chunks(2).zip(other.chunks(2));
        for (varies, (one, two)) in varies.iter_mut().zip(words) {
            *varies |= one != two;
        }
    }
    let places = varies.iter().enumerate();
    places
        .filter_map(|(word, varies)| varies.then_some(word.saturating_mul(2)))
        .collect()
}

/// Returns the varied words of all flows, and their contributions to each checksum.
fn of_flows(
    layout: &Layout,
    flows: u32,
    varied: &[usize],
    sums: &[Sum],
) -> (Box<[[u8; 2]]>, Box<[u32]>) {
    let mut head = heads(layout);
    let of_all = |count: usize| count.saturating_mul(flows as usize);
    let mut values = Vec::with_capacity(of_all(varied.len()));
    let mut added = Vec::with_capacity(of_all(sums.len()));
    for flow in 0..flows {
        layout.write(flow, &mut head);
        let word = |place: usize| -> [u8; 2] {
            let octets = head.get(place..).and_then(<[u8]>::first_chunk::<2>);
            octets.copied().unwrap_or_default()
        };
        values.extend(varied.iter().map(|place| word(*place)));
        for sum in sums {
            let parts = varied.iter().map(|place| {
                let value = u32::from(u16::from_be_bytes(word(*place)));
                value.wrapping_mul(sum.times(*place))
            });
            added.push(parts.sum());
        }
    }
    (values.into_boxed_slice(), added.into_boxed_slice())
}

fn template(
    layout: &Layout,
    size: u16,
    varied: &[usize],
    sums: &[Sum],
    pattern: &Pattern,
    has_integrity: bool,
) -> Template {
    let mut octets = vec![0; usize::from(size.saturating_sub(FCS))];
    layout.write(0, &mut octets);
    for place in varied {
        let word = octets
            .get_mut(*place..)
            .and_then(<[u8]>::first_chunk_mut::<2>);
        if let Some(word) = word {
            *word = [0, 0];
        }
    }
    if has_integrity {
        let payload = octets.get_mut(layout.length()..).unwrap_or_default();
        pattern.fill(payload);
    }
    let mut constants = [0; SUMS_MAX];
    for (constant, sum) in constants.iter_mut().zip(sums) {
        *constant = sum.constant(&octets);
    }
    Template {
        octets: octets.into_boxed_slice(),
        sums: constants,
    }
}
