// SPDX-License-Identifier: Apache-2.0
//! Drives the ends over the tester's ports, on one thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::unix_time_ns;
use quietwire_dpdk::{Burst, Eal, Mempool, PortStats, RxQueue, TxQueue, cycles};
use quietwire_packet::MacAddress;

use crate::clock::{ClockCheck, ticks_per_second};
use crate::error::TesterError;
use crate::frame::mac_address;
use crate::latency::Scale;
use crate::tester::{Tester, TesterIdle, TesterPort};
use crate::threads::{limit_realtime, run_thread};

use super::add;
use super::description::{Connections, Role};
use super::result::{ConnectionHealth, ConnectionResult, RunTimes, assemble};
use super::session::Session;
use super::wire::{Link, Packet};

/// Frames in a burst at most.
const BURST: usize = 32;
/// Bursts of a queue that are received in a turn at most.
const BURSTS_A_TURN: usize = 8;
/// Bursts that are sent in a turn at most.
const SENDS_A_TURN: usize = 16;

/// Sleep of an idle thread that may sleep.
const PAUSE: Duration = Duration::from_micros(50);

/// Time for which packets wait for space in a full ring, nanoseconds. A tester that was not running for a while sends what was due
/// meanwhile at once, which may be more than the ring has space for. The device takes a whole ring of frames in less time.
const FULL_TIMEOUT: u64 = 1_000_000;

/// A ring that has had no space for all packets.
#[derive(Clone, Copy, Debug, Default)]
struct FullRing {
    /// Time since which it has, nanoseconds; none if it has taken all packets.
    since: Option<u64>,
}

impl FullRing {
    /// Returns true if packets that the ring has no space for are lost: it has been full for [`FULL_TIMEOUT`].
    fn loses(&mut self, now: u64) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) > FULL_TIMEOUT
    }

    /// Notes that the ring has taken all packets.
    fn note_all_taken(&mut self) {
        self.since = None;
    }
}

/// A port with its end of the conversations.
#[derive(Debug)]
struct Line<'port> {
    rx: &'port mut [RxQueue],
    tx: Option<&'port mut TxQueue>,
    pool: &'port Mempool,
    link: Link,
    drops_when_full: bool,
    received: Burst,
    sending: Burst,
    full: FullRing,
    /// Packets that found the transmit ring, which is the device's receive queue, full for longer than [`FULL_TIMEOUT`].
    refused: u64,
}

impl<'port> Line<'port> {
    fn new(eal: &Eal, pool: &'port Mempool, port: &'port mut TesterPort, link: Link) -> Self {
        Self {
            rx: &mut port.port.rx,
            // Conversations use one queue: their order matters.
            tx: port.port.tx.first_mut(),
            pool,
            link,
            drops_when_full: port.drops_when_full,
            received: Burst::new(eal),
            sending: Burst::new(eal),
            full: FullRing::default(),
            refused: 0,
        }
    }

    /// Receives what has arrived, a few bursts of each queue at most. Returns the number of frames.
    fn receive(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        let mut all = 0_usize;
        for queue in self.rx.iter_mut() {
            for _ in 0..BURSTS_A_TURN {
                let count = queue.receive(&mut self.received, BURST);
                self.received.frames().for_each(&mut take);
                self.received.free();
                all = all.saturating_add(count);
                if count < BURST {
                    break;
                }
            }
        }
        all
    }

    /// Sends waiting packets, as far as there are buffers and space in the ring.
    fn send(&mut self, outbox: &mut VecDeque<Packet>, now: u64) {
        let Some(tx) = &mut self.tx else {
            return;
        };
        for _ in 0..SENDS_A_TURN {
            if self.sending.is_empty() {
                let count = outbox.len().min(BURST);
                if count == 0 {
                    self.full.note_all_taken();
                    return;
                }
                // Without buffers, the packets wait.
                if !self.sending.allocate(self.pool, count) {
                    return;
                }
                let mut packets = outbox.drain(..count);
                self.sending.write_each(|frame| {
                    if let Some(packet) = packets.next()
                        && let Some(octets) = frame.octets(packet.length())
                    {
                        packet.write(&self.link, octets);
                    }
                });
            }
            tx.send(&mut self.sending);
            if !self.sending.is_empty() {
                if !self.drops_when_full || !self.full.loses(now) {
                    return;
                }
                add(&mut self.refused, self.sending.len() as u64);
                self.sending.free();
            }
        }
    }
}

