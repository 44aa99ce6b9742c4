// SPDX-License-Identifier: Apache-2.0
//! Builds a graph from a catalogue name and parameters.

use super::TopologyError;
use super::catalog::{CatalogEntry, Chains, Length, Shape};
use super::graph::{Element, Fault, Graph, OwnImage, Path, SWITCH, TESTER};
use super::kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
use super::program::Program;
use super::relay::relayed;

/// Maximum number of chains: the tester has two ports per chain, and space for 64.
pub const CHAINS_MAX: u32 = 32;
/// Maximum number of VNFs in a chain.
pub const LENGTH_MAX: u32 = 32;
/// Default number of chains and of VNFs where the topology takes any number.
const USUAL: u32 = 2;

/// Parameters of a named topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Number of parallel chains.
    pub chains: Option<u32>,
    /// Number of VNFs in a chain.
    pub length: Option<u32>,
    /// Program of the switch.
    pub switch: Program,
    /// Program of the VNF.
    pub vnf: Program,
    /// Programs of the VNFs of each chain, in order, instead of `vnf`; empty for `vnf`.
    pub vnfs: Vec<Program>,
    /// Place of the elements that the name puts into a guest.
    pub inside: ElementPlace,
    /// Encapsulation of the frames.
    pub encapsulation: Encapsulation,
    /// IP destinations of each of the tester's ports, to which routers get routes.
    pub destinations: u32,
    /// Forwarding mode of the switch.
    pub forwarding: Forwarding,
    /// Kind of the links; `None` selects the fastest that both ends support.
    pub link: Option<LinkKind>,
    /// PCI addresses of the device's network cards, two per chain; empty for links within the machine.
    pub ports: Vec<String>,
    /// Rules of firewalls, as a file's text; `None` for the default ones.
    pub rules: Option<String>,
    /// Configuration of the switch beyond its ports and addresses, as a file's text; `None` for the default one.
    pub switch_config: Option<String>,
    /// Configuration of each VNF, as that of the switch. It requires one program for all VNFs.
    pub vnf_config: Option<String>,
    /// Image of the VNFs' guests; `None` for the image that the lab builds.
    pub image: Option<OwnImage>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            chains: None,
            length: None,
            switch: Program::Quietwire,
            vnf: Program::Quietwire,
            vnfs: Vec::new(),
            inside: ElementPlace::Guest,
            encapsulation: Encapsulation::default(),
            destinations: 1,
            forwarding: Forwarding::default(),
            link: None,
            ports: Vec::new(),
            rules: None,
            switch_config: None,
            vnf_config: None,
            image: None,
        }
    }
}

impl Parameters {
    /// Returns an element with the parameters of its role.
    fn of(&self, element: Element) -> Element {
        let config = match element.role {
            Role::Switch => self.switch_config.clone(),
            Role::Vnf => self.vnf_config.clone(),
            Role::Tester | Role::Relay => None,
        };
        let is_firewall = element.program == Program::Firewall;
        let is_vnf_in_guest = element.role == Role::Vnf && element.place == ElementPlace::Guest;
        Element {
            rules: self.rules.clone().filter(|_| is_firewall),
            config,
            image: self.image.clone().filter(|_| is_vnf_in_guest),
            ..element
        }
    }

    /// Refuses parameters that concern no element.
    fn check(&self, graph: &Graph) -> Result<(), TopologyError> {
        let has = |is: fn(&Element) -> bool| graph.elements.iter().any(is);
        if self.rules.is_some() && !has(|element| element.rules.is_some()) {
            return Err(TopologyError::Wrong(
                "--rules: the topology has no firewall (choose one with --vnf firewall)".to_owned(),
            ));
        }
        let has_role = |role: Role| graph.elements.iter().any(|element| element.role == role);
        if self.switch_config.is_some() && !has_role(Role::Switch) {
            return Err(TopologyError::Wrong(
                "--switch-config: there is no switch; use --vnf-config for the VNFs".to_owned(),
            ));
        }
        if self.vnf_config.is_some() && !has_role(Role::Vnf) {
            return Err(TopologyError::Wrong(
                "--vnf-config: there is no VNF; use --switch-config for the switch".to_owned(),
            ));
        }
        if self.vnf_config.is_some() && !self.vnfs.is_empty() {
            return Err(TopologyError::Wrong(
                "--vnf-config: VNFs of several programs have no common configuration; write a topology file"
                    .to_owned(),
            ));
        }
        if self.image.is_some() && !has(|element| element.image.is_some()) {
            return Err(TopologyError::Wrong(
                "--image: the topology has no VNF in a guest (choose another topology)".to_owned(),
            ));
        }
        Ok(())
    }
}

