// SPDX-License-Identifier: Apache-2.0
//! Runs as Markdown tables, for the output of benchmarks and, with the links of their figures, for stored runs in docs/performance.md.

use std::fmt::Write as _;
use std::path::Path;

use super::goals::{SILENCE, SMALL, TCP_RIGHT, UDP_ECHO};
use super::record::{Figure, Judged, Run, Series, Verdict};
use super::spread::{Spread, deviation_ratio};
use super::study::{STUDIES, Study};

/// Returns the figures of a run, one table per group of cases.
pub(crate) fn figures(run: &Run) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for series in &run.series {
        if !groups.contains(&series.point.group.as_str()) {
            groups.push(&series.point.group);
        }
    }
    let tables = groups.into_iter().map(|group| group_table(run, group));
    tables.collect::<Vec<_>>().join("\n")
}

fn group_table(run: &Run, group: &str) -> String {
    let series = || {
        let of_group = run.series.iter().filter(|one| one.point.group == group);
        of_group.filter(|one| !one.values().is_empty())
    };
    let mut columns: Vec<Figure> = Vec::new();
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for one in series() {
        if !columns.contains(&one.figure) {
            columns.push(one.figure);
        }
        let row = (one.point.case.as_str(), one.point.side.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let titles: Vec<&str> = columns.iter().map(|figure| figure.title()).collect();
    let mut text = format!("| {group} | | {} |\n", titles.join(" | "));
    text.push_str(&"|---".repeat(columns.len() + 2));
    text.push_str("|\n");
    for (case, side) in rows {
        let cells: Vec<String> = columns
            .iter()
            .map(|figure| run.find(case, side, *figure).map_or_else(String::new, cell))
            .collect();
        let _ = writeln!(text, "| {case} | {side} | {} |", cells.join(" | "));
    }
    text
}

/// Returns median and range: `14.52 (14.40 to 14.71)`.
fn cell(series: &Series) -> String {
    let values = series.values();
    if values.is_empty() {
        return String::new();
    }
    let (unit, decimals) = series.figure.shown();
    let mut text = Spread::of(&values).text(unit, decimals);
    if series.figure.shows_deviation() && values.len() > 1 {
        let _ = write!(
            text,
            ", deviation {:.2} %",
            deviation_ratio(&values) * 100.0
        );
    }
    text
}

/// Returns the goals of runs in one table. With several runs, each row names its benchmark.
pub(crate) fn goals(runs: &[&Run]) -> String {
    let lists = runs.iter().map(|run| (&*run.bench, &*run.goals));
    goal_table(&lists.collect::<Vec<_>>())
}

/// Returns the goals of everything that is stored in one table.
fn all_goals(stored: &Stored) -> String {
    let runs = stored.runs.iter();
    let runs = runs.map(|(_, run)| (&*run.bench, &*run.goals));
    let studies = stored.studies.iter();
    let judged: Vec<(&str, Vec<Judged>)> = studies
        .map(|(_, study)| (&*study.summary.name, study.judge()))
        .collect();
    let studies = judged.iter().map(|(name, goals)| (*name, &**goals));
    goal_table(&runs.chain(studies).collect::<Vec<_>>())
}

/// Returns lists of goals in one table. With several lists, each row has the name of its list.
fn goal_table(lists: &[(&str, &[Judged])]) -> String {
    let (head, rule) = match lists.len() {
        1 => ("", ""),
        _ => ("| benchmark ", "|---"),
    };
    let mut text = format!("{head}| goal | compared with | wanted | measured | verdict |\n");
    let _ = writeln!(text, "{rule}|---|---|---|---|---|");
    for (name, goals) in lists {
        let name = match lists.len() {
            1 => String::new(),
            _ => format!("| {name} "),
        };
        for goal in *goals {
            let _ = writeln!(text, "{name}{}", goal_row(goal));
        }
    }
    text
}

fn goal_row(judged: &Judged) -> String {
    let measured = judged.estimate.map_or_else(String::new, |it| {
        let digits = match it.value {
            // A goal of none is about a number of things.
            _ if judged.wanted == 0.0 => 0,
            value if value.abs() < 0.01 => 5,
            _ => 2,
        };
        let [value, low, high] = [it.value, it.low, it.high].map(|it| format!("{it:.digits$}"));
        match low == high {
            true => value,
            false => format!("{value} ({low} to {high})"),
        }
    });
    let verdict = match (&judged.reason, judged.verdict) {
        (Some(reason), verdict) => format!("{}: {reason}", verdict.name()),
        (None, Verdict::Met) => Verdict::Met.name().to_owned(),
        (None, verdict) => format!("**{}**", verdict.name()),
    };
    format!(
        "| {} | {} | {} {} | {measured} | {verdict} |",
        judged.goal,
        judged.peer,
        judged.bound.name(),
        judged.wanted,
    )
}

/// Returns the main figures of ports on interfaces of the kernel, one row for each side.
fn by_side(run: &Run) -> String {
    let columns = [
        (TCP_RIGHT, Figure::ThroughputBps, "TCP, Gbit/s"),
        (SMALL, Figure::ForwardedPps, "frames of 64 octets, Mpps"),
        (UDP_ECHO, Figure::P50Us, "round trip, µs"),
        (
            SILENCE,
            Figure::BeyondBridgeUs,
            "first round trip after a silence, µs more than with the Linux bridge",
        ),
    ];
    let mut sides: Vec<&str> = Vec::new();
    for series in &run.series {
        let is_shown = columns
            .iter()
            .any(|(case, figure, _)| series.point.case == *case && series.figure == *figure);
        let side = series.point.side.as_str();
        if is_shown && !series.values().is_empty() && !sides.contains(&side) {
            sides.push(side);
        }
    }
    let titles = columns.map(|(_, _, title)| title).join(" | ");
    let mut text = format!(
        "{} rounds of {}, on {} CPUs with {}: median and range ([all figures]({COMPARISON})).\n\n| connection | {titles} |\n",
        run.rounds, run.date, run.machine.cpus, run.machine.system,
    );
    text.push_str(&"|---".repeat(columns.len() + 1));
    text.push_str("|\n");
    for side in sides {
        let cells = columns.map(|(case, figure, _)| {
            let series = run.find(case, side, figure);
            series.map_or_else(String::new, cell)
        });
        let _ = writeln!(text, "| {side} | {} |", cells.join(" | "));
    }
    text
}

/// Returns the configuration of the sides.
pub(crate) fn sides(run: &Run) -> String {
    let mut text =
        String::from("| side | version | built | burst | notes |\n|---|---|---|---|---|\n");
    for side in &run.sides {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            side.name, side.version, side.built, side.burst, side.notes
        );
    }
    text
}

/// Returns machine, date, rounds and order of a run in sentences.
pub(crate) fn circumstances(run: &Run) -> String {
    let machine = &run.machine;
    let kind = if machine.is_virtual { "virtual " } else { "" };
    let pages = match machine.huge_pages {
        0 => "ordinary pages".to_owned(),
        count => format!("{count} huge pages of 2 MiB"),
    };
    let load = machine
        .load
        .map_or_else(String::new, |load| format!(", load {load} at the start"));
    format!(
        "{} {kind}CPUs ({}, {:.1} GHz), {} GiB, {}, Linux {}, DPDK {}, {pages}{load}. {}: {} rounds of {} s, \
         turns in random order (seed {}). {}\n",
        machine.cpus,
        machine.cpu,
        machine.ghz,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.dpdk,
        run.date,
        run.rounds,
        run.seconds,
        run.seed,
        run.helpers,
    )
}

/// Returns the whole output of a benchmark.
pub(crate) fn all(run: &Run) -> String {
    let mut parts = vec![circumstances(run), sides(run), figures(run)];
    if !run.goals.is_empty() {
        parts.push(goals(&[run]));
    }
    parts.join("\n")
}

const BEGIN: &str = "<!-- made by make performance-page: ";
const END: &str = "<!-- end -->";
const GOALS: &str = "goals";
/// Follows the file of a run in a marker: the main figures only.
const BY_SIDE: &str = " by side";
/// Section of the page with all figures of ports on interfaces of the kernel.
const COMPARISON: &str = "performance.md#ports-on-kernel-interfaces-compared-with-the-linux-bridge";

/// Returns the page with the text between its markers regenerated from stored runs and studies, by the names of their files.
pub(crate) fn page(text: &str, stored: &Stored) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after
            .split_once(" -->\n")
            .ok_or("a marker has no end of line")?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| format!("marker '{name}' has no '{END}' after it"))?;
        let _ = write!(
            made,
            "{before}{BEGIN}{name} -->\n\n{}\n{END}",
            part(name, stored)?
        );
        rest = after;
    }
    made.push_str(rest);
    Ok(made)
}

