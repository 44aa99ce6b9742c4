// SPDX-License-Identifier: Apache-2.0
//! CPUs that are online, and the CPUs that each thread of a process may use.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::CpuList;

/// ESRCH of errno(3): what reading a file of `/proc` gives when its thread ended after the file was opened.
const ENDED: i32 = 3;

/// A file of the kernel's that could not be read or understood.
#[derive(Debug, thiserror::Error)]
#[error("{} could not be read: {cause}", path.display())]
pub struct ReadError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said, or what is wrong with the text.
    pub cause: String,
}

/// One thread and the CPUs that it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpus {
    /// The kernel's number of the thread.
    pub tid: i32,
    /// Its name (`/proc/PID/task/TID/comm`), at most 15 octets.
    pub name: String,
    /// CPUs that it may use (`Cpus_allowed_list` of `/proc/PID/task/TID/status`).
    pub cpus: CpuList,
}

fn unreadable(path: &Path, cause: impl ToString) -> ReadError {
    ReadError {
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

/// CPUs that are online, of `/sys/devices/system/cpu/online` below `root`.
///
/// # Errors
/// [`ReadError`] when the file is not there or holds no CPU list.
pub fn online_cpus(root: &Path) -> Result<CpuList, ReadError> {
    let path = root.join("sys/devices/system/cpu/online");
    fs::read_to_string(&path)
        .map_err(|cause| unreadable(&path, cause))?
        .parse()
        .map_err(|cause| unreadable(&path, cause))
}

/// Threads of the calling process, of `/proc/self/task` below `root`, by number.
///
/// # Errors
/// [`ReadError`] when the directory or a thread's file cannot be read; a thread that ends meanwhile is left out.
pub fn own_threads(root: &Path) -> Result<Vec<ThreadCpus>, ReadError> {
    let tasks = root.join("proc/self/task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(&tasks).map_err(|cause| unreadable(&tasks, cause))? {
        let entry = entry.map_err(|cause| unreadable(&tasks, cause))?;
        let Some(tid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        threads.extend(thread(&entry.path(), tid)?);
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

fn thread(directory: &Path, tid: i32) -> Result<Option<ThreadCpus>, ReadError> {
    let path = directory.join("status");
    let status = match fs::read_to_string(&path) {
        Ok(status) => status,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(ENDED) => return Ok(None),
        Err(error) => return Err(unreadable(&path, error)),
    };
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let cpus = field("Cpus_allowed_list:")
        .ok_or_else(|| unreadable(&path, "it has no line 'Cpus_allowed_list'"))?
        .parse()
        .map_err(|cause| unreadable(&path, cause))?;
    let name = field("Name:").unwrap_or_default().trim().to_owned();
    Ok(Some(ThreadCpus { tid, name, cpus }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(threads: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (tid, status) in threads {
            let task = root.path().join("proc/self/task").join(tid);
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("status"), status).unwrap();
        }
        root
    }

    #[test]
    fn threads_come_by_number_with_their_cpus() {
        let root = machine(&[
            (
                "20",
                "Name:\tqw-fwd-3\nCpus_allowed:\t8\nCpus_allowed_list:\t3\n",
            ),
            ("9", "Name:\tquietwire\nCpus_allowed_list:\t0-1\n"),
        ]);
        // Ended between the listing and the reading.
        fs::create_dir_all(root.path().join("proc/self/task/30")).unwrap();
        let threads = own_threads(root.path()).unwrap();
        let seen: Vec<(i32, &str, String)> = threads
            .iter()
            .map(|t| (t.tid, t.name.as_str(), t.cpus.to_string()))
            .collect();
        assert_eq!(
            seen,
            [
                (9, "quietwire", "0-1".to_owned()),
                (20, "qw-fwd-3", "3".to_owned())
            ]
        );
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        let root = machine(&[("9", "Name:\tx\nCpus_allowed_list:\tmany\n")]);
        let error = own_threads(root.path()).unwrap_err().to_string();
        assert!(
            error.contains("task/9/status") && error.contains("'many'"),
            "{error}"
        );
        let root = machine(&[("9", "Name:\tx\n")]);
        assert!(own_threads(root.path()).is_err());
        assert!(online_cpus(root.path()).is_err());
    }

    #[test]
    fn the_running_machine_has_this_thread() {
        let root = Path::new("/");
        let online = online_cpus(root).unwrap();
        let threads = own_threads(root).unwrap();
        assert!(!online.is_empty() && !threads.is_empty());
        assert!(threads.iter().all(|thread| !thread.cpus.is_empty()));
    }
}
