// SPDX-License-Identifier: Apache-2.0
//! Fragments: the first one decides, and the later ones belong to its connection.

use proptest::prelude::*;

use super::*;

/// Returns the frame of an IP packet.
fn frame(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    [&[0; 12][..], &ethertype, packet].concat()
}

/// Returns the frames of a datagram's fragments, cut at these offsets, in units of eight octets.
fn cut(sent: &Sent, identification: u16, cuts: &[usize]) -> Vec<Vec<u8>> {
    let packet = sent.octets();
    let (header, payload) = packet.split_at(if packet[0] >> 4 == 4 { 20 } else { 40 });
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut * 8).collect();
    ends.retain(|end| *end < payload.len());
    ends.push(payload.len());
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts = starts.zip(&ends);
    let fragment = |(start, end): (usize, &usize)| {
        let part = &payload[start..*end];
        let more = u16::from(*end < payload.len());
        frame(&match header.len() {
            20 => part_v4(
                header,
                part,
                identification,
                (start as u16 / 8) | (more << 13),
            ),
            _ => part_v6(header, part, identification, start as u16 | more),
        })
    };
    parts.map(fragment).collect()
}

fn part_v4(header: &[u8], part: &[u8], identification: u16, field: u16) -> Vec<u8> {
    let mut header = header.to_vec();
    header[2..4].copy_from_slice(&(part.len() as u16 + 20).to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[6..8].copy_from_slice(&field.to_be_bytes());
    [header, part.to_vec()].concat()
}

fn part_v6(header: &[u8], part: &[u8], identification: u16, field: u16) -> Vec<u8> {
    let mut header = header.to_vec();
    let next = std::mem::replace(&mut header[6], 44);
    header[4..6].copy_from_slice(&(part.len() as u16 + 8).to_be_bytes());
    let [a, b] = field.to_be_bytes();
    let [c, d] = identification.to_be_bytes();
    [header, vec![next, 0, a, b, 0, 0, c, d], part.to_vec()].concat()
}

/// Tracks a frame, and accepts it.
fn pass_frame(tracker: &mut Tracker, frame: &[u8], now: Seconds) -> Tracked {
    let mut packet = Packet::of_frame(frame, frame.len(), 0);
    if packet.is_fragment() {
        tracker.join(&mut packet, frame, 0, now);
    }
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[packet], now, &mut tracked);
    let [tracked] = tracked;
    if tracked.state == CtState::New && tracked.connection.is_none() {
        let _ = tracker.commit(&packet, now);
    }
    tracked
}

fn udp_of(source: Endpoint, destination: Endpoint, data: u16) -> Sent {
    Sent {
        content: Content::Udp(data),
        ..udp(source, destination)
    }
}

fn invalid(tracked: &Tracked) -> bool {
    tracked.reason == Some(InvalidReason::Fragment)
}

#[test]
fn later_fragments_belong_to_the_connection_of_the_first() {
    for (one, other) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
        let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
        let (one, other) = (end(one, 1), end(other, 2));
        let question = cut(&udp_of(one, other, 100), 7, &[2, 5]);
        assert_eq!(question.len(), 3);
        // Before the first one, they are unknown.
        assert!(invalid(&pass_frame(&mut tracker, &question[1], 0)));
        for frame in &question {
            assert_eq!(pass_frame(&mut tracker, frame, 0).state, CtState::New);
        }
        let answer = cut(&udp_of(other, one, 100), 7, &[1]);
        for frame in &answer {
            let tracked = pass_frame(&mut tracker, frame, 0);
            assert_eq!(
                (tracked.state, tracked.direction),
                (CtState::Established, Direction::Reply)
            );
        }
        let listed = all(&tracker);
        assert_eq!((listed.len(), listed[0].packets), (1, [3, 2]));
        // Of another datagram, and too late.
        let another = cut(&udp_of(one, other, 100), 8, &[2]);
        assert!(invalid(&pass_frame(&mut tracker, &another[1], 0)));
        assert_eq!(
            pass_frame(&mut tracker, &question[2], 14).state,
            CtState::Established
        );
        assert!(invalid(&pass_frame(&mut tracker, &question[2], 15)));
    }
}

#[test]
fn a_later_fragment_without_an_accepted_first_one_begins_nothing() {
    let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
    let frames = cut(
        &udp_of(end("10.0.0.1", 1), end("10.0.0.2", 2), 100),
        7,
        &[2],
    );
    // The rules drop the first one: it is tracked, and not committed.
    let mut first = Packet::of_frame(&frames[0], frames[0].len(), 0);
    tracker.join(&mut first, &frames[0], 0, 0);
    let mut tracked = [Tracked::UNTRACKED];
    tracker.track(&[first], 0, &mut tracked);
    let mut later = Packet::of_frame(&frames[1], frames[1].len(), 0);
    tracker.join(&mut later, &frames[1], 0, 0);
    assert_eq!(tracker.commit(&later, 0), Err(Refusal::Conflict));
    assert!(tracker.is_empty());
}

#[test]
fn fragments_that_overlap_the_header_are_invalid() {
    let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
    let mut talk = Talk::new(1);
    talk.open(&mut tracker, 0);
    let frames = cut(&talk.segment(0, ACK, 100), 7, &[3]);
    assert_eq!(
        pass_frame(&mut tracker, &frames[0], 0).state,
        CtState::Established
    );
    for (offset, expected) in [(1u16, true), (2, true), (3, false)] {
        let mut frame = frames[1].clone();
        frame[14 + 6..14 + 8].copy_from_slice(&offset.to_be_bytes());
        assert_eq!(
            invalid(&pass_frame(&mut tracker, &frame, 0)),
            expected,
            "{offset}"
        );
    }
}

