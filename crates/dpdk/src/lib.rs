// SPDX-License-Identifier: Apache-2.0
//! Safe bindings to DPDK: EAL, mempool, mbuf bursts, Ethernet ports and their
//! queues, threads known to DPDK. All unsafe code of the project lives here;
//! no raw pointer leaves this crate's API. Decides nothing about packets.
//!
//! Lifetimes are carried by reference counts: a queue keeps its port started, a
//! port keeps its mempool and the EAL. A port cannot be started twice
//! ([`Port::start`] takes it by value) or used after its stop (it stops when its
//! last queue and handle are dropped).
#![allow(unsafe_code)]

mod bell;
mod burst;
pub mod cycles;
mod eal;
mod error;
mod library_log;
mod mempool;
mod pcap;
pub mod pci;
mod place;
mod port;
mod promiscuity;
mod registered;
pub mod ring;
mod segment;
mod sys;
#[cfg(test)]
mod testing;
pub mod thread;
mod uri;

pub use bell::Bell;
pub use burst::{Blank, Burst, Drain, Mbuf};
pub use eal::{Eal, EalOptions, HugePages, Memory};
pub use error::Error;
pub use mempool::Mempool;
pub use port::{Guest, Port, PortHandle, PortOptions, PortStats, RxQueue, StartedPort, TxQueue};
pub use quietwire_base::BURST_MAX;
pub use quietwire_base::Fault;
pub use registered::Registered;
pub use segment::HeaderLengths;
pub use uri::{PortUri, Role, UriError};

/// Version of the DPDK that the program runs on, as the library says it (`DPDK 22.11.11`).
#[must_use]
pub fn version() -> String {
    // SAFETY: rte_version returns a pointer to a static, terminated string.
    unsafe { std::ffi::CStr::from_ptr(sys::rte_version()) }
        .to_string_lossy()
        .into_owned()
}
