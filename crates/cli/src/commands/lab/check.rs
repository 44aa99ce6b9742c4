// SPDX-License-Identifier: Apache-2.0
//! `quietwire lab check`: traffic through all chains of a lab at once, in both directions, with every payload checked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use quietwire_base::Deadline;
use quietwire_dpdk::PortUri;
use quietwire_lab::topology::{Encapsulation, Graph};
use quietwire_lab::up::{LabState, find};
use quietwire_lab::{NetNs, STATE_DIRECTORY};
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    FrameSizes, IpVersion, Preparation, Tester, TesterError, Trial, TrialResult, Validity,
};
use serde_json::json;

use crate::commands::own_tester::{LINK_DEADLINE, OwnTesterArgs};
use crate::exit::{CheckFailed, FAILED, Usage, code, stop_on_signals};
use crate::text::print;
use crate::units::{Rate, parse_positive_duration, parse_rate};

/// Send traffic through all chains of a lab at once, in both directions, and check that every frame arrives unchanged.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Name of the lab. Default: the only lab that is up.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Frames per second, summed over chains and directions, such as 1000 or 1.5M.
    #[arg(long, value_name = "RATE", default_value = "1000", value_parser = parse_rate)]
    rate: Rate,
    /// Time during which frames are offered.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// Longest wait for the last frames. Elements that share a CPU delay them by milliseconds each.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration)]
    drain: Duration,
    #[command(flatten)]
    tester: OwnTesterArgs,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    state_directory: PathBuf,
    /// Print the complete result and the lab's state as JSON.
    #[arg(long)]
    json: bool,
}

/// Frame size, octets with FCS: large enough for all headers and a payload.
const FRAME_SIZE: u16 = 256;

pub(super) fn run(args: &CheckArgs) -> Result<()> {
    let lab = find(&args.state_directory, args.name.as_deref())?;
    let Some(state) = lab.state else {
        bail!(Usage(format!(
            "lab {} is not up yet (wait until `quietwire lab up` ends)",
            lab.name
        )));
    };
    if state.tester.chains.is_empty() {
        bail!(Usage(format!(
            "lab {} has no built-in tester (send from the outside, for example with `quietwire generate`)",
            lab.name
        )));
    }
    if !state.died.is_empty() {
        bail!(CheckFailed(format!(
            "{} of lab {name} died (stop the lab with `quietwire lab down {name}`, then start it again)",
            state.died.join(", "),
            name = lab.name
        )));
    }
    let place = NetNs::of(state.tester.namespace.as_deref())?;
    // DPDK opens its sockets in the network namespace of the thread that opens a port.
    let result = place.enter(|| measure(args, &state))??;
    let observed = ChainResult::of(&result);
    if args.json {
        print(serde_json::to_string_pretty(
            &json!({ "lab": state, "result": result, "consoles": state.consoles()? }),
        )?)?;
    } else {
        print(observed.text(&state.warnings))?;
    }
    observed.judge(&result.validity)
}

fn measure(args: &CheckArgs, state: &LabState) -> Result<TrialResult> {
    let stop = stop_on_signals("")?;
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
    let mut tester = opened(&stop, || {
        args.tester
            .open(&eal, cpus.clone(), &ports, size, preparation)
    })?;
    tester.abort_on(&stop);
    tester.wait_for_links(LINK_DEADLINE)?;
    // If no frame comes through, the check itself reports it.
    tester.wait_until_through(&probe(&trial), READY_DEADLINE)?;
    tester.set_ends_when_complete(true);
    Ok(tester.run(&trial)?)
}

/// Time limit for elements to forward after the tester has connected. Some elements initialize only then.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// Lowest rate of the frames that probe for readiness, frames per second.
const READY_RATE_PPS: f64 = 1000.0;

/// Opens the tester. Some elements initialize only when a peer connects, and disconnect a peer that is too early: Open vSwitch
/// on DPDK allocates its buffers then.
fn opened(stop: &AtomicBool, open: impl Fn() -> Result<Tester>) -> Result<Tester> {
    let deadline = Deadline::after(READY_DEADLINE);
    let attempt = || match open() {
        Err(_) if stop.load(Ordering::Relaxed) => Some(Err(TesterError::Aborted.into())),
        Err(error) if code(&error) == FAILED && !deadline.has_passed() => {
            tracing::debug!("retrying to open the tester's ports: {error:#}");
            None
        }
        outcome => Some(outcome),
    };
    // Without a value the deadline passed after the last attempt.
    deadline.poll(AGAIN, attempt).unwrap_or_else(&open)
}

