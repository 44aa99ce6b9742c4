// SPDX-License-Identifier: Apache-2.0
//! Fake resctrl that follows the kernel's rules (fs/resctrl/rdtgroup.c and ctrlmondata.c) without hardware support. Paths
//! outside of its mount point access the disk. It shares no code with the tested modules.

// The fake's own state: a test that corrupts it must fail.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::files::{Disk, Files};

/// A group of the fake kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeGroup {
    /// Ways, by cache (`L3`) and domain.
    pub ways: BTreeMap<(String, u32), u64>,
    /// Bandwidth limit, percent, by domain.
    pub share: BTreeMap<u32, u32>,
    /// Its CPUs.
    pub cpus: BTreeSet<u32>,
    /// Its tasks.
    pub tasks: BTreeSet<i32>,
}

/// Features of the fake processor.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Caches with allocation (`L3`).
    pub caches: Vec<&'static str>,
    /// Number of domains of each cache.
    pub domains: u32,
    /// All ways.
    pub cbm_mask: u64,
    /// Minimum number of ways of a group.
    pub min_cbm_bits: u32,
    /// Maximum number of groups.
    pub closids: usize,
    /// Whether masks may be non-contiguous.
    pub sparse: bool,
    /// Minimum bandwidth limit, percent.
    pub min_bandwidth: u32,
    /// Granularity of limits, percent.
    pub bandwidth_gran: u32,
    /// Number of online CPUs, numbered from 0.
    pub cpus: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            caches: vec!["L3"],
            domains: 2,
            cbm_mask: 0x7ff,
            min_cbm_bits: 1,
            closids: 4,
            sparse: false,
            min_bandwidth: 10,
            bandwidth_gran: 10,
            cpus: 8,
        }
    }
}

#[derive(Debug)]
struct State {
    groups: BTreeMap<String, FakeGroup>,
    status: String,
}

/// The fake file system.
#[derive(Debug)]
pub struct FakeResctrl {
    mount: PathBuf,
    rules: Rules,
    state: RefCell<State>,
}

fn errno(errno: Errno) -> io::Error {
    errno.into()
}

fn cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(low.parse::<u32>().ok()?..=high.parse::<u32>().ok()?);
    }
    Some(cpus)
}

fn show_cpus(cpus: &BTreeSet<u32>) -> String {
    let mut text = String::new();
    let mut rest = cpus.iter().copied().peekable();
    while let Some(low) = rest.next() {
        let mut high = low;
        while rest.peek() == Some(&(high + 1)) {
            high = rest.next().unwrap();
        }
        let comma = if text.is_empty() { "" } else { "," };
        text += &if low == high {
            format!("{comma}{low}")
        } else {
            format!("{comma}{low}-{high}")
        };
    }
    text + "\n"
}

impl FakeResctrl {
    /// Returns a fake resctrl mounted below `root`. All tasks and CPUs are in the default group.
    #[must_use]
    pub fn new(root: &Path, rules: Rules, tasks: &[i32]) -> Self {
        let mut default = Self::fresh(&rules);
        default.cpus = (0..rules.cpus).collect();
        default.tasks = tasks.iter().copied().collect();
        let groups = BTreeMap::from([(String::new(), default)]);
        Self {
            mount: root.join("sys/fs/resctrl"),
            rules,
            state: RefCell::new(State {
                groups,
                status: "ok".to_owned(),
            }),
        }
    }

    fn fresh(rules: &Rules) -> FakeGroup {
        let domains = || 0..rules.domains;
        let ways = rules.caches.iter().flat_map(|cache| {
            domains().map(|domain| (((*cache).to_owned(), domain), rules.cbm_mask))
        });
        FakeGroup {
            ways: ways.collect(),
            share: domains().map(|domain| (domain, 100)).collect(),
            cpus: BTreeSet::new(),
            tasks: BTreeSet::new(),
        }
    }

