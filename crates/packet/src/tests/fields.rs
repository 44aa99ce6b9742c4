// SPDX-License-Identifier: Apache-2.0
//! Each field of each header, from octets written by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{
    ArpOperation, ArpPacket, EtherType, Fragment, IcmpHeader, IpProtocol, Ipv4Header, Ipv6Header,
    MacAddress, TcpHeader, UdpHeader, VlanId, be16_at, be32_at, walk_ipv6_extensions,
};

#[test]
fn ethernet() {
    assert_eq!(u16::from(VlanId::new(4094).unwrap()), 4094);
    // IEEE 802.3, clause 3.2.6: up to 1500 the field is a length.
    assert!(EtherType(1500).is_length());
    assert!(!EtherType(1501).is_length());
}

#[test]
fn ipv4_with_options() {
    let mut octets = [
        0x46, 0xb9, 0, 28, 0x12, 0x34, 0x40, 0, 63, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2, 1, 1,
        1, 1, 0xaa, 0xbb, 0xcc, 0xdd,
    ];
    let sum = crate::checksum(&octets[..24]).to_be_bytes();
    octets[10..12].copy_from_slice(&sum);
    let (header, payload) = Ipv4Header::split(&octets).unwrap();
    assert_eq!(payload, [0xaa, 0xbb, 0xcc, 0xdd]);
    assert_eq!((header.length(), header.total_length()), (24, 28));
    assert_eq!(header.options(), [1; 4]);
    assert_eq!((header.dscp(), header.ecn()), (0x2e, 1));
    assert_eq!(header.identification(), 0x1234);
    assert!(header.dont_fragment());
    assert_eq!(header.fragment(), Fragment::Whole);
    assert_eq!((header.ttl(), header.protocol()), (63, IpProtocol::UDP));
    assert_eq!(header.checksum(), u16::from_be_bytes(sum));
    assert_eq!(header.source(), Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(header.destination(), Ipv4Addr::new(198, 51, 100, 2));
    assert!(header.checksum_is_right());
    for place in 1..24 {
        let mut damaged = octets;
        damaged[place] ^= 0x80;
        // The length of the packet is checked first.
        let is_right = Ipv4Header::split(&damaged).map(|(header, _)| header.checksum_is_right());
        assert!(matches!(is_right, Ok(false) | Err(_)), "octet {place}");
    }
    octets[1] = 0xba;
    octets[6] = 0;
    let (header, _) = Ipv4Header::split(&octets).unwrap();
    assert_eq!((header.ecn(), header.dont_fragment()), (2, false));
}

#[test]
fn ipv6_with_extension_headers() {
    let mut octets = vec![0x6a, 0xb1, 0x23, 0x45, 0, 36, 0, 61];
    octets.extend(0x10..0x30);
    // Hop by hop, destination options of 16 octets, UDP.
    octets.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    octets.extend([17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    octets.extend([0; 12]);
    let (header, payload) = Ipv6Header::split(&octets).unwrap();
    assert_eq!((header.payload_length(), payload.len()), (36, 36));
    assert_eq!(
        (header.traffic_class(), header.flow_label()),
        (0xab, 0x12345)
    );
    assert_eq!(header.hop_limit(), 61);
    let address = |first: u8| Ipv6Addr::from(std::array::from_fn(|octet| first + octet as u8));
    assert_eq!(header.source(), address(0x10));
    assert_eq!(header.destination(), address(0x20));
    let walked = walk_ipv6_extensions(header.next_header(), payload).unwrap();
    assert_eq!((walked.protocol, walked.length), (IpProtocol::UDP, 24));
    // In the second extension header, behind the header of 40 octets and the first extension header of 8.
    assert_eq!(walked.protocol_at, 48);
}

#[test]
fn udp() {
    let octets = [0x12, 0x34, 0x56, 0x78, 0, 10, 0x9a, 0xbc, 1, 2, 3];
    let (header, rest) = UdpHeader::split(&octets).unwrap();
    let ports = (header.source_port(), header.destination_port());
    assert_eq!(ports, (0x1234, 0x5678));
    assert_eq!((header.length(), header.checksum()), (10, 0x9abc));
    assert_eq!(header.payload(rest).unwrap(), [1, 2]);
}

#[test]
fn tcp_with_options() {
    let octets = [
        0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x11, 0x22, 0x33, 0x44, 0x60, 0xa5, 0x55,
        0x66, 0x77, 0x88, 0x99, 0xaa, 1, 2, 3, 4, 5,
    ];
    let (header, data) = TcpHeader::split(&octets).unwrap();
    let ports = (header.source_port(), header.destination_port());
    assert_eq!(ports, (0x1234, 0x5678));
    assert_eq!(header.sequence(), 0x9abc_def0);
    assert_eq!(header.acknowledgement(), 0x1122_3344);
    assert_eq!((header.flags(), header.window()), (0xa5, 0x5566));
    assert_eq!(header.checksum(), 0x7788);
    assert_eq!(header.options(), [1, 2, 3, 4]);
    assert_eq!(header.length(), 24);
    assert_eq!(data, [5]);
}

#[test]
fn icmp() {
    let (header, rest) = IcmpHeader::split(&[3, 4, 0x12, 0x34, 9]).unwrap();
    assert_eq!(
        (header.kind(), header.code(), header.checksum()),
        (3, 4, 0x1234)
    );
    assert_eq!(rest, [9]);
}

#[test]
fn arp() {
    let octets = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 3, 4, 5, 6, 7, 192, 0, 2, 1, 8, 9, 10, 11, 12, 13, 192, 0, 2, 2,
    ];
    let packet = ArpPacket::read(&octets).unwrap().unwrap();
    assert_eq!(packet.operation(), ArpOperation::Request);
    assert_eq!(packet.sender_mac(), MacAddress([2, 3, 4, 5, 6, 7]));
    assert_eq!(packet.target_mac(), MacAddress([8, 9, 10, 11, 12, 13]));
    assert_eq!(packet.sender_ip(), Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(packet.target_ip(), Ipv4Addr::new(192, 0, 2, 2));
    // Of another kind of hardware, of another protocol, with addresses of other lengths.
    for place in [0, 1, 2, 3, 4, 5] {
        let mut other = octets;
        other[place] ^= 0x10;
        assert!(ArpPacket::read(&other).unwrap().is_none(), "octet {place}");
    }
}

#[test]
fn numbers_at_an_offset_end_with_the_octets() {
    let octets = [1, 2, 3, 4, 5];
    assert_eq!(be16_at(&octets, 3), Some(0x0405));
    assert_eq!(be32_at(&octets, 1), Some(0x0203_0405));
    for at in [4, 5, 6, usize::MAX] {
        assert_eq!(be16_at(&octets, at), None, "{at}");
        assert_eq!(be32_at(&octets, at), None, "{at}");
    }
    assert_eq!(be32_at(&octets, 2), None);
}
