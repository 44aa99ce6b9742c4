// SPDX-License-Identifier: Apache-2.0
//! Stored facts about the machine and the software of a run, and about the setup of a case. Everything that benches and runs write is
//! here; [`crate::CaseFacts`] and [`crate::RunFacts`] are the parts that are read again.

use std::collections::BTreeMap;
use std::path::Path;

use quietwire_host::CpuList;
use quietwire_host::inventory::Inventory;
use quietwire_lab::up::LabState;
use quietwire_lab::{IsolationPart, IsolationRecord};
use quietwire_monitor::{
    MachineSetting, event_offers, exit_reason_offer, offers, settings, system_call_offer,
    uncore_offers,
};
use quietwire_tester::{GeneratorIdentity, MissingCalibration};
use serde::Serialize;

/// Machine and software of a run. Stored once for each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Environment {
    /// The machine that the device runs on.
    pub machine: MachineRecord,
    /// Versions of the software in use.
    pub versions: Versions,
}

/// The machine that the device of a run runs on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MachineRecord {
    /// This machine.
    Observed(Box<ObservedMachine>),
    /// A machine of which only the inventory is known.
    Inventory(Box<Inventory>),
    /// No machine: the device is simulated, and nothing is measured.
    Simulated {
        /// Always true.
        simulated: bool,
        /// A sentence for readers.
        note: String,
    },
    /// A machine that quietwire does not know.
    Unknown {
        /// A sentence for readers.
        note: String,
    },
}

/// A machine with its settings and monitors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedMachine {
    /// Inventory.
    #[serde(flatten)]
    pub inventory: Inventory,
    /// Settings that affect results, by name.
    pub settings: BTreeMap<String, MachineSetting>,
    /// Whether the machine offers each monitor: `available`, or `unavailable: REASON`.
    pub monitors: BTreeMap<String, String>,
}

impl ObservedMachine {
    /// Reads the machine whose files are below `root`. System calls are sampled on `sampler_cpus`.
    #[must_use]
    pub fn read(root: &Path, sampler_cpus: &CpuList) -> Self {
        let counted = event_offers()
            .into_iter()
            .chain(uncore_offers(root))
            .chain([system_call_offer(root), exit_reason_offer(root)]);
        let offers = offers(root).into_iter().chain(counted);
        let mut monitors: BTreeMap<String, String> = offers
            .map(|offer| (offer.monitor, offered(offer.unavailable)))
            .collect();
        let no_cpu = "device and tester use all CPUs, and none is left for the sampler";
        let reason = sampler_cpus.is_empty().then(|| no_cpu.to_owned());
        monitors.insert("system_calls".to_owned(), offered(reason));
        Self {
            inventory: Inventory::read(root),
            settings: settings(root),
            monitors,
        }
    }
}

fn offered(unavailable: Option<String>) -> String {
    match unavailable {
        Some(reason) => format!("unavailable: {reason}"),
        None => "available".to_owned(),
    }
}

/// Versions of the software of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Versions {
    /// A device that the lab starts.
    Lab(LabVersions),
    /// A traffic generator, and a device that runs elsewhere or is simulated.
    Generator {
        /// Version of quietwire.
        quietwire: String,
        /// The generator.
        generator: GeneratorIdentity,
    },
}

/// Versions of the software of a lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LabVersions {
    /// Version of quietwire.
    pub quietwire: String,
    /// Version of DPDK.
    pub dpdk: String,
    /// Version of stress-ng; `None` if it is not installed.
    pub stress_ng: Option<String>,
    /// Version of Open vSwitch; `None` if it is not installed.
    pub open_vswitch: Option<String>,
    /// Version of VPP; `None` if it is not installed.
    pub vpp: Option<String>,
}

/// Setup of a case, with every command and setting, or the reason why it was left out.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum CaseSettings {
    /// A case in the lab. The lab or a command of the study has started its device.
    Lab(Box<LabCase>),
    /// A case of a device that runs elsewhere or is simulated.
    Generator(Box<GeneratorCase>),
    /// A case that was left out.
    LeftOut(CaseLeftOut),
}

