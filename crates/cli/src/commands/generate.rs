// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate`: one trial with the tester through a running device.

mod connections;
mod latency;
mod losses;
mod settle;
mod validity;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use quietwire_dpdk::{Eal, PortUri};
use quietwire_lab::IsolationRecord;
use quietwire_report::{TrialLimit, mix_text};
use quietwire_study::RunningSwitch;
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    DESTINATIONS_MAX, Directions, FrameSizes, InvalidReason, IpVersion, LOW_RATE_PPS, LatencyStart,
    MAC_ADDRESSES_MAX, MissingCalibration, Preparation, Tester, TesterError, Trial, TrialResult,
    Validity,
};

use serde::Serialize;

use connections::{ConnectionArgs, Setup};
use latency::{latency_lines, withhold};
use losses::{INDENT, loss_lines};
use settle::leave_alone;
use validity::validity_lines;

use super::device::DeviceArgs;
use super::isolation::IsolationArgs;
use super::own_tester::{
    Ip, LINK_DEADLINE, OwnTesterArgs, check_time_stamps, load_calibrations, record_time_stamps,
};
use crate::exit::{CheckFailed, ISOLATION_LEFT, Usage, stop_on_signals};
use crate::text::{fold, loss_percent, print, say, terminal_width};
use crate::units::{
    Rate, parse_duration, parse_frame_sizes, parse_low_rate, parse_positive_duration, parse_rate,
};

/// Send traffic through a running device: one trial with its loss, latency and the tester's health.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Port of the tester, once or twice: memif:/path?role=client, vhost:/path, af-packet:IFNAME, pci:0000:17:00.0
    /// and others (docs/README.md).
    #[arg(long = "port", value_name = "URI", required = true)]
    ports: Vec<PortUri>,
    /// Frames per second, summed over the sending ports, such as 250000, 1.5M or max. Default: that of the traffic file.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present_any = ["traffic", "connections", "connections_rate", "concurrent"])]
    rate: Option<Rate>,
    /// Traffic description (TOML): headers, flows, sizes, bursts, checked payload.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ip", "flows", "destinations", "mac_addresses"])]
    traffic: Option<PathBuf>,
    #[command(flatten)]
    connections: ConnectionArgs,
    /// Frame size with FCS, octets, 64 (IPv6: 84) to 9000, or imix. Default: the smallest.
    #[arg(long, value_name = "SIZE", value_parser = parse_frame_sizes)]
    frame_size: Option<FrameSizes>,
    /// IP version of the frames.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    ip: Ip,
    /// Time during which frames are offered and counted: 500ms, 10s, 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Warm-up: time under the same load before counting starts.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// Time limit for the learning frames of all MAC addresses; increase it for a slow device. Default: 1 s per million
    /// addresses.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    learning_time: Option<Duration>,
    /// Pause after the ports are up, and again after the learning frames.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    settle: Duration,
    /// Time to keep receiving after the last frame.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    drain: Duration,
    /// Highest number of trials, 1 to 10: a trial that is invalid because the tester failed is repeated. The result lists the
    /// invalid trials.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=10))]
    attempts: u8,
    /// Sending ports. Default: both, or the only one.
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Expect frames back at the port that sent them. Default: at the other port.
    #[arg(long)]
    reflected: bool,
    /// Flows of each sending port, which differ in the UDP source port: 1 to 65535.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Destination MAC addresses of each sending port: 1 to 16777216.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAC_ADDRESSES_MAX)))]
    mac_addresses: u32,
    /// IP destinations of each sending port, 1 to 2097152, in random order. Each is in a different network: a /24 from
    /// 16.0.0.0 on or a /48 from 3fff:: on (second port: from 48.0.0.0 or 3fff:20:: on).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(DESTINATIONS_MAX)))]
    destinations: u32,
    /// Rate of an additional latency stream of each sending port, frames per second, 0 to 1000. The stream is part of the
    /// port's load.
    #[arg(long, value_name = "RATE", default_value_t = LOW_RATE_PPS, value_parser = parse_low_rate)]
    low_rate: f64,
    /// Write the transmit and receive time of each frame of the latency streams to this pcapng file.
    #[arg(long, value_name = "FILE")]
    timestamps: Option<PathBuf>,
    #[command(flatten)]
    tester: OwnTesterArgs,
    #[command(flatten)]
    isolation: IsolationArgs,
    /// Calibration file that the result cites, written by `quietwire tester calibrate`. Default: quietwire/calibration.json in
    /// $XDG_STATE_HOME or ~/.local/state, if it exists.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print the complete result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// The first port sends, the last port receives.
    OneWay,
    /// The second port sends, the first port receives.
    Reverse,
    /// Both ports send and receive at the same time.
    Both,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    if args.ports.len() > 2 {
        bail!(Usage(format!(
            "--port: {} ports given, but a tester has one or two (remove the others)",
            args.ports.len()
        )));
    }
    if args.connections.is_requested() {
        return run_conversations(args);
    }
    let cpus = args.tester.cpus()?;
    args.isolation.check(&args.tester)?;
    let (trial, is_unpaced) = checked_trial(args)?;
    warn_of_idle_cpus(&cpus, &args.ports);
    args.tester.check_machine(&args.ports)?;
    let stop = stop_on_signals(ISOLATION_LEFT)?;
    let eal = args.tester.start_dpdk(&cpus, &args.ports)?;
    let mut tester = open_tester(args, &eal, cpus, &trial, &stop)?;
    let device = args.device.find(&args.ports)?;
    let isolation = args
        .isolation
        .isolate(&args.tester, &mut tester, whole_s(&trial), &stop)?;
    load_calibrations(&mut tester, args.calibration.as_ref())?;
    record_time_stamps(&mut tester, args.timestamps.as_ref())?;
    let missing = tester.missing_calibration(&trial);
    missing.iter().for_each(say);
    leave_alone(args.settle, &stop);
    let measured = measure(
        &mut tester,
        (&trial, is_unpaced),
        args.attempts,
        device.as_ref(),
    )?;
    stop.store(true, Ordering::Relaxed);
    let record = isolation.record().clone();
    let undone = isolation.undo();
    print_result(&measured, &record, missing.as_ref(), args.json)?;
    undone?;
    check_validity(&measured.result.validity)
}

