// SPDX-License-Identifier: Apache-2.0
//! Options of `measure`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_study::MeasuredMethod;
use quietwire_tester::FrameSizes;

use super::super::chosen_tester::ChosenTester;
use super::super::device::DeviceArgs;
use super::super::isolation::IsolationArgs;
use super::super::own_tester::OwnTesterArgs;
use super::plan::{Assignment, NamedGoal, method_parser};
use crate::units::{parse_duration, parse_frame_sizes, parse_positive_duration, parse_pps};

/// Measure a running device with one method: a search, a sweep, a soak, bursts and others.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Method; docs/methods.md describes the keys and the result of each.
    #[arg(value_parser = method_parser())]
    pub(super) method: &'static MeasuredMethod,
    /// Port of the tester, once or twice, as for generate; for address-caching and address-learning-rate three; for methods
    /// with connections two: of the client and of the server.
    #[arg(long = "port", value_name = "URI", required_unless_present = "tester")]
    pub(super) ports: Vec<PortUri>,
    /// Traffic generator instead of the built-in tester: a simulated device, sim or sim:KEY=VALUE,…, or trex:HOST
    /// (docs/tester.md).
    #[arg(long, value_name = "TESTER", conflicts_with = "ports")]
    pub(super) tester: Option<ChosenTester>,
    /// Rate of 100 % load, frames per second summed over the sending ports, such as 250000 or 1.5M. Default: the tester's
    /// highest rate, or that of its calibration if it is lower.
    #[arg(long, value_name = "RATE", value_parser = parse_pps)]
    pub(super) max_rate_pps: Option<f64>,
    /// Name and loss ratio of a search goal; repeatable. Default: NDR=0 and PDR=0.0001.
    #[arg(long = "goal", value_name = "NAME=RATIO")]
    pub(super) goals: Vec<NamedGoal>,
    /// Key of the method's section of a study file; SECTION.KEY=VALUE for another section, goal.KEY=VALUE for every goal.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) settings: Vec<Assignment>,
    /// Frame size with FCS, octets, 64 to 9000, or imix.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_frame_sizes)]
    pub(super) frame_size: FrameSizes,
    /// Time during which the frames of a trial are counted: 500ms, 10s.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_positive_duration)]
    pub(super) duration: Duration,
    /// Warm-up: time under the same load before counting starts.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub(super) warm_up: Duration,
    /// Time to keep receiving after the last frame.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration)]
    pub(super) drain: Duration,
    /// Send from the first port only.
    #[arg(long)]
    pub(super) one_way: bool,
    /// Send from the second port only.
    #[arg(long, conflicts_with = "one_way")]
    pub(super) reverse: bool,
    /// Flows of each sending port, 1 to 65535.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) flows: u16,
    /// Connections of the methods for stateful devices: addresses, sizes and limits (TOML, as for generate, without a rate).
    #[arg(long, value_name = "FILE")]
    pub(super) connections: Option<PathBuf>,
    #[command(flatten)]
    pub(super) own: OwnTesterArgs,
    #[command(flatten)]
    pub(super) isolation: IsolationArgs,
    /// Calibration file that trials cite, written by `quietwire tester calibrate`. Default: quietwire/calibration.json in
    /// $XDG_STATE_HOME or ~/.local/state, if it exists.
    #[arg(long, value_name = "FILE", conflicts_with = "tester")]
    pub(super) calibration: Option<PathBuf>,
    /// Write the transmit and receive time of each frame of the latency streams of all trials to this pcapng file.
    #[arg(long, value_name = "FILE", conflicts_with = "tester")]
    pub(super) timestamps: Option<PathBuf>,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// Store every trial in this new file (SQLite), from which `study report` can write the page again.
    #[arg(long, value_name = "PATH")]
    pub(super) store: Option<PathBuf>,
    /// Write the result as a page (HTML).
    #[arg(long, value_name = "PATH")]
    pub(super) html: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Show the progress of the search on a terminal.
    #[arg(long)]
    pub(super) progress: bool,
}
