// SPDX-License-Identifier: Apache-2.0
//! Changes asked for while the switch runs, as edits of what it was asked for before. Whether the result makes sense is
//! found by planning it, as at the start.

use quietwire_host::{CpuList, CpuSequence};
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::bridging::{BridgingSetting, StaticSetting};
use super::kernel_filter::KernelFilterSetting;
use super::layer3::{InterfaceSetting, VRF_MAIN, VrfSetting};
use super::place::{Place, Placed};
use super::rules::{Action, RuleSetting};
use super::settings::{BridgeSetting, CrossConnectSetting, PortSetting, Settings};
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
    AddBridge {
        /// Its name.
        name: String,
        /// Names of its ports.
        #[serde(default)]
        ports: Vec<String>,
        /// Addresses that it can learn.
        max_entries: Option<u32>,
        /// Seconds after which an address is forgotten.
        ageing_s: Option<u32>,
    },
    /// Removes a bridge; its ports stay, and do nothing.
    DelBridge {
        /// Its name.
        name: String,
    },
    /// Changes a bridge.
    SetBridge {
        /// Its name.
        name: String,
        /// Ports to put in.
        #[serde(default)]
        add_ports: Vec<String>,
        /// Ports to take out.
        #[serde(default)]
        del_ports: Vec<String>,
        /// Addresses that it can learn. With another number the addresses are learned anew.
        max_entries: Option<u32>,
        /// Seconds after which an address is forgotten. With another number the addresses are learned anew.
        ageing_s: Option<u32>,
    },
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

/// A port to be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddPort {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub uri: String,
    /// Receive queues; 1 when not said.
    pub rx_queues: Option<u16>,
    /// Transmit queues.
    pub tx_queues: Option<u16>,
    /// CPUs that its receive queues are mapped to, in turn.
    pub rx_cpus: Option<CpuSequence>,
    /// The bridge to put it in.
    pub bridge: Option<String>,
    /// How it behaves there.
    #[serde(default)]
    pub bridging: BridgingSetting,
}

fn wrong(place: &str, what: String) -> SwitchError {
    SwitchError::Config {
        place: place.to_owned(),
        what,
    }
}

fn absent(what: &str, name: &str) -> SwitchError {
    wrong(what, format!("there is no {what} '{name}'"))
}

fn asked<T>(value: T) -> Placed<T> {
    Placed {
        value,
        place: Place::Request,
    }
}

/// Takes out what has this name.
fn remove<T>(
    list: &mut Vec<Placed<T>>,
    what: &str,
    name: &str,
    name_of: impl Fn(&T) -> &String,
) -> Result<(), SwitchError> {
    let before = list.len();
    list.retain(|one| name_of(&one.value) != name);
    if list.len() == before {
        return Err(absent(what, name));
    }
    Ok(())
}

