// SPDX-License-Identifier: Apache-2.0
//! QEMU's command line (qemu-system-x86_64(1)) for a guest.

use std::path::Path;

use super::image::Image;
use super::kvm::Accelerator;
use super::spec::{
    CONSOLE_OUTPUT, GuestPaths, GuestPort, GuestSpec, PortBackend, QEMU, SocketRole,
};

/// Name of the agent's channel.
pub(crate) const AGENT_CHANNEL: &str = "org.quietwire.agent";
/// Device number of the guest's first port on its PCI bus.
const FIRST_DEVICE: usize = 0x10;
/// Device number of the agent's channel.
const AGENT_DEVICE: usize = 0x8;
/// Interrupts of a virtio network card in addition to those of its queues: configuration changes, control queue.
const OTHER_VECTORS: u16 = 2;

/// Returns the PCI address of a guest's port.
#[must_use]
pub fn port_address(index: usize) -> String {
    format!("0000:00:{:02x}.0", FIRST_DEVICE.saturating_add(index))
}

/// Escapes a value within a QEMU option: a comma ends a value unless it is doubled.
fn value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Options of each guest's kernel. On a busy host, an emulated guest's timer interrupts arrive too late for the kernel's timer check, which
/// panics. The self-tests of its cryptography take half a second in an emulated guest.
const BOOT_OPTIONS: &str = "console=ttyS0,115200 panic=-1 no_timer_check cryptomgr.notests";

pub(crate) fn qemu(
    spec: &GuestSpec,
    image: &Image,
    places: &GuestPaths,
    accelerator: Accelerator,
) -> Vec<String> {
    let mut command = vec![QEMU.to_owned()];
    let mut add = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-name", &format!("guest={},debug-threads=on", spec.name)]);
    add(&["-nodefaults", "-no-user-config", "-no-reboot", "-S"]);
    add(&["-display", "none", "-machine", "q35,memory-backend=memory"]);
    // The threads of emulated vCPUs run in parallel, as those of KVM do.
    add(match accelerator {
        Accelerator::Kvm => &["-accel", "kvm", "-cpu", "host"],
        Accelerator::Software => &["-accel", "tcg,thread=multi", "-cpu", "max"],
    });
    let vcpus = spec.vcpu_cpus.len();
    add(&[
        "-smp",
        &format!("{vcpus},sockets=1,cores={vcpus},threads=1"),
    ]);
    add(&["-m", &format!("{}M", spec.memory_mib)]);
    // vhost-user requires shared memory.
    let pages = if spec.huge_pages {
        ",hugetlb=on,hugetlbsize=2M,prealloc=on"
    } else {
        ""
    };
    let memory = format!(
        "memory-backend-memfd,id=memory,size={}M,share=on{pages}",
        spec.memory_mib
    );
    add(&["-object", &memory]);
    add(&["-kernel", &image.kernel.display().to_string()]);
    add(&["-initrd", &image.initramfs.display().to_string()]);
    let mut options = vec![BOOT_OPTIONS.to_owned()];
    options.extend(spec.kernel_options.iter().cloned());
    add(&["-append", &options.join(" ")]);
    // The starter of QEMU limits the size of the log.
    add(&[
        "-chardev",
        &format!("file,id=console,path={CONSOLE_OUTPUT}"),
    ]);
    add(&["-serial", "chardev:console"]);
    let server = |id: &str, socket: &Path| {
        format!("socket,id={id},path={},server=on,wait=off", value(socket))
    };
    add(&[
        "-chardev",
        &server("shell", &places.shell_socket),
        "-serial",
        "chardev:shell",
    ]);
    add(&["-chardev", &server("monitor", &places.monitor_socket)]);
    add(&["-mon", "chardev=monitor,mode=control"]);
    add(&["-chardev", &server("agent", &places.agent_socket)]);
    add(&[
        "-device",
        &format!("virtio-serial-pci,bus=pcie.0,addr={AGENT_DEVICE:#x}"),
    ]);
    add(&[
        "-device",
        &format!("virtserialport,chardev=agent,name={AGENT_CHANNEL}"),
    ]);
    for (index, port) in spec.ports.iter().enumerate() {
        for (option, word) in port_options(index, port, accelerator) {
            add(&[option, &word]);
        }
    }
    command
}

