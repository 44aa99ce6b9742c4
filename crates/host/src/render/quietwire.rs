// SPDX-License-Identifier: Apache-2.0
//! The file that `quietwire switch run --config` takes.

use crate::partition::{Idle, Plan, Role};

/// Octets of a frame without tags beside its payload: addresses, type and FCS.
const FRAME_OVERHEAD: u32 = 18;

pub(super) fn render(plan: &Plan) -> String {
    let idle = match plan.idle {
        Idle::Poll => "poll",
        Idle::Yield => "yield",
        Idle::Interrupt => "interrupt",
    };
    let mut text = format!(
        "forwarding-cpus = \"{}\"\nservice-cpus = \"{}\"\ncontrol-cpus = \"{}\"\nrx-ring-size = {}\ntx-ring-size = {}\nidle = \"{idle}\"\n",
        plan.cpus(Role::Forwarding),
        super::cpus::service(plan),
        super::cpus::control(plan),
        plan.rx_ring_size,
        plan.tx_ring_size
    );
    // One size for all ports; the switch has 1518 octets by default.
    if let Some(mtu) = plan.nics.iter().map(|nic| nic.mtu).max() {
        text += &format!("frame-size-max = {}\n", u32::from(mtu) + FRAME_OVERHEAD);
    }
    for (index, nic) in plan.nics.iter().enumerate() {
        let cpus: crate::CpuList = nic.queues.iter().map(|queue| queue.cpu).collect();
        text += &format!(
            "\n[[port]]\nname = \"p{index}\"\nuri = \"pci:{}\"\nrx-queues = {}\nrx-cpus = \"{cpus}\"\n",
            nic.pci_address,
            nic.queues.len()
        );
    }
    text
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::cpus;
    let table: toml::Table = text.parse().unwrap();
    let list = |key: &str| cpus(table[key].as_str().unwrap());
    assert_eq!(list("forwarding-cpus"), plan.cpus(Role::Forwarding));
    assert_eq!(list("service-cpus"), super::cpus::service(plan));
    assert_eq!(list("control-cpus"), super::cpus::control(plan));
    assert_eq!(
        table["rx-ring-size"].as_integer(),
        Some(i64::from(plan.rx_ring_size))
    );
    let ports = table.get("port").and_then(toml::Value::as_array);
    let ports = ports.map_or(&[][..], Vec::as_slice);
    assert_eq!(ports.len(), plan.nics.len());
    let mtu = plan.nics.iter().map(|nic| i64::from(nic.mtu)).max();
    let size = table
        .get("frame-size-max")
        .and_then(toml::Value::as_integer);
    assert_eq!(size, mtu.map(|mtu| mtu + i64::from(FRAME_OVERHEAD)));
    for (port, nic) in ports.iter().zip(&plan.nics) {
        let text = |key: &str| port[key].as_str().unwrap();
        assert_eq!(text("uri"), format!("pci:{}", nic.pci_address));
        let polling: crate::CpuList = nic.queues.iter().map(|queue| queue.cpu).collect();
        assert_eq!(cpus(text("rx-cpus")), polling);
    }
}
