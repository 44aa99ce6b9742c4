// SPDX-License-Identifier: Apache-2.0
//! The store: one SQLite file with all requests and results. Each finished trial is one durable transaction, so it survives
//! any end of the run.

mod compact;
mod error;
mod limits;
mod migrate;
mod overview;
mod read;
mod series;
#[cfg(test)]
mod tests;
mod write;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::{LockError, LockFile, unix_time};
use rusqlite::{Connection, OpenFlags};
use sha2::{Digest, Sha256};

pub use error::StoreError;
use error::{of_sqlite, of_system};
use limits::{Budget, Limits};
pub use overview::{LatestTrial, StudyOverview};

use crate::file::StudyFile;
use crate::identity::RunIdentity;
use crate::schema;

/// Maximum wait for another process that reads the store.
const BUSY: Duration = Duration::from_secs(10);

/// Mode of opening a store for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// New store; an error if the file exists.
    New,
    /// Store that an earlier run of the same study file left; a new one if there is none.
    Resume,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    // The connection closes before the lock is released: fields are dropped in this order.
    connection: Connection,
    path: PathBuf,
    /// Schema of the file. A store opened for reading keeps the schema of an earlier version.
    schema: i64,
    run_id: Option<i64>,
    /// Conditions of the next run, and what differs from the earlier ones.
    conditions: Option<(RunIdentity, Vec<String>)>,
    /// Limit of a store opened for reading.
    budget: Option<Budget>,
    #[cfg(test)]
    pub(crate) write_faults: WriteFaults,
    _lock: Option<LockFile>,
}

/// Transactions that fail at their commit, as on a full disk.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct WriteFaults {
    /// Transactions that still succeed. `None`: all.
    pub(crate) after: Option<u32>,
    /// Whether only one transaction fails.
    pub(crate) is_passing: bool,
}

