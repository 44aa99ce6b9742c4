// SPDX-License-Identifier: Apache-2.0
//! Guests without the agent: a kernel that drives virtio itself, busybox, and a script of the test. Kernel and modules are
//! from the image of the labs' guests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use quietwire_base::wait_until;

use crate::rig::{DEADLINE, image};
use crate::switches::run;

const BUSYBOX: &str = "/usr/bin/busybox";

/// Runs before the test's script: mounts, drivers, and the only network interface.
const INIT: &str = r"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
modprobe virtio_pci
modprobe virtio_net
ip link set lo up
ip address add 10.9.0.2/24 dev eth0
ip link set eth0 up
";

/// Returns the libraries that busybox requires; none if it is a static program.
fn libraries() -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(BUSYBOX).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// Returns the modules of the kernel of the labs' guests, as installed in a guest.
fn modules() -> PathBuf {
    let image = image();
    let manifest = image.manifest().unwrap();
    let hash = manifest
        .lines()
        .find_map(|line| line.strip_prefix("kernel "))
        .unwrap();
    let cache = image.directory.parent().unwrap();
    cache.join(format!("kernel-{hash}/modules/usr/lib/modules"))
}

/// Kernel and initramfs of a guest.
pub(crate) struct Boot {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Boot {
    /// Creates an initramfs in `directory`. The guest has the address 10.9.0.2 and runs `script` in busybox's shell.
    pub(crate) fn make(directory: &Path, script: &str) -> Self {
        let root = directory.join("root");
        for name in ["bin", "proc", "sys", "dev", "lib"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
        for library in libraries() {
            let to = root.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
        run(Command::new("cp")
            .arg("-r")
            .arg(modules())
            .arg(root.join("lib")));
        fs::write(root.join("init"), format!("{INIT}{script}")).unwrap();
        let initramfs = directory.join("initramfs");
        let pack = "chmod +x init && find . | busybox cpio -o -H newc";
        let mut command = Command::new("sh");
        command.args(["-c", pack]).current_dir(&root);
        command.stdout(File::create(&initramfs).unwrap());
        assert!(command.status().unwrap().success());
        Self {
            kernel: image().kernel,
            initramfs,
        }
    }
}

/// A guest to start.
pub(crate) struct Setup<'setup> {
    pub(crate) boot: &'setup Boot,
    /// Directory of the guest's console file.
    pub(crate) directory: &'setup Path,
    /// Name of the console's file.
    pub(crate) name: &'setup str,
    /// Socket of the switch's vhost port.
    pub(crate) socket: &'setup Path,
    /// Additional properties of the network card, each with a leading comma.
    pub(crate) card: &'setup str,
    /// Additional words of the kernel's command line.
    pub(crate) kernel_options: &'setup str,
    /// Additional arguments of QEMU.
    pub(crate) arguments: &'setup [&'setup str],
}

/// A guest that is terminated with this value.
pub(crate) struct Guest {
    child: Child,
    console: PathBuf,
    /// Output of QEMU.
    log: PathBuf,
}

impl Guest {
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        let console = setup.directory.join(setup.name);
        let kernel_options = format!(
            "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests {}",
            setup.kernel_options
        );
        // QEMU 7.2 without KVM ends with a segmentation fault if a vhost-user device has MSI-X.
        let card = format!("virtio-net-pci,netdev=net,vectors=0{}", setup.card);
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
            .args(["-machine", "q35", "-m", "256", "-nodefaults"])
            .args(["-no-user-config", "-display", "none", "-no-reboot"])
            .args([
                "-object",
                "memory-backend-memfd,id=memory,size=256M,share=on",
            ])
            .args(["-numa", "node,memdev=memory"])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .arg("-kernel")
            .arg(&setup.boot.kernel)
            .arg("-initrd")
            .arg(&setup.boot.initramfs)
            .args(["-append", &kernel_options])
            .args(setup.arguments)
            .arg("-chardev")
            .arg(format!("socket,id=port,path={}", setup.socket.display()))
            .args(["-netdev", "vhost-user,id=net,chardev=port"])
            .args(["-device", &card]);
        let log = console.with_extension("log");
        let child = command
            .stdin(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            console,
            log,
        }
    }

    /// Waits until the guest's console shows a text.
    pub(crate) fn shows(&mut self, text: &str) {
        let is_shown = wait_until(DEADLINE, || {
            let is_shown = self.console().contains(text);
            self.runs();
            is_shown
        });
        assert!(is_shown, "no '{text}': {}", self.console());
    }

    /// Fails if QEMU has ended.
    pub(crate) fn runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", self.console());
    }

    /// Returns the output of the guest and of QEMU.
    pub(crate) fn console(&self) -> String {
        let octets = [&self.console, &self.log].map(|path| fs::read(path).unwrap_or_default());
        String::from_utf8_lossy(&octets.concat()).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
