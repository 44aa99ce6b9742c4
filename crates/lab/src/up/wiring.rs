// SPDX-License-Identifier: Apache-2.0
//! Connections between the ports of a topology: sockets, interfaces, and the side that creates each.

use std::path::{Path, PathBuf};

use super::options::UpOptions;
use super::state::TesterSide;
use crate::element::{Attachment, NEIGHBOUR_PORTS, Plan, PortPlan};
use crate::programs::FIREWALL_RULES;
use crate::topology::{
    Assignment, Element, ElementPlace, End, Forwarding, Graph, Link, LinkKind, Program, Role,
};

/// All ports of a topology.
#[derive(Debug)]
pub(super) struct Wiring {
    directory: PathBuf,
    tag: String,
    /// Namespace of each element, if it has one.
    pub(super) namespaces: Vec<Option<String>>,
    /// Ports of each element, in order.
    ports: Vec<Vec<PortPlan>>,
}

impl Wiring {
    pub(super) fn of(graph: &Graph, directory: &Path, tag: &str) -> Self {
        let elements = graph.elements.iter().enumerate();
        let namespaces = elements
            .map(|(index, element)| {
                needs_namespace(graph, index, element).then(|| namespace_name(tag, element))
            })
            .collect();
        let ports = (0..graph.elements.len())
            .map(|element| {
                (0..graph.port_count(element))
                    .filter_map(|port| {
                        let end = End { element, port };
                        let link = graph.link_at(end)?;
                        let attachment = attachment(graph, link, end, (directory, tag));
                        Some(PortPlan { attachment })
                    })
                    .collect()
            })
            .collect();
        Self {
            directory: directory.to_owned(),
            tag: tag.to_owned(),
            namespaces,
            ports,
        }
    }

    /// Returns the namespace of an element, if it has one.
    pub(super) fn namespace(&self, element: usize) -> Option<String> {
        self.namespaces.get(element).cloned().flatten()
    }

    fn ports_of(&self, element: usize) -> &[PortPlan] {
        self.ports.get(element).map_or(&[][..], Vec::as_slice)
    }

    /// Returns the plan of an element.
    pub(super) fn plan(&self, options: &UpOptions, index: usize) -> Plan {
        self.plan_of((&options.graph, &options.cpus), index)
    }

    /// As [`Self::plan`], for a graph that need not be started.
    pub(super) fn plan_of(&self, (graph, cpus): (&Graph, &Assignment), index: usize) -> Plan {
        let element = graph.element(index);
        Plan {
            name: element.name.clone(),
            index: u32::try_from(index).unwrap_or(u32::MAX),
            tag: format!("{}-{}", self.tag, element.name),
            place: element.place,
            program: element.program,
            directory: self.directory.join(&element.name),
            ports: self.ports_of(index).to_vec(),
            joins: graph
                .joins
                .iter()
                .filter(|join| join.element == index)
                .map(|join| join.ports)
                .collect(),
            monitors: graph.monitors(index),
            neighbour_ports: self.neighbour_ports(element),
            forwarding: match element.role {
                Role::Relay => Forwarding::CrossConnect,
                _ => graph.forwarding,
            },
            encapsulation: graph.encapsulation,
            destinations: graph.destinations,
            cpus: cpus.of(index),
            rest: cpus.rest.clone(),
            is_shared: cpus.is_shared(&element.name),
            namespace: self.namespace(index),
            router: graph.router_place(index),
            rules: rules_of(element),
            config: element.config.clone(),
            image: element.image.clone(),
            settings: element.settings.clone(),
        }
    }

    /// Returns the shared-memory ports for neighbours: none, unless the element requests some.
    fn neighbour_ports(&self, element: &Element) -> Vec<PortPlan> {
        let settings = element.settings.as_ref();
        if settings.is_none_or(|settings| !settings.has_neighbour_ports) {
            return Vec::new();
        }
        let port = |name: &str| PortPlan {
            attachment: Attachment::Memif {
                socket: self.directory.join(format!("{name}.sock")),
                is_server: true,
            },
        };
        NEIGHBOUR_PORTS.map(port).to_vec()
    }

