// SPDX-License-Identifier: Apache-2.0
//! Configuration of steering: rules about which frames of an interface go to a port of the switch and which to the kernel.

mod change;

use std::collections::BTreeSet;

use ipnet::IpNet;
use quietwire_dpdk::{CardTarget, PortUri, STEER_RULES_MAX, SteerMatch, SteerRule, SteerTarget};
use quietwire_packet::{MacAddress, VlanId};
use quietwire_tables::filter::{PacketMatch, Ports, STEERING_MAX};
use serde::{Deserialize, Serialize};

use super::location::{Located, Location};
use crate::error::SwitchError;

// Forwarding threads apply as many rules as devices.
const _: () = assert!(STEER_RULES_MAX <= STEERING_MAX);

/// Destination of steered frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SteerTo {
    /// The port of the switch.
    Switch,
    /// The network stack of the kernel.
    Kernel,
    /// A virtual function of the card.
    VirtualFunction,
}

impl SteerTo {
    /// Returns its name in files, options and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Kernel => "kernel",
            Self::VirtualFunction => "virtual-function",
        }
    }
}

/// A steering rule. Fields that are not set match every frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SteerSetting {
    /// Its name.
    pub name: String,
    /// Port on the interface whose frames are steered.
    pub port: String,
    /// Destination of matching frames.
    pub to: SteerTo,
    /// Port on a tap through which the kernel gets its frames of a port that does not steer, and sends others through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_port: Option<String>,
    /// Receive queue of the interface to which the card delivers the frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
    /// Number of the virtual function to which the card delivers the frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_function: Option<u16>,
    /// Source MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_mac: Option<MacAddress>,
    /// VLAN of the outermost tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// Packets to match.
    #[serde(flatten)]
    pub packet: PacketMatch,
}

impl SteerSetting {
    /// Returns the rule for the port.
    #[must_use]
    pub fn rule(&self) -> SteerRule {
        SteerRule {
            frames: SteerMatch {
                source_mac: self.source_mac.map(|mac| mac.0),
                destination_mac: self.destination_mac.map(|mac| mac.0),
                vlan: self.vlan.map(VlanId::get),
                ..frames_of(&self.packet)
            },
            target: match self.to {
                SteerTo::Switch => SteerTarget::Switch,
                // The kernel gets the frames that the card does not deliver to the function.
                SteerTo::Kernel | SteerTo::VirtualFunction => SteerTarget::Kernel,
            },
            card: self.card(),
        }
    }

    /// Returns where the card delivers the frames, if the rule selects it.
    pub(crate) const fn card(&self) -> Option<CardTarget> {
        match (self.queue, self.virtual_function) {
            (Some(queue), _) => Some(CardTarget::Queue(queue)),
            (None, Some(number)) => Some(CardTarget::Function(number)),
            (None, None) => None,
        }
    }
}

/// Returns the frames of a match in the form of a port.
pub(crate) fn frames_of(packet: &PacketMatch) -> SteerMatch {
    let prefix = |prefix: Option<IpNet>| prefix.map(|one| (one.addr(), one.prefix_len()));
    let range = |ports: Option<Ports>| ports.map(|ports| (ports.first, ports.last));
    SteerMatch {
        ethertype: packet.ethertype.map(|ethertype| ethertype.0),
        protocol: packet.protocol.map(|protocol| protocol.0),
        source: prefix(packet.source),
        destination: prefix(packet.destination),
        source_ports: range(packet.source_port),
        destination_ports: range(packet.destination_port),
        ..SteerMatch::default()
    }
}

/// Largest number of a virtual function (linux/ethtool.h, ETHTOOL_RX_FLOW_SPEC_RING_VF: 8 bits, where 0 is the interface itself).
const FUNCTION_MAX: u16 = 254;

/// Checks the queue or the virtual function that a rule selects. `rules` are those before it.
fn check_card(rule: &SteerSetting, rules: &[SteerSetting], uri: &PortUri) -> Result<(), String> {
    let port = &rule.port;
    let is_to_function = rule.to == SteerTo::VirtualFunction;
    if is_to_function != rule.virtual_function.is_some() {
        return Err(
            "to = \"virtual-function\" requires virtual-function = N, and the other way round"
                .to_owned(),
        );
    }
    if is_to_function && rule.queue.is_some() {
        return Err("a virtual function selects its queues itself (remove queue)".to_owned());
    }
    if let Some(number) = rule
        .virtual_function
        .filter(|number| *number > FUNCTION_MAX)
    {
        return Err(format!(
            "no such virtual function: {number} (range: 0 to {FUNCTION_MAX})"
        ));
    }
    if rule.card().is_none() {
        return Ok(());
    }
    let (queues, first_queue) = match uri {
        PortUri::AfXdp {
            queues,
            first_queue,
            ..
        } => (queues, first_queue),
        // The port knows its queues, and the card has no order of rules.
        PortUri::Pci { .. } => return Ok(()),
        _ => {
            return Err(format!(
                "port '{port}' ({uri}) cannot select queues or virtual functions of a card (use a pci or af-xdp port, or remove queue and virtual-function)"
            ));
        }
    };
    let own = *first_queue..first_queue.saturating_add(*queues);
    if let (SteerTo::Switch, Some(queue)) = (rule.to, rule.queue)
        && !own.contains(&queue)
    {
        return Err(format!(
            "queue {queue} is none of port '{port}', which has queues {} to {} of its interface",
            own.start,
            own.end.saturating_sub(1)
        ));
    }
    let is_behind = |other: &&SteerSetting| other.port == *port && other.card().is_none();
    match rules.iter().find(is_behind) {
        Some(other) if rule.virtual_function.is_some() => Err(format!(
            "the card would apply it before rule '{}', which is not on the card (move it before that rule)",
            other.name
        )),
        _ => Ok(()),
    }
}

