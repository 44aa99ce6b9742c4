// SPDX-License-Identifier: Apache-2.0
//! The search for programs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the path of the first program of this name in the directories of `PATH`.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    find_program_in(Path::new("/"), &search_path(), name)
}

/// Returns the variable `PATH` of this process; empty if it is not set.
#[must_use]
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

/// Returns the path of the first program of this name in the directories of `search_path`, which has the form of `PATH`. The directories
/// are searched below `root`, which is not part of the returned path.
#[must_use]
pub fn find_program_in(root: &Path, search_path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .map(|directory| directory.join(name))
        .find(|path| is_program(root, path))
}

/// Returns true if `path` below `root` is an executable file.
#[must_use]
pub fn is_program(root: &Path, path: &Path) -> bool {
    const EXECUTABLE: u32 = 0o111;
    let path = root.join(path.strip_prefix("/").unwrap_or(path));
    fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & EXECUTABLE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_may_be_executed_is_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, mode: u32| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("a/tool", 0o644);
        fs::create_dir_all(root.path().join("b/tool")).unwrap();
        write("c/tool", 0o755);
        write("d/tool", 0o755);
        let find = |path: &str, name: &str| find_program_in(root.path(), OsStr::new(path), name);
        assert_eq!(find("/none:/a:/b:/c:/d", "tool"), Some("/c/tool".into()));
        assert_eq!(find("/a:/b", "tool"), None);
        assert_eq!(find("/c", "other"), None);
        assert_eq!(find("", "tool"), None);
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program"), None);
    }
}
