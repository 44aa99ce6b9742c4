// SPDX-License-Identifier: Apache-2.0
//! A fake machine that conforms to its plan passes all checks. Each changed file fails its check, which names the file.

use std::fs;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use quietwire_base::run_within;

use super::check::APPLY;
use super::*;
use crate::CpuId;
use crate::partition::parts::{class, group, list};
use crate::partition::{BootParameter, FrequencySetting, HugePages, NicPlan, QueueCpu, Role};

/// Returns a plan for 6 CPUs of 3 cores: host on the first core, forwarding with an idle sibling on the second, guest on the
/// third.
fn plan() -> Plan {
    let boot = [
        "isolcpus=managed_irq,domain,1-2,4-5",
        "nohz_full=1-2,4-5",
        "nosoftlockup",
    ];
    Plan {
        groups: vec![
            group(Role::Host, "host", "0,3"),
            group(Role::Forwarding, "forwarding", "1"),
            group(Role::Idle, "idle", "4"),
            group(Role::Guest, "db", "2,5"),
        ],
        classes: vec![
            class("default", "0,3", 0x7f0, 60, 1),
            class("forwarding", "1,4", 0xc, 100, 1),
        ],
        huge_pages: vec![HugePages {
            node: Some(0),
            page_kib: 2048,
            pages: 64,
            data_plane_mib: 128,
        }],
        nics: vec![NicPlan {
            pci_address: "0000:3b:00.0".to_owned(),
            interface: Some("eth0".to_owned()),
            node: Some(0),
            queues: vec![QueueCpu {
                queue: 0,
                cpu: CpuId(1),
            }],
            functions: Some(4),
            mtu: 1500,
        }],
        frequencies: vec![FrequencySetting {
            cpus: list("1"),
            governor: Some("performance".to_owned()),
            min_khz: Some(2_700_000),
            max_khz: Some(2_700_000),
            is_high_priority: true,
        }],
        boot: boot
            .map(|text| {
                let (name, value) = text
                    .split_once('=')
                    .map_or((text, None), |(name, value)| (name, Some(value)));
                BootParameter {
                    name: name.to_owned(),
                    value: value.map(str::to_owned),
                    reason: String::new(),
                }
            })
            .to_vec(),
        housekeeping: list("0,3"),
        ..Plan::default()
    }
}

