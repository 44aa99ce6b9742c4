// SPDX-License-Identifier: Apache-2.0
//! Connections that FTP and TFTP announce.

use super::*;

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "192.0.2.1";
const PASSIVE: &str = "227 Entering Passive Mode (192,0,2,1,4,210)\r\n";
const ACTIVE: &str = "PORT 10,0,0,1,4,210\r\n";

fn helping(helpers: &[Helper]) -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(10_000)).unwrap();
    tracker.allow_helpers(helpers);
    tracker
}

/// Returns the frame of a packet whose data is this text.
fn frame(sent: &Sent, text: &[u8]) -> Vec<u8> {
    let mut packet = sent.octets();
    let at = packet.len() - text.len();
    packet[at..].copy_from_slice(text);
    let ethertype = sent.ethertype().to_be_bytes();
    [&[2; 12], &ethertype[..], &packet].concat()
}

/// Tracks a packet with this data, accepts it, and lets helpers read it.
fn tell(tracker: &mut Tracker, sent: &Sent, text: &[u8], now: Seconds) -> Tracked {
    let octets = frame(sent, text);
    let packet = Packet::of_frame(&octets, octets.len(), sent.zone);
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[packet], now, &mut tracked);
    if tracked[0].is_first() {
        tracker.commit(&packet, now).unwrap();
    }
    tracker.help(&packet, &tracked[0], (&octets[..], octets.len()));
    tracked[0]
}

/// An open control connection.
fn control(tracker: &mut Tracker, server_port: u16) -> Talk {
    let mut talk = Talk::new(40_000);
    talk.ends[1].port = server_port;
    talk.open(tracker, 0);
    talk
}

fn say(tracker: &mut Tracker, talk: &mut Talk, side: usize, text: &str, now: Seconds) {
    let sent = talk.segment(side, ACK, text.len() as u16);
    let tracked = tell(tracker, &sent, text.as_bytes(), now);
    assert_eq!(tracked.state, CtState::Established);
}

/// Returns the class of the first segment of a data connection.
fn opens(tracker: &mut Tracker, from: (&str, u16), to: (&str, u16), now: Seconds) -> CtState {
    let mut talk = Talk::new(0);
    talk.ends = [end(from.0, from.1), end(to.0, to.1)];
    let tracked = classify(tracker, &talk.peek(0, SYN, 0), now);
    assert!(tracked.is_first());
    tracked.state
}

#[test]
fn data_connections_of_ftp_are_related_in_both_modes() {
    for (side, text, from, to) in [
        (1, PASSIVE, CLIENT, SERVER),
        (1, "229 Entering (|||1234|)\r\n", CLIENT, SERVER),
        (0, ACTIVE, SERVER, CLIENT),
        (0, "EPRT |1|10.0.0.1|1234|\r\n", SERVER, CLIENT),
    ] {
        let mut tracker = helping(&[Helper::Ftp]);
        let mut talk = control(&mut tracker, 21);
        assert_eq!(opens(&mut tracker, (from, 20), (to, 1234), 1), CtState::New);
        say(&mut tracker, &mut talk, side, text, 1);
        // To another port, from another host, and in the other direction.
        let others = [
            ((from, 20), (to, 1235)),
            (("10.0.0.9", 20), (to, 1234)),
            ((to, 20), (from, 1234)),
        ];
        for (from, to) in others {
            assert_eq!(opens(&mut tracker, from, to, 2), CtState::New, "{text}");
        }
        // From any port, once.
        let mut data = Talk::new(0);
        data.ends = [end(from, 50_000), end(to, 1234)];
        let opening = data.segment(0, SYN, 0);
        assert_eq!(tell(&mut tracker, &opening, &[], 2).state, CtState::Related);
        assert_eq!(tracker.len(), 2);
        let answer = data.segment(1, SYN | ACK, 0);
        let answered = tell(&mut tracker, &answer, &[], 2);
        assert_eq!(answered.state, CtState::Established, "{text}");
        assert_eq!(opens(&mut tracker, (from, 20), (to, 1234), 3), CtState::New);
    }
}

