// SPDX-License-Identifier: Apache-2.0
//! The active side: sends changes of all tables to standbys, and all entries at the beginning, after a loss, and from time to time, because
//! packets that change no state extend timeouts.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use quietwire_base::RateLimit;

use super::link::{Link, LinkError, TIMEOUT};
use super::tables::{COMPARE, Position, Tables};
use super::wire::{Digests, LIMITS_A_MESSAGE, Limits, Message, WireError};
use crate::error::SwitchError;

/// Maximum number of peers: twice as many as are accepted in a turn, so that each has time for its hello.
pub(super) const PEERS_MAX: usize = 16;
/// Maximum number of peers of one source address: a program that acknowledges as a standby does leaves space for standbys of other hosts.
pub(super) const PEERS_A_SOURCE: usize = 4;
/// Interval between messages to a standby.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Time of a turn for reading all entries.
const WALK_TIME: Duration = Duration::from_millis(5);
/// Octets that wait for a standby while no further entries are read.
const WALK_QUEUE: usize = 1 << 20;
/// Messages of a standby in a turn.
const MESSAGES_A_TURN: usize = 64;
/// Interval between lines in the log about lost changes, and between those about refused peers: packets of any host can lead to a loss in
/// each turn, and any client can connect.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A standby.
#[derive(Debug)]
pub(super) struct Peer<S> {
    link: Link<S>,
    pub(super) name: String,
    /// Its source address; `None` if all peers have the same one.
    source: Option<IpAddr>,
    /// The first pass through all entries that is complete for this standby; `None` before its hello.
    needs: Option<u64>,
    /// The first pass whose entries it is sent: the one after its hello, or after a pass for which it was too slow.
    joins: u64,
    pub(super) is_complete: bool,
    /// It has been sent the settings.
    has_settings: bool,
    /// It has acknowledged a message: it has the same settings.
    has_acknowledged: bool,
    /// It has been complete before.
    was_complete: bool,
    /// Sequence of the last message that the standby has applied.
    pub(super) acknowledged: u64,
    /// Time of the last acknowledgement of a further message, or of the begin.
    progressed: Instant,
    /// Begin of the time in which it has been too slow for further entries.
    slow_since: Option<Instant>,
}

/// Numbers of the active side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentCounts {
    /// Entries and ends of entries sent, each once for all standbys.
    pub(super) changes: u64,
    /// Changes that full rings lost.
    pub(super) lost: u64,
    /// Complete passes through all entries.
    pub(super) passes: u64,
}

/// The active side.
#[derive(Debug)]
pub(super) struct Active<S> {
    pub(super) peers: Vec<Peer<S>>,
    /// Interval between passes through all entries.
    refresh: Duration,
    /// Position of the pass through all entries, if there is one.
    pass: Option<Position>,
    /// Number of passes begun.
    begun: u64,
    ended: Option<Instant>,
    /// Time in which standbys of this pass have waited for slower ones, and the last turn in which they did.
    waited: Duration,
    waits_since: Option<Instant>,
    /// The tables note changes: also after a failed end, which is tried again.
    is_noting: bool,
    /// Settings and limits that standbys have been sent, and the time at which they were read.
    settings: Digests,
    limits: Limits,
    compared: Option<Instant>,
    /// Lines in the log about lost changes.
    loss_log: RateLimit,
    /// Lines in the log about refused peers.
    refusal_log: RateLimit,
    pub(super) counts: SentCounts,
}

impl<S: Read + Write> Peer<S> {
    /// Returns the octets that wait to be sent.
    pub(super) const fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Returns the sequence of the last message to the standby.
    pub(super) const fn last(&self) -> u64 {
        self.link.last()
    }

    /// Returns true if it is sent the entries of a pass.
    fn takes_part(&self, pass: u64) -> bool {
        self.needs.is_some() && self.joins <= pass
    }

    /// Returns true if a pass waits for it.
    const fn is_slow(&self) -> bool {
        self.queued() > WALK_QUEUE
    }

