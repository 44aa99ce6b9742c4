// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition verify`: compares the machine with its partition plan. Never writes to the machine.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use quietwire_base::{Deadline, unix_time};
use quietwire_host::apply::{ApplyError, applied_plan};
use quietwire_host::partition::Plan;
use quietwire_host::verify::{Check, Sample, Verdict, exposition, live_checks, static_checks};
use quietwire_switch::MetricsServer;

use super::arguments::{MachineArgs, PlanArgs};
use crate::exit::{CheckFailed, MissingPrerequisite, Usage, stop_on_signals};
use crate::text::print;
use crate::units::parse_positive_duration;

/// Compare the machine with its plan. Each check passes, fails or is unknown, and shows the file, the expected and the actual
/// value, and the remedy. Default plan: the applied one. Never writes.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Also observe threads, interrupts, context switches and system calls for this long.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_positive_duration)]
    interval: Option<Duration>,
    /// Print the checks as JSON.
    #[arg(long)]
    json: bool,
    /// Repeat the checks at intervals [default interval: 15s], and print changes.
    #[arg(long)]
    watch: bool,
    /// Serve Prometheus metrics at this address; a port alone means 127.0.0.1.
    #[arg(long, value_name = "ADDRESS", requires = "watch", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
}

/// Default interval of --watch. The checks take less than 1 % of a CPU at this interval.
const WATCHED: Duration = Duration::from_secs(15);
/// Interval of the static checks with --watch.
const STATIC_EVERY: Duration = Duration::from_secs(60);
/// Sampling interval of the system calls of forwarding threads.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Sampling interval of system calls with --watch.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Most remedy commands per check in text output. JSON lists all.
const COMMANDS_SHOWN: usize = 5;

/// Reads `127.0.0.1:9400`, `[::1]:9400` or `9400`.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.parse::<u16>().map(|port| format!("127.0.0.1:{port}"));
    local
        .unwrap_or_else(|_| text.to_owned())
        .parse()
        .map_err(|_| {
            "expected an address like 127.0.0.1:9400 or [::1]:9400, or a port alone".to_owned()
        })
}

pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let is_timed = args.watch || args.interval.is_some();
    if is_timed && !args.machine.is_live() {
        let what = "--for and --watch require the running machine (remove --root)";
        return Err(Usage(what.to_owned()).into());
    }
    let machine = args.machine.open()?;
    let root = machine.root.path();
    let named = args.plan.read(root)?;
    let applied =
        || applied_plan(&machine.state_directory).map_err(|error| unreadable(error, &args.machine));
    let plan = match named {
        Some(plan) => plan,
        None => applied()?.ok_or_else(|| {
            Usage("no partition is applied (name a plan with --config or --plan)".to_owned())
        })?,
    };
    let stop = match is_timed {
        true => stop_on_signals("")?,
        false => Arc::default(),
    };
    if args.watch {
        return watch(args, &plan, &stop);
    }
    let mut checks = static_checks(root, &plan);
    if let Some(interval) = args.interval {
        let before = Sample::take(root, &plan);
        let after = run_checks(root, &plan, &before, interval, POLL_INTERVAL, &stop);
        checks.extend(live_checks(root, &plan, &before, &after));
    }
    if args.json {
        print(serde_json::to_string_pretty(&checks)?)?;
    } else {
        print(list(&checks))?;
    }
    outcome(&checks)
}

/// Explains that only root can read the applied plan.
fn unreadable(error: ApplyError, machine: &MachineArgs) -> anyhow::Error {
    match error {
        ApplyError::State { cause, .. }
            if machine.is_live() && cause.kind() == ErrorKind::PermissionDenied =>
        {
            let text = "reading the applied plan requires root (run the same command with sudo, or name a plan with --config or --plan)";
            MissingPrerequisite(text.to_owned()).into()
        }
        error => error.into(),
    }
}

fn outcome(checks: &[Check]) -> Result<()> {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
    match failed.count() {
        0 => Ok(()),
        failed => Err(CheckFailed(format!(
            "{failed} checks failed (listed above, with their remedies)"
        ))
        .into()),
    }
}

