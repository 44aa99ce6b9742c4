// SPDX-License-Identifier: Apache-2.0
//! Checks of kernel features.

use quietwire_base::proc::release_numbers;

use super::Machine;
use super::check::Check;

/// Oldest tested kernel release (Debian 11).
const RELEASE_TRIED: (u32, u32) = (5, 10);
/// First kernel release with the AF_XDP features that DPDK's driver requires: need-wakeup and unaligned chunks.
const RELEASE_AF_XDP: (u32, u32) = (5, 4);

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    let text = machine
        .text("/proc/sys/kernel/osrelease")
        .unwrap_or_default();
    let version = release_numbers(&text);
    vec![
        release(&text, version),
        cpusets(machine),
        real_time_share(machine),
        resctrl(machine),
        perf_counters(machine),
        af_xdp(machine, version),
        tun(machine),
        kvm(machine),
        vfio(machine, &text),
    ]
}

fn release(text: &str, version: Option<(u32, u32)>) -> Check {
    const NAME: &str = "kernel";
    match version {
        Some(version) if version >= RELEASE_TRIED => Check::ok(NAME, text),
        Some(_) => Check::warning(
            NAME,
            format!("{text}, older than the oldest tested release"),
        )
        .remedy("apt-get install linux-image-amd64"),
        None => Check::unavailable(NAME, format!("cannot parse kernel release '{text}'")),
    }
}

/// Checks for the cpuset controller in either version of control groups (cgroups(7)). It separates neighbours from
/// forwarding.
fn cpusets(machine: &Machine) -> Check {
    const NAME: &str = "cpusets";
    let mounts = machine.mounts();
    let first = mounts
        .iter()
        .find(|mount| mount.kind == "cgroup" && mount.has("cpuset"));
    let second = mounts.iter().find(|mount| {
        mount.kind == "cgroup2"
            && machine
                .text(&format!("{}/cgroup.controllers", mount.point))
                .is_some_and(|list| list.split_whitespace().any(|name| name == "cpuset"))
    });
    let found = first
        .map(|mount| (mount, "v1"))
        .or(second.map(|mount| (mount, "v2")));
    if let Some((mount, version)) = found {
        let hierarchy = format!("{version} at {}", mount.point);
        if mount.has("ro") {
            return Check::missing(NAME, format!("{hierarchy}, mounted read-only"))
                .remedy(format!("mount -o remount,rw {}", mount.point));
        }
        return Check::ok(NAME, hierarchy);
    }
    let known = machine
        .text("/proc/cgroups")
        .is_some_and(|text| text.lines().any(|line| line.starts_with("cpuset\t")));
    let missing = Check::missing(
        NAME,
        "no mounted control group hierarchy has the cpuset controller",
    );
    if known {
        missing.remedy(
            "mkdir -p /sys/fs/cgroup/cpuset && mount -t cgroup -o cpuset cpuset /sys/fs/cgroup/cpuset",
        )
    } else {
        missing.remedy("boot a kernel with CONFIG_CPUSETS, such as Debian's")
    }
}

/// Checks how long real-time threads may run in a period (Documentation/scheduler/sched-rt-group.rst).
fn real_time_share(machine: &Machine) -> Check {
    const NAME: &str = "real-time-share";
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let Some(runtime_us) = machine.value::<i64>(FILE) else {
        return Check::unavailable(NAME, format!("{FILE} is missing or unreadable"));
    };
    let period_us = machine
        .value::<i64>("/proc/sys/kernel/sched_rt_period_us")
        .unwrap_or(1_000_000);
    if runtime_us < 0 || runtime_us >= period_us {
        return Check::ok(
            NAME,
            format!("{runtime_us}: the kernel never throttles real-time threads"),
        );
    }
    Check::warning(
        NAME,
        format!(
            "{runtime_us} of {period_us} µs: the kernel may stop a busy real-time thread for the rest of the period, \
             which looks like loss (before Linux 6.12 always, later only if other threads wait for the CPU)"
        ),
    )
    .remedy(
        "keep other threads off the tester's CPU with CPU sets; or, if another CPU stays free for the system: \
         sysctl -w kernel.sched_rt_runtime_us=-1",
    )
}

