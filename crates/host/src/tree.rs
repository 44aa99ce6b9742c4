// SPDX-License-Identifier: Apache-2.0
//! Files of `/proc` and `/sys` below a root. A tree can keep everything that it reads; a recording contains exactly the files
//! that the inventory reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::files::Disk;
use crate::pci_driver::{STEP_MAX, read_setting};

/// Entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file with this content.
    File(String),
    /// A link. Only the last part of its target is used.
    Link(String),
    /// A directory. Only its name is used.
    Directory,
}

/// Files below a root.
pub(crate) struct Tree {
    root: PathBuf,
    kept: Option<RefCell<BTreeMap<String, Entry>>>,
    /// Entries in memory, in place of files.
    memory: Option<BTreeMap<String, Entry>>,
    /// Timeout for files that wait for a change of a device.
    timeout: Duration,
}

impl Tree {
    /// Returns a tree that reads below `root` and keeps nothing.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kept: None,
            memory: None,
            timeout: STEP_MAX,
        }
    }

    /// Returns a tree that keeps everything that it reads below `root`.
    pub(crate) fn keeping(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kept: Some(RefCell::default()),
            memory: None,
            timeout: STEP_MAX,
        }
    }

    /// Returns a tree of entries in memory.
    #[cfg(any(test, feature = "machines"))]
    pub(crate) fn of_memory(entries: BTreeMap<String, Entry>) -> Self {
        Self {
            root: PathBuf::from("/nonexistent"),
            kept: None,
            memory: Some(entries),
            timeout: STEP_MAX,
        }
    }

    /// Sets another timeout for files that wait for a change of a device.
    #[cfg(test)]
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn read(&self, path: &str) -> Option<String> {
        match &self.memory {
            None => {
                let file = self.root.join(path);
                read_setting(&Disk, &file, self.timeout).ok()
            }
            Some(entries) => match entries.get(path)? {
                Entry::File(text) => Some(text.clone()),
                _ => None,
            },
        }
    }

    /// Returns all names in a directory.
    fn listed(&self, directory: &str) -> Vec<String> {
        let Some(entries) = &self.memory else {
            let listed = fs::read_dir(self.root.join(directory))
                .into_iter()
                .flatten();
            let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            return names.collect();
        };
        let below = format!("{}/", directory.trim_end_matches('/'));
        let paths = entries.range(below.clone()..).map(|(path, _)| path);
        let rests = paths.map_while(|path| path.strip_prefix(&below));
        let mut names: Vec<String> = rests
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        names
    }

    /// Returns the root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns all entries that were read, by path.
    pub(crate) fn into_kept(self) -> BTreeMap<String, Entry> {
        self.kept.map(RefCell::into_inner).unwrap_or_default()
    }

    fn keep(&self, path: &str, entry: impl FnOnce() -> Entry) {
        if let Some(kept) = &self.kept {
            let entry = entry();
            let mut kept = kept.borrow_mut();
            // An entry that was read replaces one that was only listed, but not the reverse.
            let is_listed_only = entry == Entry::Directory || entry == Entry::File(String::new());
            if !is_listed_only || !kept.contains_key(path) {
                kept.insert(path.to_owned(), entry);
            }
        }
    }

    /// Returns a file's text without surrounding whitespace. `None` for missing and unreadable files.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        self.keep(path, || Entry::File(text.clone()));
        Some(
            text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned(),
        )
    }

    /// Reads a file that contains a single value.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory that `wanted` accepts, in order.
    pub(crate) fn names(&self, directory: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names = self.listed(directory);
        names.retain(|name| wanted(name));
        names.sort_unstable();
        for name in &names {
            let path = format!("{directory}/{name}");
            self.keep(&path, || {
                if self.root.join(&path).is_dir() {
                    Entry::Directory
                } else {
                    Entry::File(String::new())
                }
            });
        }
        names
    }

    /// Returns the numbers of the entries `PREFIXnumber` of a directory, in order.
    pub(crate) fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let number = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
        let names = self.names(directory, |name| number(name).is_some());
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the last part of a link's target, such as the name of a driver, group or device.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = match &self.memory {
            None => fs::read_link(self.root.join(path)).ok()?,
            Some(entries) => match entries.get(path)? {
                Entry::Link(target) => PathBuf::from(target),
                _ => return None,
            },
        };
        let name = target.file_name()?.to_str()?.to_owned();
        self.keep(path, || Entry::Link(name.clone()));
        Some(name)
    }

    /// Returns whether the path is a directory.
    pub(crate) fn has_directory(&self, path: &str) -> bool {
        let is_there = match &self.memory {
            None => self.root.join(path).is_dir(),
            Some(_) => !self.listed(path).is_empty(),
        };
        if is_there {
            self.keep(path, || Entry::Directory);
        }
        is_there
    }
}
