// SPDX-License-Identifier: Apache-2.0
//! Rules and sets that several requests have brought for one later change.

use quietwire_tables::filter::{RULES_MAX, SET_ELEMENTS_MAX};

use crate::config::rules::{RuleSetting, SetSetting};
use crate::config::{Change, Staged};

/// Maximum number of parts of sets.
const PARTS_MAX: usize = 1 << 16;

/// Staged rules and parts of sets.
#[derive(Debug, Default)]
pub(super) struct StagedRules {
    /// At most [`RULES_MAX`].
    rules: Vec<RuleSetting>,
    /// At most [`PARTS_MAX`], with at most [`SET_ELEMENTS_MAX`] elements.
    sets: Vec<SetSetting>,
}

/// Returns the error of a request that continues after the end of the staged items.
fn gap(staged: usize, what: &str, at: usize) -> String {
    format!(
        "{staged} {what} are staged, not {at} (start again with 'at' 0; another client may have replaced them)"
    )
}

impl StagedRules {
    /// Stages rules behind the first `at` staged ones.
    pub(super) fn stage_rules(&mut self, at: usize, rules: Vec<RuleSetting>) -> Result<(), String> {
        let staged = self.rules.len();
        if at > staged {
            return Err(gap(staged, "rules", at));
        }
        if at.saturating_add(rules.len()) > RULES_MAX {
            return Err(format!("too many rules (maximum: {RULES_MAX})"));
        }
        self.rules.truncate(at);
        self.rules.extend(rules);
        Ok(())
    }

    /// Stages parts of sets behind the first `at` staged ones.
    pub(super) fn stage_sets(&mut self, at: usize, sets: Vec<SetSetting>) -> Result<(), String> {
        let staged = self.sets.len();
        if at > staged {
            return Err(gap(staged, "parts of sets", at));
        }
        let before = self.sets.iter().take(at);
        let elements: usize = before
            .chain(&sets)
            .map(|set| set.elements.len())
            .fold(0, usize::saturating_add);
        if at.saturating_add(sets.len()) > PARTS_MAX || elements > SET_ELEMENTS_MAX {
            return Err(format!(
                "too many elements or parts of sets (maximum: {SET_ELEMENTS_MAX} elements, {PARTS_MAX} parts)"
            ));
        }
        self.sets.truncate(at);
        self.sets.extend(sets);
        Ok(())
    }

    /// Puts the staged rules and sets into a change that refers to them. They are no longer staged.
    pub(super) fn put_into(&mut self, change: Change) -> Change {
        let staged = Staged {
            rules: self.rules.len(),
            sets: self.sets.len(),
        };
        match change {
            Change::SetRules {
                staged: Some(asked),
                default,
                malformed,
                ..
            } if asked == staged => {
                let parts = std::mem::take(&mut self.sets);
                Change::SetRules {
                    rules: Some(std::mem::take(&mut self.rules)),
                    sets: Some(joined(parts)),
                    staged: None,
                    default,
                    malformed,
                }
            }
            other => other,
        }
    }
}

/// Joins adjacent parts of sets with the same name.
fn joined(parts: Vec<SetSetting>) -> Vec<SetSetting> {
    let mut sets: Vec<SetSetting> = Vec::new();
    for part in parts {
        match sets.last_mut().filter(|set| set.name == part.name) {
            Some(set) => {
                set.elements.extend(part.elements);
                set.element_timeouts_s.extend(part.element_timeouts_s);
            }
            None => sets.push(part),
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read;

    fn part(name: &str, elements: &[&str]) -> SetSetting {
        read(&serde_json::json!({
            "name": name, "type": "inet_service", "elements": elements,
        }))
    }

    fn rule(name: &str) -> RuleSetting {
        read(&serde_json::json!({"name": name, "action": "drop"}))
    }

    fn refer(rules: usize, sets: usize) -> Change {
        Change::SetRules {
            rules: None,
            sets: None,
            staged: Some(Staged { rules, sets }),
            default: None,
            malformed: None,
        }
    }

    #[test]
    fn staged_rules_and_joined_sets_become_one_change() {
        let mut staged = StagedRules::default();
        staged.stage_rules(0, vec![rule("a"), rule("b")]).unwrap();
        staged.stage_rules(1, vec![rule("c")]).unwrap();
        staged.stage_sets(0, vec![part("x", &["1"])]).unwrap();
        staged
            .stage_sets(1, vec![part("x", &["2"]), part("y", &["3"])])
            .unwrap();
        assert!(staged.stage_rules(3, vec![rule("d")]).is_err());
        assert!(staged.stage_sets(4, Vec::new()).is_err());
        // Another client has staged something else.
        assert_eq!(staged.put_into(refer(2, 2)), refer(2, 2));
        let expected = Change::SetRules {
            rules: Some(vec![rule("a"), rule("c")]),
            sets: Some(vec![part("x", &["1", "2"]), part("y", &["3"])]),
            staged: None,
            default: None,
            malformed: None,
        };
        assert_eq!(staged.put_into(refer(2, 3)), expected);
        assert_eq!(staged.put_into(refer(2, 3)), refer(2, 3));
        let many = vec![part("x", &[]); PARTS_MAX + 1];
        assert!(staged.stage_sets(0, many).is_err());
    }
}
