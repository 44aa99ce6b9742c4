// SPDX-License-Identifier: Apache-2.0
//! Temperatures at the end of an interval, from thermal zones (Documentation/driver-api/thermal/sysfs-api.rst).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::files::{numbered, text, value};
use crate::monitor::{Monitor, Target, Unavailable};

const DIRECTORY: &str = "sys/class/thermal";

/// Temperature of one zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneTemperature {
    /// Number and type of the zone: `0 x86_pkg_temp`.
    pub zone: String,
    /// Temperature, degrees Celsius.
    pub celsius: f64,
}

pub(crate) struct Temperature;

impl Monitor for Temperature {
    const NAME: &'static str = "temperature";
    /// Thousandths of a degree by number and type.
    type Counters = BTreeMap<(u32, String), i64>;
    type Activity = Vec<ZoneTemperature>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let directory = target.root.join(DIRECTORY);
        let zone = |number: u32| {
            let zone = directory.join(format!("thermal_zone{number}"));
            let kind = text(&zone.join("type")).unwrap_or_default();
            Some(((number, kind), value(&zone.join("temp"))?))
        };
        let zones = numbered(&directory, "thermal_zone").into_iter();
        let found: Self::Counters = zones.filter_map(zone).collect();
        if found.is_empty() {
            return Err(Unavailable::missing(
                "/sys/class/thermal/thermal_zone*/temp",
            ));
        }
        Ok(found)
    }

    fn between(
        _then: &Self::Counters,
        now: &Self::Counters,
        _anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let all = now
            .iter()
            .map(|((number, kind), thousandths)| ZoneTemperature {
                zone: format!("{number} {kind}"),
                celsius: *thousandths as f64 / 1e3,
            });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn zones_are_listed_by_number_and_type() {
        let machine = Machine::default()
            .with("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n")
            .with("sys/class/thermal/thermal_zone1/temp", "-1500\n")
            .with("sys/class/thermal/thermal_zone2/temp", "unknown\n");
        let activity = between::<Temperature>(&machine, &machine);
        let wanted = ZoneTemperature {
            zone: "1 x86_pkg_temp".to_owned(),
            celsius: -1.5,
        };
        assert_eq!(activity, [wanted]);
        assert!(
            Machine::default()
                .unavailable::<Temperature>()
                .contains("thermal_zone")
        );
    }
}
