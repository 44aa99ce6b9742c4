// SPDX-License-Identifier: Apache-2.0
//! Helpers of the lab's tests: a fake device, and checks of the machine.

// Each test program uses a part of this module.
#![allow(dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Idle;
use quietwire_host::CpuList;
use quietwire_host::cpuset::Cpusets;
use quietwire_host::inventory::Inventory;
use quietwire_host::roles::Roles;
use quietwire_host::settings::{HUGE_PAGES, REALTIME_RUNTIME};
use quietwire_host::threads::online_cpus;
use quietwire_lab::topology::{Assignment, Forwarding, Graph, Parameters, SwitchSettings, named};
use quietwire_lab::up::{GuestOptions, UpOptions};
use quietwire_lab::{
    Case, IsolationCase, Lab, LabError, LabOptions, NeighbourPlace, NeighbourSpec, Setup, Stop,
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A fake switch, which speaks the switch's protocol and obeys its CPU options, but has no packets. It survives its
/// parent's exit (PR_SET_PDEATHSIG of prctl(2) is 1).
const DEVICE: &str = r#"#!/usr/bin/env python3
import ctypes, json, os, signal, socket, sys, threading
BEHAVIOUR = "@BEHAVIOUR@"
args = sys.argv[1:]
if args == ["--version"]:
    print("pretender 1")
    sys.exit()
ctypes.CDLL(None).prctl(1, 0)
options = lambda name: [args[i + 1] for i, arg in enumerate(args) if arg == name]
print("pretending to start", flush=True)
marker = options("--control-socket")[0] + ".started"
if BEHAVIOUR == "dies" or (BEHAVIOUR == "starts-once" and os.path.exists(marker)):
    print("no memory for the mempool", file=sys.stderr, flush=True)
    sys.exit(7)
open(marker, "w").close()
counts = {key: 0 for key in ("rx_octets", "tx_frames", "tx_octets")}
router = ("forwarded", "fragmented", "service_full", "not_sent", "echoed", "errors", "unknown_protocol", "to_kernel", "kernel_refused",
    "neighbour_requests", "neighbour_requests_limited", "neighbours_evicted", "neighbour_table_full", "neighbour_queue_drops", "address_conflicts")
STATS = {"uptime_s": 1.5, "ports": [{"name": "p0", "rx_frames": 3, "drops": {}, **counts}], "threads": [], "bridges": [],
    "router": {"dropped": {}, "punted": {}, **dict.fromkeys(router, 0)}}
kept = []
for port in options("--port"):
    path = port.split("memif:", 1)[1].split("?", 1)[0]
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(path)
cpus = {role: options(f"--{role}-cpus")[0] for role in ("forwarding", "service", "control")}
pinned = options("--pinning") == ["roles"] and BEHAVIOUR != "strays"
numbers = lambda text: {n for part in text.split(",") for n in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)}
threads, started = [], threading.Barrier(3)
def enlist(role):
    tid = threading.get_native_id()
    if pinned:
        os.sched_setaffinity(tid, numbers(cpus[role]))
    threads.append({"tid": tid, "name": f"fake-{role}", "role": role, "cpus": cpus[role]})
def work(role):
    enlist(role)
    started.wait()
    threading.Event().wait()
for role in ("forwarding", "service"):
    threading.Thread(target=work, args=(role,), daemon=True).start()
enlist("control")
started.wait()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server = socket.socket(socket.AF_UNIX)
if os.path.exists(options("--control-socket")[0]):
    os.unlink(options("--control-socket")[0])
server.bind(options("--control-socket")[0])
server.listen()
while True:
    connection, _ = server.accept()
    with connection:
        question = json.loads(connection.makefile().readline())
        answers = {"threads": threads, "stats": STATS, "config": "ports = 2"}
        if "flush-fdb" in question:
            answer = {"error": "the table is stuck"} if BEHAVIOUR == "keeps" else {"ok": 3}
        else:
            answer = {"ok": answers[question["show"]]} if question["show"] in answers else {"error": "no such thing"}
        connection.sendall((json.dumps(answer) + "\n").encode())
"#;

