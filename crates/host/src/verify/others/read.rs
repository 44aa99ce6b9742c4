// SPDX-License-Identifier: Apache-2.0
//! Reads CPUs from the files of other programs.

use std::fs;

use serde_json::Value;

use super::claim::{ExpectedCpus, ProgramCpus};
use crate::CpuList;
use crate::verify::machine::Machine;

const OVS: &str = "etc/openvswitch/conf.db";
const VPP: &str = "etc/vpp/startup.conf";
const NOVA: &str = "etc/nova/nova.conf";
const SYSTEMD: &str = "etc/systemd/system.conf";
const SYSTEMD_MORE: &str = "etc/systemd/system.conf.d";
const TUNED: &str = "etc/tuned/cpu-partitioning-variables.conf";
const TUNED_PROFILE: &str = "etc/tuned/active_profile";
const LIBVIRT: &str = "etc/libvirt/qemu";
const VHOST0: &str = "etc/sysconfig/network-scripts/ifcfg-vhost0";
const VROUTER: &str = "etc/contrail/common_vrouter.env";
const KUBELET: &str = "var/lib/kubelet/cpu_manager_state";

/// Returns the CPUs of all programs whose files exist.
pub(super) fn claims(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let mut claims = Vec::new();
    claims.extend(open_vswitch(machine));
    claims.extend(vpp(machine));
    claims.extend(vrouter(machine));
    claims.extend(nova(machine));
    claims.extend(systemd(machine));
    claims.extend(tuned(machine));
    claims.extend(libvirt(machine));
    claims.extend(kubelet(machine));
    claims
}

/// Returns the files of programs that are not regular files, and are therefore not read. Each has the name of its program.
pub(super) fn irregular(machine: &Machine<'_>) -> Vec<(&'static str, &'static str)> {
    let files = [
        ("open-vswitch", OVS),
        ("vpp", VPP),
        ("vrouter", VHOST0),
        ("vrouter", VROUTER),
        ("nova", NOVA),
        ("systemd", SYSTEMD),
        ("tuned", TUNED_PROFILE),
        ("tuned", TUNED),
        ("kubelet", KUBELET),
    ];
    let is_irregular = |file: &str| {
        let metadata = fs::metadata(machine.path(file));
        metadata.is_ok_and(|metadata| !metadata.is_file())
    };
    files
        .into_iter()
        .filter(|&(_, file)| is_irregular(file))
        .collect()
}

fn claim(
    name: &'static str,
    file: &str,
    what: impl Into<String>,
    cpus: &str,
    wanted: ExpectedCpus,
    remedy: &'static str,
) -> ProgramCpus {
    ProgramCpus {
        name,
        file: format!("/{file}"),
        what: what.into(),
        cpus: cpus.trim().parse().ok(),
        wanted,
        remedy,
    }
}

/// Reads the CPUs of Open vSwitch. Its database is a journal of transactions, one JSON object every other line (ovsdb(5)); the last value
/// is valid.
fn open_vswitch(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let text = machine.program_text(OVS).unwrap_or_default();
    let mut config = Vec::new();
    for record in text.lines().filter(|line| line.starts_with('{')) {
        let Ok(record) = serde_json::from_str::<Value>(record) else {
            continue;
        };
        let rows = record.get("Open_vSwitch").and_then(Value::as_object);
        for row in rows.into_iter().flat_map(|rows| rows.values()) {
            let pairs = row.pointer("/other_config/1").and_then(Value::as_array);
            if let Some(pairs) = pairs {
                config = pairs
                    .iter()
                    .filter_map(|pair| {
                        let text = |index: usize| pair.get(index)?.as_str().map(str::to_owned);
                        Some((text(0)?, text(1)?))
                    })
                    .collect();
            }
        }
    }
    let remedy = "quietwire partition render --for ovs";
    let wanted = [
        ("pmd-cpu-mask", ExpectedCpus::Forwarding),
        ("dpdk-lcore-mask", ExpectedCpus::NotIsolated),
    ];
    config
        .iter()
        .filter_map(|(key, value)| {
            let (_, wanted) = wanted.iter().find(|(name, _)| name == key)?;
            let mask = format!("0x{}", value.trim_start_matches("0x"));
            Some(claim("open-vswitch", OVS, key, &mask, *wanted, remedy))
        })
        .collect()
}

