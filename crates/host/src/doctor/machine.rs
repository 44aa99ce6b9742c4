// SPDX-License-Identifier: Apache-2.0
//! Files and commands of the machine that is examined.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use quietwire_base::{find_program_in, is_program};

use crate::CpuList;
use crate::proc::{self, Mount};

/// Where CPU topology and state are (Documentation/ABI/testing/sysfs-devices-system-cpu).
const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";

/// The machine below a root directory. Remembers what could not be read.
pub(super) struct Machine<'a> {
    root: &'a Path,
    search_path: &'a OsStr,
    troubles: RefCell<Vec<String>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(root: &'a Path, search_path: &'a OsStr) -> Self {
        Self {
            root,
            search_path,
            troubles: RefCell::new(Vec::new()),
        }
    }

    /// What could not be read or understood so far, one sentence each.
    pub(super) fn troubles(&self) -> Vec<String> {
        self.troubles.borrow().clone()
    }

    /// Where the absolute `path` of the machine is found from here.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn trouble(&self, path: &str, what: impl std::fmt::Display) {
        let trouble = format!("{path}: {what}");
        let mut troubles = self.troubles.borrow_mut();
        // Some files are asked for by several checks.
        if !troubles.contains(&trouble) {
            troubles.push(trouble);
        }
    }

    /// True when something is at the absolute `path`.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Text of the file at `path` without blanks around it; `None` when there is no such file.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        match fs::read_to_string(self.at(path)) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.trouble(path, error);
                None
            }
        }
    }

    /// What the file at `path` says, read as a `T`; `None` when there is no such file.
    pub(super) fn value<T>(&self, path: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.parse(path, &self.text(path)?)
    }

    /// `text`, which came from the file at `path`, read as a `T`; a trouble when it is none.
    pub(super) fn parse<T>(&self, path: &str, text: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        text.parse()
            .map_err(|error| self.trouble(path, format!("'{text}': {error}")))
            .ok()
    }

    /// Names in the directory at `path`, sorted; empty when there is no such directory.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = match fs::read_dir(self.at(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                self.trouble(path, error);
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
                Err(error) => self.trouble(path, error),
            }
        }
        names.sort();
        names
    }

    /// A file of the CPU directory, such as `online`, read as a list of CPUs.
    pub(super) fn cpu_list(&self, name: &str) -> Option<CpuList> {
        self.value(&format!("{CPU_DIRECTORY}/{name}"))
    }

    /// A file of the CPU directory as text.
    pub(super) fn cpu_text(&self, name: &str) -> Option<String> {
        self.text(&format!("{CPU_DIRECTORY}/{name}"))
    }

    /// What `/proc/mounts` lists.
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let text = self.text("/proc/mounts").unwrap_or_default();
        proc::mounts(&text).collect()
    }

    /// True when the kernel knows the file system `kind` (`/proc/filesystems`).
    pub(super) fn knows_filesystem(&self, kind: &str) -> bool {
        let text = self.text("/proc/filesystems").unwrap_or_default();
        text.lines()
            .any(|line| line.split_whitespace().last() == Some(kind))
    }

    /// Where the search path finds the command `name`, as a path of the machine.
    pub(super) fn command(&self, name: &str) -> Option<PathBuf> {
        find_program_in(self.root, self.search_path, name)
    }

    /// True when a file that may be executed is at `path`.
    pub(super) fn is_executable(&self, path: &Path) -> bool {
        is_program(self.root, path)
    }
}
