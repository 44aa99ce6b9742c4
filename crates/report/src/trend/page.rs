// SPDX-License-Identifier: Apache-2.0
//! The page of a trend: one self-contained HTML file.

use std::path::Path;

use maud::{DOCTYPE, Markup, html};

use super::{Trend, TrendSeries};
use crate::chart::{History, history};
use crate::error::ReportError;
use crate::format;
use crate::page::{head, write};
use crate::summary::value_text;

impl Trend {
    /// Returns the page as text.
    #[must_use]
    pub fn html(&self) -> String {
        page(self).into_string()
    }

    /// Writes the page to a file: all of it, or nothing. An existing page is replaced.
    ///
    /// # Errors
    /// [`ReportError::Write`] if the file is not writable.
    pub fn write_html(&self, path: &Path) -> Result<(), ReportError> {
        write(path, &self.html())
    }
}

fn page(trend: &Trend) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Trend – quietwire"))
            body {
                main {
                    header {
                        p.kicker { "quietwire trend" }
                        h1 { "Trend of " (trend.stores.len()) " stores" }
                        p.meta {
                            "Error rate " (trend.config.error_rate) " for each quantity · margin "
                            (format::percent(trend.config.margin * 100.0))
                        }
                    }
                    (changes(trend))
                    @for series in &trend.series { (of_series(trend, series)) }
                    (stores(trend))
                    footer { "Made by quietwire from the stores of the studies. This file is self-contained." }
                }
            }
        }
    }
}

fn changes(trend: &Trend) -> Markup {
    let all = || {
        trend
            .series
            .iter()
            .flat_map(|one| one.changes.iter().map(move |change| (one, change)))
    };
    html! {
        section.answer {
            h2 { "Changes" }
            @if all().next().is_none() { p { "No quantity changes." } }
            ul {
                @for (series, change) in all() { li { (trend.change_text(series, change)) "." } }
            }
        }
    }
}

fn of_series(trend: &Trend, series: &TrendSeries) -> Markup {
    let title = format!("{} of {}", series.quantity, series.case);
    let values: Vec<Option<f64>> = series.points.iter().map(|point| point.value).collect();
    let labels: Vec<String> = series
        .points
        .iter()
        .map(|point| {
            let name = trend.store_name(point.store);
            match (point.value, &point.reason) {
                (Some(value), _) => format!("{name}: {}", value_text(series.unit, value)),
                (None, reason) => format!("{name}: {}", reason.as_deref().unwrap_or("unknown")),
            }
        })
        .collect();
    let starts = series.changes.iter().filter_map(|change| {
        series
            .points
            .iter()
            .position(|point| point.store == change.store)
    });
    let starts: Vec<usize> = starts.collect();
    let unit = series.unit;
    let format = move |value: f64| value_text(unit, value);
    html! {
        section {
            h2 { (title) }
            p.lead { "Study " (series.study) ", frames of " (series.frame_size) ". A missing value is a gap." }
            figure {
                (history(&History { values: &values, labels: &labels, starts: &starts, title: &title, format: &format }))
            }
            @if let Some(reason) = &series.reason { p.note { (reason) "." } }
        }
    }
}

fn stores(trend: &Trend) -> Markup {
    html! {
        section.record {
            h2 { "Stores" }
            ol {
                @for store in &trend.stores { li { (store.name) ", " (format::date(store.started_unix_ns)) } }
            }
            @if !trend.skipped.is_empty() {
                h3 { "Skipped" }
                ul { @for skipped in &trend.skipped { li { (skipped) } } }
            }
        }
    }
}
