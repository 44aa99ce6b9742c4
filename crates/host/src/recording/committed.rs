// SPDX-License-Identifier: Apache-2.0
//! Tests with a recording in the repository, made with `quietwire host record`: a virtual machine with two CPUs, control
//! groups of version 1 and no cache allocation.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::drawing::draw;
use crate::inventory::Vendor;
use crate::partition::{Role, derive, plan, samples};
use crate::verify::{Verdict, static_checks};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/virtual-machine.tar.zst")
}

/// Returns the files below a directory, with their contents.
fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut looking = vec![directory.to_owned()];
    while let Some(next) = looking.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                looking.push(path);
            } else if path.is_file() {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), text);
            }
        }
    }
    found
}

#[test]
fn the_recorded_virtual_machine_is_read_as_before() {
    let root = Root::open(&recording()).unwrap();
    let machine = Inventory::read(root.path());
    assert_eq!(machine.vendor(), Vendor::Intel);
    assert_eq!(machine.is_virtual, Some(true));
    assert_eq!((machine.packages, machine.cores), (Some(1), Some(2)));
    assert_eq!(machine.cpus_online, Some("0-1".parse().unwrap()));
    assert_eq!(
        (machine.smt_active, machine.cgroup_version),
        (Some(false), Some(1))
    );
    assert_eq!(machine.nodes.len(), 1);
    assert_eq!(machine.nodes[0].huge_pages.len(), 2);
    // The hypervisor controls frequencies and idle states, and there is no cache allocation.
    assert!(
        machine
            .cpus
            .iter()
            .all(|place| place.frequency.is_none() && place.idle_states.is_empty())
    );
    assert!(!machine.rdt.is_mounted && machine.rdt.caches.is_empty());
    assert!(
        machine
            .irqs
            .iter()
            .any(|irq| irq.name.as_deref() == Some("virtio2-input.0"))
    );
    assert_eq!(machine.nics.len(), 1);
    assert_eq!(
        (machine.nics[0].vendor_id.as_deref(), machine.nics[0].node),
        (Some("0x1af4"), None)
    );
}

#[test]
fn a_virtual_machine_is_planned_for_drawn_and_verified() {
    let root = Root::open(&recording()).unwrap();
    let machine = Inventory::read(root.path());
    let plan = plan(&machine, &derive(&machine)).unwrap();
    samples::check(&machine, &plan);
    assert_eq!(plan.cpus(Role::Forwarding), "1".parse().unwrap());
    let drawing = draw(&machine, Some(&plan));
    assert!(drawing.contains("CPU 1: forwarding") && drawing.contains("PCI 0000:"));
    let checks = static_checks(root.path(), &plan);
    let verdict = |name: &str| {
        checks
            .iter()
            .find(|check| check.name == name)
            .map(|check| check.verdict)
    };
    assert_eq!(verdict("online"), Some(Verdict::Pass));
    assert_eq!(verdict("interrupts"), Some(Verdict::Fail));
    assert_eq!(verdict("command-line"), Some(Verdict::Fail));
    assert_eq!(
        verdict("intruders").or(verdict("affinity")),
        Some(Verdict::Unknown)
    );
}

/// Tests that recording it again gives the same files, so it contains no more than the current version records.
#[test]
fn a_recording_holds_nothing_but_what_is_recorded() {
    let size = fs::metadata(recording()).unwrap().len();
    assert!(size < 100_000, "{size}");
    let root = Root::open(&recording()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let again = directory.path().join("again.tar.zst");
    record(root.path(), &again).unwrap();
    let again = Root::open(&again).unwrap();
    assert_eq!(files(root.path()), files(again.path()));
    let command_line = fs::read_to_string(root.path().join("proc/cmdline")).unwrap();
    assert!(
        command_line.split_whitespace().all(is_recorded),
        "{command_line}"
    );
}
