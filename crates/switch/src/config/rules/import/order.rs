// SPDX-License-Identifier: Apache-2.0
//! Limits of imported rules that continue.

use std::collections::{BTreeSet, HashMap};

use quietwire_tables::filter::Action;

use crate::config::rules::{RuleSetting, StatementSetting, continuing};

/// Reason why further rules that continue cannot be expressed.
pub(super) const TOO_MANY: &str = "too many rules without a verdict (add accept or drop)";
/// Maximum number of filter rules for one imported rule that continues and compares flags or marks.
const OVERLAPS_MAX: usize = 64;

/// Returns true for statements that a rule can have instead of the one in front of it: only copies and logs of packets.
pub(super) fn are_copies(statements: &StatementSetting) -> bool {
    let copies = StatementSetting {
        log: statements.log,
        log_prefix: statements.log_prefix.clone(),
        dup: statements.dup.clone(),
        ..StatementSetting::default()
    };
    copies == *statements && !statements.is_empty()
}

/// Checks that no packet matches two of the rules that one imported rule became: its statements would apply twice.
///
/// # Errors
/// The reason.
pub(super) fn check_alternatives(rules: &[RuleSetting]) -> Result<(), String> {
    let compares_bits =
        |rule: &RuleSetting| rule.packet.tcp_flags.is_some() || rule.ct_mark.is_some();
    // Alternatives of other fields exclude each other.
    if rules.len() < 2 || !rules.iter().any(compares_bits) {
        return Ok(());
    }
    if rules.len() > OVERLAPS_MAX {
        return Err(format!(
            "a rule without a verdict on flags or marks expands to more than {OVERLAPS_MAX} rules"
        ));
    }
    let mut others = rules;
    while let Some((one, behind)) = others.split_first() {
        others = behind;
        if behind.iter().any(|other| meet(one, other)) {
            return Err(
                "a rule without a verdict on one of several flags or marks cannot be expressed (use one rule for each)"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Returns true if two rules that differ in flags and marks only have a packet in common.
fn meet(one: &RuleSetting, other: &RuleSetting) -> bool {
    let flags = one.packet.tcp_flags.zip(other.packet.tcp_flags);
    let marks = one.ct_mark.zip(other.ct_mark);
    if flags.is_some_and(|(one, other)| (one.value ^ other.value) & one.mask & other.mask != 0)
        || marks.is_some_and(|(one, other)| one.intersection(other).is_none())
    {
        return false;
    }
    let without = |rule: &RuleSetting| {
        let mut rule = rule.clone();
        rule.packet.tcp_flags = None;
        rule.ct_mark = None;
        rule
    };
    without(one) == without(other)
}

/// Returns the place of the first rule that continues beyond the limits. `counts` has the numbers of ports of sets.
pub(super) fn first_beyond(rules: &[RuleSetting], counts: &HashMap<&str, usize>) -> Option<usize> {
    let continues = |(_, rule): &(usize, &RuleSetting)| rule.action == Action::Continue;
    let all = rules.iter().enumerate().filter(continues);
    let (places, own): (Vec<usize>, Vec<&RuleSetting>) = all.unzip();
    let mut ports = BTreeSet::new();
    for rule in &own {
        ports.extend(rule.port_names().map(String::as_str));
    }
    let beyond = continuing::first_beyond(&own, (&ports, &BTreeSet::new()), counts)?;
    places.get(beyond).copied()
}
