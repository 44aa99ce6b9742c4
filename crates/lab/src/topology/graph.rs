// SPDX-License-Identifier: Apache-2.0
//! Topology graph: elements with ports, links between ports, and chains of links from the tester to the tester.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quietwire_host::CpuList;
use serde::{Deserialize, Serialize};

use super::kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
use super::program::Program;
use super::settings::SwitchSettings;

/// Name of the tester, in every topology.
pub const TESTER: &str = "T";
/// Name of the switch in named topologies.
pub const SWITCH: &str = "S";

/// An element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Its name, unique in the topology.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its place.
    pub place: ElementPlace,
    /// Its program.
    pub program: Program,
    /// Requested CPUs; `None` to have them chosen.
    pub cpus: Option<CpuList>,
    /// Rules of a firewall, as a file's text; `None` for the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Configuration of quietwire's switch beyond its ports and addresses, as a file's text; `None` for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Image of a guest; `None` for the image that the lab builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<OwnImage>,
    /// Settings of quietwire's switch that override the lab's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SwitchSettings>,
}

/// The user's own guest image.
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
    /// Index of the element, from 0.
    pub element: usize,
    /// Index of its port, from 0.
    pub port: usize,
}

/// A link between two ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its kind.
    pub kind: LinkKind,
    /// Its ends; the first is nearer to the start of its chain.
    pub ends: [End; 2],
    /// Index of its chain, from 0.
    pub chain: usize,
    /// PCI address, if the link is a network card: that of the end that is not the tester's.
    pub pci: Option<String>,
}

/// Two ports of an element between which it forwards in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Index of the element.
    pub element: usize,
    /// Its ports.
    pub ports: [usize; 2],
    /// Index of its chain.
    pub chain: usize,
}

/// A topology with all decisions made except CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// The effect that it isolates, for display.
    pub about: String,
    /// Encapsulation of the frames.
    pub encapsulation: Encapsulation,
    /// IP destinations of each of the tester's ports (docs/tester.md, `--destinations`): routers have a route to each.
    #[serde(default = "destinations")]
    pub destinations: u32,
    /// Forwarding mode of switches.
    pub forwarding: Forwarding,
    /// The elements; the tester is the first.
    pub elements: Vec<Element>,
    /// The links.
    pub links: Vec<Link>,
    /// Pairs of ports between which elements forward.
    pub joins: Vec<Join>,
    /// Links of each chain, in order.
    pub chains: Vec<Vec<usize>>,
}

fn destinations() -> u32 {
    1
}

/// Place of a router among the routers of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterPlace {
    /// Index of the chain, from 0.
    pub chain: usize,
    /// Index among its routers, from 0.
    pub index: usize,
    /// Number of its routers.
    pub count: usize,
}

impl Default for RouterPlace {
    /// Returns the place of the only router of the first chain.
    fn default() -> Self {
        Self {
            chain: 0,
            index: 0,
            count: 1,
        }
    }
}

/// Location of a fault in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An element, by its index from 0.
    Element(usize),
    /// A chain, by its index from 0.
    Chain(usize),
}

/// Request for a chain.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Elements that it passes, with the tester at both ends.
    pub(super) elements: Vec<usize>,
    /// Kind of all its links; `None` selects the fastest that both ends support.
    pub(super) kind: Option<LinkKind>,
    /// PCI addresses of the network cards at its two ends; `None` for links within the machine.
    pub(super) pci: Option<[String; 2]>,
}

/// A fault of a graph and its location.
pub(super) type Fault = (Part, String);

