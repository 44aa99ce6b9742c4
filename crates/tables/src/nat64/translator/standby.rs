// SPDX-License-Identifier: Apache-2.0
//! Mappings of an active switch and of its standby: numbers of clients, and their addresses. IPv4 hosts behind the same NAT, and external
//! addresses, are IPv4-mapped addresses there.

use std::net::Ipv6Addr;

use super::Nat64;
use crate::changes::ApplyError;
use crate::nat::{
    ChangesIpv6, MappingChange, ReplicateIpv6, SavedMapping, SavedMappingIpv6, is_client_number,
};

impl Nat64 {
    /// Returns true for a host that this translator accepts as a client.
    fn is_client(&self, address: Ipv6Addr) -> bool {
        self.is_host(address) && self.is_allowed(address.to_bits())
    }
}

impl ReplicateIpv6 for Nat64 {
    fn changes(&mut self) -> &mut ChangesIpv6 {
        &mut self.changes
    }

    fn saved_of(&self, saved: &SavedMapping) -> Option<SavedMappingIpv6> {
        let internal = *saved.internal.ip();
        let host = match is_client_number(internal.to_bits()) {
            true => self.client(internal)?,
            false => internal.to_ipv6_mapped(),
        };
        Some(saved.with_addresses(host, saved.external.ip().to_ipv6_mapped()))
    }

    fn numbered(
        &mut self,
        change: &MappingChange<SavedMappingIpv6>,
    ) -> Result<Option<SavedMapping>, ApplyError> {
        let saved = change.saved();
        let external = saved.external.ip().to_ipv4_mapped();
        let external = external.ok_or(ApplyError::Invalid)?.to_bits();
        let internal = *saved.internal.ip();
        let number = match internal.to_ipv4_mapped().map(|host| host.to_bits()) {
            // Numbers of clients are those of this switch.
            Some(host) if is_client_number(host) => return Err(ApplyError::Invalid),
            Some(host) => Some(host),
            None if change.is_present() && !self.is_client(internal) => {
                return Err(ApplyError::Invalid);
            }
            None => self.clients.number_for(change, internal.to_bits())?,
        };
        Ok(number.map(|number| saved.with_numbers(number, external)))
    }
}
