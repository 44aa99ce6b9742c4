// SPDX-License-Identifier: Apache-2.0
//! What forwarding threads know of the router: interfaces, tables and next hops.

use std::sync::Arc;

use super::interfaces::Interfaces;
use super::kernel_filter::KernelFilter;
use super::next_hops::NextHops;
use crate::fib::{Ipv4Fib, Ipv6Fib};

/// The tables of a VRF.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// IPv4.
    pub ipv4: Arc<Ipv4Fib>,
    /// IPv6.
    pub ipv6: Arc<Ipv6Fib>,
}

/// What forwarding threads know of the router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Interfaces.
    pub interfaces: Interfaces,
    /// VRFs, by number.
    pub vrfs: Vec<Vrf>,
    /// Next hops of all VRFs.
    pub next_hops: Arc<NextHops>,
    /// What the kernel gets beside what is for the router itself.
    pub kernel_filter: Option<Arc<KernelFilter>>,
}
