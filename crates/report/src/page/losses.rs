// SPDX-License-Identifier: Apache-2.0
//! Lost frames by place, from the counters of the device.

use maud::{Markup, html};

use crate::format::{grouped, percent};
use crate::summary::{LossPlaces, SizeSummary};

/// Number of places of a case that the page lists. The JSON document has all of them.
const PLACES_MAX: usize = 8;

/// Renders the section. Returns nothing if no device provides counters.
pub(super) fn losses(size: &SizeSummary) -> Markup {
    let cases = size.cases.iter();
    let reported: Vec<(&str, &LossPlaces)> = cases
        .filter_map(|case| Some((case.name.as_str(), case.losses.as_ref()?)))
        .collect();
    if reported.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Lost frames by place" }
            p.lead { "From the counters of the device before and after each valid trial, compared with those of the tester. The frames of all places add up to the lost frames." }
            div.scroll role="region" tabindex="0" aria-label="Lost frames by place" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th scope="col" { "Place and reason" }
                            th.num scope="col" { "Frames" }
                            th.num scope="col" { "Share of loss" }
                        }
                    }
                    tbody {
                        @for (case, places) in &reported {
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
            @for (case, places) in &reported { (notes(case, places)) }
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
            0 => "unknown",
            _ => "no frame was lost",
        };
        rows.push((what.to_owned(), 0));
    }
    rows
}

/// Returns the limitations of a case's figures.
fn notes(case: &str, places: &LossPlaces) -> Markup {
    let account = &places.account;
    let mut notes = Vec::new();
    if let Some(why) = &places.unavailable_reason {
        notes.push(format!(
            "{} of {} trials have no loss data: {why}.",
            places.trials_without,
            places.trials.saturating_add(places.trials_without)
        ));
    }
    for (element, why) in &account.without_counters {
        notes.push(format!("{element} has no counters: {why}."));
    }
    if account.is_shared_out {
        notes.push(
            "The counters include losses of the warm-up, so the frames of each place are estimated from its share."
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
