// SPDX-License-Identifier: Apache-2.0
//! The socket file of the control socket: accessible by its owner only. A stale file of a dead process is replaced; the file is removed on
//! exit.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, lchown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use quietwire_base::{Fault, connect_within};
use quietwire_host::privileges::User;

use crate::config::CONTROL_SOCKET_DEFAULT;
use crate::error::SwitchError;

/// Mode of the socket's file.
const MODE: u32 = 0o600;
/// Time for a process that listens on the path to accept a connection, while its backlog is full.
const PROBE: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The listening control socket. Removes its file on drop.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    made_directory: Option<PathBuf>,
}

fn wrong(path: &Path, what: impl Into<String>, fault: Fault) -> SwitchError {
    SwitchError::ControlSocket {
        path: path.to_owned(),
        what: what.into(),
        fault,
    }
}

impl ControlSocket {
    /// Listens on `path`, with mode 0600. The directory of [`CONTROL_SOCKET_DEFAULT`] is created with mode 0700 if it does not exist. Any
    /// other directory must exist.
    ///
    /// # Errors
    /// [`SwitchError::ControlSocket`] if another switch listens on the path, if the path is not a socket, or if the system refuses.
    pub(crate) fn listen(path: &Path) -> Result<Self, SwitchError> {
        let made_directory = make_directory(path)?;
        let listening = clear(path).and_then(|()| {
            let set = |mode| fs::set_permissions(path, mode);
            bind_private(path, set).map_err(|cause| {
                let what = format!("cannot create the socket: {cause} (use another path)");
                wrong(path, what, Fault::of_path(&cause))
            })
        });
        let listener = match listening {
            Ok(listener) => listener,
            Err(error) => {
                remove_directory(made_directory.as_deref());
                return Err(error);
            }
        };
        Ok(Self {
            listener,
            path: path.to_owned(),
            made_directory,
        })
    }
}

impl ControlSocket {
    /// Makes a user the owner of the socket, and of its directory if the switch has created it.
    ///
    /// # Errors
    /// [`SwitchError::ControlSocket`] if the system refuses.
    pub(crate) fn give_to(&self, user: &User) -> Result<(), SwitchError> {
        let (uid, gid) = user.numbers();
        let paths = self.made_directory.iter().chain([&self.path]);
        for path in paths {
            lchown(path, Some(uid), Some(gid)).map_err(|cause| {
                let what = format!("cannot change the owner: {cause}");
                wrong(path, what, Fault::Failed)
            })?;
        }
        Ok(())
    }
}

/// Binds a socket whose file has mode 0600 from the moment it exists, because the kernel gives the file the mode of the socket
/// (unix_bind_bsd() of net/unix/af_unix.c). If the umask has removed bits, `set` sets the mode.
fn bind_private(
    path: &Path,
    set: impl FnOnce(fs::Permissions) -> io::Result<()>,
) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let prepare = || {
        if fs::symlink_metadata(path)?.permissions().mode() & 0o777 != MODE {
            set(fs::Permissions::from_mode(MODE))?;
        }
        listen(&socket, Backlog::new(BACKLOG)?).map_err(io::Error::from)
    };
    if let Err(error) = prepare() {
        fs::remove_file(path)?;
        return Err(error);
    }
    Ok(UnixListener::from(socket))
}

/// Creates the directory of the default socket. Returns its path if it did not exist before.
fn make_directory(path: &Path) -> Result<Option<PathBuf>, SwitchError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if directory.is_dir() {
        return Ok(None);
    }
    if path != Path::new(CONTROL_SOCKET_DEFAULT) {
        return Err(wrong(
            path,
            format!(
                "directory {} does not exist (create it first)",
                directory.display()
            ),
            Fault::BadInput,
        ));
    }
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(Some(directory.to_owned())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(cause) => Err(wrong(
            path,
            format!("cannot create its directory: {cause}"),
            Fault::Failed,
        )),
    }
}

/// Removes a stale socket that no process listens on.
fn clear(path: &Path) -> Result<(), SwitchError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(wrong(
            path,
            "file exists and is not a socket (use another path with --control-socket)",
            Fault::BadInput,
        ));
    }
    match connect_within(path, PROBE) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!("removed the stale control socket {}", path.display());
            fs::remove_file(path).map_err(|cause| {
                wrong(
                    path,
                    format!("cannot remove the stale socket: {cause}"),
                    Fault::Failed,
                )
            })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Any other error (a full backlog, EACCES) means that a process listens.
        _ => Err(wrong(
            path,
            "another switch is listening (stop it, or use another path with --control-socket)",
            Fault::BadInput,
        )),
    }
}

fn remove_directory(directory: Option<&Path>) {
    if let Some(directory) = directory
        && let Err(error) = fs::remove_dir(directory)
    {
        // Other processes may have created sockets in the directory.
        tracing::debug!("directory {} is not removed: {error}", directory.display());
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
        remove_directory(self.made_directory.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::net::UnixStream;

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::stat::umask;

    /// Binds in a thread with this umask. Returns the mode of the file and whether the mode had to be set.
    fn bound(mask: u32) -> (u32, bool) {
        std::thread::spawn(move || {
            // The umask of this thread only.
            unshare(CloneFlags::CLONE_FS).unwrap();
            umask(Mode::from_bits_truncate(mask));
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("switch.sock");
            let mut was_set = false;
            let set = |mode| {
                was_set = true;
                fs::set_permissions(&path, mode)
            };
            let listener = bind_private(&path, set).unwrap();
            UnixStream::connect(&path).unwrap();
            drop(listener);
            let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
            (mode & 0o777, was_set)
        })
        .join()
        .unwrap()
    }

    #[test]
    fn the_socket_has_its_mode_from_bind_on() {
        // A mode that is set afterwards would leave a moment with a wider one.
        assert_eq!(bound(0), (MODE, false));
        assert_eq!(bound(0o022), (MODE, false));
    }

    #[test]
    fn a_strict_umask_takes_nothing_from_the_mode() {
        assert_eq!(bound(0o777), (MODE, true));
    }
}
