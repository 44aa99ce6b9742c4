// SPDX-License-Identifier: Apache-2.0
//! Noisy neighbours: stress-ng, at ordinary priority, in a CPU set of its own.

mod intensity;
mod kinds;
mod placement;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal::Journal;

use crate::error::{LabError, io_error};
use crate::spawn;

pub use intensity::{AtWork, Intensity};
pub use kinds::{NeighbourKind, neighbour_kinds};
pub use placement::Placement;
pub(crate) use placement::siblings;

/// What neighbours there are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourSpec {
    /// Arguments of stress-ng, each like `--cpu 4`.
    pub stressors: Vec<String>,
    /// CPUs they may use.
    pub cpus: CpuList,
}

impl NeighbourSpec {
    /// Sees whether such neighbours can be had, without making any: so that what is missing or misspelt is told before
    /// the first case is measured, and not after.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`], [`LabError::Stressors`].
    pub fn check(&self) -> Result<(), LabError> {
        require_programs()?;
        let arguments = stressor_arguments(self);
        let output = Command::new("stress-ng")
            .arg("--dry-run")
            .args(&arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(io_error(Path::new("stress-ng"), "trying its options"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(LabError::Stressors {
            stressors: arguments.join(" "),
            said: first_complaint(&String::from_utf8_lossy(&said)),
        })
    }
}

/// The first line that stress-ng says and that is not for information.
fn first_complaint(said: &str) -> String {
    let line = said.lines().find(|line| !line.contains(": info:"));
    line.map_or("(it said nothing)", str::trim).to_owned()
}

fn require_programs() -> Result<(), LabError> {
    spawn::require("stress-ng", "stress-ng")?;
    for program in ["setpriv", "chrt"] {
        spawn::require(program, "util-linux")?;
    }
    Ok(())
}

fn stressor_arguments(spec: &NeighbourSpec) -> Vec<String> {
    let words = spec
        .stressors
        .iter()
        .flat_map(|text| text.split_whitespace());
    words.map(str::to_owned).collect()
}

/// Running neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    child: Child,
    pub(crate) command: Vec<String>,
    log: PathBuf,
    set: Cpuset,
    cpus: CpuList,
}

/// How long the neighbours may take to be at work.
const UP_DEADLINE: Duration = Duration::from_secs(20);
/// How long they may take to stop when asked.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

impl Neighbours {
    pub(crate) fn start(
        journal: &mut Journal,
        spec: &NeighbourSpec,
        set: &Cpuset,
        class: Option<PathBuf>,
        directory: &Path,
    ) -> Result<Self, LabError> {
        require_programs()?;
        // Ended by the kernel when this process is: neighbours must not outlive a killed study. And of ordinary
        // priority, whatever that of the thread that starts them.
        let mut command: Vec<String> = "setpriv --pdeathsig KILL chrt --other 0 stress-ng"
            .split(' ')
            .map(str::to_owned)
            .collect();
        command.extend(stressor_arguments(spec));
        let log = directory.join("neighbours.log");
        let lists: Vec<PathBuf> = class.into_iter().chain([set.processes_file()]).collect();
        let child = spawn::spawn_in(journal, &command, &lists, &log)?;
        let mut neighbours = Self {
            child,
            command,
            log,
            set: set.clone(),
            cpus: spec.cpus.clone(),
        };
        neighbours.wait_until_at_work(set)?;
        Ok(neighbours)
    }

    /// stress-ng itself only waits: it is at work when it has children.
    fn wait_until_at_work(&mut self, set: &Cpuset) -> Result<(), LabError> {
        let began = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    return Err(self.failed(format!("ended at once, with {status}")));
                }
                Err(error) => return Err(self.failed(format!("cannot be watched: {error}"))),
                Ok(None) => {}
            }
            if set.processes()?.len() > 1 {
                return Ok(());
            }
            if began.elapsed() >= UP_DEADLINE {
                return Err(self.failed("were not at work in 20 s".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn failed(&self, what: String) -> LabError {
        LabError::Neighbours {
            what,
            log: spawn::last_words(&self.log),
            command: self.command.join(" "),
        }
    }

    /// A look at all that they are just now.
    pub(crate) fn at_work(&self) -> Result<AtWork, LabError> {
        let tasks = self.set.processes()?.into_iter();
        let pids = tasks.filter_map(|pid| u32::try_from(pid).ok()).collect();
        AtWork::look(pids, &self.cpus)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn died(&self) -> LabError {
        self.failed("died".to_owned())
    }

    /// Ends them; those that do not end by themselves go with their CPU set.
    pub(crate) fn stop(&mut self) -> Result<(), LabError> {
        spawn::stop(&mut self.child, STOP_PATIENCE)
            .map(|_| ())
            .map_err(|error| self.failed(format!("could not be stopped: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stressors: &str) -> NeighbourSpec {
        NeighbourSpec {
            stressors: vec![stressors.to_owned()],
            cpus: CpuList::new(),
        }
    }

    #[test]
    fn options_of_stress_ng_are_tried_before_they_are_used() {
        spec("--cpu 1 --cpu-method sqrt").check().unwrap();
        let error = spec("--no-such-stressor 1").check().unwrap_err();
        assert_eq!(error.fault(), crate::Fault::BadInput);
        let text = error.to_string();
        assert!(
            text.contains("no-such-stressor") && !text.contains('\n'),
            "{text}"
        );
    }
}
