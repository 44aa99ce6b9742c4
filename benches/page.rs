// SPDX-License-Identifier: Apache-2.0
//! Goals of stored runs in one table, and docs/performance.md and a part of docs/ports.md from the runs in docs/performance/runs.
//!
//! `cargo bench -p quietwire --bench page -- goals DIR` prints the goals of all runs in a directory (an absolute path: cargo
//! starts benchmarks in crates/cli). `-- write` judges the stored runs by the current goals, and writes the parts of both
//! pages between markers, and the figures; `make performance-page` runs it. `-- take DIR` stores the runs of a directory
//! first, over those of the same benchmarks, and so the reports of studies (`quietwire study report --json`).
//! `tests/performance_page.rs` checks that the pages match the stored runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::goals::GOALS;
use common::record::Run;
use common::{plots, tables};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        // Without arguments, as `cargo bench` starts it among the others.
        [] => Ok(()),
        ["goals", directory] => print_goals(Path::new(directory)),
        ["write"] => write(),
        ["take", directory] => take(Path::new(directory)).and_then(|()| write()),
        _ => Err(format!(
            "page: unknown arguments '{}' (use `goals DIR`, `write` or `take DIR`)",
            words.join(" ")
        )),
    };
    if let Err(message) = done {
        eprintln!("{message}");
        std::process::exit(2);
    }
}

fn print_goals(directory: &Path) -> Result<(), String> {
    let stored = tables::stored(directory)?;
    let runs: Vec<&Run> = stored.runs.iter().map(|(_, run)| run).collect();
    println!("{}", tables::goals(&runs));
    Ok(())
}

/// Stores the runs and the reports of studies of a directory for the page. Of several runs of a benchmark, the latest remains.
fn take(directory: &Path) -> Result<(), String> {
    let mut stored = tables::stored(directory)?;
    if stored.runs.is_empty() && stored.studies.is_empty() {
        return Err(format!("{}: no runs", directory.display()));
    }
    stored
        .runs
        .sort_by(|(_, one), (_, other)| one.date.cmp(&other.date));
    for (file, run) in stored.runs {
        // A part of a path.
        let is_name = |octet: u8| octet.is_ascii_lowercase() || octet == b'_';
        if run.bench.is_empty() || !run.bench.bytes().all(is_name) {
            return Err(format!("{file}: '{}' is no benchmark", run.bench));
        }
        let path = stored_at(&run.bench);
        run.write(&path).map_err(|error| at(&path, &error))?;
    }
    let studies = &mut stored.studies;
    studies.sort_by_key(|(_, study)| study.summary.started_unix_ns);
    for (file, study) in studies {
        // The name is also a part of a path.
        study.check().map_err(|why| format!("{file}: {why}"))?;
        if study.date.is_empty() {
            study.date = date(study.summary.started_unix_ns);
        }
        let path = stored_at(&study.summary.name);
        study.write(&path).map_err(|error| at(&path, &error))?;
    }
    Ok(())
}

/// Returns the file of a benchmark or study among the stored runs.
fn stored_at(name: &str) -> PathBuf {
    let directory = Path::new(ROOT).join(tables::RUNS);
    directory.join(format!("{name}.json"))
}

/// Returns a time in UTC, to the second.
fn date(unix_ns: u64) -> String {
    let seconds = format!("@{}", unix_ns / 1_000_000_000);
    common::output_of("date", &["-u", "-d", &seconds, "+%Y-%m-%dT%H:%M:%SZ"])
}

fn write() -> Result<(), String> {
    let root = Path::new(ROOT);
    let directory = root.join(tables::RUNS);
    let mut stored = tables::stored(&directory)?;
    for (name, run) in &mut stored.runs {
        // Goals may have changed since the run.
        run.goals = run.judge(GOALS);
        let path = directory.join(name);
        run.write(&path).map_err(|error| at(&path, &error))?;
        plots::draw_run(&root.join(tables::IMAGES), run);
    }
    for page in tables::PAGES {
        let path = root.join(page);
        let text = std::fs::read_to_string(&path).map_err(|error| at(&path, &error))?;
        let made = tables::page(&text, &stored).map_err(|what| format!("{page}: {what}"))?;
        std::fs::write(&path, made).map_err(|error| at(&path, &error))?;
    }
    Ok(())
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
