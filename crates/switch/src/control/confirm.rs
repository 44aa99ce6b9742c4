// SPDX-License-Identifier: Apache-2.0
//! Rules that return to the former ones unless they are confirmed in time. The timer is the switch's: it needs no client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::rules::{Action, MalformedAction, RuleSetting, SetSetting};
use crate::config::{Change, Located, Settings, SharedList};

/// Longest time for a confirmation, seconds.
pub const CONFIRM_MAX_S: u32 = 24 * 60 * 60;
/// Time until the return is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Rules of the settings.
#[derive(Clone, Debug)]
pub(super) struct FormerRules {
    rules: Option<SharedList<Located<Arc<RuleSetting>>>>,
    sets: Option<SharedList<Located<Arc<SetSetting>>>>,
    default: Option<Action>,
    malformed: Option<MalformedAction>,
}

/// Former rules, and the time when they return.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    former: FormerRules,
    until: Instant,
}

impl FormerRules {
    /// Takes the rules of the settings.
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            rules: settings.rules.clone(),
            sets: settings.sets.clone(),
            default: settings.rule_default,
            malformed: settings.rule_malformed,
        }
    }

    /// Returns the settings with these rules, except those of ports and bridges that no longer exist.
    pub(super) fn put_into(&self, mut settings: Settings) -> Settings {
        settings.rules = self.rules.clone();
        settings.sets = self.sets.clone();
        settings.rule_default = self.default;
        settings.rule_malformed = self.malformed;
        settings.forget_absent_in_rules();
        settings
    }
}

impl Unconfirmed {
    pub(super) fn new(former: FormerRules, confirm_s: u32, now: Instant) -> Self {
        let time = Duration::from_secs(confirm_s.min(CONFIRM_MAX_S).into());
        Self {
            former,
            until: now.checked_add(time).unwrap_or(now),
        }
    }

    pub(super) fn former(&self) -> &FormerRules {
        &self.former
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Postpones the return after a failure.
    pub(super) fn try_again(&mut self, now: Instant) {
        self.until = now.checked_add(AGAIN).unwrap_or(now);
    }

    /// Returns the seconds until the return.
    pub(super) fn left_s(&self, now: Instant) -> u64 {
        self.until.saturating_duration_since(now).as_secs()
    }
}

/// Returns true for changes that a return would undo.
pub(super) const fn is_of_rules(change: &Change) -> bool {
    matches!(
        change,
        Change::AddRule { .. }
            | Change::SetRule(_)
            | Change::DelRule { .. }
            | Change::SetRules { .. }
            | Change::AddSet(_)
            | Change::DelSet { .. }
            | Change::AddElements { .. }
            | Change::DelElements { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn former_rules_return_without_those_of_removed_ports() {
        let parse = |text: &str| Settings::parse(Path::new("switch.toml"), text).unwrap();
        let port = |name: &str| format!("[[port]]\nname = \"{name}\"\nuri = \"null:\"\n");
        let rule = |name: &str, place: &str| {
            format!("[[rule]]\nname = \"{name}\"\naction = \"drop\"\n{place}\n")
        };
        let start = parse(&format!(
            "rule-default = \"drop\"\n{}{}{}{}{}{}{}{}{}",
            port("a"),
            port("b"),
            rule("of a", "port = \"a\""),
            rule("of b", "port = \"b\""),
            rule("all", ""),
            rule("of both", "ports = [\"a\", \"b\"]"),
            rule("copied", "dup = \"a\""),
            rule("from a", "direction = \"out\"\nport = \"b\"\nfrom = \"a\""),
            rule("inspected", "inspect = \"a\"").replace("drop", "accept"),
        ));
        let former = FormerRules::of(&start);
        let later = parse(&format!("rule-default = \"accept\"\n{}", port("b")));
        let returned = former.put_into(later.clone());
        let names: Vec<&str> = returned
            .rules
            .iter()
            .flatten()
            .map(|rule| rule.value.name.as_str())
            .collect();
        assert_eq!(names, ["of b", "all", "of both", "copied"]);
        // The switch can have them.
        let plan = returned.clone().plan(&"0-3".parse().unwrap()).unwrap();
        assert_eq!(plan.rules.rules[2].ports, ["b"]);
        assert_eq!(plan.rules.rules[3].statements.dup, None);
        assert_eq!(returned.rule_default, Some(Action::Drop));
        assert_eq!(returned.ports, later.ports);
        let now = Instant::now();
        let mut unconfirmed = Unconfirmed::new(former, 60, now);
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(
            (unconfirmed.is_due(at(59)), unconfirmed.is_due(at(60))),
            (false, true)
        );
        assert_eq!(unconfirmed.left_s(at(20)), 40);
        unconfirmed.try_again(at(60));
        assert_eq!(
            (unconfirmed.is_due(at(60)), unconfirmed.is_due(at(61))),
            (false, true)
        );
    }
}
