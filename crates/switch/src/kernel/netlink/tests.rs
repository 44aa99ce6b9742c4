// SPDX-License-Identifier: Apache-2.0
//! Tests of datagrams made octet by octet, and of senders other than the kernel.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

use super::*;

const RTM_NEWROUTE: u16 = 24;

/// Returns a message with a netlink header, of sequence number 0.
fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + payload.len()).unwrap();
    let mut octets = length.to_ne_bytes().to_vec();
    octets.extend(kind.to_ne_bytes());
    octets.extend(flags.to_ne_bytes());
    octets.extend([0; 8]);
    octets.extend(payload);
    octets.resize(octets.len().next_multiple_of(ALIGNMENT), 0);
    octets
}

/// Returns the payload of a route to 10.0.0.0/`length` in the main table.
fn route(length: u8) -> Vec<u8> {
    // Family, length, source's length, TOS, table, protocol, scope, type, flags; then RTA_DST.
    let mut octets = vec![2, length, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    octets.extend([8, 0, 1, 0, 10, 0, 0, 0]);
    octets
}

/// Returns a route whose address has an impossible length.
fn unparsable() -> Vec<u8> {
    let mut octets = vec![2, 8, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    octets.extend([6, 0, 1, 0, 10, 0, 0, 0]);
    octets
}

fn events(datagram: &[u8]) -> Vec<String> {
    let mut received = Vec::new();
    read(datagram, 0, &mut received);
    received
        .iter()
        .map(|event| match event {
            NetlinkEvent::Message(_, RouteNetlinkMessage::NewRoute(route)) => {
                format!("route {}", route.header.destination_prefix_length)
            }
            NetlinkEvent::Message(..) => "another message".to_owned(),
            NetlinkEvent::Unparsed(_, kind, octets) => format!("unparsed {kind}, {}", octets.len()),
            NetlinkEvent::Dump(DumpEvent::Progress(is_interrupted)) => {
                format!("progress {is_interrupted}")
            }
            NetlinkEvent::Dump(event) => format!("{event:?}"),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_message_that_does_not_parse_is_skipped_by_its_length() {
    let datagram = [
        message(RTM_NEWROUTE, 0, &route(8)),
        message(RTM_NEWROUTE, 0, &unparsable()),
        message(RTM_NEWROUTE, 0, &route(24)),
    ]
    .concat();
    assert_eq!(
        events(&datagram),
        ["route 8", "unparsed 24, 20", "route 24"]
    );
}

#[test]
fn an_interrupted_dump_is_marked_in_any_of_its_messages() {
    let multipart = NLM_F_MULTIPART;
    let interrupted = multipart | NLM_F_DUMP_INTR;
    let datagram = [
        message(RTM_NEWROUTE, multipart, &route(8)),
        message(RTM_NEWROUTE, interrupted, &unparsable()),
        message(NLMSG_DONE, interrupted, &0_i32.to_ne_bytes()),
    ]
    .concat();
    let expected = [
        "progress false",
        "route 8",
        "progress true",
        "unparsed 24, 20",
        "progress true",
        "Done",
    ];
    assert_eq!(events(&datagram), expected);
}

#[test]
fn answers_to_an_earlier_request_are_ignored_and_notifications_are_not() {
    let datagram = [
        message(RTM_NEWROUTE, NLM_F_MULTIPART, &route(8)),
        message(NLMSG_ERROR, 0, &[0xf0, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        message(NLMSG_DONE, NLM_F_MULTIPART, &0_i32.to_ne_bytes()),
        message(RTM_NEWROUTE, 0, &route(24)),
    ]
    .concat();
    let mut received = Vec::new();
    read(&datagram, 1, &mut received);
    assert!(
        matches!(received[..], [NetlinkEvent::Message(Kind::Notification, _)]),
        "{received:?}"
    );
}

#[test]
fn a_dump_that_ends_with_an_error_is_refused() {
    let done = message(NLMSG_DONE, NLM_F_MULTIPART, &(-4_i32).to_ne_bytes());
    assert_eq!(events(&done), ["progress false", "Refused(-4)"]);
}

#[test]
fn lengths_that_cannot_be_right_end_the_datagram() {
    let whole = message(RTM_NEWROUTE, 0, &route(8));
    for length in 1..whole.len() {
        assert_eq!(events(&whole[..length]), ["Missed"], "cut to {length}");
    }
    for length in 0..HEADER {
        let mut octets = whole.clone();
        octets[0] = u8::try_from(length).unwrap();
        assert_eq!(events(&octets), ["Missed"], "length {length}");
    }
    let mut octets = whole.clone();
    octets[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(events(&octets), ["Missed"]);
    assert_eq!(events(&[]), [""; 0]);
}

#[test]
fn attributes_end_where_a_length_cannot_be_right() {
    let octets = [
        8, 0, 1, 0, 10, 0, 0, 1, 5, 0, 2, 0x80, 7, 0, 0, 0, 3, 0, 4, 0,
    ];
    let all: Vec<(u16, &[u8])> = attributes(&octets).collect();
    assert_eq!(all, [(1, &[10, 0, 0, 1][..]), (2, &[7][..])]);
    for length in 0..octets.len() {
        for end in 0..length {
            assert!(attributes(&octets[end..length]).count() <= 8);
        }
    }
}

#[test]
fn messages_of_other_processes_are_ignored() {
    let socket = open(&[]).unwrap();
    let mut address = SocketAddr::new(0, 0);
    socket.get_address(&mut address).unwrap();
    let mut ours = NetlinkSocket::over(socket);
    let mut theirs = Socket::new(NETLINK_ROUTE).unwrap();
    theirs.bind_auto().unwrap();
    let forged = message(RTM_NEWROUTE, 0, &route(8));
    theirs.send_to(&forged, &address, 0).unwrap();
    assert!(ours.receive_events().unwrap().is_empty());
}

/// Adds blackhole routes 10.0.`number`.0/24 in the network namespace of this thread.
fn add_routes(numbers: std::ops::Range<u32>) {
    let lines = numbers.map(|n| format!("route add blackhole 10.{}.{}.0/24\n", n >> 8, n & 255));
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text: String = lines.collect();
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn notifications_that_the_kernel_drops_after_its_error_are_missed_as_well() {
    const RTNLGRP_IPV4_ROUTE: u32 = 7;
    unshare(CloneFlags::CLONE_NEWNET).expect("requires root");
    let socket = open(&[RTNLGRP_IPV4_ROUTE]).unwrap();
    socket.set_rx_buf_sz(16 << 10).unwrap();
    let mut socket = NetlinkSocket::over(socket);
    add_routes(0..2000);
    let mut received = Vec::new();
    // The error comes first, then what fitted.
    received.extend(socket.receive_events_up_to(1).unwrap());
    assert!(matches!(received[..], [NetlinkEvent::Missed]));
    assert!(socket.is_congested());
    add_routes(2000..2001);
    while socket.is_congested() {
        received.extend(socket.receive_events_up_to(3).unwrap());
    }
    assert!(matches!(received.last(), Some(NetlinkEvent::Missed)));
    let routes = received.len() - 2;
    assert!((1..2000).contains(&routes), "{routes} of 2001 routes");
    add_routes(2001..2002);
    let later = socket.receive_events().unwrap();
    assert!(
        matches!(later[..], [NetlinkEvent::Message(Kind::Notification, _)]),
        "{later:?}"
    );
}
