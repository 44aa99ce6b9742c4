// SPDX-License-Identifier: Apache-2.0
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::CpuList;
use crate::machines;
use crate::partition::{HugePages, PartitionRequest, plan, samples};

pub(super) fn cpus(text: &str) -> CpuList {
    text.trim()
        .parse()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Parses CPUs like [`cpus`], but accepts an empty text.
pub(super) fn maybe_cpus(text: &str) -> CpuList {
    if text.is_empty() {
        CpuList::new()
    } else {
        cpus(text)
    }
}

/// Returns the text after `key` at the beginning of a line.
pub(super) fn value(text: &str, key: &str) -> String {
    let found = text.lines().find_map(|line| line.strip_prefix(key));
    found
        .unwrap_or_else(|| panic!("no {key} in {text}"))
        .to_owned()
}

/// Returns the word after `key` anywhere.
pub(super) fn word(text: &str, key: &str) -> String {
    let (_, rest) = text
        .split_once(key)
        .unwrap_or_else(|| panic!("no {key} in {text}"));
    let end = rest.find([' ', '\n', '"']).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// Returns the text between `start` and the next of the characters `ends`.
pub(super) fn between(text: &str, start: &str, ends: &str) -> String {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start} in {text}"));
    let end = rest.find(|c| ends.contains(c)).unwrap();
    rest[..end].to_owned()
}

fn check(target: Target, text: &str, plan: &Plan) {
    match target {
        Target::KernelCmdline => kernel_cmdline::check(text, plan),
        Target::Grub => grub::check(text, plan),
        Target::Tuned => tuned::check(text, plan),
        Target::Systemd => systemd::check(text, plan),
        Target::Irqbalance => irqbalance::check(text, plan),
        Target::Ovs => ovs::check(text, plan),
        Target::Vpp => vpp::check(text, plan),
        Target::Testpmd => testpmd::check(text, plan),
        Target::Quietwire => quietwire::check(text, plan),
        Target::Vrouter => vrouter::check(text, plan),
        Target::Libvirt => libvirt::check(text, plan),
        Target::Qemu => qemu::check(text, plan),
        Target::Kubelet => kubelet::check(text, plan),
        Target::Tripleo => tripleo::check(text, plan),
        Target::PerformanceProfile => performance_profile::check(text, plan),
        Target::Resctrl => resctrl::check(text, plan),
        Target::Pqos => pqos::check(text, plan),
        Target::Nova => nova::check(text, plan),
    }
}

/// Returns a plan that contains every feature.
pub(super) fn sample() -> Plan {
    let request = r#"
        [control]
        cpus = 1
        [service]
        cpus = 1
        [forwarding]
        cpus = 4
        cache-percent = 50
        [[guest]]
        name = "firewall"
        cpus = 4
        memory-mib = 4096
        [[neighbour]]
        name = "batch"
        cpus = 8
        [[nic]]
        pci = "0000:17:00.0"
        functions = 4
        mtu = 9000
        [[nic]]
        pci = "0000:65:00.0"
    "#;
    let machine = machines::two_packages_with_clusters().inventory();
    plan(&machine, &PartitionRequest::parse(request).unwrap()).unwrap()
}

/// Compares with the golden files. `QUIETWIRE_GOLDEN=write` rewrites them; review the changes.
#[test]
fn rendered_files_are_those_of_the_golden_directory() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render/golden");
    let is_written = std::env::var_os("QUIETWIRE_GOLDEN").is_some_and(|value| value == "write");
    for target in Target::ALL {
        let files = target.render(&sample());
        assert_eq!(files.len(), 1, "{}", target.name());
        let golden = directory.join(format!("{}.txt", target.name()));
        if is_written {
            fs::write(&golden, &files[0].text).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        assert_eq!(files[0].text, expected, "{}", target.name());
        check(target, &files[0].text, &sample());
    }
}

/// Tests that all paths differ: `--output` writes all files into one directory.
#[test]
fn no_two_files_have_the_same_name() {
    let mut names = std::collections::BTreeSet::new();
    for file in Target::ALL
        .iter()
        .flat_map(|target| target.render(&sample()))
    {
        let name = Path::new(&file.path).file_name().unwrap().to_owned();
        assert!(names.insert(name), "{} twice", file.path);
    }
}

#[test]
fn targets_are_known_by_their_names() {
    for target in Target::ALL {
        assert_eq!(target.name().parse(), Ok(target));
    }
    let error = "xen".parse::<Target>().unwrap_err().to_string();
    assert!(
        error.contains("'xen'") && error.contains("performance-profile"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_file_agrees_with_the_plan(machine in samples::some_machine(), many in prop::collection::vec(samples::some_request(), 4)) {
        let inventory = machine.inventory();
        for request in many {
            let found = match plan(&inventory, &request) {
                Ok(found) => found,
                Err(infeasible) => match infeasible.nearest {
                    Some((_, found)) => found,
                    None => continue,
                },
            };
            for target in Target::ALL {
                for file in target.render(&found) {
                    check(target, &file.text, &found);
                }
            }
        }
    }
}

#[test]
fn a_plan_with_any_sizes_of_memory_is_rendered() {
    let pool = |data_plane_mib, page_kib| HugePages {
        node: None,
        page_kib,
        pages: u64::MAX,
        data_plane_mib,
    };
    let plan = Plan {
        huge_pages: vec![pool(u64::MAX, 4), pool(u64::MAX, 0), pool(1, 0)],
        ..Plan::default()
    };
    for target in Target::ALL {
        std::hint::black_box(target.render(&plan));
    }
    let count = u64::MAX.div_ceil(4);
    assert!(nova::render(&plan).contains(&format!("size:4,count:{count}\n")));
    assert!(quietwire::render(&plan).contains("memory-mib = 4294967295\n"));
}
