// SPDX-License-Identifier: Apache-2.0
//! Chains of an imported ruleset, and their expansion into one list of rules.

use std::collections::{HashMap, HashSet};

use quietwire_tables::filter::{Action, EtherType, NameMatch, OrSet, RULES_MAX, RuleMatch};
use serde::Serialize;

use super::condition::{Added, Alternatives, Condition};
use super::hook::Hook;
use super::{leaving, order};
use crate::config::rules::{RuleSetting, SetSetting, StatementSetting, sets};

/// Maximum number of filter rules for one imported rule.
const ALTERNATIVES_MAX: usize = 1024;
/// Maximum depth of jumps.
const DEPTH_MAX: usize = 16;
/// Maximum number of rules that an import visits. Chains count again for each jump to them.
const STEPS_MAX: usize = 4 * RULES_MAX;

/// A rule or set that cannot be expressed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Missing {
    /// Its line or its handle.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// Action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Verdict(Action),
    Jump(String),
    /// The rule has statements only, or counts, and the next one decides.
    Next,
}

/// A rule that can be expressed.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) place: String,
    /// Unique name.
    pub(super) name: String,
    /// All have to hold.
    pub(super) conditions: Vec<Alternatives>,
    /// Statements beside its verdict.
    pub(super) statements: StatementSetting,
    pub(super) target: Target,
}

/// A chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) rules: Vec<Result<Statement, Missing>>,
}

impl Statement {
    /// Returns the rule in front of the next one that has the statements of both; `None` if the next rule does not decide on all of its
    /// packets, or has the same kinds of statements, or these are other statements than copies and logs.
    fn joined_to(&self, next: &Self) -> Option<Self> {
        let mut wanted = next.conditions.iter();
        let is_decided = wanted.all(|one| self.conditions.contains(one));
        let is_verdict = matches!(next.target, Target::Verdict(_));
        let StatementSetting {
            log,
            log_prefix,
            dup,
            ..
        } = &self.statements;
        let has_both = log.is_some() && next.statements.log.is_some()
            || dup.is_some() && next.statements.dup.is_some();
        if !is_decided || !is_verdict || has_both || !order::are_copies(&self.statements) {
            return None;
        }
        let mut joined = self.clone();
        joined.target = next.target.clone();
        joined.statements = next.statements.clone();
        if log.is_some() {
            joined.statements.log = *log;
            joined.statements.log_prefix.clone_from(log_prefix);
        }
        if dup.is_some() {
            joined.statements.dup.clone_from(dup);
        }
        Some(joined)
    }
}

impl Chain {
    /// Joins rules that only copy or log to the rules directly behind them. Without such a rule, they become rules that continue.
    pub(super) fn join_statements(&mut self) {
        let mut all: Vec<Result<Statement, Missing>> = Vec::new();
        // From the end, so that a rule with statements finds the next one joined already.
        for rule in std::mem::take(&mut self.rules).into_iter().rev() {
            let statement = match rule {
                Ok(statement) if statement.target == Target::Next => statement,
                other => {
                    all.push(other);
                    continue;
                }
            };
            let next = all.last().and_then(|next| next.as_ref().ok());
            match next.and_then(|next| statement.joined_to(next)) {
                Some(joined) => {
                    // Of two rules with the same conditions, the second one would match nothing.
                    let is_same = |next: &Statement| next.conditions == joined.conditions;
                    if next.is_some_and(is_same) {
                        all.pop();
                    }
                    all.push(Ok(joined));
                }
                None => all.push(Ok(statement)),
            }
        }
        all.reverse();
        self.rules = all;
    }
}

/// Packets that a base chain sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// IP packets of these EtherTypes.
    Ip(&'static [EtherType]),
    /// All frames.
    Frames,
}

pub(super) const IPV4: EtherType = EtherType(0x0800);
pub(super) const IPV6: EtherType = EtherType(0x86dd);

/// An imported ruleset.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) scope: Scope,
    /// Name of the base chain.
    pub(super) base: String,
    /// Name of a chain that packets pass before the base chain.
    pub(super) first: Option<String>,
    /// Devices whose frames the base chain sees; empty for all.
    pub(super) devices: Vec<String>,
    pub(super) policy: Action,
    pub(super) chains: HashMap<String, Chain>,
    pub(super) sets: Vec<SetSetting>,
    pub(super) missing: Vec<Missing>,
    /// Chains and tables that are not imported.
    pub(super) others: Vec<String>,
}

/// One list of rules, and the parts that could not be expressed.
#[derive(Debug)]
pub(super) struct Expanded {
    pub(super) default: Action,
    pub(super) sets: Vec<SetSetting>,
    pub(super) rules: Vec<RuleSetting>,
    pub(super) missing: Vec<Missing>,
}

/// State of an expansion.
struct Expansion<'source> {
    source: &'source Source,
    rules: Vec<RuleSetting>,
    missing: Vec<Missing>,
    /// Contents of `missing`: a chain can be expanded several times.
    observed: HashSet<Missing>,
    steps: usize,
    /// Number of rules with each name.
    names: HashMap<String, usize>,
}

