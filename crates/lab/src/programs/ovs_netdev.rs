// SPDX-License-Identifier: Apache-2.0
//! Open vSwitch in user space without DPDK: it reads and writes interfaces of the kernel through AF_PACKET sockets.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::ovs::Ovs;
use super::vdev::threads_with_main;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

#[derive(Debug)]
pub(super) struct OvsNetdev(Ovs);

impl Default for OvsNetdev {
    fn default() -> Self {
        Self(Ovs::new(
            "/usr/lib/openvswitch-switch/ovs-vswitchd",
            "openvswitch-switch",
        ))
    }
}

impl Forwarder for OvsNetdev {
    fn probe(&self) -> Result<String, Unavailable> {
        self.0.probe()
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.0.start(plan, context, &[])
    }

    fn connect(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.0.connect(plan, context)
    }

    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.0.program(plan, context)?;
        // Its main thread forwards. The other threads keep the CPUs of the process.
        let pid = self.0.daemon_pid().map_err(|what| plan.failed(what))?;
        let (cpus, pid) = (plan.cpus.to_string(), pid.to_string());
        context.run(&["taskset", "--cpu-list", "--pid", &cpus, &pid])?;
        Ok(())
    }

    /// Its main thread forwards, among its other work.
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
        threads_with_main(self.0.daemon_pid()?, |_| false)
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        self.0.configuration(plan)
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.0.processes
    }
}
