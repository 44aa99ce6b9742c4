// SPDX-License-Identifier: Apache-2.0
//! Lock files: a flock(2) on a file that names the process that holds it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::deadline::Deadline;
use crate::proc;
use crate::process::ProcessId;
use crate::regular_file::{open_regular, read_regular};

/// Longest wait for a killed process to end. The kernel ends its threads one after the other, and a process whose main thread is
/// gone (state Z in /proc/PID/stat) holds its files until the last of the others has closed them.
pub const ENDING_MAX: Duration = Duration::from_secs(30);

/// Pause between two checks whether the process has ended.
pub const ENDING_PAUSE: Duration = Duration::from_millis(5);

/// Longest wait for a process that holds a lock to write its number into the file.
const UNNAMED_MAX: Duration = Duration::from_secs(1);

/// Longest text of a lock file, octets: number and start time of a process.
const OWNER_OCTETS_MAX: u64 = 64;

/// The process that holds a lock, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner(Option<i32>);

impl LockOwner {
    /// Returns the number of the process; `None` if the process is in another process namespace.
    #[must_use]
    pub fn pid(self) -> Option<i32> {
        self.0
    }
}

impl fmt::Display for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

impl Serialize for LockOwner {
    /// Writes the number, or the text `unknown`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(pid) => serializer.collect_str(&pid),
            None => serializer.serialize_str("unknown"),
        }
    }
}

/// The reason why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{}: {owner} holds the lock (wait until it has ended)", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The process.
        owner: LockOwner,
    },
    /// The file cannot be opened, locked or written.
    #[error("{}: {what}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> LockError {
    move |cause| LockError::Io {
        path: path.to_owned(),
        what,
        cause,
    }
}

/// A lock that this process holds, for as long as the value lives. The kernel releases the lock when the process ends, even if it is
/// killed.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct LockFile {
    file: File,
    /// True if the file names this process.
    names_owner: bool,
}

impl LockFile {
    /// Acquires the lock of `path`, and creates the file if it does not exist. Waits only for a process that is ending.
    ///
    /// # Errors
    /// [`LockError::Busy`] if another process holds the lock, [`LockError::Io`].
    pub fn try_acquire(path: &Path) -> Result<Self, LockError> {
        Self::acquire(path, Deadline::after(Duration::ZERO))
    }

    /// Acquires the lock of `path`, and creates the file if it does not exist. Waits until the deadline for another process to release the
    /// lock, and longer for a process that is ending.
    ///
    /// # Errors
    /// [`LockError::Busy`] if another process holds the lock at the deadline, [`LockError::Io`].
    pub fn acquire(path: &Path, deadline: Deadline) -> Result<Self, LockError> {
        wait(
            path,
            deadline,
            || Holder::named_in(path),
            || Self::attempt(path),
        )
    }

    /// Locks a file that has other contents, and writes nothing into it. Waits only for a process that is ending.
    ///
    /// # Errors
    /// As [`Self::try_acquire`].
    pub fn try_acquire_data(file: File, path: &Path) -> Result<Self, LockError> {
        let attempt = || match file.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(failed(path, "locking")(cause)),
        };
        wait(
            path,
            Deadline::after(Duration::ZERO),
            || Holder::of(path),
            attempt,
        )?;
        Ok(Self {
            file,
            names_owner: false,
        })
    }

    /// Returns the process that holds the lock of `path`; `None` if no process holds it, or the file does not exist.
    ///
    /// # Errors
    /// [`LockError::Io`].
    pub fn holder(path: &Path) -> Result<Option<LockOwner>, LockError> {
        let attempt = || {
            let file = match open_regular(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(())),
                opened => opened.map_err(failed(path, "opening the lock"))?,
            };
            match file.try_lock_shared() {
                Ok(()) => file.unlock().map(Some).map_err(failed(path, "unlocking")),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(cause)) => Err(failed(path, "locking")(cause)),
            }
        };
        let now = Deadline::after(Duration::ZERO);
        match wait(path, now, || Holder::named_in(path), attempt) {
            Ok(()) => Ok(None),
            Err(LockError::Busy { owner, .. }) => Ok(Some(owner)),
            Err(error) => Err(error),
        }
    }

    /// Tries once; `None` if the lock is held, or the file was removed before it was locked.
    fn attempt(path: &Path) -> Result<Option<Self>, LockError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(failed(path, "opening the lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(cause)) => return Err(failed(path, "locking")(cause)),
        }
        let ours = file.metadata().map_err(failed(path, "reading its state"))?;
        let is_found = match fs::metadata(path) {
            Ok(found) => (found.dev(), found.ino()) == (ours.dev(), ours.ino()),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(failed(path, "reading its state")(error)),
        };
        if !is_found {
            // A lock on a file that other processes do not find would exclude no process.
            return Ok(None);
        }
        let mut lock = Self {
            file,
            names_owner: true,
        };
        lock.name_owner()
            .map_err(failed(path, "writing the lock"))?;
        Ok(Some(lock))
    }

    fn name_owner(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        match ProcessId::own() {
            Some(own) => writeln!(self.file, "{} {}", own.pid, own.start_time),
            None => writeln!(self.file, "{}", std::process::id()),
        }
    }
}

