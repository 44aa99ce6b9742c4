// SPDX-License-Identifier: Apache-2.0
//! Devices that are topologies of the lab's: brought up for a case, looked at during trials, taken down after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use quietwire_base::Fault;
use quietwire_dpdk::pci::{self, Problem};
use quietwire_host::cpuset::Cpuset;
use quietwire_host::inventory::Inventory;
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::topology::{Assignment, Graph, TESTER, TopologyError, assign};
use quietwire_lab::up::{Ends, GuestOptions, UpLab, UpOptions, lacking};
use quietwire_lab::{IsolationPart, LabError, LabOptions, Place, Setup, Stop};
use quietwire_tester::account::{DeviceCounts, DeviceLayout};
use quietwire_tester::{Preparation, Tester, Trial};
use serde_json::{Value, json};

use super::LabBenchError;
use super::elements::Element;
use super::functions;
use crate::arrangement::Arrangement;
use crate::bench::CaseSpec;
use crate::file::{Case, Device, StudyFile, Switch};

/// Name of the lab, of which a study has one at a time.
const NAME: &str = "study";
/// How long elements may take to forward once the tester is there: some make themselves ready only then, and drop who is too
/// early, as Open vSwitch on DPDK does while it makes its buffers.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(200);
/// What is sent meanwhile, frames per second.
const READY_RATE_PPS: f64 = 1000.0;
/// What devices whose elements share CPUs get before the traffic of a trial.
const SHARED: Preparation = Preparation {
    learning_s: Some(0.2),
    settle_s: 0.2,
};

/// A topology that is up.
#[derive(Debug)]
pub(super) struct UpDevice {
    lab: UpLab,
}

/// Who has which CPUs: the tester the one that the file gives it, elements those of `[device] cpus`, and the others one each of
/// the forwarding CPUs.
pub(super) fn assignment(
    file: &StudyFile,
    device: &Device,
    graph: &Graph,
    online: &CpuList,
) -> Result<Assignment, TopologyError> {
    let mut asked = device.cpus.clone();
    asked.insert(TESTER.to_owned(), file.tester.cpu.clone());
    let named = asked
        .values()
        .fold(CpuList::new(), |all, cpus| all.union(cpus));
    let usable = if device.forwarding_cpus.is_empty() {
        online.clone()
    } else {
        named.union(&device.forwarding_cpus)
    };
    let mut assignment = assign(graph, &usable, &asked)?;
    let others = device.service_cpus.union(&device.control_cpus);
    let taken = assignment
        .elements
        .iter()
        .fold(CpuList::new(), |all, cpus| all.union(cpus));
    let left = online.difference(&taken);
    if !others.is_empty() {
        assignment.rest = others;
    } else if !left.is_empty() {
        assignment.rest = left;
    }
    Ok(assignment)
}

/// Who has which CPUs in a case, as isolation and neighbours have to know it.
pub(super) fn setup(
    file: &StudyFile,
    case: &Case,
    online: &CpuList,
) -> Result<Setup, TopologyError> {
    let device = file.device_of(case);
    let given = assignment(file, &device, &device.graph()?, online)?;
    // The tester is the first.
    let forwarding = given.elements.iter().skip(1);
    let forwarding = forwarding.fold(CpuList::new(), |all, cpus| all.union(cpus));
    Ok(Setup {
        apparatus: given.rest.union(&file.tester.cpu).difference(&forwarding),
        forwarding,
        ports: device.ports,
    })
}

/// Why this machine cannot have a case, in a clause; none where it can, as far as is known without starting anything.
pub(crate) fn unavailable(
    file: &StudyFile,
    case: &Case,
    options: &LabOptions,
    machine: &Inventory,
) -> Option<String> {
    let device = file.device_of(case);
    if device.switch == Switch::Other {
        return None;
    }
    if !file.runs_in_topologies() {
        return Arrangement::of(file, case, machine).err();
    }
    if let Err(why) = arrangement(file, case, machine) {
        return Some(why);
    }
    // What makes no sense was refused when the file was checked.
    let graph = device.graph().ok()?;
    if let Some(why) = lacks_image(&device) {
        return Some(why);
    }
    let has_cards = !device.ports.is_empty();
    // Virtual functions are there only once the isolation that makes them is applied.
    let graph = match case.isolation() {
        Some(isolation) if isolation.has(IsolationPart::VirtualFunctions) => Device {
            ports: Vec::new(),
            ..device
        }
        .graph()
        .unwrap_or(graph),
        _ => graph,
    };
    if let Some((element, why)) = lacking(&graph, &options.program) {
        return Some(format!("{element}: {}", why.0));
    }
    has_cards.then(|| lacks_cards(file)).flatten()
}

