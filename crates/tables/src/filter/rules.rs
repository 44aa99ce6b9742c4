// SPDX-License-Identifier: Apache-2.0
//! Filter rules of all ports: the first match decides, except for rules that continue. The rules are compiled once, into one classifier that
//! all ports use, and further ones for rules that continue. A port without rules has no filter stage. Fields that no rule compares are not
//! read, and without sets there is no search for elements.

mod continuing;
mod decide;
mod marked;

use std::sync::Arc;

use quietwire_base::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::RULES_MAX;
use super::action::{Action, MalformedAction};
use super::continued::Continuing;
use super::counters::{RuleFrames, keys_of};
use super::ct_states::{CtStates, set_state};
use super::ct_values::{CtConditions, CtMatch};
use super::described::DescribedPacket;
use super::element::{Element, SetField};
use super::further::{Compared, for_each, received_by};
use super::inspect::Inspect;
use super::kept::KeptClassifier;
use super::malformed::malformation;
use super::names::{NameFlows, NameMatch, NameTable, NamedRule};
use super::packet::PacketMatch;
use super::pattern::{Headers, after_tags};
use super::plain::read_plain_key;
use super::rule_match::FurtherMatch;
use super::sets::{FieldSets, bit, compile};
use super::statements::Statements;
use super::tally::{CountedRules, Tally};
use super::verdict::{Dropped, Fallback, Judged, Verdict};
use crate::classifier::{Field, Key, NO_RULE, Rule, Shape};
use crate::connections::{CtState, LabelBits, MarkBits, Tracked};

/// A rule of ports.
#[derive(Clone, Debug)]
pub struct PortRule {
    /// Number of the ingress port.
    pub port: Option<u16>,
    /// Number of the group of the ingress port, as in [`PortRules::new`].
    pub group: Option<u16>,
    /// VLAN of the outermost tag.
    pub vlan: Option<u16>,
    /// Packet to match.
    pub packet: PacketMatch,
    /// Fields that only some rules compare.
    pub further: FurtherMatch,
    /// Sets that contain values of the packet: the field, and the number of the set.
    pub sets: Vec<(SetField, u32)>,
    /// States of connections to match. Requires packets with states ([`PortRules::judge_tracked`]).
    pub ct_states: Option<CtStates>,
    /// Bits of the marks of connections to match. Requires [`PortRules::judge_marked`], or [`PortRules::judge_classified`] for frames that leave.
    pub mark: Option<MarkBits>,
    /// Bits of the labels of connections to match. Requires packets with labels ([`PortRules::judge_marked`]).
    pub label: Option<LabelBits>,
    /// Action for matching frames.
    pub action: Action,
    /// Frames that it has decided on, at all ports.
    pub frames: Arc<RuleFrames>,
}

impl PortRule {
    /// Creates a rule without a condition beside the packet, for all ports. Its counter is its own.
    #[must_use]
    pub fn new(packet: PacketMatch, action: Action) -> Self {
        Self {
            port: None,
            group: None,
            vlan: None,
            packet,
            further: FurtherMatch::default(),
            sets: Vec::new(),
            ct_states: None,
            mark: None,
            label: None,
            action,
            frames: Arc::default(),
        }
    }

    /// Returns its conditions on marks and labels of connections.
    const fn ct_match(&self) -> CtMatch {
        (self.mark, self.label)
    }

