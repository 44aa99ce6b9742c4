// SPDX-License-Identifier: Apache-2.0
//! Port blocks that are computed from inside addresses (RFC 7422, section 2.1). The host of an external port follows from the settings alone,
//! so no log is required.
//!
//! Inside addresses are numbered in the order of their prefixes, and port blocks in the order of the external addresses. The inside address
//! with the number N has the block with the number N. External addresses behind those of the pool change no block.
//!
//! With several forwarding CPUs, the first ports of a block are for the CPU that has the state of the host. Behind them, each other CPU has an
//! equal part, for packets of the host to external endpoints of that CPU.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::settings::{PortPool, block_of_port, ports_of_block};
use crate::share::{Share, owner_of_host};

/// Part of a block that all CPUs but that of the host have together, at most: an eighth, if each gets a port.
const OTHERS: u16 = 8;

/// An inside prefix, and the number of its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostRange {
    first: u32,
    last: u32,
    number: u64,
}

/// Blocks of inside addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deterministic {
    insides: Box<[HostRange]>,
    externals: u64,
    /// Blocks of an external address.
    blocks: u64,
    /// Ports of a block.
    block_size: u16,
}

/// Parts of a block, by their numbers of ports: one of the CPU of the host, and behind it one of each other CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockParts {
    own: u16,
    other: u16,
    /// Number of CPUs, at least 1.
    of: u16,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "numbers of CPUs, of which there are far fewer than 2^15, and of ports of a block, which has a port for each CPU"
)]
impl BlockParts {
    fn new(block_size: u16, of: u16) -> Self {
        let of = of.max(1);
        let other = (block_size / OTHERS).checked_div(of).unwrap_or(0).max(1);
        Self {
            own: block_size.saturating_sub((of - 1).saturating_mul(other)),
            other,
            of,
        }
    }

    /// Returns the offset of the first port of a CPU, and the number of its ports. `owner` is the CPU of the host.
    const fn of_cpu(self, owner: u16, cpu: u16) -> (u16, u16) {
        match (cpu + self.of - owner) % self.of {
            0 => (0, self.own),
            distance => (self.own + (distance - 1) * self.other, self.other),
        }
    }

    /// Returns the CPU that has the port at an offset.
    fn cpu_of(self, owner: u16, offset: u16) -> u16 {
        let distance = match offset.checked_sub(self.own) {
            None => 0,
            Some(behind) => behind.checked_div(self.other).unwrap_or(0) + 1,
        };
        (owner + distance) % self.of
    }
}

impl HostRange {
    /// Returns the number of addresses.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the last address is not below the first one"
    )]
    fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }
}

fn insides_of(prefixes: &[Ipv4Net]) -> Box<[HostRange]> {
    let mut number = 0_u64;
    let inside = |net: &Ipv4Net| {
        let inside = HostRange {
            first: net.network().to_bits(),
            last: net.broadcast().to_bits(),
            number,
        };
        number = number.saturating_add(inside.count());
        inside
    };
    prefixes.iter().map(inside).collect()
}

impl Deterministic {
    /// Returns the blocks of the inside addresses of a pool. `None` if hosts get blocks when they need them.
    pub(crate) fn new(pool: &PortPool) -> Option<Self> {
        (!pool.deterministic.is_empty()).then(|| Self {
            insides: insides_of(&pool.deterministic),
            externals: pool.addresses.len() as u64,
            blocks: pool.blocks() as u64,
            block_size: pool.block_size,
        })
    }

    /// Returns the offset of the first port of a CPU in the block of a host, and the number of its ports.
    pub(super) fn part_of(&self, host: u32, share: Share) -> (u16, u16) {
        let (cpu, of) = share.numbers();
        BlockParts::new(self.block_size, of).of_cpu(owner_of_host(host, of), cpu)
    }

