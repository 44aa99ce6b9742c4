// SPDX-License-Identifier: Apache-2.0
//! Match of rules on marks and labels of connections. Rules compare bits of keys, one for each different condition, behind those of sets.

use super::sets::{SET_USES_MAX, bit};
use crate::connections::{CtBits, CtValue, LabelBits, MarkBits};

/// Conditions of a rule on the mark and the label of connections.
pub(super) type CtMatch = (Option<MarkBits>, Option<LabelBits>);

/// Different conditions of all rules.
#[derive(Clone, Debug)]
pub(super) struct CtConditions {
    marks: Conditions<u32>,
    labels: Conditions<u128>,
}

impl CtConditions {
    /// Collects the conditions of rules. `first` is the place of the first bit. Rules with conditions beyond the maximum match no packet.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most SET_USES_MAX conditions"
    )]
    pub(super) fn new(rules: impl Iterator<Item = CtMatch> + Clone, first: usize) -> Self {
        let labels = Conditions::new(rules.clone().filter_map(|(_, label)| label), first);
        let behind = first + labels.list.len();
        let marks = Conditions::new(rules.filter_map(|(mark, _)| mark), behind);
        Self { marks, labels }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most SET_USES_MAX conditions"
    )]
    pub(super) fn len(&self) -> usize {
        self.marks.list.len() + self.labels.list.len()
    }

    /// Returns true if some rule compares labels.
    pub(super) fn has_labels(&self) -> bool {
        !self.labels.list.is_empty()
    }

    /// Returns true if each condition of a rule is one of these.
    pub(super) fn contains(&self, (mark, label): CtMatch) -> bool {
        mark.is_none_or(|one| self.marks.list.contains(&one))
            && label.is_none_or(|one| self.labels.list.contains(&one))
    }

    /// Returns the bits that a rule with these conditions requires.
    pub(super) fn required(&self, (mark, label): CtMatch) -> u32 {
        let of_mark = mark.map_or(0, |one| self.marks.bit_of(one));
        of_mark | label.map_or(0, |one| self.labels.bit_of(one))
    }

    /// Returns the bits of all conditions.
    #[inline]
    pub(super) fn all_bits(&self) -> u32 {
        self.marks.all_bits() | self.labels.all_bits()
    }

    /// Returns the bits of a packet whose connection has this mark and this label.
    #[inline]
    pub(super) fn bits_of(&self, (mark, label): (u32, u128)) -> u32 {
        self.marks.bits_of(mark) | self.labels.bits_of(label)
    }
}

/// Different conditions on one value.
#[derive(Clone, Debug)]
struct Conditions<V: CtValue> {
    /// Place of the first bit.
    first: usize,
    list: Vec<CtBits<V>>,
}

