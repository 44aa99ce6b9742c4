// SPDX-License-Identifier: Apache-2.0
//! A guest with emulated network cards: QEMU 10 and Debian's stock kernel from the cache of `scripts/emulated-cards`, an emulated IOMMU,
//! huge pages, and the binary under test with the drivers of the cards. The switch runs in the guest; commands reach it through the agent.

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_base::Deadline;
use quietwire_lab::guest::Agent;
use serde_json::Value;
use tempfile::TempDir;

use crate::monitor::Monitor;
use crate::switches::{Namespace, quietwire};
use crate::wire::Wire;
use crate::{DEADLINE, alone};

/// Device number of the first card's root port on the guest's root bus.
const FIRST_SLOT: usize = 4;
/// Modules besides those of the labs' guests.
const MODULES: [&str; 4] = ["vfio_pci", "vfio_iommu_type1", "igb", "tun"];
/// DPDK's drivers of the cards besides virtio's, of `af-xdp:` and `null:` ports, and of dpdk-testpmd's links in a study.
const DRIVERS: [&str; 5] = [
    "librte_net_af_xdp.so",
    "librte_net_e1000.so",
    "librte_net_vmxnet3.so",
    "librte_net_null.so",
    "librte_net_memif.so",
];
/// Programs besides those of the labs' guests: neighbours of a study, and those of util-linux that start its processes.
const PROGRAMS: [&str; 6] = [
    "/usr/bin/stress-ng",
    "/usr/bin/setpriv",
    "/usr/bin/chrt",
    "/usr/bin/taskset",
    "/usr/bin/stdbuf",
    "/usr/libexec/coreutils/libstdbuf.so",
];
/// QEMU 10 aborts in about one of thirty guests with an IOMMU, most often during the boot, in this function.
const ABORTS: &str = "iotlb_to_section";
/// In about one of ten guests, QEMU 10 loses the timer interrupts of a CPU, most often while it starts. The kernel notices this after 20 s.
const STALLS: &str = "kthread timer wakeup didn't happen";
/// Sleeps on each CPU of the guest, which requires its timer.
const TIMERS: &str = "for cpu in 0 1 2; do taskset -c $cpu sleep 0.01 || exit 1; done";
const TIMERS_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout for a boot, which takes some 10 s.
const BOOT: Duration = Duration::from_secs(90);
/// True if QEMU failed in one of these ways under the last guest of a failed test.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
const ATTEMPTS: u32 = 3;
/// Timeout for the log of the switch in a guest that may have failed.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Prints the last lines of the switch's log, and of the messages of the guest's kernel.
const LATEST: &str = "echo 'log of the switch:'; tail -n 200 /tmp/switch.log; \
    echo 'messages of the kernel:'; dmesg | tail -n 60";
/// Interval between two polls of the guest.
const POLL: Duration = Duration::from_millis(100);

/// A model of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    Igb,
    E1000e,
    Vmxnet3,
    Virtio,
    /// virtio with four queues and RSS, at a tap.
    VirtioRss,
}

impl Model {
    fn device(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            // Behind the IOMMU, as the others are.
            Self::Virtio => "virtio-net-pci,disable-legacy=on,iommu_platform=on",
            Self::VirtioRss => {
                "virtio-net-pci,disable-legacy=on,iommu_platform=on,mq=on,rss=on,vectors=10"
            }
        }
    }
}

/// Runs a test while no other one does, and again if it fails because QEMU has failed.
pub(crate) fn repeat_if_qemu_fails(test: impl Fn()) {
    let _alone = alone();
    for _ in 1..ATTEMPTS {
        HAS_FAILED.store(false, Ordering::Relaxed);
        match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(_) if HAS_FAILED.load(Ordering::Relaxed) => eprintln!("QEMU has failed"),
            Err(cause) => resume_unwind(cause),
        }
    }
    test();
}

/// Returns the directory of the emulator.
fn emulator() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let directory = cache.join("quietwire/emulated-cards/current");
    assert!(
        directory.join("manifest").is_file(),
        "{} does not exist (run scripts/emulated-cards, or `make test-cards`)",
        directory.display()
    );
    directory
}

