// SPDX-License-Identifier: Apache-2.0
//! Tests that the programs in Debian accept the files rendered for them.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use quietwire_base::{find_program, find_program_in};

use super::memory::socket_memory;
use super::tests::{between, cpus, sample};
use super::*;
use crate::machines;
use crate::partition::{PartitionRequest, Role, plan};

/// Fails if a program is not installed: `make test` installs all programs that tests run.
fn wants(program: &str) {
    let elsewhere = OsStr::new("/usr/sbin:/lib/systemd");
    let found =
        find_program(program).or_else(|| find_program_in(Path::new("/"), elsewhere, program));
    assert!(
        found.is_some(),
        "{program} is not installed (run scripts/setup --with-tests)"
    );
}

fn combined_output(output: &Output) -> String {
    let (out, error) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(error)
    )
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", combined_output(output));
}

fn rendered(target: Target) -> Rendered {
    target.render(&sample()).remove(0)
}

#[test]
fn shells_read_the_scripts() {
    for target in [
        Target::Ovs,
        Target::Qemu,
        Target::Resctrl,
        Target::Pqos,
        Target::Testpmd,
        Target::Vrouter,
        Target::Grub,
        Target::Irqbalance,
    ] {
        let output = Command::new("sh")
            .args(["-n", "-c", &rendered(target).text])
            .output()
            .unwrap();
        succeeds(&output);
    }
}

#[test]
fn systemd_takes_the_affinity() {
    wants("systemd-analyze");
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("quietwire-test.service");
    let verify = |affinity: &str| {
        fs::write(
            &unit,
            format!("[Service]\nExecStart=/bin/true\n{affinity}\n"),
        )
        .unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&unit)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = rendered(Target::Systemd).text;
    let reported = verify(text.strip_prefix("[Manager]\n").unwrap());
    assert!(
        !reported.contains("CPUAffinity") && !reported.contains("CPU affinity"),
        "{reported}"
    );
    // systemd reports an invalid value.
    let reported = verify("CPUAffinity=x-y");
    assert!(
        reported.contains("affinity") || reported.contains("Affinity"),
        "{reported}"
    );
}

