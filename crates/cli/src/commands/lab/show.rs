// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab list` and `lab show`: topologies, without changes to the machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use quietwire_host::inventory::Inventory;
use quietwire_lab::topology::{CATALOG, Chains, Length, Program, describe, draw};
use quietwire_lab::up::{LabEntry, known, lacking};
use quietwire_lab::{STATE_DIRECTORY, Unavailable, availability, isolation_cases, neighbour_kinds};
use serde_json::json;

use super::chosen::TopologyArgs;
use crate::output::write_file;
use crate::text::{fold, print, print_columns, terminal_width};

/// List the fifteen named topologies, switches, kinds of neighbours, isolation cases, and running labs.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the lists as JSON.
    #[arg(long)]
    json: bool,
}

/// Show a topology with its parameters: elements, links, ports, CPUs. Starts nothing.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    topology: TopologyArgs,
    /// Write a drawing (SVG).
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print elements, links and CPUs as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn list(args: &ListArgs) -> Result<()> {
    if args.json {
        print_json(args)
    } else {
        print_lists(args)
    }
}

/// Prints the lists as one JSON document.
fn print_json(args: &ListArgs) -> Result<()> {
    let all: Vec<_> = CATALOG
        .iter()
        .map(|topology| {
            json!({
                "name": topology.name,
                "path": topology.path,
                "about": topology.about,
                "takes_chains": topology.chains == Chains::Many,
                "takes_length": topology.length == Length::Any,
            })
        })
        .collect();
    let programs: Vec<_> = programs()?
        .into_iter()
        .map(|(program, version)| match version {
            Ok(version) => json!({ "name": program.name(), "version": version }),
            Err(why) => json!({ "name": program.name(), "unavailable": why.0 }),
        })
        .collect();
    let (up, left_over) = labs(args)?;
    let names = |labs: Vec<LabEntry>| labs.into_iter().map(|lab| lab.name).collect();
    let (up, left_over): (Vec<String>, Vec<String>) = (names(up), names(left_over));
    let neighbours: Vec<_> = neighbour_kinds()
        .iter()
        .map(|kind| json!({ "name": kind.name, "about": kind.about }))
        .collect();
    let machine = Inventory::read(Path::new("/"));
    let isolation: Vec<_> = isolation_cases()
        .iter()
        .map(|case| match case.unavailable(&machine, None) {
            None => json!({ "name": case.name, "about": case.about }),
            Some(why) => json!({ "name": case.name, "about": case.about, "unavailable": why }),
        })
        .collect();
    let reported = json!({
        "topologies": all, "programs": programs, "neighbours": neighbours,
        "isolation": isolation, "up": up, "left_over": left_over,
    });
    print(serde_json::to_string_pretty(&reported)?)
}

/// Prints the lists with a title each.
fn print_lists(args: &ListArgs) -> Result<()> {
    let paths = CATALOG.iter().map(|topology| topology.path.chars().count());
    let paths = paths.max().unwrap_or(0);
    print_list(CATALOG.iter().map(|topology| {
        let text = format!("{:paths$}  {}", topology.path, topology.about);
        (topology.name, text)
    }))?;
    print("\nT tester, S switch, V VNF, [..] guest; n is set by --chains, … by --length\n")?;
    print_list(programs()?.into_iter().map(|(program, version)| {
        let text = version.unwrap_or_else(|why| why.to_string());
        (program.name(), text)
    }))?;
    print("\nneighbours, for [neighbours] of a study:\n")?;
    let kinds = neighbour_kinds().iter();
    print_list(kinds.map(|kind| (kind.name, kind.about.to_owned())))?;
    print("\nisolation, for a [[case]] of a study:\n")?;
    let machine = Inventory::read(Path::new("/"));
    print_list(isolation_cases().iter().map(|case| {
        let text = case.unavailable(&machine, None).map_or_else(
            || case.about.to_owned(),
            |why| format!("unavailable on this machine: {why}"),
        );
        (case.name, text)
    }))?;
    let (up, left_over) = labs(args)?;
    for lab in up {
        let topology = lab
            .state
            .map_or_else(|| "starting".to_owned(), |state| state.graph.name);
        print(format!("\nlab {} is up: {topology}", lab.name))?;
    }
    for lab in left_over {
        print(format!(
            "\nlab {} is left over: its process was killed (undo it with `quietwire lab clean`)",
            lab.name
        ))?;
    }
    Ok(())
}

/// Prints names and texts in two columns.
fn print_list(rows: impl Iterator<Item = (&'static str, String)>) -> Result<()> {
    let rows: Vec<(&str, String)> = rows.collect();
    let names = rows.iter().map(|(name, _)| name.chars().count());
    let names = names.max().unwrap_or(0);
    let lines = rows
        .iter()
        .map(|(name, text)| format!("{name:names$}  {text}\n"));
    print_columns(&lines.collect::<String>(), names.saturating_add(2))
}

type Availability = (Program, Result<String, Unavailable>);

/// Returns the programs that can be a switch, each with its version or the reason why it is unavailable.
fn programs() -> Result<Vec<Availability>> {
    let own = std::env::current_exe().context("path of this program")?;
    let all = Program::ALL
        .iter()
        .map(|program| (*program, availability(*program, &own)));
    Ok(all.collect())
}

/// Returns the labs that are up, and those whose processes were killed.
fn labs(args: &ListArgs) -> Result<(Vec<LabEntry>, Vec<LabEntry>)> {
    let all = known(&args.state_directory)?.into_iter();
    Ok(all.partition(|lab| lab.owner.is_some()))
}

pub(super) fn show(args: &ShowArgs) -> Result<()> {
    let (graph, cpus) = args.topology.read()?;
    if let Some(file) = &args.svg {
        write_file("--svg", file, draw(&graph, &cpus))?;
    }
    let own = std::env::current_exe().context("path of this program")?;
    let unavailable = lacking(&graph, &own).map(|(name, reason)| format!("{name}: {reason}"));
    if args.json {
        let text = json!({
            "topology": graph, "cpus": cpus, "warnings": cpus.warnings(), "unavailable": unavailable,
        });
        return print(serde_json::to_string_pretty(&text)?);
    }
    let mut text = describe(&graph, &cpus);
    if let Some(reason) = unavailable {
        text += &format!("\n\nWARNING  {reason}");
    }
    let width = usize::from(terminal_width());
    let folded: Vec<String> = text.lines().map(|line| fold(line, width, 9)).collect();
    print(folded.join("\n"))
}
