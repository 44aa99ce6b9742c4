// SPDX-License-Identifier: Apache-2.0
//! A program in a guest: the guest has the element's ports as network cards, and its agent starts the program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::{Deadline, Fault, search_path};
use quietwire_host::doctor::{MissingForGuests, missing_for_guests};
use quietwire_packet::MacAddress;
use quietwire_switch::report::CyclesReport;
use quietwire_tester::account::ElementCounts;

use super::forwarder::{Forwarder, NO_OWN_VIEW};
use super::forwarder_for;
use super::router;
use super::vdev::free_huge_memory_mib;
use crate::counts::{TIMEOUT, of_agent};
use crate::cycles::CycleCount;
use crate::element::{Attachment, ElementContext, GuestSide, Plan, Process, run};
use crate::error::LabError;
use crate::guest::agent::protocol::{Routing, TestpmdMode, Vnf, VnfKind};
use crate::guest::{
    Acceleration, Accelerator, Guest, GuestPort, GuestSpec, Image, PORTS_MAX, PortBackend,
    ReadySignal, SocketRole, acceleration,
};
use crate::own_view::OwnView;
use crate::thread::{DeviceThread, ThreadRole};
use crate::topology::{ElementPlace, Forwarding, Graph, Link, LinkKind, Program, Role};
use crate::unavailable::Unavailable;
use crate::up::GuestOptions;

/// Memory of a guest, MiB: its unpacked image, and 160 MiB for a DPDK program.
const MEMORY_MIB: u32 = 640;
/// Descriptors of each ring, the maximum: frames wait while guests share a CPU.
const RING_SIZE: u16 = 1024;
/// Largest frame, octets with FCS.
const FRAME_SIZE_MAX: u16 = 1518;
/// Timeout under KVM until the guest's agent answers.
const DEADLINE_KVM: Duration = Duration::from_secs(30);
/// Timeout in software emulation until the guest's agent answers: several guests may boot on one CPU.
const DEADLINE_SOFTWARE: Duration = Duration::from_secs(150);
/// vhost-net: the host's kernel is the back end of a virtio network card.
const VHOST_NET: &str = "/dev/vhost-net";
/// Directory of DPDK's drivers in Debian, with a directory for each release.
const DRIVERS: &str = "/usr/lib/x86_64-linux-gnu/dpdk";
/// Drivers of the cards and virtual functions that guests may have.
const CARD_DRIVERS: [&str; 8] = [
    "bnxt", "e1000", "ena", "i40e", "iavf", "ice", "igc", "ixgbe",
];
/// Prefix of MAC addresses of guests' ports: locally administered, different from the tester's.
const MAC: u64 = 0x0251_5700_0000;

/// Hypervisor and image of all guests of a lab.
#[derive(Debug)]
pub(crate) struct Hypervisor {
    image: Image,
    acceleration: Acceleration,
    deadline: Duration,
    huge_pages: bool,
    quietwire: PathBuf,
}

impl Hypervisor {
    /// Determines how guests run here; `None` for a topology without guests.
    pub(crate) fn of(
        graph: &Graph,
        options: &GuestOptions,
        quietwire: &Path,
    ) -> Result<Option<Arc<Self>>, LabError> {
        let elements = graph.elements.iter();
        let mut guests = elements.filter(|element| element.place == ElementPlace::Guest);
        let Some(first) = guests.next() else {
            return Ok(None);
        };
        let guests = guests.count().saturating_add(1) as u64;
        let lacking = |error: LabError| match error.fault() {
            Fault::MissingPrerequisite => LabError::Unavailable {
                name: first.name.clone(),
                reason: Unavailable(format!(
                    "{error}; alternatively, use containers instead of guests (--place container)"
                )),
            },
            _ => error,
        };
        let further = match graph.links.iter().any(|link| has_guests_card(graph, link)) {
            true => card_drivers(Path::new(DRIVERS)),
            false => Vec::new(),
        };
        let image = Image::build_with(quietwire, &further).map_err(lacking)?;
        let acceleration = acceleration(options.accelerator, &image).map_err(lacking)?;
        let usual = match acceleration.accelerator {
            Accelerator::Kvm => DEADLINE_KVM,
            Accelerator::Software => DEADLINE_SOFTWARE,
        };
        let free_mib = free_huge_memory_mib();
        // The same amount again for all other programs.
        let wanted_mib = u64::from(MEMORY_MIB)
            .saturating_mul(2)
            .saturating_mul(guests);
        Ok(Some(Arc::new(Self {
            image,
            acceleration,
            deadline: options.deadline_s.map_or(usual, Duration::from_secs_f64),
            huge_pages: free_mib >= wanted_mib,
            quietwire: quietwire.to_owned(),
        })))
    }

