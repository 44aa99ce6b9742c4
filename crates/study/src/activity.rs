// SPDX-License-Identifier: Apache-2.0
//! Stored activity of the machine during a trial.

use quietwire_lab::Intensity;
use quietwire_monitor::Activity;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, from_value};

use crate::lab_bench::ElementActivity;

/// Activity of the machine during a trial. It is stored as one object: the fields of [`Activity`], and `elements` and `neighbours`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrialActivity {
    /// CPUs, threads and interrupts; none if no monitor ran.
    #[serde(flatten)]
    pub machine: Option<Activity>,
    /// Elements of the device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<ElementActivity>,
    /// Neighbours; none without neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<Intensity>,
}

/// Key that every stored activity of a machine has.
const OF_MACHINE: &str = "elapsed_s";

impl<'de> Deserialize<'de> for TrialActivity {
    /// Parses stored activity. Earlier versions store `null` if no monitor ran.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Option::<Map<String, Value>>::deserialize(deserializer)?;
        Self::of(stored.unwrap_or_default()).map_err(D::Error::custom)
    }
}

impl TrialActivity {
    fn of(mut stored: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let elements = stored.remove("elements").unwrap_or_default();
        let neighbours = stored.remove("neighbours").unwrap_or_default();
        let has_machine = stored.contains_key(OF_MACHINE);
        Ok(Self {
            machine: has_machine
                .then(|| from_value(Value::Object(stored)))
                .transpose()?,
            elements: from_value::<Option<_>>(elements)?.unwrap_or_default(),
            neighbours: from_value(neighbours)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(stored: Value) -> Result<TrialActivity, serde_json::Error> {
        from_value(stored)
    }

    #[test]
    fn activities_of_earlier_versions_are_read_and_invalid_ones_are_errors() {
        assert_eq!(read(Value::Null).unwrap(), TrialActivity::default());
        assert_eq!(read(json!({})).unwrap(), TrialActivity::default());
        let machine = json!({
            "elapsed_s": 1.5, "cpus": [], "threads": [], "vanished_threads": 0, "new_threads": 0,
            "interrupts": [], "anomalies": ["a"],
        });
        let observed = read(machine.clone()).unwrap();
        assert_eq!(observed.machine.as_ref().unwrap().elapsed_s, 1.5);
        assert_eq!(serde_json::to_value(&observed).unwrap(), machine);
        let with = |key: &str, value: Value| {
            let mut changed = machine.clone();
            changed[key] = value;
            read(changed)
        };
        let share =
            json!({ "threads": 1, "cpus": 2, "cpu_time_s": 1.0, "elapsed_s": 1.5, "share": 0.5 });
        let observed = with("neighbours", share).unwrap();
        assert_eq!(observed.neighbours.unwrap().share, 0.5);
        assert!(
            with("neighbours", Value::Null)
                .unwrap()
                .neighbours
                .is_none()
        );
        for (key, wrong) in [
            ("cpus", json!("many")),
            ("elements", json!([{ "name": "S" }])),
            ("neighbours", json!({ "share": 0.5 })),
        ] {
            assert!(with(key, wrong).is_err(), "{key}");
        }
    }
}
