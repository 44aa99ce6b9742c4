// SPDX-License-Identifier: Apache-2.0
//! The kernel beside the router: a tap for packets to the router itself, so that the kernel's own programs (routing daemons,
//! SSH, ping) have the router's addresses; and the kernel's routes and neighbours, followed by netlink, so that what such a
//! daemon learns forwards.

mod follow;
mod neighbours;
mod netlink;
mod tap;

pub(crate) use follow::{Event, Follower, KernelTarget};
pub(crate) use neighbours::{NeighbourEvent, NeighbourFollower};
pub(crate) use tap::Tap;
