// SPDX-License-Identifier: Apache-2.0
//! Records of what ports have changed outside this process: small files that the next process reads if this one is killed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;
use quietwire_base::{ProcessId, durable, open_regular_with, read_up_to};

/// Most octets of a record. That of flow rules is the longest: a former and a new list, and each rule once for IPv4 and once for IPv6.
const OCTETS_MAX: usize = 256 << 10;
/// Most files of a directory that are read.
const FILES_MAX: usize = 1024;
/// Write permission of group and others (inode(7)).
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Number and start time of a process ([`ProcessId`]) since the boot.
pub(super) type Process = (i32, u64);

/// A record: a file whose name follows from its content.
pub(super) trait Record: Sized {
    /// Returns the name of the file.
    fn name(&self) -> String;

    /// Returns the content of the file.
    fn text(&self) -> String;

    /// Reads a content; `None` if it is not that of a record.
    fn parse(text: &str) -> Option<Self>;

    /// Returns the process that made the change.
    fn process(&self) -> Process;

    /// Returns the path of the file.
    fn path(&self, directory: &Path) -> PathBuf {
        directory.join(self.name())
    }

    /// Writes the record, and the directory if there is none. Other users can neither write nor read them.
    fn write(&self, directory: &Path) -> io::Result<()> {
        write(directory, &self.path(directory), &self.text())
    }

    /// Removes the record.
    fn remove(&self, directory: &Path) {
        let file = self.path(directory);
        if let Err(error) = durable::remove_if_exists(&file) {
            tracing::warn!("cannot remove {}: {error}", file.display());
        }
    }

    /// Returns all records. A directory or file that does not exist has none. A file with another name than that of its record is none.
    fn all(directory: &Path) -> Vec<Self> {
        let read = |(name, text): (OsString, String)| {
            let record = Self::parse(&text)?;
            (name == record.name().as_str()).then_some(record)
        };
        texts(directory).into_iter().filter_map(read).collect()
    }

    /// Returns true if the process of the record runs.
    fn is_of_a_living_process(&self) -> bool {
        is_alive(self.process())
    }
}

/// Writes a file of a directory, and the directory if there is none. Other users can neither write nor read them.
pub(super) fn write(directory: &Path, file: &Path, text: &str) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    durable::replace(file, text.as_bytes(), 0o600)
}

/// Returns names and texts of all records. A directory or file that does not exist has none. A file that cannot be a record is reported and
/// skipped: with `--user`, another user than root writes the records that root reads later.
fn texts(directory: &Path) -> Vec<(OsString, String)> {
    let Ok(meta) = fs::metadata(directory) else {
        return Vec::new();
    };
    let owners = [0, geteuid().as_raw(), meta.uid()];
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut records = Vec::new();
    for entry in entries.by_ref().take(FILES_MAX) {
        match read(&entry.path(), &owners) {
            Ok(text) => records.push((entry.file_name(), text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("{} is skipped: {error}", entry.path().display()),
        }
    }
    if entries.next().is_some() {
        tracing::warn!(
            "{} has more than {FILES_MAX} files: some are not read (remove those of ended processes)",
            directory.display()
        );
    }
    records
}

/// Reads a record of one of these users.
fn read(path: &Path, owners: &[u32]) -> io::Result<String> {
    let file = open_regular_with(path, libc::O_NOFOLLOW)?;
    let meta = file.metadata()?;
    if !owners.contains(&meta.uid()) || meta.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other(
            "another user than root and the owner of the directory can write to it",
        ));
    }
    let octets = read_up_to(file, OCTETS_MAX as u64)?;
    String::from_utf8(octets).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns true if the process of a record runs.
pub(super) fn is_alive((pid, start_time): Process) -> bool {
    let boot = None;
    ProcessId {
        pid,
        start_time,
        boot,
    }
    .is_alive()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// With `--user`, the writer of a record may be an attacker, and root its reader.
    #[test]
    fn files_that_cannot_be_records_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        write(directory.path(), &path("record"), "1 2\n").unwrap();
        write(directory.path(), &path("full"), &"x".repeat(OCTETS_MAX)).unwrap();
        write(directory.path(), &path("long"), &"x".repeat(OCTETS_MAX + 1)).unwrap();
        write(directory.path(), &path("open"), "1 2\n").unwrap();
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o602)).unwrap();
        fs::write(path("octets"), [0xffu8]).unwrap();
        fs::set_permissions(path("octets"), fs::Permissions::from_mode(0o600)).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        symlink(path("record"), path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        let mut names: Vec<_> = texts(directory.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.sort();
        assert_eq!(names, ["full", "record"]);
    }

    #[test]
    fn a_record_of_another_user_than_root_and_the_owner_of_the_directory_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        write(directory.path(), &path, "1 2\n").unwrap();
        let owner = fs::metadata(&path).unwrap().uid();
        assert_eq!(read(&path, &[owner]).unwrap(), "1 2\n");
        read(&path, &[owner + 1]).unwrap_err();
    }

    #[test]
    fn the_number_of_files_that_are_read_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..FILES_MAX + 2 {
            let path = directory.path().join(number.to_string());
            fs::write(&path, "1").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(texts(directory.path()).len(), FILES_MAX);
    }
}