/// Pause between two attempts.
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
            "--rate max is not supported by a check (use a number of frames per second)".to_owned()
        ));
    };
    let trial = Trial {
        warm_up_s: 0.2,
        drain_s: args.drain.as_secs_f64(),
        ..Trial::new(
            rate,
            args.duration.as_secs_f64(),
            FrameSizes::Fixed(FRAME_SIZE),
        )
    };
    if has_routed_chains(&state.graph) {
        let ip = match state.graph.encapsulation {
            Encapsulation::Ipv6 => IpVersion::V6,
            _ => IpVersion::V4,
        };
        return Ok(Trial { ip, ..trial });
    }
    let headers = match state.graph.encapsulation {
        Encapsulation::L2 | Encapsulation::Ipv4 => "[traffic.ipv4]\n",
        Encapsulation::Ipv6 => "[traffic.ipv6]\n",
        Encapsulation::Vxlan => "[traffic.vxlan]\nvni = 42\n[traffic.inner.ipv4]\n",
    };
    let text = format!("[traffic]\nintegrity = true\n{headers}");
    let traffic = Traffic::parse(&text, Path::new("the check's traffic"))?;
    Ok(trial.with_traffic(traffic).map_err(TesterError::from)?)
}

/// Returns true if several chains have routers. Described frames have the addresses of the first chain on all chains, but routers of other
/// chains require those of their own.
fn has_routed_chains(graph: &Graph) -> bool {
    let mut elements = graph.elements.iter();
    graph.chains.len() > 1 && elements.any(|element| element.program.routes())
}

/// The part of a result that the check judges.
struct ChainResult {
    /// For each port: frames offered by its peer, and frames received.
    ports: Vec<(u64, u64)>,
    lost: u64,
    damaged: u64,
    misdirected: u64,
    misdirected_flows: Vec<MisdirectedFlow>,
}

/// Frames of one flow that arrived at a wrong port.
struct MisdirectedFlow {
    /// Index of the tester port that sent them.
    from: usize,
    /// Index of the tester port that received them.
    to: usize,
    frames: u64,
    /// All frames of the flow.
    offered: u64,
}

/// Most stray flows that a message lists.
const MISDIRECTED_LISTED_MAX: usize = 8;

impl fmt::Display for MisdirectedFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from,
            to,
            frames,
            offered,
        } = self;
        let is_first = |port: &usize| port.is_multiple_of(2);
        let direction = if is_first(from) { "forth" } else { "back" };
        let end = if is_first(to) { "first" } else { "last" };
        let [from, to] = [from, to].map(|port| (*port / 2).saturating_add(1));
        write!(
            f,
            "{frames} of {offered} frames of chain {from} {direction} came out at the {end} port of chain {to}"
        )
    }
}

impl ChainResult {
    fn of(result: &TrialResult) -> Self {
        let ports = &result.ports;
        let misdirected_flows = result.flows.iter().flat_map(|flow| {
            flow.misdirected.iter().map(|misdirected| MisdirectedFlow {
                from: flow.port.into(),
                to: misdirected.port.into(),
                frames: misdirected.frames,
                offered: flow.offered_frames,
            })
        });
        Self {
            ports: ports
                .iter()
                .enumerate()
                .filter_map(|(place, port)| {
                    let other = ports.get(place ^ 1)?;
                    Some((other.offered_frames, port.received_frames))
                })
                .collect(),
            lost: result.lost_frames,
            damaged: result.damaged_frames,
            misdirected: ports.iter().map(|port| port.misdirected_frames).sum(),
            misdirected_flows: misdirected_flows.collect(),
        }
    }

