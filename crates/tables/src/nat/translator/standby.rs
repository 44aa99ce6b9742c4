// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch and of its standby: changes that the one notes and the other applies. Static forwards are configuration,
//! and lead to no changes. A permission of address-dependent filtering is a change too: that of its mapping, with the remote address.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::behaviour::NO_REMOTE;
use super::super::filtering::Permissions;
use super::super::mapping::{Mapping, NEVER, NO_HOST};
use super::super::names::{NatDrop, NatProtocol};
use super::super::packet::End;
use super::super::pool::{ELSEWHERE, Port};
use super::super::saved::{MappingChange, SavedMapping};
use super::super::settings::HOST_BLOCKS_MAX;
use super::Nat;
use super::lookup::end_of;
use crate::changes::{Applied, ApplyError, ChangeRing, Replicate};

fn saved_of(mapping: &Mapping) -> SavedMapping {
    let socket = |end: End| SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port);
    SavedMapping {
        protocol: mapping.protocol(),
        is_answered: mapping.is_answered != 0,
        internal: socket(mapping.internal()),
        external: socket(mapping.external_end()),
        remote: socket(mapping.remote()),
    }
}

/// Returns the permission of a remote address to send packets to a mapping that depends on none.
const fn permission_of(saved: SavedMapping, remote: u32) -> SavedMapping {
    SavedMapping {
        remote: SocketAddrV4::new(Ipv4Addr::from_bits(remote), 0),
        ..saved
    }
}

impl Nat {
    /// Allocates the ring of changes, without which none are noted.
    pub fn allow_changes(&mut self) {
        let fill = MappingChange::Ended(saved_of(&Mapping::default()));
        self.changes = Some(Box::new(ChangeRing::new(fill)));
    }

    /// Notes a mapping that is new or has changed.
    #[inline]
    pub(super) fn note_present(&mut self, number: u32) {
        if let (Some(changes), Some(mapping)) = (&mut self.changes, self.mappings.get(number))
            && !mapping.is_static()
        {
            changes.push(MappingChange::Present(saved_of(mapping)));
        }
    }

    /// Notes the permission of a remote address to send packets to a mapping.
    pub(super) fn note_permission(&mut self, mapping: &Mapping, remote: u32) {
        // An inside host can send to any number of addresses. Changes of mappings matter more.
        if let Some(changes) = &mut self.changes
            && changes.is_half_empty()
        {
            let permission = permission_of(saved_of(mapping), remote);
            changes.push(MappingChange::Present(permission));
        }
    }

    /// Notes that a mapping has ended.
    #[inline]
    pub(super) fn note_ended(&mut self, mapping: &Mapping) {
        if let Some(changes) = &mut self.changes
            && !mapping.is_static()
        {
            changes.push(MappingChange::Ended(saved_of(mapping)));
        }
    }

    /// Begins to note changes, for a translator that takes each of them and counts its own losses.
    pub(crate) fn begin_changes(&mut self) {
        if let Some(changes) = &mut self.changes
            && changes.begin()
        {
            let _ = changes.take_loss();
        }
    }

    /// Takes the oldest change.
    #[inline]
    pub(crate) fn take_change(&mut self) -> Option<MappingChange> {
        self.changes.as_mut()?.pop()
    }

    /// Returns the mapping of a number for a standby, if it is live and not static.
    fn shared(&self, number: u32) -> Option<SavedMapping> {
        let mapping = self.mappings.get(number)?;
        let is_shared = mapping.is_live(self.now) && !mapping.is_static();
        is_shared.then(|| saved_of(mapping))
    }

    /// Returns the permission at a place for a standby, if it has not expired and its mapping is there.
    fn shared_permission(&self, place: usize) -> Option<SavedMapping> {
        let permission = self.permissions.as_ref()?.at(place)?;
        let (internal, protocol, remote) = permission.live(self.now)?;
        let number = self.mappings.find(internal, NO_REMOTE, protocol)?;
        Some(permission_of(self.shared(number)?, remote))
    }

