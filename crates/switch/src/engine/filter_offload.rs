// SPDX-License-Identifier: Apache-2.0
//! Filter rules on network cards: of ports with `hw-offload=on`, the cards drop the frames of drop rules that drop many. Forwarding threads
//! have all rules, so a card that accepts a rule and does not obey changes nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use quietwire_dpdk::SteerMatch;
use quietwire_packet::VlanId;
use quietwire_tables::filter::FurtherMatch;

use super::counted::CountedRule;
use super::offloaded::{KeptRules, OffloadedRule};
use super::rules::concerns;
use super::{Engine, Slot};
use crate::config::rules::{Action, MalformedAction, RuleSetting};
use crate::config::steer::frames_of;

/// Number of rules, from the first one on, that cards may get.
const CONSIDERED_MAX: usize = 1024;
/// Minimum number of frames of a rule for cards since the last look, about a second before.
const HOT_FRAMES: u64 = 1000;
/// Maximum number of rules that a card gets at one look, and in all.
const NEW_MAX: usize = 4;
const OFFLOADED_MAX: usize = 64;

impl Engine {
    /// Counts the frames that cards have dropped, and gives cards the rules that have dropped most frames since the last call.
    pub(crate) fn offload_rules(&mut self) {
        self.remove_kept();
        let kept = &self.offloaded.kept;
        let offloads = self.ports().filter(|(number, slot)| {
            is_usable(slot) && slot.plan.uri.offloads_rules() && !kept.contains_key(number)
        });
        let numbers: Vec<u16> = offloads.map(|(number, _)| number).collect();
        if numbers.is_empty() {
            return;
        }
        for number in &numbers {
            self.count_offloaded(*number);
        }
        let rules = self.rules.rules.iter().take(CONSIDERED_MAX);
        let now: Vec<u64> = rules.map(|(_, frames)| frames.get()).collect();
        let hot = hottest(&self.offloaded.observed, &now);
        self.offloaded.observed = now;
        // A tracked connection has frames that the switch must see, and headers that rules cannot read are no part of flow rules.
        let is_plain = self.plan.connections.is_none()
            && self.rules.fallback.malformed == MalformedAction::Drop;
        if is_plain && !hot.is_empty() {
            for number in numbers {
                self.offload_hot(number, &hot);
            }
        }
    }

    /// Gives the card of a port rules at these places, as far as it may have them.
    fn offload_hot(&mut self, number: u16, hot: &[usize]) {
        let mut port = self.offloaded.ports.remove(&number).unwrap_or_default();
        let Some(slot) = self.slot(number) else {
            return;
        };
        let name = slot.plan.name.as_str();
        let bridge = self.bridge_of(name);
        let space = OFFLOADED_MAX.saturating_sub(port.rules.len()).min(NEW_MAX);
        // The card has no order of rules, and steering rules are there too.
        let is_steered = self.plan.steering_of(name).next().is_some();
        let places = hot
            .iter()
            .filter(|place| !is_steered && !port.is_decided(**place));
        let places: Vec<usize> = places.copied().take(space).collect();
        for place in places {
            let rules = &self.rules.rules;
            let found = rules
                .get(place)
                .zip(dropped_frames(rules, place, name, bridge));
            let Some(((rule, frames), matched)) = found else {
                port.refused.insert(place);
                continue;
            };
            let offloaded = port.rules.iter().map(|rule| rule.matched.clone());
            let matches: Vec<SteerMatch> = offloaded.chain([matched.clone()]).collect();
            match slot.handle.drop_on_card(&matches) {
                Ok(()) => {
                    tracing::info!(
                        "port '{name}': its card drops frames of rule '{}'",
                        rule.name
                    );
                    port.rules.push(OffloadedRule {
                        place,
                        matched,
                        frames: Arc::clone(frames),
                        dropped: 0,
                    });
                }
                Err(error) => {
                    tracing::info!("rule '{}' is not offloaded to the card: {error}", rule.name);
                    port.refused.insert(place);
                }
            }
        }
        self.offloaded.ports.insert(number, port);
    }

    /// Adds the frames that the card of a port has dropped to those of its rules.
    fn count_offloaded(&mut self, number: u16) {
        let slot = self.slot(number).filter(|slot| is_usable(slot));
        let dropped = slot.map(|slot| slot.handle.dropped_by_card());
        let Some(port) = self.offloaded.ports.get_mut(&number) else {
            return;
        };
        for (rule, dropped) in port.rules.iter_mut().zip(dropped.unwrap_or_default()) {
            if let Some(dropped) = dropped {
                rule.count(dropped);
            }
        }
    }

