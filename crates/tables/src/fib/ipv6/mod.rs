// SPDX-License-Identifier: Apache-2.0
//! IPv6: a Poptrie (Asai, Ohara, "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP
//! Routing Table Lookup", SIGCOMM 2015) with a writer beside readers.
//!
//! The first 18 bits of a destination choose a root entry; from there nodes decide on 6 bits each. A node has a bit for
//! each of its 64 slots that leads to another node, and one for each slot whose next hop differs from the one before;
//! counting bits below a slot gives the place of the next node or of the next hop. The nodes that the destinations of a
//! burst are at are loaded together, level by level. The default route is held apart.
//!
//! A change makes the nodes on the way to it anew, and their neighbours in one block with them, and exchanges one root
//! entry: whoever looks up sees all of it or nothing.
//!
//! Memory: 1 MiB for the root, 32 octets a node, 4 a next hop; half a million routes of Internet-like lengths take about
//! 100 MiB with the writer's own notes.

mod control;
mod poptrie;

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ipnet::{IpNet, Ipv6Net};

use super::{FibError, NO_ROUTE, check};
use crate::arena::{Epoch, zeroed};
use control::Control;
use poptrie::{LEAF, ROOT_BITS};

pub use poptrie::Ipv6Fib;

/// The writer's end of a table.
#[derive(Debug)]
pub struct Ipv6Routes {
    fib: Arc<Ipv6Fib>,
    control: Control,
}

impl Ipv6Routes {
    /// An empty table with room for so many nodes.
    ///
    /// # Errors
    /// [`FibError::Memory`].
    pub fn new(nodes_max: u32) -> Result<Self, FibError> {
        let nodes_max = nodes_max.min(LEAF / 4);
        // Leaves come in blocks of up to 64, mostly of 2 to 4 for a node.
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

    /// What forwarding threads look at.
    #[must_use]
    pub fn fib(&self) -> Arc<Ipv6Fib> {
        Arc::clone(&self.fib)
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.control.len()
    }

    /// True without routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nodes in use.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.control.nodes()
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Ipv6Net) -> Option<u32> {
        let (network, length) = parts(prefix);
        self.control.get(network, length)
    }

    /// Sets the next hop of a prefix; returns the former one. Bits of the address behind the prefix do not count.
    ///
    /// # Errors
    /// [`FibError`]; nothing has changed then.
    pub fn insert(&mut self, prefix: Ipv6Net, next_hop: u32) -> Result<Option<u32>, FibError> {
        check(next_hop)?;
        let (network, length) = parts(prefix);
        let former = self.control.set(network, length, Some(next_hop));
        if self.control.publish().is_err() {
            self.control.set(network, length, former);
            // Everything is as it was, for which there was room.
            drop(self.control.publish());
            return Err(FibError::Full(IpNet::V6(prefix)));
        }
        Ok(former)
    }

    /// Sets the next hops of many prefixes, and has them seen at the end: quicker than one by one.
    ///
    /// # Errors
    /// [`FibError`]; nothing has changed then.
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

    /// Removes a prefix; returns its next hop.
    ///
    /// # Errors
    /// [`FibError::Full`] when there is no room for what the change makes anew beside what is still looked at; nothing
    /// has changed then.
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

    /// Notes the epoch in which memory is taken out from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.control.set_epoch(epoch);
    }

    /// Puts to use again what was taken out before this epoch: every forwarding thread has ended what it was at then.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.control.reclaim(epoch);
    }
}

fn parts(prefix: Ipv6Net) -> (u128, u8) {
    let length = prefix.prefix_len();
    (Ipv6Addr::to_bits(prefix.addr()) & mask(length), length)
}

const fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - length),
    }
}