    fn text(&self, warnings: &[String]) -> String {
        let mut lines = Vec::new();
        for (chain, pair) in self.ports.chunks(2).enumerate() {
            let shown = |(offered, received): (u64, u64)| format!("{received} of {offered} frames");
            let [back, forth] = [pair.first(), pair.get(1)]
                .map(|observed| shown(observed.copied().unwrap_or_default()));
            let number = chain.saturating_add(1);
            lines.push(format!("chain {number}  forth {forth}, back {back}"));
        }
        lines.push(format!(
            "lost {} (damaged {}, misdirected {})",
            self.lost, self.damaged, self.misdirected
        ));
        lines.extend(warnings.iter().map(|warning| format!("WARNING  {warning}")));
        lines.join("\n")
    }

    fn judge(&self, validity: &Validity) -> Result<()> {
        let is_complete = self
            .ports
            .iter()
            .all(|(offered, received)| *offered > 0 && received == offered);
        if self.lost == 0 && self.misdirected == 0 && is_complete {
            return Ok(());
        }
        let why = validity.text();
        let why = why.map_or_else(String::new, |text| format!("; tester: {text}"));
        let (lost, damaged, misdirected) = (self.lost, self.damaged, self.misdirected);
        let offered: u64 = self.ports.iter().map(|(offered, _)| offered).sum();
        let misdirected_flows = self.describe_misdirected();
        bail!(CheckFailed(format!(
            "{lost} of {offered} frames were lost ({damaged} damaged, {misdirected} misdirected){misdirected_flows}{why}"
        )))
    }

