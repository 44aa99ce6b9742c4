// SPDX-License-Identifier: Apache-2.0
//! Rules and sets that return to the former ones unless they are confirmed in time. The timer is the switch's: it needs no client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::timeouts::Timeouts;
use crate::config::rules::{Action, MalformedAction, RuleSetting, SetSetting};
use crate::config::{Change, Located, Settings, SharedList};
use crate::error::SwitchError;

/// Longest time for a confirmation, seconds.
pub const CONFIRM_MAX_S: u32 = 24 * 60 * 60;
/// Time until the return is tried again after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// Rules of the settings, and the times of the elements of their sets.
#[derive(Clone, Debug)]
pub(super) struct FormerRules {
    rules: Option<SharedList<Located<Arc<RuleSetting>>>>,
    sets: Option<SharedList<Located<Arc<SetSetting>>>>,
    default: Option<Action>,
    malformed: Option<MalformedAction>,
    timeouts: Timeouts,
}

/// Former rules, and the time when they return.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    former: FormerRules,
    until: Instant,
}

impl FormerRules {
    /// Takes the rules of the settings.
    pub(super) fn of(settings: &Settings, timeouts: &Timeouts) -> Self {
        Self {
            rules: settings.rules.clone(),
            sets: settings.sets.clone(),
            default: settings.rule_default,
            malformed: settings.rule_malformed,
            timeouts: timeouts.clone(),
        }
    }

    /// Returns the settings with these rules and sets, except rules of ports and bridges that no longer exist, and elements whose time
    /// is over.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if an element cannot be removed.
    pub(super) fn put_into(
        &self,
        mut settings: Settings,
        now: Instant,
    ) -> Result<Settings, SwitchError> {
        settings.rules = self.rules.clone();
        settings.sets = self.sets.clone();
        settings.rule_default = self.default;
        settings.rule_malformed = self.malformed;
        settings.forget_absent_in_rules();
        let sets = settings.sets.iter().flatten();
        let sets: Vec<Arc<SetSetting>> = sets.map(|set| Arc::clone(&set.value)).collect();
        for (set, elements) in self.timeouts.due(&sets, now) {
            settings = settings.after(Change::DelElements { set, elements })?;
        }
        Ok(settings)
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

    /// Returns the times of the elements of the former sets.
    pub(super) fn into_timeouts(self) -> Timeouts {
        self.former.timeouts
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Postpones the return after a failure.
    pub(super) fn try_again(&mut self, now: Instant) {
        self.until = now.checked_add(AGAIN).unwrap_or(now);
    }

    /// Lets the former rules return now.
    #[cfg(test)]
    pub(super) fn end(&mut self, now: Instant) {
        self.until = now;
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
    use crate::config::rules::Element;

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
        let former = FormerRules::of(&start, &Timeouts::default());
        let later = parse(&format!("rule-default = \"accept\"\n{}", port("b")));
        let returned = former.put_into(later.clone(), Instant::now()).unwrap();
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

    #[test]
    fn elements_return_with_the_time_since_their_addition_or_not_at_all() {
        let parse = |text: &str| Settings::parse(Path::new("switch.toml"), text).unwrap();
        let set = |elements: &str| {
            format!(
                "[[set]]\nname = \"guests\"\ntype = \"inet_service\"\ntimeout-s = 60\nelements = [{elements}]\n"
            )
        };
        let sets_of = |settings: &Settings| -> Vec<Arc<SetSetting>> {
            let sets = settings.sets.iter().flatten();
            sets.map(|set| Arc::clone(&set.value)).collect()
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [first, second] = [1, 2].map(|port| Element::Ports(port, port));
        let mut timeouts = Timeouts::default();
        timeouts.follow(&sets_of(&parse(&set("\"1\""))), at(0));
        let before = parse(&set("\"1\", \"2\""));
        timeouts.follow(&sets_of(&before), at(30));
        // The new rules lack the set, or its elements, or have both.
        for new in [String::new(), set(""), set("\"1\", \"2\"")] {
            let former = FormerRules::of(&before, &timeouts);
            let later = parse(&new);
            let mut running = timeouts.clone();
            running.follow(&sets_of(&later), at(40));
            let in_time = former.put_into(later.clone(), at(59)).unwrap();
            assert_eq!(sets_of(&in_time)[0].elements, [first, second], "{new}");
            let returned = sets_of(&former.put_into(later, at(70)).unwrap());
            assert_eq!(returned[0].elements, [second], "{new}");
            let mut timeouts = Unconfirmed::new(former, 30, at(40)).into_timeouts();
            timeouts.follow(&returned, at(70));
            let left_s = timeouts.left_s(&returned[0], &second, at(70));
            assert_eq!(left_s, Some(20), "{new}");
            assert!(timeouts.due(&returned, at(89)).is_empty(), "{new}");
            assert_eq!(timeouts.due(&returned, at(90)).len(), 1, "{new}");
        }
    }
}
