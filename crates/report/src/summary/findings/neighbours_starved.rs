// SPDX-License-Identifier: Apache-2.0
//! Neighbours hardly ran, so the case shows little about isolation.

use super::super::verdicts::STARVED;
use super::data::CaseData;
use super::finding::MachineFinding;
use crate::format;

/// Reports neighbours without CPU time.
pub(super) fn neighbours_starved(data: &CaseData<'_>) -> Option<MachineFinding> {
    let share = data.neighbour_share.filter(|share| *share < STARVED)?;
    let text = format!(
        "The neighbours got only {} of their CPUs, so this case shows little about isolation.",
        format::percent(share * 100.0)
    );
    let cure = "give the neighbours CPUs on which they can run, or kinds of work that do not wait";
    Some(MachineFinding::new(
        "neighbours-starved",
        data.case,
        text,
        cure,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::data;
    use super::*;

    #[test]
    fn starved_neighbours_are_reported_and_busy_or_absent_ones_are_not() {
        for (share, is_found) in [(Some(0.042), true), (Some(0.9), false), (None, false)] {
            let mut data = data(&[]);
            data.neighbour_share = share;
            let finding = neighbours_starved(&data);
            assert_eq!(finding.is_some(), is_found);
            if let Some(finding) = finding {
                let text = finding.text.replace(format::THIN, " ");
                assert!(
                    text.starts_with("The neighbours got only 4.20 % of their CPUs"),
                    "{text}"
                );
            }
        }
    }
}