    /// As [`Replicate::share_into`], with mappings in another form: those for which `form` returns one. Permissions are behind the mappings.
    pub(crate) fn share_as<S>(
        &self,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<MappingChange<S>>,
        form: impl Fn(&SavedMapping) -> Option<S>,
    ) -> Option<u32> {
        let mappings = self.mappings.capacity();
        let permissions = self.permissions.as_ref().map_or(0, Permissions::capacity);
        let capacity = mappings.saturating_add(permissions);
        let end = (from as usize).saturating_add(budget).min(capacity);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        for number in from..end {
            if list.len() >= count {
                return Some(number);
            }
            let saved = match (number as usize).checked_sub(mappings) {
                None => self.shared(number),
                Some(place) => self.shared_permission(place),
            };
            let saved = saved.and_then(|saved| form(&saved));
            list.extend(saved.map(MappingChange::Present));
        }
        ((end as usize) < capacity).then_some(end)
    }
}

impl Replicate for Nat {
    type Change = MappingChange;

    fn take_changes(&mut self, limits: (usize, usize), list: &mut Vec<MappingChange>) -> bool {
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
        limits: (usize, usize),
        list: &mut Vec<MappingChange>,
    ) -> Option<u32> {
        self.share_as(from, limits, list, |saved| Some(*saved))
    }

