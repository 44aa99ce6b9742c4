// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each accepts any octets as a file or an argument, and must end without a panic.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_base::fuzz::{check, planted};

use crate::cpu::CPU_ID_MAX;
use crate::inventory::Inventory;
use crate::partition::{PartitionRequest, Plan, Role, derive, plan};
use crate::proc::{PerCpu, memory_mib, mounts};
use crate::render::Target;
use crate::resctrl::Schemata;
use crate::tree::{Entry, Tree};
use crate::{CpuId, CpuList, CpuSequence};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Parses any text as a set and as a sequence of CPUs. Both are the same after they were printed, and no CPU exceeds the limit.
fn fuzz_cpu_list(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let Ok(list) = text.parse::<CpuList>() else {
        assert!(text.parse::<CpuSequence>().is_err());
        return false;
    };
    assert!(list.iter().all(|cpu| cpu.0 <= CPU_ID_MAX));
    assert_eq!(list.to_string().parse().as_ref(), Ok(&list));
    assert_eq!(list.to_mask().parse().as_ref(), Ok(&list));
    let sequence = text.parse::<CpuSequence>().unwrap_or_default();
    assert_eq!(sequence.to_list(), list);
    assert_eq!(sequence.to_string().parse().as_ref(), Ok(&sequence));
    planted("host-cpu-list", || {
        list.to_string().matches('-').count() >= 3 && list.iter().last() >= Some(CpuId(5000))
    });
    true
}

#[test]
fn cpu_list() {
    check(CRATE, "host-cpu-list", fuzz_cpu_list);
}

/// Parses any text as a `schemata` file of resctrl. What is accepted is the same after it was printed.
fn fuzz_schemata(octets: &[u8]) -> bool {
    let Some(schemata) = std::str::from_utf8(octets)
        .ok()
        .and_then(|text| text.parse::<Schemata>().ok())
    else {
        return false;
    };
    let printed = schemata.to_string();
    assert_eq!(printed.parse().as_ref(), Ok(&schemata), "{printed}");
    planted("host-schemata", || {
        schemata.get("L3DATA", 1) == Some(0xff0) && schemata.get("MB", 0).is_some_and(|mb| mb > 100)
    });
    true
}

#[test]
fn schemata() {
    check(CRATE, "host-schemata", fuzz_schemata);
}

/// Parses any text as a partition request. What is accepted is the same after it was written; an error names a line.
fn fuzz_partition_request(octets: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(octets) else {
        return false;
    };
    let request = match PartitionRequest::parse(text) {
        Ok(request) => request,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("line "), "{error}");
            return false;
        }
    };
    let written = request.to_toml();
    let again = written.as_deref().map(PartitionRequest::parse);
    assert_eq!(again, Ok(Ok(request.clone())), "{written:?}");
    planted("host-partition-request", || match &*request.guests {
        [_, second, _, ..] => second.memory_mib > 65536 && second.node.is_some(),
        _ => false,
    });
    true
}

#[test]
fn partition_request() {
    check(CRATE, "host-partition-request", fuzz_partition_request);
}

/// Returns the files of a machine from lines `PATH|LINE`, `PATH->TARGET` of a link, and `PATH` of a directory.
fn machine_of(text: &str) -> BTreeMap<String, Entry> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut others = BTreeMap::new();
    for line in text.lines() {
        if let Some((path, content)) = line.split_once('|') {
            let file = files.entry(path.to_owned()).or_default();
            file.push_str(content);
            file.push('\n');
        } else if let Some((path, target)) = line.split_once("->") {
            others.insert(path.to_owned(), Entry::Link(target.to_owned()));
        } else {
            others.insert(line.to_owned(), Entry::Directory);
        }
    }
    others.extend(
        files
            .into_iter()
            .map(|(path, text)| (path, Entry::File(text))),
    );
    others
}

/// Reads the inventory of a machine with any files, and plans the partition that is proposed for it. In a plan, each CPU has one role.
fn fuzz_inventory(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let machine = Inventory::read_tree(&Tree::of_memory(machine_of(&text)));
    let Ok(plan) = plan(&machine, &derive(&machine)) else {
        return false;
    };
    let assigned: usize = plan.groups.iter().map(|group| group.cpus.len()).sum();
    let all: CpuList = plan
        .groups
        .iter()
        .flat_map(|group| group.cpus.iter())
        .collect();
    assert_eq!(assigned, all.len(), "{plan:?}");
    planted("host-inventory", || {
        machine.caches.iter().any(|cache| cache.level > 3)
    });
    true
}

#[test]
fn inventory() {
    check(CRATE, "host-inventory", fuzz_inventory);
}

/// Parses any text as a plan, and renders what is accepted for all programs.
fn fuzz_plan(octets: &[u8]) -> bool {
    let Ok(plan) = serde_json::from_slice::<Plan>(octets) else {
        return false;
    };
    let again = serde_json::to_vec(&plan).map(|text| serde_json::from_slice(&text).ok());
    assert_eq!(again.ok().flatten().as_ref(), Some(&plan));
    for target in Target::ALL {
        std::hint::black_box(target.render(&plan));
    }
    planted("host-plan", || {
        let mut guests = plan.groups.iter().filter(|group| group.role == Role::Guest);
        guests.any(|guest| guest.memory_mib > 1_000_000_000)
    });
    true
}

#[test]
fn plans() {
    check(CRATE, "host-plan", fuzz_plan);
}

/// Parses any text as `/proc/interrupts`, `/proc/meminfo` and `/proc/self/mounts`.
fn fuzz_proc(octets: &[u8]) -> bool {
    let text = String::from_utf8_lossy(octets);
    let counts = PerCpu::parse(&text, |cpu| cpu != CpuId(1));
    if let Some(counts) = &counts {
        assert!(!counts.sums().contains_key(&CpuId(1)));
        assert!(counts.since(counts).lines.is_empty());
        assert!(counts.since(&PerCpu::default()).lines.len() <= counts.lines.len());
        planted("host-proc", || {
            counts.lines.len() > 3
                && counts
                    .sums()
                    .get(&CpuId(7))
                    .is_some_and(|sum| *sum == u64::MAX)
        });
    }
    let memory = memory_mib(&text, "MemTotal");
    // A line is the same after it was written: recordings contain the mounts.
    for mount in mounts(&text) {
        let options = mount.options.join(",");
        let line = format!("x {} {} {options} 0 0\n", mount.escaped_point(), mount.kind);
        let again: Vec<_> = mounts(&line).collect();
        assert_eq!(again, [mount], "{line}");
    }
    counts.is_some_and(|counts| !counts.lines.is_empty())
        || memory.is_some()
        || mounts(&text).any(|mount| Path::new(&mount.point).is_absolute())
}

#[test]
fn proc() {
    check(CRATE, "host-proc", fuzz_proc);
}
