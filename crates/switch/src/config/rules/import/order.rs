// SPDX-License-Identifier: Apache-2.0
//! Limits of imported rules that continue.

use std::collections::{BTreeSet, HashMap};

use quietwire_tables::connections::MarkBits;
use quietwire_tables::filter::{Action, TcpFlags};

use crate::config::rules::{RuleSetting, StatementSetting, continuing};

/// Reason why further rules that continue cannot be expressed.
pub(super) const TOO_MANY: &str = "too many rules without a verdict (add accept or drop)";
/// Maximum number of different flags and marks that the alternatives of a rule without a verdict compare.
const BITS_MAX: usize = 64;

/// Flags and mark that a rule compares.
type Bits = (Option<TcpFlags>, Option<MarkBits>);

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
    // Alternatives of other fields exclude each other.
    let mut all: Vec<Bits> = Vec::new();
    for rule in rules {
        let own = (rule.packet.tcp_flags, rule.ct_mark);
        if all.contains(&own) {
            continue;
        }
        if all.len() == BITS_MAX {
            return Err(format!(
                "a rule without a verdict on more than {BITS_MAX} flags and marks"
            ));
        }
        if all.iter().any(|other| meet(own, *other)) {
            return Err(
                "a rule without a verdict on one of several flags or marks cannot be expressed (use one rule for each)"
                    .to_owned(),
            );
        }
        all.push(own);
    }
    Ok(())
}

/// Returns true if a packet can have both.
fn meet(one: Bits, other: Bits) -> bool {
    let (flags, marks) = (one.0.zip(other.0), one.1.zip(other.1));
    let is_excluded = flags
        .is_some_and(|(one, other)| (one.value ^ other.value) & one.mask & other.mask != 0)
        || marks.is_some_and(|(one, other)| one.intersection(other).is_none());
    !is_excluded
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
