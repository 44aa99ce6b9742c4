// SPDX-License-Identifier: Apache-2.0
//! State of a running lab, for other processes and results.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quietwire_base::ProcessId;
use serde::{Deserialize, Serialize};

use crate::element::{GuestSide, Plan};
use crate::error::{LabError, io_error};
use crate::programs::Forwarder;
use crate::thread::DeviceThread;
use crate::topology::{Assignment, ElementPlace, Graph, Program};

/// State of a running lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub name: String,
    /// PID of the process that holds it.
    pub owner: Option<ProcessId>,
    /// The topology.
    pub graph: Graph,
    /// CPU assignment of the elements.
    pub cpus: Assignment,
    /// Warnings that every result must contain.
    pub warnings: Vec<String>,
    /// The tester's ports.
    pub tester: TesterSide,
    /// All other elements, in start order.
    pub elements: Vec<ElementState>,
    /// Elements of which a process exited without a request.
    pub died: Vec<String>,
}

/// Location of the tester's ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TesterSide {
    /// Network namespace for the tester; `None` for the current one.
    pub namespace: Option<String>,
    /// URIs of both ports of each chain. Empty if the tester is outside.
    pub chains: Vec<[String; 2]>,
    /// URI of the port that receives flooded frames, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
}

impl TesterSide {
    /// Returns the URIs of all ports, in order.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let chains = self.chains.iter().flatten();
        chains.chain(&self.monitor).cloned().collect()
    }
}

/// An element of a running lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ElementState {
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: Program,
    /// Its place.
    pub place: ElementPlace,
    /// The program's version.
    pub version: String,
    /// Its exact configuration.
    pub configuration: Vec<String>,
    /// Every command that was run for it.
    pub commands: Vec<String>,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Its threads.
    pub threads: Vec<DeviceThread>,
    /// The guest that it runs in.
    #[serde(default)]
    pub guest: Option<GuestSide>,
}

const FILE: &str = "state.json";

impl LabState {
    /// Writes the state atomically.
    pub(super) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let path = directory.join(FILE);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| io_error(&path, "writing the state")(error.into()))?;
        fs::write(&new, text).map_err(io_error(&new, "writing the state"))?;
        fs::rename(&new, &path).map_err(io_error(&path, "writing the state"))
    }

    /// Reads the state; returns `None` if the lab is not up yet.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, LabError> {
        let path = directory.join(FILE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| io_error(&path, "reading the state")(error.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&path, "reading the state")(error)),
        }
    }
}

impl LabState {
    /// Returns the console output of all guests so far, by element name. The logs are removed with the lab.
    ///
    /// # Errors
    /// A console's log that cannot be read.
    pub fn consoles(&self) -> Result<BTreeMap<String, String>, LabError> {
        let mut all = BTreeMap::new();
        for element in &self.elements {
            let Some(guest) = &element.guest else {
                continue;
            };
            let path = &guest.console_log;
            let printed = fs::read(path).map_err(io_error(path, "reading the console's log"))?;
            let printed = String::from_utf8_lossy(&printed).into_owned();
            all.insert(element.name.clone(), printed);
        }
        Ok(all)
    }
}

/// Lines kept from the start and from the end of a configuration: a router may have thousands of similar routes.
/// other.
const HEAD_LINES: usize = 500;
const TAIL_LINES: usize = 100;

/// Returns a configuration, with the middle left out if it is long.
fn abridged(mut lines: Vec<String>) -> Vec<String> {
    let left_out = lines.len().saturating_sub(HEAD_LINES + TAIL_LINES);
    if left_out > 0 {
        let marker = format!("({left_out} lines left out)");
        lines.splice(HEAD_LINES..HEAD_LINES + left_out, [marker]);
    }
    lines
}

impl ElementState {
    pub(super) fn of(
        plan: &Plan,
        forwarder: &mut dyn Forwarder,
        version: String,
        commands: Vec<String>,
    ) -> Result<Self, LabError> {
        let reported = |what: &'static str| {
            move |reason| plan.failed(format!("does not report its {what}: {reason}"))
        };
        Ok(Self {
            name: plan.name.clone(),
            program: plan.program,
            place: plan.place,
            version,
            configuration: forwarder
                .configuration(plan)
                .map(abridged)
                .map_err(reported("configuration"))?,
            threads: forwarder.threads(plan).map_err(reported("threads"))?,
            pids: forwarder.pids(),
            guest: forwarder.guest(),
            commands,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_configurations_keep_their_ends() {
        let lines = |count: usize| {
            (0..count)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(abridged(lines(600)), lines(600));
        let kept = abridged(lines(20_000));
        assert_eq!(kept.len(), 601);
        assert_eq!(kept[499..502], ["499", "(19400 lines left out)", "19900"]);
        assert_eq!(kept[600], "19999");
    }
}