/// Setup of a case in the lab.
#[derive(Clone, Debug, Serialize)]
pub struct LabCase {
    /// Every command, in order.
    pub commands: Vec<String>,
    /// Name of the isolation case, if the case has one.
    pub isolation: Option<String>,
    /// Parts of the isolation.
    pub isolation_parts: Option<Vec<IsolationPart>>,
    /// CPUs of the neighbours; `None` without neighbours.
    pub neighbours_cpus: Option<CpuList>,
    /// State of the lab: topology, CPUs, elements. `None` for a device that the lab did not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lab: Option<LabState>,
    /// The tester.
    pub tester: TesterRecord,
}

/// The tester of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TesterRecord {
    /// Its CPUs.
    pub cpu: CpuList,
    /// URIs of its ports.
    pub ports: Vec<String>,
    /// Its real-time priority; `None` for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// True if its memory is in huge pages.
    pub huge_pages: bool,
    /// Link speeds of its ports, Mbit/s; empty unless all are network cards with a known speed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_speeds_mbps: Vec<u32>,
    /// Caveats of all figures, one sentence each, beside a device that the lab did not start. Otherwise those of the lab contain them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Setup of a case without a lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GeneratorCase {
    /// Name of the case.
    pub case: String,
    /// The traffic generator.
    pub generator: GeneratorIdentity,
    /// Isolation around a running device; `None` if it is not on this machine.
    #[serde(flatten)]
    pub isolation: Option<IsolationRecord>,
    /// Calibrations of the tester that trials could not cite.
    pub calibration_missing: Vec<MissingCalibration>,
}

