// SPDX-License-Identifier: Apache-2.0
//! Guests that run iperf3: virtual machines whose kernel drives one virtio network card. Kernel and modules are those of the labs' guests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quietwire_lab::guest::{Accelerator, AcceleratorChoice, Image, acceleration};

use super::{QUIETWIRE, Running, log_into};

pub(crate) const QEMU: &str = "qemu-system-x86_64";
pub(crate) const BUSYBOX: &str = "/usr/bin/busybox";
const IPERF: &str = "/usr/bin/iperf3";

/// First process of the guest.
const INIT: &str = r"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
modprobe virtio_pci
modprobe virtio_net
ip link set lo up
ip address add ADDRESS dev eth0
ip link set eth0 up
while :; do iperf3 --server; done
";

/// Network of a guest's card.
pub(crate) enum Card<'name> {
    /// A tap that exists in the network namespace of QEMU.
    Tap(&'name str),
    /// Socket of a vhost-user port, on which the switch listens.
    VhostUser(&'name Path),
    /// The same, but QEMU listens and waits for the switch.
    VhostUserServer(&'name Path),
}

/// Kernel and initramfs of guests, and their accelerator.
pub(crate) struct Boot {
    kernel: PathBuf,
    initramfs: PathBuf,
    accelerator: Accelerator,
}

impl Boot {
    /// Creates an initramfs in an existing directory. Returns the reason if this machine has no guests.
    pub(crate) fn make(directory: &Path, address: &str) -> Result<Self, String> {
        for program in [BUSYBOX, IPERF] {
            if !Path::new(program).exists() {
                return Err(format!("{program} is not installed"));
            }
        }
        let image = Image::build(Path::new(QUIETWIRE)).map_err(|error| error.to_string())?;
        let found = acceleration(AcceleratorChoice::Auto, &image);
        let accelerator = found.map_err(|error| error.to_string())?.accelerator;
        let modules = modules(&image).ok_or("the image of guests names no kernel")?;
        let root = directory.join("root");
        for name in ["bin", "proc", "sys", "dev", "lib", "tmp"] {
            fs::create_dir_all(root.join(name)).expect("a directory");
        }
        for program in [BUSYBOX, IPERF] {
            let name = Path::new(program).file_name().unwrap_or_default();
            fs::copy(program, root.join("bin").join(name)).expect("a program");
            for library in libraries(program) {
                let to = root.join(library.strip_prefix("/").unwrap_or(&library));
                fs::create_dir_all(to.parent().unwrap_or(&root)).expect("a directory");
                fs::copy(&library, to).expect("a library");
            }
        }
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(modules).arg(root.join("lib"));
        assert!(copy.status().is_ok_and(|status| status.success()), "cp");
        fs::write(root.join("init"), INIT.replace("ADDRESS", address)).expect("a script");
        let initramfs = directory.join("initramfs");
        let mut pack = Command::new("sh");
        pack.args([
            "-c",
            "chmod +x init && find . | busybox cpio -o -H newc 2>/dev/null",
        ]);
        pack.current_dir(&root).stdin(Stdio::null());
        pack.stdout(File::create(&initramfs).expect("a file"));
        assert!(pack.status().is_ok_and(|status| status.success()), "cpio");
        Ok(Self {
            kernel: image.kernel,
            initramfs,
            accelerator,
        })
    }

    /// Returns what runs the guest's instructions, for notes.
    pub(crate) const fn accelerator(&self) -> &'static str {
        match self.accelerator {
            Accelerator::Kvm => "KVM",
            Accelerator::Software => "QEMU without KVM",
        }
    }

    /// Starts a guest. `command` is that of QEMU in a namespace; the log and the guest's console are files in `directory`.
    pub(crate) fn start(&self, mut command: Command, directory: &Path, card: &Card<'_>) -> Running {
        let has_kvm = self.accelerator == Accelerator::Kvm;
        let console = directory.join("console");
        command.args(match self.accelerator {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Software => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        });
        command.args(["-machine", "q35", "-m", "256", "-nodefaults"]);
        command.args(["-no-user-config", "-display", "none", "-no-reboot"]);
        command.args([
            "-object",
            "memory-backend-memfd,id=memory,size=256M,share=on",
        ]);
        command.args(["-numa", "node,memdev=memory", "-serial"]);
        command.arg(format!("file:{}", console.display()));
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(&self.initramfs);
        command.args([
            "-append",
            "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests",
        ]);
        match card {
            Card::Tap(name) => {
                let vhost = match has_kvm && Path::new("/dev/vhost-net").exists() {
                    true => ",vhost=on",
                    false => "",
                };
                command.arg("-netdev").arg(format!(
                    "tap,id=net,ifname={name},script=no,downscript=no{vhost}"
                ));
            }
            Card::VhostUser(socket) | Card::VhostUserServer(socket) => {
                let server = match card {
                    Card::VhostUserServer(_) => ",server=on",
                    _ => "",
                };
                command.arg("-chardev");
                command.arg(format!("socket,id=port,path={}{server}", socket.display()));
                command.args(["-netdev", "vhost-user,id=net,chardev=port"]);
            }
        }
        // QEMU 7.2 without KVM ends with a segmentation fault if a vhost-user device has MSI-X.
        let vectors = if has_kvm { "" } else { ",vectors=0" };
        command.arg("-device");
        command.arg(format!("virtio-net-pci,netdev=net{vectors}"));
        log_into(&mut command, &directory.join("qemu.log"));
        Running::spawn(&mut command)
    }
}

/// Returns the libraries of a program.
fn libraries(program: &str) -> Vec<PathBuf> {
    let text = super::output_of("ldd", &[program]);
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// Returns the directory of the modules of the image's kernel, as installed in a guest.
fn modules(image: &Image) -> Option<PathBuf> {
    let manifest = image.manifest()?;
    let mut lines = manifest.lines();
    let hash = lines.find_map(|line| line.strip_prefix("kernel "))?;
    let cache = image.directory.parent()?;
    Some(cache.join(format!("kernel-{hash}/modules/usr/lib/modules")))
}