impl Drop for LockFile {
    /// Unlocks the file. Without this call, the file would stay locked as long as any process has it open, such as a child of another
    /// thread that has not executed its program yet (flock(2)).
    fn drop(&mut self) {
        if self.names_owner {
            // A number that stays belongs to a process that has ended: the next process waits for it longer than for no number.
            drop(self.file.set_len(0));
        }
        // If that fails, the lock ends with the last process that has the file open.
        drop(self.file.unlock());
    }
}

/// State of a process that holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Running(i32),
    /// The process has ended, or is ending.
    Ending(i32),
    Unknown,
}

impl Holder {
    /// Returns the process that the file names, or the kernel's answer if the file names none.
    fn named_in(path: &Path) -> Self {
        let octets = read_regular(path, OWNER_OCTETS_MAX).unwrap_or_default();
        let text = String::from_utf8(octets).unwrap_or_default();
        let mut words = text.split_whitespace();
        let Some(pid) = words.next().and_then(|word| word.parse().ok()) else {
            return Self::of(path);
        };
        let start_time: Option<u64> = words.next().and_then(|word| word.parse().ok());
        let is_running = ProcessId::of(pid)
            .is_some_and(|now| start_time.is_none_or(|start_time| start_time == now.start_time));
        if is_running {
            Self::Running(pid)
        } else {
            Self::Ending(pid)
        }
    }

    /// Returns the process that has locked the file, from `/proc/locks`.
    fn of(path: &Path) -> Self {
        let Ok(meta) = fs::metadata(path) else {
            return Self::Unknown;
        };
        let locks = proc::read(Path::new("/proc/locks")).unwrap_or_default();
        match proc::flock_owner(&locks, meta.ino()) {
            Some(pid) if ProcessId::of(pid).is_some() => Self::Running(pid),
            Some(pid) => Self::Ending(pid),
            None => Self::Unknown,
        }
    }

    fn owner(self) -> LockOwner {
        match self {
            Self::Running(pid) | Self::Ending(pid) => LockOwner(Some(pid)),
            Self::Unknown => LockOwner(None),
        }
    }
}

