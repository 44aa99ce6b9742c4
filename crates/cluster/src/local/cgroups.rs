// SPDX-License-Identifier: Apache-2.0
//! Control groups of the local cluster: one directory in each hierarchy, below which kubelet makes those of pods (cgroups(7)). They
//! outlive the namespaces, so they are removed by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Deadline;

use super::error::{LocalError, io_error};

/// Mount point of the hierarchies.
pub(super) const ROOT: &str = "/sys/fs/cgroup";
/// Name of the control group.
pub(super) const NAME: &str = "quietwire-cluster";
/// Files of a new CPU set of version 1 that have to be filled before it accepts processes (kernel, admin-guide/cgroup-v1/cpusets.rst).
const OF_CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// Time until the kernel has released the groups of killed processes.
const RELEASE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// Most levels below the control group: QoS class, pod, container, and what a container makes.
const DEPTH_MAX: usize = 16;

/// Returns the mounted hierarchies: one in version 2, one for each set of controllers in version 1.
fn hierarchies(root: &Path) -> Result<Vec<PathBuf>, LocalError> {
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let listed = fs::read_dir(root).map_err(io_error(root, "listing it"))?;
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry.map_err(io_error(root, "listing it"))?;
        // Symbolic links such as `cpu` lead to hierarchies of several controllers.
        let kind = entry
            .file_type()
            .map_err(io_error(root, "reading a file type"))?;
        if kind.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Makes the control group in each hierarchy.
///
/// # Errors
/// The operating system refuses it.
pub(super) fn make(root: &Path) -> Result<(), LocalError> {
    for hierarchy in hierarchies(root)? {
        let group = hierarchy.join(NAME);
        fs::create_dir_all(&group).map_err(io_error(&group, "making the control group"))?;
        for name in OF_CPUSET {
            // Version 2 inherits them.
            let (parent, own) = (hierarchy.join(name), group.join(name));
            if hierarchy == root || !parent.exists() {
                continue;
            }
            let value = fs::read_to_string(&parent).map_err(io_error(&parent, "reading it"))?;
            fs::write(&own, value).map_err(io_error(&own, "writing it"))?;
        }
    }
    Ok(())
}

/// Removes the control group from each hierarchy, and waits until the kernel has released its processes.
///
/// # Errors
/// [`LocalError::Left`] with the groups that still have processes.
pub(super) fn remove(root: &Path) -> Result<(), LocalError> {
    let groups: Vec<PathBuf> = hierarchies(root)?
        .into_iter()
        .map(|hierarchy| hierarchy.join(NAME))
        .collect();
    let left = |groups: &[PathBuf]| -> Vec<String> {
        let failures = groups
            .iter()
            .filter_map(|group| match remove_tree(group, 0) {
                Ok(()) => None,
                Err(error) => Some(format!("{}: {error}", group.display())),
            });
        failures.collect()
    };
    let removed = Deadline::after(RELEASE).poll(PAUSE, || left(&groups).is_empty().then_some(()));
    match removed {
        Some(()) => Ok(()),
        None => Err(LocalError::Left(left(&groups).join(", "))),
    }
}

/// Removes a group after those below it. Its files are the kernel's, which removes them.
fn remove_tree(group: &Path, depth: usize) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other("too many levels"));
    }
    let listed = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in listed {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path(), depth.saturating_add(1))?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hierarchy_has_the_group_until_it_is_removed_with_those_below() {
        let root = tempfile::tempdir().unwrap();
        for name in ["cpuset", "cpu,cpuacct"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("cpu,cpuacct", root.path().join("cpu")).unwrap();
        let cpuset = root.path().join("cpuset");
        fs::write(cpuset.join("cpuset.cpus"), "0-1\n").unwrap();
        fs::write(cpuset.join("cpuset.mems"), "0\n").unwrap();
        make(root.path()).unwrap();
        make(root.path()).unwrap();
        let own = cpuset.join(NAME);
        assert_eq!(fs::read_to_string(own.join(OF_CPUSET[0])).unwrap(), "0-1\n");
        assert!(root.path().join("cpu,cpuacct").join(NAME).is_dir());
        // The kernel's files go with their directory, these do not.
        for name in OF_CPUSET {
            fs::remove_file(own.join(name)).unwrap();
        }
        fs::create_dir_all(own.join("kubepods/besteffort/pod1")).unwrap();
        remove(root.path()).unwrap();
        assert!(!own.exists() && cpuset.exists());
        assert!(!root.path().join("cpu,cpuacct").join(NAME).exists());
        remove(root.path()).unwrap();
    }

    #[test]
    fn version_2_has_one_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpuset\n").unwrap();
        fs::create_dir(root.path().join("user.slice")).unwrap();
        make(root.path()).unwrap();
        assert!(root.path().join(NAME).is_dir());
        assert!(!root.path().join("user.slice").join(NAME).exists());
        remove(root.path()).unwrap();
        assert!(!root.path().join(NAME).exists());
    }
}
