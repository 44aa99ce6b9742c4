// SPDX-License-Identifier: Apache-2.0
//! Imported rules of frames that leave. Before the conversion, `from` of such a rule is the output interface, and `port` the input interface.

use quietwire_tables::filter::{Action, MssLimit};

use crate::config::rules::{Direction, RuleSetting, StatementSetting};

/// Returns true for a rule that compares the output interface, or limits segments to the MTU of the path.
fn leaves(rule: &RuleSetting) -> bool {
    rule.is_out() || rule.statements.set_mss == Some(MssLimit::RtMtu)
}

/// Returns true for a rule that limits segments and does nothing else, and compares no field that rules set.
fn only_limits_segments(rule: &RuleSetting) -> bool {
    let limit = StatementSetting {
        set_mss: rule.statements.set_mss,
        ..StatementSetting::default()
    };
    limit == rule.statements && !limit.is_empty() && rule.packet.dscp.is_none()
}

/// Makes a rule one of frames that leave.
pub(super) fn convert(rule: &mut RuleSetting) {
    std::mem::swap(&mut rule.port, &mut rule.from);
    rule.direction = Some(Direction::Out);
}

/// Converts the rules in front of all verdicts that limit segments: all frames of these rules leave later, or are dropped. Returns false,
/// and changes nothing, if other rules have to be converted too.
pub(super) fn convert_front(rules: &mut [RuleSetting]) -> bool {
    let decides = |rule: &RuleSetting| rule.action != Action::Continue;
    let end = rules.iter().position(decides).unwrap_or(rules.len());
    let is_alone = |(place, rule): (usize, &RuleSetting)| {
        !leaves(rule) || place < end && only_limits_segments(rule)
    };
    let are_alone = rules.iter().enumerate().all(is_alone);
    for rule in rules.iter_mut().filter(|rule| are_alone && leaves(rule)) {
        convert(rule);
    }
    are_alone
}
