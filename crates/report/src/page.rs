// SPDX-License-Identifier: Apache-2.0
//! The page: one self-contained HTML file without network access. Its one script adds hover and zoom; the page is complete without it.

pub(crate) mod application;
mod by_size;
mod courses;
mod cpu;
mod efficiency;
mod findings;
mod glance;
mod latency;
mod load;
mod load_variation;
mod losses;
mod method_tables;
mod places;
pub(crate) mod published;
pub(crate) mod ranking;
mod record;
mod searches;
mod throughput;
mod verdicts;
pub(crate) mod words;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use quietwire_base::durable;
use quietwire_study::StudyResults;
use sha2::{Digest, Sha256};

use crate::error::ReportError;
use crate::format;
use crate::summary::{SizeSummary, Summary};

/// Style of the page and of its charts.
pub(crate) const STYLE: &str = include_str!("page/style.css");

/// Writes a page to a file: all of it, or nothing.
pub(crate) fn write(path: &Path, page: &str) -> Result<(), ReportError> {
    durable::replace(path, page.as_bytes(), 0o666).map_err(|error| ReportError::Write {
        path: path.to_owned(),
        error,
    })
}

/// Script of the page: hover and zoom of charts.
pub(crate) const SCRIPT: &str = include_str!("page/script.js");

/// Returns the source of the page's script for a Content-Security-Policy (CSP Level 3, section 2.3.1): `'sha256-…'`. A server that sends
/// the page with a policy of its own has to allow it.
#[must_use]
pub fn script_source() -> String {
    let digest: [u8; 32] = Sha256::digest(SCRIPT.as_bytes()).into();
    format!("'sha256-{}'", STANDARD.encode(digest))
}

/// Renders the head of a page. Its policy forbids everything but the style and the script.
pub(crate) fn head(title: &str) -> Markup {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {}; base-uri 'none'; form-action 'none'",
        script_source()
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) }
            style { (PreEscaped(STYLE)) }
            script { (PreEscaped(SCRIPT)) }
        }
    }
}

pub(crate) fn page(results: &StudyResults, summary: &Summary) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{} – quietwire", summary.name)))
            body {
                main {
                    (header(results, summary))
                    (lead(summary))
                    (verdicts::verdicts(summary))
                    (findings::findings(summary))
                    (by_size::by_size(summary))
                    @for size in &summary.sizes {
                        (of_size(results, summary, size))
                    }
                    (record::record(results, summary))
                    footer { "Made by quietwire from the study's store. This file is self-contained." }
                }
            }
        }
    }
}

fn header(results: &StudyResults, summary: &Summary) -> Markup {
    let is_one = |case: &&quietwire_study::Case| case.tenants.is_none() || results.was_tried(case);
    let cases = results.file.cases.iter().filter(is_one).count();
    html! {
        header {
            p.kicker { "quietwire study · " (summary.name) }
            h1 { (summary.title) }
            p.meta {
                (format::date(summary.started_unix_ns)) " · "
                (count(cases, "case", "cases")) " in " (count(summary.rounds as usize, "round", "rounds")) " · "
                (count(summary.trials, "trial", "trials")) " in " (format::duration_s(summary.running_time_s))
            }
        }
        @if summary.is_simulated {
            p.warning role="note" { "Simulated: all figures are computed from a model of a device, and nothing was measured." }
        }
        @if summary.is_quick {
            p.warning role="note" { (words::QUICK) }
        }
        @if let Some(note) = words::incomplete(&summary.state) {
            p.warning role="note" { (note) }
        }
    }
}

/// Renders what the partition of the machine prevents, before everything else: the comparison of the cases that differ in nothing but the
/// neighbours. Returns nothing without such cases.
fn lead(summary: &Summary) -> Markup {
    let has_sizes = summary.sizes.len() > 1;
    html! {
        @for size in &summary.sizes {
            @let sentences = words::like_for_like(size);
            @if !sentences.is_empty() {
                p.claim {
                    @if has_sizes { "With " (words::frames(size)) ": " }
                    (words::marked(&sentences.join(" ")))
                }
            }
        }
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    let number = number as u64;
    format!(
        "{} {}",
        format::grouped(number),
        if number == 1 { one } else { many }
    )
}

fn of_size(results: &StudyResults, summary: &Summary, size: &SizeSummary) -> Markup {
    let has_sizes = summary.sizes.len() > 1;
    html! {
        @if has_sizes {
            h2.size { "With " (words::frames(size)) }
        }
        section.answer {
            h2 { "Result" }
            p { (words::marked(&words::answer(summary, size).join(" "))) }
            @if words::has_many_cases(size) { (glance::glance(size)) }
            (cases(size))
            (unavailable(summary))
            @for warning in words::warnings(size) {
                p.warning role="note" { (warning) }
            }
        }
        @if throughput::is_wanted(results) {
            (throughput::throughput(results, size))
            (ranking::rankings(size))
        } @else {
            (throughput::cost(size))
        }
        (application::applications(size))
        @if results.file.latency.is_some() {
            (latency::round_trip(size, results.file.tester.idle))
        }
        @if throughput::is_wanted(results) {
            (throughput::loss(size))
            (searches::searches(results, size))
        }
        (courses::courses(results, size))
        (load::load(size))
        (latency::percentiles(size))
        (latency::variation(size))
        (load_variation::by_load(size))
        (method_tables::method_tables(size))
        (cpu::heat_map(results, size))
        (places::places(results, size))
        (cpu::neighbours(size))
        (published::published(results, size))
        (losses::losses(size))
        (record::health(size))
    }
}

/// Renders the cases that were not run, with reasons.
fn unavailable(summary: &Summary) -> Markup {
    html! {
        @if !summary.unavailable.is_empty() {
            h3 { "Unavailable on this machine" }
            p.lead { "These cases were not run." }
            dl.cases {
                @for case in &summary.unavailable {
                    div {
                        dt { (case.name) }
                        dd { (case.description) ". " b { (words::left_out(case)) ": " } (case.reason) "." }
                    }
                }
            }
        }
    }
}

/// Renders the descriptions of the cases.
fn cases(size: &SizeSummary) -> Markup {
    html! {
        dl.cases {
            @for (index, case) in size.cases.iter().enumerate() {
                div {
                    dt { span class={ "swatch " (crate::chart::colour(index)) } {} (case.name) }
                    dd { (case.description) }
                }
            }
        }
    }
}
