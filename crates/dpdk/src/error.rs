// SPDX-License-Identifier: Apache-2.0
//! Errors and their kinds of fault.

use std::ffi::CStr;
use std::path::PathBuf;

use quietwire_base::Fault;

use crate::uri::{PortUri, UriError};

/// An error of DPDK or of its use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI of a port is invalid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The EAL can be started only once per process.
    #[error("DPDK's EAL is already started in this process (it can be started only once)")]
    EalTwice,
    /// The EAL did not start.
    #[error("cannot start DPDK's EAL with `{arguments}`: {cause} ({advice})")]
    Eal {
        /// Arguments of the EAL.
        arguments: String,
        /// Error of rte_eal_init.
        cause: String,
        /// Remedy.
        advice: String,
    },
    /// Huge pages are required, but too few are free.
    #[error(
        "{wanted_mib} MiB of huge pages required, but only {free_mib} MiB free (reserve some with `echo {pages} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`, or set huge pages to 'auto')"
    )]
    HugePages {
        /// Required memory, MiB.
        wanted_mib: u32,
        /// Memory in free 2 MiB pages, MiB.
        free_mib: u64,
        /// Required number of 2 MiB pages.
        pages: u64,
    },
    /// A mempool cannot be created.
    #[error(
        "no memory for the buffer pool '{name}' of {count} buffers: {cause} (increase --memory-mib)"
    )]
    Mempool {
        /// Name of the pool.
        name: String,
        /// Required number of buffers.
        count: u32,
        /// Error of DPDK.
        cause: String,
    },
    /// The network interface in a URI does not exist.
    #[error(
        "port '{port}': network interface '{interface}' does not exist (`ip link` lists interfaces)"
    )]
    NoInterface {
        /// Name of the port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// The directory of a socket does not exist.
    #[error(
        "port '{port}': the directory of the socket {path} does not exist (create it, or use another path)"
    )]
    NoSocketDirectory {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// Another process listens on the socket.
    #[error("port '{port}': another process listens on {path} (stop it, or use another path)")]
    SocketInUse {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// The socket of the peer does not exist.
    #[error("port '{port}': socket {path} does not exist (start the peer with role=server first)")]
    NoPeer {
        /// Name of the port.
        port: String,
        /// The socket.
        path: PathBuf,
    },
    /// The path of a socket exists and is not a socket.
    #[error("port '{port}': {path} exists and is not a socket (left unchanged; use another path)")]
    NotASocket {
        /// Name of the port.
        port: String,
        /// The file.
        path: PathBuf,
    },
    /// The kernel cannot create tap interfaces.
    #[error(
        "port '{port}': /dev/net/tun does not exist (run `modprobe tun` if the kernel has the driver as a module)"
    )]
    NoTunDevice {
        /// Name of the port.
        port: String,
    },
    /// The interface of a tap port exists and is not a tap.
    #[error(
        "port '{port}': network interface '{interface}' exists and is not a tap (left unchanged; use another name, or open it with af-packet:{interface} or af-xdp:{interface})"
    )]
    NotATap {
        /// Name of the port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// An end of a veth port has the name of an existing interface.
    #[error("port '{port}': network interface '{interface}' {what}")]
    VethName {
        /// Name of the port.
        port: String,
        /// The interface.
        interface: String,
        /// Problem and remedy.
        what: String,
    },
    /// The file of a pcap port cannot be read or written.
    #[error("port '{port}': {path} {what}")]
    PcapFile {
        /// Name of the port.
        port: String,
        /// The file.
        path: PathBuf,
        /// Problem and remedy.
        what: String,
    },
    /// The PCI address of a port does not exist or is not a network card.
    #[error("port '{port}': {address} {what}")]
    NoPciDevice {
        /// Name of the port.
        port: String,
        /// The address.
        address: String,
        /// Problem and remedy.
        what: String,
    },
    /// A PCI device that DPDK cannot use in its current state.
    #[error("port '{port}': {address} {what}")]
    PciNotReady {
        /// Name of the port.
        port: String,
        /// The address.
        address: String,
        /// Problem and remedy.
        what: String,
    },
    /// DPDK could not open a port.
    #[error("port '{port}' ({uri}) could not be opened: {step}: {cause}")]
    PortOpen {
        /// Name of the port.
        port: String,
        /// Its URI.
        uri: String,
        /// The step that failed.
        step: &'static str,
        /// The reason, and what to do.
        cause: String,
    },
    /// Frames of an interface cannot be steered.
    #[error("port '{port}': cannot steer frames of '{uri}': {cause}")]
    Steering {
        /// Name of the port.
        port: String,
        /// Its URI.
        uri: String,
        /// The reason.
        cause: String,
    },
    /// The kernel cannot forward frames between ports.
    #[error("kernel forwarding is unavailable: {step}: {cause}")]
    KernelForwarding {
        /// The failed step.
        step: &'static str,
        /// Its error.
        cause: String,
    },
    /// A size or a count that a port does not support.
    #[error("port '{port}': {what}")]
    PortOptions {
        /// Name of the port.
        port: String,
        /// Problem and valid values.
        what: String,
    },
    /// A thread cannot be started, pinned, prioritised or registered.
    #[error("{what}: {cause}")]
    Thread {
        /// The action.
        what: String,
        /// Error of the system.
        cause: String,
    },
    /// A thread cannot be given a seccomp filter.
    #[error(
        "cannot restrict the system calls of a thread: {cause} (use a kernel with CONFIG_SECCOMP_FILTER, or `--seccomp off`)"
    )]
    Seccomp {
        /// Error of the system.
        cause: String,
    },
}

impl Error {
    /// Returns the error of a filter.
    pub(crate) fn seccomp(cause: impl ToString) -> Self {
        Self::Seccomp {
            cause: cause.to_string(),
        }
    }

    /// Returns the error with the URI of the port, if it is one of its opening.
    pub(crate) fn of_uri(self, uri: &PortUri) -> Self {
        match self {
            Self::PortOpen {
                port, step, cause, ..
            } => Self::PortOpen {
                port,
                uri: uri.to_string(),
                step,
                cause,
            },
            other => other,
        }
    }

    /// Returns the kind of fault.
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
            | Self::VethName { .. }
            | Self::PcapFile { .. }
            | Self::NoPciDevice { .. }
            | Self::PortOptions { .. }
            | Self::PortOpen { .. } => Fault::BadInput,
            Self::HugePages { .. }
            | Self::Mempool { .. }
            | Self::Eal { .. }
            | Self::PciNotReady { .. }
            | Self::NoTunDevice { .. }
            | Self::Seccomp { .. } => Fault::MissingPrerequisite,
            Self::EalTwice
            | Self::Steering { .. }
            | Self::KernelForwarding { .. }
            | Self::Thread { .. } => Fault::Failed,
        }
    }
}

/// Returns the text of a (positive or negative) DPDK error number.
pub(crate) fn text(errno: i32) -> String {
    // SAFETY: rte_strerror returns a terminated string valid in this thread until its next call.
    unsafe { CStr::from_ptr(crate::sys::rte_strerror(errno.abs())) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the text of the calling thread's rte_errno.
pub(crate) fn last() -> String {
    // SAFETY: reads a thread-local integer.
    text(unsafe { crate::sys::qw_errno() })
}