    /// The mapping takes the place of those of other hosts in its port block, and of those of the host at another external address. Static
    /// forwards stay. A permission is [`Applied::Added`] if there was none.
    ///
    /// # Errors
    /// [`ApplyError::Invalid`] for an external endpoint that is not of this pool, or of this forwarding CPU, and for a mapping of another
    /// [`MappingBehaviour`](crate::nat::MappingBehaviour); [`ApplyError::Full`].
    fn apply(&mut self, change: &MappingChange, now: u32) -> Result<Applied, ApplyError> {
        self.now = self.now.max(now);
        match change {
            MappingChange::Present(saved) => match saved.remote.ip().to_bits() {
                remote if self.permissions.is_some() && remote != NO_REMOTE.address => {
                    self.apply_permission(saved, remote)
                }
                _ => self.apply_present(saved),
            },
            MappingChange::Ended(saved) => {
                let (internal, remote) = (end_of(saved.internal), end_of(saved.remote));
                let number = self.mappings.find(internal, remote, saved.protocol);
                let mapping = number.and_then(|number| self.mappings.get(number));
                let external = end_of(saved.external);
                let is_same =
                    mapping.is_some_and(|one| !one.is_static() && one.external_end() == external);
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

impl Nat {
    /// Applies the mapping of a permission, and the permission.
    fn apply_permission(
        &mut self,
        saved: &SavedMapping,
        remote: u32,
    ) -> Result<Applied, ApplyError> {
        if saved.remote.port() != 0 {
            return Err(ApplyError::Invalid);
        }
        let applied = self.apply_present(&permission_of(*saved, NO_REMOTE.address))?;
        let internal = end_of(saved.internal);
        let number = self.mappings.find(internal, NO_REMOTE, saved.protocol);
        let is_new = number.is_some_and(|number| self.permit(number, remote));
        Ok(if is_new { Applied::Added } else { applied })
    }

    #[expect(clippy::arithmetic_side_effects, reason = "mappings of bounded tables")]
    fn apply_present(&mut self, saved: &SavedMapping) -> Result<Applied, ApplyError> {
        let (internal, external) = (end_of(saved.internal), end_of(saved.external));
        let (remote, protocol) = (end_of(saved.remote), saved.protocol);
        let place = self.pool.external(external.address);
        let place = place.ok_or(ApplyError::Invalid)?;
        if !self.behaviour.has_remote(remote, protocol) {
            return Err(ApplyError::Invalid);
        }
        let mut result = Applied::Added;
        if let Some(number) = self.find(internal, remote, protocol) {
            let mapping = self.mappings.get(number).copied().unwrap_or_default();
            if mapping.is_static() {
                return Err(ApplyError::Invalid);
            }
            if mapping.external_end() == external {
                self.renew(number, saved);
                return Ok(Applied::Updated);
            }
            self.remove(number);
            result = Applied::Updated;
        }
        match self.pool.mapping(place, protocol, external.port) {
            None => {}
            Some(number) if self.gives_way(number) => self.remove(number),
            Some(_) => return Err(ApplyError::Invalid),
        }
        if self.mappings.len() >= self.mappings_max + self.own_forwards {
            return Err(ApplyError::Full);
        }
        self.insert_saved(saved, place).map(|()| result)
    }

    /// Returns true for a mapping that is no static forward.
    fn gives_way(&self, number: u32) -> bool {
        let mapping = self.mappings.get(number);
        number != ELSEWHERE && mapping.is_some_and(|one| !one.is_static())
    }

    /// Adds a mapping whose endpoints have none.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "seconds since the start, and a count of 64 bits"
    )]
    fn insert_saved(&mut self, saved: &SavedMapping, place: u16) -> Result<(), ApplyError> {
        let (internal, external) = (end_of(saved.internal), end_of(saved.external));
        let protocol = saved.protocol;
        if self.pool.can_have(internal.address, place, external.port) {
            self.clear_former(internal.address, place);
        }
        let mut taken = self.take_exact(internal.address, protocol, (place, external.port));
        if let Err(NatDrop::NoPorts) = taken {
            self.clear_block(internal.address, place, external.port);
            taken = self.take_exact(internal.address, protocol, (place, external.port));
        }
        let host = taken.map_err(|reason| match reason {
            NatDrop::TableFull | NatDrop::HostLimit => ApplyError::Full,
            _ => ApplyError::Invalid,
        })?;
        let port = Port {
            external: place,
            end: external,
            host,
        };
        let ends = (internal, end_of(saved.remote));
        let mapping = Mapping::new(ends, port, self.now + 1);
        let Some(number) = self.mappings.add(protocol, mapping) else {
            let events = &mut self.events;
            let mut note = |event| events.note(event);
            self.pool
                .release(host, protocol, external.port, self.now, &mut note);
            return Err(ApplyError::Full);
        };
        self.pool
            .set_mapping(place, protocol, external.port, Some(number));
        self.counters.created += 1;
        self.renew(number, saved);
        // For a standby of a switch that restores saved mappings.
        self.note_present(number);
        self.note_created(number);
        Ok(())
    }

    fn take_exact(
        &mut self,
        address: u32,
        protocol: NatProtocol,
        place: (u16, u16),
    ) -> Result<u32, NatDrop> {
        let events = &mut self.events;
        let mut note = |event| events.note(event);
        self.pool.take_exact(address, protocol, place, &mut note)
    }

    /// Begins the timeout of a mapping again.
    fn renew(&mut self, number: u32, saved: &SavedMapping) {
        let timeout_s = match saved.protocol {
            NatProtocol::Udp => self.timeouts.udp_s,
            NatProtocol::Icmp => self.timeouts.icmp_s,
            NatProtocol::Tcp if saved.is_answered => self.timeouts.tcp_established_s,
            NatProtocol::Tcp => self.timeouts.tcp_transitory_s,
        };
        let expires_at = self.now.saturating_add(timeout_s).saturating_add(1);
        if let Some(mapping) = self.mappings.get_mut(number) {
            mapping.is_answered = u8::from(saved.is_answered);
            mapping.expires_at = expires_at.min(NEVER - 1);
        }
    }

    /// Removes the mappings of other hosts from the block of a port. They are those of an earlier time, because the active switch has given
    /// the block to this host.
    fn clear_block(&mut self, address: u32, external: u16, port: u16) {
        if let Some(ports) = self.pool.block_of(port) {
            self.clear_ports(external, ports, |host| host != address);
        }
    }

    /// Removes the mappings of a host at other external addresses than this one. They are those of an earlier time, because the active switch
    /// gives a host one address at a time (RFC 4787, REQ-2).
    fn clear_former(&mut self, address: u32, external: u16) {
        // Each step takes a block from the host.
        for _ in 0..HOST_BLOCKS_MAX {
            let first = self.pool.first_block_of(address);
            let Some((former, ports)) = first.filter(|(former, _)| *former != external) else {
                return;
            };
            self.clear_ports(former, ports, |host| host == address);
        }
    }

    /// Removes the mappings of such hosts from a block, but no static forward.
    fn clear_ports(
        &mut self,
        external: u16,
        (first, last): (u16, u16),
        is_former: impl Fn(u32) -> bool,
    ) {
        for protocol in NatProtocol::ALL {
            for port in first..=last {
                let Some(number) = self.pool.mapping(external, protocol, port) else {
                    continue;
                };
                let mapping = self.mappings.get(number);
                let is_removed =
                    mapping.is_some_and(|one| is_former(one.address) && one.host != NO_HOST);
                if is_removed && number != ELSEWHERE {
                    self.remove(number);
                }
            }
        }
    }
}
