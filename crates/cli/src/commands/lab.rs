// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab`: topologies, labs that run them on this machine, and the removal of labs.

mod check;
mod chosen;
mod shell;
mod show;
mod up;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use quietwire_lab::{CleanReport, STATE_DIRECTORY, clean, clean_when_orphaned};

use crate::exit::{CheckFailed, stop_on_signals};
use crate::text::print;

/// Set up topologies of data planes on this machine.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    List(show::ListArgs),
    Show(Box<show::ShowArgs>),
    Up(Box<up::UpArgs>),
    Check(check::CheckArgs),
    Down(up::DownArgs),
    Shell(shell::ShellArgs),
    /// Run a lab; started by `lab up`.
    #[command(hide = true)]
    Keep,
    /// Undo the changes of the process at the other end of standard input if it is killed.
    #[command(hide = true)]
    Guard(GuardArgs),
    /// Undo the changes of studies and labs that were killed. Running ones are left unchanged.
    Clean(CleanArgs),
}

#[derive(Debug, Args)]
struct CleanArgs {
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the undone changes as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct GuardArgs {
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY")]
    state_directory: PathBuf,
    /// ID of the guarded process, the parent of this one.
    #[arg(long, value_name = "PID", hide = true)]
    process: u32,
}

pub(crate) fn run(args: &LabArgs) -> Result<()> {
    match &args.command {
        LabCommand::List(args) => show::list(args),
        LabCommand::Show(args) => show::show(args),
        LabCommand::Up(args) => up::up(args),
        LabCommand::Check(args) => check::run(args),
        LabCommand::Down(args) => up::down(args),
        LabCommand::Shell(args) => shell::run(args),
        LabCommand::Keep => up::keep(),
        LabCommand::Guard(args) => {
            check_undone(&clean_when_orphaned(args.process, &args.state_directory)?)
        }
        LabCommand::Clean(args) => run_clean(args),
    }
}

fn run_clean(args: &CleanArgs) -> Result<()> {
    stop_on_signals("some changes are not undone (repeat the command)")?;
    let report = clean(&args.state_directory)?;
    if args.json {
        print(serde_json::to_string_pretty(&report)?)?;
    } else {
        if let Some(owner) = &report.busy {
            print(format!("a lab is up, of {owner}: left unchanged"))?;
        }
        for name in &report.up {
            print(format!("lab {name} is up: left unchanged"))?;
        }
        for index in &report.xdp_interfaces {
            print(format!(
                "XDP program of a killed process on interface {index}: removed"
            ))?;
        }
        for index in &report.flow_rules {
            print(format!(
                "flow rules of a killed process on the card of interface {index}: removed"
            ))?;
        }
        for interface in &report.veth_pairs {
            print(format!(
                "veth pair of a killed process, interface {interface}: removed"
            ))?;
        }
        for address in &report.virtual_functions {
            print(format!(
                "virtual function {address} of a killed process: restored to its former state"
            ))?;
        }
        for index in &report.tag_features {
            print(format!(
                "interface {index} of an af-xdp port of a killed process: features for VLAN tags restored"
            ))?;
        }
        for directory in &report.runtime_directories {
            print(format!(
                "runtime directory of DPDK of a killed process, {}: removed",
                directory.display()
            ))?;
        }
        let is_empty = report.undone.is_empty()
            && report.runtime_directories.is_empty()
            && report.tag_features.is_empty()
            && report.virtual_functions.is_empty()
            && report.xdp_interfaces.is_empty()
            && report.flow_rules.is_empty()
            && report.veth_pairs.is_empty();
        if is_empty && report.busy.is_none() && report.up.is_empty() {
            print("nothing was left behind")?;
        }
        for (change, outcome) in &report.undone {
            print(format!("{change}: {outcome}"))?;
        }
    }
    check_undone(&report)
}

fn check_undone(report: &CleanReport) -> Result<()> {
    let failures = report.failures().count();
    if failures > 0 {
        return Err(CheckFailed(format!(
            "{failures} changes could not be undone (listed above; run `quietwire lab clean`, or undo them by hand)"
        ))
        .into());
    }
    Ok(())
}