/// Repeats `attempt` until it returns a value or the deadline has passed. Waits longer if the holder is ending, or has not written its
/// number yet.
fn wait<T>(
    path: &Path,
    deadline: Deadline,
    holder: impl Fn() -> Holder,
    mut attempt: impl FnMut() -> Result<Option<T>, LockError>,
) -> Result<T, LockError> {
    let ending = Deadline::after(ENDING_MAX);
    let unnamed = Deadline::after(UNNAMED_MAX);
    loop {
        if let Some(locked) = attempt()? {
            return Ok(locked);
        }
        let holder = holder();
        let is_late = match holder {
            Holder::Running(_) => true,
            Holder::Ending(_) => ending.has_passed(),
            Holder::Unknown => unnamed.has_passed(),
        };
        if is_late && deadline.has_passed() {
            return Err(LockError::Busy {
                path: path.to_owned(),
                owner: holder.owner(),
            });
        }
        std::thread::sleep(ENDING_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::run_within;

    fn own() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    fn owner(result: Result<LockFile, LockError>) -> LockOwner {
        match result {
            Err(LockError::Busy { owner, .. }) => owner,
            other => panic!("{other:?}"),
        }
    }

    /// Returns a process that has locked `path` as flock(1) does, without its number in the file.
    fn stranger(path: &Path) -> Child {
        let child = Command::new("flock")
            .arg("--no-fork")
            .arg(path)
            .args(["sh", "-c", "echo ready; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut printed = String::new();
        let mut stdout = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut stdout, &mut printed).unwrap();
        assert_eq!(printed, "ready\n");
        child
    }

    #[test]
    fn a_lock_is_held_once_and_names_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(LockFile::holder(&path).unwrap(), None);
        assert!(!path.exists());
        let lock = LockFile::try_acquire(&path).unwrap();
        let second = owner(LockFile::try_acquire(&path));
        assert_eq!(second.pid(), Some(own()));
        assert_eq!(second.to_string(), format!("process {}", own()));
        assert_eq!(LockFile::holder(&path).unwrap(), Some(second));
        drop(lock);
        assert_eq!(LockFile::holder(&path).unwrap(), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        drop(LockFile::try_acquire(&path).unwrap());
        let missing = LockFile::try_acquire(&directory.path().join("none/lock"));
        let is_missing = |cause: &io::Error| cause.kind() == ErrorKind::NotFound;
        assert!(
            matches!(&missing, Err(LockError::Io { cause, .. }) if is_missing(cause)),
            "{missing:?}"
        );
    }

    #[test]
    fn a_holder_that_has_not_named_itself_is_found_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut child = stranger(&path);
        let found = owner(LockFile::try_acquire(&path));
        assert_eq!(LockFile::holder(&path).unwrap(), Some(found));
        assert_eq!(found.pid(), i32::try_from(child.id()).ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The reader of a FIFO would wait for text without end.
    #[test]
    fn a_fifo_in_the_place_of_a_lock_blocks_no_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let held = OpenOptions::new().read(true).write(true).open(&path);
        let held = held.unwrap();
        held.lock().unwrap();
        let both = move || Ok((LockFile::holder(&path), LockFile::try_acquire(&path)));
        let (holder, acquired) = run_within(Duration::from_secs(60), both).unwrap();
        assert!(matches!(holder, Err(LockError::Io { .. })), "{holder:?}");
        let is_busy = matches!(acquired, Err(LockError::Busy { .. }));
        assert!(is_busy, "{acquired:?}");
    }

    #[test]
    fn a_number_that_arrives_late_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let asked = AtomicBool::new(false);
        let late = || {
            let was_asked = asked.swap(true, Ordering::Relaxed);
            if was_asked {
                Holder::Running(own())
            } else {
                Holder::Unknown
            }
        };
        let result = wait(&path, Deadline::after(Duration::ZERO), late, || {
            Ok(None::<LockFile>)
        });
        assert_eq!(owner(result).pid(), Some(own()));
        // The number of a process that has ended, while the next process writes its own.
        asked.store(false, Ordering::Relaxed);
        let former = || {
            let was_asked = asked.swap(true, Ordering::Relaxed);
            if was_asked {
                Holder::Running(own())
            } else {
                Holder::Ending(1)
            }
        };
        let result = wait(&path, Deadline::after(Duration::ZERO), former, || {
            Ok(None::<LockFile>)
        });
        assert_eq!(owner(result).pid(), Some(own()));
    }

    #[test]
    fn a_holder_that_never_names_itself_is_another_process() {
        let nothing = wait(
            Path::new("lock"),
            Deadline::after(Duration::ZERO),
            || Holder::Unknown,
            || Ok(None::<LockFile>),
        );
        let owner = owner(nothing);
        assert_eq!(
            (owner.pid(), owner.to_string().as_str()),
            (None, "another process")
        );
    }

    #[test]
    fn an_ending_process_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        // This process holds the lock under the number of a process that has ended.
        let held = File::create(&path).unwrap();
        held.lock().unwrap();
        for text in [format!("{} 1\n", ended.id()), format!("{} 1\n", own())] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Holder::named_in(&path), Holder::Ending(_)));
        }
        let lock = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| LockFile::try_acquire(&path));
            assert!(!waiting.is_finished());
            held.unlock().unwrap();
            waiting.join().unwrap()
        });
        assert_eq!(owner(LockFile::try_acquire(&path)).pid(), Some(own()));
        drop(lock.unwrap());
    }

    #[test]
    fn a_lock_is_waited_for_until_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = LockFile::try_acquire(&path).unwrap();
        let refused = LockFile::acquire(&path, Deadline::after(Duration::from_millis(20)));
        assert_eq!(owner(refused).pid(), Some(own()));
        let second = std::thread::scope(|scope| {
            let deadline = Deadline::after(Duration::from_secs(60));
            let waiting = scope.spawn(move || LockFile::acquire(&path, deadline));
            drop(lock);
            waiting.join().unwrap()
        });
        drop(second.unwrap());
    }

    #[test]
    fn a_file_with_data_is_locked_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        fs::write(&path, "data").unwrap();
        let open = || File::open(&path).unwrap();
        let lock = LockFile::try_acquire_data(open(), &path).unwrap();
        let second = owner(LockFile::try_acquire_data(open(), &path));
        assert_eq!(second.pid(), Some(own()));
        drop(lock);
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
        drop(LockFile::try_acquire_data(open(), &path).unwrap());
    }

    #[test]
    fn a_file_that_was_removed_excludes_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let former = LockFile::try_acquire(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let lock = LockFile::try_acquire(&path).unwrap();
        drop(former);
        assert_eq!(LockFile::holder(&path).unwrap().unwrap().pid(), Some(own()));
        drop(lock);
    }
}
