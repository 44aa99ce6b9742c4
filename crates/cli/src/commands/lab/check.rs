// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab check`: traffic through all chains of a lab at once, both ways, every payload looked at.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_lab::topology::Encapsulation;
use quietwire_lab::up::{LabState, find};
use quietwire_lab::{Place, STATE_DIRECTORY};
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    Directions, FrameSizes, IpVersion, Preparation, Tester, TesterError, Trial, TrialResult,
};
use serde_json::json;

use crate::commands::own_tester::{LINK_DEADLINE, OwnTesterArgs};
use crate::exit::{CheckFailed, FAILED, Usage, code, on_signals};
use crate::text::print;
use crate::units::{Rate, parse_positive_duration, parse_rate};

/// Send traffic through all chains of a lab at once, both ways, and see that every frame arrives as it was sent.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The lab; not needed where only one is up.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Frames per second, summed over chains and directions.
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = parse_rate)]
    rate: Rate,
    /// How long frames are offered.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// How long to wait for the last frames. Elements that share a CPU hold them for milliseconds each.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    drain: Duration,
    #[command(flatten)]
    tester: OwnTesterArgs,
    /// Where labs keep their state.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the trial's whole result, and with it the lab's state, as JSON.
    #[arg(long)]
    json: bool,
}

/// Octets with FCS: room for all headers and a payload.
const FRAME_SIZE: u16 = 256;

pub(super) fn run(args: &CheckArgs) -> Result<()> {
    let lab = find(&args.state_directory, args.name.as_deref())?;
    let Some(state) = lab.state else {
        bail!(Usage(format!("lab {} is not up yet", lab.name)));
    };
    if state.tester.chains.is_empty() {
        bail!(Usage(format!(
            "the tester of lab {} is outside: send from there, as with `quietwire generate`",
            lab.name
        )));
    }
    if !state.died.is_empty() {
        bail!(CheckFailed(format!(
            "{} of lab {} died",
            state.died.join(", "),
            lab.name
        )));
    }
    let place = Place::of(state.tester.namespace.as_deref())?;
    // DPDK opens its sockets where the thread is that opens a port.
    let result = place.enter(|| measure(args, &state))??;
    let seen = Seen::of(&result);
    if args.json {
        print(serde_json::to_string_pretty(
            &json!({ "lab": state, "result": result, "consoles": state.consoles()? }),
        )?)?;
    } else {
        print(seen.text(&state))?;
    }
    seen.judge(&result)
}

fn measure(args: &CheckArgs, state: &LabState) -> Result<TrialResult> {
    let cpus = args.tester.cpus()?;
    let ports: Vec<PortUri> = state
        .tester
        .chains
        .iter()
        .flatten()
        .map(|uri| Ok(uri.parse()?))
        .collect::<Result<_, quietwire_dpdk::Error>>()?;
    let trial = trial(args, state)?;
    args.tester.check_machine(&ports)?;
    let eal = args.tester.start_dpdk(&cpus, &ports)?;
    let preparation = Preparation {
        learning_s: Some(0.2),
        settle_s: 0.2,
    };
    let size = trial.frame_size_largest();
    let mut tester = opened(|| {
        args.tester
            .open(&eal, cpus.clone(), &ports, size, preparation)
    })?;
    on_signals(&tester.abort_flag())?;
    tester.wait_for_links(LINK_DEADLINE)?;
    // Where nothing comes through, the check itself will tell.
    tester.wait_until_through(&probe(&trial), READY_DEADLINE)?;
    Ok(tester.run(&trial)?)
}

/// How long elements may take to forward once the tester is there: some make themselves ready only then.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Frames per second meanwhile, at least.
const READY_RATE_PPS: f64 = 1000.0;

