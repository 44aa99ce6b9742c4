// SPDX-License-Identifier: Apache-2.0
//! Relay between two guests. A guest's port is a virtio network card, which requires a vhost-user back end on the host, and two
//! cards cannot be connected to each other. Each link between guests therefore passes a relay: one process for all such links, an
//! element with its own CPUs, and visible in every picture, since its cost is part of every result.

use super::graph::{Element, Path, hops};
use super::kinds::{ElementPlace, Role};
use super::program::Program;

/// Name of the relay, unless another element has it.
const NAME: &str = "R";

/// Inserts the relay into paths between two adjacent guests, and adds it to the elements if it is required.
pub(super) fn relayed(elements: &mut Vec<Element>, paths: &[Path]) -> Vec<Path> {
    let is_guest = |index: usize| {
        let element = elements.get(index);
        element.is_some_and(|element| element.place == ElementPlace::Guest)
    };
    let meets = |(one, other): (usize, usize)| one != other && is_guest(one) && is_guest(other);
    if !paths.iter().any(|path| hops(&path.elements).any(meets)) {
        return paths.to_vec();
    }
    let relay = elements.len();
    let through = |path: &Path| {
        let mut through: Vec<usize> = path.elements.first().copied().into_iter().collect();
        for (one, other) in hops(&path.elements) {
            if meets((one, other)) {
                through.push(relay);
            }
            through.push(other);
        }
        Path {
            elements: through,
            ..path.clone()
        }
    };
    let paths = paths.iter().map(through).collect();
    let name = free_name(elements);
    let relay = Element::new(name, Role::Relay, ElementPlace::Host, Program::Quietwire);
    elements.push(relay);
    paths
}

fn free_name(elements: &[Element]) -> String {
    let is_free = |name: &String| !elements.iter().any(|element| element.name == *name);
    let numbered = (2..).map(|number| format!("{NAME}{number}"));
    let mut names = std::iter::once(NAME.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}
