// SPDX-License-Identifier: Apache-2.0
//! Search of mappings by inside and by external endpoints, and the remote endpoints that they accept.

use std::net::SocketAddrV4;

use super::super::behaviour::{MappingBehaviour, NO_REMOTE};
use super::super::filtering::Permission;
use super::super::mapping::Mapping;
use super::super::names::{NatDrop, NatProtocol};
use super::super::packet::{End, View};
use super::{Nat, Target};

pub(super) const fn end_of(socket: SocketAddrV4) -> End {
    End {
        address: socket.ip().to_bits(),
        port: socket.port(),
    }
}

impl Nat {
    /// Returns the external endpoint of an inside one for packets to a remote endpoint, if it has a mapping or a one-to-one translation.
    #[must_use]
    pub fn external_of(
        &self,
        protocol: NatProtocol,
        internal: SocketAddrV4,
        remote: SocketAddrV4,
    ) -> Option<SocketAddrV4> {
        let end = end_of(internal);
        if let Some(external) = self.pairs.external_of(end.address) {
            return Some(SocketAddrV4::new(external.into(), end.port));
        }
        let mapping = self.by_internal(end, end_of(remote), protocol).ok()?;
        let external = mapping.external_end();
        Some(SocketAddrV4::new(external.address.into(), external.port))
    }

    /// Loads what the search of the mapping of an outbound packet reads first.
    #[inline(always)]
    pub(super) fn prefetch(&self, view: &View) {
        let remote = self.behaviour.part_of(view.destination, view.protocol);
        let hash = self.mappings.hash(view.source, remote, view.protocol);
        self.mappings.prefetch(hash);
    }

    /// Finds the mapping of an inside endpoint for packets to and from a remote one, even if it has expired.
    #[inline(always)]
    pub(super) fn find(&self, internal: End, remote: End, protocol: NatProtocol) -> Option<u32> {
        match self.behaviour {
            MappingBehaviour::EndpointIndependent => {
                self.mappings.find(internal, NO_REMOTE, protocol)
            }
            MappingBehaviour::AddressDependent | MappingBehaviour::AddressAndPortDependent => {
                self.find_dependent(internal, remote, protocol)
            }
        }
    }

    /// A host with a static forward answers all remote hosts from its external endpoint.
    #[inline(never)]
    fn find_dependent(&self, internal: End, remote: End, protocol: NatProtocol) -> Option<u32> {
        if self.own_forwards > 0
            && let Some(forward) = self.mappings.find(internal, NO_REMOTE, protocol)
        {
            return Some(forward);
        }
        let part = self.behaviour.part_of(remote, protocol);
        self.mappings.find(internal, part, protocol)
    }

    /// Returns the mapping of an inside endpoint for packets to and from a remote one.
    pub(super) fn by_internal(
        &self,
        internal: End,
        remote: End,
        protocol: NatProtocol,
    ) -> Result<Mapping, NatDrop> {
        let number = self.find(internal, remote, protocol);
        let mapping = number.and_then(|number| self.mappings.get(number));
        let live = mapping.filter(|mapping| mapping.is_live(self.now));
        live.copied().ok_or(NatDrop::NoMapping)
    }

    /// Returns the mapping of an external endpoint.
    pub(super) fn by_external(&self, end: End, protocol: NatProtocol) -> Result<Mapping, NatDrop> {
        let external = self.pool.external(end.address).ok_or(NatDrop::NoMapping)?;
        let number = self.pool.mapping(external, protocol, end.port);
        let mapping = number.and_then(|number| self.mappings.get(number));
        let live = mapping.filter(|mapping| mapping.is_live(self.now));
        live.copied().ok_or(NatDrop::NoMapping)
    }

    /// Permits a remote address to send packets to the inside endpoint of a mapping, until the mapping expires without further packets. A
    /// standby gets the permission. Returns true if there was none.
    #[inline(never)]
    pub(super) fn permit(&mut self, number: u32, remote: u32) -> bool {
        // Static forwards accept all remote hosts. Permissions without end would fill the table.
        let mapping = self.mappings.get(number).copied();
        let Some(mapping) = mapping.filter(|mapping| !mapping.is_static()) else {
            return false;
        };
        let (internal, protocol) = (mapping.internal(), mapping.protocol());
        let hash = self.permission_hash(internal, remote, protocol);
        let permission = Permission::new((internal, remote), protocol, mapping.expires_at);
        let now = self.now;
        let permissions = self.permissions.as_mut();
        let is_new = permissions.is_some_and(|one| one.permit(hash, permission, now));
        if is_new {
            self.note_permission(&mapping, remote);
        }
        is_new
    }

    fn permission_hash(&self, internal: End, remote: u32, protocol: NatProtocol) -> u64 {
        let remote = End {
            address: remote,
            port: 0,
        };
        self.mappings.hash(internal, remote, protocol)
    }

    /// Returns true if the filtering behaviour lets a remote address send packets to a mapping.
    fn is_permitted(&self, mapping: &Mapping, remote: u32, protocol: NatProtocol) -> bool {
        let Some(permissions) = &self.permissions else {
            return true;
        };
        let internal = mapping.internal();
        let permission = Permission::new((internal, remote), protocol, 0);
        let hash = self.permission_hash(internal, remote, protocol);
        permissions.allows(hash, &permission, self.now)
    }

    /// Checks that a mapping accepts packets of a remote endpoint: that to which the host has sent packets, or that to which the packet in
    /// an ICMP error was sent.
    #[inline(never)]
    pub(super) fn check_remote(&self, target: &Target) -> Result<(), NatDrop> {
        let (mapping, remote, protocol) = match target {
            Target::Pair(_) => return Ok(()),
            Target::Error(_, inner, _) => {
                let mapping = self.by_external(inner.source, inner.protocol)?;
                (mapping, inner.destination, inner.protocol)
            }
            Target::Mapping(view, number, _) => {
                let mapping = self.mappings.get(*number).copied();
                (
                    mapping.ok_or(NatDrop::NoMapping)?,
                    view.source,
                    view.protocol,
                )
            }
        };
        let part = self.behaviour.part_of(remote, protocol);
        let is_accepted = mapping.is_static()
            || mapping.remote() == part && self.is_permitted(&mapping, remote.address, protocol);
        is_accepted.then_some(()).ok_or(NatDrop::Filtered)
    }
}