/// Waits for the end of an interval and returns a sample with the observed system calls of forwarding threads.
fn run_checks(
    root: &Path,
    plan: &Plan,
    before: &Sample,
    interval: Duration,
    every: Duration,
    stop: &AtomicBool,
) -> Sample {
    let mut looked = before.clone();
    looked.calls.clear();
    while before.at.elapsed() < interval && !stop.load(Ordering::Relaxed) {
        looked.sample_calls(root);
        let left = interval.saturating_sub(before.at.elapsed());
        std::thread::sleep(left.min(every));
    }
    let mut after = Sample::take(root, plan);
    after.calls = looked.calls;
    after
}

/// Formats each check as a few lines; a check that passed has one line.
fn list(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Unknown => "unknown",
        };
        let name = check.name;
        lines.push(format!("{verdict:<8}{name:<25} {}", check.actual));
        if check.verdict != Verdict::Pass {
            lines.push(format!("{:8}in {}", "", check.file));
            lines.push(format!("{:8}expected {}", "", check.expected));
        }
        if let Some(remedy) = &check.remedy {
            lines.push(format!("{:8}-> {remedy}", ""));
        }
        let shown = check.commands.iter().take(COMMANDS_SHOWN);
        lines.extend(shown.map(|command| format!("{:10} $ {command}", "")));
        let more = check.commands.len().saturating_sub(COMMANDS_SHOWN);
        if more > 0 {
            lines.push(format!(
                "{:10} and {more} more commands (--json lists all)",
                ""
            ));
        }
    }
    let count = |verdict| {
        checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    lines.push(format!(
        "{} passed, {} failed, {} unknown",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Unknown)
    ));
    lines.join("\n")
}

/// Returns the CPU time of this process.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Repeats the checks until a signal, and prints changes.
fn watch(args: &VerifyArgs, plan: &Plan, stop: &AtomicBool) -> Result<()> {
    let root = &args.machine.root;
    let mut server = args.metrics.map(MetricsServer::listen).transpose()?;
    if let Some(server) = &server {
        let address = server.address().context("address of the metrics server")?;
        print(format!("metrics at http://{address}/metrics"))?;
    }
    let interval = args.interval.unwrap_or(WATCHED);
    let mut reported: Vec<Check> = Vec::new();
    let mut standing = static_checks(root, plan);
    let mut looked_at = Instant::now();
    let mut before = Sample::take(root, plan);
    let mut text = exposition(&standing, &before, spent(), unix_time().as_secs_f64());
    loop {
        let mut looked = before.clone();
        looked.calls.clear();
        while before.at.elapsed() < interval && !stop.load(Ordering::Relaxed) {
            looked.sample_calls(root);
            let left = interval.saturating_sub(before.at.elapsed());
            serve(server.as_mut(), left.min(WATCH_INTERVAL), stop, &text)?;
        }
        if stop.load(Ordering::Relaxed) {
            return outcome(&reported);
        }
        let mut after = Sample::take(root, plan);
        after.calls = looked.calls;
        if looked_at.elapsed() >= STATIC_EVERY {
            standing = static_checks(root, plan);
            looked_at = Instant::now();
        }
        let mut checks = standing.clone();
        checks.extend(live_checks(root, plan, &before, &after));
        print_changes(&reported, &checks, args.json)?;
        text = exposition(&checks, &after, spent(), unix_time().as_secs_f64());
        reported = checks;
        before = after;
    }
}

/// Serves metrics for `duration`.
fn serve(
    server: Option<&mut MetricsServer>,
    duration: Duration,
    stop: &AtomicBool,
    text: &str,
) -> Result<()> {
    let Some(server) = server else {
        std::thread::sleep(duration);
        return Ok(());
    };
    let deadline = Deadline::after(duration);
    loop {
        let left = deadline.remaining();
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        {
            let mut interests: Vec<PollFd<'_>> = server.interests().collect();
            match poll(&mut interests, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("waiting for requests of metrics"),
            }
        }
        server.turn(&mut || text.to_owned());
    }
}

/// Prints the checks with a changed verdict; at the first call, all checks.
fn print_changes(reported: &[Check], checks: &[Check], json: bool) -> Result<()> {
    let key = |check: &Check| (check.name, check.file.clone(), check.expected.clone());
    let changed: Vec<Check> = checks
        .iter()
        .filter(|check| {
            let former = reported.iter().find(|former| key(former) == key(check));
            former.is_none_or(|former| former.verdict != check.verdict)
        })
        .cloned()
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    if json {
        print(serde_json::to_string(&changed)?)
    } else {
        print(list(&changed))
    }
}
