// SPDX-License-Identifier: Apache-2.0
//! XDP programs of interfaces in the kernel: rtnetlink(7) and bpf(2).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use nix::libc;
use nix::net::if_::if_nametoindex;

use quietwire_base::rtnetlink::{self, attribute, parse_link, push};

use crate::ebpf::bpf;

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct InterfaceId {
    /// Number of its network namespace.
    pub(in crate::port) network: u64,
    /// Its index there.
    pub(in crate::port) index: u32,
}

/// Returns the number of the network namespace of the calling thread.
pub(in crate::port) fn network() -> Option<u64> {
    Some(fs::metadata("/proc/thread-self/ns/net").ok()?.ino())
}

/// Returns the interface with this name in the network namespace of the calling thread.
pub(in crate::port) fn interface(interface: &str) -> io::Result<InterfaceId> {
    Ok(InterfaceId {
        network: fs::metadata("/proc/thread-self/ns/net")?.ino(),
        index: if_nametoindex(interface)?,
    })
}

/// A program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    /// Its number in the kernel.
    pub(super) program: u32,
    /// Attach mode (linux/if_link.h, `XDP_ATTACHED_*`).
    pub(super) mode: u8,
}

// linux/if_link.h.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1 << 0;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_REPLACE: u32 = 1 << 4;

const NESTED: u16 = 1 << 15;

/// Returns the program on an interface.
///
/// # Errors
/// The kernel's error, such as ENODEV.
pub(super) fn attached(index: u32) -> io::Result<Option<Attached>> {
    let reply = ask(libc::RTM_GETLINK, 0, index, &[])?;
    let (_, attributes) = parse_link(&reply).unwrap_or_default();
    let Some(xdp) = attribute(attributes, IFLA_XDP) else {
        return Ok(None);
    };
    let program = attribute(xdp, IFLA_XDP_PROG_ID).and_then(|octets| octets.first_chunk());
    let mode = attribute(xdp, IFLA_XDP_ATTACHED).and_then(<[u8]>::first);
    Ok(program.zip(mode).map(|(program, mode)| Attached {
        program: u32::from_ne_bytes(*program),
        mode: *mode,
    }))
}

impl Attached {
    /// Returns the flag with which a program is attached in this mode (linux/if_link.h, `XDP_FLAGS_*_MODE`).
    ///
    /// # Errors
    /// A mode without flag, such as several programs at once.
    pub(super) fn mode_flag(self) -> io::Result<u32> {
        match self.mode {
            XDP_ATTACHED_DRV => Ok(XDP_FLAGS_DRV_MODE),
            XDP_ATTACHED_SKB => Ok(XDP_FLAGS_SKB_MODE),
            mode => Err(io::Error::other(format!("attached in mode {mode}"))),
        }
    }
}

/// Detaches a program from an interface, if it is still the one there. `mode` is that of [`Attached::mode_flag`].
///
/// # Errors
/// The kernel's error.
pub(super) fn detach(index: u32, mode: u32, program: &Program) -> io::Result<()> {
    let expected = (IFLA_XDP_EXPECTED_FD, program.file.as_raw_fd().to_ne_bytes());
    set_program(index, -1, mode | XDP_FLAGS_REPLACE, Some(expected))
}

/// Attaches a program to an interface without one.
///
/// # Errors
/// The kernel's error.
pub(super) fn attach(index: u32, mode: u32, program: &Program) -> io::Result<()> {
    let flags = mode | XDP_FLAGS_UPDATE_IF_NOEXIST;
    set_program(index, program.file.as_raw_fd(), flags, None)
}

fn set_program(
    index: u32,
    file: RawFd,
    flags: u32,
    expected: Option<(u16, [u8; 4])>,
) -> io::Result<()> {
    let mut xdp = Vec::new();
    let wanted = [
        (IFLA_XDP_FD, file.to_ne_bytes()),
        (IFLA_XDP_FLAGS, flags.to_ne_bytes()),
    ];
    for (kind, value) in wanted.into_iter().chain(expected) {
        push(&mut xdp, kind, &value)?;
    }
    let mut attributes = Vec::new();
    push(&mut attributes, IFLA_XDP | NESTED, &xdp)?;
    ask(libc::RTM_SETLINK, libc::NLM_F_ACK, index, &attributes).map(drop)
}

/// Asks about the link of an interface, or changes it.
fn ask(kind: u16, flags: libc::c_int, index: u32, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let link = rtnetlink::link(index, 0, 0, attributes);
    rtnetlink::ask(rtnetlink::open()?, kind, flags, &link)
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Program {
    file: OwnedFd,
    /// When it was loaded, ns since boot.
    pub(super) load_time: u64,
}

impl Program {
    /// Opens a program by its number. Requires `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn open(number: u32) -> io::Result<Self> {
        let file = bpf::open_program(number)?;
        let load_time = bpf::load_time(file.as_fd())?;
        Ok(Self { file, load_time })
    }
}
