// SPDX-License-Identifier: Apache-2.0
//! What bindgen made of DPDK's headers and the shim.
#![allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

// rte_mbuf_core.h: two cache lines (RTE_CACHE_LINE_MIN_SIZE), asserted there too.
const _: () = assert!(size_of::<rte_mbuf>() == 128);