    /// Returns the reason why guests are unavailable here, as far as it is known without an image.
    pub(crate) fn lacking() -> Option<Unavailable> {
        lacking_below(Path::new("/"), &search_path())
    }

    /// Facts that every result includes.
    pub(crate) fn warnings(&self, graph: &Graph) -> Vec<String> {
        let named = |is_meant: &dyn Fn(&crate::topology::Element) -> bool| {
            let elements = graph.elements.iter().filter(|element| is_meant(element));
            let names: Vec<&str> = elements.map(|element| element.name.as_str()).collect();
            names.join(", ")
        };
        let mut warnings = Vec::new();
        if self.acceleration.accelerator == Accelerator::Software {
            warnings.push(format!(
                "guests run in software emulation ({}): rates and latencies are those of the emulator, do not compare them with those of guests under KVM; {}",
                named(&|element| element.place == ElementPlace::Guest),
                self.acceleration.reason,
            ));
        }
        let is_tap = |link: &crate::topology::Link| link.kind == LinkKind::Tap;
        if graph.links.iter().any(is_tap) && !has_vhost_net() {
            warnings.push(format!(
                "{VHOST_NET} is missing: QEMU moves frames between kernel switches and guests, with a system call for each frame (`modprobe vhost_net` loads the driver)"
            ));
        }
        let relays = named(&|element| element.role == Role::Relay);
        if !relays.is_empty() {
            warnings.push(format!(
                "{relays} copies frames from guest to guest, because their network cards cannot be connected directly; every rate and latency includes its cost"
            ));
        }
        warnings
    }
}

/// Returns the reason why guests are unavailable on the machine below `root` with these directories of commands.
fn lacking_below(root: &Path, directories: &OsStr) -> Option<Unavailable> {
    let MissingForGuests { reason, remedy } = missing_for_guests(root, directories)?;
    Some(Unavailable(format!("{reason} (`{remedy}` installs them)")))
}

/// Returns true if a link is a network card of a guest.
pub(crate) fn has_guests_card(graph: &Graph, link: &Link) -> bool {
    let mut ends = link.ends.iter();
    link.pci.is_some() && ends.any(|end| graph.element(end.element).place == ElementPlace::Guest)
}

/// Returns DPDK's drivers for cards, among those that are installed below a directory. The guest gets a driver with its dependencies;
/// drivers that require a driver of the kernel as well (Mellanox) are left out.
fn card_drivers(directory: &Path) -> Vec<PathBuf> {
    let releases = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let found = releases.flat_map(|release| {
        CARD_DRIVERS.map(|name| release.path().join(format!("librte_net_{name}.so")))
    });
    let mut found: Vec<PathBuf> = found.filter(|path| path.is_file()).collect();
    found.sort();
    found
}

/// A guest with a program in it.
#[derive(Debug)]
pub(crate) struct InGuest {
    hypervisor: Arc<Hypervisor>,
    program: Program,
    guest: Option<Guest>,
    /// Hashes that identify a custom image.
    reported: Vec<String>,
    started: Vec<String>,
}

impl InGuest {
    pub(crate) fn new(hypervisor: &Arc<Hypervisor>, program: Program) -> Self {
        Self {
            hypervisor: Arc::clone(hypervisor),
            program,
            guest: None,
            reported: Vec::new(),
            started: Vec::new(),
        }
    }