/// Why a case was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseLeftOut {
    /// The reason.
    pub unavailable: String,
    /// True if the machine lacks nothing: the device did not start or stopped.
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::results::{CaseFacts, RunFacts};

    fn stored(record: &impl Serialize) -> Value {
        serde_json::to_value(record).unwrap()
    }

    fn generator() -> GeneratorIdentity {
        GeneratorIdentity {
            name: "sim".to_owned(),
            version: "1".to_owned(),
            details: "none".to_owned(),
            is_simulated: true,
        }
    }

    #[test]
    fn machines_and_versions_are_stored_in_the_documented_form() {
        let inventory = Inventory {
            cpu_model: Some("m".to_owned()),
            ..Inventory::default()
        };
        let machine = MachineRecord::Inventory(Box::new(inventory.clone()));
        assert_eq!(stored(&machine), stored(&inventory));
        assert_eq!(stored(&machine)["cpu_model"], "m");
        let simulated = MachineRecord::Simulated {
            simulated: true,
            note: "n".to_owned(),
        };
        assert_eq!(
            stored(&simulated),
            json!({ "simulated": true, "note": "n" })
        );
        let unknown = MachineRecord::Unknown {
            note: "n".to_owned(),
        };
        assert_eq!(stored(&unknown), json!({ "note": "n" }));
        for (machine, is_simulated) in [(machine, false), (simulated, true), (unknown, false)] {
            let facts: RunFacts = serde_json::from_value(stored(&machine)).unwrap();
            assert_eq!(facts.is_simulated, is_simulated, "{machine:?}");
        }
        let lab = Versions::Lab(LabVersions {
            quietwire: "1".to_owned(),
            dpdk: "DPDK 2".to_owned(),
            stress_ng: None,
            open_vswitch: Some("o".to_owned()),
            vpp: None,
        });
        let expected = json!({
            "quietwire": "1", "dpdk": "DPDK 2", "stress-ng": null, "open-vswitch": "o", "vpp": null,
        });
        assert_eq!(stored(&lab), expected);
        let versions = Versions::Generator {
            quietwire: "1".to_owned(),
            generator: generator(),
        };
        let expected = json!({ "quietwire": "1", "generator": stored(&generator()) });
        assert_eq!(stored(&versions), expected);
    }

    #[test]
    fn an_observed_machine_has_the_inventory_and_settings_with_their_sources() {
        let root = Path::new("/");
        let machine = ObservedMachine::read(root, &CpuList::new());
        let stored = stored(&MachineRecord::Observed(Box::new(machine.clone())));
        assert_eq!(stored["cpu_model"], json!(machine.inventory.cpu_model));
        assert_eq!(
            stored["settings"]["kernel"]["source"],
            "/proc/sys/kernel/osrelease"
        );
        assert_eq!(stored["monitors"]["cpus"], "available");
        for counted in ["uncore", "system_call_counts", "kvm_exit_reasons"] {
            assert!(stored["monitors"][counted].is_string(), "{counted}");
        }
        let reason = stored["monitors"]["system_calls"].as_str().unwrap();
        assert!(
            reason.starts_with("unavailable: device and tester"),
            "{reason}"
        );
        let facts: RunFacts = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(facts.cpu_model, machine.inventory.cpu_model);
        assert_eq!(facts.cpus, machine.inventory.cpus);
        let read: Inventory = serde_json::from_value(stored).unwrap();
        assert_eq!(read, machine.inventory);
    }

    #[test]
    fn a_setup_without_a_lab_has_the_isolation_among_its_keys() {
        let isolation = IsolationRecord {
            isolation: "full".to_owned(),
            isolation_parts: Vec::new(),
            isolated_cpus: "2".parse().unwrap(),
            tester_cpus: "1".parse().unwrap(),
            device_cpus: None,
            realtime_priority: Some(50),
            commands: vec!["c".to_owned()],
            not_isolated: Vec::new(),
        };
        let mut case = GeneratorCase {
            case: "c".to_owned(),
            generator: generator(),
            isolation: None,
            calibration_missing: Vec::new(),
        };
        let mut expected =
            json!({ "case": "c", "generator": stored(&generator()), "calibration_missing": [] });
        let settings =
            |case: &GeneratorCase| stored(&CaseSettings::Generator(Box::new(case.clone())));
        assert_eq!(settings(&case), expected);
        assert_eq!(CaseFacts::of(&expected).unwrap(), CaseFacts::default());
        case.isolation = Some(isolation.clone());
        let keys = stored(&isolation);
        let (Value::Object(keys), Value::Object(all)) = (keys, &mut expected) else {
            panic!("{expected}");
        };
        all.extend(keys);
        assert_eq!(settings(&case), expected);
        let facts = CaseFacts::of(&expected).unwrap();
        assert_eq!(facts.isolation, Some(isolation));
        // A value that no version stored is an error, not an absence.
        expected["isolated_cpus"] = json!("many");
        CaseFacts::of(&expected).unwrap_err();
    }

    #[test]
    fn a_tester_is_stored_in_the_documented_form() {
        let tester = TesterRecord {
            cpu: "1".parse().unwrap(),
            ports: vec!["p".to_owned()],
            realtime_priority: None,
            huge_pages: false,
            link_speeds_mbps: Vec::new(),
            warnings: Vec::new(),
        };
        let mut expected =
            json!({ "cpu": "1", "ports": ["p"], "realtime_priority": null, "huge_pages": false });
        assert_eq!(stored(&tester), expected);
        let of_case = |tester: &Value| CaseFacts::of(&json!({ "tester": tester })).unwrap().tester;
        assert_eq!(of_case(&expected).unwrap().link_speeds_mbps, [] as [u32; 0]);
        let cards = TesterRecord {
            link_speeds_mbps: vec![10_000, 25_000],
            warnings: vec!["emulated".to_owned()],
            ..tester
        };
        expected["link_speeds_mbps"] = json!([10_000, 25_000]);
        expected["warnings"] = json!(["emulated"]);
        assert_eq!(stored(&cards), expected);
        assert_eq!(of_case(&expected).unwrap().warnings, ["emulated"]);
        assert_eq!(
            of_case(&expected).unwrap().link_speeds_mbps,
            [10_000, 25_000]
        );
    }
}
