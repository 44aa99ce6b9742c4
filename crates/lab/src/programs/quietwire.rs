// SPDX-License-Identifier: Apache-2.0
//! This project's own switch, as a switch or as a VNF.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::durable::remove_if_exists;
use quietwire_base::{Deadline, Idle};
use quietwire_dpdk::HugePages;
use quietwire_host::threads::{ThreadCpus, threads_of};
use quietwire_host::{CpuId, CpuList};
use quietwire_switch::config::Settings;
use quietwire_switch::control::{Request, Subject};
use quietwire_switch::report::{CyclesReport, ThreadReport};
use quietwire_tester::account::ElementCounts;
use serde::de::IgnoredAny;

use super::forwarder::Forwarder;
use super::installed::version_line;
use super::router;
use crate::control::ask;
use crate::counts::{of_switch, own_view_of_switch};
use crate::cycle_reader::CycleReader;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, NEIGHBOUR_PORTS, Plan, Process};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::switch_command::SwitchCommand;
use crate::thread::{DeviceThread, ThreadRole};
use crate::topology::{Forwarding, SwitchSettings};
use crate::unavailable::Unavailable;

/// Memory for frames, MiB, for each pair of ports.
const MEMORY_MIB: u32 = 64;
/// Time until its threads are on their CPUs: libraries create some threads during the start.
const PINNED_DEADLINE: Duration = Duration::from_secs(5);
/// Consecutive contradictions between the switch's report and /proc after which the switch is refused.
const CONTRADICTIONS: u32 = 2;

#[derive(Debug)]
pub(super) struct Quietwire {
    binary: PathBuf,
    processes: Vec<Process>,
}

impl Quietwire {
    pub(super) fn new(binary: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            processes: Vec::new(),
        }
    }

    fn command(&self, plan: &Plan) -> SwitchCommand {
        let mut command = SwitchCommand {
            program: self.binary.clone(),
            control_socket: control_socket(plan),
            ports: ports(plan),
            config: has_config(plan).then(|| config_file(plan)),
            rules: plan.rules.is_some().then(|| rules_file(plan)),
            forwarding_cpus: plan.cpus.clone(),
            ..SwitchCommand::default()
        };
        if !plan.program.routes() {
            join(plan, &mut command);
        }
        match &plan.settings {
            Some(settings) => set(settings, plan.forwarding, &mut command),
            None => {
                command.service_cpus = Some(plan.rest.clone());
                command.control_cpus = Some(plan.rest.clone());
                // On shared CPUs, idle threads yield to the others.
                command.idle = Some(if plan.is_shared {
                    Idle::Sleep
                } else {
                    Idle::Poll
                });
                let pairs = plan.ports.len().div_ceil(2).max(1);
                command.memory_mib =
                    Some(MEMORY_MIB.saturating_mul(u32::try_from(pairs).unwrap_or(u32::MAX)));
            }
        }
        command
    }

    /// Checks every thread's CPUs in /proc, independently of the switch's own report.
    fn wait_until_pinned(
        &mut self,
        plan: &Plan,
        context: &ElementContext<'_>,
    ) -> Result<(), LabError> {
        let is_pinned = |settings: &&SwitchSettings| settings.is_pinned;
        let Some(settings) = plan.settings.as_ref().filter(is_pinned) else {
            return Ok(());
        };
        let Some(pid) = self.processes.last().map(Process::pid) else {
            return Ok(());
        };
        let what = "keep its threads to their CPUs";
        let mut denied = None;
        let mut contradictions = 0_u32;
        context.wait_within(PINNED_DEADLINE, plan, &mut self.processes, what, || {
            let strays = strays(plan, settings, pid)?;
            let texts: Vec<&str> = strays.iter().map(|stray| stray.text.as_str()).collect();
            let text = texts.join("; ");
            // A thread may be moved between the report and the read of /proc, but not twice in a row.
            let is_denied = strays.iter().any(|stray| stray.is_denied);
            contradictions = match is_denied {
                true => contradictions.saturating_add(1),
                false => 0,
            };
            if contradictions == CONTRADICTIONS {
                denied = Some(text);
                return Ok(());
            }
            match strays.is_empty() {
                true => Ok(()),
                false => Err(text),
            }
        })?;
        denied.map_or(Ok(()), |text| {
            let what = format!("reports that it keeps its threads to their CPUs, but {text}");
            Err(plan.failed(what))
        })
    }
}

