// SPDX-License-Identifier: Apache-2.0
//! The keys of a study file.

use quietwire_host::cpu::CpuList;
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::{ElementPlace, Encapsulation, OwnImage, Program};
use quietwire_lab::{IsolationCase, IsolationPart, NeighbourPlace};
use quietwire_tester::Directions;
use quietwire_tester::traffic::Traffic as Description;
use serde::{Deserialize, Serialize};

use super::application::ApplicationPlan;
use super::device::Device;
use super::methods::{ForwardingRatePlan, LatencyPlanSection, LossDistributionPlan, SoakPlan};
use super::procedures::{
    AddressCachingPlan, AddressLearningRatePlan, BackToBackPlan, ResetPlan, SystemRecoveryPlan,
};
use super::published::Published;
use super::tenants::TenantsPlan;
use super::values::{
    FrameSize, Link, MaxRate, Mode, NeighboursIn, Percent, Pinning, SearchMethod, Topology,
};

/// A whole study file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StudyFile {
    /// Short name in letters, digits, `-`, `_` and `.`: names files.
    pub name: String,
    /// What the study asks, for people.
    pub title: String,
    /// How often all cases are gone through, in turns, so that what changes on the machine over time meets all of them.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Whether it was shortened to see that it runs: what comes of it are no figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
    /// The device under test and its links.
    pub device: Device,
    /// The tester.
    pub tester: TesterSettings,
    /// What is offered.
    #[serde(default)]
    pub traffic: Traffic,
    /// What all trials have in common.
    pub trials: Trials,
    /// The search for the throughput; none without it.
    pub search: Option<Search>,
    /// The frame loss rate sweep (RFC 2544, section 26.3); none without it.
    pub sweep: Option<Sweep>,
    /// Trials at a low load, for the round trip; none without it.
    pub latency: Option<LatencyProbe>,
    /// Many trials at each of a few rates; none without it.
    pub loss_distribution: Option<LossDistributionPlan>,
    /// What comes through of the maximum offered load (RFC 2889); none without it.
    pub forwarding_rate: Option<ForwardingRatePlan>,
    /// Latency at the rates that the search found; none without it.
    pub latency_plan: Option<LatencyPlanSection>,
    /// The load at which a tiny part is lost; none without it.
    pub soak: Option<SoakPlan>,
    /// The longest burst without loss; none without it.
    pub back_to_back: Option<BackToBackPlan>,
    /// How long frames are lost after an overload; none without it.
    pub system_recovery: Option<SystemRecoveryPlan>,
    /// How long nothing is forwarded when the device is restarted; none without it.
    pub reset: Option<ResetPlan>,
    /// How many addresses the device keeps; none without it.
    pub address_caching: Option<AddressCachingPlan>,
    /// How fast it learns them; none without it.
    pub address_learning_rate: Option<AddressLearningRatePlan>,
    /// What applications see of the device; nothing without it.
    pub application: Option<ApplicationPlan>,
    /// Tenants added until the loss goal breaks; none without it.
    pub tenants: Option<TenantsPlan>,
    /// The neighbours that cases may have.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// What others published, to stand beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The cases to compare. The first is the one that the others are set against. Those of `[tenants]` are the last, whether they
    /// are tried or not.
    #[serde(rename = "case", default)]
    pub cases: Vec<Case>,
}

/// `[tester]`: the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TesterSettings {
    /// The one CPU of the tester.
    pub cpu: CpuList,
    /// Whether the tester's thread gets real-time priority, so that neighbours disturb the device and not the tester.
    #[serde(default = "yes")]
    pub realtime: bool,
    /// Huge pages to use, MiB; 0 for none.
    #[serde(default)]
    pub huge_pages_mib: u32,
    /// Network cards of the tester, by their PCI addresses, in the order of those of the device that cables join them to; none
    /// where device and tester are joined within the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
}

