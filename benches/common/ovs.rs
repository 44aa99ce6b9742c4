// SPDX-License-Identifier: Apache-2.0
//! Open vSwitch on DPDK as the peer, with a private database, sockets and log in a private directory; nothing of the
//! system's is used. Ports are vhost-user servers; one thread forwards, on the same CPU as quietwire's.
//!
//! It is configured for its best results with many addresses: the largest possible table of MAC addresses, a flow limit that
//! is never reached, no ageing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::placement::{helper_cpu, place_threads};
use super::record::Side;
use super::{Awake, DEADLINE, Running, huge_pages_free, log_into, tail, wait_until};

/// From Debian's package openvswitch-switch-dpdk.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const DATABASE_SERVER: &str = "/usr/sbin/ovsdb-server";
/// The CPU of the forwarding thread, as a mask: [`super::DEVICE_CPU`].
const FORWARDING_MASK: &str = "0x2";
/// Maximum number of frames received at once: compiled in (`NETDEV_MAX_BURST`).
const BURST: u32 = 32;
/// Maximum size of the table of MAC addresses.
pub(crate) const MAC_TABLE: u32 = 1_000_000;
const FLOW_LIMIT: &str = "4000000";

/// Datapath of Open vSwitch between interfaces of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datapath {
    /// The kernel's.
    Kernel,
    /// That of the daemon, without DPDK.
    Userspace,
    /// The same, with DPDK. Interfaces are the daemon's own ports: with DPDK's drivers for them, checksums that hosts leave to the
    /// network card would stay incomplete.
    Dpdk,
}

impl Datapath {
    /// Returns the type of a bridge with this datapath.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "system",
            Self::Userspace | Self::Dpdk => "netdev",
        }
    }
}

/// Open vSwitch with one bridge, until the value is dropped.
pub(crate) struct OpenVSwitch {
    // Terminated in this order.
    daemon: Running,
    _database: Running,
    directory: PathBuf,
}

/// Entries of its tables.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Tables {
    /// Learned MAC addresses.
    pub(crate) mac_addresses: u64,
    /// Flows in the cache of the forwarding thread.
    pub(crate) flows: u64,
}

/// Returns true if it is installed.
pub(crate) fn is_installed() -> bool {
    [VSWITCHD, SCHEMA, DATABASE_SERVER]
        .iter()
        .all(|path| Path::new(path).exists())
}

/// Returns Open vSwitch as a side of a run.
pub(crate) fn side(name: &str) -> Side {
    super::side(
        name,
        &super::package_version("openvswitch-switch-dpdk"),
        "by Debian",
        BURST,
        "netdev bridge, action NORMAL; a table of 1,000,000 addresses, no ageing, flows stay; rings as its defaults are",
    )
}

