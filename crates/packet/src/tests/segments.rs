// SPDX-License-Identifier: Apache-2.0
//! Tests that segments equal those of the sender's own TCP: built independently, field by field, by etherparse.

use etherparse::{
    Ipv4Header as EtherparseIpv4, Ipv6FlowLabel, Ipv6Header as EtherparseIpv6, TcpHeader,
    UdpHeader, ip_number,
};
use proptest::prelude::*;

use crate::{LargeFrame, SEGMENT_HEADERS_MAX};

#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) tags: Vec<[u8; 4]>,
    pub(super) is_ipv4: bool,
    pub(super) identification: u16,
    pub(super) ip_options: usize,
    pub(super) tcp_options: usize,
    pub(super) sequence: u32,
    /// TCP flags without NS.
    pub(super) flags: u8,
    pub(super) urgent: u16,
    pub(super) data: Vec<u8>,
}

impl Spec {
    fn tcp(&self) -> TcpHeader {
        let mut tcp = TcpHeader::new(4711, 80, self.sequence, 500);
        tcp.acknowledgment_number = 99;
        tcp.urgent_pointer = self.urgent;
        let has = |bit: u8| self.flags & bit != 0;
        (tcp.fin, tcp.psh, tcp.ack) = (has(1), has(8), has(16));
        (tcp.urg, tcp.ece, tcp.cwr) = (has(32), has(64), has(128));
        let options: Vec<u8> = vec![1; self.tcp_options * 4];
        tcp.set_options_raw(&options).unwrap();
        tcp
    }

    /// Returns a frame with these octets of TCP data, with etherparse's checksums.
    pub(super) fn frame(&self, mut tcp: TcpHeader, number: u16, data: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend(tag);
        }
        let length = tcp.header_len() + data.len();
        if self.is_ipv4 {
            frame.extend([8, 0]);
            let mut ip =
                EtherparseIpv4::new(0, 64, ip_number::TCP, [192, 0, 2, 1], [192, 0, 2, 2]).unwrap();
            ip.options = vec![1; self.ip_options * 4].as_slice().try_into().unwrap();
            ip.set_payload_len(length).unwrap();
            ip.identification = self.identification.wrapping_add(number);
            ip.header_checksum = ip.calc_header_checksum();
            tcp.checksum = tcp.calc_checksum_ipv4(&ip, data).unwrap();
            ip.write(&mut frame).unwrap();
        } else {
            frame.extend([0x86, 0xdd]);
            let ip = EtherparseIpv6 {
                traffic_class: 3,
                flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
                payload_length: length as u16,
                next_header: ip_number::TCP,
                hop_limit: 64,
                source: [0x20; 16],
                destination: [0x21; 16],
            };
            tcp.checksum = tcp.calc_checksum_ipv6(&ip, data).unwrap();
            ip.write(&mut frame).unwrap();
        }
        tcp.write(&mut frame).unwrap();
        frame.extend(data);
        frame
    }

    /// Returns the offset of the checksum of TCP.
    pub(super) fn checksum_offset(&self) -> usize {
        let network = if self.is_ipv4 {
            20 + self.ip_options * 4
        } else {
            40
        };
        14 + self.tags.len() * 4 + network + 16
    }

    pub(super) fn whole(&self) -> Vec<u8> {
        self.frame(self.tcp(), 0, &self.data)
    }

    /// Returns the segments that TCP would have sent if it had cut the data itself.
    fn reference(&self, size: usize) -> Vec<Vec<u8>> {
        let count = self.data.chunks(size).count();
        let segment = |(number, data): (usize, &[u8])| {
            let offset = number * size;
            let mut tcp = self.tcp();
            tcp.sequence_number = self.sequence.wrapping_add(offset as u32);
            tcp.cwr &= number == 0;
            tcp.fin &= number == count - 1;
            tcp.psh &= number == count - 1;
            if tcp.urg && offset >= usize::from(self.urgent) {
                (tcp.urg, tcp.urgent_pointer) = (false, 0);
            } else if tcp.urg {
                tcp.urgent_pointer -= offset as u16;
            }
            self.frame(tcp, number as u16, data)
        };
        self.data.chunks(size).enumerate().map(segment).collect()
    }
}

/// Parses a frame of which only the headers are available.
fn read(frame: &[u8]) -> Option<LargeFrame> {
    LargeFrame::read(&frame[..frame.len().min(SEGMENT_HEADERS_MAX)], frame.len())
}

/// Segments a frame like a caller that has the octets in buffers.
pub(super) fn cut(frame: &[u8], size: usize) -> Option<Vec<Vec<u8>>> {
    let headers = read(frame)?;
    let begin = headers.headers_length();
    let data = &frame[begin..begin + headers.data_length()];
    let segment = |(number, data): (usize, &[u8])| {
        let mut segment = [&vec![0xee; begin], data].concat();
        headers
            .write(&mut segment, number as u16, number * size)
            .then_some(segment)
    };
    data.chunks(size).enumerate().map(segment).collect()
}