/// What a case asks of a machine, in whichever way its device is brought up.
///
/// # Errors
/// Why the machine cannot have the case, in a clause.
pub(super) fn arrangement(
    file: &StudyFile,
    case: &Case,
    machine: &Inventory,
) -> Result<Arrangement, String> {
    if !file.runs_in_topologies() {
        return Arrangement::of(file, case, machine);
    }
    let online = machine.cpus_online.clone().unwrap_or_default();
    let setup = setup(file, case, &online).map_err(|error| error.to_string())?;
    Arrangement::of_setup(case, machine, &setup)
}

/// Why an image of the user's own cannot be booted.
fn lacks_image(device: &Device) -> Option<String> {
    let image = device.image.as_ref()?;
    let mut files = [&image.kernel, &image.initramfs].into_iter();
    let missing = files.find(|file| !file.is_file())?;
    Some(format!("its image: {} is no file", missing.display()))
}

/// Why the tester cannot have its network cards.
fn lacks_cards(file: &StudyFile) -> Option<String> {
    let mut cards = file.tester.ports.iter();
    cards.find_map(|address| {
        let what = lacks_card(address)?;
        Some(format!("the tester: its network card {address}: {what}"))
    })
}

fn lacks_card(address: &str) -> Option<String> {
    let (Problem::Wrong(what) | Problem::NotReady(what)) =
        pci::check(Path::new("/"), address).err()?;
    Some(what)
}

/// Network cards of the tester that DPDK can drive; cases are unavailable without the others.
pub(super) fn cards(file: &StudyFile) -> Vec<String> {
    let cards = file.tester.ports.iter();
    cards
        .filter(|address| lacks_card(address).is_none())
        .cloned()
        .collect()
}

impl UpDevice {
    /// Brings a case's device up.
    pub(super) fn up(
        file: &StudyFile,
        spec: &CaseSpec,
        options: &LabOptions,
        online: &CpuList,
        set: Option<Cpuset>,
        stop: &Stop,
    ) -> Result<Self, LabBenchError> {
        let mut device = file.device_of(&spec.case);
        let isolation = spec.case.isolation();
        if isolation.is_some_and(|isolation| isolation.has(IsolationPart::VirtualFunctions)) {
            device.ports = functions::of_ports(Path::new("/"), &device.ports)
                .map_err(LabBenchError::Unavailable)?;
        }
        let graph = device.graph()?;
        let cpus = assignment(file, &device, &graph, online)?;
        let lab = UpLab::up(&UpOptions {
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
            set,
            stop: stop.clone(),
        })?;
        Ok(Self { lab })
    }

    /// Where the tester finds the ports of all chains, in pairs: network cards of its own, where cables join it to the device's.
    pub(super) fn uris(&self, file: &StudyFile) -> Vec<String> {
        let chains = &self.lab.state().tester.chains;
        if chains.is_empty() {
            let cards = file.tester.ports.iter();
            return cards.map(|address| format!("pci:{address}")).collect();
        }
        chains.iter().flatten().cloned().collect()
    }

    /// Where the tester has to be when it opens them.
    pub(super) fn place(&self) -> Result<Place, LabError> {
        Place::of(self.lab.state().tester.namespace.as_deref())
    }

    /// What the tester lets it have before the traffic of each trial.
    pub(super) fn preparation(&self) -> Preparation {
        let is_shared = !self.lab.state().cpus.shared.is_empty();
        if is_shared {
            SHARED
        } else {
            Preparation::default()
        }
    }

    /// Whatever there is to be known of it, for the record.
    pub(super) fn record(&self) -> Value {
        serde_json::to_value(self.lab.state()).unwrap_or(Value::Null)
    }

