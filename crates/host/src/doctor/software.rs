// SPDX-License-Identifier: Apache-2.0
//! Checks of privileges, DPDK and the commands that studies use.

use std::path::Path;

use quietwire_base::proc::Status;

use super::Machine;
use super::check::{Check, State};

/// Capabilities that a study uses, with their bits (include/uapi/linux/capability.h).
const CAPABILITIES: [(u32, &str); 5] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
];

/// Library directories of distributions and of DPDK's own build.
const LIBRARY_DIRECTORIES: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib/x86_64-linux-gnu",
    "/usr/local/lib/aarch64-linux-gnu",
    "/usr/local/lib",
];

/// ABI version of DPDK 22.11, the oldest that quietwire supports. Each later release of a year's end has the next number.
const DPDK_ABI_MIN: u32 = 23;

/// Drivers of DPDK that port types use, and that `dpdk-testpmd` uses as a device under test.
pub(super) const DRIVERS: [&str; 7] = [
    "af_packet",
    "af_xdp",
    "memif",
    "null",
    "pcap",
    "vhost",
    "virtio",
];

/// A command, its Debian package, its purpose and the state of the check if it is missing.
struct Command {
    name: &'static str,
    package: &'static str,
    purpose: &'static str,
    absent: State,
}

const COMMANDS: [Command; 4] = [
    Command {
        name: "stress-ng",
        package: "stress-ng",
        purpose: "studies use it as noisy neighbour",
        absent: State::Missing,
    },
    Command {
        name: "setpriv",
        package: "util-linux",
        purpose: "studies use it to start processes that end with the study",
        absent: State::Missing,
    },
    Command {
        name: "ip",
        package: "iproute2",
        purpose: "labs use it to create namespaces and links",
        absent: State::Missing,
    },
    Command {
        name: "dpdk-testpmd",
        package: "dpdk-dev",
        purpose: "benchmarks use it for comparison",
        absent: State::Warning,
    },
];

