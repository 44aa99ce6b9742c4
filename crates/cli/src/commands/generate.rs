// SPDX-License-Identifier: Apache-2.0
//! `quietwire generate`: the tester by itself, one trial over ports that are up already.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_host::CpuList;
use quietwire_tester::{
    Directions, FrameSizes, Limits, Tester, TesterOptions, Trial, TrialResult, Validity,
};

use crate::exit::{CheckFailed, Usage};
use crate::units::{Rate, parse_duration, parse_frame_sizes, parse_rate};

/// Traffic through a device that is running already: one trial, its loss, latency and the tester's own health.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Port of the tester, once or twice: memif:/path?role=client, vhost:/path, af-packet:IFNAME, pci:0000:17:00.0, …
    #[arg(long = "port", value_name = "URI", required = true)]
    ports: Vec<PortUri>,
    /// Frames per second summed over both directions, such as 250000, 1.5M or max.
    #[arg(long, value_parser = parse_rate)]
    rate: Rate,
    /// Octets with FCS, 64 to 9000, or imix.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_frame_sizes)]
    frame_size: FrameSizes,
    /// How long frames are offered.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// How long the same load runs before anything is counted.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    warm_up: Duration,
    /// How long to go on receiving after the last frame.
    #[arg(long, default_value = "200ms", value_parser = parse_duration)]
    drain: Duration,
    /// Which ports transmit; both is the default where there are two ports.
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Flows per direction: distinct UDP source ports.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Distinct MAC addresses per direction.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    mac_addresses: u32,
    /// CPUs of the tester; one serves both ports. The lowest CPU by default.
    #[arg(long, default_value = "0")]
    cpus: CpuList,
    /// Real-time priority of the tester's threads (SCHED_FIFO, 1 to 99); 0 for none. The kernel stops real-time
    /// threads for 50 ms of each second unless kernel.sched_rt_runtime_us is -1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    realtime_priority: u8,
    /// Descriptors in each ring.
    #[arg(long, default_value_t = 1024)]
    ring_size: u16,
    /// Memory for buffers, MiB.
    #[arg(long, default_value_t = 256)]
    memory_mib: u32,
    /// Run on ordinary pages even where huge pages are free.
    #[arg(long)]
    no_huge: bool,
    /// Print the whole result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Direction {
    /// The first port transmits, the second receives.
    OneWay,
    /// Both transmit and receive at once.
    Both,
}

/// How long a peer may take to connect.
const LINK_DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    if args.ports.len() > 2 {
        bail!(Usage(format!(
            "{} ports were given, and a tester has one or two",
            args.ports.len()
        )));
    }
    let cpus: Vec<u32> = args.cpus.iter().map(|cpu| cpu.0).collect();
    if cpus.is_empty() {
        bail!(Usage(
            "--cpus is empty; name a CPU for the tester".to_owned()
        ));
    }
    let trial = trial(args);
    trial.validate().map_err(Usage)?;
    let eal = Eal::start(&EalOptions {
        control_cpus: cpus.clone(),
        memory_mib: args.memory_mib,
        huge_pages: if args.no_huge {
            HugePages::Never
        } else {
            HugePages::Auto
        },
        pci_devices: pci_devices(&args.ports),
        file_prefix: format!("quietwire-tester-{}", std::process::id()),
    })?;
    let ports: Vec<(String, PortUri)> = args
        .ports
        .iter()
        .enumerate()
        .map(|(index, uri)| (format!("p{index}"), uri.clone()))
        .collect();
    let options = TesterOptions {
        cpus,
        realtime_priority: (args.realtime_priority > 0).then_some(args.realtime_priority),
        ring_size: args.ring_size,
        frame_size_max: args.frame_size.largest(),
        limits: Limits::default(),
    };
    let mut tester = Tester::open(&eal, "tester", &ports, options)?;
    let abort = tester.abort_flag();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, std::sync::Arc::clone(&abort))
            .context("catching signals")?;
    }
    tester.wait_for_links(LINK_DEADLINE)?;
    let result = match args.rate {
        Rate::PacketsPerSecond(_) => tester.run(&trial)?,
        Rate::Max => tester.run_unpaced(&trial)?,
    };
    abort.store(true, Ordering::Relaxed);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        print_result(&result);
    }
    match &result.validity {
        Validity::Valid => Ok(()),
        Validity::Invalid(_) => Err(CheckFailed(
            "the trial is invalid: the tester failed, which says nothing about the device"
                .to_owned(),
        )
        .into()),
    }
}

fn trial(args: &GenerateArgs) -> Trial {
    let directions = match args.direction {
        Some(Direction::OneWay) => Directions::OneWay,
        Some(Direction::Both) => Directions::Both,
        None if args.ports.len() == 1 => Directions::OneWay,
        None => Directions::Both,
    };
    Trial {
        offered_rate_pps: match args.rate {
            Rate::PacketsPerSecond(rate) => rate,
            // Not used when unpaced; has to be a rate all the same.
            Rate::Max => 1.0,
        },
        duration_s: args.duration.as_secs_f64(),
        warm_up_s: args.warm_up.as_secs_f64(),
        drain_s: args.drain.as_secs_f64(),
        frame_sizes: args.frame_size,
        directions,
        flows: args.flows,
        mac_addresses: args.mac_addresses,
    }
}

fn pci_devices(ports: &[PortUri]) -> Vec<String> {
    ports
        .iter()
        .filter_map(|uri| match uri {
            PortUri::Pci { address } => Some(address.clone()),
            _ => None,
        })
        .collect()
}

fn print_result(result: &TrialResult) {
    let mpps = |rate: f64| format!("{:.6} Mpps", rate / 1e6);
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
    println!(
        "offered    {:>14} frames  {}",
        result.offered_frames,
        mpps(result.achieved_rate_pps)
    );
    println!(
        "received   {:>14} frames  {}",
        result.received_frames,
        mpps(result.forwarding_rate_pps)
    );
    println!(
        "lost       {:>14} frames  {:.6} %",
        result.lost_frames,
        result.loss_ratio * 100.0
    );
    println!("duplicate  {:>14} frames", result.duplicate_frames);
    println!("reordered  {:>14} frames", result.reordered_frames);
    let latency = &result.latency;
    if latency.samples > 0 {
        println!(
            "latency    min {}  mean {:.2}  p50 {}  p99 {}  p99.9 {}  p99.99 {}  max {} us, {} frames",
            us(latency.min_ns),
            latency.mean_ns / 1e3,
            us(latency.p50_ns),
            us(latency.p99_ns),
            us(latency.p99_9_ns),
            us(latency.p99_99_ns),
            us(latency.max_ns),
            latency.samples
        );
    }
    let health = &result.health;
    println!(
        "tester     missed {:.4} % of its schedule, {} of {} bursts late, longest gap {} us, {} gaps over 100 us, real-time {}",
        health.pacing_miss_ratio * 100.0,
        health.late_bursts,
        health.bursts,
        us(health.longest_gap_ns),
        health.gaps_over_100us,
        if health.realtime { "yes" } else { "no" }
    );
    match &result.validity {
        Validity::Valid => println!("valid"),
        Validity::Invalid(reasons) => reasons
            .iter()
            .for_each(|reason| println!("INVALID    {reason}")),
    }
}
