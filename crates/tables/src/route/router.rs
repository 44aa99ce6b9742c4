// SPDX-License-Identifier: Apache-2.0
//! Router state of forwarding threads: interfaces, tables and next hops.

use std::sync::Arc;

use super::interfaces::Interfaces;
use super::kernel_filter::KernelFilter;
use super::next_hops::NextHops;
use crate::fib::{Ipv4Fib, Ipv6Fib};

/// Forwarding tables of a VRF.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// IPv4 table.
    pub ipv4: Arc<Ipv4Fib>,
    /// IPv6 table.
    pub ipv6: Arc<Ipv6Fib>,
}

/// Router state of forwarding threads.
#[derive(Clone, Debug)]
pub struct Router {
    /// Interfaces.
    pub interfaces: Interfaces,
    /// VRFs, by number.
    pub vrfs: Vec<Vrf>,
    /// Next hops of all VRFs.
    pub next_hops: Arc<NextHops>,
    /// Kernel filters.
    pub kernel_filter: Option<Arc<KernelFilter>>,
}