    /// Returns the complete state.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<String, FakeGroup> {
        self.state.borrow().groups.clone()
    }

    /// Splits a path below the mount point into a group and its file.
    fn place(&self, path: &Path) -> Option<(String, String)> {
        let below = path.strip_prefix(&self.mount).ok()?;
        let parts: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
        match parts.as_slice() {
            [] => Some((String::new(), String::new())),
            ["info", rest @ ..] => Some(("info".to_owned(), rest.join("/"))),
            [file @ ("schemata" | "cpus_list" | "tasks" | "mode")] => {
                Some((String::new(), (*file).to_owned()))
            }
            [group] => Some(((*group).to_owned(), String::new())),
            [group, file] => Some(((*group).to_owned(), (*file).to_owned())),
            _ => None,
        }
    }

    fn info(&self, file: &str) -> io::Result<String> {
        let rules = &self.rules;
        let (resource, name) = file.split_once('/').unwrap_or(("", file));
        let is_cache = rules.caches.contains(&resource);
        let text = match (resource, name) {
            ("", "last_cmd_status") => self.state.borrow().status.clone(),
            (_, "num_closids") if is_cache || resource == "MB" => rules.closids.to_string(),
            (_, "cbm_mask") if is_cache => format!("{:x}", rules.cbm_mask),
            (_, "min_cbm_bits") if is_cache => rules.min_cbm_bits.to_string(),
            (_, "shareable_bits") if is_cache => "0".to_owned(),
            (_, "sparse_masks") if is_cache => u8::from(rules.sparse).to_string(),
            ("MB", "min_bandwidth") => rules.min_bandwidth.to_string(),
            ("MB", "bandwidth_gran") => rules.bandwidth_gran.to_string(),
            _ => return Err(errno(Errno::ENOENT)),
        };
        Ok(text + "\n")
    }

    fn schemata(&self, group: &FakeGroup) -> String {
        let mut text = String::new();
        for cache in &self.rules.caches {
            let values = group.ways.iter().filter(|((name, _), _)| name == cache);
            let values: Vec<String> = values
                .map(|((_, domain), mask)| format!("{domain}={mask:03x}"))
                .collect();
            text += &format!("{cache:>6}:{}\n", values.join(";"));
        }
        let shares = group
            .share
            .iter()
            .map(|(domain, share)| format!("{domain}={share:4}"));
        text + &format!("{:>6}:{}\n", "MB", shares.collect::<Vec<_>>().join(";"))
    }

    fn refuse<T>(&self, why: String) -> io::Result<T> {
        self.state.borrow_mut().status = why;
        Err(errno(Errno::EINVAL))
    }

    fn write_schemata(&self, group: &str, text: &str) -> io::Result<()> {
        if !text.ends_with('\n') {
            return Err(errno(Errno::EINVAL));
        }
        // The kernel stages each line and then applies all of them.
        let mut staged = self.state.borrow().groups[group].clone();
        for line in text.trim_end_matches('\n').split('\n') {
            let Some((resource, values)) = line.split_once(':') else {
                return self.refuse("Missing ':'".to_owned());
            };
            let resource = resource.trim();
            if values.trim().is_empty() {
                return self.refuse(format!("Missing '{resource}' value"));
            }
            let mut observed = BTreeSet::new();
            for value in values.split(';') {
                let parsed = value.split_once('=');
                let parsed =
                    parsed.and_then(|(domain, value)| Some((domain.trim().parse().ok()?, value)));
                let Some((domain, value)): Option<(u32, &str)> = parsed else {
                    return self.refuse("Missing '=' or non-numeric domain".to_owned());
                };
                if !observed.insert(domain) {
                    return self.refuse(format!("Duplicate domain {domain}"));
                }
                if domain >= self.rules.domains {
                    return Err(errno(Errno::EINVAL));
                }
                if resource == "MB" {
                    let share = self.share(value.trim())?;
                    staged.share.insert(domain, share);
                } else if self.rules.caches.contains(&resource) {
                    let mask = self.mask(value.trim())?;
                    staged.ways.insert((resource.to_owned(), domain), mask);
                } else {
                    return self
                        .refuse(format!("Unknown or unsupported resource name '{resource}'"));
                }
            }
        }
        self.state
            .borrow_mut()
            .groups
            .insert(group.to_owned(), staged);
        Ok(())
    }

    fn mask(&self, text: &str) -> io::Result<u64> {
        let rules = &self.rules;
        let Ok(mask) = u64::from_str_radix(text, 16) else {
            return self.refuse(format!("Non-hex character in the mask {text}"));
        };
        if mask == 0 || mask > rules.cbm_mask {
            return self.refuse("Mask out of range".to_owned());
        }
        let bits: Vec<u32> = (0..64).filter(|bit| mask >> bit & 1 == 1).collect();
        let gap = bits.windows(2).position(|pair| pair[0] + 1 != pair[1]);
        if gap.is_some() && !rules.sparse {
            return self.refuse(format!("The mask {mask:x} has non-consecutive 1-bits"));
        }
        if gap.map_or(bits.len(), |at| at + 1) < rules.min_cbm_bits as usize {
            return self.refuse(format!(
                "Need at least {} bits in the mask",
                rules.min_cbm_bits
            ));
        }
        Ok(mask)
    }

    fn share(&self, text: &str) -> io::Result<u32> {
        let Ok(share) = text.parse::<u32>() else {
            return self.refuse(format!("Invalid MB value {text}"));
        };
        if share < self.rules.min_bandwidth || share > 100 {
            let low = self.rules.min_bandwidth;
            return self.refuse(format!("MB value {share} out of range [{low},100]"));
        }
        let gran = self.rules.bandwidth_gran;
        Ok(share.div_ceil(gran) * gran)
    }

    fn write_cpus(&self, group: &str, text: &str) -> io::Result<()> {
        let Some(cpus) = cpu_list(text) else {
            return self.refuse("Bad CPU list/mask".to_owned());
        };
        if cpus.iter().any(|cpu| *cpu >= self.rules.cpus) {
            return self.refuse("Can only assign online CPUs".to_owned());
        }
        let mut state = self.state.borrow_mut();
        let dropped: Vec<u32> = state.groups[group]
            .cpus
            .difference(&cpus)
            .copied()
            .collect();
        if group.is_empty() && !dropped.is_empty() {
            state.status = "Can't drop CPUs from default group".to_owned();
            return Err(errno(Errno::EINVAL));
        }
        for (name, other) in &mut state.groups {
            if name.is_empty() {
                other.cpus.extend(&dropped);
            }
            if name != group {
                other.cpus.retain(|cpu| !cpus.contains(cpu));
            }
        }
        state.groups.get_mut(group).unwrap().cpus = cpus;
        Ok(())
    }

    fn write_task(&self, group: &str, text: &str) -> io::Result<()> {
        let pid: i32 = text.trim().parse().map_err(|_| errno(Errno::EINVAL))?;
        let mut state = self.state.borrow_mut();
        if !state
            .groups
            .values()
            .any(|group| group.tasks.contains(&pid))
        {
            state.status = format!("No task {pid}");
            return Err(errno(Errno::ESRCH));
        }
        for (name, other) in &mut state.groups {
            other.tasks.remove(&pid);
            if name == group {
                other.tasks.insert(pid);
            }
        }
        Ok(())
    }
}

