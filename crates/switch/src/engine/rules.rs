// SPDX-License-Identifier: Apache-2.0
//! Filter rules in the form of forwarding threads, and their reports.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use quietwire_packet::VlanId;

use super::Engine;
use super::apply::Tally;
use super::counted::{CompiledRules, CountedRule, CountedRules, RulePlace, RuleTimes};
use super::threads::Forwarder;
use crate::config::layer3::Attachment;
use crate::config::rules::{
    Action, Element, ReceivedPacket, RuleCheck, RuleSetting, Rules, SetName, SetSetting, SetType,
    StatementSetting, absent_port, port_set,
};
use crate::config::{CommonEnds, Group};
use crate::error::SwitchError;
use crate::forward::{LinkFrames, LinkMtus, OutputRules, WorkerCommand};
use crate::report::{RuleReport, RulesReport};
use quietwire_tables::filter::{
    Fallback, FurtherMatch, NameFlows, NameMatch, OutMatch, PortRule, PortRules, RuleCounters,
    RuleLog, RuleTable, SetField, Statements,
};
use quietwire_tables::port_mask::PortMask;

/// Maximum number of rules in a page.
const PAGE_MAX: usize = 4096;
/// Number of a set that does not exist: it has no elements.
const NO_SET: u32 = u32::MAX;
/// Number of a port that does not exist: no frame arrives there.
const NO_PORT: u16 = u16::MAX;

/// Rules to be compiled.
struct UncompiledRules<'plan> {
    rules: &'plan [CountedRule],
    /// Common ends of the rules and the former ones.
    ends: CommonEnds,
    fallback: &'plan Fallback,
    /// True if neither rules nor fallback have changed.
    is_same: bool,
    places: Arc<Vec<RulePlace>>,
    bridges: Vec<String>,
    sets: &'plan [Arc<SetSetting>],
    port_sets: BTreeMap<String, PortMask>,
}

impl UncompiledRules<'_> {
    /// Compiles the rules. `kept` are the former ones, if ports, bridges and sets of names of ports have the same numbers in them.
    fn compile(
        self,
        former: Option<&Arc<CompiledRules>>,
        kept: Option<&Arc<CompiledRules>>,
    ) -> Arc<CompiledRules> {
        let kept = kept.filter(|one| names(&one.sets).eq(names(self.sets)));
        let same = kept.filter(|one| self.is_same && one.places == self.places);
        let (table, places) = match same {
            Some(same) if same.sets == self.sets => return Arc::clone(same),
            Some(same) => {
                let table = same.table.with_elements(&elements(self.sets));
                (table, Arc::clone(&same.places))
            }
            None => {
                let few = kept.and_then(|kept| {
                    let now = (self.rules, &self.places[..]);
                    changed_table(kept, now, self.sets, (self.ends, self.fallback))
                });
                let table = few.unwrap_or_else(|| {
                    let former = former.map(|one| &*one.table);
                    let numbers = (&self.places[..], self.sets);
                    table_of(former, self.rules, numbers, self.fallback)
                });
                (table, self.places)
            }
        };
        Arc::new(CompiledRules {
            table: Arc::new(table),
            places,
            bridges: self.bridges,
            sets: self.sets.to_vec(),
            port_sets: self.port_sets,
        })
    }
}