fn specs() -> impl Strategy<Value = Spec> {
    let tags = prop_oneof![
        Just(vec![]),
        Just(vec![[0x81, 0, 0x20, 1]]),
        Just(vec![[0x88, 0xa8, 0, 5], [0x81, 0, 0xef, 0xff]]),
    ];
    let ip = (any::<bool>(), any::<u16>(), 0..=10usize);
    let flags = any::<u8>().prop_map(|flags| flags & !0x06);
    let tcp = (
        0..=10usize,
        prop_oneof![any::<u32>(), Just(u32::MAX - 100)],
        flags,
        any::<u16>(),
    );
    let data = prop::collection::vec(any::<u8>(), 1..6000);
    (tags, ip, tcp, data).prop_map(|(tags, ip, tcp, data)| Spec {
        tags,
        is_ipv4: ip.0,
        identification: ip.1,
        ip_options: ip.2,
        tcp_options: tcp.0,
        sequence: tcp.1,
        flags: tcp.2,
        urgent: tcp.3,
        data,
    })
}

proptest! {
    #[test]
    fn segments_are_those_that_tcp_would_send(spec in specs(), size in 1..3000usize) {
        let size = size.max(spec.data.len() / 300);
        let frame = spec.whole();
        // A frame may have padding at its end.
        let padded = [&frame[..], &[0xaa; 5]].concat();
        prop_assert_eq!(cut(&padded, size), Some(spec.reference(size)));
    }

    #[test]
    fn segments_with_partial_checksums_are_right_once_a_device_completes_them(
        spec in specs(),
        size in 1..3000usize,
    ) {
        let size = size.max(spec.data.len() / 300);
        let frame = spec.whole();
        let headers = read(&frame).unwrap();
        let (begin, at) = (headers.headers_length(), spec.checksum_offset());
        for (number, data) in frame[begin..].chunks(size).enumerate() {
            let mut partial = [&vec![0xee; begin], data].concat();
            let mut complete = partial.clone();
            let (number, offset) = (number as u16, number * size);
            prop_assert!(headers.write(&mut complete, number, offset));
            prop_assert!(headers.write_partial(&mut partial, number, offset));
            // The sum covers the field, which has that of the pseudo header.
            let sum = crate::checksum(&partial[at - 16..]);
            partial[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            prop_assert_eq!(partial, complete);
        }
    }

    #[test]
    fn a_frame_handed_on_whole_is_right_once_its_sum_is_completed(spec in specs()) {
        let mut frame = spec.whole();
        let headers = read(&frame).unwrap();
        let at = headers.ethernet_length() + headers.network_length() + 16;
        let right = frame[at..at + 2].to_vec();
        frame[at..at + 2].copy_from_slice(&headers.partial_checksum().unwrap().to_be_bytes());
        let begin = headers.ethernet_length() + headers.network_length();
        let completed = crate::checksum(&frame[begin..]).to_be_bytes();
        // Zero has two representations in this sum.
        prop_assert!(completed[..] == right[..] || (completed == [0, 0] && right == [0xff, 0xff])
            || (completed == [0xff, 0xff] && right == [0, 0]));
    }

    #[test]
    fn any_octets_are_survived(
        mut frame in prop::collection::vec(any::<u8>(), 0..400),
        kind in 0..4,
        size in 1..600usize,
    ) {
        if frame.len() > 40 && kind > 0 {
            let start: &[u8] = if kind == 1 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] };
            frame[12..15].copy_from_slice(start);
            let at = if kind == 1 { 23 } else { 20 };
            frame[at] = 6;
        }
        if let Some(segments) = cut(&frame, size) {
            prop_assert!(segments.iter().all(|segment| segment.len() <= frame.len()));
        }
    }
}

fn plain() -> Spec {
    Spec {
        tags: vec![],
        is_ipv4: true,
        identification: 0xffff,
        ip_options: 0,
        tcp_options: 3,
        sequence: 7,
        flags: 0x18,
        urgent: 0,
        data: vec![5; 60_000],
    }
}

#[test]
fn the_longest_is_cut() {
    let frame = plain().whole();
    let segments = cut(&frame, 1448).unwrap();
    assert_eq!(segments.len(), 42);
    assert_eq!(segments[0].len(), 14 + 20 + 32 + 1448);
}

#[test]
fn malformed_ipv4_frames_are_not_segmented() {
    let good = plain().whole();
    let changed = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        read(&frame)
    };
    assert!(read(&good).is_some());
    for (what, at, value) in [
        ("another type", 12, 9),
        ("another version", 14, 0x65),
        ("a short header", 14, 0x44),
        ("longer than the frame", 16, 0xff),
        ("shorter than its headers", 16, 0),
        ("more fragments", 20, 0x20),
        ("a later fragment", 21, 1),
        ("neither TCP nor UDP", 23, 1),
        ("a short TCP header", 46, 0x40),
        ("SYN", 47, 0x12),
        ("RST", 47, 0x14),
    ] {
        let read = changed(at, value);
        // A payload length of a few octets is valid, but shorter than the headers that follow.
        assert_eq!(
            read.filter(|read| read.data_length() > 0x200),
            None,
            "{what}"
        );
    }
    for length in 0..66 {
        assert_eq!(LargeFrame::read(&good[..length], good.len()), None);
    }
}

