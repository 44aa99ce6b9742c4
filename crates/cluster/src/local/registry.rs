// SPDX-License-Identifier: Apache-2.0
//! The one local cluster of a machine: its state directory, its lock, its end and its status.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::{Deadline, LockError, LockFile, ProcessId};
use serde::Serialize;

use super::cgroups;
use super::enter::in_cluster;
use super::error::{LocalError, io_error};
use super::state::LocalState;

/// File below the state directory that the process of the cluster has locked.
const LOCK: &str = "lock";
/// Time that the process of the cluster has to remove everything.
const DOWN: Duration = Duration::from_secs(60);
/// Time that killed processes have to end.
const KILL: Duration = Duration::from_secs(10);
/// Time for one request of the status.
const REQUEST: Duration = Duration::from_secs(10);

/// Makes the state directory, and locks it for this process.
///
/// # Errors
/// [`LocalError::Up`] if another process has it.
pub(super) fn claim(directory: &Path) -> Result<LockFile, LocalError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(io_error(directory, "making it"))?;
    let lock = LockFile::try_acquire(&directory.join(LOCK))?;
    remove_left(directory, Path::new(cgroups::ROOT))?;
    Ok(lock)
}

/// Removes what a cluster has left, from the state directory and from the machine. The caller has the lock. Processes end with the first
/// one in the namespaces, which ends with the process of the cluster, also if that is killed.
///
/// # Errors
/// [`LocalError::Left`], or an error of the operating system. The state stays then, so that the call can be repeated.
pub(super) fn remove_left(directory: &Path, cgroup_root: &Path) -> Result<(), LocalError> {
    // A state that cannot be read names nothing that could be removed by name.
    let state = LocalState::read(directory).unwrap_or_else(|error| {
        tracing::warn!("{error}");
        None
    });
    let state = state.unwrap_or_default();
    if let Some(inside) = state.inside.filter(|inside| inside.is_alive()) {
        inside
            .end(KILL)
            .map_err(|error| LocalError::Left(format!("process {}: {error}", inside.pid)))?;
    }
    cgroups::remove(cgroup_root)?;
    for made in &state.made {
        match fs::remove_dir(made) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LocalError::Left(format!("{}: {error}", made.display())));
            }
            _ => {}
        }
    }
    let listed = fs::read_dir(directory).map_err(io_error(directory, "listing it"))?;
    for entry in listed {
        let path = entry.map_err(io_error(directory, "listing it"))?.path();
        if path.file_name().is_some_and(|name| name == LOCK) {
            continue;
        }
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        removed.map_err(io_error(&path, "removing it"))?;
    }
    Ok(())
}

/// Removes the state directory, whose lock the caller has.
pub(super) fn release(directory: &Path, lock: LockFile) -> Result<(), LocalError> {
    let removed = fs::remove_dir_all(directory).map_err(io_error(directory, "removing it"));
    drop(lock);
    removed
}

/// Ends the local cluster and removes everything that it made, also after its process was killed. Returns false if nothing was there.
///
/// # Errors
/// [`LocalError::Left`], or an error of the operating system. The call can be repeated.
pub fn take_down(directory: &Path) -> Result<bool, LocalError> {
    if !directory.exists() {
        return Ok(false);
    }
    let path = directory.join(LOCK);
    if let Some(owner) = LockFile::holder(&path)? {
        let process = owner.pid().and_then(ProcessId::of);
        let process = process.ok_or(LocalError::Up(owner))?;
        process
            .end(DOWN)
            .map_err(|error| LocalError::Left(format!("{owner}: {error}")))?;
    }
    let lock = match LockFile::acquire(&path, Deadline::after(KILL)) {
        // Its process has removed everything, and the directory.
        Err(LockError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok(true);
        }
        lock => lock?,
    };
    remove_left(directory, Path::new(cgroups::ROOT))?;
    release(directory, lock)?;
    Ok(true)
}

/// Returns whether the cluster of a process was started completely. A state that cannot be read yet is that of another one.
#[must_use]
pub fn is_ready(directory: &Path, keeper: Option<ProcessId>) -> bool {
    let state = LocalState::read(directory).ok().flatten();
    keeper.is_some() && state.is_some_and(|state| state.is_ready && state.keeper == keeper)
}

/// Report on the local cluster.
#[derive(Clone, Debug, Serialize)]
pub struct StatusReport {
    /// Its state.
    #[serde(flatten)]
    pub state: LocalState,
    /// True if the process of the cluster runs.
    pub is_running: bool,
    /// Reply of the API server to `/readyz`, or the error.
    pub api_server: String,
    /// Number of nodes that are Ready.
    pub ready_nodes: usize,
}

impl StatusReport {
    /// Returns whether everything runs and is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_running
            && self.state.ended.is_empty()
            && self.api_server == "ok"
            && self.ready_nodes > usize::from(self.state.simulated_nodes)
    }
}

