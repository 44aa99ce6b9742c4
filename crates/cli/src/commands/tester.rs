// SPDX-License-Identifier: Apache-2.0
//! `quietwire tester`: calibration and self-test of the tester.

mod self_test;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use quietwire_dpdk::PortUri;
use quietwire_report::TerminalTable;
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    Calibration, CalibrationOptions, Calibrations, Directions, FrameSizes, IpVersion, Preparation,
    SizeCalibration, Step,
};
use serde_json::json;

use super::isolation::IsolationArgs;
use super::own_tester::{Ip, LINK_DEADLINE, OwnTesterArgs};
use crate::exit::{CheckFailed, ISOLATION_LEFT, Usage, stop_on_signals};
use crate::output::check_place;
use crate::text::{print, say};
use crate::units::{parse_frame_sizes, parse_positive_duration};
use table::table;

/// Calibrate and test the tester without a device.
#[derive(Debug, Args)]
pub(crate) struct TesterArgs {
    #[command(subcommand)]
    command: TesterCommand,
}

#[derive(Debug, Subcommand)]
enum TesterCommand {
    Calibrate(CalibrateArgs),
    SelfTest(self_test::SelfTestArgs),
    #[command(hide = true)]
    SelfTestDevice(self_test::SelfTestDeviceArgs),
}

/// Measure the tester on two ports that are connected to each other, and store the figures for later trials to cite.
#[derive(Debug, Args)]
struct CalibrateArgs {
    /// Port of the tester. Twice for ports that are connected to each other: memif:/tmp/loop?role=server and
    /// memif:/tmp/loop?role=client, or two interfaces with a cable between them. Once for a port that receives its own frames.
    #[arg(long = "port", value_name = "URI", required = true)]
    ports: Vec<PortUri>,
    /// Frame size with FCS, octets, 64 (IPv6: 84) to 9000, or imix; repeatable. Default: the smallest.
    #[arg(long = "frame-size", value_name = "SIZE", value_parser = parse_frame_sizes)]
    frame_sizes: Vec<FrameSizes>,
    /// IP version of the frames.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "4")]
    ip: Ip,
    /// Traffic description (TOML) of the later trials: headers, flows, sizes, checked payload.
    #[arg(long, value_name = "FILE", conflicts_with = "ip")]
    traffic: Option<PathBuf>,
    /// Send from both ports at the same time. Default: from the first to the second.
    #[arg(long)]
    both: bool,
    /// Duration of each trial of the search for the highest clean rate.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Duration of each pacing measurement, at 10, 50 and 90 % of that rate, and of the trials that confirm it.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration)]
    pacing_duration: Duration,
    /// Rates to try after the first in that search, 0 to 100.
    #[arg(long, value_name = "N", default_value_t = CalibrationOptions::STEPS, value_parser = clap::value_parser!(u32).range(0..=100))]
    steps: u32,
    #[command(flatten)]
    tester: OwnTesterArgs,
    #[command(flatten)]
    isolation: IsolationArgs,
    /// Calibration file. Default: quietwire/calibration.json in $XDG_STATE_HOME or ~/.local/state.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the calibration as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TesterArgs) -> Result<()> {
    match &args.command {
        TesterCommand::Calibrate(args) => calibrate(args),
        TesterCommand::SelfTest(args) => self_test::run(args),
        TesterCommand::SelfTestDevice(args) => self_test::serve(args),
    }
}