impl OpenVSwitch {
    /// Starts Open vSwitch with this many ports, in a new directory.
    pub(crate) fn start(directory: &Path, ports: usize) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let server = start_database(directory);
        configure(directory);
        // The taps of its bridges outlive the daemon unless their network namespace is removed, and their names could be in use
        // elsewhere.
        let mut command = Command::new("unshare");
        let cpus = format!("{},{}", helper_cpu(), super::DEVICE_CPU);
        command.args(["--net", "taskset", "-c", &cpus, VSWITCHD]);
        let ovs = Self::running(directory, server, command);
        ovs.add_bridge(ports);
        place_threads(&ovs.daemon.pid());
        ovs
    }

    /// Starts Open vSwitch in a network namespace, with one bridge of its interfaces and a new directory.
    pub(crate) fn on_interfaces(
        directory: &Path,
        namespace: &str,
        datapath: Datapath,
        interfaces: &[&str],
    ) -> Self {
        std::fs::create_dir(directory).expect("a new directory");
        let server = start_database(directory);
        if datapath == Datapath::Dpdk {
            configure(directory);
        }
        // Otherwise its own datapath drops the hosts' large frames.
        let tso = "other_config:userspace-tso-enable=true";
        database(directory, &["set", "Open_vSwitch", ".", tso]);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, VSWITCHD]);
        let ovs = Self::running(directory, server, command);
        let datapath = format!("datapath_type={}", datapath.name());
        let bridge = ["add-br", "br0", "--", "set", "bridge", "br0", &datapath];
        database(directory, &bridge);
        for interface in interfaces {
            database(directory, &["add-port", "br0", interface]);
        }
        ovs
    }

    /// Starts the daemon by a command that ends with its name, and waits until it answers.
    fn running(directory: &Path, server: Running, command: Command) -> Self {
        let mut ovs = Self {
            daemon: start_daemon(directory, command),
            _database: server,
            directory: directory.to_owned(),
        };
        wait_until("Open vSwitch answers", DEADLINE, || {
            ovs.daemon.assert_alive(&directory.join("out"));
            ovs.asked(&["version"]).is_some()
        });
        ovs
    }

    fn add_bridge(&self, ports: usize) {
        let table = format!("other-config:mac-table-size={MAC_TABLE}");
        let bridge = ["add-br", "br0", "--", "set", "bridge", "br0"];
        let options = [
            "datapath_type=netdev",
            &table,
            "other-config:mac-aging-time=3600",
        ];
        database(&self.directory, &[&bridge[..], &options[..]].concat());
        for number in 0..ports {
            let port = format!("p{number}");
            self.add_vhost_user(&port);
        }
        // Otherwise frames to unknown addresses are also sent to the kernel, which is slow and not what is compared.
        let flood = self.tool("ovs-ofctl", &["mod-port", "br0", "br0", "no-flood"]);
        assert!(flood.status.success(), "{}", printed(&flood));
    }

    /// Adds a vhost-user port to the bridge. Returns its socket, on which the daemon listens.
    pub(crate) fn add_vhost_user(&self, port: &str) -> PathBuf {
        self.add_port(port, &["type=dpdkvhostuser"]);
        self.directory.join(port)
    }

    /// Adds a vhost-user port to the bridge that connects to a socket of the guest. Other vhost-user ports of Open vSwitch 3.1 drop frames
    /// with incomplete checksums ("No TCP checksum support"), even with `userspace-tso-enable`.
    pub(crate) fn add_vhost_user_client(&self, port: &str, socket: &Path) {
        let path = format!("options:vhost-server-path={}", socket.display());
        self.add_port(port, &["type=dpdkvhostuserclient", &path]);
    }

    fn add_port(&self, port: &str, interface: &[&str]) {
        let add = ["add-port", "br0", port, "--", "set", "interface", port];
        database(&self.directory, &[&add[..], interface].concat());
    }

    /// Replaces the flows of the bridge, as `ovs-ofctl` reads them from a file.
    pub(crate) fn replace_flows(&self, flows: &str) {
        let file = self.directory.join("flows");
        std::fs::write(&file, flows).expect("a file of flows");
        let file = file.to_str().expect("a path in UTF-8");
        // Flows in several tables.
        let replace = ["-O", "OpenFlow14", "replace-flows", "br0", file];
        let replaced = self.tool("ovs-ofctl", &replace);
        assert!(replaced.status.success(), "{}", printed(&replaced));
    }

    /// Returns the tester's URI of a port.
    pub(crate) fn tester_uri(&self, port: usize) -> String {
        format!(
            "virtio-user:{}",
            self.directory.join(format!("p{port}")).display()
        )
    }

    /// Stops all its threads until [`Self::awake`].
    pub(crate) fn pause(&self) {
        self.daemon.signal("STOP");
    }

    /// Continues all its threads until the value is dropped.
    pub(crate) fn awake(&self) -> Awake<'_> {
        self.daemon.awake()
    }

    /// Restores the flow limit, which Open vSwitch lowers by itself if checking its flows takes long.
    pub(crate) fn raise_flow_limit(&self) {
        let _ = self.asked(&["upcall/set-flow-limit", FLOW_LIMIT]);
    }

    /// Returns the sizes of its tables; zeros if it does not answer in time.
    pub(crate) fn tables(&self) -> Tables {
        let macs = self.asked(&["fdb/stats-show", "br0"]).unwrap_or_default();
        let flows = self.asked(&["upcall/show"]).unwrap_or_default();
        Tables {
            mac_addresses: after(&macs, "MAC entries in the table: "),
            flows: after(&flows, "(current "),
        }
    }

    /// Clears the counters of the forwarding thread.
    pub(crate) fn clear_cycles(&self) {
        let _ = self.asked(&["dpif-netdev/pmd-stats-clear"]);
    }

    /// Returns the time stamp counter cycles per frame of the forwarding thread since then.
    pub(crate) fn cycles_a_frame(&self) -> Option<f64> {
        let stats = self.asked(&["dpif-netdev/pmd-stats-show"])?;
        let (_, rest) = stats.split_once("avg processing cycles per packet: ")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    fn asked(&self, question: &[&str]) -> Option<String> {
        let control = self.directory.join("vswitchd.ctl");
        let mut arguments = vec!["--timeout=5", "-t", control.to_str()?];
        arguments.extend(question);
        let output = self.tool("ovs-appctl", &arguments);
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then_some(text)
    }

    fn tool(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(name);
        command.env("OVS_RUNDIR", &self.directory).args(arguments);
        command.output().expect("a tool of Open vSwitch")
    }
}

