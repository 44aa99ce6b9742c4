// SPDX-License-Identifier: Apache-2.0
//! Sessions of NAT for a log: connections that wait for their external endpoints, and sessions that have ended.

use std::net::SocketAddr;

use super::super::key::Endpoint;
use super::super::sessions::{SessionEvent, Sessions};
use super::super::settings::SettingsError;
use super::{Connection, Tracker};

/// A connection whose external endpoints are not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingSession {
    /// Handle for [`Tracker::begin_session`].
    pub connection: Connection,
    /// IP protocol.
    pub protocol: u8,
    /// Endpoint that sent the first packet, as inside hosts see it.
    pub source: Endpoint,
    /// The other endpoint, as inside hosts see it.
    pub destination: Endpoint,
}

impl Tracker {
    /// Allocates space for sessions, without which the tracker notes none. Takes 42 octets more for each connection.
    ///
    /// # Errors
    /// [`SettingsError::Memory`].
    pub fn allow_sessions(&mut self) -> Result<(), SettingsError> {
        self.sessions = Some(Box::new(Sessions::new(self.entries.len())?));
        Ok(())
    }

    /// Returns true if sessions wait for [`Tracker::take_ended_session`], [`Tracker::take_waiting_session`] or
    /// [`Tracker::take_lost_sessions`].
    #[inline(always)]
    #[must_use]
    pub fn has_session_work(&self) -> bool {
        self.sessions.as_ref().is_some_and(|one| one.has_work())
    }

    /// Takes the session that ended first.
    pub fn take_ended_session(&mut self) -> Option<SessionEvent> {
        self.sessions.as_mut()?.take_ended()
    }

    /// Takes the connection that has waited the longest for its external endpoints. Take all ended sessions first: a waiting connection may
    /// have the endpoints of an ended one.
    pub fn take_waiting_session(&mut self) -> Option<WaitingSession> {
        // Connections that have ended meanwhile are passed over. Each turn takes one.
        while let Some((index, generation)) = self.sessions.as_mut()?.take_waiting() {
            let connection = Connection { index, generation };
            if let Some(entry) = self.entry(connection) {
                let (source, destination) = entry.ends();
                return Some(WaitingSession {
                    connection,
                    protocol: entry.key.protocol(),
                    source,
                    destination,
                });
            }
        }
        None
    }

    /// Sets the external endpoints of source and destination of a connection. Returns the event of a new session; `None` if both are absent,
    /// if the session has begun before, or if the connection has ended. A connection without endpoints waits again once its state changes.
    pub fn begin_session(
        &mut self,
        connection: Connection,
        external: [Option<SocketAddr>; 2],
    ) -> Option<SessionEvent> {
        let entry = *self.entry(connection)?;
        let sessions = self.sessions.as_mut()?;
        sessions.begin((connection.index, connection.generation), &entry, external)
    }

    /// Returns the number of events that had no space since the last call.
    pub fn take_lost_sessions(&mut self) -> u64 {
        let sessions = self.sessions.as_mut();
        sessions.map_or(0, |sessions| sessions.take_loss())
    }

    /// Notes that a connection has begun or has another state.
    #[inline]
    pub(super) fn note_session(&mut self, index: u32) {
        if let (Some(sessions), Some(entry)) =
            (&mut self.sessions, self.entries.get(index as usize))
        {
            sessions.note((index, entry.generation));
        }
    }

    /// Notes that a connection is about to end.
    #[inline]
    pub(super) fn note_session_end(&mut self, index: u32) {
        if let (Some(sessions), Some(entry)) =
            (&mut self.sessions, self.entries.get(index as usize))
        {
            sessions.end((index, entry.generation), entry);
        }
    }
}
