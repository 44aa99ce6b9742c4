// SPDX-License-Identifier: Apache-2.0
//! Renders QEMU's command line without libvirt: options for CPUs and memory, and commands that pin its threads.

use super::file::Rendered;
use super::guest::{memory_mib, needs_topoext, virtual_cpus};
use crate::partition::{Group, Plan, Role};

pub(super) fn render(plan: &Plan) -> Vec<Rendered> {
    let guests = plan.groups.iter().filter(|group| group.role == Role::Guest);
    guests
        .map(|guest| Rendered {
            path: format!("{}.sh", guest.name),
            text: script(plan, guest),
        })
        .collect()
}

fn script(plan: &Plan, guest: &Group) -> String {
    let memory = memory_mib(guest);
    let has_pages = guest.memory_mib > 0 && !plan.huge_pages.is_empty();
    let backend = if has_pages {
        "memory-backend-file,mem-path=/dev/hugepages,prealloc=on"
    } else {
        "memory-backend-memfd"
    };
    let virtual_cpus = virtual_cpus(guest);
    let cpus: Vec<String> = virtual_cpus.pins.iter().map(ToString::to_string).collect();
    let (cores, threads) = (virtual_cpus.cores, virtual_cpus.threads);
    let feature = if needs_topoext(plan, &virtual_cpus) {
        ",topoext=on"
    } else {
        ""
    };
    let places: String = guest
        .nodes
        .iter()
        .map(|node| format!(",host-nodes={node}"))
        .collect();
    let policy = if places.is_empty() {
        ""
    } else {
        ",policy=bind"
    };
    format!(
        "#!/bin/sh
# Starts the guest with additional arguments of the command line and pins its virtual CPUs.
set -eu
pid_file=$(mktemp)
taskset --cpu-list {} qemu-system-x86_64 -name {name},debug-threads=on -pidfile \"$pid_file\" -daemonize -display none \\
    -machine q35,accel=kvm,memory-backend=memory -cpu host{feature} -smp {count},sockets=1,cores={cores},threads={threads} -m {memory}M \\
    -object {backend},id=memory,size={memory}M,share=on{places}{policy} \"$@\"
pid=$(cat \"$pid_file\")
vcpu=0
for cpu in {}; do
    for task in /proc/\"$pid\"/task/*; do
        case $(cat \"$task/comm\") in
            \"CPU $vcpu/\"*) taskset --pid --cpu-list \"$cpu\" \"${{task##*/}}\" ;;
        esac
    done
    vcpu=$((vcpu + 1))
done
",
        plan.housekeeping, cpus.join(" "), name = guest.name, count = guest.cpus.len()
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus, word};
    let guest = plan.group(&between(text, "-name ", ",")).unwrap();
    let pins = between(text, "for cpu in ", ";");
    let pins: Vec<_> = pins
        .split(' ')
        .map(|cpu| cpus(cpu).first().unwrap())
        .collect();
    let number = |start: &str| between(text, start, ", ").parse().unwrap();
    super::guest::check(guest, &pins, number(",cores="), number(",threads="));
    assert_eq!(number("-smp "), guest.cpus.len());
    assert_eq!(word(text, "-m "), format!("{}M", memory_mib(guest)));
    assert_eq!(cpus(&word(text, "taskset --cpu-list ")), plan.housekeeping);
}