#[test]
fn an_expected_connection_is_related_until_the_other_side_answers() {
    let mut tracker = helping(&[Helper::Ftp]);
    let mut talk = control(&mut tracker, 21);
    say(&mut tracker, &mut talk, 0, ACTIVE, 1);
    let mut data = Talk::new(0);
    data.ends = [end(SERVER, 20), end(CLIENT, 1234)];
    let opening = data.segment(0, SYN, 0);
    // A SYN that is lost behind the tracker is sent again.
    for now in [2, 3, 5] {
        let tracked = tell(&mut tracker, &opening, &[], now);
        assert_eq!(tracked.state, CtState::Related, "{now}");
        assert_eq!(tracked.is_first(), now == 2);
    }
    assert_eq!(tracker.len(), 2);
    let answer = data.segment(1, SYN | ACK, 0);
    let answered = tell(&mut tracker, &answer, &[], 5);
    assert_eq!(answered.state, CtState::Established);
    // Closed, announced again, and begun again from the same port.
    let reset = data.peek(0, RST, 0);
    assert_eq!(tell(&mut tracker, &reset, &[], 6).reason, None);
    assert_eq!(classify(&mut tracker, &opening, 6).state, CtState::New);
    say(&mut tracker, &mut talk, 0, ACTIVE, 7);
    let again = tell(&mut tracker, &opening, &[], 7);
    assert_eq!((again.state, again.is_first()), (CtState::Related, true));
    let again = tell(&mut tracker, &opening, &[], 8);
    assert_eq!((again.state, again.is_first()), (CtState::Related, false));
}

#[test]
fn ipv6_hosts_announce_endpoints_too() {
    let mut tracker = helping(&[Helper::Ftp]);
    let mut talk = Talk::new(0);
    talk.ends = [end("2001:db8::1", 40_000), end("2001:db8:9::1", 21)];
    talk.open(&mut tracker, 0);
    say(
        &mut tracker,
        &mut talk,
        0,
        "EPRT |2|2001:db8::1|1234|\r\n",
        1,
    );
    say(&mut tracker, &mut talk, 1, "229 Entering (|||1235|)\r\n", 1);
    let (client, server) = ("2001:db8::1", "2001:db8:9::1");
    let active = opens(&mut tracker, (server, 20), (client, 1234), 1);
    let passive = opens(&mut tracker, (client, 9), (server, 1235), 1);
    assert_eq!([active, passive], [CtState::Related; 2]);
}

#[test]
fn nothing_else_is_expected() {
    for (helpers, port, side, text) in [
        // Off, another port, and the other side.
        (&[][..], 21, 1, PASSIVE),
        (&[Helper::Tftp][..], 21, 1, PASSIVE),
        (&[Helper::Ftp][..], 2121, 1, PASSIVE),
        (&[Helper::Ftp][..], 21, 0, PASSIVE),
        (&[Helper::Ftp][..], 21, 1, ACTIVE),
        // A third host, and a well-known port (RFC 2577).
        (&[Helper::Ftp][..], 21, 0, "PORT 10,0,0,9,4,210\r\n"),
        (&[Helper::Ftp][..], 21, 1, "227 (10,0,0,9,4,210)\r\n"),
        (&[Helper::Ftp][..], 21, 0, "PORT 10,0,0,1,3,255\r\n"),
        // Not at the start, and not complete.
        (&[Helper::Ftp][..], 21, 0, "X\r\nPORT 10,0,0,1,4,210\r\n"),
        (&[Helper::Ftp][..], 21, 0, "PORT 10,0,0,1,4,210"),
    ] {
        let mut tracker = helping(helpers);
        let mut talk = control(&mut tracker, port);
        say(&mut tracker, &mut talk, side, text, 1);
        for port in [1023, 1234] {
            for (from, to) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
                for to in [to, "10.0.0.9"] {
                    let state = opens(&mut tracker, (from, 9), (to, port), 1);
                    assert_eq!(state, CtState::New, "{helpers:?}, {port}, {text}");
                }
            }
        }
    }
}

#[test]
fn segments_that_do_not_fit_announce_nothing() {
    let mut tracker = helping(&[Helper::Ftp]);
    let mut talk = control(&mut tracker, 21);
    let mut forged = talk.peek(0, ACK, ACTIVE.len() as u16);
    if let Content::Tcp(segment) = &mut forged.content {
        segment.sequence = segment.sequence.wrapping_add(1_000_000);
    }
    let tracked = tell(&mut tracker, &forged, ACTIVE.as_bytes(), 1);
    assert_eq!(tracked.state, CtState::Invalid);
    let data = (SERVER, 20);
    assert_eq!(opens(&mut tracker, data, (CLIENT, 1234), 1), CtState::New);
    say(&mut tracker, &mut talk, 0, ACTIVE, 1);
    assert_eq!(
        opens(&mut tracker, data, (CLIENT, 1234), 1),
        CtState::Related
    );
}

