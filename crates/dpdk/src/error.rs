// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, and whose fault it is.

use std::ffi::CStr;
use std::path::PathBuf;

use quietwire_base::Fault;

use crate::uri::UriError;

/// An error of DPDK or of its use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI of a port cannot be read.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The EAL may be started once in a process.
    #[error("DPDK's EAL was started before in this process, and it can be started only once")]
    EalTwice,
    /// The EAL did not start.
    #[error("DPDK's EAL did not start with `{arguments}`: {cause}. {advice}")]
    Eal {
        /// The arguments it was given.
        arguments: String,
        /// What rte_eal_init said.
        cause: String,
        /// What to do.
        advice: String,
    },
    /// Huge pages were required and there are too few.
    #[error(
        "{wanted_mib} MiB of huge pages were asked for and {free_mib} MiB are free; reserve some with `echo {pages} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`, or ask for huge pages 'auto'"
    )]
    HugePages {
        /// Memory asked for.
        wanted_mib: u32,
        /// Memory in free 2 MiB pages.
        free_mib: u64,
        /// Number of 2 MiB pages that would do.
        pages: u64,
    },
    /// A mempool could not be made.
    #[error(
        "no memory for the buffer pool '{name}' of {count} buffers: {cause}; give more with --memory-mib"
    )]
    Mempool {
        /// Name of the pool.
        name: String,
        /// Buffers asked for.
        count: u32,
        /// What DPDK said.
        cause: String,
    },
    /// A network interface named in a URI does not exist.
    #[error(
        "port '{port}': there is no network interface '{interface}'; `ip link` lists those that exist"
    )]
    NoInterface {
        /// Name of the port.
        port: String,
        /// The interface asked for.
        interface: String,
    },
    /// The directory of a socket does not exist.
    #[error("port '{port}': the directory of the socket {path} does not exist; make it first")]
    NoSocketDirectory {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// Somebody listens on a socket already.
    #[error(
        "port '{port}': another process listens on {path} already; stop it or choose another path"
    )]
    SocketInUse {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// The peer that a port connects to is not there.
    #[error(
        "port '{port}': there is no socket {path}; start the peer, which has role=server, first"
    )]
    NoPeer {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// A file that is not a socket stands where a socket should be made.
    #[error(
        "port '{port}': {path} exists and is not a socket, and is left alone; choose another path"
    )]
    NotASocket {
        /// Name of the port.
        port: String,
        /// The file.
        path: PathBuf,
    },
    /// The kernel makes no tap interfaces here.
    #[error(
        "port '{port}': there is no /dev/net/tun; `modprobe tun` makes it where the kernel has the driver as a module"
    )]
    NoTunDevice {
        /// Name of the port.
        port: String,
    },
    /// An interface that is no tap stands where a tap should be made.
    #[error(
        "port '{port}': the network interface '{interface}' exists and is not a tap, and is left alone; choose another name, or take it over with af-packet:{interface} or af-xdp:{interface}"
    )]
    NotATap {
        /// Name of the port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// The file of a pcap port cannot be read or written.
    #[error("port '{port}': {path} {what}")]
    PcapFile {
        /// Name of the port.
        port: String,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A PCI address that is nobody's, or not a network card's.
    #[error("port '{port}': {address} {what}")]
    NoPciDevice {
        /// Name of the port.
        port: String,
        /// The address.
        address: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A PCI device that DPDK cannot drive as things are.
    #[error("port '{port}': {address} {what}")]
    PciNotReady {
        /// Name of the port.
        port: String,
        /// The address.
        address: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// DPDK could not open a port.
    #[error("port '{port}' ({uri}) could not be opened: {step}: {cause}")]
    PortOpen {
        /// Name of the port.
        port: String,
        /// Its URI.
        uri: String,
        /// What failed.
        step: &'static str,
        /// The reason, and what to do.
        cause: String,
    },
    /// A size or a count that a port cannot have.
    #[error("port '{port}': {what}")]
    PortOptions {
        /// Name of the port.
        port: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A thread could not be pinned, prioritised or registered.
    #[error("{what}: {cause}")]
    Thread {
        /// What was tried.
        what: String,
        /// What the system said.
        cause: String,
    },
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Uri(_)
            | Self::NoInterface { .. }
            | Self::NoSocketDirectory { .. }
            | Self::SocketInUse { .. }
            | Self::NotASocket { .. }
            | Self::NoPeer { .. }
            | Self::NotATap { .. }
            | Self::PcapFile { .. }
            | Self::NoPciDevice { .. }
            | Self::PortOptions { .. }
            | Self::PortOpen { .. } => Fault::BadInput,
            Self::HugePages { .. }
            | Self::Mempool { .. }
            | Self::Eal { .. }
            | Self::PciNotReady { .. }
            | Self::NoTunDevice { .. } => Fault::Lacks,
            Self::EalTwice | Self::Thread { .. } => Fault::Failed,
        }
    }
}

/// Text of a (positive or negative) DPDK error number.
pub(crate) fn text(errno: i32) -> String {
    // SAFETY: rte_strerror returns a terminated string valid in this thread until its next call.
    unsafe { CStr::from_ptr(crate::sys::rte_strerror(errno.abs())) }
        .to_string_lossy()
        .into_owned()
}

/// Text of the calling thread's rte_errno.
pub(crate) fn last() -> String {
    // SAFETY: reads a thread-local integer.
    text(unsafe { crate::sys::qw_errno() })
}
