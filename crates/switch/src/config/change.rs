// SPDX-License-Identifier: Apache-2.0
//! Run-time configuration changes, expressed as edits of the current configuration. The result is validated by planning it, as at start-up.
//! The edits of each feature are next to its configuration.

use std::net::{IpAddr, SocketAddr};

use quietwire_host::CpuList;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::balance::{BackendSetting, LoadBalancerSetting};
use super::bridging::{AddBridge, BridgingSetting, SetBridge, StaticSetting};
use super::connections::ConnectionsSetting;
use super::edit::absent;
use super::kernel_filter::KernelFilterSetting;
use super::layer3::{InterfaceSetting, VrfSetting};
use super::nat::{NatSetting, PublishProtocol, PublishSetting};
use super::ports::AddPort;
use super::rules::{Action, Element, MalformedAction, RuleSetting, SetName, SetSetting};
use super::settings::Settings;
use super::steer::SteerSetting;
use crate::error::SwitchError;

/// A change of the configuration. In JSON: `{"add-port":{"name":"a","uri":"null:"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Opens a port.
    AddPort(AddPort),
    /// Closes a port and removes it from its bridge or cross-connect. The cross-connect is removed with it.
    DelPort {
        /// Its name.
        name: String,
    },
    /// Changes the bridging settings of a port. Settings that are not given stay unchanged.
    SetPort {
        /// Its name.
        name: String,
        /// Resets all previous bridging settings first.
        #[serde(default)]
        reset: bool,
        /// The new settings.
        bridging: BridgingSetting,
    },
    /// Adds VLANs to a trunk. A port without VLAN settings becomes a trunk.
    AddVlan {
        /// Name of the port.
        port: String,
        /// The VLANs: `1,5,10-12` or `all`.
        vlans: String,
        /// Whether their frames leave without a tag.
        #[serde(default)]
        untagged: bool,
        /// Makes the VLAN, which must be a single one, the native VLAN.
        #[serde(default)]
        native: bool,
    },
    /// Removes VLANs from a trunk.
    DelVlan {
        /// Name of the port.
        port: String,
        /// The VLANs.
        vlans: String,
    },
    /// Sets a static entry of a bridge, and replaces an entry of the same address.
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
    /// Connects two ports.
    AddCrossConnect {
        /// Their names.
        ports: Vec<String>,
    },
    /// Removes a cross-connect.
    DelCrossConnect {
        /// Name of either port.
        port: String,
    },
    /// Creates a bridge.
    AddBridge(AddBridge),
    /// Removes a bridge. Its ports stay open and drop all frames.
    DelBridge {
        /// Its name.
        name: String,
    },
    /// Changes a bridge.
    SetBridge(SetBridge),
    /// Creates a VRF.
    AddVrf(VrfSetting),
    /// Removes a VRF without interfaces.
    DelVrf {
        /// Its name.
        name: String,
    },
    /// Replaces all settings of a VRF.
    SetVrf(VrfSetting),
    /// Creates a router interface.
    AddInterface(InterfaceSetting),
    /// Replaces all settings of an interface.
    SetInterface(InterfaceSetting),
    /// Removes an interface.
    DelInterface {
        /// Its name.
        name: String,
    },
    /// Adds a kernel filter.
    AddKernelFilter(KernelFilterSetting),
    /// Removes a kernel filter.
    DelKernelFilter {
        /// Its name.
        name: String,
    },
    /// Adds a steering rule.
    AddSteer {
        /// The rule.
        rule: SteerSetting,
        /// Name of the rule to insert before. Default: at the end.
        before: Option<String>,
    },
    /// Removes a steering rule.
    DelSteer {
        /// Its name.
        name: String,
    },
    /// Adds an instance of NAT.
    AddNat(NatSetting),
    /// Removes an instance of NAT, and all of its mappings.
    DelNat {
        /// Its name.
        name: String,
    },
    /// Adds an external address of IPv4 to an instance of NAT, which keeps its mappings.
    AddNatAddress {
        /// Name of the NAT.
        nat: String,
        /// The address.
        address: IpAddr,
    },
    /// Publishes an inside endpoint at an external port.
    AddPublish {
        /// Name of the NAT.
        nat: String,
        /// The port.
        publish: PublishSetting,
    },
    /// Ends the publication of an inside endpoint.
    DelPublish {
        /// Name of the NAT.
        nat: String,
        /// Protocol.
        protocol: PublishProtocol,
        /// External port.
        port: u16,
        /// External address, if the publication has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
    },
    /// Adds a load balancer.
    AddLoadBalancer(LoadBalancerSetting),
    /// Removes a load balancer, and its connections.
    DelLoadBalancer {
        /// Its name.
        name: String,
    },
    /// Adds a backend to a load balancer.
    AddBackend {
        /// Name of the load balancer.
        load_balancer: String,
        /// The backend.
        backend: BackendSetting,
    },
    /// Changes weight and state of a backend. Those that are not given stay unchanged.
    SetBackend {
        /// Name of the load balancer.
        load_balancer: String,
        /// The backend.
        backend: BackendSetting,
    },
    /// Removes a backend.
    DelBackend {
        /// Name of the load balancer.
        load_balancer: String,
        /// Endpoint of the backend.
        to: SocketAddr,
    },
    /// Starts connection tracking, or changes its timeouts, `max-half-open` and `new-share`, while connections stay.
    SetConnections(ConnectionsSetting),
    /// Ends connection tracking, and forgets all connections.
    DelConnections,
    /// Adds a filter rule.
    AddRule {
        /// The rule.
        rule: RuleSetting,
        /// Name of the rule to insert before. Default: at the end.
        before: Option<String>,
    },
    /// Replaces all settings of a rule; its position stays.
    SetRule(RuleSetting),
    /// Removes a rule.
    DelRule {
        /// Its name.
        name: String,
    },
    /// Replaces all rules. Settings that are not given stay unchanged.
    SetRules {
        /// The new rules.
        rules: Option<Vec<RuleSetting>>,
        /// The new sets. Default: with new rules, none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sets: Option<Vec<SetSetting>>,
        /// The new rules and sets are the staged ones, which must be this number of rules and of parts of sets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        staged: Option<Staged>,
        /// Default action for frames that match no rule.
        default: Option<Action>,
        /// Action for malformed frames.
        malformed: Option<MalformedAction>,
    },
    /// Adds a set.
    AddSet(SetSetting),
    /// Removes a set that no rule uses.
    DelSet {
        /// Its name.
        name: SetName,
    },
    /// Adds elements to a set. Elements that it has stay, with their timeouts.
    AddElements {
        /// Name of the set.
        set: SetName,
        /// The elements.
        elements: Vec<Element>,
        /// Seconds after which these elements are removed. Default: the timeout of the set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u32>,
    },
    /// Removes elements of a set.
    DelElements {
        /// Name of the set.
        set: SetName,
        /// The elements.
        elements: Vec<Element>,
    },
    /// Sets the forwarding CPUs. Threads are started and stopped accordingly.
    SetThreads {
        /// The CPUs.
        forwarding_cpus: CpuList,
    },
}

