// SPDX-License-Identifier: Apache-2.0
//! IPv6: a Poptrie (Asai, Ohara, "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP Routing Table Lookup",
//! SIGCOMM 2015) with a writer concurrent to readers.
//!
//! The first 18 bits of a destination select a root entry; each node below decides on 6 bits. A node has one bit mask of its 64 slots that
//! lead to another node, and one of the slots whose next hop differs from the previous one. The number of set bits below a slot gives the
//! index of the next node or of the next hop. The nodes of a burst's destinations are loaded together, level by level. The default route is
//! stored separately.
//!
//! A change rebuilds the nodes on its path, and their siblings in the same block, and exchanges one root entry: a look-up sees all of the
//! change or nothing.
//!
//! Memory: 1 MiB for the root, 32 octets per node, 4 octets per next hop. Half a million routes of Internet-like lengths take about 100 MiB
//! including the writer's notes.

mod control;
mod poptrie;

use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use quietwire_memory::atomic::AtomicU32;

use super::{FibError, NO_ROUTE, check};
use crate::arena::{Epoch, zeroed};
use control::Control;
use poptrie::{LEAF, ROOT_BITS};

pub use poptrie::Ipv6Fib;

/// Writer of a table.
#[derive(Debug)]
pub struct Ipv6Routes {
    fib: Arc<Ipv6Fib>,
    control: Control,
}

impl Ipv6Routes {
    /// Creates an empty table with space for this number of nodes.
    ///
    /// # Errors
    /// [`FibError::Memory`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "limited to a quarter of the numbers"
    )]
    pub fn new(nodes_max: u32) -> Result<Self, FibError> {
        let nodes_max = nodes_max.min(LEAF / 4);
        // Leaf blocks have up to 64 next hops, typically 2 to 4 per node.
        let leaves_max = nodes_max * 4;
        let fib = Arc::new(Ipv6Fib {
            default: AtomicU32::new(NO_ROUTE),
            root: zeroed(1 << ROOT_BITS)?,
            nodes: zeroed(nodes_max as usize)?,
            leaves: zeroed(leaves_max as usize)?,
        });
        let control = Control::new(Arc::clone(&fib), nodes_max, leaves_max);
        Ok(Self { fib, control })
    }

    /// Returns the table of forwarding threads.
    #[must_use]
    pub fn fib(&self) -> Arc<Ipv6Fib> {
        Arc::clone(&self.fib)
    }

    /// Returns the number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.control.len()
    }

    /// Returns true if there are no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of nodes in use.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.control.nodes()
    }

    /// Returns the next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Ipv6Net) -> Option<u32> {
        let (network, length) = parts(prefix);
        self.control.get(network, length)
    }

    /// Sets the next hop of a prefix and returns the previous one. Host bits of the prefix are ignored.
    ///
    /// # Errors
    /// [`FibError`]; nothing changes in that case.
    pub fn insert(&mut self, prefix: Ipv6Net, next_hop: u32) -> Result<Option<u32>, FibError> {
        check(next_hop)?;
        let (network, length) = parts(prefix);
        let former = self.control.set(network, length, Some(next_hop));
        if self.control.publish().is_err() {
            self.control.set(network, length, former);
            // The previous state is restored; it had space before.
            drop(self.control.publish());
            return Err(FibError::Full(IpNet::V6(prefix)));
        }
        Ok(former)
    }

    /// Sets the next hops of many prefixes and publishes them at the end, which is faster than one by one.
    ///
    /// # Errors
    /// [`FibError`]; nothing changes in that case.
    pub fn insert_all(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv6Net, u32)>,
    ) -> Result<(), FibError> {
        let mut undo = Vec::new();
        let mut wrong = None;
        for (prefix, next_hop) in routes {
            if let Err(error) = check(next_hop) {
                wrong = Some(error);
                break;
            }
            let (network, length) = parts(prefix);
            let former = self.control.set(network, length, Some(next_hop));
            undo.push((prefix, network, length, former));
        }
        if wrong.is_none() && self.control.publish().is_err() {
            wrong = undo
                .last()
                .map(|(prefix, ..)| FibError::Full(IpNet::V6(*prefix)));
        }
        let Some(error) = wrong else {
            return Ok(());
        };
        for (_, network, length, former) in undo.into_iter().rev() {
            self.control.set(network, length, former);
        }
        drop(self.control.publish());
        Err(error)
    }

    /// Removes a prefix and returns its next hop.
    ///
    /// # Errors
    /// [`FibError::Full`] if there is no space for the rebuilt nodes in addition to those that readers still use; nothing changes in that
    /// case.
    pub fn remove(&mut self, prefix: Ipv6Net) -> Result<Option<u32>, FibError> {
        let (network, length) = parts(prefix);
        let former = self.control.set(network, length, None);
        if former.is_some() && self.control.publish().is_err() {
            self.control.set(network, length, former);
            drop(self.control.publish());
            return Err(FibError::Full(IpNet::V6(prefix)));
        }
        Ok(former)
    }

    /// Sets the epoch of memory that is freed from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.control.set_epoch(epoch);
    }

    /// Reuses memory freed before this epoch, because every forwarding thread has finished its burst of that time.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.control.reclaim(epoch);
    }
}

fn parts(prefix: Ipv6Net) -> (u128, u8) {
    let length = prefix.prefix_len();
    (Ipv6Addr::to_bits(prefix.addr()) & mask(length), length)
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "lengths of prefixes are at most 128"
)]
const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - length),
    }
}
