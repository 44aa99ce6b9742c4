// SPDX-License-Identifier: Apache-2.0
//! Unix sockets that carry messages and descriptors.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, listen, recvmsg, sendmsg, socket,
};
use nix::sys::stat::{Mode, fchmod};

/// Who may use a socket that a port listens on: the owner.
const SOCKET_MODE: u32 = 0o600;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Descriptors of one message at most. More are closed by the kernel, and the message is refused.
pub(crate) const DESCRIPTORS_MAX: usize = 9;

/// Where a socket is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// In the file system.
    Path(PathBuf),
    /// In the abstract namespace (unix(7)), which has no modes.
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
    /// The address of a URI's path: one that begins with '@' is abstract.
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

/// Whether message boundaries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// memif.
    Packets,
    /// vhost-user.
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

/// Listens at an address. A socket in the file system has its mode from the moment on at which its name exists, since the
/// kernel gives the name the mode of the socket (unix_bind() of net/unix/af_unix.c).
///
/// # Errors
/// What the kernel said, also when the mode could not be set.
pub(crate) fn listen_at(address: &Address, kind: Kind) -> io::Result<OwnedFd> {
    let socket = open(kind)?;
    fchmod(&socket, Mode::from_bits_truncate(SOCKET_MODE))?;
    bind(socket.as_raw_fd(), &address.unix()?)?;
    if let Address::Path(path) = address {
        let mode = || Ok::<_, io::Error>(path.symlink_metadata()?.permissions().mode() & 0o777);
        // A process's umask may have taken more away than that.
        if mode()? != SOCKET_MODE {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        }
        let mode = mode()?;
        if mode != SOCKET_MODE {
            return Err(io::Error::other(format!(
                "the mode of {address} is {mode:o} instead of {SOCKET_MODE:o}"
            )));
        }
    }
    listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(socket)
}

/// Accepts a connection; `None` when none waits.
///
/// # Errors
/// What the kernel said, such as `EMFILE`.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    match accept4(listener.as_fd().as_raw_fd(), flags) {
        // SAFETY: the kernel made the descriptor for this call, and nothing else knows of it.
        Ok(descriptor) => Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) })),
        Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects to an address, without waiting.
///
/// # Errors
/// What the kernel said: nobody listens, or too many wait already.
pub(crate) fn connect_to(address: &Address, kind: Kind) -> io::Result<OwnedFd> {
    let socket = open(kind)?;
    connect(socket.as_raw_fd(), &address.unix()?)?;
    Ok(socket)
}

/// Sends a whole message without waiting.
///
/// # Errors
/// What the kernel said; `WouldBlock` or `WriteZero` when the peer does not read.
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

/// Receives octets, at most as many as `octets` holds, and the descriptors that came with them, without waiting. 0 octets are the
/// end of the connection.
///
/// # Errors
/// What the kernel said; `WouldBlock` when nothing has come; `InvalidData` when a message had too many descriptors.
pub(crate) fn receive(
    socket: impl AsFd,
    octets: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; DESCRIPTORS_MAX]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let mut parts = [IoSliceMut::new(octets)];
    let message = recvmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut control),
        flags,
    )?;
    for item in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = item {
            // SAFETY: the kernel made these descriptors for this call, and nothing else knows of them.
            files.extend(
                descriptors
                    .into_iter()
                    .map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }),
            );
        }
    }
    if message.flags.contains(MsgFlags::MSG_CTRUNC) || files.len() > DESCRIPTORS_MAX {
        files.clear();
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message had too many descriptors",
        ));
    }
    Ok(message.bytes)
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
    fn too_many_descriptors_are_closed() {
        let (_directory, client, server) = pair(Kind::Packets);
        let file = std::fs::File::open("/dev/null").unwrap();
        let files = vec![&file; DESCRIPTORS_MAX + 1];
        send(&client, b"x", &files).unwrap();
        let mut files = Vec::new();
        let error = receive(&server, &mut [0; 8], &mut files).unwrap_err();
        assert_eq!((error.kind(), files.len()), (io::ErrorKind::InvalidData, 0));
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