    /// Returns true if it acknowledges no further messages. A standby gets one each [`HEARTBEAT`].
    fn is_stuck(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progressed) >= TIMEOUT
    }

    /// Sends what waits. A standby that is too slow for a long time would keep the others from getting all entries.
    fn flush(&mut self, now: Instant) -> Result<(), LinkError> {
        self.link.flush(now)?;
        if !self.is_slow() {
            self.slow_since = None;
            return Ok(());
        }
        let since = *self.slow_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= TIMEOUT {
            return Err(LinkError::Slow);
        }
        Ok(())
    }

    fn receive(&mut self, begun: u64, now: Instant) -> Result<(), LinkError> {
        for message in self.link.receive(MESSAGES_A_TURN, now)? {
            match message {
                Message::Hello => {
                    self.needs = Some(begun.saturating_add(1));
                    self.joins = begun.saturating_add(1);
                }
                Message::Acknowledgement(sequence) if sequence <= self.link.last() => {
                    if sequence > self.acknowledged {
                        self.acknowledged = sequence;
                        self.progressed = now;
                    }
                    self.has_acknowledged = true;
                }
                _ => return Err(WireError::Role.into()),
            }
        }
        Ok(())
    }
}

fn changes_in(message: &Message) -> u64 {
    match message {
        Message::Connections(changes) => changes.len() as u64,
        Message::Mappings { changes, .. } => changes.len() as u64,
        Message::MappingsIpv6 { changes, .. } => changes.len() as u64,
        Message::Balanced { changes, .. } => changes.len() as u64,
        Message::BalancedIpv6 { changes, .. } => changes.len() as u64,
        _ => 0,
    }
}

impl<S: Read + Write> Active<S> {
    pub(super) fn new(refresh: Duration) -> Self {
        Self {
            peers: Vec::new(),
            refresh,
            pass: None,
            begun: 0,
            ended: None,
            waited: Duration::ZERO,
            waits_since: None,
            is_noting: false,
            settings: Digests::new(),
            limits: Limits::new(),
            compared: None,
            loss_log: RateLimit::new(LOG_INTERVAL, 1, Instant::now()),
            refusal_log: RateLimit::new(LOG_INTERVAL, 1, Instant::now()),
            counts: SentCounts::default(),
        }
    }

    /// Returns true if nothing is due until a peer connects.
    pub(super) const fn is_idle(&self) -> bool {
        self.peers.is_empty() && !self.is_noting
    }

    /// Adds the stream of a peer, which does not block. If there are too many, or too many of its source address, it takes the place of the
    /// oldest one of them without a hello, or of the oldest one that acknowledges nothing. Without a source address, the number of its peers
    /// has no limit of its own.
    pub(super) fn add(&mut self, stream: S, name: String, source: Option<IpAddr>, now: Instant) {
        let of_source = |peer: &Peer<S>| source.is_some() && peer.source == source;
        let count = self.peers.iter().filter(|peer| of_source(peer)).count();
        let is_source_full = count >= PEERS_A_SOURCE;
        if is_source_full || self.peers.len() >= PEERS_MAX {
            let is_candidate = |peer: &Peer<S>| !is_source_full || of_source(peer);
            let mut peers = self.peers.iter();
            let silent = peers.position(|peer| is_candidate(peer) && peer.needs.is_none());
            let mut peers = self.peers.iter();
            let stuck = || peers.position(|peer| is_candidate(peer) && peer.is_stuck(now));
            let Some(at) = silent.or_else(stuck) else {
                if self.logs_refusal(now) {
                    let places = if is_source_full {
                        format!("{PEERS_A_SOURCE} places of one address")
                    } else {
                        format!("{PEERS_MAX} places")
                    };
                    tracing::warn!(
                        "replication: peer {name} is refused, because all {places} for standbys are in use (stop another standby; further refusals within a minute are not logged)"
                    );
                }
                return;
            };
            self.peers.remove(at);
        }
        self.peers.push(Peer {
            link: Link::new(stream, now),
            name,
            source,
            needs: None,
            joins: 0,
            is_complete: false,
            has_settings: false,
            has_acknowledged: false,
            was_complete: false,
            acknowledged: 0,
            progressed: now,
            slow_since: None,
        });
    }

