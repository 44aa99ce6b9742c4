// SPDX-License-Identifier: Apache-2.0
//! Tests with machines made of files, from a complete machine to an empty one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::check::{Check, State};
use super::{examine, worst};

const SEARCH_PATH: &str = "/usr/bin:/usr/sbin";
/// Directory of the network card.
const CARD: &str = "sys/bus/pci/devices/0000:17:00.0";

/// Files of a complete machine with two CPUs.
const GOOD: &[(&str, &str)] = &[
    (
        "proc/self/status",
        "Name:\tquietwire\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n",
    ),
    ("proc/sys/kernel/osrelease", "6.1.0-18-cloud-amd64\n"),
    ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/sys/kernel/perf_event_paranoid", "2\n"),
    ("proc/net/protocols", "protocol  size\nXDP 960\nUDP 1200\n"),
    (
        "proc/meminfo",
        "MemTotal: 4000000 kB\nMemAvailable:    3000000 kB\n",
    ),
    (
        "proc/cpuinfo",
        "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n",
    ),
    (
        "proc/filesystems",
        "nodev\tproc\nnodev\thugetlbfs\nnodev\tresctrl\n\text4\n",
    ),
    (
        "proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t3\t1\t1\n",
    ),
    (
        "proc/mounts",
        "proc /proc proc rw 0 0\n\
         cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
         nodev /dev/hugepages hugetlbfs rw 0 0\n\
         resctrl /sys/fs/resctrl resctrl rw 0 0\n",
    ),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/isolated", "1\n"),
    (
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "0\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
        "1\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "tsc\n",
    ),
    (
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
        "tsc kvm-clock\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "256\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "200\n",
    ),
    ("sys/bus/event_source/devices/cpu/type", "4\n"),
    ("sys/bus/pci/devices/0000:17:00.0/class", "0x020000\n"),
    ("dev/kvm", ""),
    ("dev/vfio/vfio", ""),
    ("dev/net/tun", ""),
    ("usr/lib/x86_64-linux-gnu/librte_eal.so.23", ""),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_af_packet.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_af_xdp.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_memif.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_null.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_pcap.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_vhost.so.23",
        "",
    ),
    (
        "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0/librte_net_virtio.so.23",
        "",
    ),
];

const GOOD_COMMANDS: &[&str] = &[
    "usr/bin/stress-ng",
    "usr/bin/setpriv",
    "usr/bin/dpdk-testpmd",
    "usr/sbin/ip",
    "usr/bin/readelf",
    "usr/bin/busybox",
    "usr/bin/cpio",
    "usr/sbin/modprobe",
    "usr/bin/qemu-system-x86_64",
];

struct Tree(TempDir);

impl Tree {
    fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn good() -> Self {
        let tree = Self::empty();
        for (path, text) in GOOD {
            tree.write(path, text);
        }
        for command in GOOD_COMMANDS {
            tree.write(command, "");
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(tree.0.path().join(command), executable).unwrap();
        }
        tree.bind("vfio-pci");
        tree
    }

    /// Binds the network card to a driver.
    fn bind(&self, driver: &str) {
        let card = self.0.path().join(CARD);
        fs::create_dir_all(&card).unwrap();
        for (link, target) in [
            ("driver", format!("../../drivers/{driver}")),
            ("iommu_group", "../../../kernel/iommu_groups/7".to_owned()),
        ] {
            let _ = fs::remove_file(card.join(link));
            symlink(target, card.join(link)).unwrap();
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.0.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    fn examine(&self) -> Vec<Check> {
        examine(self.0.path(), OsStr::new(SEARCH_PATH))
    }

    fn check(&self, name: &str) -> Check {
        let mut found = self.examine();
        found.retain(|check| check.name == name);
        assert_eq!(found.len(), 1, "one check named {name}");
        found.remove(0)
    }
}

/// Returns a check of the complete machine with one file changed.
fn changed(name: &str, path: &str, text: &str) -> Check {
    let tree = Tree::good();
    tree.write(path, text);
    tree.check(name)
}

/// Returns a check of the complete machine without one file or directory.
fn without(name: &str, path: &str) -> Check {
    let tree = Tree::good();
    tree.remove(path);
    tree.check(name)
}

fn remedy(check: &Check) -> &str {
    check.remedy.as_deref().unwrap_or_default()
}

#[test]
fn a_machine_with_everything_is_ok_throughout() {
    let checks = Tree::good().examine();
    let bad: Vec<&Check> = checks.iter().filter(|c| c.state != State::Ok).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(worst(&checks), State::Ok);
    assert!(checks.iter().all(|check| !check.found.is_empty()));
}

#[test]
fn an_empty_machine_has_failed_checks_with_remedies() {
    let checks = Tree::empty().examine();
    assert_eq!(worst(&checks), State::Missing);
    for check in checks.iter().filter(|c| c.state == State::Missing) {
        assert!(check.remedy.is_some(), "{check:?}");
    }
}

#[test]
fn the_same_checks_come_in_the_same_order_on_every_machine() {
    let names = |checks: Vec<Check>| checks.into_iter().map(|c| c.name).collect::<Vec<_>>();
    let good = names(Tree::good().examine());
    assert_eq!(good, names(Tree::empty().examine()));
    let mut distinct = good.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), good.len());
}

