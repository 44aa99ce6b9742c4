// SPDX-License-Identifier: Apache-2.0
//! Recording of a machine: a compressed archive of exactly those files of `/proc` and `/sys` that the inventory reads. All
//! commands that accept a root directory also accept a recording.

#[cfg(test)]
mod committed;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use quietwire_base::durable;
use tar::{Archive, Builder, EntryType, Header};
use tempfile::TempDir;

use crate::inventory::Inventory;
use crate::proc::{Mount, mounts};
use crate::tree::{Entry, Tree};

/// Errors of recordings.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// A file could not be read or written.
    #[error("{doing} {path}: {cause}", path = path.display())]
    Io {
        /// Failed operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// The path is neither a directory nor a recording.
    #[error(
        "{} is neither a directory nor a recording: {cause} (create a recording with `quietwire host record FILE.tar.zst`)",
        path.display()
    )]
    NotARecording {
        /// The file.
        path: PathBuf,
        /// The problem.
        cause: io::Error,
    },
    /// An archive with an entry that no recording contains.
    #[error("{} is not a recording of a machine: it contains {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The entry.
        what: String,
    },
}

/// Maximum size of an unpacked recording, octets. A machine with 8192 CPUs needs a tenth of this.
const OCTETS_MAX: u64 = 512 << 20;
/// Compression level. Reading the machine takes longer than compressing.
const LEVEL: i32 = 9;

/// Recorded kernel command line parameters. All others are omitted with name and value, as are the arguments of the first
/// process, because they may contain a secret or identify the owner of the machine.
const PARAMETERS: [&str; 26] = [
    "isolcpus",
    "nohz_full",
    "nohz",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "skew_tick",
    "nosoftlockup",
    "intel_pstate",
    "amd_pstate",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "idle",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "default_hugepagesz",
    "hugepagesz",
    "hugepages",
    "irqaffinity",
    "tsc",
    "mitigations",
    "nosmt",
    "maxcpus",
    "cpufreq.default_governor",
    "rdt",
    "systemd.cpu_affinity",
];

/// Types of file systems whose mounts are recorded.
const FILE_SYSTEMS: [&str; 4] = ["cgroup", "cgroup2", "resctrl", "hugetlbfs"];
/// The only mount option with a value that is recorded. Of all other options, only those without a value are recorded.
const PAGE_SIZE: &str = "pagesize=";
/// Separator before the arguments of the first process (kernel documentation: admin-guide/kernel-parameters.rst).
const NO_MORE: &str = "--";

/// Records the machine below `root` into `file`, which only its owner may read. Returns the number of recorded files.
///
/// # Errors
/// [`RecordingError::Io`]. Then `file` is missing or unchanged.
pub fn record(root: &Path, file: &Path) -> Result<usize, RecordingError> {
    let tree = Tree::keeping(root);
    Inventory::read_tree(&tree);
    let entries = tree.into_kept();
    let failed = |cause| RecordingError::Io {
        doing: "writing the recording",
        path: file.to_owned(),
        cause,
    };
    durable::replace_private(file, |out| pack(&entries, out).map_err(failed), failed)?;
    Ok(entries.len())
}

fn pack(entries: &BTreeMap<String, Entry>, file: &File) -> io::Result<()> {
    let mut archive = Builder::new(zstd::Encoder::new(file, LEVEL)?);
    for (path, entry) in entries {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_mtime(0);
        match entry {
            Entry::File(text) => {
                let text = without_secrets(path, text);
                header.set_size(text.len() as u64);
                archive.append_data(&mut header, path, text.as_bytes())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, path, target)?;
            }
            Entry::Directory => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                archive.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
        }
    }
    archive.into_inner()?.finish()?;
    Ok(())
}

/// Returns the text of a file as it is recorded.
fn without_secrets(path: &str, text: &str) -> String {
    let lines = |keep: &dyn Fn(&str) -> bool| {
        let kept = text.lines().filter(|line| keep(line));
        kept.map(|line| format!("{line}\n")).collect()
    };
    match path {
        "proc/cmdline" => {
            let words = text.split_whitespace().take_while(|word| *word != NO_MORE);
            let words: Vec<&str> = words.filter(|word| is_recorded(word)).collect();
            words.join(" ") + "\n"
        }
        "proc/self/mounts" => mounts(text).filter_map(|mount| line_of(&mount)).collect(),
        // The text after the numbers identifies who built the kernel.
        "proc/sys/kernel/osrelease" => {
            let is_number = |c: char| c.is_ascii_digit() || c == '.';
            let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
            format!("{}\n", text.get(..end).unwrap_or(text))
        }
        // Arm boards report their serial number here.
        "proc/cpuinfo" => lines(&|line| !line.starts_with("Serial")),
        _ => text.to_owned(),
    }
}

