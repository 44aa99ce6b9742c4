// SPDX-License-Identifier: Apache-2.0
//! A path with faults between two ends, and its clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use quietwire_base::random::Random;

use super::super::send::Outgoing;
use super::super::*;
use crate::connections::pattern::{Pattern, Sender};

/// Longest simulated run, nanoseconds: an hour and more.
const LIMIT_NS: u64 = 10_000_000_000_000;
/// Delay of the path, nanoseconds.
const DELAY_NS: u64 = 1_000_000;

/// Probabilities of faults, in ten-thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    /// Segments that arrive up to four delays late, so that others overtake them.
    pub(super) delayed: u64,
}

pub(super) fn settings() -> Settings {
    Settings {
        segment_max: 1460,
        window: 262_144,
        timeout_ns: (10_000_000, 60_000_000_000),
        syn_retries: 6,
        retries: 12,
        idle_ns: 3_000_000_000_000,
        time_wait_ns: 240_000_000_000,
    }
}

/// A segment on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    to: usize,
    outgoing: Outgoing,
}

#[derive(Debug)]
pub(super) struct Path {
    random: Random,
    faults: Faults,
    /// By time and order of transmission.
    order: BinaryHeap<Reverse<(u64, u64)>>,
    segments: BTreeMap<u64, Arrival>,
    sent: u64,
}

impl Path {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            random: Random::new(seed),
            faults,
            order: BinaryHeap::new(),
            segments: BTreeMap::new(),
            sent: 0,
        }
    }

    fn draws(&mut self, of_ten_thousand: u64) -> bool {
        self.random.below(10_000) < of_ten_thousand
    }

    fn send(&mut self, now: u64, arrival: Arrival) {
        let copies = if self.draws(self.faults.lost) {
            0
        } else {
            1 + u64::from(self.draws(self.faults.duplicated))
        };
        for _ in 0..copies {
            let late = if self.draws(self.faults.delayed) {
                self.random.below(4 * DELAY_NS)
            } else {
                0
            };
            self.order.push(Reverse((now + DELAY_NS + late, self.sent)));
            self.segments.insert(self.sent, arrival);
            self.sent += 1;
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((time, _))| *time)
    }

    fn receive(&mut self) -> Option<Arrival> {
        let Reverse((_, number)) = self.order.pop()?;
        self.segments.remove(&number)
    }
}

/// One end with what it has to send, and what it received.
#[derive(Debug)]
pub(super) struct End {
    pub(super) tcp: Tcp,
    pub(super) settings: Settings,
    pub(super) gaps: GapPool,
    pub(super) counters: Counters,
    sends: Pattern,
    expects: Pattern,
    damaged: u64,
}

struct Check {
    pattern: Pattern,
    damaged: u64,
}

impl Sink for Check {
    fn accept(&mut self, offset: u32, octets: &[u8]) -> bool {
        self.damaged += u64::from(!self.pattern.is(offset, octets));
        true
    }
}

impl End {
    fn with<T>(&mut self, act: impl FnOnce(&mut Tcp, &mut Environment<'_>) -> T) -> T {
        let mut environment = Environment {
            settings: &self.settings,
            gaps: &mut self.gaps,
            counters: &mut self.counters,
        };
        act(&mut self.tcp, &mut environment)
    }

    fn data(&self, outgoing: &Outgoing) -> Vec<u8> {
        let mut data = vec![0; usize::from(outgoing.length)];
        self.sends.fill(outgoing.offset, &mut data);
        data
    }
}

/// Two ends and the path between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) ends: [End; 2],
    pub(super) initial: [u32; 2],
    pub(super) strips_sack: bool,
    /// Number of segments after which the path loses everything.
    pub(super) breaks_after: Option<u64>,
    path: Path,
    is_accepted: bool,
    now: u64,
}

