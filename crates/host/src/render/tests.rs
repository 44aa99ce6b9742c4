// SPDX-License-Identifier: Apache-2.0
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proptest::prelude::*;

use super::*;
use crate::machines;
use crate::partition::{Wishes, plan, samples};

pub(super) fn cpus(text: &str) -> CpuList {
    text.trim()
        .parse()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// As [`cpus`], the empty text being no CPU.
pub(super) fn maybe_cpus(text: &str) -> CpuList {
    if text.is_empty() {
        CpuList::new()
    } else {
        cpus(text)
    }
}

/// What follows `key` at the beginning of a line.
pub(super) fn value(text: &str, key: &str) -> String {
    let found = text.lines().find_map(|line| line.strip_prefix(key));
    found
        .unwrap_or_else(|| panic!("no {key} in {text}"))
        .to_owned()
}

/// The word that follows `key` anywhere.
pub(super) fn word(text: &str, key: &str) -> String {
    let (_, rest) = text
        .split_once(key)
        .unwrap_or_else(|| panic!("no {key} in {text}"));
    let end = rest.find([' ', '\n', '"']).unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// What stands between `start` and the next of the characters `ends`.
pub(super) fn between(text: &str, start: &str, ends: &str) -> String {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start} in {text}"));
    let end = rest.find(|c| ends.contains(c)).unwrap();
    rest[..end].to_owned()
}

fn check(target: Target, text: &str, plan: &Plan) {
    match target {
        Target::KernelCmdline => kernel_cmdline::check(text, plan),
        Target::Grub => grub::check(text, plan),
        Target::Tuned => tuned::check(text, plan),
        Target::Systemd => systemd::check(text, plan),
        Target::Irqbalance => irqbalance::check(text, plan),
        Target::Ovs => ovs::check(text, plan),
        Target::Vpp => vpp::check(text, plan),
        Target::Testpmd => testpmd::check(text, plan),
        Target::Quietwire => quietwire::check(text, plan),
        Target::Vrouter => vrouter::check(text, plan),
        Target::Libvirt => libvirt::check(text, plan),
        Target::Qemu => qemu::check(text, plan),
        Target::Kubelet => kubelet::check(text, plan),
        Target::Tripleo => tripleo::check(text, plan),
        Target::PerformanceProfile => performance_profile::check(text, plan),
        Target::Resctrl => resctrl::check(text, plan),
        Target::Pqos => pqos::check(text, plan),
        Target::Nova => nova::check(text, plan),
    }
}

/// A plan with something of everything.
fn sample() -> Plan {
    let wishes = r#"
        [control]
        cpus = 1
        [service]
        cpus = 1
        [forwarding]
        cpus = 4
        cache-percent = 50
        [[guest]]
        name = "firewall"
        cpus = 4
        memory-mib = 4096
        [[neighbour]]
        name = "batch"
        cpus = 8
        [[nic]]
        pci = "0000:17:00.0"
        functions = 4
        mtu = 9000
        [[nic]]
        pci = "0000:65:00.0"
    "#;
    let machine = machines::two_packages_with_clusters().inventory();
    plan(&machine, &Wishes::parse(wishes).unwrap()).unwrap()
}

/// `QUIETWIRE_GOLDEN=write` writes them anew; what changed is to be looked at.
#[test]
fn every_file_is_as_it_was_looked_at() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render/golden");
    let is_written = std::env::var_os("QUIETWIRE_GOLDEN").is_some_and(|value| value == "write");
    for target in Target::ALL {
        let files = target.render(&sample());
        assert_eq!(files.len(), 1, "{}", target.name());
        let golden = directory.join(format!("{}.txt", target.name()));
        if is_written {
            fs::write(&golden, &files[0].text).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap();
        assert_eq!(files[0].text, expected, "{}", target.name());
        check(target, &files[0].text, &sample());
    }
}

#[test]
fn targets_are_known_by_their_names() {
    for target in Target::ALL {
        assert_eq!(target.name().parse(), Ok(target));
    }
    let error = "xen".parse::<Target>().unwrap_err().to_string();
    assert!(
        error.contains("'xen'") && error.contains("performance-profile"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_file_agrees_with_the_plan(machine in samples::some_machine(), many in prop::collection::vec(samples::some_wishes(), 4)) {
        let inventory = machine.inventory();
        for wishes in many {
            let found = match plan(&inventory, &wishes) {
                Ok(found) => found,
                Err(impossible) => match impossible.nearest {
                    Some((_, found)) => found,
                    None => continue,
                },
            };
            for target in Target::ALL {
                // A shell for each would take long; the golden files are read by one.
                if target == Target::Grub {
                    continue;
                }
                for file in target.render(&found) {
                    check(target, &file.text, &found);
                }
            }
        }
    }
}

/// Whether a program is there; says so when it is not.
fn is_there(program: &str, what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .any(|directory| directory.join(program).is_file());
    if !found {
        eprintln!("not tried: {what}: there is no {program} here");
    }
    found
}

fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stdout)
    );
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
    if !is_there("systemd-analyze", "systemd's reading of CPUAffinity") {
        return;
    }
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
    let told = verify(text.strip_prefix("[Manager]\n").unwrap());
    assert!(
        !told.contains("CPUAffinity") && !told.contains("CPU affinity"),
        "{told}"
    );
    // That it would have been told.
    let told = verify("CPUAffinity=x-y");
    assert!(
        told.contains("affinity") || told.contains("Affinity"),
        "{told}"
    );
}