/// Runs conversations instead of frames at a rate.
fn run_conversations(args: &GenerateArgs) -> Result<()> {
    if args.timestamps.is_some() {
        bail!(Usage(
            "--timestamps: conversations have no low-rate streams (remove it)".to_owned()
        ));
    }
    connections::run(&Setup {
        connections: &args.connections,
        ports: &args.ports,
        tester: &args.tester,
        isolation: &args.isolation,
        duration: args.duration,
        drain: args.drain,
        settle: args.settle,
        json: args.json,
    })
}

/// Returns the trial of the options after all checks of it, and true if it runs at the highest rate of the tester.
fn checked_trial(args: &GenerateArgs) -> Result<(Trial, bool)> {
    let (trial, is_unpaced) = trial(args)?;
    check_trial(is_unpaced, &trial)?;
    if args.timestamps.is_some() && trial.low_rate_pps <= 0.0 {
        bail!(Usage(
            "--timestamps: the trial has no low-rate streams, because of --low-rate 0 or a capture (remove --timestamps)".to_owned()
        ));
    }
    check_time_stamps(args.timestamps.as_ref())?;
    Ok((trial, is_unpaced))
}

/// Opens the tester and waits for its links. `stop` aborts its trials.
fn open_tester(
    args: &GenerateArgs,
    eal: &Eal,
    cpus: Vec<u32>,
    trial: &Trial,
    stop: &Arc<AtomicBool>,
) -> Result<Tester> {
    let preparation = Preparation {
        learning_s: args.learning_time.map(|time| time.as_secs_f64()),
        settle_s: args.settle.as_secs_f64(),
    };
    let size_max = trial.frame_size_largest();
    let mut tester = args
        .tester
        .open(eal, cpus, &args.ports, size_max, preparation)?;
    tester.abort_on(stop);
    tester.wait_for_links(LINK_DEADLINE)?;
    Ok(tester)
}

