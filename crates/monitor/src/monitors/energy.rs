// SPDX-License-Identifier: Apache-2.0
//! Energy by power domain, from RAPL (Documentation/power/powercap/powercap.rst).

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{names, text, value};
use crate::monitor::{Monitor, Target, Unavailable};

const DIRECTORY: &str = "sys/class/powercap";

/// Energy that one power domain used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainEnergy {
    /// Name of the domain (`package-0`, `dram`), with that of the domain that contains it.
    pub domain: String,
    /// Energy, joules.
    pub joules: f64,
}

/// Counter of one domain.
#[derive(Clone, Debug)]
pub(crate) struct DomainCounter {
    /// Microjoules.
    energy_uj: u64,
    /// Value after which the counter starts at zero again, microjoules.
    max_uj: u64,
}

pub(crate) struct Energy;

impl Monitor for Energy {
    const NAME: &'static str = "energy";
    type Counters = BTreeMap<String, DomainCounter>;
    type Activity = Vec<DomainEnergy>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let directory = target.root.join(DIRECTORY);
        // `intel-rapl:0` is a package, `intel-rapl:0:1` a domain in it. AMD processors have the same names.
        let zones = names(&directory).into_iter();
        let zones = zones.filter(|zone| zone.starts_with("intel-rapl:"));
        let counters: Self::Counters = zones.filter_map(|zone| domain(&directory, &zone)).collect();
        if counters.is_empty() {
            return Err(Unavailable::missing(
                "/sys/class/powercap/intel-rapl:*/energy_uj",
            ));
        }
        Ok(counters)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let mut found = Vec::new();
        for (domain, now) in now {
            let Some(then) = then.get(domain) else {
                continue;
            };
            let used_uj = match now.energy_uj.checked_sub(then.energy_uj) {
                Some(used_uj) => used_uj,
                // The counter wrapped around once.
                None => now
                    .energy_uj
                    .saturating_add(now.max_uj.saturating_sub(then.energy_uj)),
            };
            found.push(DomainEnergy {
                domain: domain.clone(),
                joules: used_uj as f64 / 1e6,
            });
        }
        found
    }
}

fn domain(directory: &Path, zone: &str) -> Option<(String, DomainCounter)> {
    let name_of = |zone: &str| text(&directory.join(zone).join("name"));
    let own = name_of(zone)?;
    // Domains of two packages have the same name.
    let package = zone
        .rsplit_once(':')
        .filter(|(package, _)| package.contains(':'))
        .and_then(|(package, _)| name_of(package));
    let name = match package {
        Some(package) => format!("{package}/{own}"),
        None => own,
    };
    let number = |file: &str| value(&directory.join(zone).join(file));
    let counter = DomainCounter {
        energy_uj: number("energy_uj")?,
        max_uj: number("max_energy_range_uj").unwrap_or(0),
    };
    Some((name, counter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn energy_is_counted_by_domain_and_across_a_wrap() {
        let machine = |package: u64, memory: u64| {
            Machine::default()
                .with("sys/class/powercap/intel-rapl:0/name", "package-0\n")
                .with(
                    "sys/class/powercap/intel-rapl:0/energy_uj",
                    &package.to_string(),
                )
                .with(
                    "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
                    "9000000",
                )
                .with("sys/class/powercap/intel-rapl:0:0/name", "dram")
                .with(
                    "sys/class/powercap/intel-rapl:0:0/energy_uj",
                    &memory.to_string(),
                )
                .with("sys/class/powercap/intel-rapl:0:1/name", "unreadable")
                .with("sys/class/powercap/dtpm/name", "other")
        };
        let activity = between::<Energy>(&machine(8_000_000, 5), &machine(1_000_000, 2_000_005));
        let found: Vec<(&str, f64)> = activity
            .iter()
            .map(|one| (one.domain.as_str(), one.joules))
            .collect();
        assert_eq!(found, [("package-0", 2.0), ("package-0/dram", 2.0)]);
        assert!(
            Machine::default()
                .unavailable::<Energy>()
                .contains("energy_uj")
        );
    }
}
