// SPDX-License-Identifier: Apache-2.0
//! Renders the file for `quietwire switch run --config`. The switch accepts it for every plan.

use crate::CpuSequence;
use crate::partition::{Idle, Plan, Role};

/// Overhead of an untagged frame, octets: addresses, type and FCS.
const FRAME_OVERHEAD: u32 = 18;
/// Valid maximum frame sizes of the switch, octets with FCS.
const FRAME_SIZES: std::ops::RangeInclusive<u32> = 64..=9216;
/// Maximum number of receive queues of the switch.
const QUEUES_MAX: usize = 64;

pub(super) fn render(plan: &Plan) -> String {
    let mut text = format!(
        "forwarding-cpus = \"{}\"\nservice-cpus = \"{}\"\ncontrol-cpus = \"{}\"\nrx-ring-size = {}\ntx-ring-size = {}\n{}",
        plan.cpus(Role::Forwarding),
        super::cpus::service(plan),
        super::cpus::control(plan),
        plan.rx_ring_size,
        plan.tx_ring_size,
        idle(plan.idle)
    );
    let memory_mib = memory_mib(plan);
    if memory_mib > 0 {
        text += &format!("memory-mib = {memory_mib}\n");
    }
    // One size for all ports. The switch's default is 1518 octets.
    if let Some(mtu) = plan.nics.iter().map(|nic| nic.mtu).max() {
        text += &frame_size(mtu);
    }
    for (index, nic) in plan.nics.iter().enumerate() {
        let queues = nic.queues.len().min(QUEUES_MAX);
        if queues < nic.queues.len() {
            text += &format!(
                "\n# The plan has {} receive queues, but the switch supports at most {QUEUES_MAX}.",
                nic.queues.len()
            );
        }
        // The order matters: the first CPU polls the first queue.
        let cpus = nic.queues.iter().take(queues).map(|queue| queue.cpu);
        let cpus: CpuSequence = cpus.collect();
        text += &format!(
            "\n[[port]]\nname = \"p{index}\"\nuri = \"pci:{}\"\nrx-queues = {queues}\nrx-cpus = \"{cpus}\"\n",
            nic.pci_address,
        );
    }
    text
}

fn idle(idle: Idle) -> String {
    format!("idle = \"{}\"\n", idle.name())
}

/// Returns the memory of the data plane on all its nodes, MiB; 0 without huge pages.
fn memory_mib(plan: &Plan) -> u32 {
    let pools = plan.huge_pages.iter().map(|pool| pool.data_plane_mib);
    u32::try_from(pools.fold(0, u64::saturating_add)).unwrap_or(u32::MAX)
}

fn frame_size(mtu: u16) -> String {
    let wanted = u32::from(mtu).saturating_add(FRAME_OVERHEAD);
    let size = wanted.clamp(*FRAME_SIZES.start(), *FRAME_SIZES.end());
    let note = if size == wanted {
        String::new()
    } else {
        format!(
            "# An MTU of {mtu} octets requires frames of {wanted} octets, which the switch does not support.\n"
        )
    };
    format!("{note}frame-size-max = {size}\n")
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::cpus;
    let table: toml::Table = text.parse().unwrap();
    let list = |key: &str| cpus(table[key].as_str().unwrap());
    assert_eq!(list("forwarding-cpus"), plan.cpus(Role::Forwarding));
    assert_eq!(list("service-cpus"), super::cpus::service(plan));
    assert_eq!(list("control-cpus"), super::cpus::control(plan));
    let number = |key: &str| table.get(key).and_then(toml::Value::as_integer);
    assert_eq!(number("rx-ring-size"), Some(i64::from(plan.rx_ring_size)));
    let memory: u64 = plan.huge_pages.iter().map(|pool| pool.data_plane_mib).sum();
    assert_eq!(
        number("memory-mib").unwrap_or(0),
        i64::try_from(memory).unwrap()
    );
    let ports = table.get("port").and_then(toml::Value::as_array);
    let ports = ports.map_or(&[][..], Vec::as_slice);
    assert_eq!(ports.len(), plan.nics.len());
    let mtu = plan.nics.iter().map(|nic| i64::from(nic.mtu)).max();
    let size = number("frame-size-max");
    assert_eq!(
        size,
        mtu.map(|mtu| (mtu + i64::from(FRAME_OVERHEAD)).clamp(64, 9216))
    );
    for (port, nic) in ports.iter().zip(&plan.nics) {
        let text = |key: &str| port[key].as_str().unwrap();
        assert_eq!(text("uri"), format!("pci:{}", nic.pci_address));
        let polling = nic.queues.iter().take(QUEUES_MAX).map(|queue| queue.cpu);
        let polling: CpuSequence = polling.collect();
        assert_eq!(text("rx-cpus").parse(), Ok(polling));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_idle_is_rendered_as_requested() {
        for idle in Idle::ALL {
            let mut plan = super::super::tests::sample();
            plan.idle = idle;
            let text = render(&plan);
            let line = format!("\nidle = \"{}\"\n", idle.name());
            assert!(text.contains(&line), "{text}");
            check(&text, &plan);
        }
    }
}
