// SPDX-License-Identifier: Apache-2.0
//! Unix sockets that carry messages and descriptors.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    connect, getsockopt, listen, sendmsg, socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};

/// Mode of a listening socket: access by the owner only.
const SOCKET_MODE: u32 = 0o600;
/// Backlog of connections to accept.
const BACKLOG: i32 = 16;
/// Most descriptors per message. The kernel closes further ones, and the message is refused.
pub(crate) const DESCRIPTORS_MAX: usize = 9;

/// Address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A path in the file system.
    Path(PathBuf),
    /// A name in the abstract namespace (unix(7)), which has no modes.
    Abstract(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

impl Address {
    /// Returns the address of a URI's path. A path that starts with '@' is abstract.
    pub(crate) fn of(path: &Path) -> Self {
        match path.to_str().and_then(|text| text.strip_prefix('@')) {
            Some(name) => Self::Abstract(name.to_owned()),
            None => Self::Path(path.to_owned()),
        }
    }

    fn unix(&self) -> io::Result<UnixAddr> {
        Ok(match self {
            Self::Path(path) => UnixAddr::new(path)?,
            Self::Abstract(name) => UnixAddr::new_abstract(name.as_bytes())?,
        })
    }
}

/// Socket type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SOCK_SEQPACKET, of memif.
    Packets,
    /// SOCK_STREAM, of vhost-user.
    Stream,
}

fn open(kind: Kind) -> io::Result<OwnedFd> {
    let kind = match kind {
        Kind::Packets => SockType::SeqPacket,
        Kind::Stream => SockType::Stream,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, kind, flags, None)?)
}

/// Listens at an address. A socket in the file system has its mode as soon as its name exists, because the
/// kernel gives the name the mode of the socket (unix_bind() of net/unix/af_unix.c).
///
/// # Errors
/// The kernel's error, also if the mode cannot be set.
pub(crate) fn listen_at(address: &Address, kind: Kind) -> io::Result<OwnedFd> {
    let socket = open(kind)?;
    fchmod(&socket, Mode::from_bits_truncate(SOCKET_MODE))?;
    bind(socket.as_raw_fd(), &address.unix()?)?;
    if let Address::Path(path) = address {
        require_mode(path, |mode| fs::set_permissions(path, mode))?;
    }
    listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(socket)
}

/// Ensures the mode of a socket. If the process's umask has removed more bits, `set` sets the mode.
fn require_mode(path: &Path, set: impl FnOnce(Permissions) -> io::Result<()>) -> io::Result<()> {
    let mode = || Ok::<_, io::Error>(path.symlink_metadata()?.permissions().mode() & 0o777);
    if mode()? != SOCKET_MODE {
        set(Permissions::from_mode(SOCKET_MODE))?;
    }
    let mode = mode()?;
    if mode == SOCKET_MODE {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the mode of {} is {mode:o} instead of {SOCKET_MODE:o}",
        path.display()
    )))
}

/// Accepts a connection. `None` if none is waiting.
///
/// # Errors
/// The kernel's error, such as `EMFILE`.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    match accept4(listener.as_fd().as_raw_fd(), flags) {
        // SAFETY: the kernel created the descriptor for this call, and it has no other owner.
        Ok(descriptor) => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects to an address without blocking.
///
/// # Errors
/// The kernel's error: there is no listener, or its backlog is full.
pub(crate) fn connect_to(address: &Address, kind: Kind) -> io::Result<OwnedFd> {
    let socket = open(kind)?;
    connect(socket.as_raw_fd(), &address.unix()?)?;
    Ok(socket)
}

/// Returns the process ID of the peer at the time of the connection (unix(7), SO_PEERCRED). None for a process
/// in a PID namespace that is not visible here.
pub(crate) fn peer_process(socket: impl AsFd) -> Option<i32> {
    let credentials = getsockopt(&socket, sockopt::PeerCredentials).ok()?;
    Some(credentials.pid()).filter(|pid| *pid > 0)
}

/// Sends a complete message without blocking.
///
/// # Errors
/// The kernel's error; `WouldBlock` or `WriteZero` if the peer does not read.
pub(crate) fn send(socket: impl AsFd, octets: &[u8], files: &[impl AsFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(|file| file.as_fd().as_raw_fd()).collect();
    let rights = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let parts = [IoSlice::new(octets)];
    let sent = sendmsg::<()>(socket.as_fd().as_raw_fd(), &parts, control, flags, None)?;
    if sent < octets.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// Receives at most `octets.len()` octets and their descriptors without blocking. 0 octets mean the end of the
/// connection.
///
/// # Errors
/// The kernel's error; `WouldBlock` if there is no data; `InvalidData` if a message has too many descriptors.
pub(crate) fn receive(
    socket: impl AsFd,
    octets: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = Control([0; CONTROL_LEN]);
    let mut part = libc::iovec {
        iov_base: octets.as_mut_ptr().cast(),
        iov_len: octets.len(),
    };
    // SAFETY: a structure of integers and pointers for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_LEN;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the message names buffers of these lengths, which outlive the call.
    let count = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    take_descriptors(&message, files);
    if message.msg_flags & libc::MSG_CTRUNC != 0 || files.len() > DESCRIPTORS_MAX {
        files.clear();
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message had too many descriptors",
        ));
    }
    Ok(count)
}

