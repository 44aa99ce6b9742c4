// SPDX-License-Identifier: Apache-2.0
//! The real binary brings topologies up, carries traffic through them whose payloads are looked at, and leaves nothing behind,
//! also when it is killed. Wants root and two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "labs/guests.rs"]
mod guests;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quietwire_host::process::{ProcessId, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// There is one machine: labs beside each other would only take turns.
static MACHINE: Mutex<()> = Mutex::new(());

/// Labs of one test, which go with it.
struct Labs {
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Labs {
    fn new() -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            _alone: MACHINE.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn run(&self, command: &str, words: &[&str]) -> Output {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        lab.args(["lab", command]).args(words);
        self.with_state(&mut lab)
    }

    fn with_state(&self, lab: &mut Command) -> Output {
        lab.arg("--state-directory").arg(self.directory.path());
        lab.output().unwrap()
    }

    fn done(&self, command: &str, words: &[&str]) -> String {
        let output = self.run(command, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "lab {command} {words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn up(&self, words: &[&str]) -> Value {
        let told = self.done("up", &[words, &["--json"]].concat());
        serde_json::from_str(&told).unwrap()
    }

    /// Traffic through all chains both ways; every frame has to arrive as it was sent. The rate is low: all elements but the
    /// tester have one CPU together. Interfaces of the kernel's are seen from within the tester's namespace.
    fn check(&self, state: &Value, chains: usize) -> Value {
        let binary = env!("CARGO_BIN_EXE_quietwire");
        let mut lab = match state["tester"]["namespace"].as_str() {
            Some(namespace) => {
                let mut lab = Command::new("ip");
                lab.args(["netns", "exec", namespace, binary]);
                lab
            }
            None => Command::new(binary),
        };
        lab.args(["lab", "check", state["name"].as_str().unwrap(), "--json"]);
        lab.args(["--rate", "500", "--drain", "2s"]);
        lab.args(["--no-huge", "--memory-mib", "128"]);
        let output = self.with_state(&mut lab);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let result = &told["result"];
        let ports = result["ports"].as_array().unwrap();
        assert_eq!(ports.len(), 2 * chains);
        for port in ports {
            assert!(port["offered_frames"].as_u64().unwrap() > 0, "{port}");
            assert!(port["received_frames"].as_u64().unwrap() > 0, "{port}");
        }
        assert_eq!(result["lost_frames"], 0);
        assert_eq!(result["damaged_frames"], 0);
        told
    }

    /// Nothing is left of what such a state tells of.
    fn assert_gone(&self, state: &Value) {
        for pid in pids(state) {
            assert_eq!(ProcessId::of(pid), None, "process {pid}");
        }
        let owner = state["owner"]["pid"].as_i64().unwrap();
        assert!(
            namespaces_of(owner).is_empty(),
            "{:?}",
            namespaces_of(owner)
        );
        // DPDK's programs make a directory each.
        let made = fs::read_dir("/var/run/dpdk").map_or(0, |entries| {
            let begins = format!("quietwire-{owner}-");
            let names = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name.starts_with(&begins)).count()
        });
        assert_eq!(made, 0);
        let name = state["name"].as_str().unwrap();
        assert!(!self.directory.path().join("named").join(name).exists());
    }
}

impl Drop for Labs {
    /// Whatever failed: no lab stays.
    fn drop(&mut self) {
        let Ok(entries) = fs::read_dir(self.directory.path().join("named")) else {
            return;
        };
        for entry in entries.flatten() {
            let _ = self.run("down", &[&entry.file_name().to_string_lossy()]);
        }
        let _ = self.run("clean", &[]);
    }
}

fn pids(state: &Value) -> Vec<i32> {
    let elements = state["elements"].as_array().unwrap();
    let all = elements
        .iter()
        .flat_map(|element| element["pids"].as_array().unwrap());
    all.map(|pid| i32::try_from(pid.as_i64().unwrap()).unwrap())
        .collect()
}

/// Network namespaces that the lab of this process made.
fn namespaces_of(owner: i64) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(&format!("quietwire-{owner}-")))
        .collect()
}

/// Brings a topology up in containers, sends through it, takes it down.
fn carries(words: &[&str], chains: usize) -> Value {
    let labs = Labs::new();
    let name = words[0];
    let state = labs.up(&[words, &["--place", "container"]].concat());
    assert!(
        !pids(&state).is_empty()
            || words.contains(&"linux-bridge")
            || words.contains(&"linux-routing")
    );
    let told = labs.check(&state, chains);
    for element in state["elements"].as_array().unwrap() {
        assert!(!element["version"].as_str().unwrap().is_empty());
        assert!(!element["configuration"].as_array().unwrap().is_empty());
    }
    labs.done("down", &[name]);
    labs.assert_gone(&state);
    told
}

#[test]
fn the_reference_on_the_host_and_the_switch_alone_carry_traffic() {
    carries(&["vComp1-Host"], 1);
    carries(&["vNet1"], 1);
    carries(
        &["vNet1", "--link", "vhost-user", "--forwarding", "bridge"],
        1,
    );
    carries(&["vNet1", "--encapsulation", "vxlan"], 1);
}

