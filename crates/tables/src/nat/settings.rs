// SPDX-License-Identifier: Apache-2.0
//! Settings of NAT: external addresses and ports, blocks, static forwards, timeouts.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;

use super::behaviour::MappingBehaviour;
use super::filtering::FilteringBehaviour;
use super::names::NatProtocol;
use crate::arena::NoMemory;

/// Maximum number of external addresses.
pub const EXTERNALS_MAX: usize = 256;
/// Maximum number of mappings.
pub const MAPPINGS_MAX: u32 = 1 << 24;
/// Maximum number of static forwards.
pub const FORWARDS_MAX: usize = 1024;
/// Maximum number of one-to-one translations.
pub const PAIRS_MAX: usize = 1024;
/// Maximum number of port blocks of a host.
pub(super) const HOST_BLOCKS_MAX: usize = 8;

/// External addresses and their ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPool {
    /// External addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// First port. From a pool with ports below 1024 and others, mappings get ports of the range of the inside port (RFC 4787, REQ-3a).
    pub first_port: u16,
    /// Last port. Ports at the end that fill no block are not used.
    pub last_port: u16,
    /// Ports of a block.
    pub block_size: u16,
    /// Maximum number of blocks of a host, 1 to 8.
    pub blocks_per_host: u8,
    /// Prefixes of all inside hosts, each of which has one block that is computed from its address (RFC 7422). Empty: hosts get blocks when
    /// they need them.
    pub deterministic: Vec<Ipv4Net>,
    /// Hold-down of returned blocks.
    pub hold_down: HoldDown,
}

/// Hold-down of blocks that hosts have returned: other hosts do not get them at once (RFC 6888, REQ-8). Computed blocks have none, as each
/// belongs to one host (REQ-8, exception B). Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// Duration, seconds. 0: none.
    pub seconds: u32,
    /// Maximum number of held blocks of an external address. A further block ends the hold-down of the oldest one.
    pub blocks_max: u16,
}

/// Static forward: packets to an external endpoint go to an inside endpoint, of IPv4 or (`SocketAddrV6`) of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forward<S = SocketAddrV4> {
    /// Protocol: TCP or UDP.
    pub protocol: NatProtocol,
    /// External endpoint, of an address of the pool.
    pub external: S,
    /// Inside endpoint.
    pub internal: S,
}

/// One-to-one translation of all packets of an inside host, whatever their protocol (RFC 2663, section 4.1.1: static address assignment).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Inside address.
    pub internal: Ipv4Addr,
    /// External address, not of the pool.
    pub external: Ipv4Addr,
}

/// Timeouts of mappings without outbound packets, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatTimeouts {
    /// UDP. Default: 300 (RFC 4787, REQ-5).
    pub udp_s: u32,
    /// TCP with packets in both directions. Default: 7440 (RFC 5382, REQ-5).
    pub tcp_established_s: u32,
    /// TCP that opens or closes. Default: 240 (RFC 5382, REQ-5).
    pub tcp_transitory_s: u32,
    /// ICMP echoes. Default: 60 (RFC 5508, REQ-2).
    pub icmp_s: u32,
}

impl Default for NatTimeouts {
    fn default() -> Self {
        Self {
            udp_s: 300,
            tcp_established_s: 7440,
            tcp_transitory_s: 240,
            icmp_s: 60,
        }
    }
}

/// Settings of NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatSettings {
    /// External addresses and ports.
    pub pool: PortPool,
    /// Static forwards. Port blocks that contain an external port of them are not given to hosts.
    pub forwards: Vec<Forward>,
    /// One-to-one translations.
    pub pairs: Vec<Pair>,
    /// Maximum number of mappings, without static ones.
    pub mappings_max: u32,
    /// Maximum number of hosts with mappings.
    pub hosts_max: u32,
    /// Mapping behaviour. NAT64 and NAT66 require the default: endpoint-independent mapping.
    pub mapping: MappingBehaviour,
    /// Filtering behaviour of mappings that depend on no remote endpoint; others have one of their own. NAT64 and NAT66 require the
    /// default: endpoint-independent filtering.
    pub filtering: FilteringBehaviour,
    /// Timeouts.
    pub timeouts: NatTimeouts,
}

