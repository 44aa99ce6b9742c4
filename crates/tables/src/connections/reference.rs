// SPDX-License-Identifier: Apache-2.0
//! Reference implementation of the tracker, slow and obvious: a map of connections by the first packet's endpoints, searched in full for
//! each decision. It reads descriptions of packets, not octets.

mod sent;
mod tcp;

use std::collections::HashMap;

use super::key::Endpoint;
use super::list::ConnectionInfo;
use super::names::{CtState, Direction, Eviction, InvalidReason, Refusal, State};
use super::settings::{Seconds, Settings};
use tcp::{Effect, Host};

pub use sent::{Content, Sent, TcpSent};

/// Connection by its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tuple {
    zone: u16,
    protocol: u8,
    source: Endpoint,
    destination: Endpoint,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    state: State,
    /// First second at which it has ended.
    ends_at: Seconds,
    /// Number of the change that it entered its class of early drops with.
    entered_at: u64,
    is_replied: bool,
    hosts: [Host; 2],
    packets: [u32; 2],
    octets: [u64; 2],
}

/// Class of a packet, reason, and direction.
pub type ReferenceVerdict = (CtState, Option<InvalidReason>, Direction);

/// Reference of [`super::Tracker`].
#[derive(Debug)]
pub struct Reference {
    settings: Settings,
    /// Maximum number of half-open connections: of all, and of a source address in a zone.
    half_open: [usize; 2],
    known: HashMap<Tuple, Known>,
    changes: u64,
    now: Seconds,
}

impl Sent {
    /// Returns the endpoints as connections have them: protocols without ports have port 0.
    fn tuple(&self) -> Tuple {
        let end = |end: Endpoint| Endpoint {
            port: if matches!(self.content, Content::Other(_)) {
                0
            } else {
                end.port
            },
            ..end
        };
        Tuple {
            zone: self.zone,
            protocol: self.protocol(),
            source: end(self.source),
            destination: end(self.destination),
        }
    }
}

impl Tuple {
    fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ..self
        }
    }
}

/// Returns the state of a new connection.
fn first_state(sent: &Sent) -> Result<State, InvalidReason> {
    match &sent.content {
        Content::Tcp(segment) if !tcp::are_possible(segment) => Err(InvalidReason::Flags),
        Content::Tcp(segment) if tcp::is_opening(segment) => Ok(State::TcpSynSent),
        Content::Udp(_) => Ok(State::UdpUnreplied),
        Content::EchoRequest => Ok(State::IcmpUnreplied),
        Content::Other(_) => Ok(State::OtherUnreplied),
        Content::Tcp(_) | Content::EchoReply | Content::Error(_) => {
            Err(InvalidReason::NoConnection)
        }
    }
}

const fn invalid(reason: InvalidReason) -> ReferenceVerdict {
    (CtState::Invalid, Some(reason), Direction::Original)
}

const NEW: ReferenceVerdict = (CtState::New, None, Direction::Original);