    /// Lists the stray flows. Empty if there are none.
    fn describe_misdirected(&self) -> String {
        let listed = self.misdirected_flows.iter().take(MISDIRECTED_LISTED_MAX);
        let mut parts: Vec<String> = listed.map(MisdirectedFlow::to_string).collect();
        if let more @ 1.. = self.misdirected_flows.len().saturating_sub(parts.len()) {
            parts.push(format!("and {more} more"));
        }
        match parts.is_empty() {
            true => String::new(),
            false => format!(": {}", parts.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use quietwire_tester::{
        DelayVariation, FlowResult, InvalidCause, LatencySummary, LowRateStreams, Misdirected,
        PortResult, TesterHealth,
    };

    use super::*;

    /// Frames that each port offers.
    const OFFERED: u64 = 100;

    /// Returns the tester's result for frames that went from a port to a port, with their counts.
    fn result(chains: usize, went: &[(usize, usize, u64)]) -> TrialResult {
        let count = 2 * chains;
        let mut ports = vec![PortResult::default(); count];
        let mut flows = Vec::new();
        for from in 0..count {
            ports[from].offered_frames = OFFERED;
            let mut flow = FlowResult {
                port: from as u16,
                offered_frames: OFFERED,
                ..FlowResult::default()
            };
            for &(_, to, frames) in went.iter().filter(|(sender, ..)| *sender == from) {
                if to == from ^ 1 {
                    flow.received_frames = frames;
                    ports[to].received_frames = frames;
                } else {
                    ports[to].misdirected_frames += frames;
                    flow.misdirected.push(Misdirected {
                        port: to as u16,
                        frames,
                    });
                }
            }
            if flow.received_frames < OFFERED || !flow.misdirected.is_empty() {
                flows.push(flow);
            }
        }
        let received: u64 = ports.iter().map(|port| port.received_frames).sum();
        let offered = OFFERED * count as u64;
        TrialResult {
            trial: trial(),
            started_unix_ns: 0,
            elapsed_s: 1.0,
            scheduled_frames: offered,
            offered_frames: offered,
            received_frames: received,
            lost_frames: offered - received,
            loss_ratio: (offered - received) as f64 / offered as f64,
            duplicate_frames: 0,
            reordered_frames: 0,
            damaged_frames: 0,
            damage_check: None,
            stale_frames: 0,
            achieved_rate_pps: offered as f64,
            forwarding_rate_pps: received as f64,
            latency: LatencySummary::default(),
            variation: DelayVariation::default(),
            low_rate: LowRateStreams::default(),
            ports,
            flows,
            health: TesterHealth::default(),
            calibration: None,
            loss_account: None,
            series: Default::default(),
            validity: Validity::Valid,
        }
    }

    fn trial() -> Trial {
        Trial::new(400.0, 1.0, FrameSizes::Fixed(FRAME_SIZE))
    }

    /// Returns the error of the check, or none if it passes.
    fn judged(result: &TrialResult) -> Option<String> {
        let error = ChainResult::of(result).judge(&result.validity).err()?;
        assert_eq!(code(&error), FAILED);
        Some(error.to_string())
    }

    const STRAIGHT: [(usize, usize, u64); 4] = [
        (0, 1, OFFERED),
        (1, 0, OFFERED),
        (2, 3, OFFERED),
        (3, 2, OFFERED),
    ];

    #[test]
    fn chains_that_are_straight_pass() {
        let result = result(2, &STRAIGHT);
        assert_eq!(judged(&result), None);
        let text = ChainResult::of(&result).text(&["a warning".to_owned()]);
        assert_eq!(
            text,
            "chain 1  forth 100 of 100 frames, back 100 of 100 frames\n\
             chain 2  forth 100 of 100 frames, back 100 of 100 frames\n\
             lost 0 (damaged 0, misdirected 0)\n\
             WARNING  a warning"
        );
    }

    #[test]
    fn chains_that_are_crossed_fail_with_each_flow_and_where_it_went() {
        let went = [
            (0, 3, OFFERED),
            (1, 2, OFFERED),
            (2, 1, OFFERED),
            (3, 0, OFFERED),
        ];
        assert_eq!(
            judged(&result(2, &went)).unwrap(),
            "400 of 400 frames were lost (0 damaged, 400 misdirected): \
             100 of 100 frames of chain 1 forth came out at the last port of chain 2, \
             100 of 100 frames of chain 1 back came out at the first port of chain 2, \
             100 of 100 frames of chain 2 forth came out at the last port of chain 1, \
             100 of 100 frames of chain 2 back came out at the first port of chain 1"
        );
    }

    #[test]
    fn chains_that_are_partly_crossed_fail_with_the_flows_that_went_astray() {
        // A part of one flow, and a copy of a frame of another flow without loss.
        let mut went = STRAIGHT.to_vec();
        went[0].2 = 60;
        went.extend([(0, 3, 40), (3, 0, 7)]);
        assert_eq!(
            judged(&result(2, &went)).unwrap(),
            "40 of 400 frames were lost (0 damaged, 47 misdirected): \
             40 of 100 frames of chain 1 forth came out at the last port of chain 2, \
             7 of 100 frames of chain 2 back came out at the first port of chain 1"
        );
        let copied = [&STRAIGHT[..], &[(2, 0, 1)]].concat();
        assert_eq!(
            judged(&result(2, &copied)).unwrap(),
            "0 of 400 frames were lost (0 damaged, 1 misdirected): \
             1 of 100 frames of chain 2 forth came out at the first port of chain 1"
        );
    }

    #[test]
    fn frames_that_come_back_to_their_port_are_named_too() {
        assert_eq!(
            judged(&result(1, &[(0, 0, OFFERED), (1, 0, OFFERED)])).unwrap(),
            "100 of 200 frames were lost (0 damaged, 100 misdirected): \
             100 of 100 frames of chain 1 forth came out at the first port of chain 1"
        );
    }

    #[test]
    fn lost_frames_fail_without_a_place() {
        let mut went = STRAIGHT.to_vec();
        went[2].2 = 99;
        let mut result = result(2, &went);
        assert_eq!(
            judged(&result).unwrap(),
            "1 of 400 frames were lost (0 damaged, 0 misdirected)"
        );
        let reason = InvalidCause::Stretched.because("it took too long");
        result.validity = Validity::Invalid(vec![reason]);
        assert_eq!(
            judged(&result).unwrap(),
            "1 of 400 frames were lost (0 damaged, 0 misdirected); tester: it took too long"
        );
    }

    #[test]
    fn nothing_offered_is_no_pass() {
        let mut result = result(1, &[]);
        result.lost_frames = 0;
        result
            .ports
            .iter_mut()
            .for_each(|port| port.offered_frames = 0);
        assert!(judged(&result).is_some());
    }

    #[test]
    fn a_message_lists_some_strays_and_counts_the_others() {
        let count = 2 * 32;
        let went: Vec<_> = (0..count)
            .map(|port| (port, (port + 3) % count, 1))
            .collect();
        let given = judged(&result(32, &went)).unwrap();
        assert_eq!(given.matches(" came out at ").count(), 8, "{given}");
        assert!(given.ends_with(", and 56 more"), "{given}");
    }
}
