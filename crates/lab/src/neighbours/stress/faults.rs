// SPDX-License-Identifier: Apache-2.0
//! Neighbours that start and stop while processes fail. Each seed is one start with its faults. All neighbours are at work, or a dead one is
//! reported, and in the end none is left.

use std::fs;

use quietwire_base::faults::{Random, SpawnFaults, When, run_seeds};
use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::journal;

use super::*;
use crate::neighbours::Neighbours;
use crate::testing::StartOutcomes;

/// Seeds of `make test`: a start takes some 60 ms.
const SEEDS: u64 = 60;
/// Timeout of processes that may ignore SIGTERM.
const SHORT: Duration = Duration::from_millis(20);

fn start(journal: &mut Journal, around: &NeighbourContext<'_>) -> Result<Neighbours, LabError> {
    let mut neighbours = Neighbours {
        workers: Vec::new(),
        guest: None,
        set: around.set.clone(),
        cpus: CpuList::new(),
        has_network: false,
    };
    for log in ["network-neighbour.log", "neighbours.log"] {
        let words = ["sh", "-c", "echo ready; exec sleep 600"].map(str::to_owned);
        let mut worker = Worker::start(journal, as_neighbour(words), log, 1, around)?;
        worker.timeout = SHORT;
        worker.child.set_timeout(SHORT);
        neighbours.workers.push(worker);
        let log = around.directory.join(log);
        let is_ready = || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready"));
        neighbours.wait("were not running", || Ok(is_ready()))?;
    }
    Ok(neighbours)
}

fn run(seed: u64, ends: &mut StartOutcomes) {
    let mut random = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path).unwrap();
    // Not of the kernel: the processes list themselves in a file.
    let set = Cpuset {
        path: directory.path().to_owned(),
    };
    let around = NeighbourContext {
        directory: directory.path(),
        program: Path::new("/nonexistent"),
        set: &set,
        class: None,
        entrance: None,
    };
    let faults = SpawnFaults::new(When::OneIn(3), None, Random::new(random.word()));
    match faults.run(|| start(&mut journal, &around)) {
        Err(error) => {
            assert!(!faults.happened().is_empty(), "{error}");
            ends.refused += 1;
        }
        Ok(mut neighbours) => {
            if random.below(2) == 0 {
                faults.kill_rest();
            }
            let mut workers = neighbours.workers.iter();
            let has_died = workers.any(|worker| worker.child.process().is_none());
            let checked = neighbours.check();
            assert_eq!(checked.is_err(), has_died, "{checked:?}");
            ends.count_started(has_died);
            neighbours.stop().unwrap();
        }
    }
    let left = faults.left();
    assert!(left.is_empty(), "{left:?}: {:#?}", faults.happened());
    for (change, outcome) in journal::undo(&journal::read(&path).unwrap()) {
        assert!(!outcome.is_left(), "{change}: {outcome}");
    }
}

#[test]
fn neighbours_are_at_work_or_gone_after_any_fault_of_spawning() {
    let mut ends = StartOutcomes::default();
    let test = "neighbours::stress::faults";
    let seeds = run_seeds(SEEDS, "quietwire-lab", test, |seed| run(seed, &mut ends));
    ends.check(seeds, SEEDS);
}