impl Engine {
    /// Assigns a counter to each rule of the plan, and compiles the rules if they, or the numbers of their ports, have changed. An
    /// unchanged rule keeps its counter, even if its position changes.
    pub(super) fn count_rules(&mut self) {
        let name_of = |slot: &super::Slot| slot.plan.name.clone();
        let ports = self.slots.iter().map(|slot| slot.as_ref().map(name_of));
        self.shared.log.set_ports(ports.collect());
        let port_sets = self.port_sets();
        if self.has_compiled_rules(&port_sets) {
            return;
        }
        let former = std::mem::take(&mut self.rules);
        let counters = &self.shared.rule_counters;
        let asked = &self.plan.rules;
        // A change of one rule shares the others with the former plan.
        let ends = CommonEnds::of(&former.asked.rules, &asked.rules, Arc::ptr_eq);
        let is_same = asked.rules == former.asked.rules;
        let rules = match is_same {
            true => Arc::clone(&former.rules),
            false => Arc::new(counted(&former.rules, &asked.rules, ends, counters)),
        };
        let fallback = fallback_after(&former.fallback, asked, counters);
        let distinct = match is_same {
            true => former.distinct,
            false => distinct_after((&former.rules, &former.distinct), &rules, ends),
        };
        let (ports, bridges) = names_of(&rules, &distinct);
        let numbers = self.numbers_of(ports.into_iter());
        // Rules that were there before have the same ports as before, if ports and bridges have the same numbers.
        let kept = former.compiled.as_ref().filter(|compiled| {
            let has_same_ports = former.numbers == self.numbers_of(former.numbers.keys());
            has_same_ports && compiled.bridges == bridges && compiled.port_sets == port_sets
        });
        let places = match kept {
            Some(compiled) if is_same => Arc::clone(&compiled.places),
            Some(compiled) => {
                let new = self.places_of(ends.middle(&rules), &bridges, &port_sets);
                let (front, back) = (ends.front(&compiled.places), ends.back(&compiled.places));
                Arc::new([front, &new[..], back].concat())
            }
            None => Arc::new(self.places_of(&rules, &bridges, &port_sets)),
        };
        let is_fallback_same = former.fallback.default == fallback.default
            && former.fallback.malformed == fallback.malformed;
        let uncompiled = UncompiledRules {
            rules: &rules,
            ends,
            fallback: &fallback,
            is_same: is_same && is_fallback_same,
            places,
            bridges,
            sets: &asked.sets,
            port_sets,
        };
        let began = Instant::now();
        let compiled = uncompiled.compile(former.compiled.as_ref(), kept);
        let times = RuleTimes::compiled_in(began.elapsed());
        self.rules = CountedRules {
            rules,
            fallback,
            compiled: Some(compiled),
            asked: Arc::clone(&self.plan.rules),
            numbers,
            distinct,
            times,
        };
    }

    /// Returns true if the rules of the plan are compiled, with the current numbers of their ports.
    fn has_compiled_rules(&self, port_sets: &BTreeMap<String, PortMask>) -> bool {
        let compiled = self.rules.compiled.as_ref();
        compiled.is_some_and(|compiled| compiled.port_sets == *port_sets)
            && Arc::ptr_eq(&self.rules.asked, &self.plan.rules)
            && self.rules.numbers == self.numbers_of(self.rules.numbers.keys())
    }

