// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a store, in words that help.

use std::path::{Path, PathBuf};

use quietwire_base::LockOwner;
use rusqlite::ErrorCode;

/// What is wrong with a store. A failed write leaves what was stored before as it was.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A new store was asked for, and the file is there.
    #[error(
        "{} is there already and holds results; go on with it with --resume, start over with --fresh (which keeps it under another name), or give another path with --store",
        .0.display()
    )]
    Exists(PathBuf),
    /// The path is that of a directory.
    #[error("{} is a directory, and a store is a file; give the path of a file in it", .0.display())]
    Directory(PathBuf),
    /// There is no such file.
    #[error("there is no store {}; give the path of one that a study wrote", .0.display())]
    Missing(PathBuf),
    /// The file is no store.
    #[error("{} is not a store of quietwire ({reason}); it was left as it is, give another path", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is, or is not.
        reason: String,
    },
    /// A later program wrote it.
    #[error(
        "{} was written by a later quietwire: it has schema {found}, and this one knows {known}; use the later one",
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
    /// An earlier program wrote it, one that is too old.
    #[error(
        "{} was written by an earlier quietwire: it has schema {found}, and this one reads {oldest} and later; use the earlier one",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Earliest schema that this program reads.
        oldest: i64,
    },
    /// Another process writes to it.
    #[error("{} is being written by another run; wait for that one to end, or give another path", .0.display())]
    InUse(PathBuf),
    /// Another run has it open.
    #[error("{} is being written by another run, of {owner}; wait for that one to end, or give another path", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// Its process.
        owner: LockOwner,
    },
    /// A resumed study is not the one that was begun.
    #[error(
        "{} holds results of another study file (SHA-256 {}…, and this one's is {}…); resume with the file that it was begun with, or start over with --fresh",
        path.display(), short(stored), short(given)
    )]
    OtherStudy {
        /// The store.
        path: PathBuf,
        /// Hash of the file it was begun with.
        stored: String,
        /// Hash of the file given.
        given: String,
    },
    /// No room.
    #[error(
        "there is no room for {}: the disk is full, or a limit on the file's size was reached; make room, then go on with --resume (what was stored before is safe)",
        .0.display()
    )]
    Full(PathBuf),
    /// Writing is not allowed.
    #[error("{} cannot be written: it, or its file system, is read-only; give another path with --store", .0.display())]
    ReadOnly(PathBuf),
    /// The file cannot be opened or made.
    #[error("{} cannot be opened: {reason}; is the directory there, and may you write to it?", path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Reading or writing failed below SQLite.
    #[error("reading or writing {} failed: {reason}; look at the disk and the kernel's log, what was stored before stays", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// What is stored makes no sense.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Something was to be stored that could not be read back.
    #[error("{what} cannot be stored: {reason}")]
    CannotStore {
        /// What it was.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// Anything else that SQLite says.
    #[error("{}: {error}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        error: rusqlite::Error,
    },
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// SQLite's error in our words.
pub(super) fn of_sqlite(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(path),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreError::ReadOnly(path),
        Some(ErrorCode::CannotOpen) => StoreError::CannotOpen { path, reason },
        Some(ErrorCode::SystemIoFailure) => StoreError::Io { path, reason },
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path, reason },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, reason },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse(path),
        _ => StoreError::Other { path, error },
    }
}

/// The system's error when the file itself is opened.
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
