// SPDX-License-Identifier: Apache-2.0
//! Drawing of a machine (SVG): packages, nodes, last level caches, cores and threads as nested boxes, network cards at their
//! node and, with a plan, the role of each CPU.

mod block;
mod xml;

use crate::inventory::{Cache, CoreKind, CpuPlace, Inventory, Nic};
use crate::partition::{Plan, Role};
use crate::{CpuId, CpuList};
use block::Block;
pub use xml::escaped;

/// Maximum number of cores in a row.
const CORES_IN_A_ROW: usize = 8;
/// Maximum number of caches, nodes or packages in a row.
const BOXES_IN_A_ROW: usize = 2;
const CONTROLLERS_IN_A_ROW: usize = 3;

const PACKAGE: &str = "#f4f6f8";
const NODE: &str = "#ffffff";
const CACHE: &str = "#eef4fa";
const CORE: &str = "#ffffff";
const CONTROLLER: &str = "#f3effa";
const PLAIN_THREAD: &str = "#e3e8ee";
const ISOLATED_THREAD: &str = "#bfd8f2";
const DARK: &str = "#1d2733";
const LIGHT: &str = "#ffffff";

/// Returns the fill and text colours of a role's CPUs. Colour-blind readers can distinguish them too.
fn colours(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Host => ("#d5dbe2", DARK),
        Role::Control => ("#f3dc7d", DARK),
        Role::Service => ("#f2a65a", DARK),
        Role::Forwarding => ("#1f6fbf", LIGHT),
        Role::Guest => ("#2f8f6b", LIGHT),
        Role::Neighbour => ("#c25a66", LIGHT),
        Role::Idle => ("#ffffff", DARK),
    }
}

/// Draws the machine and, with a plan, the role of each CPU.
#[must_use]
pub fn draw(machine: &Inventory, plan: Option<&Plan>) -> String {
    let drawer = Drawer { machine, plan };
    let mut parts = vec![drawer.heading()];
    parts.extend(plan.map(legend));
    parts.push(drawer.packages());
    let nowhere = drawer.controllers(None);
    if !nowhere.is_empty() {
        parts.push(Block::of(
            "network cards on an unknown node",
            PACKAGE,
            nowhere,
            CONTROLLERS_IN_A_ROW,
        ));
    }
    Block::column(parts).to_svg()
}

fn legend(plan: &Plan) -> Block {
    let groups = plan.groups.iter().map(|group| {
        let (fill, text) = colours(group.role);
        let name = if group.role.name() == group.name {
            group.name.clone()
        } else {
            format!("{} {}", group.role.name(), group.name)
        };
        Block::leaf(&[format!("{name}: {}", group.cpus)], fill, text).wide()
    });
    Block::of("CPU roles", PACKAGE, groups.collect(), CONTROLLERS_IN_A_ROW)
}

struct Drawer<'a> {
    machine: &'a Inventory,
    plan: Option<&'a Plan>,
}