/// Outcome of the trial and its repetitions.
struct Measured {
    result: TrialResult,
    /// The part that limited the rate, and the idle time of both sides.
    limit: TrialLimit,
    /// The invalid trials before the one of the result.
    invalid_trials: Vec<InvalidTrial>,
}

/// Runs the trial until it is valid, at most `attempts` times, and accounts for its frames by the counters of the device.
fn measure(
    tester: &mut Tester,
    (trial, is_unpaced): (&Trial, bool),
    attempts: u8,
    device: Option<&RunningSwitch>,
) -> Result<Measured> {
    let mut work = None;
    let (result, invalid_trials) = repeat_while_invalid(attempts, || {
        let before = device.map(RunningSwitch::read);
        let spinner = spinner(trial);
        let result = if is_unpaced {
            tester.run_unpaced(trial)
        } else {
            tester.run(trial)
        };
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        let mut result = result?;
        let read = device.zip(before);
        work = read.map(|(device, before)| device.account_for(&mut result, &before));
        Ok(result)
    })?;
    if let Some(Err(why)) = &work {
        tracing::warn!("the idle time of the device is unknown: {why}");
    }
    let limit = TrialLimit::of(&result, work.as_ref().and_then(|it| it.as_ref().ok()));
    Ok(Measured {
        result,
        limit,
        invalid_trials,
    })
}

/// Prints the result as a table or as JSON.
fn print_result(
    measured: &Measured,
    isolation: &IsolationRecord,
    calibration_missing: Option<&MissingCalibration>,
    is_json: bool,
) -> Result<()> {
    let Measured {
        result,
        limit,
        invalid_trials,
    } = measured;
    if is_json {
        let output = Output {
            result,
            limit,
            isolation,
            calibration_missing,
            invalid_trials,
        };
        let mut document = serde_json::to_value(&output)?;
        withhold(&mut document, result);
        print(serde_json::to_string_pretty(&document)?)
    } else {
        let width = usize::from(terminal_width());
        let text = invalid_lines(invalid_trials, width);
        print(text + &result_text(result, limit, width))
    }
}

/// Returns an error if the tester failed during the trial.
fn check_validity(validity: &Validity) -> Result<()> {
    match validity {
        Validity::Valid => Ok(()),
        Validity::Invalid(_) => Err(CheckFailed(
            "the trial is invalid because the tester failed, so it has no result for the device (--attempts N repeats it)"
                .to_owned(),
        )
        .into()),
    }
}

/// The result as JSON.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    result: &'a TrialResult,
    /// The part that limited the rate, and the idle time of both sides.
    limit: &'a TrialLimit,
    /// The isolation that was applied.
    isolation: &'a IsolationRecord,
    /// The calibration that the result cannot cite because the file only has calibrations of other setups.
    calibration_missing: Option<&'a MissingCalibration>,
    /// The invalid trials before the one of the result.
    invalid_trials: &'a [InvalidTrial],
}

/// A trial that was repeated because the tester failed.
#[derive(Debug, Serialize)]
struct InvalidTrial {
    reasons: Vec<InvalidReason>,
    offered_frames: u64,
    lost_frames: u64,
}

/// Runs trials until one is valid, at most `attempts`. Returns the last result, and the invalid trials before it.
fn repeat_while_invalid(
    attempts: u8,
    mut run: impl FnMut() -> Result<TrialResult>,
) -> Result<(TrialResult, Vec<InvalidTrial>)> {
    let mut invalid_trials = Vec::new();
    let mut result = run()?;
    for _ in 1..attempts {
        let Validity::Invalid(reasons) = result.validity else {
            break;
        };
        invalid_trials.push(InvalidTrial {
            reasons,
            offered_frames: result.offered_frames,
            lost_frames: result.lost_frames,
        });
        result = run()?;
    }
    Ok((result, invalid_trials))
}

