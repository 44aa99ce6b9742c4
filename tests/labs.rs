// SPDX-License-Identifier: Apache-2.0
//! Tests of the real binary: topologies are started, carry traffic with checked payloads, and leave nothing behind, even if
//! they are killed. Requires root and two CPUs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "labs/crossed.rs"]
mod crossed;
#[path = "labs/guests.rs"]
mod guests;
#[path = "own_loss.rs"]
mod own_loss;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use own_loss::is_testers_own_loss;
use quietwire_base::{ProcessId, wait_until};
use quietwire_host::partition::{Group, Plan, Role};
use quietwire_host::threads::online_cpus;
use quietwire_host::{CpuId, CpuList};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(60);

/// One test at a time: concurrent labs would only take turns.
static MACHINE: Mutex<()> = Mutex::new(());

/// Labs of one test, which are removed with this value.
struct Labs {
    directory: TempDir,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Labs {
    fn new() -> Self {
        let alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        Self::of(Some(alone))
    }

    /// Returns labs for commands that start none.
    fn none() -> Self {
        Self::of(None)
    }

    fn of(alone: Option<MutexGuard<'static, ()>>) -> Self {
        Self {
            directory: TempDir::new().unwrap(),
            _alone: alone,
        }
    }

    fn command(&self, command: &str, words: &[&str]) -> Command {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_quietwire"));
        lab.args(["lab", command]).args(words);
        lab
    }

    fn run(&self, command: &str, words: &[&str]) -> Output {
        self.with_state(&mut self.command(command, words))
    }

    fn with_state(&self, lab: &mut Command) -> Output {
        lab.arg("--state-directory").arg(self.directory.path());
        lab.output().unwrap()
    }

    fn done(&self, command: &str, words: &[&str]) -> String {
        let output = self.run(command, words);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "lab {command} {words:?}: {printed}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn up(&self, words: &[&str]) -> Value {
        let reported = self.done("up", &[words, &["--json"]].concat());
        serde_json::from_str(&reported).unwrap()
    }

    /// Sends traffic through all chains both ways; every frame must arrive unchanged. The rate is low: all elements but the
    /// tester share one CPU. Kernel interfaces are visible only in the tester's namespace.
    fn check(&self, state: &Value, chains: usize) -> Value {
        const TRIALS: usize = 4;
        let mut output = self.trial(state);
        for _ in 1..TRIALS {
            if output.status.success() {
                break;
            }
            // A trial in which the tester got no CPU shows nothing about the lab. Memory that elements share drops no frame
            // because of that.
            let printed = String::from_utf8_lossy(&output.stderr);
            let reported: Value = serde_json::from_slice(&output.stdout).expect(&printed);
            let result = &reported["result"];
            let is_repeated = if is_kernel_in_path(state) {
                result["validity"]["state"] == "invalid"
            } else {
                is_testers_own_loss(result)
            };
            if !is_repeated {
                break;
            }
            output = self.trial(state);
        }
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
        let result = &reported["result"];
        let ports = result["ports"].as_array().unwrap();
        assert_eq!(ports.len(), 2 * chains);
        for port in ports {
            assert!(port["offered_frames"].as_u64().unwrap() > 0, "{port}");
            assert!(port["received_frames"].as_u64().unwrap() > 0, "{port}");
        }
        assert_eq!(result["lost_frames"], 0);
        assert_eq!(result["damaged_frames"], 0);
        reported
    }

    fn trial(&self, state: &Value) -> Output {
        // Elements that share a CPU delay frames. The check ends when all have come.
        self.trial_with_drain(state, "2s")
    }

    fn trial_with_drain(&self, state: &Value, drain: &str) -> Output {
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
        lab.args(["--rate", "500", "--duration", "300ms", "--drain", drain]);
        lab.args(["--cpus", state["cpus"]["elements"][0].as_str().unwrap()]);
        lab.args(["--no-huge", "--memory-mib", "128"]);
        self.with_state(&mut lab)
    }

    /// Checks that nothing remains of the lab with this state.
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
        // Each program of DPDK creates a directory.
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
    /// Takes down all labs, also after a failure.
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

/// Returns true if frames pass a kernel: the host's, or a guest's.
fn is_kernel_in_path(state: &Value) -> bool {
    let graph = &state["graph"];
    let any = |list: &str, key: &str, values: &[&str]| {
        let mut all = graph[list].as_array().unwrap().iter();
        all.any(|one| values.contains(&one[key].as_str().unwrap()))
    };
    let programs = ["linux-bridge", "linux-routing", "ovs-netdev"];
    any("elements", "program", &programs)
        || has_guests(state)
        || any("links", "kind", &["veth", "tap", "pci"])
}

fn has_guests(state: &Value) -> bool {
    let mut elements = state["graph"]["elements"].as_array().unwrap().iter();
    elements.any(|element| element["place"] == "guest")
}

fn elements(state: &Value) -> impl Iterator<Item = &Value> {
    state["elements"].as_array().unwrap().iter()
}

fn pids(state: &Value) -> Vec<i32> {
    let all = elements(state).flat_map(|element| element["pids"].as_array().unwrap());
    all.map(|pid| i32::try_from(pid.as_i64().unwrap()).unwrap())
        .collect()
}

/// Returns the network namespaces that the lab of this process created.
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

/// Starts a topology in containers, sends traffic through it, and takes it down.
fn carries(words: &[&str], chains: usize) -> Value {
    let labs = Labs::new();
    let name = words[0];
    let state = labs.up(&[words, &["--place", "container"]].concat());
    assert!(
        !pids(&state).is_empty()
            || words.contains(&"linux-bridge")
            || words.contains(&"linux-routing")
    );
    let reported = labs.check(&state, chains);
    for element in elements(&state) {
        assert!(!element["version"].as_str().unwrap().is_empty());
        assert!(!element["configuration"].as_array().unwrap().is_empty());
    }
    assert_placed(&state);
    labs.done("down", &[name]);
    labs.assert_gone(&state);
    reported
}

/// Checks that forwarding threads are on the CPUs of their element.
fn assert_placed(state: &Value) {
    let all = state["graph"]["elements"].as_array().unwrap();
    let cpus = |list: &Value| list.as_str().unwrap().parse::<CpuList>().unwrap();
    for element in elements(state) {
        let place = all.iter().position(|one| one["name"] == element["name"]);
        let own = cpus(&state["cpus"]["elements"][place.unwrap()]);
        let threads = element["threads"].as_array().into_iter().flatten();
        for thread in threads.filter(|thread| thread["role"] == "forwarding") {
            assert!(
                cpus(&thread["cpus"]).difference(&own).is_empty(),
                "{element}"
            );
        }
    }
}

#[test]
fn the_switch_alone_carries_traffic_with_the_cpus_of_a_plan() {
    let labs = Labs::new();
    let online = online_cpus(Path::new("/")).unwrap();
    let [first, last] = [online.iter().next(), online.iter().next_back()].map(Option::unwrap);
    // In the reverse order of CPUs without a plan.
    let group = |role: Role, cpu: CpuId| Group {
        role,
        name: role.name().to_owned(),
        cpus: CpuList::from_iter([cpu]),
        cores: Vec::new(),
        nodes: vec![0],
        memory_mib: 0,
        class: None,
    };
    let plan = Plan {
        groups: vec![group(Role::Host, last), group(Role::Forwarding, first)],
        housekeeping: CpuList::from_iter([last]),
        ..Plan::default()
    };
    let file = labs.directory.path().join("plan.json");
    fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
    let words = ["vNet1", "--link", "vhost-user", "--forwarding", "bridge"];
    let of_plan = ["--encapsulation", "vxlan", "--plan", file.to_str().unwrap()];
    let state = labs.up(&[&words[..], &of_plan].concat());
    assert_eq!(
        state["cpus"]["elements"],
        json!([last, first].map(|cpu| cpu.to_string()))
    );
    let threads = &elements(&state).next().unwrap()["threads"];
    let mut forwarding = threads.as_array().unwrap().iter();
    let forwarding = forwarding
        .find(|thread| thread["role"] == "forwarding")
        .unwrap();
    assert_eq!(forwarding["cpus"], first.to_string());
    labs.check(&state, 1);
    labs.done("down", &["vNet1"]);
    labs.assert_gone(&state);
}

#[test]
fn the_reference_on_the_host_carries_traffic() {
    carries(&["vComp1-Host"], 1);
}

#[test]
fn another_switch_and_a_vnf_in_a_container_carry_traffic() {
    let reported = carries(
        &[
            "vNet4-1VNF",
            "--switch",
            "testpmd-io",
            "--encapsulation",
            "ipv6",
        ],
        1,
    );
    // Three elements forward, and the CI machine has one CPU beside the tester's.
    let online = online_cpus(Path::new("/")).unwrap().len();
    let warnings = reported["lab"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.is_empty(), online >= 3, "{warnings:?}");
    let containers: Vec<&str> = elements(&reported["lab"])
        .filter(|element| element["place"] == "container")
        .map(|element| element["name"].as_str().unwrap())
        .collect();
    assert_eq!(containers, ["V"]);
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn containers_carry_whatever_frames_hold() {
    carries(&["vNet1", "--encapsulation", "vxlan"], 1);
    carries(&["vComp3-PHY2VM"], 1);
    carries(
        &[
            "vNet4-1VNF",
            "--vnf",
            "testpmd-io",
            "--encapsulation",
            "ipv6",
        ],
        1,
    );
    for encapsulation in ["l2", "vxlan"] {
        let words = ["vNet3", "--vnf", "firewall", "--encapsulation"];
        carries(&[&words[..], &[encapsulation]].concat(), 1);
    }
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn several_chains_carry_traffic_at_once() {
    carries(&["vNet4-nVNF", "--chains", "2"], 2);
    carries(&["vNet6-1VNFch", "--length", "2"], 1);
    carries(&["vNet6-nVNFch", "--chains", "2", "--length", "2"], 2);
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn a_chain_of_nat_firewall_and_router_carries_traffic() {
    let functions = [
        "--vnf",
        "nat,firewall,quietwire-router",
        "--encapsulation",
        "ipv4",
    ];
    for name in ["vNet6-1VNFch", "vNet7-1VNFch"] {
        let reported = carries(&[&[name], &functions[..]].concat(), 1);
        let nat = elements(&reported["lab"]).find(|element| element["program"] == "nat");
        let configuration = nat.unwrap()["configuration"].to_string();
        assert!(configuration.contains("[[nat]]"), "{configuration}");
    }
    carries(
        &[&["vNet6-nVNFch", "--chains", "2"], &functions[..]].concat(),
        2,
    );
    // A function between two ports of Open vSwitch on DPDK.
    carries(
        &[
            "vNet4-1VNF",
            "--switch",
            "ovs-dpdk",
            "--vnf",
            "nat",
            "--encapsulation",
            "ipv4",
        ],
        1,
    );
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn open_vswitch_on_dpdk_carries_traffic() {
    carries(&["vNet1", "--switch", "ovs-dpdk"], 1);
    carries(&["vNet4-1VNF", "--switch", "ovs-dpdk"], 1);
    carries(
        &["vNet6-1VNFch", "--switch", "ovs-dpdk", "--length", "2"],
        1,
    );
}

#[test]
#[ignore = "wants what scripts/build-l3fwd builds; make test-labs runs both"]
fn examples_of_dpdk_carry_traffic() {
    carries(&["vNet1", "--switch", "l2fwd"], 1);
    carries(
        &["vNet1", "--switch", "l3fwd", "--encapsulation", "ipv4"],
        1,
    );
}

#[test]
fn switches_of_the_kernel_carry_traffic() {
    let labs = [("ovs-netdev", "vNet1"), ("linux-bridge", "vNet4-1VNF")];
    for (program, topology) in labs {
        let reported = carries(&[topology, "--switch", program], 1);
        let is_switch = |element: &&Value| element["program"] == program;
        let switch = elements(&reported["lab"]).find(is_switch).unwrap();
        // The kernel receives frames for it on its CPUs.
        let commands = switch["commands"].to_string();
        for port in ["p0", "p1"] {
            let setting = format!(">/sys/class/net/{port}/queues/rx-0/rps_cpus");
            assert!(commands.contains(&setting), "{commands}");
        }
    }
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn kernel_switches_carry_traffic_with_other_options() {
    let routing = ["vNet1", "--switch", "linux-routing"];
    for encapsulation in ["ipv4", "ipv6"] {
        carries(
            &[&routing[..], &["--encapsulation", encapsulation]].concat(),
            1,
        );
    }
    let around = ["vNet4-1VNF", "--switch", "linux-routing"];
    carries(&[&around[..], &["--encapsulation", "ipv6"]].concat(), 1);
    let bridge = ["vNet4-1VNF", "--switch", "linux-bridge"];
    carries(&[&bridge[..], &["--vnf", "testpmd-io"]].concat(), 1);
    carries(&["vNet1", "--link", "veth"], 1);
}

#[test]
fn a_firewall_forwards_frames_that_its_rules_accept() {
    let reported = carries(
        &["vNet3", "--vnf", "firewall", "--encapsulation", "ipv6"],
        1,
    );
    let configuration = &elements(&reported["lab"]).next().unwrap()["configuration"];
    assert!(
        configuration.to_string().contains("tester-udp6"),
        "{configuration}"
    );
    let labs = Labs::new();
    let rules = labs.directory.path().join("rules.toml");
    fs::write(
        &rules,
        "[[rule]]\nname = \"one-way\"\naction = \"drop\"\nport = \"p0\"\nprotocol = \"udp\"\n",
    )
    .unwrap();
    let file = rules.to_str().unwrap();
    let state = labs.up(&[
        "vNet3",
        "--place",
        "container",
        "--vnf",
        "firewall",
        "--rules",
        file,
    ]);
    let uris = &state["tester"]["chains"][0];
    let [first, second] = [0, 1].map(|port| uris[port].as_str().unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["generate", "--port", first, "--port", second, "--json"])
        .args(["--isolation", "none"])
        .args(["--rate", "500", "--duration", "300ms", "--warm-up", "100ms"])
        .args(["--no-huge", "--memory-mib", "128"])
        .output()
        .unwrap();
    let reported: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let received = [0, 1].map(|port| reported["ports"][port]["received_frames"].as_u64().unwrap());
    assert!(received[0] > 0 && received[1] == 0, "{reported}");
    labs.done("down", &["vNet3"]);
    labs.assert_gone(&state);
}

/// Returns all traces of a lab on the machine except its directory.
fn traces_of(keeper: i32, labs: &Labs) -> Vec<String> {
    let mut traces = namespaces_of(keeper.into());
    let directory = labs.directory.path().to_str().unwrap();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(directory) {
            traces.push(words);
        }
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let tag = format!("quietwire-{keeper}");
    let mounted = mounts
        .lines()
        .filter(|line| line.contains(directory) || line.contains(&tag));
    traces.extend(mounted.map(str::to_owned));
    for place in [
        "/var/run/dpdk",
        "/dev/shm",
        "/dev/hugepages",
        "/sys/fs/cgroup/cpuset",
        "/sys/fs/cgroup",
    ] {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        traces.extend(names.filter(|name| name.contains(&tag)));
    }
    traces
}

/// Starts a lab and kills the process that keeps it at a random moment, before or after it is up; then cleans.
fn killed_at_some_moment(words: &[&str], span: Duration) {
    let labs = Labs::new();
    let mut up = Command::new(env!("CARGO_BIN_EXE_quietwire"))
        .args(["lab", "up"])
        .args(words)
        .arg("--state-directory")
        .arg(labs.directory.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", up.id());
    let mut keeper = None;
    assert!(wait_until(DEADLINE, || {
        let reported = fs::read_to_string(&children).unwrap_or_default();
        keeper = reported
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        keeper.is_some() || up.try_wait().unwrap().is_some()
    }));
    let keeper: i32 = keeper.expect("no process keeps the lab");
    // The moment is what varies in this test; nothing is awaited.
    let moment = span.mul_f64(some_number());
    std::thread::sleep(moment);
    let printed = format!("{words:?}, killed after {} ms", moment.as_millis());
    eprintln!("{printed}");
    let process = ProcessId::of(keeper);
    let _ = Command::new("kill")
        .args(["-KILL", &keeper.to_string()])
        .status();
    assert!(wait_until(DEADLINE, || process
        .as_ref()
        .is_none_or(|one| !one.is_alive())));
    assert!(wait_until(DEADLINE, || up.try_wait().unwrap().is_some()));
    labs.done("clean", &[]);
    // Processes that the kernel kills with their parent may take a moment to end.
    let gone = wait_until(DEADLINE, || traces_of(keeper, &labs).is_empty());
    assert!(gone, "{printed}: {:?}", traces_of(keeper, &labs));
    assert!(!labs.directory.path().join("named").exists(), "{printed}");
    assert_eq!(
        labs.done("clean", &[]),
        "nothing was left behind\n",
        "{printed}"
    );
}

/// Returns a number from 0 to 1.
fn some_number() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// Labs to kill, and how long each takes to start, milliseconds.
const KILLED: [(&[&str], u64); 3] = [
    (&["vNet4-1VNF", "--place", "container"], 1500),
    (&["vNet1", "--switch", "ovs-dpdk"], 2500),
    (&["vNet1", "--switch", "ovs-netdev"], 1500),
];

/// Kills one of the labs, another one in each run.
#[test]
fn labs_killed_at_any_moment_leave_nothing_after_clean() {
    let at = (some_number() * KILLED.len() as f64) as usize;
    let (words, span_ms) = KILLED[at.min(KILLED.len() - 1)];
    killed_at_some_moment(words, Duration::from_millis(span_ms));
}

#[test]
#[ignore = "takes a minute or more; make test-labs runs it"]
fn labs_killed_at_many_moments_leave_nothing_after_clean() {
    for _ in 0..8 {
        for (words, span_ms) in KILLED {
            killed_at_some_moment(words, Duration::from_millis(span_ms));
        }
    }
}

#[test]
fn two_labs_are_separate_and_have_different_names() {
    let labs = Labs::new();
    let first = labs.up(&["vNet1", "--name", "first"]);
    let second = labs.up(&["vNet4-1VNF", "--name", "second", "--place", "container"]);
    let refused = labs.run("up", &["vNet1", "--name", "first"]);
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("lab 'first' is already up"), "{printed}");
    // The name must be given.
    let printed = labs.run("down", &[]);
    assert_eq!(printed.status.code(), Some(2));
    labs.check(&first, 1);
    assert!(
        labs.done("clean", &[])
            .contains("lab first is up: left unchanged")
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
    let labs = Labs::new();
    let state = labs.up(&["vNet4-1VNF", "--place", "container", "--switch", "ovs-dpdk"]);
    let owner = i32::try_from(state["owner"]["pid"].as_i64().unwrap()).unwrap();
    assert!(!namespaces_of(owner.into()).is_empty());
    let kill = Command::new("kill")
        .args(["-KILL", &owner.to_string()])
        .status();
    assert!(kill.unwrap().success());
    let owner = ProcessId::of(owner);
    assert!(wait_until(DEADLINE, || owner.is_none_or(|owner| !owner.is_alive())));
    let left = "is left over: its process was killed";
    assert!(wait_until(DEADLINE, || labs
        .done("list", &[])
        .contains(left)));
    for command in ["check", "down"] {
        let refused = labs.run(command, &[]);
        let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("its process was killed") && printed.contains("lab clean"),
            "{printed}"
        );
    }
    let reported = labs.done("clean", &[]);
    assert!(
        reported.contains("namespace /run/netns/quietwire-"),
        "{reported}"
    );
    labs.assert_gone(&state);
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}

#[test]
fn labs_that_cannot_start_report_the_reason_and_leave_nothing() {
    let labs = Labs::none();
    let file = labs.directory.path().join("rules.toml");
    fs::write(&file, "[[rule]]\nname = \"x\"\naction = \"refuse\"\n").unwrap();
    let file = file.to_str().unwrap();
    for (words, code, part) in [
        (&["vNet9"][..], 2, "unknown topology 'vNet9'"),
        (&["vNet1", "--chains", "2"], 2, "--chains is 2"),
        (
            &["vNet1", "--cpus", "S=8000"],
            2,
            "S is assigned CPUs '8000'",
        ),
        (
            &["vNet5-nVNF", "--chains", "5"],
            2,
            "S: 20 ports, but a guest has at most 15",
        ),
        (
            &["vNet3", "--vnf", "linux-routing"],
            2,
            "use the encapsulation ipv4 or ipv6",
        ),
        (&["vNet1", "--name", "../x"], 2, "is not a valid lab name"),
        (
            &["vNet1", "--rules", file],
            2,
            "the topology has no firewall",
        ),
        (
            &["vNet3", "--vnf", "firewall", "--rules", file],
            2,
            "refuse",
        ),
        (
            &["vNet3", "--vnf", "own-image"],
            2,
            "requires a kernel and an initramfs",
        ),
        (
            &["vNet3", "--image", "/nowhere/k,/nowhere/i"],
            2,
            "/nowhere/k is not a file",
        ),
        (
            &["vNet1", "--ports", "ffff:ff:1f.6,ffff:ff:1f.7"],
            3,
            "S: unavailable because its network card ffff:ff:1f.6: does not exist",
        ),
        (
            &[
                "vNet1",
                "--switch",
                "ovs-netdev",
                "--ports",
                "ffff:ff:1f.6,ffff:ff:1f.7",
            ],
            2,
            "supports no network cards",
        ),
    ] {
        let output = labs.run("up", words);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
        assert!(printed.contains(part), "{words:?}: {printed}");
    }
    // A machine without programs.
    let programs = TempDir::new().unwrap();
    let mut lab = labs.command("up", &["vNet1", "--switch", "vpp"]);
    let output = labs.with_state(lab.env("PATH", programs.path()));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let part = "S: unavailable because vpp is not installed";
    assert!(printed.contains(part), "{printed}");
    let mut show = labs.command("show", &["vNet4-1VNF", "--json"]);
    let output = show.env("PATH", programs.path()).output().unwrap();
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = reported["unavailable"].as_str().unwrap();
    for part in [
        "V: unavailable because guests require",
        "busybox (busybox), cpio (cpio)",
        "qemu-system-x86_64 (qemu-system-x86)",
    ] {
        assert!(reason.contains(part), "no '{part}': {reason}");
    }
    assert_eq!(labs.done("clean", &[]), "nothing was left behind\n");
}