impl Settings {
    /// These settings after a change.
    ///
    /// # Errors
    /// [`SwitchError::Config`] when what is to be changed or removed is not there.
    pub fn after(mut self, change: Change) -> Result<Self, SwitchError> {
        match change {
            Change::AddPort(port) => self.add_port(port)?,
            Change::DelPort { name } => self.del_port(&name)?,
            Change::SetPort {
                name,
                anew,
                bridging,
            } => {
                let port = self.port(&name)?;
                let before = std::mem::take(&mut port.bridging);
                port.bridging = if anew {
                    bridging
                } else {
                    bridging.over(before)
                };
                port.place = Place::Request;
            }
            Change::AddVlan {
                port,
                vlans,
                untagged,
                native,
            } => {
                let setting = self.port(&port)?;
                setting
                    .bridging
                    .add_vlans(&vlans, untagged, native)
                    .map_err(|what| wrong("vlan", format!("port '{port}': {what}")))?;
                setting.place = Place::Request;
            }
            Change::DelVlan { port, vlans } => {
                let setting = self.port(&port)?;
                setting
                    .bridging
                    .del_vlans(&vlans)
                    .map_err(|what| wrong("vlan", format!("port '{port}': {what}")))?;
                setting.place = Place::Request;
            }
            Change::AddStatic(value) => {
                let statics = self.statics.get_or_insert_default();
                let same = |one: &StaticSetting| {
                    (&one.bridge, one.mac, one.vlan) == (&value.bridge, value.mac, value.vlan)
                };
                statics.retain(|one| !same(&one.value));
                statics.push(asked(value));
            }
            Change::DelStatic { bridge, mac, vlan } => {
                let statics = self.statics.get_or_insert_default();
                let before = statics.len();
                statics.retain(|one| {
                    (&one.value.bridge, one.value.mac, one.value.vlan) != (&bridge, mac, vlan)
                });
                if statics.len() == before {
                    return Err(wrong(
                        "fdb",
                        format!("bridge '{bridge}' has no static entry {mac} there"),
                    ));
                }
            }
            Change::AddCrossConnect { ports } => {
                self.cross_connects
                    .get_or_insert_default()
                    .push(CrossConnectSetting {
                        ports,
                        place: Place::Request,
                    });
            }
            Change::DelCrossConnect { port } => {
                let pairs = self.cross_connects.get_or_insert_default();
                let before = pairs.len();
                pairs.retain(|pair| !pair.ports.contains(&port));
                if pairs.len() == before {
                    return Err(wrong("cross-connect", format!("port '{port}' is in none")));
                }
            }
            Change::AddBridge {
                name,
                ports,
                max_entries,
                ageing_s,
            } => self.bridges.get_or_insert_default().push(BridgeSetting {
                name,
                ports,
                max_entries,
                ageing_s,
                flooding: None,
                place: Place::Request,
            }),
            Change::DelBridge { name } => {
                self.bridge(&name)?;
                self.bridges
                    .get_or_insert_default()
                    .retain(|bridge| bridge.name != name);
                self.statics
                    .get_or_insert_default()
                    .retain(|one| one.value.bridge != name);
                self.forget_rules(|rule| rule.bridge.as_ref() == Some(&name));
            }
            Change::SetBridge {
                name,
                add_ports,
                del_ports,
                max_entries,
                ageing_s,
            } => {
                let bridge = self.bridge(&name)?;
                for port in &del_ports {
                    let before = bridge.ports.len();
                    bridge.ports.retain(|one| one != port);
                    if bridge.ports.len() == before {
                        return Err(wrong(
                            &format!("bridge '{name}'"),
                            format!("port '{port}' is not in it"),
                        ));
                    }
                }
                bridge.ports.extend(add_ports);
                bridge.max_entries = max_entries.or(bridge.max_entries);
                bridge.ageing_s = ageing_s.or(bridge.ageing_s);
                bridge.place = Place::Request;
            }
            Change::AddVrf(value) => self.vrfs.get_or_insert_default().push(asked(value)),
            Change::DelVrf { name } => {
                let vrfs = self.vrfs.get_or_insert_default();
                remove(vrfs, "VRF", &name, |vrf| &vrf.name)?;
            }
            Change::SetVrf(value) => {
                let vrfs = self.vrfs.get_or_insert_default();
                match vrfs.iter_mut().find(|one| one.value.name == value.name) {
                    Some(vrf) => *vrf = asked(value),
                    // It is there without having been named.
                    None if value.name == VRF_MAIN => vrfs.push(asked(value)),
                    None => return Err(absent("VRF", &value.name)),
                }
            }
            Change::AddInterface(value) => {
                self.interfaces.get_or_insert_default().push(asked(value));
            }
            Change::SetInterface(value) => {
                let interfaces = self.interfaces.get_or_insert_default();
                let interface = interfaces
                    .iter_mut()
                    .find(|one| one.value.name == value.name)
                    .ok_or_else(|| absent("interface", &value.name))?;
                *interface = asked(value);
            }
            Change::DelInterface { name } => {
                let interfaces = self.interfaces.get_or_insert_default();
                remove(interfaces, "interface", &name, |interface| &interface.name)?;
                self.forget_filters(&[name]);
            }
            Change::AddKernelFilter(value) => {
                self.kernel_filters
                    .get_or_insert_default()
                    .push(asked(value));
            }
            Change::DelKernelFilter { name } => {
                let filters = self.kernel_filters.get_or_insert_default();
                remove(filters, "kernel filter", &name, |filter| &filter.name)?;
            }
            Change::AddRule { rule, before } => self.add_rule(rule, before)?,
            Change::SetRule(value) => {
                let rules = self.rules.get_or_insert_default();
                let rule = rules
                    .iter_mut()
                    .find(|one| one.value.name == value.name)
                    .ok_or_else(|| absent("rule", &value.name))?;
                *rule = asked(value);
            }
            Change::DelRule { name } => {
                let rules = self.rules.get_or_insert_default();
                remove(rules, "rule", &name, |rule| &rule.name)?;
            }
            Change::SetRules { rules, default } => {
                let rules = rules.map(|rules| rules.into_iter().map(asked).collect());
                self.rules = rules.or(self.rules);
                self.rule_default = default.or(self.rule_default);
            }
            Change::SetThreads { forwarding_cpus } => {
                self.forwarding_cpus = Some(forwarding_cpus);
            }
        }
        Ok(self)
    }

