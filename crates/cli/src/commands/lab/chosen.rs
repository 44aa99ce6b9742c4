// SPDX-License-Identifier: Apache-2.0
//! Options that choose a topology and its parameters, as every command of the lab takes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use quietwire_host::CpuList;
use quietwire_host::partition::Plan;
use quietwire_host::threads::online_cpus;
use quietwire_lab::topology::{
    self, Assignment, ElementPlace, Encapsulation, Forwarding, Graph, LinkKind, OwnImage,
    Parameters, Program, TopologyError, assign, assign_by_plan, named,
};
use quietwire_switch::config::rules::RuleFile;

use crate::exit::Usage;

/// A topology.
#[derive(Debug, Args)]
pub(super) struct TopologyArgs {
    /// One of the names that `lab list` shows, or a TOML file with your own topology.
    #[arg(value_name = "NAME|FILE.toml")]
    topology: String,
    /// Chains at once, 1 to 32, where the name has an n in it. [default: 2]
    #[arg(long, value_name = "N")]
    chains: Option<u32>,
    /// VNFs in a chain, 1 to 32, where the name ends with ch. [default: 2]
    #[arg(long, value_name = "N")]
    length: Option<u32>,
    /// The switch. [default: quietwire]
    #[arg(long, value_parser = parse_program, value_name = "PROGRAM")]
    switch: Option<Program>,
    /// The VNF. [default: quietwire]
    #[arg(long, value_parser = parse_program, value_name = "PROGRAM")]
    vnf: Option<Program>,
    /// Where that runs which the name puts into a guest. [default: guest]
    #[arg(long, value_enum)]
    place: Option<PlaceArg>,
    /// What frames carry. [default: l2]
    #[arg(long, value_enum)]
    encapsulation: Option<EncapsulationArg>,
    /// How the switch forwards. [default: cross-connect]
    #[arg(long, value_enum)]
    forwarding: Option<ForwardingArg>,
    /// What links are made of, instead of what both ends do best.
    #[arg(long, value_enum)]
    link: Option<LinkArg>,
    /// Network cards of the device, two a chain, by their PCI addresses, in place of links within the machine. The tester
    /// is then outside.
    #[arg(long, value_name = "PCI,PCI", value_delimiter = ',')]
    ports: Vec<String>,
    /// Rules of firewalls, from a TOML file. [default: the tester's frames go through, and nothing else]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// What guests of VNFs boot: a kernel and an initramfs of your own. [default: an image that is built for them]
    #[arg(long, value_name = "KERNEL,INITRD", value_parser = parse_image)]
    image: Option<OwnImage>,
    /// CPUs of an element, like S=1 or V1=2-3; repeat it. Elements that are not named get one each, and share where there
    /// are too few.
    #[arg(long, value_name = "ELEMENT=LIST", value_parser = parse_cpus)]
    cpus: Vec<(String, CpuList)>,
    /// A partition plan (JSON, as `partition plan --json` prints it) to take CPUs from: the switch, and what else forwards on the
    /// host, has the forwarding CPUs, guests have those of the plan's guests, the tester the last of the host's.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlaceArg {
    /// As everything else.
    Host,
    /// A process in namespaces of its own.
    Container,
    /// A virtual machine.
    Guest,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EncapsulationArg {
    /// Ethernet.
    L2,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Ethernet in VXLAN.
    Vxlan,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ForwardingArg {
    /// By port.
    CrossConnect,
    /// By learned MAC addresses.
    Bridge,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LinkArg {
    /// Shared memory.
    Memif,
    /// Virtio.
    VhostUser,
    /// A pair of interfaces of the kernel's.
    Veth,
    /// An interface of the kernel's with a process behind it.
    Tap,
}

fn parse_program(text: &str) -> Result<Program, String> {
    let mut all = Program::ALL.iter().copied();
    all.find(|program| program.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Program::ALL.iter().map(|program| program.name()).collect();
        format!(
            "there is no program '{text}'; there are {}",
            names.join(", ")
        )
    })
}

fn parse_cpus(text: &str) -> Result<(String, CpuList), String> {
    let (name, list) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no element with its CPUs, which is like S=1"))?;
    let cpus: CpuList = list.parse().map_err(|error| format!("{error}"))?;
    if cpus.is_empty() {
        return Err(format!("{name} is given no CPU"));
    }
    Ok((name.to_owned(), cpus))
}

fn parse_image(text: &str) -> Result<OwnImage, String> {
    let (kernel, initramfs) = text
        .split_once(',')
        .ok_or("write KERNEL,INITRD, like vmlinuz,initramfs.gz")?;
    let path = |text: &str| {
        let path = std::path::absolute(text).map_err(|error| error.to_string())?;
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("{} is no file", path.display())),
        }
    };
    Ok(OwnImage {
        kernel: path(kernel)?,
        initramfs: path(initramfs)?,
    })
}

