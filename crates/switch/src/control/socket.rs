// SPDX-License-Identifier: Apache-2.0
//! The socket file of the control socket: accessible by its owner only. A stale file of a dead process is replaced; the file is removed on
//! exit.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use quietwire_base::Fault;

use crate::config::CONTROL_SOCKET_DEFAULT;
use crate::error::SwitchError;

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
            let listener = UnixListener::bind(path).map_err(|cause| {
                wrong(
                    path,
                    format!("cannot create the socket: {cause}"),
                    Fault::Failed,
                )
            })?;
            Ok(listener)
        });
        let listener = match listening {
            Ok(listener) => listener,
            Err(error) => {
                remove_directory(made_directory.as_deref());
                return Err(error);
            }
        };
        let socket = Self {
            listener,
            path: path.to_owned(),
            made_directory,
        };
        let prepared = fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .and_then(|()| socket.listener.set_nonblocking(true));
        prepared.map_err(|cause| {
            wrong(
                path,
                format!("cannot configure the socket: {cause}"),
                Fault::Failed,
            )
        })?;
        Ok(socket)
    }
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
    match UnixStream::connect(path) {
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
        // Any other error (EAGAIN with a full backlog, EACCES) means that a process listens.
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
