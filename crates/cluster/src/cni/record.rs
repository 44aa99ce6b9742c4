// SPDX-License-Identifier: Apache-2.0
//! Records of attachments: files that remain if a container ends without DEL, and a lock for the calls of one attachment.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quietwire_base::durable::{self, remove_if_exists};
use quietwire_base::{BootId, Deadline, LockError, LockFile, read_regular};
use quietwire_switch::config::AddPort;
use serde::{Deserialize, Serialize};

use super::config::{NetworkConfig, PortKind};
use super::host_device::Moved;
use super::port;
use super::reply::{CniError, ErrorCode, Ip, Route};

/// Mode of directories: the sockets in them are accessible to their owner only.
pub(super) const DIRECTORY_MODE: u32 = 0o755;
/// Mode of records.
const FILE_MODE: u32 = 0o644;
/// Largest record, octets: some times the largest network configuration.
const OCTETS_MAX: u64 = 1 << 20;
/// Most damaged files that are remembered as logged.
const NOTED_MAX: usize = 1024;
/// Root directory of the node in the PID namespace of the node, also in a container with other mounts.
pub(super) const OF_INIT: &str = "proc/1/root";

/// Identity of a directory: the same in all mount namespaces, and another one if the directory is created again.
type Identity = (u64, u64);

/// Record of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Name of the network. Another network can have the same prefix in the names of ports.
    pub(super) network: String,
    /// Kind of the port.
    pub(super) port: PortKind,
    /// Control socket of the switch.
    pub(super) control_socket: PathBuf,
    /// Path of the container's network namespace.
    pub(super) netns: PathBuf,
    /// Directory of this path.
    pub(super) netns_directory: Option<Identity>,
    /// Boot in which ADD ran.
    pub(super) boot: Option<BootId>,
    /// Port and settings of the interface. `None`: ADD has not ended, the interface is one of the node, or the port is
    /// that of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) attached: Option<Attached>,
    /// Port of a device of the pod, as the network has it. `None`: the attachment has a port of its own, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<AddPort>,
    /// Interface of the node, as it was there. `None`: the attachment has another kind of port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moved: Option<Moved>,
}

/// Port of an attachment and the settings of its interface, as ADD made them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attached {
    /// The port, with the MAC address of the interface.
    pub(super) port: AddPort,
    /// Name of the interface in the container. `None`: the port has a socket.
    pub(super) interface: Option<String>,
    /// Addresses of the interface.
    pub(super) ips: Vec<Ip>,
    /// Routes through the interface.
    pub(super) routes: Vec<Route>,
}

/// Returns the identity of a directory.
pub(super) fn identity(directory: &Path) -> Option<Identity> {
    let found = fs::metadata(directory).ok()?;
    Some((found.dev(), found.ino()))
}

impl Record {
    /// Returns the record of an attachment that ADD makes in a network namespace.
    pub(super) fn new(config: &NetworkConfig, netns: &Path) -> Self {
        Self {
            network: config.name.clone(),
            port: config.port,
            control_socket: config.control_socket.clone(),
            netns: netns.to_owned(),
            netns_directory: netns.parent().and_then(identity),
            boot: BootId::current(),
            attached: None,
            device: None,
            moved: None,
        }
    }

    /// Returns the file of the network namespace below a root directory of the node. `None` if the directory of the file is absent there, or
    /// is not the one in which the namespace was created.
    pub(super) fn netns_below(&self, root: &Path) -> Option<PathBuf> {
        // This link leads out of the root directory if its target is an absolute path.
        let netns = self.netns.as_path();
        let path = match netns.strip_prefix("/var/run") {
            Ok(rest) => Path::new("run").join(rest),
            Err(_) => netns.strip_prefix("/").unwrap_or(netns).to_owned(),
        };
        let path = root.join(path);
        let is_same_directory = self.netns_directory.is_some()
            && path.parent().and_then(identity) == self.netns_directory;
        is_same_directory.then_some(path)
    }

    /// Reads a record; `None` if the file does not exist, or is damaged. The log names a damaged file.
    pub(super) fn read(path: &Path) -> Option<Self> {
        Self::read_checked(path).unwrap_or_else(|problem| {
            if is_first_problem(path) {
                tracing::warn!(
                    "{}: not a record of an attachment, and ignored: {problem}",
                    path.display()
                );
            }
            None
        })
    }

