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
// Sizes and offsets from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]
// An offset that the kernel or a peer gives is 64 bits wide, as is an address.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("quietwire requires addresses of 64 bits");

/// Atomics of shared memory. Models of rings and tables replace them, with the rest of this crate, by those of a model checker
/// (`models/memory`).
pub use std::sync::atomic;

mod copy;
mod crc;
mod doorbell;
pub mod gate;
mod huge;
mod mapping;
mod nodes;
mod sigbus;
mod slice;
mod slot_buffer;
mod span;
mod sum;
mod word;

pub use copy::{is_short, prefetch, prefetch_address};
pub use crc::crc32c_by_instruction;
pub use doorbell::{Doorbell, is_eventfd};
pub use huge::prefer_huge_pages;
pub use mapping::{MapError, Mapping, Sealing};
pub use nodes::octets_by_node;
pub use slice::{SharedSlice, Word};
pub use slot_buffer::SlotBuffer;
pub use span::Span;
pub use sum::sum_of_words;

/// Size of a cache line, octets.
pub const CACHE_LINE: usize = 64;