#[test]
fn tuned_reads_its_variables() {
    let has_tuned = Path::new("/usr/lib/python3/dist-packages/tuned").is_dir();
    if !has_tuned {
        eprintln!("not tried: tuned's reading of its variables: there is no tuned here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cpu-partitioning-variables.conf");
    fs::write(&file, rendered(Target::Tuned).text).unwrap();
    let script = "import sys\nfrom tuned.profiles.variables import Variables\nv = Variables()\nv.add_from_file(sys.argv[1])\nprint(v.expand('${isolated_cores}'), v.expand('${no_balance_cores}'))\n";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .arg(&file)
        .output()
        .unwrap();
    succeeds(&output);
    let isolated = sample().isolated();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        format!("{isolated} {isolated}")
    );
}

#[test]
fn libvirt_validates_the_domain() {
    if !is_there("virt-xml-validate", "libvirt's schema") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("domain.xml");
    fs::write(&file, rendered(Target::Libvirt).text).unwrap();
    succeeds(
        &Command::new("virt-xml-validate")
            .arg(&file)
            .arg("domain")
            .output()
            .unwrap(),
    );
}

#[test]
fn qemu_takes_the_options() {
    if !is_there("qemu-system-x86_64", "QEMU's reading of its options") {
        return;
    }
    let text = rendered(Target::Qemu).text;
    let (_, options) = text.split_once("-display none ").unwrap();
    let (options, _) = options.split_once("\"$@\"").unwrap();
    let directory = tempfile::tempdir().unwrap();
    // Software emulation, of a size and on a node that any machine has; all else as it is.
    let options = options
        .replace("\\\n", " ")
        .replace("accel=kvm", "accel=tcg")
        .replace("-cpu host", "-cpu max")
        .replace("4096M", "64M")
        .replace(",prealloc=on", "")
        .replace("/dev/hugepages", &directory.path().display().to_string());
    let node = between(&options, "host-nodes=", ",");
    let options = options.replace(&format!("host-nodes={node}"), "host-nodes=0");
    let output = Command::new("timeout")
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
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    // End of input ends the monitor, and it is only there when the options were taken.
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains("monitor"),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Ends the server that is in the directory when the test does.
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
    if !is_there("ovsdb-server", "Open vSwitch's database")
        || !is_there("ovs-vsctl", "Open vSwitch's database")
        || !schema.is_file()
    {
        return;
    }
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
