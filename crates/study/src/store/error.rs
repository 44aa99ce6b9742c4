// SPDX-License-Identifier: Apache-2.0
//! Errors of the store.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use quietwire_base::LockOwner;
use quietwire_base::durable::directory_of;
use rusqlite::ErrorCode;

/// Error of a store. After a failed write the earlier content is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A new store is requested, but the file exists.
    #[error(
        "{} already exists and contains results (continue it with --resume, start over with --fresh, which renames it, or use another path with --store)",
        .0.display()
    )]
    Exists(PathBuf),
    /// The path is that of a directory.
    #[error("{} is a directory, but a store is a file (give the path of a file)", .0.display())]
    Directory(PathBuf),
    /// The file does not exist.
    #[error("store {} does not exist (give the path of a store that a study wrote)", .0.display())]
    Missing(PathBuf),
    /// The file of a run to continue does not exist.
    #[error(
        "store {} does not exist, so there is no run to continue (omit --resume, or give the path of another store with --store)",
        .0.display()
    )]
    NothingToResume(PathBuf),
    /// The file is not a store.
    #[error("{} is not a quietwire result store ({reason}); file left unchanged, use another path", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A newer version wrote it.
    #[error(
        "{} was written by a newer quietwire: it has schema {found}, and this version supports up to {known} (use the newer version)",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Schema of this program.
        known: i64,
    },
    /// A version that is too old wrote it.
    #[error(
        "{} was written by an older quietwire: it has schema {found}, and this version supports {oldest} and later (use the older version)",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Oldest supported schema.
        oldest: i64,
    },
    /// Another process writes to it.
    #[error("{} is in use by another run (wait until it ends, or use another path)", .0.display())]
    InUse(PathBuf),
    /// Another run has it open.
    #[error("{} is in use by another run, of {owner} (wait until it ends, or use another path)", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// Its process.
        owner: LockOwner,
    },
    /// An old store cannot be renamed.
    #[error("cannot rename {}: {reason}", path.display())]
    CannotRename {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A resumed study is not the one that was begun.
    #[error(
        "{} contains results of another study file (SHA-256 {}…, not {}…; resume with the original file, or start over with --fresh)",
        path.display(), short(stored), short(given)
    )]
    OtherStudy {
        /// The store.
        path: PathBuf,
        /// Hash of the original file.
        stored: String,
        /// Hash of the given file.
        given: String,
    },
    /// A resumed study was begun under other conditions.
    #[error(
        "{} was measured under other conditions: {} (resume under the original ones, start over with --fresh, or mix both with --anyway, which the store records)",
        path.display(), differences.join("; ")
    )]
    OtherConditions {
        /// The store.
        path: PathBuf,
        /// The differences, each as a clause.
        differences: Vec<String>,
    },
    /// No space left.
    #[error(
        "no space left for {}: the disk is full, or a file size limit was reached (free space, then continue with --resume; earlier results are safe)",
        .0.display()
    )]
    Full(PathBuf),
    /// Writing is not permitted.
    #[error("cannot write {}: the file or its file system is read-only (use another path with --store)", .0.display())]
    ReadOnly(PathBuf),
    /// The file cannot be opened or created.
    #[error("cannot open {}: {reason} (check that the directory exists and is writable)", path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        reason: String,
    },
    /// I/O error below SQLite.
    #[error("I/O error on {}: {reason} (check the disk and the kernel log; earlier results are safe)", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        reason: String,
    },
    /// The content is invalid.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Problem.
        reason: String,
    },
    /// The content exceeds the limits of a file of this size.
    #[error(
        "reading {} was stopped: it has more content than a file of its size can have, or takes too long (the file may be damaged; use a sound copy)",
        .0.display()
    )]
    TooLong(PathBuf),
    /// The stored value would not be readable.
    #[error("cannot store {what}: {reason}")]
    CannotStore {
        /// Name of the value.
        what: &'static str,
        /// Reason.
        reason: String,
    },
    /// Another error of SQLite.
    #[error("{}: {error}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        error: rusqlite::Error,
    },
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Converts an error of SQLite.
pub(super) fn of_sqlite(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(path),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly(path),
        Some(ErrorCode::CannotOpen) => StoreError::CannotOpen { path, reason },
        // SQLite reports a full disk so if it has no space for its files beside the store.
        Some(ErrorCode::SystemIoFailure) if is_full(&path) => StoreError::Full(path),
        Some(ErrorCode::SystemIoFailure) => StoreError::Io { path, reason },
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path, reason },
        Some(ErrorCode::OperationInterrupted) => StoreError::TooLong(path),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, reason },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse(path),
        _ => StoreError::Other { path, error },
    }
}

/// Returns whether the disk of a file has no space for the smallest file of SQLite, the index of its log (32 KiB, "WAL-Index File Format").
fn is_full(path: &Path) -> bool {
    const SMALLEST: u64 = 32 << 10;
    let space = statvfs(directory_of(path)).map(|disk| {
        let blocks = disk.blocks_available();
        blocks.saturating_mul(disk.fragment_size())
    });
    space.is_ok_and(|space| space < SMALLEST)
}

/// Converts an error of the system on opening the file.
pub(super) fn of_system(path: &Path, error: &std::io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => StoreError::Exists(path),
        std::io::ErrorKind::NotFound => StoreError::CannotOpen {
            reason: "no such file or directory".to_owned(),
            path,
        },
        std::io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(path),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            StoreError::Full(path)
        }
        _ => StoreError::CannotOpen {
            reason: error.to_string(),
            path,
        },
    }
}