pub(crate) fn options(directory: &Path, behaviour: &str) -> LabOptions {
    let program = directory.join(format!("device-{behaviour}"));
    fs::write(&program, DEVICE.replace("@BEHAVIOUR@", behaviour)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    LabOptions {
        state_directory: directory.join("state"),
        program,
    }
}

/// Returns the CPUs of this machine: one to forward, and the others. Fails on a machine that a lab cannot use.
pub(crate) fn machine() -> (CpuList, CpuList) {
    let own = fs::metadata("/proc/self").unwrap();
    let uid = std::os::unix::fs::MetadataExt::uid(&own);
    assert_eq!(uid, 0, "labs require root");
    let missing = Cpusets::find(Path::new("/")).err();
    assert_eq!(
        missing.map(|error| error.to_string()),
        None,
        "labs require CPU sets"
    );
    let online = online_cpus(Path::new("/")).unwrap();
    let forwarding: CpuList = online.iter().next_back().into_iter().collect();
    let others = online.difference(&forwarding);
    assert!(!others.is_empty(), "labs require two CPUs");
    (forwarding, others)
}

/// A case of the lab, with its device and neighbours.
#[derive(Clone)]
pub(crate) struct Whole {
    pub(crate) case: Case,
    pub(crate) forwarding: Forwarding,
    pub(crate) has_monitor: bool,
    pub(crate) settings: SwitchSettings,
    pub(crate) neighbours: NeighbourSpec,
}

impl Whole {
    fn graph(&self) -> Graph {
        let parameters = Parameters {
            forwarding: self.forwarding,
            ..Parameters::default()
        };
        let graph = named("vNet1").unwrap().graph(&parameters).unwrap();
        let graph = graph.with_settings(&self.settings);
        match self.has_monitor {
            true => graph.with_monitor(),
            false => graph,
        }
    }

    fn up(&self, options: &LabOptions) -> UpOptions {
        let Roles {
            forwarding,
            service,
            control,
        } = &self.case.roles;
        let rest = service.union(control);
        UpOptions {
            name: "case".to_owned(),
            state_directory: options.state_directory.clone(),
            program: options.program.clone(),
            graph: self.graph(),
            cpus: Assignment {
                elements: vec![rest.clone(), forwarding.clone()],
                rest,
                shared: Vec::new(),
            },
            by_plan: false,
            guests: GuestOptions::default(),
            set: None,
            stop: Stop::default(),
        }
    }
}

/// Enters a case, step by step. Returns the settings and commands of its partition.
pub(crate) fn enter(
    lab: &mut Lab,
    options: &LabOptions,
    whole: &Whole,
) -> Result<Vec<String>, LabError> {
    let commands = lab.begin(&whole.case)?;
    lab.bring_up(&whole.up(options))?;
    lab.start_neighbours(&whole.neighbours)?;
    Ok(commands)
}

/// Returns the PID of the running device.
pub(crate) fn device_pid(lab: &Lab) -> i32 {
    let element = &lab.device().unwrap().state().elements[0];
    assert_eq!(element.pids.len(), 1);
    i32::try_from(element.pids[0]).unwrap()
}

/// Returns a case with a pinned device on its CPUs, which are isolated, and neighbours on the others.
pub(crate) fn partitioned(forwarding: &CpuList, others: &CpuList) -> Whole {
    let isolated = IsolationCase::named("isolated").unwrap();
    let setup = Setup {
        forwarding: forwarding.clone(),
        apparatus: others.clone(),
        ports: Vec::new(),
    };
    let partition = isolated.plan(&Inventory::read(Path::new("/")), &setup);
    let partition = partition.unwrap();
    assert!(partition.is_some());
    Whole {
        case: Case {
            roles: Roles {
                forwarding: forwarding.clone(),
                service: others.clone(),
                control: others.clone(),
            },
            partition,
        },
        forwarding: Forwarding::CrossConnect,
        has_monitor: false,
        settings: SwitchSettings {
            service_cpus: others.clone(),
            control_cpus: others.clone(),
            rx_ring_size: 1024,
            tx_ring_size: 1024,
            idle: Idle::Poll,
            is_pinned: true,
            huge_pages: false,
            memory_mib: 64,
            frame_size_max: 1518,
            mac_addresses_max: 1024,
            has_neighbour_ports: false,
        },
        neighbours: NeighbourSpec {
            stressors: vec!["--cpu 2".to_owned(), "--cpu-load 5".to_owned()],
            place: NeighbourPlace::Process,
            network: None,
            cpus: others.clone(),
        },
    }
}

/// Returns the CPU sets that the process with this PID created.
pub(crate) fn sets_of(pid: u32) -> Vec<PathBuf> {
    let mount = Cpusets::find(Path::new("/")).unwrap().mount;
    let mut sets: Vec<PathBuf> = fs::read_dir(mount)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(&format!("quietwire-{pid}-"))
        })
        .collect();
    sets.sort();
    sets
}

/// Returns the CPU set of the neighbours of the lab in the process with this PID.
pub(crate) fn neighbours_set(pid: u32) -> PathBuf {
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with("-neighbours");
    sets_of(pid).into_iter().find(is_it).unwrap()
}

/// State of the machine that a lab changes: CPUs of this process, the share of real-time threads, huge pages.
pub(crate) fn state_of_machine() -> [String; 3] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let held = |path: &str| fs::read_to_string(path).unwrap_or_default();
    [allowed.to_owned(), held(REALTIME_RUNTIME), held(HUGE_PAGES)]
}
