// SPDX-License-Identifier: Apache-2.0
//! Tests that built frames have the requested fields, as etherparse reads them.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use crate::{
    BuildError, EtherType, EthernetFrame, MacAddress, Network, Transport, UdpChecksum, UdpFrame,
    VlanId, VlanTag, parse,
};

const DESTINATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

fn udp(payload: &[u8], size_with_fcs: u16) -> UdpFrame<'_> {
    UdpFrame {
        destination_mac: DESTINATION,
        source_mac: SOURCE,
        tag: None,
        destination_ip: [192, 18, 0, 2].into(),
        source_ip: [192, 18, 0, 1].into(),
        ttl: 64,
        destination_port: 7,
        source_port: 49152,
        udp_checksum: UdpChecksum::Computed,
        payload,
        size_with_fcs,
    }
}

#[test]
fn smallest_frame_octet_by_octet() {
    let mut buffer = [0xee; 64];
    assert_eq!(udp(b"quiet", 64).write(&mut buffer), Ok(60));
    let mut expected = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    // The checksum by hand: 4500 002e 4000 4011 c012 0001 c012 0002 sum to 24566, folded 4568, its complement ba97.
    expected.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0xba, 0x97]);
    expected.extend([192, 18, 0, 1, 192, 18, 0, 2]);
    // c012 0001 c012 0002 0011 001a (pseudo header) c000 0007 001a 0000 (header) 7175 6965 7400 (payload) sum to
    // 38f4d, folded 8f50, its complement 70af.
    expected.extend([0xc0, 0, 0, 7, 0, 26, 0x70, 0xaf]);
    assert_eq!(buffer[..42], expected);
    assert_eq!(buffer[42..47], *b"quiet");
    assert_eq!(buffer[47..60], [0; 13]);
    assert_eq!(buffer[60..], [0xee; 4], "wrote past the end of the frame");
}

#[test]
fn packets_that_do_not_fit_are_refused_and_nothing_is_written() {
    let mut buffer = [0xee; 100];
    // 14 + 20 + 8 + 5 + FCS.
    assert_eq!(
        udp(b"quiet", 50).write(&mut buffer),
        Err(BuildError::SizeTooSmall {
            size_with_fcs: 50,
            needed_with_fcs: 51
        })
    );
    assert!(udp(b"", 3).write(&mut buffer).is_err());
    assert_eq!(
        udp(b"quiet", 105).write(&mut buffer),
        Err(BuildError::BufferTooSmall {
            buffer: 100,
            needed: 101
        })
    );
    assert_eq!(buffer, [0xee; 100]);
    assert_eq!(udp(b"quiet", 51).write(&mut buffer), Ok(47));
    assert_eq!(udp(b"quiet", 104).write(&mut buffer), Ok(100));
    assert_eq!(udp(b"", u16::MAX).write(&mut vec![0; 70_000]), Ok(65_531));
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    // The first two octets of the payload are chosen so that the sum comes out as zero.
    let mut buffer = [0; 60];
    udp(&[0, 0], 64).write(&mut buffer).unwrap();
    let sum = [buffer[40], buffer[41]];
    udp(&sum, 64).write(&mut buffer).unwrap();
    assert_eq!(buffer[40..42], [0xff, 0xff]);
}

