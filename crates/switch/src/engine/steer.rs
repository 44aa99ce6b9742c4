// SPDX-License-Identifier: Apache-2.0
//! Steering of frames between ports and the kernel, and its reports. An `af-xdp` port steers itself. The frames of other ports are divided by
//! forwarding threads: those for the kernel go to a tap, whose frames leave through the port.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quietwire_packet::VlanId;
use quietwire_tables::filter::{Steering, SteeringRule};

use super::Engine;
use super::apply::Tally;
use super::counted::CountedSteering;
use crate::config::PortPlan;
use crate::config::steer::{SteerSetting, SteerTo};
use crate::error::SwitchError;
use crate::report::{CardState, SteerReport, SteerRuleReport, SteeredBy};

impl Engine {
    /// Gives each port of the plan its steering rules. A port that is removed keeps its rules, so that the kernel keeps its frames.
    ///
    /// # Errors
    /// The first failure, if no further order may follow.
    pub(super) fn steer(&self, tally: &mut Tally) -> Result<(), SwitchError> {
        let ports = self.plan.ports.iter();
        for port in ports.filter(|port| port.steers() || port.is_card()) {
            let number = self.number(&port.name);
            let slot = number.and_then(|number| self.slot(number));
            if let Some(slot) = slot.filter(|slot| !slot.is_closing) {
                let rules = self.plan.device_rules(port);
                tally.note(slot.handle.steer(&rules).map_err(SwitchError::from))?;
            }
        }
        Ok(())
    }

    /// Assigns counters to the steering rules of ports that do not steer. An unchanged rule keeps its counter.
    pub(super) fn count_steering(&mut self) {
        let former = std::mem::take(&mut self.steering);
        let mut steering = CountedSteering::default();
        for rule in &self.plan.steer {
            if rule.kernel_port.is_none() {
                continue;
            }
            let same = former.rules.iter().find(|(one, _)| one == rule);
            let count = same.map_or_else(Arc::default, |(_, count)| Arc::clone(count));
            steering.rules.push((rule.clone(), count));
            let unmatched = former.unmatched.get(&rule.port).cloned();
            let port = steering.unmatched.entry(rule.port.clone());
            port.or_insert_with(|| unmatched.unwrap_or_default());
        }
        self.steering = steering;
    }

    fn name_of(&self, number: u16) -> Option<&str> {
        Some(self.slot(number)?.plan.name.as_str())
    }

    /// Returns the tap through which the kernel gets frames of a port by its steering rules.
    pub(super) fn kernel_port(&self, number: u16) -> Option<u16> {
        let mut rules = self.plan.steering_of(self.name_of(number)?);
        self.number(rules.find_map(|rule| rule.kernel_port.as_deref())?)
    }

    /// Returns the port whose frames a tap gives the kernel by steering rules.
    pub(super) fn steered_port(&self, number: u16) -> Option<u16> {
        let name = self.name_of(number)?;
        let mut rules = self.plan.steer.iter();
        let rule = rules.find(|rule| rule.kernel_port.as_deref() == Some(name))?;
        self.number(&rule.port)
    }

    /// Returns the steering rules of a port in the form of forwarding threads, and the number of the tap; `None` without rules, or if the port
    /// itself steers.
    pub(super) fn steering(&self, number: u16) -> Option<(Steering, usize)> {
        let kernel = self.kernel_port(number)?;
        let name = self.name_of(number)?;
        let unmatched = self.steering.unmatched.get(name)?;
        let rules = self.steering.rules.iter();
        let rules = rules.filter(|(rule, _)| rule.port == name);
        let rules = rules.map(|(rule, frames)| SteeringRule {
            source_mac: rule.source_mac.map(|mac| mac.0),
            destination_mac: rule.destination_mac.map(|mac| mac.0),
            vlan: rule.vlan.map(VlanId::get),
            packet: rule.packet,
            // Among frames that a card should deliver to a function, the kernel gets the others.
            is_for_kernel: rule.to != SteerTo::Switch,
            frames: Arc::clone(frames),
        });
        let rules = Steering::new(rules, Arc::clone(unmatched));
        Some((rules, usize::from(kernel)))
    }

    /// Returns the reports of ports with steering rules.
    pub(crate) fn steer_reports(&self) -> Vec<SteerReport> {
        let ports = self.plan.ports.iter();
        ports.filter_map(|port| self.steer_report(port)).collect()
    }

    fn steer_report(&self, plan: &PortPlan) -> Option<SteerReport> {
        let port = plan.name.as_str();
        let settings: Vec<&SteerSetting> = self.plan.steering_of(port).collect();
        if settings.is_empty() {
            return None;
        }
        let slot = self.number(port).and_then(|number| self.slot(number));
        // Of the rules that select a queue or a function.
        let offloaded = slot.map(|slot| slot.handle.offloaded()).unwrap_or_default();
        let unmatched = self.steering.unmatched.get(port);
        let (by, frames, misplaced, unmatched) = match unmatched {
            Some(unmatched) => {
                let rules = self.steering.rules.iter();
                let frames = rules.filter(|(rule, _)| rule.port == port);
                let frames = frames.map(|(_, frames)| frames.load(Ordering::Relaxed));
                let unmatched = unmatched.load(Ordering::Relaxed);
                (
                    SteeredBy::Software,
                    frames.collect::<Vec<_>>(),
                    Vec::new(),
                    unmatched,
                )
            }
            None if plan.is_card() => {
                slot?;
                let frames = offloaded.iter().map(|hits| hits.unwrap_or_default());
                (SteeredBy::Card, frames.collect(), Vec::new(), 0)
            }
            None => {
                let hits = slot?.handle.steered()?;
                (SteeredBy::Xdp, hits.rules, hits.misplaced, hits.unmatched)
            }
        };
        let mut offloaded = offloaded.into_iter();
        let mut card = |setting: &SteerSetting, frames, misplaced| match plan.is_card() {
            true => setting
                .card()
                .map(|_| CardState::of_counter(offloaded.next().flatten())),
            false => CardState::of(setting, frames, misplaced),
        };
        let misplaced = misplaced.into_iter().chain(std::iter::repeat(0));
        let rules = settings.iter().zip(frames).zip(misplaced);
        let rules = rules.map(|((setting, frames), misplaced)| SteerRuleReport {
            name: setting.name.clone(),
            to: setting.to,
            queue: setting.queue,
            virtual_function: setting.virtual_function,
            card: card(setting, frames, misplaced),
            misplaced,
            source_mac: setting.source_mac,
            destination_mac: setting.destination_mac,
            vlan: setting.vlan,
            packet: setting.packet,
            frames,
        });
        Some(SteerReport {
            port: port.to_owned(),
            by,
            kernel_port: settings.iter().find_map(|one| one.kernel_port.clone()),
            rules: rules.collect(),
            unmatched,
        })
    }
}
