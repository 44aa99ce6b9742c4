// SPDX-License-Identifier: Apache-2.0
//! VPP, of FD.io, driven by its command line: interfaces are created while it runs, and cross-connected or bridged in pairs. Debian has no
//! package of it; the lab uses `vpp` and `vppctl` of the search path.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use quietwire_base::{Deadline, find_program};
use quietwire_host::settings;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::installed::{not_installed, version_line};
use super::vdev::threads;
use crate::counts::{TIMEOUT, of_interfaces, run_until};
use crate::cycles::CycleCount;
use crate::element::{Attachment, ElementContext, Plan, Process, run};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::statistics::Statistics;
use crate::thread::DeviceThread;
use crate::topology::Forwarding;
use crate::unavailable::Unavailable;

/// Command that prints the counts of the nodes.
const RUNTIME: &str = "show runtime";

/// Huge pages of 2 MiB that are free on each NUMA node if VPP uses huge pages. Its buffers occupy 20 on each node, and its DPDK plugin
/// reserves 8. If fewer are free, VPP enlarges the pool of the node and does not restore it.
const FREE_HUGE_PAGES_MIN: u64 = 32;

/// Pages of VPP's buffers. Its heap has ordinary pages, as by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BufferPages {
    #[default]
    Ordinary,
    Huge,
}

impl BufferPages {
    /// Selects huge pages if enough are free, so that VPP leaves the size of the pool unchanged.
    const fn with_free(pages: u64) -> Self {
        if pages >= FREE_HUGE_PAGES_MIN {
            Self::Huge
        } else {
            Self::Ordinary
        }
    }
}

/// Counts of the nodes until they were last cleared. VPP prints means of three digits: since its start, they would be too inexact for a
/// trial.
#[derive(Debug, Default)]
struct Cleared {
    count: CycleCount,
    /// Counters of all nodes, and the means of the last interval.
    view: OwnView,
}

#[derive(Debug)]
pub(super) struct Vpp {
    daemon: Option<PathBuf>,
    client: Option<PathBuf>,
    processes: Vec<Process>,
    pages: BufferPages,
    cleared: RefCell<Cleared>,
}

impl Default for Vpp {
    fn default() -> Self {
        Self::of(find_program("vpp"), find_program("vppctl"))
    }
}

impl Vpp {
    /// Uses these two programs.
    pub(super) fn of(daemon: Option<PathBuf>, client: Option<PathBuf>) -> Self {
        Self {
            daemon,
            client,
            processes: Vec::new(),
            pages: BufferPages::default(),
            cleared: RefCell::default(),
        }
    }

    /// Reads the counts of its nodes, and clears them: the next reading is the interval from now on. Returns their sum since the start.
    fn read_and_clear(&self, plan: &Plan, deadline: Deadline) -> Result<CycleCount, String> {
        let printed = self.ask_until(plan, RUNTIME, deadline)?;
        let interval = CycleCount::of_vpp(&printed)?;
        let view = OwnView::of_runtime(&printed)?;
        let refused = self.ask_until(plan, "clear runtime", deadline)?;
        if !refused.trim().is_empty() {
            return Err(format!("`clear runtime` printed '{}'", refused.trim()));
        }
        let mut cleared = self.cleared.borrow_mut();
        cleared.count.add(&interval);
        let earlier = std::mem::take(&mut cleared.view).without_values();
        cleared.view = view.with_interval(&earlier);
        Ok(cleared.count.clone())
    }

    /// Returns its client with a line of its command line.
    fn words(&self, plan: &Plan, line: &str) -> Vec<String> {
        let client = self.client.clone().unwrap_or_else(|| "vppctl".into());
        let first = [
            client.display().to_string(),
            "-s".to_owned(),
            cli_socket(plan),
        ];
        first
            .into_iter()
            .chain(line.split(' ').map(str::to_owned))
            .collect()
    }

