// SPDX-License-Identifier: Apache-2.0
//! Labs with guests: real virtual machines between the tester's ports.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::termios::{LocalFlags, tcgetattr};
use quietwire_host::process::{ProcessId, wait_until};
use quietwire_lab::topology::CATALOG;
use serde_json::Value;

use super::{DEADLINE, Labs, namespaces_of, pids};

/// What leaves a shell.
const ESCAPE: u8 = 0x1d;

fn element<'a>(state: &'a Value, name: &str) -> &'a Value {
    let elements = state["elements"].as_array().unwrap();
    let mut named = elements.iter().filter(|element| element["name"] == name);
    named.next().unwrap()
}

/// Whatever was measured with these guests says under what they run, and who shares CPUs.
fn carries_warnings(told: &Value) {
    let state = &told["lab"];
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

#[test]
fn guests_carry_traffic_for_one_tester_after_the_other_and_have_shells() {
    let labs = Labs::new();
    let state = labs.up(&["vNet5-1VNF", "--vnf", "linux-bridge"]);
    assert_eq!(element(&state, "S")["place"], "guest");
    assert_eq!(element(&state, "R")["place"], "host");
    assert_eq!(pids(&state).len(), 3);
    carries_warnings(&labs.check(&state, 1));
    has_a_shell(&labs, "V");
    // The ports are there for the next one.
    carries_warnings(&labs.check(&state, 1));
    let said = labs.run("shell", &["R"]);
    assert_eq!(said.status.code(), Some(2));
    labs.done("down", &["vNet5-1VNF"]);
    labs.assert_gone(&state);
}

/// A terminal joined with the guest's shell: keys go there, what it says comes back, and the terminal is afterwards as it was.
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
            // Typed again: what came before the shell did may be gone.
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

/// What a terminal shows within a moment.
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
fn guests_beside_open_vswitch_go_with_the_process_that_keeps_them() {
    let labs = Labs::new();
    let state = labs.up(&["vComp3-PHY2VM", "--switch", "ovs-dpdk"]);
    carries_warnings(&labs.check(&state, 1));
    let owner = i32::try_from(state["owner"]["pid"].as_i64().unwrap()).unwrap();
    let process = ProcessId::of(owner).unwrap();
    let kill = Command::new("kill")
        .args(["-KILL", &owner.to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert!(wait_until(DEADLINE, || !process.is_alive()));
    labs.done("clean", &[]);
    assert!(namespaces_of(owner.into()).is_empty());
    labs.assert_gone(&state);
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

#[test]
fn a_guest_that_is_not_up_in_time_is_told_with_its_console() {
    let labs = Labs::new();
    let output = labs.run("up", &["vComp1-VM", "--guest-deadline", "1200ms"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the guest 'V' did not come up in 1.2 s")
            && said.contains("Its console's last lines:"),
        "{said}"
    );
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

/// Brings a topology up with guests, sends through it, takes it down.
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
fn every_network_function_carries_traffic_in_a_guest() {
    for words in [
        &["--vnf", "testpmd-io"][..],
        &["--vnf", "testpmd-mac"],
        &["--vnf", "testpmd-macswap"],
        &["--vnf", "linux-bridge"],
        &["--vnf", "quietwire-router", "--encapsulation", "ipv4"],
        &["--vnf", "quietwire-router", "--encapsulation", "ipv6"],
        &["--vnf", "linux-routing", "--encapsulation", "ipv4"],
        &["--vnf", "linux-routing", "--encapsulation", "ipv6"],
    ] {
        carries(&[&["vNet3"], words].concat(), 1);
    }
    carries(&["vNet2", "--forwarding", "bridge"], 1);
}
