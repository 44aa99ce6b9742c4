// SPDX-License-Identifier: Apache-2.0
//! Backends of a load balancer.

use std::net::SocketAddrV4;

use super::maglev::choices;
use crate::named;

named! {
    /// State of a backend.
    pub enum BackendState {
        /// Receives new connections.
        Up = "up";
        /// Keeps its connections, and receives no new ones.
        Draining = "draining";
        /// Receives nothing. Its connections go to others.
        Down = "down";
    }
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its endpoint.
    pub endpoint: SocketAddrV4,
    /// Its share of new connections, relative to the others.
    pub weight: u32,
    /// Its state.
    pub state: BackendState,
}

/// A backend and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendUse {
    /// The backend.
    pub backend: Backend,
    /// Its connections.
    pub connections: u64,
    /// Packets to it.
    pub packets_in: u64,
    /// Packets from it.
    pub packets_out: u64,
}

/// All backends of a load balancer, and the choices of new connections.
#[derive(Clone, Debug)]
pub struct BackendSet {
    /// In ascending order of their endpoints.
    pub(super) backends: Vec<BackendUse>,
    pub(super) choices: Box<[u16]>,
}

impl BackendSet {
    /// Creates a set of backends with different endpoints.
    #[must_use]
    pub fn new(backends: &[Backend]) -> Self {
        let mut sorted: Vec<Backend> = backends.to_vec();
        sorted.sort_by_key(|one| one.endpoint);
        let weights: Vec<(u64, u32)> = sorted
            .iter()
            .map(|one| {
                let (address, port) = (one.endpoint.ip().to_bits(), one.endpoint.port());
                let identity = u64::from(address) << 16 | u64::from(port);
                let is_up = one.state == BackendState::Up;
                (identity, if is_up { one.weight } else { 0 })
            })
            .collect();
        let used = |backend: Backend| BackendUse {
            backend,
            connections: 0,
            packets_in: 0,
            packets_out: 0,
        };
        Self {
            choices: choices(&weights),
            backends: sorted.into_iter().map(used).collect(),
        }
    }

    /// Returns the position of an endpoint.
    #[inline]
    pub(super) fn position(&self, endpoint: SocketAddrV4) -> Option<usize> {
        let found = self
            .backends
            .binary_search_by_key(&endpoint, |one| one.backend.endpoint);
        found.ok()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, endpoint: SocketAddrV4) -> Option<&mut BackendUse> {
        let at = self.position(endpoint)?;
        self.backends.get_mut(at)
    }

    /// Returns true if a backend keeps its connections.
    #[inline]
    pub(super) fn keeps(&self, endpoint: SocketAddrV4) -> bool {
        let found = self.position(endpoint).and_then(|at| self.backends.get(at));
        found.is_some_and(|one| one.backend.state != BackendState::Down)
    }

    /// Returns the backend of a new connection with this hash.
    #[inline]
    pub(super) fn choose(&self, hash: u64) -> Option<SocketAddrV4> {
        let choice = self
            .choices
            .get(hash as usize % self.choices.len().max(1))?;
        let chosen = self.backends.get(usize::from(*choice))?;
        Some(chosen.backend.endpoint)
    }
}
