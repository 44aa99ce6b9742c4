// SPDX-License-Identifier: Apache-2.0
//! Filter rules in the form of forwarding threads, and their reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_packet::VlanId;

use super::Engine;
use super::counted::CountedRules;
use crate::config::Group;
use crate::config::rules::{Action, RuleSetting};
use crate::report::{RuleReport, RulesReport};
use quietwire_tables::filter::{Fallback, PortRule, PortRules};

impl Engine {
    /// Assigns a counter to each rule of the plan. An unchanged rule keeps its counter, even if its position changes.
    pub(super) fn count_rules(&mut self) {
        let former = std::mem::take(&mut self.rules);
        let counted = |rule: &RuleSetting| {
            let same = former.rules.iter().find(|(one, _)| one == rule);
            let count = same.map_or_else(Arc::default, |(_, count)| Arc::clone(count));
            (rule.clone(), count)
        };
        let asked = &self.plan.rules;
        self.rules = CountedRules {
            rules: asked.rules.iter().map(counted).collect(),
            fallback: Fallback {
                default: asked.default,
                default_frames: match former.fallback.default == asked.default {
                    true => former.fallback.default_frames,
                    false => Arc::default(),
                },
                malformed: asked.malformed,
                malformed_frames: former.fallback.malformed_frames,
            },
        };
    }

    /// Returns the rules of a port; `None` if the port accepts every frame.
    pub(super) fn port_rules(&self, number: u16) -> Option<PortRules> {
        let CountedRules { rules, fallback } = &self.rules;
        let port = self.slot(number)?.plan.name.as_str();
        let bridge = match self.group_of(port) {
            Some(Group::Bridge(bridge)) => Some(&bridge.name),
            _ => None,
        };
        let concerns = |rule: &RuleSetting| {
            rule.port.as_deref().is_none_or(|name| name == port)
                && (rule.bridge.is_none() || rule.bridge.as_ref() == bridge)
        };
        let of_port: Vec<PortRule> = (0u16..)
            .zip(rules)
            .filter(|(_, (rule, _))| concerns(rule))
            .map(|(number, (rule, frames))| PortRule {
                number,
                vlan: rule.vlan.map(VlanId::get),
                packet: rule.packet,
                action: rule.action,
                frames: Arc::clone(frames),
            })
            .collect();
        let is_looked_at = !of_port.is_empty() || fallback.default == Action::Drop;
        is_looked_at.then(|| PortRules::new(of_port, fallback.clone()))
    }

    /// Returns the names of rules, by their numbers.
    pub(crate) fn rule_names(&self) -> Vec<String> {
        let rules = self.rules.rules.iter();
        rules.map(|(rule, _)| rule.name.clone()).collect()
    }

    /// Returns the report of filter rules.
    pub(crate) fn rules_report(&self) -> RulesReport {
        let report = |(rule, frames): &(RuleSetting, Arc<AtomicU64>)| RuleReport {
            name: rule.name.clone(),
            action: rule.action,
            port: rule.port.clone(),
            bridge: rule.bridge.clone(),
            vlan: rule.vlan,
            packet: rule.packet,
            frames: frames.load(Ordering::Relaxed),
        };
        let fallback = &self.rules.fallback;
        RulesReport {
            rules: self.rules.rules.iter().map(report).collect(),
            default: fallback.default,
            default_frames: fallback.default_frames.load(Ordering::Relaxed),
            malformed: fallback.malformed,
            malformed_frames: fallback.malformed_frames.load(Ordering::Relaxed),
        }
    }
}
