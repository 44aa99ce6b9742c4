// SPDX-License-Identifier: Apache-2.0
//! Changes asked for while the switch runs, as edits of what it was asked for before. Whether the result makes sense is
//! found by planning it, as at the start. What each change edits stands beside the configuration of its feature.

use quietwire_host::CpuList;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::bridging::{AddBridge, BridgingSetting, SetBridge, StaticSetting};
use super::kernel_filter::KernelFilterSetting;
use super::layer3::{InterfaceSetting, VrfSetting};
use super::ports::AddPort;
use super::rules::{Action, RuleSetting};
use super::settings::Settings;
use crate::error::SwitchError;

/// A change of the configuration. In JSON: `{"add-port":{"name":"a","uri":"null:"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Opens a port.
    AddPort(AddPort),
    /// Closes a port. It leaves the bridge or cross-connect that it is in; a cross-connect goes with it.
    DelPort {
        /// Its name.
        name: String,
    },
    /// Changes how a port behaves in its bridge: what is said here, and what is not stays.
    SetPort {
        /// Its name.
        name: String,
        /// Whether all that was said before is forgotten first.
        #[serde(default)]
        anew: bool,
        /// How it behaves.
        bridging: BridgingSetting,
    },
    /// Puts VLANs into a trunk; a port that knows no VLANs becomes one.
    AddVlan {
        /// Name of the port.
        port: String,
        /// The VLANs: `1,5,10-12` or `all`.
        vlans: String,
        /// Whether their frames leave without a tag.
        #[serde(default)]
        untagged: bool,
        /// Whether frames without a tag are of this VLAN, which is one.
        #[serde(default)]
        native: bool,
    },
    /// Takes VLANs out of a trunk.
    DelVlan {
        /// Name of the port.
        port: String,
        /// The VLANs.
        vlans: String,
    },
    /// Sets a static entry of a bridge; one of the same address is replaced.
    AddStatic(StaticSetting),
    /// Removes a static entry.
    DelStatic {
        /// Name of the bridge.
        bridge: String,
        /// The address.
        mac: MacAddress,
        /// Its VLAN.
        vlan: Option<VlanId>,
    },
    /// Joins two ports.
    AddCrossConnect {
        /// Their names.
        ports: Vec<String>,
    },
    /// Parts two ports.
    DelCrossConnect {
        /// The name of either.
        port: String,
    },
    /// Makes a bridge.
    AddBridge(AddBridge),
    /// Removes a bridge; its ports stay, and do nothing.
    DelBridge {
        /// Its name.
        name: String,
    },
    /// Changes a bridge.
    SetBridge(SetBridge),
    /// Makes a VRF.
    AddVrf(VrfSetting),
    /// Removes a VRF that no interface is in.
    DelVrf {
        /// Its name.
        name: String,
    },
    /// Changes a VRF: everything about it is as said here from then on.
    SetVrf(VrfSetting),
    /// Makes an interface of the router.
    AddInterface(InterfaceSetting),
    /// Changes an interface: everything about it is as said here from then on.
    SetInterface(InterfaceSetting),
    /// Removes an interface.
    DelInterface {
        /// Its name.
        name: String,
    },
    /// Has the kernel get what a rule says.
    AddKernelFilter(KernelFilterSetting),
    /// Removes a rule about what the kernel gets.
    DelKernelFilter {
        /// Its name.
        name: String,
    },
    /// Puts a rule among those that ports let frames in by.
    AddRule {
        /// The rule.
        rule: RuleSetting,
        /// The rule that it comes before; it comes last when not said.
        before: Option<String>,
    },
    /// Changes a rule where it stands: everything about it is as said here from then on.
    SetRule(RuleSetting),
    /// Takes a rule out.
    DelRule {
        /// Its name.
        name: String,
    },
    /// Changes all rules at once; what is not said stays.
    SetRules {
        /// The rules from then on.
        rules: Option<Vec<RuleSetting>>,
        /// What becomes of frames that none of them matches.
        default: Option<Action>,
    },
    /// Says which CPUs forward: threads are made and ended.
    SetThreads {
        /// The CPUs.
        forwarding_cpus: CpuList,
    },
}

impl Settings {
    /// These settings after a change.
    ///
    /// # Errors
    /// [`SwitchError::Config`] when what is to be changed or removed is not there.
    pub fn after(mut self, change: Change) -> Result<Self, SwitchError> {
        self.edit(change)?;
        Ok(self)
    }

    fn edit(&mut self, change: Change) -> Result<(), SwitchError> {
        match change {
            Change::AddPort(port) => self.add_port(port),
            Change::DelPort { name } => self.del_port(&name),
            Change::SetPort {
                name,
                anew,
                bridging,
            } => self.set_port(&name, anew, bridging),
            Change::AddVlan {
                port,
                vlans,
                untagged,
                native,
            } => self.add_vlan(&port, &vlans, untagged, native),
            Change::DelVlan { port, vlans } => self.del_vlan(&port, &vlans),
            Change::AddStatic(entry) => {
                self.add_static(entry);
                Ok(())
            }
            Change::DelStatic { bridge, mac, vlan } => self.del_static(&bridge, mac, vlan),
            Change::AddCrossConnect { ports } => {
                self.add_cross_connect(ports);
                Ok(())
            }
            Change::DelCrossConnect { port } => self.del_cross_connect(&port),
            Change::AddBridge(bridge) => {
                self.add_bridge(bridge);
                Ok(())
            }
            Change::DelBridge { name } => self.del_bridge(&name),
            Change::SetBridge(bridge) => self.set_bridge(bridge),
            Change::AddVrf(vrf) => {
                self.add_vrf(vrf);
                Ok(())
            }
            Change::DelVrf { name } => self.del_vrf(&name),
            Change::SetVrf(vrf) => self.set_vrf(vrf),
            Change::AddInterface(interface) => {
                self.add_interface(interface);
                Ok(())
            }
            Change::SetInterface(interface) => self.set_interface(interface),
            Change::DelInterface { name } => self.del_interface(name),
            Change::AddKernelFilter(filter) => {
                self.add_kernel_filter(filter);
                Ok(())
            }
            Change::DelKernelFilter { name } => self.del_kernel_filter(&name),
            Change::AddRule { rule, before } => self.add_rule(rule, before),
            Change::SetRule(rule) => self.set_rule(rule),
            Change::DelRule { name } => self.del_rule(&name),
            Change::SetRules { rules, default } => {
                self.set_rules(rules, default);
                Ok(())
            }
            Change::SetThreads { forwarding_cpus } => {
                self.forwarding_cpus = Some(forwarding_cpus);
                Ok(())
            }
        }
    }
}