impl Graph {
    /// Adds ports, links and joins along paths. Each pass through an element uses two new ports of it.
    pub(super) fn add_paths(mut self, paths: &[Path]) -> Result<Self, Fault> {
        let mut ports: BTreeMap<usize, usize> = BTreeMap::new();
        for (chain, path) in paths.iter().enumerate() {
            let mut take = |element: usize| {
                let next = ports.entry(element).or_default();
                let port = *next;
                *next = port.saturating_add(1);
                End { element, port }
            };
            let mut links = Vec::new();
            let mut from = path.elements.first().map(|element| take(*element));
            let last = path.elements.len().saturating_sub(2);
            for (hop, element) in path.elements.iter().skip(1).enumerate() {
                let to = take(*element);
                let Some(start) = from else { break };
                let is_outer = hop == 0 || hop == last;
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
                if hop < last {
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

    /// Returns the kind of a link between two elements.
    fn kind(
        &self,
        first: usize,
        second: usize,
        asked: Option<LinkKind>,
        chain: usize,
    ) -> Result<LinkKind, Fault> {
        let [first, second] = [first, second].map(|index| self.element(index));
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
                (Some(kind), false) => {
                    format!("cannot be connected by {kind} (use {})", names.join(" or "))
                }
                (_, _) => {
                    "have no kind of link in common (use another program or place for one of them)"
                        .to_owned()
                }
            };
            let [a, b] = [first, second].map(Element::described);
            (Part::Chain(chain), format!("{a} and {b} {choice}"))
        })
    }

    /// Returns an element, by the index that an end, a join or a path of this graph has.
    #[expect(
        clippy::indexing_slicing,
        reason = "ends, joins and paths refer to elements of their graph"
    )]
    pub(crate) fn element(&self, index: usize) -> &Element {
        &self.elements[index]
    }

    /// Returns the ports of an element.
    #[must_use]
    pub fn port_count(&self, element: usize) -> usize {
        let ends = self.links.iter().flat_map(|link| link.ends);
        ends.filter(|end| end.element == element).count()
    }

    /// Returns the link at a port.
    #[must_use]
    pub fn link_at(&self, end: End) -> Option<(usize, &Link)> {
        let mut links = self.links.iter().enumerate();
        links.find(|(_, link)| link.ends.contains(&end))
    }

    /// Returns the elements that a chain passes, with the tester at both ends.
    #[must_use]
    pub fn path(&self, chain: usize) -> Vec<usize> {
        let links = self.chains.get(chain).into_iter().flatten();
        let links: Vec<&Link> = links.filter_map(|link| self.links.get(*link)).collect();
        let mut path: Vec<usize> = links.iter().map(|link| link.ends[0].element).collect();
        path.extend(links.last().map(|link| link.ends[1].element));
        path
    }

    /// Returns the place of a router among those of the first chain that passes it.
    #[must_use]
    pub fn router_place(&self, element: usize) -> RouterPlace {
        let join = self.joins.iter().find(|join| join.element == element);
        let chain = join.map_or(0, |join| join.chain);
        let mut routers: Vec<usize> = Vec::new();
        for index in self.path(chain) {
            // A chain may pass a switch several times.
            if self.element(index).program.routes() && !routers.contains(&index) {
                routers.push(index);
            }
        }
        let index = routers.iter().position(|router| *router == element);
        RouterPlace {
            chain,
            index: index.unwrap_or(0),
            count: routers.len().max(1),
        }
    }

    /// Returns the place of a VNF among those of its chain, from 1; `None` for other elements.
    #[must_use]
    pub fn vnf_place(&self, element: usize) -> Option<usize> {
        let join = self.joins.iter().find(|join| join.element == element)?;
        let mut vnfs = self.path(join.chain);
        vnfs.retain(|index| self.element(*index).role == Role::Vnf);
        let index = vnfs.iter().position(|vnf| *vnf == element)?;
        index.checked_add(1)
    }

    /// Returns the elements in guests.
    #[must_use]
    pub fn guest_count(&self) -> usize {
        let elements = self.elements.iter();
        elements
            .filter(|element| element.place == ElementPlace::Guest)
            .count()
    }

    /// Returns the largest number of VNFs in a chain.
    #[must_use]
    pub fn length(&self) -> usize {
        let is_vnf = |element: &usize| self.element(*element).role == Role::Vnf;
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

/// Returns the pairs of elements that follow each other in a path.
pub(super) fn hops(path: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    path.iter().copied().zip(path.iter().copied().skip(1))
}

/// Returns true if one element is a guest, whose QEMU is the peer of a tap, and the other uses kernel interfaces.
fn is_tapped(first: &Element, second: &Element) -> bool {
    let is_guest = |element: &Element| element.place == ElementPlace::Guest;
    is_guest(first) && second.is_kernels() || is_guest(second) && first.is_kernels()
}

impl Element {
    /// Creates an element with defaults.
    pub(super) fn new(name: String, role: Role, place: ElementPlace, program: Program) -> Self {
        Self {
            name,
            role,
            place,
            program,
            cpus: None,
            rules: None,
            config: None,
            image: None,
            settings: None,
        }
    }

    /// Returns true if its ports are interfaces of this machine's kernel.
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.place != ElementPlace::Guest && self.program.is_of_the_kernel()
    }

    /// Returns its name and program for display.
    pub(super) fn described(&self) -> String {
        match self.place {
            _ if self.role == Role::Tester => "the tester".to_owned(),
            ElementPlace::Host => format!("{} ({})", self.name, self.program),
            place => format!("{} ({} in a {place})", self.name, self.program),
        }
    }
}