impl CatalogEntry {
    /// Returns the topology's graph.
    ///
    /// # Errors
    /// Parameters that are invalid for it, or that conflict.
    pub fn graph(&self, parameters: &Parameters) -> Result<Graph, TopologyError> {
        let chains = self.chains(parameters)?;
        let length = self.length(parameters)?;
        check_cards(&parameters.ports, chains)?;
        let place = |printed: ElementPlace| match printed {
            ElementPlace::Guest => parameters.inside,
            other => other,
        };
        let mut graph = Graph {
            name: self.name.to_owned(),
            about: self.about.to_owned(),
            encapsulation: parameters.encapsulation,
            destinations: parameters.destinations,
            forwarding: parameters.forwarding,
            elements: vec![tester()],
            links: Vec::new(),
            joins: Vec::new(),
            chains: Vec::new(),
        };
        let mut add = |name: String, role: Role, program: Program, printed: ElementPlace| {
            let element = Element::new(name, role, place(printed), program);
            let index = graph.elements.len();
            graph.elements.push(parameters.of(element));
            index
        };
        let has_switch = self.shape != Shape::Vnf;
        let switch = has_switch.then(|| {
            add(
                SWITCH.to_owned(),
                Role::Switch,
                parameters.switch,
                self.switch,
            )
        });
        let paths: Vec<Path> = (0..chains)
            .map(|chain| {
                let vnfs: Vec<usize> = (0..length)
                    .map(|position| {
                        let name = vnf_name(chain, position, chains, length);
                        let program = parameters.vnfs.get(position as usize);
                        let program = program.copied().unwrap_or(parameters.vnf);
                        add(name, Role::Vnf, program, self.vnf)
                    })
                    .collect();
                Path {
                    elements: self.elements(switch, &vnfs),
                    kind: parameters.link,
                    pci: cards(&parameters.ports, chain),
                }
            })
            .collect();
        parameters.check(&graph)?;
        let graph =
            build_graph(graph, &paths).map_err(|(_, message)| TopologyError::Wrong(message))?;
        graph
            .check()
            .map_err(|(_, message)| TopologyError::Wrong(message))?;
        Ok(graph)
    }

    fn chains(&self, parameters: &Parameters) -> Result<u32, TopologyError> {
        match (self.chains, parameters.chains) {
            (Chains::One, None | Some(1)) => Ok(1),
            (Chains::One, Some(asked)) => Err(TopologyError::Wrong(format!(
                "{} has one chain, and --chains is {asked}; names with an n in them take several, as vNet4-nVNF",
                self.name
            ))),
            (Chains::Many, asked) => within("--chains", asked.unwrap_or(USUAL), CHAINS_MAX),
        }
    }

    /// Returns the number of VNFs in a chain.
    fn length(&self, parameters: &Parameters) -> Result<u32, TopologyError> {
        let listed = u32::try_from(parameters.vnfs.len()).unwrap_or(u32::MAX);
        let asked = match (parameters.length, listed) {
            (Some(asked), 1..) if asked != listed => {
                return Err(TopologyError::Wrong(format!(
                    "{listed} programs of VNFs are listed, and --length is {asked}; list one for each VNF of a chain"
                )));
            }
            (None, 1..) => Some(listed),
            (asked, _) => asked,
        };
        let what = match listed {
            0 => "--length",
            _ => "the number of listed programs",
        };
        let fixed = match self.shape {
            Shape::Switch => 0,
            Shape::Vnf | Shape::SwitchedVnfs => 1,
            Shape::VnfSwitchVnf => 2,
        };
        match (self.length, asked) {
            (Length::Any, asked) => within(what, asked.unwrap_or(USUAL), LENGTH_MAX),
            (Length::Fixed, Some(asked)) if asked != fixed => Err(TopologyError::Wrong(format!(
                "{} has {fixed} VNFs in a chain, and {what} is {asked}; names that end with ch take any number, as vNet6-1VNFch",
                self.name
            ))),
            (Length::Fixed, _) => Ok(fixed),
        }
    }