/// Returns the directory of the guest's kernel and initramfs.
fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let mut command = Command::new(script);
        command
            .args(["--program", quietwire()])
            .arg("--kernel-package")
            .arg(emulator().join("kernel.deb"));
        for module in MODULES {
            command.args(["--module", module]);
        }
        for driver in DRIVERS {
            command.args(["--driver", driver]);
        }
        for program in PROGRAMS {
            command.args(["--with", program]);
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "images/build: {errors}");
        let printed = String::from_utf8(output.stdout).unwrap();
        PathBuf::from(printed.lines().next_back().unwrap())
    })
}

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Returns whether it runs, for failures.
    fn state(&mut self) -> String {
        match self.0.try_wait() {
            Ok(None) => "runs".to_owned(),
            Ok(Some(status)) => format!("has ended: {status}"),
            Err(error) => error.to_string(),
        }
    }
}

/// A guest, which ends with this value.
pub(crate) struct CardGuest {
    qemu: Process,
    relays: Vec<Process>,
    /// Cables by card.
    pub(crate) wires: Vec<Wire>,
    /// PCI addresses by card.
    pub(crate) addresses: Vec<String>,
    pub(crate) monitor: Monitor,
    agent: Agent,
    directory: TempDir,
    /// Network namespace of QEMU and its taps.
    _namespace: Namespace,
}

impl Drop for CardGuest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let printed = self.printed();
            let has_failed = [ABORTS, STALLS].iter().any(|sign| printed.contains(sign));
            HAS_FAILED.store(has_failed, Ordering::Relaxed);
            eprintln!("{printed}");
        }
    }
}

/// Starts the relays of cards at taps.
fn start_relays(namespace: &Namespace, cards: &[Model], wires: &[Wire]) -> Vec<Process> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cards/relay.py");
    let at_tap = |(index, (card, wire)): (usize, (&Model, &Wire))| {
        (*card == Model::VirtioRss).then(|| {
            let mut command = namespace.command("python3");
            command.arg(&script).arg(tap(index)).args(wire.ends());
            Process(command.spawn().unwrap())
        })
    };
    let cables = cards.iter().zip(wires).enumerate();
    cables.filter_map(at_tap).collect()
}

/// Returns the name of a card's tap.
fn tap(card: usize) -> String {
    format!("qt{card}")
}

/// Returns the card at the other end of a card's cable, if that is a card too.
fn other_end(cables: &[(usize, usize)], card: usize) -> Option<usize> {
    cables.iter().find_map(|(one, other)| match card {
        card if card == *one => Some(*other),
        card if card == *other => Some(*one),
        _ => None,
    })
}

fn start(
    directory: &Path,
    namespace: &Namespace,
    (cards, cables): (&[Model], &[(usize, usize)]),
    wires: &[Wire],
) -> Process {
    let path = |name: &str| directory.join(name).display().to_string();
    let program = emulator().join("run-qemu");
    let mut command = namespace.command(program.to_str().unwrap());
    command
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-m", "2G", "-smp", "3"])
        // DPDK requires SSE 4.2, and Nehalem is the oldest with it: newer models take seconds longer to boot.
        .args(["-accel", "tcg,thread=multi", "-cpu", "Nehalem"])
        .args(["-machine", "q35,kernel-irqchip=split"])
        .args(["-device", "intel-iommu,intremap=on,caching-mode=on"])
        .arg("-kernel")
        .arg(image().join("vmlinuz"))
        .arg("-initrd")
        .arg(image().join("initramfs"))
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests intel_iommu=on iommu=pt hugepages=320",
        ])
        .args(["-serial", &format!("file:{}", path("console"))])
        .args([
            "-chardev",
            &format!("socket,id=shell,path={},server=on,wait=off", path("shell")),
        ])
        .args(["-serial", "chardev:shell"])
        .args(["-qmp", &format!("unix:{},server=on,wait=off", path("qmp"))])
        .args([
            "-chardev",
            &format!("socket,id=agent,path={},server=on,wait=off", path("agent")),
        ])
        .args(["-device", "virtio-serial-pci,bus=pcie.0,addr=0x1e"])
        .args([
            "-device",
            "virtserialport,chardev=agent,name=org.quietwire.agent",
        ]);
    for (index, (card, wire)) in cards.iter().zip(wires).enumerate() {
        let slot = FIRST_SLOT + index;
        let port = format!(
            "pcie-root-port,id=rp{index},bus=pcie.0,chassis={slot},slot={slot},addr={slot:#x}"
        );
        let device = format!(
            "{},id=c{index},bus=rp{index},netdev=n{index},mac={},romfile=",
            card.device(),
            mac(index)
        );
        let id = format!("n{index}");
        let netdev = match (card, other_end(cables, index)) {
            (Model::VirtioRss, _) => format!(
                "tap,id={id},ifname={},script=no,downscript=no,queues=4",
                tap(index)
            ),
            (_, Some(other)) => wire.netdev_to(&id, &wires[other]),
            (_, None) => wire.netdev(&id),
        };
        command
            .args(["-netdev", &netdev])
            .args(["-device", &port, "-device", &device]);
    }
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("qemu.log")).unwrap())
        .spawn();
    Process(child.unwrap())
}