impl Files for FakeResctrl {
    fn read(&self, path: &Path) -> io::Result<String> {
        let Some((group, file)) = self.place(path) else {
            return Disk.read(path);
        };
        if group == "info" {
            return self.info(&file);
        }
        let state = self.state.borrow();
        let of_group = state.groups.get(&group).ok_or(errno(Errno::ENOENT))?;
        match file.as_str() {
            "schemata" => Ok(self.schemata(of_group)),
            "cpus_list" => Ok(show_cpus(&of_group.cpus)),
            "mode" => Ok("shareable\n".to_owned()),
            "tasks" => Ok(of_group
                .tasks
                .iter()
                .map(|pid| format!("{pid}\n"))
                .collect()),
            _ => Err(errno(Errno::ENOENT)),
        }
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let Some((group, file)) = self.place(path) else {
            return Disk.write(path, text);
        };
        if !self.state.borrow().groups.contains_key(&group) {
            return Err(errno(Errno::ENOENT));
        }
        self.state.borrow_mut().status = "ok".to_owned();
        match file.as_str() {
            "schemata" => self.write_schemata(&group, text),
            "cpus_list" => self.write_cpus(&group, text),
            "tasks" => self.write_task(&group, text),
            _ => Err(errno(Errno::EPERM)),
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let Some((group, file)) = self.place(path) else {
            return Disk.make_directory(path);
        };
        if !file.is_empty() || group == "info" {
            return Err(errno(Errno::EPERM));
        }
        let mut state = self.state.borrow_mut();
        if state.groups.contains_key(&group) {
            return Err(errno(Errno::EEXIST));
        }
        if state.groups.len() >= self.rules.closids {
            state.status = "Out of CLOSIDs".to_owned();
            return Err(errno(Errno::ENOSPC));
        }
        state.groups.insert(group, Self::fresh(&self.rules));
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let Some((group, file)) = self.place(path) else {
            return Disk.remove_directory(path);
        };
        if !file.is_empty() || group.is_empty() || group == "info" {
            return Err(errno(Errno::EPERM));
        }
        let mut state = self.state.borrow_mut();
        let gone = state.groups.remove(&group).ok_or(errno(Errno::ENOENT))?;
        let default = state.groups.get_mut("").unwrap();
        default.cpus.extend(gone.cpus);
        default.tasks.extend(gone.tasks);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.place(path) {
            None => Disk.list(path),
            Some((group, file)) if group.is_empty() && file.is_empty() => {
                let groups = self.state.borrow();
                let names = groups
                    .groups
                    .keys()
                    .filter(|name| !name.is_empty())
                    .cloned();
                Ok(names
                    .chain(["info", "schemata", "cpus_list", "tasks", "mode"].map(str::to_owned))
                    .collect())
            }
            Some(_) => Err(errno(Errno::ENOENT)),
        }
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        match self.place(path) {
            None => Disk.is_directory(path),
            Some((group, file)) => Ok(file.is_empty()
                && (group == "info" || self.state.borrow().groups.contains_key(&group))),
        }
    }
}
