// SPDX-License-Identifier: Apache-2.0
//! A forwarding thread moved between CPUs.

use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Migrations per second of a thread that is not pinned.
const PER_SECOND_MIN: f64 = 0.5;

/// Reports the forwarding thread that moved most often.
pub(super) fn migrated(data: &CaseData<'_>) -> Option<MachineFinding> {
    let threads = data.forwarding().into_iter();
    let moved = threads.filter_map(|thread| Some((thread.migrations?, thread)));
    let (migrations, thread) = moved.max_by_key(|(migrations, _)| *migrations)?;
    let per_second = thread.per_second(migrations);
    if per_second < PER_SECOND_MIN {
        return None;
    }
    let text = format!(
        "Forwarding thread {} moved to another CPU {} times ({} per second), each time to cold caches.",
        thread.name,
        format::grouped(migrations),
        format::number(per_second)
    );
    let cure = "pin the thread (`isolation = \"pinned\"` in the case, or `--forwarding-cpus` of the switch)";
    Some(MachineFinding::new("migrated", data.case, text, cure))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{activity, data, forwarding};
    use super::*;

    #[test]
    fn a_thread_that_moves_is_reported_and_a_pinned_one_is_not() {
        for (migrations, is_found) in [(Some(40), true), (Some(2), false), (None, false)] {
            let mut thread = forwarding("qw-fwd-1", 1);
            thread.migrations = migrations;
            let found = activity(10.0, vec![thread]);
            let finding = migrated(&data(&[&found]));
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                assert!(
                    finding.text.contains("40 times (4.00 per second)"),
                    "{}",
                    finding.text
                );
            }
        }
    }
}
