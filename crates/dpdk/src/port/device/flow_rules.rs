// SPDX-License-Identifier: Apache-2.0
//! Flow rules of the card of a device: by the kernel's driver of its interface, or by a driver of DPDK.

use std::sync::{MutexGuard, PoisonError};

use super::Device;
use crate::error::Error;
use crate::port::flow_driver::PortDriver;
use crate::port::flow_rules::FlowRules;
use crate::steer::offload::OffloadedRules;
use crate::steer::{CardTarget, SteerRule};

impl Device {
    pub(super) fn flow_rules(&self) -> MutexGuard<'_, FlowRules> {
        self.flow_rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn offloaded_rules(&self) -> MutexGuard<'_, OffloadedRules<PortDriver>> {
        self.offloaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the rules to the card of a started device. Before that, most drivers accept none.
    pub(super) fn offload(&self, rules: &[SteerRule]) -> Result<(), String> {
        if !self.is_started {
            return Ok(());
        }
        let queues = self.rx.len();
        for (place, rule) in (1..).zip(rules) {
            if let Some(CardTarget::Queue(queue)) = rule.card
                && usize::from(queue) >= queues
            {
                return Err(format!(
                    "rule {place}: no such receive queue: {queue} (the port has {queues})"
                ));
            }
        }
        self.offloaded_rules().replace(rules)
    }

    /// Returns the frames that the card has counted for each rule; none for a rule that it does not count.
    pub(crate) fn offloaded(&self) -> Vec<Option<u64>> {
        self.offloaded_rules().hits()
    }

    /// Returns true if the port has flow rules of its card.
    pub(crate) fn has_flow_rules(&self) -> bool {
        self.flow_rules().is_used()
    }

    /// Adds the flow rules again that the driver of the card has lost. Returns their number.
    pub(crate) fn renew_flow_rules(&self) -> Result<usize, Error> {
        let renewed = self.flow_rules().renew();
        renewed.map_err(|cause| Error::Steering {
            port: self.name.clone(),
            uri: self.uri.to_string(),
            cause,
        })
    }
}