/// Checks for allocation of cache and memory bandwidth (Documentation/arch/x86/resctrl.rst).
fn resctrl(machine: &Machine) -> Check {
    const NAME: &str = "resctrl";
    let mounted = machine
        .mounts()
        .into_iter()
        .find(|mount| mount.kind == "resctrl");
    if let Some(mount) = mounted {
        return Check::ok(NAME, format!("mounted at {}", mount.point));
    }
    if machine.knows_filesystem("resctrl") {
        return Check::warning(
            NAME,
            "available but not mounted: caches are not partitioned",
        )
        .remedy("mount -t resctrl resctrl /sys/fs/resctrl");
    }
    Check::unavailable(
        NAME,
        "this CPU or kernel does not support allocation of cache or memory bandwidth",
    )
}

/// Checks for hardware performance counters (perf_event_open(2)).
fn perf_counters(machine: &Machine) -> Check {
    const NAME: &str = "perf-counters";
    let Some(paranoid) = machine.text("/proc/sys/kernel/perf_event_paranoid") else {
        return Check::unavailable(NAME, "the kernel does not support perf events");
    };
    let units: Vec<String> = machine
        .names("/sys/bus/event_source/devices")
        .into_iter()
        .filter(|name| {
            ["cpu", "cpu_core", "cpu_atom"].contains(&name.as_str()) || name.starts_with("armv8")
        })
        .collect();
    if units.is_empty() {
        return Check::unavailable(
            NAME,
            format!(
                "the kernel has no performance monitoring unit of the CPU: software events only \
                 (perf_event_paranoid {paranoid})"
            ),
        );
    }
    Check::ok(
        NAME,
        format!(
            "unit {}, perf_event_paranoid {paranoid}; whether it counts is only known after a run",
            units.join(", ")
        ),
    )
}

fn af_xdp(machine: &Machine, version: Option<(u32, u32)>) -> Check {
    const NAME: &str = "af-xdp";
    if version.is_some_and(|version| version < RELEASE_AF_XDP) {
        return Check::unavailable(NAME, "the kernel is older than 5.4: no af-xdp ports")
            .remedy("use af-packet ports");
    }
    let listed = machine.text("/proc/net/protocols").is_some_and(|text| {
        text.lines()
            .any(|line| line.split_whitespace().next() == Some("XDP"))
    });
    if listed {
        Check::ok(NAME, "the kernel supports AF_XDP sockets")
    } else {
        Check::unavailable(
            NAME,
            "the kernel is built without CONFIG_XDP_SOCKETS: no af-xdp ports",
        )
        .remedy("use af-packet ports")
    }
}

fn tun(machine: &Machine) -> Check {
    const NAME: &str = "tun";
    if machine.exists("/dev/net/tun") {
        Check::ok(NAME, "/dev/net/tun")
    } else {
        Check::unavailable(NAME, "/dev/net/tun does not exist: no tap interfaces")
            .remedy("modprobe tun")
    }
}

fn kvm(machine: &Machine) -> Check {
    const NAME: &str = "kvm";
    if machine.exists("/dev/kvm") {
        Check::ok(
            NAME,
            "/dev/kvm exists; whether guests boot with it is not tested",
        )
    } else {
        Check::unavailable(
            NAME,
            "/dev/kvm does not exist: guests run in software emulation, which is far slower",
        )
    }
}

fn vfio(machine: &Machine, release: &str) -> Check {
    const NAME: &str = "vfio";
    if machine.exists("/dev/vfio/vfio") {
        return Check::ok(NAME, "/dev/vfio/vfio");
    }
    let check = Check::unavailable(
        NAME,
        "/dev/vfio/vfio does not exist: no pci ports with vfio-pci",
    );
    // Without modules of the running kernel, modprobe fails.
    if machine.exists(&format!("/lib/modules/{release}/modules.dep")) {
        check.remedy("modprobe vfio-pci")
    } else {
        check
    }
}
