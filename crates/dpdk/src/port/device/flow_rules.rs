// SPDX-License-Identifier: Apache-2.0
//! Flow rules of the card of a device: by the kernel's driver of its interface, or by a driver of DPDK.

use std::sync::{MutexGuard, PoisonError};

use super::Device;
use crate::error::Error;
use crate::port::flow_driver::PortDriver;
use crate::port::flow_rules::FlowRules;
use crate::steer::offload::OffloadedRules;
use crate::steer::{CardTarget, SteerMatch, SteerRule, SteerTarget};

impl Device {
    pub(super) fn flow_rules(&self) -> MutexGuard<'_, FlowRules> {
        self.flow_rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn offloaded_rules(&self) -> MutexGuard<'_, OffloadedRules<PortDriver>> {
        self.offloaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn dropping_rules(&self) -> MutexGuard<'_, OffloadedRules<PortDriver>> {
        self.dropping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all rules from the card.
    pub(super) fn clear_offloaded(&self) {
        self.offloaded_rules().clear();
        self.dropping_rules().clear();
    }

    /// Forgets all rules of a card that was removed.
    pub(super) fn forget_offloaded(&self) {
        self.offloaded_rules().forget();
        self.dropping_rules().forget();
    }

    /// Replaces the matches of which the card drops the frames.
    pub(crate) fn drop_on_card(&self, matches: &[SteerMatch]) -> Result<(), Error> {
        let rule = |frames: &SteerMatch| SteerRule {
            frames: frames.clone(),
            target: SteerTarget::Switch,
            card: Some(CardTarget::Drop),
        };
        let rules: Vec<SteerRule> = matches.iter().map(rule).collect();
        let replaced = self.dropping_rules().replace(&rules);
        replaced.map_err(|cause| self.steering_error(cause))
    }

    /// Removes the matches of which the card drops the frames, as far as the driver removes them.
    pub(crate) fn withdraw_from_card(&self) -> Result<(), Error> {
        let withdrawn = self.dropping_rules().withdraw();
        withdrawn.map_err(|why| self.steering_error(format!("cannot remove a flow rule: {why}")))
    }

    /// Returns the places of matches that the driver did not remove; none for a match that was in no list.
    pub(crate) fn kept_by_card(&self) -> Vec<Option<usize>> {
        self.dropping_rules().kept()
    }

    /// Returns the frames that the card has dropped by each match; none if the driver does not report them.
    pub(crate) fn dropped_by_card(&self) -> Vec<Option<u64>> {
        self.dropping_rules().hits()
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
