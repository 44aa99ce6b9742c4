// SPDX-License-Identifier: Apache-2.0
//! Files that survive a kill, a full disk and a power failure: a file has either its former contents or all of the new ones.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::process::ProcessId;
use crate::storage::{Disk, Opening, Storage};

/// Writes the directory to the disk, so that its new, renamed and removed files survive a power failure (fsync(2)).
///
/// # Errors
/// Error of the operating system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    Disk.sync_directory(directory)
}

/// Returns the directory of a file. A name alone is in the working directory.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns beginning and end of the names of temporary files of `path`; between them is the ID of a process.
fn temporary(path: &Path) -> (OsString, &'static str) {
    let mut start = OsString::from(".");
    start.push(path.file_name().unwrap_or_default());
    start.push(".");
    (start, ".new")
}

/// Returns the temporary file of `path` of this process.
fn new_beside(path: &Path) -> PathBuf {
    let (mut name, end) = temporary(path);
    name.push(std::process::id().to_string());
    name.push(end);
    path.with_file_name(name)
}

/// Removes a file if it exists.
///
/// # Errors
/// Error of the operating system.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    remove_if_exists_in(&Disk, path)
}

/// Removes a file like [`remove_if_exists`], with the caller's storage.
///
/// # Errors
/// Error of the operating system.
pub fn remove_if_exists_in(storage: &dyn Storage, path: &Path) -> io::Result<()> {
    match storage.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes temporary files of [`replace`] that killed processes left beside `path`.
///
/// # Errors
/// Error of the operating system.
pub fn remove_left(storage: &dyn Storage, path: &Path) -> io::Result<()> {
    let (start, end) = temporary(path);
    let directory = directory_of(path);
    for name in storage.list(directory)? {
        let number = name.as_bytes().strip_prefix(start.as_bytes());
        let number = number.and_then(|rest| rest.strip_suffix(end.as_bytes()));
        let number = number.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        if number.is_some_and(|pid| ProcessId::of(pid).is_none()) {
            remove_if_exists_in(storage, &directory.join(name))?;
        }
    }
    Ok(())
}

/// Replaces the contents of a file. Writes them beside the file, to the disk, and renames the new file. `mode` is that of a new file
/// (open(2)); an existing one keeps its own. After an error, the file has its former contents, and no other file is left, except that it
/// has the new contents if only its directory could not be written to the disk. A symbolic link stays, and what it points to is replaced.
/// Terminals, pipes and other paths that are not files are written to directly.
///
/// # Errors
/// Error of the operating system.
pub fn replace(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    replace_in(&Disk, path, contents, mode)
}

/// Replaces the contents of a file like [`replace`], with the caller's storage.
///
/// # Errors
/// Error of the operating system.
pub fn replace_in(
    storage: &dyn Storage,
    path: &Path,
    contents: &[u8],
    mode: u32,
) -> io::Result<()> {
    let path = &match storage.resolve(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        found => found?,
    };
    let permissions = match storage.metadata(path) {
        Ok(meta) if !meta.is_file() => {
            return storage
                .open(path, Opening::Truncate, mode)?
                .append(contents);
        }
        Ok(meta) => Some(meta.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    remove_left(storage, path)?;
    let new = new_beside(path);
    let written = write_new(storage, &new, contents, mode, permissions)
        .and_then(|()| storage.rename(&new, path));
    if let Err(error) = written {
        // If the file cannot be removed either, nothing else can be done.
        let _ = storage.remove_file(&new);
        return Err(error);
    }
    storage.sync_directory(directory_of(path))
}

/// Replaces a file by one that only its owner can read (mode 0600), with what `write` writes into it. Renames the new file after it is
/// written to the disk. After an error of `write`, the file has its former contents, and no other file is left. A symbolic link stays, and
/// what it points to is replaced. Terminals, pipes and other paths that are not files are written to directly. `failed` converts errors of
/// the operating system.
///
/// # Errors
/// Those of `write` and `failed`.
pub fn replace_private<T, E>(
    path: &Path,
    write: impl FnOnce(&File) -> Result<T, E>,
    failed: impl Fn(io::Error) -> E,
) -> Result<T, E> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        // A directory is refused here.
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return write(&file);
    }
    remove_left(&Disk, path).map_err(&failed)?;
    let new = new_beside(path);
    // A file of this name is of an earlier process with the same ID.
    remove_if_exists(&new).map_err(&failed)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(&new).map_err(&failed)?;
    let written = write(&file).and_then(|written| {
        let replaced = file.sync_all().and_then(|()| fs::rename(&new, path));
        replaced.map_err(&failed)?;
        Ok(written)
    });
    match written {
        Ok(written) => {
            sync_directory(directory_of(path)).map_err(&failed)?;
            Ok(written)
        }
        Err(error) => {
            // If the file cannot be removed either, nothing else can be done.
            let _ = fs::remove_file(&new);
            Err(error)
        }
    }
}

fn write_new(
    storage: &dyn Storage,
    path: &Path,
    contents: &[u8],
    mode: u32,
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let mut file = storage.open(path, Opening::Truncate, mode)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.append(contents)?;
    file.sync()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for text in ["first", "second, longer", ""] {
            replace(&path, text.as_bytes(), 0o600).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["file"]);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        // A directory cannot be replaced by a file.
        let path = directory.path().join("directory");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"text", 0o600).is_err());
        assert!(path.is_dir());
        assert_eq!(names(directory.path()), ["directory"]);
        let missing = directory.path().join("missing").join("file");
        let error = replace(&missing, b"text", 0o600).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_stay_and_permissions_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "first").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, b"second", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        // A device is not replaced by a file.
        replace(Path::new("/dev/null"), b"text", 0o600).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(replace(Path::new("/dev/full"), b"text", 0o600).is_err());
    }

    #[test]
    fn private_files_are_replaced_and_devices_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        let private = |path: &Path, text: &str| {
            replace_private(
                path,
                |mut file| file.write_all(text.as_bytes()),
                |error| error,
            )
        };
        fs::write(&file, "first").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        private(&link, "second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = |_: &File| Err::<(), _>(io::Error::other("refused"));
        replace_private(&file, refused, |error| error).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(names(directory.path()).len(), 2);
        // No device, and no directory, becomes a file.
        private(Path::new("/dev/null"), "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = private(Path::new("/dev/full"), "text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let error = private(directory.path(), "text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn temporary_files_of_killed_processes_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let left = format!(".file.{}.new", ended.id());
        let others = [".file.1.new", ".file.x.new", ".other.2000000000.new"];
        for name in others.iter().copied().chain([left.as_str()]) {
            fs::write(directory.path().join(name), "part").unwrap();
        }
        replace(&path, b"text", 0o600).unwrap();
        let mut found = names(directory.path());
        found.sort();
        let [first, second, third] = others;
        assert_eq!(found, [first, second, third, "file"]);
    }

    #[test]
    fn the_directory_of_a_name_is_the_working_directory() {
        assert_eq!(directory_of(Path::new("page.html")), Path::new("."));
        assert_eq!(directory_of(Path::new("a/page.html")), Path::new("a"));
        assert_eq!(directory_of(Path::new("/page.html")), Path::new("/"));
    }
}
