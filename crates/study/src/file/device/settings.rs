// SPDX-License-Identifier: Apache-2.0
//! Keys of `[device]`.

use std::collections::BTreeMap;

use quietwire_base::Idle;
use quietwire_host::cpu::CpuList;
use quietwire_lab::guest::AcceleratorChoice;
use quietwire_lab::topology::{ElementPlace, Encapsulation, OwnImage, Program};
use serde::{Deserialize, Serialize};

use super::super::{CardDriver, Link, Mode, Switch, Topology};

/// Device under test and its links (`[device]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Device {
    /// Switch.
    pub switch: Switch,
    /// Topology.
    pub topology: Topology,
    /// Kind of the links. Default: the kind that both ends support best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Forwarding mode.
    #[serde(default)]
    pub mode: Mode,
    /// Kind of the network functions. Default: quietwire's switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf: Option<Program>,
    /// Kinds of the network functions of each chain, in order, instead of `vnf`. Default and an empty list: all are of the kind `vnf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnfs: Option<Vec<Program>>,
    /// Number of parallel chains, if the topology supports several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<u32>,
    /// Number of network functions in a chain, if the topology supports any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u32>,
    /// Encapsulation. Default: plain Ethernet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<Encapsulation>,
    /// Place of the elements that the topology puts into a guest. Default: a guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ElementPlace>,
    /// Hypervisor of guests. Default: KVM if the guests boot under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorChoice>,
    /// Rules of firewalls, in the syntax of rule files. Default: a common set of rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Number of generated rules of firewalls, instead of [`Self::rules`]. 0: the firewall has no rules and accepts every frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_count: Option<u32>,
    /// Rules, connections, NAT and load balancers of quietwire's switch, in the syntax of its configuration file. Default: those of its
    /// program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_config: Option<String>,
    /// Rules, connections, NAT and load balancers of every network function, in the syntax of the switch's configuration file. Default:
    /// those of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vnf_config: Option<String>,
    /// Boot image of guests with network functions. Default: the image that is built for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Network cards of the device, by PCI address, two for each chain. None for links within the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Driver of these cards and functions while a case runs. Default: `vfio-pci` for virtual functions of an isolation case, `keep` for
    /// cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_driver: Option<CardDriver>,
    /// CPUs of elements, by name. Other elements get one each of the forwarding CPUs, and share them if there are too
    /// few.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<String, CpuList>,
    /// `switch = "other"` only: words of the command that prepares the device, before the tester's ports are opened. The first is the
    /// program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<String>,
    /// Time that the command has, seconds. It is killed then. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_timeout_s: Option<f64>,
    /// `switch = "other"` only: words of the command that restores the device after each case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restore: Vec<String>,
    /// Time that the command has, seconds. It is killed then. Default: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_timeout_s: Option<f64>,
    /// CPUs that poll ports. For a device that the lab does not start: its CPUs, if it is on this machine. Default for topologies other
    /// than the standalone quietwire switch: all CPUs but the tester's.
    #[serde(default)]
    pub forwarding_cpus: CpuList,
    /// CPUs of the service thread.
    #[serde(default)]
    pub service_cpus: CpuList,
    /// CPUs of the control thread and of library threads.
    #[serde(default)]
    pub control_cpus: CpuList,
    /// Descriptors of each receive queue, a power of two.
    #[serde(default = "ring_size")]
    pub rx_ring_size: u16,
    /// Descriptors of each transmit queue, a power of two.
    #[serde(default = "ring_size")]
    pub tx_ring_size: u16,
    /// Idle strategy of a forwarding thread.
    #[serde(default)]
    pub idle: Idle,
    /// IP destinations of each of the tester's ports, for which routers get routes: those of the case's traffic.
    #[serde(skip, default = "destinations")]
    pub destinations: u32,
    /// `bridge` only: size of the address table. Default: 65 536, or twice the number of addresses of the traffic if that is
    /// more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_entries: Option<u32>,
}

pub(super) fn ring_size() -> u16 {
    1024
}

fn destinations() -> u32 {
    1
}