/// Describes the invalid trials before the one of the result, a line for each reason.
fn invalid_lines(invalid_trials: &[InvalidTrial], width: usize) -> String {
    let mut text = String::new();
    for (index, trial) in invalid_trials.iter().enumerate() {
        for reason in &trial.reasons {
            let line = format!(
                "repeated   trial {}, with {} of {} frames lost, was invalid: {reason}",
                index.saturating_add(1),
                trial.lost_frames,
                trial.offered_frames
            );
            text += &fold(&line, width, INDENT);
            text += "\n";
        }
    }
    text
}

fn check_trial(is_unpaced: bool, trial: &Trial) -> Result<()> {
    trial.validate().map_err(Usage)?;
    if !is_unpaced && trial.offered_rate_pps * trial.duration_s < 1.0 {
        bail!(Usage(format!(
            "no frame is due in {} s at {} frames per second (increase --rate or --duration)",
            trial.duration_s, trial.offered_rate_pps
        )));
    }
    Ok(())
}

/// Returns the length of a trial with warm-up and drain, seconds.
fn whole_s(trial: &Trial) -> f64 {
    trial.warm_up_s + trial.duration_s + trial.drain_s
}

/// Returns the spinner that a terminal shows during a trial of more than 2 s.
fn spinner(trial: &Trial) -> Option<ProgressBar> {
    const SHORT_S: f64 = 2.0;
    if whole_s(trial) <= SHORT_S || !std::io::stderr().is_terminal() {
        return None;
    }
    let spinner = ProgressBar::new_spinner().with_message(format!(
        "offering frames for {:.1} s, including warm-up and drain",
        whole_s(trial)
    ));
    // The interval is long so that the spinner does not disturb the tester.
    spinner.enable_steady_tick(Duration::from_secs(1));
    Some(spinner)
}

/// Returns the trial that options and traffic file describe, and true if it runs at the highest rate of the tester.
fn trial(args: &GenerateArgs) -> Result<(Trial, bool)> {
    let asked = trial_request(args);
    let Some(path) = &args.traffic else {
        return Ok((asked, args.rate == Some(Rate::Max)));
    };
    let traffic = Traffic::read(path)?;
    let shown = path.display();
    if traffic.sizes.is_some() && args.frame_size.is_some() {
        bail!(Usage(format!(
            "--frame-size conflicts with the sizes in {shown} (remove one of them)"
        )));
    }
    if traffic.directions.is_some() && args.direction.is_some() {
        bail!(Usage(format!(
            "--direction conflicts with the directions in {shown} (remove one of them)"
        )));
    }
    if args.rate.is_some() == traffic.has_rate() {
        bail!(Usage(if traffic.has_rate() {
            format!("--rate conflicts with the rate or schedule in {shown} (remove one of them)")
        } else {
            format!("{shown} has neither a rate nor a schedule (add --rate)")
        }));
    }
    let smallest = traffic.frame_size_min();
    let trial = Trial {
        frame_sizes: args.frame_size.unwrap_or(FrameSizes::Fixed(smallest)),
        ..asked
    };
    let trial = trial.with_traffic(traffic).map_err(TesterError::from)?;
    Ok((trial, args.rate == Some(Rate::Max)))
}

/// Warns if --cpus names more CPUs than the ports have queues.
fn warn_of_idle_cpus(cpus: &[u32], ports: &[PortUri]) {
    let queues: usize = ports.iter().map(|uri| usize::from(uri.queues())).sum();
    if cpus.len() > queues {
        tracing::warn!(
            "--cpus names {} CPUs, but the ports have only {queues} queues in total, so the remaining CPUs stay idle (add queues with queues=N)",
            cpus.len()
        );
    }
}