/// Error of creating NAT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatSettingsError {
    /// Number of addresses out of range.
    #[error("{0} external addresses are out of range (allowed: 1 to {EXTERNALS_MAX})")]
    Addresses(usize),
    /// An address twice.
    #[error("external address {0} is listed twice")]
    Twice(Ipv4Addr),
    /// No block fits the ports.
    #[error("ports {first} to {last} have no space for a block of {block} ports")]
    Blocks {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
        /// Ports of a block.
        block: u16,
    },
    /// Fewer blocks than forwarding CPUs.
    #[error(
        "{blocks} port blocks are too few for {cpus} forwarding CPUs, which share them (lower the size of blocks)"
    )]
    Shares {
        /// Blocks of all addresses.
        blocks: usize,
        /// Forwarding CPUs.
        cpus: usize,
    },
    /// Blocks of a host out of range.
    #[error("{0} port blocks per host are out of range (allowed: 1 to {HOST_BLOCKS_MAX})")]
    HostBlocks(u8),
    /// More inside addresses with computed blocks than blocks.
    #[error(
        "{hosts} inside addresses require {hosts} port blocks, but {addresses} external addresses have {blocks} (use {required} external addresses, \
         smaller blocks, or smaller inside prefixes)"
    )]
    DeterministicHosts {
        /// Inside addresses.
        hosts: u64,
        /// External addresses.
        addresses: usize,
        /// Blocks of all external addresses.
        blocks: u64,
        /// External addresses that have enough blocks.
        required: u64,
    },
    /// More than one block for each host, though blocks are computed.
    #[error("{0} blocks per host are too many if blocks are computed (allowed: 1)")]
    DeterministicBlocks(u8),
    /// Fewer ports of a computed block than forwarding CPUs.
    #[error(
        "{ports} ports of a computed block are too few for {cpus} forwarding CPUs, each of which has some (raise the block size)"
    )]
    DeterministicShares {
        /// Ports of a block.
        ports: u16,
        /// Forwarding CPUs.
        cpus: usize,
    },
    /// Two prefixes of inside hosts with computed blocks overlap.
    #[error("inside prefixes {0} and {1} overlap, so hosts would have two blocks (remove one)")]
    DeterministicOverlap(Ipv4Net, Ipv4Net),
    /// A forward of a port that is in a computed block.
    #[error(
        "forward {0}: blocks are computed, so each port of the pool belongs to one host (use a port outside of the pool)"
    )]
    DeterministicForward(SocketAddrV4),
    /// Number of mappings out of range.
    #[error("{0} mappings are out of range (allowed: 1 to {MAPPINGS_MAX})")]
    Mappings(u32),
    /// Number of hosts out of range.
    #[error("{0} hosts are out of range (allowed: 1 to {MAPPINGS_MAX})")]
    Hosts(u32),
    /// A forward of ICMP.
    #[error("forward {0}: only TCP and UDP ports can be forwarded")]
    ForwardProtocol(SocketAddrV4),
    /// A forward whose external address is not of the pool.
    #[error("forward {0}: the address is not an external address of the pool")]
    ForwardAddress(SocketAddrV4),
    /// Two forwards with one external or inside endpoint.
    #[error("forward {external} to {internal}: another forward has one of these endpoints")]
    ForwardTwice {
        /// External endpoint.
        external: SocketAddrV4,
        /// Inside endpoint.
        internal: SocketAddrV4,
    },
    /// Too many forwards.
    #[error("{0} forwards are too many (maximum: {FORWARDS_MAX})")]
    Forwards(usize),
    /// A forward to port 0, or from it.
    #[error("forward {0}: port 0 is reserved (allowed: 1 to 65535)")]
    ForwardPort(SocketAddrV4),
    /// Too many one-to-one translations.
    #[error("{0} one-to-one translations are too many (maximum: {PAIRS_MAX})")]
    Pairs(usize),
    /// An address is in two one-to-one translations, or in one and in the pool.
    #[error(
        "one-to-one translation of {internal} to {external}: the pool or another translation has one of these addresses"
    )]
    PairTwice {
        /// Inside address.
        internal: Ipv4Addr,
        /// External address.
        external: Ipv4Addr,
    },
    /// Out of memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

