// SPDX-License-Identifier: Apache-2.0
//! The graph: elements with ports, links between ports, chains of links from the tester to the tester.

use std::path::PathBuf;

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use super::kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
use super::program::Program;
use super::settings::SwitchSettings;

/// Name of the tester, in every topology.
pub const TESTER: &str = "T";
/// Name of the switch, in topologies that have names.
pub const SWITCH: &str = "S";

/// One element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Its name, alone in the topology.
    pub name: String,
    /// What it is there for.
    pub role: Role,
    /// Where it runs.
    pub place: ElementPlace,
    /// What it runs.
    pub program: Program,
    /// CPUs that were asked for; none where they are to be chosen.
    pub cpus: Option<CpuList>,
    /// Of a firewall: a file of rules, as text; none for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Of a guest: what it boots; none for the image that is built for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Of quietwire's switch: settings in place of those that the lab uses otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SwitchSettings>,
}

/// An image of the user's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnImage {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Which element, from 0.
    pub element: usize,
    /// Which of its ports, from 0.
    pub port: usize,
}

/// A link between two ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// What it is made of.
    pub kind: LinkKind,
    /// Its ends; the first is nearer to where its chain begins.
    pub ends: [End; 2],
    /// The chain that it is part of, from 0.
    pub chain: usize,
    /// The network card, where it is one: that of the end that is not the tester's.
    pub pci: Option<String>,
}

/// Two ports of an element between which it forwards, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Which element.
    pub element: usize,
    /// Its ports.
    pub ports: [usize; 2],
    /// The chain that it is part of.
    pub chain: usize,
}

/// A topology with everything decided but CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// What it isolates, for people.
    pub about: String,
    /// What the frames carry.
    pub encapsulation: Encapsulation,
    /// IP destinations of each of the tester's ports (docs/tester.md, `--destinations`): routers have a route to each.
    #[serde(default = "one")]
    pub destinations: u32,
    /// How switches forward.
    pub forwarding: Forwarding,
    /// The elements; the tester is the first.
    pub elements: Vec<Element>,
    /// The links.
    pub links: Vec<Link>,
    /// What elements forward between.
    pub joins: Vec<Join>,
    /// Links of each chain, in order.
    pub chains: Vec<Vec<usize>>,
}

fn one() -> u32 {
    1
}

/// A part that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An element, from 0.
    Element(usize),
    /// A chain, from 0.
    Chain(usize),
}

/// What a chain is to be.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Elements that it passes, the tester at both ends.
    pub(super) elements: Vec<usize>,
    /// What all its links are made of; none for what both ends do best.
    pub(super) kind: Option<LinkKind>,
    /// Network cards at its two ends; none for links within the machine.
    pub(super) pci: Option<[String; 2]>,
}

/// A fault of a graph and where it is.
pub(super) type Fault = (Part, String);

impl Graph {
    /// Lays ports, links and joins along paths. Each pass through an element takes two new ports of it.
    pub(super) fn lay(mut self, paths: &[Path]) -> Result<Self, Fault> {
        let mut ports = vec![0; self.elements.len()];
        for (chain, path) in paths.iter().enumerate() {
            let mut take = |element: usize| {
                let port = ports[element];
                ports[element] += 1;
                End { element, port }
            };
            let mut links = Vec::new();
            let mut from = path.elements.first().map(|element| take(*element));
            let hops = path.elements.len().saturating_sub(1);
            for (hop, element) in path.elements.iter().skip(1).enumerate() {
                let to = take(*element);
                let Some(start) = from else { break };
                let is_outer = hop == 0 || hop + 1 == hops;
                let card = path.pci.as_ref().filter(|_| is_outer);
                let pci = card.map(|[first, last]| if hop == 0 { first } else { last }.clone());
                let kind = if pci.is_some() {
                    LinkKind::Pci
                } else {
                    self.kind(start.element, *element, path.kind, chain)?
                };
                links.push(self.links.len());
                self.links.push(Link {
                    kind,
                    ends: [start, to],
                    chain,
                    pci,
                });
                if hop + 1 < hops {
                    let out = take(*element);
                    self.joins.push(Join {
                        element: *element,
                        ports: [to.port, out.port],
                        chain,
                    });
                    from = Some(out);
                }
            }
            self.chains.push(links);
        }
        Ok(self)
    }

