// SPDX-License-Identifier: Apache-2.0
//! What was changed, written down before it is changed, so that it can be undone to exactly what was there:
//! also by another process, after this one was killed.
//!
//! One JSON object a line. A line that was cut off belongs to a change that was not made yet.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::cpuset;
use crate::process::ProcessId;
use crate::threads;

/// One change to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// A setting of the kernel's was written.
    FileWritten {
        /// The file.
        path: PathBuf,
        /// What it held before.
        former: String,
        /// What was written.
        new: String,
    },
    /// A directory of our own was made; it goes with all that is in it.
    DirectoryCreated {
        /// The directory.
        path: PathBuf,
    },
    /// A CPU set (cgroup) was made.
    CpusetCreated {
        /// Its directory.
        path: PathBuf,
        /// What becomes of the tasks in it.
        tasks: TasksOnUndo,
    },
    /// The cpuset controller was enabled for the children of a cgroup (version 2).
    ControllerEnabled {
        /// The file `cgroup.subtree_control`.
        path: PathBuf,
    },
    /// Tasks that had CPUs of their own were about to be moved, which not every kernel remembers for them. Stands
    /// before the set that they move to, so that they are back from it when this is undone.
    AffinitiesNoted {
        /// Each task with the CPUs that it may use.
        tasks: Vec<TaskAffinity>,
    },
    /// A process was started.
    ProcessStarted {
        /// Which.
        process: ProcessId,
        /// What it is.
        command: String,
    },
}

/// The CPUs that one task may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAffinity {
    /// The task: a thread's number with its own start time.
    pub task: ProcessId,
    /// Its CPUs (`Cpus_allowed_list`).
    pub cpus: CpuList,
}

/// What becomes of the tasks in a CPU set when it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TasksOnUndo {
    /// They go to the CPU set above.
    Return,
    /// They are ended: they were started there.
    Kill,
}

/// What came of undoing one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum Undone {
    /// It is as it was before.
    Restored,
    /// There was nothing to undo.
    AlreadyGone,
    /// Something else changed it since; left alone.
    ChangedSince(String),
    /// It could not be undone.
    Failed(String),
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Makes a journal, or goes on with the one that is there; only its owner may read it.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a change down, to the disk. To be called before the change is made.
    ///
    /// # Errors
    /// What the system said; the change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// The changes written in a journal, in order. A cut-off last line is left out: its change was not made.
///
/// # Errors
/// What the system said, or a line that is not one of a journal.
pub fn read(path: &Path) -> io::Result<Vec<Change>> {
    let text = fs::read(path)?;
    let mut changes = Vec::new();
    for line in text
        .split_inclusive(|octet| *octet == b'\n')
        .filter(|line| line.ends_with(b"\n"))
    {
        changes.push(serde_json::from_slice(line)?);
    }
    Ok(changes)
}

/// Undoes changes, the last first. Goes on past failures; harmless when done twice.
#[must_use]
pub fn undo(changes: &[Change]) -> Vec<(Change, Undone)> {
    let mut outcomes = Vec::new();
    for (index, change) in changes.iter().enumerate().rev() {
        let outcome = match change {
            Change::FileWritten { path, former, .. } => {
                // A file that was written several times goes back to what it held first, in one step.
                if changes[..index]
                    .iter()
                    .any(|earlier| is_of_file(earlier, path))
                {
                    continue;
                }
                undo_file(path, former, changes)
            }
            _ => undo_one(change),
        };
        outcomes.push((change.clone(), outcome));
    }
    outcomes
}

fn is_of_file(change: &Change, file: &Path) -> bool {
    matches!(change, Change::FileWritten { path, .. } if path == file)
}

/// How long a process may take to end when asked.
const PATIENCE: Duration = Duration::from_secs(5);

fn undo_one(change: &Change) -> Undone {
    let outcome = match change {
        Change::FileWritten { path, former, .. } => {
            return undo_file(path, former, std::slice::from_ref(change));
        }
        Change::DirectoryCreated { path } => fs::remove_dir_all(path),
        Change::CpusetCreated { path, tasks } => cpuset::remove(path, *tasks),
        Change::ControllerEnabled { path } => fs::write(path, "-cpuset"),
        Change::ProcessStarted { process, .. } if !process.is_alive() => {
            return Undone::AlreadyGone;
        }
        Change::ProcessStarted { process, .. } => process.end(PATIENCE).map(|_| ()),
        Change::AffinitiesNoted { tasks } => return undo_affinities(tasks),
    };
    match outcome {
        Ok(()) => Undone::Restored,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Undone::AlreadyGone,
        Err(error) => Undone::Failed(error.to_string()),
    }
}

/// Gives tasks the CPUs back that they had. Those that have ended, or have them, are done already.
fn undo_affinities(tasks: &[TaskAffinity]) -> Undone {
    let (mut restored, mut failures) = (0, Vec::new());
    for TaskAffinity { task, cpus } in tasks {
        let now = threads::allowed_cpus(Path::new("/"), task.pid);
        if !task.is_alive() || now.as_ref() == Some(cpus) {
            continue;
        }
        match threads::set_affinity(task.pid, cpus) {
            Ok(()) => restored += 1,
            // It ended meanwhile.
            Err(_) if !task.is_alive() => {}
            Err(error) => failures.push(format!("task {} to CPUs {cpus}: {error}", task.pid)),
        }
    }
    match (failures.is_empty(), restored) {
        (false, _) => Undone::Failed(failures.join("; ")),
        (true, 0) => Undone::AlreadyGone,
        (true, _) => Undone::Restored,
    }
}

