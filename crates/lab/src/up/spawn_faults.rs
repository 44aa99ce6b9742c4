// SPDX-License-Identifier: Apache-2.0
//! Labs that start and stop while processes fail: they are not started, exit at once, are killed, start late or ignore SIGTERM. Each seed is
//! one lab with its faults. The lab is up and reports every element that has died, or nothing of it is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use quietwire_base::ProcessId;
use quietwire_base::faults::{Random, SpawnFault, SpawnFaults, When, run_seeds};
use quietwire_host::settings;
use quietwire_tester::account::ElementCounts;

use super::*;
use crate::element::Process;
use crate::error::io_error;
use crate::programs::tests::plan;
use crate::thread::DeviceThread;
use crate::topology::{Assignment, CATALOG, Parameters};

/// Seeds of `make test`: a lab takes some 100 ms.
const SEEDS: u64 = 80;
const NAME: &str = "lab";
const ELEMENTS: [&str; 3] = ["a", "b", "c"];
/// Timeout of processes that may ignore SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);

/// A program of two processes and with a command that configures it, as Open vSwitch has them.
#[derive(Debug, Default)]
struct Pair {
    processes: Vec<Process>,
}

fn is_ready(log: &Path) -> Result<(), String> {
    match fs::read_to_string(log) {
        Ok(printed) if printed.contains("ready") => Ok(()),
        Ok(printed) => Err(printed),
        Err(error) => Err(error.to_string()),
    }
}

impl Forwarder for Pair {
    fn probe(&self) -> Result<String, Unavailable> {
        Ok(String::new())
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for log in ["database.log", "log"] {
            let words = ["sh", "-c", "echo ready; exec sleep 600"].map(str::to_owned);
            let process = context.spawn(plan, log, &[], &words)?;
            self.processes.push(process);
            let log = plan.directory.join(log);
            context.wait_until(plan, &mut self.processes, "get ready", || is_ready(&log))?;
        }
        Ok(())
    }

    fn program(&mut self, _plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        context.run(&["true"]).map(drop)
    }

    fn frames(&self, _plan: &Plan, _deadline: Deadline) -> Result<ElementCounts, String> {
        Err("it counts none".to_owned())
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, _plan: &Plan) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}

fn element(directory: &Path, name: &str) -> Running {
    Running {
        plan: Plan {
            name: name.to_owned(),
            ports: Vec::new(),
            joins: Vec::new(),
            ..plan(&directory.join(name))
        },
        forwarder: Box::new(Pair::default()),
        version: String::new(),
        commands: Vec::new(),
    }
}

fn state(elements: Vec<ElementState>) -> LabState {
    LabState {
        name: NAME.to_owned(),
        owner: ProcessId::own(),
        graph: CATALOG[0].graph(&Parameters::default()).unwrap(),
        cpus: Assignment {
            elements: Vec::new(),
            rest: "0".parse().unwrap(),
            shared: Vec::new(),
        },
        warnings: Vec::new(),
        tester: TesterSide {
            namespace: None,
            chains: Vec::new(),
            monitor: None,
        },
        elements,
        died: Vec::new(),
    }
}

/// A state directory, and a setting that the lab changes.
struct Rig(tempfile::TempDir);

impl Rig {
    fn new() -> Self {
        let rig = Self(tempfile::tempdir().unwrap());
        fs::write(rig.setting(), "1\n").unwrap();
        rig
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn setting(&self) -> PathBuf {
        self.0.path().join("setting")
    }

    fn up(&self) -> Result<UpLab, LabError> {
        UpLab::up_by(&self.state(), NAME, |claim, running| {
            self.build(claim, running)
        })
    }

    fn build(&self, claim: &mut Claim, running: &mut Vec<Running>) -> Result<Built, LabError> {
        let setting = self.setting();
        settings::write(claim.journal(), &setting, "2").map_err(io_error(&setting, "writing"))?;
        let directory = claim.directory().to_owned();
        let mut commands = Vec::new();
        let mut context = ElementContext::new(claim.journal(), &mut commands);
        context.stop_timeout = STOP_TIMEOUT;
        for name in ELEMENTS {
            start_element(running, element(&directory, name), &mut context)?;
        }
        let mut elements = Vec::new();
        for element in running {
            elements.push(element.state()?);
        }
        Ok((state(elements), None))
    }

    /// Fails unless everything is as before the lab.
    fn assert_clean(&self, faults: &SpawnFaults) {
        let left = faults.left();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fs::read_to_string(self.setting()).unwrap(), "1\n");
        assert!(!self.state().join(NAMED).exists());
    }
}

/// Prints the faults of a seed that fails.
struct Trail(Rc<SpawnFaults>);

impl Drop for Trail {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#?}", self.0.happened());
        }
    }
}

