// SPDX-License-Identifier: Apache-2.0
//! Storage that fails, for tests: operations that are refused, made and nevertheless reported as failed, cut short or delayed, and a process
//! that is killed before, within or after any of them. Starts of processes that fail. All choices follow from a seed.

mod spawning;

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{Metadata, Permissions};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

pub use crate::random::Random;
pub use spawning::{SpawnFault, SpawnFaults};

use crate::storage::{Disk, OpenFile, Opening, Storage};

/// Panic payload that ends a process of a test at the point of its kill. Its destructors run, but can change no file.
#[derive(Debug)]
pub struct Killed;

/// Runs one process of a test. Returns `None` if it is killed.
pub fn run_process<T>(process: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(process)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Calls `run` with each seed: those of `make test`, which begin with 0, or those that `QUIETWIRE_SEED` (the first) and
/// `QUIETWIRE_FAULT_SEEDS` (their number, default: 1) select. Returns the number of seeds.
///
/// # Panics
/// If `run` panics; prints the command that repeats it.
pub fn run_seeds(of_tests: u64, package: &str, test: &str, mut run: impl FnMut(u64)) -> u64 {
    let number = |key: &str| std::env::var(key).ok()?.parse::<u64>().ok();
    let given = number("QUIETWIRE_SEED");
    let count = number("QUIETWIRE_FAULT_SEEDS").unwrap_or(given.map_or(of_tests, |_| 1));
    let first = given.unwrap_or(0);
    for seed in first..first.saturating_add(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!(
                "repeat this with: QUIETWIRE_SEED={seed} cargo test -p {package} --lib {test}"
            );
            resume_unwind(panic);
        }
    }
    count
}

/// Fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// It fails and has no effect.
    Refused(Errno),
    /// It has its effect, and fails.
    Late(Errno),
    /// A part of the octets is written, or of the directory removed; other operations have no effect. It fails with ENOSPC.
    Cut,
    /// The process is killed, before or after the effect, or when a part of the octets is written or of the directory removed.
    Kill,
    /// It takes so long that another process acts before it.
    Delayed,
}

impl Injected {
    /// Returns any fault.
    pub fn any(random: &mut Random) -> Self {
        let others = [
            Errno::ENOSPC,
            Errno::EACCES,
            Errno::EINTR,
            Errno::EROFS,
            Errno::ENOMEM,
            Errno::EBUSY,
        ];
        let errno = random.one_of(Errno::EIO, &others);
        match random.below(6) {
            0 => Self::Refused(errno),
            1 => Self::Late(errno),
            2 => Self::Cut,
            3 => Self::Delayed,
            _ => Self::Kill,
        }
    }
}

/// When faults happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Never.
    Never,
    /// At the operation with this number, from 0.
    Once(u64),
    /// At the operation with this number, and at all later ones of the same file.
    FromOnFile(u64),
    /// At the operation with this number, and at all later ones that change anything.
    FromOnChanges(u64),
    /// At all operations on files whose paths end with this one.
    OnFile(&'static str),
    /// At one of this many operations.
    OneIn(u64),
}

/// Planned faults, and those that have happened.
#[derive(Debug)]
struct Script {
    when: When,
    what: Option<Injected>,
    random: Random,
    count: u64,
    file: Option<PathBuf>,
    is_dead: bool,
    happened: Vec<String>,
}

/// The script of one process, shared with its open files.
#[derive(Clone, Debug)]
struct Shared(Arc<Mutex<Script>>);

