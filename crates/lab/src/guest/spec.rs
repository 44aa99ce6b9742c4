// SPDX-License-Identifier: Apache-2.0
//! Specification of a guest.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_host::{CpuId, CpuList};
use quietwire_packet::MacAddress;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::topology::is_pci_address;

/// QEMU's program.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Debian's package of QEMU.
pub(crate) const QEMU_PACKAGE: &str = "qemu-system-x86";
/// Maximum number of a guest's ports: slots on its PCI bus.
pub const PORTS_MAX: usize = 15;
/// Minimum memory of a guest, MiB: the image is unpacked into it.
const MEMORY_MIN_MIB: u32 = 256;
/// Longest path of a Unix socket (unix(7)).
const SOCKET_PATH_MAX: usize = 107;
/// Maximum number of a port's queue pairs, one for each vCPU at most (virtio 1.2, section 5.1.5.6.5 allows far more).
const QUEUES_MAX: u16 = 64;

/// Requested accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceleratorChoice {
    /// KVM if guests boot under it, otherwise software emulation.
    #[default]
    Auto,
    /// KVM only.
    Kvm,
    /// Software emulation.
    Software,
}

/// Side that creates a port's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketRole {
    /// The switch or tester creates it (`vhost:PATH`) and must be up before the guest is started.
    #[default]
    Client,
    /// The guest creates it, and boots when a peer connects to it (`vhost:PATH?role=client`).
    Server,
}

/// Back end of a guest's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortBackend {
    /// A switch or tester that shares the guest's memory.
    VhostUser {
        /// Its socket.
        socket: PathBuf,
        /// Whether the guest connects to the socket or creates it.
        role: SocketRole,
    },
    /// A tap interface of the host's kernel.
    Tap {
        /// Its name, in the namespace of the guest's QEMU. It must exist.
        name: String,
        /// Whether the host's kernel moves the frames (vhost-net); otherwise QEMU does.
        has_vhost_net: bool,
    },
    /// A network card of the host, or a virtual function of one, which is assigned to the guest (vfio). Its queues,
    /// rings and MAC address are its own; the settings here do not apply.
    Card {
        /// Its PCI address on the host, as in /sys/bus/pci/devices.
        address: String,
    },
}

/// Signal by which a guest reports that it is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadySignal {
    /// Its agent answers.
    #[default]
    Agent,
    /// It has printed [`FORWARDING`] on its first serial port: an image without an agent.
    Console,
}

/// Output of an image without an agent on its first serial port when it forwards.
pub const FORWARDING: &str = "quietwire: forwarding";

/// QEMU's standard output, to which it writes the console of a guest.
pub(super) const CONSOLE_OUTPUT: &str = "/dev/stdout";

/// A port of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPort {
    /// Its back end.
    pub backend: PortBackend,
    /// Pairs of queues, 1 to 64.
    pub queues: u16,
    /// Descriptors of each ring, a power of two from 256 to 1024.
    pub ring_size: u16,
    /// Its MAC address in the guest.
    pub mac: MacAddress,
}

/// Specification of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSpec {
    /// Its name: letters, digits, `-` and `.`, at most 32.
    pub name: String,
    /// Its memory, MiB; 256 or more, 512 with a DPDK program in it.
    pub memory_mib: u32,
    /// Whether its memory is in huge pages of the host, which must be free; otherwise in a memfd.
    pub huge_pages: bool,
    /// A CPU of the host for each vCPU, in order. A CPU may be listed more than once if there are too few.
    pub vcpu_cpus: Vec<CpuId>,
    /// CPUs for QEMU's other threads.
    pub service_cpus: CpuList,
    /// Whether vCPUs are pinned to their CPUs, one to one, and QEMU's other threads to the service CPUs.
    pub pinned: bool,
    /// Its ports, in order.
    pub ports: Vec<GuestPort>,
    /// Its accelerator.
    pub accelerator: AcceleratorChoice,
    /// Additional options for its kernel's command line, such as `isolcpus=1`.
    pub kernel_options: Vec<String>,
    /// Signal by which it reports that it is up.
    #[serde(default)]
    pub ready_signal: ReadySignal,
    /// Network namespace of its QEMU. Default: that of the process that starts it.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Boot timeout.
    pub ready_timeout: Duration,
}

fn bad(name: &str, what: impl std::fmt::Display) -> LabError {
    LabError::GuestSpec(format!("guest '{name}': {what}"))
}