/// Returns the CPU of the helpers as a mask.
fn helpers_mask() -> String {
    let cpu: u32 = helper_cpu().parse().expect("a CPU");
    format!("{:#x}", 1_u64 << cpu)
}

/// Returns the number after a text.
fn after(text: &str, key: &str) -> u64 {
    let rest = text.split_once(key).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn start_database(directory: &Path) -> Running {
    let file = directory.join("conf.db");
    let mut create = Command::new("ovsdb-tool");
    create.arg("create").arg(&file).arg(SCHEMA);
    let created = create.output().expect("ovsdb-tool");
    assert!(created.status.success(), "{}", printed(&created));
    let socket = directory.join("db.sock");
    let mut server = Command::new(DATABASE_SERVER);
    server.env("OVS_RUNDIR", directory).arg(&file);
    server.arg(format!("--remote=punix:{}", socket.display()));
    server.arg(format!("--unixctl={}", directory.join("db.ctl").display()));
    log_into(&mut server, &directory.join("db.out"));
    let running = Running::spawn(&mut server);
    wait_until("the database answers", DEADLINE, || socket.exists());
    database(directory, &["init"]);
    running
}

/// Configures memory: on ordinary pages DPDK allocates all its memory at once, and must be allowed to share it.
fn configure(directory: &Path) {
    let memory = if huge_pages_free() > 0 {
        "--no-pci"
    } else {
        "--no-pci --no-huge --legacy-mem -m 2048"
    };
    let options = [
        "dpdk-init=true",
        &format!("dpdk-extra=\"{memory}\""),
        &format!("dpdk-lcore-mask={}", helpers_mask()),
        &format!("pmd-cpu-mask={FORWARDING_MASK}"),
        &format!("flow-limit={FLOW_LIMIT}"),
        // Milliseconds: flows are kept and rarely checked.
        "max-idle=3600000",
        "max-revalidator=20000",
    ]
    .map(|option| format!("other_config:{option}"));
    let mut arguments = vec!["set", "Open_vSwitch", "."];
    arguments.extend(options.iter().map(String::as_str));
    database(directory, &arguments);
}

/// Runs `ovs-vsctl`; waits until the daemon has applied the change if it runs.
fn database(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("ovs-vsctl");
    command.arg(format!("--db=unix:{}", directory.join("db.sock").display()));
    command.arg("--timeout=20");
    if !directory.join("vswitchd.ctl").exists() {
        command.arg("--no-wait");
    }
    let output = command.args(arguments).output().expect("ovs-vsctl");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        printed(&output)
    );
}

fn start_daemon(directory: &Path, mut command: Command) -> Running {
    let log = directory.join("vswitchd.log");
    command.env("OVS_RUNDIR", directory);
    command.arg(format!("unix:{}", directory.join("db.sock").display()));
    let control = directory.join("vswitchd.ctl");
    command.arg(format!("--unixctl={}", control.display()));
    command.arg(format!("--log-file={}", log.display()));
    let out = directory.join("out");
    log_into(&mut command, &out);
    let mut running = Running::spawn(&mut command);
    wait_until("Open vSwitch starts", DEADLINE, || {
        running.assert_alive(&log);
        control.exists()
    });
    assert!(!tail(&out).contains("EMER"), "{}", tail(&out));
    running
}
