// SPDX-License-Identifier: Apache-2.0
//! The options of `measure`.

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

/// Measure a device that is running already by one method: a search, a sweep, a soak, bursts and more.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The method; docs/methods.md says what each asks and gives.
    #[arg(value_parser = method_parser())]
    pub(super) method: &'static MeasuredMethod,
    /// Port of the tester, once or twice, as for generate; for address-caching and address-learning-rate three.
    #[arg(long = "port", value_name = "URI", required_unless_present = "tester")]
    pub(super) ports: Vec<PortUri>,
    /// What measures in place of the built-in tester: sim, a simulated device, with its parameters sim:KEY=VALUE,…, or
    /// trex:HOST (docs/tester.md).
    #[arg(long, value_name = "TESTER", conflicts_with = "ports")]
    pub(super) tester: Option<ChosenTester>,
    /// What 100 % of the load is, frames per second summed over the ports that send, such as 250000 or 1.5M. Default: what the tester itself can
    /// do, by its calibration where that is less than it does now.
    #[arg(long, value_name = "RATE", value_parser = parse_pps)]
    pub(super) max_rate_pps: Option<f64>,
    /// A loss ratio to search for, by its name: NDR=0, PDR=0.0001, which are the default. More than once for several.
    #[arg(long = "goal", value_name = "NAME=RATIO")]
    pub(super) goals: Vec<NamedGoal>,
    /// A key of the method, as in a study file; of another section SECTION.KEY=VALUE, of every goal goal.KEY=VALUE.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) settings: Vec<Assignment>,
    /// Octets with FCS, 64 to 9000, or imix.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_frame_sizes)]
    pub(super) frame_size: FrameSizes,
    /// How long the frames of a trial are counted: 500ms, 10s.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_positive_duration)]
    pub(super) duration: Duration,
    /// How long the same load runs before anything is counted.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub(super) warm_up: Duration,
    /// How long to go on receiving after the last frame.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration)]
    pub(super) drain: Duration,
    /// Only the first port sends.
    #[arg(long)]
    pub(super) one_way: bool,
    /// Flows of each port that sends.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) flows: u16,
    #[command(flatten)]
    pub(super) own: OwnTesterArgs,
    #[command(flatten)]
    pub(super) isolation: IsolationArgs,
    /// Calibrations that trials are to cite, made by `quietwire tester calibrate`. Default: quietwire/calibration.json in
    /// $XDG_STATE_HOME or ~/.local/state, where it is there.
    #[arg(long, value_name = "FILE", conflicts_with = "tester")]
    pub(super) calibration: Option<PathBuf>,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// Keep every trial in this file (SQLite), from which `study report` makes the page again. It must not be there yet.
    #[arg(long, value_name = "PATH")]
    pub(super) store: Option<PathBuf>,
    /// Write a page of the result.
    #[arg(long, value_name = "PATH")]
    pub(super) html: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// On a terminal, show the search as it closes in.
    #[arg(long)]
    pub(super) progress: bool,
}