#[cfg(test)]
impl WriteFaults {
    fn next(&mut self) -> rusqlite::Result<()> {
        match &mut self.after {
            None => Ok(()),
            Some(0) => {
                if self.is_passing {
                    self.after = None;
                }
                let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
                Err(rusqlite::Error::SqliteFailure(full, None))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

impl Store {
    /// Opens a store for a run of `file`, whose text is `text`.
    ///
    /// # Errors
    /// [`StoreError`]: the file exists (or, to be resumed, is of another study), is not a store, or is not writable.
    pub fn open(
        path: &Path,
        file: &StudyFile,
        text: &str,
        mode: OpenMode,
    ) -> Result<Self, StoreError> {
        refuse_other_files(path)?;
        match mode {
            OpenMode::New => Self::create(path, file, text),
            // A run that is killed before its first write leaves an empty file.
            OpenMode::Resume if std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0) => {
                Self::resume(path, file, text)
            }
            OpenMode::Resume if path.exists() => {
                let lock = lock(path)?;
                Self::fill(path, lock, file, text)
            }
            OpenMode::Resume => Self::create(path, file, text),
        }
    }

    fn create(path: &Path, file: &StudyFile, text: &str) -> Result<Self, StoreError> {
        // Results may contain confidential information about the machine.
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| of_system(path, &error))?;
        let lock = locked(made, path)?;
        let filled = Self::fill(path, lock, file, text);
        if filled.is_err() {
            // A file without a study would have to be removed before the next attempt. If it cannot be removed, the error says enough.
            for name in named(path, "") {
                let _ = std::fs::remove_file(name);
            }
        }
        filled
    }

    /// Renames a store and the files that SQLite added to it, to its name with the first free number. Returns the new name; `None` if there
    /// is no store.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if a run writes to the store, [`StoreError`] if it cannot be renamed.
    pub fn set_aside(path: &Path) -> Result<Option<PathBuf>, StoreError> {
        refuse_other_files(path)?;
        let opened = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| of_system(path, &error))?,
        };
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let ours = opened.metadata().map(identity);
        let _lock = locked(opened, path)?;
        let renamed = |reason: String| StoreError::CannotRename {
            path: path.to_owned(),
            reason,
        };
        let system = |error: std::io::Error| renamed(error.to_string());
        // Another process may have renamed the file before it was locked.
        let found = std::fs::metadata(path).map(identity);
        if ours.map_err(system)? != found.map_err(system)? {
            return Err(renamed("another run replaced it (try again)".to_owned()));
        }
        let number = (1..KEPT_MAX).find(|number| {
            let mut names = named(path, &format!(".{number}")).into_iter();
            names.all(|name| std::fs::symlink_metadata(name).is_err())
        });
        let suffix = number
            .map(|number| format!(".{number}"))
            .ok_or_else(|| renamed("too many old stores are beside it (remove some)".to_owned()))?;
        for (from, to) in named(path, "").into_iter().zip(named(path, &suffix)) {
            match std::fs::rename(&from, &to) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                outcome => outcome.map_err(system)?,
            }
        }
        Ok(Some(PathBuf::from(format!("{}{suffix}", path.display()))))
    }

    fn fill(path: &Path, lock: LockFile, file: &StudyFile, text: &str) -> Result<Self, StoreError> {
        let mut store = Self::connect(path, lock)?;
        store.write(|transaction| {
            transaction.execute_batch(schema::CREATE)?;
            transaction.execute_batch(schema::CREATE_MAX_RATE)?;
            transaction.execute_batch(schema::CREATE_EVENTS)?;
            transaction.execute_batch(schema::CREATE_INDEX)?;
            transaction.execute_batch(schema::CREATE_CONSOLE)?;
            transaction.execute_batch(schema::CREATE_IDENTITY)?;
            transaction.execute_batch(schema::CREATE_SERIES)?;
            transaction.execute(
                "INSERT INTO study (id, name, title, file_text, file_sha256, started_unix_ns) VALUES (1, ?, ?, ?, ?, ?)",
                (&file.name, &file.title, text, sha256(text), unix_ns()),
            )?;
            transaction.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", schema::VERSION)
        })?;
        Ok(store)
    }

    fn resume(path: &Path, _file: &StudyFile, text: &str) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        // Checked before any change: a file that is not a store stays unchanged.
        let found = schema_of(&open_to_read(path, &Limits::of(&named(path, "")))?, path)?;
        let mut store = Self::connect(path, lock)?;
        let stored: String = store.ask(|connection| {
            connection.query_row("SELECT file_sha256 FROM study", (), |row| row.get(0))
        })?;
        let given = sha256(text);
        if stored != given {
            return Err(StoreError::OtherStudy {
                path: path.to_owned(),
                stored,
                given,
            });
        }
        if found < schema::VERSION {
            store.migrate(found)?;
        }
        Ok(store)
    }

    /// Opens a store to read its content once. Until it is closed, the amount of data that is read has a limit, which depends on the size
    /// of the file. The time has a limit, too.
    ///
    /// # Errors
    /// [`StoreError`]: it does not exist, is not a store, or is not readable.
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        Self::open_to_read_within(path, &Limits::of(&named(path, "")))
    }

    fn open_to_read_within(path: &Path, limits: &Limits) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing(path.to_owned()));
        }
        refuse_other_files(path)?;
        let connection = open_to_read(path, limits)?;
        Ok(Self {
            schema: schema_of(&connection, path)?,
            connection,
            path: path.to_owned(),
            run_id: None,
            conditions: None,
            budget: Some(Budget::new(limits)),
            #[cfg(test)]
            write_faults: WriteFaults::default(),
            _lock: None,
        })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn connect(path: &Path, lock: LockFile) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| of_sqlite(path, error))?;
        let prepare = || {
            connection.busy_timeout(BUSY)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // A trial counts as stored only if it survives a power failure.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)
        };
        prepare().map_err(|error| of_sqlite(path, error))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            schema: schema::VERSION,
            run_id: None,
            conditions: None,
            budget: None,
            #[cfg(test)]
            write_faults: WriteFaults::default(),
            _lock: Some(lock),
        })
    }

    /// Runs `change` in a transaction.
    fn write<T>(
        &mut self,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let path = &self.path;
        let run = || {
            let transaction = self.connection.transaction()?;
            let value = change(&transaction)?;
            #[cfg(test)]
            self.write_faults.next()?;
            transaction.commit()?;
            Ok(value)
        };
        run().map_err(|error| of_sqlite(path, error))
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        question(&self.connection).map_err(|error| of_sqlite(&self.path, error))
    }
}