impl Drawer<'_> {
    fn heading(&self) -> Block {
        let machine = self.machine;
        let mut lines = vec![
            machine
                .cpu_model
                .clone()
                .or_else(|| machine.cpu_vendor.clone())
                .unwrap_or_else(|| "unknown processor".to_owned()),
        ];
        let count = |count: Option<usize>, what: &str| {
            count.map(|count| format!("{count} {what}{}", if count == 1 { "" } else { "s" }))
        };
        let facts: Vec<String> = [
            count(machine.packages, "package"),
            count(machine.cores, "core"),
            machine
                .cpus_online
                .as_ref()
                .map(|cpus| format!("{} CPUs online ({cpus})", cpus.len())),
            machine.memory_mib.map(memory),
        ]
        .into_iter()
        .flatten()
        .collect();
        lines.push(facts.join(" · "));
        if let Some(offline) = machine
            .cpus_offline
            .as_ref()
            .filter(|cpus| !cpus.is_empty())
        {
            lines.push(format!("offline CPUs, not drawn: {offline}"));
        }
        if !machine.high_priority().is_empty() {
            lines.push("★ high-priority core (SST-BF)".to_owned());
        }
        Block::leaf(&lines, "none", DARK).plain()
    }

    fn online(&self) -> impl Iterator<Item = &CpuPlace> {
        let online = self.machine.cpus_online.as_ref();
        let cpus = self.machine.cpus.iter();
        cpus.filter(move |place| online.is_none_or(|online| online.contains(place.cpu)))
    }

    fn packages(&self) -> Block {
        let mut packages: Vec<Option<i32>> = self.online().map(|place| place.package).collect();
        packages.sort_unstable();
        packages.dedup();
        let columns = if packages.len() > 1 {
            BOXES_IN_A_ROW
        } else {
            1
        };
        let boxes = packages.into_iter().map(|package| {
            let title = package.map_or("unknown package".to_owned(), |package| {
                format!("package {package}")
            });
            let places: Vec<&CpuPlace> = self
                .online()
                .filter(|place| place.package == package)
                .collect();
            let mut nodes: Vec<Option<u32>> = places.iter().map(|place| place.node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let boxes: Vec<Block> = nodes.iter().map(|node| self.node(*node, &places)).collect();
            // If packages are side by side, the nodes of a package are below each other.
            let beside = if columns > 1 { 1 } else { BOXES_IN_A_ROW };
            Block::of(&title, PACKAGE, boxes, beside)
        });
        Block::grid(boxes.collect(), columns)
    }

    fn node(&self, node: Option<u32>, of_package: &[&CpuPlace]) -> Block {
        let places: Vec<&CpuPlace> = of_package
            .iter()
            .copied()
            .filter(|place| place.node == node)
            .collect();
        let known = self
            .machine
            .nodes
            .iter()
            .find(|known| Some(known.node) == node);
        let mut title = node.map_or("unknown node".to_owned(), |node| {
            format!("NUMA node {node}")
        });
        if let Some(mib) = known.and_then(|known| known.memory_mib) {
            title += &format!(" · {}", memory(mib));
        }
        let pools = self.plan.map(|plan| plan.huge_pages.iter());
        for pool in pools.into_iter().flatten().filter(|pool| pool.node == node) {
            title += &format!(
                " · {} huge page{} of {} planned",
                pool.pages,
                if pool.pages == 1 { "" } else { "s" },
                memory_kib(pool.page_kib)
            );
        }
        let mut boxes = Vec::new();
        let mut left: Vec<&CpuPlace> = places;
        for cache in self.last_caches() {
            let cpus = &cache.cpus;
            let (here, rest): (Vec<&CpuPlace>, Vec<&CpuPlace>) =
                left.into_iter().partition(|place| cpus.contains(place.cpu));
            left = rest;
            if !here.is_empty() {
                boxes.push(self.cache(cache, cpus, &here));
            }
        }
        if !left.is_empty() {
            boxes.push(Block::grid(self.cores(&left), CORES_IN_A_ROW));
        }
        let columns = if boxes.len() > 1 { BOXES_IN_A_ROW } else { 1 };
        let mut parts = vec![Block::grid(boxes, columns)];
        // A node in two packages has its network cards in the first one.
        let is_first = self
            .online()
            .find(|place| place.node == node)
            .is_some_and(|first| of_package.iter().any(|place| place.cpu == first.cpu));
        let controllers = if is_first && node.is_some() {
            self.controllers(node)
        } else {
            Vec::new()
        };
        if !controllers.is_empty() {
            parts.push(Block::grid(controllers, CONTROLLERS_IN_A_ROW));
        }
        Block::of(&title, NODE, parts, 1)
    }

    fn last_caches(&self) -> impl Iterator<Item = &Cache> {
        let last = self.machine.caches.iter().map(|cache| cache.level).max();
        self.machine
            .caches
            .iter()
            .filter(move |cache| Some(cache.level) == last && cache.level > 1)
    }

    fn cache(&self, cache: &Cache, cpus: &CpuList, here: &[&CpuPlace]) -> Block {
        let mut title = format!("L{}", cache.level);
        if let Some(kib) = cache.size_kib {
            title += &format!(" {}", memory_kib(kib));
        }
        if let Some(ways) = cache.ways {
            title += &format!(", {ways} ways");
        }
        if cpus.len() > here.len() {
            title += ", shared with other nodes";
        }
        Block::of(&title, CACHE, self.cores(here), CORES_IN_A_ROW)
    }

    /// Draws the cores of CPUs, in the order of their lowest CPU.
    fn cores(&self, places: &[&CpuPlace]) -> Vec<Block> {
        let fast = self.machine.high_priority();
        let mut drawn = CpuList::new();
        let mut cores = Vec::new();
        for place in places {
            if drawn.contains(place.cpu) {
                continue;
            }
            let of_core = |other: &&&CpuPlace| {
                other.cpu == place.cpu
                    || place
                        .siblings
                        .as_ref()
                        .is_some_and(|siblings| siblings.contains(other.cpu))
            };
            let threads: Vec<CpuId> = places
                .iter()
                .filter(of_core)
                .map(|place| place.cpu)
                .collect();
            threads.iter().for_each(|cpu| drawn.insert(*cpu));
            let kind = match place.kind {
                Some(CoreKind::Performance) => "P ",
                Some(CoreKind::Efficiency) => "E ",
                None => "",
            };
            let star = if fast.contains(place.cpu) { " ★" } else { "" };
            let number = place.core.map_or(String::new(), |core| core.to_string());
            let boxes = threads.into_iter().map(|cpu| self.thread(cpu)).collect();
            cores.push(Block::of(&format!("{kind}{number}{star}"), CORE, boxes, 1).small());
        }
        cores
    }

    fn thread(&self, cpu: CpuId) -> Block {
        let isolated = self
            .machine
            .cpus_isolated
            .as_ref()
            .is_some_and(|cpus| cpus.contains(cpu));
        let group = self.plan.and_then(|plan| plan.group_of(cpu));
        let (fill, text) = match group {
            Some(group) => colours(group.role),
            None if isolated => (ISOLATED_THREAD, DARK),
            None => (PLAIN_THREAD, DARK),
        };
        let hint = group.map_or("no role".to_owned(), |group| group.name.clone());
        let block = Block::leaf(&[cpu.to_string()], fill, text).hint(&format!("CPU {cpu}: {hint}"));
        if group.is_some_and(|group| group.role == Role::Idle) {
            block.dashed()
        } else {
            block
        }
    }

    /// Draws the network cards of a node. Virtual functions are listed at their physical function.
    fn controllers(&self, node: Option<u32>) -> Vec<Block> {
        let drawn_nodes: Vec<u32> = self.online().filter_map(|place| place.node).collect();
        let node_of = |nic: &Nic| nic.node.filter(|node| drawn_nodes.contains(node));
        let nics = self
            .machine
            .nics
            .iter()
            .filter(|nic| nic.physical_function.is_none() && node_of(nic) == node);
        nics.map(|nic| self.controller(nic)).collect()
    }

    fn controller(&self, nic: &Nic) -> Block {
        let mut lines = vec![format!("PCI {}", nic.pci_address)];
        let names = nic.interfaces.join(" ");
        let driver = nic.driver.clone().unwrap_or_else(|| "no driver".to_owned());
        lines.push(if names.is_empty() {
            driver
        } else {
            format!("{names} ({driver})")
        });
        if nic.functions_max > Some(0) {
            lines.extend(nic.functions_text());
        }
        let planned = self.plan.and_then(|plan| {
            plan.nics
                .iter()
                .find(|planned| planned.pci_address == nic.pci_address)
        });
        if let Some(planned) = planned {
            let cpus: CpuList = planned.queues.iter().map(|queue| queue.cpu).collect();
            lines.push(format!("{} queues, CPUs {cpus}", planned.queues.len()));
        }
        Block::leaf(&lines, CONTROLLER, DARK)
    }
}

