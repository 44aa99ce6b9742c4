// SPDX-License-Identifier: Apache-2.0
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use quietwire_tables::nat::{NatLimit, NatProtocol};

use super::super::record::{RecordKind, Vrf};
use super::encoded::{NAME_MAX, SESSION_NAME_MAX, VRF_NAME_MAX, shortened};
use super::*;

const CLIENT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
const OUTSIDE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const TIME_MS: u64 = 0x0102_0304_0506_0708;

fn vrf() -> &'static Vrf {
    static TENANT: LazyLock<Vrf> = LazyLock::new(|| Vrf {
        number: 3,
        name: "tenant".to_owned(),
    });
    &TENANT
}

fn record_of(nat: &str, kind: RecordKind) -> Record<'_> {
    Record {
        time_ms: TIME_MS,
        nat,
        vrf: vrf(),
        kind,
    }
}

fn block(nat: &str, first: u16, host: IpAddr, external: IpAddr) -> Record<'_> {
    let kind = RecordKind::Block {
        is_assigned: first == 1024,
        host,
        external,
        ports: (first, first + 511),
    };
    record_of(nat, kind)
}

fn record(nat: &str, first: u16) -> Record<'_> {
    block(nat, first, [10, 0, 0, 5].into(), [198, 51, 100, 1].into())
}

/// Reads the records of a message by its template: number, length and octets of each field.
fn read(message: &[u8]) -> Vec<Vec<(u16, Vec<u8>)>> {
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    assert_eq!(number(0), 10);
    assert_eq!(usize::from(number(2)), message.len());
    // An options template has the number of its scope fields too.
    let first = match number(16) {
        2 => 24,
        3 => 26,
        set => panic!("set {set}"),
    };
    let template = number(20);
    let data = 16 + usize::from(number(18));
    let fields: Vec<(u16, u16)> = (0..usize::from(number(22)))
        .map(|field| (number(first + 4 * field), number(first + 2 + 4 * field)))
        .collect();
    assert_eq!(data, first + 4 * fields.len());
    assert_eq!(
        (number(data), data + usize::from(number(data + 2))),
        (template, message.len())
    );
    let (mut at, mut records) = (data + 4, Vec::new());
    while at < message.len() {
        let mut record = Vec::new();
        for (element, length) in &fields {
            let mut length = usize::from(*length);
            if length == 0xffff {
                length = usize::from(message[at]);
                at += 1;
            }
            record.push((*element, message[at..at + length].to_vec()));
            at += length;
        }
        records.push(record);
    }
    records
}

#[test]
fn a_message_has_its_template_and_each_event() {
    let mut message = Message::new();
    assert!(message.add(&record("internet", 1024)));
    assert!(message.add(&record("internet", 1536)));
    let octets = message.end(0x0a0b_0c0d, 7).to_vec();
    assert_eq!(
        octets[4..16],
        [0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 7, 0, 0, 0, 0]
    );
    let expected = |event: u8, ports: [u8; 4]| -> Vec<(u16, Vec<u8>)> {
        vec![
            (323, vec![1, 2, 3, 4, 5, 6, 7, 8]),
            (230, vec![event]),
            (8, vec![10, 0, 0, 5]),
            (225, vec![198, 51, 100, 1]),
            (361, ports[..2].to_vec()),
            (362, ports[2..].to_vec()),
            (284, b"internet".to_vec()),
        ]
    };
    assert_eq!(
        read(&octets),
        [expected(16, [4, 0, 5, 255]), expected(17, [6, 0, 7, 255])]
    );
}

#[test]
fn clients_have_a_template_with_ipv6_addresses() {
    let mut message = Message::new();
    let client = block("internet", 1024, CLIENT.into(), [198, 51, 100, 1].into());
    assert!(message.add(&client) && message.add(&client));
    // One message has one template.
    assert!(!message.add(&record("internet", 1024)));
    let octets = message.end(0, 0).to_vec();
    assert_eq!(octets[20..22], [1, 1]);
    let records = read(&octets);
    assert_eq!((records.len(), records[1].len()), (2, 7));
    assert_eq!(records[1][2], (27, CLIENT.to_vec()));
    message.begin();
    assert!(message.add(&record("internet", 1024)));
    let octets = message.end(0, 0).to_vec();
    assert_eq!(octets[20..22], [1, 0]);
    assert_eq!(read(&octets)[0][2], (8, vec![10, 0, 0, 5]));
}

