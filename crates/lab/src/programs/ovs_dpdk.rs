// SPDX-License-Identifier: Apache-2.0
//! Open vSwitch on DPDK: one polling thread on each of its CPUs, vhost-user ports.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::ovs::Ovs;
use super::vdev::{claim_runtime_directory, free_huge_memory_mib, threads};
use crate::cycles::CycleCount;
use crate::element::{Attachment, ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

/// Memory, MiB. The first connection allocates 262,144 buffers.
const MEMORY_MIB: u64 = 2048;

#[derive(Debug)]
pub(super) struct OvsDpdk(Ovs);

impl Default for OvsDpdk {
    fn default() -> Self {
        Self(Ovs::new(
            "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
            "openvswitch-switch-dpdk",
        ))
    }
}

/// Keys of the table Open_vSwitch. On ordinary pages DPDK allocates all its memory at the start.
fn settings_of(plan: &Plan) -> Vec<String> {
    let free_mib = free_huge_memory_mib();
    let memory = if free_mib >= MEMORY_MIB {
        format!("--in-memory -m {MEMORY_MIB}")
    } else {
        format!("--no-huge --legacy-mem -m {MEMORY_MIB}")
    };
    let cards: String = plan
        .ports
        .iter()
        .filter_map(|port| match &port.attachment {
            Attachment::Pci { address } => Some(format!(" -a {address}")),
            _ => None,
        })
        .collect();
    let cards = if cards.is_empty() {
        " --no-pci".to_owned()
    } else {
        cards
    };
    let mut settings = vec![
        "dpdk-init=true".to_owned(),
        format!("dpdk-extra=\"{memory}{cards} --file-prefix={}\"", plan.tag),
        format!(
            "dpdk-lcore-mask=0x{}",
            plan.rest.to_mask().trim_start_matches("0x")
        ),
        format!(
            "pmd-cpu-mask=0x{}",
            plan.cpus.to_mask().trim_start_matches("0x")
        ),
    ];
    if plan.is_shared {
        // Microseconds that an idle polling thread sleeps.
        settings.push("pmd-maxsleep=50".to_owned());
    }
    settings
        .into_iter()
        .map(|setting| format!("other_config:{setting}"))
        .collect()
}

impl Forwarder for OvsDpdk {
    fn probe(&self) -> Result<String, Unavailable> {
        self.0.probe()
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        claim_runtime_directory(plan, context)?;
        self.0.start(plan, context, &settings_of(plan))
    }

    fn connect(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.0.connect(plan, context)?;
        // The daemon creates server sockets in its own directory, named after the ports.
        for (index, port) in plan.ports.iter().enumerate() {
            let Some(socket) = port.attachment.own_socket() else {
                continue;
            };
            let own = plan.directory.join(format!("p{index}"));
            std::os::unix::fs::symlink(&own, socket)
                .map_err(crate::error::io_error(socket, "naming a socket"))?;
        }
        Ok(())
    }

    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.0.program(plan, context)
    }

    fn cycles(&self, plan: &Plan) -> Result<Option<CycleCount>, String> {
        self.0.cycles(plan).map(Some)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        self.0.own_view(plan, deadline)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        self.0.frames(plan, deadline)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        threads(self.0.daemon_pid()?, |name| name.starts_with("pmd"))
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        self.0.configuration(plan)
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.0.processes
    }
}
