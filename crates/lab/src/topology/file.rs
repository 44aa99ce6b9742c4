// SPDX-License-Identifier: Apache-2.0
//! A user-defined topology from a TOML file: elements, and chains of them.

use std::path::{Path as FilePath, PathBuf};

use quietwire_base::locate::{self, At, FileError, LocatedFault, of_fault, of_toml};
use quietwire_base::read_text;
use quietwire_host::CpuList;
use serde::Deserialize;

use super::build::{CHAINS_MAX, build_graph, check_addresses, tester};
use super::check::duplicate;
use super::graph::{Element, Graph, OwnImage, Part, Path, TESTER};
use super::kinds::{ElementPlace, Encapsulation, Forwarding, LinkKind, Role};
use super::program::Program;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    encapsulation: Encapsulation,
    #[serde(default)]
    forwarding: Forwarding,
    #[serde(rename = "element")]
    elements: Vec<ElementSection>,
    #[serde(rename = "chain")]
    chains: Vec<ChainSection>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ElementSection {
    name: String,
    role: Role,
    program: Program,
    #[serde(default = "place")]
    place: ElementPlace,
    cpus: Option<CpuList>,
    rules: Option<PathBuf>,
    config: Option<PathBuf>,
    image: Option<[PathBuf; 2]>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ChainSection {
    path: Vec<String>,
    link: Option<LinkKind>,
    ports: Option<[String; 2]>,
}

fn place() -> ElementPlace {
    ElementPlace::Host
}

/// Reads a topology.
///
/// # Errors
/// A file that cannot be read, or an invalid value, with line, column and key.
pub fn read(path: &FilePath) -> Result<Graph, FileError> {
    parse(&locate::read(path)?, path)
}

/// Parses a file's text, as [`read`].
pub(super) fn parse(text: &str, path: &FilePath) -> Result<Graph, FileError> {
    let file: File = toml::from_str(text).map_err(|error| of_toml(text, path, &error))?;
    let directory = path.parent().unwrap_or(FilePath::new(""));
    file.graph(directory)
        .map_err(|fault| of_fault(text, path, fault))
}

fn fault(path: &[At], message: String) -> LocatedFault {
    LocatedFault {
        path: path.to_vec(),
        message,
    }
}

impl ElementSection {
    fn element(&self, index: usize, directory: &FilePath) -> Result<Element, LocatedFault> {
        let text_of = |path: &PathBuf, key: &'static str| {
            let path = directory.join(path);
            read_text(&path).map_err(|error| {
                fault(
                    &[At::Key("element"), At::Index(index), At::Key(key)],
                    format!("{} cannot be read: {error}", path.display()),
                )
            })
        };
        let rules = self.rules.as_ref().map(|path| text_of(path, "rules"));
        let config = self.config.as_ref().map(|path| text_of(path, "config"));
        let absolute = |path: &PathBuf| {
            let path = directory.join(path);
            std::path::absolute(&path).unwrap_or(path)
        };
        let image = self.image.as_ref().map(|[kernel, initramfs]| OwnImage {
            kernel: absolute(kernel),
            initramfs: absolute(initramfs),
        });
        Ok(Element {
            cpus: self.cpus.clone(),
            rules: rules.transpose()?,
            config: config.transpose()?,
            image,
            ..Element::new(self.name.clone(), self.role, self.place, self.program)
        })
    }
}

impl File {
    /// Returns the graph of the file. Relative paths in the file are relative to `directory`.
    fn graph(&self, directory: &FilePath) -> Result<Graph, LocatedFault> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if self.name.is_empty() || self.name.len() > 32 || !self.name.chars().all(is_name) {
            return Err(fault(
                &[At::Key("name")],
                "use up to 32 letters, digits, '-', '_' and '.'".to_owned(),
            ));
        }
        if self.chains.is_empty() || self.chains.len() > CHAINS_MAX as usize {
            return Err(fault(
                &[At::Key("chain")],
                format!(
                    "{} chains are out of range (allowed: 1 to {CHAINS_MAX})",
                    self.chains.len()
                ),
            ));
        }
        let mut elements = vec![tester()];
        for (index, section) in self.elements.iter().enumerate() {
            elements.push(section.element(index, directory)?);
        }
        self.check_names()?;
        let chains = self.chains.iter().enumerate();
        let paths: Result<Vec<Path>, LocatedFault> = chains
            .map(|(chain, section)| section.path(chain, &elements))
            .collect();
        self.check_cards()?;
        let graph = Graph {
            name: self.name.clone(),
            about: self.about.clone(),
            encapsulation: self.encapsulation,
            destinations: 1,
            forwarding: self.forwarding,
            elements,
            links: Vec::new(),
            joins: Vec::new(),
            chains: Vec::new(),
        };
        let graph = build_graph(graph, &paths?).map_err(placed)?;
        graph.check().map_err(placed)?;
        Ok(graph)
    }

    /// Checks element names: the tester is implicit, and every name is unique.
    fn check_names(&self) -> Result<(), LocatedFault> {
        let named = |index: usize| [At::Key("element"), At::Index(index), At::Key("name")];
        for (index, section) in self.elements.iter().enumerate() {
            let name = &section.name;
            let mut earlier = self.elements.iter().take(index);
            if earlier.any(|other| other.name == *name) {
                return Err(fault(&named(index), duplicate(name)));
            }
        }
        let second =
            |section: &ElementSection| section.role == Role::Tester || section.name == TESTER;
        match self.elements.iter().position(second) {
            None => Ok(()),
            Some(index) => Err(fault(
                &named(index),
                format!("the topology already has the tester, {TESTER} (remove this element)"),
            )),
        }
    }

    fn check_cards(&self) -> Result<(), LocatedFault> {
        let mut all = Vec::new();
        for (chain, section) in self.chains.iter().enumerate() {
            all.extend(section.ports.iter().flatten().cloned());
            check_addresses(&all).map_err(|message| {
                fault(
                    &[At::Key("chain"), At::Index(chain), At::Key("ports")],
                    message,
                )
            })?;
        }
        Ok(())
    }
}

impl ChainSection {
    /// Returns the path of this chain, which has this number in the file.
    fn path(&self, chain: usize, elements: &[Element]) -> Result<Path, LocatedFault> {
        let mut path = Vec::new();
        for (hop, name) in self.path.iter().enumerate() {
            let found = elements.iter().position(|element| element.name == *name);
            path.push(found.ok_or_else(|| {
                let names: Vec<&str> = elements
                    .iter()
                    .map(|element| element.name.as_str())
                    .collect();
                fault(
                    &[
                        At::Key("chain"),
                        At::Index(chain),
                        At::Key("path"),
                        At::Index(hop),
                    ],
                    format!("unknown element '{name}' (elements: {})", names.join(", ")),
                )
            })?);
        }
        Ok(Path {
            elements: path,
            kind: self.link,
            pci: self.ports.clone(),
        })
    }
}

/// Returns the position of a graph's part in the file. The tester, which is the first element, is not in the file.
fn placed((part, message): (Part, String)) -> LocatedFault {
    let path = match part {
        Part::Element(index) => vec![At::Key("element"), At::Index(index.saturating_sub(1))],
        Part::Chain(index) => vec![At::Key("chain"), At::Index(index), At::Key("path")],
    };
    LocatedFault { path, message }
}
