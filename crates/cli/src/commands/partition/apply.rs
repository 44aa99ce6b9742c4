// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition apply`, `rollback` and `status`.

use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use nix::sys::signal::{Signal, raise};
use quietwire_host::apply::{
    self, Applied, ApplyReport, Difference, Outcome, Pending, Stopped, Target,
};
use quietwire_host::journal::{Change, UndoOutcome, Watcher};
use serde::Serialize;

use super::arguments::{MachineArgs, PlanArgs};
use crate::exit::{CheckFailed, Usage, require_root, stop_on_signals};
use crate::text::print;

/// Apply a partition plan to this machine. Every change is journaled first, so `partition rollback` can undo it. Changes that
/// require a reboot are written to a file and reported as pending. Applying the same plan twice is a no-op. SIGINT, SIGTERM and
/// SIGHUP undo the changes of this command.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Only print the changes.
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Kill this process at the Nth step of the journal, to test recovery.
    #[arg(long, value_name = "N", hide = true)]
    fail_at: Option<u32>,
}

/// Roll back the applied plan and restore the exact former settings. Settings that another program has changed since are
/// reported and left unchanged. SIGINT, SIGTERM and SIGHUP stop the command between two changes; repeat it to continue.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Also restore settings that another program has changed since.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Show the applied changes and those pending a reboot.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Result of a dry run.
#[derive(Serialize)]
struct DryRun {
    differences: Vec<Difference>,
    /// Interrupts that only the kernel can move.
    fixed: Vec<Difference>,
    pending: Vec<Pending>,
}