fn is_recorded(word: &str) -> bool {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    PARAMETERS.contains(&name)
}

/// Returns a line of the mounts without its device and without option values that may identify the machine.
fn line_of(mount: &Mount) -> Option<String> {
    let (point, kind) = (mount.escaped_point(), &mount.kind);
    let plain = |option: &&String| !option.contains('=') || option.starts_with(PAGE_SIZE);
    let options: Vec<&str> = mount
        .options
        .iter()
        .filter(plain)
        .map(String::as_str)
        .collect();
    let options = options.join(",");
    let is_recorded = FILE_SYSTEMS.contains(&kind.as_str());
    is_recorded.then(|| format!("{kind} {point} {kind} {options} 0 0\n"))
}

/// Root directory of a machine's files: a directory, or a temporary directory with an unpacked recording.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    // Dropping it removes the directory.
    _unpacked: Option<TempDir>,
}

impl Root {
    /// Opens a directory, or unpacks a recording to a temporary directory.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        if path.is_dir() {
            return Ok(Self {
                path: path.to_owned(),
                _unpacked: None,
            });
        }
        let directory = tempfile::tempdir().map_err(|cause| RecordingError::Io {
            doing: "creating a directory for",
            path: path.to_owned(),
            cause,
        })?;
        unpack(path, directory.path())?;
        Ok(Self {
            path: directory.path().to_owned(),
            _unpacked: Some(directory),
        })
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn unpack(path: &Path, into: &Path) -> Result<(), RecordingError> {
    let unreadable = |cause| RecordingError::NotARecording {
        path: path.to_owned(),
        cause,
    };
    let foreign = |what: String| RecordingError::Foreign {
        path: path.to_owned(),
        what,
    };
    let file = File::open(path).map_err(|cause| RecordingError::Io {
        doing: "reading",
        path: path.to_owned(),
        cause,
    })?;
    let plain = zstd::Decoder::new(file).map_err(unreadable)?;
    // Without a limit, a small file could fill the disk.
    let mut archive = Archive::new(plain.take(OCTETS_MAX));
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        if !is_below_proc_or_sys(&name) {
            return Err(foreign(format!("the path {}", name.display())));
        }
        let target = into.join(&name);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(unreadable)?;
        }
        match entry.header().entry_type() {
            EntryType::Regular => {
                let mut text = Vec::new();
                entry.read_to_end(&mut text).map_err(unreadable)?;
                fs::write(&target, text).map_err(unreadable)?;
            }
            EntryType::Directory => fs::create_dir_all(&target).map_err(unreadable)?,
            EntryType::Symlink => {
                let link = entry.link_name().map_err(unreadable)?;
                let link = link.filter(|link| is_one_name(link)).ok_or_else(|| {
                    foreign(format!("a link out of its directory, {}", name.display()))
                })?;
                symlink(link, &target).map_err(unreadable)?;
            }
            _ => {
                return Err(foreign(format!(
                    "{}, which is not a regular file",
                    name.display()
                )));
            }
        }
    }
    Ok(())
}