fn memory(mib: u64) -> String {
    if mib >= 1024 {
        format!("{} GiB", mib.saturating_add(512) / 1024)
    } else {
        format!("{mib} MiB")
    }
}

fn memory_kib(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{} MiB", kib / 1024),
        _ => format!("{} GiB", kib >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;
    use crate::partition::{derive, plan};

    /// Writes a drawing to the directory in `QUIETWIRE_DRAWINGS`, for manual review.
    fn keep(name: &str, svg: &str) {
        if let Some(directory) = std::env::var_os("QUIETWIRE_DRAWINGS") {
            let file = std::path::Path::new(&directory).join(name);
            std::fs::write(file, svg).unwrap();
        }
    }

    #[test]
    fn every_cpu_and_controller_is_drawn_once_with_and_without_a_plan() {
        for machine in machines::all() {
            let inventory = machine.inventory();
            let plan = plan(&inventory, &derive(&inventory)).unwrap();
            for plan in [None, Some(&plan)] {
                let svg = draw(&inventory, plan);
                let kind = if plan.is_some() { "planned" } else { "plain" };
                keep(&format!("{}-{kind}.svg", machine.name), &svg);
                for cpu in inventory.cpus_online.as_ref().unwrap().iter() {
                    let hint = format!("<title>CPU {cpu}:");
                    assert_eq!(svg.matches(&hint).count(), 1, "{} CPU {cpu}", machine.name);
                }
                for nic in &inventory.nics {
                    let text = format!("PCI {}<", nic.pci_address);
                    assert_eq!(svg.matches(&text).count(), 1, "{}", machine.name);
                }
                assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
            }
        }
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let mut inventory = machines::virtual_machine().inventory();
        inventory.cpu_model = Some("<script>&\"".to_owned());
        let svg = draw(&inventory, None);
        assert!(svg.contains("&lt;script&gt;&amp;&quot;") && !svg.contains("<script>"));
    }
}
