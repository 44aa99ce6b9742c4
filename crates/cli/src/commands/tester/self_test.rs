// SPDX-License-Identifier: Apache-2.0
//! `quietwire tester self-test`: compares the tester's figures with the ledger of a device that misbehaves by a script.

mod connections;
mod outcome;
mod ports;

use std::io::{stdin, stdout};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use quietwire_base::find_program;
use quietwire_base::supervised::{Command, Streams, Supervised};
use quietwire_host::threads::online_cpus;
use quietwire_tester::self_test::{
    CaseReport, ConnectionCaseReport, ConnectionFault, ConnectionSelfTestOptions, DeviceLink,
    DeviceOptions, Fault, SelfTestOptions, Verdict, serve_device,
};
use quietwire_tester::{FrameAccess, Preparation};

use super::super::own_tester::{LINK_DEADLINE, OwnTesterArgs, warn_of_one_thread};
use super::table::table;
use crate::exit::{MissingPrerequisite, Usage, require_memory, stop_on_signals};
use crate::text::say;
use crate::units::{Rate, parse_connection_rate, parse_positive_duration, parse_rate};
use outcome::{Conclusion, outcome};
use ports::{Link, Ports};

/// Compare the tester's figures with the ledger of a device that misbehaves by a script.
#[derive(Debug, Args)]
pub(super) struct SelfTestArgs {
    /// Frames per second, summed over both directions; repeat for several rates.
    #[arg(long = "rate", value_name = "RATE", default_values = ["1M", "10M"], value_parser = parse_paced_rate)]
    rates: Vec<f64>,
    /// Octets with FCS, 64 to 9000; repeat for several sizes.
    #[arg(long = "frame-size", value_name = "SIZE", default_values = ["64", "512"], value_parser = clap::value_parser!(u16).range(64..=9000))]
    frame_sizes: Vec<u16>,
    /// Fault of the device: loss, duplicate, late-duplicate, reorder, damage, misdirect, delay or stall; with
    /// --connections, refuse, drop-syn-ack, wrong-address, reset, change-payload or forget. Repeat for several. Default: all.
    #[arg(long = "fault", value_name = "FAULT", value_parser = parse_fault)]
    faults: Vec<DeviceFault>,
    /// Check the account of connections instead of frames, with a stateful device that mistreats some of them.
    #[arg(long, conflicts_with_all = ["rates", "frame_sizes", "frame_access"])]
    connections: bool,
    /// Connections opened per second, 1 to 5000.
    #[arg(long, value_name = "RATE", default_value = "200", value_parser = parse_connections, requires = "connections")]
    connections_rate: f64,
    /// Length of each trial.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// CPU of the device. Default: the first CPU that the tester does not use.
    #[arg(long, value_name = "CPU")]
    device_cpu: Option<u32>,
    /// Access of the tester to its frames.
    #[arg(long, value_enum, value_name = "ACCESS", default_value = "in-place")]
    frame_access: Access,
    /// Ports of the tester.
    #[arg(long, value_enum, value_name = "LINK", default_value = "memif-server")]
    link: Link,
    /// Seed of the frames that the device chooses at random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    tester: OwnTesterArgs,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

/// Value of `--frame-access`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Access {
    /// In the rings of the ports.
    InPlace,
    /// In packet buffers, which the ports copy to and from their rings.
    PacketBuffers,
}

impl From<Access> for FrameAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::InPlace => Self::InPlace,
            Access::PacketBuffers => Self::PacketBuffers,
        }
    }
}

/// The device of `tester self-test`, which starts it.
#[derive(Debug, Args)]
pub(super) struct SelfTestDeviceArgs {
    /// Options as JSON.
    options: String,
}

fn parse_paced_rate(text: &str) -> Result<f64, String> {
    match parse_rate(text)? {
        Rate::PacketsPerSecond(rate_pps) => Ok(rate_pps),
        Rate::Max => Err("a self-test requires a rate in frames per second".to_owned()),
    }
}

/// Value of `--fault`.
#[derive(Clone, Copy, Debug)]
enum DeviceFault {
    Frames(Fault),
    Connections(ConnectionFault),
}

impl DeviceFault {
    /// Returns a fault of a self-test with frames.
    fn of_frames(self) -> Result<Fault> {
        match self {
            Self::Frames(fault) => Ok(fault),
            Self::Connections(fault) => bail!(Usage(format!(
                "--fault: '{}' is a fault of connections (add --connections, or use one of {})",
                fault.name(),
                Fault::ALL.map(Fault::name).join(", ")
            ))),
        }
    }

    /// Returns a fault of a self-test with connections.
    fn of_connections(self) -> Result<ConnectionFault> {
        match self {
            Self::Connections(fault) => Ok(fault),
            Self::Frames(fault) => bail!(Usage(format!(
                "--fault: '{}' is a fault of frames (remove --connections, or use one of {})",
                fault.name(),
                ConnectionFault::ALL.map(ConnectionFault::name).join(", ")
            ))),
        }
    }
}

