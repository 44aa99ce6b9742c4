// SPDX-License-Identifier: Apache-2.0
//! Interfaces that merge data into frames for another one, which gets its frames from them.
//!
//! A network card and a veth pair need no change: while an XDP program is attached to an interface, the kernel merges no frames there
//! (net/core/gro.c, `netif_elide_gro`), and the other end of a pair sends no data of several segments (drivers/net/veth.c). Below a macvlan
//! or VLAN interface, neither applies: the interface below has no program.

use std::io;

use super::located::{LocatedInterface, lower_interface, other_end};
use super::record::{MERGED, SEGMENTED};
use crate::port::xdp_program::kernel::InterfaceId;

/// Most interfaces below one another (include/linux/netdevice.h, `MAX_NEST_DEV`).
const NESTED_MAX: usize = 8;

/// Another interface whose features decide on the frames that an interface receives.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) located: LocatedInterface,
    /// Index of the interface of the caller's namespace that ends together with this one: its other end, or itself.
    pub(super) twin: u32,
    /// Features that make frames longer than the MTU.
    pub(super) features: &'static [&'static str],
}

/// Adds the interfaces that merge data into frames for an interface of the caller's namespace: those below it, and the other end of the pair
/// of the lowest one.
///
/// # Errors
/// The kernel's error, or one of them is in a namespace that is not found. Those before it are added.
pub(super) fn sources(own: InterfaceId, sources: &mut Vec<Source>) -> io::Result<()> {
    let mut lowest = own;
    for _ in 0..NESTED_MAX {
        let Some(id) = lower_interface(lowest)? else {
            break;
        };
        lowest = id;
        sources.push(Source {
            located: LocatedInterface {
                id,
                namespace: None,
            },
            twin: id.index,
            features: &MERGED,
        });
    }
    if lowest != own
        && let Some(located) = other_end(lowest)?
    {
        sources.push(Source {
            located,
            twin: lowest.index,
            features: &SEGMENTED,
        });
    }
    Ok(())
}