/// Opens the tester. Some elements make themselves ready only when somebody connects, and drop who is too early: Open vSwitch on
/// DPDK makes its buffers then.
fn opened(open: impl Fn() -> Result<Tester>) -> Result<Tester> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if code(&error) == FAILED && began.elapsed() < READY_DEADLINE => {
                tracing::debug!("the tester's ports are tried again: {error:#}");
                std::thread::sleep(AGAIN);
            }
            outcome => return outcome,
        }
    }
}

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(200);

fn probe(trial: &Trial) -> Trial {
    Trial {
        offered_rate_pps: trial.offered_rate_pps.max(READY_RATE_PPS),
        ..trial.clone()
    }
}

fn trial(args: &CheckArgs, state: &LabState) -> Result<Trial> {
    let Rate::PacketsPerSecond(rate) = args.rate else {
        bail!(Usage(
            "a check is no measurement: give a rate, not max".to_owned()
        ));
    };
    let headers = match state.graph.encapsulation {
        Encapsulation::L2 | Encapsulation::Ipv4 => "[traffic.ipv4]\n",
        Encapsulation::Ipv6 => "[traffic.ipv6]\n",
        Encapsulation::Vxlan => "[traffic.vxlan]\nvni = 42\n[traffic.inner.ipv4]\n",
    };
    let text = format!("[traffic]\nintegrity = true\n{headers}");
    let traffic = Traffic::parse(&text, Path::new("the check's traffic"))?;
    let trial = Trial {
        offered_rate_pps: rate,
        duration_s: args.duration.as_secs_f64(),
        warm_up_s: 0.2,
        drain_s: args.drain.as_secs_f64(),
        frame_sizes: FrameSizes::Fixed(FRAME_SIZE),
        directions: Directions::Both,
        flows: 1,
        mac_addresses: 1,
        destinations: 1,
        ip: IpVersion::V4,
        low_rate_pps: 0.0,
        reflected: false,
        rate_tolerance_pps: None,
        traffic: None,
    };
    Ok(trial.with_traffic(traffic).map_err(TesterError::from)?)
}

/// What is wanted of a result.
struct Seen {
    /// Of each port: offered by its peer, received.
    ports: Vec<(u64, u64)>,
    lost: u64,
    damaged: u64,
    misdirected: u64,
}

impl Seen {
    fn of(result: &TrialResult) -> Self {
        let ports = &result.ports;
        Self {
            ports: (0..ports.len())
                .map(|port| (ports[port ^ 1].offered_frames, ports[port].received_frames))
                .collect(),
            lost: result.lost_frames,
            damaged: result.damaged_frames,
            misdirected: ports.iter().map(|port| port.misdirected_frames).sum(),
        }
    }

    fn text(&self, state: &LabState) -> String {
        let mut lines = Vec::new();
        for (chain, pair) in self.ports.chunks(2).enumerate() {
            let shown = |(offered, received): (u64, u64)| format!("{received} of {offered} frames");
            let [back, forth] =
                [pair.first(), pair.get(1)].map(|seen| shown(seen.copied().unwrap_or_default()));
            lines.push(format!("chain {}  forth {forth}, back {back}", chain + 1));
        }
        lines.push(format!(
            "lost {} (damaged {}, misdirected {})",
            self.lost, self.damaged, self.misdirected
        ));
        lines.extend(
            state
                .warnings
                .iter()
                .map(|warning| format!("WARNING  {warning}")),
        );
        lines.join("\n")
    }

    fn judge(&self, result: &TrialResult) -> Result<()> {
        let is_seen = self
            .ports
            .iter()
            .all(|(offered, received)| *offered > 0 && received == offered);
        if self.lost + self.misdirected == 0 && is_seen {
            return Ok(());
        }
        let why = result.validity.text();
        let why = why.map_or_else(String::new, |text| format!("; the tester says: {text}"));
        let (lost, damaged, misdirected) = (self.lost, self.damaged, self.misdirected);
        let offered: u64 = self.ports.iter().map(|(offered, _)| offered).sum();
        bail!(CheckFailed(format!(
            "{lost} of {offered} frames were lost ({damaged} damaged, {misdirected} misdirected){why}"
        )))
    }
}
