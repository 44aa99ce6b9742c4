// SPDX-License-Identifier: Apache-2.0
//! Single segments: states, resets, windows.

use super::super::segment::{FIN, PSH};
use super::super::send::Outgoing;
use super::super::*;
use super::path::settings;

const PEER: u32 = 5_000;
const OWN: u32 = 1_000;

struct All;

impl Sink for All {
    fn accept(&mut self, _offset: u32, _octets: &[u8]) -> bool {
        true
    }
}

/// An end with all that it requires.
struct Fixture {
    tcp: Tcp,
    settings: Settings,
    gaps: GapPool,
    counters: Counters,
}

impl Fixture {
    fn connecting(settings: Settings) -> Self {
        Self {
            tcp: Tcp::connect(&settings, OWN, 0),
            settings,
            gaps: GapPool::new(4),
            counters: Counters::default(),
        }
    }

    fn established(settings: Settings) -> Self {
        let mut end = Self::connecting(settings);
        assert_eq!(end.next(1).unwrap().segment.flags, SYN);
        let mut answer = Segment {
            sequence: PEER,
            acknowledgement: OWN + 1,
            flags: SYN | ACK,
            window: 60_000,
            ..Segment::default()
        };
        answer.options.segment_max = Some(1_460);
        assert_eq!(end.receive(answer, &[]), None);
        assert_eq!(end.tcp.state(), State::Established);
        assert_eq!(end.next(2).unwrap().segment.flags, ACK);
        assert_eq!(end.next(2), None);
        end
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Tcp, &mut Environment<'_>) -> T) -> T {
        let mut environment = Environment {
            settings: &self.settings,
            gaps: &mut self.gaps,
            counters: &mut self.counters,
        };
        act(&mut self.tcp, &mut environment)
    }

    fn receive(&mut self, segment: Segment, data: &[u8]) -> Option<Segment> {
        self.with(|tcp, environment| tcp.receive(environment, &segment, data, 1, &mut All))
    }

    fn next(&mut self, now: u64) -> Option<Outgoing> {
        self.with(|tcp, environment| tcp.next(environment, now))
    }

    fn expire(&mut self) -> u64 {
        let now = self.tcp.deadline();
        self.with(|tcp, environment| tcp.expire(environment, now));
        now
    }

    fn peer_segment(&self, flags: u8) -> Segment {
        Segment {
            sequence: PEER + 1,
            acknowledgement: OWN + 1,
            flags,
            window: 60_000,
            ..Segment::default()
        }
    }
}

#[test]
fn a_reset_needs_the_exact_number() {
    let mut end = Fixture::established(settings());
    let near = Segment {
        sequence: PEER + 2,
        ..end.peer_segment(RST)
    };
    assert_eq!(end.receive(near, &[]), None);
    assert_eq!(end.tcp.state(), State::Established);
    // The challenge.
    assert_eq!(end.next(3).unwrap().segment.flags, ACK);
    end.receive(end.peer_segment(RST), &[]);
    assert_eq!(end.tcp.state(), State::Closed(Ending::Reset));
    assert_eq!(end.next(3), None);
}

#[test]
fn a_refusal_is_taken_only_for_this_syn() {
    let mut end = Fixture::connecting(settings());
    end.next(1).unwrap();
    let wrong = Segment {
        acknowledgement: OWN,
        ..end.peer_segment(RST | ACK)
    };
    assert_eq!(end.receive(wrong, &[]), None);
    assert_eq!(end.tcp.state(), State::SynSent);
    // A segment of an earlier connection is reset by its number.
    let old = Segment {
        acknowledgement: 77,
        ..end.peer_segment(ACK)
    };
    assert_eq!(end.receive(old, &[]).unwrap().sequence, 77);
    end.receive(end.peer_segment(RST | ACK), &[]);
    assert_eq!(end.tcp.state(), State::Closed(Ending::Refused));
}

#[test]
fn both_ends_may_open_and_close_at_once() {
    let mut end = Fixture::connecting(settings());
    end.next(1).unwrap();
    let syn = Segment {
        sequence: PEER,
        flags: SYN,
        ..end.peer_segment(SYN)
    };
    end.receive(syn, &[]);
    assert_eq!(end.next(2).unwrap().segment.flags, SYN | ACK);
    end.receive(end.peer_segment(ACK), &[]);
    assert_eq!(end.tcp.state(), State::Established);
    end.tcp.finish();
    assert_eq!(end.next(3).unwrap().segment.flags, ACK | FIN);
    assert_eq!(end.tcp.state(), State::FinWait1);
    end.receive(end.peer_segment(ACK | FIN), &[]);
    assert_eq!(end.tcp.state(), State::Closing);
    let last = Segment {
        sequence: PEER + 2,
        acknowledgement: OWN + 2,
        ..end.peer_segment(ACK)
    };
    end.receive(last, &[]);
    assert_eq!(end.tcp.state(), State::TimeWait);
    // A FIN that is repeated is acknowledged again.
    while end.next(4).is_some() {}
    end.receive(end.peer_segment(ACK | FIN), &[]);
    assert_eq!(end.next(4).unwrap().segment.acknowledgement, PEER + 2);
    end.expire();
    assert_eq!(end.tcp.state(), State::Closed(Ending::Complete));
}