    /// What a link between two elements is made of.
    fn kind(
        &self,
        first: usize,
        second: usize,
        asked: Option<LinkKind>,
        chain: usize,
    ) -> Result<LinkKind, Fault> {
        let [first, second] = [first, second].map(|index| &self.elements[index]);
        let is_common = |kind: &LinkKind| {
            let both = [first, second].map(|end| end.program.links(end.place).contains(kind));
            let is_tap = *kind != LinkKind::Tap || is_tapped(first, second);
            both == [true, true] && is_tap && *kind != LinkKind::Pci
        };
        let can: Vec<LinkKind> = LinkKind::ALL.iter().copied().filter(is_common).collect();
        let chosen = match asked {
            Some(kind) => can.contains(&kind).then_some(kind),
            None => can.first().copied(),
        };
        chosen.ok_or_else(|| {
            let names: Vec<&str> = can.iter().map(|kind| kind.name()).collect();
            let choice = match (asked, names.is_empty()) {
                (Some(kind), false) => format!(
                    "cannot be connected by {kind}, but by {}",
                    names.join(" or ")
                ),
                (_, _) => "have no kind of link in common".to_owned(),
            };
            let [a, b] = [first, second].map(Element::described);
            (Part::Chain(chain), format!("{a} and {b} {choice}"))
        })
    }

    /// Ports of an element.
    #[must_use]
    pub fn port_count(&self, element: usize) -> usize {
        let ends = self.links.iter().flat_map(|link| link.ends);
        ends.filter(|end| end.element == element).count()
    }

    /// The link at a port.
    #[must_use]
    pub fn link_at(&self, end: End) -> Option<(usize, &Link)> {
        let mut links = self.links.iter().enumerate();
        links.find(|(_, link)| link.ends.contains(&end))
    }

    /// Elements that a chain passes, the tester at both ends.
    #[must_use]
    pub fn path(&self, chain: usize) -> Vec<usize> {
        let links = self.chains.get(chain).map_or(&[][..], Vec::as_slice);
        let mut path: Vec<usize> = links
            .iter()
            .map(|link| self.links[*link].ends[0].element)
            .collect();
        path.extend(links.last().map(|link| self.links[*link].ends[1].element));
        path
    }

    /// Elements in guests.
    #[must_use]
    pub fn guest_count(&self) -> usize {
        let elements = self.elements.iter();
        elements
            .filter(|element| element.place == ElementPlace::Guest)
            .count()
    }

    /// Most VNFs that a chain passes.
    #[must_use]
    pub fn length(&self) -> usize {
        let is_vnf = |element: &usize| self.elements[*element].role == Role::Vnf;
        let chains = 0..self.chains.len();
        chains
            .map(|chain| {
                self.path(chain)
                    .iter()
                    .filter(|index| is_vnf(index))
                    .count()
            })
            .max()
            .unwrap_or(0)
    }
}

/// Whether one of both is a guest, whose QEMU is the other side of a tap, and the other has interfaces of the kernel's.
fn is_tapped(first: &Element, second: &Element) -> bool {
    let is_guest = |element: &Element| element.place == ElementPlace::Guest;
    is_guest(first) && second.is_kernels() || is_guest(second) && first.is_kernels()
}

impl Element {
    /// A plain one.
    pub(super) fn new(name: String, role: Role, place: ElementPlace, program: Program) -> Self {
        Self {
            name,
            role,
            place,
            program,
            cpus: None,
            rules: None,
            image: None,
            settings: None,
        }
    }

    /// Whether its ports are interfaces of this machine's kernel.
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.place != ElementPlace::Guest && self.program.is_of_the_kernel()
    }

    /// Its name and what it runs.
    pub(super) fn described(&self) -> String {
        match self.place {
            _ if self.role == Role::Tester => "the tester".to_owned(),
            ElementPlace::Host => format!("{} ({})", self.name, self.program),
            place => format!("{} ({} in a {place})", self.name, self.program),
        }
    }
}