fn calibrate(args: &CalibrateArgs) -> Result<()> {
    if args.ports.len() > 2 {
        bail!(Usage(format!(
            "--port: {} ports given, but a calibration requires one or two (remove the others)",
            args.ports.len()
        )));
    }
    if args.ports.contains(&PortUri::Null) {
        bail!(Usage(
            "--port null: discards all frames, and receives only remains of its buffers (give two ports that are connected to each other)".to_owned()
        ));
    }
    if args.both && args.ports.len() == 1 {
        bail!(Usage(
            "--both requires a second --port (add it, or remove --both)".to_owned()
        ));
    }
    let options = options(args)?;
    let cpus = args.tester.cpus()?;
    args.isolation.check(&args.tester)?;
    let path = calibration_file(args.file.as_ref())?;
    // The file is read before the measurement, so that an unusable file is reported at once.
    let mut all = Calibrations::read(&path)?;
    check_place("--file", &path)?;
    args.tester.check_machine(&args.ports)?;
    let stop = stop_on_signals(ISOLATION_LEFT)?;
    let eal = args.tester.start_dpdk(&cpus, &args.ports)?;
    let mut tester = args.tester.open(
        &eal,
        cpus,
        &args.ports,
        largest(&options),
        Preparation::default(),
    )?;
    tester.abort_on(&stop);
    tester.wait_for_links(LINK_DEADLINE)?;
    let longest_s = args.pacing_duration.max(args.duration).as_secs_f64();
    let isolation = args
        .isolation
        .isolate(&args.tester, &mut tester, longest_s, &stop)?;
    if args.isolation.changes_user() {
        // A file that the user cannot write is reported before the measurement.
        all.write(&path)?;
    }
    let calibration = tester.calibrate(&options, print_step)?;
    let record = isolation.record().clone();
    let undone = isolation.undo();
    all.add(calibration.clone());
    all.write(&path)?;
    if args.json {
        print(serde_json::to_string_pretty(
            &json!({ "file": path, "calibration": calibration, "isolation": record }),
        )?)?;
    } else {
        print(text(&calibration))?;
        print(format!("written to {}", path.display()))?;
    }
    undone?;
    match calibration
        .sizes
        .iter()
        .find(|size| size.clean_rate_pps <= 0.0)
    {
        None => Ok(()),
        Some(size) => bail!(CheckFailed(format!(
            "no rate was clean with frames of {} (the reasons are listed above; use CPUs without other work)",
            of(size)
        ))),
    }
}

/// Returns the options of the calibration.
fn options(args: &CalibrateArgs) -> Result<CalibrationOptions> {
    let traffic = match &args.traffic {
        None => None,
        Some(path) => Some((path.display(), Traffic::read(path)?)),
    };
    let ip = IpVersion::from(args.ip);
    let mut smallest = ip.frame_size_min();
    if let Some((shown, traffic)) = &traffic {
        if traffic.sizes.is_some() && !args.frame_sizes.is_empty() {
            bail!(Usage(format!(
                "--frame-size conflicts with the sizes in {shown} (remove one of them)"
            )));
        }
        if traffic.directions.is_some() && args.both {
            bail!(Usage(format!(
                "--both conflicts with the directions in {shown} (remove one of them)"
            )));
        }
        if traffic.directions == Some(Directions::Both) && args.ports.len() == 1 {
            bail!(Usage(format!(
                "{shown} has traffic in both directions, which requires a second --port (add it, or describe one direction)"
            )));
        }
        if traffic.replay.is_some() || traffic.has_rate() {
            bail!(Usage(format!(
                "{shown} has a rate, a schedule or a capture, but a calibration searches for the rate (describe headers only)"
            )));
        }
        smallest = traffic.frame_size_min();
    }
    let frame_sizes = if args.frame_sizes.is_empty() {
        vec![FrameSizes::Fixed(smallest)]
    } else {
        args.frame_sizes.clone()
    };
    if let Some(size) = frame_sizes.iter().find(|size| size.smallest() < smallest) {
        bail!(Usage(format!(
            "--frame-size {} is too small: the headers and the tester's signature need {smallest} octets with FCS",
            name(*size)
        )));
    }
    Ok(CalibrationOptions {
        frame_sizes,
        directions: if args.both {
            Directions::Both
        } else {
            Directions::OneWay
        },
        ip,
        traffic: traffic.map(|(_, traffic)| traffic),
        warm_up_s: CalibrationOptions::WARM_UP_S,
        search_s: args.duration.as_secs_f64(),
        pacing_s: args.pacing_duration.as_secs_f64(),
        steps: args.steps,
    })
}

/// Returns the largest frame size, octets with FCS.
fn largest(options: &CalibrationOptions) -> u16 {
    let described = options.traffic.as_ref().and_then(|it| it.sizes.as_ref());
    let sizes = match described {
        Some(sizes) => sizes.sequence(),
        None => options.frame_sizes.iter().map(|it| it.largest()).collect(),
    };
    sizes.into_iter().max().unwrap_or(64)
}