    /// Returns the rule in the form of the classifier. `uses` are the pairs of field and set of all rules, and `values` their conditions on
    /// marks and labels. `has_out`: some rule is for frames that leave.
    fn compiled(&self, uses: &[(SetField, u32)], values: &CtConditions, has_out: bool) -> Rule {
        let PacketMatch {
            ethertype,
            protocol,
            source,
            destination,
            source_port,
            destination_port,
        } = self.packet;
        let mut rule = Rule::ANY;
        if has_out {
            rule = rule.with(Field::IS_OUT, 0);
        }
        if let Some(port) = self.port {
            rule = self.further.at_port(rule, port);
        }
        if let Some(group) = self.group {
            rule = rule.with(Field::INGRESS_GROUP, u32::from(group));
        }
        if let Some(vlan) = self.vlan {
            rule = rule.with_vlan(vlan);
        }
        if let Some(states) = self.ct_states {
            rule = states.required_by(rule);
        }
        let required = values.required(self.ct_match());
        rule = rule.with_bits(Field::METADATA, required, required);
        if let Some(ethertype) = ethertype {
            rule = rule.with_ethertype(ethertype.0);
        }
        if let Some(protocol) = protocol {
            rule = rule.with_protocol(protocol.0);
        }
        if let Some(prefix) = source {
            rule = rule.with_source(prefix);
        }
        if let Some(prefix) = destination {
            rule = rule.with_destination(prefix);
        }
        if source_port.is_some() || destination_port.is_some() {
            let range = |ports: Option<super::Ports>| {
                ports.map_or(0..=u16::MAX, |ports| ports.first..=ports.last)
            };
            rule = rule.with_ports(range(source_port), range(destination_port));
        }
        for used in &self.sets {
            let place = uses.iter().position(|one| one == used);
            let mark = bit(place.unwrap_or(usize::MAX));
            rule = rule.with_bits(Field::METADATA, mark, mark);
        }
        self.further.compiled(rule)
    }

    /// Returns the rules of the classifier: one, or one for each port of several.
    fn for_each_port(&self, rule: Rule) -> impl Iterator<Item = Rule> {
        let further = &self.further;
        let at_port = move |rule: Rule, port: u16| further.at_port(rule, port);
        let rules = for_each(further.ports, rule, at_port);
        rules.flat_map(move |rule| for_each(further.from_ports, rule, received_by))
    }

    /// Returns the rule with its names, if it has some.
    fn named<'rules>(&self, names: &'rules NameMatch) -> Option<NamedRule<'rules>> {
        names.names().map(|_| NamedRule {
            names,
            action: self.action,
            protocol: self.packet.protocol,
            destination_port: self.packet.destination_port,
        })
    }

    /// Returns the fields that only some rules compare.
    fn compared(&self) -> Compared {
        let further = self.further.compared();
        Compared {
            macs: further.macs || self.sets.iter().any(|(field, _)| field.is_mac()),
            ..further
        }
    }
}

/// All rules of the switch, in order, compiled, with their sets.
#[derive(Debug)]
pub struct RuleTable {
    compiled: Arc<Compiled>,
    /// Sets, by field.
    sets: Vec<Arc<FieldSets>>,
    fallback: Fallback,
    /// Statements of each rule; empty if no rule has any.
    statements: Arc<[Option<Statements>]>,
    /// Some rule has statements, or some rule or the default rejects frames.
    has_effects: bool,
    /// Some rule inspects flows.
    inspects: bool,
    /// Some rule sets marks or labels.
    sets_ct_values: bool,
}

/// Compiled rules, without the contents of their sets.
#[derive(Debug)]
struct Compiled {
    classifier: KeptClassifier,
    /// Rules of the classifier.
    list: Arc<Vec<Rule>>,
    /// Number of the rule for each rule of the classifier; empty if both have the same numbers.
    origins: Vec<u32>,
    /// Action and number of frames of each rule.
    rules: CountedRules,
    /// Rules that continue, if there are some.
    continuing: Option<Continuing>,
    /// Pairs of field and set that rules refer to.
    uses: Vec<(SetField, u32)>,
    /// Conditions of rules on marks and labels.
    values: CtConditions,
    /// Some rule is for frames that leave.
    has_out: bool,
    /// Fields that only some rules compare.
    compared: Compared,
    /// Names in connections, if some rule compares them.
    names: Option<NameTable>,
}