    /// Returns the numbers of ports, by name.
    fn numbers_of<'names>(
        &self,
        names: impl Iterator<Item = &'names String>,
    ) -> BTreeMap<String, Option<u16>> {
        names
            .map(|name| (name.clone(), self.number(name)))
            .collect()
    }

    /// Returns rules of which each stands for all that concern the same ports in the same way. There are few, though there may be 100,000
    /// rules.
    pub(super) fn distinct_rules(&self) -> impl Iterator<Item = &RuleSetting> {
        let rules = &self.rules.rules;
        let rule = move |place: &usize| Some(&*rules.get(*place)?.0);
        self.rules.distinct.iter().filter_map(rule)
    }

    /// Returns the numbers of ingress port and bridge of each rule.
    fn places_of(
        &self,
        rules: &[CountedRule],
        bridges: &[String],
        port_sets: &BTreeMap<String, PortMask>,
    ) -> Vec<RulePlace> {
        let number = |name: &str| self.number(name).unwrap_or(NO_PORT);
        let none = PortMask::default();
        // A set without ports stands for a port that does not exist.
        let numbered = |name: &Option<String>| match name.as_deref().map(|one| (one, port_set(one)))
        {
            None => (None, none),
            Some((name, None)) => (Some(number(name)), none),
            Some((_, Some(set))) => match port_sets.get(set).copied().unwrap_or_default() {
                ports if ports.is_empty() => (Some(NO_PORT), none),
                ports => (None, ports),
            },
        };
        let place = |(rule, _): &CountedRule| {
            let bridge = rule.bridge.as_ref();
            let (port, of_set) = numbered(&rule.port);
            let (from, from_ports) = numbered(&rule.from);
            let listed = rule.ports.iter().filter_map(|name| self.number(name));
            let ports = listed.collect::<PortMask>().union(of_set);
            let has_none = !rule.ports.is_empty() && ports.is_empty();
            RulePlace {
                port: if has_none { Some(NO_PORT) } else { port },
                ports,
                from,
                from_ports,
                group: bridge.and_then(|name| bridge_number(bridges, name)),
                dup: rule.statements.dup.as_deref().map(number),
                inspect: rule.statements.inspect.as_deref().map(number),
            }
        };
        rules.iter().map(place).collect()
    }

    /// Returns the ports of each set of names of ports.
    fn port_sets(&self) -> BTreeMap<String, PortMask> {
        let sets = self.plan.rules.sets.iter();
        let sets = sets.filter(|set| set.kind == SetType::Ifname);
        let ports = |elements: &[Element]| -> PortMask {
            let number = |element: &Element| match element {
                Element::Name(name) => self.number(&name.to_string()),
                _ => None,
            };
            elements.iter().filter_map(number).collect()
        };
        sets.map(|set| (set.name.0.clone(), ports(&set.elements)))
            .collect()
    }

    /// Returns the ports that the rules of a port send frames to: copies, queries to inspectors, and answers to rejected frames.
    pub(super) fn ports_of_effects(&self, number: u16) -> BTreeSet<u16> {
        let mut ports = BTreeSet::new();
        let Some(name) = self.slot(number).map(|slot| slot.plan.name.as_str()) else {
            return ports;
        };
        let bridge = self.bridge_of(name);
        let rules = self.distinct_rules();
        for rule in rules.filter(|rule| !rule.is_out() && concerns(rule, name, bridge)) {
            if rule.action == Action::Reject {
                ports.insert(number);
            }
            let StatementSetting { dup, inspect, .. } = &rule.statements;
            let names = [dup, inspect].into_iter().flatten();
            ports.extend(names.filter_map(|name| self.number(name)));
        }
        if self.rules.fallback.default == Action::Reject {
            ports.insert(number);
        }
        ports
    }

    /// Returns the ports that rules of frames that leave by these ports send copies to.
    pub(super) fn ports_of_copies(&self, outputs: &BTreeSet<u16>) -> BTreeSet<u16> {
        let copies = |rule: &&RuleSetting| rule.is_out() && rule.statements.dup.is_some();
        let rules: Vec<&RuleSetting> = self.distinct_rules().filter(copies).collect();
        let mut ports = BTreeSet::new();
        if rules.is_empty() {
            return ports;
        }
        for output in outputs {
            let Some(name) = self.slot(*output).map(|slot| slot.plan.name.as_str()) else {
                continue;
            };
            let bridge = self.bridge_of(name);
            let own = rules.iter().filter(|rule| concerns(rule, name, bridge));
            ports.extend(own.filter_map(|rule| self.number(rule.statements.dup.as_ref()?)));
        }
        ports
    }

    /// Returns the name of the bridge of a port.
    pub(super) fn bridge_of(&self, port: &str) -> Option<&String> {
        match self.group_of(port) {
            Some(Group::Bridge(bridge)) => Some(&bridge.name),
            _ => None,
        }
    }

    /// Returns the rules of a port; `None` if the port accepts every frame.
    pub(super) fn port_rules(&self, number: u16) -> Option<PortRules> {
        let CountedRules {
            fallback, compiled, ..
        } = &self.rules;
        let compiled = compiled.as_ref()?;
        let port = self.slot(number)?.plan.name.as_str();
        let bridge = self.bridge_of(port);
        // Connections are tracked at all ports, because their answers arrive at others than the requests.
        let is_looked_at = fallback.default != Action::Accept
            || self.plan.connections.is_some()
            || self.has_rules(number, false);
        let group = bridge.and_then(|name| bridge_number(&compiled.bridges, name));
        is_looked_at.then(|| PortRules::new(Arc::clone(&compiled.table), number, group))
    }

    /// Returns whether some rule can match received frames of a port, or frames that leave by it.
    pub(super) fn has_rules(&self, number: u16, is_out: bool) -> bool {
        let Some(name) = self.slot(number).map(|slot| slot.plan.name.as_str()) else {
            return false;
        };
        let bridge = self.bridge_of(name);
        let mut rules = self.distinct_rules();
        rules.any(|rule| rule.is_out() == is_out && concerns(rule, name, bridge))
    }

    /// Returns the rules of a port in the form that decides on frames of this port.
    fn rules_of(&self, number: u16) -> Option<PortRules> {
        let compiled = self.rules.compiled.as_ref()?;
        let bridge = self.bridge_of(self.slot(number)?.plan.name.as_str());
        let group = bridge.and_then(|name| bridge_number(&compiled.bridges, name));
        let table = Arc::clone(&compiled.table);
        Some(PortRules::new(table, number, group))
    }

    /// Returns the rules of frames that leave, for all ports; `None` if there are none.
    pub(super) fn output_rules(&self) -> Option<Arc<OutputRules>> {
        if !self.distinct_rules().any(RuleSetting::is_out) {
            return None;
        }
        let compares = self.distinct_rules().any(compares_leaving_connections);
        let table = self.rules.compiled.as_ref().map(|one| &one.table);
        let table = table.filter(|_| compares);
        // Classes do not depend on the port.
        let compared = table.map(|table| PortRules::new(Arc::clone(table), NO_PORT, None));
        let mut all = OutputRules::new(self.link_mtus(), compared);
        for (number, _) in self
            .ports()
            .filter(|(number, _)| self.has_rules(*number, true))
        {
            all.set(number, self.rules_of(number)?);
        }
        Some(Arc::new(all))
    }

    /// Returns the MTUs of the interfaces on ports and on their bridges.
    fn link_mtus(&self) -> LinkMtus {
        let mut all = LinkMtus::default();
        for one in &self.plan.layer3.interfaces {
            match &one.on {
                Attachment::Port(index) => {
                    let port = self.plan.ports.get(*index);
                    if let Some(number) = port.and_then(|port| self.number(&port.name)) {
                        let frames = LinkFrames::OfVlan(one.vlan.map(VlanId::get));
                        all.add(number, frames, one.mtu);
                    }
                }
                Attachment::Bridge(bridge) => {
                    for (number, slot) in self.ports() {
                        if self.bridge_of(&slot.plan.name) == Some(bridge) {
                            all.add(number, LinkFrames::All, one.mtu);
                        }
                    }
                }
            }
        }
        all
    }

    /// Gives all threads the rules of frames that leave.
    pub(super) fn send_output_rules(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        let rules = self.output_rules();
        for cpu in self.cpus() {
            let mut has_had = false;
            for one in self.forwarders.iter_mut().filter(|one| one.cpu == cpu) {
                has_had |= one.has_output_rules;
                one.has_output_rules |= rules.is_some();
            }
            if rules.is_some() || has_had {
                let order = WorkerCommand::OutputRules(rules.clone());
                // The previous rules are dropped here.
                tally.note(self.send_command(cpu, order))?;
            }
        }
        Ok(())
    }

    /// Gives all threads memory for names in connections, if some rule compares them.
    pub(super) fn give_name_flows(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.compares_names() {
            true => self.send_name_flows(true, tally),
            false => Ok(()),
        }
    }

    /// Frees the memory for names in connections, if no rule compares them. The threads must not have other rules.
    pub(super) fn free_name_flows(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.compares_names() {
            true => Ok(()),
            false => self.send_name_flows(false, tally),
        }
    }

    pub(super) fn compares_names(&self) -> bool {
        let mut rules = self.distinct_rules();
        rules.any(|rule| rule.names.names().is_some())
    }

    fn send_name_flows(&mut self, wanted: bool, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            let is_as_wanted = |one: &Forwarder| one.cpu == cpu && one.has_name_flows == wanted;
            if !self.forwarders.iter().any(is_as_wanted) {
                tally.note(self.order_name_flows(cpu, wanted))?;
            }
        }
        Ok(())
    }

    fn order_name_flows(&mut self, cpu: u32, wanted: bool) -> Result<(), SwitchError> {
        let flows = wanted.then(NameFlows::new).transpose();
        let flows = flows.map_err(|error| SwitchError::Config {
            location: "rules".to_owned(),
            what: error.to_string(),
        })?;
        let order = WorkerCommand::NameFlows(flows.map(Box::new));
        let record = |forwarder: &mut Forwarder| forwarder.has_name_flows = wanted;
        // The former memory is freed here.
        self.send_and_record(cpu, order, record).map(drop)
    }

    /// Returns the names of rules, by their numbers.
    pub(crate) fn rule_names(&self) -> Vec<String> {
        let rules = self.rules.rules.iter();
        rules.map(|(rule, _)| rule.name.clone()).collect()
    }

    /// Finds the rule that decides on a packet, in the form of forwarding threads.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if there is no such port, or the packet cannot be.
    pub(crate) fn check_rules(&self, received: &ReceivedPacket) -> Result<RuleCheck, SwitchError> {
        let numbered = |name: &String| self.number(name).ok_or_else(|| absent_port(name));
        let from = numbered(&received.port)?;
        let number = numbered(received.decisive_port())?;
        self.plan.rules.check_packet(received)?;
        let bridge = self.bridge_of(received.decisive_port());
        let found = self.rules_of(number).and_then(|rules| match received.out {
            None => rules.find(&received.packet),
            Some(_) => rules.find_output(&received.packet, Some(from)),
        });
        let found = found.map(|number| number as usize);
        let bridge = bridge.map(String::as_str);
        Ok(self.plan.rules.check(received, bridge, Some(found)))
    }

    /// Returns a page of the report of filter rules: at most `limit` rules, and at most [`PAGE_MAX`].
    pub(crate) fn rules_report(&self, from: usize, limit: usize) -> RulesReport {
        let report = |(place, (rule, frames)): (usize, &CountedRule)| RuleReport {
            name: rule.name.clone(),
            action: rule.action,
            direction: rule.direction,
            from: rule.from.clone(),
            ports: rule.ports.clone(),
            port: rule.port.clone(),
            bridge: rule.bridge.clone(),
            vlan: rule.vlan,
            packet: rule.packet.clone(),
            ct_state: rule.ct_state,
            ct_mark: rule.ct_mark,
            ct_label: rule.ct_label,
            tls_name: rule.names.tls_name.clone(),
            http_host: rule.names.http_host.clone(),
            dns_name: rule.names.dns_name.clone(),
            name_fail: rule.names.name_fail,
            reject_with: rule.statements.reject_with,
            log: rule.statements.log,
            log_prefix: rule.statements.log_prefix.clone(),
            dup: rule.statements.dup.clone(),
            set_dscp: rule.statements.set_dscp,
            set_mss: rule.statements.set_mss,
            set_ct_mark: rule.statements.set_ct_mark,
            set_ct_label: rule.statements.set_ct_label,
            inspect: rule.statements.inspect.clone(),
            inspect_packets: rule.statements.inspect_packets,
            inspect_timeout_ms: rule.statements.inspect_timeout_ms,
            inspect_fail: rule.statements.inspect_fail,
            frames: frames.get(),
            offloaded: self.offloaded_rule(place),
        };
        let fallback = &self.rules.fallback;
        let compiled = self.rules.compiled.as_ref();
        let shape = compiled.map(|compiled| compiled.table.shape());
        let shape = shape.unwrap_or_default();
        let total = self.rules.rules.len();
        let page = self.rules.rules.iter().enumerate();
        let page = page.skip(from).take(limit.min(PAGE_MAX));
        let rules: Vec<RuleReport> = page.map(report).collect();
        let end = from.saturating_add(rules.len());
        RulesReport {
            rules,
            total,
            next: (end < total).then_some(end),
            unconfirmed_s: None,
            default: fallback.default,
            default_frames: fallback.default_frames.get(),
            malformed: fallback.malformed,
            malformed_frames: fallback.malformed_frames.get(),
            comparisons_max: shape.comparisons_max,
            octets: shape.octets,
            compile_us: self.rules.times.compile_us,
            swap_us: self.rules.times.swap_us,
        }
    }
}

