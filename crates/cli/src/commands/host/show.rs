// SPDX-License-Identifier: Apache-2.0
//! `quietwire host show` and `host record`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use quietwire_host::apply::{STATE_DIRECTORY, applied_plan};
use quietwire_host::cards::{self, CardReport};
use quietwire_host::drawing::draw;
use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{Plan, plan};
use quietwire_host::recording::{RecordingError, Root, record};

use super::grouped;
use crate::exit::Usage;
use crate::output::{unwritable, write_file};
use crate::partition_files::{read_plan, read_request};
use crate::text::{print, print_columns};

/// Show processors, caches, memory, network controllers and cache and bandwidth allocation (resctrl).
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Print the complete inventory as JSON.
    #[arg(long)]
    json: bool,
    /// Root directory with /proc and /sys of a machine, or a recording.
    #[arg(long, value_name = "DIRECTORY|FILE.tar.zst", default_value = "/")]
    root: PathBuf,
    /// Write a drawing of the machine (SVG), with the applied plan if there is one.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Partition request (TOML); the drawing shows the planned CPUs.
    #[arg(long, value_name = "FILE", requires = "svg", conflicts_with = "plan")]
    config: Option<PathBuf>,
    /// Partition plan (JSON); the drawing shows its CPUs.
    #[arg(long, value_name = "FILE", requires = "svg")]
    plan: Option<PathBuf>,
}

/// Record the files that `host show` reads into an archive, for `--root` on another machine.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Archive to write; readable by its owner only.
    #[arg(value_name = "FILE.tar.zst")]
    file: PathBuf,
    /// Root directory with /proc and /sys of a machine.
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
}

/// Opens the root directory of a machine. A recording is unpacked first.
pub(crate) fn open(root: &Path) -> Result<Root> {
    Root::open(root).map_err(|error| match error {
        RecordingError::Io {
            doing: "reading", ..
        }
        | RecordingError::NotARecording { .. }
        | RecordingError::Foreign { .. } => Usage(error.to_string()).into(),
        RecordingError::Io { .. } => error.into(),
    })
}

/// Reads the machine below a root directory. `named` is the path that the user gave.
///
/// # Errors
/// [`Usage`] if the directory is not that of a machine.
pub(crate) fn read_machine(root: &Path, named: &Path) -> Result<Inventory> {
    let machine = Inventory::read(root);
    if machine.cpus_online.is_none() {
        return Err(Usage(format!(
            "{}: sys/devices/system/cpu/online does not exist or lists no CPUs (use the root directory of a machine)",
            named.display()
        ))
        .into());
    }
    Ok(machine)
}

pub(super) fn run(args: &ShowArgs) -> Result<()> {
    let root = open(&args.root)?;
    let machine = read_machine(root.path(), &args.root)?;
    if let Some(file) = &args.svg {
        let plan = planned(args, &machine)?;
        write_file("--svg", file, draw(&machine, plan.as_ref()))?;
    }
    if args.json {
        print(serde_json::to_string_pretty(&machine)?)
    } else if args.svg.is_none() {
        print_columns(&summary(&machine), WIDTH)
    } else {
        Ok(())
    }
}

fn planned(args: &ShowArgs, machine: &Inventory) -> Result<Option<Plan>> {
    if let Some(path) = &args.plan {
        return read_plan(path).map(Some);
    }
    let Some(path) = &args.config else {
        // The applied plan is known for this machine only.
        let is_live = args.root == Path::new("/");
        let applied = is_live.then(|| applied_plan(Path::new(STATE_DIRECTORY)));
        return Ok(applied.transpose()?.flatten());
    };
    let made = plan(machine, &read_request(path)?);
    Ok(Some(made.map_err(|error| Usage(error.to_string()))?))
}

pub(super) fn run_record(args: &RecordArgs) -> Result<()> {
    read_machine(&args.root, &args.root)?;
    let files = record(&args.root, &args.file).map_err(|error| match error {
        RecordingError::Io { path, cause, .. } => unwritable("recording", &path, &cause),
        RecordingError::NotARecording { .. } | RecordingError::Foreign { .. } => error.into(),
    })?;
    print(format!("{files} files in {}", args.file.display()))
}

/// Column of the values.
const WIDTH: usize = 16;

