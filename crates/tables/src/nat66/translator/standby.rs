// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch and of its standby: numbers of hosts and of external addresses, and these addresses.

use super::Nat66;
use crate::changes::ApplyError;
use crate::nat::{ChangesIpv6, MappingChange, ReplicateIpv6, SavedMapping, SavedMappingIpv6};
use crate::nat66::settings::is_host;

impl ReplicateIpv6 for Nat66 {
    fn changes(&mut self) -> &mut ChangesIpv6 {
        &mut self.changes
    }

    fn saved_of(&self, saved: &SavedMapping) -> Option<SavedMappingIpv6> {
        let host = self.host(*saved.internal.ip())?;
        let external = self.external(*saved.external.ip())?;
        Some(saved.with_addresses(host, external))
    }

    fn numbered(
        &mut self,
        change: &MappingChange<SavedMappingIpv6>,
    ) -> Result<Option<SavedMapping>, ApplyError> {
        let saved = change.saved();
        let place = self.number_of(saved.external.ip().to_bits());
        let place = place.ok_or(ApplyError::Invalid)?;
        let host = *saved.internal.ip();
        if change.is_present() && !is_host(host) {
            return Err(ApplyError::Invalid);
        }
        let number = self.hosts.number_for(change, host.to_bits())?;
        Ok(number.map(|number| saved.with_numbers(number, place)))
    }
}