fn tags() -> impl Strategy<Value = Option<VlanTag>> {
    prop::option::of((1..=4094u16, 0..8u16).prop_map(|(number, priority)| {
        let tag = VlanTag::customer(VlanId::new(number).unwrap());
        VlanTag {
            tci: tag.tci | priority << 13,
            ..tag
        }
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn udp_frames_are_what_was_asked_for(
        macs in any::<([u8; 6], [u8; 6])>(),
        tag in tags(),
        ips in any::<([u8; 4], [u8; 4])>(),
        ports in any::<(u16, u16)>(),
        ttl in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        spare in 0..9000u16,
        computed in any::<bool>(),
    ) {
        let mut wanted = UdpFrame {
            destination_mac: MacAddress(macs.0),
            source_mac: MacAddress(macs.1),
            tag,
            destination_ip: ips.0.into(),
            source_ip: ips.1.into(),
            ttl,
            destination_port: ports.0,
            source_port: ports.1,
            udp_checksum: if computed { UdpChecksum::Computed } else { UdpChecksum::Absent },
            payload: &payload,
            size_with_fcs: 0,
        };
        wanted.size_with_fcs = (wanted.payload_offset() + payload.len() + 4) as u16 + spare;
        let mut buffer = vec![0xee; 10_000];
        let length = wanted.write(&mut buffer).unwrap();
        prop_assert_eq!(length + 4, usize::from(wanted.size_with_fcs));
        prop_assert!(buffer[length..].iter().all(|b| *b == 0xee));
        let frame = &buffer[..length];

        let parsed = parse(frame).unwrap();
        prop_assert_eq!((parsed.destination, parsed.source), (wanted.destination_mac, wanted.source_mac));
        prop_assert_eq!(parsed.tags, [tag, None]);
        let ip = parsed.ip().unwrap();
        prop_assert_eq!(usize::from(ip.end), length);
        prop_assert_eq!(usize::from(ip.transport_offset) + 8, wanted.payload_offset());
        let udp = Transport::Udp { source_port: ports.1, destination_port: ports.0 };
        prop_assert_eq!(ip.transport, udp);
        prop_assert!(parsed.ipv4(frame).unwrap().checksum_is_right());

        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(NetSlice::Ipv4(net)) = &sliced.net else { panic!("no IPv4") };
        let header = net.header().to_header();
        prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
        prop_assert_eq!((header.destination, header.source, header.time_to_live), (ips.0, ips.1, ttl));
        prop_assert!(header.dont_fragment);
        let Some(TransportSlice::Udp(theirs)) = &sliced.transport else { panic!("no UDP") };
        prop_assert_eq!(usize::from(theirs.length()), theirs.slice().len());
        prop_assert_eq!(theirs.payload().len(), payload.len() + usize::from(spare));
        prop_assert!(theirs.payload().starts_with(&payload));
        prop_assert!(theirs.payload()[payload.len()..].iter().all(|b| *b == 0));
        let right = theirs.to_header().calc_checksum_ipv4(&header, theirs.payload()).unwrap();
        prop_assert_eq!(theirs.checksum(), if computed { right } else { 0 });
    }

    #[test]
    fn ethernet_frames_are_what_was_asked_for(
        tag in tags(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        spare in 0..2000u16,
    ) {
        let least = 14 + tag.map_or(0, |_| 4) + payload.len() + 4;
        let wanted = EthernetFrame {
            destination: DESTINATION,
            source: SOURCE,
            tag,
            ethertype: EtherType::LOCAL_EXPERIMENTAL,
            payload: &payload,
            size_with_fcs: least as u16 + spare,
        };
        let mut buffer = vec![0xee; 3000];
        let length = wanted.write(&mut buffer).unwrap();
        prop_assert_eq!(length + 4, least + usize::from(spare));
        prop_assert!(buffer[length..].iter().all(|b| *b == 0xee));
        let parsed = parse(&buffer[..length]).unwrap();
        prop_assert_eq!((parsed.destination, parsed.source), (DESTINATION, SOURCE));
        prop_assert_eq!(parsed.tags, [tag, None]);
        prop_assert_eq!(parsed.ethertype, EtherType::LOCAL_EXPERIMENTAL);
        prop_assert_eq!(parsed.network, Network::Other);
        let rest = &buffer[usize::from(parsed.network_offset)..length];
        prop_assert!(rest.starts_with(&payload));
        prop_assert!(rest[payload.len()..].iter().all(|b| *b == 0));
        let short = EthernetFrame { size_with_fcs: least as u16 - 1, ..wanted };
        prop_assert!(short.write(&mut buffer).is_err());
    }
}
