// SPDX-License-Identifier: Apache-2.0
//! Options that choose a topology and its parameters, common to the commands of the lab.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use quietwire_base::read_text;
use quietwire_host::CpuList;
use quietwire_host::threads::online_cpus;
use quietwire_lab::topology::{
    self, Assignment, ElementPlace, Encapsulation, Forwarding, Graph, LinkKind, OwnImage,
    Parameters, Program, TopologyError, assign, assign_by_plan, named,
};
use quietwire_lab::up::check_configurations;
use quietwire_switch::config::rules::RuleFile;

use crate::partition_files::read_plan;

/// Topology and parameters.
#[derive(Debug, Args)]
pub(super) struct TopologyArgs {
    /// Name of a topology (see `lab list`), or a topology file (TOML).
    #[arg(value_name = "NAME|FILE.toml")]
    topology: String,
    /// Parallel chains, 1 to 32, if the name contains an n. [default: 2]
    #[arg(long, value_name = "N")]
    chains: Option<u32>,
    /// VNFs per chain, 1 to 32, if the name ends with ch. [default: 2]
    #[arg(long, value_name = "N")]
    length: Option<u32>,
    /// Program of the switch. [default: quietwire]
    #[arg(long, value_parser = parse_program, value_name = "PROGRAM")]
    switch: Option<Program>,
    /// Program of the VNFs, or a list with one for each VNF of a chain, in order. [default: quietwire]
    #[arg(long, value_parser = parse_program, value_delimiter = ',', value_name = "PROGRAM")]
    vnf: Vec<Program>,
    /// Place of the elements that the name puts into a guest. [default: guest]
    #[arg(long, value_enum)]
    place: Option<PlaceArg>,
    /// Encapsulation of the frames. [default: l2]
    #[arg(long, value_enum)]
    encapsulation: Option<EncapsulationArg>,
    /// Forwarding of the switch. [default: cross-connect]
    #[arg(long, value_enum)]
    forwarding: Option<ForwardingArg>,
    /// Kind of the links. Default: the best kind that both ends support.
    #[arg(long, value_enum)]
    link: Option<LinkArg>,
    /// PCI addresses of the device's network cards, two per chain, instead of links within the machine. The tester is then
    /// outside.
    #[arg(long, value_name = "PCI,PCI", value_delimiter = ',')]
    ports: Vec<String>,
    /// Filter rules of firewalls (TOML). [default: accept the tester's frames, drop all others]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Rules, connections, NAT and load balancers of the switch (TOML). [default: those of its program]
    #[arg(long, value_name = "FILE")]
    switch_config: Option<PathBuf>,
    /// Rules, connections, NAT and load balancers of every VNF (TOML). [default: those of its program]
    #[arg(long, value_name = "FILE")]
    vnf_config: Option<PathBuf>,
    /// Kernel and initramfs for guests of VNFs. [default: a built image]
    #[arg(long, value_name = "KERNEL,INITRD", value_parser = parse_image)]
    image: Option<OwnImage>,
    /// CPUs of an element, like S=1 or V1=2-3; repeatable. Every other element gets one CPU; elements share CPUs if there are
    /// too few.
    #[arg(long, value_name = "ELEMENT=LIST", value_parser = parse_cpus)]
    cpus: Vec<(String, CpuList)>,
    /// Partition plan (JSON of `partition plan --json`) that assigns CPUs: forwarding CPUs to the switch and other forwarding
    /// elements on the host, the plan's guest CPUs to guests, the last host CPU to the tester.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PlaceArg {
    /// A process on the host.
    Host,
    /// A process in separate namespaces.
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
    /// Cross-connects between ports.
    CrossConnect,
    /// A MAC-learning bridge.
    Bridge,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LinkArg {
    /// Shared memory (memif).
    Memif,
    /// Virtio.
    VhostUser,
    /// A pair of kernel interfaces (veth).
    Veth,
    /// A kernel interface that a process serves (tap).
    Tap,
}

fn parse_program(text: &str) -> Result<Program, String> {
    let mut all = Program::ALL.iter().copied();
    all.find(|program| program.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Program::ALL.iter().map(|program| program.name()).collect();
        format!("unknown program '{text}' (available: {})", names.join(", "))
    })
}

fn parse_cpus(text: &str) -> Result<(String, CpuList), String> {
    let (name, list) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not ELEMENT=LIST, like S=1"))?;
    let cpus: CpuList = list.parse().map_err(|error| format!("{error}"))?;
    if cpus.is_empty() {
        return Err(format!("{name}: the CPU list is empty"));
    }
    Ok((name.to_owned(), cpus))
}

fn parse_image(text: &str) -> Result<OwnImage, String> {
    let (kernel, initramfs) = text
        .split_once(',')
        .ok_or("expected KERNEL,INITRD, like vmlinuz,initramfs.gz")?;
    let path = |text: &str| {
        let path = std::path::absolute(text).map_err(|error| error.to_string())?;
        match path.is_file() {
            true => Ok(path),
            false => Err(format!("{} is not a file", path.display())),
        }
    };
    Ok(OwnImage {
        kernel: path(kernel)?,
        initramfs: path(initramfs)?,
    })
}

