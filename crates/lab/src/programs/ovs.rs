// SPDX-License-Identifier: Apache-2.0
//! Common parts of both kinds of Open vSwitch in user space: their own database, sockets and log in the element's directory, apart from the
//! system's.

use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::installed::{not_installed, version_line};
use super::kernel;
use super::networks::{Side, TESTER, drawn, sides};
use crate::counts::{of_dump, run_until};
use crate::cycles::CycleCount;
use crate::element::{Attachment, ElementContext, Plan, Process, run};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::statistics::Statistics;
use crate::topology::{Encapsulation, Forwarding};
use crate::unavailable::Unavailable;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const DATABASE_SERVER: &str = "/usr/sbin/ovsdb-server";

/// An Open vSwitch.
#[derive(Debug)]
pub(super) struct Ovs {
    daemon: &'static str,
    package: &'static str,
    pub(super) processes: Vec<Process>,
}

impl Ovs {
    pub(super) fn new(daemon: &'static str, package: &'static str) -> Self {
        Self {
            daemon,
            package,
            processes: Vec::new(),
        }
    }

    pub(super) fn probe(&self) -> Result<String, Unavailable> {
        for path in [self.daemon, SCHEMA, DATABASE_SERVER] {
            if !Path::new(path).exists() {
                let how = format!("run `apt-get install {}`", self.package);
                return Err(not_installed(path, &how));
            }
        }
        version_line(Path::new(self.daemon))
            .ok_or_else(|| Unavailable(format!("{} does not run", self.daemon)))
    }

    /// Starts database and daemon; `settings` are keys of the table Open_vSwitch (ovs-vswitchd.conf.db(5)).
    pub(super) fn start(
        &mut self,
        plan: &Plan,
        context: &mut ElementContext<'_>,
        settings: &[String],
    ) -> Result<(), LabError> {
        let place = |name: &str| plan.directory.join(name).display().to_string();
        context.run(&["ovsdb-tool", "create", &place("conf.db"), SCHEMA])?;
        let database = [
            DATABASE_SERVER.to_owned(),
            place("conf.db"),
            format!("--remote=punix:{}", place("db.sock")),
            format!("--unixctl={}", place("db.ctl")),
        ];
        let process = context.spawn(plan, "database.log", &environment(plan), &database)?;
        self.processes.push(process);
        let socket = plan.directory.join("db.sock");
        context.wait_until(plan, &mut self.processes, "open its database", || {
            socket
                .exists()
                .then_some(())
                .ok_or_else(|| "there is no socket".to_owned())
        })?;
        vsctl(plan, context, &["--no-wait", "init"])?;
        if !settings.is_empty() {
            let mut words = vec!["--no-wait", "set", "Open_vSwitch", "."];
            words.extend(settings.iter().map(String::as_str));
            vsctl(plan, context, &words)?;
        }
        let daemon = [
            self.daemon.to_owned(),
            format!("unix:{}", place("db.sock")),
            format!("--unixctl={}", place("daemon.ctl")),
            format!("--log-file={}", place("daemon.log")),
        ];
        let process = context.spawn(plan, "log", &environment(plan), &daemon)?;
        self.processes.push(process);
        context.wait_until(plan, &mut self.processes, "answer", || {
            appctl(plan, &["version"]).map(|_| ())
        })
    }

    /// Creates bridges and ports: one bridge for all pairs of ports that rules join, one bridge for each pair if addresses decide.
    pub(super) fn connect(
        &self,
        plan: &Plan,
        context: &mut ElementContext<'_>,
    ) -> Result<(), LabError> {
        for bridge in bridges(plan) {
            let words = [
                "add-br",
                &bridge,
                "--",
                "set",
                "bridge",
                &bridge,
                "datapath_type=netdev",
            ];
            vsctl(plan, context, &words)?;
        }
        for (join, ports) in plan.joins.iter().enumerate() {
            for port in ports {
                let name = format!("p{port}");
                let bridge = bridge_of(plan, join);
                let of_port = plan.ports.get(*port).ok_or_else(|| plan.no_port(*port))?;
                let interface = interface(&of_port.attachment)?;
                let number = format!("ofport_request={}", openflow_number(*port));
                let mut words = vec![
                    "add-port",
                    &bridge,
                    &name,
                    "--",
                    "set",
                    "interface",
                    &name,
                    &number,
                ];
                words.extend(interface.iter().map(String::as_str));
                vsctl(plan, context, &words)?;
            }
        }
        Ok(())
    }