fn is_below_proc_or_sys(path: &Path) -> bool {
    let mut parts = path.components();
    let first = parts.next();
    let is_known =
        [Some("proc"), Some("sys")].contains(&first.and_then(|part| part.as_os_str().to_str()));
    is_known
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Returns whether a link target is a single name, so the link stays in its directory.
fn is_one_name(path: &Path) -> bool {
    let mut parts = path.components();
    matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use quietwire_base::fuzz::{check, planted};
    use tempfile::NamedTempFile;

    use super::*;

    #[test]
    fn this_machine_is_the_same_after_being_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("machine.tar.zst");
        let files = record(Path::new("/"), &file).unwrap();
        assert!(files > 10, "{files}");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // The comparison leaves out values that change on their own or are not recorded completely.
        let steady = |mut machine: Inventory| {
            machine.kernel_command_line = None;
            machine.kernel_release = None;
            machine.huge_pages.clear();
            machine.huge_pages_2mib = None;
            machine.irqs.clear();
            machine.cpusets = None;
            machine.realtime_runtime_us = None;
            for node in &mut machine.nodes {
                node.huge_pages.clear();
            }
            machine
        };
        let opened = Root::open(&file).unwrap();
        let observed = Inventory::read(opened.path());
        assert_eq!(steady(observed), steady(Inventory::read(Path::new("/"))));
        let unpacked = opened.path().to_owned();
        drop(opened);
        assert!(!unpacked.exists());
    }

    #[test]
    fn secrets_stay_behind() {
        let line = "BOOT_IMAGE=/vmlinuz quiet isolcpus=2-3 rd.luks.key=abc nosmt token=x -- --auth nohz_full=2";
        let recorded = without_secrets("proc/cmdline", line);
        assert_eq!(recorded, "isolcpus=2-3 nosmt\n");
        let mounts = "//server/private /mnt cifs user=me,password=x 0 0\nours /sys/fs/cgroup/cpuset cgroup rw,cpuset,release_agent=/home/me/x 0 0\nh /huge hugetlbfs rw,gid=7,pagesize=2M 0 0\n";
        let recorded = without_secrets("proc/self/mounts", mounts);
        assert_eq!(
            recorded,
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\nhugetlbfs /huge hugetlbfs rw,pagesize=2M 0 0\n"
        );
        let release = without_secrets("proc/sys/kernel/osrelease", "6.18.5-me.on.host+\n");
        assert_eq!(release, "6.18.5\n");
        let cpuinfo = "processor : 0\nSerial\t: 00001234\n";
        assert_eq!(without_secrets("proc/cpuinfo", cpuinfo), "processor : 0\n");
    }

    fn archive(entries: &[(&str, EntryType, &str)]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let mut archive = Builder::new(zstd::Encoder::new(file.as_file(), 1).unwrap());
        for (path, kind, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(0);
            if *kind == EntryType::Symlink {
                header.set_link_name(content).unwrap();
            }
            // The library refuses such names, but an attacker can write them.
            let name = &mut header.as_old_mut().name;
            name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            archive.append(&header, io::empty()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
        file
    }

    #[test]
    fn an_archive_with_anything_else_is_refused() {
        for (path, kind, content) in [
            ("../outside", EntryType::Regular, ""),
            ("/etc/outside", EntryType::Regular, ""),
            ("proc/../../outside", EntryType::Regular, ""),
            ("etc/outside", EntryType::Regular, ""),
            ("sys/a", EntryType::Symlink, "/etc"),
            ("sys/a", EntryType::Symlink, "../../.."),
            ("sys/a", EntryType::Fifo, ""),
            ("sys/a", EntryType::Link, "proc/b"),
        ] {
            let file = archive(&[(path, kind, content)]);
            let error = Root::open(file.path()).unwrap_err();
            assert!(
                matches!(error, RecordingError::Foreign { .. }),
                "{path}: {error}"
            );
        }
        let text = NamedTempFile::new().unwrap();
        fs::write(text.path(), "no archive").unwrap();
        let error = Root::open(text.path()).unwrap_err();
        assert!(error.to_string().contains("host record"), "{error}");
        let absent = Root::open(Path::new("/nowhere.tar.zst")).unwrap_err();
        assert!(matches!(absent, RecordingError::Io { .. }));
    }

    /// Returns an archive of any entries: lines of a type, a name, and the target of a link or a text. The library refuses most of such
    /// names, but an attacker can write them.
    fn archive_of(text: &[u8]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let mut archive = Builder::new(zstd::Encoder::new(file.as_file(), 1).unwrap());
        for line in text.split(|octet| *octet == b'\n') {
            let mut fields = line.splitn(3, |octet| *octet == b' ');
            let (Some([kind]), Some(name)) = (fields.next(), fields.next()) else {
                continue;
            };
            let kind = EntryType::new(*kind);
            let content = fields.next().unwrap_or_default();
            let is_link = kind == EntryType::Symlink || kind == EntryType::Link;
            let (target, content) = if is_link {
                (content, &[][..])
            } else {
                (&[][..], content)
            };
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            let old = header.as_old_mut();
            for (place, octet) in old.name.iter_mut().zip(name) {
                *place = *octet;
            }
            for (place, octet) in old.linkname.iter_mut().zip(target) {
                *place = *octet;
            }
            header.set_cksum();
            archive.append(&header, content).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
        file
    }

    /// Unpacks any archive. Nothing is outside of the directory, and no link leads out of its own.
    fn fuzz_recording(octets: &[u8]) -> bool {
        let file = archive_of(octets);
        let around = tempfile::tempdir().unwrap();
        let directory = around.path().join("unpacked");
        fs::create_dir(&directory).unwrap();
        let is_accepted = unpack(file.path(), &directory).is_ok();
        assert_eq!(fs::read_dir(around.path()).unwrap().count(), 1);
        let (mut links, mut looking) = (0, vec![directory.clone()]);
        while let Some(next) = looking.pop() {
            for entry in fs::read_dir(&next).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    looking.push(entry.path());
                } else if kind.is_symlink() {
                    assert!(is_one_name(&fs::read_link(entry.path()).unwrap()));
                    links += usize::from(entry.path().is_file());
                } else {
                    assert!(kind.is_file());
                }
            }
        }
        planted("host-recording", || is_accepted && links > 1);
        is_accepted
    }

    #[test]
    fn fuzz_recordings() {
        check(env!("CARGO_MANIFEST_DIR"), "host-recording", fuzz_recording);
    }
}
