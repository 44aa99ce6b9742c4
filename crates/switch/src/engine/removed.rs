// SPDX-License-Identifier: Apache-2.0
//! Ports whose device was removed from the machine while the switch runs. The plan keeps them, and they are shown as removed until they are
//! deleted.

use std::collections::BTreeMap;

use crate::config::{Plan, PortPlan};
use crate::report::PortReport;

/// State of such a port in reports.
const STATE: &str = "removed";

/// Ports whose device was removed, by name, with their last reports.
#[derive(Debug, Default)]
pub(super) struct RemovedPorts(BTreeMap<String, (PortPlan, PortReport)>);

impl RemovedPorts {
    /// Returns true if this port is not to be opened, because its device was removed.
    pub(super) fn contains(&self, port: &PortPlan) -> bool {
        let found = self.0.get(&port.name);
        found.is_some_and(|(removed, _)| removed.is_same_device(port))
    }

    /// Adds a port with its last report.
    pub(super) fn add(&mut self, plan: PortPlan, report: PortReport) {
        let report = PortReport {
            link_up: false,
            state: STATE.to_owned(),
            waiting_reason: Some("its device was removed".to_owned()),
            speed_mbps: None,
            flow_control: None,
            kept_card_rules: Vec::new(),
            memory: Vec::new(),
            ..report
        };
        self.0.insert(plan.name.clone(), (plan, report));
    }

    /// Forgets ports that a plan does not contain.
    pub(super) fn keep(&mut self, plan: &Plan) {
        let is_planned =
            |removed: &PortPlan| plan.ports.iter().any(|port| port.is_same_device(removed));
        self.0.retain(|_, (removed, _)| is_planned(removed));
    }

    /// Returns the last reports of the ports.
    pub(super) fn reports(&self) -> impl Iterator<Item = PortReport> + '_ {
        self.0.values().map(|(_, report)| report.clone())
    }
}
