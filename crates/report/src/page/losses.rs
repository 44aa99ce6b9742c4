// SPDX-License-Identifier: Apache-2.0
//! Where frames were lost: the device's own account.

use maud::{Markup, html};

use crate::format::{grouped, percent};
use crate::summary::{LossPlaces, SizeSummary};

/// Places of a case that the page lists; the others are in the JSON document.
const PLACES_MAX: usize = 8;

/// Only if devices told their counters.
pub(super) fn losses(size: &SizeSummary) -> Markup {
    let cases = size.cases.iter();
    let told: Vec<(&str, &LossPlaces)> = cases
        .filter_map(|case| Some((case.name.as_str(), case.losses.as_ref()?)))
        .collect();
    if told.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Where frames were lost" }
            p.lead { "From the device's counters before and after each valid trial, reconciled with the tester's. The frames of all places add up to the frames lost." }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th scope="col" { "Place and reason" }
                            th.num scope="col" { "Frames" }
                            th.num scope="col" { "Of the loss" }
                        }
                    }
                    tbody {
                        @for (case, places) in &told {
                            @let rows = rows(places);
                            @for (index, (what, frames)) in rows.iter().enumerate() {
                                tr {
                                    @if index == 0 { th scope="rowgroup" rowspan=(rows.len()) { (case) } }
                                    td { (what) }
                                    td.num { (grouped(*frames)) }
                                    td.num { (share(*frames, places.account.lost_frames)) }
                                }
                            }
                        }
                    }
                }
            }
            @for (case, places) in &told { (notes(case, places)) }
        }
    }
}

fn share(frames: u64, lost_frames: u64) -> String {
    if lost_frames == 0 {
        return "–".to_owned();
    }
    percent(frames as f64 / lost_frames as f64 * 100.0)
}

fn rows(places: &LossPlaces) -> Vec<(String, u64)> {
    let account = &places.account;
    let listed = account.places.iter().take(PLACES_MAX);
    let mut rows: Vec<(String, u64)> = listed
        .map(|place| (place.to_string(), place.frames))
        .collect();
    let others = account.places.iter().skip(PLACES_MAX);
    for (what, frames) in [
        ("other places", others.map(|place| place.frames).sum()),
        ("the tester", account.tester_frames),
        ("an unknown place", account.unknown_frames),
    ] {
        if frames > 0 {
            rows.push((what.to_owned(), frames));
        }
    }
    if rows.is_empty() {
        let what = match places.trials {
            0 => "not known",
            _ => "no frame was lost",
        };
        rows.push((what.to_owned(), 0));
    }
    rows
}

/// What the figures of a case do not say.
fn notes(case: &str, places: &LossPlaces) -> Markup {
    let account = &places.account;
    let mut notes = Vec::new();
    if let Some(why) = &places.why_without {
        notes.push(format!(
            "{} of {} trials have no account: {why}.",
            places.trials_without,
            places.trials + places.trials_without
        ));
    }
    for (element, why) in &account.without_counters {
        notes.push(format!("{element} has no counters: {why}."));
    }
    if account.is_shared_out {
        notes.push(
            "Counters hold losses of the warm-up as well: the frames of each place are its share."
                .to_owned(),
        );
    }
    for difference in &account.differences {
        let frames = grouped(difference.frames);
        notes.push(format!("Counters differ by {frames} frames: {difference}."));
    }
    html! {
        @if !notes.is_empty() { p.note { b { (case) } " " (notes.join(" ")) } }
    }
}