/// Returns the decisions on frames that no rule decides on. The counter of the default stays as long as the default does.
fn fallback_after(former: &Fallback, asked: &Rules, counters: &RuleCounters) -> Fallback {
    Fallback {
        default: asked.default,
        default_frames: match former.default == asked.default {
            true => Arc::clone(&former.default_frames),
            false => counters.rule(),
        },
        malformed: asked.malformed,
        malformed_frames: Arc::clone(&former.malformed_frames),
    }
}

/// Returns rules with their counters. Those that the former ones have keep theirs, even at another place.
fn counted(
    former: &[CountedRule],
    rules: &[Arc<RuleSetting>],
    ends: CommonEnds,
    counters: &RuleCounters,
) -> Vec<CountedRule> {
    let gone = ends.middle(former).iter();
    let gone: HashMap<&str, &CountedRule> = gone.map(|one| (one.0.name.as_str(), one)).collect();
    let new = ends.middle(rules).iter().map(|rule| {
        let same = gone.get(rule.name.as_str());
        let same = same.filter(|(one, _)| one == rule);
        let count = same.map_or_else(|| counters.rule(), |(_, count)| Arc::clone(count));
        (Arc::clone(rule), count)
    });
    let mut counted = Vec::with_capacity(rules.len());
    counted.extend_from_slice(ends.front(former));
    counted.extend(new);
    counted.extend_from_slice(ends.back(former));
    counted
}

