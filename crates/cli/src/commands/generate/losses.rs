// SPDX-License-Identifier: Apache-2.0
//! The loss account as text.

use quietwire_tester::TrialResult;
use quietwire_tester::account::{Accounted, LossAccount};

use crate::text::fold;

/// Column of the figures.
pub(super) const INDENT: usize = 11;

/// Formats one line per place. Empty if the device's counters were not requested.
pub(super) fn loss_lines(result: &TrialResult, width: usize) -> Vec<String> {
    match &result.loss_account {
        None => Vec::new(),
        Some(Accounted::Unavailable(why)) => {
            let line = format!("{:INDENT$}unknown: {why}", "lost at");
            vec![fold(&line, width, INDENT)]
        }
        Some(Accounted::Account(account)) => lines_of(account, width),
    }
}

fn lines_of(account: &LossAccount, width: usize) -> Vec<String> {
    /// Column of the names of places.
    const PLACE: usize = INDENT + 23;
    let mut lines: Vec<String> = Vec::new();
    let mut add = |head: &str, frames: u64, what: &str| {
        if frames > 0 {
            let line = format!("{head:INDENT$}{frames:>14} frames  {what}");
            lines.push(fold(&line, width, PLACE));
        }
    };
    let mut head = "lost at";
    let places = account.places.iter();
    let places = places.map(|place| (place.frames, place.to_string()));
    let others = [
        (account.tester_frames, "the tester".to_owned()),
        (account.unknown_frames, "an unknown place".to_owned()),
    ];
    for (frames, what) in places.chain(others).filter(|(frames, _)| *frames > 0) {
        add(std::mem::take(&mut head), frames, &what);
    }
    let before = if account.is_shared_out {
        "lost in the warm-up; the counters include them, so each place has its share"
    } else {
        "lost in the warm-up, not included above"
    };
    add("before", account.lost_before_frames, before);
    let mut head = "differ";
    for difference in &account.differences {
        let what = difference.to_string();
        add(std::mem::take(&mut head), difference.frames, &what);
    }
    for (element, why) in &account.without_counters {
        let line = format!("{:INDENT$}{element} has no counters: {why}", "");
        lines.push(fold(&line, width, INDENT));
    }
    lines
}

#[cfg(test)]
mod tests {
    use quietwire_tester::account::{Difference, DifferenceKind, LossPlace};

    use super::*;

    #[test]
    fn places_are_listed_one_a_line() {
        let place = |port: &str, reason: &str, frames| LossPlace {
            element: "switch".to_owned(),
            port: port.to_owned(),
            reason: reason.to_owned(),
            frames,
        };
        let account = LossAccount {
            lost_frames: 1206,
            places: vec![place("p0", "denied", 1000), place("p1", "not_sent", 200)],
            unknown_frames: 6,
            lost_before_frames: 7,
            differences: vec![Difference {
                element: "switch".to_owned(),
                port: "p1".to_owned(),
                kind: DifferenceKind::MoreSent,
                frames: 3,
            }],
            ..LossAccount::default()
        };
        let expected = "\
lost at              1000 frames  switch p0: denied
                      200 frames  switch p1: received, neither sent nor counted
                                  as dropped
                        6 frames  an unknown place
before                  7 frames  lost in the warm-up, not included above
differ                  3 frames  switch p1: sent and dropped more than it
                                  received";
        assert_eq!(lines_of(&account, 80).join("\n"), expected);
        assert!(lines_of(&LossAccount::default(), 80).is_empty());
    }
}