/// Space for the control data of a message with [`DESCRIPTORS_MAX`] descriptors.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a constant of a few octets"
)]
// SAFETY: a computation without preconditions.
const CONTROL_LEN: usize =
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) } as usize;

/// Control data with the alignment of their headers.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Takes ownership of the descriptors of a received message. The kernel creates some descriptors even for a truncated message
/// (MSG_CTRUNC).
fn take_descriptors(message: &libc::msghdr, files: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel filled the message's control buffer; the macros stay within msg_controllen octets of it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let octets = ((*header).cmsg_len as usize)
                    .saturating_sub(libc::CMSG_LEN(0) as usize)
                    .min(CONTROL_LEN);
                let count = octets.checked_div(size_of::<RawFd>());
                for index in 0..count.unwrap_or_default() {
                    // Created by the kernel for this call, without another owner.
                    let descriptor = data.add(index).read_unaligned();
                    files.push(OwnedFd::from_raw_fd(descriptor));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(kind: Kind) -> (tempfile::TempDir, OwnedFd, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s"));
        let listener = listen_at(&address, kind).unwrap();
        let client = connect_to(&address, kind).unwrap();
        let server = accept(&listener).unwrap().unwrap();
        (directory, client, server)
    }

    #[test]
    fn messages_and_descriptors_cross() {
        for kind in [Kind::Packets, Kind::Stream] {
            let (_directory, client, server) = pair(kind);
            let file = std::fs::File::open("/dev/null").unwrap();
            send(&client, b"hello", &[file]).unwrap();
            let (mut octets, mut files) = ([0; 64], Vec::new());
            assert_eq!(receive(&server, &mut octets, &mut files).unwrap(), 5);
            assert_eq!((&octets[..5], files.len()), (&b"hello"[..], 1));
            let error = receive(&server, &mut octets, &mut files).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            drop(client);
            assert_eq!(receive(&server, &mut octets, &mut files).unwrap(), 0);
        }
    }

    #[test]
    fn the_process_at_the_other_end_is_known() {
        let (_directory, client, server) = pair(Kind::Packets);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(peer_process(&client), Some(own));
        assert_eq!(peer_process(&server), Some(own));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer_process(&file), None);
    }

    #[test]
    fn too_many_descriptors_are_closed() {
        let (directory, client, server) = pair(Kind::Packets);
        let path = directory.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        let files = vec![&file; DESCRIPTORS_MAX + 1];
        send(&client, b"x", &files).unwrap();
        let mut files = Vec::new();
        let error = receive(&server, &mut [0; 8], &mut files).unwrap_err();
        assert_eq!((error.kind(), files.len()), (io::ErrorKind::InvalidData, 0));
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        assert_eq!(links.filter(|link| *link == path).count(), 1);
    }

    #[test]
    fn a_socket_has_its_mode_when_its_name_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = listen_at(&Address::Path(path.clone()), Kind::Stream).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, SOCKET_MODE);
    }

    #[test]
    fn a_mode_that_cannot_be_set_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = listen_at(&Address::Path(path.clone()), Kind::Stream).unwrap();
        let open_to_all = || fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        open_to_all();
        let refuse = |_| Err(io::ErrorKind::PermissionDenied.into());
        let error = require_mode(&path, refuse).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        // A file system without modes reports success.
        let error = require_mode(&path, |_| Ok(())).unwrap_err();
        assert!(
            error.to_string().contains("is 666 instead of 600"),
            "{error}"
        );
        require_mode(&path, |mode| fs::set_permissions(&path, mode)).unwrap();
        require_mode(&path, refuse).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_umask_takes_nothing_from_the_mode() {
        use nix::sched::{CloneFlags, unshare};
        use nix::sys::stat::umask;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let address = Address::Path(path.clone());
        let listen = move || {
            // The umask of this thread only.
            unshare(CloneFlags::CLONE_FS).unwrap();
            umask(Mode::from_bits_truncate(0o777));
            listen_at(&address, Kind::Stream).unwrap()
        };
        let _listener = std::thread::spawn(listen).join().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_peer_that_does_not_read_is_an_error_and_no_wait() {
        let (_directory, client, _server) = pair(Kind::Stream);
        let octets = [0; 65536];
        let none: [OwnedFd; 0] = [];
        let error = (0..1000).find_map(|_| send(&client, &octets, &none).err());
        assert!(error.is_some());
    }

    #[test]
    fn abstract_names_begin_with_an_at_sign() {
        let name = format!("@quietwire-test-{}", std::process::id());
        let address = Address::of(Path::new(&name));
        assert_eq!(address.to_string(), name);
        let listener = listen_at(&address, Kind::Packets).unwrap();
        connect_to(&address, Kind::Packets).unwrap();
        accept(&listener).unwrap().unwrap();
    }
}