/// Returns the path of the calibration file: the given one, or the default.
pub(crate) fn calibration_file(given: Option<&PathBuf>) -> Result<PathBuf> {
    given.cloned()
        .or_else(Calibrations::default_path)
        .ok_or_else(|| {
            Usage(
                "no default calibration file because neither XDG_STATE_HOME nor HOME is set (use --file)"
                    .to_owned(),
            )
            .into()
        })
}

/// Reports the progress on standard error.
fn print_step(step: Step<'_>) {
    match step {
        Step::Trial {
            frame_sizes,
            rate_pps,
            flaw,
        } => say(format!(
            "{}: {:.4} Mpps {}",
            name(frame_sizes),
            rate_pps / 1e6,
            flaw.unwrap_or("clean")
        )),
        Step::Size(_) => (),
    }
}

fn name(sizes: FrameSizes) -> String {
    match sizes {
        FrameSizes::Fixed(octets) => format!("{octets} octets"),
        _ => "imix".to_owned(),
    }
}

/// Describes the frames of a calibration.
fn of(size: &SizeCalibration) -> String {
    let name = name(size.frame_sizes);
    match (&size.traffic, size.ip) {
        (Some(traffic), _) if traffic.sizes.is_some() => "described".to_owned(),
        (Some(_), _) => format!("{name}, described"),
        (None, IpVersion::V6) => format!("{name}, IPv6"),
        (None, IpVersion::V4) => name,
    }
}

/// Formats the figures as text.
fn text(calibration: &Calibration) -> String {
    let mut parts = vec![format!(
        "time stamp {:.1} ns; clock {:+.3} ppm beside CLOCK_MONOTONIC_RAW over {:.0} s",
        calibration.timestamp_ns, calibration.clock_error_ppm, calibration.clock_span_s
    )];
    parts.push(rates(&calibration.sizes).to_string());
    parts.push(pacing(&calibration.sizes).to_string());
    parts.join("\n")
}

fn us(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3))
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |ratio| format!("{:+.4} %", ratio * 100.0),
    )
}

fn rates(sizes: &[SizeCalibration]) -> TerminalTable {
    let mut table = table(&[
        "frames",
        "clean Mpps",
        "unpaced Mpps",
        "cycles to make",
        "cycles to check",
        "floor min us",
        "p50",
        "p99",
    ]);
    for size in sizes {
        let floor = &size.latency_floor;
        table.add_row([
            of(size),
            format!("{:.4}", size.clean_rate_pps / 1e6),
            format!("{:.4}", size.unpaced_pps / 1e6),
            format!("{:.0}", size.generate_cycles),
            format!("{:.0}", size.check_cycles),
            us((floor.samples > 0).then_some(floor.min_ns)),
            us(floor.p50_ns),
            us(floor.p99_ns),
        ]);
    }
    table
}

fn pacing(sizes: &[SizeCalibration]) -> TerminalTable {
    let mut table = table(&[
        "pacing",
        "at Mpps",
        "rate off by",
        "without stalls",
        "burst time us",
        "gap p50",
        "p99",
        "p99.9",
        "max",
        "stalls",
        "longest",
        "host stalls",
        "their sum",
    ]);
    for size in sizes {
        for pacing in &size.pacing {
            let gaps = &pacing.burst_gaps;
            table.add_row([
                of(size),
                format!("{:.4}", pacing.requested_pps / 1e6),
                percent(Some(pacing.error_ratio)),
                percent(pacing.error_without_stalls_ratio),
                format!("{:.2}", pacing.burst_time_ns / 1e3),
                us(gaps.p50_ns),
                us(gaps.p99_ns),
                us(gaps.p99_9_ns),
                us(Some(gaps.max_ns)),
                pacing.stalled_gaps.samples.to_string(),
                us((pacing.stalled_gaps.samples > 0).then_some(pacing.stalled_gaps.max_ns)),
                pacing.host_stalls.to_string(),
                us((pacing.host_stalls > 0).then_some(pacing.host_stall_time_ns)),
            ]);
        }
    }
    table
}