/// Additional results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunExtras {
    /// Part of the run whose rates are reported, nanoseconds from the start. Default: the duration without its first tenth.
    pub(super) window: Option<[u64; 2]>,
    /// Ends of connections that are logged at most.
    pub(super) logged: usize,
}

/// Ends of connections that a logged run has at most.
const LOGGED_MAX: usize = 1 << 16;

/// Times of the loop, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Limits {
    duration: u64,
    drain: u64,
    sleeps: bool,
}

/// Gaps of the loop, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    longest: u64,
    longest_of_host: u64,
    /// Sum of the turns in which no frame arrived.
    idle: u64,
    elapsed: u64,
}

/// Runs the ends until all conversations are over, or until the end of the drain time.
fn run_loop(
    session: &mut Session,
    client: &mut Option<Line<'_>>,
    server: &mut Option<Line<'_>>,
    limits: Limits,
    abort: &AtomicBool,
) -> Gaps {
    let (origin, scale) = (cycles::now(), Scale::new(ticks_per_second()));
    let clock = || scale.ns(cycles::now().saturating_sub(origin));
    let (mut gaps, mut last) = (Gaps::default(), 0);
    loop {
        let now = clock();
        gaps.longest_of_host = gaps.longest_of_host.max(now.saturating_sub(last));
        let mut received = 0_usize;
        if let (Some(end), Some(line)) = (&mut session.client, client.as_mut()) {
            let count = line.receive(|frame| end.receive(frame, now));
            received = received.saturating_add(count);
        }
        if let (Some(end), Some(line)) = (&mut session.server, server.as_mut()) {
            let count = line.receive(|frame| end.receive(frame, now));
            received = received.saturating_add(count);
        }
        session.turn(now);
        if let (Some(end), Some(line)) = (&mut session.client, client.as_mut()) {
            line.send(end.shared().outbox(), now);
        }
        if let (Some(end), Some(line)) = (&mut session.server, server.as_mut()) {
            line.send(end.shared().outbox(), now);
        }
        let is_over = now >= limits.duration.saturating_add(limits.drain)
            || (now >= limits.duration && session.is_done(now));
        if is_over || abort.load(Ordering::Relaxed) {
            gaps.elapsed = now;
            return gaps;
        }
        last = clock();
        gaps.longest = gaps.longest.max(last.saturating_sub(now));
        if limits.sleeps && received == 0 {
            std::thread::sleep(PAUSE);
            last = clock();
            gaps.longest = gaps.longest.max(last.saturating_sub(now));
        }
        if received == 0 {
            gaps.idle = gaps.idle.saturating_add(last.saturating_sub(now));
        }
    }
}

/// Returns the MAC addresses of the frames of one end: those of the tester's other frames unless others are given.
fn link(end: u8, own: Option<MacAddress>, next_hop: Option<MacAddress>) -> Link {
    Link {
        source: own.unwrap_or_else(|| mac_address(end, 0)),
        destination: next_hop.unwrap_or_else(|| mac_address(end ^ 1, 0)),
    }
}

impl Tester {
    /// Opens conversations for `duration`, and waits for them to end for at most `drain`. The client has the first port, the server the
    /// last one.
    ///
    /// # Errors
    /// [`TesterError`] if the run cannot begin or was aborted. A failure of the tester during the run makes the result invalid and is not
    /// an error.
    pub fn run_connections(
        &mut self,
        description: &Connections,
        duration: Duration,
        drain: Duration,
    ) -> Result<ConnectionResult, TesterError> {
        self.run_conversations(description, duration, drain, RunExtras::default())
    }

    /// Runs conversations, and logs the end of each connection.
    ///
    /// # Errors
    /// As [`Self::run_connections`].
    pub(crate) fn run_logged(
        &mut self,
        description: &Connections,
        duration: Duration,
        drain: Duration,
    ) -> Result<ConnectionResult, TesterError> {
        let extras = RunExtras {
            logged: LOGGED_MAX,
            ..RunExtras::default()
        };
        self.run_conversations(description, duration, drain, extras)
    }