const CPUS: &str = "sys/devices/system/cpu";
const MACHINE: &[(&str, &str)] = &[
    (
        "proc/cmdline",
        "root=/dev/vda isolcpus=managed_irq,domain,1-2,4-5 nohz_full=1-5 nosoftlockup systemd.cpu_affinity=0,3",
    ),
    ("proc/irq/default_smp_affinity", "09"),
    ("proc/irq/24/smp_affinity_list", "0,3"),
    ("proc/irq/24/effective_affinity_list", "3"),
    // Many CPUs are allowed, and the effective CPU is not isolated.
    ("proc/irq/25/smp_affinity_list", "0"),
    (
        "proc/schedstat",
        "version 17\ncpu0 0 0\ndomain0 MC 09 0\ncpu1 0 0\ncpu2 0 0\ncpu3 0 0\ndomain0 MC 09 0\n",
    ),
    ("proc/self/mounts", "c /sys/fs/cgroup cgroup2 rw 0 0\n"),
    (
        "proc/interrupts",
        "     CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\n 24: 9 0 0 0 0 0 PCI-MSI 1-edge eth0\nLOC: 100 5 5 100 5 5 Local timer interrupts\nRES: 9 1 0 0 0 0 Rescheduling interrupts\nERR: 0\n",
    ),
    (
        "proc/softirqs",
        "     CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\nTIMER: 9 1 1 1 1 1\nNET_RX: 1 0 0 0 0 0\n",
    ),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset"),
    ("sys/fs/cgroup/system.slice/cpuset.cpus", ""),
    ("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0,3"),
    ("sys/fs/cgroup/system.slice/cgroup.procs", "20\n"),
    ("sys/fs/cgroup/system.slice/cpuset.cpus.exclusive", ""),
    ("sys/fs/cgroup/cgroup.procs", ""),
    ("sys/fs/cgroup/quietwire-data-plane/cpuset.cpus", "1"),
    (
        "sys/fs/cgroup/quietwire-data-plane/cpuset.cpus.partition",
        "isolated",
    ),
    ("sys/devices/virtual/workqueue/cpumask", "09"),
    ("sys/bus/workqueue/devices/writeback/cpumask", "09"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00"),
    (
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "64",
    ),
    (
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages",
        "60",
    ),
    ("sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "0-5"),
    ("sys/bus/pci/devices/0000:3b:00.0/numa_node", "0"),
    ("sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", "4"),
    ("sys/fs/resctrl/schemata", "    L3:0=7f0\n    MB:0=60\n"),
    ("sys/fs/resctrl/cpus_list", "0,2-3,5"),
    ("sys/fs/resctrl/tasks", "1\n20\n"),
    ("sys/fs/resctrl/info/L3/num_closids", "4"),
    ("sys/fs/resctrl/info/L3/cbm_mask", "7ff"),
    ("sys/fs/resctrl/info/L3/min_cbm_bits", "1"),
    ("sys/fs/resctrl/info/MB/num_closids", "4"),
    ("sys/fs/resctrl/info/MB/min_bandwidth", "10"),
    ("sys/fs/resctrl/info/MB/bandwidth_gran", "10"),
    ("sys/fs/resctrl/forwarding/schemata", "L3:0=00c\nMB:0=100\n"),
    ("sys/fs/resctrl/forwarding/cpus_list", "1,4"),
    ("sys/fs/resctrl/forwarding/tasks", ""),
    (
        "sys/fs/resctrl/forwarding/mon_data/mon_L3_00/llc_occupancy",
        "1024",
    ),
    ("sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy", "1024"),
    (
        "etc/systemd/system.conf",
        "[Manager]\n#CPUAffinity=0-5\nCPUAffinity=0 3\n",
    ),
    ("etc/tuned/active_profile", "cpu-partitioning\n"),
    (
        "etc/tuned/cpu-partitioning-variables.conf",
        "# isolated_cores=9\nisolated_cores=1-2,4-5\n",
    ),
    (
        "etc/vpp/startup.conf",
        "cpu {\n  main-core 0\n  corelist-workers 1\n}\n",
    ),
    (
        "etc/sysconfig/network-scripts/ifcfg-vhost0",
        "DEVICE=vhost0\nCPU_LIST='0x02'\n",
    ),
    (
        "etc/contrail/common_vrouter.env",
        "CPU_CORE_MASK=0x2\nSERVICE_CORE_MASK=0,3\nDPDK_CTRL_THREAD_MASK=\"(0,3)\"\n",
    ),
    ("etc/nova/nova.conf", "[compute]\ncpu_dedicated_set = 2,5\n"),
    (
        "etc/libvirt/qemu/db.xml",
        "<cputune><vcpupin vcpu='0' cpuset='2'/><emulatorpin cpuset='0,3'/></cputune>",
    ),
    (
        "etc/openvswitch/conf.db",
        "OVSDB JSON 1 a\n{}\nOVSDB JSON 1 b\n{\"Open_vSwitch\":{\"u\":{\"other_config\":[\"map\",[[\"pmd-cpu-mask\",\"0x2\"],[\"dpdk-lcore-mask\",\"0x1\"]]]}}}\n",
    ),
    (
        "var/lib/kubelet/cpu_manager_state",
        "{\"policyName\":\"static\",\"defaultCpuSet\":\"0\",\"entries\":{\"pod\":{\"web\":\"3\"}},\"checksum\":1}",
    ),
    ("proc/10/comm", "ovs-vswitchd"),
    (
        "proc/10/task/11/status",
        "Name:\tpmd-c01/id:8\nState:\tR\nVmSize:\t1 kB\nCpus_allowed_list:\t1\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n",
    ),
    (
        "proc/10/task/11/stat",
        "11 (pmd-c01/id:8) R 1 1 1 0 -1 4194304 0 0 0 0 500 1 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 1 0 0 0",
    ),
    (
        "proc/10/task/11/sched",
        "pmd (11, #threads: 2)\nse.nr_migrations                             :                    2\n",
    ),
    ("proc/10/task/11/syscall", "running"),
    ("proc/20/comm", "bash"),
    (
        "proc/20/task/20/status",
        "Name:\tbash\nState:\tS\nVmSize:\t1 kB\nCpus_allowed_list:\t0,3\n",
    ),
    (
        "proc/20/task/20/stat",
        "20 (ba) sh) S 1 1 1 0 -1 4194304 0 0 0 0 5 5 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 3 0 0 0",
    ),
    ("proc/30/comm", "ksoftirqd/1"),
    (
        "proc/30/task/30/status",
        "Name:\tksoftirqd/1\nState:\tS\nCpus_allowed_list:\t1\n",
    ),
    (
        "proc/30/task/30/stat",
        "30 (ksoftirqd/1) S 2 0 0 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 1 0 0 0",
    ),
    // A work queue's rescuer: it may run on any CPU, and its affinity cannot be changed.
    (
        "proc/50/task/50/status",
        "Name:\tkworker/R-mm\nState:\tS\nCpus_allowed_list:\t0-5\n",
    ),
    (
        "proc/50/task/50/stat",
        "50 (kworker/R-mm) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 0 0 0 0",
    ),
    ("proc/30/task/30/schedstat", "1000 5 1"),
];

struct FakeMachine(tempfile::TempDir);

impl FakeMachine {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        for (path, text) in MACHINE {
            made.write(path, text);
        }
        made.write(&format!("{CPUS}/online"), "0-5");
        made.write(&format!("{CPUS}/isolated"), "1-2,4-5");
        made.write(&format!("{CPUS}/nohz_full"), "1-5");
        for cpu in 0..6 {
            let at = format!("{CPUS}/cpu{cpu}");
            let low = cpu % 3;
            made.write(
                &format!("{at}/topology/thread_siblings_list"),
                &format!("{low},{}", low + 3),
            );
            made.write(&format!("{at}/cache/index3/shared_cpu_list"), "0-5");
            made.write(&format!("{at}/cache/index3/size"), "16384K");
            made.write(
                &format!("{at}/cpufreq/base_frequency"),
                if cpu == 1 { "2700000" } else { "2100000" },
            );
            made.write(
                &format!("sys/devices/system/machinecheck/machinecheck{cpu}/ignore_ce"),
                "1",
            );
        }
        for (file, value) in [
            ("scaling_governor", "performance"),
            ("scaling_min_freq", "2700000"),
            ("scaling_max_freq", "2700000"),
            ("scaling_cur_freq", "2699000"),
        ] {
            made.write(&format!("{CPUS}/cpu1/cpufreq/{file}"), value);
        }
        let device = made.0.path().join("sys/bus/pci/devices/0000:3b:00.0");
        std::os::unix::fs::symlink("../drivers/vfio-pci", device.join("driver")).unwrap();
        std::os::unix::fs::symlink("../iommu_groups/7", device.join("iommu_group")).unwrap();
        made
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Writes a file, runs `look` and restores the file.
    fn spoilt<T>(&self, path: &str, text: &str, look: impl FnOnce() -> T) -> T {
        let former = fs::read_to_string(self.0.path().join(path));
        self.write(path, text);
        let actual = look();
        match former {
            Ok(former) => self.write(path, former.trim_end()),
            Err(_) => fs::remove_file(self.0.path().join(path)).unwrap(),
        }
        actual
    }

    fn checks(&self) -> Vec<Check> {
        static_checks(self.0.path(), &plan())
    }

    fn sample(&self) -> Sample {
        let mut sample = Sample::take(self.0.path(), &plan());
        sample.sample_calls(self.0.path());
        sample
    }
}

fn failed(checks: &[Check]) -> Vec<&'static str> {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
    failed.map(|check| check.name).collect()
}

#[test]
fn a_machine_as_planned_passes() {
    let checks = FakeMachine::new().checks();
    for check in &checks {
        assert_eq!(check.verdict, Verdict::Pass, "{check:?}");
        assert!(check.remedy.is_none() && !check.file.is_empty() && !check.actual.is_empty());
    }
    assert!(checks.len() > 40, "{}", checks.len());
}

#[test]
fn a_wrong_setting_fails_its_own_check_and_no_other() {
    let spoilt: &[(&str, &str, &[&str])] = &[
        (
            "proc/cmdline",
            "isolcpus=1-2,4-5 nosoftlockup",
            &["command-line"],
        ),
        (
            "proc/cmdline",
            "isolcpus=1-2,4 nohz_full=1-5 nosoftlockup",
            &["command-line"],
        ),
        (
            "proc/cmdline",
            "isolcpus=1-2,4-5 nohz_full=1-5 nosoftlockup systemd.cpu_affinity=0-1",
            &["systemd-affinity-at-boot"],
        ),
        (
            "sys/devices/system/cpu/isolated",
            "",
            &["isolated-in-effect"],
        ),
        (
            "sys/devices/system/cpu/nohz_full",
            "(null)",
            &["tick-off-in-effect"],
        ),
        ("sys/devices/system/cpu/online", "0-4", &["online"]),
        (
            "sys/devices/system/cpu/cpu1/topology/thread_siblings_list",
            "0-1",
            &["siblings"],
        ),
        (
            "proc/irq/default_smp_affinity",
            "3f",
            &["interrupts-to-come"],
        ),
        ("proc/irq/25/smp_affinity_list", "0-5", &["interrupts"]),
        (
            "sys/devices/virtual/workqueue/cpumask",
            "3f",
            &["work-queues"],
        ),
        (
            "sys/bus/workqueue/devices/writeback/cpumask",
            "2",
            &["write-back"],
        ),
        (
            "sys/class/net/eth0/queues/rx-0/rps_cpus",
            "3f",
            &["receive-steering"],
        ),
        (
            "proc/schedstat",
            "version 17\ncpu1 0\ndomain0 MC 3f 0",
            &["scheduling-domains"],
        ),
        (
            "sys/fs/cgroup/system.slice/cpuset.cpus.effective",
            "0-5",
            &["cpu-sets"],
        ),
        (
            "sys/fs/cgroup/quietwire-data-plane/cpuset.cpus.partition",
            "isolated invalid (Cpu list in cpuset.cpus not exclusive)",
            &["cpu-set-partition"],
        ),
        (
            "sys/fs/cgroup/system.slice/cpuset.cpus.exclusive",
            "1",
            &["cpu-set-exclusive"],
        ),
        (
            "proc/10/task/11/status",
            "Name:\tpmd-c01/id:8\nCpus_allowed_list:\t0-1",
            &["forwarding-threads"],
        ),
        (
            "proc/20/task/20/status",
            "Name:\tbash\nVmSize:\t1 kB\nCpus_allowed_list:\t0-5",
            &["intruders"],
        ),
        (
            "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
            "63",
            &["huge-pages"],
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave",
            &["governor"],
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq",
            "800000",
            &["frequency-minimum"],
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq",
            "3000000",
            &["frequency-maximum"],
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/base_frequency",
            "2000000",
            &["high-priority-cores"],
        ),
        (
            "sys/devices/system/machinecheck/machinecheck4/ignore_ce",
            "0",
            &["machine-checks"],
        ),
        (
            "sys/fs/resctrl/forwarding/schemata",
            "L3:0=00e\nMB:0=100",
            &["classes"],
        ),
        ("sys/fs/resctrl/forwarding/cpus_list", "1", &["classes"]),
        ("sys/fs/resctrl/other/tasks", "11", &["class-tasks"]),
        (
            "sys/bus/pci/devices/0000:3b:00.0/local_cpulist",
            "0",
            &["controller-node"],
        ),
        (
            "sys/bus/pci/devices/0000:3b:00.0/numa_node",
            "1",
            &["controller-node"],
        ),
        (
            "sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs",
            "0",
            &["functions"],
        ),
        (
            "etc/systemd/system.conf.d/a.conf",
            "CPUAffinity=0-2",
            &["systemd"],
        ),
        (
            "etc/tuned/cpu-partitioning-variables.conf",
            "isolated_cores=1",
            &["tuned"],
        ),
        (
            "etc/vpp/startup.conf",
            "cpu { \n corelist-workers 1-2\n}",
            &["vpp"],
        ),
        (
            "etc/sysconfig/network-scripts/ifcfg-vhost0",
            "DEVICE=vhost0\nCPU_LIST=(1,2)",
            &["vrouter"],
        ),
        (
            "etc/contrail/common_vrouter.env",
            "SERVICE_CORE_MASK=0x9\nDPDK_CTRL_THREAD_MASK='0,1'",
            &["vrouter"],
        ),
        ("etc/nova/nova.conf", "cpu_dedicated_set=1-2", &["nova"]),
        (
            "etc/libvirt/qemu/db.xml",
            "<vcpupin vcpu='0' cpuset='1'/>",
            &["libvirt"],
        ),
        (
            "etc/openvswitch/conf.db",
            "{\"Open_vSwitch\":{\"u\":{\"other_config\":[\"map\",[[\"pmd-cpu-mask\",\"6\"]]]}}}",
            &["open-vswitch"],
        ),
        (
            "var/lib/kubelet/cpu_manager_state",
            "{\"defaultCpuSet\":\"0\",\"entries\":{\"pod\":{\"web\":\"1\"}}}",
            &["kubelet"],
        ),
        (
            "proc/40/task/40/status",
            "Name:\tirqbalance\nVmSize:\t1 kB\nCpus_allowed_list:\t0",
            &["irqbalance"],
        ),
    ];
    let made = FakeMachine::new();
    for (file, text, wanted) in spoilt {
        let checks = made.spoilt(file, text, || made.checks());
        assert_eq!(failed(&checks), *wanted, "{file}: {text}");
        for check in checks.iter().filter(|check| check.verdict == Verdict::Fail) {
            assert!(check.remedy.is_some(), "{check:?}");
        }
    }
}

/// Another user than root owns the database of Open vSwitch.
#[test]
fn a_fifo_in_the_place_of_a_programs_file_is_not_read() {
    let made = FakeMachine::new();
    let path = made.0.path().join("etc/openvswitch/conf.db");
    fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    // A FIFO that is read would block the test.
    let checks = run_within(Duration::from_secs(60), move || Ok(made.checks())).unwrap();
    let found: Vec<_> = checks
        .iter()
        .filter(|check| check.name == "open-vswitch")
        .map(|check| (check.verdict, check.file.as_str()))
        .collect();
    assert_eq!(found, [(Verdict::Unknown, "/etc/openvswitch/conf.db")]);
}

/// Tests the remedies for objects that applying does not change: each names the object and has a command.
#[test]
fn remedies_name_what_applying_leaves_alone() {
    let pinned = "Name:\tcron\nVmSize:\t1 kB\nCpus_allowed_list:\t1";
    let spread = "Name:\tcron\nVmSize:\t1 kB\nCpus_allowed_list:\t0-5";
    let spoilt: &[(&str, &str, &str, &str)] = &[
        (
            "proc/20/task/20/status",
            pinned,
            "cron (20)",
            "taskset --pid --cpu-list 0,3 20",
        ),
        ("proc/20/task/20/status", spread, "apply", APPLY),
        (
            "proc/irq/24/smp_affinity_list",
            "0-1",
            "apply --config FILE, or move interrupts 24 one by one",
            "echo 0,3 > /proc/irq/24/smp_affinity_list",
        ),
        (
            "sys/fs/cgroup/system.slice/cpuset.cpus.exclusive",
            "0-1",
            "/system.slice",
            "echo 0 > /sys/fs/cgroup/system.slice/cpuset.cpus.exclusive",
        ),
        (
            "sys/fs/cgroup/system.slice/cpuset.cpus.effective",
            "0-1,3",
            "apply",
            APPLY,
        ),
    ];
    let made = FakeMachine::new();
    for (file, text, named, command) in spoilt {
        let checks = made.spoilt(file, text, || made.checks());
        let wrong: Vec<&Check> = checks
            .iter()
            .filter(|check| check.verdict == Verdict::Fail)
            .collect();
        assert_eq!(wrong.len(), 1, "{file}: {wrong:#?}");
        let remedy = wrong[0].remedy.as_deref().unwrap();
        assert!(remedy.contains(named), "{remedy}");
        assert_eq!(wrong[0].commands, [*command], "{file}");
    }
    // Applying does not change nested sets.
    made.write("sys/fs/cgroup/system.slice/own/cgroup.procs", "20");
    made.write("sys/fs/cgroup/system.slice/own/cpuset.cpus", "");
    let checks = made.spoilt(
        "sys/fs/cgroup/system.slice/own/cpuset.cpus.effective",
        "1,3",
        || made.checks(),
    );
    let check = checks
        .iter()
        .find(|check| check.name == "cpu-sets")
        .unwrap();
    assert_eq!(
        check.commands,
        ["echo 3 > /sys/fs/cgroup/system.slice/own/cpuset.cpus"]
    );
}

/// Tests CPU sets of version 1 and forwarding CPUs that sleep.
#[test]
fn balancing_and_wake_up_latency_are_judged_if_they_matter() {
    let made = FakeMachine::new();
    let sets = "sys/fs/cgroup/cpuset";
    made.write(
        "proc/self/mounts",
        "c /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0",
    );
    for (set, cpus, balance) in [
        ("", "0-5", "0"),
        ("/quietwire-host", "0,3", "1"),
        ("/db", "1-2", "0"),
    ] {
        made.write(&format!("{sets}{set}/cpuset.cpus"), cpus);
        made.write(&format!("{sets}{set}/cpuset.effective_cpus"), cpus);
        made.write(&format!("{sets}{set}/cpuset.sched_load_balance"), balance);
        made.write(&format!("{sets}{set}/cgroup.procs"), "");
    }
    assert_eq!(failed(&made.checks()), [""; 0]);
    let balanced = format!("{sets}/db/cpuset.sched_load_balance");
    let checks = made.spoilt(&balanced, "1", || made.checks());
    assert_eq!(
        failed(&checks),
        [""; 0],
        "the kernel command line isolates these CPUs"
    );
    made.write(&format!("{CPUS}/isolated"), "");
    made.write("proc/cmdline", "nohz_full=1-5 nosoftlockup");
    let checks = made.spoilt(&balanced, "1", || made.checks());
    assert_eq!(failed(&checks), ["command-line", "cpu-set-balance"]);

    let mut sleeping = plan();
    sleeping.idle = crate::partition::Idle::Interrupt;
    let verdict = || {
        let checks = static_checks(made.0.path(), &sleeping);
        let found = checks.into_iter().find(|check| check.name == "wake-up");
        found.unwrap().verdict
    };
    assert_eq!(verdict(), Verdict::Unknown);
    let file = format!("{CPUS}/cpu1/power/pm_qos_resume_latency_us");
    for (text, wanted) in [
        ("0", Verdict::Fail),
        ("20", Verdict::Pass),
        ("n/a", Verdict::Pass),
    ] {
        made.write(&file, text);
        assert_eq!(verdict(), wanted, "{text}");
    }
}

/// Tests a recording, which has no processes and no control groups: checks without data do not pass.
#[test]
fn checks_without_their_files_in_a_recording_do_not_pass() {
    let root = tempfile::tempdir().unwrap();
    crate::machines::two_packages_with_clusters()
        .write(root.path())
        .unwrap();
    let checks = static_checks(root.path(), &plan());
    for name in [
        "cpu-sets",
        "irqbalance",
        "receive-steering",
        "affinity",
        "work-queues",
    ] {
        let check = checks.iter().find(|check| check.name == name);
        assert_eq!(check.unwrap().verdict, Verdict::Unknown, "{check:?}");
    }
}

/// Tests an interrupt that was moved and has not occurred since: its check is unknown.
#[test]
fn an_interrupt_that_has_yet_to_move_is_reported() {
    let made = FakeMachine::new();
    let file = "proc/irq/24/effective_affinity_list";
    let checks = made.spoilt(file, "1", || made.checks());
    let check = checks
        .iter()
        .find(|check| check.name == "interrupts")
        .unwrap();
    assert_eq!(check.verdict, Verdict::Unknown, "{check:?}");
    assert!(check.actual.contains("24 (CPUs 0,3)"), "{check:?}");
    assert!(failed(&checks).is_empty());
}

#[test]
fn checks_without_their_files_are_unknown() {
    let made = FakeMachine::new();
    for file in [
        "proc/schedstat",
        "sys/devices/system/cpu/online",
        "proc/irq/default_smp_affinity",
    ] {
        fs::remove_file(made.0.path().join(file)).unwrap();
    }
    let checks = made.checks();
    let unknown: Vec<&str> = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Unknown)
        .map(|check| check.name)
        .collect();
    assert_eq!(
        unknown,
        ["online", "interrupts-to-come", "scheduling-domains"]
    );
    assert!(failed(&checks).is_empty());
    let nothing = tempfile::tempdir().unwrap();
    for check in static_checks(nothing.path(), &plan()) {
        assert!(!check.actual.is_empty(), "{check:?}");
    }
}

