// SPDX-License-Identifier: Apache-2.0
//! Parsers of `/proc/meminfo`, `/proc/vmstat`, `/proc/PID/numa_maps` and `/proc/self/mounts` (proc_meminfo(5), proc_vmstat(5),
//! proc_pid_numa_maps(5), fstab(5)).

use std::collections::BTreeMap;

/// Returns the value of a line of a `meminfo`, MiB. The kernel's kB are 1024 octets. Keys of a node's file begin with its number:
/// `Node 1 MemTotal`.
#[must_use]
pub fn memory_mib(meminfo: &str, key: &str) -> Option<u64> {
    let value = |line: &str| {
        let value = line.strip_prefix(key)?.strip_prefix(':')?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    meminfo.lines().find_map(value).map(|kib| kib / 1024)
}

/// Returns the size of a cache, KiB, from its file `size`: `48K`.
#[must_use]
pub fn cache_kib(size: &str) -> Option<u64> {
    size.strip_suffix('K')?.parse().ok()
}

/// Returns the value of a line `KEY VALUE`, as in `/proc/vmstat` and in `numastat` of a NUMA node.
#[must_use]
pub fn counter(text: &str, key: &str) -> Option<u64> {
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    };
    text.lines().find_map(value)
}

/// Page size of a mapping that does not state its own, KiB.
const PAGE_KIB: u64 = 4;

/// Returns the memory of a process by NUMA node, KiB, from the text of `/proc/PID/numa_maps`. Ignores fields that are no counts.
#[must_use]
pub fn memory_by_node(numa_maps: &str) -> BTreeMap<u32, u64> {
    pages_by_node(numa_maps.lines())
}

/// Files of mappings in which data planes keep buffers and queues, beside those in huge pages: memfd_create(2), POSIX shared memory.
const SHARED_FILES: [&str; 3] = ["file=/memfd:", "file=/dev/shm/", "file=/dev/hugepages/"];

/// Returns the part of [`memory_by_node`] in which data planes keep buffers and queues: huge pages, and files in memory.
#[must_use]
pub fn buffers_by_node(numa_maps: &str) -> BTreeMap<u32, u64> {
    let is_buffer = |line: &&str| {
        line.split_whitespace()
            .any(|field| field == "huge" || SHARED_FILES.iter().any(|file| field.starts_with(file)))
    };
    pages_by_node(numa_maps.lines().filter(is_buffer))
}

/// Returns the memory of mappings by NUMA node, KiB.
fn pages_by_node<'a>(mappings: impl Iterator<Item = &'a str>) -> BTreeMap<u32, u64> {
    let mut nodes = BTreeMap::new();
    for line in mappings {
        let fields = || line.split_whitespace().skip(2);
        let stated =
            fields().find_map(|field| field.strip_prefix("kernelpagesize_kB=")?.parse().ok());
        let page_kib: u64 = stated.unwrap_or(PAGE_KIB);
        for field in fields() {
            let count = field.strip_prefix('N').and_then(|field| {
                let (node, pages) = field.split_once('=')?;
                Some((node.parse::<u32>().ok()?, pages.parse::<u64>().ok()?))
            });
            if let Some((node, pages)) = count {
                let sum: &mut u64 = nodes.entry(node).or_default();
                *sum = sum.saturating_add(pages.saturating_mul(page_kib));
            }
        }
    }
    nodes
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount point.
    pub point: String,
    /// Type, such as `cgroup2`.
    pub kind: String,
    /// Options.
    pub options: Vec<String>,
}

impl Mount {
    /// Returns the mount point with the escapes of `mounts`.
    #[must_use]
    pub fn escaped_point(&self) -> String {
        let mut field = String::with_capacity(self.point.len());
        for letter in self.point.chars() {
            match letter {
                ' ' | '\t' | '\n' | '\\' => field += &format!("\\{:03o}", u32::from(letter)),
                other => field.push(other),
            }
        }
        field
    }

    /// Returns whether it has an option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|other| other == option)
    }
}

/// Parses the text of `mounts`. Ignores lines that lack a field.
pub fn mounts(text: &str) -> impl Iterator<Item = Mount> {
    text.lines().filter_map(|line| {
        // The kernel escapes blanks and tabs in fields, but no other white space.
        let fields = line.split([' ', '\t']).filter(|field| !field.is_empty());
        let mut fields = fields.skip(1);
        Some(Mount {
            point: unescaped(fields.next()?),
            kind: fields.next()?.to_owned(),
            options: fields.next()?.split(',').map(str::to_owned).collect(),
        })
    })
}

