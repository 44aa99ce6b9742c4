// SPDX-License-Identifier: Apache-2.0
//! Data for the tests of rules.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quietwire_host::CpuId;
use quietwire_host::inventory::{CpuPlace, Inventory};
use quietwire_monitor::{Activity, CpuActivity, Owner, ThreadActivity};

use super::super::limit::{Limit, Limiter};
use super::super::spread::Spread;
use super::data::CaseData;

/// Returns a case with these trials.
pub(super) fn data<'a>(activities: &[&'a Activity]) -> CaseData<'a> {
    CaseData {
        case: "a",
        activities: activities.to_vec(),
        ..CaseData::default()
    }
}

/// Returns the activity of a trial of this duration.
pub(super) fn activity(elapsed_s: f64, threads: Vec<ThreadActivity>) -> Activity {
    Activity {
        elapsed_s,
        threads,
        ..Activity::default()
    }
}

/// Returns a forwarding thread of the device that was never disturbed.
pub(super) fn forwarding(name: &str, cpu: u32) -> ThreadActivity {
    ThreadActivity {
        pid: 100,
        tid: 100 + cpu.cast_signed(),
        name: name.to_owned(),
        owner: Some(Owner::Device),
        is_forwarding: true,
        cpu,
        cpu_time_s: 10.0,
        migrations: Some(0),
        ..ThreadActivity::default()
    }
}

/// Returns a thread of a neighbour.
pub(super) fn neighbour(name: &str, cpu: u32, cpu_time_s: f64) -> ThreadActivity {
    ThreadActivity {
        pid: 900,
        tid: 900 + cpu.cast_signed(),
        name: name.to_owned(),
        owner: Some(Owner::Neighbour),
        cpu,
        cpu_time_s,
        ..ThreadActivity::default()
    }
}

/// Returns a CPU that was busy in user space for this part of the time.
pub(super) fn cpu(cpu: u32, busy_s: f64, whole_s: f64) -> CpuActivity {
    CpuActivity {
        cpu,
        user_s: busy_s,
        idle_s: whole_s - busy_s,
        ..CpuActivity::default()
    }
}

/// Returns a machine with these CPUs: number, siblings and node.
pub(super) fn machine(cpus: &[(u32, &str, u32)]) -> Inventory {
    let place = |(cpu, siblings, node): &(u32, &str, u32)| CpuPlace {
        cpu: CpuId(*cpu),
        package: Some(0),
        core: Some(0),
        siblings: Some(siblings.parse().unwrap()),
        die: None,
        node: Some(*node),
        kind: None,
        capacity: None,
        frequency: None,
        idle_states: Vec::new(),
    };
    Inventory {
        cpus: cpus.iter().map(place).collect(),
        ..Inventory::default()
    }
}

/// Returns a limit with these idle ratios.
pub(super) fn limit(by: Limiter, device: Option<f64>, tester: Option<f64>) -> Limit {
    let spread = |ratio: Option<f64>| Spread::of(ratio.into_iter().collect());
    Limit {
        by,
        device_idle_ratio: spread(device),
        tester_idle_ratio: spread(tester),
    }
}

#[test]
fn every_rule_has_a_section_in_the_guide_and_every_section_a_rule() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/findings.md")).unwrap();
    let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
    let sections: BTreeSet<String> = sections.map(str::to_owned).collect();
    let folder = fs::read_dir(root.join("src/summary/findings")).unwrap();
    let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let rules: BTreeSet<String> = files
        .map(|file| file.trim_end_matches(".rs").replace('_', "-"))
        .filter(|name| !["data", "finding", "tests"].contains(&name.as_str()))
        .collect();
    assert_eq!(sections, rules);
    assert_eq!(rules.len(), super::RULES.len());
}

#[test]
fn a_forwarding_thread_is_on_the_cpu_on_which_most_trials_ended() {
    let trials = [1, 2, 2].map(|cpu| activity(1.0, vec![forwarding("qw-fwd-1", cpu)]));
    let [one, two, three] = &trials;
    let found = data(&[one, two, three]).forwarding();
    assert_eq!((found.len(), found[0].cpu, found[0].elapsed_s), (1, 2, 3.0));
}