#[test]
fn a_shut_window_is_probed_until_it_opens() {
    let mut end = Fixture::established(settings());
    let shut = Segment {
        window: 0,
        ..end.peer_segment(ACK)
    };
    let settings = end.settings;
    end.tcp.provide(&settings, 1_000, 3);
    assert_eq!(end.next(3).unwrap().length, 1_000);
    let all = Segment {
        acknowledgement: OWN + 1_001,
        ..shut
    };
    end.receive(all, &[]);
    end.tcp.provide(&settings, 5_000, 4);
    assert_eq!(end.next(4), None);
    for _ in 0..100 {
        let now = end.expire();
        let probe = end.next(now).unwrap();
        assert_eq!((probe.segment.sequence, probe.length), (OWN + 1_000, 0));
        assert_eq!(end.next(now), None);
        // The peer answers, so the connection stays.
        end.receive(all, &[]);
    }
    let open = Segment {
        window: 60_000,
        ..all
    };
    end.receive(open, &[]);
    let lengths: Vec<u16> = std::iter::from_fn(|| end.next(5))
        .map(|it| it.length)
        .collect();
    assert_eq!(lengths, [1_460, 1_460, 1_080]);
    // Without an answer it ends.
    end.receive(
        Segment {
            acknowledgement: OWN + 5_001,
            window: 0,
            ..shut
        },
        &[],
    );
    end.tcp.provide(&settings, 5_001, 6);
    for _ in 0..1_000 {
        end.expire();
    }
    assert_eq!(end.tcp.state(), State::Closed(Ending::TimedOut));
}

#[test]
fn windows_are_scaled_if_both_ends_scale() {
    for (shift, own) in [(Some(7), 262_144 >> 3), (None, 65_535)] {
        let mut end = Fixture::connecting(settings());
        let syn = end.next(1).unwrap().segment;
        assert_eq!((syn.window, syn.options.shift), (u16::MAX, Some(3)));
        let mut answer = Segment {
            sequence: PEER,
            ..end.peer_segment(SYN | ACK)
        };
        answer.window = 100;
        answer.options.shift = shift;
        answer.options.segment_max = Some(1_460);
        end.receive(answer, &[]);
        let acknowledgement = end.next(2).unwrap().segment;
        assert_eq!(u32::from(acknowledgement.window), own);
        let settings = end.settings;
        end.tcp.provide(&settings, 1_000_000, 2);
        // The window of the SYN is not scaled.
        assert_eq!(end.next(3).unwrap().length, 100);
        assert_eq!(end.next(3), None);
        let more = Segment {
            acknowledgement: OWN + 101,
            window: 100,
            ..end.peer_segment(ACK)
        };
        end.receive(more, &[]);
        let sent: u32 = std::iter::from_fn(|| end.next(4))
            .map(|it| u32::from(it.length))
            .sum();
        assert_eq!(sent, if shift.is_some() { 8 * 1_460 } else { 100 });
    }
}

#[test]
fn blocks_begin_with_what_came_last() {
    let mut end = Fixture::connecting(settings());
    end.next(1).unwrap();
    let mut answer = Segment {
        sequence: PEER,
        ..end.peer_segment(SYN | ACK)
    };
    answer.options.permits_sack = true;
    end.receive(answer, &[]);
    for start in [10, 30, 20] {
        let data = Segment {
            sequence: PEER + 1 + start,
            ..end.peer_segment(ACK | PSH)
        };
        end.receive(data, &[0; 5]);
    }
    let blocks = end.next(2).unwrap().segment.options.blocks;
    let block = |start: u32| (PEER + 1 + start, PEER + 1 + start + 5);
    assert_eq!(
        blocks.iter().collect::<Vec<_>>(),
        [block(20), block(10), block(30)]
    );
    // The gaps close one after the other.
    end.receive(end.peer_segment(ACK | PSH), &[0; 12]);
    assert_eq!(end.tcp.received(), 15);
    let next = Segment {
        sequence: PEER + 16,
        ..end.peer_segment(ACK | PSH)
    };
    end.receive(next, &[0; 40]);
    assert_eq!(end.tcp.received(), 55);
    assert!(end.next(3).unwrap().segment.options.blocks.is_empty());
}

#[test]
fn any_segment_leaves_a_state_that_holds() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    let near = |base: u32| {
        prop_oneof![
            (0u32..20).prop_map(move |add| base.wrapping_sub(5).wrapping_add(add)),
            any::<u32>()
        ]
    };
    let segment = (
        near(PEER),
        near(OWN),
        any::<u8>(),
        any::<u16>(),
        any::<Option<u16>>(),
        prop::collection::vec((near(OWN), near(OWN)), 0..4),
        0usize..20,
    );
    let mut runner = TestRunner::new(Config::with_cases(2_000));
    runner
        .run(&prop::collection::vec(segment, 1..40), |segments| {
            let mut end = Fixture::connecting(settings());
            end.next(0);
            let settings = end.settings;
            for (index, (sequence, acknowledgement, flags, window, segment_max, blocks, length)) in
                segments.into_iter().enumerate()
            {
                let mut segment = Segment {
                    sequence,
                    acknowledgement,
                    flags,
                    window,
                    ..Segment::default()
                };
                segment.options.segment_max = segment_max;
                segment.options.permits_sack = true;
                blocks
                    .into_iter()
                    .for_each(|block| segment.options.blocks.push(block));
                end.receive(segment, &vec![0; length]);
                end.tcp.provide(&settings, 7 * index as u32, index as u64);
                if index == 20 {
                    end.tcp.finish();
                }
                let mut count = 0;
                while end.next(index as u64).is_some() {
                    count += 1;
                    prop_assert!(count < 1_000);
                }
                let tcp = &end.tcp;
                prop_assert!(tcp.una <= tcp.nxt && tcp.nxt <= tcp.max, "{:?}", tcp);
                prop_assert!(tcp.max <= tcp.fin() + 1, "{:?}", tcp);
                prop_assert!(matches!(tcp.state, State::Closed(_)) == (tcp.deadline == u64::MAX));
                if index % 7 == 6 {
                    end.expire();
                }
            }
            Ok(())
        })
        .unwrap();
}
