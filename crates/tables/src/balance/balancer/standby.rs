// SPDX-License-Identifier: Apache-2.0
//! Connections of an active switch and of its standby: changes that the one notes and the other applies. Only connections in which the
//! backend has answered and the client has gone on are for the standby.

use super::super::endpoint::BalanceEndpoint;
use super::super::saved::{BalancedChange, SavedBalanced};
use super::{Balancer, CLOSING, CLOSING_S, EMBRYONIC, Entry, OPEN, UDP_S, UNUSED};
use crate::changes::{Applied, ApplyError, ChangeRing, Replicate};
use crate::nat::NatProtocol;

/// Returns the record of an entry for a standby, if it requires one.
fn saved_of<E: BalanceEndpoint>(entry: &Entry<E::Address>) -> Option<SavedBalanced<E>> {
    let is_shared = !matches!(entry.state, UNUSED | EMBRYONIC);
    is_shared.then(|| SavedBalanced {
        client: entry.client(),
        backend: entry.backend(),
        is_closing: entry.state == CLOSING,
    })
}

impl<E: BalanceEndpoint> Balancer<E> {
    /// Allocates the ring of changes, without which none are noted.
    pub fn allow_changes(&mut self) {
        let nowhere = E::of_parts(E::Address::default(), 0);
        let fill = BalancedChange::Ended(SavedBalanced {
            client: nowhere,
            backend: nowhere,
            is_closing: false,
        });
        self.changes = Some(Box::new(ChangeRing::new(fill)));
    }

    /// Notes the state of a connection.
    #[inline]
    pub(super) fn note_change(&mut self, number: u32) {
        if let (Some(changes), Some(entry)) = (&mut self.changes, self.entries.get(number as usize))
            && let Some(saved) = saved_of::<E>(entry)
        {
            changes.push(BalancedChange::Present(saved));
        }
    }

    /// Notes that a connection has ended.
    #[inline]
    pub(super) fn note_end(&mut self, entry: &Entry<E::Address>) {
        if let Some(changes) = &mut self.changes
            && let Some(saved) = saved_of::<E>(entry)
        {
            changes.push(BalancedChange::Ended(saved));
        }
    }
}

impl<E: BalanceEndpoint> Replicate for Balancer<E> {
    type Change = BalancedChange<E>;

    fn take_changes(&mut self, limits: (usize, usize), list: &mut Vec<BalancedChange<E>>) -> bool {
        let changes = self.changes.as_mut();
        changes.is_some_and(|changes| changes.take_into(limits, list, Some))
    }

    fn take_lost_changes(&mut self) -> u64 {
        let changes = self.changes.as_mut();
        changes.map_or(0, |changes| changes.take_loss())
    }

    fn end_changes(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.end();
        }
    }

    fn share_into(
        &mut self,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<BalancedChange<E>>,
    ) -> Option<u32> {
        let start = (from as usize).min(self.entries.len());
        let end = start.saturating_add(budget).min(self.entries.len());
        let entries = self.entries.get(start..end).unwrap_or_default();
        for (position, entry) in (from..).zip(entries) {
            if list.len() >= count {
                return Some(position);
            }
            if entry.is_live(self.now) {
                list.extend(saved_of::<E>(entry).map(BalancedChange::Present));
            }
        }
        if end < self.entries.len() {
            u32::try_from(end).ok()
        } else {
            None
        }
    }

    /// The connection takes the place of another one of the client, and of one that is not complete or is closed if there is no space.
    ///
    /// # Errors
    /// [`ApplyError::Invalid`] for a backend that this load balancer does not have; [`ApplyError::Full`].
    fn apply(&mut self, change: &BalancedChange<E>, now: u32) -> Result<Applied, ApplyError> {
        self.now = self.now.max(now);
        match change {
            BalancedChange::Present(saved) => self.apply_present(saved),
            BalancedChange::Ended(saved) => {
                let number = self.find(saved.client);
                let entry = number.and_then(|number| self.entries.get(number as usize));
                let is_same = entry.is_some_and(|entry| entry.backend::<E>() == saved.backend);
                Ok(match number {
                    Some(number) if is_same => {
                        self.remove(number);
                        Applied::Removed
                    }
                    _ => Applied::Absent,
                })
            }
        }
    }
}

impl<E: BalanceEndpoint> Balancer<E> {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow, and there are fewer connections than 2^32"
    )]
    fn apply_present(&mut self, saved: &SavedBalanced<E>) -> Result<Applied, ApplyError> {
        if self.set.position(saved.backend).is_none() {
            return Err(ApplyError::Invalid);
        }
        let mut result = Applied::Added;
        if let Some(number) = self.find(saved.client) {
            self.remove(number);
            result = Applied::Updated;
        }
        if self.free.is_empty() {
            self.make_space();
        }
        let number = *self.free.last().ok_or(ApplyError::Full)?;
        if !self.index.insert(self.hash(saved.client), number) {
            return Err(ApplyError::Full);
        }
        self.free.pop();
        let (state, timeout_s) = match (saved.is_closing, self.settings.protocol) {
            (true, _) => (CLOSING, CLOSING_S),
            (false, NatProtocol::Tcp) => (OPEN, self.settings.tcp_open_s()),
            (false, NatProtocol::Udp | NatProtocol::Icmp) => (OPEN, UDP_S),
        };
        let (client, client_port) = saved.client.parts();
        let (backend, backend_port) = saved.backend.parts();
        if let Some(place) = self.entries.get_mut(number as usize) {
            *place = Entry {
                client,
                client_port,
                backend,
                backend_port,
                expires_at: self.now.saturating_add(timeout_s).saturating_add(1),
                generation: self.generation,
                state,
                is_answered: 1,
                ..Entry::default()
            };
        }
        self.counters.created += u64::from(result == Applied::Added);
        if let Some(one) = self.set.find_mut(saved.backend) {
            one.connections += 1;
        }
        // For a standby of a switch that restores saved connections.
        self.note_change(number);
        Ok(result)
    }
}
