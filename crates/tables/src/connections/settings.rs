// SPDX-License-Identifier: Apache-2.0
//! Settings of a tracker: size, zones, timeouts.

use super::names::State;
use crate::arena::NoMemory;

/// Maximum number of entries of a tracker.
pub const ENTRIES_MAX: u32 = 1 << 26;
/// Memory of an entry, for both directions of a connection, octets. The index adds 8 to 16 octets per entry.
pub const ENTRY_OCTETS: usize = 128;
/// Maximum number of zones of a tracker.
pub const ZONES_MAX: u16 = 1024;
/// Maximum timeout, seconds: 30 days.
pub const TIMEOUT_MAX_S: u32 = 30 * 24 * 3600;

/// Seconds since the tracker's start, rounded down. An entry with a timeout of T seconds is removed between T and T + 1 seconds after the
/// last packet.
pub type Seconds = u32;

/// Timeout of each state, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts([u32; State::ALL.len()]);

/// Partially open or closed connections (RFC 5382, REQ-5: at least 4 minutes).
const TRANSITORY_S: u32 = 240;

impl Default for Timeouts {
    fn default() -> Self {
        Self(State::ALL.map(|state| match state {
            State::TcpSynSent
            | State::TcpSynSent2
            | State::TcpSynRecv
            | State::TcpFinWait
            | State::TcpCloseWait
            | State::TcpLastAck
            | State::TcpTimeWait => TRANSITORY_S,
            // RFC 5382, REQ-5: at least 2 hours and 4 minutes.
            State::TcpEstablished => 7440,
            State::TcpClose => 10,
            State::UdpUnreplied => 30,
            // RFC 4787, REQ-5: 5 minutes are recommended.
            State::UdpReplied => 300,
            // RFC 5508, REQ-2: at least 60 seconds.
            State::IcmpUnreplied | State::IcmpReplied => 60,
            // As the kernel (`nf_conntrack_proto_generic.c`).
            State::OtherUnreplied | State::OtherReplied => 600,
        }))
    }
}

impl Timeouts {
    /// Returns the timeout of a state.
    #[expect(clippy::indexing_slicing, reason = "each state has its timeout")]
    #[must_use]
    #[inline]
    pub const fn of(&self, state: State) -> u32 {
        self.0[state as usize]
    }

    /// Returns these timeouts with another one for a state, limited to the range from 1 to [`TIMEOUT_MAX_S`].
    #[expect(clippy::indexing_slicing, reason = "each state has its timeout")]
    #[must_use]
    pub fn with(mut self, state: State, seconds: u32) -> Self {
        self.0[state as usize] = seconds.clamp(1, TIMEOUT_MAX_S);
        self
    }
}

/// Settings of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of connections.
    pub entries_max: u32,
    /// Maximum number of connections of each zone, by its number. Zones beyond the list do not exist.
    pub zone_limits: Vec<u32>,
    /// Timeouts.
    pub timeouts: Timeouts,
}

impl Settings {
    /// Creates settings of one zone with default timeouts.
    #[must_use]
    pub fn of_size(entries_max: u32) -> Self {
        Self {
            entries_max,
            zone_limits: vec![entries_max],
            timeouts: Timeouts::default(),
        }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`SettingsError::Entries`], [`SettingsError::Zones`].
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(1..=ENTRIES_MAX).contains(&self.entries_max) {
            return Err(SettingsError::Entries(self.entries_max));
        }
        if !(1..=usize::from(ZONES_MAX)).contains(&self.zone_limits.len()) {
            return Err(SettingsError::Zones(self.zone_limits.len()));
        }
        Ok(())
    }
}

/// Limits of the connections that each source address has begun, in each zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLimits {
    /// Maximum number of connections.
    pub connections: u32,
    /// Maximum number of half-open connections ([`State::is_half_open`]).
    pub half_open: u32,
}

/// No limits.
impl Default for SourceLimits {
    fn default() -> Self {
        Self {
            connections: u32::MAX,
            half_open: u32::MAX,
        }
    }
}

/// Error of creating a tracker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Number of entries out of range.
    #[error("{0} connections are out of range (allowed: 1 to {ENTRIES_MAX})")]
    Entries(u32),
    /// Number of zones out of range.
    #[error("{0} zones are out of range (allowed: 1 to {ZONES_MAX})")]
    Zones(usize),
    /// Out of memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

#[cfg(test)]
mod tests {
    use super::super::names::InvalidReason;
    use super::*;

    /// The guide has all states with their timeouts, and all reasons.
    #[test]
    fn states_timeouts_and_reasons_are_those_of_the_guide() {
        let page = include_str!("../../../../docs/connections.md");
        let rows = || page.lines().filter(|line| line.starts_with("| `"));
        let row_of = |name: &str| {
            let quoted = format!("`{name}`");
            let mut rows = rows().map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
            rows.find(|cells| cells[1].contains(&quoted))
        };
        for state in State::ALL {
            let name = state.name();
            assert!(row_of(name).is_some(), "no state {name}");
            let key = name.replace('_', "-");
            let cells = row_of(&key).unwrap_or_else(|| panic!("no timeout {key}"));
            let seconds = Timeouts::default().of(state).to_string();
            assert_eq!(cells[2].split(' ').next(), Some(&*seconds), "{key}");
        }
        for reason in InvalidReason::ALL {
            assert!(row_of(reason.name()).is_some(), "{}", reason.name());
        }
    }
}
