// SPDX-License-Identifier: Apache-2.0
//! Merging of TCP segments and of UDP datagrams that leave in one burst into frames of up to 64 KiB, which the receiver's kernel handles at
//! once (generic receive offload).
//!
//! Only ports with `gro=on` run this code (`PortUri::merges_segments`).

use std::array;

use quietwire_dpdk::{LargeKind, MERGED_MAX, Mbuf, MergedFrame};
use quietwire_packet::{DataSegment, Merge};

/// Flows with segments that wait for others of the same burst. The limit bounds the comparisons for each frame.
const FLOWS_MAX: usize = 8;

/// Kinds of merged frames that a port accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MergedKinds {
    /// True over IPv4 and over IPv6.
    tcp: [bool; 2],
    udp: [bool; 2],
}

impl MergedKinds {
    /// Returns the kinds for which `accepts` returns true.
    pub(super) fn of(accepts: impl Fn(LargeKind) -> bool) -> Self {
        let over_ip = |is_tcp| {
            [true, false].map(|is_ipv4| {
                accepts(LargeKind {
                    is_ipv4,
                    is_tcp,
                    has_cwr: false,
                })
            })
        };
        Self {
            tcp: over_ip(true),
            udp: over_ip(false),
        }
    }

    /// Returns true if the port accepts no merged frames.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    const fn has_kind_of(self, segment: &DataSegment<'_>) -> bool {
        let [ipv4, ipv6] = if segment.is_tcp() { self.tcp } else { self.udp };
        if segment.is_ipv4() { ipv4 } else { ipv6 }
    }
}

/// Segments of one flow.
struct Flow<'burst> {
    merge: Merge,
    frame: MergedFrame<'burst>,
}

/// The frames of one burst to a port, of which segments wait for others.
pub(super) struct Merger<'burst> {
    accepts: MergedKinds,
    flows: [Option<Flow<'burst>>; FLOWS_MAX],
    /// Place of the flow that gives way to another.
    next: usize,
    merged: u64,
}

impl<'burst> Merger<'burst> {
    /// Returns a merger for a port that accepts merged frames of these kinds.
    pub(super) fn new(accepts: MergedKinds) -> Self {
        Self {
            accepts,
            flows: array::from_fn(|_| None),
            next: 0,
            merged: 0,
        }
    }

    /// Returns the number of segments that were merged.
    pub(super) const fn merged(&self) -> u64 {
        self.merged
    }