impl RuleTable {
    /// Compiles rules without sets, in order, and the decisions on frames without a rule. Rules beyond [`RULES_MAX`] are ignored. Takes up
    /// to seconds for the maximum of rules.
    pub fn new(rules: impl IntoIterator<Item = PortRule>, fallback: Fallback) -> Self {
        Self::with_sets(rules, &[], fallback)
    }

    /// Compiles rules and the elements of their sets, as [`Self::new`] does. Rules with sets beyond the first
    /// [`SET_USES_MAX`](super::SET_USES_MAX) pairs of field and set match no frame.
    pub fn with_sets(
        rules: impl IntoIterator<Item = PortRule>,
        sets: &[Vec<Element>],
        fallback: Fallback,
    ) -> Self {
        Self::with_names(rules, &[], sets, fallback)
    }

    /// Compiles rules, the names of each in their order, and the elements of their sets. Names that differ count as pairs of field and set.
    /// Rules with names match received frames only ([`PortRules::judge_named`]).
    pub fn with_names(
        rules: impl IntoIterator<Item = PortRule>,
        names: &[NameMatch],
        sets: &[Vec<Element>],
        fallback: Fallback,
    ) -> Self {
        let names: Vec<&NameMatch> = names.iter().collect();
        let sets: Vec<&[Element]> = sets.iter().map(|set| &set[..]).collect();
        Self::after(None, rules, &names, &sets, fallback)
    }

    /// Compiles rules as [`Self::with_names`] does. If few of at least [`CHANGED_MIN`](super::CHANGED_MIN) rules differ from those of `former`,
    /// it compiles only these, and sets that differ.
    pub fn after(
        former: Option<&Self>,
        rules: impl IntoIterator<Item = PortRule>,
        names: &[&NameMatch],
        sets: &[&[Element]],
        fallback: Fallback,
    ) -> Self {
        let rules = rules.into_iter().take(RULES_MAX).collect();
        Self::of_rules(former, rules, names, sets, fallback)
    }

    /// Does what [`Self::after`] does, for rules in memory: compiled once, not for each kind of iterator.
    fn of_rules(
        former: Option<&Self>,
        rules: Vec<PortRule>,
        names: &[&NameMatch],
        sets: &[&[Element]],
        fallback: Fallback,
    ) -> Self {
        let mut uses: Vec<(SetField, u32)> = Vec::new();
        let mut compared = Compared::default();
        for rule in &rules {
            compared = compared.with(rule.compared());
            for used in &rule.sets {
                if uses.len() < super::SET_USES_MAX && !uses.contains(used) {
                    uses.push(*used);
                }
            }
        }
        let has_out = rules.iter().any(|rule| rule.further.out.is_some());
        let values = CtConditions::new(rules.iter().map(PortRule::ct_match), uses.len());
        let named = rules.iter().zip(names);
        let named = named.map(|(rule, names)| rule.named(names));
        let (marks, names) = NameTable::new(named, uses.len().saturating_add(values.len()));
        let mut listed = Listed::default();
        for (number, rule) in (0u32..).zip(&rules) {
            let mut compiled = rule.compiled(&uses, &values, has_out);
            if let Some(mark) = marks.get(number as usize) {
                compiled = compiled.with_bits(Field::METADATA, *mark, *mark);
            }
            listed.add(number, rule, compiled);
        }
        let former_compiled = former.map(|table| &*table.compiled);
        let continuing = listed.take_continuing(former_compiled);
        let (list, origins) = listed.end(rules.len());
        let rules = rules.into_iter();
        let rules = rules.map(|rule| (rule.action, rule.frames)).collect();
        let kept = former_compiled.map(|compiled| &compiled.classifier);
        let compiled = Compiled {
            classifier: KeptClassifier::after(kept, &list),
            list,
            origins,
            rules,
            continuing,
            uses,
            values,
            has_out,
            compared,
            names,
        };
        Self {
            sets: compile(
                &compiled.uses,
                sets,
                former.map_or(&[][..], |table| &table.sets[..]),
            ),
            statements: Arc::new([]),
            has_effects: fallback.default == Action::Reject || compiled.rules.rejects(),
            inspects: false,
            sets_ct_values: false,
            compiled: Arc::new(compiled),
            fallback,
        }
    }

