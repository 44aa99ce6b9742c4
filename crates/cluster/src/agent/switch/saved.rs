// SPDX-License-Identifier: Apache-2.0
//! Mappings of NAT and connections of load balancers that were saved before a planned end of the switch.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use quietwire_switch::SwitchError;
use quietwire_switch::mapping_file;
use quietwire_switch::report::RestoredMappingsReport;

/// File of `quietwire switch mappings save`, below the root directory.
pub(crate) const MAPPINGS: &str = "run/quietwire/mappings";

/// Returns the time of the last modification of a file. None if there is no file.
fn modified(path: &Path) -> Result<Option<SystemTime>, String> {
    match fs::metadata(path).and_then(|metadata| metadata.modified()) {
        Ok(time) => Ok(Some(time)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Restores saved mappings in the switch at a control socket, and removes their file. Does nothing if there is no file, or if the switch has not
/// started since the file was written: it has these mappings itself then.
///
/// # Errors
/// The switch does not reply: the file stays. The file is invalid, or the switch refuses it: the file is removed. The file cannot be read or
/// removed.
pub(in crate::agent) fn restore(socket: &Path, saved: &Path) -> Result<(), String> {
    restore_by(socket, saved, mapping_file::restore)
}

/// As [`restore`], by a function that reads the file and sends its entries to the switch.
fn restore_by(
    socket: &Path,
    saved: &Path,
    send: impl FnOnce(&Path, &Path) -> Result<RestoredMappingsReport, SwitchError>,
) -> Result<(), String> {
    let (Some(written), Some(started)) = (modified(saved)?, modified(socket)?) else {
        return Ok(());
    };
    if started <= written {
        return Ok(());
    }
    let restored = send(socket, saved);
    if let Err(error @ SwitchError::ControlSocket { .. }) = &restored {
        return Err(error.to_string());
    }
    fs::remove_file(saved).map_err(|error| format!("{}: {error}", saved.display()))?;
    let report = restored.map_err(|error| error.to_string())?;
    tracing::info!(
        "restored mappings of the switch: {}, already there: {}, without space: {}, invalid: {}",
        report.restored,
        report.known,
        report.full,
        report.invalid
    );
    Ok(())
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

    /// A control socket, and a file that was written before or after it.
    struct Rig {
        directory: tempfile::TempDir,
        _listener: UnixListener,
    }

    impl Rig {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(directory.path().join("switch.sock")).unwrap();
            fs::write(directory.path().join("mappings"), "no mappings").unwrap();
            let rig = Self {
                directory,
                _listener: listener,
            };
            rig.set_written(SystemTime::UNIX_EPOCH);
            rig
        }

        fn set_written(&self, time: SystemTime) {
            let path = self.directory.path().join("mappings");
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(time).unwrap();
        }

        fn has_file(&self) -> bool {
            self.directory.path().join("mappings").exists()
        }

        /// Restores the file in a switch that gives a reply. Returns the result, and whether the switch was asked.
        fn restore(
            &self,
            reply: Result<RestoredMappingsReport, SwitchError>,
        ) -> (Result<(), String>, bool) {
            let mut is_asked = false;
            let (socket, saved) = (
                self.directory.path().join("switch.sock"),
                self.directory.path().join("mappings"),
            );
            let result = restore_by(&socket, &saved, |_, _| {
                is_asked = true;
                reply
            });
            (result, is_asked)
        }
    }

    #[test]
    fn mappings_are_restored_once_and_only_after_another_start() {
        let rig = Rig::new();
        // The switch that has saved them still runs.
        rig.set_written(SystemTime::now() + Duration::from_secs(3600));
        let ok = || Ok(RestoredMappingsReport::default());
        assert_eq!(rig.restore(ok()), (Ok(()), false));
        assert!(rig.has_file());
        rig.set_written(SystemTime::UNIX_EPOCH);
        assert_eq!(rig.restore(ok()), (Ok(()), true));
        assert!(!rig.has_file());
        assert_eq!(rig.restore(ok()), (Ok(()), false));
    }

    #[test]
    fn mappings_wait_for_a_switch_that_replies() {
        let rig = Rig::new();
        let silent = SwitchError::ControlSocket {
            path: rig.directory.path().join("switch.sock"),
            what: "no reply within 30 s".to_owned(),
            fault: Fault::Failed,
        };
        let (result, is_asked) = rig.restore(Err(silent));
        let error = result.unwrap_err();
        assert!(is_asked && error.contains("no reply"), "{error}");
        assert!(rig.has_file());
        // Without a control socket, no switch runs.
        fs::remove_file(rig.directory.path().join("switch.sock")).unwrap();
        let ok = Ok(RestoredMappingsReport::default());
        assert_eq!(rig.restore(ok), (Ok(()), false));
        assert!(rig.has_file());
    }

    #[test]
    fn an_invalid_file_is_named_and_removed() {
        let rig = Rig::new();
        let directory = rig.directory.path();
        let (socket, saved) = (directory.join("switch.sock"), directory.join("mappings"));
        let error = restore(&socket, &saved).unwrap_err();
        assert!(error.contains("mappings"), "{error}");
        assert!(!rig.has_file());
        // The switch has written another thing in its place, from before its start.
        mkfifo(&saved, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        utimes(&saved, &TimeVal::zero(), &TimeVal::zero()).unwrap();
        // A FIFO that is read would block the test.
        let restored = run_within(Duration::from_secs(60), move || {
            Ok(restore(&socket, &saved))
        });
        let error = restored.unwrap().unwrap_err();
        assert!(error.contains("not a regular file"), "{error}");
        assert!(!rig.has_file());
    }
}