    /// Rules from port to port, or learned addresses, or routes. No frame goes to the bridge's own interface.
    pub(super) fn program(
        &self,
        plan: &Plan,
        context: &mut ElementContext<'_>,
    ) -> Result<(), LabError> {
        for bridge in bridges(plan) {
            let target = management(plan, &bridge);
            context.run(&["ovs-ofctl", "mod-port", &target, &bridge, "no-flood"])?;
        }
        if plan.forwarding == Forwarding::Bridge && !plan.program.routes() {
            return Ok(());
        }
        let target = management(plan, &bridge_of(plan, 0));
        context.run(&["ovs-ofctl", "del-flows", &target])?;
        if plan.program.routes() {
            let file = plan.directory.join("routes");
            let routes = routes(plan).join("\n");
            std::fs::write(&file, routes).map_err(io_error(&file, "writing routes"))?;
            let file = file.display().to_string();
            context.run(&["ovs-ofctl", "add-flows", &target, &file])?;
            return Ok(());
        }
        for [first, second] in &plan.joins {
            for (from, to) in [(first, second), (second, first)] {
                let rule = format!(
                    "in_port={},actions=output:{}",
                    openflow_number(*from),
                    openflow_number(*to)
                );
                context.run(&["ovs-ofctl", "add-flow", &target, &rule])?;
            }
        }
        Ok(())
    }

    /// Counters of its ports. A port's number is one more than the number in its name.
    pub(super) fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        let mut counts = ElementCounts::default();
        for bridge in bridges(plan) {
            let ports = of_dump(&dump_ports(plan, &bridge, deadline)?)?.into_iter();
            counts.ports.extend(ports.filter_map(|(number, port)| {
                let index = number.checked_sub(1)?;
                Some((format!("p{index}"), port))
            }));
        }
        Ok(counts)
    }

    /// Counters of its polling threads since their start.
    pub(super) fn cycles(&self, plan: &Plan) -> Result<CycleCount, String> {
        CycleCount::of_ovs(&appctl(plan, &["dpif-netdev/pmd-stats-show"])?)
    }

    /// Its polling threads' own view of their work, and the statistics of its ports. The kernel has statistics of its interfaces.
    pub(super) fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        let control = plan.directory.join("daemon.ctl").display().to_string();
        let words = ["ovs-appctl", "--timeout=5", "-t", &control];
        let words = [&words[..], &["dpif-netdev/pmd-perf-show"][..]].concat();
        let view = OwnView::of_pmd_perf(&run_until(deadline, &words)?)?;
        let mut statistics = Statistics::default();
        for bridge in bridges(plan) {
            let source = format!("ovs-ofctl dump-ports {bridge}");
            let printed = dump_ports(plan, &bridge, deadline);
            statistics.read(&source, printed, Statistics::of_dump);
        }
        kernel::driver_statistics(plan, deadline, &mut statistics);
        Ok(view.with_statistics(statistics))
    }

    /// Its database's settings, bridges and flows.
    pub(super) fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let database = database(plan);
        let mut reported = run(&["ovs-vsctl", &database, "--timeout=5", "show"])?;
        reported += &run(&[
            "ovs-vsctl",
            &database,
            "--timeout=5",
            "get",
            "Open_vSwitch",
            ".",
            "other_config",
        ])?;
        for bridge in bridges(plan) {
            reported += &run(&[
                "ovs-ofctl",
                "dump-flows",
                "--no-stats",
                &management(plan, &bridge),
            ])?;
        }
        Ok(reported.lines().map(str::to_owned).collect())
    }

    pub(super) fn daemon_pid(&self) -> Result<u32, String> {
        let daemon = self.processes.get(1).ok_or("it was not started")?;
        Ok(daemon.pid())
    }
}

/// Flows that route between the tester's networks: a frame to the router's MAC address is forwarded by its destination, with new MAC
/// addresses and a TTL that is one less (ovs-actions(7)). A packet without a route is dropped.
fn routes(plan: &Plan) -> Vec<String> {
    let matched = match plan.encapsulation {
        Encapsulation::Ipv6 => "ipv6,ipv6_dst",
        _ => "ip,nw_dst",
    };
    let [first, second] = TESTER;
    let sides = sides(plan.encapsulation);
    let of = |(port, side): (usize, &Side)| {
        let (own, next) = match port {
            0 => (second, first),
            _ => (first, second),
        };
        // The tester sends to the MAC address of its port on this side, which the router has on the other side, where frames arrive.
        let flow = move |network: String| {
            format!(
                "dl_dst={next},{matched}={network},actions=mod_dl_src:{own},mod_dl_dst:{next},dec_ttl,output:{}",
                openflow_number(port)
            )
        };
        let drawn = drawn(plan.encapsulation, port, plan.destinations);
        std::iter::once(side.network.to_owned())
            .chain(drawn)
            .map(flow)
    };
    sides.iter().enumerate().flat_map(of).collect()
}

