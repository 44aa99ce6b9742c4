// SPDX-License-Identifier: Apache-2.0
//! The socket as a file: made for its owner only, a dead process's removed, gone when the switch ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use quietwire_base::Fault;

use crate::config::CONTROL_SOCKET_DEFAULT;
use crate::error::SwitchError;

/// The listening control socket. Its file goes when this is dropped.
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
    /// Listens on `path`, with mode 0600. The directory of [`CONTROL_SOCKET_DEFAULT`] is made when it is not there, with
    /// mode 0700; any other has to exist.
    ///
    /// # Errors
    /// [`SwitchError::ControlSocket`] when another switch listens there, when something else stands in the way, or
    /// when the system refuses.
    pub(crate) fn listen(path: &Path) -> Result<Self, SwitchError> {
        let made_directory = make_directory(path)?;
        let listening = clear(path).and_then(|()| {
            let listener = UnixListener::bind(path).map_err(|cause| {
                wrong(path, format!("could not be made: {cause}"), Fault::Failed)
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
        prepared
            .map_err(|cause| wrong(path, format!("could not be set up: {cause}"), Fault::Failed))?;
        Ok(socket)
    }
}

/// Makes the directory of the default socket; returns it when it was not there.
fn make_directory(path: &Path) -> Result<Option<PathBuf>, SwitchError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if directory.is_dir() {
        return Ok(None);
    }
    if path != Path::new(CONTROL_SOCKET_DEFAULT) {
        return Err(wrong(
            path,
            format!(
                "the directory {} does not exist; make it first",
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
            format!("the directory could not be made: {cause}"),
            Fault::Failed,
        )),
    }
}

/// Removes a socket on which nobody listens any more.
fn clear(path: &Path) -> Result<(), SwitchError> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(wrong(
            path,
            "it exists and is not a socket, and is left alone; choose another path with --control-socket",
            Fault::BadInput,
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            tracing::info!(
                "the control socket {} of a switch that has died is removed",
                path.display()
            );
            fs::remove_file(path).map_err(|cause| {
                wrong(
                    path,
                    format!("could not be removed: {cause}"),
                    Fault::Failed,
                )
            })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // Whatever else it says (EAGAIN with a full backlog, EACCES): somebody is there.
        _ => Err(wrong(
            path,
            "another switch listens there; stop it, or choose another path with --control-socket",
            Fault::BadInput,
        )),
    }
}

fn remove_directory(directory: Option<&Path>) {
    if let Some(directory) = directory
        && let Err(error) = fs::remove_dir(directory)
    {
        // Others may have put their sockets there meanwhile.
        tracing::debug!("{} stays: {error}", directory.display());
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("{} could not be removed: {error}", self.path.display());
        }
        remove_directory(self.made_directory.as_deref());
    }
}