/// Returns the block of a port, out of `blocks`; `None` for a port of no block.
pub(super) fn block_of_port(
    first_port: u16,
    block_size: u16,
    blocks: usize,
    port: u16,
) -> Option<u16> {
    let block = port.checked_sub(first_port)?.checked_div(block_size)?;
    (usize::from(block) < blocks).then_some(block)
}

/// Returns the first and the last port of a block.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a block has at least one port"
)]
pub(super) const fn ports_of_block(first_port: u16, block_size: u16, block: u16) -> (u16, u16) {
    let first = first_port.wrapping_add(block.wrapping_mul(block_size));
    (first, first.wrapping_add(block_size - 1))
}

impl PortPool {
    /// Returns the number of blocks of an address.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "ports are below 2^16, and the divisor is at least 1"
    )]
    #[must_use]
    pub fn blocks(&self) -> usize {
        let ports = (usize::from(self.last_port) + 1).saturating_sub(usize::from(self.first_port));
        ports / usize::from(self.block_size.max(1))
    }

    /// Returns true if this pool is the other one with further addresses behind its own.
    #[must_use]
    pub fn extends(&self, other: &Self) -> bool {
        let Self {
            addresses,
            first_port,
            last_port,
            block_size,
            blocks_per_host,
            deterministic,
            hold_down,
        } = self;
        addresses.len() > other.addresses.len()
            && addresses.starts_with(&other.addresses)
            && (*first_port, *last_port) == (other.first_port, other.last_port)
            && (*block_size, *blocks_per_host) == (other.block_size, other.blocks_per_host)
            && (deterministic, *hold_down) == (&other.deterministic, other.hold_down)
    }

    /// Checks addresses, ports and blocks.
    ///
    /// # Errors
    /// [`NatSettingsError`], except [`NatSettingsError::Memory`].
    pub fn check(&self) -> Result<(), NatSettingsError> {
        let count = self.addresses.len();
        if !(1..=EXTERNALS_MAX).contains(&count) {
            return Err(NatSettingsError::Addresses(count));
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = self.addresses.iter().find(|one| !known.insert(**one)) {
            return Err(NatSettingsError::Twice(*twice));
        }
        if !(1..=HOST_BLOCKS_MAX).contains(&usize::from(self.blocks_per_host)) {
            return Err(NatSettingsError::HostBlocks(self.blocks_per_host));
        }
        // Port 0 is reserved.
        if self.first_port == 0 || self.block_size == 0 || self.blocks() == 0 {
            return Err(NatSettingsError::Blocks {
                first: self.first_port,
                last: self.last_port,
                block: self.block_size,
            });
        }
        self.check_deterministic()
    }

    /// Checks that each inside address with a computed block has one, and no other address has it.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "there are few addresses, fewer than 2^16 blocks of each, and prefixes of up to 32 bits that do not overlap"
    )]
    fn check_deterministic(&self) -> Result<(), NatSettingsError> {
        let insides = &self.deterministic;
        if insides.is_empty() {
            return Ok(());
        }
        if self.blocks_per_host != 1 {
            return Err(NatSettingsError::DeterministicBlocks(self.blocks_per_host));
        }
        for (count, one) in insides.iter().enumerate() {
            let mut others = insides.iter().take(count);
            let overlaps =
                |other: &&Ipv4Net| one.contains(&other.network()) || other.contains(&one.network());
            if let Some(other) = others.find(overlaps) {
                return Err(NatSettingsError::DeterministicOverlap(*other, *one));
            }
        }
        let (addresses, of_address) = (self.addresses.len(), self.blocks() as u64);
        let hosts = insides.iter().map(|net| 1_u64 << (32 - net.prefix_len()));
        let (hosts, blocks) = (hosts.sum::<u64>(), addresses as u64 * of_address);
        if hosts > blocks {
            return Err(NatSettingsError::DeterministicHosts {
                hosts,
                addresses,
                blocks,
                required: hosts.div_ceil(of_address.max(1)),
            });
        }
        Ok(())
    }

    /// Returns true if a port is in a computed block.
    fn is_deterministic(&self, port: u16) -> bool {
        !self.deterministic.is_empty()
            && block_of_port(self.first_port, self.block_size, self.blocks(), port).is_some()
    }
}