#[test]
fn the_data_of_later_fragments_can_be_acknowledged() {
    let mut tracker = Tracker::new(&Settings::of_size(4)).unwrap();
    let mut talk = Talk::new(1);
    talk.open(&mut tracker, 0);
    let frames = cut(&talk.segment(0, ACK, 800), 7, &[10, 50]);
    let answer = talk.segment(1, ACK, 0);
    assert_eq!(
        pass_frame(&mut tracker, &frames[0], 0).state,
        CtState::Established
    );
    let early = classify(&mut tracker, &answer, 0);
    assert_eq!(early.reason, Some(InvalidReason::Acknowledgement));
    for frame in &frames[1..] {
        assert_eq!(
            pass_frame(&mut tracker, frame, 0).state,
            CtState::Established
        );
    }
    assert_eq!(pass(&mut tracker, &answer, 0).state, CtState::Established);
    // Not beyond the window.
    let mut far = frames[2].clone();
    far[14 + 6..14 + 8].copy_from_slice(&0x1000u16.to_be_bytes());
    pass_frame(&mut tracker, &far, 0);
    let beyond = talk.shifted(1, ACK, 0, 10_000);
    let beyond = classify(&mut tracker, &beyond, 0);
    assert_eq!(beyond.reason, Some(InvalidReason::Acknowledgement));
}

/// A datagram of one of few conversations, cut or whole.
#[derive(Clone, Debug)]
struct Datagram {
    hosts: (u8, u8),
    ports: (u16, u16),
    is_v6: bool,
    is_echo: bool,
    data: u16,
    cuts: Vec<usize>,
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let cuts = prop::collection::btree_set(1..12usize, 0..4);
    (
        (1..4u8, 1..4u8),
        (1..3u16, 1..3u16),
        any::<bool>(),
        any::<bool>(),
        0..100u16,
        cuts,
    )
        .prop_map(|(hosts, ports, is_v6, is_echo, data, cuts)| Datagram {
            hosts,
            ports,
            is_v6,
            is_echo,
            data,
            cuts: cuts.into_iter().collect(),
        })
}

fn sent(datagram: &Datagram) -> Sent {
    let (one, other) = datagram.hosts;
    let address = |host: u8| match datagram.is_v6 {
        true => format!("2001:db8::{host}"),
        false => format!("10.0.0.{host}"),
    };
    let to_port = if datagram.is_echo {
        datagram.ports.0
    } else {
        datagram.ports.1
    };
    Sent {
        zone: 0,
        source: end(&address(one), datagram.ports.0),
        destination: end(&address(other), to_port),
        content: if datagram.is_echo {
            Content::EchoRequest
        } else {
            Content::Udp(datagram.data)
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn fragments_are_judged_like_the_whole_datagram(datagrams in prop::collection::vec(datagram(), 1..60)) {
        let settings = Settings::of_size(200);
        let mut tracker = Tracker::new(&settings).unwrap();
        let mut whole = Tracker::new(&settings).unwrap();
        // Later fragments wait behind the first ones of other datagrams.
        let mut waiting: Vec<(Vec<u8>, Tracked, usize)> = Vec::new();
        for (number, datagram) in datagrams.iter().enumerate() {
            let sent = sent(datagram);
            let expected = pass_frame(&mut whole, &frame(&sent.octets()), 0);
            let frames = cut(&sent, number as u16, &datagram.cuts);
            let first = pass_frame(&mut tracker, &frames[0], 0);
            prop_assert_eq!(
                (first.state, first.reason, first.direction),
                (expected.state, expected.reason, expected.direction)
            );
            waiting.extend(frames[1..].iter().map(|frame| (frame.clone(), first, number)));
            if number % 3 == 0 {
                for (later, first, of) in waiting.drain(..).rev() {
                    let tracked = pass_frame(&mut tracker, &later, 0);
                    match first.reason {
                        None => {
                            prop_assert!(matches!(tracked.state, CtState::New | CtState::Established), "{}", of);
                            prop_assert_eq!(tracked.direction, first.direction);
                        }
                        // Without connection, there is no datagram to be a part of.
                        Some(_) => prop_assert_eq!(tracked.state, CtState::Invalid),
                    }
                }
            }
        }
        prop_assert_eq!(tracker.len(), whole.len());
    }

    #[test]
    fn any_fragments_are_judged(
        datagrams in prop::collection::vec((datagram(), any::<[u8; 6]>(), 0..3u32), 1..40),
    ) {
        let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
        let mut now = 0;
        for (datagram, [at, value, more @ ..], seconds) in datagrams {
            now += seconds;
            for mut frame in cut(&sent(&datagram), u16::from(more[0] % 4), &datagram.cuts) {
                // Damaged in the IP header or behind it.
                let at = 14 + usize::from(at) % (frame.len() - 14);
                if value % 2 == 0 {
                    frame[at] = value;
                }
                frame.truncate(frame.len().saturating_sub(usize::from(more[1] % 8)));
                let tracked = pass_frame(&mut tracker, &frame, now);
                prop_assert_eq!(tracked.reason.is_some(), tracked.state == CtState::Invalid);
            }
            prop_assert!(tracker.len() <= 8);
        }
    }
}