fn parse_fault(text: &str) -> Result<DeviceFault, String> {
    let frames = Fault::ALL.map(|fault| (fault.name(), DeviceFault::Frames(fault)));
    let connections =
        ConnectionFault::ALL.map(|fault| (fault.name(), DeviceFault::Connections(fault)));
    let all = [&frames[..], &connections[..]].concat();
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, fault)| *fault).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("unknown fault (available: {})", names.join(", "))
    })
}

fn parse_connections(text: &str) -> Result<f64, String> {
    let rate = parse_connection_rate(text)?;
    if (1.0..=5_000.0).contains(&rate) {
        Ok(rate)
    } else {
        Err("a self-test opens 1 to 5000 connections per second".to_owned())
    }
}

/// Runs the device until its standard input ends.
pub(super) fn serve(args: &SelfTestDeviceArgs) -> Result<()> {
    let options: DeviceOptions = serde_json::from_str(&args.options)
        .map_err(|error| Usage(format!("options of the device: {error}")))?;
    Ok(serve_device(&options, stdin(), stdout())?)
}

pub(super) fn run(args: &SelfTestArgs) -> Result<()> {
    let cpus = args.tester.cpus()?;
    let device_cpu = device_cpu(args, &cpus)?;
    let options = options(args)?;
    let connections = connection_options(args)?;
    if connections.is_some() {
        warn_of_one_thread(&cpus);
    }
    args.tester.check_machine(&[])?;
    // The device takes as much.
    require_memory(args.tester.memory_mib.saturating_mul(2))?;
    args.tester.warn_of_throttling(args.duration.as_secs_f64());
    let stop = stop_on_signals("")?;
    let largest = options.frame_sizes.iter().copied().max().unwrap_or(64);
    let largest = connections
        .as_ref()
        .map_or(largest, |it| it.description().frame_size_max());
    if find_program("setpriv").is_none() {
        bail!(MissingPrerequisite(
            "setpriv is not installed (run `apt-get install util-linux`)".to_owned()
        ));
    }
    let ports = Ports::new(args.link)?;
    let words = device_words(args, &ports, device_cpu, largest)?;
    let eal = args.tester.start_dpdk(&cpus, &ports.tester)?;
    let before = match ports.need_device() {
        true => Some(Device::start(&words)?),
        false => None,
    };
    let preparation = Preparation::default();
    let mut tester = args
        .tester
        .open(&eal, cpus, &ports.tester, largest, preparation)?;
    tester.abort_on(&stop);
    tester.set_frame_access(args.frame_access.into());
    let mut device = match before {
        Some(device) => device,
        None => Device::start(&words)?,
    };
    tester.wait_for_links(LINK_DEADLINE)?;
    if let Some(options) = &connections {
        let say_line = |report: &ConnectionCaseReport| say(connections::line(report));
        let reports = tester.self_test_connections(&mut device.link, options, say_line)?;
        return connections::conclude((args.json, args.link), options, &reports);
    }
    let reports = tester.self_test(&mut device.link, &options, |report| say(line(report)))?;
    conclude(args, &options, &reports)
}

/// The device, which ends on drop.
struct Device {
    /// Before the process, which ends when its input does.
    link: DeviceLink<ChildStdout, ChildStdin>,
    _process: Supervised,
}

impl Device {
    /// Starts the device, and waits until it has opened its ports.
    fn start(words: &[String]) -> Result<Self> {
        let mut process = Command::of(words)
            .with_parent()
            .start(Streams::Pipes)
            .context("starting the device")?;
        let pipes = process.take_stdout().zip(process.take_stdin());
        let (output, input) = pipes.context("the device has no pipes")?;
        let mut link = DeviceLink::new(output, input);
        link.wait_until_ready()?;
        Ok(Self {
            link,
            _process: process,
        })
    }
}

fn options(args: &SelfTestArgs) -> Result<SelfTestOptions> {
    let faults = if args.faults.is_empty() || args.connections {
        Fault::ALL.to_vec()
    } else {
        let given = args.faults.iter().map(|fault| fault.of_frames());
        given.collect::<Result<_>>()?
    };
    let options = SelfTestOptions {
        rates_pps: args.rates.clone(),
        frame_sizes: args.frame_sizes.clone(),
        faults,
        duration_s: args.duration.as_secs_f64(),
        seed: args.seed,
    };
    for rate_pps in &options.rates_pps {
        // One frame for each direction at least.
        if rate_pps * options.duration_s < 2.0 {
            bail!(Usage(format!(
                "--rate: fewer than 2 frames are due in {} s at {rate_pps} frames per second (increase --rate or --duration)",
                options.duration_s
            )));
        }
    }
    Ok(options)
}