#[test]
fn hosts_behind_ipv6_addresses_have_a_template_of_their_own() {
    let mut message = Message::new();
    let client = block("internet", 1024, CLIENT.into(), [198, 51, 100, 1].into());
    let host = block("internet", 1024, CLIENT.into(), OUTSIDE.into());
    assert!(message.add(&host) && message.add(&host) && !message.add(&client));
    let octets = message.end(0, 0).to_vec();
    assert_eq!(octets[20..22], [1, 2]);
    let records = read(&octets);
    assert_eq!((records.len(), records[1].len()), (2, 7));
    assert_eq!(records[1][2].0, 27);
    assert_eq!(records[1][3], (281, OUTSIDE.to_vec()));
}

/// Returns the template and the fields of the only record of a message.
fn message_of(kind: RecordKind) -> (u16, Vec<(u16, Vec<u8>)>) {
    let mut message = Message::new();
    assert!(message.add(&record_of("internet", kind)));
    let octets = message.end(0, 0);
    let template = u16::from_be_bytes([octets[20], octets[21]]);
    let mut records = read(octets);
    assert_eq!(records.len(), 1);
    (template, records.remove(0))
}

fn mapping(protocol: NatProtocol, is_created: bool, host: IpAddr, external: IpAddr) -> RecordKind {
    RecordKind::Mapping {
        is_created,
        protocol,
        internal: SocketAddr::new(host, 0x0fa0),
        external: SocketAddr::new(external, 0x0406),
    }
}

#[test]
fn mappings_have_the_events_of_the_rfc_and_their_endpoints() {
    let (host, external): ([u8; 4], [u8; 4]) = ([10, 0, 0, 5], [198, 51, 100, 1]);
    let of_nat44 = |protocol, is_created| {
        message_of(mapping(protocol, is_created, host.into(), external.into()))
    };
    let expected = |event: u8, host: (u16, &[u8]), external: (u16, &[u8]), protocol: u8| {
        vec![
            (323, TIME_MS.to_be_bytes().to_vec()),
            (230, vec![event]),
            (host.0, host.1.to_vec()),
            (external.0, external.1.to_vec()),
            (4, vec![protocol]),
            (7, vec![0x0f, 0xa0]),
            (227, vec![4, 6]),
            (234, vec![0, 0, 0, 3]),
            (236, b"tenant".to_vec()),
            (284, b"internet".to_vec()),
        ]
    };
    let ends = ((8, &host[..]), (225, &external[..]));
    let number = |protocol| match protocol {
        NatProtocol::Tcp => 6,
        NatProtocol::Udp => 17,
        NatProtocol::Icmp => 1,
    };
    for protocol in NatProtocol::ALL {
        let protocol_number = number(protocol);
        let created = expected(8, ends.0, ends.1, protocol_number);
        assert_eq!(of_nat44(protocol, true), (259, created));
        let deleted = expected(9, ends.0, ends.1, protocol_number);
        assert_eq!(of_nat44(protocol, false), (259, deleted));
    }
    for (is_created, of_nat64, of_nat66) in [(true, 10, 1), (false, 11, 2)] {
        let icmp = |external| mapping(NatProtocol::Icmp, is_created, CLIENT.into(), external);
        let host = (27, &CLIENT[..]);
        let nat64 = expected(of_nat64, host, ends.1, 58);
        assert_eq!(message_of(icmp(external.into())), (260, nat64));
        let nat66 = expected(of_nat66, host, (281, &OUTSIDE[..]), 58);
        assert_eq!(message_of(icmp(OUTSIDE.into())), (261, nat66));
    }
}

#[test]
fn limits_have_the_events_of_the_rfc() {
    let limit = |limit: NatLimit, host: Option<IpAddr>, external: Option<IpAddr>| {
        let protocol = (limit == NatLimit::Ports).then_some(NatProtocol::Udp);
        let maximum = Some(0x0a0b);
        let (template, fields) = message_of(RecordKind::Limit {
            limit,
            protocol,
            host,
            external,
            maximum,
        });
        assert_eq!(fields[0].0, 323);
        assert_eq!(fields.last().unwrap(), &(284, b"internet".to_vec()));
        (template, fields[1..fields.len() - 1].to_vec())
    };
    let quota = |number: u8, element: u16| {
        vec![
            (230, vec![13]),
            (466, vec![0, 0, 0, number]),
            (element, vec![0, 0, 0x0a, 0x0b]),
        ]
    };
    assert_eq!(
        limit(NatLimit::Addresses, None, None),
        (262, vec![(230, vec![3])])
    );
    let external: [u8; 4] = [198, 51, 100, 1];
    let ports = vec![(230, vec![12]), (225, external.to_vec()), (4, vec![17])];
    assert_eq!(
        limit(NatLimit::Ports, None, Some(external.into())),
        (263, ports)
    );
    let ports = vec![(230, vec![12]), (281, OUTSIDE.to_vec()), (4, vec![17])];
    assert_eq!(
        limit(NatLimit::Ports, None, Some(OUTSIDE.into())),
        (264, ports)
    );
    assert_eq!(limit(NatLimit::Mappings, None, None), (265, quota(2, 472)));
    assert_eq!(limit(NatLimit::Hosts, None, None), (266, quota(4, 474)));
    let mut host = quota(3, 473);
    host.push((8, vec![10, 0, 0, 5]));
    let found = limit(NatLimit::HostBlocks, Some([10, 0, 0, 5].into()), None);
    assert_eq!(found, (267, host));
    let mut host = quota(3, 473);
    host.push((27, CLIENT.to_vec()));
    let found = limit(NatLimit::HostBlocks, Some(CLIENT.into()), None);
    assert_eq!(found, (268, host));
}

