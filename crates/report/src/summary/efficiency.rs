// SPDX-License-Identifier: Apache-2.0
//! Physical cores of the device, frames for each joule, and the line rate.

use std::collections::BTreeSet;

use quietwire_host::inventory::CpuPlace;
use quietwire_monitor::{Activity, Owner};
use quietwire_study::{Case, StudyResults, TrialRecord};
use quietwire_tester::Directions;
use serde::Serialize;

use super::cycles::{highest_load, with_traffic_s};
use super::spread::Spread;

/// Cores and energy of a case, in the valid trials at the highest load offered, and the rate of its links.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Efficiency {
    /// Physical cores on which forwarding threads of the device ran, the most of any trial; none without such threads.
    pub physical_cores: Option<usize>,
    /// Frames forwarded for each joule that all processor packages used, by trial; none if the machine reports no energy.
    pub frames_per_joule: Option<Spread>,
    /// Bits per second that the tester's sending ports can send together, preambles and gaps included; none unless they are network cards.
    pub line_rate_bps: Option<f64>,
}

/// Returns the bits per second that the tester's sending ports can send in a case; none unless they are network cards.
pub(super) fn line_rate_bps(results: &StudyResults, case: &Case) -> Option<f64> {
    let entries = results.entries.iter().rev();
    let mut own = entries.filter(|entry| entry.case_name == case.name);
    let speeds = own.find_map(|entry| {
        let speeds = &entry.facts.tester.as_ref()?.link_speeds_mbps;
        (!speeds.is_empty()).then_some(speeds)
    })?;
    // With one direction, one port of each pair sends.
    let (first, every) = match results.file.traffic.directions {
        Directions::Both => (0, 1),
        Directions::OneWay => (0, 2),
        Directions::Reverse => (1, 2),
    };
    let sending = speeds.iter().skip(first).step_by(every);
    Some(sending.map(|mbps| f64::from(*mbps) * 1e6).sum())
}

/// Returns cores and energy of the trials of a case, with its line rate; none if nothing is known.
pub(super) fn of_trials(
    trials: &[&TrialRecord],
    places: &[CpuPlace],
    line_rate_bps: Option<f64>,
) -> Option<Efficiency> {
    let at_highest = highest_load(trials);
    let machines = at_highest
        .iter()
        .filter_map(|trial| Some((trial, trial.activity.machine.as_ref()?)));
    let cores = machines
        .clone()
        .map(|(_, machine)| cores(machine, places))
        .max();
    let frames = machines.filter_map(|(trial, machine)| {
        let joules = package_joules(machine);
        let frames = trial.result.forwarding_rate_pps * with_traffic_s(trial);
        (joules > 0.0 && frames > 0.0).then(|| frames / joules)
    });
    let found = Efficiency {
        physical_cores: cores.filter(|count| *count > 0),
        frames_per_joule: Spread::of(frames.collect()),
        line_rate_bps,
    };
    (found != Efficiency::default()).then_some(found)
}

/// Returns the number of physical cores on which the device's forwarding threads ran. A CPU of an unknown core counts as a core.
fn cores(machine: &Activity, places: &[CpuPlace]) -> usize {
    let threads = machine.threads.iter();
    let forwarding =
        threads.filter(|thread| thread.is_forwarding && thread.owner != Some(Owner::Tester));
    let core = |cpu: u32| {
        let place = places.iter().find(|place| place.cpu.0 == cpu);
        let core = place.and_then(|place| Some((place.package?, place.core?)));
        (core, core.is_none().then_some(cpu))
    };
    let cores: BTreeSet<_> = forwarding.map(|thread| core(thread.cpu)).collect();
    cores.len()
}

/// Returns the energy of the processor packages, joules. Domains within a package are part of it.
fn package_joules(machine: &Activity) -> f64 {
    let domains = machine.energy.iter();
    let packages =
        domains.filter(|one| one.domain.starts_with("package") && !one.domain.contains('/'));
    packages.map(|one| one.joules).sum()
}