fn empty(name: &str, action: Action) -> RuleSetting {
    RuleSetting {
        name: name.to_owned(),
        action,
        direction: None,
        from: None,
        port: None,
        ports: Vec::new(),
        bridge: None,
        vlan: None,
        ct_state: None,
        ct_mark: None,
        ct_label: None,
        packet: RuleMatch::default(),
        names: NameMatch::default(),
        statements: StatementSetting::default(),
    }
}

/// Adds alternatives to each of the rules so far. Rules that no packet can match are left out.
fn multiply(
    rules: Vec<RuleSetting>,
    alternatives: &[Condition],
) -> Result<Vec<RuleSetting>, String> {
    let mut all = Vec::new();
    for rule in rules {
        for condition in alternatives {
            let mut rule = rule.clone();
            if condition.clone().add_to(&mut rule)? == Added::Possible {
                all.push(rule);
            }
            if all.len() > ALTERNATIVES_MAX {
                return Err(format!(
                    "expands to more than {ALTERNATIVES_MAX} rules (use a named set)"
                ));
            }
        }
    }
    Ok(all)
}

/// Returns true if the rule matches IP packets only.
fn is_of_ip(rule: &RuleSetting) -> bool {
    let packet = &rule.packet;
    let is_address = packet.source.is_some() || packet.destination.is_some();
    is_address || packet.protocol.is_some() || packet.dscp.is_some()
}

/// Returns the EtherType of addresses of a rule, as far as it is known.
fn version_of(rule: &RuleSetting) -> Option<EtherType> {
    let prefixes = [&rule.packet.source, &rule.packet.destination];
    prefixes.into_iter().flatten().find_map(|one| match one {
        OrSet::Value(prefix) => Some(EtherType::of(prefix.addr())),
        OrSet::Set(_) => None,
    })
}

impl Source {
    /// Expands the base chain, which has this hook.
    pub(super) fn expand(&self, hook: Hook) -> Expanded {
        let mut expansion = Expansion {
            source: self,
            rules: Vec::new(),
            missing: self.missing.clone(),
            observed: HashSet::new(),
            steps: 0,
            names: HashMap::new(),
        };
        for chain in self.first.iter().chain([&self.base]) {
            expansion.chain(chain, &self.of_devices("", Action::Accept), 0);
        }
        let default = match (self.scope, self.policy) {
            (_, Action::Drop) if !self.devices.is_empty() => {
                // Frames of other devices never meet the policy.
                expansion
                    .rules
                    .extend(self.of_devices("policy", Action::Drop));
                Action::Accept
            }
            (Scope::Ip(versions), Action::Drop) => {
                // Other frames never meet the policy of such a chain.
                for version in versions {
                    let mut rule = empty(&format!("policy-{version}"), Action::Drop);
                    rule.packet.ethertype = Some(*version);
                    expansion.rules.push(rule);
                }
                Action::Accept
            }
            (_, policy) => policy,
        };
        let default = expansion.convert_to_output(default, hook.is_out());
        expansion.limit_continuing();
        Expanded {
            default,
            sets: self.used_by(&expansion.rules),
            rules: expansion.rules,
            missing: expansion.missing,
        }
    }

    /// Returns the rules of a name for all frames that the base chain sees.
    fn of_devices(&self, name: &str, action: Action) -> Vec<RuleSetting> {
        if self.devices.is_empty() {
            return vec![empty(name, action)];
        }
        let rule = |device: &String| RuleSetting {
            port: Some(device.clone()),
            ..empty(&format!("{name}-{device}"), action)
        };
        self.devices.iter().map(rule).collect()
    }

    /// Returns the sets that rules refer to.
    fn used_by(&self, rules: &[RuleSetting]) -> Vec<SetSetting> {
        let names = rules.iter().flat_map(|rule| {
            let names = rule.packet.sets().map(|(_, name)| name.0.as_str());
            names.chain(rule.port_sets())
        });
        let used: HashSet<&str> = names.collect();
        let sets = self.sets.iter();
        let sets = sets.filter(|set| used.contains(set.name.0.as_str()));
        sets.cloned().collect()
    }
}