/// Whether an operation changes files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about the next operation.
    fn next(&self, name: &str, path: &Path, effect: Effect) -> io::Result<Option<Injected>> {
        let mut script = self.script();
        if script.is_dead {
            return Err(io::Error::other("the process was killed"));
        }
        let number = script.count;
        script.count += 1;
        let is_changing = effect == Effect::Changes;
        let hits = match script.when {
            When::Never => false,
            When::Once(at) => number == at,
            When::FromOnFile(at) => {
                if number == at {
                    script.file = Some(path.to_owned());
                }
                script.file.as_deref() == Some(path)
            }
            When::OnFile(end) => path.ends_with(end),
            When::FromOnChanges(at) => number >= at && is_changing,
            When::OneIn(count) => script.random.below(count) == 0,
        };
        if !hits {
            return Ok(None);
        }
        let what = match script.what {
            Some(what) => what,
            None => Injected::any(&mut script.random),
        };
        let line = format!("operation {number}: {name} {}: {what:?}", path.display());
        script.happened.push(line);
        Ok(Some(what))
    }

    /// Returns a part of the octets.
    fn part<'a>(&self, octets: &'a [u8]) -> &'a [u8] {
        let length = self.script().random.below(octets.len() as u64);
        let length = usize::try_from(length).unwrap_or_default();
        octets.get(..length).unwrap_or_default()
    }

    /// Removes some entries of a directory.
    fn remove_part(&self, directory: &Path) -> io::Result<()> {
        for name in Disk.list(directory)? {
            let path = directory.join(name);
            if self.script().random.below(2) == 0 {
                match Disk.remove_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                        Disk.remove_tree(&path)?;
                    }
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    fn kill(&self) -> ! {
        self.script().is_dead = true;
        resume_unwind(Box::new(Killed))
    }

    /// Makes an operation, or a fault.
    fn run<T>(
        &self,
        injected: Option<Injected>,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match injected {
            None | Some(Injected::Delayed) => make(),
            Some(Injected::Refused(errno)) => Err(errno.into()),
            Some(Injected::Late(errno)) => {
                make()?;
                Err(errno.into())
            }
            Some(Injected::Cut) => Err(Errno::ENOSPC.into()),
            Some(Injected::Kill) => {
                if self.script().random.below(2) == 0 {
                    // The process does not learn the result.
                    let _ = make();
                }
                self.kill()
            }
        }
    }
}

/// One process of a test, some of whose operations on files fail.
pub struct Faults<'a> {
    shared: Shared,
    /// The other process, which acts before an operation that is delayed.
    other: Option<&'a dyn Fn()>,
}

impl Debug for Faults<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl<'a> Faults<'a> {
    /// Returns a process whose operations fail at these moments: with `what`, or with any fault if it is `None`.
    #[must_use]
    pub fn new(when: When, what: Option<Injected>, random: Random) -> Self {
        let script = Script {
            when,
            what,
            random,
            count: 0,
            file: None,
            is_dead: false,
            happened: Vec::new(),
        };
        Self {
            shared: Shared(Arc::new(Mutex::new(script))),
            other: None,
        }
    }

    /// Sets what another process does before an operation that is delayed.
    #[must_use]
    pub fn with_other(mut self, other: &'a dyn Fn()) -> Self {
        self.other = Some(other);
        self
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.script().count
    }

    /// Returns descriptions of all faults that have happened.
    #[must_use]
    pub fn happened(&self) -> Vec<String> {
        self.shared.script().happened.clone()
    }

    fn run<T>(
        &self,
        name: &str,
        path: &Path,
        effect: Effect,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let injected = self.shared.next(name, path, effect)?;
        if let (Some(Injected::Delayed), Some(other)) = (injected, self.other) {
            other();
        }
        self.shared.run(injected, make)
    }

    /// Makes an operation that changes nothing, or a fault.
    ///
    /// # Errors
    /// Those of the operation or of the fault.
    pub fn reads<T>(
        &self,
        name: &str,
        path: &Path,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.run(name, path, Effect::Reads, make)
    }

    /// Makes an operation that changes something, or a fault.
    ///
    /// # Errors
    /// Those of the operation or of the fault.
    pub fn changes<T>(
        &self,
        name: &str,
        path: &Path,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.run(name, path, Effect::Changes, make)
    }
}

