// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition apply`, `rollback` and `status`.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use nix::sys::signal::{Signal, raise};
use quietwire_host::apply::{self, Applied, ApplyReport, Difference, Outcome, Pending, Target};
use quietwire_host::journal::{Change, Undone, Watcher};
use serde::Serialize;

use super::arguments::{MachineArgs, PlanArgs};
use crate::exit::{CheckFailed, Usage, require_root};
use crate::text::print;

/// Bring a plan to the running machine. Each change is written down before it is made, so that all of it can be taken back;
/// what takes a reboot is written to a file and called pending. Done twice, it changes nothing the second time.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Only print what would be changed.
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Kill this process at the Nth step of writing changes down, for tests of what is left then.
    #[arg(long, value_name = "N", hide = true)]
    die_at: Option<u32>,
}

/// Take back what was applied: to exactly what was there. What something else changed since is left alone and told.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Take back also what something else changed since.
    #[arg(long)]
    force: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// What is applied just now, and what waits for a reboot.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// What a dry run tells.
#[derive(Serialize)]
struct DryRun {
    differences: Vec<Difference>,
    pending: Vec<Pending>,
}

/// Settings of the machine and others' threads are for root to change; a recorded tree is for whoever owns it.
fn may_change(machine: &MachineArgs) -> Result<()> {
    if machine.is_live() {
        require_root("this changes settings of the machine")?;
    }
    Ok(())
}

pub(crate) fn run(args: &ApplyArgs) -> Result<()> {
    let machine = if args.dry_run {
        args.machine.open()?
    } else {
        args.machine.open_directory()?
    };
    let plan = args.plan.read(machine.root.path())?;
    let plan =
        plan.ok_or_else(|| Usage("name what to apply with --config or --plan".to_owned()))?;
    let target = machine.target();
    if args.dry_run {
        return dry_run(args, &target, &plan);
    }
    may_change(&args.machine)?;
    let report = apply::apply(&target, &plan, args.die_at.map(dying))?;
    if args.json {
        print(serde_json::to_string_pretty(&report)?)?;
    } else {
        tell(&report)?;
    }
    match report.failures() {
        0 => Ok(()),
        failures => Err(CheckFailed(format!(
            "{failures} changes failed or came to less than was wanted; they are listed above. What was changed is taken back by `quietwire partition rollback`"
        ))
        .into()),
    }
}

/// Kills this process the Nth time that it is called.
fn dying(mut left: u32) -> Watcher {
    Box::new(move || {
        left = left.saturating_sub(1);
        if left == 0 {
            // It does not come back from that.
            let _ = raise(Signal::SIGKILL);
        }
    })
}

fn dry_run(
    args: &ApplyArgs,
    target: &Target<'_>,
    plan: &quietwire_host::partition::Plan,
) -> Result<()> {
    let mut dry = DryRun {
        differences: apply::differences(target, plan),
        pending: apply::pending(target, plan),
    };
    if args.machine.root.is_file() {
        // Where it was unpacked to is nobody's business.
        for difference in &mut dry.differences {
            if let Ok(below) = difference.place.strip_prefix(&target.root) {
                difference.place = Path::new("/").join(below);
            }
        }
    }
    if args.json {
        return print(serde_json::to_string_pretty(&dry)?);
    }
    for difference in &dry.differences {
        print(line(difference))?;
    }
    tell_pending(&dry.pending)?;
    if dry.differences.is_empty() {
        print("nothing is to be changed while the machine runs")?;
    }
    Ok(())
}

/// Texts of several lines in one.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn line(difference: &Difference) -> String {
    let (place, now, wanted) = (&difference.place, &difference.now, &difference.wanted);
    format!("{}: {} -> {}", place.display(), flat(now), flat(wanted))
}

fn tell(report: &ApplyReport) -> Result<()> {
    for (change, outcome) in &report.undone {
        print(format!("not wanted any more: {change}: {outcome}"))?;
    }
    for Applied {
        difference,
        outcome,
    } in &report.applied
    {
        let came = match outcome {
            Outcome::Done => "done".to_owned(),
            Outcome::Partly { what } => format!("PARTLY: {what}"),
            Outcome::Fixed { why } => format!("the kernel's own, left alone: {why}"),
            Outcome::Failed { why } => format!("FAILED: {why}"),
        };
        print(format!("{}: {came}", line(difference)))?;
    }
    tell_pending(&report.pending)?;
    if report.applied.is_empty() && report.undone.is_empty() {
        print("the machine is as the plan has it, as far as that can be while it runs")?;
    }
    Ok(())
}

fn tell_pending(pending: &[Pending]) -> Result<()> {
    for Pending {
        parameter,
        why,
        file,
    } in pending
    {
        let file = file
            .as_ref()
            .map(|file| format!("; written to {}", file.display()));
        print(format!(
            "pending reboot: {parameter} ({why}){}",
            file.unwrap_or_default()
        ))?;
    }
    Ok(())
}

pub(crate) fn run_rollback(args: &RollbackArgs) -> Result<()> {
    may_change(&args.machine)?;
    let undone = apply::roll_back(&args.machine.open_directory()?.target(), args.force)?;
    if args.json {
        print(serde_json::to_string_pretty(&undone)?)?;
    } else if undone.is_empty() {
        print("nothing is applied")?;
    } else {
        for (change, outcome) in &undone {
            print(format!("{change}: {outcome}"))?;
        }
    }
    let is_left = |(_, outcome): &&(Change, Undone)| {
        matches!(outcome, Undone::Failed(_) | Undone::ChangedSince(_))
    };
    match undone.iter().filter(is_left).count() {
        0 => Ok(()),
        left => Err(CheckFailed(format!(
            "{left} changes are left, as listed above; what something else changed since is taken back with --force"
        ))
        .into()),
    }
}

pub(crate) fn run_status(args: &StatusArgs) -> Result<()> {
    let status = apply::status(&args.machine.open_directory()?.target())?;
    if args.json {
        return print(serde_json::to_string_pretty(&status)?);
    }
    if let Some(owner) = &status.busy {
        print(format!(
            "{owner} is applying a partition or rolling one back"
        ))?;
    }
    if status.changes.is_empty() {
        print("nothing is applied")?;
    }
    for change in &status.changes {
        print(format!("applied; rollback takes {change}"))?;
    }
    if let Some(command_line) = &status.pending {
        print(format!("pending reboot: {command_line}"))?;
    }
    Ok(())
}