impl World {
    pub(super) fn new(settings: [Settings; 2], path: Path, pool: u32) -> Self {
        let end = |index: usize, settings: Settings| {
            let senders = [Sender::Client, Sender::Server];
            End {
                tcp: Tcp::connect(&settings, 0, 0),
                settings,
                gaps: GapPool::new(pool),
                counters: Counters::default(),
                sends: Pattern::new(9, 1, senders[index]),
                expects: Pattern::new(9, 1, senders[1 - index]),
                damaged: 0,
            }
        };
        let [first, second] = settings;
        Self {
            ends: [end(0, first), end(1, second)],
            initial: [1_000, 4_000_000_000],
            strips_sack: false,
            breaks_after: None,
            path,
            is_accepted: false,
            now: 1_000_000,
        }
    }

    /// Transfers so many octets from each end, and checks that all arrived.
    pub(super) fn transfer(&mut self, octets: [u32; 2]) {
        self.run(octets);
        for (end, expected) in self.ends.iter().zip([octets[1], octets[0]]) {
            assert_eq!((end.tcp.received(), end.damaged), (expected, 0), "{end:?}");
        }
    }

    /// Runs until both ends are closed. Each closes its stream after its octets.
    pub(super) fn run(&mut self, octets: [u32; 2]) {
        self.ends[0].tcp = Tcp::connect(&self.ends[0].settings, self.initial[0], self.now);
        self.provide(0, octets[0]);
        self.transmit(0);
        while !self.is_over() {
            assert!(self.now < LIMIT_NS, "{:?}", self.ends);
            let due = |end: &End| end.tcp.deadline();
            let accepted = if self.is_accepted { 2 } else { 1 };
            let timer = self.ends[..accepted].iter().map(due).min().unwrap();
            match self.path.next_ns() {
                Some(arrival) if arrival <= timer => {
                    self.now = self.now.max(arrival);
                    self.arrive(octets);
                }
                _ => {
                    self.now = self.now.max(timer);
                    for index in 0..accepted {
                        let now = self.now;
                        self.ends[index].with(|tcp, environment| tcp.expire(environment, now));
                        self.transmit(index);
                    }
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let is_closed = |end: &End| matches!(end.tcp.state(), State::Closed(_));
        is_closed(&self.ends[0]) && (!self.is_accepted || is_closed(&self.ends[1]))
    }

    fn provide(&mut self, index: usize, octets: u32) {
        let now = self.now;
        let end = &mut self.ends[index];
        end.tcp.provide(&end.settings, octets, now);
        end.tcp.finish();
    }

    fn arrive(&mut self, octets: [u32; 2]) {
        let Some(Arrival { to, mut outgoing }) = self.path.receive() else {
            return;
        };
        if self.strips_sack {
            outgoing.segment.options.permits_sack = false;
        }
        let data = self.ends[1 - to].data(&outgoing);
        let segment = outgoing.segment;
        if to == 1 && !self.is_accepted {
            if segment.flags != SYN {
                return;
            }
            self.is_accepted = true;
            let settings = self.ends[1].settings;
            self.ends[1].tcp = Tcp::accept(&settings, &segment, self.initial[1], self.now);
            self.provide(1, octets[1]);
        } else {
            let now = self.now;
            let end = &mut self.ends[to];
            let mut check = Check {
                pattern: end.expects,
                damaged: 0,
            };
            let reset = end.with(|tcp, environment| {
                tcp.receive(environment, &segment, &data, now, &mut check)
            });
            end.damaged += check.damaged;
            if let Some(segment) = reset {
                let outgoing = Outgoing {
                    segment,
                    offset: 0,
                    length: 0,
                };
                self.send(1 - to, outgoing);
            }
        }
        self.transmit(to);
    }

    fn transmit(&mut self, from: usize) {
        let now = self.now;
        // More than any window has segments.
        for _ in 0..1_000_000 {
            let next = self.ends[from].with(|tcp, environment| tcp.next(environment, now));
            let Some(outgoing) = next else {
                return;
            };
            self.send(1 - from, outgoing);
        }
        panic!("{:?}", self.ends);
    }

    fn send(&mut self, to: usize, outgoing: Outgoing) {
        if self.breaks_after.is_none_or(|most| self.path.sent < most) {
            self.path.send(self.now, Arrival { to, outgoing });
        }
    }
}
