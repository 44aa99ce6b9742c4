// SPDX-License-Identifier: Apache-2.0
//! Keys of a study file.

use quietwire_host::cpu::CpuList;
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::{ElementPlace, Encapsulation, OwnImage, Program};
use quietwire_lab::{IsolationCase, IsolationPart, NeighbourPlace};
use quietwire_tester::connections::Connections;
use quietwire_tester::traffic::Traffic as Description;
use quietwire_tester::{Directions, TesterIdle};
use serde::{Deserialize, Serialize};

use super::connections;
use super::device::Device;
use super::objective::Objective;
use super::published::Published;
use super::trials::Trials;
use super::values::{
    CaseMonitors, EarlierIsolation, FrameSize, Link, Mode, NeighboursIn, Topology,
};
use crate::methods::{
    AddressCachingPlan, AddressLearningRatePlan, ApplicationPlan, BackToBackPlan,
    ConcurrentConnectionsPlan, ConnectionThroughputPlan, ConnectionsPerSecondPlan,
    ForwardingRatePlan, LatencyPlanSection, LatencyProbe, LossDistributionPlan, Method, ResetPlan,
    Search, SoakPlan, Sweep, SystemRecoveryPlan, TenantsPlan, TransactionLatencyPlan,
    TransactionsPerSecondPlan, every_method,
};

