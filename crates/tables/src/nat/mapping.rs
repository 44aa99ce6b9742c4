// SPDX-License-Identifier: Apache-2.0
//! Mappings between inside and external endpoints.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4};

use super::behaviour::NO_REMOTE;
use super::names::NatProtocol;
use super::packet::End;
use super::pool::Port;
use crate::arena::{NoMemory, zeroed};
use crate::hash_index::Index;

/// Host of a static mapping: none.
pub(super) const NO_HOST: u32 = u32::MAX;
/// Time of expiry of a static mapping.
pub(super) const NEVER: u32 = u32::MAX;

/// A mapping.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
pub(super) struct Mapping {
    pub(super) address: u32,
    pub(super) external_address: u32,
    pub(super) port: u16,
    pub(super) external_port: u16,
    /// Number of the host, for its port blocks.
    pub(super) host: u32,
    /// First second at which the mapping has expired.
    pub(super) expires_at: u32,
    /// Number of the external address in the pool.
    pub(super) external: u16,
    protocol: u8,
    /// TCP: the other side has answered.
    pub(super) is_answered: u8,
    /// Remote endpoint that the mapping depends on; 0 for the parts on which it does not depend.
    remote_address: u32,
    remote_port: u16,
    /// 1 in a used entry.
    is_used: u16,
}

const _: () = assert!(size_of::<Mapping>() == 32);

/// A mapping in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// Protocol.
    pub protocol: NatProtocol,
    /// Inside endpoint.
    pub internal: SocketAddrV4,
    /// External endpoint.
    pub external: SocketAddrV4,
    /// Remote address that the mapping depends on; `None` if it depends on no remote endpoint.
    pub remote_address: Option<Ipv4Addr>,
    /// Remote port that the mapping depends on; `None` if it depends on no remote port.
    pub remote_port: Option<u16>,
    /// Seconds until it expires without outbound packets; `None` for a static forward.
    pub expires_in_s: Option<u32>,
}

impl Mapping {
    /// Creates a mapping of an inside endpoint, which depends on this part of a remote one. [`Mappings::add`] gives it its protocol.
    pub(super) fn new((internal, remote): (End, End), port: Port, expires_at: u32) -> Self {
        Self {
            address: internal.address,
            port: internal.port,
            remote_address: remote.address,
            remote_port: remote.port,
            external_address: port.end.address,
            external_port: port.end.port,
            host: port.host,
            external: port.external,
            expires_at,
            ..Self::default()
        }
    }

    pub(super) const fn internal(&self) -> End {
        End {
            address: self.address,
            port: self.port,
        }
    }

    pub(super) const fn external_end(&self) -> End {
        End {
            address: self.external_address,
            port: self.external_port,
        }
    }

    /// Returns the part of a remote endpoint that the mapping depends on.
    pub(super) const fn remote(&self) -> End {
        End {
            address: self.remote_address,
            port: self.remote_port,
        }
    }

    pub(super) fn protocol(&self) -> NatProtocol {
        let number = usize::from(self.protocol);
        NatProtocol::ALL
            .get(number)
            .copied()
            .unwrap_or(NatProtocol::Tcp)
    }

    pub(super) const fn is_used(&self) -> bool {
        self.is_used != 0
    }

    pub(super) const fn is_static(&self) -> bool {
        self.expires_at == NEVER
    }

    /// Returns true if the mapping is in use and has not expired.
    pub(super) const fn is_live(&self, now: u32) -> bool {
        self.is_used() && self.expires_at > now
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a live mapping expires after now"
    )]
    pub(super) fn info(&self, now: u32) -> Option<MappingInfo> {
        let end = |end: End| SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port);
        self.is_live(now).then(|| MappingInfo {
            protocol: self.protocol(),
            internal: end(self.internal()),
            external: end(self.external_end()),
            remote_address: (self.remote_address != 0)
                .then(|| Ipv4Addr::from_bits(self.remote_address)),
            remote_port: (self.remote_port != 0).then_some(self.remote_port),
            expires_in_s: (!self.is_static()).then(|| self.expires_at - now - 1),
        })
    }
}