impl TopologyArgs {
    /// Returns the graph and its assignment to CPUs of this machine.
    pub(super) fn read(&self) -> Result<(Graph, Assignment)> {
        let graph = self.graph()?;
        for element in &graph.elements {
            if let Some(rules) = &element.rules {
                // The path of a rules file that a topology file names is unknown here.
                let given = format!("rules of {}", element.name);
                let path = self.rules.clone().unwrap_or_else(|| given.into());
                RuleFile::parse(&path, rules)?;
            }
        }
        check_configurations(&graph)?;
        let online = online_cpus(Path::new("/"))?;
        let asked: BTreeMap<String, CpuList> = self.cpus.iter().cloned().collect();
        let cpus = match &self.plan {
            None => assign(&graph, &online, &asked)?,
            Some(path) => assign_by_plan(&graph, &online, &read_plan(path)?, &asked)?,
        };
        Ok((graph, cpus))
    }

    /// Returns true if a partition plan assigns the CPUs.
    pub(super) fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    fn graph(&self) -> Result<Graph> {
        let path = Path::new(&self.topology);
        if path.extension().is_some_and(|ending| ending == "toml") {
            let given = self.given_options();
            if !given.is_empty() {
                bail!(TopologyError::Wrong(format!(
                    "{}: not applicable to a topology file (change the file instead)",
                    given.join(", ")
                )));
            }
            return Ok(topology::read(path)?);
        }
        let named =
            named(&self.topology).ok_or_else(|| TopologyError::Unknown(self.topology.clone()))?;
        Ok(named.graph(&self.parameters()?)?)
    }

    fn given_options(&self) -> Vec<&'static str> {
        [
            (self.chains.is_some(), "--chains"),
            (self.length.is_some(), "--length"),
            (self.switch.is_some(), "--switch"),
            (!self.vnf.is_empty(), "--vnf"),
            (self.place.is_some(), "--place"),
            (self.encapsulation.is_some(), "--encapsulation"),
            (self.forwarding.is_some(), "--forwarding"),
            (self.link.is_some(), "--link"),
            (!self.ports.is_empty(), "--ports"),
            (self.rules.is_some(), "--rules"),
            (self.switch_config.is_some(), "--switch-config"),
            (self.vnf_config.is_some(), "--vnf-config"),
            (self.image.is_some(), "--image"),
        ]
        .into_iter()
        .filter_map(|(is_given, name)| is_given.then_some(name))
        .collect()
    }

    fn parameters(&self) -> Result<Parameters> {
        let usual = Parameters::default();
        let read = |path: &Option<PathBuf>, option: &str| {
            let text = |path: &PathBuf| {
                read_text(path).map_err(|error| {
                    TopologyError::Wrong(format!(
                        "{option}: {} cannot be read: {error}",
                        path.display()
                    ))
                })
            };
            path.as_ref().map(text).transpose()
        };
        let (vnf, vnfs) = match &self.vnf[..] {
            [] => (usual.vnf, Vec::new()),
            [program] => (*program, Vec::new()),
            several => (usual.vnf, several.to_vec()),
        };
        Ok(Parameters {
            chains: self.chains,
            length: self.length,
            switch: self.switch.unwrap_or(usual.switch),
            vnf,
            vnfs,
            inside: self.place.map_or(usual.inside, |place| match place {
                PlaceArg::Host => ElementPlace::Host,
                PlaceArg::Container => ElementPlace::Container,
                PlaceArg::Guest => ElementPlace::Guest,
            }),
            encapsulation: self
                .encapsulation
                .map_or(usual.encapsulation, |given| match given {
                    EncapsulationArg::L2 => Encapsulation::L2,
                    EncapsulationArg::Ipv4 => Encapsulation::Ipv4,
                    EncapsulationArg::Ipv6 => Encapsulation::Ipv6,
                    EncapsulationArg::Vxlan => Encapsulation::Vxlan,
                }),
            destinations: usual.destinations,
            forwarding: self
                .forwarding
                .map_or(usual.forwarding, |given| match given {
                    ForwardingArg::CrossConnect => Forwarding::CrossConnect,
                    ForwardingArg::Bridge => Forwarding::Bridge,
                }),
            link: self.link.map(|given| match given {
                LinkArg::Memif => LinkKind::Memif,
                LinkArg::VhostUser => LinkKind::VhostUser,
                LinkArg::Veth => LinkKind::Veth,
                LinkArg::Tap => LinkKind::Tap,
            }),
            ports: self.ports.clone(),
            rules: read(&self.rules, "--rules")?,
            switch_config: read(&self.switch_config, "--switch-config")?,
            vnf_config: read(&self.vnf_config, "--vnf-config")?,
            image: self.image.clone(),
        })
    }
}
