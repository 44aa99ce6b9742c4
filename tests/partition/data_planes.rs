// SPDX-License-Identifier: Apache-2.0
//! Third-party data planes on this machine: Open vSwitch and dpdk-testpmd, started with the output of their renderers, and
//! recognised by `verify` without configuration.

use std::fs;
use std::path::Path;
use std::process::Command;

use quietwire_base::ProcessId;
use quietwire_host::tasks::DataPlane;

use crate::rig::{Checks, Machine, SETS, allowed, forwards_for, settings, until};
use crate::{done, text};

/// Checks that must never name a forwarding thread that runs as planned.
const AS_PLANNED: &[&str] = &[
    "forwarding-threads",
    "intruders",
    "who-ran",
    "forwarding-migrations",
    "system-calls",
];

/// Number of consecutive checks that must find a polling thread on its CPU.
const LOOKS: u32 = 50;

/// Returns a thread of a process by the prefix of its name.
fn thread(pid: u32, name: &str) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        comm.starts_with(name).then_some(tid)
    })
}

/// Returns the forwarding thread of a process once it polls: before, it waits for a command.
fn polling(pid: u32, directory: &Path, names: &[&str]) -> u32 {
    let mut running = 0;
    until("a thread polls", || {
        assert!(is_alive(pid), "{}", printed(directory));
        let worker = names.iter().find_map(|name| thread(pid, name))?;
        let call = fs::read_to_string(format!("/proc/{pid}/task/{worker}/syscall")).ok()?;
        running = if call.starts_with("running") {
            running + 1
        } else {
            0
        };
        (running == LOOKS).then_some(worker)
    })
}

fn is_alive(pid: u32) -> bool {
    ProcessId::of(i32::try_from(pid).unwrap()).is_some()
}

/// Mounts huge pages in a private namespace, and replaces the shell by the command.
fn with_pages(directory: &Path, command: &str) -> String {
    let pages = directory.join("pages");
    fs::create_dir(&pages).unwrap();
    format!(
        "exec unshare --mount --net sh -euc 'mount -t hugetlbfs none {}; exec {command}' > {} 2>&1",
        pages.display(),
        directory.join("out").display()
    )
}

fn printed(directory: &Path) -> String {
    fs::read_to_string(directory.join("out")).unwrap_or_default()
}

fn rendered(machine: &Machine, target: &str) -> String {
    done(&["render", "--for", target, "--plan", machine.plan()])
}

/// Verifies a running forwarding thread, and rolls back.
fn verified(mut machine: Machine, worker: u32, plane: DataPlane) {
    assert_eq!(
        (allowed(worker), forwards_for(worker)),
        ("1".to_owned(), Some(plane))
    );
    let checks = Checks::over("1s");
    checks.assert("pass", &["huge-pages"]);
    checks.assert_unblamed(worker, AS_PLANNED);
    machine.end_all();
    until("its CPU set is empty", || {
        let inside = fs::read_to_string(Path::new(SETS).join("quietwire-data-plane/cgroup.procs"));
        inside.is_ok_and(|inside| inside.is_empty()).then_some(())
    });
    done(&["rollback"]);
    assert_eq!(settings(), machine.before);
}

/// DPDK's runtime directory of a program that ends by a signal and does not remove it. Removed with this value.
struct DpdkDirectory(String);

impl DpdkDirectory {
    fn of(program: &str) -> Self {
        Self(format!("qwpart-{program}-{}", std::process::id()))
    }
}

impl Drop for DpdkDirectory {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(Path::new("/run/dpdk").join(&self.0));
        if let Err(error) = removed {
            eprintln!("/run/dpdk/{}: {error}", self.0);
        }
    }
}

#[test]
fn testpmd_runs_as_it_is_printed_and_is_recognised() {
    // Declared before the machine, which terminates the program when dropped.
    let dpdk = DpdkDirectory::of("testpmd");
    // testpmd allocates buffers for many queues, even if it uses few.
    let mut machine = Machine::new(240);
    done(&["apply", "--plan", machine.plan()]);
    let line = rendered(&machine, "testpmd");
    let (options, own) = line.trim().split_once(" -- ").unwrap();
    let command = format!(
        "{options} --file-prefix={} --single-file-segments --vdev=net_null0 --huge-dir={} -- {own}",
        dpdk.0,
        machine.directory.path().join("pages").display()
    );
    let directory = machine.directory.path().to_owned();
    let script = with_pages(&directory, &command);
    let pid = machine.start_in_data_plane(&script);
    let worker = polling(pid, &directory, &["rte-worker-", "dpdk-worker"]);
    verified(machine, worker, DataPlane::Dpdk);
}

#[test]
fn open_vswitch_runs_as_it_is_reported_and_is_recognised() {
    const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
    let dpdk = DpdkDirectory::of("ovs");
    let mut machine = Machine::new(160);
    done(&["apply", "--plan", machine.plan()]);
    let directory = machine.directory.path().to_owned();
    let at = |name: &str| directory.join(name).display().to_string();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = command
            .env("OVS_RUNDIR", &directory)
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            text(&output)
        );
        text(&output)
    };
    run("ovsdb-tool", &["create", &at("conf.db"), SCHEMA]);
    let mut database = Command::new("ovsdb-server");
    database.env("OVS_RUNDIR", &directory);
    database.args([
        at("conf.db"),
        format!("--remote=punix:{}", at("db.sock")),
        format!("--unixctl={}", at("db.ctl")),
    ]);
    machine.start(&mut database);
    until("the database answers", || {
        Path::new(&at("db.sock")).exists().then_some(())
    });
    run("ovs-vsctl", &["--no-wait", "--timeout=20", "init"]);
    // The output is a script; options for missing hardware are appended to it.
    run("sh", &["-c", &rendered(&machine, "ovs")]);
    let extra = format!(
        "other_config:dpdk-extra=\"--no-pci --file-prefix={} --single-file-segments --huge-dir={}\"",
        dpdk.0,
        at("pages")
    );
    run(
        "ovs-vsctl",
        &[
            "--no-wait",
            "--timeout=20",
            "set",
            "Open_vSwitch",
            ".",
            &extra,
        ],
    );
    let command = format!(
        "env OVS_RUNDIR={} {VSWITCHD} unix:{} --unixctl={} --log-file={}",
        directory.display(),
        at("db.sock"),
        at("ctl"),
        at("log")
    );
    let pid = machine.start_in_data_plane(&with_pages(&directory, &command));
    until("Open vSwitch answers", || {
        assert!(is_alive(pid), "{}", printed(&directory));
        Path::new(&at("ctl")).exists().then_some(())
    });
    let bridge = [
        "--timeout=30",
        "add-br",
        "br0",
        "--",
        "set",
        "bridge",
        "br0",
        "datapath_type=netdev",
    ];
    let port = [
        "--",
        "add-port",
        "br0",
        "p0",
        "--",
        "set",
        "interface",
        "p0",
        "type=dpdkvhostuser",
    ];
    run("ovs-vsctl", &[&bridge[..], &port[..]].concat());
    let worker = polling(pid, &directory, &["pmd-c"]);
    verified(machine, worker, DataPlane::OpenVswitch);
}