#[test]
fn an_interval_without_disturbance_passes() {
    let made = FakeMachine::new();
    let (before, after) = (made.sample(), made.sample());
    let checks = live_checks(made.0.path(), &plan(), &before, &after);
    let unknown: Vec<&str> = checks
        .iter()
        .filter(|check| check.verdict != Verdict::Pass)
        .map(|check| check.name)
        .collect();
    // The tracer is not running.
    assert_eq!(unknown, ["noise"], "{checks:?}");
}

#[test]
fn disturbances_in_an_interval_fail_their_checks() {
    let spoilt: &[(&str, &str, &str)] = &[
        (
            "proc/20/task/20/stat",
            "20 (bash) S 1 1 1 0 -1 4194304 0 0 0 0 9 5 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 -1 1 0 0 0",
            "who-ran",
        ),
        (
            "proc/30/task/30/schedstat",
            "9000000000000 5 1",
            "kernel-threads",
        ),
        (
            "proc/interrupts",
            "CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\n24: 9 1 0 0 0 0 PCI-MSI 1-edge eth0",
            "interrupts-that-came",
        ),
        (
            "proc/interrupts",
            "CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\nLOC: 100 900005 5 100 5 5 Local timer interrupts",
            "tick",
        ),
        (
            "proc/interrupts",
            "CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\nRES: 9 900000 0 0 0 0 Rescheduling interrupts",
            "interrupts-between-cpus",
        ),
        (
            "proc/softirqs",
            "CPU0 CPU1 CPU2 CPU3 CPU4 CPU5\nNET_RX: 1 900000 0 0 0 0",
            "softirqs",
        ),
        (
            "proc/10/task/11/status",
            "Name:\tpmd-c01/id:8\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t900000",
            "forwarding-switches",
        ),
        (
            "proc/10/task/11/sched",
            "se.nr_migrations : 3",
            "forwarding-migrations",
        ),
        ("proc/10/task/11/syscall", "202 0x7f 0x0", "system-calls"),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
            "1200000",
            "frequency",
        ),
        (
            "sys/fs/resctrl/forwarding/mon_data/mon_L3_00/llc_occupancy",
            "16000000",
            "cache-use",
        ),
        (
            "sys/kernel/tracing/trace",
            " x-1 [001] .... 8.1: 1000000 9000 99.10000 900 0 0 1 0 0",
            "noise",
        ),
    ];
    let made = FakeMachine::new();
    for (file, text, wanted) in spoilt {
        made.write("sys/kernel/tracing/current_tracer", "osnoise");
        made.write(
            "sys/kernel/tracing/trace",
            " x-1 [001] .... 8.1: 1000000 9 99.99910 4 0 0 1 0 0",
        );
        let before = made.sample();
        let checks = made.spoilt(file, text, || {
            live_checks(made.0.path(), &plan(), &before, &made.sample())
        });
        assert_eq!(failed(&checks), [*wanted], "{file}: {text}: {checks:?}");
    }
}

