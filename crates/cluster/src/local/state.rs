// SPDX-License-Identifier: Apache-2.0
//! State of the local cluster, a file in its state directory.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::durable::replace;
use quietwire_base::{ProcessId, read_regular};
use serde::{Deserialize, Serialize};

use super::error::{LocalError, io_error};

/// Name of the state file.
pub(super) const FILE: &str = "state.json";
/// Largest state file, octets.
const SIZE_MAX: u64 = 1 << 20;

/// State of a local cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalState {
    /// Version of Kubernetes.
    pub kubernetes: String,
    /// True when the node was Ready, and all simulated ones.
    pub is_ready: bool,
    /// The process that supervises the programs.
    pub keeper: Option<ProcessId>,
    /// The first process in the namespaces, as the host numbers it.
    pub inside: Option<ProcessId>,
    /// Directory of the programs, which scripts/build-cluster makes.
    pub programs: PathBuf,
    /// File with the address and the credentials of the administrator, inside the namespaces.
    pub kubeconfig: PathBuf,
    /// Directory of the logs.
    pub logs: PathBuf,
    /// Number of simulated nodes.
    pub simulated_nodes: u16,
    /// Names of the programs that were started.
    pub started: Vec<String>,
    /// Names of the programs that have ended by themselves.
    pub ended: Vec<String>,
    /// Directories that were made as mount points.
    pub made: Vec<PathBuf>,
}

impl LocalState {
    /// Reads the state; `None` if the directory has none.
    ///
    /// # Errors
    /// The file cannot be read, or is no state.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, LocalError> {
        let path = directory.join(FILE);
        let text = match read_regular(&path, SIZE_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(io_error(&path, "reading it"))?,
        };
        let parsed = serde_json::from_slice(&text).map_err(io::Error::other);
        parsed.map(Some).map_err(io_error(&path, "reading it"))
    }

    /// Writes the state.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, directory: &Path) -> Result<(), LocalError> {
        let path = directory.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other);
        text.and_then(|text| replace(&path, &text, 0o600))
            .map_err(io_error(&path, "writing it"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;

    use super::*;

    #[test]
    fn a_written_state_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(LocalState::read(directory.path()).unwrap(), None);
        let state = LocalState {
            keeper: ProcessId::own(),
            started: vec!["etcd".to_owned()],
            ..LocalState::default()
        };
        state.write(directory.path()).unwrap();
        assert_eq!(LocalState::read(directory.path()).unwrap(), Some(state));
        fs::write(directory.path().join(FILE), "{").unwrap();
        let error = LocalState::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }

    #[test]
    fn a_fifo_in_the_place_of_a_state_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        mkfifo(&path.join(FILE), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        // A FIFO that is read would block the test.
        let read = move || Ok(LocalState::read(&path).unwrap_err().to_string());
        let error = run_within(Duration::from_secs(60), read).unwrap();
        assert!(error.contains("not a regular file"), "{error}");
    }
}