    /// Runs conversations with extras.
    pub(super) fn run_conversations(
        &mut self,
        description: &Connections,
        duration: Duration,
        drain: Duration,
        extras: RunExtras,
    ) -> Result<ConnectionResult, TesterError> {
        self.check_connections(description)?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let limits = Limits {
            duration: nanoseconds(duration),
            drain: nanoseconds(drain),
            sleeps: self.options.idle == TesterIdle::Sleep,
        };
        let busy_s = duration.saturating_add(drain).as_secs_f64();
        limit_realtime(busy_s, self.options.realtime_priority.is_some());
        let before: Vec<PortStats> = self
            .ports
            .iter()
            .map(|port| port.port.handle.stats())
            .collect();
        let mut session = Session::new(description, limits.duration);
        if let Some(window) = extras.window {
            session = session.with_window(window);
        }
        if let Some(client) = &mut session.client {
            client.log_ends(extras.logged);
        }
        let started_unix_ns = unix_time_ns();
        let check = ClockCheck::begin();
        let (gaps, realtime, refused) = self.drive(&mut session, description, limits)?;
        let clock_error_ratio = check.error_ratio();
        if self.abort.load(Ordering::Relaxed) {
            return Err(TesterError::Aborted);
        }
        let times = RunTimes {
            started_unix_ns,
            duration_s: duration.as_secs_f64(),
            elapsed_s: gaps.elapsed as f64 / 1e9,
        };
        let health = ConnectionHealth {
            missed: 0,
            longest_gap_ns: gaps.longest,
            longest_host_gap_ns: gaps.longest_of_host,
            dropped_packets: 0,
            refused_packets: refused,
            receive_drops: self.receive_drops(&before),
            clock_error_ratio,
            links_down: self.links_down(),
            realtime,
            delayed_requests: 0,
            idle_ratio: Some(gaps.idle as f64 / (gaps.elapsed as f64).max(1.0)),
        };
        assemble(session, description, times, health).map_err(TesterError::Result)
    }

    /// Runs the loop on a thread of the tester. Returns its gaps, whether it had real-time priority, and the packets that were refused.
    fn drive(
        &mut self,
        session: &mut Session,
        description: &Connections,
        limits: Limits,
    ) -> Result<(Gaps, bool, u64), TesterError> {
        let (client, server) = (&description.client, &description.server);
        let of_client = link(0, client.mac, client.next_hop_mac);
        let of_server = link(1, server.mac, server.next_hop_mac);
        let (eal, pool) = (&self.eal, &self.pool);
        let mut ports = self.ports.iter_mut();
        let mut line = |link: Link| {
            let port = ports.next()?;
            Some(Line::new(eal, pool, port, link))
        };
        let mut lines = match description.role {
            Role::Both => (line(of_client), line(of_server)),
            Role::Client => (line(of_client), None),
            Role::Server => (None, line(of_server)),
        };
        let abort = &*self.abort;
        let (client, server) = (&mut lines.0, &mut lines.1);
        let (gaps, realtime) = run_thread(eal, (&self.options, self.seccomp), || {
            run_loop(session, client, server, limits, abort)
        })?;
        let lines = [lines.0, lines.1];
        let refused = lines.iter().flatten().map(|line| line.refused).sum();
        Ok((gaps, realtime, refused))
    }

    fn check_connections(&self, description: &Connections) -> Result<(), TesterError> {
        let bad = |text: String| Err(TesterError::BadTrial(text));
        if let Some(fault) = description.first_fault() {
            return bad(fault.message);
        }
        let needed = description.role.ports();
        if self.ports.len() != needed {
            return bad(format!(
                "conversations with role = \"{}\" require {needed} ports, and {} are given",
                description.role.name(),
                self.ports.len()
            ));
        }
        if !description.has_load() {
            return bad(
                "the description has neither a rate nor a number of concurrent conversations (add one of them)"
                    .to_owned(),
            );
        }
        if description.frame_size_max() > self.options.frame_size_max {
            return bad(format!(
                "frames of {} octets exceed the limit of the open ports, {} octets (use a smaller mss)",
                description.frame_size_max(),
                self.options.frame_size_max
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_for_a_full_ring_for_a_while_and_are_lost_until_it_takes_all() {
        let mut full = FullRing::default();
        assert!(!full.loses(5));
        assert!(!full.loses(5 + FULL_TIMEOUT));
        assert!(full.loses(6 + FULL_TIMEOUT));
        assert!(full.loses(7 + FULL_TIMEOUT), "no further wait");
        full.note_all_taken();
        assert!(!full.loses(8 + FULL_TIMEOUT));
        assert!(!full.loses(8 + 2 * FULL_TIMEOUT));
        assert!(full.loses(9 + 2 * FULL_TIMEOUT));
    }
}