    /// Returns the CPU out of `of` that has the port at an offset of a block of an external address. `None` for a block of no host.
    pub(crate) fn owner_of_port(&self, place: (u16, u16), offset: u16, of: u16) -> Option<u16> {
        let host = self.host_of(place)?;
        let parts = BlockParts::new(self.block_size, of);
        Some(parts.cpu_of(owner_of_host(host, of), offset))
    }

    /// Notes further external addresses of the pool.
    pub(super) const fn grow(&mut self, externals: usize) {
        self.externals = externals as u64;
    }

    /// Returns the number of the external address and that of its block for an inside address. `None` for an address of no inside prefix.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the address is of the prefix, and a prefix has at most 2^32 addresses"
    )]
    pub(super) fn block_of(&self, host: u32) -> Option<(u16, u16)> {
        let mut insides = self.insides.iter();
        let inside = insides.find(|one| (one.first..=one.last).contains(&host))?;
        let number = inside.number + u64::from(host - inside.first);
        let external = number.checked_div(self.blocks)?;
        let block = number.checked_rem(self.blocks)?;
        if external >= self.externals {
            return None;
        }
        Some((u16::try_from(external).ok()?, u16::try_from(block).ok()?))
    }

    /// Returns the inside address that has a block of an external address. `None` for a block of no host.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "blocks of at most 256 addresses, and the number is not below that of the prefix"
    )]
    pub(super) fn host_of(&self, (external, block): (u16, u16)) -> Option<u32> {
        if u64::from(block) >= self.blocks || u64::from(external) >= self.externals {
            return None;
        }
        let number = u64::from(external) * self.blocks + u64::from(block);
        let mut insides = self.insides.iter();
        let inside =
            insides.find(|one| number >= one.number && number - one.number < one.count())?;
        let offset = u32::try_from(number - inside.number).ok()?;
        inside.first.checked_add(offset)
    }
}

impl PortPool {
    /// Returns the external address of an inside one, with the first and the last port of its block. `None` if no block is computed for it.
    #[must_use]
    pub fn ports_of_host(&self, host: Ipv4Addr) -> Option<(Ipv4Addr, u16, u16)> {
        let (external, block) = Deterministic::new(self)?.block_of(host.to_bits())?;
        let address = self.addresses.get(usize::from(external))?;
        let (first, last) = ports_of_block(self.first_port, self.block_size, block);
        Some((*address, first, last))
    }

    /// Returns the inside address that has an external port. `None` if the port is in no computed block.
    #[must_use]
    pub fn host_of_port(&self, external: Ipv4Addr, port: u16) -> Option<Ipv4Addr> {
        let number = self.addresses.iter().position(|one| *one == external)?;
        let block = block_of_port(self.first_port, self.block_size, self.blocks(), port)?;
        let place = (u16::try_from(number).ok()?, block);
        let host = Deterministic::new(self)?.host_of(place)?;
        Some(Ipv4Addr::from_bits(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_of_a_block_has_one_cpu_and_that_of_the_host_has_most() {
        for (size, of) in [
            (1, 1),
            (512, 1),
            (2, 2),
            (16, 2),
            (512, 2),
            (512, 7),
            (8, 8),
            (65, 16),
        ] {
            let parts = BlockParts::new(size, of);
            for owner in 0..of {
                let mut next = 0;
                for distance in 0..of {
                    let cpu = (owner + distance) % of;
                    let (first, count) = parts.of_cpu(owner, cpu);
                    assert!(first == next && count > 0, "{size} {of} {cpu}");
                    for offset in [first, first + count - 1] {
                        assert_eq!(parts.cpu_of(owner, offset), cpu, "{size} {of} {offset}");
                    }
                    next = first + count;
                }
                assert_eq!(next, size);
            }
            let others = (of - 1) * parts.other;
            assert!(others <= size / 8 || parts.other == 1, "{size} {of}");
        }
        assert_eq!(
            BlockParts::new(512, 2),
            BlockParts {
                own: 480,
                other: 32,
                of: 2
            }
        );
    }
}