impl<V: CtValue> Conditions<V> {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most SET_USES_MAX conditions"
    )]
    fn new(conditions: impl Iterator<Item = CtBits<V>>, first: usize) -> Self {
        let mut list = Vec::new();
        for condition in conditions {
            if first + list.len() < SET_USES_MAX && !list.contains(&condition) {
                list.push(condition);
            }
        }
        Self { first, list }
    }

    /// Returns the bit that a rule with a condition requires.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most SET_USES_MAX conditions"
    )]
    fn bit_of(&self, condition: CtBits<V>) -> u32 {
        let place = self.list.iter().position(|one| *one == condition);
        bit(place.map_or(usize::MAX, |place| self.first + place))
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most SET_USES_MAX conditions, fewer than 32"
    )]
    #[inline]
    fn all_bits(&self) -> u32 {
        // There are fewer than 32.
        ((1 << self.list.len()) - 1) << self.first
    }

    #[inline]
    fn bits_of(&self, value: V) -> u32 {
        let mut bits = 0;
        for (place, condition) in (self.first..).zip(&self.list) {
            bits |= u32::from(condition.matches(value)) << place;
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use quietwire_base::BURST_MAX;

    use super::super::{
        Action, Fallback, FurtherMatch, PacketMatch, PortRule, PortRules, RuleTable, Statements,
        Verdict,
    };
    use super::*;
    use crate::connections::{CtState, Tracked};

    fn rule(label: Option<LabelBits>) -> PortRule {
        of((None, label))
    }

    fn of((mark, label): CtMatch) -> PortRule {
        PortRule {
            port: None,
            group: None,
            vlan: None,
            packet: PacketMatch::default(),
            further: FurtherMatch::default(),
            sets: Vec::new(),
            ct_states: None,
            mark,
            label,
            action: Action::Accept,
            frames: Arc::default(),
        }
    }

    fn port(table: RuleTable) -> PortRules {
        PortRules::new(Arc::new(table), 0, None)
    }

    /// Judges a frame for each label. Returns the numbers of the rules that decide on them.
    fn judged(table: RuleTable, labels: &[u128]) -> Vec<Option<u32>> {
        let all: Vec<(u32, u128)> = labels.iter().map(|label| (0, *label)).collect();
        judged_with(table, &all)
    }

    /// Judges a frame for each pair of a mark and a label.
    fn judged_with(table: RuleTable, all: &[(u32, u128)]) -> Vec<Option<u32>> {
        let port = port(table);
        let mut frame = [0; 60];
        // EtherType for local experiments (IEEE 802, section 9.2.4).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let tracked = all.iter().map(|(mark, _)| Tracked {
            state: CtState::Established,
            mark: *mark,
            ..Tracked::UNTRACKED
        });
        let tracked: Vec<Tracked> = tracked.collect();
        let labels: Vec<u128> = all.iter().map(|(_, label)| *label).collect();
        let frames = std::iter::repeat_n((&frame[..], 60), all.len());
        let mut verdicts = [Verdict::Short; BURST_MAX];
        port.judge_marked(frames, (&tracked, &labels), None, &mut verdicts);
        let number = |verdict: &Verdict| match verdict {
            Verdict::Rule(rule, _) => Some(*rule),
            _ => None,
        };
        verdicts[..all.len()].iter().map(number).collect()
    }

    fn bits() -> impl Strategy<Value = LabelBits> {
        // Few bits, at both ends, so that conditions overlap.
        (0..16u128, 1..16u128, any::<bool>()).prop_map(|(value, mask, is_high)| {
            let shift = if is_high { 124 } else { 0 };
            LabelBits::new((value & mask) << shift, mask << shift).unwrap()
        })
    }

    proptest! {
        #[test]
        fn the_first_rule_whose_bits_a_label_has_decides(
            conditions in prop::collection::vec(prop::option::weighted(0.9, bits()), 1..20),
            labels in prop::collection::vec((0..16u128, 0..16u128), 1..BURST_MAX),
        ) {
            let labels: Vec<u128> = labels.iter().map(|(low, high)| low | high << 124).collect();
            let rules = conditions.iter().map(|label| rule(*label));
            let table = RuleTable::new(rules, Fallback::default());
            let expected = labels.iter().map(|label| {
                let matches = |bits: &Option<LabelBits>| bits.is_none_or(|bits| bits.matches(*label));
                conditions.iter().position(matches).map(|place| place as u32)
            });
            let expected: Vec<Option<u32>> = expected.collect();
            prop_assert_eq!(judged(table, &labels), expected);
        }
    }

    /// Returns conditions on a few bits of marks and labels.
    fn conditions() -> impl Strategy<Value = CtMatch> {
        let mark = (0..4u32, 1..4u32).prop_map(|(value, mask)| {
            let shift = 30;
            MarkBits::new((value & mask) << shift, mask << shift).unwrap()
        });
        let label = (0..4u128, 1..4u128)
            .prop_map(|(value, mask)| LabelBits::new(value & mask, mask).unwrap());
        (prop::option::of(mark), prop::option::of(label))
    }

    proptest! {
        #[test]
        fn the_first_rule_whose_bits_mark_and_label_have_decides(
            conditions in prop::collection::vec(conditions(), 1..20),
            values in prop::collection::vec((0..4u32, 0..4u128), 1..BURST_MAX),
        ) {
            let values: Vec<(u32, u128)> =
                values.iter().map(|(mark, label)| (mark << 30, *label)).collect();
            let rules = conditions.iter().map(|one| of(*one));
            let table = RuleTable::new(rules, Fallback::default());
            let expected = values.iter().map(|(mark, label)| {
                let matches = |(marks, labels): &CtMatch| {
                    marks.is_none_or(|bits| bits.matches(*mark))
                        && labels.is_none_or(|bits| bits.matches(*label))
                };
                conditions.iter().position(matches).map(|place| place as u32)
            });
            let expected: Vec<Option<u32>> = expected.collect();
            prop_assert_eq!(judged_with(table, &values), expected);
        }
    }

    #[test]
    fn marks_and_labels_have_bits_of_their_own() {
        let (mark, label) = (MarkBits::new(1, 1), LabelBits::new(1, 1));
        let conditions = [(mark, label), (mark, None), (None, label)];
        let all = CtConditions::new(conditions.into_iter(), 3);
        assert_eq!(all.len(), 2);
        assert_eq!(
            conditions.map(|one| all.required(one)),
            [0b11000, 0b10000, 0b1000]
        );
        let values = [(0, 0), (1, 0), (0, 1), (1, 1)];
        assert_eq!(
            values.map(|one| all.bits_of(one)),
            [0, 0b10000, 0b1000, 0b11000]
        );
        assert!(!all.contains((MarkBits::new(2, 2), None)));
        // The last place is for the label.
        let full = CtConditions::new(conditions.into_iter(), SET_USES_MAX - 1);
        assert_eq!((full.len(), full.has_labels()), (1, true));
        assert_eq!(all.all_bits(), 0b11000);
        assert_eq!(full.all_bits(), 1 << (SET_USES_MAX - 1));
        let none = CtConditions::new([].into_iter(), SET_USES_MAX);
        assert_eq!(none.all_bits(), 0);
        assert_eq!(full.bits_of((1, 1)) & full.required((mark, None)), 0);
    }

    #[test]
    fn conditions_beyond_the_maximum_match_no_label() {
        let condition = |value| LabelBits::new(value, u128::MAX).unwrap();
        let count = SET_USES_MAX as u128 + 1;
        let rules = (0..count).map(|value| rule(Some(condition(value))));
        let table = RuleTable::new(rules, Fallback::default());
        let found = judged(table, &[0, count - 2, count - 1]);
        assert_eq!(found, [Some(0), Some(SET_USES_MAX as u32 - 1), None]);
    }

    #[test]
    fn a_rule_between_others_is_compiled_alone_if_they_have_its_condition() {
        let known: LabelBits = "1/1".parse().unwrap();
        let other: LabelBits = "2/2".parse().unwrap();
        let table = RuleTable::new([rule(Some(known)), rule(None)], Fallback::default());
        let added = |bits| vec![(rule(Some(bits)), None)];
        let none = table.with_changed((1, 1), added(other), Fallback::default());
        assert!(none.is_none());
        let more = table.with_changed((0, 2), added(known), Fallback::default());
        assert_eq!(judged(more.unwrap(), &[1, 2]), [Some(0), Some(2)]);
    }

    #[test]
    fn rules_that_set_marks_and_labels_are_known_by_their_statements() {
        let table = || RuleTable::new([rule(None), rule(None)], Fallback::default());
        assert!(!port(table()).sets_ct_values() && !port(table()).has_ct_values());
        let bits: LabelBits = "1/1".parse().unwrap();
        let statements = Statements {
            label: Some(bits),
            ..Statements::default()
        };
        let port = port(table().with_statements(vec![None, Some(statements)]));
        assert!(port.sets_ct_values());
        let set = |rule| port.ct_values(Verdict::Rule(rule, Action::Accept));
        assert_eq!((set(0), set(1)), ((None, None), (None, Some(bits))));
        let default = port.ct_values(Verdict::Default(Action::Accept));
        assert_eq!(default, (None, None));
        let statements = Statements {
            mark: MarkBits::new(2, 3),
            ..Statements::default()
        };
        let port = self::port(table().with_statements(vec![Some(statements), None]));
        assert!(port.sets_ct_values());
        let set = port.ct_values(Verdict::Rule(0, Action::Accept));
        assert_eq!(set, (MarkBits::new(2, 3), None));
        let compares = |mark, label| {
            let table = RuleTable::new([of((mark, label))], Fallback::default());
            let port = self::port(table);
            (port.has_ct_values(), port.has_labels())
        };
        assert_eq!(compares(MarkBits::new(1, 1), None), (true, false));
        assert_eq!(compares(None, Some(bits)), (true, true));
    }
}