fn summary(machine: &Inventory) -> String {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        lines.extend(
            value
                .filter(|value| !value.is_empty())
                .map(|value| format!("{name:<WIDTH$}{value}")),
        );
    };
    add(
        "processor",
        machine
            .cpu_model
            .clone()
            .or_else(|| machine.cpu_vendor.clone()),
    );
    add("machine", machine.product.clone());
    add(
        "virtual",
        machine
            .is_virtual
            .map(|is| if is { "yes" } else { "no" }.to_owned()),
    );
    add("packages", machine.packages.map(|count| count.to_string()));
    add("cores", machine.cores.map(|count| count.to_string()));
    add(
        "CPUs online",
        machine.cpus_online.as_ref().map(ToString::to_string),
    );
    add(
        "CPUs offline",
        machine.cpus_offline.as_ref().map(ToString::to_string),
    );
    add(
        "CPUs isolated",
        machine.cpus_isolated.as_ref().map(ToString::to_string),
    );
    add(
        "CPUs tickless",
        machine.cpus_nohz_full.as_ref().map(ToString::to_string),
    );
    add("fast CPUs", Some(machine.high_priority().to_string()));
    add("memory", machine.memory_mib.map(|mib| format!("{mib} MiB")));
    add("control groups", machine.cpusets.clone());
    add("kernel", machine.kernel_release.clone());
    add("command line", machine.kernel_command_line.clone());
    let alike = grouped::lines(machine).into_iter();
    lines.extend(alike.map(|(name, value)| format!("{name:<WIDTH$}{value}")));
    lines.extend(machine.nodes.iter().map(node));
    lines.extend(sharing(machine));
    lines.extend(cards::report(machine).iter().flat_map(card));
    lines.join("\n")
}

fn node(node: &quietwire_host::inventory::NumaNode) -> String {
    let mut parts = vec![format!(
        "CPUs {}",
        node.cpus
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    )];
    parts.extend(node.memory_mib.map(|mib| format!("{mib} MiB")));
    let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
    parts.push(format!("distances {}", distances.join(" ")));
    parts.extend(node.huge_pages.iter().map(|pool| {
        format!(
            "{} of {} pages of {} KiB free",
            pool.free, pool.total, pool.page_kib
        )
    }));
    format!(
        "{:<WIDTH$}{}",
        format!("node {}", node.node),
        parts.join(", ")
    )
}

fn sharing(machine: &Inventory) -> Vec<String> {
    let rdt = &machine.rdt;
    let mut lines: Vec<String> = rdt
        .caches
        .iter()
        .map(|cache| {
            let apart = if cache.code_and_data {
                ", separate code and data masks"
            } else {
                ""
            };
            format!(
                "L{} in {} ways, {} classes, at least {} ways{apart}",
                cache.level,
                cache.ways(),
                cache.classes_max,
                cache.ways_min
            )
        })
        .collect();
    lines.extend(rdt.bandwidth.as_ref().map(|limits| {
        format!(
            "bandwidth from {} to {} in steps of {}, {} classes",
            limits.min, limits.unlimited, limits.step, limits.classes_max
        )
    }));
    lines.extend(rdt.monitoring.as_ref().map(|watched| {
        format!(
            "monitoring: {} in {} groups",
            watched.features.join(", "),
            watched.groups_max
        )
    }));
    if lines.is_empty() {
        lines.push(if rdt.cpu_flags.is_empty() {
            "none".to_owned()
        } else {
            format!(
                "resctrl is not mounted; the processor has {}",
                rdt.cpu_flags.join(", ")
            )
        });
    }
    lines
        .into_iter()
        .map(|line| format!("{:<WIDTH$}{line}", "resctrl"))
        .collect()
}

/// Describes a network card, with a line for each of its problems and the remedy.
fn card(card: &CardReport) -> Vec<String> {
    let parts = [&[card.pci_address.clone()][..], &card.facts].concat();
    let mut lines = vec![format!("{:<WIDTH$}{}", "controller", parts.join(", "))];
    for problem in &card.problems {
        lines.push(format!("{:<WIDTH$}{}", "", problem.what));
        lines.push(format!("{:<WIDTH$}-> {}", "", problem.remedy));
    }
    lines
}
