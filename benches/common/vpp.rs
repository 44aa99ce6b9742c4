// SPDX-License-Identifier: Apache-2.0
//! VPP of FD.io as the peer, with `vpp` and `vppctl` of `PATH` and all files in a private directory; nothing of the system's is
//! used. Ports are memif servers with quietwire's rings; one worker forwards, on the same CPU as quietwire's. Plugins that a case
//! does not require are disabled.
//!
//! Cycles are those of the nodes of the worker's graph (`show runtime`, three significant digits). The cycles of `memif-input`
//! contain empty polls: their cost is measured while the tester is connected and silent, and subtracted for each poll after which
//! `ethernet-input` had no frames. If frames go both ways, some empty polls stay.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use quietwire_base::find_program;
use quietwire_lab::{OwnView, PartView};

use super::placement::{HELPERS_PRIORITY, helper_cpu, place_threads};
use super::record::{Absent, Run, Side};
use super::switch::Work;
use super::words::VPP;
use super::{
    DEADLINE, DEVICE_CPU, Load, RING_SIZE, Running, huge_pages_free, log_into, tail, wait_until,
};

/// Plugins of cases.
pub(crate) const ACL: &str = "acl_plugin.so";
pub(crate) const NAT: &str = "nat_plugin.so";
const MEMIF: &str = "memif_plugin.so";

/// Maximum number of frames received at once: compiled in (`VLIB_FRAME_SIZE`).
const BURST: u32 = 256;
/// Main heap, MiB.
const HEAP_MIB: u64 = 1024;
const BUFFERS: u32 = 32_768;
/// Huge pages of 2 MiB for the main heap and the buffers.
pub(crate) const HUGE_PAGES: u64 = 640;
/// Maximum number of routes that load within seconds.
pub(crate) const ROUTES_MAX: u32 = 200_000;
/// Buckets of the table of MAC addresses by default.
const BUCKETS: u32 = 1 << 18;
/// Time limit of a command, which may be a file of commands.
const COMMAND_S: &str = "300";

const PORTS: [&str; 2] = ["memif1/0", "memif2/0"];
/// MAC addresses of the ports: those to which the tester's ports send.
const MACS: [&str; 2] = ["02:01:00:00:00:00", "02:00:00:00:00:00"];
const WORKER: &str = "vpp_wk_0";
const INPUT: &str = "memif-input";
const ETHERNET_INPUT: &str = "ethernet-input";

/// Time in which the tester is connected and silent.
const SETTLE: [&str; 2] = ["--settle", "2s"];
/// Part of that time in which empty polls are measured.
const SILENCE: Duration = Duration::from_millis(300);

/// Returns true if it can be started.
pub(crate) fn is_installed() -> bool {
    missing().is_none()
}

/// Returns the program that is not in PATH.
fn missing() -> Option<&'static str> {
    let mut programs = ["vpp", "vppctl"].into_iter();
    programs.find(|name| find_program(name).is_none())
}

/// Adds VPP to a run: as a side if it is measured, otherwise as absent, so that the goals that compare with it state why they have no
/// verdict.
pub(crate) fn declare(run: &mut Run, is_measured: bool, notes: &str) {
    if is_measured {
        run.sides.push(side(notes));
        return;
    }
    let reason = match missing() {
        Some(name) => format!("`{name}` is not in PATH; Debian has no package of it"),
        None => "not selected".to_owned(),
    };
    run.absent.push(Absent {
        side: VPP.to_owned(),
        reason,
    });
}

fn side(notes: &str) -> Side {
    // "vpp v26.10 built by USER on HOST at DATE".
    let printed = super::output_of("vpp", &["--version"]);
    let version = printed.split_whitespace().nth(1).unwrap_or("unknown");
    super::side(
        VPP,
        version.trim_start_matches('v'),
        "not by Debian: with the compiler and the flags of its builder",
        BURST,
        &format!("rings of {RING_SIZE} descriptors; {notes}"),
    )
}

/// Nodes of the worker since the counters were cleared.
struct Nodes(PartView);

impl Nodes {
    fn count(&self, node: &str, what: &str) -> f64 {
        let count = self.0.counters.get(&format!("{node} {what}"));
        count.map_or(0.0, |count| *count as f64)
    }

    /// Returns the mean cycles per frame of a node, or per call of a node without frames.
    fn mean(&self, node: &str) -> f64 {
        let mean = self.0.values.get(&format!("{node} clocks"));
        mean.copied().unwrap_or(0.0)
    }