impl Reference {
    /// Creates a reference without connections.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            half_open: [usize::MAX; 2],
            known: HashMap::new(),
            changes: 0,
            now: 0,
        }
    }

    /// Limits the half-open connections: all, and those of a source address in a zone.
    pub const fn limit_half_open(&mut self, all: usize, of_source: usize) {
        self.half_open = [all, of_source];
    }

    /// Sets the time, and removes all expired connections.
    pub fn expire(&mut self, now: Seconds) {
        self.now = self.now.max(now);
        let now = self.now;
        self.known.retain(|_, known| known.ends_at > now);
    }

    /// Finds the connection of a packet, and the packet's direction.
    fn find(&self, sent: &Sent) -> Option<(Tuple, Direction)> {
        let tuple = sent.tuple();
        let is_known = |tuple: &Tuple| {
            let known = self.known.get(tuple);
            known.is_some_and(|known| known.ends_at > self.now)
        };
        // Only requests begin an echo, and only replies answer it.
        let may_begin = sent.content != Content::EchoReply;
        let may_answer = sent.content != Content::EchoRequest;
        if may_begin && is_known(&tuple) {
            return Some((tuple, Direction::Original));
        }
        let reversed = tuple.reversed();
        (may_answer && is_known(&reversed)).then_some((reversed, Direction::Reply))
    }

    /// Classifies a packet, and updates its connection.
    pub fn track(&mut self, sent: &Sent) -> ReferenceVerdict {
        let subject = match &sent.content {
            Content::Error(inner) if inner.source.address != sent.destination.address => {
                return invalid(InvalidReason::Unrelated);
            }
            // No errors are sent about errors.
            Content::Error(inner) if matches!(inner.content, Content::Error(_)) => {
                return invalid(InvalidReason::Unrelated);
            }
            // Has no eight octets to be known by.
            Content::Error(inner) if matches!(inner.content, Content::Other(_)) => {
                return invalid(InvalidReason::Unrelated);
            }
            Content::Error(inner) => &**inner,
            _ => sent,
        };
        let tuple = subject.tuple();
        if tuple.source == tuple.destination {
            return invalid(InvalidReason::SameEndpoint);
        }
        if let Content::Error(inner) = &sent.content {
            return self.verdict_on_error(&Sent {
                zone: sent.zone,
                ..Sent::clone(inner)
            });
        }
        match self.find(sent) {
            Some((tuple, direction)) => self.update(tuple, direction, sent).unwrap_or(NEW),
            None => match first_state(sent) {
                Ok(_) => NEW,
                Err(reason) => invalid(reason),
            },
        }
    }

    fn verdict_on_error(&self, inner: &Sent) -> ReferenceVerdict {
        let unrelated = invalid(InvalidReason::Unrelated);
        let Some((tuple, direction)) = self.find(inner) else {
            return unrelated;
        };
        let Some(known) = self.known.get(&tuple) else {
            return unrelated;
        };
        if direction == Direction::Reply && !known.is_replied {
            return unrelated;
        }
        if let Content::Tcp(segment) = &inner.content {
            let from = &known.hosts[direction as usize];
            let to = &known.hosts[1 - direction as usize];
            if !from.has_sent(segment.sequence, to) {
                return unrelated;
            }
        }
        (CtState::Related, None, direction)
    }

    /// Applies a packet to its connection; `None` if it may begin a new one in its place.
    fn update(
        &mut self,
        tuple: Tuple,
        direction: Direction,
        sent: &Sent,
    ) -> Option<ReferenceVerdict> {
        let known = self.known.get_mut(&tuple)?;
        let effect = match &sent.content {
            Content::Tcp(segment) if !tcp::are_possible(segment) => Err(InvalidReason::Flags),
            Content::Tcp(segment) => {
                let [original, reply] = &mut known.hosts;
                let (from, to) = match direction {
                    Direction::Original => (original, reply),
                    Direction::Reply => (reply, original),
                };
                tcp::apply(known.state, direction, from, to, segment)
            }
            _ => Ok(Effect::In(match (known.state, direction) {
                (state, Direction::Original) => state,
                (State::UdpUnreplied, Direction::Reply) => State::UdpReplied,
                (State::IcmpUnreplied, Direction::Reply) => State::IcmpReplied,
                (State::OtherUnreplied, Direction::Reply) => State::OtherReplied,
                (state, Direction::Reply) => state,
            })),
        };
        let effect = match effect {
            Ok(Effect::New) => return None,
            Ok(effect) => effect,
            Err(reason) => return Some(invalid(reason)),
        };
        known.packets[direction as usize] += 1;
        known.octets[direction as usize] += sent.octets().len() as u64;
        known.is_replied |= direction == Direction::Reply;
        if let Effect::In(state) = effect {
            known.ends_at = self.now + self.settings.timeouts.of(state) + 1;
            if state.eviction() != known.state.eviction() {
                self.changes += 1;
                known.entered_at = self.changes;
            }
            known.state = state;
        }
        let state = if known.is_replied {
            CtState::Established
        } else {
            CtState::New
        };
        Some((state, None, direction))
    }

    /// Creates the connection of an accepted new packet.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn commit(&mut self, sent: &Sent) -> Result<(), Refusal> {
        let tuple = sent.tuple();
        if let Some((tuple, direction)) = self.find(sent) {
            match self.update(tuple, direction, sent) {
                Some((CtState::Invalid, ..)) => return Err(Refusal::Conflict),
                Some(_) => return Ok(()),
                None => self.known.remove(&tuple),
            };
        }
        let state = first_state(sent).map_err(|_| Refusal::Conflict)?;
        let of_source = |other: &Tuple| {
            other.zone == tuple.zone && other.source.address == tuple.source.address
        };
        if self.count_half_open(of_source) >= self.half_open[1] {
            return Err(Refusal::SourceHalfOpen);
        }
        self.make_space(tuple.zone)?;
        if self.count_half_open(|_| true) >= self.half_open[0] {
            let zones = self.settings.zone_limits.len() as u16;
            let in_order: Vec<u16> = (tuple.zone..zones).chain(0..tuple.zone).collect();
            if let Some(victim) = self.oldest(Eviction::Embryonic, &in_order) {
                self.known.remove(&victim);
            }
        }
        self.changes += 1;
        let host = match &sent.content {
            Content::Tcp(segment) => Host::after_syn(segment),
            _ => Host::default(),
        };
        let known = Known {
            state,
            ends_at: self.now + self.settings.timeouts.of(state) + 1,
            entered_at: self.changes,
            is_replied: false,
            hosts: [host, Host::default()],
            packets: [1, 0],
            octets: [sent.octets().len() as u64, 0],
        };
        self.known.insert(tuple, known);
        Ok(())
    }

    fn make_space(&mut self, zone: u16) -> Result<(), Refusal> {
        let limits = &self.settings.zone_limits;
        let limit = limits.get(usize::from(zone)).ok_or(Refusal::NoZone)?;
        let count = self.known.keys().filter(|one| one.zone == zone).count();
        let victim = if count >= *limit as usize {
            self.victim(&[zone]).ok_or(Refusal::ZoneFull)?
        } else if self.known.len() >= self.settings.entries_max as usize {
            let zones = limits.len() as u16;
            let others: Vec<u16> = (zone + 1..zones).chain(0..zone).collect();
            self.victim(&[zone])
                .or_else(|| self.victim(&others))
                .ok_or(Refusal::TableFull)?
        } else {
            return Ok(());
        };
        self.known.remove(&victim);
        Ok(())
    }

    /// Returns the number of half-open connections of these.
    fn count_half_open(&self, of: impl Fn(&Tuple) -> bool) -> usize {
        let known = self.known.iter();
        let half_open = known.filter(|(_, known)| known.state.eviction() == Eviction::Embryonic);
        half_open.filter(|one| of(one.0)).count()
    }

    /// Returns the oldest embryonic connection of the first of these zones that has one, or the oldest closed one.
    fn victim(&self, zones: &[u16]) -> Option<Tuple> {
        let mut classes = [Eviction::Embryonic, Eviction::Closed].into_iter();
        classes.find_map(|class| self.oldest(class, zones))
    }

    /// Returns the oldest connection of a class, of the first of these zones that has one.
    fn oldest(&self, class: Eviction, zones: &[u16]) -> Option<Tuple> {
        zones.iter().find_map(|zone| {
            let candidates = self
                .known
                .iter()
                .filter(|(tuple, known)| tuple.zone == *zone && known.state.eviction() == class);
            let oldest = candidates.min_by_key(|(_, known)| known.entered_at);
            oldest.map(|(tuple, _)| *tuple)
        })
    }

    /// Returns all connections, in the order of their endpoints.
    #[must_use]
    pub fn list(&self) -> Vec<ConnectionInfo> {
        let live = self
            .known
            .iter()
            .filter(|(_, known)| known.ends_at > self.now);
        let mut list: Vec<ConnectionInfo> = live
            .map(|(tuple, known)| ConnectionInfo {
                zone: tuple.zone,
                protocol: tuple.protocol,
                source: tuple.source,
                destination: tuple.destination,
                state: known.state,
                is_replied: known.is_replied,
                mark: 0,
                label: 0,
                expires_in_s: known.ends_at - self.now - 1,
                packets: known.packets,
                octets: known.octets,
            })
            .collect();
        list.sort_by_key(|one| (one.zone, one.protocol, one.source, one.destination));
        list
    }
}