    fn spec(&self, plan: &Plan) -> Result<GuestSpec, LabError> {
        let mut ports = Vec::new();
        for (index, port) in plan.ports.iter().enumerate() {
            ports.push(port_of(plan, index, &port.attachment)?);
        }
        if ports.len() > PORTS_MAX {
            return Err(LabError::Topology(format!(
                "{}: {} ports, but a guest has at most {PORTS_MAX} (use fewer or shorter chains)",
                plan.name,
                ports.len()
            )));
        }
        // The first vCPU is for everything that does not forward, unless the kernel forwards or the forwarding program is unknown.
        let forwards_anywhere =
            self.program.is_of_the_kernel() || self.program == Program::OwnImage;
        let control = plan.rest.first().filter(|_| !forwards_anywhere);
        Ok(GuestSpec {
            name: plan.name.clone(),
            memory_mib: MEMORY_MIB,
            huge_pages: self.hypervisor.huge_pages,
            vcpu_cpus: control.into_iter().chain(plan.cpus.iter()).collect(),
            service_cpus: plan.rest.clone(),
            pinned: true,
            ports,
            accelerator: crate::guest::AcceleratorChoice::Auto,
            kernel_options: Vec::new(),
            ready_signal: match self.program {
                Program::OwnImage => ReadySignal::Console,
                _ => ReadySignal::Agent,
            },
            namespace: namespace_of(plan)?,
            ready_timeout: self.hypervisor.deadline,
        })
    }

    /// Returns the image that the guest boots.
    fn image(&self, plan: &Plan) -> Result<Image, LabError> {
        match &plan.image {
            Some(own) => Image::of_files(&own.kernel, &own.initramfs),
            None => Ok(self.hypervisor.image.clone()),
        }
    }

    fn vnf(&self, plan: &Plan) -> Result<Vnf, LabError> {
        Ok(Vnf {
            kind: kind(self.program, plan)?,
            forwarding_cpus: None,
            shares_cpus: plan.is_shared,
            queues: 1,
            frame_size_max: FRAME_SIZE_MAX,
        })
    }

    /// Returns true unless the image is a custom one, which starts its forwarding program itself.
    fn has_agent(&self) -> bool {
        self.program != Program::OwnImage
    }

    /// Hashes of a custom image: its files may change later.
    fn image_hashes(&self, plan: &Plan) -> Result<Vec<String>, LabError> {
        let Some(own) = &plan.image else {
            return Ok(Vec::new());
        };
        let [kernel, initramfs] =
            [&own.kernel, &own.initramfs].map(|path| path.display().to_string());
        let words = ["sha256sum", &kernel, &initramfs];
        let reported = run(&words).map_err(|printed| LabError::Command {
            command: words.join(" "),
            printed,
        })?;
        Ok(reported.lines().map(str::to_owned).collect())
    }

    /// Asks quietwire's switch in the guest for its cycles.
    fn cycles_report(&self, deadline: Deadline) -> Result<CyclesReport, String> {
        let agent = self.running()?.agent_within(deadline.remaining());
        agent
            .and_then(|mut agent| agent.cycles_within(deadline.remaining()))
            .map_err(|error| error.to_string())
    }

    fn running(&self) -> Result<&Guest, String> {
        self.guest
            .as_ref()
            .ok_or_else(|| "it was not started".to_owned())
    }
}

fn port_of(plan: &Plan, index: usize, attachment: &Attachment) -> Result<GuestPort, LabError> {
    let backend = match attachment {
        Attachment::VirtioUser { socket, is_server } => PortBackend::VhostUser {
            socket: socket.clone(),
            role: match is_server {
                true => SocketRole::Server,
                false => SocketRole::Client,
            },
        },
        Attachment::Tap { name, .. } => PortBackend::Tap {
            name: name.clone(),
            has_vhost_net: has_vhost_net(),
        },
        Attachment::Pci { address } => PortBackend::Card {
            address: address.clone(),
        },
        Attachment::Memif { .. } | Attachment::Vhost { .. } | Attachment::Interface { .. } => {
            return Err(LabError::Topology(format!(
                "{}: port p{index} is not a vhost-user port, a tap or a network card, and guests support no other ports",
                plan.name
            )));
        }
    };
    let number = (u64::from(plan.index) << 8).saturating_add(index as u64);
    Ok(GuestPort {
        backend,
        queues: 1,
        ring_size: RING_SIZE,
        mac: match router::mac(plan, index) {
            Some(mac) if plan.program.routes() => mac,
            _ => MacAddress::from_u64(MAC.saturating_add(number)),
        },
    })
}