/// Decodes a path: the kernel writes blanks, newlines and backslashes as three octal digits (`mangle` of fs/proc_namespace.c).
fn unescaped(field: &str) -> String {
    let mut path = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        path += before;
        let decoded = after.split_at_checked(3).and_then(|(digits, rest)| {
            let octet = u8::from_str_radix(digits, 8).ok();
            Some((octet.filter(u8::is_ascii)?, rest))
        });
        match decoded {
            Some((octet, behind)) => {
                path.push(char::from(octet));
                rest = behind;
            }
            None => {
                path.push('\\');
                rest = after;
            }
        }
    }
    path + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_is_found_by_its_whole_key() {
        let text = "MemTotalOther: 1 kB\nMemTotal:       2048 kB\nMemFree: many kB\nNode 1 MemTotal: 4096 kB\n";
        assert_eq!(memory_mib(text, "MemTotal"), Some(2));
        assert_eq!(memory_mib(text, "Node 1 MemTotal"), Some(4));
        assert_eq!(memory_mib(text, "MemFree"), None);
        assert_eq!(memory_mib("", "MemFree"), None);
    }

    #[test]
    fn counters_are_found_by_their_whole_key() {
        let text = "pgmajfault 12\npgmajfault_other 3\nbad many\n";
        assert_eq!(counter(text, "pgmajfault"), Some(12));
        assert_eq!((counter(text, "bad"), counter(text, "none")), (None, None));
    }

    #[test]
    fn memory_is_summed_up_by_node_with_the_page_size_of_each_mapping() {
        let text = "7f00 default anon=3 dirty=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f10 bind:1 file=/dev/hugepages/N9=7 huge N1=5 kernelpagesize_kB=2048\n\
                    7f20 N5=9 mapped=1 N0=1\nshort\n\n";
        let nodes = memory_by_node(text);
        assert_eq!(nodes, BTreeMap::from([(0, 12), (1, 4 + 5 * 2048)]));
        let text = "7f00 default file=/memfd:memif\\040(deleted) dirty=2 N1=2 kernelpagesize_kB=4\n\
                    7f10 default file=/dev/hugepages/rtemap_0 huge dirty=1 N0=1 kernelpagesize_kB=2048\n\
                    7f20 default heap anon=9 N0=9 kernelpagesize_kB=4\n\
                    7f30 default anon_hugepage huge anon=1 N1=1 kernelpagesize_kB=2048\n";
        let buffers = buffers_by_node(text);
        assert_eq!(buffers, BTreeMap::from([(0, 2048), (1, 8 + 2048)]));
        assert!(buffers_by_node("7f20 default heap anon=9 N0=9\n").is_empty());
        assert!(memory_by_node("").is_empty());
    }

    #[test]
    fn a_mount_may_have_blanks_in_its_path() {
        let text = "c /sys/fs/cgroup cgroup2 rw,nosuid 0 0\nd /a\\040b\\134c\\012 tmpfs rw 0 0\nshort /x\n\n";
        let all: Vec<Mount> = mounts(text).collect();
        let points: Vec<&str> = all.iter().map(|mount| mount.point.as_str()).collect();
        assert_eq!(points, ["/sys/fs/cgroup", "/a b\\c\n"]);
        assert_eq!(all[1].escaped_point(), "/a\\040b\\134c\\012");
        assert!(all[0].has("nosuid") && !all[0].has("no") && all[0].kind == "cgroup2");
        assert_eq!(unescaped("\\04\\"), "\\04\\");
    }

    #[test]
    fn white_space_that_the_kernel_does_not_escape_is_part_of_a_path() {
        let text = "d /a\u{a0}b\rc\u{2003} tmpfs rw 0 0\n";
        let all: Vec<Mount> = mounts(text).collect();
        assert_eq!(all[0].point, "/a\u{a0}b\rc\u{2003}");
        assert_eq!(all[0].kind, "tmpfs");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "[\\\\0-7aä: \n]{0,40}") {
            let _ = (mounts(&text).count(), memory_mib(&text, "a"), unescaped(&text));
            let _ = (counter(&text, "a"), memory_by_node(&text));
        }
    }
}
