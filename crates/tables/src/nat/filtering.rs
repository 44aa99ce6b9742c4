// SPDX-License-Identifier: Apache-2.0
//! Filtering behaviour: permissions of remote addresses to send packets to inside endpoints.

use super::names::NatProtocol;
use super::packet::End;
use crate::arena::{NoMemory, zeroed};

/// Permissions of a bucket: two cache lines.
const WAYS: usize = 8;
/// Permissions for each mapping, at least.
const OF_MAPPING: usize = 2;

/// Filtering behaviour (RFC 4787, section 5; RFC 5382, section 4.3) of mappings that depend on no remote endpoint. Static forwards accept
/// packets of all remote hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilteringBehaviour {
    /// Endpoint-independent filtering: a mapping accepts packets of all remote hosts.
    #[default]
    EndpointIndependent,
    /// Address-dependent filtering: a mapping accepts packets of remote addresses that the inside endpoint has sent packets to within the
    /// timeout of the mapping.
    AddressDependent,
}

/// Permission of a remote address to send packets to an inside endpoint.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
pub(super) struct Permission {
    address: u32,
    remote: u32,
    /// First second at which the permission has expired; 0 in an unused one.
    expires_at: u32,
    port: u16,
    protocol: u16,
}

const _: () = assert!(size_of::<Permission>() == 16);

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C, align(64))]
struct Bucket {
    permissions: [Permission; WAYS],
}

/// Permissions in buckets, by a hash. In a full bucket, a new one replaces that which expires first, so the table never grows. A remote host
/// whose permission is replaced reaches the inside endpoint after a further packet to it.
#[derive(Debug)]
pub(super) struct Permissions {
    buckets: Box<[Bucket]>,
    mask: usize,
}

impl Permission {
    /// Creates a permission of a remote address until a time.
    pub(super) fn new(
        (internal, remote): (End, u32),
        protocol: NatProtocol,
        expires_at: u32,
    ) -> Self {
        Self {
            address: internal.address,
            remote,
            expires_at,
            port: internal.port,
            protocol: protocol as u16,
        }
    }

    /// Returns the inside endpoint, its protocol and the remote address, if the permission has not expired.
    pub(super) fn live(&self, now: u32) -> Option<(End, NatProtocol, u32)> {
        let protocol = *NatProtocol::ALL.get(usize::from(self.protocol))?;
        let internal = End {
            address: self.address,
            port: self.port,
        };
        (self.expires_at > now).then_some((internal, protocol, self.remote))
    }

    /// Returns true for one of the same endpoint and remote address.
    fn is_same(&self, other: &Self) -> bool {
        (self.address, self.remote) == (other.address, other.remote)
            && (self.port, self.protocol) == (other.port, other.protocol)
    }
}

impl Permissions {
    /// Creates the table for so many mappings.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a power of two, for at most 2^24 mappings"
    )]
    pub(super) fn new(mappings_max: u32) -> Result<Self, NoMemory> {
        let count = (mappings_max as usize * OF_MAPPING).div_ceil(WAYS);
        let count = count.next_power_of_two();
        let mut buckets = zeroed::<Bucket>(count)?;
        // The kernel provides the pages now, and not when packets arrive.
        buckets.fill(Bucket::default());
        Ok(Self {
            buckets,
            mask: count - 1,
        })
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.buckets[..])
    }

    /// Returns the maximum number of permissions.
    pub(super) fn capacity(&self) -> usize {
        self.buckets.len().saturating_mul(WAYS)
    }

    /// Returns the permission at a place below [`Self::capacity`], which may have expired.
    pub(super) fn at(&self, place: usize) -> Option<&Permission> {
        let bucket = self.buckets.get(place.checked_div(WAYS)?)?;
        bucket.permissions.get(place.checked_rem(WAYS)?)
    }

    /// Adds a permission, or extends it. `hash` is that of endpoint and remote address. Returns true if there was none at the time `now`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to a bucket of the table"
    )]
    pub(super) fn permit(&mut self, hash: u64, permission: Permission, now: u32) -> bool {
        let Some(bucket) = self.buckets.get_mut(hash as usize & self.mask) else {
            return false;
        };
        let permissions = &mut bucket.permissions;
        let same = permissions.iter().position(|one| one.is_same(&permission));
        let by_time = permissions.iter().enumerate();
        let first = by_time.min_by_key(|(_, one)| one.expires_at);
        let first = first.map(|(place, _)| place);
        let Some(slot) = same.or(first).and_then(|place| permissions.get_mut(place)) else {
            return false;
        };
        let is_new = same.is_none() || slot.expires_at <= now;
        *slot = permission;
        is_new
    }

    /// Returns true if the table has a permission of the same endpoint and remote address that has not expired.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to a bucket of the table"
    )]
    pub(super) fn allows(&self, hash: u64, permission: &Permission, now: u32) -> bool {
        let bucket = self.buckets.get(hash as usize & self.mask);
        bucket.is_some_and(|bucket| {
            let mut permissions = bucket.permissions.iter();
            permissions.any(|one| one.is_same(permission) && one.expires_at > now)
        })
    }
}
