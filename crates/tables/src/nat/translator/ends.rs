// SPDX-License-Identifier: Apache-2.0
//! Endpoints without packets, for translators of other packets than those of IPv4 ([`crate::nat66`]). Addresses are numbers of theirs, and
//! mappings are endpoint-independent.

use super::super::behaviour::NO_REMOTE;
use super::super::names::{NatDrop, NatProtocol};
use super::super::packet::End;
use super::{Nat, NatOutcome, note_answer};

impl Nat {
    /// Sets the time, in seconds. An earlier time than before changes nothing.
    pub(crate) fn advance(&mut self, now: u32) {
        self.now = self.now.max(now);
    }

    /// Returns the time, in seconds.
    pub(crate) const fn now(&self) -> u32 {
        self.now
    }

    /// Counts a packet.
    pub(crate) fn note_outcome(&mut self, outcome: NatOutcome, is_outbound: bool) {
        self.count(outcome, is_outbound);
    }

    /// Returns the external endpoint that a packet of an inside endpoint gets, and begins the timeout of the mapping again. `flags` are the
    /// TCP control bits. Without mapping, creates one if `may_begin` is true. `spread` is the hash of the host that determines the external
    /// address of a new host, if it can have blocks of several forwarding CPUs.
    ///
    /// # Errors
    /// The reason to drop the packet.
    pub(crate) fn send_from(
        &mut self,
        (internal, spread): (End, u64),
        protocol: NatProtocol,
        flags: u8,
        may_begin: bool,
    ) -> Result<End, NatDrop> {
        self.pool.spread_by(spread);
        let number = self.mapping_of((internal, NO_REMOTE), protocol, may_begin)?;
        self.refresh(number, flags);
        let mapping = self.mappings.get(number).ok_or(NatDrop::NoMapping)?;
        Ok(mapping.external_end())
    }

    /// Returns the inside endpoint that a packet to an external endpoint is for, and notes the answer. `flags` are the TCP control bits.
    ///
    /// # Errors
    /// [`NatDrop::NoMapping`].
    pub(crate) fn receive_at(
        &mut self,
        external: End,
        protocol: NatProtocol,
        flags: u8,
    ) -> Result<End, NatDrop> {
        let now = self.now;
        let place = self.pool.external(external.address);
        let place = place.ok_or(NatDrop::NoMapping)?;
        let number = self.pool.mapping(place, protocol, external.port);
        let number = number.ok_or(NatDrop::NoMapping)?;
        let mapping = self.mappings.get_mut(number);
        let mapping = mapping.filter(|mapping| mapping.is_live(now));
        let mapping = mapping.ok_or(NatDrop::NoMapping)?;
        let before = mapping.is_answered;
        note_answer(mapping, flags);
        let (internal, is_changed) = (mapping.internal(), mapping.is_answered != before);
        if is_changed {
            self.note_present(number);
        }
        Ok(internal)
    }

    /// Returns the external endpoint of an inside one, and changes nothing.
    ///
    /// # Errors
    /// [`NatDrop::NoMapping`].
    pub(crate) fn external_end(
        &self,
        internal: End,
        protocol: NatProtocol,
    ) -> Result<End, NatDrop> {
        let mapping = self.by_internal(internal, NO_REMOTE, protocol)?;
        Ok(mapping.external_end())
    }

    /// Returns the inside endpoint of an external one, and changes nothing.
    ///
    /// # Errors
    /// [`NatDrop::NoMapping`].
    pub(crate) fn internal_end(
        &self,
        external: End,
        protocol: NatProtocol,
    ) -> Result<End, NatDrop> {
        Ok(self.by_external(external, protocol)?.internal())
    }
}