    /// Returns a table with other rules, each with its statements, between the first `front` and the last `back` rules of this one. The sets
    /// stay. Other rules are copied in their compiled form. `None` if rules compare names, or a new one is for frames that leave, or refers
    /// to a pair of field and set or to bits of marks or labels, and no rule of this table does: then compile all rules ([`Self::after`]).
    #[expect(clippy::arithmetic_side_effects, reason = "numbers of rules in memory")]
    #[must_use]
    pub fn with_changed(
        &self,
        (front, back): (usize, usize),
        new: Vec<(PortRule, Option<Statements>)>,
        fallback: Fallback,
    ) -> Option<Self> {
        let count = self.compiled.rules.len();
        let end = count.checked_sub(back).filter(|end| front <= *end)?;
        if front + new.len() + back > RULES_MAX {
            return None;
        }
        let (rules, new): (Vec<PortRule>, Vec<Option<Statements>>) = new.into_iter().unzip();
        let compiled = self.compiled.changed((front, end), &rules)?;
        let statements_of = |rule: usize| self.statements.get(rule).cloned().flatten();
        let mut statements = Vec::new();
        if !self.statements.is_empty() || new.iter().any(Option::is_some) {
            statements.extend((0..front).map(statements_of));
            statements.extend(new);
            statements.extend((end..count).map(statements_of));
        }
        let table = Self {
            sets: self.sets.clone(),
            statements: Arc::new([]),
            has_effects: fallback.default == Action::Reject || compiled.rules.rejects(),
            inspects: false,
            sets_ct_values: false,
            compiled: Arc::new(compiled),
            fallback,
        };
        Some(table.with_statements(statements))
    }

    /// Adds the statements of the rules, in their order.
    #[must_use]
    pub fn with_statements(mut self, statements: Vec<Option<Statements>>) -> Self {
        let all = || statements.iter().flatten();
        self.inspects = all().any(|one| one.inspect.is_some());
        self.sets_ct_values = all().any(|one| one.mark.is_some() || one.label.is_some());
        if statements.iter().any(Option::is_some) {
            self.statements = statements.into();
            self.has_effects = true;
        }
        self
    }

    /// Returns the same rules with other contents of their sets. Only the sets of fields that have changed are compiled.
    #[must_use]
    pub fn with_elements<S: AsRef<[Element]>>(&self, sets: &[S]) -> Self {
        let sets: Vec<&[Element]> = sets.iter().map(AsRef::as_ref).collect();
        Self {
            compiled: Arc::clone(&self.compiled),
            sets: compile(&self.compiled.uses, &sets, &self.sets),
            fallback: self.fallback.clone(),
            statements: Arc::clone(&self.statements),
            has_effects: self.has_effects,
            inspects: self.inspects,
            sets_ct_values: self.sets_ct_values,
        }
    }

    /// Returns size and worst case of the compiled rules. The memory includes that of the rules with which later ones are compared.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    #[must_use]
    pub fn shape(&self) -> Shape {
        let Compiled {
            classifier, list, ..
        } = &*self.compiled;
        let shape = classifier.shape();
        let octets = match classifier.is_compiled_from(list) {
            true => 0,
            false => size_of_val(&list[..]),
        };
        let continuing = self.compiled.continuing.as_ref();
        let (comparisons, more) = continuing.map_or((0, 0), Continuing::shape);
        Shape {
            octets: shape.octets + octets + more,
            comparisons_max: shape.comparisons_max + comparisons,
            ..shape
        }
    }
}

