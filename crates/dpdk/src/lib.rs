// SPDX-License-Identifier: Apache-2.0
//! Safe bindings to DPDK: EAL, mempool, mbuf bursts, Ethernet ports and their
//! queues, threads registered with DPDK, and their seccomp filters. All unsafe code of the project is here;
//! no raw pointer leaves this crate's API. It makes no decisions about packets.
//!
//! Reference counts determine lifetimes: a queue keeps its port started, a
//! port keeps its mempool and the EAL. A port cannot be started twice
//! ([`Port::start`] takes it by value) or used after its stop (it stops when its
//! last queue and handle are dropped).
#![allow(unsafe_code)]
// Frames, and answers of the kernel and of drivers: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod bell;
mod burst;
mod checksums;
pub mod cycles;
mod devices_max;
mod eal;
mod ebpf;
mod error;
#[cfg(test)]
mod fuzz;
mod heap;
mod kernel_forwarding;
mod library_log;
mod mempool;
mod pcap;
pub mod pci;
mod port;
mod precheck;
mod promiscuity;
mod registered;
pub mod ring;
mod runtime_directory;
pub mod seccomp;
mod segment;
mod steer;
mod sys;
#[cfg(test)]
mod testing;
pub mod thread;
mod uri;

pub use bell::Bell;
pub use burst::{Blank, Burst, Drain, Mbuf};
pub use devices_max::{DEVICES_MAX, too_many_devices};
pub use eal::{Eal, EalOptions, HugePages, Memory};
pub use error::Error;
pub use kernel_forwarding::{
    KERNEL_ADDRESSES_MAX, KernelCounts, KernelForwarding, KernelPort, KernelStation,
};
pub use mempool::Mempool;
pub use port::{
    FilledSlots, FrameReader, FrameSource, FramesTaken, FreeSlots, Guest, PeerNamespaces, Port,
    PortHandle, PortOptions, PortStats, RingStock, RowTaken, RxQueue, Scratch, SlotBuffer,
    StartedPort, TxQueue, XdpMode, remove_left_flow_rules, remove_left_veth_pairs,
    remove_left_xdp_programs, restore_left_functions, restore_left_tag_features,
};
pub use quietwire_base::BURST_MAX;
pub use registered::Registered;
pub use runtime_directory::{file_prefix, remove_left_runtime_directories};
pub use segment::{ExclusiveFrame, HeaderLengths, LargeKind, MERGED_MAX, MergedFrame};
pub use steer::{CardTarget, STEER_RULES_MAX, SteerHits, SteerMatch, SteerRule, SteerTarget};
pub use uri::{FlowControl, FunctionSettings, PortKind, PortUri, Role, UriError};

/// Returns the version of the DPDK library in use (`DPDK 22.11.11`).
#[must_use]
pub fn version() -> String {
    // SAFETY: rte_version returns a pointer to a static, terminated string.
    unsafe { std::ffi::CStr::from_ptr(sys::rte_version()) }
        .to_string_lossy()
        .into_owned()
}