/// Names of ports and bridges of a rule, and what it does with frames. Rules of one kind concern the same ports in the same way.
type RuleKind<'rules> = ([&'rules Option<String>; 5], &'rules [String], [bool; 4]);

/// Returns true for a rule of frames that leave that compares their connections.
fn compares_leaving_connections(rule: &RuleSetting) -> bool {
    let compares = rule.ct_state.is_some() || rule.ct_mark.is_some() || rule.ct_label.is_some();
    rule.is_out() && compares
}

fn kind_of(rule: &RuleSetting) -> RuleKind<'_> {
    let StatementSetting { dup, inspect, .. } = &rule.statements;
    let names = [&rule.port, &rule.bridge, &rule.from, dup, inspect];
    let is_rejecting = rule.action == Action::Reject;
    let compares_names = rule.names.names().is_some();
    (
        names,
        &rule.ports,
        [
            rule.is_out(),
            is_rejecting,
            compares_names,
            compares_leaving_connections(rule),
        ],
    )
}

/// Returns the places of the first rules of each kind, in order, given those of the former rules. If the first rule of a kind is gone, others
/// of this kind may be anywhere: then it reads all rules.
fn distinct_after(
    (former, former_places): (&[CountedRule], &[usize]),
    rules: &[CountedRule],
    ends: CommonEnds,
) -> Vec<usize> {
    let front = ends.front(former).len();
    let (gone, new) = (ends.middle(former), ends.middle(rules));
    let behind = front.saturating_add(gone.len());
    let now_behind = front.saturating_add(new.len());
    let mut kinds = HashSet::new();
    let mut places = Vec::new();
    let in_front = former_places.partition_point(|place| *place < front);
    let (in_front, others) = former_places.split_at(in_front);
    let in_new = front..now_behind;
    for place in in_front.iter().copied().chain(in_new) {
        let kind = rules.get(place).map(|(rule, _)| kind_of(rule));
        if kind.is_some_and(|kind| kinds.insert(kind)) {
            places.push(place);
        }
    }
    for place in others {
        let Some((rule, _)) = former.get(*place) else {
            continue;
        };
        let is_new = kinds.insert(kind_of(rule));
        match place.checked_sub(behind) {
            Some(place) if is_new => places.push(now_behind.saturating_add(place)),
            None if is_new => return distinct_places(rules),
            _ => {}
        }
    }
    places
}