    /// Removes all filter rules from cards, before the configuration changes: threads apply them alone until they are hot again.
    pub(super) fn withdraw_offloaded(&mut self) {
        let numbers: Vec<u16> = self.offloaded.ports.keys().copied().collect();
        for number in &numbers {
            self.count_offloaded(*number);
        }
        self.offloaded.observed.clear();
        for (number, port) in std::mem::take(&mut self.offloaded.ports) {
            let rules = &self.rules.rules;
            let name =
                |rule: &OffloadedRule| rules.get(rule.place).map(|(rule, _)| rule.name.clone());
            let names = port.rules.iter().map(|rule| name(rule).unwrap_or_default());
            let kept = KeptRules::new(names.enumerate().collect());
            let Some(slot) = self.slot(number).filter(|slot| is_usable(slot)) else {
                continue;
            };
            if let Err(error) = slot.handle.withdraw_from_card() {
                let names = kept.names_of(&slot.handle.kept_by_card());
                tracing::error!(
                    "{error}; the card goes on dropping frames of former rules ({}), and the switch tries again to remove them (remove and add \
                     the port if this lasts)",
                    names.join(", ")
                );
                self.offloaded.kept.insert(number, kept);
            }
        }
    }

    /// Removes rules that cards have kept, if an attempt is due.
    fn remove_kept(&mut self) {
        for (number, mut kept) in std::mem::take(&mut self.offloaded.kept) {
            // Another port may have the number now, and the rules of a closed one are gone.
            let slot = self.slot(number).filter(|slot| is_usable(slot));
            let Some(slot) = slot.filter(|slot| !slot.handle.kept_by_card().is_empty()) else {
                continue;
            };
            if !kept.is_due() || slot.handle.withdraw_from_card().is_err() {
                self.offloaded.kept.insert(number, kept);
            } else {
                tracing::info!(
                    "port '{}': its card has no former rules any more",
                    slot.plan.name
                );
            }
        }
    }

    /// Returns the names of former rules that the card of a port has kept.
    pub(crate) fn rules_kept_by_card(&self, number: u16) -> Vec<String> {
        let kept = self.offloaded.kept.get(&number).zip(self.slot(number));
        kept.map_or_else(Vec::new, |(kept, slot)| {
            kept.names_of(&slot.handle.kept_by_card())
        })
    }

    /// Returns the numbers of frames that cards have dropped by the rule at a place, by the names of the ports of cards that have it.
    pub(super) fn offloaded_rule(&self, place: usize) -> BTreeMap<String, u64> {
        let ports = self.offloaded.ports.iter();
        let found = ports.filter_map(|(number, port)| {
            let rule = port.rules.iter().find(|rule| rule.place == place)?;
            Some((self.slot(*number)?.plan.name.clone(), rule.dropped))
        });
        found.collect()
    }
}

/// Returns true if the card of a port takes rules: it is in the machine, and its port in use.
fn is_usable(slot: &Slot) -> bool {
    !slot.is_closing && !slot.handle.is_removed()
}

/// Returns the places of rules with at least [`HOT_FRAMES`] more frames than before, those with most of them first.
fn hottest(before: &[u64], now: &[u64]) -> Vec<usize> {
    let new = before.iter().zip(now);
    let new = new.map(|(before, now)| now.saturating_sub(*before));
    let hot = new.zip(0..).filter(|(frames, _)| *frames >= HOT_FRAMES);
    let mut hot: Vec<(u64, usize)> = hot.collect();
    hot.sort_by_key(|(frames, place)| (Reverse(*frames), *place));
    hot.into_iter().map(|(_, place)| place).collect()
}

/// Returns the frames that a rule matches, or more, if it also has conditions that a flow rule cannot have.
fn matched_frames(rule: &RuleSetting) -> SteerMatch {
    SteerMatch {
        vlan: rule.vlan.map(VlanId::get),
        ..frames_of(&rule.packet.packet())
    }
}

/// Returns the frames of the rule at a place that a card of a port may drop. It is a drop rule whose conditions a flow rule can have, and no
/// rule in front of it matches one of its frames: in the switch, each of these frames would end at this rule.
fn dropped_frames(
    rules: &[CountedRule],
    place: usize,
    port: &str,
    bridge: Option<&String>,
) -> Option<SteerMatch> {
    let is_of_port = |rule: &RuleSetting| !rule.is_out() && concerns(rule, port, bridge);
    let (rule, _) = rules.get(place)?;
    let is_plain = rule.ct_state.is_none()
        && rule.ct_mark.is_none()
        && rule.ct_label.is_none()
        && rule.names.names().is_none()
        && rule.statements.is_empty()
        && rule.packet.sets().next().is_none()
        && rule.port_sets().next().is_none()
        && rule.packet.further() == FurtherMatch::default();
    let frames = matched_frames(rule);
    // Protocols of links are no part of flow rules.
    let has_packets =
        frames.protocol.is_some() || frames.source.is_some() || frames.destination.is_some();
    let mut earlier = rules
        .iter()
        .take(place)
        .filter(|(other, _)| is_of_port(other));
    let may = rule.action == Action::Drop
        && is_of_port(rule)
        && is_plain
        && has_packets
        && earlier.all(|(other, _)| matched_frames(other).is_disjoint(&frames));
    may.then_some(frames)
}

#[cfg(test)]
mod tests;
