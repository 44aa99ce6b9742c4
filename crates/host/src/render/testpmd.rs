// SPDX-License-Identifier: Apache-2.0
//! Renders the command line of dpdk-testpmd: EAL options, then its own. Without `--main-lcore`, the main thread would use a
//! forwarding CPU.

use crate::CpuList;
use crate::partition::{Plan, Role};

pub(super) fn render(plan: &Plan) -> String {
    let forwarding = plan.cpus(Role::Forwarding);
    let main: CpuList = super::cpus::control(plan).first().into_iter().collect();
    let devices: String = plan
        .nics
        .iter()
        .map(|nic| format!(" -a {}", nic.pci_address))
        .collect();
    let devices = if devices.is_empty() {
        " --no-pci".to_owned()
    } else {
        devices
    };
    let queues = plan
        .nics
        .iter()
        .map(|nic| nic.queues.len())
        .max()
        .unwrap_or(1);
    format!(
        "dpdk-testpmd -l {} --main-lcore {main} --socket-mem {}{devices} -- --nb-cores={} --rxq={queues} --txq={queues} --rxd={} --txd={} --forward-mode=io --stats-period=1\n",
        main.union(&forwarding),
        super::memory::socket_memory(plan),
        forwarding.len(),
        plan.rx_ring_size,
        plan.tx_ring_size
    )
}

#[cfg(test)]
pub(super) fn check(text: &str, plan: &Plan) {
    use super::tests::{cpus, word};
    let (listed, main) = (
        cpus(&word(text, " -l ")),
        cpus(&word(text, "--main-lcore ")),
    );
    assert_eq!(listed.difference(&main), plan.cpus(Role::Forwarding));
    assert!(super::cpus::control(plan).union(&main) == super::cpus::control(plan));
    assert_eq!(
        word(text, "--socket-mem "),
        super::memory::socket_memory(plan)
    );
    let devices = text.split_whitespace().skip_while(|word| *word != "-a");
    let devices: Vec<&str> = devices
        .take_while(|word| *word != "--")
        .filter(|word| *word != "-a")
        .collect();
    let planned: Vec<&str> = plan
        .nics
        .iter()
        .map(|nic| nic.pci_address.as_str())
        .collect();
    assert_eq!(devices, planned);
    assert_eq!(
        word(text, "--nb-cores=").parse::<usize>().unwrap(),
        plan.cpus(Role::Forwarding).len()
    );
}