/// Returns the places of the first rules of each kind, in order.
fn distinct_places(rules: &[CountedRule]) -> Vec<usize> {
    let mut kinds = HashSet::new();
    let mut places = Vec::new();
    for (place, (rule, _)) in rules.iter().enumerate() {
        if kinds.insert(kind_of(rule)) {
            places.push(place);
        }
    }
    places
}

/// Returns the names of all ports and of all bridges of rules, sorted, given the places of one rule of each kind.
fn names_of<'rules>(
    rules: &'rules [CountedRule],
    distinct: &[usize],
) -> (BTreeSet<&'rules String>, Vec<String>) {
    let mut ports = BTreeSet::new();
    let mut bridges = BTreeSet::new();
    for (rule, _) in distinct.iter().filter_map(|place| rules.get(*place)) {
        ports.extend(rule.port_names());
        bridges.extend(rule.bridge.clone());
    }
    (ports, bridges.into_iter().collect())
}

/// Returns the number of a bridge in the rules, if there is a rule for it.
fn bridge_number(bridges: &[String], name: &String) -> Option<u16> {
    u16::try_from(bridges.binary_search(name).ok()?).ok()
}

/// Returns the names of sets.
fn names(sets: &[Arc<SetSetting>]) -> impl Iterator<Item = &SetName> {
    sets.iter().map(|set| &set.name)
}

/// Returns the elements of sets.
fn elements(sets: &[Arc<SetSetting>]) -> Vec<&[Element]> {
    sets.iter().map(|set| &set.elements[..]).collect()
}

