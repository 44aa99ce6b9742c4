// SPDX-License-Identifier: Apache-2.0
//! `quietwire partition verify`: whether the machine is as its plan has it. Never writes to the machine.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use quietwire_host::apply::{ApplyError, applied_plan};
use quietwire_host::partition::Plan;
use quietwire_host::verify::{Check, Sample, Verdict, exposition, live_checks, static_checks};
use quietwire_switch::MetricsServer;

use super::arguments::{MachineArgs, PlanArgs};
use crate::exit::{CheckFailed, Lacking, Usage, on_signals};
use crate::text::print;
use crate::units::parse_positive_duration;

/// Whether the machine is as its plan has it: each check passes, fails or cannot tell, with the file, what was expected and
/// seen, and what to do. Without a plan, the one that was applied. Never writes.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Also look for this long at what really runs: threads, interrupts, context switches, system calls.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_positive_duration)]
    interval: Option<Duration>,
    /// Print the checks as JSON.
    #[arg(long)]
    json: bool,
    /// Keep at it, an interval after the other [default interval: 15s], and print what changes.
    #[arg(long)]
    watch: bool,
    /// Serve metrics for Prometheus at this address; a port without an address is of this machine only.
    #[arg(long, value_name = "ADDRESS", requires = "watch", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
}

/// An interval of watching, unless another is asked for: long enough that looking takes less than a hundredth of a CPU.
const WATCHED: Duration = Duration::from_secs(15);
/// While watching, what is set up is looked at this often.
const STATIC_EVERY: Duration = Duration::from_secs(60);
/// Time between looks at the system calls of forwarding threads.
const LOOK: Duration = Duration::from_millis(100);
/// As above, while watching.
const LOOK_WATCHING: Duration = Duration::from_secs(1);

/// Commands that mend a check, of which more are in JSON.
const COMMANDS_SHOWN: usize = 5;

/// Reads `127.0.0.1:9400`, `[::1]:9400` or `9400`.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.parse::<u16>().map(|port| format!("127.0.0.1:{port}"));
    local
        .unwrap_or_else(|_| text.to_owned())
        .parse()
        .map_err(|_| "an address is like 127.0.0.1:9400 or [::1]:9400, or a port alone".to_owned())
}

pub(crate) fn run(args: &VerifyArgs) -> Result<()> {
    let is_timed = args.watch || args.interval.is_some();
    if is_timed && !args.machine.is_live() {
        let what = "what runs can be looked at on this machine only, not below another --root";
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
            Usage("no partition is applied; name the plan with --config or --plan".to_owned())
        })?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    if is_timed {
        on_signals(&stop)?;
    }
    if args.watch {
        return watch(args, &plan, &stop);
    }
    let mut checks = static_checks(root, &plan);
    if let Some(interval) = args.interval {
        let before = Sample::take(root, &plan);
        let after = look(root, &plan, &before, interval, LOOK, &stop);
        checks.extend(live_checks(root, &plan, &before, &after));
    }
    if args.json {
        print(serde_json::to_string_pretty(&checks)?)?;
    } else {
        print(list(&checks))?;
    }
    outcome(&checks)
}

/// The applied plan is root's.
fn unreadable(error: ApplyError, machine: &MachineArgs) -> anyhow::Error {
    match error {
        ApplyError::State { cause, .. }
            if machine.is_live() && cause.kind() == ErrorKind::PermissionDenied =>
        {
            let text = "reading the applied plan requires root: run the same command with sudo, or name the plan with --config or --plan";
            Lacking(text.to_owned()).into()
        }
        error => error.into(),
    }
}

fn outcome(checks: &[Check]) -> Result<()> {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
    match failed.count() {
        0 => Ok(()),
        failed => Err(CheckFailed(format!("{failed} checks failed")).into()),
    }
}

/// The end of an interval: a sample with the system calls that forwarding threads were seen in.
fn look(
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
        looked.look_at_calls(root);
        let left = interval.saturating_sub(before.at.elapsed());
        std::thread::sleep(left.min(every));
    }
    let mut after = Sample::take(root, plan);
    after.calls = looked.calls;
    after
}

/// One check a few lines: those that passed have one.
fn list(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::CannotTell => "unknown",
        };
        let name = check.name;
        lines.push(format!("{verdict:<8}{name:<25} {}", check.seen));
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
        "{} passed, {} failed, {} cannot be told",
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::CannotTell)
    ));
    lines.join("\n")
}

/// CPU time of this process so far.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Looks again and again until a signal comes, and prints what changes.
fn watch(args: &VerifyArgs, plan: &Plan, stop: &AtomicBool) -> Result<()> {
    let root = &args.machine.root;
    let mut server = args.metrics.map(MetricsServer::listen).transpose()?;
    if let Some(server) = &server {
        let address = server.address().context("the address of the metrics")?;
        print(format!("metrics at http://{address}/metrics"))?;
    }
    let interval = args.interval.unwrap_or(WATCHED);
    let mut told: Vec<Check> = Vec::new();
    let mut standing = static_checks(root, plan);
    let mut looked_at = Instant::now();
    let mut before = Sample::take(root, plan);
    let mut text = exposition(&standing, &before, spent(), since_epoch());
    loop {
        let mut looked = before.clone();
        looked.calls.clear();
        while before.at.elapsed() < interval && !stop.load(Ordering::Relaxed) {
            looked.look_at_calls(root);
            let left = interval.saturating_sub(before.at.elapsed());
            serve(server.as_mut(), left.min(LOOK_WATCHING), stop, &text)?;
        }
        if stop.load(Ordering::Relaxed) {
            return outcome(&told);
        }
        let mut after = Sample::take(root, plan);
        after.calls = looked.calls;
        if looked_at.elapsed() >= STATIC_EVERY {
            standing = static_checks(root, plan);
            looked_at = Instant::now();
        }
        let mut checks = standing.clone();
        checks.extend(live_checks(root, plan, &before, &after));
        tell_changes(&told, &checks, args.json)?;
        text = exposition(&checks, &after, spent(), since_epoch());
        told = checks;
        before = after;
    }
}

fn since_epoch() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64())
}

/// Answers who asks for metrics, for so long.
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
    let end = Instant::now() + duration;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        {
            let mut interests: Vec<PollFd<'_>> = server.interests().collect();
            match poll(&mut interests, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("waiting for who asks for metrics"),
            }
        }
        server.turn(&mut || text.to_owned());
    }
}

/// Checks whose verdict is another than before; the first time all of them.
fn tell_changes(told: &[Check], checks: &[Check], json: bool) -> Result<()> {
    let key = |check: &Check| (check.name, check.file.clone(), check.expected.clone());
    let changed: Vec<Check> = checks
        .iter()
        .filter(|check| {
            let former = told.iter().find(|former| key(former) == key(check));
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