    /// What the consoles of its guests said so far.
    pub(super) fn consoles(&self) -> Result<BTreeMap<String, String>, LabError> {
        self.lab.state().consoles()
    }

    /// Its elements, as they are looked at during trials.
    pub(super) fn elements(&self) -> Vec<Element> {
        let state = self.lab.state();
        let of_state = |element: &quietwire_lab::up::ElementState| {
            let mut graph = state.graph.elements.iter();
            let place = graph.position(|other| other.name == element.name)?;
            let own = &state.graph.elements[place];
            Some(Element {
                name: element.name.clone(),
                role: own.role.name(),
                pids: element.pids.clone(),
                kernel_cpus: own
                    .is_kernels()
                    .then(|| numbers(&state.cpus.elements[place])),
            })
        };
        state.elements.iter().filter_map(of_state).collect()
    }

    /// What forwarding has cost elements that count it.
    pub(super) fn cycles(&self) -> BTreeMap<String, quietwire_lab::CycleCount> {
        self.lab.cycles()
    }

    /// Counters of its elements.
    pub(super) fn frames(&self) -> DeviceCounts {
        self.lab.frames()
    }

    /// How its ports are joined to each other and to the tester's.
    pub(super) fn layout(&self) -> DeviceLayout {
        self.lab.layout()
    }

    /// An error when one of its processes died.
    pub(super) fn check(&mut self) -> Result<(), LabBenchError> {
        let dead = self.lab.look_for_dead()?;
        if dead.is_empty() {
            return Ok(());
        }
        Err(LabBenchError::Died {
            elements: dead.join(", "),
        })
    }

    /// Does something with the device's two ends as network stacks; the tester's ports are closed meanwhile.
    pub(super) fn with_ends<T>(
        &mut self,
        work: impl FnOnce(&Ends) -> T,
    ) -> Result<T, LabBenchError> {
        Ok(self.lab.with_ends(work)?)
    }

    pub(super) fn down(self) -> Result<(), LabError> {
        self.lab.down()
    }
}

fn numbers(cpus: &CpuList) -> Vec<u32> {
    cpus.iter().map(|CpuId(cpu)| cpu).collect()
}

/// Opens the tester where its ports are, again until elements that were not ready yet let it.
pub(super) fn opened(
    place: &Place,
    stop: &Stop,
    open: impl Fn() -> Result<Tester, LabBenchError> + Send + Sync,
) -> Result<Tester, LabBenchError> {
    let began = Instant::now();
    loop {
        stop.check()?;
        match place.enter(&open)? {
            Err(error) if error.fault() == Fault::Failed && began.elapsed() < READY_DEADLINE => {
                tracing::debug!("the tester's ports are tried again: {error}");
                std::thread::sleep(AGAIN);
            }
            outcome => return outcome,
        }
    }
}

/// Sends a little until something comes out of every port that frames are for.
pub(super) fn wait_until_through(
    tester: &mut Tester,
    frames: &Trial,
    stop: &Stop,
) -> Result<(), LabBenchError> {
    let probe = Trial {
        offered_rate_pps: READY_RATE_PPS * tester.port_count() as f64,
        ..frames.clone()
    };
    let began = Instant::now();
    while began.elapsed() < READY_DEADLINE {
        stop.check()?;
        if tester.wait_until_through(&probe, AGAIN)? {
            return Ok(());
        }
    }
    Err(LabBenchError::NotThrough {
        waited_s: READY_DEADLINE.as_secs(),
    })
}

/// Description of what is up, where nothing of the lab's own is: quietwire's switch alone.
pub(super) fn alone(pid: u32) -> Vec<Element> {
    vec![Element {
        name: ALONE.to_owned(),
        role: "switch",
        pids: vec![pid],
        kernel_cpus: None,
    }]
}

/// Name of the switch, as topologies have it.
pub(super) const ALONE: &str = "S";

/// The tester by itself, for the record.
pub(super) fn tester_record(
    file: &StudyFile,
    uris: &[String],
    realtime_priority: Option<u8>,
    has_huge_pages: bool,
) -> Value {
    json!({
        "cpu": file.tester.cpu,
        "ports": uris,
        "realtime_priority": realtime_priority,
        "huge_pages": has_huge_pages,
    })
}