    /// Returns its output. vppctl prints errors there as well, and exits with 0.
    fn ask(&self, plan: &Plan, line: &str) -> Result<String, String> {
        let words = self.words(plan, line);
        run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// As [`Self::ask`], until a deadline.
    fn ask_until(&self, plan: &Plan, line: &str, deadline: Deadline) -> Result<String, String> {
        let words = self.words(plan, line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run_until(deadline, &words)
    }

    fn run_vppctl(
        &self,
        plan: &Plan,
        context: &mut ElementContext<'_>,
        line: &str,
    ) -> Result<String, LabError> {
        let words = self.words(plan, line);
        let printed = context.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let complains = ["unknown input", "failed", "error", "not found"];
        if complains.iter().any(|word| printed.contains(word)) {
            return Err(LabError::Command {
                command: words.join(" "),
                printed: printed.trim().to_owned(),
            });
        }
        Ok(printed)
    }
}

fn cli_socket(plan: &Plan) -> String {
    plan.directory.join("cli.sock").display().to_string()
}

/// Returns its startup file (VPP documentation: configuration/reference).
fn startup(plan: &Plan, pages: BufferPages) -> String {
    let rest = plan.rest.first().map_or(0, |cpu| cpu.0);
    let mut text = format!(
        "unix {{ nodaemon cli-listen {} log {} runtime-dir {} }}\n",
        cli_socket(plan),
        plan.directory.join("vpp.log").display(),
        plan.directory.display()
    );
    // A write to a string cannot fail.
    let _ = writeln!(
        text,
        "cpu {{ main-core {rest} corelist-workers {} }}",
        plan.cpus
    );
    let page_size = match pages {
        BufferPages::Ordinary => "default",
        BufferPages::Huge => "default-hugepage",
    };
    text += "memory { main-heap-page-size default }\n";
    let _ = writeln!(text, "buffers {{ page-size {page_size} }}");
    let _ = writeln!(text, "api-segment {{ prefix {} }}", plan.tag);
    let cards: Vec<&str> = plan
        .ports
        .iter()
        .filter_map(|port| match &port.attachment {
            Attachment::Pci { address } => Some(address.as_str()),
            _ => None,
        })
        .collect();
    if cards.is_empty() {
        text += "plugins { plugin dpdk_plugin.so { disable } }\n";
    } else {
        let memory = match pages {
            BufferPages::Ordinary => " no-hugetlb",
            BufferPages::Huge => "",
        };
        let _ = writeln!(text, "dpdk {{ dev {}{memory} }}", cards.join(" dev "));
    }
    text
}

/// Returns the name of a port's interface, and the commands that create it.
fn interface(index: usize, attachment: &Attachment) -> Result<(String, Vec<String>), LabError> {
    Ok(match attachment {
        Attachment::Memif { socket, is_server } => {
            let id = index.saturating_add(1);
            let role = if *is_server { "master" } else { "slave" };
            let lines = vec![
                format!("create memif socket id {id} filename {}", socket.display()),
                format!("create interface memif id 0 socket-id {id} {role}"),
            ];
            (format!("memif{id}/0"), lines)
        }
        Attachment::Vhost { socket, is_server } => {
            let server = if *is_server { " server" } else { "" };
            let line = format!("create vhost-user socket {}{server}", socket.display());
            (format!("VirtualEthernet0/0/{index}"), vec![line])
        }
        Attachment::Interface { name } => (
            format!("host-{name}"),
            vec![format!("create host-interface name {name}")],
        ),
        Attachment::Pci { .. } | Attachment::VirtioUser { .. } | Attachment::Tap { .. } => {
            return Err(LabError::Topology(
                "VPP supports memif, vhost-user and kernel interfaces here, and no other link"
                    .to_owned(),
            ));
        }
    })
}

fn name(plan: &Plan, port: usize) -> Result<String, LabError> {
    let of_port = plan.ports.get(port).ok_or_else(|| plan.no_port(port))?;
    interface(port, &of_port.attachment).map(|(name, _)| name)
}

impl Forwarder for Vpp {
    fn probe(&self) -> Result<String, Unavailable> {
        for (name, found) in [("vpp", &self.daemon), ("vppctl", &self.client)] {
            if found.is_none() {
                return Err(not_installed(name, "fd.io has packages, Debian has none"));
            }
        }
        let daemon = self.daemon.clone().unwrap_or_default();
        version_line(&daemon).ok_or_else(|| Unavailable("vpp does not run".to_owned()))
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let file = plan.directory.join("startup.conf");
        let free = settings::huge_pages_free_on_each_node(Path::new("/"));
        self.pages = BufferPages::with_free(free);
        std::fs::write(&file, startup(plan, self.pages))
            .map_err(io_error(&file, "writing its startup file"))?;
        let daemon = self.daemon.clone().unwrap_or_else(|| "vpp".into());
        let command = ["-c".to_owned(), file.display().to_string()];
        let words: Vec<String> = std::iter::once(daemon.display().to_string())
            .chain(command)
            .collect();
        let process = context.spawn(plan, "log", &[], &words)?;
        let mut processes = vec![process];
        let outcome = context.wait_until(plan, &mut processes, "answer", || {
            self.ask(plan, "show version").map(|_| ())
        });
        self.processes = processes;
        outcome
    }

    fn connect(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for (index, port) in plan.ports.iter().enumerate() {
            let (name, lines) = interface(index, &port.attachment)?;
            for line in lines {
                self.run_vppctl(plan, context, &line)?;
            }
            self.run_vppctl(plan, context, &format!("set interface state {name} up"))?;
        }
        Ok(())
    }

    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for (join, [from, to]) in plan.joins.iter().enumerate() {
            let [from, to] = [name(plan, *from)?, name(plan, *to)?];
            let lines = match plan.forwarding {
                Forwarding::CrossConnect => [
                    format!("set interface l2 xconnect {from} {to}"),
                    format!("set interface l2 xconnect {to} {from}"),
                ],
                Forwarding::Bridge => {
                    let bridge = join.saturating_add(1);
                    [&from, &to].map(|name| format!("set interface l2 bridge {name} {bridge}"))
                }
            };
            for line in lines {
                self.run_vppctl(plan, context, &line)?;
            }
        }
        Ok(())
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        let ask = |line: &str| self.ask_until(plan, line, deadline);
        let (interfaces, errors) = (ask("show interface")?, ask("show errors")?);
        let mut counts = ElementCounts::default();
        for port in 0..plan.ports.len() {
            let name = name(plan, port).map_err(|error| error.to_string())?;
            let port_counts = of_interfaces(&interfaces, &errors, &name);
            counts.ports.insert(format!("p{port}"), port_counts);
        }
        Ok(counts)
    }

    fn cycles(&self, plan: &Plan) -> Result<Option<CycleCount>, String> {
        let deadline = Deadline::after(TIMEOUT);
        self.read_and_clear(plan, deadline).map(Some)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        let ask = |line: &str| self.ask_until(plan, line, deadline);
        let since = OwnView::of_runtime(&ask(RUNTIME)?)?;
        let view = self.cleared.borrow().view.clone().with_interval(&since);
        let view = view.with_errors(ask("show errors"));
        let mut statistics = Statistics::default();
        let interfaces = "show interface";
        statistics.read(interfaces, ask(interfaces), Statistics::of_vpp_interfaces);
        let hardware = "show hardware-interfaces";
        statistics.read(hardware, ask(hardware), Statistics::of_vpp_hardware);
        for port in 0..plan.ports.len() {
            if let Ok(name) = name(plan, port) {
                statistics.rename(&name, &format!("p{port}"));
            }
        }
        Ok(view.with_statistics(statistics))
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        let process = self.processes.first().ok_or("it was not started")?;
        threads(process.pid(), |name| name.starts_with("vpp_wk"))
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let text = startup(plan, self.pages);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for question in ["show mode", "show memif", "show vhost-user"] {
            // Not every build has all of them.
            if let Ok(reported) = self.ask(plan, question) {
                lines.extend(reported.lines().map(str::to_owned));
            }
        }
        Ok(lines)
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    /// Returns the startup file for a number of free huge pages, by line.
    fn lines(plan: &Plan, free: u64) -> Vec<String> {
        let text = startup(plan, BufferPages::with_free(free));
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn vpp_uses_huge_pages_only_if_enough_are_free() {
        let mut plan = plan(Path::new("/lab"));
        let heap = "memory { main-heap-page-size default }".to_owned();
        for (free, buffers) in [
            (0, "buffers { page-size default }"),
            (FREE_HUGE_PAGES_MIN - 1, "buffers { page-size default }"),
            (
                FREE_HUGE_PAGES_MIN,
                "buffers { page-size default-hugepage }",
            ),
        ] {
            let lines = lines(&plan, free);
            assert!(lines.contains(&heap), "{lines:?}");
            let found: Vec<&String> = lines
                .iter()
                .filter(|line| line.starts_with("buffers"))
                .collect();
            assert_eq!(found, [buffers], "{free}");
        }
        let address = "0000:00:05.0".to_owned();
        plan.ports.truncate(1);
        plan.ports[0].attachment = Attachment::Pci { address };
        for (free, dpdk) in [
            (0, "dpdk { dev 0000:00:05.0 no-hugetlb }"),
            (FREE_HUGE_PAGES_MIN, "dpdk { dev 0000:00:05.0 }"),
        ] {
            let lines = lines(&plan, free);
            assert!(lines.iter().any(|line| line == dpdk), "{lines:?}");
        }
    }
}
