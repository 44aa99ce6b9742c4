// SPDX-License-Identifier: Apache-2.0
//! Reports of results: a self-contained HTML page, a JSON document, and a table for a terminal.
//!
//! Belongs here: the figures, computed from the content of a store ([`Summary`]), and their presentation. A page can be
//! generated again from the store alone, on any machine.
//!
//! Does not belong here: measurements, and any information that is not in the results.

// Stores of other machines: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod badge;
mod chart;
mod comparison;
mod courses;
mod csit;
mod csv;
mod error;
mod figures;
mod format;
mod junit;
mod markdown;
mod method_table;
mod methods;
mod page;
mod summary;
mod table;
mod tenants;
mod terminal_table;
#[cfg(test)]
mod tests;
mod trend;
mod unfinished;

use std::path::Path;

use quietwire_study::StudyResults;

pub use badge::badge;
pub use comparison::{ComparedQuantity, Comparison, ComparisonConfig, Difference, Finding};
pub use courses::series_csv;
pub use csit::{CsitTest, csit};
pub use csv::csv;
pub use error::ReportError;
pub use figures::Figure;
pub use junit::junit;
pub use markdown::markdown;
pub use page::script_source;
pub use page::words::mix_text;
pub use summary::{
    Applications, Baselines, CaseSummary, CpuRate, CpuShare, CycleSource, CyclesPerFrame,
    Efficiency, FunctionCost, GoalSummary, Health, HighestLoad, LatencyAtLoad, LikeForLike, Limit,
    Limiter, LossPlaces, LossPoint, LossesAtRate, MachineFinding, MeasuredRatios, MethodFigures,
    MethodResult, NeighbourShare, ObjectiveVerdict, OwnPart, PercentileValue, PublishedRow,
    RankedCase, Ranking, RepeatedRates, RoundTrip, SearchOutcome, SizeSummary, Spread, State,
    Summary, SweepPoint, TenantsAt, TenantsFound, TenantsSummary, ThreadShare, TrialLimit,
    TrialProfile, UnavailableCase,
};
pub use table::text_table;
pub use terminal_table::TerminalTable;
pub use trend::{
    Trend, TrendChange, TrendConfig, TrendPoint, TrendSeries, TrendStore, TrendStores,
};
pub use unfinished::unfinished_text;

/// Version of the JSON document's shape.
pub const JSON_SCHEMA: u32 = 1;

/// Results of a study with their summary, for all forms of a report.
#[derive(Debug)]
pub struct Report<'a> {
    results: &'a StudyResults,
    summary: Summary,
}

impl<'a> Report<'a> {
    /// Computes the summary. Objectives with a baseline are judged by its results.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn new(results: &'a StudyResults, baselines: &Baselines) -> Result<Self, ReportError> {
        let summary = Summary::with_baselines(results, baselines)?;
        Ok(Self { results, summary })
    }

    /// Returns the summary.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the summary alone.
    #[must_use]
    pub fn into_summary(self) -> Summary {
        self.summary
    }

    /// Returns the page as text.
    #[must_use]
    pub fn html(&self) -> String {
        page::page(self.results, &self.summary).into_string()
    }

    /// Returns every chart of the page as a picture of its own, in the order of the page.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        figures::figures(&self.html(), page::STYLE)
    }

    /// Returns every trial as a line of CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        csv(self.results)
    }

    /// Returns the courses of all trials as CSV, a line for each interval.
    #[must_use]
    pub fn series_csv(&self) -> String {
        series_csv(self.results)
    }

    /// Returns the searches for NDR and PDR as tests of FD.io CSIT.
    ///
    /// # Errors
    /// [`ReportError::Histogram`] if a stored histogram is damaged.
    pub fn csit(&self) -> Result<Vec<CsitTest>, ReportError> {
        csit(self.results, &self.summary)
    }

    /// Writes the page to a file: all of it, or nothing. An existing page is replaced.
    ///
    /// # Errors
    /// [`ReportError::Write`] if the file is not writable.
    pub fn write_html(&self, path: &Path) -> Result<(), ReportError> {
        page::write(path, &self.html())
    }

    /// Returns the results as one document for programs: the computed figures, and the machine and software. The store has every trial
    /// with all its data.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let results = self.results;
        let runs: Vec<_> = results
            .runs
            .iter()
            .map(|run| {
                serde_json::json!({
                    "started_unix_ns": run.started_unix_ns,
                    "machine": run.machine,
                    "versions": run.versions,
                    "resumed_despite": run.resumed_despite,
                })
            })
            .collect();
        let last = results.entries.last();
        serde_json::json!({
            "schema": JSON_SCHEMA,
            "study_file_sha256": results.file_sha256,
            "runs": runs,
            "summary": self.summary,
            "isolation": last.and_then(|entry| entry.facts.isolation.as_ref()),
            "calibration_missing": last.map(|entry| &entry.facts.calibration_missing[..]).unwrap_or_default(),
            "loss_accounts": loss_accounts(results),
            "courses": courses::documents(results),
            "consoles": results.consoles,
            "unfinished": unfinished::unfinished_json(results),
        })
    }
}

/// Writes the page to a file, without baselines: all of it, or nothing. An existing page is replaced.
///
/// # Errors
/// [`ReportError`]: a stored histogram is damaged, or the file is not writable.
pub fn write_html(results: &StudyResults, path: &Path) -> Result<(), ReportError> {
    Report::new(results, &Baselines::new())?.write_html(path)
}

/// Returns the page as text, without baselines.
///
/// # Errors
/// [`ReportError::Histogram`] if a stored histogram is damaged.
pub fn html(results: &StudyResults) -> Result<String, ReportError> {
    Ok(Report::new(results, &Baselines::new())?.html())
}

/// Returns the document for programs, without baselines.
///
/// # Errors
/// [`ReportError::Histogram`] if a stored histogram is damaged.
pub fn json(results: &StudyResults) -> Result<serde_json::Value, ReportError> {
    Ok(Report::new(results, &Baselines::new())?.json())
}

/// Returns the loss account of each trial that lost frames or whose counters differ.
fn loss_accounts(results: &StudyResults) -> Vec<serde_json::Value> {
    let accounts = results.trials().filter_map(|(step, trial)| {
        let account = trial.result.loss_places()?;
        let is_reported = account.lost_frames > 0 || !account.differences.is_empty();
        is_reported.then(|| {
            serde_json::json!({
                "case": step.case_name,
                "round": step.round,
                "frame_size": step.frame_size,
                "step": step.kind.to_string(),
                "sequence": trial.sequence,
                "is_valid": trial.result.is_valid(),
                "account": account,
            })
        })
    });
    accounts.collect()
}