impl NatSettings {
    /// Checks the numbers and the forwards.
    ///
    /// # Errors
    /// [`NatSettingsError`], except [`NatSettingsError::Memory`].
    pub fn check(&self) -> Result<(), NatSettingsError> {
        self.pool.check()?;
        if !(1..=MAPPINGS_MAX).contains(&self.mappings_max) {
            return Err(NatSettingsError::Mappings(self.mappings_max));
        }
        if !(1..=MAPPINGS_MAX).contains(&self.hosts_max) {
            return Err(NatSettingsError::Hosts(self.hosts_max));
        }
        self.check_pairs()?;
        if self.forwards.len() > FORWARDS_MAX {
            return Err(NatSettingsError::Forwards(self.forwards.len()));
        }
        let (mut externals, mut internals) = (BTreeSet::new(), BTreeSet::new());
        for forward in &self.forwards {
            let Forward {
                protocol,
                external,
                internal,
            } = *forward;
            if protocol == NatProtocol::Icmp {
                return Err(NatSettingsError::ForwardProtocol(external));
            }
            if external.port() == 0 || internal.port() == 0 {
                return Err(NatSettingsError::ForwardPort(external));
            }
            if !self.pool.addresses.contains(external.ip()) {
                return Err(NatSettingsError::ForwardAddress(external));
            }
            if self.pool.is_deterministic(external.port()) {
                return Err(NatSettingsError::DeterministicForward(external));
            }
            let is_new = externals.insert((protocol, external));
            if !internals.insert((protocol, internal)) || !is_new {
                return Err(NatSettingsError::ForwardTwice { external, internal });
            }
        }
        Ok(())
    }

    /// Returns true if these settings are the other ones with further external addresses behind theirs. Forwards are not compared.
    #[must_use]
    pub fn extends(&self, other: &Self) -> bool {
        let Self {
            pool,
            forwards: _,
            pairs,
            mappings_max,
            hosts_max,
            mapping,
            filtering,
            timeouts,
        } = self;
        pool.extends(&other.pool)
            && *pairs == other.pairs
            && (*mappings_max, *hosts_max) == (other.mappings_max, other.hosts_max)
            && (*mapping, *filtering) == (other.mapping, other.filtering)
            && *timeouts == other.timeouts
    }

    /// Checks that each of several forwarding CPUs gets a port block.
    ///
    /// # Errors
    /// [`NatSettingsError::Shares`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "there are few addresses, and fewer than 2^16 blocks of each"
    )]
    pub fn check_shares(&self, cpus: usize) -> Result<(), NatSettingsError> {
        let ports = self.pool.block_size;
        if !self.pool.deterministic.is_empty() {
            let has_ports = usize::from(ports) >= cpus;
            return has_ports
                .then_some(())
                .ok_or(NatSettingsError::DeterministicShares { ports, cpus });
        }
        let blocks = self.pool.addresses.len() * self.pool.blocks();
        if blocks < cpus {
            return Err(NatSettingsError::Shares { blocks, cpus });
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), NatSettingsError> {
        if self.pairs.len() > PAIRS_MAX {
            return Err(NatSettingsError::Pairs(self.pairs.len()));
        }
        let mut known: BTreeSet<Ipv4Addr> = self.pool.addresses.iter().copied().collect();
        for Pair { internal, external } in &self.pairs {
            let is_new = known.insert(*internal);
            if !known.insert(*external) || !is_new {
                return Err(NatSettingsError::PairTwice {
                    internal: *internal,
                    external: *external,
                });
            }
        }
        Ok(())
    }
}