    fn elements(&self, switch: Option<usize>, vnfs: &[usize]) -> Vec<usize> {
        let tester = 0;
        let mut path = vec![tester];
        match self.shape {
            Shape::Vnf => path.extend(vnfs),
            Shape::Switch => path.extend(switch),
            Shape::VnfSwitchVnf => {
                path.extend(vnfs.first());
                path.extend(switch);
                path.extend(vnfs.last());
            }
            Shape::SwitchedVnfs => {
                path.extend(switch);
                for vnf in vnfs {
                    path.push(*vnf);
                    path.extend(switch);
                }
            }
        }
        path.push(tester);
        path
    }
}

/// Builds a graph with ports, links and joins along paths, and with a relay if two guests follow each other.
pub(super) fn build_graph(mut graph: Graph, paths: &[Path]) -> Result<Graph, Fault> {
    let paths = relayed(&mut graph.elements, paths);
    graph.add_paths(&paths)
}

/// Returns the tester, which every topology has.
pub(super) fn tester() -> Element {
    Element::new(
        TESTER.to_owned(),
        Role::Tester,
        ElementPlace::Host,
        Program::Tester,
    )
}

fn vnf_name(chain: u32, position: u32, chains: u32, length: u32) -> String {
    let [chain, position] = [chain, position].map(|index| index.saturating_add(1));
    match (chains, length) {
        (1, 1) => "V".to_owned(),
        (1, _) => format!("V{position}"),
        (_, 1) => format!("V{chain}"),
        (_, _) => format!("V{chain}.{position}"),
    }
}

fn within(option: &str, asked: u32, most: u32) -> Result<u32, TopologyError> {
    if (1..=most).contains(&asked) {
        return Ok(asked);
    }
    Err(TopologyError::Wrong(format!(
        "{option} is {asked}; it can be 1 to {most}"
    )))
}

fn check_cards(cards: &[String], chains: u32) -> Result<(), TopologyError> {
    if cards.is_empty() {
        return Ok(());
    }
    let wanted = (chains as usize).saturating_mul(2);
    if cards.len() != wanted {
        return Err(TopologyError::Wrong(format!(
            "--ports names {} network cards, and {chains} chain(s) have {wanted} outer ports; name two for each chain",
            cards.len()
        )));
    }
    check_addresses(cards).map_err(|message| TopologyError::Wrong(format!("--ports: {message}")))
}

/// Refuses an invalid or repeated PCI address.
pub(super) fn check_addresses(cards: &[String]) -> Result<(), String> {
    for (index, card) in cards.iter().enumerate() {
        if !is_pci_address(card) {
            return Err(format!("'{card}' is not a PCI address like 0000:17:00.0"));
        }
        if cards.iter().take(index).any(|other| other == card) {
            return Err(format!("{card} is named twice; each link has its own"));
        }
    }
    Ok(())
}

/// Returns true if a text is a PCI address, domain:bus:device.function as in /sys/bus/pci/devices.
pub(crate) fn is_pci_address(text: &str) -> bool {
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|octet| octet.is_ascii_hexdigit())
    };
    let mut parts = text.splitn(3, ':');
    let (Some(domain), Some(bus), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else {
        return false;
    };
    is_hex(domain, 4)
        && is_hex(bus, 2)
        && is_hex(device, 2)
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}

fn cards(cards: &[String], chain: u32) -> Option<[String; 2]> {
    let first = (chain as usize).saturating_mul(2);
    let pair: &[String; 2] = cards.get(first..)?.first_chunk()?;
    Some(pair.clone())
}
