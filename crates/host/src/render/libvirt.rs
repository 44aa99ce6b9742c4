// SPDX-License-Identifier: Apache-2.0
//! A domain for each guest: what concerns CPUs and memory, to be merged into its definition (libvirt's formatdomain).

use super::Rendered;
use crate::partition::{Group, Plan, Role};

/// A guest for which no memory was wished still needs some, MiB.
const LEAST_MIB: u64 = 512;

pub(super) fn render(plan: &Plan) -> Vec<Rendered> {
    let guests = plan.groups.iter().filter(|group| group.role == Role::Guest);
    guests
        .map(|guest| Rendered {
            path: format!("{}.xml", guest.name),
            text: domain(plan, guest),
        })
        .collect()
}

fn domain(plan: &Plan, guest: &Group) -> String {
    let pins: String = guest
        .cpus
        .iter()
        .enumerate()
        .map(|(vcpu, cpu)| format!("    <vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>\n"))
        .collect();
    let nodes: Vec<String> = guest.nodes.iter().map(u32::to_string).collect();
    let page_kib = plan
        .huge_pages
        .first()
        .map(|pool| pool.page_kib)
        .filter(|_| guest.memory_mib > 0);
    let backing = page_kib.map_or(String::new(), |size| {
        format!("  <memoryBacking>\n    <hugepages>\n      <page size='{size}' unit='KiB'/>\n    </hugepages>\n    <nosharepages/>\n    <locked/>\n    <access mode='shared'/>\n  </memoryBacking>\n")
    });
    let memory = if guest.memory_mib > 0 {
        guest.memory_mib
    } else {
        LEAST_MIB
    };
    format!(
        "<domain type='kvm'>
  <name>{}</name>
  <memory unit='MiB'>{memory}</memory>
{backing}  <vcpu placement='static' cpuset='{}'>{}</vcpu>
  <cputune>
{pins}    <emulatorpin cpuset='{}'/>
  </cputune>
  <numatune>
    <memory mode='strict' nodeset='{}'/>
  </numatune>
  <os>
    <type>hvm</type>
  </os>
  <cpu mode='host-passthrough'/>
</domain>
",
        guest.name,
        guest.cpus,
        guest.cpus.len(),
        plan.housekeeping,
        nodes.join(",")
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus};
    let guest = plan.group(&between(text, "<name>", "<")).unwrap();
    let pins = text.lines().filter(|line| line.contains("<vcpupin"));
    let pinned: Vec<_> = pins
        .map(|line| cpus(&between(line, "cpuset='", "'")).first().unwrap())
        .collect();
    assert_eq!(pinned, guest.cpus.iter().collect::<Vec<_>>());
    assert_eq!(
        cpus(&between(text, "<emulatorpin cpuset='", "'")),
        plan.housekeeping
    );
}
