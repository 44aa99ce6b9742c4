// SPDX-License-Identifier: Apache-2.0
//! State of a running lab, for other processes and results.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use quietwire_base::{ProcessId, is_file_name, read_regular};
use serde::{Deserialize, Serialize};

use crate::element::{GuestSide, Plan};
use crate::error::{LabError, io_error};
use crate::guest::GuestPaths;
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
/// Longest state file, octets.
const OCTETS_MAX: u64 = 64 << 20;

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
        match read_regular(&path, OCTETS_MAX) {
            Ok(text) => Self::parse(&text, directory)
                .map(Some)
                .map_err(io_error(&path, "reading the state")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&path, "reading the state")(error)),
        }
    }

    fn parse(text: &[u8], directory: &Path) -> io::Result<Self> {
        serde_json::from_slice::<Self>(text)?.within(directory)
    }

    /// Returns the names that become parts of paths.
    fn names(&self) -> impl Iterator<Item = &String> {
        let elements = self.elements.iter().map(|element| &element.name);
        std::iter::once(&self.name)
            .chain(elements)
            .chain(&self.tester.namespace)
    }

    /// Checks the names that become parts of paths, and looks for the files of guests in the lab's directory only.
    fn within(mut self, directory: &Path) -> io::Result<Self> {
        let refused = self.names().find(|name| !is_file_name(name)).cloned();
        if let Some(name) = refused {
            let reason = format!(
                "the name '{}' is not a file name (another program has changed the file; end the process of the lab, and run `quietwire lab clean`)",
                name.escape_default()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        for element in &mut self.elements {
            if let Some(guest) = &mut element.guest {
                let paths = GuestPaths::below(&directory.join(&element.name));
                guest.shell_socket = paths.shell_socket;
                guest.console_log = paths.console_log;
            }
        }
        Ok(self)
    }
}

impl LabState {
    /// Returns the console output of all guests so far, by element name, as [`Guest::console`](crate::guest::Guest::console). The logs are
    /// removed with the lab.
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

/// Number of lines that remain of the start and of the end of a configuration: a router may have thousands of similar routes.
const HEAD_LINES: usize = 500;
const TAIL_LINES: usize = 100;

/// Returns a configuration, with the middle left out if it is long.
fn abridged(mut lines: Vec<String>) -> Vec<String> {
    let left_out = lines.len().saturating_sub(HEAD_LINES + TAIL_LINES);
    if left_out > 0 {
        let marker = format!("({left_out} lines left out)");
        lines.splice(HEAD_LINES..HEAD_LINES.saturating_add(left_out), [marker]);
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
    use std::path::PathBuf;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::fuzz::{check, planted};
    use quietwire_base::run_within;

    use super::*;
    use crate::guest::{Acceleration, Accelerator, GuestRecord, example_spec};
    use crate::topology::{CATALOG, Parameters};

    /// Returns the state of a lab with one guest.
    fn state() -> LabState {
        let record = GuestRecord {
            spec: example_spec(Vec::new()),
            acceleration: Acceleration {
                accelerator: Accelerator::Software,
                reason: String::new(),
            },
            qemu: String::new(),
            image: String::new(),
            hello: None,
            pid: 1,
            vcpus: Vec::new(),
            command: String::new(),
            up_s: 1.0,
        };
        let element = ElementState {
            name: "vnf-1".to_owned(),
            program: Program::Quietwire,
            place: ElementPlace::Guest,
            version: String::new(),
            configuration: Vec::new(),
            commands: Vec::new(),
            pids: Vec::new(),
            threads: Vec::new(),
            guest: Some(GuestSide {
                record,
                shell_socket: PathBuf::from("/elsewhere/shell.sock"),
                console_log: PathBuf::from("/etc/shadow"),
            }),
        };
        LabState {
            name: "lab".to_owned(),
            owner: None,
            graph: CATALOG[0].graph(&Parameters::default()).unwrap(),
            cpus: Assignment {
                elements: Vec::new(),
                rest: "0".parse().unwrap(),
                shared: Vec::new(),
            },
            warnings: Vec::new(),
            tester: TesterSide {
                namespace: Some("tester".to_owned()),
                chains: Vec::new(),
                monitor: None,
            },
            elements: vec![element],
            died: Vec::new(),
        }
    }

    #[test]
    fn a_state_leads_to_no_file_outside_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert!(LabState::read(directory.path()).unwrap().is_none());
        state().write(directory.path()).unwrap();
        let read = LabState::read(directory.path()).unwrap().unwrap();
        let guest = read.elements[0].guest.clone().unwrap();
        let own = directory.path().join("vnf-1");
        assert_eq!(guest.console_log, own.join("console.log"));
        assert_eq!(guest.shell_socket, own.join("shell.sock"));
        type Change = fn(&mut LabState);
        let changes: [Change; 4] = [
            |state| state.name = "../x".to_owned(),
            |state| state.elements[0].name = "..".to_owned(),
            |state| state.elements[0].name = "/etc/x".to_owned(),
            |state| state.tester.namespace = Some("a/../../x".to_owned()),
        ];
        for change in changes {
            let mut state = state();
            change(&mut state);
            state.write(directory.path()).unwrap();
            let error = LabState::read(directory.path()).unwrap_err().to_string();
            assert!(error.contains("not a file name"), "{error}");
        }
    }

    #[test]
    fn a_fifo_in_the_place_of_a_state_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        mkfifo(&path.join(FILE), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        // A FIFO that is read would block the test.
        let read = move || Ok(LabState::read(&path).unwrap_err().to_string());
        let error = run_within(Duration::from_secs(60), read).unwrap();
        assert!(error.contains("not a regular file"), "{error}");
    }

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

    /// Parses any octets as the state of a lab. What is accepted leads to no file outside of the lab's directory.
    fn fuzz_state(octets: &[u8]) -> bool {
        let directory = Path::new("/nonexistent/lab");
        let Ok(state) = LabState::parse(octets, directory) else {
            return false;
        };
        for guest in state
            .elements
            .iter()
            .filter_map(|element| element.guest.as_ref())
        {
            for path in [&guest.shell_socket, &guest.console_log] {
                let inside = path.strip_prefix(directory).unwrap();
                let is_name = |part| matches!(part, std::path::Component::Normal(_));
                assert!(inside.components().all(is_name), "{path:?}");
            }
        }
        let text = serde_json::to_vec(&state).unwrap();
        assert!(LabState::parse(&text, directory).is_ok());
        planted("lab-state", || {
            let mut guests = state
                .elements
                .iter()
                .filter_map(|element| element.guest.as_ref());
            guests.any(|guest| guest.record.pid > 1_000_000)
        });
        true
    }

    #[test]
    fn fuzz_states() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-state", fuzz_state);
    }
}