/// Names and URIs of its ports.
fn ports(plan: &Plan) -> Vec<(String, String)> {
    let ports = plan.ports.iter().enumerate();
    let ports = ports.map(|(index, port)| (format!("p{index}"), port.attachment.uri()));
    let neighbours = NEIGHBOUR_PORTS.iter().zip(&plan.neighbour_ports);
    let neighbours = neighbours.map(|(name, port)| ((*name).to_owned(), port.attachment.uri()));
    ports.chain(neighbours).collect()
}

/// Returns the name of a pair's bridge.
fn bridge(index: usize) -> String {
    format!("b{index}")
}

/// Joins ports in pairs; neighbours' ports are joined in pairs as well, separate from the others. Frames that the first bridge floods also
/// go to monitor ports.
fn join(plan: &Plan, command: &mut SwitchCommand) {
    let name = |port: &usize| format!("p{port}");
    let mut pairs: Vec<Vec<String>> = plan
        .joins
        .iter()
        .map(|pair| pair.iter().map(name).collect())
        .collect();
    if let Some(first) = pairs.first_mut() {
        first.extend(plan.monitors.iter().map(name));
    }
    if !plan.neighbour_ports.is_empty() {
        pairs.push(NEIGHBOUR_PORTS.map(str::to_owned).to_vec());
    }
    match plan.forwarding {
        Forwarding::CrossConnect => command.cross_connects = pairs,
        Forwarding::Bridge => {
            let named = |(index, ports)| (bridge(index), ports);
            command.bridges = pairs.into_iter().enumerate().map(named).collect();
        }
    }
}

/// Applies settings to a switch.
fn set(settings: &SwitchSettings, forwarding: Forwarding, command: &mut SwitchCommand) {
    command.service_cpus = Some(settings.service_cpus.clone());
    command.control_cpus = Some(settings.control_cpus.clone());
    command.is_pinned = Some(settings.is_pinned);
    command.idle = Some(settings.idle);
    command.huge_pages = Some(match settings.huge_pages {
        true => HugePages::Auto,
        false => HugePages::Never,
    });
    command.memory_mib = Some(settings.memory_mib);
    command.frame_size_max = Some(settings.frame_size_max);
    command.max_entries = (forwarding == Forwarding::Bridge).then_some(settings.mac_addresses_max);
    command.rx_ring_size = Some(settings.rx_ring_size);
    command.tx_ring_size = Some(settings.tx_ring_size);
}

/// A thread that may run on CPUs of another role.
struct MisplacedThread {
    text: String,
    /// The switch has reported otherwise just before: it does not keep the thread to its CPUs, however long one waits.
    is_denied: bool,
}

/// Threads that may run on CPUs of another role.
fn strays(
    plan: &Plan,
    settings: &SwitchSettings,
    pid: u32,
) -> Result<Vec<MisplacedThread>, String> {
    let named = threads(plan)?;
    let stray = |thread: &ThreadCpus| {
        let reported = named.iter().find(|other| other.tid == thread.tid);
        let role = reported.map_or(ThreadRole::Control, |other| other.role);
        let wanted = match role {
            ThreadRole::Forwarding => &plan.cpus,
            ThreadRole::Service => &settings.service_cpus,
            ThreadRole::Control => &settings.control_cpus,
        };
        let is_denied = reported.is_some_and(|other| other.cpus.difference(wanted).is_empty());
        (!thread.cpus.difference(wanted).is_empty()).then(|| MisplacedThread {
            text: format!(
                "thread {} ({}) may use CPUs {} instead of {wanted}",
                thread.name,
                role.name(),
                thread.cpus
            ),
            is_denied,
        })
    };
    let threads = threads_of(Path::new("/"), pid).map_err(|error| error.to_string())?;
    Ok(threads.iter().filter_map(stray).collect())
}

/// Its threads, as it reports them.
fn threads(plan: &Plan) -> Result<Vec<DeviceThread>, String> {
    let request = Request::Show(Subject::Threads);
    let threads: Vec<ThreadReport> = ask(&control_socket(plan), &request)?;
    let threads = threads.into_iter().map(|thread| DeviceThread {
        tid: thread.tid,
        name: thread.name,
        role: thread.role,
        cpus: thread.cpus,
    });
    Ok(threads.collect())
}

fn has_config(plan: &Plan) -> bool {
    plan.program.routes() || plan.config.is_some()
}

fn config_file(plan: &Plan) -> PathBuf {
    plan.directory.join("config.toml")
}

fn rules_file(plan: &Plan) -> PathBuf {
    plan.directory.join("rules.toml")
}

/// Returns the configuration file of a switch, without its ports and their joins.
fn config(plan: &Plan) -> Result<String, String> {
    match plan.program.routes() {
        // Routes to further destinations are added later.
        true => router::config(plan, 1),
        false => Ok(plan.config.clone().unwrap_or_default()),
    }
}