    /// Returns a switch that stands in for the tester at guests' ports; `None` if guests have no such ports.
    pub(super) fn stand_in(&self, options: &UpOptions) -> Option<Plan> {
        let UpOptions { graph, cpus, .. } = options;
        let is_guest = |end: &End| graph.element(end.element).place == ElementPlace::Guest;
        let of_guest = |port: usize| {
            let (_, link) = graph.link_at(End { element: 0, port })?;
            let end = link.ends.iter().find(|end| is_guest(end));
            end.filter(|_| link.pci.is_none())
        };
        let meets =
            |(port, plan): (usize, &PortPlan)| Some((of_guest(port)?.element, plan.clone()));
        let ports = self.ports_of(0).iter().enumerate();
        let met: Vec<(usize, PortPlan)> = ports.filter_map(meets).collect();
        let guest = met.first()?.0;
        Some(Plan {
            name: "the tester's stand-in".to_owned(),
            tag: format!("{}-stand-in", self.tag),
            place: ElementPlace::Host,
            program: Program::Quietwire,
            directory: self.directory.join("stand-in"),
            ports: met.into_iter().map(|(_, plan)| plan).collect(),
            joins: Vec::new(),
            monitors: Vec::new(),
            cpus: cpus.of(guest),
            is_shared: true,
            namespace: None,
            ..self.plan(options, 0)
        })
    }

    /// Returns the location of the tester's ports.
    pub(super) fn tester(&self, graph: &Graph) -> TesterSide {
        let is_outside = graph.links.iter().any(|link| link.pci.is_some());
        let chains = if is_outside { 0 } else { graph.chains.len() };
        let uri = |port: usize| Some(self.ports_of(0).get(port)?.attachment.uri());
        let pair = |chain: usize| {
            let first = chain.checked_mul(2)?;
            Some([uri(first)?, uri(first.checked_add(1)?)?])
        };
        let monitor = graph.chains.len().checked_mul(2).and_then(uri);
        TesterSide {
            namespace: self.namespace(0),
            chains: (0..chains).filter_map(pair).collect(),
            monitor: monitor.filter(|_| !is_outside),
        }
    }
}

/// Returns the rules of a firewall; `None` if its configuration has them.
fn rules_of(element: &Element) -> Option<String> {
    let is_meant = element.program == Program::Firewall && element.config.is_none();
    let usual = || FIREWALL_RULES.to_owned();
    is_meant.then(|| element.rules.clone().unwrap_or_else(usual))
}

/// Returns the start order of elements: those that create sockets before those that connect to them.
pub(super) fn rank(role: Role) -> u8 {
    match role {
        Role::Switch | Role::Relay => 0,
        Role::Vnf => 1,
        Role::Tester => 2,
    }
}

fn namespace_name(tag: &str, element: &Element) -> String {
    format!("{tag}-{}", element.name)
}

/// Returns true if an element has a network namespace: containers do, and so do elements whose kernel interfaces must be hidden from
/// others or that create interfaces.
fn needs_namespace(graph: &Graph, index: usize, element: &Element) -> bool {
    let has_veth = graph.links.iter().any(|link| {
        link.kind == LinkKind::Veth && link.ends.iter().any(|end| end.element == index)
    });
    element.place == ElementPlace::Container
        || has_veth
        || element.is_kernels()
        || matches!(element.program, Program::OvsDpdk | Program::OvsDpdkRouter)
}

fn attachment(
    graph: &Graph,
    (index, link): (usize, &Link),
    end: End,
    (directory, tag): (&Path, &str),
) -> Attachment {
    let [one, two] = link.ends;
    let other = if one == end { two } else { one };
    let [own, peer] = [end, other].map(|end| graph.element(end.element));
    let order = |end: End| {
        let role = graph.element(end.element).role;
        (rank(role), end.element, end.port)
    };
    let is_server = order(end) < order(other);
    let socket = directory.join(format!("l{index}.sock"));
    match link.kind {
        LinkKind::Memif => Attachment::Memif { socket, is_server },
        LinkKind::VhostUser if is_front(own, peer, is_server) => {
            Attachment::VirtioUser { socket, is_server }
        }
        LinkKind::VhostUser => Attachment::Vhost { socket, is_server },
        LinkKind::Tap if !own.is_kernels() => Attachment::Tap {
            namespace: namespace_name(tag, peer),
            name: format!("p{}", other.port),
        },
        LinkKind::Veth | LinkKind::Tap => Attachment::Interface {
            name: format!("p{}", end.port),
        },
        LinkKind::Pci => Attachment::Pci {
            address: match own.role {
                Role::Tester => String::new(),
                _ => link.pci.clone().unwrap_or_default(),
            },
        },
    }
}

/// Returns true if this end is the network card and not its other side: a guest's end always is, otherwise the later element's.
fn is_front(own: &Element, peer: &Element, is_server: bool) -> bool {
    match (own.place, peer.place) {
        (ElementPlace::Guest, _) => true,
        (_, ElementPlace::Guest) => false,
        _ => !is_server,
    }
}
