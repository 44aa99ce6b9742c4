// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of filter rules.

use super::{Action, MalformedAction, RuleSetting};
use crate::config::edit::{absent, from_request, remove, replace};
use crate::config::settings::Settings;
use crate::error::SwitchError;

impl Settings {
    pub(in crate::config) fn add_rule(
        &mut self,
        rule: RuleSetting,
        before: Option<String>,
    ) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        let location = match before {
            None => rules.len(),
            Some(name) => rules
                .iter()
                .position(|one| one.value.name == name)
                .ok_or_else(|| absent("rule", &name))?,
        };
        rules.insert(location, from_request(rule));
        Ok(())
    }

    pub(in crate::config) fn set_rule(&mut self, rule: RuleSetting) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        replace(rules, "rule", rule, |one| &one.name)
    }

    pub(in crate::config) fn del_rule(&mut self, name: &str) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        remove(rules, "rule", name, |rule| &rule.name)
    }

    pub(in crate::config) fn set_rules(
        &mut self,
        rules: Option<Vec<RuleSetting>>,
        default: Option<Action>,
        malformed: Option<MalformedAction>,
    ) {
        if let Some(rules) = rules {
            self.rules = Some(rules.into_iter().map(from_request).collect());
        }
        self.rule_default = default.or(self.rule_default);
        self.rule_malformed = malformed.or(self.rule_malformed);
    }

    /// Removes the rules of a port or bridge that is removed.
    pub(in crate::config) fn forget_rules(&mut self, is_about: impl Fn(&RuleSetting) -> bool) {
        if let Some(rules) = &mut self.rules {
            rules.retain(|rule| !is_about(&rule.value));
        }
    }
}