/// Checks the configuration of an element with its ports, joins and interfaces, before anything is started.
///
/// # Errors
/// The first fault, with its line.
pub(crate) fn check_config(plan: &Plan) -> Result<(), String> {
    let mut text = config(plan)? + "\n";
    for index in 0..plan.ports.len() {
        text += &format!("[[port]]\nname = \"p{index}\"\nuri = \"null:\"\n");
    }
    if !plan.program.routes() {
        for [from, to] in &plan.joins {
            text += &format!("[[cross-connect]]\nports = [\"p{from}\", \"p{to}\"]\n");
        }
    }
    let online = CpuList::from_iter([0, 1].map(CpuId));
    let settings =
        Settings::parse(Path::new("config"), &text).map_err(|error| error.to_string())?;
    settings
        .plan(&online)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn control_socket(plan: &Plan) -> PathBuf {
    plan.directory.join("switch.sock")
}

impl Forwarder for Quietwire {
    fn probe(&self) -> Result<String, Unavailable> {
        version_line(&self.binary)
            .ok_or_else(|| Unavailable(format!("{} does not run", self.binary.display())))
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        if has_config(plan) {
            let path = config_file(plan);
            let text = config(plan).map_err(LabError::Topology)?;
            std::fs::write(&path, text).map_err(io_error(&path, "writing it"))?;
        }
        if let Some(rules) = &plan.rules {
            let path = rules_file(plan);
            std::fs::write(&path, rules).map_err(io_error(&path, "writing it"))?;
        }
        let process = context.spawn(plan, "log", &[], &self.command(plan).words())?;
        self.processes = vec![process];
        let processes = &mut self.processes;
        context.wait_until(plan, processes, "answer at its control socket", || {
            threads(plan).map(|_| ())
        })?;
        self.wait_until_pinned(plan, context)
    }

    /// Adds routes to many destinations in batches: a configuration file with as many routes takes long to parse.
    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        if !plan.program.routes() || plan.destinations == 1 {
            return Ok(());
        }
        let of = |destinations| router::routing(plan, destinations).map_err(LabError::Topology);
        // Those of the configuration file are there already.
        let (known, routing) = (of(1)?, of(plan.destinations)?);
        let routes = routing.routes.iter();
        let lines: Vec<String> = routes
            .filter(|route| !known.routes.contains(route))
            .map(|(prefix, gateway)| format!("{prefix} {gateway}"))
            .collect();
        let file = plan.directory.join("destinations");
        std::fs::write(&file, lines.join("\n")).map_err(io_error(&file, "writing routes"))?;
        let [binary, file, socket] =
            [&self.binary, &file, &control_socket(plan)].map(|path| path.display().to_string());
        let words = [
            "switch",
            "add",
            "routes",
            &file,
            "--control-socket",
            &socket,
        ];
        context.run(&[&[binary.as_str()][..], &words].concat())?;
        Ok(())
    }

    fn cycles(&self, plan: &Plan) -> Result<Option<CycleCount>, String> {
        let request = Request::Show(Subject::Cycles);
        let reported: CyclesReport = ask(&control_socket(plan), &request)?;
        Ok(Some(CycleCount::of_quietwire(&reported)))
    }

    fn cycle_reader(&self, plan: &Plan) -> Option<CycleReader> {
        Some(CycleReader::new(control_socket(plan)))
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        own_view_of_switch(&control_socket(plan), deadline)
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        of_switch(&control_socket(plan), deadline)
    }

    fn restart(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.processes.iter_mut().try_for_each(Process::kill)?;
        for socket in plan.own_sockets() {
            // A socket that is left behind would look like a running device.
            remove_if_exists(socket).map_err(io_error(socket, "removing the killed device's"))?;
        }
        self.start(plan, context)
    }

    fn forget_addresses(&self, plan: &Plan) -> Result<(), String> {
        (0..plan.joins.len()).try_for_each(|index| {
            let flush = Request::FlushFdb {
                bridge: bridge(index),
                port: None,
                vlan: None,
            };
            ask::<IgnoredAny>(&control_socket(plan), &flush).map(|_| ())
        })
    }

    fn threads(&self, plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        threads(plan)
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let file: String = ask(&control_socket(plan), &Request::Show(Subject::Config))?;
        Ok(file.lines().map(str::to_owned).collect())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;
    use crate::element::{Attachment, PortPlan};
    use crate::topology::Program;

    fn options(plan: &Plan) -> String {
        let quietwire = Quietwire::new(Path::new("/bin/quietwire"));
        let words = quietwire.command(plan).words();
        words[3..].join(" ")
    }

    /// Returns the plan of a switch between two pairs of ports.
    fn switch(forwarding: Forwarding) -> Plan {
        let one = plan(Path::new("/lab"));
        Plan {
            program: Program::Quietwire,
            ports: [&one.ports[..], &one.ports[..]].concat(),
            joins: vec![[0, 1], [2, 3]],
            forwarding,
            cpus: "1".parse().unwrap(),
            rest: "0".parse().unwrap(),
            is_shared: false,
            ..one
        }
    }

    fn settings() -> SwitchSettings {
        SwitchSettings {
            service_cpus: "2".parse().unwrap(),
            control_cpus: "3".parse().unwrap(),
            rx_ring_size: 512,
            tx_ring_size: 2048,
            idle: Idle::Yield,
            is_pinned: true,
            huge_pages: true,
            memory_mib: 192,
            frame_size_max: 9018,
            mac_addresses_max: 1024,
            has_neighbour_ports: false,
        }
    }

    #[test]
    fn ports_are_joined_in_pairs_on_the_cpus_of_the_topology() {
        let printed = options(&switch(Forwarding::CrossConnect));
        for part in [
            "--control-socket /lab/switch.sock",
            "--port p3=memif:/lab/l1.sock?role=server&id=0",
            "--cross-connect p0,p1 --cross-connect p2,p3",
            "--forwarding-cpus 1 --service-cpus 0 --control-cpus 0",
            "--idle poll",
            "--memory-mib 128",
        ] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert!(!printed.contains("ring-size") && !printed.contains("--pinning"));
        let shared = Plan {
            is_shared: true,
            ..switch(Forwarding::Bridge)
        };
        let printed = options(&shared);
        assert!(
            printed.contains("--bridge b0=p0,p1 --bridge b1=p2,p3"),
            "{printed}"
        );
        assert!(printed.contains("--idle sleep"), "{printed}");
        let router = Plan {
            program: Program::QuietwireRouter,
            ..switch(Forwarding::CrossConnect)
        };
        let printed = options(&router);
        assert!(printed.contains("--config /lab/config.toml"), "{printed}");
        assert!(!printed.contains("--cross-connect"), "{printed}");
    }

    #[test]
    fn settings_take_the_place_of_what_is_usual() {
        let alone = Plan {
            settings: Some(settings()),
            ..switch(Forwarding::Bridge)
        };
        let printed = options(&alone);
        for part in [
            "--forwarding-cpus 1 --service-cpus 2 --control-cpus 3 --pinning roles --idle yield --huge-pages auto",
            "--memory-mib 192 --frame-size-max 9018 --max-entries 1024 --rx-ring-size 512 --tx-ring-size 2048",
        ] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert_eq!(alone.affinity(), Some("0-1".parse().unwrap()));
        let free = Plan {
            settings: Some(SwitchSettings {
                is_pinned: false,
                huge_pages: false,
                ..settings()
            }),
            ..switch(Forwarding::CrossConnect)
        };
        let printed = options(&free);
        assert!(
            printed.contains("--pinning none --idle yield --huge-pages never"),
            "{printed}"
        );
        assert!(!printed.contains("--max-entries"), "{printed}");
        assert_eq!(free.affinity(), None);
    }

    #[test]
    fn neighbours_have_ports_apart_and_a_monitor_sees_the_first_bridge() {
        let port = |name: &str| PortPlan {
            attachment: Attachment::Memif {
                socket: format!("/lab/{name}.sock").into(),
                is_server: true,
            },
        };
        let beside = |forwarding| Plan {
            joins: vec![[0, 1]],
            ports: ["l0", "l1", "l2"].map(port).to_vec(),
            monitors: vec![2],
            neighbour_ports: NEIGHBOUR_PORTS.map(port).to_vec(),
            ..switch(forwarding)
        };
        let bridged = beside(Forwarding::Bridge);
        let printed = options(&bridged);
        for part in [
            "--port n0=memif:/lab/n0.sock?role=server&id=0",
            "--bridge b0=p0,p1,p2 --bridge b1=n0,n1",
        ] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        let sockets: Vec<_> = bridged.own_sockets().collect();
        assert_eq!(sockets.len(), 5);
        let printed = options(&Plan {
            monitors: Vec::new(),
            ..beside(Forwarding::CrossConnect)
        });
        assert!(
            printed.contains("--cross-connect p0,p1 --cross-connect n0,n1"),
            "{printed}"
        );
    }
}