/// `[traffic]`: what is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Traffic {
    /// Frame sizes, octets with FCS; everything is measured at each.
    pub frame_sizes: Vec<FrameSize>,
    /// Which ports send.
    pub directions: Directions,
    /// Flows for each sending port.
    pub flows: u16,
    /// Destination MAC addresses for each sending port.
    pub mac_addresses: u32,
    /// IP destinations for each sending port; more than one are drawn at random, each of a network of its own.
    pub ip_destinations: u32,
    /// `[traffic.frames]`: headers, flows, bursts and checked payloads, as the tester's traffic files have them, in place of
    /// `flows` and `mac-addresses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Description>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            frame_sizes: vec![FrameSize::default()],
            directions: Directions::Both,
            flows: 1,
            mac_addresses: 1,
            ip_destinations: 1,
            frames: None,
        }
    }
}

/// `[trials]`: what all trials have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trials {
    /// How long frames are counted, seconds.
    pub duration_s: f64,
    /// How long the load is offered before that, seconds.
    #[serde(default = "warm_up_s")]
    pub warm_up_s: f64,
    /// How long the tester goes on receiving afterwards, seconds.
    #[serde(default = "drain_s")]
    pub drain_s: f64,
    /// What 100 % means.
    #[serde(default)]
    pub max_rate_pps: MaxRate,
    /// How often a trial in which the tester itself failed is made again.
    #[serde(default = "invalid_repeats")]
    pub invalid_repeats: u32,
}

/// `[search]`: the search, by one of several methods. Percentages are of the maximum rate. Which keys a method takes,
/// and which it needs, is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Search {
    /// How to search.
    #[serde(default)]
    pub method: SearchMethod,
    /// First rate to try. Not for `mlrsearch`; the others need it.
    pub start_rate_percent: Option<Percent>,
    /// Step of the linear phase, halved in the binary phase. Not for `mlrsearch`; the others need it.
    pub start_step_percent: Option<Percent>,
    /// The search stops once its step is under this. Not for `mlrsearch`; the others need it.
    pub resolution_percent: Option<Percent>,
    /// `single-run` only: most trials at one visit of a rate; it is taken as lost only once so many in a row have lost
    /// too much. Without it one.
    pub best_of: Option<u32>,
    /// `best-of-n`, `worst-of-n` and `best-and-worst-of-n` only: N, most trials at each rate. Without it five.
    pub trials_per_rate: Option<u32>,
    /// `mlrsearch` only: rate under which nothing is offered. Without it 0.1 %.
    pub min_rate_percent: Option<Percent>,
    /// How often the whole search is made over, for mean, deviation and confidence interval. Without it once.
    pub repeats: Option<u32>,
    /// With `repeats`: level of the confidence interval. Without it 95.
    pub confidence_percent: Option<Percent>,
    /// What to search for.
    #[serde(rename = "goal")]
    pub goals: Vec<Goal>,
}

/// `[[search.goal]]`: a name and the loss that it allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Goal {
    /// `NDR`, `PDR`.
    pub name: String,
    /// Lost over offered frames, 0 or more and under 1.
    pub loss_ratio: f64,
    /// `mlrsearch` only: part of the duration sum in which more may be lost, 0 or more and under 1. Without it 0.5.
    pub exceed_ratio: Option<f64>,
    /// `mlrsearch` only: how far apart the bounds may be, in percent of the upper one. Without it 0.5.
    pub width_percent: Option<Percent>,
    /// `mlrsearch` only: length of a full trial, seconds. Without it `duration-s` of `[trials]`.
    pub final_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: length of the first trial at a load, seconds. Without it that of a full one.
    pub initial_trial_duration_s: Option<f64>,
    /// `mlrsearch` only: so much is measured at a load before it is judged, seconds, warm-up and drain included.
    /// Without it 21 full trials' lengths.
    pub duration_sum_s: Option<f64>,
}