    /// Returns the cycles of some of the nodes that had frames.
    fn cycles(&self, is_wanted: impl Fn(&str) -> bool) -> f64 {
        let names = self.0.values.keys();
        let names = names.filter_map(|name| name.strip_suffix(" clocks"));
        let wanted = names.filter(|name| is_wanted(name));
        wanted
            .map(|name| self.mean(name) * self.count(name, "vectors"))
            .sum()
    }

    fn frames(&self) -> f64 {
        self.count(INPUT, "vectors")
    }
}

/// A VPP with two ports that runs until the value is dropped.
pub(crate) struct Vpp {
    running: Running,
    directory: PathBuf,
    /// Cycles of an empty poll of the ports.
    empty_poll: Cell<Option<f64>>,
}

impl Vpp {
    /// Starts VPP with these plugins and sections of its startup configuration, and two ports, in a new directory.
    pub(crate) fn start(directory: &Path, plugins: &[&str], sections: &str) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let startup = directory.join("startup.conf");
        std::fs::write(&startup, configuration(directory, plugins, sections))
            .expect("the startup configuration can be written");
        let mut command = Command::new("vpp");
        command.arg("-c").arg(&startup);
        let log = directory.join("out");
        log_into(&mut command, &log);
        let mut vpp = Self {
            running: Running::spawn(&mut command),
            directory: directory.to_owned(),
            empty_poll: Cell::new(None),
        };
        wait_until("VPP answers", DEADLINE, || {
            vpp.running.assert_alive(&log);
            vpp.socket().exists() && vpp.output("show version").contains("vpp v")
        });
        assert!(
            has_worker(&vpp.running.pid()),
            "`vpp` has no thread {WORKER} (a script of this name must `exec` VPP): {}",
            tail(&log)
        );
        place_threads(&vpp.running.pid());
        for (index, (port, mac)) in PORTS.iter().zip(MACS).enumerate() {
            let (id, socket) = (index + 1, vpp.port_socket(index));
            let socket = socket.display();
            vpp.configure(&format!("create memif socket id {id} filename {socket}"));
            vpp.configure(&format!(
                "create interface memif id 0 socket-id {id} master ring-size {RING_SIZE} hw-addr {mac}"
            ));
            vpp.configure(&format!("set interface state {port} up"));
        }
        vpp
    }

    /// Starts a bridge of the two ports that learns this many addresses and has no ageing.
    pub(crate) fn bridge(directory: &Path, addresses: u32) -> Self {
        let buckets = addresses.next_power_of_two().max(BUCKETS);
        let table = format!("l2fib {{ num-buckets {buckets} }}\n");
        let vpp = Self::start(directory, &[], &table);
        let line = "create bridge-domain 1 learn 1 forward 1 uu-flood 1 flood 1 mac-age 0";
        let printed = vpp.output(line);
        vpp.check(line, printed == "bridge-domain 1", &printed);
        for port in PORTS {
            vpp.configure(&format!("set interface l2 bridge {port} 1"));
        }
        vpp
    }

    /// Connects the two ports to each other.
    pub(crate) fn cross_connect(&self) {
        for [from, to] in [[PORTS[0], PORTS[1]], [PORTS[1], PORTS[0]]] {
            self.configure(&format!("set interface l2 xconnect {from} {to}"));
        }
    }

    /// Configures a router with these addresses of the two ports, and the neighbour behind the second.
    pub(crate) fn route_between(&self, addresses: [&str; 2], neighbour: &str) {
        for (port, address) in PORTS.iter().zip(addresses) {
            self.configure(&format!("set interface ip address {port} {address}"));
        }
        let [_, out] = PORTS;
        // The tester's second port.
        let mac = MACS[0];
        self.configure(&format!("set ip neighbor {out} {neighbour} {mac} static"));
    }

    /// Adds routes to these networks by the neighbour behind the second port.
    pub(crate) fn add_routes(&self, neighbour: &str, networks: impl Iterator<Item = (IpAddr, u8)>) {
        let [_, out] = PORTS;
        let mut lines = String::new();
        for (address, length) in networks {
            writeln!(
                lines,
                "ip route add {address}/{length} via {neighbour} {out}"
            )
            .expect("a string can be written");
        }
        let printed = self.execute("routes", &lines);
        self.check("the routes", printed.is_empty(), &printed);
    }

    /// Filters the frames that the first port receives with a list of `count` rules, separated by commas.
    pub(crate) fn filter(&self, rules: &str, count: u32) {
        let [from, _] = PORTS;
        let printed = self.execute("rules", &format!("set acl-plugin acl {rules}\n"));
        // Some versions print only the errors of a file's commands.
        let is_made = printed.is_empty() || printed == "ACL index:0";
        self.check("the rules", is_made, &printed);
        // The command ignores all text after a word that it does not know.
        let line = "show acl-plugin acl index 0";
        let printed = self.output(line);
        let is_whole = printed.contains(&format!("acl-index 0 count {count} "));
        self.check(line, is_whole, printed.get(..200).unwrap_or(&printed));
        self.configure(&format!("set acl-plugin interface {from} input acl 0"));
    }

    /// Translates the sources of packets from the first port to the second to a range of addresses, with at most this number of
    /// sessions.
    pub(crate) fn translate(&self, addresses: &str, sessions: u32) {
        let [from, to] = PORTS;
        self.configure(&format!("nat44 plugin enable sessions {sessions}"));
        self.configure(&format!("nat44 add address {addresses}"));
        self.configure(&format!("set interface nat44 in {from} out {to}"));
    }

    /// Returns the number of NAT sessions.
    pub(crate) fn sessions(&self) -> f64 {
        self.number("show nat44 summary", "total sessions: ")
    }

    /// Returns the number of learned MAC addresses.
    pub(crate) fn learned(&self) -> f64 {
        self.number("show l2fib", "L2FIB total/learned entries: ")
    }

    /// Returns the number after a text in the output of a command.
    fn number(&self, line: &str, key: &str) -> f64 {
        let printed = self.output(line);
        let rest = printed.split_once(key).map(|(_, rest)| rest);
        let digits = rest.map(|rest| rest.split(|digit: char| !digit.is_ascii_digit()));
        let number = digits.and_then(|mut digits| digits.next()?.parse().ok());
        self.check(line, number.is_some(), &printed);
        number.unwrap_or_default()
    }

    /// Returns the result of `measure` with a load of the tester and its additional options. [`Self::work`] is that during the load.
    pub(crate) fn with_load<T>(
        &self,
        seconds: f64,
        more: &[&str],
        measure: impl FnOnce(&Load<'_>) -> T,
    ) -> T {
        let begin = || self.begin();
        let more = [&SETTLE[..], more].concat();
        let ports = [0, 1].map(|port| {
            let socket = self.port_socket(port);
            format!("memif:{}?role=client", socket.display())
        });
        measure(&Load {
            ports,
            seconds,
            more: &more,
            connect: Some(&begin),
        })
    }

    /// Waits until the tester, which has started, has connected its ports. Then measures empty polls and clears the counters.
    fn begin(&self) {
        wait_until("the tester connects to VPP", DEADLINE, || {
            self.output("show memif").matches(" connected").count() == PORTS.len()
        });
        // The queues exist from now on.
        for port in PORTS {
            self.configure(&format!("set interface rx-mode {port} polling"));
        }
        let line = "show interface rx-placement";
        let printed = self.output(line);
        let is_polling = printed.matches("polling").count() >= PORTS.len();
        self.check(line, is_polling, &printed);
        self.configure("clear runtime");
        sleep(SILENCE);
        let silent = self.nodes();
        self.configure("clear runtime");
        // Otherwise the tester has begun to send already.
        let is_silent = silent.frames() == 0.0 && silent.count(INPUT, "calls") > 0.0;
        if !is_silent {
            eprintln!("VPP: empty polls were not measured, so this turn has no cycles");
        }
        self.empty_poll.set(is_silent.then(|| silent.mean(INPUT)));
    }

    fn nodes(&self) -> Nodes {
        let line = "show runtime";
        let printed = self.output(line);
        let view = OwnView::of_runtime(&printed);
        let worker = view.ok().and_then(|mut view| view.parts.remove(WORKER));
        self.check(line, worker.is_some(), &printed);
        Nodes(worker.unwrap_or_default())
    }

    /// Returns the work of the worker during the last load, without empty polls.
    pub(crate) fn work(&self) -> Option<Work> {
        let nodes = self.nodes();
        let polls = nodes.count(INPUT, "calls");
        let empty = polls - nodes.count(ETHERNET_INPUT, "calls");
        let idle = self.empty_poll.get()? * empty.max(0.0);
        let input = nodes.cycles(|node| node == INPUT) - idle;
        Some(Work {
            cycles: input.max(0.0) + nodes.cycles(|node| node != INPUT),
            frames: nodes.frames(),
        })
    }

    /// Returns the cycles per frame of the last load.
    pub(crate) fn cycles_a_frame(&self) -> Option<f64> {
        self.work()?.cycles_a_frame()
    }

    /// Returns the same for all nodes between those that receive and send.
    pub(crate) fn route_cycles_a_frame(&self) -> Option<f64> {
        self.cycles_of(|node| node != INPUT && !node.ends_with("-tx"))
    }

    /// Returns the same for the nodes of the filter only.
    pub(crate) fn filter_cycles_a_frame(&self) -> Option<f64> {
        let cycles = self.cycles_of(|node| node.starts_with("acl-plugin"));
        let is_active = cycles.is_none_or(|cycles| cycles > 0.0);
        self.check("show runtime", is_active, "no frames in the filter");
        cycles
    }

    fn cycles_of(&self, is_wanted: impl Fn(&str) -> bool) -> Option<f64> {
        let nodes = self.nodes();
        let work = Work {
            cycles: nodes.cycles(is_wanted),
            frames: nodes.frames(),
        };
        work.cycles_a_frame()
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("cli.sock")
    }

    fn port_socket(&self, port: usize) -> PathBuf {
        self.directory.join(format!("p{port}.sock"))
    }

    /// Runs a command that prints nothing unless it fails.
    fn configure(&self, line: &str) {
        let printed = self.output(line);
        self.check(line, printed.is_empty(), &printed);
    }

    /// Runs the commands of a file, and returns their output.
    fn execute(&self, name: &str, lines: &str) -> String {
        let file = self.directory.join(name);
        std::fs::write(&file, lines).expect("a file of commands");
        self.output(&format!("exec {}", file.display()))
    }

    /// Returns the output of a command. `vppctl` prints errors there as well, and exits with 0. It runs at the helpers' priority, so
    /// that it gets a CPU while tester and worker poll.
    fn output(&self, line: &str) -> String {
        let mut command = Command::new("timeout");
        command.args([COMMAND_S, "chrt", "-f", HELPERS_PRIORITY, "vppctl", "-s"]);
        command.arg(self.socket()).args(line.split(' '));
        let output = command.output().expect("vppctl");
        let errors = String::from_utf8_lossy(&output.stderr);
        // While VPP starts, its socket may exist without a listener.
        let is_refused = errors.contains("refused");
        self.check(line, output.status.success() || is_refused, &errors);
        let printed = String::from_utf8_lossy(&output.stdout);
        let is_blank = |character: char| character.is_whitespace() || character.is_control();
        printed.trim_matches(is_blank).replace('\r', "")
    }

    /// Panics with the output of a command and the end of the log unless the command has succeeded.
    fn check(&self, line: &str, has_succeeded: bool, printed: &str) {
        assert!(
            has_succeeded,
            "VPP, {line}: '{printed}'; its log: {}",
            tail(&self.directory.join("out"))
        );
    }
}

