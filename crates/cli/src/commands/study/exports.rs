// SPDX-License-Identifier: Apache-2.0
//! Results as files for other programs: Markdown, CSV and pictures.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use quietwire_report::{Report, markdown};

use super::pictures::{Browser, browser};
use crate::output::{check_place, make_directory, make_parent, write_file};
use crate::text::say;

/// Options of files for other programs.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Write the results as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write every trial as a line of CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write frames, latency and cycles over the time of every trial as CSV.
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
    /// Write every chart of the page as SVG to this directory, which is created if missing.
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
    /// Write every chart of the page as PNG to this directory, which is created if missing. Requires Chromium.
    #[arg(long, value_name = "DIRECTORY")]
    png: Option<PathBuf>,
    /// Write each search of NDR and PDR as a test of FD.io CSIT (JSON) to this directory, which is created if missing.
    #[arg(long, value_name = "DIRECTORY")]
    csit: Option<PathBuf>,
}

/// Name of a file that a directory of charts may contain.
const A_CHART: &str = "01-chart.svg";
/// Name of a file that a directory of pictures may contain.
const A_PICTURE: &str = "01-chart.png";
/// Name of a file that a directory of tests may contain.
const A_TEST: &str = "64b-ndrpdr-1.json";

impl ExportArgs {
    /// Refuses paths that cannot be written, and pictures that cannot be rendered.
    pub(super) fn check(&self) -> Result<()> {
        for (option, path) in self.files() {
            check_place(option, path)?;
        }
        if let Some(directory) = &self.svg {
            check_place("--svg", &directory.join(A_CHART))?;
        }
        if let Some(directory) = &self.csit {
            check_place("--csit", &directory.join(A_TEST))?;
        }
        if let Some(directory) = &self.png {
            check_place("--png", &directory.join(A_PICTURE))?;
            browser()?;
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [
            ("--markdown", &self.markdown),
            ("--csv", &self.csv),
            ("--series", &self.series),
        ];
        all.into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// Writes the files.
    pub(super) fn write(&self, report: &Report<'_>) -> Result<()> {
        for (option, path) in self.files() {
            let text = match option {
                "--markdown" => markdown(report.summary()),
                "--series" => report.series_csv(),
                _ => report.csv(),
            };
            make_parent(option, path)?;
            write_file(option, path, text)?;
            say(format!(
                "{}: {}",
                option.trim_start_matches('-'),
                path.display()
            ));
        }
        if let Some(directory) = &self.svg {
            make_directory("--svg", directory)?;
            let figures = report.figures();
            for figure in &figures {
                write_file("--svg", &directory.join(&figure.file_name), &figure.svg)?;
            }
            let count = figures.len();
            say(format!("charts: {count} in {}", directory.display()));
        }
        if let Some(directory) = &self.png {
            make_directory("--png", directory)?;
            let mut browser = Browser::start(&browser()?)?;
            let figures = report.figures();
            for figure in &figures {
                let picture = browser.render(&figure.svg)?;
                let name = Path::new(&figure.file_name).with_extension("png");
                write_file("--png", &directory.join(name), picture)?;
            }
            let count = figures.len();
            say(format!("pictures: {count} in {}", directory.display()));
        }
        if let Some(directory) = &self.csit {
            make_directory("--csit", directory)?;
            let tests = report.csit()?;
            for test in &tests {
                let text = serde_json::to_string_pretty(&test.document)?;
                write_file("--csit", &directory.join(&test.file_name), text)?;
            }
            say(format!(
                "tests of CSIT: {} in {}",
                tests.len(),
                directory.display()
            ));
        }
        Ok(())
    }
}
