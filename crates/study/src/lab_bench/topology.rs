// SPDX-License-Identifier: Apache-2.0
//! Devices, which are topologies of the lab: the elements of a case, the tester's ports, and the samples during trials.

use std::path::Path;
use std::time::Duration;

use quietwire_base::{Deadline, Fault};
use quietwire_dpdk::pci::{self, Problem};
use quietwire_host::inventory::Inventory;
use quietwire_host::roles::Roles;
use quietwire_host::vfio::Iommu;
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::topology::{Graph, SwitchSettings, TopologyError};
use quietwire_lab::up::{ElementState, GuestOptions, LabState, UpOptions, lacking};
use quietwire_lab::{IsolationPart, LabOptions, NetNs, Setup, Stop};
use quietwire_tester::{Preparation, Tester, Trial};

use super::LabBenchError;
use super::demand::{addresses, frame_size_max, memory_mib};
use super::elements::{Element, FunctionPlace};
use super::functions;
use crate::bench::CaseSpec;
use crate::file::external::port_uri;
use crate::file::{CardDriver, Case, Device, NeighboursIn, StudyFile};
use crate::requirements::{CaseRequirements, assignment};

/// Name of the lab; a study has one lab at a time.
const NAME: &str = "study";
/// Time that elements have to forward after the tester has connected. Some elements become ready only then, and disconnect early peers, as
/// Open vSwitch on DPDK does while it allocates its buffers.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Pause between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// Rate of the frames that are sent meanwhile, frames per second.
const READY_RATE_PPS: f64 = 1000.0;
/// Frames sent before the traffic of a trial to devices whose elements share CPUs.
const SHARED: Preparation = Preparation {
    learning_s: Some(0.2),
    settle_s: 0.2,
};

/// Returns the reason, as a clause, why this machine does not support a case; `None` if it does, as far as that is known without starting
/// anything.
pub(crate) fn unavailable(
    file: &StudyFile,
    case: &Case,
    options: &LabOptions,
    machine: &Inventory,
) -> Option<String> {
    let device = file.device_of(case);
    if let Err(why) = CaseRequirements::of(file, case, machine) {
        return Some(why);
    }
    if file.is_external() {
        return lacks_cards(file);
    }
    // The check of the file has refused invalid topologies already.
    let graph = match device.graph() {
        Ok(graph) => graph,
        Err(error) => return Some(error.to_string()),
    };
    if let Some(why) = lacks_image(&device) {
        return Some(why);
    }
    let has_cards = !device.ports.is_empty();
    // Virtual functions exist only after the isolation that creates them is applied.
    // Cards may have another driver until then, too.
    let graph = match uses_functions(case) || iommu(&device, case).is_some() {
        true => Device {
            ports: Vec::new(),
            ..device
        }
        .graph()
        .unwrap_or(graph),
        false => graph,
    };
    if let Some((element, why)) = lacking(&graph, &options.program) {
        return Some(format!("{element}: {}", why.0));
    }
    has_cards.then(|| lacks_cards(file)).flatten()
}

/// Returns the reason why a custom image cannot boot.
fn lacks_image(device: &Device) -> Option<String> {
    let image = device.image.as_ref()?;
    let mut files = [&image.kernel, &image.initramfs].into_iter();
    let missing = files.find(|file| !file.is_file())?;
    Some(format!("its image: {} is not a file", missing.display()))
}

/// Returns the reason why the tester cannot use its network cards.
fn lacks_cards(file: &StudyFile) -> Option<String> {
    let cards = file.tester_cards();
    cards.iter().find_map(|address| {
        let what = lacks_card(address)?;
        Some(format!("the tester: its network card {address}: {what}"))
    })
}

fn lacks_card(address: &str) -> Option<String> {
    let (Problem::Wrong(what) | Problem::NotReady(what)) =
        pci::check(Path::new("/"), address).err()?;
    Some(what)
}

/// Returns the network cards of the tester that DPDK can drive. Cases that require others are unavailable.
pub(super) fn cards(file: &StudyFile) -> Vec<String> {
    let mut cards = file.tester_cards();
    cards.retain(|address| lacks_card(address).is_none());
    cards
}