#[test]
fn lost_events_have_a_record_of_their_own() {
    let (template, fields) = message_of(RecordKind::Lost { count: 2, total: 7 });
    let total = 7_u64.to_be_bytes().to_vec();
    let expected = vec![
        (284, b"internet".to_vec()),
        (323, TIME_MS.to_be_bytes().to_vec()),
        (166, total),
    ];
    assert_eq!((template, fields), (269, expected));
}

#[test]
fn long_names_are_shortened_and_messages_stay_short() {
    let long = "ä".repeat(200);
    assert_eq!(shortened(&long, NAME_MAX).len(), 254);
    assert_eq!(shortened(&long, VRF_NAME_MAX).len(), 62);
    assert_eq!(shortened("internet", NAME_MAX), "internet");
    let mut message = Message::new();
    let count = (0..100)
        .take_while(|_| message.add(&record("internet", 1024)))
        .count();
    let octets = message.end(0, 0);
    assert!(octets.len() <= MESSAGE_MAX && count > 5, "{count}");
    assert_eq!(read(octets).len(), count);
    message.begin();
    assert!(message.add(&record(&long, 1024)));
    assert_eq!(read(message.end(0, 0))[0][6].1.len(), 254);
    message.begin();
    // The longest record.
    let vrf = Vrf {
        number: 3,
        name: long.clone(),
    };
    let kind = mapping(NatProtocol::Udp, true, CLIENT.into(), OUTSIDE.into());
    let longest = Record {
        vrf: &vrf,
        ..record_of(&long, kind)
    };
    assert!(message.add(&longest));
    assert!(message.end(0, 0).len() <= MESSAGE_MAX);
}

#[test]
fn a_collector_gets_datagrams_whose_sequence_counts_the_events() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    collector
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut exporter = Exporter::connect(collector.local_addr().unwrap()).unwrap();
    for _ in 0..30 {
        exporter.add(&record("internet", 1024), 1).unwrap();
    }
    exporter.flush(1).unwrap();
    exporter.flush(1).unwrap();
    let mut counted = 0;
    while counted < 30 {
        let mut octets = [0; 1024];
        let length = collector.recv(&mut octets).unwrap();
        let sequence = u32::from_be_bytes([octets[8], octets[9], octets[10], octets[11]]);
        assert_eq!(sequence, counted);
        counted += read(&octets[..length]).len() as u32;
    }
    assert_eq!(counted, 30);
}

#[test]
fn a_refused_message_costs_no_other_and_is_counted_for_its_instance() {
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = absent.local_addr().unwrap();
    let mut exporter = Exporter::connect(address).unwrap();
    drop(absent);
    // The kernel of the collector refuses it, which the next write reports.
    exporter.add(&record("internet", 1024), 1).unwrap();
    exporter.flush(1).unwrap();
    let mut error = [PollFd::new(exporter.out.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut error, 10_000u16), Ok(1));
    let collector = UdpSocket::bind(address).unwrap();
    let timeout = Some(Duration::from_secs(10));
    collector.set_read_timeout(timeout).unwrap();
    exporter.add(&record("guests", 1024), 1).unwrap();
    let error = exporter.flush(1).unwrap_err();
    assert_eq!(error.cause.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(error.lost, [("internet".to_owned(), 1)]);
    let mut octets = [0; 1024];
    let length = collector.recv(&mut octets).unwrap();
    assert_eq!(read(&octets[..length]).len(), 1);
    assert_eq!(exporter.last, ("guests".to_owned(), 1));
}

#[test]
fn events_that_cannot_be_sent_are_counted() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut exporter = Exporter::new(full);
    exporter.add(&record("internet", 1024), 1).unwrap();
    exporter.add(&record("internet", 1536), 1).unwrap();
    let error = exporter.flush(1).unwrap_err();
    assert_eq!(error.lost, [("internet".to_owned(), 2)]);
    assert_eq!(exporter.sequence, 2);
    assert!(exporter.flush(1).is_ok());
}