fn port_options(
    index: usize,
    port: &GuestPort,
    accelerator: Accelerator,
) -> Vec<(&'static str, String)> {
    let is_vhost_user = matches!(port.backend, PortBackend::VhostUser { .. });
    // QEMU 7.2 without KVM fails an assertion when a guest unmasks an MSI-X interrupt of a vhost-user port, so such guests use
    // legacy interrupts. A polling program needs none.
    let vectors = match accelerator {
        Accelerator::Software if is_vhost_user => 0,
        _ => {
            let of_queues = port.queues.saturating_mul(2);
            of_queues.saturating_add(OTHER_VECTORS)
        }
    };
    let several = if port.queues > 1 { ",mq=on" } else { "" };
    let queues = port.queues;
    let size = port.ring_size;
    let device = FIRST_DEVICE.saturating_add(index);
    if let PortBackend::Card { address } = &port.backend {
        // Its option ROM is for network boot.
        let card = format!("vfio-pci,host={address},bus=pcie.0,addr={device:#x},rombar=0");
        return vec![("-device", card)];
    }
    let mac = port.mac;
    let mut options = match &port.backend {
        PortBackend::VhostUser { socket, role } => {
            let role = match role {
                // After a restart, a switch connects to its guests again.
                SocketRole::Client => "reconnect=1",
                SocketRole::Server => "server=on,wait=off",
            };
            let socket = value(socket);
            let chardev = format!("socket,id=port{index},path={socket},{role}");
            let netdev = format!("vhost-user,id=net{index},chardev=port{index},queues={queues}");
            vec![("-chardev", chardev), ("-netdev", netdev)]
        }
        PortBackend::Tap {
            name,
            has_vhost_net,
        } => {
            let vhost = if *has_vhost_net { "on" } else { "off" };
            let several = match queues {
                1 => String::new(),
                _ => format!(",queues={queues}"),
            };
            let netdev = format!(
                "tap,id=net{index},ifname={name},script=no,downscript=no,vhost={vhost}{several}"
            );
            vec![("-netdev", netdev)]
        }
        PortBackend::Card { .. } => Vec::new(),
    };
    // Transmit rings of more than 256 descriptors require vhost (hw/net/virtio-net.c, virtio_net_max_tx_queue_size).
    let tx_size = if is_vhost_user { size } else { size.min(256) };
    options.push((
        "-device",
        format!(
            "virtio-net-pci,netdev=net{index},mac={mac},bus=pcie.0,addr={device:#x},rx_queue_size={size},tx_queue_size={tx_size},vectors={vectors},romfile={several}"
        ),
    ));
    options
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::spec::tests::{card, port, spec, tap};
    use super::*;

    fn line(spec: &GuestSpec, accelerator: Accelerator) -> String {
        let image = Image {
            directory: PathBuf::from("/images/x"),
            kernel: PathBuf::from("/images/x/vmlinuz"),
            initramfs: PathBuf::from("/images/x/initramfs"),
        };
        let places = GuestPaths::below(Path::new("/run/lab,1/vnf-0"));
        qemu(spec, &image, &places, accelerator).join(" ")
    }

    #[test]
    fn ports_have_places_and_shared_memory() {
        let mut asked = spec(vec![port("/run/a.sock", 1), port("/run/b,c.sock", 2)]);
        asked.ports[1].backend = PortBackend::VhostUser {
            socket: PathBuf::from("/run/b,c.sock"),
            role: SocketRole::Server,
        };
        asked.ports[1].queues = 2;
        asked.kernel_options = vec!["isolcpus=1".to_owned()];
        let printed = line(&asked, Accelerator::Software);
        for part in [
            "-accel tcg,thread=multi -cpu max",
            "-smp 2,sockets=1,cores=2,threads=1 -m 512M",
            "memory-backend-memfd,id=memory,size=512M,share=on -kernel /images/x/vmlinuz",
            "-append console=ttyS0,115200 panic=-1 no_timer_check cryptomgr.notests isolcpus=1 -chardev",
            "-chardev file,id=console,path=/dev/stdout -serial chardev:console",
            "path=/run/lab,,1/vnf-0/shell.sock",
            "socket,id=port0,path=/run/a.sock,reconnect=1 -netdev vhost-user,id=net0,chardev=port0,queues=1",
            "mac=02:00:00:00:00:01,bus=pcie.0,addr=0x10,rx_queue_size=1024,tx_queue_size=1024,vectors=0,romfile=",
            "socket,id=port1,path=/run/b,,c.sock,server=on,wait=off",
            "addr=0x11,rx_queue_size=1024,tx_queue_size=1024,vectors=0,romfile=,mq=on",
        ] {
            assert!(printed.contains(part), "no '{part}' in {printed}");
        }
        assert_eq!(port_address(1), "0000:00:11.0");
    }

    #[test]
    fn taps_are_interfaces_that_are_there() {
        let mut asked = spec(vec![tap("p3", 1), tap("p4", 2)]);
        asked.ports[1].backend = PortBackend::Tap {
            name: "p4".to_owned(),
            has_vhost_net: true,
        };
        let printed = line(&asked, Accelerator::Software);
        for part in [
            "-netdev tap,id=net0,ifname=p3,script=no,downscript=no,vhost=off -device",
            "addr=0x10,rx_queue_size=1024,tx_queue_size=256,vectors=4,romfile=",
            "-netdev tap,id=net1,ifname=p4,script=no,downscript=no,vhost=on -device",
        ] {
            assert!(printed.contains(part), "no '{part}' in {printed}");
        }
    }

    #[test]
    fn cards_are_handed_over_in_the_places_of_ports() {
        let asked = spec(vec![card("0000:17:02.0", 1), port("/run/b.sock", 2)]);
        let printed = line(&asked, Accelerator::Kvm);
        assert!(
            printed.contains(
                "-device vfio-pci,host=0000:17:02.0,bus=pcie.0,addr=0x10,rombar=0 -chardev"
            ),
            "{printed}"
        );
        assert!(
            !printed.contains("net0") && printed.contains("netdev=net1"),
            "{printed}"
        );
    }

    #[test]
    fn under_kvm_ports_have_interrupts_and_memory_may_be_huge() {
        let mut asked = spec(vec![port("/run/a.sock", 1)]);
        asked.huge_pages = true;
        let printed = line(&asked, Accelerator::Kvm);
        assert!(
            printed.contains("-accel kvm -cpu host") && printed.contains("vectors=4"),
            "{printed}"
        );
        assert!(printed.contains("hugetlb=on,hugetlbsize=2M"), "{printed}");
    }
}
