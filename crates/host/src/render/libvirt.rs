// SPDX-License-Identifier: Apache-2.0
//! Renders the CPU and memory part of each guest's domain, to be merged into its definition (libvirt's formatdomain).

use super::file::Rendered;
use super::guest::{memory_mib, needs_topoext, virtual_cpus};
use crate::partition::{Group, Plan, Role};

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
    let virtual_cpus = virtual_cpus(guest);
    let (cores, threads) = (virtual_cpus.cores, virtual_cpus.threads);
    let feature = if needs_topoext(plan, &virtual_cpus) {
        "    <feature policy='require' name='topoext'/>\n"
    } else {
        ""
    };
    let pins: String = virtual_cpus
        .pins
        .iter()
        .enumerate()
        .map(|(vcpu, cpu)| format!("    <vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>\n"))
        .collect();
    let nodes: Vec<String> = guest.nodes.iter().map(u32::to_string).collect();
    let numa = if nodes.is_empty() {
        String::new()
    } else {
        format!(
            "  <numatune>\n    <memory mode='strict' nodeset='{}'/>\n  </numatune>\n",
            nodes.join(",")
        )
    };
    let page_kib = plan
        .huge_pages
        .first()
        .map(|pool| pool.page_kib)
        .filter(|_| guest.memory_mib > 0);
    let backing = page_kib.map_or(String::new(), |size| {
        format!("  <memoryBacking>\n    <hugepages>\n      <page size='{size}' unit='KiB'/>\n    </hugepages>\n    <nosharepages/>\n    <locked/>\n    <access mode='shared'/>\n  </memoryBacking>\n")
    });
    let memory = memory_mib(guest);
    format!(
        "<domain type='kvm'>
  <name>{}</name>
  <memory unit='MiB'>{memory}</memory>
{backing}  <vcpu placement='static' cpuset='{}'>{}</vcpu>
  <cputune>
{pins}    <emulatorpin cpuset='{}'/>
  </cputune>
{numa}  <os>
    <type>hvm</type>
  </os>
  <cpu mode='host-passthrough'>
    <topology sockets='1' dies='1' cores='{cores}' threads='{threads}'/>
{feature}  </cpu>
</domain>
",
        guest.name,
        guest.cpus,
        guest.cpus.len(),
        plan.housekeeping
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{between, cpus};
    let guest = plan.group(&between(text, "<name>", "<")).unwrap();
    let pins = text.lines().filter(|line| line.contains("<vcpupin"));
    let pins: Vec<_> = pins
        .enumerate()
        .map(|(vcpu, line)| {
            assert_eq!(between(line, "vcpu='", "'"), vcpu.to_string());
            cpus(&between(line, "cpuset='", "'")).first().unwrap()
        })
        .collect();
    let number = |start: &str| between(text, start, "'").parse().unwrap();
    super::guest::check(guest, &pins, number("cores='"), number("threads='"));
    assert_eq!(
        cpus(&between(text, "placement='static' cpuset='", "'")),
        guest.cpus
    );
    assert_eq!(
        between(text, "<memory unit='MiB'>", "<"),
        memory_mib(guest).to_string()
    );
    assert_eq!(
        cpus(&between(text, "<emulatorpin cpuset='", "'")),
        plan.housekeeping
    );
}