/// Most old stores beside each other.
const KEPT_MAX: u32 = 10_000;

/// Returns the names of a store with a suffix, and of the files that SQLite adds to it.
fn named(path: &Path, suffix: &str) -> [PathBuf; 3] {
    ["", "-wal", "-shm"]
        .map(|companion| PathBuf::from(format!("{}{suffix}{companion}", path.display())))
}

/// Returns an error for a directory, which SQLite and the system report with different, unclear errors, and for a FIFO or device, whose reader
/// may wait without end.
fn refuse_other_files(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(StoreError::Directory(path.to_owned())),
        Ok(metadata) if !metadata.is_file() => Err(StoreError::NotAStore {
            path: path.to_owned(),
            reason: "it is not a regular file".to_owned(),
        }),
        // The next operation on the file reports an error.
        _ => Ok(()),
    }
}

fn lock(path: &Path) -> Result<LockFile, StoreError> {
    let file = File::open(path).map_err(|error| of_system(path, &error))?;
    locked(file, path)
}

/// Locks the file of a store, so that one run at a time writes it.
fn locked(file: File, path: &Path) -> Result<LockFile, StoreError> {
    LockFile::try_acquire_data(file, path).map_err(|error| match error {
        LockError::Busy { path, owner } => StoreError::Locked { path, owner },
        LockError::Io { cause, .. } => of_system(path, &cause),
    })
}

fn open_to_read(path: &Path, limits: &Limits) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let open = |target: &Path| {
        let mut connection = Connection::open_with_flags(target, flags)?;
        limits.apply(&mut connection)?;
        connection.busy_timeout(BUSY)?;
        // SQLite counts the rows of a table without checking the limits.
        connection.query_row("SELECT max(rowid) FROM sqlite_schema", (), |_| Ok(()))?;
        Ok(connection)
    };
    open(path).or_else(|error: rusqlite::Error| {
        // If no file can be created next to the store, SQLite reads it only with the `immutable` option.
        let wal = PathBuf::from(format!("{}-wal", path.display()));
        let is_write_trouble = matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly)
        );
        if !is_write_trouble || wal.exists() {
            return Err(of_sqlite(path, error));
        }
        let uri = format!("file:{}?immutable=1", uri_path(path));
        open(Path::new(&uri)).map_err(|error| of_sqlite(path, error))
    })
}

/// Escapes the special characters of a URI (SQLite's "URI filenames", section 3.1).
fn uri_path(path: &Path) -> String {
    path.to_string_lossy()
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23")
}

/// Returns the schema of a store that this version can read.
fn schema_of(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let pragma = |name: &str| -> Result<i64, StoreError> {
        connection
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(|error| of_sqlite(path, error))
    };
    if pragma("application_id")? != schema::APPLICATION_ID {
        return Err(StoreError::NotAStore {
            path: path.to_owned(),
            reason: "an empty SQLite file or one of another program".to_owned(),
        });
    }
    match pragma("user_version")? {
        found @ schema::VERSION_MIN..=schema::VERSION => {
            check_tables(connection, path).map(|()| found)
        }
        found if found > schema::VERSION => Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known: schema::VERSION,
        }),
        found => Err(StoreError::Older {
            path: path.to_owned(),
            found,
            oldest: schema::VERSION_MIN,
        }),
    }
}

/// Refuses a store in which something else than an ordinary table has the name of a table: a view may have rows without end, and a computed
/// column values of any length. Someone else may have made the file.
fn check_tables(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let other = connection.query_row(schema::NOT_A_TABLE, (), |row| {
        row.get::<_, Option<String>>(0)
    });
    match other.map_err(|error| of_sqlite(path, error))? {
        None => Ok(()),
        Some(name) => Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: format!("'{name}' is not an ordinary table"),
        }),
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the current time, nanoseconds since the Unix epoch. SQLite's integers suffice until the year 2262.
fn unix_ns() -> i64 {
    i64::try_from(unix_time().as_nanos()).unwrap_or(i64::MAX)
}