impl Storage for Faults<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.reads("read", path, || Disk.read(path))
    }

    fn open(&self, path: &Path, opening: Opening, mode: u32) -> io::Result<Box<dyn OpenFile>> {
        let file = self.changes("open", path, || Disk.open(path, opening, mode))?;
        Ok(Box::new(FaultyFile {
            file,
            path: path.to_owned(),
            shared: self.shared.clone(),
        }))
    }

    fn make_directories(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.changes("mkdir", path, || Disk.make_directories(path, mode))
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let injected = self.shared.next("rmdir", path, Effect::Changes)?;
        if matches!(injected, Some(Injected::Cut | Injected::Kill)) {
            self.shared.remove_part(path)?;
        }
        self.shared.run(injected, || Disk.remove_tree(path))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.changes("unlink", path, || Disk.remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changes("rename", to, || Disk.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changes("link", to, || Disk.link(from, to))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.reads("list", path, || Disk.list(path))
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.reads("stat", path, || Disk.metadata(path))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.reads("realpath", path, || Disk.resolve(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.changes("fsync", path, || Disk.sync_directory(path))
    }
}

/// An open file, some of whose operations fail.
struct FaultyFile {
    file: Box<dyn OpenFile>,
    path: PathBuf,
    shared: Shared,
}

impl FaultyFile {
    fn changes(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut dyn OpenFile) -> io::Result<()>,
    ) -> io::Result<()> {
        let injected = self.shared.next(name, &self.path, Effect::Changes)?;
        let file = &mut self.file;
        self.shared.run(injected, || make(file.as_mut()))
    }
}

impl OpenFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        let injected = self.shared.next("fstat", &self.path, Effect::Reads)?;
        self.shared.run(injected, || self.file.length())
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        let injected = self.shared.next("append", &self.path, Effect::Changes)?;
        match injected {
            Some(Injected::Cut) => {
                self.file.append(self.shared.part(octets))?;
                Err(Errno::ENOSPC.into())
            }
            Some(Injected::Kill) => {
                self.file.append(self.shared.part(octets))?;
                self.shared.kill()
            }
            other => {
                let file = &mut self.file;
                self.shared.run(other, || file.append(octets))
            }
        }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.changes("truncate", |file| file.truncate(length))
    }

    fn set_permissions(&mut self, permissions: Permissions) -> io::Result<()> {
        self.changes("chmod", |file| file.set_permissions(permissions))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.changes("fsync", |file| file.sync())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::durable;

    /// Replaces a file with each fault at each operation. Returns the number of operations.
    fn replace(what: Injected, check: impl Fn(&Path, bool, &str)) -> u64 {
        for at in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            fs::write(&path, "former").unwrap();
            let files = Faults::new(When::Once(at), Some(what), Random::new(at));
            let replaced =
                run_process(|| durable::replace_in(&files, &path, b"new contents", 0o600));
            if files.happened().is_empty() {
                return files.count();
            }
            let is_done = matches!(replaced, Some(Ok(())));
            check(&path, is_done, &files.happened().concat());
        }
        unreachable!()
    }

    #[test]
    fn a_file_has_the_former_or_the_new_contents_after_any_fault() {
        let is_whole = |path: &Path, is_done: bool, fault: &str| {
            let text = fs::read_to_string(path).unwrap();
            assert!(
                text == "new contents" || (text == "former" && !is_done),
                "{fault}: {text}"
            );
        };
        for what in [Injected::Refused(Errno::EIO), Injected::Late(Errno::EIO)] {
            assert!(replace(what, is_whole) > 8);
        }
        assert!(replace(Injected::Kill, is_whole) > 8);
        let is_alone = |path: &Path, is_done: bool, fault: &str| {
            is_whole(path, is_done, fault);
            let names = Disk.list(path.parent().unwrap()).unwrap();
            assert_eq!(names, ["file"], "{fault}");
        };
        replace(Injected::Cut, is_alone);
        replace(Injected::Refused(Errno::ENOSPC), is_alone);
    }

    #[test]
    fn a_killed_process_changes_nothing_any_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let files = Faults::new(When::Once(0), Some(Injected::Kill), Random::new(1));
        assert!(run_process(|| files.read(&path)).is_none());
        assert!(files.open(&path, Opening::Append, 0o600).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let faults = |seed| {
            let files = Faults::new(When::OneIn(3), None, Random::new(seed));
            for _ in 0..100 {
                run_process(|| files.read(Path::new("/dev/null")));
            }
            files.happened()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }
}