/// Returns the namespace with the peers of its taps; QEMU uses one.
fn namespace_of(plan: &Plan) -> Result<Option<String>, LabError> {
    let mut names = plan.ports.iter().filter_map(|port| match &port.attachment {
        Attachment::Tap { namespace, .. } => Some(namespace),
        _ => None,
    });
    let first = names.next().cloned();
    match names.find(|name| Some(*name) != first.as_ref()) {
        None => Ok(first),
        Some(_) => Err(LabError::Topology(format!(
            "{}: taps of two kernel switches, but a guest supports those of one",
            plan.name
        ))),
    }
}

/// Returns true if the host's kernel can move frames between taps and guests itself (vhost-net).
fn has_vhost_net() -> bool {
    let mut file = std::fs::OpenOptions::new();
    file.read(true).write(true).open(VHOST_NET).is_ok()
}

/// Returns the program that the agent starts.
fn kind(program: Program, plan: &Plan) -> Result<VnfKind, LabError> {
    let is_one = plan.joins.len() == 1;
    Ok(match (program, plan.forwarding) {
        (Program::Quietwire, Forwarding::CrossConnect) if plan.config.is_none() => {
            VnfKind::CrossConnect
        }
        (Program::Quietwire | Program::Firewall, Forwarding::CrossConnect) => {
            VnfKind::Firewall(config_of(plan))
        }
        (Program::Quietwire | Program::Firewall, Forwarding::Bridge) => {
            VnfKind::Switch(format!("{}\n{}", config_of(plan), bridges(plan)))
        }
        (Program::TestpmdIo, _) => VnfKind::Testpmd(TestpmdMode::Io),
        (Program::TestpmdMac, _) => VnfKind::Testpmd(TestpmdMode::Mac),
        (Program::TestpmdMacswap, _) => VnfKind::Testpmd(TestpmdMode::Macswap),
        (Program::LinuxBridge, _) if is_one => VnfKind::LinuxBridge,
        (Program::QuietwireRouter, _) if plan.config.is_none() => {
            VnfKind::Router(routing_of(plan)?)
        }
        (Program::QuietwireRouter | Program::Nat, _) => {
            let config = router::config(plan, plan.destinations);
            VnfKind::Switch(config.map_err(LabError::Topology)?)
        }
        (Program::LinuxRouting, _) => VnfKind::LinuxRouter(routing_of(plan)?),
        (program, _) => {
            return Err(LabError::Topology(format!(
                "{}: {program} is not supported in a guest{}",
                plan.name,
                if program == Program::LinuxBridge {
                    " between more than two ports"
                } else {
                    ""
                }
            )));
        }
    })
}

/// Returns the switch's configuration beyond its ports and addresses: its rules, if it has no other.
fn config_of(plan: &Plan) -> String {
    let config = plan.config.as_ref().or(plan.rules.as_ref());
    config.cloned().unwrap_or_default()
}

fn routing_of(plan: &Plan) -> Result<Routing, LabError> {
    router::routing(plan, plan.destinations).map_err(LabError::Topology)
}

/// Returns the switch's configuration with a bridge for each pair of ports.
fn bridges(plan: &Plan) -> String {
    let bridge = |(index, [from, to]): (usize, &[usize; 2])| {
        format!("[[bridge]]\nname = \"b{index}\"\nports = [\"p{from}\", \"p{to}\"]\n")
    };
    plan.joins.iter().enumerate().map(bridge).collect()
}