/// Returns the OpenFlow number of a port: one more than the number in its name.
fn openflow_number(port: usize) -> usize {
    port.saturating_add(1)
}

fn environment(plan: &Plan) -> Vec<(&'static str, String)> {
    let directory = plan.directory.display().to_string();
    ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"]
        .map(|key| (key, directory.clone()))
        .to_vec()
}

fn database(plan: &Plan) -> String {
    format!("--db=unix:{}", plan.directory.join("db.sock").display())
}

fn vsctl(
    plan: &Plan,
    context: &mut ElementContext<'_>,
    words: &[&str],
) -> Result<String, LabError> {
    let database = database(plan);
    let first = ["ovs-vsctl", &database, "--timeout=30"];
    context.run(&[&first[..], words].concat())
}

/// Sends a command to the daemon.
pub(super) fn appctl(plan: &Plan, words: &[&str]) -> Result<String, String> {
    let control = plan.directory.join("daemon.ctl").display().to_string();
    let first = ["ovs-appctl", "--timeout=5", "-t", &control];
    run(&[&first[..], words].concat())
}

fn management(plan: &Plan, bridge: &str) -> String {
    let socket: PathBuf = plan.directory.join(format!("{bridge}.mgmt"));
    format!("unix:{}", socket.display())
}

/// Returns the counters of a bridge's ports, as `ovs-ofctl` prints them. OpenFlow 1.4 is the first version with those of drivers.
fn dump_ports(plan: &Plan, bridge: &str, deadline: Deadline) -> Result<String, String> {
    let target = management(plan, bridge);
    let first = ["ovs-ofctl", "--no-names", "-O", "OpenFlow14"];
    let words = [&first[..], &["dump-ports", &target][..]].concat();
    run_until(deadline, &words)
}

fn bridge_of(plan: &Plan, join: usize) -> String {
    match plan.forwarding {
        Forwarding::CrossConnect => "br0".to_owned(),
        Forwarding::Bridge => format!("br{join}"),
    }
}

fn bridges(plan: &Plan) -> Vec<String> {
    let mut all: Vec<String> = (0..plan.joins.len())
        .map(|join| bridge_of(plan, join))
        .collect();
    all.dedup();
    all
}

/// Columns of the table Interface.
fn interface(attachment: &Attachment) -> Result<Vec<String>, LabError> {
    Ok(match attachment {
        Attachment::Vhost {
            socket,
            is_server: false,
        } => vec![
            "type=dpdkvhostuserclient".to_owned(),
            format!("options:vhost-server-path={}", socket.display()),
        ],
        // Its socket is in the run directory, named after the port.
        Attachment::Vhost { .. } => vec!["type=dpdkvhostuser".to_owned()],
        Attachment::Interface { .. } => Vec::new(),
        Attachment::Pci { address } => vec![
            "type=dpdk".to_owned(),
            format!("options:dpdk-devargs={address}"),
        ],
        Attachment::Memif { .. } | Attachment::VirtioUser { .. } | Attachment::Tap { .. } => {
            return Err(LabError::Topology(
                "Open vSwitch supports vhost-user, kernel interfaces and network cards here, and no other link".to_owned(),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn a_router_has_a_flow_for_each_network_of_the_tester() {
        let one = Plan {
            encapsulation: Encapsulation::Ipv4,
            ..plan(Path::new("/nowhere"))
        };
        assert_eq!(
            routes(&one),
            [
                "dl_dst=02:00:00:00:00:00,ip,nw_dst=198.18.0.0/24,actions=mod_dl_src:02:01:00:00:00:00,mod_dl_dst:02:00:00:00:00:00,dec_ttl,output:1",
                "dl_dst=02:01:00:00:00:00,ip,nw_dst=198.18.1.0/24,actions=mod_dl_src:02:00:00:00:00:00,mod_dl_dst:02:01:00:00:00:00,dec_ttl,output:2",
            ]
        );
        let many = Plan {
            encapsulation: Encapsulation::Ipv6,
            destinations: 2000,
            ..one
        };
        let flows = routes(&many);
        assert_eq!(flows.len(), 4002);
        assert!(
            flows[2000].contains("ipv6,ipv6_dst=3fff:20:7cf::/48,"),
            "{}",
            flows[2000]
        );
        assert!(
            flows[4001].contains("ipv6,ipv6_dst=3fff:0:7cf::/48,"),
            "{}",
            flows[4001]
        );
    }
}
