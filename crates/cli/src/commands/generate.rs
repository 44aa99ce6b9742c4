// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate`: the tester by itself, one trial over ports that are up already.

mod latency;
mod losses;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use quietwire_dpdk::PortUri;
use quietwire_lab::IsolationRecord;
use quietwire_study::RunningSwitch;
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    DESTINATIONS_MAX, Directions, FrameSizes, IpVersion, LOW_RATE_PPS, LOW_RATE_PPS_MAX,
    MAC_ADDRESSES_MAX, MissingCalibration, Preparation, TesterError, Trial, TrialResult, Validity,
};

use serde::Serialize;

use latency::latency_lines;
use losses::{INDENT, loss_lines};

use super::device::DeviceArgs;
use super::isolation::IsolationArgs;
use super::own_tester::{Ip, LINK_DEADLINE, OwnTesterArgs, cite};
use crate::exit::{CheckFailed, Usage, on_signals};
use crate::text::{fold, print, say, terminal_width};
use crate::units::{Rate, parse_duration, parse_frame_sizes, parse_positive_duration, parse_rate};

/// Traffic through a device that is running already: one trial, its loss, latency and the tester's own health.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Port of the tester, once or twice: memif:/path?role=client, vhost:/path, af-packet:IFNAME, pci:0000:17:00.0
    /// and more; docs/README.md lists all.
    #[arg(long = "port", value_name = "URI", required = true)]
    ports: Vec<PortUri>,
    /// Frames per second summed over the ports that send, such as 250000, 1.5M or max. A traffic file may say it instead.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, required_unless_present = "traffic")]
    rate: Option<Rate>,
    /// A description of the traffic (TOML): headers, flows, sizes, bursts, a checked payload.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ip", "flows", "destinations", "mac_addresses"])]
    traffic: Option<PathBuf>,
    /// Octets with FCS, 64 (IPv6: 84) to 9000, or imix. Default: the smallest.
    #[arg(long, value_name = "SIZE", value_parser = parse_frame_sizes)]
    frame_size: Option<FrameSizes>,
    /// Which IP the frames carry, 4 or 6.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    ip: Ip,
    /// How long frames are offered and counted: 500ms, 10s, 2m.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// How long the same load runs before anything is counted.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// How long the learning frames of all MAC addresses may take, where the device takes them slowly. Default: a second
    /// per million.
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration)]
    learning_time: Option<Duration>,
    /// How long the device is left alone once the ports are up, and again after the learning frames.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    settle: Duration,
    /// How long to go on receiving after the last frame.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    drain: Duration,
    /// Which ports send: both where there are two, unless said.
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Count frames at the port that sent them: the device sends them back. Default: at the other port only.
    #[arg(long)]
    reflected: bool,
    /// Flows of each port that sends, told apart by UDP source port: 1 to 65535.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Destination MAC addresses of each port that sends: 1 to 16777216.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAC_ADDRESSES_MAX)))]
    mac_addresses: u32,
    /// IP destinations of each port that sends, drawn at random, each of a network of its own, a /24 from 16.0.0.0 on or a
    /// /48 from 3fff:: on (second port: from 48.0.0.0 or 3fff:20:: on): 1 to 2097152.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(DESTINATIONS_MAX)))]
    destinations: u32,
    /// Frames per second of a low-rate stream of each port that sends, part of its load, to measure latency with as well:
    /// 0 to 1000.
    #[arg(long, value_name = "RATE", default_value_t = LOW_RATE_PPS, value_parser = parse_low_rate)]
    low_rate: f64,
    #[command(flatten)]
    tester: OwnTesterArgs,
    #[command(flatten)]
    isolation: IsolationArgs,
    /// Calibrations that the result is to cite, made by `quietwire tester calibrate`. Default: quietwire/calibration.json in
    /// $XDG_STATE_HOME or ~/.local/state, where it is there.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print the whole result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// The first port sends, the last receives.
    OneWay,
    /// Both send and receive at once.
    Both,
}

