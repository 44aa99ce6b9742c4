// SPDX-License-Identifier: Apache-2.0
//! Guests whose kernel drives virtio. They want QEMU and a Linux kernel with its modules, which is why they are left out
//! unless asked for:
//!
//! ```text
//! apt-get download linux-image-…-cloud-amd64 && dpkg-deb -x linux-image-*.deb /tmp/kernel
//! QUIETWIRE_GUEST_KERNEL=/tmp/kernel cargo test -p quietwire --test switch_ports guests -- --ignored
//! ```

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{DEADLINE, Namespace, Switch, run, until};

/// What both sides send, so that the guest can compare: a line, repeated.
const LINE: &[u8] = b"quietwire\n";
const OCTETS: usize = 4 << 20;

/// In the order in which they need each other.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "net/core/failover.ko",
    "drivers/net/net_failover.ko",
    "drivers/net/virtio_net.ko",
];

const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in /modules/*; do $b insmod $module; done
$b ip link set lo up
$b ip address add 10.9.0.2/24 dev eth0
$b ip link set eth0 up
$b yes quietwire | $b head -c 4194304 >/www/data
$b httpd -p 80 -h /www
until $b wget -q -O /heard http://10.9.0.1:5000/; do $b sleep 1; done
$b cmp /heard /www/data && echo GUEST HEARD ALL
$b sleep 1000
"#;

fn said() -> Vec<u8> {
    LINE.iter().copied().cycle().take(OCTETS).collect()
}

/// The one entry of a directory whose name begins so.
fn entry(directory: &Path, begins: &str) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .find(|entry| entry.file_name().to_string_lossy().starts_with(begins))
        .unwrap()
        .path()
}

const BUSYBOX: &str = "/usr/bin/busybox";

/// Libraries that busybox needs, where it is not a static program.
fn libraries() -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(BUSYBOX).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// What a guest is started from.
struct Image {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Image {
    fn make(directory: &Path) -> Self {
        let tree = std::env::var("QUIETWIRE_GUEST_KERNEL")
            .expect("QUIETWIRE_GUEST_KERNEL names the unpacked package of a kernel");
        let tree = Path::new(&tree);
        let root = directory.join("root");
        for name in ["bin", "proc", "dev", "modules", "www"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
        for library in libraries() {
            let to = root.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
        let modules = entry(&tree.join("lib/modules"), "").join("kernel");
        for (number, module) in MODULES.iter().enumerate() {
            let from = modules.join(module);
            // A kernel may have it built in.
            if from.exists() {
                fs::copy(from, root.join(format!("modules/{number}.ko"))).unwrap();
            }
        }
        fs::write(root.join("init"), INIT).unwrap();
        let initramfs = directory.join("initramfs");
        let script = "chmod +x init && find . | busybox cpio -o -H newc";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&root);
        command.stdout(File::create(&initramfs).unwrap());
        assert!(command.status().unwrap().success());
        Self {
            kernel: entry(&tree.join("boot"), "vmlinuz"),
            initramfs,
        }
    }
}

/// A guest that ends with this value.
struct Guest {
    child: Child,
    serial: PathBuf,
}

impl Guest {
    fn start(image: &Image, directory: &Path, name: &str) -> Self {
        let serial = directory.join(name);
        let socket = directory.join("v.sock");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-machine",
                "q35",
            ])
            .args(["-m", "256", "-nodefaults", "-display", "none", "-no-reboot"])
            .arg("-serial")
            .arg(format!("file:{}", serial.display()))
            .arg("-kernel")
            .arg(&image.kernel)
            .arg("-initrd")
            .arg(&image.initramfs)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .args([
                "-object",
                "memory-backend-memfd,id=memory,size=256M,share=on",
            ])
            .args(["-numa", "node,memdev=memory"])
            .arg("-chardev")
            .arg(format!("socket,id=socket,path={}", socket.display()))
            .args(["-netdev", "vhost-user,id=net,chardev=socket"])
            // QEMU 7.2 without KVM ends with a segmentation fault where a vhost-user device has MSI-X.
            .args(["-device", "virtio-net-pci,netdev=net,vectors=0"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Self { child, serial }
    }

    fn has_heard_all(&mut self) {
        until("the guest hears all", || {
            let ended = self.child.try_wait().unwrap();
            let serial = fs::read(&self.serial).unwrap_or_default();
            let text = String::from_utf8_lossy(&serial).into_owned();
            assert!(ended.is_none(), "{ended:?}: {text}");
            text.contains("GUEST HEARD ALL").then_some(())
        });
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers every request with all of it, in a thread that ends with the process.
fn serve(namespace: &Namespace) {
    namespace
        .within(|| {
            let listener = TcpListener::bind(("10.9.0.1", 5000)).unwrap();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request);
                    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {OCTETS}\r\n\r\n");
                    // A guest that is killed closes its end.
                    let _ = stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&said()));
                }
            });
        })
        .join()
        .unwrap();
}

/// What the guest's kernel sends arrives whole.
fn hear(namespace: &Namespace) {
    let heard = namespace.within(|| {
        let mut stream = TcpStream::connect(("10.9.0.2", 80)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        heard
    });
    assert!(heard.join().unwrap().ends_with(&said()));
}

fn talks(kind: &str, options: &str, has: &[&str], has_not: &[&str]) {
    let namespace = Namespace::new(kind);
    let directory = TempDir::new().unwrap();
    let image = Image::make(directory.path());
    let socket = directory.path().join("v.sock");
    let ports = [
        ("tap", "tap:t0".to_owned()),
        ("guest", format!("vhost:{}{options}", socket.display())),
    ];
    let switch = Switch::start(
        &namespace,
        directory.path(),
        &ports,
        &["--bridge", "lan=tap,guest"],
    );
    namespace.ip(&["address", "add", "10.9.0.1/24", "dev", "t0"]);
    serve(&namespace);
    // The second guest finds the port that the first was killed on.
    for name in ["first", "second"] {
        let mut guest = Guest::start(&image, directory.path(), name);
        guest.has_heard_all();
        hear(&namespace);
        let port = switch.port("guest");
        let features = port["guest"]["features"].as_array().unwrap();
        for feature in has {
            assert!(features.contains(&Value::from(*feature)), "{port}");
        }
        for feature in has_not {
            assert!(!features.contains(&Value::from(*feature)), "{port}");
        }
    }
    // The kernel counts what it had to throw away for a wrong checksum.
    let counters = run(namespace.command("cat").arg("/proc/net/snmp"));
    let tcp: Vec<&str> = counters
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .collect();
    let place = tcp[0]
        .split(' ')
        .position(|name| name == "InCsumErrors")
        .unwrap();
    assert_eq!(tcp[1].split(' ').nth(place), Some("0"), "{counters}");
    assert_eq!(switch.end(), Some(0));
}

const SEGMENTATION: [&str; 5] = ["gso", "host-tso4", "host-tso6", "host-ecn", "host-ufo"];

#[test]
#[ignore = "wants QEMU, and a kernel in QUIETWIRE_GUEST_KERNEL"]
fn a_guest_that_leaves_checksums_to_the_host_is_understood() {
    talks(
        "guest",
        "",
        &["csum", "mrg-rxbuf", "version-1"],
        &SEGMENTATION,
    );
}

#[test]
#[ignore = "wants QEMU, and a kernel in QUIETWIRE_GUEST_KERNEL"]
fn a_guest_without_offloads_is_understood() {
    let has_not = [&SEGMENTATION[..], &["csum", "mrg-rxbuf"]].concat();
    talks(
        "plain",
        "?checksum=off&mergeable=off",
        &["version-1"],
        &has_not,
    );
}