#[test]
fn extension_headers_that_every_segment_may_have_are_kept_and_others_refused() {
    let spec = Spec {
        is_ipv4: false,
        ..plain()
    };
    let good = spec.whole();
    let with = |kind: u8| {
        let mut frame = good[..54].to_vec();
        frame[20] = kind;
        frame.extend([6, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend(&good[54..]);
        let length = (frame.len() as u16 - 54).to_be_bytes();
        frame[18..20].copy_from_slice(&length);
        read(&frame)
    };
    for kind in [0, 60] {
        assert_eq!(with(kind).unwrap().network_length(), 48);
    }
    for kind in [43, 44, 51, 50, 135] {
        assert_eq!(with(kind), None);
    }
}

#[test]
fn malformed_ipv6_frames_are_not_segmented() {
    let spec = Spec {
        is_ipv4: false,
        ..plain()
    };
    let good = spec.whole();
    assert!(!read(&good).unwrap().is_ipv4());
    for (what, at, value) in [
        ("another version", 14, 0x40),
        ("neither TCP nor UDP", 20, 58),
        ("SYN", 67, 0x12),
    ] {
        let mut frame = good.clone();
        frame[at] = value;
        assert_eq!(read(&frame), None, "{what}");
    }
    // The packet ends within its extension header.
    let mut frame = good.clone();
    frame[20] = 0;
    frame[54..56].copy_from_slice(&[6, 0]);
    frame[18..20].copy_from_slice(&[0, 7]);
    assert_eq!(read(&frame), None);
}

#[test]
fn flags_are_of_the_segments_that_they_belong_to() {
    let spec = Spec {
        flags: 0xb9,
        urgent: 100,
        data: vec![5; 300],
        ..plain()
    };
    let frame = spec.whole();
    assert!(read(&frame).unwrap().is_ipv4());
    assert!(read(&frame).unwrap().has_cwr());
    // Urgent data end where the second segment begins, so it has none.
    assert_eq!(cut(&frame, 100), Some(spec.reference(100)));
    let flags = cut(&frame, 100)
        .unwrap()
        .iter()
        .map(|segment| segment[47])
        .collect::<Vec<_>>();
    assert_eq!(flags, [0xb0, 0x10, 0x19]);
    let without = Spec {
        flags: 0x39,
        ..spec
    };
    let frame = without.whole();
    assert!(!read(&frame).unwrap().has_cwr());
}

/// Returns a frame with UDP data, built by etherparse.
pub(super) fn datagram(is_ipv4: bool, tagged: bool, identification: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    let length = (8 + data.len()) as u16;
    let udp = if is_ipv4 {
        let mut ip =
            EtherparseIpv4::new(length, 64, ip_number::UDP, [192, 0, 2, 1], [192, 0, 2, 2])
                .unwrap();
        ip.identification = identification;
        ip.header_checksum = ip.calc_header_checksum();
        frame.extend([8, 0]);
        ip.write(&mut frame).unwrap();
        UdpHeader::with_ipv4_checksum(4711, 443, &ip, data).unwrap()
    } else {
        let ip = EtherparseIpv6 {
            traffic_class: 3,
            flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
            payload_length: length,
            next_header: ip_number::UDP,
            hop_limit: 64,
            source: [0x20; 16],
            destination: [0x21; 16],
        };
        frame.extend([0x86, 0xdd]);
        ip.write(&mut frame).unwrap();
        UdpHeader::with_ipv6_checksum(4711, 443, &ip, data).unwrap()
    };
    udp.write(&mut frame).unwrap();
    frame.extend(data);
    frame
}

proptest! {
    #[test]
    fn datagrams_are_those_that_the_sender_put_together(
        is_ipv4 in any::<bool>(),
        tagged in any::<bool>(),
        identification in any::<u16>(),
        data in prop::collection::vec(any::<u8>(), 1..6000),
        size in 1..3000usize,
    ) {
        let size = size.max(data.len() / 300);
        let mut frame = datagram(is_ipv4, tagged, identification, &data);
        // The checksum of all data is not used.
        let headers = read(&frame).unwrap();
        let at = headers.headers_length() - 2;
        frame[at..at + 2].fill(0x5a);
        prop_assert!(!headers.is_tcp() && !headers.has_cwr());
        let datagrams: Vec<_> = data
            .chunks(size)
            .enumerate()
            .map(|(number, data)| {
                datagram(is_ipv4, tagged, identification.wrapping_add(number as u16), data)
            })
            .collect();
        prop_assert_eq!(cut(&frame, size), Some(datagrams));
    }
}