    /// Receives from standbys, and sends what has changed.
    ///
    /// # Errors
    /// A thread does not reply: the standbys get all entries once it does.
    pub(super) fn turn(
        &mut self,
        tables: &mut impl Tables,
        now: Instant,
    ) -> Result<(), SwitchError> {
        let begun = self.begun;
        self.retain_peers(|peer| peer.receive(begun, now));
        self.send_settings(tables, now);
        let result = if self.has_standby() {
            self.send_changes(tables, now)
                .and_then(|()| self.send_all(tables, now))
        } else if self.is_noting {
            self.pass = None;
            let ended = tables.end();
            self.is_noting = ended.is_err();
            ended
        } else {
            Ok(())
        };
        if result.is_err() {
            self.require_all();
        }
        self.retain_peers(|peer| {
            if peer.needs.is_some() && peer.link.quiet_for(now) >= HEARTBEAT {
                peer.link.put(&Message::Heartbeat, now);
            }
            peer.flush(now)
        });
        result
    }

    /// Sends settings and limits to new standbys, before all entries, and to all standbys after a change.
    fn send_settings(&mut self, tables: &impl Tables, now: Instant) {
        let is_new = |peer: &Peer<S>| peer.needs.is_some() && !peer.has_settings;
        let is_due = self
            .compared
            .is_none_or(|compared| now.saturating_duration_since(compared) >= COMPARE);
        if !(self.peers.iter().any(is_new) || is_due && self.has_standby()) {
            return;
        }
        let (settings, limits) = (tables.digests(), tables.limits());
        let has_changed = settings != self.settings || limits != self.limits;
        let mut messages = vec![Message::Configuration(settings.clone())];
        let parts = limits.chunks(LIMITS_A_MESSAGE);
        messages.extend(parts.map(|part| Message::Limits(part.to_vec())));
        for peer in &mut self.peers {
            if is_new(peer) || has_changed && peer.has_settings {
                for message in &messages {
                    peer.link.put(message, now);
                }
                peer.has_settings = true;
            }
        }
        self.settings = settings;
        self.limits = limits;
        self.compared = Some(now);
    }

    fn has_standby(&self) -> bool {
        self.peers.iter().any(|peer| peer.needs.is_some())
    }

    /// Removes the peers whose streams have ended.
    fn retain_peers(&mut self, mut step: impl FnMut(&mut Peer<S>) -> Result<(), LinkError>) {
        self.peers.retain_mut(|peer| match step(peer) {
            Ok(()) => true,
            Err(error) if peer.has_acknowledged => {
                tracing::warn!(
                    "standby {}: {error} (it gets all entries when it returns)",
                    peer.name
                );
                false
            }
            // No client may fill the log, and a standby with other settings logs them itself.
            Err(error) => {
                tracing::debug!("replication: peer {}: {error}", peer.name);
                false
            }
        });
    }

    /// Begins to read all entries again: none of the standbys has them.
    fn require_all(&mut self) {
        for peer in &mut self.peers {
            if peer.needs.is_some() {
                peer.needs = Some(self.begun.saturating_add(1));
                peer.is_complete = false;
            }
        }
    }

    /// Queues messages for the peers that `is_recipient` selects.
    fn put(&mut self, messages: &[Message], now: Instant, is_recipient: impl Fn(&Peer<S>) -> bool) {
        for message in messages {
            self.counts.changes = self.counts.changes.saturating_add(changes_in(message));
            for peer in self.peers.iter_mut().filter(|peer| is_recipient(peer)) {
                peer.link.put(message, now);
            }
        }
    }

    fn send_changes(&mut self, tables: &mut impl Tables, now: Instant) -> Result<(), SwitchError> {
        let is_first = !std::mem::replace(&mut self.is_noting, true);
        let mut messages = Vec::new();
        let result = tables.changes(&mut messages);
        self.put(&messages, now, |peer| peer.needs.is_some());
        let lost = result?;
        if lost > 0 && !is_first {
            self.counts.lost = self.counts.lost.saturating_add(lost);
            if self.logs_loss(now) {
                tracing::warn!(
                    "standbys get all connections again: {lost} changes were too many, or are of new tables (further losses are counted: see `switch show replication`)"
                );
            }
        }
        if lost > 0 {
            self.require_all();
        }
        Ok(())
    }