/// Returns true if a process has a thread of VPP that forwards.
fn has_worker(pid: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the threads of VPP");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks
        .flatten()
        .any(|task| name(task).is_ok_and(|name| name.trim() == WORKER))
}

/// Returns the startup configuration.
fn configuration(directory: &Path, plugins: &[&str], sections: &str) -> String {
    let place = directory.display();
    let helper = helper_cpu();
    let (heap, buffers) = if huge_pages_free() >= HUGE_PAGES {
        (" main-heap-page-size default-hugepage", "default-hugepage")
    } else {
        ("", "default")
    };
    let mut enabled = String::new();
    for plugin in [&[MEMIF], plugins].concat() {
        write!(enabled, " plugin {plugin} {{ enable }}").expect("a string can be written");
    }
    format!(
        "unix {{ nodaemon nosyslog cli-no-pager cli-listen {place}/cli.sock runtime-dir {place} }}\n\
         cpu {{ main-core {helper} corelist-workers {DEVICE_CPU} }}\n\
         memory {{ main-heap-size {HEAP_MIB}M{heap} }}\n\
         buffers {{ buffers-per-numa {BUFFERS} page-size {buffers} }}\n\
         api-segment {{ prefix quietwire-bench-{} }}\n\
         plugins {{ plugin default {{ disable }}{enabled} }}\n\
         {sections}",
        std::process::id()
    )
}