/// Rules of the classifier, and the number of the rule that each is compiled from.
#[derive(Debug, Default)]
struct Listed {
    list: Vec<Rule>,
    origins: Vec<u32>,
    /// Rules that continue, which the list does not have.
    continuing: Vec<(u32, Rule)>,
}

impl Listed {
    /// Adds the compiled rules of a rule.
    #[expect(clippy::arithmetic_side_effects, reason = "the list has grown")]
    fn add(&mut self, number: u32, rule: &PortRule, compiled: Rule) {
        let compiled = rule.for_each_port(compiled);
        if rule.action == Action::Continue {
            // A rule of a port that does not exist needs no pass.
            let compiled = compiled.filter(|_| rule.port != Some(NO_PORT));
            self.continuing.extend(compiled.map(|one| (number, one)));
            return;
        }
        let before = self.list.len();
        self.list.extend(compiled);
        let count = self.list.len() - before;
        self.origins.extend(std::iter::repeat_n(number, count));
    }

    /// Compiles the rules that continue.
    fn take_continuing(&mut self, former: Option<&Compiled>) -> Option<Continuing> {
        let former = former.and_then(|former| former.continuing.as_ref());
        Continuing::after(former, std::mem::take(&mut self.continuing))
    }

    /// Returns rules and numbers; no numbers if those of the classifier are the same.
    #[expect(clippy::cast_possible_truncation, reason = "at most RULES_MAX rules")]
    fn end(mut self, rules: usize) -> (Arc<Vec<Rule>>, Vec<u32>) {
        if self.origins.iter().copied().eq(0..rules as u32) {
            self.origins.clear();
        }
        (Arc::new(self.list), self.origins)
    }
}

impl Compiled {
    /// Returns the number of the rule that a rule of the classifier is compiled from.
    #[expect(clippy::cast_possible_truncation, reason = "at most RULES_MAX rules")]
    fn origin(&self, place: usize) -> u32 {
        self.origins.get(place).copied().unwrap_or(place as u32)
    }

    /// Returns the place of the first rule of the classifier that is compiled from this rule or from a later one.
    fn place(&self, rule: usize) -> usize {
        match self.origins.is_empty() {
            true => rule,
            false => self
                .origins
                .partition_point(|origin| (*origin as usize) < rule),
        }
    }

    /// Returns rules of which those from `front` to `end`, which is not one of them, are replaced by new ones.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "at most RULES_MAX rules, and the numbers are behind the end"
    )]
    fn changed(&self, (front, end): (usize, usize), new: &[PortRule]) -> Option<Self> {
        let is_like_others = |rule: &PortRule| {
            let mut sets = rule.sets.iter();
            (self.has_out || rule.further.out.is_none())
                && self.values.contains(rule.ct_match())
                && sets.all(|used| self.uses.contains(used))
        };
        if self.names.is_some() || !new.iter().all(is_like_others) {
            return None;
        }
        let (first, behind) = (self.place(front), self.place(end));
        let continuing = || self.continuing.iter().flat_map(Continuing::rules);
        let mut listed = Listed {
            list: Vec::with_capacity(self.list.len() + new.len()),
            origins: (0..first).map(|place| self.origin(place)).collect(),
            continuing: continuing()
                .take_while(|(number, _)| (*number as usize) < front)
                .collect(),
        };
        listed.list.extend_from_slice(self.list.get(..first)?);
        let mut compared = self.compared;
        for (number, rule) in (front as u32..).zip(new) {
            compared = compared.with(rule.compared());
            let compiled = rule.compiled(&self.uses, &self.values, self.has_out);
            listed.add(number, rule, compiled);
        }
        listed.list.extend_from_slice(self.list.get(behind..)?);
        let (end_before, end_now) = (end as u32, (front + new.len()) as u32);
        let moved = |number: u32| number - end_before + end_now;
        let places = behind..self.list.len();
        let origins = places.map(|place| moved(self.origin(place)));
        listed.origins.extend(origins);
        let later = continuing().filter(|(number, _)| *number >= end_before);
        let later = later.map(|(number, rule)| (moved(number), rule));
        listed.continuing.extend(later);
        let new = new.iter();
        let new = new.map(|rule| (rule.action, Arc::clone(&rule.frames)));
        let rules = self.rules.changed((front, end), &new.collect())?;
        let continuing = listed.take_continuing(Some(self));
        let (list, origins) = listed.end(rules.len());
        Some(Self {
            classifier: KeptClassifier::after(Some(&self.classifier), &list),
            list,
            origins,
            rules,
            continuing,
            uses: self.uses.clone(),
            values: self.values.clone(),
            has_out: self.has_out,
            compared,
            names: None,
        })
    }
}

