// SPDX-License-Identifier: Apache-2.0
//! Rules: from descriptors to the filter of `crates/tables`, and from its verdicts to records.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use quietwire_base::BURST_MAX;
use quietwire_tables::connections::{CtBits, CtValue, LabelBits, MarkBits, Tracked};
use quietwire_tables::filter::{
    Action, CtStates, Dscp, EtherType, Fallback, MalformedAction, OrSet, PortRule, PortRules,
    Ports, Protocol, RULES_MAX, RuleFrames, RuleMatch, RuleTable, SET_USES_MAX, Statements,
    TcpFlags, Verdict, Verdicts,
};

use crate::codes::{CT_STATES, Codes, NONE};
use crate::layout::{CtRuleDescriptor, RuleDescriptor, VerdictRecord, fields};
use crate::status::Status;

/// `enum qw_action`.
const ACCEPT: u8 = 0;
const DROP: u8 = 1;
const REJECT: u8 = 2;

/// `enum qw_cause`.
const BY_NOTHING: u8 = 0;
const BY_RULE: u8 = 1;
const BY_DEFAULT: u8 = 2;
const BY_MALFORMATION: u8 = 3;
const BY_LENGTH: u8 = 4;
pub(crate) const BY_REFUSAL: u8 = 5;

/// Number of no rule: `QW_NO_RULE`.
const NO_RULE: u32 = u32::MAX;
/// Malformed frames are compared by the headers that can be read: `QW_CLASSIFIER_MATCH_MALFORMED`.
const MATCH_MALFORMED: u32 = 1;
/// Maximum number of different marks and labels that rules compare: `QW_CONDITIONS_MAX`.
pub(crate) const CONDITIONS_MAX: usize = SET_USES_MAX;
/// Largest VLAN identifier (IEEE 802.1Q, table 9-2).
const VLAN_MAX: u16 = 4094;

/// A frame: its first octets, its length, its zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) octets: &'a [u8],
    pub(crate) length: u32,
    pub(crate) zone: u16,
}

impl Frame<'_> {
    /// No octets.
    pub(crate) const EMPTY: Self = Self {
        octets: &[],
        length: 0,
        zone: 0,
    };
}

/// Compiled rules and their counters.
#[derive(Clone, Debug)]
pub(crate) struct Classifier {
    rules: PortRules,
    /// Some rule compares or sets labels.
    requires_labels: bool,
    codes: Codes,
    /// Frames by rule.
    frames: Arc<[Arc<RuleFrames>]>,
    /// Frames that no rule matches, and malformed ones.
    others: [Arc<RuleFrames>; 2],
}

/// Why rules are refused: the number of the first wrong one, if a rule is the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RulesError {
    pub(crate) status: Status,
    pub(crate) rule: Option<usize>,
}

const fn action(number: u8) -> Option<Action> {
    match number {
        ACCEPT => Some(Action::Accept),
        DROP => Some(Action::Drop),
        REJECT => Some(Action::Reject),
        _ => None,
    }
}

const fn number(action: Action) -> u8 {
    match action {
        // No rule of this interface continues, and no verdict does.
        Action::Accept | Action::Continue => ACCEPT,
        Action::Drop => DROP,
        Action::Reject => REJECT,
    }
}

fn prefix(octets: [u8; 16], length: u8, is_ipv6: u8) -> Option<IpNet> {
    let address = match is_ipv6 {
        0 => {
            let [a, b, c, d, ..] = octets;
            IpAddr::from(Ipv4Addr::new(a, b, c, d))
        }
        1 => IpAddr::from(Ipv6Addr::from(octets)),
        _ => return None,
    };
    IpNet::new(address, length).ok()
}

fn ports(first: u16, last: u16) -> Option<Ports> {
    (first <= last).then_some(Ports { first, last })
}

/// Returns the states of a set of bits; `None` if there is none, or a bit has no state.
fn ct_states(bits: u8) -> Option<CtStates> {
    if usize::from(bits) >> CT_STATES.len() != 0 {
        return None;
    }
    let is_set = |number: &usize| bits >> number & 1 == 1;
    let names: Vec<&str> = (0..CT_STATES.len())
        .filter(is_set)
        .filter_map(|number| CT_STATES.get(number).copied())
        .collect();
    names.join(",").parse().ok()
}

/// Returns the value of a field if the rule compares it. A value out of range, which is `None`, is an error.
fn compared<T>(rule: &RuleDescriptor, field: u32, value: Option<T>) -> Result<Option<T>, ()> {
    match rule.fields & field {
        0 => Ok(None),
        _ => value.map(Some).ok_or(()),
    }
}

/// Marks and labels of a rule: those that it compares, and those that it sets.
#[derive(Clone, Copy, Debug, Default)]
struct CtValues {
    mark: Option<MarkBits>,
    label: Option<LabelBits>,
    set_mark: Option<MarkBits>,
    set_label: Option<LabelBits>,
}

