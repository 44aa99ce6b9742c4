// SPDX-License-Identifier: Apache-2.0
//! Named labs that come up and are taken down while operations on files fail, and processes are killed, at any step. Each seed is one
//! sequence of processes with their faults. Cleaning without faults then restores everything, and the name can be used again.

use quietwire_base::faults::{Faults, Injected, Random, When, run_process, run_seeds};
use quietwire_host::settings;

use super::*;
use crate::testing::Rig;

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
const NAME: &str = "lab";

/// Runs a lab from its start to its end.
fn run_lab(rig: &Rig, storage: &dyn Storage) -> Result<(), LabError> {
    let mut claim = Claim::take(storage, &rig.state(), NAME)?;
    let setting = rig.setting();
    let done = settings::write(claim.journal(), &setting, "2")
        .map_err(io_error(&setting, "writing"))
        .and_then(|_| {
            let element = claim.directory().join("element");
            fs::create_dir(&element)
                .and_then(|()| fs::write(element.join("log"), "text"))
                .map_err(io_error(&element, "filling"))
        });
    done.and(claim.release(storage))
}

/// Ends of processes.
#[derive(Debug, Default)]
struct Ends {
    complete: u64,
    refused: u64,
    killed: u64,
}

impl Ends {
    fn count<T>(&mut self, ended: Option<&Result<T, LabError>>) {
        match ended {
            None => self.killed += 1,
            Some(Ok(_)) => self.complete += 1,
            Some(Err(_)) => self.refused += 1,
        }
    }
}

fn faults(random: &mut Random, operations: u64) -> Faults<'static> {
    let at = random.below(operations);
    let full = Some(Injected::Refused(nix::errno::Errno::ENOSPC));
    let (when, what) = match random.below(6) {
        0..3 => (When::Once(at), None),
        3 => (When::FromOnChanges(at), full),
        4 => (When::OneIn(8), None),
        _ => (When::OneIn(30), None),
    };
    Faults::new(when, what, Random::new(random.below(u64::MAX)))
}

fn run(seed: u64, operations: u64, ends: &mut Ends) {
    let mut random = Random::new(seed);
    let rig = Rig::new();
    for _ in 0..=random.below(3) {
        let faults = faults(&mut random, operations);
        if random.below(3) > 0 {
            let ended = run_process(|| run_lab(&rig, &faults));
            if let Some(Ok(())) = ended {
                rig.assert_clean();
            }
            ends.count(ended.as_ref());
        } else {
            let ended = run_process(|| clean_named(&faults, &rig.state()));
            ends.count(ended.as_ref());
        }
    }
    let (undone, up) = clean_named(&Disk, &rig.state()).unwrap();
    for (change, outcome) in undone {
        assert!(!outcome.is_left(), "{change}: {outcome}");
    }
    assert!(up.is_empty(), "{up:?}");
    rig.assert_clean();
    run_lab(&rig, &Disk).unwrap();
    rig.assert_clean();
}

#[test]
fn after_any_fault_a_lab_can_be_cleaned_and_its_name_used_again() {
    let rig = Rig::new();
    let counting = Faults::new(When::Never, None, Random::new(0));
    run_lab(&rig, &counting).unwrap();
    let operations = counting.count();
    let mut ends = Ends::default();
    let seeds = run_seeds(SEEDS, "quietwire-lab", "up::registry::faults", |seed| {
        run(seed, operations, &mut ends);
    });
    println!("{seeds} seeds: {ends:?}");
    if seeds >= SEEDS {
        let Ends {
            complete,
            refused,
            killed,
        } = ends;
        assert!(complete.min(refused).min(killed) > seeds / 10, "{ends:?}");
    }
}

/// A lab whose process ended between creating its journal and writing the first line, or within it.
#[test]
fn a_lab_that_was_killed_before_its_first_line_leaves_its_name_free() {
    for start in ["", "0123abcd 17 {\"chan"] {
        let rig = Rig::new();
        let left = rig.state().join(NAMED).join(NAME);
        make_directory(&Disk, &left).unwrap();
        fs::write(left.join(LAB_JOURNAL), start).unwrap();
        run_lab(&rig, &Disk).unwrap();
        rig.assert_clean();
        make_directory(&Disk, &left).unwrap();
        fs::write(left.join(LAB_JOURNAL), start).unwrap();
        clean_named(&Disk, &rig.state()).unwrap();
        rig.assert_clean();
    }
}
