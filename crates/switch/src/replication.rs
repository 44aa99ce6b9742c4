// SPDX-License-Identifier: Apache-2.0
//! Replication of connections, mappings of NAT and connections of load balancers from an active switch to a standby, over TCP. The control
//! thread does all of it, and asks forwarding threads for changes, so that they make no system call.
//!
//! The standby connects to the active switch. What the stream contains is in [`wire`]; a stream that fails begins again with all entries.

mod active;
mod link;
mod standby;
mod tables;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use crate::accept::AcceptErrors;
use crate::config::connections::{ReplicationRole, ReplicationSetting};
use crate::error::SwitchError;
use crate::forward::ApplyCounts;
use crate::report::{ReplicationPeerReport, ReplicationReport};

use active::Active;
use standby::{Standby, StandbyError};
pub(crate) use tables::{Position, Tables};
#[cfg(test)]
pub(crate) use wire::SETTINGS_MAX;
#[cfg(test)]
pub(crate) use wire::tests as wire_tests;
pub(crate) use wire::{
    CHANGES_MAX, Digests, Limits, Message, NO_LIMIT, Reader, WireError, digest, limit, messages_of,
    text_of,
};

/// Pause of a standby before it connects again.
const RETRY: Duration = Duration::from_millis(500);
/// Pause of a standby after an active switch with other settings.
const RETRY_OTHER: Duration = Duration::from_secs(10);
/// Timeout for connecting.
const CONNECT: Duration = Duration::from_secs(3);
/// Interval between turns while there is a peer, or an end of noting has failed.
const TURN_MS: u16 = 20;
/// Streams that are accepted in a turn.
const ACCEPTED_A_TURN: usize = 8;

/// State of the stream to the active switch.
#[derive(Debug)]
enum Following {
    /// Not connected until this time.
    Waiting(Instant),
    /// Connecting until this time at the latest.
    Connecting(OwnedFd, Instant),
    /// Connected.
    Connected(Box<Standby<TcpStream>>),
}

/// Role of the switch.
#[derive(Debug)]
enum Role {
    Active(Box<Active<TcpStream>>),
    Standby(Following),
}

/// Replication of a switch.
#[derive(Debug)]
pub(crate) struct Replication {
    setting: ReplicationSetting,
    listener: Option<TcpListener>,
    errors: AcceptErrors,
    role: Role,
    applied: ApplyCounts,
    /// Names of settings that differ from those of the active switch, until a stream begins with equal ones.
    differing: Vec<String>,
    /// Limits that are lower than those of the active switch, with both values.
    lower_limits: Vec<String>,
    /// True after a line in the log about the active switch, until it answers.
    has_failed: bool,
}

fn wrong(what: String) -> SwitchError {
    SwitchError::Config {
        location: "replication".to_owned(),
        what,
    }
}

impl Replication {
    /// Begins to listen, if the settings have an address for it.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if the address cannot be used.
    pub(crate) fn open(setting: &ReplicationSetting) -> Result<Self, SwitchError> {
        let listen = |address: SocketAddr| -> io::Result<TcpListener> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = setting.listen.map(|address| {
            listen(address).map_err(|error| {
                wrong(format!(
                    "cannot listen on {address}: {error} (use another address, or end the program that uses it)"
                ))
            })
        });
        let role = match setting.role {
            ReplicationRole::Active => Role::Active(Box::new(Active::new(setting.refresh()))),
            ReplicationRole::Standby => Role::Standby(Following::Waiting(Instant::now())),
        };
        Ok(Self {
            setting: setting.clone(),
            listener: listener.transpose()?,
            errors: AcceptErrors::new("replication"),
            role,
            applied: ApplyCounts::default(),
            differing: Vec::new(),
            lower_limits: Vec::new(),
            has_failed: false,
        })
    }

    /// Returns the maximum wait before the next turn, ms; `None` if nothing is due.
    pub(crate) fn wait_ms(&self) -> Option<u16> {
        match &self.role {
            Role::Active(active) => (!active.is_idle()).then_some(TURN_MS),
            Role::Standby(_) => Some(TURN_MS),
        }
    }

    /// Accepts peers, receives and sends.
    pub(crate) fn turn(&mut self, tables: &mut impl Tables, now: Instant) {
        self.accept(now);
        match &mut self.role {
            Role::Active(active) => {
                if let Err(error) = active.turn(tables, now) {
                    tracing::debug!("replication: {error}");
                }
            }
            Role::Standby(_) => self.follow(tables, now),
        }
    }

    /// Accepts standbys. A standby accepts none, and closes what connects.
    fn accept(&mut self, now: Instant) {
        let Some(listener) = &self.listener else {
            return;
        };
        if self.errors.is_paused() {
            return;
        }
        for _ in 0..ACCEPTED_A_TURN {
            let accepted = listener.accept().and_then(|(stream, address)| {
                stream.set_nonblocking(true).map(|()| (stream, address))
            });
            match (accepted, &mut self.role) {
                (Ok((stream, address)), Role::Active(active)) => {
                    let source = source_of(&self.setting, address);
                    active.add(stream, address.to_string(), source, now);
                }
                (Ok(_), Role::Standby(_)) => {}
                (Err(error), _) => {
                    self.errors.note(&error);
                    return;
                }
            }
        }
    }

