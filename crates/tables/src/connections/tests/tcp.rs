// SPDX-License-Identifier: Apache-2.0
//! States of TCP connections.

use super::*;

/// Plays segments of a conversation (side, flags, octets of data), and compares the state after each.
fn play(talk: &mut Talk, steps: &[(usize, u8, u16, State)]) -> Tracker {
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    for (number, (side, flags, data, expected)) in steps.iter().enumerate() {
        let segment = talk.segment(*side, *flags, *data);
        let tracked = pass(&mut tracker, &segment, 0);
        assert_eq!(tracked.reason, None, "step {number}");
        assert_eq!(state(&tracker), *expected, "step {number}");
    }
    tracker
}

#[test]
fn a_connection_opens_carries_data_and_closes() {
    let mut talk = Talk::new(1);
    let mut tracker = play(
        &mut talk,
        &[
            (0, SYN, 0, State::TcpSynSent),
            (1, SYN | ACK, 0, State::TcpSynRecv),
            (0, ACK, 0, State::TcpEstablished),
            (0, ACK, 500, State::TcpEstablished),
            (1, ACK, 700, State::TcpEstablished),
            (0, FIN | ACK, 3, State::TcpFinWait),
            (1, ACK, 10, State::TcpCloseWait),
            (0, ACK, 0, State::TcpCloseWait),
            (1, FIN | ACK, 0, State::TcpLastAck),
            (0, ACK, 0, State::TcpTimeWait),
        ],
    );
    let info = all(&tracker)[0];
    assert_eq!((info.packets, info.is_replied), ([6, 4], true));
    assert_eq!(
        (info.source, info.destination),
        (talk.ends[0], talk.ends[1])
    );
    // Old numbers begin no new connection, later ones do.
    assert_eq!(
        classify(&mut tracker, &talk.shifted(0, SYN, -1, 0), 0).state,
        CtState::Established
    );
    let opening = classify(&mut tracker, &talk.peek(0, SYN, 0), 0);
    assert_eq!((opening.state, opening.connection), (CtState::New, None));
    assert_eq!(state(&tracker), State::TcpTimeWait);
    pass(&mut tracker, &talk.peek(0, SYN, 0), 0);
    assert_eq!(state(&tracker), State::TcpSynSent);
}

#[test]
fn simultaneous_opens_and_closes_work() {
    play(
        &mut Talk::new(1),
        &[
            (0, SYN, 0, State::TcpSynSent),
            (1, SYN, 0, State::TcpSynSent2),
            (0, ACK, 0, State::TcpSynRecv),
            (1, ACK, 0, State::TcpEstablished),
            (0, FIN | ACK, 0, State::TcpFinWait),
        ],
    );
    let mut talk = Talk::new(2);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    talk.open(&mut tracker, 0);
    // Both send a FIN before they receive that of the other.
    let (first, second) = (talk.peek(0, FIN | ACK, 0), talk.peek(1, FIN | ACK, 0));
    for (segment, expected) in [(first, State::TcpFinWait), (second, State::TcpLastAck)] {
        pass(&mut tracker, &segment, 0);
        assert_eq!(state(&tracker), expected);
    }
    talk.next = talk.next.map(|next| next.wrapping_add(1));
    pass(&mut tracker, &talk.peek(0, ACK, 0), 0);
    assert_eq!(state(&tracker), State::TcpLastAck);
    pass(&mut tracker, &talk.peek(1, ACK, 0), 0);
    assert_eq!(state(&tracker), State::TcpTimeWait);
}

#[test]
fn a_refused_connection_is_closed() {
    let mut talk = Talk::new(1);
    let tracker = play(
        &mut talk,
        &[
            (0, SYN, 0, State::TcpSynSent),
            (1, RST | ACK, 0, State::TcpClose),
        ],
    );
    assert_eq!(all(&tracker)[0].expires_in_s, 10);
}

#[test]
fn the_handshake_may_be_repeated() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    let syn = talk.segment(0, SYN, 0);
    let answer = talk.segment(1, SYN | ACK, 0);
    let last = talk.peek(0, ACK, 0);
    for segment in [&syn, &syn, &answer, &syn, &answer, &last, &answer, &last] {
        assert_eq!(pass(&mut tracker, segment, 0).reason, None);
    }
    assert_eq!(state(&tracker), State::TcpEstablished);
}