/// `[sweep]`: one trial at each load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sweep {
    /// Offered loads, percent of the maximum rate.
    pub loads_percent: Vec<Percent>,
}

/// `[latency]`: trials at a low load. Exactly one of the two rates is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LatencyProbe {
    /// Offered load, percent of the maximum rate.
    pub rate_percent: Option<Percent>,
    /// Offered load, frames per second.
    pub rate_pps: Option<f64>,
    /// How long frames are counted, seconds.
    pub duration_s: f64,
    /// How many trials.
    pub repeats: u32,
}

/// `[neighbours]`: what else may run on the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Neighbours {
    /// Options of stress-ng, one text a stressor: `--cpu 4`. All of them run at once.
    #[serde(default)]
    pub stressors: Vec<String>,
    /// Kinds of neighbours by name, beside those. All of them run at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Workers of each stressor of those kinds, 1 to 1024; as many as there are CPUs that they may use where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// What stress-ng runs in.
    #[serde(rename = "in", default)]
    pub place: NeighbourPlace,
    /// A tester that sends frames of 64 octets through the same device, on ports of its own, beside stress-ng or alone: so many
    /// a second, summed over directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_pps: Option<f64>,
}

impl Neighbours {
    /// Whether none are described.
    pub(crate) fn is_empty(&self) -> bool {
        self.stressors.is_empty() && self.kinds.is_empty() && self.network_pps.is_none()
    }
}

/// `[[case]]`: one of the cases to compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    /// Its name, in letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Whether there are neighbours, and where they may run.
    #[serde(default)]
    pub neighbours: NeighboursIn,
    /// What keeps the rest of the machine away from the device: one of the lab's isolation cases, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// In place of `isolation`, in files of earlier versions: whether the device's threads are pinned to the CPUs of their
    /// roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinning: Option<Pinning>,
    /// With `pinning`: whether everything else on the machine is kept off the forwarding CPUs. Without it not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<bool>,
    /// Kinds of its neighbours, where they are not those of `[neighbours]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// What forwards in this case, where it is not what `[device]` says; so for all that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Program>,
    /// The topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// What the links are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How it forwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What the network functions are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf: Option<Program>,
    /// Chains at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<u32>,
    /// Network functions in a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// What frames carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// Where that runs which the topology puts into a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ElementPlace>,
    /// Under what guests run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorChoice>,
    /// Rules of firewalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// What guests of network functions boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Network cards of the device; an empty list for links within the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<String>>,
    /// Flows for each sending port, where they are not those of `[traffic]`; so for the two that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// Destination MAC addresses for each sending port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_addresses: Option<u32>,
    /// IP destinations for each sending port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_destinations: Option<u32>,
    /// Of a case that `[tenants]` makes: how many there are.
    #[serde(skip)]
    pub tenants: Option<u32>,
}

impl Case {
    /// Its isolation case; none in files that say `pinning`.
    #[must_use]
    pub fn isolation(&self) -> Option<&'static IsolationCase> {
        IsolationCase::named(self.isolation.as_deref()?)
    }

    /// Whether the device's threads keep to the CPUs of their roles.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        let by_isolation = self.isolation();
        by_isolation.is_some_and(|case| case.has(IsolationPart::Pinned))
            || self.pinning == Some(Pinning::Roles)
    }

    /// Whether everything else is kept off the forwarding CPUs.
    #[must_use]
    pub fn keeps_others_off(&self) -> bool {
        let by_isolation = self.isolation();
        by_isolation.is_some_and(|case| case.has(IsolationPart::Isolated))
            || self.partition == Some(true)
    }
}

pub(super) fn one() -> u32 {
    1
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn warm_up_s() -> f64 {
    0.2
}

pub(super) fn drain_s() -> f64 {
    0.1
}

/// With one trial in three invalid, a search of a hundred trials gives up in one of a thousand.
pub(super) fn invalid_repeats() -> u32 {
    10
}
