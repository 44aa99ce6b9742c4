// SPDX-License-Identifier: Apache-2.0
//! Labs with guests: real virtual machines between the tester's ports.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use quietwire_base::{ProcessId, wait_until};
use quietwire_lab::guest::Image;
use quietwire_lab::topology::CATALOG;
use serde_json::Value;

use super::{DEADLINE, Labs, elements, killed_at_some_moment, namespaces_of, pids};

/// Key that leaves a shell.
const ESCAPE: u8 = 0x1d;

fn element<'a>(state: &'a Value, name: &str) -> &'a Value {
    let mut named = elements(state).filter(|element| element["name"] == name);
    named.next().unwrap()
}

/// Checks that results with these guests contain warnings about their emulation, and about shared CPUs.
fn carries_warnings(reported: &Value) {
    let state = &reported["lab"];
    let warnings: Vec<&str> = state["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning.as_str().unwrap())
        .collect();
    let has = |part: &str| warnings.iter().any(|warning| warning.contains(part));
    let record = &element(state, "V")["guest"]["record"];
    let is_software = record["acceleration"]["accelerator"] == "software";
    assert_eq!(has("guests run in software emulation"), is_software);
    let relays = state["graph"]["elements"].as_array().unwrap().iter();
    let relays = relays.filter(|element| element["role"] == "relay").count();
    assert_eq!(has("R copies frames from guest to guest"), relays == 1);
    let shared = state["cpus"]["shared"].as_array().unwrap();
    assert_eq!(has(" is shared by "), !shared.is_empty());
}

/// Kills the process that keeps a lab, and cleans.
fn goes_with_its_process(labs: &Labs, state: &Value) {
    let owner = i32::try_from(state["owner"]["pid"].as_i64().unwrap()).unwrap();
    let process = ProcessId::of(owner).unwrap();
    let kill = Command::new("kill")
        .args(["-KILL", &owner.to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert!(wait_until(DEADLINE, || !process.is_alive()));
    labs.done("clean", &[]);
    assert!(namespaces_of(owner.into()).is_empty());
    labs.assert_gone(state);
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

#[test]
fn a_guest_beside_a_bridge_of_the_kernels_serves_one_tester_after_the_other_and_has_a_shell() {
    let labs = Labs::new();
    let bridge = ["vNet4-1VNF", "--switch", "linux-bridge"];
    let state = labs.up(&[&bridge[..], &["--vnf", "firewall"]].concat());
    let reported = labs.check(&state, 1);
    let has_vhost_net = Path::new("/dev/vhost-net").exists();
    let warnings = reported["lab"]["warnings"].to_string();
    assert_eq!(
        warnings.contains("/dev/vhost-net is missing"),
        !has_vhost_net
    );
    carries_warnings(&reported);
    has_a_shell(&labs, "V");
    // The ports are free for the next peer.
    labs.check(&state, 1);
    let printed = labs.run("shell", &["S"]);
    assert_eq!(printed.status.code(), Some(2));
    goes_with_its_process(&labs, &state);
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn guests_side_by_side_carry_traffic_for_one_tester_after_the_other_and_have_shells() {
    let labs = Labs::new();
    let state = labs.up(&["vNet5-1VNF", "--vnf", "linux-bridge"]);
    assert_eq!(element(&state, "S")["place"], "guest");
    assert_eq!(element(&state, "R")["place"], "host");
    assert_eq!(pids(&state).len(), 3);
    carries_warnings(&labs.check(&state, 1));
    has_a_shell(&labs, "V");
    carries_warnings(&labs.check(&state, 1));
    let printed = labs.run("shell", &["R"]);
    assert_eq!(printed.status.code(), Some(2));
    labs.done("down", &["vNet5-1VNF"]);
    labs.assert_gone(&state);
}

/// Connects a terminal to the guest's shell: keys are sent there, its output is shown, and the terminal is restored
/// afterwards.
fn has_a_shell(labs: &Labs, guest: &str) {
    let pty = openpty(None, None).unwrap();
    let before = tcgetattr(&pty.slave).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut shell = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["lab", "shell", guest, "--state-directory"])
        .arg(labs.directory.path())
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    let mut terminal = File::from(pty.master);
    let mut shown = String::new();
    let answers = wait_until(DEADLINE, || {
        let is_raw = !tcgetattr(&pty.slave)
            .unwrap()
            .local_flags
            .contains(LocalFlags::ICANON);
        if is_raw {
            // Sent again, because input before the shell's start may be lost.
            terminal.write_all(b"echo $((6 * 7))\r").unwrap();
        }
        shown.push_str(&read(&mut terminal));
        shown.contains("\n42\r")
    });
    assert!(answers, "{shown}");
    terminal.write_all(&[ESCAPE]).unwrap();
    let ends = wait_until(DEADLINE, || {
        read(&mut terminal);
        shell.try_wait().unwrap().is_some()
    });
    assert!(ends);
    assert!(shell.wait().unwrap().success());
    assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
}

/// Returns the text that a terminal shows within a moment.
fn read(terminal: &mut File) -> String {
    let mut ends = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ends, PollTimeout::from(200_u8)).unwrap() == 0 {
        return String::new();
    }
    let mut buffer = [0; 4096];
    let count = terminal.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn guests_beside_open_vswitch_go_with_the_process_that_keeps_them() {
    let labs = Labs::new();
    let state = labs.up(&["vComp3-PHY2VM", "--switch", "ovs-dpdk"]);
    carries_warnings(&labs.check(&state, 1));
    goes_with_its_process(&labs, &state);
}

#[test]
fn guests_killed_at_any_moment_leave_nothing_after_clean() {
    killed_at_some_moment(&["vNet3"], Duration::from_secs(6));
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn guests_killed_at_many_moments_leave_nothing_after_clean() {
    for _ in 0..3 {
        killed_at_some_moment(&["vNet3"], Duration::from_secs(12));
        killed_at_some_moment(
            &["vComp3-PHY2VM", "--switch", "linux-bridge"],
            Duration::from_secs(6),
        );
    }
}

/// The first process of a guest without quietwire, such as a firewall, a bridge or a router.
const OWN_INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for each in all default; do echo 1 >/proc/sys/net/ipv6/conf/$each/disable_ipv6; done
modprobe virtio_pci
modprobe virtio_net
modprobe bridge
ip link add br0 type bridge stp_state 0 mcast_snooping 0
ip link set br0 up
for port in 10 11; do
    for name in $(ls /sys/bus/pci/devices/0000:00:$port.0/virtio*/net); do
        ip link set "$name" master br0 promisc on up
    done
done
echo 'quietwire: forwarding'
while :; do sleep 1000; done
"#;

/// Returns a kernel and an initramfs that start this: the built ones, with another first process.
fn own_image(directory: &Path) -> String {
    let image = Image::build(Path::new(env!("CARGO_BIN_EXE_quietwire"))).unwrap();
    let init = directory.join("init");
    fs::write(&init, OWN_INIT).unwrap();
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).unwrap();
    let initramfs = directory.join("initramfs");
    // The kernel unpacks one archive after the other (Documentation/driver-api/early-userspace/buffer-format.rst).
    let script =
        "cp \"$1\" initramfs && echo init | cpio --create --format=newc --quiet | gzip >>initramfs";
    let made = Command::new("sh")
        .args(["-ec", script, "sh"])
        .arg(&image.initramfs)
        .current_dir(directory)
        .status();
    assert!(made.unwrap().success());
    format!("{},{}", image.kernel.display(), initramfs.display())
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn an_image_of_ones_own_forwards_by_itself_and_its_console_is_kept() {
    let labs = Labs::new();
    let directory = tempfile::tempdir().unwrap();
    let image = own_image(directory.path());
    let state = labs.up(&["vNet3", "--vnf", "own-image", "--image", &image]);
    let vnf = element(&state, "V");
    assert_eq!(vnf["guest"]["record"]["hello"], Value::Null);
    assert!(
        vnf["version"]
            .as_str()
            .unwrap()
            .contains("of the user's own")
    );
    let configuration = vnf["configuration"].as_array().unwrap();
    let initramfs = image.split_once(',').unwrap().1;
    let is_hash = |line: &Value| line.as_str().unwrap().ends_with(initramfs);
    assert!(configuration.iter().any(is_hash), "{configuration:?}");
    let reported = labs.check(&state, 1);
    let printed = reported["consoles"]["V"].as_str().unwrap();
    assert!(printed.contains("quietwire: forwarding"), "{printed}");
    let kept = directory.path().join("kept");
    labs.done("down", &["vNet3", "--consoles", kept.to_str().unwrap()]);
    labs.assert_gone(&state);
    let printed = fs::read_to_string(kept.join("vNet3-V.console.log")).unwrap();
    assert!(printed.contains("quietwire: forwarding"), "{printed}");
}

/// User-defined rules, and an emulated guest that receives more than it can forward.
const OWN_STUDY: &str = r#"
name = "own"
title = "A test"
[device]
switch = "quietwire"
topology = "vNet3"
link = "vhost-user"
vnf = "firewall"
place = "container"
[tester]
cpu = "0"
realtime = false           # QEMU hands interrupts to its guest on that CPU
[trials]
duration-s = 0.2
warm-up-s = 0.1
drain-s = 0.2
invalid-repeats = 1
[search]
start-rate-percent = 50
start-step-percent = 50
resolution-percent = 25
[[search.goal]]
name = "PDR"
loss-ratio = 0.9
[sweep]
loads-percent = [10, 100]
[[case]]
name = "refused"
rules = """
[[rule]]
name = "all"
action = "drop"
"""
[[case]]
name = "accepted"
rules = """
[[rule]]
name = "all"
action = "accept"
"""
[[case]]
name = "image"
vnf = "own-image"
place = "guest"
image = { kernel = "KERNEL", initramfs = "INITRAMFS" }
"#;

#[test]
#[ignore = "takes a minute where guests are emulated; make test-labs runs it"]
fn a_study_measures_rules_and_an_image_of_ones_own() {
    let labs = Labs::new();
    let directory = tempfile::tempdir().unwrap();
    let image = own_image(directory.path());
    let (kernel, initramfs) = image.split_once(',').unwrap();
    let study = OWN_STUDY
        .replace("KERNEL", kernel)
        .replace("INITRAMFS", initramfs);
    fs::write(directory.path().join("own.toml"), study).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_quietwire"));
    run.args(["study", "run", "own.toml", "--json"])
        .current_dir(directory.path());
    let output = labs.with_state(&mut run);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    // A case that forwards nothing fails, and the others continue.
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out = &reported["summary"]["unavailable"][0];
    assert_eq!(left_out["name"], "refused", "{reported}");
    let cases = reported["summary"]["sizes"][0]["cases"].as_array().unwrap();
    for name in ["accepted", "image"] {
        let case = cases.iter().find(|case| case["name"] == name).unwrap();
        let points = case["points"].as_array().unwrap();
        let losses: Vec<f64> = points
            .iter()
            .map(|point| point["loss_ratio"].as_f64().unwrap())
            .collect();
        assert!(losses.iter().any(|loss| *loss < 1.0), "{name}: {losses:?}");
    }
    let consoles = reported["consoles"].as_array().unwrap();
    assert!(consoles.iter().any(|console| {
        let printed = console["output"].as_str().unwrap();
        console["case_name"] == "image" && printed.contains("quietwire: forwarding")
    }));
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn a_custom_image_that_never_reports_forwarding_is_reported() {
    let labs = Labs::new();
    let built = Image::build(Path::new(env!("CARGO_BIN_EXE_quietwire"))).unwrap();
    let image = format!("{},{}", built.kernel.display(), built.initramfs.display());
    let words = ["vNet3", "--vnf", "own-image", "--image", &image];
    let output = labs.run("up", &[&words[..], &["--guest-timeout", "20s"]].concat());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("has not printed 'quietwire: forwarding'"),
        "{printed}"
    );
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

#[test]
fn a_guest_that_is_not_up_in_time_is_reported_with_its_console() {
    let labs = Labs::new();
    let output = labs.run("up", &["vComp1-VM", "--guest-timeout", "1200ms"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("the guest 'V' did not come up in 1.2 s")
            && printed.contains("Its console's last lines:"),
        "{printed}"
    );
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

/// Starts a topology with guests, sends traffic through it, and takes it down.
fn carries(words: &[&str], chains: usize) {
    let labs = Labs::new();
    let state = labs.up(words);
    labs.check(&state, chains);
    labs.done("down", &[]);
    labs.assert_gone(&state);
}

#[test]
#[ignore = "takes minutes where guests are emulated; make test-labs runs it"]
fn all_fifteen_topologies_carry_traffic_with_guests() {
    for topology in CATALOG {
        let chains = if topology.name.contains("-n") { 2 } else { 1 };
        eprintln!("{}", topology.name);
        carries(&[topology.name], chains);
    }
}

#[test]
#[ignore = "takes minutes where guests are emulated; make test-labs runs it"]
fn open_vswitch_on_dpdk_is_a_switch_beside_guests() {
    for name in ["vNet1", "vComp3-PHY2VM", "vNet4-1VNF", "vNet6-1VNFch"] {
        carries(&[name, "--switch", "ovs-dpdk"], 1);
    }
}

#[test]
#[ignore = "takes minutes where guests are emulated; make test-labs runs it"]
fn switches_of_the_kernel_carry_traffic_beside_guests() {
    for switch in ["linux-bridge", "ovs-netdev"] {
        carries(&["vComp3-PHY2VM", "--switch", switch], 1);
        carries(
            &["vNet4-1VNF", "--switch", switch, "--vnf", "testpmd-io"],
            1,
        );
        carries(&["vNet6-1VNFch", "--switch", switch], 1);
    }
    for (name, encapsulation) in [("vComp3-PHY2VM", "ipv4"), ("vNet6-1VNFch", "ipv6")] {
        let routing = [
            "--switch",
            "linux-routing",
            "--encapsulation",
            encapsulation,
        ];
        carries(&[&[name], &routing[..]].concat(), 1);
    }
}

#[test]
#[ignore = "takes minutes where guests are emulated; make test-labs runs it"]
fn every_network_function_carries_traffic_in_a_guest() {
    for words in [
        &["--vnf", "testpmd-io"][..],
        &["--vnf", "testpmd-mac"],
        &["--vnf", "testpmd-macswap"],
        &["--vnf", "linux-bridge"],
        &["--vnf", "firewall"],
        &["--vnf", "quietwire-router", "--encapsulation", "ipv4"],
        &["--vnf", "quietwire-router", "--encapsulation", "ipv6"],
        &["--vnf", "nat", "--encapsulation", "ipv4"],
        &["--vnf", "linux-routing", "--encapsulation", "ipv4"],
        &["--vnf", "linux-routing", "--encapsulation", "ipv6"],
    ] {
        carries(&[&["vNet3"], words].concat(), 1);
    }
    carries(&["vNet2", "--forwarding", "bridge"], 1);
    let router = ["--vnf", "quietwire-router", "--encapsulation", "ipv4"];
    carries(&[&["vNet4-1VNF"], &router[..]].concat(), 1);
}