/// Requires root for changes to this machine. A directory tree needs only write permission.
fn may_change(machine: &MachineArgs) -> Result<()> {
    if machine.is_live() {
        require_root("changing settings of the machine")?;
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
    let plan = plan.ok_or_else(|| Usage("no plan given (use --config or --plan)".to_owned()))?;
    let target = machine.target();
    if args.dry_run {
        return dry_run(args, &target, &plan);
    }
    may_change(&args.machine)?;
    let stop = stop_on_signals(
        "the plan is applied in part (undo it with `quietwire partition rollback`)",
    )?;
    let report = apply::apply_until(&target, &plan, args.fail_at.map(fail_at), &stop)?;
    if args.json {
        print(serde_json::to_string_pretty(&report)?)?;
    } else {
        print_report(&report)?;
    }
    if let Some(stopped) = &report.stopped {
        return Err(CheckFailed(interruption(&report, stopped)).into());
    }
    match report.failures() {
        0 if stop.load(Ordering::Relaxed) => Err(CheckFailed(
            "a signal came too late: the plan is applied (undo it with `quietwire partition rollback`)"
                .to_owned(),
        )
        .into()),
        0 => Ok(()),
        failures => Err(CheckFailed(format!(
            "{failures} changes failed or are incomplete (listed above; undo the other changes with `quietwire partition rollback`)"
        ))
        .into()),
    }
}

/// Returns the message about a command that a signal has stopped.
fn interruption(report: &ApplyReport, stopped: &Stopped) -> String {
    let mut text = "interrupted by a signal: ".to_owned();
    text += &match stopped.left() {
        0 => "every change that this command made is undone".to_owned(),
        left => format!(
            "{left} changes are not undone (listed above; undo them with `quietwire partition rollback`)"
        ),
    };
    let earlier = report.undone.iter();
    match earlier.filter(|(_, outcome)| !outcome.is_left()).count() {
        0 => {}
        undone => {
            text += &format!(
                "; {undone} changes of the earlier plan stay undone (listed above; apply that plan again)"
            );
        }
    }
    if let Some(error) = &stopped.state_error {
        text += &format!("; the journal may list changes that are undone: {error}");
    }
    text
}

/// Returns a watcher that kills this process at its Nth call.
fn fail_at(mut left: u32) -> Watcher {
    Box::new(move || {
        left = left.saturating_sub(1);
        if left == 0 {
            // SIGKILL ends the process, so this call does not return.
            let _ = raise(Signal::SIGKILL);
        }
    })
}

fn dry_run(
    args: &ApplyArgs,
    target: &Target<'_>,
    plan: &quietwire_host::partition::Plan,
) -> Result<()> {
    let found = apply::differences(target, plan)?;
    let mut dry = DryRun {
        differences: found.removable,
        fixed: found.fixed,
        pending: apply::pending(target, plan),
    };
    if args.machine.root.is_file() {
        // Show paths of the machine, not of the directory to which the recording was unpacked.
        for difference in dry.differences.iter_mut().chain(&mut dry.fixed) {
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
    if !dry.fixed.is_empty() {
        print(fixed_interrupts(&dry.fixed))?;
    }
    print_pending(&dry.pending)?;
    if dry.differences.is_empty() {
        print("no run-time changes")?;
    }
    Ok(())
}

/// Joins the lines of a text into one.
fn single_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn line(difference: &Difference) -> String {
    let (place, now, wanted) = (&difference.place, &difference.now, &difference.wanted);
    format!(
        "{}: {} -> {}",
        place.display(),
        single_line(now),
        single_line(wanted)
    )
}

/// Returns one line about all interrupts that only the kernel can move: a storage controller may have one for each CPU.
fn fixed_interrupts(fixed: &[Difference]) -> String {
    let interrupt = |difference: &Difference| {
        let directory = difference.place.parent().and_then(Path::file_name);
        let number = directory.unwrap_or(difference.place.as_os_str());
        format!(
            "{} (CPUs {})",
            number.display(),
            single_line(&difference.now)
        )
    };
    let interrupts: Vec<String> = fixed.iter().map(interrupt).collect();
    format!(
        "fixed by the kernel, left unchanged: interrupts {}",
        interrupts.join(", ")
    )
}

fn print_report(report: &ApplyReport) -> Result<()> {
    for (change, outcome) in &report.undone {
        let what = match change {
            Change::Unreadable { .. } => "journal",
            _ => "no longer in the plan",
        };
        print(format!("{what}: {change}: {outcome}"))?;
    }
    for Applied {
        difference,
        outcome,
    } in &report.applied
    {
        let came = match outcome {
            Outcome::Done => "done".to_owned(),
            Outcome::Partly { what } => format!("PARTLY: {what}"),
            Outcome::Fixed { reason } => format!("fixed by the kernel, left unchanged: {reason}"),
            Outcome::Failed { reason } => format!("FAILED: {reason}"),
        };
        print(format!("{}: {came}", line(difference)))?;
    }
    for (change, outcome) in report.stopped.iter().flat_map(|one| &one.rolled_back) {
        print(format!("rollback: {change}: {outcome}"))?;
    }
    print_pending(&report.pending)?;
    if report.applied.is_empty() && report.undone.is_empty() && report.stopped.is_none() {
        print("all run-time settings match the plan")?;
    }
    Ok(())
}

fn print_pending(pending: &[Pending]) -> Result<()> {
    for Pending {
        parameter,
        reason,
        file,
    } in pending
    {
        let file = file
            .as_ref()
            .map(|file| format!("; written to {}", file.display()));
        print(format!(
            "pending reboot: {parameter} ({reason}){}",
            file.unwrap_or_default()
        ))?;
    }
    Ok(())
}

pub(crate) fn run_rollback(args: &RollbackArgs) -> Result<()> {
    may_change(&args.machine)?;
    let stop = stop_on_signals("some changes are not rolled back (repeat the command)")?;
    let machine = args.machine.open_directory()?;
    let undone = apply::roll_back_until(&machine.target(), args.force, &stop)?;
    if args.json {
        print(serde_json::to_string_pretty(&undone)?)?;
    } else if undone.is_empty() {
        print("nothing is applied")?;
    } else {
        for (change, outcome) in &undone {
            print(format!("{change}: {outcome}"))?;
        }
    }
    match remainder(&undone) {
        None => Ok(()),
        Some(text) => Err(CheckFailed(text).into()),
    }
}

/// Returns the message about changes that a rollback has left.
fn remainder(undone: &[(Change, UndoOutcome)]) -> Option<String> {
    let outcomes = || undone.iter().map(|(_, outcome)| outcome);
    let is_not_tried = |outcome: &&UndoOutcome| matches!(outcome, UndoOutcome::NotTried(_));
    let not_tried = outcomes().filter(is_not_tried).count();
    let left = outcomes().filter(|outcome| outcome.is_left()).count();
    let failed = left.saturating_sub(not_tried);
    let mut parts = Vec::new();
    if not_tried > 0 {
        parts.push(format!(
            "interrupted by a signal: {not_tried} changes are not rolled back yet (listed above; to continue, repeat the command)"
        ));
    }
    if failed > 0 {
        parts.push(format!(
            "{failed} changes are not rolled back (listed above; --force also restores settings that another program has changed)"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
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
        print(format!("applied: {change}"))?;
    }
    for change in &status.not_in_effect {
        print(format!("journaled, but not in effect: {change}"))?;
    }
    if let Some(command_line) = &status.pending {
        print(format!("pending reboot: {command_line}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(file: &str) -> Change {
        Change::FileWritten {
            path: file.into(),
            former: "1".to_owned(),
            new: "2".to_owned(),
        }
    }

    #[test]
    fn an_interrupted_rollback_counts_its_other_changes_and_names_the_way_to_continue() {
        let failed = || UndoOutcome::Failed("EIO".to_owned());
        let not_tried = || UndoOutcome::NotTried("stopped".to_owned());
        let mut undone = vec![(change("/a"), UndoOutcome::Restored)];
        assert_eq!(remainder(&undone), None);
        undone.push((change("/b"), failed()));
        let text = remainder(&undone).unwrap();
        assert!(text.starts_with("1 changes are not rolled back"), "{text}");
        undone.extend([(change("/c"), not_tried()), (change("/d"), not_tried())]);
        let text = remainder(&undone).unwrap();
        for part in [
            "interrupted by a signal: 2 changes are not rolled back yet",
            "repeat the command",
            "1 changes are not rolled back",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn an_interruption_names_what_is_not_undone() {
        let mut report = ApplyReport::default();
        let mut stopped = Stopped {
            rolled_back: vec![(change("/a"), UndoOutcome::Restored)],
            state_error: None,
        };
        assert_eq!(
            interruption(&report, &stopped),
            "interrupted by a signal: every change that this command made is undone"
        );
        let failed = UndoOutcome::Failed("EIO".to_owned());
        stopped.rolled_back.push((change("/b"), failed));
        report.undone.push((change("/c"), UndoOutcome::Restored));
        stopped.state_error = Some("journal: EIO".to_owned());
        let text = interruption(&report, &stopped);
        for part in [
            "1 changes are not undone",
            "`quietwire partition rollback`",
            "1 changes of the earlier plan stay undone",
            "journal: EIO",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