/// Reports on the local cluster.
///
/// # Errors
/// [`LocalError::Down`], or an error of the operating system.
pub fn status(directory: &Path) -> Result<StatusReport, LocalError> {
    let state = LocalState::read(directory)?.ok_or(LocalError::Down)?;
    let is_running = state.keeper.is_some_and(ProcessId::is_alive);
    let ask = |words: &[&str]| -> Result<String, String> {
        let kubectl = in_cluster(&state, words).map_err(|error| error.to_string())?;
        let finished = kubectl.run(Deadline::after(REQUEST));
        finished.map_err(|error| error.to_string())?.into_result()
    };
    let (api_server, nodes) = match is_running {
        true => (
            ask(&["kubectl", "get", "--raw", "/readyz"]),
            ask(&["kubectl", "get", "nodes", "--no-headers"]),
        ),
        false => (Err("not running".to_owned()), Ok(String::new())),
    };
    Ok(StatusReport {
        is_running,
        api_server: api_server.unwrap_or_else(|error| error),
        ready_nodes: ready_nodes(&nodes.unwrap_or_default()),
        state,
    })
}

/// Returns the number of nodes that are Ready in the output of `kubectl get nodes`.
pub(super) fn ready_nodes(listed: &str) -> usize {
    let is_ready = |line: &&str| line.split_whitespace().nth(1) == Some("Ready");
    listed.lines().filter(is_ready).count()
}

/// Returns the directories of the machine that the cluster makes as mount points, after it has written them into the state.
///
/// # Errors
/// An error of the operating system.
pub(super) fn make_mount_points(
    directory: &Path,
    state: &mut LocalState,
    absent: Vec<PathBuf>,
) -> Result<(), LocalError> {
    state.made = absent;
    state.write(directory)?;
    for path in &state.made {
        fs::create_dir(path).map_err(io_error(path, "making it"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_cluster_left_is_removed_and_nothing_else() {
        let (state, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let groups = machine.path().join("cgroup");
        fs::create_dir_all(groups.join("cpuset").join(cgroups::NAME).join("kubepods")).unwrap();
        let absent = vec![machine.path().join("kubelet"), machine.path().join("cni")];
        let mut found = LocalState::default();
        make_mount_points(state.path(), &mut found, absent.clone()).unwrap();
        assert!(absent.iter().all(|path| path.is_dir()));
        fs::create_dir(state.path().join("pki")).unwrap();
        fs::write(state.path().join("pki/admin.key"), "").unwrap();
        fs::write(state.path().join(LOCK), "").unwrap();
        remove_left(state.path(), &groups).unwrap();
        assert!(!absent.iter().any(|path| path.exists()));
        assert!(!groups.join("cpuset").join(cgroups::NAME).exists());
        assert!(groups.join("cpuset").exists());
        let names = fs::read_dir(state.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [LOCK]);
        remove_left(state.path(), &groups).unwrap();
    }

    #[test]
    fn a_directory_that_is_in_use_is_named_and_the_call_can_be_repeated() {
        let (state, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = machine.path().join("kubelet");
        let mut found = LocalState::default();
        make_mount_points(state.path(), &mut found, vec![made.clone()]).unwrap();
        fs::write(made.join("file"), "").unwrap();
        let error = remove_left(state.path(), machine.path()).unwrap_err();
        assert!(matches!(&error, LocalError::Left(text) if text.contains("kubelet")));
        fs::remove_file(made.join("file")).unwrap();
        remove_left(state.path(), machine.path()).unwrap();
        assert!(!made.exists());
    }

    #[test]
    fn without_a_cluster_there_is_nothing_to_take_down_or_to_report() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("none");
        assert!(!take_down(&absent).unwrap());
        assert!(matches!(status(&absent), Err(LocalError::Down)));
    }

    #[test]
    fn the_state_of_an_earlier_cluster_is_not_that_of_this_one() {
        let directory = tempfile::tempdir().unwrap();
        let own = ProcessId::own();
        assert!(!is_ready(directory.path(), own));
        let mut state = LocalState {
            keeper: own,
            is_ready: true,
            ..LocalState::default()
        };
        state.write(directory.path()).unwrap();
        assert!(is_ready(directory.path(), own));
        assert!(!is_ready(directory.path(), None));
        let earlier = own.map(|own| ProcessId {
            start_time: own.start_time - 1,
            ..own
        });
        state.keeper = earlier;
        state.write(directory.path()).unwrap();
        assert!(!is_ready(directory.path(), own));
    }

    #[test]
    fn nodes_that_are_ready_are_counted() {
        let listed = "local Ready <none> 5s v1\nsim-0001 NotReady <none> 5s v1\nsim-0002 Ready,SchedulingDisabled x 5s v1\n";
        assert_eq!(ready_nodes(listed), 1);
        assert_eq!(ready_nodes(""), 0);
    }
}