/// Returns the options of a self-test with connections; none for one with frames.
fn connection_options(args: &SelfTestArgs) -> Result<Option<ConnectionSelfTestOptions>> {
    if !args.connections {
        return Ok(None);
    }
    let faults = if args.faults.is_empty() {
        ConnectionFault::ALL.to_vec()
    } else {
        let given = args.faults.iter().map(|fault| fault.of_connections());
        given.collect::<Result<_>>()?
    };
    let options = ConnectionSelfTestOptions {
        rate: args.connections_rate,
        duration_s: args.duration.as_secs_f64(),
        faults,
        seed: args.seed,
    };
    if options.rate * options.duration_s < 1.0 {
        bail!(Usage(
            "--connections-rate: no connection is due in the duration (increase --connections-rate or --duration)".to_owned()
        ));
    }
    Ok(Some(options))
}

fn device_cpu(args: &SelfTestArgs, cpus: &[u32]) -> Result<u32> {
    let online = online_cpus(Path::new("/"))?;
    let mut online_numbers = online.iter().map(|cpu| cpu.0);
    if let Some(cpu) = args.device_cpu {
        if !online_numbers.any(|number| number == cpu) {
            bail!(Usage(format!(
                "--device-cpu: CPU {cpu} is not online (online: {online})"
            )));
        }
        return Ok(cpu);
    }
    let free = online_numbers.find(|number| !cpus.contains(number));
    if free.is_none() {
        tracing::warn!("the device shares a CPU with the tester, so only low rates can be proven");
    }
    free.or(cpus.first().copied())
        .ok_or_else(|| Usage("--cpus is empty".to_owned()).into())
}

/// Returns the command that runs the device.
fn device_words(
    args: &SelfTestArgs,
    ports: &Ports,
    cpu: u32,
    frame_size_max: u16,
) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("path of this program")?;
    let options = DeviceOptions {
        ports: ports.device.clone(),
        cpu,
        ring_size: args.tester.ring_size,
        frame_size_max,
        memory_mib: args.tester.memory_mib,
        uses_huge_pages: !args.tester.no_huge,
    };
    Ok(vec![
        program.display().to_string(),
        "tester".to_owned(),
        "self-test-device".to_owned(),
        serde_json::to_string(&options)?,
    ])
}

/// Prints the reports and chooses the outcome.
fn conclude(args: &SelfTestArgs, options: &SelfTestOptions, reports: &[CaseReport]) -> Result<()> {
    let conclusion = Conclusion {
        is_json: args.json,
        link: args.link,
        duration_s: options.duration_s,
        seed: options.seed,
        difference: "the tester's figures differ",
        rate_option: "--rate",
    };
    conclusion.print(reports, |report| &report.verdict, text)
}

fn mpps(rate_pps: f64) -> String {
    format!("{}", rate_pps / 1e6)
}

/// Formats the outcome of one case.
fn line(report: &CaseReport) -> String {
    let case = &report.case;
    let (word, reasons) = outcome(&report.verdict);
    let mut line = format!(
        "{} Mpps, {} octets, {}: {word}",
        mpps(case.rate_pps),
        case.frame_size,
        report.name
    );
    if !reasons.is_empty() {
        line.push_str(": ");
        line.push_str(&reasons.join("; "));
    }
    line
}

/// Returns the tester's value of a figure, summed over all ports.
fn measured(report: &CaseReport, name: &str) -> String {
    let of_ports = [format!("port 0 {name}"), format!("port 1 {name}")];
    let is_named = |of: &String| of == name || of_ports.contains(of);
    let figures = report
        .figures
        .iter()
        .filter(|figure| is_named(&figure.name));
    let values: Vec<u64> = figures.map(|figure| figure.measured).collect();
    if values.is_empty() {
        "-".to_owned()
    } else {
        values.iter().sum::<u64>().to_string()
    }
}

/// Formats the table, and the reasons of the cases that do not agree.
fn text(reports: &[CaseReport]) -> String {
    let mut table = table(&[
        "fault",
        "Mpps",
        "octets",
        "offered",
        "lost",
        "duplicate",
        "reordered",
        "misdirected",
        "damaged",
        "min us",
        "outcome",
    ]);
    for report in reports {
        let minimum = report.figures.iter().find(|it| it.name == "latency min_ns");
        // Damaged frames exist as a total and per port; the table shows the total.
        let whole = report.figures.iter().find(|it| it.name == "damaged_frames");
        table.add_row([
            report.name.clone(),
            mpps(report.case.rate_pps),
            report.case.frame_size.to_string(),
            measured(report, "offered_frames"),
            measured(report, "lost_frames"),
            measured(report, "duplicate_frames"),
            measured(report, "reordered_frames"),
            measured(report, "misdirected_frames"),
            whole.map_or_else(|| "-".to_owned(), |it| it.measured.to_string()),
            minimum.map_or_else(
                || "-".to_owned(),
                |it| format!("{:.2}", it.measured as f64 / 1e3),
            ),
            outcome(&report.verdict).0.to_owned(),
        ]);
    }
    let mut parts = vec![table.to_string()];
    let open = reports.iter().filter(|it| it.verdict != Verdict::Agrees);
    parts.extend(open.map(line));
    parts.join("\n")
}
