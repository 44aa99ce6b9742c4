// SPDX-License-Identifier: Apache-2.0
//! The keys of a study file.

use quietwire_host::cpu::CpuList;
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::{ElementPlace, Encapsulation, OwnImage, Program};
use quietwire_lab::{IsolationCase, IsolationPart, NeighbourPlace};
use quietwire_tester::traffic::Traffic as Description;
use quietwire_tester::{Directions, TesterIdle};
use serde::{Deserialize, Serialize};

use super::device::Device;
use super::published::Published;
use super::trials::Trials;
use super::values::{FrameSize, Link, Mode, NeighboursIn, Pinning, Topology};
use crate::methods::{
    AddressCachingPlan, AddressLearningRatePlan, ApplicationPlan, BackToBackPlan,
    ForwardingRatePlan, LatencyPlanSection, LatencyProbe, LossDistributionPlan, Method, ResetPlan,
    Search, SoakPlan, Sweep, SystemRecoveryPlan, TenantsPlan, every_method,
};

/// Makes [`StudyFile`] with a key for each method.
macro_rules! study_file {
    (
        $(#[$search_doc:meta])* $search:ident: $search_plan:ident,
        $($(#[$doc:meta])* $field:ident: $plan:ident => $kind:ident $name:literal $family:ident,)+
    ) => {
        /// A whole study file. What it measures is a section for each method; all are optional.
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
            $(#[$search_doc])*
            pub $search: Option<$search_plan>,
            $($(#[$doc])* pub $field: Option<$plan>,)+
            /// The neighbours that cases may have.
            #[serde(default)]
            pub neighbours: Neighbours,
            /// What others published, to stand beside it.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub published: Option<Published>,
            /// The cases to compare. The first is the one that the others are set against. Those of `[tenants]` are the last,
            /// whether they are tried or not.
            #[serde(rename = "case", default)]
            pub cases: Vec<Case>,
        }

        impl StudyFile {
            /// The sections that measure, in the order in which their steps are made.
            pub(crate) fn methods(&self) -> Vec<&dyn Method> {
                let mut all: Vec<&dyn Method> = Vec::new();
                all.extend(self.$search.iter().map(|it| it as &dyn Method));
                $(all.extend(self.$field.iter().map(|it| it as &dyn Method));)+
                all
            }

            /// Makes every method short.
            pub(crate) fn shorten_methods(&mut self) {
                self.$search.iter_mut().for_each(Method::shorten);
                $(self.$field.iter_mut().for_each(Method::shorten);)+
            }
        }
    };
}

every_method!(study_file);

/// `[tester]`: the tester.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TesterSettings {
    /// The one CPU of the tester.
    pub cpu: CpuList,
    /// Whether the tester's thread gets real-time priority, so that neighbours disturb the device and not the tester.
    #[serde(default = "yes")]
    pub realtime: bool,
    /// What the tester's thread does when nothing is due: poll, or sleep so that neighbours on its CPU get a part of it.
    #[serde(default)]
    pub idle: TesterIdle,
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