#[test]
fn an_expected_connection_begins_within_a_minute() {
    let mut tracker = helping(&[Helper::Ftp]);
    let mut talk = control(&mut tracker, 21);
    say(&mut tracker, &mut talk, 1, PASSIVE, 10);
    let opens = |tracker: &mut Tracker, now| opens(tracker, (CLIENT, 9), (SERVER, 1234), now);
    assert_eq!(opens(&mut tracker, 70), CtState::Related);
    assert_eq!(opens(&mut tracker, 71), CtState::New);
    // Announced again, twice.
    say(&mut tracker, &mut talk, 1, PASSIVE, 100);
    say(&mut tracker, &mut talk, 1, PASSIVE, 150);
    assert_eq!(opens(&mut tracker, 210), CtState::Related);
    assert_eq!(opens(&mut tracker, 211), CtState::New);
}

#[test]
fn a_flood_of_announcements_takes_no_further_memory() {
    let mut tracker = helping(&[Helper::Ftp]);
    let before = tracker.octets();
    let mut talk = control(&mut tracker, 21);
    for port in 2000..8000u16 {
        let [high, low] = port.to_be_bytes();
        let text = format!("227 (192,0,2,1,{high},{low})\r\n");
        say(&mut tracker, &mut talk, 1, &text, 1);
        // The client acknowledges, so that the window of the server does not end.
        let acknowledgement = talk.segment(0, ACK, 0);
        tell(&mut tracker, &acknowledgement, &[], 1);
    }
    assert_eq!(tracker.octets(), before);
    let expected = (2000..8000u16)
        .filter(|port| opens(&mut tracker, (CLIENT, 9), (SERVER, *port), 1) == CtState::Related);
    let expected: Vec<u16> = expected.collect();
    assert!((700..=1024).contains(&expected.len()), "{}", expected.len());
    // The last one is there.
    assert!(expected.contains(&7999));
}

#[test]
fn answers_of_a_tftp_server_from_another_port_are_related() {
    let request = |opcode: u8, from: u16, to: u16| {
        let text = [&[0, opcode][..], b"name\0octet\0"].concat();
        let sent = Sent {
            content: Content::Udp(text.len() as u16),
            ..udp(end(CLIENT, from), end(SERVER, to))
        };
        (sent, text)
    };
    let answer = |tracker: &mut Tracker, to: u16| {
        let sent = udp(end(SERVER, 3333), end(CLIENT, to));
        classify(tracker, &sent, 1).state
    };
    let mut tracker = helping(&[Helper::Tftp]);
    for (opcode, from, to, expected) in [
        (1, 5001, 69, CtState::Related),
        (2, 5002, 69, CtState::Related),
        (3, 5003, 69, CtState::New),
        (1, 5004, 70, CtState::New),
        (1, 1000, 69, CtState::New),
    ] {
        let (sent, text) = request(opcode, from, to);
        assert_eq!(tell(&mut tracker, &sent, &text, 1).state, CtState::New);
        assert_eq!(answer(&mut tracker, from), expected, "{opcode} {from} {to}");
    }
    let mut without = helping(&[Helper::Ftp]);
    let (sent, text) = request(1, 5001, 69);
    tell(&mut without, &sent, &text, 1);
    assert_eq!(answer(&mut without, 5001), CtState::New);
}

#[test]
fn fragments_and_truncated_packets_announce_nothing() {
    let mut tracker = helping(&[Helper::Tftp]);
    let text = b"\0\x01name\0octet\0";
    let sent = Sent {
        content: Content::Udp(text.len() as u16),
        ..udp(end(CLIENT, 5001), end(SERVER, 69))
    };
    let whole = frame(&sent, text);
    let mut fragment = whole.clone();
    // More fragments.
    fragment[20] = 0x20;
    for octets in [&fragment[..], &whole[..whole.len() - 1]] {
        let packet = Packet::of_frame(octets, whole.len(), 0);
        let mut tracked = [Tracked::UNTRACKED];
        tracker.track(&[packet], 1, &mut tracked);
        assert_eq!(tracked[0].state, CtState::New);
        tracker.help(&packet, &tracked[0], (octets, whole.len()));
        let answer = udp(end(SERVER, 3333), end(CLIENT, 5001));
        assert_eq!(classify(&mut tracker, &answer, 1).state, CtState::New);
    }
    tell(&mut tracker, &sent, text, 1);
    let answer = udp(end(SERVER, 3333), end(CLIENT, 5001));
    assert_eq!(classify(&mut tracker, &answer, 1).state, CtState::Related);
}
