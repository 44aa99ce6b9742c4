// SPDX-License-Identifier: Apache-2.0
//! Files of `/proc` and `/sys` that contain one value.

use std::path::Path;
use std::str::FromStr;

use quietwire_base::proc;
use quietwire_host::files::{Disk, Files};

/// Returns the text of a file without surrounding white space. `None` if it cannot be read or is empty.
pub(crate) fn text(path: &Path) -> Option<String> {
    let text = proc::read(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the value of a file that contains nothing else.
pub(crate) fn value<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// Returns the names in a directory, in order. Empty if it cannot be read.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    Disk.list(directory).unwrap_or_default()
}

/// Returns the entries `PREFIX<number>` of a directory with their numbers, sorted by number.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> Vec<u32> {
    let names = names(directory);
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the numbers of all CPUs.
pub(crate) fn cpus(root: &Path) -> Vec<u32> {
    numbered(&root.join("sys/devices/system/cpu"), "cpu")
}