/// Numbers of staged rules and of staged parts of sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Staged {
    /// Number of rules.
    pub rules: usize,
    /// Number of parts of sets.
    #[serde(default)]
    pub sets: usize,
}

impl Settings {
    /// Returns the settings after a change.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if the object to change or to remove does not exist.
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
                reset,
                bridging,
            } => self.set_port(&name, reset, bridging),
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
            Change::AddSteer { rule, before } => self.add_steer(rule, before),
            Change::DelSteer { name } => self.del_steer(&name),
            Change::AddNat(nat) => {
                self.add_nat(nat);
                Ok(())
            }
            Change::DelNat { name } => self.del_nat(&name),
            Change::AddNatAddress { nat, address } => self.add_nat_address(&nat, address),
            Change::AddPublish { nat, publish } => self.add_publish(&nat, publish),
            Change::DelPublish {
                nat,
                protocol,
                port,
                address,
            } => self.del_publish(&nat, protocol, port, address),
            Change::AddLoadBalancer(setting) => {
                self.add_load_balancer(setting);
                Ok(())
            }
            Change::DelLoadBalancer { name } => self.del_load_balancer(&name),
            Change::AddBackend {
                load_balancer,
                backend,
            } => self.add_backend(&load_balancer, backend),
            Change::SetBackend {
                load_balancer,
                backend,
            } => self.set_backend(&load_balancer, backend),
            Change::DelBackend { load_balancer, to } => self.del_backend(&load_balancer, to),
            Change::SetConnections(setting) => {
                self.connections = Some(setting);
                Ok(())
            }
            Change::DelConnections => match self.connections.take() {
                Some(_) => Ok(()),
                None => Err(absent("section", "connections")),
            },
            Change::AddRule { rule, before } => self.add_rule(rule, before),
            Change::SetRule(rule) => self.set_rule(rule),
            Change::DelRule { name } => self.del_rule(&name),
            // The controller puts the staged rules into the change.
            Change::SetRules {
                staged: Some(staged),
                ..
            } => Err(absent(
                "set of staged rules",
                &format!("{} rules, {} parts of sets", staged.rules, staged.sets),
            )),
            Change::SetRules {
                rules,
                sets,
                staged: None,
                default,
                malformed,
            } => {
                self.set_rules(rules, sets, (default, malformed));
                Ok(())
            }
            Change::AddSet(set) => {
                self.add_set(set);
                Ok(())
            }
            Change::DelSet { name } => self.del_set(&name),
            Change::AddElements {
                set,
                elements,
                timeout_s,
            } => self.add_elements(&set, elements, timeout_s),
            Change::DelElements { set, elements } => self.del_elements(&set, &elements),
            Change::SetThreads { forwarding_cpus } => {
                self.forwarding_cpus = Some(forwarding_cpus);
                Ok(())
            }
        }
    }
}