/// Outcomes of starts.
#[derive(Debug, Default)]
struct Ends {
    /// All elements run.
    complete: u64,
    /// Some elements have died, and are reported.
    damaged: u64,
    /// Nothing is left.
    refused: u64,
}

/// Returns the names of the elements of which a process has ended.
fn dead(lab: &mut UpLab) -> Vec<String> {
    let has_ended = |pid: u32| ProcessId::of(pid.try_into().unwrap()).is_none();
    let mut dead = Vec::new();
    for running in &mut lab.running {
        if running.forwarder.pids().into_iter().any(has_ended) {
            dead.push(running.plan.name.clone());
        }
    }
    dead
}

fn faults(random: &mut Random, starts: u64) -> Rc<SpawnFaults> {
    let at = random.below(starts);
    let exhausted = Some(SpawnFault::Refused(Errno::EAGAIN));
    let (when, what) = match random.below(6) {
        0..4 => (When::Once(at), None),
        4 => (When::FromOnChanges(at), exhausted),
        _ => (When::OneIn(4), None),
    };
    SpawnFaults::new(when, what, Random::new(random.word()))
}

fn run(seed: u64, starts: u64, ends: &mut Ends) {
    let mut random = Random::new(seed);
    let rig = Rig::new();
    let trail = Trail(faults(&mut random, starts));
    let Trail(faults) = &trail;
    match faults.run(|| rig.up()) {
        Err(error) => {
            assert!(!faults.happened().is_empty(), "{error}");
            assert!(!matches!(error, LabError::NotUndone { .. }), "{error}");
            ends.refused += 1;
        }
        Ok(mut lab) => {
            if random.below(2) == 0 {
                faults.kill_rest();
            }
            let dead = dead(&mut lab);
            assert_eq!(lab.look_for_dead().unwrap(), dead);
            assert_eq!(lab.state().died, dead);
            match dead.is_empty() {
                true => ends.complete += 1,
                false => ends.damaged += 1,
            }
            faults.run(|| lab.down()).unwrap();
        }
    }
    rig.assert_clean(faults);
    if random.below(4) == 0 {
        rig.up().unwrap().down().unwrap();
        rig.assert_clean(faults);
    }
}

#[test]
fn a_lab_is_up_or_gone_after_any_fault_of_spawning() {
    let rig = Rig::new();
    let counting = SpawnFaults::new(When::Never, None, Random::new(0));
    let lab = counting.run(|| rig.up()).unwrap();
    let starts = counting.count();
    // Each element has two processes and a command.
    assert_eq!(starts, 3 * ELEMENTS.len() as u64);
    assert_eq!(counting.left().len(), 2 * ELEMENTS.len());
    lab.down().unwrap();
    rig.assert_clean(&counting);
    let mut ends = Ends::default();
    let seeds = run_seeds(SEEDS, "quietwire-lab", "up::spawn_faults", |seed| {
        run(seed, starts, &mut ends);
    });
    println!("{seeds} seeds: {ends:?}");
    if seeds >= SEEDS {
        let Ends {
            complete,
            damaged,
            refused,
        } = ends;
        assert!(complete.min(refused) > seeds / 10, "{ends:?}");
        assert!(damaged > 0, "{ends:?}");
    }
}

/// A change of the lab that cannot be undone: its setting has become a directory.
#[test]
fn a_start_that_fails_reports_what_is_left_and_how_to_clean_it() {
    let rig = Rig::new();
    let setting = rig.setting();
    let failed = UpLab::up_by(&rig.state(), NAME, |claim, running| {
        let faults = SpawnFaults::new(
            When::Once(4),
            Some(SpawnFault::Refused(Errno::ENOMEM)),
            Random::new(0),
        );
        let built = faults.run(|| rig.build(claim, running));
        fs::remove_file(&setting).unwrap();
        fs::create_dir(&setting).unwrap();
        built
    });
    let error = failed.unwrap_err();
    assert_eq!(error.fault(), quietwire_base::Fault::Failed);
    let text = error.to_string();
    let memory = std::io::Error::from(Errno::ENOMEM).to_string();
    for part in [
        memory.as_str(),
        "quietwire lab clean",
        setting.to_str().unwrap(),
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Once the obstacle is removed, cleaning succeeds.
    fs::remove_dir(&setting).unwrap();
    fs::write(&setting, "2\n").unwrap();
    let (undone, up) = clean_named(&Disk, &rig.state()).unwrap();
    assert!(undone.iter().all(|(_, outcome)| !outcome.is_left()));
    assert!(up.is_empty());
    assert_eq!(fs::read_to_string(setting).unwrap(), "1\n");
    assert!(!rig.state().join(NAMED).exists());
}