/// Returns the MAC address of a card.
fn mac(card: usize) -> String {
    format!("52:54:00:00:00:{card:02x}")
}

impl CardGuest {
    /// Boots a guest with these cards. No driver has them yet.
    pub(crate) fn boot(cards: &[Model]) -> Self {
        Self::boot_connected(cards, &[])
    }

    /// Boots a guest with these cards, some of which are connected with each other by cables instead of with this process.
    pub(crate) fn boot_connected(cards: &[Model], cables: &[(usize, usize)]) -> Self {
        for _ in 1..ATTEMPTS {
            if let Some(guest) = Self::try_boot(cards, cables) {
                return guest;
            }
        }
        Self::try_boot(cards, cables).unwrap_or_else(|| panic!("QEMU failed in {ATTEMPTS} boots"))
    }

    /// Returns none if QEMU aborted, the guest did not boot, or a CPU of it has no timer.
    fn try_boot(cards: &[Model], cables: &[(usize, usize)]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let names = (0..cards.len()).map(|index| format!("n{index}"));
        let wires: Vec<Wire> = names
            .map(|name| Wire::new(directory.path(), &name))
            .collect();
        let namespace = Namespace::new("cards");
        let mut qemu = start(directory.path(), &namespace, (cards, cables), &wires);
        let mut agent = None;
        let deadline = Deadline::after(BOOT);
        let printed = || {
            let files = ["console", "qemu.log"].map(|name| fs::read(at(name)).unwrap_or_default());
            String::from_utf8_lossy(&files.concat()).into_owned()
        };
        let has_ended = deadline.poll(POLL, || {
            if let Some(status) = qemu.0.try_wait().unwrap() {
                return Some(Some(status));
            }
            // The socket exists before QEMU listens.
            let found = at("agent")
                .exists()
                .then(|| Agent::connect("cards", &at("agent"), deadline.remaining()));
            agent = found.and_then(Result::ok);
            agent.is_some().then_some(None)
        });
        match has_ended {
            Some(None) => {}
            Some(Some(status)) => {
                assert!(
                    printed().contains(ABORTS),
                    "QEMU ended with {status}: {}",
                    printed()
                );
                return None;
            }
            None => {
                eprintln!("the guest did not boot within {BOOT:?}: {}", printed());
                return None;
            }
        }
        let mut guest = Self {
            qemu,
            relays: start_relays(&namespace, cards, &wires),
            addresses: Vec::new(),
            monitor: Monitor::connect(&at("qmp")),
            agent: agent.unwrap(),
            directory,
            wires,
            _namespace: namespace,
        };
        let slept = guest.agent.run(&["sh", "-c", TIMERS], TIMERS_TIMEOUT);
        if !slept.is_ok_and(|ran| ran.code == Some(0)) {
            eprintln!("a CPU of the guest has no timer");
            return None;
        }
        guest.addresses = (0..cards.len())
            .map(|card| guest.address_of(card))
            .collect();
        guest.wait_for_relays(cards);
        Some(guest)
    }