#[cfg(test)]
mod tests {
    use quietwire_host::cpu::CpuId;
    use quietwire_monitor::{DomainEnergy, ThreadActivity};

    use super::*;
    use crate::tests::results_of;

    const STUDY: &str = "name = \"s\"\ntitle = \"T\"\n[device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n[trials]\nduration-s = 1\nmax-rate-pps = 1_000_000\n[sweep]\nloads-percent = [50, 100]\n\
         [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"none\"\n";

    fn place(cpu: u32, core: i32) -> CpuPlace {
        CpuPlace {
            cpu: CpuId(cpu),
            package: Some(0),
            core: Some(core),
            siblings: None,
            die: None,
            node: None,
            kind: None,
            capacity: None,
            frequency: None,
            idle_states: Vec::new(),
        }
    }

    #[test]
    fn siblings_are_one_core_and_parts_of_a_package_count_once() {
        let bench = quietwire_study::simulated::SimulatedBench::new(11, 0);
        let mut results = results_of(STUDY, bench, usize::MAX);
        let domain = |name: &str, joules| DomainEnergy {
            domain: name.to_owned(),
            joules,
        };
        let thread = |cpu, is_forwarding, owner| ThreadActivity {
            cpu,
            is_forwarding,
            owner: Some(owner),
            ..ThreadActivity::default()
        };
        for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
            let machine = trial.activity.machine.as_mut().unwrap();
            machine.energy = vec![
                domain("package-0", 30.0),
                domain("package-0/dram", 10.0),
                domain("package-1", 20.0),
                domain("psys", 99.0),
            ];
            machine.threads = vec![
                thread(2, true, Owner::Device),
                thread(6, true, Owner::Device),
                thread(3, true, Owner::Device),
                thread(4, false, Owner::Device),
                thread(5, true, Owner::Tester),
            ];
        }
        let trials: Vec<&TrialRecord> = results.trials().map(|(_, trial)| trial).collect();
        let places = [place(2, 1), place(6, 1), place(3, 2)];
        let found = of_trials(&trials, &places, None).unwrap();
        assert_eq!(found.physical_cores, Some(2));
        // Without places, each CPU counts as a core.
        assert_eq!(
            of_trials(&trials, &[], None).unwrap().physical_cores,
            Some(3)
        );
        let fastest = highest_load(&trials);
        let wanted: Vec<f64> = fastest
            .iter()
            .map(|trial| trial.result.forwarding_rate_pps * with_traffic_s(trial) / 50.0)
            .collect();
        assert_eq!(found.frames_per_joule.unwrap().values, wanted);
        assert!(!wanted.is_empty());
        assert_eq!(of_trials(&[], &places, None), None);
        let known = of_trials(&[], &places, Some(1e10)).unwrap();
        assert_eq!(known.line_rate_bps, Some(1e10));
    }

    #[test]
    fn the_line_rate_is_that_of_the_sending_cards() {
        let bench = quietwire_study::simulated::SimulatedBench::new(11, 0);
        let mut results = results_of(STUDY, bench, usize::MAX);
        let case = results.file.cases[0].clone();
        assert_eq!(line_rate_bps(&results, &case), None);
        let tester = serde_json::json!({ "link_speeds_mbps": [10_000, 25_000] });
        for entry in &mut results.entries {
            entry.facts.tester = Some(serde_json::from_value(tester.clone()).unwrap());
        }
        results.file.traffic.directions = Directions::Both;
        assert_eq!(line_rate_bps(&results, &case), Some(35e9));
        results.file.traffic.directions = Directions::OneWay;
        assert_eq!(line_rate_bps(&results, &case), Some(10e9));
        results.file.traffic.directions = Directions::Reverse;
        assert_eq!(line_rate_bps(&results, &case), Some(25e9));
    }
}
