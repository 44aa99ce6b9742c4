// SPDX-License-Identifier: Apache-2.0
//! The one local cluster of a machine: its state directory, its lock, its end and its status.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::durable::remove_if_exists;
use quietwire_base::{Deadline, LockError, LockFile, ProcessId};
use serde::Serialize;

use super::cgroups;
use super::enter::in_cluster;
use super::error::{LocalError, io_error};
use super::state::{FILE as STATE, LocalState};

/// File below the state directory that the process of the cluster has locked.
const LOCK: &str = "lock";
/// Time that the process of the cluster has to remove everything.
const DOWN: Duration = Duration::from_secs(60);
/// Time that killed processes have to end.
const KILL: Duration = Duration::from_secs(10);
/// Time for one request of the status.
const REQUEST: Duration = Duration::from_secs(10);

/// Locks of a cluster: that of its state directory, and that of the machine, whose control groups and mount points are those of one cluster.
#[derive(Debug)]
pub(super) struct Claim {
    _directory: LockFile,
    _machine: LockFile,
}

/// Makes the state directory, and locks it and the machine for this process.
///
/// # Errors
/// [`LocalError::Up`] if the machine has a cluster, [`LocalError::Foreign`] if the directory has other files.
pub(super) fn claim(directory: &Path, cgroup_root: &Path) -> Result<Claim, LocalError> {
    let machine = lock_machine(cgroup_root)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(io_error(directory, "making it"))?;
    check_own(directory)?;
    let lock = LockFile::try_acquire(&directory.join(LOCK))?;
    remove_left(directory, cgroup_root)?;
    Ok(Claim {
        _directory: lock,
        _machine: machine,
    })
}

/// Locks the directory of the control groups, which each cluster of the machine has in common with the others.
fn lock_machine(cgroup_root: &Path) -> Result<LockFile, LocalError> {
    let opened = File::open(cgroup_root).map_err(io_error(cgroup_root, "opening it"))?;
    Ok(LockFile::try_acquire_data(opened, cgroup_root)?)
}

/// Checks that a directory is that of a cluster, because everything in it is going to be removed: it has a state, or nothing but the lock.
fn check_own(directory: &Path) -> Result<(), LocalError> {
    let has_state = || LocalState::read(directory).map(|state| state.is_some());
    // A cluster makes its state first and removes it last, so a directory between the two has one at the first or the second look.
    if has_state()? || has_only_lock(directory)? || has_state()? {
        return Ok(());
    }
    Err(LocalError::Foreign {
        directory: directory.to_owned(),
    })
}

/// Returns whether a directory has at most a lock file, and a state that is being written.
fn has_only_lock(directory: &Path) -> Result<bool, LocalError> {
    let being_written = format!(".{STATE}.");
    let listed = match fs::read_dir(directory) {
        // Its cluster has ended meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        listed => listed.map_err(io_error(directory, "listing it"))?,
    };
    for entry in listed {
        let entry = entry.map_err(io_error(directory, "listing it"))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != LOCK && name != STATE && !name.starts_with(&being_written) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes what a cluster has left, from the state directory and from the machine. The caller has the locks. Processes end with the first
/// one in the namespaces, which ends with the process of the cluster, also if that is killed. The state is removed last.
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
        if path
            .file_name()
            .is_some_and(|name| name == LOCK || name == STATE)
        {
            continue;
        }
        let removed = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&path),
            _ => fs::remove_file(&path),
        };
        removed.map_err(io_error(&path, "removing it"))?;
    }
    let state = directory.join(STATE);
    remove_if_exists(&state).map_err(io_error(&state, "removing it"))
}

/// Removes the state directory, in which nothing but the lock is left, and releases the locks.
pub(super) fn release(directory: &Path, claim: Claim) -> Result<(), LocalError> {
    let removed = fs::remove_dir_all(directory).map_err(io_error(directory, "removing it"));
    drop(claim);
    removed
}

/// Ends the local cluster and removes everything that it made, also after its process was killed. Returns false if nothing was there.
///
/// # Errors
/// [`LocalError::Foreign`], [`LocalError::Left`], [`LocalError::Up`] if the machine has a cluster in another directory, or an error of the
/// operating system. The call can be repeated.
pub fn take_down(directory: &Path) -> Result<bool, LocalError> {
    take_down_in(directory, Path::new(cgroups::ROOT))
}

fn take_down_in(directory: &Path, cgroup_root: &Path) -> Result<bool, LocalError> {
    let path = directory.join(LOCK);
    if !directory.exists() {
        return Ok(false);
    }
    check_own(directory)?;
    if !path.exists() {
        return Ok(false);
    }
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
    let machine = lock_machine(cgroup_root)?;
    remove_left(directory, cgroup_root)?;
    let claim = Claim {
        _directory: lock,
        _machine: machine,
    };
    release(directory, claim)?;
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
    fn remains_of_a_killed_cluster_are_removed_and_no_other_files() {
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
    fn a_directory_with_files_of_others_is_refused_and_left_alone() {
        let groups = tempfile::tempdir().unwrap();
        for names in [&["notes"][..], &["notes", LOCK], &["pki/ca.key", LOCK]] {
            let directory = tempfile::tempdir().unwrap();
            let paths: Vec<PathBuf> = names
                .iter()
                .map(|name| directory.path().join(name))
                .collect();
            for path in &paths {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "own").unwrap();
            }
            let claimed = claim(directory.path(), groups.path()).unwrap_err();
            let taken = take_down_in(directory.path(), groups.path()).unwrap_err();
            for error in [claimed, taken] {
                assert!(matches!(&error, LocalError::Foreign { .. }), "{error}");
            }
            for path in &paths {
                assert_eq!(fs::read_to_string(path).unwrap(), "own");
            }
            let count = fs::read_dir(directory.path()).unwrap().count();
            assert_eq!(count, names.len(), "{names:?}");
        }
        // A file of this name that another program wrote.
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(STATE), "{\"version\": 4}").unwrap();
        fs::write(directory.path().join(LOCK), "").unwrap();
        assert!(claim(directory.path(), groups.path()).is_err());
        assert!(take_down_in(directory.path(), groups.path()).is_err());
        assert!(directory.path().join(STATE).exists());
    }

    #[test]
    fn a_machine_has_one_cluster_whatever_its_directory() {
        let (groups, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (work.path().join("first"), work.path().join("second"));
        let claimed = claim(&first, groups.path()).unwrap();
        LocalState::default().write(&first).unwrap();
        let error = claim(&second, groups.path()).unwrap_err();
        assert!(matches!(&error, LocalError::Up(_)), "{error}");
        assert!(!second.exists());
        // Remains of a killed cluster in another directory are removed after the end of this one: its groups have the same names.
        fs::create_dir(&second).unwrap();
        LocalState::default().write(&second).unwrap();
        fs::write(second.join(LOCK), "").unwrap();
        let error = take_down_in(&second, groups.path()).unwrap_err();
        assert!(matches!(&error, LocalError::Up(_)), "{error}");
        assert!(second.join(STATE).exists());
        remove_left(&first, groups.path()).unwrap();
        release(&first, claimed).unwrap();
        assert!(!first.exists());
        assert!(take_down_in(&second, groups.path()).unwrap());
        assert!(!second.exists());
    }

    #[test]
    fn without_a_cluster_there_is_nothing_to_take_down_or_to_report() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("none");
        assert!(!take_down(&absent).unwrap());
        // An empty directory stays.
        assert!(!take_down_in(directory.path(), directory.path()).unwrap());
        assert!(directory.path().exists());
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