    /// Waits until the relays have their sockets.
    fn wait_for_relays(&self, cards: &[Model]) {
        for (card, wire) in cards.iter().zip(&self.wires) {
            let [socket, _] = wire.ends();
            let is_there = || (*card != Model::VirtioRss || socket.exists()).then_some(());
            let found = Deadline::after(DEADLINE).poll(POLL, is_there);
            assert!(found.is_some(), "no socket {}", socket.display());
        }
    }

    /// Returns the states of the relays, for failures.
    pub(crate) fn relay_states(&mut self) -> String {
        let states: Vec<String> = self.relays.iter_mut().map(Process::state).collect();
        format!("relays: {states:?}")
    }

    /// Returns what the guest, QEMU and the switch have printed, and the states of processes, for failures.
    fn printed(&mut self) -> String {
        let files = ["console", "qemu.log"]
            .map(|name| fs::read(self.directory.path().join(name)).unwrap_or_default());
        let files = String::from_utf8_lossy(&files.concat()).into_owned();
        let latest = match self.agent.run(&["sh", "-c", LATEST], LOG_TIMEOUT) {
            Ok(ran) => ran.output,
            Err(error) => format!("no log of the switch: {error}"),
        };
        let qemu = self.qemu.state();
        let events = self.monitor.all_events();
        let relays = self.relay_states();
        format!("{files}\n{latest}\nQEMU {qemu}; its events:\n{events}\n{relays}")
    }

    /// Runs a script in the guest; returns its exit code and what it printed.
    pub(crate) fn try_run(&mut self, script: &str) -> (Option<i32>, String) {
        let ran = self.agent.run(&["sh", "-c", script], DEADLINE);
        let ran = ran.unwrap_or_else(|error| panic!("{script}: {error}"));
        (ran.code, ran.output)
    }

    /// Runs a script in the guest, which succeeds.
    pub(crate) fn run(&mut self, script: &str) -> String {
        let (code, output) = self.try_run(script);
        assert_eq!(code, Some(0), "{script}: {output}");
        output
    }

    /// Waits until a script in the guest succeeds.
    pub(crate) fn until(&mut self, script: &str) -> String {
        let mut last = (None, String::new());
        let found = Deadline::after(DEADLINE).poll(POLL, || {
            last = self.try_run(script);
            (last.0 == Some(0)).then(|| last.1.clone())
        });
        found.unwrap_or_else(|| {
            let (code, output) = last;
            panic!("{script}: exit code {code:?} after {DEADLINE:?}: {output}")
        })
    }

    /// Waits until a script in the guest succeeds. Panics with its different outcomes, each with the time of its first occurrence, and with
    /// what another script prints afterwards.
    pub(crate) fn until_or_report(&mut self, script: &str, report: &str) {
        self.until_within_or_report(script, DEADLINE, report);
    }

    /// The same, for as long as this.
    pub(crate) fn until_within_or_report(&mut self, script: &str, timeout: Duration, report: &str) {
        let began = Instant::now();
        let mut outcomes: Vec<(Duration, (Option<i32>, String))> = Vec::new();
        let done = Deadline::after(timeout).poll(POLL, || {
            let outcome = self.try_run(script);
            let is_done = outcome.0 == Some(0);
            if outcomes.last().is_none_or(|(_, last)| *last != outcome) {
                outcomes.push((began.elapsed(), outcome));
            }
            is_done.then_some(())
        });
        if done.is_none() {
            let (_, report) = self.try_run(report);
            panic!("{script}: {outcomes:?}\n{report}");
        }
    }

    /// Returns the PCI address of the card in a slot.
    fn address_of(&mut self, card: usize) -> String {
        let slot = FIRST_SLOT + card;
        let script = format!(
            "cd /sys/bus/pci/devices/0000:00:{slot:02x}.0 && echo 0000:[0-9a-f][0-9a-f]:[0-9a-f][0-9a-f].0"
        );
        let address = self.run(&script).trim().to_owned();
        assert!(address.len() == 12 && !address.contains('*'), "{address}");
        address
    }

    /// Waits until the kernel has removed an unplugged card. The kernel waits until the switch has closed it.
    pub(crate) fn card_is_gone(&mut self, card: usize) {
        let device = format!("/sys/bus/pci/devices/{}", self.addresses[card]);
        self.until_or_report(
            &format!("[ ! -e {device} ]"),
            &format!("ls -l {device}/driver /proc/$(cat /tmp/switch.pid)/fd"),
        );
    }