/// Runs systemd as a user manager: it reads the same section as the system manager and need not be PID 1.
#[test]
fn systemd_s_manager_reads_its_section() {
    wants("systemd");
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["systemd", "run"] {
        fs::create_dir(at(name)).unwrap();
    }
    // systemd refuses to run this test as root.
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), everybody).unwrap();
    let nobody: &[&str] = if nix::unistd::geteuid().is_root() {
        &["setpriv", "--reuid", "65534", "--clear-groups"]
    } else {
        &[]
    };
    let complaints = |text: &str| {
        fs::write(at("systemd/user.conf"), text).unwrap();
        let output = Command::new("timeout")
            .arg("20")
            .args(nobody)
            .args([
                "/lib/systemd/systemd",
                "--test",
                "--user",
                "--unit=basic.target",
            ])
            .arg("--log-target=console")
            .env("XDG_CONFIG_HOME", directory.path())
            .env("XDG_RUNTIME_DIR", at("run"))
            .output()
            .unwrap();
        let reported = combined_output(&output);
        let lines = reported
            .lines()
            .filter(|line| line.contains("systemd/user.conf"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = complaints(&rendered(Target::Systemd).text);
    assert!(ours.is_empty(), "{ours:?}");
    let nonsense = complaints("[Manager]\nCPUAffinity=x-y\n");
    assert_eq!(nonsense.len(), 1, "{nonsense:?}");
}

/// Returns the directory of tuned's files: installed, or unpacked for tests only.
fn tuned() -> PathBuf {
    let unpacked = std::env::var_os("QUIETWIRE_TUNED").map(PathBuf::from);
    let places = unpacked.into_iter().chain(["/".into()]);
    let found = places
        .into_iter()
        .find(|place: &PathBuf| place.join("usr/lib/tuned/cpu-partitioning").is_dir());
    found.expect("QUIETWIRE_TUNED is not a directory that contains tuned (`make test` sets it, scripts/setup --with-tests installs tuned)")
}

/// Loads the profile as the daemon does, and prints the resulting settings.
const LOAD_PROFILE: &str = r#"
import json, sys
root, profiles = sys.argv[1:]
sys.path.insert(0, root + "/usr/lib/python3/dist-packages")
from tuned.profiles import Loader, Locator, Factory, Merger
from tuned.profiles.variables import Variables
from tuned.utils.global_config import GlobalConfig
variables = Variables()
config = GlobalConfig(root + "/etc/tuned/tuned-main.conf")
loader = Loader(Locator([profiles]), Factory(), Merger(), config, variables)
units = loader.load(["cpu-partitioning"]).units
print(json.dumps({
    name: {key: variables.expand(value) for key, value in unit.options.items()} for name, unit in units.items()
}))
"#;

#[test]
fn tuned_s_profile_does_what_the_plan_says() {
    const VARIABLES: &str = "/etc/tuned/cpu-partitioning-variables.conf";
    let tuned = tuned();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    // The profile requires online CPUs.
    let machine = machines::virtual_machine().inventory();
    let plan = plan(&machine, &PartitionRequest::default()).unwrap();
    let file = Target::Tuned.render(&plan).remove(0);
    assert_eq!(file.path, VARIABLES);
    fs::write(at("variables.conf"), &file.text).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(tuned.join("usr/lib/tuned"))
        .arg(at("profiles"))
        .output()
        .unwrap();
    succeeds(&copied);
    let profile = at("profiles/cpu-partitioning/tuned.conf");
    let text = fs::read_to_string(&profile).unwrap();
    let here = at("variables.conf").display().to_string();
    assert!(text.contains(VARIABLES));
    fs::write(&profile, text.replace(VARIABLES, &here)).unwrap();
    let output = Command::new("/usr/bin/python3")
        .args(["-c", LOAD_PROFILE])
        .args([&tuned, &at("profiles")])
        .env("TMPDIR", directory.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    succeeds(&output);
    let units: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let option = |unit: &str, key: &str| units[unit][key].as_str().unwrap();
    let isolated = plan.isolated();
    assert_eq!(cpus(option("irqbalance", "banned_cpus")), isolated);
    assert_eq!(cpus(option("scheduler", "isolated_cores")), isolated);
    assert_eq!(cpus(option("systemd", "cpu_affinity")), plan.housekeeping);
    let work_queues = option("sysfs", "/sys/devices/virtual/workqueue/cpumask");
    assert_eq!(cpus(&format!("0x{work_queues}")), plan.housekeeping);
    let command_line = option("bootloader", "cmdline_cpu_part");
    for name in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        let parameter = format!("{name}={isolated}");
        assert!(command_line.contains(&parameter), "{command_line}");
    }
}

/// Returns domains of guests: on threads of whole cores, on cores with one thread, on AMD, and without huge pages.
fn domains() -> Vec<(Plan, Rendered)> {
    let plans = [
        ("0000:17:00.0", machines::two_packages_with_clusters()),
        ("0003:01:00.0", machines::arm()),
        ("0000:21:00.0", machines::many_caches()),
    ];
    plans
        .into_iter()
        .flat_map(|(nic, machine)| {
            let request = format!("[forwarding]\ncpus = 2\n[[guest]]\nname = \"a\"\ncpus = 4\nmemory-mib = 2048\n[[guest]]\nname = \"b\"\ncpus = 2\n[[nic]]\npci = \"{nic}\"\n");
            let plan = plan(&machine.inventory(), &PartitionRequest::parse(&request).unwrap()).unwrap();
            let files = Target::Libvirt.render(&plan);
            files.into_iter().map(move |file| (plan.clone(), file))
        })
        .collect()
}

#[test]
fn libvirt_s_schema_has_the_domains() {
    wants("virt-xml-validate");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("domain.xml");
    let validate = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = Command::new("virt-xml-validate");
        command.arg(&file).arg("domain").output().unwrap()
    };
    let domains = domains();
    assert_eq!(domains.len(), 6);
    for (_, domain) in &domains {
        succeeds(&validate(&domain.text));
    }
    let wrong = domains[0].1.text.replace("vcpupin", "vcpu-pin");
    assert!(!validate(&wrong).status.success());
}

/// Tests with libvirt's test driver, which runs in the client: it defines the domain and prints it.
#[test]
fn libvirt_defines_the_domains_and_pins_as_planned() {
    wants("virsh");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("domain.xml");
    let define = |text: &str| {
        fs::write(&file, text.replace("type='kvm'", "type='test'")).unwrap();
        let commands = format!("define {}; dumpxml guest --inactive", file.display());
        Command::new("timeout")
            .args(["60", "virsh", "--connect", "test:///default", &commands])
            .env("XDG_CACHE_HOME", directory.path())
            .output()
            .unwrap()
    };
    for (plan, domain) in domains() {
        let (_, rest) = domain.text.split_once("<name>").unwrap();
        let (name, _) = rest.split_once('<').unwrap();
        let named = |text: &str, from: &str, to: &str| {
            text.replace(&format!("<name>{from}<"), &format!("<name>{to}<"))
        };
        let output = define(&named(&domain.text, name, "guest"));
        succeeds(&output);
        let defined = named(&combined_output(&output), "guest", name);
        // libvirt prints memory in KiB.
        let kib = between(&defined, "<memory unit='KiB'>", "<");
        let mib = kib.parse::<u64>().unwrap() / 1024;
        let memory = |unit: &str, size: &str| format!("<memory unit='{unit}'>{size}<");
        let defined = defined.replace(&memory("KiB", &kib), &memory("MiB", &mib.to_string()));
        libvirt::check(&defined, &plan);
    }
    let wrong = domains()
        .remove(0)
        .1
        .text
        .replace("vcpupin vcpu='0'", "vcpupin vcpu='x'");
    assert!(!define(&wrong).status.success());
}

#[test]
fn qemu_takes_the_options() {
    wants("qemu-system-x86_64");
    let text = rendered(Target::Qemu).text;
    let (_, options) = text.split_once("-display none ").unwrap();
    let (options, _) = options.split_once("\"$@\"").unwrap();
    let directory = tempfile::tempdir().unwrap();
    // Software emulation with a memory size and a node that every machine has. All other options stay unchanged.
    let options = options
        .replace("\\\n", " ")
        .replace("accel=kvm", "accel=tcg")
        .replace("-cpu host", "-cpu max")
        .replace("4096M", "64M")
        .replace(",prealloc=on", "")
        .replace("/dev/hugepages", &directory.path().display().to_string());
    let node = between(&options, "host-nodes=", ",");
    let options = options.replace(&format!("host-nodes={node}"), "host-nodes=0");
    let mut qemu = Command::new("timeout")
        .args([
            "20",
            "qemu-system-x86_64",
            "-display",
            "none",
            "-S",
            "-monitor",
            "stdio",
            "-nodefaults",
        ])
        .args(options.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The monitor runs only if the options are valid. QEMU that has refused them reads nothing.
    let _ = qemu.stdin.take().unwrap().write_all(b"quit\n");
    let output = qemu.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(
        reported.contains("monitor"),
        "{reported}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Stops the server in the directory at the end of the test.
struct OvsDatabase(PathBuf);

impl Drop for OvsDatabase {
    fn drop(&mut self) {
        let _ = Command::new("ovs-appctl")
            .args(["-t"])
            .arg(self.0.join("ctl"))
            .arg("exit")
            .output();
    }
}

#[test]
fn open_vswitch_takes_the_settings() {
    let schema = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
    wants("ovsdb-server");
    wants("ovs-vsctl");
    let directory = tempfile::tempdir().unwrap();
    let at = |file: &str| directory.path().join(file);
    succeeds(
        &Command::new("ovsdb-tool")
            .arg("create")
            .arg(at("conf.db"))
            .arg(schema)
            .output()
            .unwrap(),
    );
    let server = Command::new("ovsdb-server")
        .arg(at("conf.db"))
        .arg(format!("--remote=punix:{}", at("db.sock").display()))
        .arg(format!("--unixctl={}", at("ctl").display()))
        .arg(format!("--pidfile={}", at("pid").display()))
        .args(["--detach", "--log-file=/dev/null", "--no-chdir"])
        .output()
        .unwrap();
    succeeds(&server);
    let _database = OvsDatabase(directory.path().to_owned());
    let vsctl = |args: &[&str]| {
        let mut command = Command::new("ovs-vsctl");
        command
            .env("OVS_RUNDIR", directory.path())
            .args(["--no-wait", "--timeout=20"])
            .args(args);
        command.output().unwrap()
    };
    succeeds(&vsctl(&["init"]));
    let script = rendered(Target::Ovs).text;
    for _ in 0..2 {
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("OVS_RUNDIR", directory.path())
            .output()
            .unwrap();
        succeeds(&output);
    }
    let get = |what: &[&str]| {
        let output = vsctl(what);
        succeeds(&output);
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .replace('"', "")
    };
    let plan = sample();
    let mask = get(&["get", "Open_vSwitch", ".", "other_config:pmd-cpu-mask"]);
    assert_eq!(cpus(&mask), plan.cpus(Role::Forwarding));
    let memory = get(&["get", "Open_vSwitch", ".", "other_config:dpdk-socket-mem"]);
    assert_eq!(memory, socket_memory(&plan));
    let affinity = get(&["get", "Interface", "dpdk0", "other_config:pmd-rxq-affinity"]);
    let first = plan.nics[0].queues[0];
    assert!(
        affinity.starts_with(&format!("{}:{}", first.queue, first.cpu)),
        "{affinity}"
    );
}
