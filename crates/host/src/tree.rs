// SPDX-License-Identifier: Apache-2.0
//! Files of `/proc` and `/sys` below a root, read by a path from there. A reader can keep what it read, and that is
//! what a recording holds: nothing that the inventory does not ask for, and all that it does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file with this content.
    File(String),
    /// A link; only the last part of where it leads is ever of interest.
    Link(String),
    /// A directory, of interest by its name.
    Directory,
}

/// Files below a root.
pub(crate) struct Tree {
    root: PathBuf,
    kept: Option<RefCell<BTreeMap<String, Entry>>>,
    /// Instead of files.
    memory: Option<BTreeMap<String, Entry>>,
}

impl Tree {
    /// Reads below `root` and keeps nothing.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kept: None,
            memory: None,
        }
    }

    /// Reads below `root` and keeps what it read.
    pub(crate) fn keeping(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            kept: Some(RefCell::default()),
            memory: None,
        }
    }

    /// Reads what is given.
    #[cfg(any(test, feature = "machines"))]
    pub(crate) fn of_memory(entries: BTreeMap<String, Entry>) -> Self {
        Self {
            root: PathBuf::from("/nonexistent"),
            kept: None,
            memory: Some(entries),
        }
    }

    fn read(&self, path: &str) -> Option<String> {
        match &self.memory {
            None => fs::read_to_string(self.root.join(path)).ok(),
            Some(entries) => match entries.get(path)? {
                Entry::File(text) => Some(text.clone()),
                _ => None,
            },
        }
    }

    /// All names in a directory.
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

    /// The root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What was read, by path.
    pub(crate) fn into_kept(self) -> BTreeMap<String, Entry> {
        self.kept.map(RefCell::into_inner).unwrap_or_default()
    }

    fn keep(&self, path: &str, entry: impl FnOnce() -> Entry) {
        if let Some(kept) = &self.kept {
            let entry = entry();
            let mut kept = kept.borrow_mut();
            // A name that was listed is replaced by what was read there, not the other way round.
            let is_listed_only = entry == Entry::Directory || entry == Entry::File(String::new());
            if !is_listed_only || !kept.contains_key(path) {
                kept.insert(path.to_owned(), entry);
            }
        }
    }

    /// A file's text without the blanks around it. Absent and unreadable files are `None`.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        self.keep(path, || Entry::File(text.clone()));
        Some(
            text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned(),
        )
    }

    /// A file that holds one value.
    pub(crate) fn value<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory for which `wanted` holds, in order.
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

    /// Numbers of the entries `PREFIXnumber` of a directory, in order.
    pub(crate) fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let number = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
        let names = self.names(directory, |name| number(name).is_some());
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The last part of where a link leads: the name of a driver, of a group, of a device.
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

    /// Whether there is a directory.
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
