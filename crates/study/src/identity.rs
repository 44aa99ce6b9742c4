// SPDX-License-Identifier: Apache-2.0
//! Identity of a run, on which its figures depend in addition to the study file: the machine, the program, and settings of the machine.
//! Trials of runs that differ in it are not comparable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::OnceLock;

use quietwire_host::inventory::Inventory;
use quietwire_tester::GeneratorIdentity;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Name of a condition, and its value.
type Condition = (&'static str, Option<String>);

/// Conditions of a run, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunIdentity(BTreeMap<String, String>);

impl RunIdentity {
    /// Returns the conditions of a run in a lab on this machine.
    ///
    /// # Errors
    /// The program's own file cannot be read.
    pub fn of_lab() -> io::Result<Self> {
        let machine = Inventory::read(Path::new("/"));
        let text = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned())
        };
        let conditions = [
            // The ID itself is confidential (machine-id(5)).
            (
                "machine",
                text("/etc/machine-id").map(|id| short(id.as_bytes())),
            ),
            ("processor", machine.cpu_model),
            (
                "microcode",
                text("/sys/devices/system/cpu/cpu0/microcode/version"),
            ),
            (
                "CPUs online",
                machine.cpus_online.map(|cpus| cpus.to_string()),
            ),
            (
                "hyper-threading",
                machine
                    .smt_active
                    .map(|is_active| on_or_off(is_active).to_owned()),
            ),
            ("governor", machine.governor),
            (
                "turbo disabled",
                text("/sys/devices/system/cpu/intel_pstate/no_turbo"),
            ),
            ("boost", text("/sys/devices/system/cpu/cpufreq/boost")),
            ("clock source", machine.clock_source),
            ("kernel", machine.kernel_release),
            ("kernel command line", machine.kernel_command_line),
            ("DPDK", Some(quietwire_dpdk::version())),
        ];
        Self::of_program(conditions.into_iter())
    }

    /// Returns the conditions of a run with a traffic generator and a device that quietwire does not start.
    ///
    /// # Errors
    /// The program's own file cannot be read.
    pub fn of_generator(generator: &GeneratorIdentity) -> io::Result<Self> {
        let text = format!(
            "{} {} {}",
            generator.name, generator.version, generator.details
        );
        Self::of_program([("traffic generator", Some(text.trim().to_owned()))].into_iter())
    }

    fn of_program(conditions: impl Iterator<Item = Condition>) -> io::Result<Self> {
        let version = env!("CARGO_PKG_VERSION");
        let digest = digest_of_program()?;
        let program = ("quietwire", Some(format!("{version}, SHA-256 {digest}…")));
        let known = conditions
            .chain([program])
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(Self(known.collect()))
    }

    /// Returns what differs from an earlier run, each as a clause. A condition that only one of the runs knows is a difference.
    #[must_use]
    pub fn differences(&self, earlier: &Self) -> Vec<String> {
        let names = self.0.keys().chain(earlier.0.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let value = |of: &Self, name: &String| {
            of.0.get(name)
                .map_or("unknown".to_owned(), |value| format!("'{value}'"))
        };
        names
            .into_iter()
            .filter(|name| self.0.get(*name) != earlier.0.get(*name))
            .map(|name| {
                let (was, is) = (value(earlier, name), value(self, name));
                format!("{name} was {was} and is {is}")
            })
            .collect()
    }
}

/// Returns the digits of the SHA-256 of this program's file that are shown. The file is read once.
fn digest_of_program() -> io::Result<&'static str> {
    static DIGEST: OnceLock<String> = OnceLock::new();
    if let Some(digest) = DIGEST.get() {
        return Ok(digest);
    }
    let mut program = Sha256::new();
    let mut file = BufReader::with_capacity(1 << 20, File::open("/proc/self/exe")?);
    loop {
        let octets = file.fill_buf()?;
        if octets.is_empty() {
            break;
        }
        program.update(octets);
        let length = octets.len();
        file.consume(length);
    }
    let mut digest: String = program.finalize().iter().map(hexadecimal).collect();
    digest.truncate(DIGITS);
    Ok(DIGEST.get_or_init(|| digest))
}

/// Digits of a hash that are shown.
const DIGITS: usize = 12;

fn hexadecimal(octet: &u8) -> String {
    format!("{octet:02x}")
}

fn short(octets: &[u8]) -> String {
    let digest: String = Sha256::digest(octets).iter().map(hexadecimal).collect();
    digest.get(..DIGITS).unwrap_or_default().to_owned()
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(details: &str) -> RunIdentity {
        RunIdentity::of_generator(&GeneratorIdentity {
            name: "sim".to_owned(),
            version: "1".to_owned(),
            details: details.to_owned(),
            is_simulated: true,
        })
        .unwrap()
    }

    #[test]
    fn differences_are_named_with_both_values() {
        let (first, second) = (generator("a"), generator("b"));
        assert_eq!(first.differences(&first), [""; 0]);
        assert_eq!(
            second.differences(&first),
            ["traffic generator was 'sim 1 a' and is 'sim 1 b'"]
        );
        let lab = RunIdentity::of_lab().unwrap();
        assert_eq!(lab, RunIdentity::of_lab().unwrap());
        let differences = lab.differences(&first);
        assert!(
            differences
                .iter()
                .any(|one| one.starts_with("kernel was unknown and is '")),
            "{differences:?}"
        );
        assert!(
            differences.iter().all(|one| !one.starts_with("quietwire")),
            "it is the same program: {differences:?}"
        );
    }
}