    /// Reads a record; `None` if the file does not exist.
    ///
    /// # Errors
    /// The problem of a damaged file.
    fn read_checked(path: &Path) -> Result<Option<Self>, String> {
        match read_regular(path, OCTETS_MAX) {
            Ok(octets) => serde_json::from_slice(&octets)
                .map(Some)
                .map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    /// Error of the operating system.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        durable::replace(path, &text, FILE_MODE)
    }
}

/// Notes that a file is damaged. Returns true for the first time: the agent reads all files again and again.
fn is_first_problem(path: &Path) -> bool {
    static NOTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.len() >= NOTED_MAX {
        noted.clear();
    }
    noted.insert(path.to_owned())
}

/// Returns the root directories below which this process may see files of the node: its own, and that of the first process.
pub(super) fn roots(root: &Path) -> [PathBuf; 2] {
    [root.to_owned(), root.join(OF_INIT)]
}

/// Removes the socket of a port with its directory, and the record, if they exist.
///
/// # Errors
/// [`ErrorCode::Io`].
pub(super) fn remove_files(directory: &Path, kind: PortKind, name: &str) -> Result<(), CniError> {
    let failed = |path: &Path, error: io::Error| {
        let what = format!("removing {}: {error}", path.display());
        CniError::new(ErrorCode::Io, what)
    };
    if let Some(socket) = port::socket_in(directory, kind, name) {
        remove_if_exists(&socket).map_err(|error| failed(&socket, error))?;
        let of_socket = directory.join(name);
        if let Err(error) = fs::remove_dir(&of_socket)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(&of_socket, error));
        }
    }
    let record = port::record_in(directory, name);
    remove_if_exists(&record).map_err(|error| failed(&record, error))
}

/// Returns the names of all ports that have a record in a directory.
///
/// # Errors
/// [`ErrorCode::Io`]. A directory that does not exist has none.
pub(super) fn names(directory: &Path) -> Result<BTreeSet<String>, CniError> {
    let failed = |error: io::Error| {
        let what = format!("reading {}: {error}", directory.display());
        CniError::new(ErrorCode::Io, what)
    };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let file = entry.map_err(failed)?.file_name();
        let file = file.to_str().unwrap_or_default();
        let name = file.strip_suffix(port::RECORD);
        names.extend(name.filter(|name| port::is_name(name)).map(str::to_owned));
    }
    Ok(names)
}

/// Lock of an attachment: while a call has it, no other one changes the attachment. The file exists only meanwhile.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub(super) struct AttachmentLock {
    path: PathBuf,
    /// Released after the file is removed: a call that has opened the removed file notices that, and creates a new one.
    _lock: LockFile,
}

impl AttachmentLock {
    /// Acquires the lock of a port, and creates the directory. Returns `None` if another call has the lock after `wait`.
    ///
    /// # Errors
    /// [`ErrorCode::Io`].
    pub(super) fn acquire(
        directory: &Path,
        name: &str,
        wait: Duration,
    ) -> Result<Option<Self>, CniError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory);
        made.map_err(|error| {
            let what = format!("creating {}: {error}", directory.display());
            CniError::new(ErrorCode::Io, what)
        })?;
        let path = directory.join(format!("{name}.lock"));
        match LockFile::acquire(&path, Deadline::after(wait)) {
            Ok(lock) => Ok(Some(Self { path, _lock: lock })),
            Err(LockError::Busy { .. }) => Ok(None),
            Err(error) => Err(CniError::new(ErrorCode::Io, error.to_string())),
        }
    }
}

impl Drop for AttachmentLock {
    fn drop(&mut self) {
        // A file that stays is locked by no process, and the next call removes it.
        drop(remove_if_exists(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;

    use super::*;

    #[test]
    fn a_lock_excludes_other_calls_of_its_attachment_and_leaves_no_file() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("cni");
        let acquire = |name: &str| AttachmentLock::acquire(&directory, name, Duration::ZERO);
        let first = acquire("c00000000000001").unwrap().unwrap();
        assert!(acquire("c00000000000001").unwrap().is_none());
        drop(acquire("c00000000000002").unwrap().unwrap());
        drop(first);
        drop(acquire("c00000000000001").unwrap().unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn records_are_read_as_they_are_written_and_other_files_are_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c0123456789abcd.network");
        assert_eq!(Record::read_checked(&path), Ok(None));
        for (damaged, problem) in [("lan-a", "expected value"), ("{", "EOF"), ("null", "null")] {
            fs::write(&path, damaged).unwrap();
            let error = Record::read_checked(&path).unwrap_err();
            assert!(error.contains(problem), "{error}");
            assert_eq!(Record::read(&path), None);
        }
        assert!(!is_first_problem(&path) && is_first_problem(place.path()));
        let endless = place.path().join("c0123456789abce.network");
        mkfifo(&endless, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        // A FIFO that is read would block the test.
        let read = run_within(Duration::from_secs(60), move || Ok(Record::read(&endless)));
        assert_eq!(read.unwrap(), None);
        let record = Record {
            network: "lan-b".to_owned(),
            port: PortKind::VhostUser,
            control_socket: "/run/quietwire/switch.sock".into(),
            netns: "/run/netns/pod-1".into(),
            netns_directory: identity(place.path()),
            boot: BootId::current(),
            attached: None,
            device: None,
            moved: None,
        };
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path), Some(record));
        // Only files with the name of a port are records.
        for other in [".network", "pod.network", "c0123456789abcd.lock"] {
            fs::write(place.path().join(other), "lan-a").unwrap();
        }
        let found = names(place.path()).unwrap();
        let both = ["c0123456789abcd", "c0123456789abce"];
        assert_eq!(found, both.map(str::to_owned).into());
        assert!(names(&place.path().join("absent")).unwrap().is_empty());
    }
}