fn trial_request(args: &GenerateArgs) -> Trial {
    let directions = match args.direction {
        Some(Direction::OneWay) => Directions::OneWay,
        Some(Direction::Reverse) => Directions::Reverse,
        Some(Direction::Both) => Directions::Both,
        None if args.ports.len() == 1 => Directions::OneWay,
        None => Directions::Both,
    };
    let ip = IpVersion::from(args.ip);
    let smallest = FrameSizes::Fixed(ip.frame_size_min());
    Trial {
        offered_rate_pps: match args.rate {
            Some(Rate::PacketsPerSecond(rate)) => rate,
            // Without --rate, the traffic file gives the rate.
            Some(Rate::Max) | None => Trial::UNPACED,
        },
        duration_s: args.duration.as_secs_f64(),
        warm_up_s: args.warm_up.as_secs_f64(),
        drain_s: args.drain.as_secs_f64(),
        frame_sizes: args.frame_size.unwrap_or(smallest),
        directions,
        flows: args.flows,
        mac_addresses: args.mac_addresses,
        destinations: args.destinations,
        ip,
        low_rate_pps: args.low_rate,
        reflected: args.reflected,
        latency_start: LatencyStart::Sent,
        rate_tolerance_pps: None,
        traffic: None,
    }
}

/// Describes the calibration that the result cites.
fn calibration_line(result: &TrialResult, width: usize) -> Option<String> {
    let cited = result.calibration.as_ref()?;
    let mut line = format!(
        "calibrated clean up to {:.4} Mpps without a device, latency from {:.2} us",
        cited.clean_rate_pps / 1e6,
        cited.latency_floor_ns as f64 / 1e3
    );
    if cited.is_exceeded {
        line += "; this trial offered more, so the tester may have lost frames";
    }
    Some(fold(&line, width, INDENT))
}

/// Describes the mix of frame sizes, and the scope of the check for damage.
fn described(result: &TrialResult, width: usize) -> Vec<String> {
    let mix = mix_text(&result.trial).map(|mix| ("frames", mix));
    let check = result.damage_check;
    let check = check.map(|check| ("checked", check.to_string()));
    let lines = mix.into_iter().chain(check);
    lines
        .map(|(name, what)| fold(&format!("{name:INDENT$}{what}"), width, INDENT))
        .collect()
}

/// Describes the times for which the host did not run the tester; `None` without any.
fn host_line(result: &TrialResult, width: usize) -> Option<String> {
    let health = &result.health;
    if health.host_stalls == 0 {
        return None;
    }
    let us = |ns: u64| format!("{:.2} us", ns as f64 / 1e3);
    let name = "host";
    let text = format!(
        "{name:INDENT$}stalled the tester {} times over 10 us, {} in total, at most {}",
        health.host_stalls,
        us(health.host_stall_time_ns),
        us(health.longest_host_gap_ns),
    );
    Some(fold(&text, width, INDENT))
}

/// Returns the error of the rate and the times between bursts; `None` for traffic without a constant rate.
fn pacing_line(result: &TrialResult, width: usize) -> Option<String> {
    let health = &result.health;
    let error_ratio = health.rate_error_ratio?;
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3));
    let (gaps, stalled) = (&health.burst_gaps, &health.stalled_gaps);
    let name = "pacing";
    let mut text = format!(
        "{name:INDENT$}rate off by {:+.4} %, gaps between bursts {} us (median), {} us (99 %), {} us (99.9 %), {} us (longest)",
        error_ratio * 100.0,
        us(gaps.p50_ns),
        us(gaps.p99_ns),
        us(gaps.p99_9_ns),
        us((gaps.samples > 0).then_some(gaps.max_ns)),
    );
    if stalled.samples > 0 {
        text += &format!(
            "; {} gaps with stalls of the tester, longest {} us",
            stalled.samples,
            us(Some(stalled.max_ns)),
        );
    }
    Some(fold(&text, width, INDENT))
}

