// SPDX-License-Identifier: Apache-2.0
//! The device under test (`[device]`), and the changes to it in a case.

mod settings;

use std::collections::BTreeSet;

use quietwire_lab::topology::{
    ElementPlace, Encapsulation, Forwarding, Graph, Parameters, Role, TopologyError,
};

use super::study_file::{Case, Neighbours, StudyFile, Traffic};
use super::{Link, Mode, Switch};

pub use settings::Device;

impl Device {
    /// Returns true for the standalone quietwire switch, of which `[device]` decides every setting.
    #[must_use]
    pub fn is_standalone_switch(&self) -> bool {
        let is_standalone = |graph: Graph| graph.is_standalone_switch();
        let is_plain = self.rule_count.is_none() && self.switch_config.is_none();
        self.cpus.is_empty() && is_plain && self.graph().is_ok_and(is_standalone)
    }

    /// Returns the encapsulation of the frames.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        self.encapsulation.unwrap_or_default()
    }

    /// Returns its elements and links.
    ///
    /// # Errors
    /// An invalid combination, or a device outside the lab.
    pub fn graph(&self) -> Result<Graph, TopologyError> {
        let Switch::Program(switch) = self.switch else {
            return Err(TopologyError::Wrong(
                "the lab does not start a device with switch = \"other\"".to_owned(),
            ));
        };
        let usual = Parameters::default();
        self.topology.0.graph(&Parameters {
            chains: self.chains,
            length: self.length,
            switch,
            vnf: self.vnf.unwrap_or(usual.vnf),
            vnfs: self.vnfs.clone().unwrap_or_default(),
            inside: self.place.unwrap_or(usual.inside),
            encapsulation: self.encapsulation(),
            destinations: self.destinations,
            forwarding: match self.mode {
                Mode::CrossConnect => Forwarding::CrossConnect,
                Mode::Bridge => Forwarding::Bridge,
            },
            link: self.link.and_then(Link::kind),
            ports: self.ports.clone(),
            rules: match self.rule_count {
                Some(count) => Some(generated_rules(count)),
                None => self.rules.clone(),
            },
            switch_config: self.switch_config.clone(),
            vnf_config: self.vnf_config.clone(),
            image: self.image.clone(),
        })
    }
}

/// Returns a file of this number of rules: UDP packets of a network of 256 addresses to a port each, which are never the tester's, and behind
/// them one rule that accepts every frame.
fn generated_rules(count: u32) -> String {
    let Some(others) = count.checked_sub(1) else {
        return "rule-default = \"accept\"\n".to_owned();
    };
    let rule = |number: u32| {
        let [_, _, high, low] = number.to_be_bytes();
        let port = (number % 60_000).saturating_add(1000);
        format!(
            "[[rule]]\nname = \"r{number}\"\naction = \"drop\"\nprotocol = \"udp\"\nsource = \"10.{high}.{low}.0/24\"\ndestination-port = \"{port}\"\n"
        )
    };
    let rules: String = (0..others).map(rule).collect();
    format!("rule-default = \"drop\"\n{rules}[[rule]]\nname = \"others\"\naction = \"accept\"\n")
}

impl Device {
    /// Returns a description: the switch, its place, the links, and the network functions.
    #[must_use]
    pub fn described(&self) -> String {
        let mut text = format!("{} in {}", self.switch, self.topology.0.name);
        let Ok(graph) = self.graph() else {
            return text;
        };
        text += &format!(" over {}", links_of(&graph));
        let elements = graph.elements.iter();
        let vnfs: Vec<_> = elements.filter(|one| one.role == Role::Vnf).collect();
        if let Some(first) = vnfs.first() {
            let places = match first.place {
                ElementPlace::Host => "on the host",
                ElementPlace::Container => "in containers",
                ElementPlace::Guest => "in guests",
            };
            let functions = match vnfs.len() {
                1 => "network function".to_owned(),
                count => format!("{count} network functions"),
            };
            text += &format!(", {functions} {} {places}", programs_of(&graph));
        }
        text
    }
}

impl Device {
    /// Returns the kinds of its links: `memif`, `memif and vhost-user`. None for a device that the lab does not start.
    #[must_use]
    pub fn links(&self) -> Option<String> {
        self.graph().ok().map(|graph| links_of(&graph))
    }
}

/// Returns the programs of the network functions of the first chain: one if they are the same, otherwise all in order.
fn programs_of(graph: &Graph) -> String {
    let path = graph.path(0).into_iter();
    let vnfs = path.filter_map(|index| graph.elements.get(index));
    let mut programs: Vec<&str> = vnfs
        .filter(|element| element.role == Role::Vnf)
        .map(|element| element.program.name())
        .collect();
    if programs
        .iter()
        .all(|program| Some(program) == programs.first())
    {
        programs.truncate(1);
    }
    programs.join(", ")
}

