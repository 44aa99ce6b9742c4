// SPDX-License-Identifier: Apache-2.0
//! Any frame that a guest leaves to be cut, with any segment size: whatever is cut has all of the data, in order, in frames
//! that are sound to the last checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quietwire_packet::{LargeFrame, Network, SEGMENT_HEADERS_MAX, Transport, checksum, parse};

/// Segments that one frame may become.
const SEGMENTS_MAX: usize = 64;

fuzz_target!(|input: (u16, &[u8])| {
    let (size, frame) = (usize::from(input.0).max(1), input.1);
    let front = &frame[..frame.len().min(SEGMENT_HEADERS_MAX)];
    let Some(headers) = LargeFrame::read(front, frame.len()) else {
        return;
    };
    let begin = headers.headers_length();
    let data = &frame[begin..begin + headers.data_length()];
    let mut heard = Vec::new();
    for (number, piece) in data.chunks(size).enumerate().take(SEGMENTS_MAX) {
        let mut segment = [&vec![0xee; begin], piece].concat();
        if !headers.write(&mut segment, number as u16, number * size) {
            return;
        }
        heard.extend_from_slice(check(&segment, headers.ethernet_length(), begin));
    }
    assert!(data.starts_with(&heard));
});

/// The data of a segment, which is sound.
fn check(segment: &[u8], ethernet: usize, begin: usize) -> &[u8] {
    if segment.len() <= 60 {
        // May be shorter than a frame on the wire, whose end would be padded.
        return &segment[begin..];
    }
    let parsed = parse(segment).expect("a segment can be parsed");
    let ip = parsed.ip().expect("IP");
    assert!(matches!(
        ip.transport,
        Transport::Tcp { .. } | Transport::Udp { .. }
    ));
    assert_eq!(usize::from(ip.end), segment.len());
    if let Network::Ipv4(_) = parsed.network {
        let length = usize::from(segment[ethernet] & 15) * 4;
        assert_eq!(checksum(&segment[ethernet..ethernet + length]), 0);
    }
    &segment[begin..]
}