    /// Adds a frame. Calls `pass` with each frame that does not wait any longer. Segments of a flow keep their order, and they do not pass
    /// frames without a flow.
    pub(super) fn push(&mut self, frame: Mbuf<'burst>, pass: &mut impl FnMut(Mbuf<'burst>)) {
        let frame = match frame.into_exclusive() {
            Ok(frame) => frame,
            Err(frame) => {
                self.flush(pass);
                return pass(frame);
            }
        };
        let Some(segment) = DataSegment::read(frame.octets()) else {
            self.flush(pass);
            return pass(frame.into_frame());
        };
        let segment = segment.with_verified_checksum(frame.has_verified_checksum());
        let mut places = self.flows.iter().enumerate();
        let found = places.find_map(|(place, flow)| {
            let is_its = segment.has_flow_of(&flow.as_ref()?.merge);
            is_its.then_some(place)
        });
        if let Some(place) = found {
            let flow = self.flows.get_mut(place);
            if let Some(Some(flow)) = flow
                && flow.merge.count() < MERGED_MAX
                && flow.merge.add(&segment)
            {
                flow.frame.append(frame, flow.merge.headers_length());
                if flow.merge.is_complete() {
                    self.end(place, pass);
                }
                return;
            }
            self.end(place, pass);
        }
        // A sum over the data is computed of accepted kinds only, and not if a card has verified it.
        let merge = if self.accepts.has_kind_of(&segment) {
            Merge::begin(&segment)
        } else {
            None
        };
        match merge {
            Some(merge) => {
                let flow = Flow {
                    merge,
                    frame: MergedFrame::new(frame),
                };
                self.begin(flow, found, pass);
            }
            None => pass(frame.into_frame()),
        }
    }

    /// Passes all frames that wait.
    pub(super) fn flush(&mut self, pass: &mut impl FnMut(Mbuf<'burst>)) {
        for place in 0..FLOWS_MAX {
            self.end(place, pass);
        }
    }

    /// Lets a flow wait, in this place if there is one.
    fn begin(
        &mut self,
        flow: Flow<'burst>,
        place: Option<usize>,
        pass: &mut impl FnMut(Mbuf<'burst>),
    ) {
        let free = || self.flows.iter().position(Option::is_none);
        let place = place.or_else(free).unwrap_or_else(|| {
            let oldest = self.next;
            self.next = oldest.wrapping_add(1) % FLOWS_MAX;
            oldest
        });
        self.end(place, pass);
        if let Some(free) = self.flows.get_mut(place) {
            *free = Some(flow);
        }
    }

    /// Passes the frame of a place.
    fn end(&mut self, place: usize, pass: &mut impl FnMut(Mbuf<'burst>)) {
        let Some(Flow { merge, mut frame }) = self.flows.get_mut(place).and_then(Option::take)
        else {
            return;
        };
        if merge.count() == 1 {
            return pass(frame.into_frame());
        }
        self.merged = self.merged.wrapping_add(u64::from(merge.count()));
        // The first segment holds all headers, so they are always written.
        if frame.front_mut().is_some_and(|front| merge.write(front)) {
            pass(frame.finish(merge.segment_size()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use quietwire_dpdk::{Eal, Mempool};
    use quietwire_packet::checksum;

    use super::*;
    use crate::forward::Segmenter;
    use crate::testing::eal;

    const LENGTH_MAX: usize = 1514;
    const BUFFERS: u32 = 1023;
    /// Flows from this one on are of UDP.
    const UDP_FLOWS: u8 = 8;
    const ALL: MergedKinds = MergedKinds {
        tcp: [true; 2],
        udp: [true; 2],
    };

    /// The next frame of a test.
    #[derive(Clone, Debug)]
    struct Step {
        flow: u8,
        data: usize,
        kind: Kind,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Segment,
        Push,
        Mark,
        Acknowledgment,
        WrongChecksum,
        OtherProtocol,
        Shared,
    }

    impl Step {
        const fn is_udp(&self) -> bool {
            self.flow >= UDP_FLOWS
        }

        /// Octets of Ethernet, IPv4, and TCP or UDP.
        const fn headers(&self) -> usize {
            if self.is_udp() { 42 } else { 54 }
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![
            30 => Just(Kind::Segment),
            2 => Just(Kind::Push),
            1 => Just(Kind::Mark),
            1 => Just(Kind::Acknowledgment),
            1 => Just(Kind::WrongChecksum),
            1 => Just(Kind::OtherProtocol),
            1 => Just(Kind::Shared),
        ];
        let data = prop_oneof![4 => Just(100usize), 1 => 1..=1400usize];
        (0..12u8, data, kind).prop_map(|(flow, data, kind)| Step { flow, data, kind })
    }

    /// Returns a pool whose name no other has.
    fn pool(eal: &Eal) -> Mempool {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Mempool::new(eal, &format!("merge{number}"), BUFFERS, 2048).unwrap()
    }

    fn put(octets: &mut [u8], at: usize, value: u16) {
        octets[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Returns a frame of a flow at this position of its data, with this identification.
    fn frame(step: &Step, position: u32, identification: u16) -> Vec<u8> {
        let data = match step.kind {
            Kind::Acknowledgment => 0,
            _ => step.data,
        };
        let headers = step.headers();
        let mut frame = vec![0; headers + data];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        frame[14] = 0x45;
        frame[15] = if step.kind == Kind::Mark { 3 } else { 2 };
        let length = (headers - 14 + data) as u16;
        put(&mut frame, 16, length);
        put(&mut frame, 18, identification);
        (frame[22], frame[23]) = (64, if step.is_udp() { 17 } else { 6 });
        frame[26..34].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        put(&mut frame, 34, 1000 + u16::from(step.flow));
        put(&mut frame, 36, 80);
        let checksum_at = if step.is_udp() {
            put(&mut frame, 38, length - 20);
            40
        } else {
            frame[38..42].copy_from_slice(&position.to_be_bytes());
            (frame[46], frame[47]) = (0x50, if step.kind == Kind::Push { 0x18 } else { 0x10 });
            50
        };
        for (at, octet) in frame[headers..].iter_mut().enumerate() {
            *octet = (position as usize + at) as u8;
        }
        // The pseudo header (RFC 9293, section 3.1; RFC 768) stands before TCP or UDP.
        let mut covered = frame[26..34].to_vec();
        covered.extend([0, frame[23]]);
        covered.extend((length - 20).to_be_bytes());
        covered.extend(&frame[34..]);
        let sum = match checksum(&covered) {
            0 if step.is_udp() => 0xffff,
            sum => sum,
        };
        put(&mut frame, checksum_at, sum);
        match step.kind {
            Kind::WrongChecksum => frame[checksum_at] ^= 1,
            Kind::OtherProtocol => frame[23] = 132,
            _ => {}
        }
        let sum = checksum(&frame[14..34]);
        put(&mut frame, 24, sum);
        frame
    }

    fn frames(steps: &[Step]) -> Vec<Vec<u8>> {
        let mut flows = [(0u32, 0u16); 12];
        let next = |step: &Step| {
            let (position, identification) = &mut flows[usize::from(step.flow)];
            let frame = frame(step, *position, *identification);
            *position += (frame.len() - step.headers()) as u32;
            *identification += 1;
            frame
        };
        steps.iter().map(next).collect()
    }

    fn whole(frame: &Mbuf<'_>) -> Vec<u8> {
        let mut octets = vec![0; frame.length() as usize];
        assert!(frame.read_at(0, &mut octets));
        octets
    }

    /// Merges frames. Returns all that passed, cut into segments if they were merged, and the number of frames that passed.
    fn merged_and_cut(steps: &[Step], sent: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize, u64) {
        let eal = eal();
        let pool = pool(&eal);
        let segmenter = Segmenter::new(pool.clone(), LENGTH_MAX);
        let (mut passed, mut count) = (Vec::new(), 0);
        let mut shared = Vec::new();
        let mut pass = |frame: Mbuf<'_>| {
            count += 1;
            if Segmenter::concerns(&frame) {
                assert!(segmenter.segment_into(&frame, |segment| passed.push(whole(&segment))));
            } else {
                passed.push(whole(&frame));
            }
        };
        let mut merger = Merger::new(ALL);
        for (step, octets) in steps.iter().zip(sent) {
            let frame = Mbuf::new(&eal, &pool, octets).unwrap();
            if step.kind == Kind::Shared {
                shared.push(frame.share());
            }
            merger.push(frame, &mut pass);
        }
        merger.flush(&mut pass);
        let merged = merger.merged();
        drop((merger, shared));
        assert_eq!(pool.available(), BUFFERS, "a buffer is lost");
        (passed, count, merged)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn each_flow_leaves_as_it_came(steps in prop::collection::vec(step(), 1..64)) {
            let sent = frames(&steps);
            let (passed, count, merged) = merged_and_cut(&steps, &sent);
            prop_assert_eq!(passed.len(), sent.len());
            prop_assert!(count + merged as usize >= passed.len());
            // The frames of each pair of ports, in order.
            let of = |all: &[Vec<u8>], flow: u8| -> Vec<Vec<u8>> {
                let port = 1000 + u16::from(flow);
                let is_its = |frame: &&Vec<u8>| frame[34..36] == port.to_be_bytes();
                all.iter().filter(is_its).cloned().collect()
            };
            for flow in 0..12 {
                prop_assert_eq!(of(&passed, flow), of(&sent, flow));
            }
        }
    }

    fn steps(of: impl Iterator<Item = (u8, Kind)>) -> Vec<Step> {
        let step = |(flow, kind)| Step {
            flow,
            data: 1000,
            kind,
        };
        of.map(step).collect()
    }

    #[test]
    fn segments_of_interleaved_flows_become_one_frame_of_each() {
        // Two flows of TCP, two of UDP.
        let flow = |number: u8| UDP_FLOWS - 2 + number % 4;
        let steps = steps((0..40).map(|number| (flow(number), Kind::Segment)));
        let (passed, count, merged) = merged_and_cut(&steps, &frames(&steps));
        assert_eq!((passed.len(), count, merged), (40, 4, 40));
    }

    #[test]
    fn a_frame_has_at_most_as_many_segments_as_a_port_can_send() {
        let steps = steps((0..60).map(|_| (0, Kind::Segment)));
        let (passed, count, merged) = merged_and_cut(&steps, &frames(&steps));
        assert_eq!((passed.len(), count, merged), (60, 2, 60));
        assert_eq!(MERGED_MAX, 44);
    }

    #[test]
    fn a_port_gets_segments_of_kinds_that_it_does_not_take_whole() {
        // Four segments and four datagrams, interleaved.
        let flow = |number: u8| UDP_FLOWS - 1 + number % 2;
        let steps = steps((0..8).map(|number| (flow(number), Kind::Segment)));
        let eal = eal();
        let pool = pool(&eal);
        for (accepts, count_expected) in [
            (MergedKinds::of(|_| false), (8, 0)),
            (MergedKinds::of(|kind| !kind.is_ipv4), (8, 0)),
            (MergedKinds::of(|kind| kind.is_tcp), (5, 4)),
            (MergedKinds::of(|kind| !kind.is_tcp), (5, 4)),
            (MergedKinds::of(|_| true), (2, 8)),
        ] {
            let mut merger = Merger::new(accepts);
            let mut count = 0;
            for octets in frames(&steps) {
                let frame = Mbuf::new(&eal, &pool, &octets).unwrap();
                merger.push(frame, &mut |_| count += 1);
            }
            merger.flush(&mut |_| count += 1);
            assert_eq!((count, merger.merged()), count_expected, "{accepts:?}");
        }
        assert!(MergedKinds::of(|_| false).is_empty() && !ALL.is_empty());
    }
}
