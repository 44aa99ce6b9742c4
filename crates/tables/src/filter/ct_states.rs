// SPDX-License-Identifier: Apache-2.0
//! Match of a rule on the state of connection tracking: a set of classes, as `ct state` of nftables.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::sets::SET_USES_MAX;
use crate::classifier::{Field, Key, Rule};
use crate::connections::CtState;

/// All classes. A tracked packet has exactly one of them.
const ALL: u32 = (1 << CtState::ALL.len()) - 1;
/// Place of the classes in [`Field::METADATA`] of a key, behind the marks of sets and below the last bit, which no packet has.
const PLACE: usize = SET_USES_MAX;
const _: () = assert!(PLACE + CtState::ALL.len() < 32);

/// A set of classes, at least one: names with commas between them, like `established,related`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CtStates(u32);

#[allow(clippy::arithmetic_side_effects, reason = "there are few states")]
const fn bit(state: CtState) -> u32 {
    1 << state as u32
}

impl CtStates {
    /// Returns true if the set contains a class.
    #[must_use]
    pub const fn contains(self, state: CtState) -> bool {
        self.0 & bit(state) != 0
    }

    /// Returns the classes of both sets; `None` if there is none.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Option<Self> {
        match self.0 & other.0 {
            0 => None,
            both => Some(Self(both)),
        }
    }

    /// Returns the classes outside of the set; `None` if there is none.
    #[must_use]
    pub const fn complement(self) -> Option<Self> {
        match ALL & !self.0 {
            0 => None,
            rest => Some(Self(rest)),
        }
    }

    /// Returns a rule that also requires a class of this set.
    pub(super) fn required_by(self, rule: Rule) -> Rule {
        // No class outside of the set. A packet has exactly one class, so it is one of the set.
        rule.with_bits(Field::METADATA, 0, (ALL & !self.0) << PLACE)
    }
}

/// Bits of all classes in [`Field::METADATA`] of a key.
pub(super) const STATES: u32 = ALL << PLACE;

/// Returns the bit of a class in [`Field::METADATA`] of a key.
#[inline(always)]
pub(super) const fn state_bit(state: CtState) -> u32 {
    bit(state) << PLACE
}

/// Sets the class of a packet in its key.
#[inline(always)]
pub(super) fn set_state(key: &mut Key, state: CtState) {
    key.set(Field::METADATA, state_bit(state));
}

impl FromStr for CtStates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut states = 0;
        for name in text.split(',') {
            states |= bit(name.trim().parse()?);
        }
        Ok(Self(states))
    }
}

impl fmt::Display for CtStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = CtState::ALL
            .into_iter()
            .filter(|state| self.contains(*state));
        let names: Vec<&str> = states.map(CtState::name).collect();
        f.write_str(&names.join(","))
    }
}

impl TryFrom<String> for CtStates {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CtStates> for String {
    fn from(states: CtStates) -> Self {
        states.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quietwire_base::BURST_MAX;

    use super::super::sets;
    use super::super::{
        Action, Fallback, FurtherMatch, PacketMatch, PortRule, PortRules, RuleTable, Verdict,
    };
    use super::*;
    use crate::connections::Tracked;

    #[test]
    fn sets_are_read_and_written() {
        for (text, written) in [
            ("new", "new"),
            ("related, established", "established,related"),
            ("invalid,invalid", "invalid"),
            (
                "new,established,related,invalid,untracked",
                "new,established,related,invalid,untracked",
            ),
        ] {
            let states: CtStates = text.parse().unwrap();
            assert_eq!(states.to_string(), written);
            let json = serde_json::to_string(&states).unwrap();
            assert_eq!(serde_json::from_str::<CtStates>(&json).unwrap(), states);
        }
        for text in ["", "new,", "open", "New"] {
            let error = text.parse::<CtStates>().unwrap_err();
            assert!(error.contains("use new, established"), "{error}");
        }
    }

    #[test]
    fn sets_have_intersections_and_complements() {
        let states = |text: &str| text.parse::<CtStates>().ok();
        let some = states("new,related").unwrap();
        assert_eq!(
            some.intersection(states("invalid,new").unwrap()),
            states("new")
        );
        assert_eq!(some.intersection(states("invalid").unwrap()), None);
        assert_eq!(some.complement(), states("established,invalid,untracked"));
        assert_eq!(CtStates(ALL).complement(), None);
    }

    #[test]
    fn a_rule_matches_the_classes_of_its_set_only() {
        for bits in 1..=ALL {
            let states = CtStates(bits);
            let rule = states.required_by(Rule::ANY);
            for state in CtState::ALL {
                let mut key = Key::EMPTY;
                set_state(&mut key, state);
                assert_eq!(
                    rule.matches(&key),
                    states.contains(state),
                    "{states}: {state:?}"
                );
            }
        }
    }

    #[test]
    fn states_and_marks_of_sets_do_not_disturb_each_other() {
        let new: CtStates = "new".parse().unwrap();
        // The last mark is the one that no packet has.
        for mark in (0..=SET_USES_MAX).map(sets::bit) {
            let rule = new.required_by(Rule::ANY.with_bits(Field::METADATA, mark, mark));
            for (marks, state, matches) in [
                (mark, CtState::New, true),
                (0, CtState::New, false),
                (!mark & ((1u32 << SET_USES_MAX) - 1), CtState::New, false),
                (mark, CtState::Established, false),
                (mark, CtState::Untracked, false),
            ] {
                let mut key = Key::EMPTY;
                set_state(&mut key, state);
                key.set(Field::METADATA, marks);
                assert_eq!(rule.matches(&key), matches, "{mark:#x} {state:?}");
            }
        }
    }

    #[test]
    fn frames_are_judged_by_the_states_of_their_connections() {
        let rule = |states: &str| PortRule {
            port: None,
            group: None,
            vlan: None,
            packet: PacketMatch::default(),
            further: FurtherMatch::default(),
            sets: Vec::new(),
            ct_states: states.parse().ok(),
            mark: None,
            label: None,
            action: Action::Accept,
            frames: Arc::default(),
        };
        let fallback = Fallback {
            default: Action::Drop,
            ..Fallback::default()
        };
        let rules = ["established,related", "new"].map(rule);
        let port = PortRules::new(Arc::new(RuleTable::new(rules, fallback)), 0, None);
        let mut frame = [0; 60];
        // EtherType for local experiments (IEEE 802, section 9.2.4).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let tracked = CtState::ALL.map(|state| Tracked {
            state,
            ..Tracked::UNTRACKED
        });
        // The last frame has no state.
        let frames = std::iter::repeat_n((&frame[..], 60), tracked.len() + 1);
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let dropped = port.judge_tracked(frames, &tracked, &mut verdicts);
        let (first, second) = (
            Verdict::Rule(0, Action::Accept),
            Verdict::Rule(1, Action::Accept),
        );
        let none = Verdict::Default(Action::Drop);
        assert_eq!(verdicts[..6], [second, first, first, none, none, none]);
        assert_eq!(dropped.denied, 3);
    }
}
