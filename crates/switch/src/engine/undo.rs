// SPDX-License-Identifier: Apache-2.0
//! Restoring the former plan after a failed change.

use std::sync::Arc;

use super::apply::Effort;
use super::counted::{CountedFilter, CountedRules, CountedSteering};
use super::{BridgePorts, Engine};
use crate::bridge_view::BridgeView;
use crate::config::Plan;
use crate::config::nat::NatSetting;

/// State of the engine before a change. Its ports and threads stay open until the change is complete.
#[derive(Debug)]
pub(super) struct Snapshot {
    plan: Plan,
    bridges: Vec<BridgeView>,
    /// Ports of each bridge, with their settings.
    bridge_ports: BridgePorts,
    interfaces: Vec<Option<String>>,
    kernel_filters: Vec<CountedFilter>,
    steering: CountedSteering,
    rules: CountedRules,
}

impl Snapshot {
    pub(super) fn bridge_ports(&self) -> &BridgePorts {
        &self.bridge_ports
    }

    /// Returns the settings of NAT.
    pub(super) fn nats(&self) -> &[NatSetting] {
        &self.plan.nats
    }
}

impl Engine {
    /// Returns the state to restore if a change fails.
    pub(super) fn snapshot(&self) -> Snapshot {
        let views = self.bridges.iter();
        Snapshot {
            plan: self.plan.clone(),
            bridges: self.bridges.clone(),
            bridge_ports: views
                .map(|view| (view.name.clone(), self.bridge_ports(&view.name)))
                .collect(),
            interfaces: self.interfaces.clone(),
            kernel_filters: self.kernel_filters.clone(),
            steering: self.steering.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Restores the former plan. Parts that a late thread prevents are restored once it replies.
    pub(super) fn undo(&mut self, former: Snapshot) {
        let mut bridges = former.bridges;
        for view in &mut bridges {
            // Both views share the table, which may have the static entries of the failed change.
            let mut failed = self.bridges.iter();
            if let Some(failed) = failed.find(|one| Arc::ptr_eq(&one.fdb, &view.fdb)) {
                view.statics.clone_from(&failed.statics);
            }
        }
        self.bridges = bridges;
        self.plan = former.plan;
        self.interfaces = former.interfaces;
        self.kernel_filters = former.kernel_filters;
        self.steering = former.steering;
        self.rules = former.rules;
        self.take_plans();
        drop(self.publish_router());
        self.drop_preparations();
        let transition = self.transition(Effort::Best);
        let undone = transition.and(self.clean_up());
        match undone {
            Ok(()) => tracing::info!("a change failed and is undone"),
            Err(error) => {
                self.loose.is_unsettled = true;
                tracing::warn!("a change failed, and undoing it continues later: {error}");
            }
        }
    }

    /// Drops the resources created for a plan that is not applied.
    pub(super) fn drop_preparations(&mut self) {
        let mut layer3 = self.layer3.lock();
        layer3.drop_spare_taps();
        layer3.keep_vrfs(&self.plan.layer3.vrfs);
    }
}
