// SPDX-License-Identifier: Apache-2.0
//! Match of rules on labels of connections. Rules compare marks, one bit for each different condition, behind those of sets.

use super::sets::{SET_USES_MAX, bit};
use crate::connections::LabelBits;

/// Different conditions of all rules.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelConditions {
    /// Place of the first mark.
    first: usize,
    list: Vec<LabelBits>,
}

impl LabelConditions {
    /// Collects the conditions of rules. `first` is the place of the first mark. Rules with conditions beyond the maximum match no packet.
    pub(super) fn new(conditions: impl Iterator<Item = LabelBits>, first: usize) -> Self {
        let mut list = Vec::new();
        for condition in conditions {
            if first + list.len() < SET_USES_MAX && !list.contains(&condition) {
                list.push(condition);
            }
        }
        Self { first, list }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn contains(&self, condition: LabelBits) -> bool {
        self.list.contains(&condition)
    }

    /// Returns the mark that a rule with a condition requires.
    pub(super) fn mark_of(&self, condition: LabelBits) -> u32 {
        let place = self.list.iter().position(|one| *one == condition);
        bit(place.map_or(usize::MAX, |place| self.first + place))
    }

    /// Returns the marks of a packet whose connection has this label.
    #[inline]
    pub(super) fn marks_of(&self, label: u128) -> u32 {
        let mut marks = 0;
        for (place, condition) in (self.first..).zip(&self.list) {
            marks |= u32::from(condition.matches(label)) << place;
        }
        marks
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
        PortRule {
            port: None,
            group: None,
            vlan: None,
            packet: PacketMatch::default(),
            further: FurtherMatch::default(),
            sets: Vec::new(),
            ct_states: None,
            label,
            action: Action::Accept,
            frames: Arc::default(),
        }
    }

    /// Judges a frame for each label. Returns the numbers of the rules that decide on them.
    fn judged(table: RuleTable, labels: &[u128]) -> Vec<Option<u32>> {
        let port = PortRules::new(Arc::new(table), 0, None);
        let mut frame = [0; 60];
        // EtherType for local experiments (IEEE 802, section 9.2.4).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let tracked = vec![
            Tracked {
                state: CtState::Established,
                ..Tracked::UNTRACKED
            };
            labels.len()
        ];
        let frames = std::iter::repeat_n((&frame[..], 60), labels.len());
        let mut verdicts = [Verdict::Short; BURST_MAX];
        port.judge_labelled(frames, (&tracked, labels), None, &mut verdicts);
        let number = |verdict: &Verdict| match verdict {
            Verdict::Rule(rule, _) => Some(*rule),
            _ => None,
        };
        verdicts[..labels.len()].iter().map(number).collect()
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
    fn rules_that_set_labels_are_known_by_their_statements() {
        let table = || RuleTable::new([rule(None), rule(None)], Fallback::default());
        let port = |table| PortRules::new(Arc::new(table), 0, None);
        assert!(!port(table()).sets_labels() && !port(table()).has_labels());
        let bits: LabelBits = "1/1".parse().unwrap();
        let statements = Statements {
            label: Some(bits),
            ..Statements::default()
        };
        let port = port(table().with_statements(vec![None, Some(statements)]));
        assert!(port.sets_labels());
        let set = |rule| port.label(Verdict::Rule(rule, Action::Accept));
        assert_eq!((set(0), set(1)), (None, Some(bits)));
        assert_eq!(port.label(Verdict::Default(Action::Accept)), None);
    }
}
