// SPDX-License-Identifier: Apache-2.0
//! Labs that start and stop while processes fail: they are not started, exit at once, are killed, start late or ignore SIGTERM. Each seed is
//! one lab with its faults. The lab is up and reports every element that has died, or nothing of it is left.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use quietwire_base::ProcessId;
use quietwire_base::faults::{Random, SpawnFault, SpawnFaults, When, run_seeds};
use quietwire_host::settings;

use super::*;
use crate::error::io_error;
use crate::programs::tests::plan;
use crate::testing::{Rig, Scripts, StartOutcomes};
use crate::topology::{Assignment, CATALOG, Parameters};

/// Seeds of `make test`: a lab takes some 100 ms.
const SEEDS: u64 = 30;
const NAME: &str = "lab";
const ELEMENTS: [&str; 3] = ["a", "b", "c"];
/// Timeout of processes that may ignore SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);

/// An element with a program of two processes and with a command that configures it, as Open vSwitch has them.
fn element(directory: &Path, name: &str) -> Running {
    let script = "echo ready; exec sleep 600".to_owned();
    Running {
        plan: Plan {
            name: name.to_owned(),
            ports: Vec::new(),
            joins: Vec::new(),
            ..plan(&directory.join(name))
        },
        forwarder: Box::new(Scripts {
            scripts: vec![("database.log", script.clone()), ("log", script)],
            configure: &["true"],
            processes: Vec::new(),
        }),
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

fn up(rig: &Rig) -> Result<UpLab, LabError> {
    UpLab::start_with_build(&rig.state(), NAME, |claim, running| {
        build(rig, claim, running)
    })
}

fn build(rig: &Rig, claim: &mut Claim, running: &mut Vec<Running>) -> Result<Built, LabError> {
    let setting = rig.setting();
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
fn assert_clean(rig: &Rig, faults: &SpawnFaults) {
    let left = faults.left();
    assert!(left.is_empty(), "{left:?}");
    rig.assert_clean();
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

fn run(seed: u64, starts: u64, ends: &mut StartOutcomes) {
    let mut random = Random::new(seed);
    let rig = Rig::new();
    let trail = Trail(faults(&mut random, starts));
    let Trail(faults) = &trail;
    match faults.run(|| up(&rig)) {
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
            ends.count_started(!dead.is_empty());
            faults.run(|| lab.down()).unwrap();
        }
    }
    assert_clean(&rig, faults);
    if random.below(4) == 0 {
        up(&rig).unwrap().down().unwrap();
        assert_clean(&rig, faults);
    }
}

#[test]
fn a_lab_is_up_or_gone_after_any_fault_of_spawning() {
    let rig = Rig::new();
    let counting = SpawnFaults::new(When::Never, None, Random::new(0));
    let lab = counting.run(|| up(&rig)).unwrap();
    let starts = counting.count();
    // Each element has two processes and a command.
    assert_eq!(starts, 3 * ELEMENTS.len() as u64);
    assert_eq!(counting.left().len(), 2 * ELEMENTS.len());
    lab.down().unwrap();
    assert_clean(&rig, &counting);
    let mut ends = StartOutcomes::default();
    let seeds = run_seeds(SEEDS, "quietwire-lab", "up::spawn_faults", |seed| {
        run(seed, starts, &mut ends);
    });
    ends.check(seeds, SEEDS);
}

/// A change of the lab that cannot be undone: its setting has become a directory.
#[test]
fn a_start_that_fails_reports_what_is_left_and_how_to_clean_it() {
    let rig = Rig::new();
    let setting = rig.setting();
    let failed = UpLab::start_with_build(&rig.state(), NAME, |claim, running| {
        let faults = SpawnFaults::new(
            When::Once(4),
            Some(SpawnFault::Refused(Errno::ENOMEM)),
            Random::new(0),
        );
        let built = faults.run(|| build(&rig, claim, running));
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
