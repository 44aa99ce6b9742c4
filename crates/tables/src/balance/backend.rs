// SPDX-License-Identifier: Apache-2.0
//! Backends of a load balancer.

use std::net::{SocketAddr, SocketAddrV4};

use super::endpoint::BalanceEndpoint;
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

/// A backend. Its endpoint is of one IP version, or [`SocketAddr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend<E = SocketAddrV4> {
    /// Its endpoint.
    pub endpoint: E,
    /// Its share of new connections, relative to the others.
    pub weight: u32,
    /// Its state.
    pub state: BackendState,
}

/// A backend and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendUse<E = SocketAddrV4> {
    /// The backend.
    pub backend: Backend<E>,
    /// Its connections.
    pub connections: u64,
    /// Packets to it.
    pub packets_in: u64,
    /// Packets from it.
    pub packets_out: u64,
}

impl<E> Backend<E> {
    /// Returns the same backend with this form of its endpoint.
    fn with_endpoint<T>(&self, endpoint: T) -> Backend<T> {
        Backend {
            endpoint,
            weight: self.weight,
            state: self.state,
        }
    }
}

impl Backend<SocketAddr> {
    /// Returns a backend of an IP version; `None` for one of the other.
    #[must_use]
    pub fn of_version<E: BalanceEndpoint>(&self) -> Option<Backend<E>> {
        E::of_socket(self.endpoint).map(|endpoint| self.with_endpoint(endpoint))
    }
}

impl<E: BalanceEndpoint> BackendUse<E> {
    /// Returns the same with an endpoint of any IP version.
    #[must_use]
    pub fn of_any_version(&self) -> BackendUse<SocketAddr> {
        BackendUse {
            backend: self.backend.with_endpoint(self.backend.endpoint.into()),
            connections: self.connections,
            packets_in: self.packets_in,
            packets_out: self.packets_out,
        }
    }
}

/// All backends of a load balancer, and the choices of new connections.
#[derive(Clone, Debug)]
pub struct BackendSet<E = SocketAddrV4> {
    /// In ascending order of their endpoints.
    pub(super) backends: Vec<BackendUse<E>>,
    pub(super) choices: Box<[u16]>,
}

impl<E: BalanceEndpoint> BackendSet<E> {
    /// Creates a set of backends with different endpoints.
    #[must_use]
    pub fn new(backends: &[Backend<E>]) -> Self {
        let mut sorted: Vec<Backend<E>> = backends.to_vec();
        sorted.sort_by_key(|one| one.endpoint);
        let weights: Vec<(u64, u32)> = sorted
            .iter()
            .map(|one| {
                let is_up = one.state == BackendState::Up;
                (one.endpoint.identity(), if is_up { one.weight } else { 0 })
            })
            .collect();
        let used = |backend: Backend<E>| BackendUse {
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
    pub(super) fn position(&self, endpoint: E) -> Option<usize> {
        let found = self
            .backends
            .binary_search_by_key(&endpoint, |one| one.backend.endpoint);
        found.ok()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, endpoint: E) -> Option<&mut BackendUse<E>> {
        let at = self.position(endpoint)?;
        self.backends.get_mut(at)
    }

    /// Returns true if a backend keeps its connections.
    #[inline]
    pub(super) fn keeps(&self, endpoint: E) -> bool {
        let found = self.position(endpoint).and_then(|at| self.backends.get(at));
        found.is_some_and(|one| one.backend.state != BackendState::Down)
    }

    /// Returns the backend of a new connection with this hash.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "any bits of the hash do, and the divisor is at least 1"
    )]
    #[inline]
    pub(super) fn choose(&self, hash: u64) -> Option<E> {
        let choice = self
            .choices
            .get(hash as usize % self.choices.len().max(1))?;
        let chosen = self.backends.get(usize::from(*choice))?;
        Some(chosen.backend.endpoint)
    }
}