fn part(name: &str, stored: &Stored) -> Result<String, String> {
    if name == GOALS {
        return Ok(all_goals(stored));
    }
    let (wanted, is_by_side) = match name.strip_suffix(BY_SIDE) {
        Some(wanted) => (wanted, true),
        None => (name, false),
    };
    if let Some((_, study)) = stored.studies.iter().find(|(file, _)| file == name) {
        let goals = study.judge();
        if goals.is_empty() {
            return Ok(study.text());
        }
        let goals = goal_table(&[(&*study.summary.name, &*goals)]);
        return Ok([study.text(), goals].join("\n"));
    }
    let Some((_, run)) = stored.runs.iter().find(|(file, _)| file == wanted) else {
        return without_run(name, wanted);
    };
    if is_by_side {
        return Ok(by_side(run));
    }
    let mut parts = vec![
        format!("    {}\n", run.command),
        circumstances(run),
        sides(run),
        figures(run),
    ];
    let links = super::plots::links(run);
    if !links.is_empty() {
        parts.push(links);
    }
    Ok(parts.join("\n"))
}

/// Returns the text in place of a run that is not stored.
fn without_run(name: &str, file: &str) -> Result<String, String> {
    let bench = file.strip_suffix(".json").unwrap_or(file);
    let command = if super::goals::GOALS.iter().any(|goal| goal.bench == bench) {
        format!("cargo bench -p quietwire --bench {bench}")
    } else if STUDIES.contains(&bench) {
        format!("sudo quietwire study run {bench}")
    } else {
        return Err(format!("marker '{name}': no such stored run or benchmark"));
    };
    Ok(format!("No run is stored yet. `{command}` measures one.\n"))
}

/// The page, its runs and its figures, relative to the root of the repository.
pub(crate) const PAGE: &str = "docs/performance.md";
/// All pages with text between markers.
pub(crate) const PAGES: [&str; 2] = [PAGE, "docs/ports.md"];
pub(crate) const RUNS: &str = "docs/performance/runs";
pub(crate) const IMAGES: &str = "docs/images";

/// Runs of benchmarks and studies of a directory, with the names of their files, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) runs: Vec<(String, Run)>,
    pub(crate) studies: Vec<(String, Study)>,
}

/// Returns the runs and the studies stored in a directory.
pub(crate) fn stored(directory: &Path) -> Result<Stored, String> {
    let at = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut stored = Stored::default();
    for entry in std::fs::read_dir(directory).map_err(at)? {
        let path = entry.map_err(at)?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match Study::read(&path)? {
            Some(study) => stored.studies.push((name, study)),
            None => stored.runs.push((name, Run::read(&path)?)),
        }
    }
    stored.runs.sort_by(|a, b| a.0.cmp(&b.0));
    stored.studies.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(stored)
}