/// Returns true if a rule can match frames of a port, which is in this bridge.
pub(super) fn concerns(rule: &RuleSetting, port: &str, bridge: Option<&String>) -> bool {
    rule.is_for_port(port) && (rule.bridge.is_none() || rule.bridge.as_ref() == bridge)
}

/// Returns the statements of a rule in the form of forwarding threads, given the numbers of ports.
fn statements_of(rule: &RuleSetting, place: &RulePlace) -> Option<Statements> {
    let StatementSetting {
        reject_with,
        log,
        log_prefix,
        set_dscp,
        set_mss,
        set_ct_mark,
        set_ct_label,
        ..
    } = &rule.statements;
    let prefix = log_prefix.as_deref().unwrap_or_default();
    let log = log.map(|every| Arc::new(RuleLog::new(&rule.name, prefix, every)));
    (!rule.statements.is_empty()).then_some(Statements {
        reject_with: *reject_with,
        log,
        dup: place.dup,
        dscp: *set_dscp,
        mss: *set_mss,
        mark: *set_ct_mark,
        label: *set_ct_label,
        inspect: place.inspect.map(|port| rule.statements.inspection(port)),
    })
}

/// Returns a rule in the form of forwarding threads, given the numbers of ports and sets.
fn port_rule(
    (rule, frames): &CountedRule,
    place: &RulePlace,
    numbers: &HashMap<&SetName, u32>,
) -> PortRule {
    PortRule {
        port: place.port,
        group: place.group,
        vlan: rule.vlan.map(VlanId::get),
        packet: rule.packet.packet(),
        further: FurtherMatch {
            out: rule.is_out().then_some(OutMatch { from: place.from }),
            ports: place.ports,
            from_ports: place.from_ports,
            ..rule.packet.further()
        },
        sets: sets_of(rule, numbers),
        ct_states: rule.ct_state,
        mark: rule.ct_mark,
        label: rule.ct_label,
        action: rule.action,
        frames: Arc::clone(frames),
    }
}

/// Compiles the rules between those that are as before, with the numbers of the same ports and sets. `None` if all rules must be compiled.
fn changed_table(
    former: &CompiledRules,
    (rules, places): (&[CountedRule], &[RulePlace]),
    sets: &[Arc<SetSetting>],
    (ends, fallback): (CommonEnds, &Fallback),
) -> Option<RuleTable> {
    let numbers: HashMap<&SetName, u32> = names(sets).zip(0..).collect();
    let new = ends.middle(rules);
    if new.iter().any(|(rule, _)| rule.names.names().is_some()) {
        return None;
    }
    let new = new.iter().zip(ends.middle(places)).map(|(one, place)| {
        let statements = statements_of(&one.0, place);
        (port_rule(one, place, &numbers), statements)
    });
    let ends = (ends.front(rules).len(), ends.back(rules).len());
    let table = &former.table;
    let table = table.with_changed(ends, new.collect(), fallback.clone())?;
    match former.sets == sets {
        true => Some(table),
        false => Some(table.with_elements(&elements(sets))),
    }
}

/// Compiles rules, or those that differ from the former ones, if these are few.
fn table_of(
    former: Option<&RuleTable>,
    rules: &[CountedRule],
    (places, sets): (&[RulePlace], &[Arc<SetSetting>]),
    fallback: &Fallback,
) -> RuleTable {
    let numbers: HashMap<&SetName, u32> = names(sets).zip(0..).collect();
    let all = rules.iter().zip(places);
    let statements = all.clone().map(|(one, place)| statements_of(&one.0, place));
    let statements = statements.collect();
    let names: Vec<&NameMatch> = rules.iter().map(|(rule, _)| &rule.names).collect();
    let rules = all.map(|(one, place)| port_rule(one, place, &numbers));
    let table = RuleTable::after(former, rules, &names, &elements(sets), fallback.clone());
    table.with_statements(statements)
}

/// Returns the fields that a rule compares with sets, and the numbers of the sets. All sets exist: the plan has checked it.
fn sets_of(rule: &RuleSetting, numbers: &HashMap<&SetName, u32>) -> Vec<(SetField, u32)> {
    let number = |(field, name): (SetField, &SetName)| {
        let number = numbers.get(name).copied().unwrap_or(NO_SET);
        (field, number)
    };
    rule.packet.sets().map(number).collect()
}
