// SPDX-License-Identifier: Apache-2.0
//! XDP programs of interfaces in the kernel: rtnetlink(7) and bpf(2).

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use nix::libc;
use nix::net::if_::if_nametoindex;

use quietwire_base::rtnetlink::{self, attribute, parse_link, push};

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

// linux/bpf.h.
const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// The begin of struct bpf_prog_info. The kernel fills as much as is given.
#[repr(C)]
#[derive(Default)]
struct Information {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    instructions: [u64; 2],
    load_time: u64,
}

/// union bpf_attr for the information of an object.
#[repr(C)]
struct Question {
    file: u32,
    length: u32,
    information: u64,
}

impl Program {
    /// Opens a program by its number. Requires `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn open(number: u32) -> io::Result<Self> {
        // The number, and no flags.
        let attributes = [number, 0, 0];
        // SAFETY: the kernel reads as many octets as are given.
        let file = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_GET_FD_BY_ID,
                attributes.as_ptr(),
                mem::size_of_val(&attributes),
            )
        };
        let file = i32::try_from(file).map_err(io::Error::other)?;
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which this value owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let mut information = Information::default();
        let question = Question {
            file: file.as_raw_fd().cast_unsigned(),
            length: u32::try_from(mem::size_of_val(&information)).map_err(io::Error::other)?,
            information: (&raw mut information).expose_provenance() as u64,
        };
        // SAFETY: the kernel reads the question, and writes at most as much information as it says.
        let code = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_OBJ_GET_INFO_BY_FD,
                &raw const question,
                mem::size_of_val(&question),
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            load_time: information.load_time,
        })
    }
}