    /// Returns true if a loss of changes is logged at this time.
    pub(super) fn logs_loss(&mut self, now: Instant) -> bool {
        self.loss_log.take(now).is_ok()
    }

    /// Returns true if a refused peer is logged at this time.
    pub(super) fn logs_refusal(&mut self, now: Instant) -> bool {
        self.refusal_log.take(now).is_ok()
    }

    /// Reads further entries of a pass, if one is due and the standbys can follow.
    fn send_all(&mut self, tables: &mut impl Tables, now: Instant) -> Result<(), SwitchError> {
        let before = self.begun;
        let is_needed = |peer: &Peer<S>| peer.needs.is_some_and(|needs| needs > before);
        let is_required = self.peers.iter().any(is_needed);
        let is_due = self
            .ended
            .is_none_or(|ended| now.saturating_duration_since(ended) >= self.refresh);
        if !self.peers.iter().any(|peer| peer.takes_part(before)) {
            // Those that have joined since begin with the next pass.
            self.pass = None;
        }
        if self.pass.is_none() && (is_required || is_due) {
            self.begun = self.begun.saturating_add(1);
            self.pass = Some(Position::default());
            self.waited = Duration::ZERO;
            self.waits_since = None;
        }
        self.put_off_slow(now);
        let begun = self.begun;
        let started = Instant::now();
        while let Some(at) = self.pass {
            let is_awaited = |peer: &Peer<S>| peer.takes_part(begun) && peer.is_slow();
            if self.peers.iter().any(is_awaited) {
                break;
            }
            let mut messages = Vec::new();
            let next = tables.page(at, &mut messages)?;
            self.put(&messages, now, |peer| peer.takes_part(begun));
            self.pass = next;
            if self.pass.is_none() {
                self.complete(now);
            }
            if started.elapsed() >= WALK_TIME {
                break;
            }
        }
        Ok(())
    }

    /// Puts slow standbys off to the next pass when others have waited for them too long: for [`TIMEOUT`] in each pass, or for the interval
    /// between passes if the others are complete.
    fn put_off_slow(&mut self, now: Instant) {
        let begun = self.begun;
        let (mut has_slow, mut has_waiting, mut is_urgent) = (false, false, false);
        for peer in self.peers.iter().filter(|peer| peer.takes_part(begun)) {
            if peer.is_slow() {
                has_slow = true;
            } else {
                has_waiting = true;
                is_urgent |= !peer.is_complete;
            }
        }
        if self.pass.is_none() || !has_slow || !has_waiting {
            self.waits_since = None;
            return;
        }
        let last = self.waits_since.replace(now).unwrap_or(now);
        self.waited = self
            .waited
            .saturating_add(now.saturating_duration_since(last));
        let limit = match is_urgent {
            true => TIMEOUT,
            false => self.refresh.max(TIMEOUT),
        };
        if self.waited < limit {
            return;
        }
        for peer in &mut self.peers {
            if peer.takes_part(begun) && peer.is_slow() {
                tracing::debug!("replication: peer {} is too slow for this pass", peer.name);
                peer.joins = begun.saturating_add(1);
                peer.needs = Some(begun.saturating_add(1));
            }
        }
    }

    /// Ends a pass.
    fn complete(&mut self, now: Instant) {
        self.ended = Some(now);
        self.counts.passes = self.counts.passes.saturating_add(1);
        for peer in &mut self.peers {
            let is_served = peer.needs.is_some_and(|needs| needs <= self.begun);
            if is_served && !peer.is_complete {
                peer.is_complete = true;
                peer.link.put(&Message::Complete, now);
                if !std::mem::replace(&mut peer.was_complete, true) {
                    tracing::info!("standby {} has all connections", peer.name);
                }
            }
        }
    }
}