    /// Returns the address of a card's root port.
    pub(crate) fn root_port_of(card: usize) -> String {
        format!("0000:00:{:02x}.0", FIRST_SLOT + card)
    }

    /// Binds devices to `vfio-pci`.
    pub(crate) fn bind(&mut self, addresses: &[String]) {
        self.run("modprobe vfio_iommu_type1 && modprobe vfio_pci");
        for address in addresses {
            self.run(&format!(
                "cd /sys/bus/pci/devices/{address} && echo vfio-pci >driver_override && \
                 if [ -e driver ]; then echo {address} >driver/unbind; fi && \
                 echo {address} >/sys/bus/pci/drivers_probe && [ -e /sys/bus/pci/drivers/vfio-pci/{address} ]"
            ));
        }
    }

    /// Binds all cards to `vfio-pci`.
    pub(crate) fn bind_all(&mut self) {
        self.bind(&self.addresses.clone());
    }

    /// Starts a switch with ports of these names and URIs, and waits until it answers. The former one ends first.
    pub(crate) fn switch(&mut self, ports: &[(&str, String)], options: &str) {
        self.stop_switch();
        let ports: Vec<String> = ports
            .iter()
            .map(|(name, uri)| format!("--port '{name}={uri}'"))
            .collect();
        let idle = if options.contains("--idle") {
            ""
        } else {
            "--idle sleep"
        };
        let script = format!(
            "quietwire switch run --huge-pages require --memory-mib 256 {idle} --forwarding-cpus 1,2 \
             {} {options} >/tmp/switch.log 2>&1 </dev/null & echo $! >/tmp/switch.pid",
            ports.join(" ")
        );
        self.run(&script);
        let ready = "quietwire switch show ports >/dev/null 2>&1";
        self.until(&format!("[ ! -e /proc/$(cat /tmp/switch.pid) ] || {ready}"));
        let (code, _) = self.try_run(ready);
        if code != Some(0) {
            panic!("the switch has ended: {}", self.log());
        }
    }

    /// Ends the switch, if one runs. Its threads made no system call that their filters deny.
    pub(crate) fn stop_switch(&mut self) {
        self.run("[ ! -e /tmp/switch.pid ] || kill $(cat /tmp/switch.pid) || true");
        self.until("[ ! -e /tmp/switch.pid ] || [ ! -e /proc/$(cat /tmp/switch.pid) ]");
        self.run("rm -f /tmp/switch.pid");
        let denied = self.run("grep 'seccomp filters of ' /tmp/switch.log 2>/dev/null || true");
        assert_eq!(denied.trim(), "");
    }

    /// Returns the log of the switch.
    pub(crate) fn log(&mut self) -> String {
        self.run("cat /tmp/switch.log")
    }

    /// Returns what `switch show` prints about a subject.
    pub(crate) fn show(&mut self, subject: &str) -> Vec<Value> {
        // The agent returns both streams in one text. The second one is the reason of a failure.
        let text = self.run(&format!(
            "quietwire switch show {subject} --json 2>/tmp/show.errors || \
             {{ code=$?; cat /tmp/show.errors; exit $code; }}"
        ));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the report of a port.
    pub(crate) fn port(&mut self, name: &str) -> Value {
        let ports = self.show("ports");
        let found = ports.iter().find(|port| port["name"] == name);
        found
            .unwrap_or_else(|| panic!("no port {name}: {ports:?}"))
            .clone()
    }

    /// Waits until a port is in a state.
    pub(crate) fn port_becomes(&mut self, name: &str, state: &str) -> Value {
        self.port_until(name, |port| port["state"] == state)
    }

    /// Waits until the report of a port fulfils a condition.
    pub(crate) fn port_until(&mut self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = Deadline::after(DEADLINE).poll(POLL, || {
            last = self.port(name);
            is_so(&last).then(|| last.clone())
        });
        found.unwrap_or_else(|| panic!("port {name} is still so after {DEADLINE:?}: {last}"))
    }
}