impl Expansion<'_> {
    /// Expands a chain for each of the rules that jump to it.
    fn chain(&mut self, name: &str, outer: &[RuleSetting], depth: usize) {
        let source = self.source;
        let Some(chain) = source.chains.get(name) else {
            self.note_missing(name, "no such chain");
            return;
        };
        for rule in &chain.rules {
            self.steps = self.steps.saturating_add(1);
            if self.steps > STEPS_MAX || self.rules.len() > RULES_MAX {
                self.note_missing(name, "too many rules after expansion");
                return;
            }
            match rule {
                Ok(statement) => {
                    if let Err(reason) = self.statement(statement, outer, depth) {
                        self.note_missing(&statement.place, &reason);
                    }
                }
                Err(missing) => self.note_missing(&missing.place, &missing.reason),
            }
        }
    }

    /// Makes all rules those of frames that leave, if the hook has such packets (`is_out`), or if one of them compares the output interface or
    /// limits segments to the MTU of the path: they are one list, in which the first match decides. Rules in front of all verdicts that only
    /// limit segments do not concern the others. Returns the default action.
    fn convert_to_output(&mut self, default: Action, is_out: bool) -> Action {
        if !is_out && leaving::convert_front(&mut self.rules) {
            return default;
        }
        if default != Action::Accept {
            self.rules.push(empty("policy", default));
        }
        for mut rule in std::mem::take(&mut self.rules) {
            let reason = match (rule.action, &rule.statements.dup) {
                _ if rule.statements.set_ct_mark.is_some() => "ct mark set",
                (Action::Reject, _) => "reject",
                (_, Some(_)) => "dup",
                (_, None) => "",
            };
            if !reason.is_empty() {
                let reason =
                    format!("{reason} in a chain with output interfaces cannot be expressed");
                self.note_missing(&format!("rule {}", rule.name), &reason);
                continue;
            }
            leaving::convert(&mut rule);
            self.rules.push(rule);
        }
        Action::Accept
    }

    /// Notes a part that cannot be expressed, once for each place.
    fn note_missing(&mut self, place: &str, reason: &str) {
        let missing = Missing {
            place: place.to_owned(),
            reason: reason.to_owned(),
        };
        if self.observed.insert(missing.clone()) {
            self.missing.push(missing);
        }
    }

    fn statement(
        &mut self,
        statement: &Statement,
        outer: &[RuleSetting],
        depth: usize,
    ) -> Result<(), String> {
        let mut rules = outer.to_vec();
        for alternatives in &statement.conditions {
            rules = multiply(rules, alternatives)?;
        }
        match &statement.target {
            Target::Jump(_) if depth >= DEPTH_MAX => {
                Err(format!("more than {DEPTH_MAX} jumps within one another"))
            }
            Target::Jump(chain) => {
                if !statement.statements.is_empty() {
                    self.continuing(statement, rules.clone())?;
                }
                // Without rules that can match, nothing jumps.
                if !rules.is_empty() {
                    self.chain(chain, &rules, depth.saturating_add(1));
                }
                Ok(())
            }
            Target::Next => self.continuing(statement, rules),
            Target::Verdict(action) => {
                let rules = self.in_scope(rules)?;
                self.verdict(&statement.name, (*action, &statement.statements), rules);
                Ok(())
            }
        }
    }

    /// Adds rules that continue.
    fn continuing(&mut self, statement: &Statement, rules: Vec<RuleSetting>) -> Result<(), String> {
        let rules = self.in_scope(rules)?;
        order::check_alternatives(&rules)?;
        let action = Action::Continue;
        self.verdict(&statement.name, (action, &statement.statements), rules);
        Ok(())
    }

    /// Removes and notes rules that continue beyond their limits, and rules that compare what an earlier one has set.
    fn limit_continuing(&mut self) {
        let counts = sets::port_counts(self.source.sets.iter());
        let beyond = order::first_beyond(&self.rules, &counts).unwrap_or(usize::MAX);
        let mut is_dscp_set = false;
        for (place, rule) in std::mem::take(&mut self.rules).into_iter().enumerate() {
            let continues = rule.action == Action::Continue;
            let reason = if continues && place >= beyond {
                order::TOO_MANY
            } else if is_dscp_set && rule.packet.dscp.is_some() {
                "a match on the DSCP behind 'dscp set' cannot be expressed"
            } else {
                is_dscp_set |= continues && rule.statements.set_dscp.is_some();
                self.rules.push(rule);
                continue;
            };
            self.note_missing(&format!("rule {}", rule.name), reason);
        }
    }

    /// Limits rules to the packets that the base chain sees.
    fn in_scope(&self, rules: Vec<RuleSetting>) -> Result<Vec<RuleSetting>, String> {
        let Scope::Ip(versions) = self.source.scope else {
            return Ok(rules);
        };
        let mut all = Vec::new();
        for rule in rules {
            let version = rule.packet.ethertype.or(version_of(&rule));
            let is_both = versions.len() > 1;
            match version {
                Some(version) if !versions.contains(&version) => {}
                None if !(is_both && is_of_ip(&rule)) => {
                    let versions: Vec<Condition> = versions
                        .iter()
                        .map(|one| Condition::Ethertype(*one))
                        .collect();
                    all.extend(multiply(vec![rule], &versions)?);
                }
                _ => all.push(rule),
            }
        }
        Ok(all)
    }

    /// Adds rules with a verdict.
    fn verdict(
        &mut self,
        name: &str,
        (action, statements): (Action, &StatementSetting),
        rules: Vec<RuleSetting>,
    ) {
        for mut rule in rules {
            let count = self.names.entry(name.to_owned()).or_default();
            *count = count.saturating_add(1);
            rule.name = match *count {
                1 => name.to_owned(),
                count => format!("{name}.{count}"),
            };
            rule.action = action;
            rule.statements = statements.clone();
            self.rules.push(rule);
        }
    }
}
