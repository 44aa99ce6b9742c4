// SPDX-License-Identifier: Apache-2.0
//! The keys of `[device]`.

use std::collections::BTreeMap;

use quietwire_base::Idle;
use quietwire_host::cpu::CpuList;
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::{ElementPlace, Encapsulation, OwnImage, Program};
use serde::{Deserialize, Serialize};

use super::super::{Link, Mode, Switch, Topology};

/// `[device]`: the device under test and its links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Device {
    /// What forwards.
    pub switch: Switch,
    /// How it is connected.
    pub topology: Topology,
    /// What the links are; none for what both ends do best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// How it forwards.
    #[serde(default)]
    pub mode: Mode,
    /// What the network functions are; quietwire's switch where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf: Option<Program>,
    /// Chains at once, where the topology takes several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<u32>,
    /// Network functions in a chain, where the topology takes any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// What frames carry; Ethernet only where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// Where that runs which the topology puts into a guest; a guest where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ElementPlace>,
    /// Under what guests run; KVM where they boot under it, where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorChoice>,
    /// Rules of firewalls, as files of rules have them; those that are usual where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// What guests of network functions boot; the image that is built for them where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Network cards of the device, by their PCI addresses, two for each chain; none for links within the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// CPUs of elements, by their names. Those that are not named get one each of the forwarding CPUs, and take turns where
    /// there are too few.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<String, CpuList>,
    /// CPUs that poll ports. None for a device that the lab does not start; in other topologies than that of quietwire's
    /// switch alone, all but the tester's where nothing is said.
    #[serde(default)]
    pub forwarding_cpus: CpuList,
    /// CPUs for what may wait a little.
    #[serde(default)]
    pub service_cpus: CpuList,
    /// CPUs for the control thread and the library's own threads.
    #[serde(default)]
    pub control_cpus: CpuList,
    /// Descriptors of each receive queue, a power of two.
    #[serde(default = "ring_size")]
    pub rx_ring_size: u16,
    /// Descriptors of each transmit queue, a power of two.
    #[serde(default = "ring_size")]
    pub tx_ring_size: u16,
    /// What a forwarding thread does when no packet came.
    #[serde(default)]
    pub idle: Idle,
    /// IP destinations of each of the tester's ports, to which routers get routes: those of the case's traffic.
    #[serde(skip, default = "one")]
    pub destinations: u32,
    /// `bridge` only: addresses that its table has room for. Without it 65 536, or twice those of the traffic where that is
    /// more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
}

pub(super) fn ring_size() -> u16 {
    1024
}

pub(super) fn one() -> u32 {
    1
}