/// Returns the topology to start for a case. Virtual functions of network cards exist already.
///
/// # Errors
/// An invalid case, or a case that this machine does not support.
pub(super) fn options(
    file: &StudyFile,
    spec: &CaseSpec,
    options: &LabOptions,
    online: &CpuList,
    stop: &Stop,
) -> Result<UpOptions, LabBenchError> {
    let device = device(file, spec)?;
    let graph = graph(file, spec, &device)?;
    let cpus = assignment(file, &device, &graph, online)?;
    Ok(UpOptions {
        name: NAME.to_owned(),
        state_directory: options.state_directory.clone(),
        program: options.program.clone(),
        graph,
        cpus,
        by_plan: false,
        guests: GuestOptions {
            accelerator: device.accelerator.unwrap_or_default(),
            deadline_s: None,
        },
        set: None,
        stop: stop.clone(),
    })
}

/// Returns true if the ports of a case's device are virtual functions of its cards.
fn uses_functions(case: &Case) -> bool {
    let isolation = case.isolation();
    isolation.is_some_and(|isolation| isolation.has(IsolationPart::VirtualFunctions))
}

/// Returns how the cards of a case's device are bound to `vfio-pci`; `None` if they keep their drivers.
fn iommu(device: &Device, case: &Case) -> Option<Iommu> {
    let usual = uses_functions(case).then_some(CardDriver::VfioPci);
    device.card_driver.or(usual).and_then(CardDriver::iommu)
}

/// Returns the device of a case with the cards or virtual functions that are its ports.
fn device(file: &StudyFile, spec: &CaseSpec) -> Result<Device, LabBenchError> {
    let mut device = file.device_of(&spec.case);
    if uses_functions(&spec.case) {
        device.ports = functions::of_ports(Path::new("/"), &device.ports)
            .map_err(LabBenchError::Unavailable)?;
    }
    Ok(device)
}

/// Returns the cards or virtual functions of a case to bind to `vfio-pci`; `None` if they keep their drivers. Virtual functions exist
/// already.
///
/// # Errors
/// [`LabBenchError::Unavailable`] for a card that has too few virtual functions.
pub(super) fn cards_to_bind(
    file: &StudyFile,
    spec: &CaseSpec,
) -> Result<Option<(Vec<String>, Iommu)>, LabBenchError> {
    let device = device(file, spec)?;
    let iommu = iommu(&device, &spec.case).filter(|_| !device.ports.is_empty());
    Ok(iommu.map(|iommu| (device.ports, iommu)))
}

/// Returns a case's topology. A single quietwire switch has its own settings, and a port that receives flooded frames if a method observes
/// them.
fn graph(file: &StudyFile, spec: &CaseSpec, device: &Device) -> Result<Graph, TopologyError> {
    let graph = device.graph()?;
    if file.runs_in_topologies() {
        return Ok(graph);
    }
    let graph = graph.with_settings(&settings(file, spec));
    Ok(match file.measures_addresses() {
        true => graph.with_monitor(),
        false => graph,
    })
}

fn settings(file: &StudyFile, spec: &CaseSpec) -> SwitchSettings {
    let device = &file.device;
    let has_neighbours = spec.case.neighbours != NeighboursIn::None;
    SwitchSettings {
        service_cpus: device.service_cpus.clone(),
        control_cpus: device.control_cpus.clone(),
        rx_ring_size: device.rx_ring_size,
        tx_ring_size: device.tx_ring_size,
        idle: device.idle,
        is_pinned: spec.case.is_pinned(),
        huge_pages: file.tester.huge_pages_mib > 0,
        memory_mib: memory_mib(file),
        frame_size_max: frame_size_max(file),
        mac_addresses_max: device
            .max_entries
            .unwrap_or_else(|| addresses(file).saturating_mul(2).max(65_536)),
        has_neighbour_ports: has_neighbours && file.neighbours.network_pps.is_some(),
    }
}

/// Returns the CPUs of a case's device by role, for the isolation by a lab.
pub(super) fn roles(file: &StudyFile, setup: &Setup) -> Roles {
    let device = &file.device;
    match file.runs_in_topologies() || file.is_external() {
        true => Roles {
            forwarding: setup.forwarding.clone(),
            service: setup.apparatus.clone(),
            control: setup.apparatus.clone(),
        },
        false => Roles {
            forwarding: device.forwarding_cpus.clone(),
            service: device.service_cpus.clone(),
            control: device.control_cpus.clone(),
        },
    }
}

/// Returns the locations of the tester's ports: its own network cards, if cables connect it to the device's.
pub(super) fn uris(state: &LabState, file: &StudyFile) -> Vec<String> {
    if state.tester.chains.is_empty() {
        let cards = file.tester.ports.iter();
        return cards.map(|address| format!("pci:{address}")).collect();
    }
    state.tester.uris()
}

