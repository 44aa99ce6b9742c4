// SPDX-License-Identifier: Apache-2.0
//! Files and commands of the examined machine.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use quietwire_base::{find_program_in, is_program};

use crate::CpuList;
use crate::proc::{self, Mount};

/// Directory of CPU topology and state (Documentation/ABI/testing/sysfs-devices-system-cpu).
const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";

/// The machine below a root directory. Records files that cannot be read.
pub(super) struct Machine<'a> {
    root: &'a Path,
    search_path: &'a OsStr,
    problems: RefCell<Vec<String>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(root: &'a Path, search_path: &'a OsStr) -> Self {
        Self {
            root,
            search_path,
            problems: RefCell::new(Vec::new()),
        }
    }

    /// Returns the problems so far: one text for each file that could not be read or parsed.
    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.borrow().clone()
    }

    /// Returns an absolute path of the machine as a path below the root.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn problem(&self, path: &str, what: impl std::fmt::Display) {
        let problem = format!("{path}: {what}");
        let mut problems = self.problems.borrow_mut();
        // Several checks may read the same file.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Returns whether the absolute `path` exists.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Returns the text of the file at `path` without surrounding whitespace. `None` if the file does not exist.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        match fs::read_to_string(self.at(path)) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.problem(path, error);
                None
            }
        }
    }

    /// Returns the value in the file at `path`. `None` if the file does not exist.
    pub(super) fn value<T>(&self, path: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.parse(path, &self.text(path)?)
    }

    /// Parses `text`, which is from the file at `path`. Records a problem if it is not a valid `T`.
    pub(super) fn parse<T>(&self, path: &str, text: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        text.parse()
            .map_err(|error| self.problem(path, format!("'{text}': {error}")))
            .ok()
    }

    /// Returns the sorted names in the directory at `path`. Empty if the directory does not exist.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = match fs::read_dir(self.at(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                self.problem(path, error);
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                Err(error) => self.problem(path, error),
            }
        }
        names.sort();
        names
    }

    /// Returns the CPU list in a file of the CPU directory, such as `online`.
    pub(super) fn cpu_list(&self, name: &str) -> Option<CpuList> {
        self.value(&format!("{CPU_DIRECTORY}/{name}"))
    }

    /// Returns the text of a file of the CPU directory.
    pub(super) fn cpu_text(&self, name: &str) -> Option<String> {
        self.text(&format!("{CPU_DIRECTORY}/{name}"))
    }

    /// Returns the mounts in `/proc/mounts`.
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let text = self.text("/proc/mounts").unwrap_or_default();
        proc::mounts(&text).collect()
    }

    /// Returns whether the kernel supports the file system `kind` (`/proc/filesystems`).
    pub(super) fn knows_filesystem(&self, kind: &str) -> bool {
        let text = self.text("/proc/filesystems").unwrap_or_default();
        text.lines()
            .any(|line| line.split_whitespace().last() == Some(kind))
    }

    /// Returns the path of the command `name` in the search path, as a path of the machine.
    pub(super) fn command(&self, name: &str) -> Option<PathBuf> {
        find_program_in(self.root, self.search_path, name)
    }

    /// Returns whether `path` is an executable file.
    pub(super) fn is_executable(&self, path: &Path) -> bool {
        is_program(self.root, path)
    }
}
