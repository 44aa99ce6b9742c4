// SPDX-License-Identifier: Apache-2.0
//! Mapping behaviours: dependence of mappings on remote endpoints.

use super::names::NatProtocol;
use super::packet::End;

/// Remote endpoint of a mapping that depends on none.
pub(super) const NO_REMOTE: End = End {
    address: 0,
    port: 0,
};

/// Mapping behaviour (RFC 4787, section 4.1; RFC 5382, section 4.1): what determines an external endpoint, beside the inside endpoint. A
/// mapping accepts packets only of the remote endpoints that it depends on, except static forwards, which depend on none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MappingBehaviour {
    /// Nothing: endpoint-independent mapping. All remote hosts see one external endpoint.
    #[default]
    EndpointIndependent,
    /// The remote address: address-dependent mapping.
    AddressDependent,
    /// The remote address and port: address and port-dependent mapping. For ICMP echoes, which have no remote port, the address.
    AddressAndPortDependent,
}

impl MappingBehaviour {
    /// Returns true if mappings depend on remote endpoints.
    #[inline(always)]
    #[must_use]
    pub const fn is_dependent(self) -> bool {
        !matches!(self, Self::EndpointIndependent)
    }

    /// Returns the part of a remote endpoint that a mapping depends on. The other parts are 0.
    #[inline(always)]
    pub(super) const fn part_of(self, remote: End, protocol: NatProtocol) -> End {
        match (self, protocol) {
            (Self::EndpointIndependent, _) => NO_REMOTE,
            (Self::AddressAndPortDependent, NatProtocol::Tcp | NatProtocol::Udp) => remote,
            (Self::AddressDependent, _) | (Self::AddressAndPortDependent, NatProtocol::Icmp) => {
                End { port: 0, ..remote }
            }
        }
    }

    /// Returns true if a mapping can have this remote endpoint.
    pub(super) fn has_remote(self, remote: End, protocol: NatProtocol) -> bool {
        let has_address = remote.address != NO_REMOTE.address;
        has_address == self.is_dependent() && self.part_of(remote, protocol) == remote
    }
}