/// Commands that guests require, with their Debian packages. `scripts/setup --with-guests` installs the same packages.
pub(super) const GUEST_COMMANDS: [(&str, &str); 7] = [
    ("readelf", "binutils"),
    ("busybox", "busybox"),
    ("cpio", "cpio"),
    ("dpdk-testpmd", "dpdk-dev"),
    ("ip", "iproute2"),
    ("modprobe", "kmod"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// Directories of system commands, which are often not on the PATH of users.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    let dpdk = installed_dpdk(machine);
    let mut checks = vec![
        privileges(machine),
        libraries(dpdk.as_ref()),
        drivers(machine, dpdk.as_ref()),
    ];
    checks.extend(COMMANDS.iter().map(|command| find(machine, command)));
    checks.push(guests(machine));
    checks
}

fn privileges(machine: &Machine) -> Check {
    const NAME: &str = "privileges";
    let Some(text) = machine.text("/proc/self/status") else {
        return Check::unavailable(NAME, "unknown: /proc/self/status does not exist");
    };
    let status = Status::new(&text);
    let (Some(uid), Some(held)) = (status.effective_user(), status.effective_capabilities()) else {
        return Check::unavailable(NAME, "/proc/self/status lacks Uid or CapEff");
    };
    if uid != 0 {
        return Check::missing(
            NAME,
            format!("user {uid}; CPU sets, huge pages and real-time priority require root"),
        )
        .remedy("sudo quietwire …");
    }
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| held & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if lacking.is_empty() {
        return Check::ok(NAME, "root, with all capabilities that studies use");
    }
    Check::missing(NAME, format!("root, but without {}", lacking.join(", "))).remedy(format!(
        "start the container with {}",
        lacking
            .iter()
            .map(|name| format!("--cap-add {}", name.trim_start_matches("CAP_")))
            .collect::<Vec<_>>()
            .join(" ")
    ))
}

/// Returns the highest ABI version of the installed DPDK libraries, with the path of one.
fn installed_dpdk(machine: &Machine) -> Option<(u32, String)> {
    let mut found = Vec::new();
    for directory in LIBRARY_DIRECTORIES {
        for name in machine.names(directory) {
            let abi = name.strip_prefix("librte_eal.so.");
            if let Some(abi) = abi.and_then(|abi| abi.parse().ok()) {
                found.push((abi, format!("{directory}/{name}")));
            }
        }
    }
    // Of equal versions, the first: `max_by_key` would return the last.
    found.into_iter().rev().max_by_key(|(abi, _)| *abi)
}

fn libraries(installed: Option<&(u32, String)>) -> Check {
    const NAME: &str = "dpdk-libraries";
    let wanted = format!("librte_eal.so.{DPDK_ABI_MIN} (DPDK 22.11) or later");
    let check = match installed {
        Some((abi, path)) if *abi >= DPDK_ABI_MIN => return Check::ok(NAME, path),
        Some((_, path)) => Check::warning(NAME, format!("{path}; quietwire requires {wanted}")),
        None => Check::missing(NAME, format!("no library directory has {wanted}")),
    };
    check.remedy("apt-get install libdpdk-dev")
}

fn drivers(machine: &Machine, installed: Option<&(u32, String)>) -> Check {
    const NAME: &str = "dpdk-drivers";
    let abi = installed.map_or(DPDK_ABI_MIN, |(abi, _)| (*abi).max(DPDK_ABI_MIN));
    let directories: Vec<String> = LIBRARY_DIRECTORIES
        .iter()
        .map(|directory| format!("{directory}/dpdk/pmds-{abi}.0"))
        .filter(|directory| machine.exists(directory))
        .collect();
    let absent: Vec<&str> = DRIVERS
        .into_iter()
        .filter(|driver| {
            let file = format!("librte_net_{driver}.so.{abi}");
            !directories
                .iter()
                .any(|directory| machine.exists(&format!("{directory}/{file}")))
        })
        .collect();
    if absent.is_empty() {
        return Check::ok(
            NAME,
            format!("{} in {}", DRIVERS.join(", "), directories.join(", ")),
        );
    }
    let packages: Vec<String> = absent
        .iter()
        .map(|driver| format!("librte-net-{}{abi}", driver.replace('_', "-")))
        .collect();
    // No port that studies use by default requires one: memif, vhost, tap and af-packet ports have drivers of their own.
    Check::warning(
        NAME,
        format!(
            "no driver of DPDK for {}; only ports of these types and dpdk-testpmd require them",
            absent.join(", ")
        ),
    )
    .remedy(format!("apt-get install {}", packages.join(" ")))
}

/// Checks all commands that guests require.
fn guests(machine: &Machine) -> Check {
    const NAME: &str = "guests";
    match missing_for_guests(machine) {
        None => Check::ok(NAME, GUEST_COMMANDS.map(|(command, _)| command).join(", ")),
        Some(MissingForGuests { reason, remedy }) => Check::warning(
            NAME,
            format!("{reason}; labs and studies without guests do not require them"),
        )
        .remedy(remedy),
    }
}

/// Commands that guests require and a machine lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingForGuests {
    /// The commands with their packages, as a clause.
    pub reason: String,
    /// One command that installs all packages.
    pub remedy: String,
}

/// Returns the commands that guests require and the machine lacks; `None` if it has all.
pub(super) fn missing_for_guests(machine: &Machine) -> Option<MissingForGuests> {
    let is_there = |command: &str| {
        machine.command(command).is_some() || system_directory(machine, command).is_some()
    };
    let (commands, packages): (Vec<String>, Vec<&str>) = GUEST_COMMANDS
        .into_iter()
        .filter(|(command, _)| !is_there(command))
        .map(|(command, package)| (format!("{command} ({package})"), package))
        .unzip();
    (!packages.is_empty()).then(|| MissingForGuests {
        reason: format!(
            "guests require commands that are not installed: {}",
            commands.join(", ")
        ),
        remedy: format!("apt-get install {}", packages.join(" ")),
    })
}

/// Returns the directory of a command that may not be on the PATH of users.
fn system_directory(machine: &Machine, command: &str) -> Option<&'static str> {
    SYSTEM_DIRECTORIES
        .into_iter()
        .find(|directory| machine.is_executable(&Path::new(directory).join(command)))
}

fn find(machine: &Machine, command: &Command) -> Check {
    let Command {
        name,
        package,
        purpose,
        absent,
    } = command;
    if let Some(path) = machine.command(name) {
        return Check::ok(name, path.display().to_string());
    }
    match system_directory(machine, name) {
        Some(directory) => Check::new(
            name,
            *absent,
            format!("in {directory}, which is not on the PATH; {purpose}"),
        )
        .remedy(format!("PATH=$PATH:{directory}")),
        None => Check::new(name, *absent, format!("not on the PATH; {purpose}"))
            .remedy(format!("apt-get install {package}")),
    }
}