#[test]
#[ignore = "needs a CPU for each element: on two it takes minutes"]
fn a_switch_and_vnfs_in_containers_carry_traffic() {
    carries(&["vComp3-PHY2VM"], 1);
    let told = carries(
        &[
            "vNet4-1VNF",
            "--vnf",
            "testpmd-io",
            "--encapsulation",
            "ipv6",
        ],
        1,
    );
    // Three forward, and the machine of CI has one CPU beside the tester's.
    let online = quietwire_host::threads::online_cpus(Path::new("/"))
        .unwrap()
        .len();
    let warnings = told["lab"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.is_empty(), online >= 3, "{warnings:?}");
    let elements = told["lab"]["elements"].as_array().unwrap();
    let containers: Vec<&str> = elements
        .iter()
        .filter(|element| element["place"] == "container")
        .map(|element| element["name"].as_str().unwrap())
        .collect();
    assert_eq!(containers, ["V"]);
}

#[test]
#[ignore = "needs a CPU for each element: on two it takes minutes"]
fn several_chains_carry_traffic_at_once() {
    carries(&["vNet4-nVNF", "--chains", "2"], 2);
    carries(&["vNet6-1VNFch", "--length", "2"], 1);
    carries(&["vNet6-nVNFch", "--chains", "2", "--length", "2"], 2);
}

#[test]
#[ignore = "needs a CPU for each element: on two it takes minutes"]
fn testpmd_is_a_switch_too() {
    carries(&["vNet4-1VNF", "--switch", "testpmd-io"], 1);
}

#[test]
#[ignore = "needs a CPU for each element: on two it takes minutes"]
fn open_vswitch_on_dpdk_carries_traffic() {
    carries(&["vNet1", "--switch", "ovs-dpdk"], 1);
    carries(&["vNet4-1VNF", "--switch", "ovs-dpdk"], 1);
    carries(
        &["vNet6-1VNFch", "--switch", "ovs-dpdk", "--length", "2"],
        1,
    );
}

#[test]
#[ignore = "needs a CPU for each element: on two it takes minutes"]
fn switches_of_the_kernel_carry_traffic() {
    carries(&["vNet1", "--switch", "linux-bridge"], 1);
    carries(
        &[
            "vNet1",
            "--switch",
            "linux-routing",
            "--encapsulation",
            "ipv4",
        ],
        1,
    );
    carries(
        &[
            "vNet1",
            "--switch",
            "linux-routing",
            "--encapsulation",
            "ipv6",
        ],
        1,
    );
    carries(&["vNet1", "--switch", "ovs-netdev"], 1);
    carries(
        &[
            "vNet4-1VNF",
            "--switch",
            "linux-bridge",
            "--vnf",
            "testpmd-io",
        ],
        1,
    );
}

#[test]
fn two_labs_are_apart_and_a_name_is_taken_once() {
    let labs = Labs::new();
    let first = labs.up(&["vNet1", "--name", "first"]);
    let second = labs.up(&["vNet4-1VNF", "--name", "second", "--place", "container"]);
    let refused = labs.run("up", &["vNet1", "--name", "first"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("a lab 'first' is up"), "{said}");
    // Which one, has to be said.
    let said = labs.run("down", &[]);
    assert_eq!(said.status.code(), Some(2));
    labs.check(&first, 1);
    labs.check(&second, 1);
    assert!(
        labs.done("clean", &[])
            .contains("lab first is up: left alone")
    );
    labs.done("down", &["first"]);
    labs.assert_gone(&first);
    labs.check(&second, 1);
    labs.done("down", &[]);
    labs.assert_gone(&second);
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
    let shell = labs.run("shell", &["V"]);
    assert_eq!(shell.status.code(), Some(2));
}

#[test]
fn a_lab_whose_process_is_killed_is_undone_by_clean() {
    for words in [
        &["vNet4-1VNF", "--place", "container"][..],
        &["vNet1", "--switch", "ovs-dpdk"],
    ] {
        let labs = Labs::new();
        let state = labs.up(words);
        let owner = i32::try_from(state["owner"]["pid"].as_i64().unwrap()).unwrap();
        assert!(!namespaces_of(owner.into()).is_empty());
        let kill = Command::new("kill")
            .args(["-KILL", &owner.to_string()])
            .status();
        assert!(kill.unwrap().success());
        let owner = ProcessId::of(owner);
        assert!(wait_until(DEADLINE, || owner.is_none_or(|owner| !owner.is_alive())));
        let told = labs.done("clean", &[]);
        assert!(told.contains("namespace /run/netns/quietwire-"), "{told}");
        labs.assert_gone(&state);
        assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
    }
}

#[test]
fn what_cannot_come_up_says_why_and_leaves_nothing() {
    let labs = Labs::new();
    for (words, code, part) in [
        (&["vNet9"][..], 2, "there is no topology 'vNet9'"),
        (&["vNet1", "--chains", "2"], 2, "--chains is 2"),
        (&["vNet1", "--cpus", "S=8000"], 2, "S is given CPUs '8000'"),
        (
            &["vNet5-nVNF", "--chains", "5"],
            2,
            "S would have 20 ports, and a guest has 15 at most",
        ),
        (
            &["vNet3", "--vnf", "linux-routing"],
            2,
            "choose the encapsulation ipv4 or ipv6",
        ),
        (
            &["vNet1", "--switch", "vpp"],
            3,
            "unavailable because vpp is not installed",
        ),
        (&["vNet1", "--name", "../x"], 2, "no name for a lab"),
    ] {
        let output = labs.run("up", words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}