fn read_plan(path: &Path) -> Result<Plan> {
    let wrong = |error: String| Usage(format!("--plan {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Ok(serde_json::from_str(&text).map_err(|error| {
        wrong(format!(
            "{error}; `quietwire partition plan --json` prints a plan"
        ))
    })?)
}

impl TopologyArgs {
    /// The graph, and who has which of this machine's CPUs.
    pub(super) fn read(&self) -> Result<(Graph, Assignment)> {
        let graph = self.graph()?;
        for element in &graph.elements {
            if let Some(rules) = &element.rules {
                // A topology's own file is not to be found here any more.
                let said = format!("rules of {}", element.name);
                let path = self.rules.clone().unwrap_or_else(|| said.into());
                RuleFile::parse(&path, rules)?;
            }
        }
        let online = online_cpus(Path::new("/"))?;
        let asked: BTreeMap<String, CpuList> = self.cpus.iter().cloned().collect();
        let cpus = match &self.plan {
            None => assign(&graph, &online, &asked)?,
            Some(path) => assign_by_plan(&graph, &online, &read_plan(path)?, &asked)?,
        };
        Ok((graph, cpus))
    }

    /// Whether a partition's plan gives them.
    pub(super) fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    fn graph(&self) -> Result<Graph> {
        let path = Path::new(&self.topology);
        if path.extension().is_some_and(|ending| ending == "toml") {
            let given = self.given();
            if !given.is_empty() {
                bail!(TopologyError::Wrong(format!(
                    "{} of a topology from a file stands in the file; leave {} out",
                    if given.len() == 1 { "this" } else { "these" },
                    given.join(", ")
                )));
            }
            return Ok(topology::read(path)?);
        }
        let named =
            named(&self.topology).ok_or_else(|| TopologyError::Unknown(self.topology.clone()))?;
        Ok(named.graph(&self.parameters()?)?)
    }

    fn given(&self) -> Vec<&'static str> {
        [
            (self.chains.is_some(), "--chains"),
            (self.length.is_some(), "--length"),
            (self.switch.is_some(), "--switch"),
            (self.vnf.is_some(), "--vnf"),
            (self.place.is_some(), "--place"),
            (self.encapsulation.is_some(), "--encapsulation"),
            (self.forwarding.is_some(), "--forwarding"),
            (self.link.is_some(), "--link"),
            (!self.ports.is_empty(), "--ports"),
            (self.rules.is_some(), "--rules"),
            (self.image.is_some(), "--image"),
        ]
        .into_iter()
        .filter_map(|(is_given, name)| is_given.then_some(name))
        .collect()
    }

    fn parameters(&self) -> Result<Parameters> {
        let usual = Parameters::default();
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| {
                TopologyError::Wrong(format!(
                    "--rules: {} cannot be read: {error}",
                    path.display()
                ))
            })
        };
        Ok(Parameters {
            chains: self.chains,
            length: self.length,
            switch: self.switch.unwrap_or(usual.switch),
            vnf: self.vnf.unwrap_or(usual.vnf),
            inside: self.place.map_or(usual.inside, |place| match place {
                PlaceArg::Host => ElementPlace::Host,
                PlaceArg::Container => ElementPlace::Container,
                PlaceArg::Guest => ElementPlace::Guest,
            }),
            encapsulation: self
                .encapsulation
                .map_or(usual.encapsulation, |said| match said {
                    EncapsulationArg::L2 => Encapsulation::L2,
                    EncapsulationArg::Ipv4 => Encapsulation::Ipv4,
                    EncapsulationArg::Ipv6 => Encapsulation::Ipv6,
                    EncapsulationArg::Vxlan => Encapsulation::Vxlan,
                }),
            destinations: usual.destinations,
            forwarding: self.forwarding.map_or(usual.forwarding, |said| match said {
                ForwardingArg::CrossConnect => Forwarding::CrossConnect,
                ForwardingArg::Bridge => Forwarding::Bridge,
            }),
            link: self.link.map(|said| match said {
                LinkArg::Memif => LinkKind::Memif,
                LinkArg::VhostUser => LinkKind::VhostUser,
                LinkArg::Veth => LinkKind::Veth,
                LinkArg::Tap => LinkKind::Tap,
            }),
            ports: self.ports.clone(),
            rules: self.rules.as_ref().map(read).transpose()?,
            image: self.image.clone(),
        })
    }
}
