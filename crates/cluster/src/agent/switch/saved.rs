// SPDX-License-Identifier: Apache-2.0
//! State of the switch that was saved before a planned end: tracked connections, mappings of NAT and connections of load balancers.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use quietwire_switch::SwitchError;
use quietwire_switch::report::RestoredMappingsReport;
use quietwire_switch::{connection_file, mapping_file};

/// File of `quietwire switch mappings save`, below the root directory.
pub(crate) const MAPPINGS: &str = "run/quietwire/mappings";
/// File of `quietwire switch connections save`, below the root directory.
pub(crate) const CONNECTIONS: &str = "run/quietwire/connections";

/// Returns the time of the last modification of a file. None if there is no file.
fn modified(path: &Path) -> Result<Option<SystemTime>, String> {
    match fs::metadata(path).and_then(|metadata| metadata.modified()) {
        Ok(time) => Ok(Some(time)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Files of saved state.
#[derive(Clone, Debug)]
pub(in crate::agent) struct SavedFiles {
    mappings: PathBuf,
    connections: PathBuf,
}

impl SavedFiles {
    /// Returns the files below a root directory.
    pub(in crate::agent) fn below(root: &Path) -> Self {
        Self {
            mappings: root.join(MAPPINGS),
            connections: root.join(CONNECTIONS),
        }
    }

    /// Restores saved state in the switch at a control socket, and removes the files. A file is left alone if the switch has not started
    /// since it was written: it has this state itself then.
    ///
    /// # Errors
    /// The switch does not reply: the files stay. A file is invalid, or the switch refuses it: the file is removed. A file cannot be read or
    /// removed.
    pub(in crate::agent) fn restore(&self, socket: &Path) -> Result<(), String> {
        self.restore_by(socket, mapping_file::restore, connection_file::restore)
    }

    /// As [`Self::restore`], by functions that read a file and send its entries to the switch.
    fn restore_by(
        &self,
        socket: &Path,
        send_mappings: impl FnOnce(&Path, &Path) -> Result<RestoredMappingsReport, SwitchError>,
        send_connections: impl FnOnce(&Path, &Path) -> Result<connection_file::Restored, SwitchError>,
    ) -> Result<(), String> {
        let mappings = restore_mappings(socket, &self.mappings, send_mappings);
        // A connection may have the external port of a mapping, so it must not come first.
        if mappings.is_err() && self.mappings.exists() {
            return mappings;
        }
        let connections = restore_connections(socket, &self.connections, send_connections);
        match (mappings, connections) {
            (Err(one), Err(other)) => Err(format!("{one}; {other}")),
            (mappings, connections) => mappings.and(connections),
        }
    }
}

fn restore_mappings(
    socket: &Path,
    saved: &Path,
    send: impl FnOnce(&Path, &Path) -> Result<RestoredMappingsReport, SwitchError>,
) -> Result<(), String> {
    if let Some(report) = restore(socket, saved, send)? {
        tracing::info!(
            "restored mappings of the switch: {}, already there: {}, without space: {}, invalid: {}",
            report.restored,
            report.known,
            report.full,
            report.invalid
        );
    }
    Ok(())
}

fn restore_connections(
    socket: &Path,
    saved: &Path,
    send: impl FnOnce(&Path, &Path) -> Result<connection_file::Restored, SwitchError>,
) -> Result<(), String> {
    if let Some(restored) = restore(socket, saved, send)? {
        let report = restored.report;
        tracing::info!(
            "restored connections of the switch: {}, expired: {}, already there: {}, without space: {}, invalid: {}",
            report.restored,
            restored.expired,
            report.known,
            report.full,
            report.invalid
        );
    }
    Ok(())
}

/// Sends a file to the switch, and removes it. Returns `None` if there is no file, or if the switch has not started since it was written.
fn restore<R>(
    socket: &Path,
    saved: &Path,
    send: impl FnOnce(&Path, &Path) -> Result<R, SwitchError>,
) -> Result<Option<R>, String> {
    let (Some(written), Some(started)) = (modified(saved)?, modified(socket)?) else {
        return Ok(None);
    };
    if started <= written {
        return Ok(None);
    }
    let restored = send(socket, saved);
    if let Err(error @ SwitchError::ControlSocket { .. }) = &restored {
        return Err(error.to_string());
    }
    fs::remove_file(saved).map_err(|error| format!("{}: {error}", saved.display()))?;
    restored.map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use nix::sys::stat::{Mode, utimes};
    use nix::sys::time::{TimeVal, TimeValLike as _};
    use nix::unistd::mkfifo;
    use quietwire_base::{Fault, run_within};

    use super::*;

    /// A control socket, and files that were written before or after it.
    struct Rig {
        directory: tempfile::TempDir,
        files: SavedFiles,
        _listener: UnixListener,
    }

    impl Rig {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(directory.path().join("switch.sock")).unwrap();
            let files = SavedFiles {
                mappings: directory.path().join("mappings"),
                connections: directory.path().join("connections"),
            };
            fs::write(&files.mappings, "no mappings").unwrap();
            fs::write(&files.connections, "no connections").unwrap();
            let rig = Self {
                directory,
                files,
                _listener: listener,
            };
            rig.set_written(SystemTime::UNIX_EPOCH);
            rig
        }

        fn socket(&self) -> PathBuf {
            self.directory.path().join("switch.sock")
        }

        fn set_written(&self, time: SystemTime) {
            for path in [&self.files.mappings, &self.files.connections] {
                let file = File::options().write(true).open(path).unwrap();
                file.set_modified(time).unwrap();
            }
        }

        /// Returns whether the files of mappings and of connections exist.
        fn has_files(&self) -> [bool; 2] {
            [&self.files.mappings, &self.files.connections].map(|path| path.exists())
        }

        fn silent(&self) -> SwitchError {
            SwitchError::ControlSocket {
                path: self.socket(),
                what: "no reply within 30 s".to_owned(),
                fault: Fault::Failed,
            }
        }

        /// Restores the files in a switch that gives these replies. Returns the result, and the files that were sent.
        fn restore(
            &self,
            mappings: Result<(), SwitchError>,
            connections: Result<(), SwitchError>,
        ) -> (Result<(), String>, Vec<&str>) {
            let sent = std::cell::RefCell::new(Vec::new());
            let result = self.files.restore_by(
                &self.socket(),
                |_, _| {
                    sent.borrow_mut().push("mappings");
                    mappings.map(|()| RestoredMappingsReport::default())
                },
                |_, _| {
                    sent.borrow_mut().push("connections");
                    connections.map(|()| connection_file::Restored::default())
                },
            );
            (result, sent.into_inner())
        }
    }

    #[test]
    fn state_is_restored_once_and_only_after_another_start() {
        let rig = Rig::new();
        // The switch that has saved it still runs.
        rig.set_written(SystemTime::now() + Duration::from_secs(3600));
        assert_eq!(rig.restore(Ok(()), Ok(())), (Ok(()), vec![]));
        assert_eq!(rig.has_files(), [true; 2]);
        rig.set_written(SystemTime::UNIX_EPOCH);
        let all = vec!["mappings", "connections"];
        assert_eq!(rig.restore(Ok(()), Ok(())), (Ok(()), all));
        assert_eq!(rig.has_files(), [false; 2]);
        assert_eq!(rig.restore(Ok(()), Ok(())), (Ok(()), vec![]));
    }

    #[test]
    fn state_waits_for_a_switch_that_replies_and_connections_for_mappings() {
        let rig = Rig::new();
        let (result, sent) = rig.restore(Err(rig.silent()), Ok(()));
        let error = result.unwrap_err();
        assert!(error.contains("no reply"), "{error}");
        assert_eq!((sent, rig.has_files()), (vec!["mappings"], [true; 2]));
        let (result, sent) = rig.restore(Ok(()), Err(rig.silent()));
        assert!(result.is_err());
        assert_eq!(sent, ["mappings", "connections"]);
        assert_eq!(rig.has_files(), [false, true]);
        // Without a control socket, no switch runs.
        fs::remove_file(rig.socket()).unwrap();
        assert_eq!(rig.restore(Ok(()), Ok(())), (Ok(()), vec![]));
        assert_eq!(rig.has_files(), [false, true]);
    }

    #[test]
    fn invalid_files_are_named_and_removed() {
        let rig = Rig::new();
        let error = rig.files.restore(&rig.socket()).unwrap_err();
        let paths = [&rig.files.mappings, &rig.files.connections];
        let names = paths.map(|path| path.display().to_string());
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(rig.has_files(), [false; 2]);
        // The switch has written other things in their place, from before its start.
        for path in paths {
            mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
            utimes(path, &TimeVal::zero(), &TimeVal::zero()).unwrap();
        }
        // A FIFO that is read would block the test.
        let (files, socket) = (rig.files.clone(), rig.socket());
        let restored = run_within(Duration::from_secs(60), move || Ok(files.restore(&socket)));
        let error = restored.unwrap().unwrap_err();
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
        assert_eq!(error.matches("not a regular file").count(), 2, "{error}");
        assert_eq!(rig.has_files(), [false; 2]);
    }
}