fn parse_low_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=LOW_RATE_PPS_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!(
            "a low-rate stream has 0 to {LOW_RATE_PPS_MAX} frames per second"
        )),
    }
}

pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    if args.ports.len() > 2 {
        bail!(Usage(format!(
            "{} ports were given, and a tester has one or two",
            args.ports.len()
        )));
    }
    let cpus = args.tester.cpus()?;
    args.isolation.check(&args.tester)?;
    let (trial, is_unpaced) = trial(args)?;
    check_trial(is_unpaced, &trial)?;
    say_of_idle_cpus(&cpus, &args.ports);
    args.tester.check_machine(&args.ports)?;
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    let eal = args.tester.start_dpdk(&cpus, &args.ports)?;
    let preparation = Preparation {
        learning_s: args.learning_time.map(|time| time.as_secs_f64()),
        settle_s: args.settle.as_secs_f64(),
    };
    let size_max = trial.frame_size_largest();
    let mut tester = args
        .tester
        .open(&eal, cpus, &args.ports, size_max, preparation)?;
    let abort = tester.abort_flag();
    on_signals(&abort)?;
    if stop.load(Ordering::Relaxed) {
        abort.store(true, Ordering::Relaxed);
    }
    tester.wait_for_links(LINK_DEADLINE)?;
    let device = args.device.find(&args.ports)?;
    let isolation = args
        .isolation
        .isolate(&args.tester, &mut tester, whole_s(&trial), &abort)?;
    cite(&mut tester, args.calibration.as_ref())?;
    let missing = tester.missing_calibration(&trial);
    missing.iter().for_each(say);
    leave_alone(args.settle, &abort);
    let before = device.as_ref().map(RunningSwitch::counts);
    let spinner = spinner(&trial);
    let result = if is_unpaced {
        tester.run_unpaced(&trial)
    } else {
        tester.run(&trial)
    };
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    let mut result = result?;
    abort.store(true, Ordering::Relaxed);
    if let Some((device, before)) = device.as_ref().zip(before) {
        result.account_for(device.layout(), &before, &device.counts());
    }
    let record = isolation.record().clone();
    let undone = isolation.undo();
    if args.json {
        let output = Output {
            result: &result,
            isolation: &record,
            calibration_missing: missing.as_ref(),
        };
        print(serde_json::to_string_pretty(&output)?)?;
    } else {
        print(result_text(&result, usize::from(terminal_width())))?;
    }
    undone?;
    match &result.validity {
        Validity::Valid => Ok(()),
        Validity::Invalid(_) => Err(CheckFailed(
            "the trial is invalid: the tester failed, which says nothing about the device"
                .to_owned(),
        )
        .into()),
    }
}

/// The result for programs.
#[derive(Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    result: &'a TrialResult,
    /// What was isolated.
    isolation: &'a IsolationRecord,
    /// The calibration that it could not cite, as there are others only.
    calibration_missing: Option<&'a MissingCalibration>,
}

/// Waits, or until it is to end.
fn leave_alone(time: Duration, abort: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !abort.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10).min(time));
    }
}

fn check_trial(is_unpaced: bool, trial: &Trial) -> Result<()> {
    trial.validate().map_err(Usage)?;
    if !is_unpaced && trial.offered_rate_pps * trial.duration_s < 1.0 {
        bail!(Usage(format!(
            "no frame is due in {} s at {} frames per second; give a higher --rate or a longer --duration",
            trial.duration_s, trial.offered_rate_pps
        )));
    }
    Ok(())
}

/// From before the first frame until after the last, seconds.
fn whole_s(trial: &Trial) -> f64 {
    trial.warm_up_s + trial.duration_s + trial.drain_s
}