fn links_of(graph: &Graph) -> String {
    let kinds: BTreeSet<&str> = graph.links.iter().map(|link| link.kind.name()).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    kinds.join(" and ")
}

impl Case {
    /// Returns true if the case changes `[device]`.
    #[must_use]
    pub fn has_own_device(&self) -> bool {
        self.switch.is_some()
            || self.topology.is_some()
            || self.link.is_some()
            || self.mode.is_some()
            || self.vnf.is_some()
            || self.vnfs.is_some()
            || self.chains.is_some()
            || self.length.is_some()
            || self.encapsulation.is_some()
            || self.place.is_some()
            || self.accelerator.is_some()
            || self.rules.is_some()
            || self.rule_count.is_some()
            || self.switch_config.is_some()
            || self.vnf_config.is_some()
            || self.image.is_some()
            || self.ports.is_some()
    }
}

impl StudyFile {
    /// Returns the device of a case.
    #[must_use]
    pub fn device_of(&self, case: &Case) -> Device {
        let device = self.device.clone();
        Device {
            switch: case.switch.map_or(device.switch, Switch::Program),
            topology: case.topology.unwrap_or(device.topology),
            link: case.link.or(device.link),
            mode: case.mode.unwrap_or(device.mode),
            vnf: case.vnf.or(device.vnf),
            // One program of a case replaces a list of the device.
            vnfs: case
                .vnfs
                .clone()
                .or(device.vnfs.filter(|_| case.vnf.is_none())),
            chains: case.chains.or(device.chains),
            length: case.length.or(device.length),
            encapsulation: case.encapsulation.or(device.encapsulation),
            place: case.place.or(device.place),
            accelerator: case.accelerator.or(device.accelerator),
            rules: case.rules.clone().or(device.rules),
            // Own rules of a case replace generated ones of the device.
            rule_count: case
                .rule_count
                .or(device.rule_count.filter(|_| case.rules.is_none())),
            switch_config: case.switch_config.clone().or(device.switch_config),
            vnf_config: case.vnf_config.clone().or(device.vnf_config),
            image: case.image.clone().or(device.image),
            ports: case.ports.clone().unwrap_or(device.ports),
            destinations: self.traffic_of(case).ip_destinations,
            ..device
        }
    }

    /// Returns the traffic of a case.
    #[must_use]
    pub fn traffic_of(&self, case: &Case) -> Traffic {
        let traffic = self.traffic.clone();
        Traffic {
            flows: case.flows.unwrap_or(traffic.flows),
            mac_addresses: case.mac_addresses.unwrap_or(traffic.mac_addresses),
            ip_destinations: case.ip_destinations.unwrap_or(traffic.ip_destinations),
            ..traffic
        }
    }

    /// Returns the neighbours of a case, if it has any.
    #[must_use]
    pub fn neighbours_of(&self, case: &Case) -> Neighbours {
        match &case.kinds {
            None => self.neighbours.clone(),
            Some(kinds) => Neighbours {
                stressors: Vec::new(),
                kinds: kinds.clone(),
                ..self.neighbours.clone()
            },
        }
    }

    /// Returns true if the devices have the lab's settings for topologies instead of those of `[device]` for the standalone quietwire
    /// switch. One other device is enough, so that all compared devices start the same way.
    #[must_use]
    pub fn runs_in_topologies(&self) -> bool {
        let has_lab_settings = |case: &Case| !self.device_of(case).is_standalone_switch();
        self.device.switch != Switch::Other && self.cases.iter().any(has_lab_settings)
    }

    /// Returns the case whose 100 % of the load applies to this case: the first with the same device and traffic. None if
    /// all cases have the same.
    #[must_use]
    pub fn scale_of(&self, case: &Case) -> Option<&Case> {
        let setup = |case: &Case| (self.device_of(case), self.traffic_of(case));
        let own = setup(case);
        let is_alike = |other: &&Case| setup(other) == own;
        if self.cases.iter().all(|other| is_alike(&other)) {
            return None;
        }
        self.cases.iter().find(is_alike)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use quietwire_switch::config::rules::RuleFile;

    use super::generated_rules;

    #[test]
    fn generated_rules_are_distinct_and_end_with_one_for_every_frame() {
        for count in [0, 1, 2, 10, 70_000] {
            let text = generated_rules(count);
            let file = RuleFile::parse(Path::new("rules"), &text).unwrap();
            assert_eq!(file.rules.len(), count as usize);
            let matches: HashSet<String> = file
                .rules
                .iter()
                .map(|rule| format!("{:?}", rule.value.packet))
                .collect();
            assert_eq!(matches.len(), count as usize);
            if let Some(last) = file.rules.last() {
                assert!(last.value.packet.words().is_empty());
            }
        }
    }
}
