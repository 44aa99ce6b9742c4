// SPDX-License-Identifier: Apache-2.0
//! The study that a client has started: one at a time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_study::ready;
use serde::{Deserialize, Serialize};

/// Time that a study has to undo its changes after SIGTERM.
const END: Duration = Duration::from_secs(4);
/// Most stores of one study.
const NUMBER_MAX: u32 = 10_000;

/// Request to start a study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRequest {
    /// Name of a ready-made study.
    pub(crate) study: String,
    /// Run a short version.
    #[serde(default)]
    pub(crate) is_quick: bool,
}

/// State of the study that was started last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StartedState {
    /// Name of the study.
    pub(crate) study: String,
    /// Name of its store.
    pub(crate) store: String,
    /// True while it runs.
    pub(crate) is_running: bool,
    /// Exit code: 0 if all objectives pass. None while it runs, or if a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// Last lines of its output after its end.
    pub(crate) output: Option<String>,
}

/// Why no study was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// There is no such study.
    Unknown,
    /// A study runs.
    Running,
    /// It cannot be started, or there is no name for its store.
    Failed(String),
}

#[derive(Debug)]
struct Started {
    child: Supervised,
    study: String,
    store: String,
}

/// Starts studies.
#[derive(Debug)]
pub(crate) struct Starter {
    program: PathBuf,
    latest: Mutex<Option<Started>>,
    /// True from the end of the server on. Changed while `latest` is locked.
    has_ended: AtomicBool,
}

impl Starter {
    /// Uses this program `quietwire`.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            latest: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Starts a study with a new store in the directory.
    pub(crate) fn start(
        &self,
        request: &StartRequest,
        directory: &Path,
    ) -> Result<StartedState, StartError> {
        let Some(study) = ready(&request.study) else {
            return Err(StartError::Unknown);
        };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection may be open until the process ends, and nothing would end this study.
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(StartError::Failed("the server ends".to_owned()));
        }
        if latest.as_mut().is_some_and(|one| !one.child.has_ended()) {
            return Err(StartError::Running);
        }
        let store = new_store(study.name, directory)
            .ok_or_else(|| StartError::Failed(format!("too many stores of {}", study.name)))?;
        let mut command = Command::new(&self.program)
            .args(["study", "run", study.name, "--store"])
            .arg(directory.join(&store));
        if request.is_quick {
            command = command.arg("--quick");
        }
        let child = command
            .start(Streams::Log(&directory.join(format!("{store}.log"))))
            .map_err(|error| StartError::Failed(error.to_string()))?;
        tracing::info!("started the study {} with the store {store}", study.name);
        let mut started = Started {
            child,
            study: study.name.to_owned(),
            store,
        };
        let state = started.state();
        *latest = Some(started);
        Ok(state)
    }

    /// Returns the state of the study that was started last.
    pub(crate) fn state(&self) -> Option<StartedState> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_mut().map(Started::state)
    }

    /// Ends the study that runs. No other one is started.
    pub(crate) fn end(&self) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(mut started) = latest.take()
            && let Err(error) = started.child.end(END)
        {
            tracing::error!("the study {} did not end: {error}", started.study);
        }
    }
}

impl Started {
    fn state(&mut self) -> StartedState {
        let is_running = !self.child.has_ended();
        let status = self.child.exit().ok().flatten();
        StartedState {
            study: self.study.clone(),
            store: self.store.clone(),
            is_running,
            exit_code: status.and_then(|status| status.code()),
            output: (!is_running).then(|| self.child.last_lines()),
        }
    }
}

/// Returns a name for a store that the directory does not have yet.
fn new_store(study: &str, directory: &Path) -> Option<String> {
    (1..=NUMBER_MAX)
        .map(|number| format!("{study}-{number}{}", crate::stores::ENDING))
        .find(|name| !directory.join(name).exists())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use quietwire_base::wait_until;

    use super::*;

    #[test]
    fn one_ready_made_study_runs_at_a_time_and_ends_with_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let script = "#!/bin/sh\ntrap 'echo ended; exit 3' TERM\necho \"$@\" > \"$5.arguments\"\nwhile :; do sleep 0.01; done\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let starter = Starter::new(program);
        let request = |study: &str| StartRequest {
            study: study.to_owned(),
            is_quick: true,
        };
        let start = |study: &str| starter.start(&request(study), directory.path());
        assert_eq!(starter.state(), None);
        assert_eq!(start("../noisy-neighbours"), Err(StartError::Unknown));
        assert_eq!(start("study.toml"), Err(StartError::Unknown));
        let started = start("noisy-neighbours").unwrap();
        assert_eq!(started.store, "noisy-neighbours-1.sqlite");
        assert!(started.is_running && started.output.is_none());
        assert_eq!(start("density"), Err(StartError::Running));
        let arguments = directory.path().join("noisy-neighbours-1.sqlite.arguments");
        let deadline = Duration::from_secs(60);
        assert!(wait_until(deadline, || fs::read(&arguments)
            .is_ok_and(|it| !it.is_empty())));
        let text = fs::read_to_string(&arguments).unwrap();
        assert!(
            text.starts_with("study run noisy-neighbours --store /")
                && text.ends_with(" --quick\n"),
            "{text}"
        );
        starter.end();
        assert_eq!(starter.state(), None);
        // A client whose request arrives now gets no study.
        assert!(matches!(start("density"), Err(StartError::Failed(_))));
        assert_eq!(starter.state(), None);
        fs::write(directory.path().join("density-1.sqlite"), "").unwrap();
        assert_eq!(
            new_store("density", directory.path()).unwrap(),
            "density-2.sqlite"
        );
    }
}