/// Shown on a terminal while a trial runs that takes a while.
fn spinner(trial: &Trial) -> Option<ProgressBar> {
    const SHORT_S: f64 = 2.0;
    if whole_s(trial) <= SHORT_S || !std::io::stderr().is_terminal() {
        return None;
    }
    let spinner = ProgressBar::new_spinner().with_message(format!(
        "offering frames, {:.1} s in all with warm-up and drain",
        whole_s(trial)
    ));
    // Seldom: it must not be a neighbour itself.
    spinner.enable_steady_tick(Duration::from_secs(1));
    Some(spinner)
}

/// The trial that the options and the traffic file ask for, and whether it goes as fast as the tester can.
fn trial(args: &GenerateArgs) -> Result<(Trial, bool)> {
    let asked = asked(args);
    let Some(path) = &args.traffic else {
        return Ok((asked, args.rate == Some(Rate::Max)));
    };
    let traffic = Traffic::read(path)?;
    let shown = path.display();
    if traffic.sizes.is_some() && args.frame_size.is_some() {
        bail!(Usage(format!(
            "--frame-size is given, and {shown} has sizes; leave one of them out"
        )));
    }
    if traffic.directions.is_some() && args.direction.is_some() {
        bail!(Usage(format!(
            "--direction is given, and {shown} has directions; leave one of them out"
        )));
    }
    if args.rate.is_some() == traffic.says_rate() {
        bail!(Usage(if traffic.says_rate() {
            format!("--rate is given, and {shown} says when frames are sent; leave one of them out")
        } else {
            format!("{shown} does not say when frames are sent; give --rate")
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

/// Says so when CPUs were named that get nothing to do.
fn say_of_idle_cpus(cpus: &[u32], ports: &[PortUri]) {
    let queues: usize = ports.iter().map(|uri| usize::from(uri.queues())).sum();
    if cpus.len() > queues {
        tracing::warn!(
            "--cpus names {} CPUs, and the ports have {queues} queues together: the others stay idle; give ports more with queues=N",
            cpus.len()
        );
    }
}

fn asked(args: &GenerateArgs) -> Trial {
    let directions = match args.direction {
        Some(Direction::OneWay) => Directions::OneWay,
        Some(Direction::Both) => Directions::Both,
        None if args.ports.len() == 1 => Directions::OneWay,
        None => Directions::Both,
    };
    let ip = IpVersion::from(args.ip);
    let smallest = FrameSizes::Fixed(ip.frame_size_min());
    Trial {
        offered_rate_pps: match args.rate {
            Some(Rate::PacketsPerSecond(rate)) => rate,
            // Without a rate, the traffic file says it.
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
        rate_tolerance_pps: None,
        traffic: None,
    }
}

/// What the result stands on.
fn calibration_line(result: &TrialResult, width: usize) -> Option<String> {
    let cited = result.calibration.as_ref()?;
    let mut line = format!(
        "calibrated clean up to {:.4} Mpps without a device, latency from {:.2} us",
        cited.clean_rate_pps / 1e6,
        cited.latency_floor_ns as f64 / 1e3
    );
    if cited.is_exceeded {
        line += "; this trial offered more than that: what it lost may be the tester's";
    }
    Some(fold(&line, width, INDENT))
}

/// The result for people, in lines of at most `width` columns wherever figures are not very large.
fn result_text(result: &TrialResult, width: usize) -> String {
    let mpps = |rate: f64| format!("{:.6} Mpps", rate / 1e6);
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    let frames = |name: &str, count: u64| format!("{name:INDENT$}{count:>14} frames");
    let mut lines = vec![
        frames("offered", result.offered_frames) + "  " + &mpps(result.achieved_rate_pps),
        frames("received", result.received_frames) + "  " + &mpps(result.forwarding_rate_pps),
        frames("lost", result.lost_frames) + &format!("  {:.6} %", result.loss_ratio * 100.0),
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
    lines.extend(calibration_line(result, width));
    match &result.validity {
        Validity::Valid => lines.push("valid".to_owned()),
        Validity::Invalid(reasons) => lines.extend(
            reasons
                .iter()
                .map(|reason| fold(&format!("INVALID    {reason}"), width, INDENT)),
        ),
    }
    lines.join("\n")
}
