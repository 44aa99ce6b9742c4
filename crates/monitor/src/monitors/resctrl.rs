// SPDX-License-Identifier: Apache-2.0
//! Cache occupancy and memory traffic by class of service, from resctrl (Documentation/filesystems/resctrl.rst).

use std::collections::BTreeMap;

use quietwire_host::files::Disk;
use quietwire_host::resctrl;
use serde::{Deserialize, Serialize};

use crate::monitor::{Monitor, Target, Unavailable};

/// Cache and memory use of one class in one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassActivity {
    /// Name of the class. Empty for the default class.
    pub class: String,
    /// The kernel's name of the domain: `mon_L3_00`.
    pub domain: String,
    /// Occupancy of the cache at the end, octets.
    pub occupancy: Option<u64>,
    /// Memory traffic, octets.
    pub memory_total: Option<u64>,
    /// Memory traffic to the local node, octets.
    pub memory_local: Option<u64>,
}

pub(crate) struct Resctrl;

impl Monitor for Resctrl {
    const NAME: &'static str = "resctrl";
    /// Data by class and domain.
    type Counters = BTreeMap<(String, String), resctrl::Monitor>;
    type Activity = Vec<ClassActivity>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let Some(mounted) = resctrl::Resctrl::find(&Disk, target.root) else {
            return Err(Unavailable("resctrl is not mounted".to_owned()));
        };
        let groups = mounted
            .groups(&Disk)
            .map_err(|error| Unavailable(error.to_string()))?;
        let mut found = BTreeMap::new();
        for group in groups {
            for data in mounted.monitor(&Disk, &group.name) {
                found.insert((group.name.clone(), data.domain.clone()), data);
            }
        }
        if found.is_empty() {
            return Err(Unavailable(
                "the processor has no cache monitoring".to_owned(),
            ));
        }
        Ok(found)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let mut found = Vec::new();
        for ((class, domain), now) in now {
            let then = then.get(&(class.clone(), domain.clone()));
            // The counters of a class that was created meanwhile, or of a recycled monitoring ID, have no start.
            let since = |then: Option<u64>, now: Option<u64>| now?.checked_sub(then?);
            found.push(ClassActivity {
                class: class.clone(),
                domain: domain.clone(),
                occupancy: now.occupancy,
                memory_total: since(then.and_then(|then| then.memory_total), now.memory_total),
                memory_local: since(then.and_then(|then| then.memory_local), now.memory_local),
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn occupancy_is_that_of_the_end_and_traffic_that_of_the_interval() {
        let at = |total: &str| {
            Machine::default()
                .with("sys/fs/resctrl/schemata", "L3:0=fff\n")
                .with("sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy", "4096\n")
                .with("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", total)
                .with(
                    "sys/fs/resctrl/forwarding/mon_data/mon_L3_00/llc_occupancy",
                    "Unavailable\n",
                )
        };
        let activity = between::<Resctrl>(&at("100"), &at("350"));
        let class = |class: &str, occupancy, memory_total| ClassActivity {
            class: class.to_owned(),
            domain: "mon_L3_00".to_owned(),
            occupancy,
            memory_total,
            memory_local: None,
        };
        let wanted = [
            class("", Some(4096), Some(250)),
            class("forwarding", None, None),
        ];
        assert_eq!(activity, wanted);
        assert_eq!(
            Machine::default().unavailable::<Resctrl>(),
            "resctrl is not mounted"
        );
        let without = Machine::default().with("sys/fs/resctrl/schemata", "L3:0=fff\n");
        assert!(
            without
                .unavailable::<Resctrl>()
                .contains("no cache monitoring")
        );
    }
}
