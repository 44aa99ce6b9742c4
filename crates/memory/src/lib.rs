// SPDX-License-Identifier: Apache-2.0
//! Memory that another process can write to, truncate or punch holes into at any time, and what two parties need to share
//! it: mappings with checked access, sealing, a handler for page faults beyond the file, eventfds that cannot block, and
//! gates that keep a mapping valid while a thread uses it.
//!
//! Must not know what the memory holds: no rings, no packets, no DPDK.
//!
//! Reads and writes of shared memory go through atomics ([`SharedSlice`]) or copies ([`Span`]), never through references to
//! plain octets, because another process may change them meanwhile.
#![allow(unsafe_code)]

mod copy;
mod doorbell;
pub mod gate;
mod huge;
mod mapping;
mod sigbus;
mod slice;
mod span;

pub use copy::{is_short, prefetch, prefetch_address};
pub use doorbell::{Doorbell, is_eventfd};
pub use huge::prefer_huge_pages;
pub use mapping::{MapError, Mapping, Sealing};
pub use slice::{SharedSlice, Word};
pub use span::Span;

/// Size of a cache line, octets.
pub const CACHE_LINE: usize = 64;