#[test]
fn windows_are_scaled_if_both_sides_agree() {
    for (scales, octets, fits) in [
        ([Some(7), Some(3)], 60_000, true),
        ([Some(7), None], 60_000, false),
        ([None, None], 60_000, false),
        ([Some(7), None], 1000, true),
    ] {
        let mut talk = Talk::new(1);
        let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
        for (side, flags) in [(0, SYN), (1, SYN | ACK), (0, ACK)] {
            let mut segment = talk.segment(side, flags, 0);
            if let (Content::Tcp(segment), true) = (&mut segment.content, flags & SYN != 0) {
                segment.scale = scales[side];
            }
            pass(&mut tracker, &segment, 0);
        }
        // The client's window of 1000 units.
        let data = talk.segment(1, ACK, octets);
        let tracked = classify(&mut tracker, &data, 0);
        let expected = if fits {
            None
        } else {
            Some(InvalidReason::Sequence)
        };
        assert_eq!(tracked.reason, expected, "{scales:?}");
    }
}

#[test]
fn segments_outside_of_the_window_are_invalid_and_change_nothing() {
    let mut talk = Talk::new(1);
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    talk.open(&mut tracker, 0);
    let before = all(&tracker);
    for (sequence, acknowledgement, reason) in [
        (1001, 0, InvalidReason::Sequence),
        (-1001, 0, InvalidReason::Sequence),
        (i32::MAX, 0, InvalidReason::Sequence),
        (0, 1, InvalidReason::Acknowledgement),
        (0, -66_001, InvalidReason::Acknowledgement),
    ] {
        for side in [0, 1] {
            let segment = talk.shifted(side, ACK, sequence, acknowledgement);
            let tracked = classify(&mut tracker, &segment, 5);
            assert_eq!(tracked.state, CtState::Invalid);
            assert_eq!(
                tracked.reason,
                Some(reason),
                "{sequence}, {acknowledgement}"
            );
        }
    }
    tracker.expire(0, 10);
    let after = all(&tracker);
    let counted = |list: &[ConnectionInfo]| (list[0].state, list[0].packets, list[0].octets);
    assert_eq!(counted(&before), counted(&after));
    // 5 seconds have passed, and no packet extended the timeout.
    assert_eq!(before[0].expires_in_s, after[0].expires_in_s + 5);
    for (sequence, acknowledgement) in [(1000, 0), (-1000, 0), (0, -66_000), (-1, 0)] {
        let segment = talk.shifted(0, ACK, sequence, acknowledgement);
        assert_eq!(
            classify(&mut tracker, &segment, 5).reason,
            None,
            "{sequence}"
        );
        talk.next[0] = talk.next[0].wrapping_add_signed(sequence.max(0));
    }
}

#[test]
fn flags_that_no_host_sends_are_invalid() {
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    let mut talk = Talk::new(1);
    let impossible = [
        0,
        FIN,
        SYN | FIN,
        SYN | RST,
        FIN | RST,
        SYN | FIN | RST | ACK,
        0x28 | FIN,
    ];
    for flags in impossible {
        let tracked = classify(&mut tracker, &talk.peek(0, flags, 0), 0);
        assert_eq!(tracked.reason, Some(InvalidReason::Flags), "{flags:#x}");
    }
    talk.open(&mut tracker, 0);
    for flags in impossible {
        let tracked = classify(&mut tracker, &talk.peek(0, flags, 0), 0);
        assert_eq!(tracked.reason, Some(InvalidReason::Flags), "{flags:#x}");
    }
}

#[test]
fn segments_without_a_connection_are_invalid() {
    let mut tracker = Tracker::new(&Settings::of_size(8)).unwrap();
    let talk = Talk::new(1);
    for flags in [ACK, SYN | ACK, FIN | ACK, RST, RST | ACK] {
        let tracked = classify(&mut tracker, &talk.peek(1, flags, 0), 0);
        assert_eq!(
            tracked.reason,
            Some(InvalidReason::NoConnection),
            "{flags:#x}"
        );
    }
    assert!(tracker.is_empty());
}