/// Returns the locations of the tester's ports at a device that the lab does not start.
///
/// # Errors
/// A port that the check of the file has refused already.
pub(super) fn external_uris(file: &StudyFile) -> Result<Vec<String>, LabBenchError> {
    let ports = file.tester.ports.iter();
    let uri = |text: &String| port_uri(text).map(|uri| uri.to_string());
    ports
        .map(|text| uri(text).map_err(LabBenchError::BadPort))
        .collect()
}

/// Returns the preparation of a device before the traffic of each trial.
pub(super) fn preparation(state: &LabState) -> Preparation {
    if state.cpus.shared.is_empty() {
        Preparation::default()
    } else {
        SHARED
    }
}

/// Returns the elements of a device, for samples during trials.
pub(super) fn elements(state: &LabState) -> Vec<Element> {
    let of_state = |element: &ElementState| {
        let mut graph = state.graph.elements.iter().enumerate();
        let (place, own) = graph.find(|(_, other)| other.name == element.name)?;
        let cpus = state.cpus.elements.get(place);
        Some(Element {
            name: element.name.clone(),
            role: own.role,
            function: state.graph.vnf_place(place).map(|position| FunctionPlace {
                position,
                program: own.program,
            }),
            pids: element.pids.clone(),
            kernel_cpus: cpus.filter(|_| own.is_kernels()).map(numbers),
        })
    };
    state.elements.iter().filter_map(of_state).collect()
}

fn numbers(cpus: &CpuList) -> Vec<u32> {
    cpus.iter().map(|CpuId(cpu)| cpu).collect()
}

/// Opens the tester at its ports, and repeats that until all elements are ready.
pub(super) fn opened(
    place: &NetNs,
    stop: &Stop,
    open: impl Fn() -> Result<Tester, LabBenchError> + Send + Sync,
) -> Result<Tester, LabBenchError> {
    let attempt = || -> Result<Tester, LabBenchError> {
        stop.check()?;
        place.enter(&open)?
    };
    let opened = Deadline::after(READY_DEADLINE).poll(AGAIN, || match attempt() {
        Err(error) if error.fault() == Fault::Failed && !stop.is_wanted() => {
            tracing::debug!("the tester's ports are tried again: {error}");
            None
        }
        outcome => Some(outcome),
    });
    opened.unwrap_or_else(attempt)
}

/// Sends a few frames until frames arrive at every receiving port.
pub(super) fn wait_until_through(
    tester: &mut Tester,
    frames: &Trial,
    stop: &Stop,
) -> Result<(), LabBenchError> {
    let probe = Trial {
        offered_rate_pps: READY_RATE_PPS * tester.port_count() as f64,
        ..frames.clone()
    };
    let deadline = Deadline::after(READY_DEADLINE);
    while !deadline.has_passed() {
        stop.check()?;
        if tester.wait_until_through(&probe, AGAIN)? {
            return Ok(());
        }
    }
    Err(LabBenchError::NotThrough {
        waited_s: READY_DEADLINE.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: &str = r#"
name = "cards"
title = "Cards"
[device]
switch = "quietwire"
topology = "vNet1"
KEY
ports = ["0000:17:00.0", "0000:17:00.1"]
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[tester]
cpu = "0"
ports = ["0000:65:00.0", "0000:65:00.1"]
[trials]
duration-s = 1
warm-up-s = 0.5
drain-s = 0.5
max-rate-pps = 1000
[latency]
rate-pps = 200
duration-s = 1
repeats = 2
[[case]]
name = "cards"
isolation = "isolated"
[[case]]
name = "functions"
isolation = "sr-iov"
"#;

    #[test]
    fn functions_are_bound_by_default_and_cards_on_request() {
        let required = Some(Iommu::Required);
        for (key, cards, functions) in [
            ("", None, required),
            ("card-driver = \"keep\"", None, None),
            ("card-driver = \"vfio-pci\"", required, required),
            (
                "card-driver = \"vfio-pci-no-iommu\"",
                Some(Iommu::Optional),
                Some(Iommu::Optional),
            ),
        ] {
            let text = STUDY.replace("KEY", key);
            let file = StudyFile::parse(&text, Path::new("study.toml")).unwrap();
            let of_case = |index: usize| {
                let case = &file.cases[index];
                iommu(&file.device_of(case), case)
            };
            assert_eq!([of_case(0), of_case(1)], [cards, functions], "{key}");
        }
        let without = STUDY
            .replace("KEY", "card-driver = \"vfio-pci\"")
            .replace("ports = [\"0000:17:00.0\", \"0000:17:00.1\"]\n", "");
        let error = StudyFile::parse(&without, Path::new("study.toml")).unwrap_err();
        assert!(error.to_string().contains("device.card-driver"), "{error}");
    }
}