    /// Connects to the active switch, and applies its messages.
    fn follow(&mut self, tables: &mut impl Tables, now: Instant) {
        let Some(active) = self.setting.peer else {
            return;
        };
        let Role::Standby(following) = &mut self.role else {
            return;
        };
        let mut pause = RETRY;
        let result = match following {
            Following::Waiting(until) if now < *until => return,
            Following::Waiting(_) => begin_connecting(active)
                .map(|socket| Some(Following::Connecting(socket, later(now, CONNECT))))
                .map_err(|error| error.to_string()),
            Following::Connecting(socket, until) => match connected(socket) {
                Ok(Some(stream)) => {
                    let standby = Box::new(Standby::new(stream, now));
                    Ok(Some(Following::Connected(standby)))
                }
                Ok(None) if now < *until => Ok(None),
                Ok(None) => Err(format!("no answer within {} s", CONNECT.as_secs())),
                Err(error) => Err(error.to_string()),
            },
            Following::Connected(standby) => {
                let was_complete = standby.is_complete;
                let turned = standby.turn(tables, &mut self.applied, now);
                if standby.is_greeted {
                    self.has_failed = false;
                    self.differing.clear();
                }
                if let Some(lower) = &standby.lower_limits
                    && *lower != self.lower_limits
                {
                    if !lower.is_empty() {
                        tracing::warn!(
                            "this standby has lower limits than {active}: {} (raise them on this switch, because it has no space for connections beyond them)",
                            lower.join(", ")
                        );
                    }
                    self.lower_limits.clone_from(lower);
                }
                if standby.is_complete && !was_complete {
                    tracing::info!("this standby has all connections of {active}");
                }
                if let Err(StandbyError::Settings(names)) = &turned {
                    pause = RETRY_OTHER;
                    self.differing.clone_from(names);
                }
                turned.map(|()| None).map_err(|error| error.to_string())
            }
        };
        match result {
            Ok(Some(next)) => *following = next,
            Ok(None) => {}
            Err(reason) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(
                        "no replication from {active}: {reason} (the standby tries again; run `switch connections take-over` to make this switch active)"
                    );
                }
                *following = Following::Waiting(later(now, pause));
            }
        }
    }

    /// Makes a standby the active switch.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if it is the active switch already.
    pub(crate) fn take_over(&mut self) -> Result<(), SwitchError> {
        match self.role {
            Role::Active(_) => Err(wrong("this switch is already active".to_owned())),
            Role::Standby(_) => {
                self.role = Role::Active(Box::new(Active::new(self.setting.refresh())));
                self.differing.clear();
                self.lower_limits.clear();
                tracing::info!("this switch is active now");
                Ok(())
            }
        }
    }

    const fn role(&self) -> ReplicationRole {
        match self.role {
            Role::Active(_) => ReplicationRole::Active,
            Role::Standby(_) => ReplicationRole::Standby,
        }
    }

    /// Returns a report.
    pub(crate) fn report(&self) -> ReplicationReport {
        let mut report = ReplicationReport {
            role: self.role().name().to_owned(),
            differing_settings: self.differing.clone(),
            lower_limits: self.lower_limits.clone(),
            added: self.applied.added,
            updated: self.applied.updated,
            removed: self.applied.removed,
            full: self.applied.full,
            invalid: self.applied.invalid,
            ..ReplicationReport::default()
        };
        match &self.role {
            Role::Active(active) => {
                report.sent = active.counts.changes;
                report.lost = active.counts.lost;
                report.passes = active.counts.passes;
                let peers = active.peers.iter().map(|peer| ReplicationPeerReport {
                    address: peer.name.clone(),
                    is_complete: peer.is_complete,
                    queued_octets: peer.queued() as u64,
                    unacknowledged: peer.last().saturating_sub(peer.acknowledged),
                });
                report.peers = peers.collect();
            }
            Role::Standby(following) => {
                if let (Following::Connected(standby), Some(active)) =
                    (following, self.setting.peer)
                    && standby.is_greeted
                {
                    report.peers.push(ReplicationPeerReport {
                        address: active.to_string(),
                        is_complete: standby.is_complete,
                        ..ReplicationPeerReport::default()
                    });
                }
            }
        }
        report
    }
}

/// Returns the address whose number of peers has a limit. On a loopback address there is none: standbys at the ends of tunnels all have the
/// same one.
fn source_of(setting: &ReplicationSetting, peer: SocketAddr) -> Option<IpAddr> {
    let is_behind_tunnels = setting
        .listen
        .is_some_and(|address| address.ip().is_loopback());
    (!is_behind_tunnels).then(|| peer.ip().to_canonical())
}

/// Begins to connect without blocking.
fn begin_connecting(address: SocketAddr) -> nix::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Returns the stream once it is connected.
fn connected(socket: &OwnedFd) -> io::Result<Option<TcpStream>> {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO)? == 0 {
        return Ok(None);
    }
    let stream = TcpStream::from(socket.try_clone()?);
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(Some(stream)),
    }
}

/// Returns the moment `wait` after another one.
fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now)
}