#[test]
fn worst_orders_states_by_what_they_prevent() {
    let check = |state| Check::new("x", state, "seen");
    assert_eq!(worst(&[]), State::Ok);
    assert_eq!(
        worst(&[check(State::Warning), check(State::Unavailable)]),
        State::Warning
    );
    assert_eq!(
        worst(&[check(State::Missing), check(State::Ok)]),
        State::Missing
    );
}

#[test]
fn an_ordinary_user_and_a_curbed_root_are_distinguished() {
    const STATUS: &str = "proc/self/status";
    let user = changed(
        "privileges",
        STATUS,
        "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n",
    );
    assert_eq!(user.state, State::Missing);
    assert!(remedy(&user).starts_with("sudo"));
    let curbed = changed(
        "privileges",
        STATUS,
        "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n",
    );
    assert_eq!(curbed.state, State::Missing);
    assert!(
        remedy(&curbed).contains("--cap-add SYS_ADMIN"),
        "{curbed:?}"
    );
    assert!(!remedy(&curbed).contains("NET_RAW"), "{curbed:?}");
}

#[test]
fn commands_are_looked_for_on_the_path_and_must_be_executable() {
    let gone = without("stress-ng", "usr/bin/stress-ng");
    assert_eq!(gone.state, State::Missing);
    assert_eq!(remedy(&gone), "apt-get install stress-ng");

    let testpmd = without("dpdk-testpmd", "usr/bin/dpdk-testpmd");
    assert_eq!(testpmd.state, State::Warning);

    let tree = Tree::good();
    let plain = fs::Permissions::from_mode(0o644);
    fs::set_permissions(tree.0.path().join("usr/bin/setpriv"), plain).unwrap();
    assert_eq!(tree.check("setpriv").state, State::Missing);
}

#[test]
fn guests_packages_are_listed_at_once_and_are_those_of_setup() {
    let tree = Tree::good();
    tree.remove("usr/bin/cpio");
    tree.remove("usr/bin/qemu-system-x86_64");
    let check = tree.check("guests");
    assert_eq!(check.state, State::Warning);
    assert_eq!(remedy(&check), "apt-get install cpio qemu-system-x86");
    let setup = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/setup");
    let setup = fs::read_to_string(setup).unwrap();
    let listed = setup.lines().find_map(|line| {
        line.strip_prefix("readonly GUEST_PACKAGES=(")?
            .strip_suffix(')')
    });
    let ours = super::software::GUEST_COMMANDS.map(|(_, package)| package);
    assert_eq!(listed.unwrap().split(' ').collect::<Vec<_>>(), ours);
}

#[test]
fn a_command_outside_the_path_is_pointed_to() {
    let tree = Tree::good();
    let checks = examine(tree.0.path(), OsStr::new("/usr/bin"));
    let ip = checks.iter().find(|check| check.name == "ip").unwrap();
    assert_eq!(ip.state, State::Missing);
    assert_eq!(remedy(ip), "PATH=$PATH:/usr/sbin");
}

#[test]
fn a_later_dpdk_is_good_an_earlier_one_a_warning_and_none_is_missing() {
    const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
    let tree = Tree::good();
    tree.remove(&format!("{LIBRARIES}/librte_eal.so.23"));
    assert_eq!(tree.check("dpdk-libraries").state, State::Missing);
    // Of the same library, without its ABI version.
    tree.write(&format!("{LIBRARIES}/librte_eal.so.22.0"), "");
    assert_eq!(tree.check("dpdk-libraries").state, State::Missing);
    tree.write(&format!("{LIBRARIES}/librte_eal.so.22"), "");
    let earlier = tree.check("dpdk-libraries");
    assert_eq!(earlier.state, State::Warning);
    assert!(earlier.found.contains("librte_eal.so.22"), "{earlier:?}");
    tree.write(&format!("{LIBRARIES}/librte_eal.so.25"), "");
    let later = tree.check("dpdk-libraries");
    assert_eq!(later.state, State::Ok, "{later:?}");
    assert!(later.found.contains("librte_eal.so.25"), "{later:?}");
    // Drivers have to be of the same version.
    let drivers = tree.check("dpdk-drivers");
    assert_eq!(drivers.state, State::Warning);
    assert!(remedy(&drivers).contains(" librte-net-af-xdp25 "));
    for name in super::software::DRIVERS {
        tree.write(
            &format!("{LIBRARIES}/dpdk/pmds-25.0/librte_net_{name}.so.25"),
            "",
        );
    }
    assert_eq!(tree.check("dpdk-drivers").state, State::Ok);
}