/// Checks the port of a rule and its tap for the kernel.
fn check_ports<'plan>(
    rule: &SteerSetting,
    rules: &[SteerSetting],
    uri_of: &impl Fn(&str) -> Option<&'plan PortUri>,
) -> Result<(), String> {
    let port = &rule.port;
    let uri = uri_of(port).ok_or_else(|| format!("no such port: '{port}'"))?;
    let kernel_port = match (uri, rule.kernel_port.as_deref()) {
        (PortUri::AfXdp { .. }, None) => return Ok(()),
        (PortUri::AfXdp { .. }, Some(_)) => {
            return Err(format!(
                "port '{port}' leaves frames to the kernel by itself (remove kernel-port)"
            ));
        }
        (PortUri::Pci { .. }, None) if rule.card().is_some() && rule.to != SteerTo::Kernel => {
            let mut others = rules.iter().filter(|other| other.port == *port);
            return match others.find(|other| other.kernel_port.is_some()) {
                Some(other) => Err(format!(
                    "rule '{}' of port '{port}' has a kernel-port, and this one has none (use the same one)",
                    other.name
                )),
                None => Ok(()),
            };
        }
        (_, None) => {
            return Err(format!(
                "port '{port}' ({uri}) receives all frames of its interface (set kernel-port to a tap port, or use an af-xdp port)"
            ));
        }
        (_, Some(name)) => name,
    };
    match uri_of(kernel_port) {
        Some(PortUri::Tap { .. }) if kernel_port != port => {}
        Some(_) => {
            return Err(format!(
                "kernel-port '{kernel_port}' is not another port on a tap (use a port with URI tap:IFNAME)"
            ));
        }
        None => return Err(format!("no such port: '{kernel_port}'")),
    }
    for other in rules {
        let has_same_port = other.port == *port;
        let has_same_tap = other.kernel_port.as_deref() == Some(kernel_port);
        if has_same_port != has_same_tap {
            return Err(format!(
                "rule '{}' has port '{}' and another kernel-port, or the same one for another port (use one kernel-port for each port)",
                other.name, other.port
            ));
        }
    }
    let steered = rules.iter().any(|other| other.port == kernel_port);
    let is_tap_of_another = |other: &SteerSetting| other.kernel_port.as_ref() == Some(port);
    if steered || rules.iter().any(is_tap_of_another) {
        return Err(format!(
            "port '{port}' or '{kernel_port}' is both a steered port and a kernel-port (use another tap)"
        ));
    }
    Ok(())
}

/// Returns the taps for the kernel, each with its port and the location of its first rule.
pub(super) fn kernel_ports(
    settings: &[Located<SteerSetting>],
) -> impl Iterator<Item = (&str, &str, &Location)> {
    let mut known = BTreeSet::new();
    settings
        .iter()
        .filter_map(move |Located { value, location }| {
            let kernel_port = value.kernel_port.as_deref()?;
            let is_new = known.insert(kernel_port);
            is_new.then_some((kernel_port, value.port.as_str(), location))
        })
}

/// Plans steering rules. `uri_of` returns the URI of a port.
///
/// # Errors
/// [`SwitchError::Config`] for a rule that no frame can match, a port that does not steer, or too many rules.
pub(super) fn plan<'plan>(
    settings: &[Located<SteerSetting>],
    uri_of: impl Fn(&str) -> Option<&'plan PortUri>,
) -> Result<Vec<SteerSetting>, SwitchError> {
    let mut rules: Vec<SteerSetting> = Vec::new();
    for Located { value, location } in settings {
        let SteerSetting { name, port, .. } = value;
        if name.is_empty() {
            return Err(location.wrong("the steering rule has no name"));
        }
        let wrong = |what: String| location.wrong(format!("steering rule '{name}': {what}"));
        if rules.iter().any(|rule| rule.name == *name) {
            return Err(location.wrong(format!(
                "duplicate steering rule '{name}' (use unique names)"
            )));
        }
        check_ports(value, &rules, &uri_of).map_err(wrong)?;
        if let Some(uri) = uri_of(port) {
            check_card(value, &rules, uri).map_err(wrong)?;
        }
        if rules.iter().filter(|rule| rule.port == *port).count() == STEER_RULES_MAX {
            return Err(wrong(format!(
                "too many steering rules of port '{port}' (maximum: {STEER_RULES_MAX})"
            )));
        }
        value.packet.check().map_err(wrong)?;
        rules.push(value.clone());
    }
    Ok(rules)
}