#[test]
fn looking_changes_nothing() {
    let made = FakeMachine::new();
    let read = |path: &str| {
        fs::metadata(made.0.path().join(path))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before: Vec<_> = MACHINE.iter().map(|(path, _)| read(path)).collect();
    made.checks();
    let sample = made.sample();
    let checks = live_checks(made.0.path(), &plan(), &sample, &sample);
    assert!(!checks.is_empty());
    let after: Vec<_> = MACHINE.iter().map(|(path, _)| read(path)).collect();
    assert_eq!(before, after);
}

#[test]
fn the_running_machine_is_looked_at() {
    let root = Path::new("/");
    let checks = static_checks(root, &plan());
    assert!(
        checks
            .iter()
            .any(|check| check.name == "intruders" && check.verdict != Verdict::Unknown)
    );
    let plan = Plan {
        groups: vec![group(Role::Forwarding, "forwarding", "0-63")],
        ..plan()
    };
    let before = Sample::take(root, &plan);
    // This thread keeps one of the CPUs busy.
    let mut turns = 0u64;
    while before.at.elapsed() < std::time::Duration::from_millis(300) {
        turns = std::hint::black_box(turns + 1);
    }
    let after = Sample::take(root, &plan);
    let checks = live_checks(root, &plan, &before, &after);
    let ran = checks.iter().find(|check| check.name == "who-ran").unwrap();
    assert_eq!(ran.verdict, Verdict::Fail, "{ran:?}");
}

#[test]
fn checks_and_counts_are_metrics() {
    let made = FakeMachine::new();
    let sample = made.sample();
    let mut checks = made.checks();
    checks.truncate(1);
    let text = exposition(
        &checks,
        &sample,
        std::time::Duration::from_millis(1500),
        9.0,
    );
    for line in [
        "quietwire_partition_checks{check=\"command-line\",verdict=\"pass\"} 1",
        "quietwire_partition_checks{check=\"command-line\",verdict=\"unknown\"} 0",
        "quietwire_partition_interrupts_total{cpu=\"1\",kind=\"LOC\",what=\"Local timer interrupts\"} 5",
        "quietwire_partition_forwarding_migrations_total{data_plane=\"Open vSwitch\",thread=\"pmd-c01/id:8\",tid=\"11\",cpu=\"1\"} 2",
        "quietwire_partition_verify_cpu_seconds_total 1.5",
        "# TYPE quietwire_partition_softirqs_total counter",
    ] {
        assert!(
            text.lines().any(|reported| reported == line),
            "{line}: {text}"
        );
    }
    let heads = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let all = quietwire_base::metrics::Metric::ALL.iter();
    let own = all
        .map(|metric| metric.name())
        .filter(|name| name.starts_with("quietwire_partition_"));
    assert!(heads.eq(own), "{text}");
}
