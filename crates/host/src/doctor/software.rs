// SPDX-License-Identifier: Apache-2.0
//! Rights, DPDK's files, and commands that studies start.

use std::path::Path;

use quietwire_base::proc::Status;

use super::Machine;
use super::check::{Check, State};

/// Capabilities that a study uses, with their bit (include/uapi/linux/capability.h).
const CAPABILITIES: [(u32, &str); 5] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
];

/// Where distributions and DPDK's own build put libraries.
const LIBRARY_DIRECTORIES: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib/x86_64-linux-gnu",
    "/usr/local/lib/aarch64-linux-gnu",
    "/usr/local/lib",
];

/// The ABI of DPDK 22.11, which quietwire is built and tested with.
const DPDK_ABI: &str = "23";

/// Drivers behind the kinds of ports.
const DRIVERS: [&str; 6] = ["af_packet", "af_xdp", "memif", "null", "vhost", "virtio"];

/// A command that is started, the Debian package that has it, what it's for, and how bad it is without.
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
        purpose: "it is the noisy neighbour of a study",
        absent: State::Missing,
    },
    Command {
        name: "setpriv",
        package: "util-linux",
        purpose: "it starts a study's processes so that they end with the study",
        absent: State::Missing,
    },
    Command {
        name: "ip",
        package: "iproute2",
        purpose: "it makes the lab's namespaces and links",
        absent: State::Missing,
    },
    Command {
        name: "dpdk-testpmd",
        package: "dpdk-dev",
        purpose: "benchmarks compare with it",
        absent: State::Warning,
    },
];

/// What guests need: a command, and the Debian package that has it. `scripts/setup --with-guests` installs the same.
pub(super) const GUEST_COMMANDS: [(&str, &str); 7] = [
    ("readelf", "binutils"),
    ("busybox", "busybox"),
    ("cpio", "cpio"),
    ("dpdk-testpmd", "dpdk-dev"),
    ("ip", "iproute2"),
    ("modprobe", "kmod"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// Where system commands are that an ordinary user's search path often leaves out.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

pub(super) fn examine(machine: &Machine) -> Vec<Check> {
    let mut checks = vec![privileges(machine), libraries(machine), drivers(machine)];
    checks.extend(COMMANDS.iter().map(|command| find(machine, command)));
    checks.push(guests(machine));
    checks
}

fn privileges(machine: &Machine) -> Check {
    const NAME: &str = "privileges";
    let Some(text) = machine.text("/proc/self/status") else {
        return Check::unavailable(NAME, "/proc/self/status is not there, so nothing is known");
    };
    let status = Status::new(&text);
    let (Some(uid), Some(held)) = (status.effective_user(), status.effective_capabilities()) else {
        return Check::unavailable(NAME, "/proc/self/status lacks Uid or CapEff");
    };
    if uid != 0 {
        return Check::missing(
            NAME,
            format!("user {uid}; CPU sets, huge pages and real-time priority are root's"),
        )
        .mend("sudo quietwire …");
    }
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| held & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if lacking.is_empty() {
        return Check::ok(NAME, "root, with the capabilities that studies use");
    }
    Check::missing(NAME, format!("root, yet without {}", lacking.join(", "))).mend(format!(
        "start the container with {}",
        lacking
            .iter()
            .map(|name| format!("--cap-add {}", name.trim_start_matches("CAP_")))
            .collect::<Vec<_>>()
            .join(" ")
    ))
}

fn libraries(machine: &Machine) -> Check {
    const NAME: &str = "dpdk-libraries";
    let wanted = format!("librte_eal.so.{DPDK_ABI}");
    let mut others = Vec::new();
    for directory in LIBRARY_DIRECTORIES {
        let path = format!("{directory}/{wanted}");
        if machine.exists(&path) {
            return Check::ok(NAME, path);
        }
        let found = machine.names(directory);
        others.extend(
            found
                .iter()
                .filter(|name| name.starts_with("librte_eal.so"))
                .map(|name| format!("{directory}/{name}")),
        );
    }
    let check = if others.is_empty() {
        Check::missing(
            NAME,
            format!("{wanted} is in none of the library directories"),
        )
    } else {
        Check::warning(
            NAME,
            format!(
                "{}; quietwire is built and tested with {wanted} (DPDK 22.11)",
                others.join(", ")
            ),
        )
    };
    check.mend("apt-get install libdpdk-dev")
}

fn drivers(machine: &Machine) -> Check {
    const NAME: &str = "dpdk-drivers";
    let places: Vec<String> = LIBRARY_DIRECTORIES
        .iter()
        .map(|directory| format!("{directory}/dpdk/pmds-{DPDK_ABI}.0"))
        .filter(|place| machine.exists(place))
        .collect();
    let absent: Vec<&str> = DRIVERS
        .into_iter()
        .filter(|driver| {
            let file = format!("librte_net_{driver}.so.{DPDK_ABI}");
            !places
                .iter()
                .any(|place| machine.exists(&format!("{place}/{file}")))
        })
        .collect();
    if absent.is_empty() {
        return Check::ok(
            NAME,
            format!("{} in {}", DRIVERS.join(", "), places.join(", ")),
        );
    }
    let packages: Vec<String> = absent
        .iter()
        .map(|driver| format!("librte-net-{}{DPDK_ABI}", driver.replace('_', "-")))
        .collect();
    // The lab's own links are memif; the other drivers matter to those who use such ports.
    let state = if absent.contains(&"memif") {
        State::Missing
    } else {
        State::Warning
    };
    Check::new(NAME, state, format!("no driver for {}", absent.join(", ")))
        .mend(format!("apt-get install {}", packages.join(" ")))
}

/// Everything that guests need at once, with one command that installs what is missing.
fn guests(machine: &Machine) -> Check {
    const NAME: &str = "guests";
    let is_there = |command: &str| {
        machine.command(command).is_some() || system_directory(machine, command).is_some()
    };
    let absent: Vec<(&str, &str)> = GUEST_COMMANDS
        .into_iter()
        .filter(|(command, _)| !is_there(command))
        .collect();
    if absent.is_empty() {
        let commands = GUEST_COMMANDS.map(|(command, _)| command);
        return Check::ok(NAME, commands.join(", "));
    }
    let commands: Vec<String> = absent
        .iter()
        .map(|(command, package)| format!("{command} ({package})"))
        .collect();
    let packages: Vec<&str> = absent.iter().map(|(_, package)| *package).collect();
    Check::warning(
        NAME,
        format!(
            "guests need {}, which are not installed; labs and studies without guests do not",
            commands.join(", ")
        ),
    )
    .mend(format!("apt-get install {}", packages.join(" ")))
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
        .mend(format!("PATH=$PATH:{directory}")),
        None => Check::new(name, *absent, format!("not on the PATH; {purpose}"))
            .mend(format!("apt-get install {package}")),
    }
}