/// Returns the marks and labels of a rule.
fn values_of(rule: &RuleDescriptor, values: Option<&CtRuleDescriptor>) -> Result<CtValues, ()> {
    if rule.fields & fields::CT_VALUES == 0 {
        return Ok(CtValues::default());
    }
    let values = values.ok_or(())?;
    let sets = rule.fields & (fields::SET_CT_MARK | fields::SET_CT_LABEL) != 0;
    if sets && rule.action != ACCEPT {
        return Err(());
    }
    let mark = MarkBits::new(values.mark, values.mark_mask);
    let label = LabelBits::new(values.label.value(), values.label_mask.value());
    let set_mark = MarkBits::new(values.set_mark, values.set_mark_mask);
    let set_label = LabelBits::new(values.set_label.value(), values.set_label_mask.value());
    Ok(CtValues {
        mark: compared(rule, fields::CT_MARK, mark)?,
        label: compared(rule, fields::CT_LABEL, label)?,
        set_mark: compared(rule, fields::SET_CT_MARK, set_mark)?,
        set_label: compared(rule, fields::SET_CT_LABEL, set_label)?,
    })
}

/// Adds a value to those that rules compare.
fn add_condition<V: CtValue>(conditions: &mut Vec<CtBits<V>>, value: Option<CtBits<V>>) {
    if let Some(value) = value
        && !conditions.contains(&value)
    {
        conditions.push(value);
    }
}

/// Returns the rule of a descriptor.
fn rule_of(rule: &RuleDescriptor, values: CtValues) -> Result<PortRule, ()> {
    let is_known = rule.fields & !fields::ALL == 0;
    if !is_known || rule.reserved != 0 || rule.reserved_words != [0] {
        return Err(());
    }
    let source = prefix(rule.source, rule.source_length, rule.is_ipv6);
    let destination = prefix(rule.destination, rule.destination_length, rule.is_ipv6);
    let source_ports = ports(rule.source_port_first, rule.source_port_last);
    let destination_ports = ports(rule.destination_port_first, rule.destination_port_last);
    let flags = TcpFlags {
        value: rule.tcp_flags,
        mask: rule.tcp_flags_mask,
    };
    let has_flags = flags.mask != 0 && flags.value & !flags.mask == 0;
    let packet = RuleMatch {
        ethertype: compared(rule, fields::ETHERTYPE, Some(EtherType(rule.ethertype)))?,
        protocol: compared(rule, fields::PROTOCOL, Some(Protocol(rule.protocol)))?,
        source: compared(rule, fields::SOURCE, source)?.map(OrSet::Value),
        destination: compared(rule, fields::DESTINATION, destination)?.map(OrSet::Value),
        source_port: compared(rule, fields::SOURCE_PORT, source_ports)?.map(OrSet::Value),
        destination_port: compared(rule, fields::DESTINATION_PORT, destination_ports)?
            .map(OrSet::Value),
        tcp_flags: compared(rule, fields::TCP_FLAGS, has_flags.then_some(flags))?,
        icmp_type: compared(rule, fields::ICMP_TYPE, Some(rule.icmp_type))?,
        icmp_code: compared(rule, fields::ICMP_CODE, Some(rule.icmp_code))?,
        dscp: compared(
            rule,
            fields::DSCP,
            (rule.dscp < 64).then_some(Dscp(rule.dscp)),
        )?,
        ..RuleMatch::default()
    };
    // No rule has a set.
    packet.check(|_| None).map_err(|_| ())?;
    let vlan = (rule.vlan <= VLAN_MAX).then_some(rule.vlan);
    Ok(PortRule {
        port: None,
        group: None,
        vlan: compared(rule, fields::VLAN, vlan)?,
        packet: packet.packet(),
        further: packet.further(),
        sets: Vec::new(),
        ct_states: compared(rule, fields::CT_STATE, ct_states(rule.ct_states))?,
        mark: values.mark,
        label: values.label,
        action: action(rule.action).ok_or(())?,
        frames: Arc::default(),
    })
}