impl GuestSpec {
    /// Checks the specification.
    ///
    /// # Errors
    /// [`LabError::GuestSpec`] with the first invalid value.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |what: String| Err(bad(&self.name, what));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        if self.name.is_empty() || self.name.len() > 32 || !self.name.chars().all(is_name) {
            return bad("invalid name (use 1 to 32 letters, digits, '-' and '.')".to_owned());
        }
        if self.memory_mib < MEMORY_MIN_MIB {
            return bad(format!(
                "{} MiB of memory are too few (use at least {MEMORY_MIN_MIB} MiB)",
                self.memory_mib
            ));
        }
        if self.vcpu_cpus.is_empty() {
            return bad("it has no vCPU (give it at least one)".to_owned());
        }
        if self.pinned && self.service_cpus.is_empty() {
            return bad(
                "no CPU is left for QEMU's own threads (name at least one service CPU)".to_owned(),
            );
        }
        if self.ports.len() > PORTS_MAX {
            return bad(format!(
                "{} ports are too many (maximum: {PORTS_MAX})",
                self.ports.len()
            ));
        }
        if let Some(option) = self
            .kernel_options
            .iter()
            .find(|option| option.chars().any(|c| c.is_control()))
        {
            return bad(format!(
                "the kernel option {option:?} contains a control character"
            ));
        }
        let mut taken = BTreeSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            self.check_port(index, port)?;
            let other_side = port.other_side();
            if !taken.insert(other_side.clone()) {
                return bad(format!("two ports have {other_side}"));
            }
        }
        Ok(())
    }

    fn check_port(&self, index: usize, port: &GuestPort) -> Result<(), LabError> {
        let bad = |what: String| Err(bad(&self.name, format!("port {index}: {what}")));
        match &port.backend {
            PortBackend::VhostUser { socket, .. } => check_socket_path(socket).or_else(&bad)?,
            PortBackend::Tap { name, .. } => check_interface(name).or_else(&bad)?,
            PortBackend::Card { address } if is_pci_address(address) => {}
            PortBackend::Card { address } => {
                return bad(format!(
                    "'{address}' is not a PCI address like 0000:17:00.0"
                ));
            }
        }
        if !(1..=QUEUES_MAX).contains(&port.queues) {
            return bad(format!(
                "{} queues are out of range (allowed: 1 to {QUEUES_MAX})",
                port.queues
            ));
        }
        // Ring sizes that QEMU's virtio-net accepts (hw/net/virtio-net.c, VIRTIO_NET_RX_QUEUE_MIN_SIZE, VIRTQUEUE_MAX_SIZE).
        if !port.ring_size.is_power_of_two() || !(256..=1024).contains(&port.ring_size) {
            return bad(format!(
                "rings of {} descriptors are not supported (use 256, 512 or 1024)",
                port.ring_size
            ));
        }
        if port.mac.is_multicast() {
            return bad(format!(
                "{} is a group address (use a unicast address)",
                port.mac
            ));
        }
        Ok(())
    }

    /// Checks that the sockets exist that the guest connects to: QEMU would wait for them without a message.
    ///
    /// # Errors
    /// [`LabError::GuestSpec`].
    pub(crate) fn check_sockets(&self) -> Result<(), LabError> {
        for (index, port) in self.ports.iter().enumerate() {
            let PortBackend::VhostUser {
                socket,
                role: SocketRole::Client,
            } = &port.backend
            else {
                continue;
            };
            let is_there = socket
                .metadata()
                .is_ok_and(|meta| meta.file_type().is_socket());
            if !is_there {
                return Err(bad(
                    &self.name,
                    format!(
                        "port {index}: the socket {} does not exist (start the switch or tester with the port vhost:{} first)",
                        socket.display(),
                        socket.display()
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl GuestPort {
    /// Returns a description for errors.
    fn other_side(&self) -> String {
        match &self.backend {
            PortBackend::VhostUser { socket, .. } => format!("the socket {}", socket.display()),
            PortBackend::Tap { name, .. } => format!("the interface {name}"),
            PortBackend::Card { address } => format!("the network card {address}"),
        }
    }
}

/// Checks that a text is a valid interface name (IFNAMSIZ of the kernel) and needs no quoting in QEMU's options.
fn check_interface(name: &str) -> Result<(), String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.is_empty() && name.len() < 16 && name.chars().all(is_letter) {
        return Ok(());
    }
    Err(format!(
        "'{name}' is not the name of an interface (use 1 to 15 letters, digits, '-', '_' and '.')"
    ))
}

/// Checks that a text is a valid path of a Unix socket.
pub(crate) fn check_socket_path(path: &Path) -> Result<(), String> {
    if !path.is_absolute() {
        return Err(format!(
            "the socket '{}' is not an absolute path",
            path.display()
        ));
    }
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Err(format!(
            "the path of the socket {} is longer than {SOCKET_PATH_MAX} octets",
            path.display()
        ));
    }
    Ok(())
}

/// Paths of a guest's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPaths {
    /// Its directory.
    pub directory: PathBuf,
    /// Log of its first serial port.
    pub console_log: PathBuf,
    /// Its second serial port, with a shell.
    pub shell_socket: PathBuf,
    /// QEMU's monitor.
    pub monitor_socket: PathBuf,
    /// Its agent.
    pub agent_socket: PathBuf,
    /// Log of QEMU's own output.
    pub qemu_log: PathBuf,
}

impl GuestPaths {
    /// Returns the paths below a directory.
    #[must_use]
    pub fn below(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            console_log: directory.join("console.log"),
            shell_socket: directory.join("shell.sock"),
            monitor_socket: directory.join("monitor.sock"),
            agent_socket: directory.join("agent.sock"),
            qemu_log: directory.join("qemu.log"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn port(socket: &str, number: u64) -> GuestPort {
        GuestPort {
            backend: PortBackend::VhostUser {
                socket: PathBuf::from(socket),
                role: SocketRole::Client,
            },
            queues: 1,
            ring_size: 1024,
            mac: MacAddress::from_u64(0x0200_0000_0000 + number),
        }
    }

    pub(crate) fn tap(name: &str, number: u64) -> GuestPort {
        GuestPort {
            backend: PortBackend::Tap {
                name: name.to_owned(),
                has_vhost_net: false,
            },
            ..port("", number)
        }
    }

    pub(crate) fn card(address: &str, number: u64) -> GuestPort {
        GuestPort {
            backend: PortBackend::Card {
                address: address.to_owned(),
            },
            ..port("", number)
        }
    }

    pub(crate) fn spec(ports: Vec<GuestPort>) -> GuestSpec {
        GuestSpec {
            name: "vnf-0".to_owned(),
            memory_mib: 512,
            huge_pages: false,
            vcpu_cpus: vec![CpuId(1), CpuId(2)],
            service_cpus: "0".parse().unwrap(),
            pinned: true,
            ports,
            accelerator: AcceleratorChoice::Auto,
            kernel_options: Vec::new(),
            ready_signal: ReadySignal::Agent,
            namespace: None,
            ready_timeout: Duration::from_secs(30),
        }
    }

    #[test]
    fn invalid_values_are_reported_with_the_name_of_the_guest() {
        let good = || spec(vec![port("/run/a.sock", 1), port("/run/b.sock", 2)]);
        good().check().unwrap();
        type Mutation = fn(&mut GuestSpec);
        let wrongs: [(&str, Mutation); 15] = [
            ("letters, digits", |spec| spec.name = "a,b".to_owned()),
            ("too few", |spec| spec.memory_mib = 64),
            ("no vCPU", |spec| spec.vcpu_cpus.clear()),
            ("service CPU)", |spec| spec.service_cpus = CpuList::new()),
            ("maximum: 15", |spec| {
                spec.ports = vec![spec.ports[0].clone(); 16];
            }),
            ("control character", |spec| {
                spec.kernel_options = vec!["a\nb".to_owned()];
            }),
            ("two ports have the socket", |spec| {
                spec.ports[1] = port("/run/a.sock", 2);
            }),
            ("port 1: the socket 'b.sock'", |spec| {
                spec.ports[1] = port("b.sock", 2);
            }),
            ("longer than 107", |spec| {
                spec.ports[0] = port(&format!("/{}", "x".repeat(107)), 1);
            }),
            ("two ports have the interface p0", |spec| {
                spec.ports = vec![tap("p0", 1), tap("p0", 2)];
            }),
            ("'a,b' is not the name of an interface", |spec| {
                spec.ports[0] = tap("a,b", 1);
            }),
            ("two ports have the network card 0000:17:02.0", |spec| {
                spec.ports = vec![card("0000:17:02.0", 1), card("0000:17:02.0", 2)];
            }),
            ("'17:02.0,x' is not a PCI address", |spec| {
                spec.ports[0] = card("17:02.0,x", 1);
            }),
            ("queues", |spec| spec.ports[0].queues = 0),
            ("descriptors", |spec| spec.ports[0].ring_size = 300),
        ];
        for (what, spoil) in wrongs {
            let mut spec = good();
            spoil(&mut spec);
            let error = spec.check().unwrap_err();
            assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn a_port_without_a_server_is_reported_before_the_guest_starts() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        let mut spec = spec(vec![port(&socket.display().to_string(), 1)]);
        let error = spec.check_sockets().unwrap_err().to_string();
        assert!(
            error.contains("vhost:") && error.contains("port 0"),
            "{error}"
        );
        std::fs::write(&socket, "").unwrap();
        spec.check_sockets().unwrap_err();
        std::fs::remove_file(&socket).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        spec.check_sockets().unwrap();
        spec.ports[0].backend = PortBackend::VhostUser {
            socket: "/nowhere".into(),
            role: SocketRole::Server,
        };
        spec.check_sockets().unwrap();
        spec.ports[0] = tap("p0", 1);
        spec.check_sockets().unwrap();
    }
}