/// Restores a file that holds one of the values written to it, which is any of them when a kill came between.
fn undo_file(path: &Path, former: &str, changes: &[Change]) -> Undone {
    let now = match fs::read_to_string(path) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Undone::AlreadyGone,
        Err(error) => return Undone::Failed(error.to_string()),
    };
    if now.trim() == former.trim() {
        return Undone::AlreadyGone;
    }
    let written = changes.iter().filter_map(|change| match change {
        Change::FileWritten {
            path: file, new, ..
        } if file == path => Some(new.trim()),
        _ => None,
    });
    if !written.clone().any(|new| new == now.trim()) {
        let written: Vec<&str> = written.collect();
        return Undone::ChangedSince(format!(
            "it holds '{}', and what was written is {written:?}",
            now.trim()
        ));
    }
    // Read back: the kernel takes some values and makes less of them, huge pages in use for one.
    match fs::write(path, former).and_then(|()| fs::read_to_string(path)) {
        Ok(now) if now.trim() == former.trim() => Undone::Restored,
        Ok(now) => Undone::Failed(format!(
            "'{}' was written back, and it holds '{}'",
            former.trim(),
            now.trim()
        )),
        Err(error) => Undone::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_was_written_and_wherever_it_was_cut_off_all_is_restored(
            writes in prop::collection::vec((0usize..4, 0u32..5), 1..12),
            cut in any::<prop::sample::Index>(),
            last_was_made in any::<bool>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let files: Vec<PathBuf> = (0..4).map(|file| directory.path().join(format!("setting{file}"))).collect();
            let hold = |file: usize| fs::read_to_string(&files[file]).unwrap();
            for (index, file) in files.iter().enumerate() {
                fs::write(file, format!("{}\n", index + 10)).unwrap();
            }
            let before: Vec<String> = (0..4).map(hold).collect();
            let path = directory.path().join("journal");
            let mut journal = Journal::open(&path).unwrap();
            for (file, value) in &writes {
                settings::write(&mut journal, &files[*file], &value.to_string()).unwrap();
            }
            // Killed when the journal had this many octets: what stands in whole lines was made, the last of it maybe not.
            let whole = fs::read(&path).unwrap();
            fs::write(&path, &whole[..cut.index(whole.len() + 1)]).unwrap();
            let changes = read(&path).unwrap();
            for (file, text) in files.iter().zip(&before) {
                fs::write(file, text).unwrap();
            }
            let made = changes.len().saturating_sub(usize::from(!last_was_made));
            for change in &changes[..made] {
                let Change::FileWritten { path, new, .. } = change else { unreachable!() };
                fs::write(path, new).unwrap();
            }
            for round in 0..2 {
                for (change, outcome) in undo(&changes) {
                    prop_assert!(matches!(outcome, Undone::Restored | Undone::AlreadyGone), "{} {:?} {:?}", round, change, outcome);
                    prop_assert!(round == 0 || outcome == Undone::AlreadyGone);
                }
                let after: Vec<String> = (0..4).map(hold).collect();
                prop_assert_eq!(&after, &before);
            }
        }
    }

    #[test]
    fn a_process_is_ended_only_when_it_is_the_one_that_was_started() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let started = |start_time| Change::ProcessStarted {
            process: ProcessId {
                start_time,
                ..process
            },
            command: "sleep 60".to_owned(),
        };
        // Its number was given to another process since.
        let outcomes = undo(&[started(process.start_time + 1)]);
        assert_eq!(outcomes[0].1, Undone::AlreadyGone);
        assert!(process.is_alive());
        let outcomes = undo(&[started(process.start_time)]);
        assert_eq!(outcomes[0].1, Undone::Restored);
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn tasks_get_the_cpus_back_that_they_had() {
        let online = threads::online_cpus(Path::new("/")).unwrap();
        let Some(first) = online.first().filter(|_| online.len() > 1) else {
            eprintln!("not tried: with one CPU there is none to be taken away");
            return;
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let task = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let cpus: CpuList = [first].into_iter().collect();
        let changes = [Change::AffinitiesNoted {
            tasks: vec![TaskAffinity {
                task,
                cpus: cpus.clone(),
            }],
        }];
        threads::set_affinity(task.pid, &online).unwrap();
        for wanted in [Undone::Restored, Undone::AlreadyGone] {
            assert_eq!(undo(&changes)[0].1, wanted);
            let now = threads::allowed_cpus(Path::new("/"), task.pid);
            assert_eq!(now.as_ref(), Some(&cpus));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(undo(&changes)[0].1, Undone::AlreadyGone);
    }

    #[test]
    fn what_somebody_else_changed_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let setting = directory.path().join("setting");
        fs::write(&setting, "1\n").unwrap();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        settings::write(&mut journal, &setting, "2").unwrap();
        fs::write(&setting, "3\n").unwrap();
        let outcomes = undo(&read(&path).unwrap());
        assert!(
            matches!(outcomes[0].1, Undone::ChangedSince(_)),
            "{outcomes:?}"
        );
        assert_eq!(fs::read_to_string(&setting).unwrap(), "3\n");
    }

    #[test]
    fn a_journal_is_for_its_owner_only_and_nonsense_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        assert_eq!(
            fs::metadata(journal.path()).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::write(&path, "nonsense\n").unwrap();
        assert!(read(&path).is_err());
    }
}
