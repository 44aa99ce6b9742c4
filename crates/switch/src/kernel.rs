// SPDX-License-Identifier: Apache-2.0
//! Kernel path of the router. A tap carries packets to the router itself, so that the kernel's programs (routing daemons, SSH, ping) use
//! the router's addresses. The router follows the kernel's routes and neighbours by netlink, so that it forwards by what a routing daemon
//! learns.

mod dump;
mod follow;
#[cfg(test)]
mod fuzz;
mod neighbours;
mod netlink;
mod tap;

pub(crate) use follow::{Event, KernelTarget, RouteMonitor};
pub(crate) use neighbours::{NeighbourEvent, NeighbourMonitor};
pub(crate) use tap::Tap;