fn session(is_created: bool, ends: [&str; 4]) -> RecordKind {
    let [internal, external, remote, remote_inside] =
        ends.map(|end| end.parse::<SocketAddr>().unwrap());
    RecordKind::Session {
        is_created,
        is_inbound: !is_created,
        protocol: NatProtocol::Tcp,
        internal,
        external,
        remote,
        remote_inside,
    }
}

const ENDS: [&str; 4] = [
    "10.0.0.5:4000",
    "198.51.100.1:1030",
    "192.0.2.9:443",
    "10.0.0.6:8443",
];
const ENDS_IPV6: [&str; 4] = [
    "[fd00::5]:4000",
    "[2001:db8::1]:1030",
    "[2001:db8:2::9]:443",
    "[2001:db8:2::9]:443",
];

#[test]
fn sessions_have_the_events_of_the_rfc_and_their_destinations() {
    for (is_created, event, realm) in [(true, 4, 1), (false, 5, 2)] {
        let (template, fields) = message_of(session(is_created, ENDS));
        let expected = vec![
            (230, vec![event]),
            (229, vec![realm]),
            (8, vec![10, 0, 0, 5]),
            (225, vec![198, 51, 100, 1]),
            (4, vec![6]),
            (7, vec![0x0f, 0xa0]),
            (227, vec![4, 6]),
            (12, vec![192, 0, 2, 9]),
            (11, vec![1, 0xbb]),
            (226, vec![10, 0, 0, 6]),
            (228, vec![0x20, 0xfb]),
            (234, vec![0, 0, 0, 3]),
            (236, b"tenant".to_vec()),
            (284, b"internet".to_vec()),
        ];
        assert_eq!((template, &fields[1..]), (270, &expected[..]));
    }
}

#[test]
fn sessions_of_ipv6_have_a_template_and_the_longest_record_fits() {
    for (is_created, event) in [(true, 1), (false, 2)] {
        let (template, fields) = message_of(session(is_created, ENDS_IPV6));
        assert_eq!((template, &fields[1].1[..]), (271, &[event][..]));
        let numbers: Vec<u16> = fields.iter().map(|field| field.0).collect();
        let expected = [
            323, 230, 229, 27, 281, 4, 7, 227, 28, 11, 282, 228, 234, 236, 284,
        ];
        assert_eq!(numbers, expected);
        assert_eq!(fields[8].1[..8], [0x20, 1, 0xd, 0xb8, 0, 2, 0, 0]);
    }
    let long = "a".repeat(255);
    let vrf = Vrf {
        number: 3,
        name: long.clone(),
    };
    let longest = Record {
        vrf: &vrf,
        ..record_of(&long, session(true, ENDS_IPV6))
    };
    let mut message = Message::new();
    assert!(message.add(&longest));
    let octets = message.end(0, 0);
    assert!(octets.len() <= MESSAGE_MAX, "{}", octets.len());
    assert_eq!(read(octets)[0][14].1.len(), SESSION_NAME_MAX);
}

#[test]
fn external_addresses_of_hosts_have_the_events_of_the_rfc() {
    let (host, external): ([u8; 4], [u8; 4]) = ([10, 0, 0, 5], [198, 51, 100, 1]);
    for (is_created, event) in [(true, 14), (false, 15)] {
        let found = |host: IpAddr, external: IpAddr| {
            let (template, fields) = message_of(RecordKind::Binding {
                is_created,
                host,
                external,
            });
            assert_eq!(fields[1], (230, vec![event]));
            assert_eq!(fields[4], (284, b"internet".to_vec()));
            (template, fields[2].clone(), fields[3].clone())
        };
        let of_host = (27, CLIENT.to_vec());
        let of_external = (225, external.to_vec());
        assert_eq!(
            found(host.into(), external.into()),
            (272, (8, host.to_vec()), of_external.clone())
        );
        assert_eq!(
            found(CLIENT.into(), external.into()),
            (273, of_host.clone(), of_external)
        );
        let of_external = (281, OUTSIDE.to_vec());
        assert_eq!(
            found(CLIENT.into(), OUTSIDE.into()),
            (274, of_host, of_external)
        );
    }
}