/// Defines [`StudyFile`] with a key for each method.
macro_rules! study_file {
    (
        $(#[$search_doc:meta])* $search:ident: $search_plan:ident,
        $($(#[$doc:meta])* $field:ident: $plan:ident => $kind:ident $name:literal $family:ident,)+
    ) => {
        /// A study file. Each method has an optional section.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields)]
        pub struct StudyFile {
            /// Short name in letters, digits, `-`, `_` and `.`. File names contain it.
            pub name: String,
            /// Question that the study answers, for people.
            pub title: String,
            /// Number of rounds. Each round runs all cases in turn, so slow changes of the machine affect all of them.
            #[serde(default = "rounds")]
            pub rounds: u32,
            /// True if `--quick` shortened the study. Its results are not usable as figures.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            pub quick: bool,
            /// Device under test and its links.
            pub device: Device,
            /// Tester.
            pub tester: TesterSettings,
            /// Traffic.
            #[serde(default)]
            pub traffic: Traffic,
            /// Settings of all trials.
            pub trials: Trials,
            /// Connections that the methods for stateful devices open: addresses, sizes and limits. Default: those of the tester, with 16
            /// client addresses.
            #[serde(
                default,
                skip_serializing_if = "Option::is_none",
                serialize_with = "connections::serialize"
            )]
            pub connections: Option<Box<Connections>>,
            $(#[$search_doc])*
            pub $search: Option<$search_plan>,
            $($(#[$doc])* pub $field: Option<$plan>,)+
            /// Neighbours that cases may have.
            #[serde(default)]
            pub neighbours: Neighbours,
            /// Objectives: bounds that the results are judged by.
            #[serde(rename = "objective", default, skip_serializing_if = "Vec::is_empty")]
            pub objectives: Vec<Objective>,
            /// Published figures for comparison.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub published: Option<Published>,
            /// Cases to compare. The first is the baseline. The cases of `[tenants]` are the last ones,
            /// tried or not.
            #[serde(rename = "case", default)]
            pub cases: Vec<Case>,
        }

        impl StudyFile {
            /// Returns the sections of methods, in the order of their steps.
            pub(crate) fn methods(&self) -> Vec<&dyn Method> {
                let mut all: Vec<&dyn Method> = Vec::new();
                all.extend(self.$search.iter().map(|it| it as &dyn Method));
                $(all.extend(self.$field.iter().map(|it| it as &dyn Method));)+
                all
            }

            /// Shortens every method.
            pub(crate) fn shorten_methods(&mut self) {
                self.$search.iter_mut().for_each(Method::shorten);
                $(self.$field.iter_mut().for_each(Method::shorten);)+
            }
        }
    };
}

every_method!(study_file);

/// Tester (`[tester]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TesterSettings {
    /// CPU of the tester.
    pub cpu: CpuList,
    /// Real-time priority for the tester's thread, so that neighbours disturb the device and not the tester.
    #[serde(default = "realtime")]
    pub realtime: bool,
    /// Idle strategy of the tester's thread: poll, or sleep, which yields its CPU to neighbours.
    #[serde(default)]
    pub idle: TesterIdle,
    /// Huge pages to use, MiB; 0 for none.
    #[serde(default)]
    pub huge_pages_mib: u32,
    /// Network cards of the tester, by PCI address, in the order of the device's cards that they are cabled to. None
    /// if device and tester are connected within the machine. With `switch = "other"`: URIs of the tester's ports, or PCI addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
}

/// Traffic (`[traffic]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Traffic {
    /// Frame sizes, octets with FCS. Every measurement is made at each size.
    pub frame_sizes: Vec<FrameSize>,
    /// Sending ports.
    pub directions: Directions,
    /// Flows for each sending port.
    pub flows: u16,
    /// Destination MAC addresses for each sending port.
    pub mac_addresses: u32,
    /// IP destinations for each sending port. If there are several, they are chosen at random, each in its own network.
    pub ip_destinations: u32,
    /// `[traffic.frames]`: headers, flows, bursts and verified payloads in the syntax of the tester's traffic files. It replaces
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

/// Load on the machine beside the device (`[neighbours]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Neighbours {
    /// stress-ng options, one text for each stressor: `--cpu 4`. All stressors run at once.
    #[serde(default)]
    pub stressors: Vec<String>,
    /// Additional kinds of neighbours by name. All of them run at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Workers of each stressor of these kinds, 1 to 1024. Default: the number of CPUs available to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Environment of stress-ng.
    #[serde(rename = "in", default)]
    pub place: NeighbourPlace,
    /// Rate of a neighbour that sends frames of 64 octets through the same device, on ports of its own, with or without stress-ng: frames
    /// per second, summed over directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_pps: Option<f64>,
}

impl Neighbours {
    /// Returns true if no neighbours are described.
    pub(crate) fn is_empty(&self) -> bool {
        self.stressors.is_empty() && self.kinds.is_empty() && self.network_pps.is_none()
    }
}

/// A case to compare (`[[case]]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    /// Name, in letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Placement of the neighbours, if any.
    #[serde(default)]
    pub neighbours: NeighboursIn,
    /// Isolation of the device from the rest of the machine: the name of an isolation case of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Isolation in a store of an earlier version, in place of `isolation`.
    #[serde(skip)]
    pub earlier_isolation: Option<EarlierIsolation>,
    /// Kinds of neighbours. Default: those of `[neighbours]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Switch. Default for this key and the following ones: the value of `[device]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Program>,
    /// Topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Kind of the links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Forwarding mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Kind of the network functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf: Option<Program>,
    /// Kinds of the network functions of each chain, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnfs: Option<Vec<Program>>,
    /// Number of parallel chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<u32>,
    /// Number of network functions in a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// Encapsulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// Place of the elements that the topology puts into a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ElementPlace>,
    /// Hypervisor of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorChoice>,
    /// Rules of firewalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Number of generated rules of firewalls, instead of rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_count: Option<u32>,
    /// Rules, connections, NAT and load balancers of quietwire's switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_config: Option<String>,
    /// Rules, connections, NAT and load balancers of every network function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf_config: Option<String>,
    /// Boot image of guests with network functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Network cards of the device; an empty list for links within the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<String>>,
    /// Flows for each sending port. Default for this key and the two following ones: the value of `[traffic]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u16>,
    /// Destination MAC addresses for each sending port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_addresses: Option<u32>,
    /// IP destinations for each sending port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_destinations: Option<u32>,
    /// Monitors that run in its trials.
    #[serde(default, skip_serializing_if = "CaseMonitors::is_all")]
    pub monitors: CaseMonitors,
    /// Number of tenants, for a case generated from `[tenants]`.
    #[serde(skip)]
    pub tenants: Option<u32>,
}

impl Case {
    /// Returns its isolation case; none for stores of earlier versions.
    #[must_use]
    pub fn isolation(&self) -> Option<&'static IsolationCase> {
        IsolationCase::named(self.isolation.as_deref()?)
    }

    /// Returns true if the device's threads keep to the CPUs of their roles.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        let by_isolation = self.isolation();
        by_isolation.is_some_and(|case| case.has(IsolationPart::Pinned))
            || self.earlier_isolation.is_some_and(|it| it.is_pinned)
    }

    /// Returns true if everything else is excluded from the forwarding CPUs.
    #[must_use]
    pub fn keeps_others_off(&self) -> bool {
        let by_isolation = self.isolation();
        by_isolation.is_some_and(|case| case.has(IsolationPart::Isolated))
            || self.earlier_isolation.is_some_and(|it| it.keeps_others_off)
    }
}

fn rounds() -> u32 {
    1
}

fn realtime() -> bool {
    true
}