/// The rules as one port uses them.
#[derive(Clone, Debug)]
pub struct PortRules {
    table: Arc<RuleTable>,
    /// Port and group, as in keys.
    ingress: Key,
}

impl Compiled {
    /// Finds the rules of keys.
    #[inline(always)]
    fn lookup(&self, keys: &[Key], found: &mut [u32]) {
        self.classifier.lookup(keys, found);
        if !self.origins.is_empty() {
            for rule in found.iter_mut().take(keys.len()) {
                // No rule stays no rule.
                *rule = self.origins.get(*rule as usize).copied().unwrap_or(NO_RULE);
            }
        }
    }
}

impl PortRules {
    /// Creates the rules of a port from its number and the number of its group, such as its bridge.
    #[must_use]
    pub fn new(table: Arc<RuleTable>, port: u16, group: Option<u16>) -> Self {
        let mut ingress = Key::EMPTY;
        ingress.set(Field::INGRESS_PORT, u32::from(port));
        ingress.set(Field::INGRESS_GROUP, u32::from(group.unwrap_or(NO_GROUP)));
        Self { table, ingress }
    }

    /// Judges a burst and counts. Each frame is the octets of its first buffer, and its length.
    pub fn judge<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        out: impl Into<Judged<'out>>,
    ) -> Dropped {
        self.judge_all(frames, |_, _, _| {}, out.into())
    }

    /// As [`Self::judge`], for frames with these states of their connections.
    pub fn judge_tracked<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        tracked: &[Tracked],
        out: impl Into<Judged<'out>>,
    ) -> Dropped {
        let set = |key: &mut Key, number: usize, _: &[u8]| {
            set_state(key, state_of(tracked, number));
        };
        self.judge_all(frames, set, out.into())
    }

    /// Returns true if some rule compares names. Such rules match no frame but by [`Self::judge_named`].
    #[inline(always)]
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.table.compiled.names.is_some()
    }

    /// As [`Self::judge_tracked`], with the names of connections. A frame without a state is not tracked. `flows` has the earlier packets of
    /// connections.
    pub fn judge_named<'frame, 'out>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        tracked: &[Tracked],
        flows: &mut NameFlows,
        out: impl Into<Judged<'out>>,
    ) -> Dropped {
        let names = self.table.compiled.names.as_ref();
        let set = |key: &mut Key, number: usize, frame: &[u8]| {
            let state = state_of(tracked, number);
            set_state(key, state);
            if let Some(names) = names {
                // The tracker knows which SYN begins a connection.
                let restarts =
                    matches!(state, CtState::New | CtState::Related | CtState::Untracked);
                let marks = flows.marks(names, key, frame, restarts);
                key.set(Field::METADATA, marks);
            }
        };
        self.judge_all(frames, set, out.into())
    }

    /// Judges a burst. `complete` adds fields to the key of a frame, by its number.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    fn judge_all<'frame>(
        &self,
        frames: impl Iterator<Item = (&'frame [u8], u32)>,
        mut complete: impl FnMut(&mut Key, usize, &[u8]),
        out: Judged<'_>,
    ) -> Dropped {
        let Judged {
            verdicts,
            continued,
            counters,
        } = out;
        let table = &*self.table;
        let default = table.fallback.default;
        let mut local = None;
        let (keys, mut own) = keys_of(counters, &mut local);
        let mut found = [NO_RULE; BURST_MAX];
        let compiled = &*table.compiled;
        let may_be_plain = compiled.compared.is_nothing();
        let mut count = 0;
        for (((octets, length), verdict), key) in
            frames.zip(verdicts.iter_mut()).zip(keys.iter_mut())
        {
            match self.read((octets, length), may_be_plain, key) {
                Ok(()) => {
                    complete(key, count, octets);
                    *verdict = Verdict::Default(default);
                }
                Err(other) => {
                    *key = Key::EMPTY;
                    *verdict = other;
                }
            }
            count += 1;
        }
        let keys = keys.get_mut(..count).unwrap_or_default();
        for sets in &table.sets {
            sets.mark(keys);
        }
        compiled.lookup(keys, &mut found);
        if compiled.rules.len() > PREFETCH_MIN {
            let found = found.get(..count).unwrap_or_default();
            compiled.rules.prefetch(found, own.as_deref());
        }
        if let Some(continuing) = &compiled.continuing {
            // Other frames have no key.
            let has_key = |frame: usize| {
                let verdict = verdicts.get(frame);
                matches!(verdict, Some(Verdict::Default(_)))
            };
            let out = (continued, own.as_deref_mut());
            compiled.pass(continuing, (keys, &found), has_key, out);
        }
        let verdicts = verdicts.get_mut(..count).unwrap_or_default();
        table.decide(verdicts, &found, own)
    }

    /// Returns true if frames may be answered, or some rule has statements.
    #[inline(always)]
    #[must_use]
    pub fn has_effects(&self) -> bool {
        self.table.has_effects
    }

    /// Returns the statements of the rule that decided on a frame.
    #[must_use]
    pub fn statements(&self, verdict: Verdict) -> Option<&Statements> {
        match verdict {
            Verdict::Rule(rule, _) | Verdict::Held(rule) | Verdict::Inspected(rule, _) => {
                self.statements_of(rule)
            }
            _ => None,
        }
    }

    /// Returns the statements of the rule with this number.
    #[must_use]
    pub fn statements_of(&self, rule: u32) -> Option<&Statements> {
        self.table.statements.get(rule as usize)?.as_ref()
    }

    /// Returns true if some rule inspects flows.
    #[inline(always)]
    #[must_use]
    pub fn inspects(&self) -> bool {
        self.table.inspects
    }

    /// Returns the rule that accepted a frame, and its inspection, if it inspects flows.
    #[must_use]
    pub fn inspection(&self, verdict: Verdict) -> Option<(u32, &Inspect)> {
        match verdict {
            Verdict::Rule(rule, Action::Accept) => {
                let statements = self.table.statements.get(rule as usize)?.as_ref();
                statements?.inspect.as_ref().map(|inspect| (rule, inspect))
            }
            _ => None,
        }
    }

    /// Returns the number of the rule that decides on a packet; `None` for the default. Counts nothing.
    #[must_use]
    pub fn find(&self, packet: &DescribedPacket) -> Option<u32> {
        let mut keys = [self.described_key(packet)];
        let mut found = [NO_RULE];
        self.look_up(&mut keys, &mut found);
        let [found] = found;
        (found != NO_RULE).then_some(found)
    }

    /// Returns the key of a packet, with the port.
    pub(super) fn described_key(&self, packet: &DescribedPacket) -> Key {
        let mut key = packet.key().with_ingress_of(&self.ingress);
        let values = (packet.own_mark(), packet.own_label());
        key.set(Field::METADATA, self.table.compiled.values.bits_of(values));
        if let Some(names) = &self.table.compiled.names {
            let marks = names.marks_of_described(&key, packet.name());
            key.set(Field::METADATA, marks);
        }
        key
    }

    /// Finds the rules of keys, of which there are at most as many as there is space for.
    pub(super) fn look_up(&self, keys: &mut [Key], found: &mut [u32]) {
        for sets in &self.table.sets {
            sets.mark(keys);
        }
        self.table.compiled.lookup(keys, found);
    }

    /// Returns the bits of conditions on marks and labels in [`Field::METADATA`] of a key.
    #[inline]
    pub(super) fn conditions(&self) -> u32 {
        self.table.compiled.values.all_bits()
    }

    /// Adds a frame of a rule to a tally. Returns the action of the rule, if there is one.
    #[inline(always)]
    pub(super) fn count_in(&self, tally: &mut Tally<'_>, rule: u32) -> Option<Action> {
        tally.add(&self.table.compiled.rules, rule)
    }

    /// Adds all frames of a tally to the counters of their rules.
    #[inline(always)]
    pub(super) fn count_all(&self, tally: &Tally<'_>) {
        tally.flush(&self.table.compiled.rules);
    }

    /// Writes the key of a frame with the port, as far as its headers can be read.
    #[inline(always)]
    pub(super) fn write_key(&self, octets: &[u8], length: u32, key: &mut Key) {
        let is_plain = self.table.compiled.compared.is_nothing()
            && read_plain_key(octets, length as usize, &self.ingress, key);
        if !is_plain {
            let (vlan, rest) = after_tags(octets).unwrap_or_default();
            *key = self.read_key(octets, (vlan, rest));
        }
    }

    #[inline(always)]
    fn read_key(&self, octets: &[u8], (vlan, rest): (Option<u16>, &[u8])) -> Key {
        // A frame truncated within its tags matches only rules without packet fields.
        let headers = Headers::from_ethertype_on(rest).unwrap_or(Headers::NOTHING);
        let mut key = headers.key(vlan).with_ingress_of(&self.ingress);
        let compared = self.table.compiled.compared;
        if compared.macs || compared.details {
            compared.read(octets, rest, &mut key);
        }
        key
    }

    /// Writes the key of a frame, or returns the verdict without one. `may_be_plain`: no rule compares more than keys of the most frequent
    /// frames have.
    #[inline(always)]
    fn read(
        &self,
        (octets, length): (&[u8], u32),
        may_be_plain: bool,
        key: &mut Key,
    ) -> Result<(), Verdict> {
        let length = length as usize;
        if may_be_plain && read_plain_key(octets, length, &self.ingress, key) {
            return Ok(());
        }
        if length < ETHERNET_HEADER_LENGTH {
            return Err(Verdict::Short);
        }
        self.read_other(octets, length, key)
    }

    /// Writes the key of a frame that may be malformed, or have tags or options.
    #[inline(never)]
    fn read_other(&self, octets: &[u8], length: usize, key: &mut Key) -> Result<(), Verdict> {
        // A frame whose first buffer ends within the addresses is malformed.
        let (vlan, rest) = after_tags(octets).unwrap_or_default();
        if self.table.fallback.malformed == MalformedAction::Drop
            && let Some(kind) = malformation(octets, length, vlan, rest)
        {
            return Err(Verdict::Malformed(kind));
        }
        *key = self.read_key(octets, (vlan, rest));
        Ok(())
    }
}

/// Returns the state of the connection of a frame, by its number.
#[inline(always)]
fn state_of(tracked: &[Tracked], number: usize) -> CtState {
    let tracked = tracked.get(number);
    tracked.map_or(CtState::Untracked, |one| one.state)
}

/// Actions and counters of this many rules, at least 12 octets each, stay in the first-level cache of a CPU beside a burst. Counters that all
/// threads share have up to 48 octets.
const PREFETCH_MIN: usize = 256;
/// No group has this number.
const NO_GROUP: u16 = u16::MAX;
/// No port has this number.
const NO_PORT: u16 = u16::MAX;
