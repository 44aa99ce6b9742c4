// SPDX-License-Identifier: Apache-2.0
//! The verdicts of a study as a badge: a small SVG picture.

use quietwire_study::Verdict;

use crate::junit::escaped;
use crate::summary::Summary;

/// Width of a character of the badge's font, pixels.
const CHARACTER: usize = 7;
/// Space around a text, pixels.
const PADDING: usize = 12;

/// Returns a badge with the name of the study and the worst verdict: *fail*, then *unknown*, then *pass*.
#[must_use]
pub fn badge(summary: &Summary) -> String {
    let (text, colour) = state(summary);
    let name = &summary.name;
    let width = |text: &str| {
        let characters = text.chars().count().saturating_mul(CHARACTER);
        characters.saturating_add(PADDING)
    };
    let (left, right) = (width(name), width(&text));
    let whole = left.saturating_add(right);
    let (name, text) = (escaped(name), escaped(&text));
    let (middle, second) = (left / 2, left.saturating_add(right / 2));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"20\" role=\"img\" aria-label=\"{name}: {text}\">\n\
         <title>{name}: {text}</title>\n\
         <rect width=\"{left}\" height=\"20\" fill=\"#444c55\"/>\n\
         <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{colour}\"/>\n\
         <g fill=\"#ffffff\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"11\" text-anchor=\"middle\">\n\
         <text x=\"{middle}\" y=\"14\">{name}</text>\n\
         <text x=\"{second}\" y=\"14\">{text}</text>\n\
         </g>\n</svg>\n"
    )
}

/// Returns the text of the verdicts and its colour.
fn state(summary: &Summary) -> (String, &'static str) {
    let all = summary.verdicts.len();
    let count = |verdict| summary.objectives_with(verdict).count();
    let (fail, unknown) = (count(Verdict::Fail), count(Verdict::Unknown));
    match (all, fail, unknown) {
        (0, ..) => ("no objectives".to_owned(), "#6b7480"),
        (_, 0, 0) => (format!("pass {all} of {all}"), "#00704f"),
        (_, 0, unknown) => (format!("unknown {unknown} of {all}"), "#7d5a00"),
        (_, fail, _) => (format!("fail {fail} of {all}"), "#a83200"),
    }
}