    fn port(&mut self, name: &str) -> Result<&mut PortSetting, SwitchError> {
        self.ports
            .get_or_insert_default()
            .iter_mut()
            .find(|port| port.name == name)
            .ok_or_else(|| absent("port", name))
    }

    fn bridge(&mut self, name: &str) -> Result<&mut BridgeSetting, SwitchError> {
        self.bridges
            .get_or_insert_default()
            .iter_mut()
            .find(|bridge| bridge.name == name)
            .ok_or_else(|| wrong("bridge", format!("there is no bridge '{name}'")))
    }

    fn add_port(&mut self, port: AddPort) -> Result<(), SwitchError> {
        if let Some(bridge) = &port.bridge {
            let bridge = self.bridge(bridge)?;
            bridge.ports.push(port.name.clone());
            bridge.place = Place::Request;
        }
        self.ports.get_or_insert_default().push(PortSetting {
            name: port.name,
            uri: port.uri,
            rx_queues: port.rx_queues,
            tx_queues: port.tx_queues,
            rx_cpus: port.rx_cpus,
            bridging: port.bridging,
            place: Place::Request,
        });
        Ok(())
    }

    fn del_port(&mut self, name: &str) -> Result<(), SwitchError> {
        let ports = self.ports.get_or_insert_default();
        let before = ports.len();
        ports.retain(|port| port.name != name);
        if ports.len() == before {
            return Err(wrong("port", format!("there is no port '{name}'")));
        }
        self.cross_connects
            .get_or_insert_default()
            .retain(|pair| !pair.ports.iter().any(|port| port == name));
        for bridge in self.bridges.get_or_insert_default() {
            bridge.ports.retain(|port| port != name);
        }
        self.statics
            .get_or_insert_default()
            .retain(|one| one.value.port != name);
        let interfaces = self.interfaces.get_or_insert_default();
        let gone: Vec<String> = interfaces
            .extract_if(.., |interface| {
                interface.value.port.as_deref() == Some(name)
            })
            .map(|interface| interface.value.name)
            .collect();
        self.forget_filters(&gone);
        self.forget_rules(|rule| rule.port.as_deref() == Some(name));
        Ok(())
    }

    fn add_rule(&mut self, rule: RuleSetting, before: Option<String>) -> Result<(), SwitchError> {
        let rules = self.rules.get_or_insert_default();
        let place = match before {
            None => rules.len(),
            Some(name) => rules
                .iter()
                .position(|one| one.value.name == name)
                .ok_or_else(|| absent("rule", &name))?,
        };
        rules.insert(place, asked(rule));
        Ok(())
    }

    /// Rules about ports and bridges go with them.
    fn forget_rules(&mut self, is_about: impl Fn(&RuleSetting) -> bool) {
        if let Some(rules) = &mut self.rules {
            rules.retain(|rule| !is_about(&rule.value));
        }
    }

    /// Rules about interfaces go with them.
    fn forget_filters(&mut self, interfaces: &[String]) {
        if let Some(filters) = &mut self.kernel_filters {
            filters.retain(|filter| {
                let interface = filter.value.interface.as_ref();
                interface.is_none_or(|interface| !interfaces.contains(interface))
            });
        }
    }
}
