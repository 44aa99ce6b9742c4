// SPDX-License-Identifier: Apache-2.0
//! Checks of a graph.

use super::config::check_config;
use super::graph::{Element, Fault, Graph, Part, hops};
use super::kinds::{ElementPlace, Encapsulation, Forwarding, Role};
use super::program::Program;

impl Graph {
    /// Checks the graph and returns its first fault.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (index, element) in self.elements.iter().enumerate() {
            self.check_element(index, element)
                .map_err(|message| (Part::Element(index), message))?;
        }
        for chain in 0..self.chains.len() {
            self.check_chain(chain)
                .map_err(|message| (Part::Chain(chain), message))?;
        }
        Ok(())
    }

    fn check_element(&self, index: usize, element: &Element) -> Result<(), String> {
        let name = &element.name;
        if !is_name(name) {
            return Err(format!(
                "'{name}' is not a name for an element (use up to 16 letters, digits, '-' and '.')"
            ));
        }
        if self
            .elements
            .iter()
            .take(index)
            .any(|other| other.name == *name)
        {
            return Err(duplicate(name));
        }
        if !element.program.suits(element.role) {
            return Err(format!(
                "{} cannot be a {} ({})",
                element.program,
                element.role,
                choices(element.role)
            ));
        }
        if element
            .cpus
            .as_ref()
            .is_some_and(quietwire_host::CpuList::is_empty)
        {
            return Err(format!(
                "{name} has an empty CPU list (name at least one CPU, or remove the entry)"
            ));
        }
        self.check_place(element)?;
        check_parts(element)?;
        let passes = self
            .joins
            .iter()
            .filter(|join| join.element == index)
            .count();
        match (element.role, passes) {
            (Role::Tester, _) => Ok(()),
            (_, 0) => Err(format!("{name} is in no chain")),
            (Role::Vnf, 2..) => Err(format!(
                "{name} is passed {passes} times; a VNF has two ports and is passed once, a switch may be passed often"
            )),
            (_, _) if element.program.routes() => self.check_router(element, passes),
            _ => Ok(()),
        }
    }

    fn check_place(&self, element: &Element) -> Result<(), String> {
        let Element {
            name,
            place,
            program,
            ..
        } = element;
        if *program == Program::OwnImage && *place != ElementPlace::Guest {
            return Err(format!(
                "{name}: own-image is an image that a guest boots (set the place to guest)"
            ));
        }
        let is_possible = match place {
            ElementPlace::Host => true,
            ElementPlace::Guest => program.runs_in_guests(),
            ElementPlace::Container => program.runs_in_containers(),
        };
        if is_possible {
            return Ok(());
        }
        Err(format!(
            "{name}: {program} is not supported in a {place} (set the place to host)"
        ))
    }

    /// Routers have two networks, one on each of the tester's ports. All other elements of the chain only forward.
    fn check_router(&self, element: &Element, passes: usize) -> Result<(), String> {
        let Element { name, program, .. } = element;
        if !matches!(
            self.encapsulation,
            Encapsulation::Ipv4 | Encapsulation::Ipv6
        ) {
            return Err(format!(
                "{name}: {program} forwards by IP addresses (use the encapsulation ipv4 or ipv6)"
            ));
        }
        if *program == Program::L3fwd && self.encapsulation != Encapsulation::Ipv4 {
            return Err(format!("{name}: l3fwd supports only IPv4 in a lab"));
        }
        if *program == Program::Nat && self.encapsulation != Encapsulation::Ipv4 {
            return Err(format!(
                "{name}: nat translates IPv4 addresses (use the encapsulation ipv4)"
            ));
        }
        let others = || self.elements.iter().filter(|other| other.name != *name);
        let is_chained = is_in_chain(element);
        let conflicts =
            |other: &&Element| other.program.routes() && !(is_chained && is_in_chain(other));
        if let Some(other) = others().find(conflicts) {
            return Err(format!(
                "{name} and {} both route, but the lab has only the two networks of the tester (use another program for one of them)",
                other.name
            ));
        }
        if let Some(other) = others().find(|other| changes_addresses(other)) {
            return Err(format!(
                "{}: {} changes MAC addresses, so frames would not reach {name}, which routes (use another program for one of them)",
                other.name, other.program
            ));
        }
        // A VNF is passed once, and each chain has its own networks.
        if is_chained {
            return Ok(());
        }
        let is_alone = self.elements.len() == 2;
        let is_once = passes == 1 && (is_alone || !program.routes_alone());
        if self.chains.len() == 1 && (is_once || *program == Program::LinuxRouting) {
            return Ok(());
        }
        Err(format!(
            "{name}: {program} routes between the tester's two networks, {}",
            match program {
                Program::LinuxRouting => "so there is one chain",
                _ if program.routes_alone() => "so it stands alone between its ports, as in vNet1",
                _ =>
                    "so there is one chain that passes it once, as in vNet1, vNet3 or, for the VNF, vNet4-1VNF",
            }
        ))
    }

    fn check_chain(&self, chain: usize) -> Result<(), String> {
        let path = self.path(chain);
        let element = |index: usize| self.element(index);
        let is_tester = |index: &usize| element(*index).role == Role::Tester;
        let between = match path.as_slice() {
            [first, between @ .., last]
                if !between.is_empty() && is_tester(first) && is_tester(last) =>
            {
                between
            }
            _ => {
                return Err("a chain begins and ends at T and passes something between".to_owned());
            }
        };
        if between.iter().any(is_tester) {
            return Err("a chain passes T between its ends (use two chains)".to_owned());
        }
        if let Some((index, _)) = hops(&path).find(|(one, other)| one == other) {
            return Err(format!("{} is connected to itself", element(index).name));
        }
        let learns = path.iter().find(|index| self.learns(element(**index)));
        let changes = path
            .iter()
            .find(|index| changes_addresses(element(**index)));
        match (learns, changes) {
            (Some(learns), Some(changes)) => Err(format!(
                "{} forwards by learned MAC addresses, and {} changes them, so that frames would not find their way; \
                 choose the forwarding cross-connect or another VNF",
                element(*learns).described(),
                element(*changes).described(),
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if an element forwards by learned addresses.
    fn learns(&self, element: &Element) -> bool {
        element.program == Program::LinuxBridge
            || element.role == Role::Switch
                && self.forwarding == Forwarding::Bridge
                && matches!(
                    element.program,
                    Program::Quietwire
                        | Program::Firewall
                        | Program::OvsDpdk
                        | Program::OvsNetdev
                        | Program::Vpp
                )
    }
}

/// Checks the settings that only some elements support.
fn check_parts(element: &Element) -> Result<(), String> {
    let Element {
        name,
        program,
        place,
        ..
    } = element;
    if element.rules.is_some() && *program != Program::Firewall {
        return Err(format!(
            "{name}: {program} does not support rules (use a firewall)"
        ));
    }
    if let Some(config) = &element.config {
        if !program.is_quietwire() {
            return Err(format!(
                "{name}: {program} does not support a configuration (use quietwire, firewall, quietwire-router or nat)"
            ));
        }
        if element.rules.is_some() {
            return Err(format!(
                "{name}: rules and a configuration exclude each other (write the rules into the configuration)"
            ));
        }
        check_config(config).map_err(|message| format!("{name}: {message}"))?;
    }
    if element.image.is_some() && *place != ElementPlace::Guest {
        return Err(format!(
            "{name}: an image requires a guest, but {name} is not in one (set the place to guest)"
        ));
    }
    if element.image.is_none() && *program == Program::OwnImage {
        return Err(format!(
            "{name}: own-image requires a kernel and an initramfs (--image KERNEL,INITRD)"
        ));
    }
    Ok(())
}

/// Returns true if it is one of the routers of a chain, with a network between each two.
fn is_in_chain(element: &Element) -> bool {
    element.role == Role::Vnf && element.program.routes_in_chains()
}

/// Returns true if the frames that it sends have other MAC addresses than those that it received.
fn changes_addresses(element: &Element) -> bool {
    matches!(
        element.program,
        Program::TestpmdMac | Program::TestpmdMacswap | Program::L2fwd
    )
}

fn choices(role: Role) -> String {
    let names: Vec<&str> = Program::ALL
        .iter()
        .filter(|program| program.suits(role))
        .map(|program| program.name())
        .collect();
    format!("available: {}", names.join(", "))
}

/// Returns the message about a second element of this name.
pub(super) fn duplicate(name: &str) -> String {
    format!("two elements have the name '{name}' (give each element its own name)")
}

fn is_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let starts_well = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    starts_well && name.len() <= 16 && name.chars().all(is_allowed)
}