fn vpp(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let text = machine.program_text(VPP).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let remedy = "quietwire partition render --for vpp";
    lines
        .filter_map(|line| {
            let (key, value) = line.trim().split_once(char::is_whitespace)?;
            let wanted = match key {
                "corelist-workers" => ExpectedCpus::Forwarding,
                "main-core" => ExpectedCpus::NotIsolated,
                _ => return None,
            };
            Some(claim("vpp", VPP, key, value, wanted, remedy))
        })
        .collect()
}

/// Reads vRouter's CPUs: forwarding CPUs from the interface's file, those of other threads from the container's variables.
/// Each value is a mask, a list, or a list in parentheses.
fn vrouter(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let remedy = "quietwire partition render --for vrouter (CPU_CORE_MASK of its output is CPU_LIST of ifcfg-vhost0)";
    let files: [(&str, &[&'static str]); 2] = [
        (VHOST0, &["CPU_LIST"]),
        (
            VROUTER,
            &[
                "CPU_CORE_MASK",
                "SERVICE_CORE_MASK",
                "DPDK_CTRL_THREAD_MASK",
            ],
        ),
    ];
    let mut claims = Vec::new();
    for (file, keys) in files {
        let text = machine.program_text(file).unwrap_or_default();
        for (key, value) in values(&text, keys) {
            let wanted = match key {
                "CPU_LIST" | "CPU_CORE_MASK" => ExpectedCpus::Forwarding,
                _ => ExpectedCpus::NotIsolated,
            };
            let value = value.trim_matches(['\'', '"']);
            claims.push(claim("vrouter", file, key, value, wanted, remedy));
        }
    }
    claims
}

/// Returns the last value of each key from `key = value` lines.
fn values<'a>(text: &'a str, keys: &[&'static str]) -> Vec<(&'static str, &'a str)> {
    let value = |key: &&'static str| {
        let found = text.lines().rev().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == *key).then(|| value.trim().trim_matches('"'))
        });
        Some((*key, found.filter(|value| !value.is_empty())?))
    };
    keys.iter().filter_map(value).collect()
}

fn nova(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let text = machine.program_text(NOVA).unwrap_or_default();
    let remedy = "quietwire partition render --for nova";
    let keys = ["cpu_dedicated_set", "vcpu_pin_set", "cpu_shared_set"];
    values(&text, &keys)
        .into_iter()
        .map(|(key, value)| {
            let wanted = if key == "cpu_shared_set" {
                ExpectedCpus::NotIsolated
            } else {
                ExpectedCpus::Guests
            };
            claim("nova", NOVA, key, value, wanted, remedy)
        })
        .collect()
}

fn systemd(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let mut files = vec![SYSTEMD.to_owned()];
    let more = machine.names(SYSTEMD_MORE);
    files.extend(more.iter().map(|name| format!("{SYSTEMD_MORE}/{name}")));
    files
        .iter()
        .flat_map(|file| {
            let text = machine.program_text(file).unwrap_or_default();
            let found = values(&text, &["CPUAffinity"]);
            let found: Vec<ProgramCpus> = found
                .into_iter()
                .map(|(key, value)| {
                    // systemd accepts spaces in place of commas.
                    let list = value.split_whitespace().collect::<Vec<_>>().join(",");
                    let remedy = "quietwire partition render --for systemd";
                    claim(
                        "systemd",
                        file,
                        key,
                        &list,
                        ExpectedCpus::NotIsolated,
                        remedy,
                    )
                })
                .collect();
            found
        })
        .collect()
}

/// Reads tuned's CPUs if its profile is active.
fn tuned(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let profile = machine.program_text(TUNED_PROFILE).unwrap_or_default();
    if !profile.contains("cpu-partitioning") {
        return Vec::new();
    }
    let text = machine.program_text(TUNED).unwrap_or_default();
    let remedy = "quietwire partition render --for tuned";
    values(&text, &["isolated_cores", "no_balance_cores"])
        .into_iter()
        .map(|(key, value)| {
            claim(
                "tuned",
                TUNED,
                key,
                value,
                ExpectedCpus::AllIsolated,
                remedy,
            )
        })
        .collect()
}

