// SPDX-License-Identifier: Apache-2.0
//! Mappings of NAT66 and NAT64 of an active switch and of its standby. The NAT notes its changes with numbers, which are replaced by
//! addresses as long as the numbers stand for them.

use std::net::{Ipv6Addr, SocketAddrV6};

use super::names::NatProtocol;
use super::saved::{MappingChange, SavedMapping};
use super::saved_ipv6::SavedMappingIpv6;
use super::translator::Nat;
use crate::changes::{Applied, ApplyError, ChangeRing, Replicate};

/// Changes of mappings of IPv6 hosts, for a standby. By default, none are noted.
#[derive(Debug, Default)]
pub struct ChangesIpv6(Option<Box<ChangeRing<MappingChange<SavedMappingIpv6>>>>);

/// A translator of IPv6 beside a NAT in which numbers stand for addresses.
pub trait ReplicateIpv6 {
    /// Returns the changes.
    fn changes(&mut self) -> &mut ChangesIpv6;

    /// Returns a mapping with the addresses that its numbers stand for. `None` if one of them stands for none.
    fn saved_of(&self, saved: &SavedMapping) -> Option<SavedMappingIpv6>;

    /// Returns the mapping of a change with numbers in place of addresses. A host of a new mapping gets a number. `None` if the mapping has
    /// ended and its host has no number.
    ///
    /// # Errors
    /// [`ApplyError::Invalid`] for an address that no mapping of this translator has; [`ApplyError::Full`].
    fn numbered(
        &mut self,
        change: &MappingChange<SavedMappingIpv6>,
    ) -> Result<Option<SavedMapping>, ApplyError>;

    /// Allocates the ring of changes, without which none are noted. The NAT must have one too ([`Nat::allow_changes`]).
    fn allow_changes(&mut self) {
        let end = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
        let fill = MappingChange::Ended(SavedMappingIpv6 {
            protocol: NatProtocol::Udp,
            is_answered: false,
            internal: end,
            external: end,
        });
        self.changes().0 = Some(Box::new(ChangeRing::new(fill)));
    }

    /// Takes the changes that the NAT has noted. It must be called before a host may lose its number.
    #[inline]
    fn keep_changes(&mut self, nat: &mut Nat) {
        while let Some(change) = nat.take_change() {
            let saved = self.saved_of(change.saved());
            if let (Some(changes), Some(saved)) = (&mut self.changes().0, saved) {
                changes.push(change.of(saved));
            }
        }
    }

    /// Takes changes, as [`Replicate::take_changes`] does.
    fn take_changes(
        &mut self,
        nat: &mut Nat,
        limits: (usize, usize),
        list: &mut Vec<MappingChange<SavedMappingIpv6>>,
    ) -> bool {
        nat.begin_changes();
        self.keep_changes(nat);
        let changes = self.changes().0.as_mut();
        changes.is_some_and(|changes| changes.take_into(limits, list, Some))
    }

    /// Returns the number of lost changes, as [`Replicate::take_lost_changes`] does.
    fn take_lost_changes(&mut self, nat: &mut Nat) -> u64 {
        let changes = self.changes().0.as_mut();
        let lost = changes.map_or(0, |changes| changes.take_loss());
        lost.saturating_add(nat.take_lost_changes())
    }

    /// Notes no further changes.
    fn end_changes(&mut self, nat: &mut Nat) {
        nat.end_changes();
        if let Some(changes) = &mut self.changes().0 {
            changes.end();
        }
    }

    /// Takes mappings from a position on, as [`Replicate::share_into`] does.
    fn share_into(
        &self,
        nat: &Nat,
        from: u32,
        limits: (usize, usize),
        list: &mut Vec<MappingChange<SavedMappingIpv6>>,
    ) -> Option<u32> {
        nat.share_as(from, limits, list, |saved| self.saved_of(saved))
    }

    /// Applies a change of the active switch, as the NAT does. Events of the NAT must be passed to this translator before and behind it.
    ///
    /// # Errors
    /// [`ApplyError::Invalid`] for an external endpoint that is not of this pool, or of this forwarding CPU, and for an inside address that
    /// no host has; [`ApplyError::Full`].
    fn apply(
        &mut self,
        nat: &mut Nat,
        change: &MappingChange<SavedMappingIpv6>,
        now_s: u32,
    ) -> Result<Applied, ApplyError> {
        self.keep_changes(nat);
        match self.numbered(change)? {
            Some(numbered) => nat.apply(&change.of(numbered), now_s),
            None => Ok(Applied::Absent),
        }
    }
}
