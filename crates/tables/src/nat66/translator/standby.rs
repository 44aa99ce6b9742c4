// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch and of its standby. The NAT notes its changes with numbers, which are replaced by addresses as long as the
//! numbers stand for them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::Nat66;
use crate::changes::{Applied, ApplyError, ChangeRing, Replicate};
use crate::nat::{MappingChange, Nat, NatProtocol, SavedMapping};
use crate::nat66::saved::SavedMappingIpv6;
use crate::nat66::settings::is_host;

impl Nat66 {
    /// Allocates the ring of changes, without which none are noted. The NAT must have one too ([`Nat::allow_changes`]).
    pub fn allow_changes(&mut self) {
        let end = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        let fill = MappingChange::Ended(SavedMappingIpv6 {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: end,
            external: end,
        });
        self.changes = Some(Box::new(ChangeRing::new(fill)));
    }

    /// Returns a mapping with the addresses that its numbers stand for.
    fn saved_of(&self, saved: &SavedMapping) -> Option<SavedMappingIpv6> {
        let (internal, external) = (saved.internal, saved.external);
        let host = self.host(*internal.ip())?;
        let address = self.external(*external.ip())?;
        Some(SavedMappingIpv6 {
            protocol: saved.protocol,
            is_answered: saved.is_answered,
            internal: SocketAddrV6::new(host, internal.port(), 0, 0),
            external: SocketAddrV6::new(address, external.port(), 0, 0),
        })
    }

    /// Takes the changes that the NAT has noted. It is called before a host may lose its number.
    #[inline]
    pub(super) fn keep_changes(&mut self, nat: &mut Nat) {
        while let Some(change) = nat.take_change() {
            let saved = self.saved_of(change.saved());
            if let (Some(changes), Some(saved)) = (&mut self.changes, saved) {
                changes.push(change.of(saved));
            }
        }
    }

    /// Takes changes, as [`Replicate::take_changes`] does.
    pub fn take_changes(
        &mut self,
        nat: &mut Nat,
        limits: (usize, usize),
        list: &mut Vec<MappingChange<SavedMappingIpv6>>,
    ) -> bool {
        nat.begin_changes();
        self.keep_changes(nat);
        let changes = self.changes.as_mut();
        changes.is_some_and(|changes| changes.take_into(limits, list, Some))
    }

    /// Returns the number of lost changes, as [`Replicate::take_lost_changes`] does.
    pub fn take_lost_changes(&mut self, nat: &mut Nat) -> u64 {
        let changes = self.changes.as_mut();
        let lost = changes.map_or(0, |changes| changes.take_loss());
        lost.saturating_add(nat.take_lost_changes())
    }

    /// Notes no further changes.
    pub fn end_changes(&mut self, nat: &mut Nat) {
        nat.end_changes();
        if let Some(changes) = &mut self.changes {
            changes.end();
        }
    }

    /// Takes mappings from a position on, as [`Replicate::share_into`] does.
    pub fn share_into(
        &self,
        nat: &Nat,
        from: u32,
        limits: (usize, usize),
        list: &mut Vec<MappingChange<SavedMappingIpv6>>,
    ) -> Option<u32> {
        nat.share_as(from, limits, list, |saved| self.saved_of(saved))
    }

    /// Applies a change of the active switch, as the NAT does. Events of the NAT must be passed to [`Self::note`] before and behind it.
    ///
    /// # Errors
    /// [`ApplyError::Invalid`] for an external endpoint that is not of this pool, or of this forwarding CPU, and for an inside address that
    /// no host has; [`ApplyError::Full`].
    pub fn apply(
        &mut self,
        nat: &mut Nat,
        change: &MappingChange<SavedMappingIpv6>,
        now: u32,
    ) -> Result<Applied, ApplyError> {
        self.keep_changes(nat);
        let saved = change.saved();
        let place = self.number_of(saved.external.ip().to_bits());
        let place = place.ok_or(ApplyError::Invalid)?;
        let host = *saved.internal.ip();
        let number = match change {
            MappingChange::Present(_) if !is_host(host) => return Err(ApplyError::Invalid),
            MappingChange::Present(_) => {
                let number = self.hosts.begin(host.to_bits());
                number.ok_or(ApplyError::Full)?
            }
            MappingChange::Ended(_) => match self.hosts.number_of(host.to_bits()) {
                Some(number) => number,
                None => return Ok(Applied::Absent),
            },
        };
        let socket = |number: u32, port| SocketAddrV4::new(Ipv4Addr::from_bits(number), port);
        let numbered = SavedMapping {
            protocol: saved.protocol,
            is_answered: saved.is_answered,
            internal: socket(number, saved.internal.port()),
            external: socket(place, saved.external.port()),
            remote: socket(0, 0),
        };
        nat.apply(&change.of(numbered), now)
    }
}