/// Folds a product to half of its size.
#[expect(clippy::cast_possible_truncation, reason = "both halves count")]
#[inline(always)]
const fn fold(product: u128) -> u64 {
    (product >> 64) as u64 ^ product as u64
}

/// All mappings, by inside endpoint and the part of a remote endpoint that they depend on.
#[derive(Debug)]
pub(super) struct Mappings {
    mappings: Box<[Mapping]>,
    index: Index,
    free: Vec<u32>,
    /// Secret of the hash.
    secret: [u64; 3],
}

impl Mappings {
    pub(super) fn new(mappings_max: u32) -> Result<Self, NoMemory> {
        let mut mappings = zeroed::<Mapping>(mappings_max as usize)?;
        // The kernel provides the pages now, and not when packets arrive.
        mappings.fill(Mapping::default());
        Ok(Self {
            mappings,
            index: Index::new(mappings_max)?,
            free: (0..mappings_max).rev().collect(),
            secret: std::array::from_fn(|n| RandomState::new().hash_one(n)),
        })
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "each free mapping is one of the mappings"
    )]
    pub(super) fn len(&self) -> usize {
        self.mappings.len() - self.free.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.mappings.len()
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    pub(super) fn octets(&self) -> usize {
        size_of_val(&self.mappings[..]) + self.index.octets()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Mapping> {
        self.mappings.get(number as usize)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Mapping> {
        self.mappings.get_mut(number as usize)
    }

    /// Returns the hash of an inside endpoint and the part of a remote one: products with a secret, so that no host can choose endpoints of
    /// one bucket.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "the product of 64 and 64 bits fits in 128"
    )]
    #[inline(always)]
    pub(super) const fn hash(&self, end: End, remote: End, protocol: NatProtocol) -> u64 {
        let [first, second, third] = self.secret;
        let mut word = (end.address as u64) << 32 | (end.port as u64) << 8 | protocol as u64;
        if remote.address != NO_REMOTE.address {
            let remote = (remote.address as u64) << 16 | remote.port as u64;
            word ^= fold((remote ^ third) as u128 * (second | 1) as u128);
        }
        let folded = fold((word ^ first) as u128 * (second | 1) as u128);
        fold((folded ^ third) as u128 * (first | 1) as u128)
    }

    /// Prefetches the memory that a look-up reads first.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Finds the mapping of an inside endpoint that depends on this part of a remote one, even if it has expired.
    #[inline(always)]
    pub(super) fn find(&self, end: End, remote: End, protocol: NatProtocol) -> Option<u32> {
        let is_mapping = |number: u32| {
            self.get(number).is_some_and(|mapping| {
                mapping.internal() == end
                    && mapping.protocol == protocol as u8
                    && mapping.remote() == remote
            })
        };
        self.index
            .find(self.hash(end, remote, protocol), is_mapping)
    }

    /// Adds a mapping and returns its number; `None` if there is no space.
    pub(super) fn add(&mut self, protocol: NatProtocol, mut mapping: Mapping) -> Option<u32> {
        let number = *self.free.last()?;
        mapping.protocol = protocol as u8;
        mapping.is_used = 1;
        let hash = self.hash(mapping.internal(), mapping.remote(), protocol);
        if !self.index.insert(hash, number) {
            return None;
        }
        *self.mappings.get_mut(number as usize)? = mapping;
        self.free.pop();
        Some(number)
    }

    /// Removes a mapping and returns it.
    pub(super) fn remove(&mut self, number: u32) -> Option<Mapping> {
        let mapping = *self.get(number)?;
        if !mapping.is_used() {
            return None;
        }
        let hash = self.hash(mapping.internal(), mapping.remote(), mapping.protocol());
        self.index.remove(hash, number);
        *self.get_mut(number)? = Mapping::default();
        // Has space for all mappings.
        self.free.push(number);
        Some(mapping)
    }
}