#[test]
fn a_driver_that_is_not_installed_is_named_with_its_package() {
    const DRIVERS: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0";
    let xdp = without(
        "dpdk-drivers",
        &format!("{DRIVERS}/librte_net_af_xdp.so.23"),
    );
    assert_eq!(xdp.state, State::Warning);
    assert_eq!(remedy(&xdp), "apt-get install librte-net-af-xdp23");
}

#[test]
fn two_cpus_are_needed_and_a_process_confined_to_one_hears_of_taskset() {
    let one = changed("cpus", "sys/devices/system/cpu/online", "0\n");
    assert_eq!(one.state, State::Missing);
    let confined = changed(
        "cpus",
        "proc/self/status",
        "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t1\n",
    );
    assert_eq!(confined.state, State::Missing);
    assert!(remedy(&confined).contains("taskset --cpu-list 0-1"));
}

#[test]
fn a_cpu_set_of_a_killed_study_is_undone_by_lab_clean() {
    let tree = Tree::good();
    tree.write(
        "proc/self/status",
        "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t0\n",
    );
    tree.write("proc/self/cpuset", "/quietwire-812-3-rest\n");
    assert!(remedy(&tree.check("cpus")).starts_with("quietwire lab clean "));
    tree.write("proc/self/cpuset", "/machine.slice\n");
    assert!(remedy(&tree.check("cpus")).starts_with("taskset "));
}

#[test]
fn cpus_of_one_core_are_listed_once() {
    let tree = Tree::good();
    for cpu in 0..2 {
        tree.write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
            "0-1\n",
        );
    }
    let check = tree.check("hyper-threads");
    assert_eq!(check.state, State::Warning);
    assert!(check.found.contains("(0-1)"), "{check:?}");
}

#[test]
fn clocks_that_blur_latencies_are_warned_of() {
    const CURRENT: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let slow = changed("clock", CURRENT, "kvm-clock\n");
    assert_eq!(slow.state, State::Warning);
    assert!(remedy(&slow).starts_with("echo tsc > /sys/"));
    let uneven = changed("clock", "proc/cpuinfo", "flags : tsc constant_tsc\n");
    assert_eq!(uneven.state, State::Warning);
}

#[test]
fn frequency_is_unavailable_under_a_hypervisor_and_a_warning_when_it_floats() {
    const GOVERNOR: &str = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    let floating = changed("cpu-frequency", GOVERNOR, "powersave\n");
    assert_eq!(floating.state, State::Warning);
    let tree = Tree::good();
    tree.remove("sys/devices/system/cpu/cpu0/cpufreq");
    tree.remove("sys/devices/system/cpu/cpu1/cpufreq");
    assert_eq!(tree.check("cpu-frequency").state, State::Unavailable);
}

#[test]
fn huge_pages_say_what_doing_without_costs() {
    const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let tree = Tree::good();
    tree.write(&format!("{POOL}/free_hugepages"), "0\n");
    assert_eq!(tree.check("huge-pages").state, State::Warning);
    tree.write(&format!("{POOL}/nr_hugepages"), "0\n");
    let none = tree.check("huge-pages");
    assert_eq!(none.state, State::Warning);
    assert!(none.found.contains("--no-huge"), "{none:?}");
    assert_eq!(remedy(&none), format!("echo 256 > /{POOL}/nr_hugepages"));
    tree.remove("sys/kernel/mm/hugepages");
    assert_eq!(tree.check("huge-pages").state, State::Unavailable);
}

#[test]
fn little_memory_is_a_warning_and_very_little_is_missing() {
    let mib = |mib: u64| {
        let text = format!("MemAvailable: {} kB\n", mib * 1024);
        changed("memory", "proc/meminfo", &text).state
    };
    assert_eq!(
        [mib(511), mib(512), mib(1023), mib(1024)],
        [State::Missing, State::Warning, State::Warning, State::Ok]
    );
}