impl Forwarder for InGuest {
    /// Checks the programs of the image, which are those that are installed on this machine.
    fn probe(&self) -> Result<String, Unavailable> {
        let version = match self.program.is_of_the_kernel() {
            true => "Linux of the guests' image".to_owned(),
            false if self.program == Program::OwnImage => "an image of the user's own".to_owned(),
            false => forwarder_for(self.program, &self.hypervisor.quietwire).probe()?,
        };
        let under = match self.hypervisor.acceleration.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Software => "software emulation",
        };
        Ok(format!("{version}, in a guest under {under}"))
    }

    /// Starts the boot and does not wait: QEMU waits for the peers of its ports, and several guests boot at once.
    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        if self.has_agent() {
            // Unsupported settings are reported before anything is started.
            self.vnf(plan)?;
        }
        let (spec, image) = (self.spec(plan)?, self.image(plan)?);
        self.reported = self.image_hashes(plan)?;
        let set = context.set.clone();
        let guest = Guest::begin(
            context.journal(),
            &spec,
            &image,
            &self.hypervisor.acceleration,
            &plan.directory,
            set.as_ref(),
        )?;
        context.commands.push(guest.command());
        self.guest = Some(guest);
        Ok(())
    }

    fn connect(&mut self, _plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let guest = self.guest.as_mut();
        guest.map_or(Ok(()), |guest| guest.wait_until_up(&context.stop))
    }

    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let Some(guest) = &self.guest else {
            return Ok(());
        };
        if !self.has_agent() {
            return Ok(());
        }
        let vnf = self.vnf(plan)?;
        let agent = guest.agent().and_then(|mut agent| agent.start(&vnf));
        let started = agent.map_err(|error| {
            let what = format!("did not start its network function: {error}");
            guest.failed(what)
        })?;
        context.commands.extend(started.commands.iter().cloned());
        self.started = started.commands;
        Ok(())
    }

    /// Reads the counters of the guest's program. Those in testpmd's log are up to a second old.
    fn frames(&self, _plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        if !self.has_agent() {
            return Err("a custom image has no agent that reports its counters".to_owned());
        }
        let testpmd = [
            Program::TestpmdIo,
            Program::TestpmdMac,
            Program::TestpmdMacswap,
        ];
        if testpmd.contains(&self.program) {
            return Err("testpmd in a guest reports its counters only once a second".to_owned());
        }
        let agent = self.running()?.agent_within(deadline.remaining());
        let counters = agent
            .and_then(|mut agent| agent.counters_within(deadline.remaining()))
            .map_err(|error| error.to_string())?;
        Ok(of_agent(&counters))
    }

    fn cycles(&self, _plan: &Plan) -> Result<Option<CycleCount>, String> {
        if !self.program.is_quietwire() {
            return Ok(None);
        }
        let reported = self.cycles_report(Deadline::after(TIMEOUT))?;
        Ok(Some(CycleCount::of_quietwire(&reported)))
    }

    fn own_view(&self, _plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        if !self.program.is_quietwire() {
            return Err(NO_OWN_VIEW.to_owned());
        }
        let reported = self.cycles_report(deadline)?;
        Ok(OwnView::of_quietwire(&reported))
    }

    /// Returns the guest's threads. Those of vCPUs forward, except the first of several.
    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        let guest = self.running()?;
        let record = guest.record().ok_or("it is not up")?;
        let forwarding = match record.vcpus.as_slice() {
            [_, others @ ..] if !others.is_empty() => others,
            all => all,
        };
        let threads = quietwire_host::threads::threads_of(Path::new("/"), guest.pid())
            .map_err(|error| error.to_string())?;
        let reported = threads.into_iter().map(|thread| DeviceThread {
            role: match forwarding.iter().any(|vcpu| vcpu.tid == thread.tid) {
                true => ThreadRole::Forwarding,
                false => ThreadRole::Control,
            },
            tid: thread.tid,
            name: thread.name,
            cpus: thread.cpus,
        });
        Ok(reported.collect())
    }

    /// Returns the commands that started the guest and its program.
    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let guest = self.running()?;
        let mut lines = vec![guest.command()];
        lines.extend(self.reported.iter().cloned());
        if self.has_agent() {
            let vnf = self.vnf(plan).map_err(|error| error.to_string())?;
            lines.push(serde_json::to_string(&vnf).map_err(|error| error.to_string())?);
        }
        lines.extend(self.started.iter().cloned());
        Ok(lines)
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut []
    }

    fn pids(&mut self) -> Vec<u32> {
        self.guest.iter().map(Guest::pid).collect()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.guest.as_mut().map_or(Ok(()), Guest::check)
    }

    fn guest(&self) -> Option<GuestSide> {
        let guest = self.guest.as_ref()?;
        Some(GuestSide {
            record: guest.record()?.clone(),
            shell_socket: guest.places().shell_socket.clone(),
            console_log: guest.places().console_log.clone(),
        })
    }

    fn ask_to_end(&mut self) {
        if let Some(guest) = &self.guest {
            guest.ask_to_end();
        }
    }

    fn stop(&mut self) -> Result<(), LabError> {
        self.guest.as_mut().map_or(Ok(()), Guest::stop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::plan;
    use super::*;
    use crate::topology::Encapsulation;

    #[test]
    fn ports_are_what_their_links_are_made_of() {
        let plan = plan(Path::new("/nowhere"));
        let of = |attachment: &Attachment| port_of(&plan, 1, attachment);
        let card = Attachment::Pci {
            address: "0000:17:02.0".to_owned(),
        };
        let backend = PortBackend::Card {
            address: "0000:17:02.0".to_owned(),
        };
        assert_eq!(of(&card).unwrap().backend, backend);
        let memif = &plan.ports[0].attachment;
        let error = of(memif).unwrap_err().to_string();
        assert!(
            error.contains("port p1 is not a vhost-user port"),
            "{error}"
        );
    }

    #[test]
    fn functions_of_quietwire_have_their_configurations() {
        let of = |program, config: Option<&str>| {
            let plan = Plan {
                program,
                encapsulation: Encapsulation::Ipv4,
                config: config.map(str::to_owned),
                ..plan(Path::new("/nowhere"))
            };
            kind(program, &plan).unwrap()
        };
        assert_eq!(of(Program::Quietwire, None), VnfKind::CrossConnect);
        for program in [Program::Quietwire, Program::Firewall] {
            let own = VnfKind::Firewall("# own".to_owned());
            assert_eq!(of(program, Some("# own")), own);
        }
        let router = of(Program::QuietwireRouter, None);
        assert!(matches!(router, VnfKind::Router(_)), "{router:?}");
        for (program, config, part) in [
            (Program::Nat, None, "[[nat]]"),
            (
                Program::QuietwireRouter,
                Some("[connections]"),
                "[connections]",
            ),
        ] {
            let VnfKind::Switch(text) = of(program, config) else {
                panic!("{program}");
            };
            assert!(
                text.contains(part) && text.contains("[[interface]]"),
                "{text}"
            );
        }
    }

    /// The guide has the values of all guests.
    #[test]
    fn values_are_those_of_the_guide() {
        let page = include_str!("../../../../docs/guests.md");
        let (kvm, software) = (DEADLINE_KVM.as_secs(), DEADLINE_SOFTWARE.as_secs());
        for text in [
            format!("| memory | {MEMORY_MIB} MiB"),
            format!("{MEMORY_MIB} MiB of memory, one vCPU"),
            format!("| ports | at most {PORTS_MAX},"),
            format!("rings of {RING_SIZE} descriptors"),
            format!("| boot timeout | {kvm} s under KVM, {software} s in software emulation"),
        ] {
            assert!(page.contains(&text), "no '{text}'");
        }
    }

    #[test]
    fn all_missing_packages_are_reported_at_once() {
        let root = tempfile::tempdir().unwrap();
        let lacking = || lacking_below(root.path(), OsStr::new("/usr/bin"));
        let printed = lacking().unwrap().0;
        let all = "apt-get install binutils busybox cpio dpdk-dev iproute2 kmod qemu-system-x86";
        assert!(printed.contains(all), "{printed}");
        let directory = root.path().join("usr/bin");
        std::fs::create_dir_all(&directory).unwrap();
        let install = |name: &str| {
            let path = directory.join(name);
            std::fs::write(&path, "").unwrap();
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, executable).unwrap();
        };
        for name in ["readelf", "busybox", "dpdk-testpmd", "ip"] {
            install(name);
        }
        assert_eq!(
            lacking().unwrap().to_string(),
            "unavailable because guests require commands that are not installed: cpio (cpio), modprobe (kmod), \
             qemu-system-x86_64 (qemu-system-x86) (`apt-get install cpio kmod qemu-system-x86` installs them)"
        );
        for name in ["cpio", "modprobe", "qemu-system-x86_64"] {
            install(name);
        }
        assert_eq!(lacking(), None);
    }

    #[test]
    fn drivers_of_cards_are_those_that_are_installed() {
        let directory = tempfile::tempdir().unwrap();
        assert!(card_drivers(&directory.path().join("none")).is_empty());
        let release = directory.path().join("pmds-23.0");
        std::fs::create_dir(&release).unwrap();
        for name in ["iavf", "mlx5", "virtio"] {
            std::fs::write(release.join(format!("librte_net_{name}.so")), "").unwrap();
        }
        assert_eq!(
            card_drivers(directory.path()),
            [release.join("librte_net_iavf.so")]
        );
    }
}