/// Formats the result as text, folded to `width` columns. Lines with very large figures may be longer.
fn result_text(result: &TrialResult, limit: &TrialLimit, width: usize) -> String {
    let mpps = |rate: f64| format!("{:.6} Mpps", rate / 1e6);
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    let frames = |name: &str, count: u64| format!("{name:INDENT$}{count:>14} frames");
    let mut lines = vec![
        frames("offered", result.offered_frames) + "  " + &mpps(result.achieved_rate_pps),
        frames("received", result.received_frames) + "  " + &mpps(result.forwarding_rate_pps),
        frames("lost", result.lost_frames) + &format!("  {} %", loss_percent(result.loss_ratio, 6)),
    ];
    lines.extend(loss_lines(result, width));
    lines.extend([
        frames("duplicate", result.duplicate_frames),
        frames("reordered", result.reordered_frames),
    ]);
    let misdirected = result
        .ports
        .iter()
        .map(|port| port.misdirected_frames)
        .sum();
    for (name, count) in [
        ("damaged", result.damaged_frames),
        ("misdirected", misdirected),
        ("stale", result.stale_frames),
    ] {
        if count > 0 {
            lines.push(frames(name, count));
        }
    }
    lines.extend(described(result, width));
    lines.extend(latency_lines(result));
    let health = &result.health;
    lines.push(format!(
        "tester     missed {:.4} % of its schedule, {} of {} bursts late\n           longest gap {} us, {} gaps over 100 us, real-time {}",
        health.pacing_miss_ratio * 100.0,
        health.late_bursts,
        health.bursts,
        us(health.longest_gap_ns),
        health.gaps_over_100us,
        if health.realtime { "yes" } else { "no" }
    ));
    lines.extend(host_line(result, width));
    lines.extend(pacing_line(result, width));
    lines.push(fold(
        &format!("{:INDENT$}{}", "limit", limit.text()),
        width,
        INDENT,
    ));
    lines.extend(calibration_line(result, width));
    lines.extend(validity_lines(&result.validity, width));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_tester::{CitedCalibration, DamageCheck, InvalidCause, LatencySummary};

    use super::*;

    fn result(frame_sizes: FrameSizes) -> TrialResult {
        let trial = Trial {
            directions: Directions::OneWay,
            ..Trial::new(1000.0, 1.0, frame_sizes)
        };
        let latency = LatencySummary {
            samples: 1000,
            min_ns: 900,
            mean_ns: 20_000.0,
            p50_ns: Some(30_000),
            max_ns: 40_000,
            ..LatencySummary::default()
        };
        TrialResult::of_counts(&trial, 1.0, 1000, 1000, latency)
    }

    fn result_text(result: &TrialResult, width: usize) -> String {
        super::result_text(result, &TrialLimit::of(result, None), width)
    }

    #[test]
    fn the_limit_and_the_stalls_of_the_host_are_printed() {
        let mut result = result(FrameSizes::Fixed(64));
        result.health.idle_ratio = Some(0.5);
        let text = result_text(&result, 100);
        assert!(
            text.contains("\nlimit      none at this rate, tester idle 50"),
            "{text}"
        );
        assert!(!text.contains("host"), "{text}");
        result.health.host_stalls = 3;
        result.health.host_stall_time_ns = 45_500;
        result.health.longest_host_gap_ns = 21_000;
        let text = result_text(&result, 100);
        let line = "\nhost       stalled the tester 3 times over 10 us, 45.50 us in total, at most 21.00 us\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_error_of_the_rate_and_the_gaps_between_bursts_are_printed() {
        let mut result = result(FrameSizes::Fixed(64));
        // Without a constant rate, there is no error of it.
        assert!(!result_text(&result, 100).contains("pacing"));
        result.health.rate_error_ratio = Some(-5e-5);
        result.health.burst_gaps = LatencySummary {
            samples: 20_000,
            p50_ns: Some(32_000),
            p99_ns: Some(33_000),
            p99_9_ns: None,
            max_ns: 90_000,
            ..LatencySummary::default()
        };
        let text = result_text(&result, 200);
        let line = "\npacing     rate off by -0.0050 %, gaps between bursts 32.00 us (median), 33.00 us (99 %), - us (99.9 %), 90.00 us (longest)\n";
        assert!(text.contains(line), "{text}");
        result.health.stalled_gaps = LatencySummary {
            samples: 2,
            max_ns: 150_000,
            ..LatencySummary::default()
        };
        let text = result_text(&result, 200);
        let line = "(longest); 2 gaps with stalls of the tester, longest 150.00 us\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_composition_of_a_mix_is_printed() {
        let text = result_text(&result(FrameSizes::Imix), 80);
        let expected = "
frames     a mix of 64, 594, 1518 octets in the ratio 7:4:1 (IMIX; RFC 6985:
           CUSTOM IMIX - aAaaAagaAaAa, A = 594)
";
        assert!(text.contains(expected), "{text}");
        let text = result_text(&result(FrameSizes::Fixed(64)), 80);
        assert!(!text.contains("a mix of"), "{text}");
        let mut described = result(FrameSizes::Fixed(70));
        let file = "[traffic]\nsizes = [[70, 7], [594, 4], [1518, 1]]\n";
        let traffic = Traffic::parse(file, Path::new("traffic.toml")).unwrap();
        described.trial = described.trial.with_traffic(traffic).unwrap();
        let text = result_text(&described, 80);
        let mix = "a mix of 70, 594, 1518 octets in the ratio 7:4:1\n";
        assert!(text.contains(mix), "{text}");
    }

    #[test]
    fn an_invalid_trial_is_repeated_as_often_as_asked_and_listed() {
        let reason = || InvalidReason {
            cause: InvalidCause::RateMissed,
            text: "the tester stalled".to_owned(),
        };
        let outcome = |attempts: u8, invalid: usize| {
            let mut runs = 0;
            let (result, invalid_trials) = repeat_while_invalid(attempts, || {
                runs += 1;
                let mut result = result(FrameSizes::Fixed(64));
                if runs <= invalid {
                    result.validity = Validity::Invalid(vec![reason()]);
                }
                Ok(result)
            })
            .unwrap();
            (runs, result.validity == Validity::Valid, invalid_trials)
        };
        for (attempts, invalid, runs, is_valid) in [
            (1, 0, 1, true),
            (1, 1, 1, false),
            (3, 0, 1, true),
            (3, 2, 3, true),
            (3, 3, 3, false),
        ] {
            let observed = outcome(attempts, invalid);
            assert_eq!(
                (observed.0, observed.1),
                (runs, is_valid),
                "{attempts}, {invalid}"
            );
            assert_eq!(observed.2.len(), runs - 1);
        }
        let (_, _, invalid_trials) = outcome(3, 2);
        let text = invalid_lines(&invalid_trials, 200);
        let first =
            "repeated   trial 1, with 0 of 1000 frames lost, was invalid: the tester stalled\n";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn the_scope_of_the_check_for_damage_is_printed() {
        let mut result = result(FrameSizes::Fixed(64));
        assert!(!result_text(&result, 80).contains("checked"));
        result.damage_check = Some(DamageCheck::AfterEthernetHeader);
        let text = result_text(&result, 100);
        let line = "\nchecked    all octets after the Ethernet header, by the IPv4 header";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_withheld_latency_is_an_upper_bound_in_the_table_and_in_json() {
        let mut result = result(FrameSizes::Fixed(64));
        let own = LatencySummary {
            samples: 1000,
            min_ns: 100,
            mean_ns: 200.0,
            max_ns: 300,
            ..LatencySummary::default()
        };
        result.calibration = Some(CitedCalibration {
            measured_unix_ns: 1,
            clean_rate_pps: 1e6,
            latency_floor_ns: 100,
            own: Some(own),
            is_exceeded: false,
        });
        let text = result_text(&result, 80);
        assert!(text.contains(" <0.90 "), "{text}");
        assert!(text.contains(" 20.00 "), "{text}");
        let mut document = serde_json::to_value(&result).unwrap();
        withhold(&mut document, &result);
        let latency = &document["latency"];
        assert!(latency["min_ns"].is_null(), "{latency}");
        assert_eq!(latency["min_upper_bound_ns"], 900);
        assert_eq!(latency["mean_ns"], 20_000.0);
    }
}
