// SPDX-License-Identifier: Apache-2.0
//! What is between two guests. A port of a guest is a virtio network card, whose other side (vhost-user) a process on the host
//! has to be; two cards cannot be joined with each other. So a relay stands on every link between guests: one process for all
//! of them, an element like others, with CPUs of its own and in every picture, since what it costs is in every result.

use super::graph::{Element, Path};
use super::kinds::{ElementPlace, Role};
use super::program::Program;

/// Name of the relay, unless somebody has it.
const NAME: &str = "R";

/// Paths with the relay wherever two guests follow each other. It is added to the elements where there is such a place.
pub(super) fn relayed(elements: &mut Vec<Element>, paths: &[Path]) -> Vec<Path> {
    let is_guest = |index: usize| elements[index].place == ElementPlace::Guest;
    let meets = |pair: &[usize]| pair[0] != pair[1] && is_guest(pair[0]) && is_guest(pair[1]);
    if !paths.iter().any(|path| path.elements.windows(2).any(meets)) {
        return paths.to_vec();
    }
    let relay = elements.len();
    let through = |path: &Path| {
        let mut through: Vec<usize> = path.elements.first().copied().into_iter().collect();
        for pair in path.elements.windows(2) {
            if meets(pair) {
                through.push(relay);
            }
            through.push(pair[1]);
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