/// Reads the CPUs to which libvirt pins the guests' virtual CPUs.
fn libvirt(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let mut claims = Vec::new();
    for name in machine.names(LIBVIRT) {
        let file = format!("{LIBVIRT}/{name}");
        if !name.ends_with(".xml") {
            continue;
        }
        let text = machine.program_text(&file).unwrap_or_default();
        let (mut guests, mut emulators) = (CpuList::new(), CpuList::new());
        for element in text.split('<') {
            let cpus = element.split_once("cpuset=").and_then(|(_, rest)| {
                let quote = rest.chars().next()?;
                let rest = rest.strip_prefix(quote)?;
                rest.split(quote).next()?.parse::<CpuList>().ok()
            });
            let Some(cpus) = cpus else { continue };
            if element.starts_with("vcpupin") {
                guests = guests.union(&cpus);
            } else if element.starts_with("emulatorpin") {
                emulators = emulators.union(&cpus);
            }
        }
        let remedy = "quietwire partition render --for libvirt";
        for (what, cpus, wanted) in [
            ("vcpupin", guests, ExpectedCpus::Guests),
            ("emulatorpin", emulators, ExpectedCpus::NotIsolated),
        ] {
            if !cpus.is_empty() {
                claims.push(claim(
                    "libvirt",
                    &file,
                    what,
                    &cpus.to_string(),
                    wanted,
                    remedy,
                ));
            }
        }
    }
    claims
}

/// Reads kubelet's state: pods share the CPUs of `defaultCpuSet`; containers have the CPUs of `entries` exclusively.
fn kubelet(machine: &Machine<'_>) -> Vec<ProgramCpus> {
    let text = machine.program_text(KUBELET).unwrap_or_default();
    let Ok(state) = serde_json::from_str::<Value>(&text) else {
        return Vec::new();
    };
    let remedy = "quietwire partition render --for kubelet";
    let mut claims = Vec::new();
    if let Some(cpus) = state.get("defaultCpuSet").and_then(Value::as_str) {
        let what = "defaultCpuSet";
        claims.push(claim(
            "kubelet",
            KUBELET,
            what,
            cpus,
            ExpectedCpus::NotIsolated,
            remedy,
        ));
    }
    let pods = state.get("entries").and_then(Value::as_object);
    for (pod, containers) in pods.into_iter().flatten() {
        for (container, cpus) in containers.as_object().into_iter().flatten() {
            let what = format!("container {container} of pod {pod}");
            let cpus = cpus.as_str().unwrap_or_default();
            claims.push(claim(
                "kubelet",
                KUBELET,
                what,
                cpus,
                ExpectedCpus::NotIsolated,
                remedy,
            ));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use crate::partition::Plan;

    /// Files of all programs, with the same text.
    const FILES: [&str; 10] = [
        OVS,
        VPP,
        NOVA,
        SYSTEMD,
        "etc/systemd/system.conf.d/a.conf",
        TUNED,
        "etc/libvirt/qemu/a.xml",
        VHOST0,
        VROUTER,
        KUBELET,
    ];

    /// Reads any text as the files of all programs. Each claim names its file.
    fn target() -> impl Fn(&[u8]) -> bool {
        let root = tempfile::tempdir().unwrap();
        let text = root.path().join("text");
        for file in FILES {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(&text, &path).unwrap();
        }
        fs::write(root.path().join(TUNED_PROFILE), "cpu-partitioning").unwrap();
        move |octets| {
            fs::write(&text, octets).unwrap();
            let plan = Plan::default();
            let machine = Machine {
                root: root.path(),
                plan: &plan,
                isolated: CpuList::new(),
                forwarding: CpuList::new(),
                tasks: Vec::new(),
                timeout: std::time::Duration::ZERO,
            };
            let claims = claims(&machine);
            for claim in &claims {
                assert!(FILES.contains(&&claim.file[1..]), "{}", claim.file);
            }
            planted("host-others", || {
                let of = |name, least| {
                    let is_it = |claim: &ProgramCpus| {
                        claim.name == name
                            && claim.cpus.as_ref().is_some_and(|cpus| cpus.len() > least)
                    };
                    claims.iter().any(is_it)
                };
                of("kubelet", 5) || of("libvirt", 5)
            });
            claims.iter().any(|claim| claim.cpus.is_some())
        }
    }

    #[test]
    fn fuzz_others() {
        check(env!("CARGO_MANIFEST_DIR"), "host-others", target());
    }
}
