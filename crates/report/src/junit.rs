// SPDX-License-Identifier: Apache-2.0
//! Verdicts as JUnit XML, which continuous integration systems read.

use std::fmt::Write as _;

use quietwire_study::Verdict;

use crate::format;
use crate::summary::{ObjectiveVerdict, Summary};

/// Returns the verdicts as JUnit XML: one test case for each objective and frame size. *Fail* is a failure, and *unknown* an error, or
/// skipped with `allow_unknown`.
#[must_use]
pub fn junit(summary: &Summary, allow_unknown: bool) -> String {
    let unknown = summary.objectives_with(Verdict::Unknown).count();
    let (errors, skipped) = if allow_unknown {
        (0, unknown)
    } else {
        (unknown, 0)
    };
    let name = escaped(&summary.name);
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{errors}\" skipped=\"{skipped}\"",
        summary.verdicts.len(),
        summary.objectives_with(Verdict::Fail).count()
    );
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"{name}\" {counts} time=\"{:.3}\">\n",
        summary.running_time_s
    );
    for verdict in &summary.verdicts {
        // Writing to a text cannot fail.
        let _ = writeln!(
            xml,
            "    <testcase classname=\"quietwire.{name}\" name=\"{}\">",
            escaped(&format!("{} ({})", verdict.name, verdict.frames_text()))
        );
        if let Some(element) = element(verdict.judgement.verdict, allow_unknown) {
            let message = escaped(&message(verdict));
            let _ = writeln!(xml, "      <{element} message=\"{message}\"/>");
        }
        xml.push_str("    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn element(verdict: Verdict, allow_unknown: bool) -> Option<&'static str> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Fail => Some("failure"),
        Verdict::Unknown if allow_unknown => Some("skipped"),
        Verdict::Unknown => Some("error"),
    }
}

fn message(verdict: &ObjectiveVerdict) -> String {
    if let Some(reason) = &verdict.judgement.reason {
        return format!("unknown: {reason}");
    }
    format!(
        "{} is {}, and the bound is {}",
        verdict.quantity,
        verdict.found_text(),
        verdict.bound_text()
    )
    .replace(format::THIN, " ")
}

/// Escapes a text for XML 1.0, which has no control characters except tab and line ends.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}