impl Classifier {
    /// Compiles rules, and their marks and labels, which are as many or none. `default` is the action for frames that no rule matches.
    ///
    /// # Errors
    /// [`Status::Size`], [`Status::Argument`].
    pub(crate) fn new(
        rules: &[RuleDescriptor],
        values: &[CtRuleDescriptor],
        default: u32,
        flags: u32,
    ) -> Result<Self, RulesError> {
        let wrong = |status| RulesError { status, rule: None };
        if rules.len() > RULES_MAX {
            return Err(wrong(Status::Size));
        }
        let default = u8::try_from(default).ok().and_then(action);
        let default = default.ok_or(wrong(Status::Argument))?;
        let malformed = match flags {
            0 => MalformedAction::Drop,
            MATCH_MALFORMED => MalformedAction::Match,
            _ => return Err(wrong(Status::Argument)),
        };
        let mut list = Vec::with_capacity(rules.len());
        let mut statements = Vec::with_capacity(rules.len());
        let (mut marks, mut labels) = (Vec::new(), Vec::new());
        let mut sets_labels = false;
        for (number, rule) in rules.iter().enumerate() {
            let wrong = RulesError {
                status: Status::Argument,
                rule: Some(number),
            };
            let values = values_of(rule, values.get(number)).map_err(|()| wrong)?;
            add_condition(&mut marks, values.mark);
            add_condition(&mut labels, values.label);
            if marks.len().saturating_add(labels.len()) > CONDITIONS_MAX {
                return Err(wrong);
            }
            sets_labels |= values.set_label.is_some();
            let sets = values.set_mark.is_some() || values.set_label.is_some();
            statements.push(sets.then(|| Statements {
                mark: values.set_mark,
                label: values.set_label,
                ..Statements::default()
            }));
            list.push(rule_of(rule, values).map_err(|()| wrong)?);
        }
        let frames = list.iter().map(|rule| Arc::clone(&rule.frames)).collect();
        let fallback = Fallback {
            default,
            malformed,
            ..Fallback::default()
        };
        let others = [
            Arc::clone(&fallback.default_frames),
            Arc::clone(&fallback.malformed_frames),
        ];
        let table = RuleTable::new(list, fallback).with_statements(statements);
        Ok(Self {
            rules: PortRules::new(Arc::new(table), 0, None),
            requires_labels: sets_labels || !labels.is_empty(),
            codes: Codes::new(),
            frames,
            others,
        })
    }

    /// Judges a burst by the states, marks and labels of its connections: without `tracked`, all are untracked, and without `labels`, all
    /// labels are 0.
    pub(crate) fn judge(
        &self,
        frames: &[Frame<'_>],
        tracked: &[Tracked],
        labels: &[u128],
    ) -> Verdicts {
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let frames = frames.iter().map(|frame| (frame.octets, frame.length));
        if self.rules.has_ct_values() {
            let values = (tracked, labels);
            self.rules.judge_marked(frames, values, None, &mut verdicts);
        } else {
            self.rules.judge_tracked(frames, tracked, &mut verdicts);
        }
        verdicts
    }

    /// Returns true if some rule compares or sets labels.
    pub(crate) const fn requires_labels(&self) -> bool {
        self.requires_labels
    }

    /// Returns true if some rule compares labels.
    pub(crate) fn compares_labels(&self) -> bool {
        self.rules.has_labels()
    }

    /// Returns true if some rule sets marks or labels.
    pub(crate) fn sets_values(&self) -> bool {
        self.rules.sets_ct_values()
    }

    /// Returns the bits that the rule that decided on a frame sets in the mark and in the label of its connection.
    pub(crate) fn values_of(&self, verdict: Verdict) -> (Option<MarkBits>, Option<LabelBits>) {
        self.rules.ct_values(verdict)
    }

    /// Returns a verdict as a record, without state.
    pub(crate) fn record(&self, verdict: Verdict) -> VerdictRecord {
        let (action, cause, rule, reason) = match verdict {
            Verdict::Rule(rule, action) => (number(action), BY_RULE, rule, NONE),
            Verdict::Default(action) => (number(action), BY_DEFAULT, NO_RULE, NONE),
            Verdict::Malformed(kind) => {
                let reason = self.codes.of_malformation(kind);
                (DROP, BY_MALFORMATION, NO_RULE, reason)
            }
            Verdict::Refused(refusal) => {
                (DROP, BY_REFUSAL, NO_RULE, self.codes.of_refusal(refusal))
            }
            Verdict::Short => (DROP, BY_LENGTH, NO_RULE, NONE),
            // Rules without a source guard have no other verdicts.
            _ => (DROP, BY_NOTHING, NO_RULE, NONE),
        };
        VerdictRecord {
            action,
            cause,
            rule,
            reason,
            ..VerdictRecord::DROP
        }
    }

    /// Copies the number of frames of each rule. Returns the number of rules.
    pub(crate) fn counts(&self, counts: &mut [u64]) -> usize {
        for (count, frames) in counts.iter_mut().zip(&*self.frames) {
            *count = frames.get();
        }
        self.frames.len()
    }

    /// Returns the number of frames that no rule matched, and of malformed ones.
    pub(crate) fn other_counts(&self) -> [u64; 2] {
        self.others.each_ref().map(|count| count.get())
    }

    /// Returns the numbers of the header.
    pub(crate) const fn codes(&self) -> &Codes {
        &self.codes
    }
}
