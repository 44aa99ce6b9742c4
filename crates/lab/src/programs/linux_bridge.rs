// SPDX-License-Identifier: Apache-2.0
//! Bridges of the kernel, one for each pair of ports, in their own namespace. They have no process: softirqs on the element's CPUs do the
//! work.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::kernel;
use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;

#[derive(Debug)]
pub(super) struct LinuxBridge;

impl Forwarder for LinuxBridge {
    fn probe(&self) -> Result<String, Unavailable> {
        kernel::probe()
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let namespace = kernel::namespace(plan)?;
        for join in 0..plan.joins.len() {
            let bridge = format!("br{join}");
            // The bridge sends no frames itself: no spanning tree, no multicast group queries.
            context.run(&[
                "ip",
                "-n",
                namespace,
                "link",
                "add",
                &bridge,
                "type",
                "bridge",
                "stp_state",
                "0",
                "mcast_snooping",
                "0",
            ])?;
            context.run(&["ip", "-n", namespace, "link", "set", &bridge, "up"])?;
        }
        Ok(())
    }

    fn connect(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let namespace = kernel::namespace(plan)?;
        for (join, ports) in plan.joins.iter().enumerate() {
            for port in ports {
                let (name, bridge) = (format!("p{port}"), format!("br{join}"));
                context.run(&[
                    "ip", "-n", namespace, "link", "set", &name, "master", &bridge, "up",
                ])?;
            }
        }
        Ok(())
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        kernel::frames(plan, deadline)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        kernel::own_view(plan, deadline)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        kernel::query_kernel(plan, &[&["-d", "link", "show"]])
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut []
    }
}