#[test]
fn cpusets_are_found_in_both_versions_of_control_groups() {
    let tree = Tree::good();
    assert!(tree.check("cpusets").found.starts_with("v1 at"));
    tree.write("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    assert_eq!(tree.check("cpusets").state, State::Missing);
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n");
    assert_eq!(tree.check("cpusets").found, "v2 at /sys/fs/cgroup");
    tree.write("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 ro 0 0\n");
    let locked = tree.check("cpusets");
    assert_eq!(locked.state, State::Missing);
    assert!(remedy(&locked).contains("remount,rw"));
}

#[test]
fn file_systems_that_are_known_and_not_mounted_can_be_mounted() {
    let tree = Tree::good();
    tree.write("proc/mounts", "proc /proc proc rw 0 0\n");
    for name in ["hugetlbfs", "resctrl"] {
        let check = tree.check(name);
        assert_eq!(check.state, State::Warning);
        assert!(remedy(&check).contains("mount -t"), "{check:?}");
    }
    tree.write("proc/filesystems", "nodev\tproc\n");
    for name in ["hugetlbfs", "resctrl"] {
        assert_eq!(tree.check(name).state, State::Unavailable);
    }
}

#[test]
fn throttled_real_time_threads_are_warned_of() {
    const FILE: &str = "proc/sys/kernel/sched_rt_runtime_us";
    assert_eq!(
        changed("real-time-share", FILE, "950000\n").state,
        State::Warning
    );
    assert_eq!(
        changed("real-time-share", FILE, "1000000\n").state,
        State::Ok
    );
}

#[test]
fn devices_and_sockets_that_are_absent_are_unavailable() {
    for (name, path) in [
        ("kvm", "dev/kvm"),
        ("vfio", "dev/vfio"),
        ("tun", "dev/net/tun"),
        ("perf-counters", "sys/bus/event_source/devices/cpu"),
        ("af-xdp", "proc/net/protocols"),
    ] {
        assert_eq!(without(name, path).state, State::Unavailable, "{name}");
    }
    let old = changed("af-xdp", "proc/sys/kernel/osrelease", "5.3.0-1\n");
    assert_eq!(old.state, State::Unavailable);
}

#[test]
fn vfio_is_repaired_only_where_modules_can_be_loaded() {
    let tree = Tree::good();
    tree.remove("dev/vfio");
    assert_eq!(tree.check("vfio").remedy, None);
    tree.write("lib/modules/6.1.0-18-cloud-amd64/modules.dep", "");
    assert_eq!(remedy(&tree.check("vfio")), "modprobe vfio-pci");
}

#[test]
fn files_that_cannot_be_parsed_are_reported() {
    let tree = Tree::good();
    tree.write("sys/devices/system/cpu/online", "zero\n");
    let check = tree.check("unread-files");
    assert_eq!(check.state, State::Warning);
    assert!(
        check
            .found
            .contains("/sys/devices/system/cpu/online: 'zero'"),
        "{check:?}"
    );
}

#[test]
fn the_machine_that_runs_this_can_be_examined() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let checks = examine(Path::new("/"), &path);
    let kernel = checks.iter().find(|c| c.name == "kernel").unwrap();
    assert!(!kernel.found.is_empty());
}

#[test]
fn network_cards_are_described_or_have_their_problem() {
    let check = Tree::good().check("network-cards");
    assert_eq!(
        check.found,
        "0000:17:00.0: vfio-pci, node unknown, IOMMU group 7"
    );
    let check = without("network-cards", &format!("{CARD}/driver"));
    assert_eq!(
        (check.state, check.found.as_str()),
        (State::Warning, "0000:17:00.0 has no driver")
    );
    assert!(
        remedy(&check).contains("--bind=vfio-pci 0000:17:00.0"),
        "{check:?}"
    );
    let tree = Tree::good();
    tree.bind("ice");
    tree.write(&format!("{CARD}/net/ens1f0/flags"), "0x1002\n");
    assert_eq!(
        remedy(&tree.check("network-cards")),
        "ip link set ens1f0 up"
    );
    let none = without("network-cards", CARD);
    assert_eq!(none.state, State::Unavailable);
    // A card may have hundreds of virtual functions.
    let tree = Tree::good();
    for function in 0..20 {
        let directory = format!("sys/bus/pci/devices/0000:17:{:02x}.0/class", function + 1);
        tree.write(&directory, "0x020000\n");
    }
    let check = tree.check("network-cards");
    assert!(
        check
            .found
            .ends_with("and 12 more (`quietwire host show` lists all)"),
        "{check:?}"
    );
}
