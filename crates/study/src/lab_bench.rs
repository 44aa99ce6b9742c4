// SPDX-License-Identifier: Apache-2.0
//! The real [`Bench`]: a lab with the device, which is a topology, and its neighbours. The tester and the monitor run in this process.

mod application;
mod cycle_sampler;
mod demand;
mod device;
mod elements;
mod error;
mod functions;
mod monitors;
mod snapshot;
mod topology;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::supervised::Command;
use quietwire_base::{Deadline, Fault};
use quietwire_dpdk::{Eal, EalOptions, HugePages, Memory, PortUri, file_prefix};
use quietwire_host::CpuList;
use quietwire_host::emulation;
use quietwire_host::inventory::Inventory;
use quietwire_host::threads::online_cpus;
use quietwire_lab::up::{UpLab, check_none_up};
use quietwire_lab::{
    Applied, Case, IsolationPart, Lab, LabError, LabOptions, NeighbourSpec, NetNs, Setup, Stop,
    TESTER_PRIORITY, check_idle,
};
use quietwire_monitor::Edge;
use quietwire_search::procedure::Action;
use quietwire_tester::{
    Calibrations, CitedCalibration, FrameAccess, Limits, MissingCalibration, Preparation,
    RECEIVE_RING_SIZE, Tester, TesterOptions, TimeStampFile, Trial, begin_clock, leave_cpu,
};

use crate::bench::{
    ActionOutcome, ApplicationResult, Bench, BenchError, CaseSkipped, CaseSpec, Interrupted,
    Measured,
};
use crate::case_settings::{
    CaseSettings, Environment, LabCase, LabVersions, MachineRecord, ObservedMachine, TesterRecord,
    Versions,
};
use crate::executor::act;
use crate::file::{CaseMonitors, FrameSize, NeighboursIn, StudyFile};
use crate::generator_bench::GeneratorBench;
use crate::highest_rate::{CALIBRATION_MARGIN, Pace, calibration_s, kept_rate, rate_of_both};
use crate::methods::ApplicationPlan;
use crate::pause::after_invalid;
use crate::requirements::{CaseRequirements, setup};
use crate::run::frames;
use crate::unmanaged::UnmanagedDevice;
use demand::{frame_size_max, memory_mib, neighbours};
use snapshot::{DeviceSnapshot, LabDevice, TrialSamples, activity};

pub use device::{MonitoredDevice, SwitchProcess};
pub use elements::{ElementActivity, FunctionPlace};
pub use error::LabBenchError;
pub use monitors::{MonitorTarget, Observation, RunningMonitors, TrialMonitors};
pub(crate) use topology::unavailable;

/// A lab and a tester.
// Fields are dropped in this order: the tester's ports before the EAL, the lab last.
#[derive(Debug)]
pub struct LabBench {
    tester: Option<Tester>,
    eal: Eal,
    lab: Lab,
    file: StudyFile,
    options: LabOptions,
    /// A stop request also ends the start of a device.
    stop: Stop,
    machine: Inventory,
    entered: Option<CaseSpec>,
    /// Location of the tester's ports.
    place: NetNs,
    /// Frames that the tester offers in that case, at the first frame size.
    frames: Option<Trial>,
    /// Monitors of the trials of that case.
    monitors: TrialMonitors,
    /// File for the times of low-rate frames, while no tester has it.
    time_stamps: Option<TimeStampFile>,
    opened: u32,
}

/// The tester's side of a case.
struct TesterSide {
    /// URIs of its ports.
    uris: Vec<String>,
    /// Their location.
    place: NetNs,
    /// Its preparation of the device before each trial.
    preparation: Preparation,
}

/// Size of a huge page, MiB.
const HUGE_PAGE_MIB: u32 = 2;
const LINK_DEADLINE: Duration = Duration::from_secs(15);

impl LabBench {
    /// Starts the lab and the tester's EAL for a study. A request of `stop` also ends the start of a device.
    ///
    /// # Errors
    /// [`LabBenchError`]; all changes are undone.
    pub fn open(file: &StudyFile, options: LabOptions, stop: Stop) -> Result<Self, LabBenchError> {
        Self::check(file, &options)?;
        let online = online_cpus(Path::new("/"))?;
        let machine = Inventory::read(Path::new("/"));
        let mut lab = Lab::open(options.clone())?;
        // The second check: until the lab's lock was held, another lab could start.
        check_partitions(file, &machine, &options)?;
        if file.tester.huge_pages_mib > 0 {
            reserve(&mut lab, file.tester.huge_pages_mib)?;
        }
        if file.tester.realtime {
            lab.allow_realtime(&file.tester.cpu, &online)?;
        }
        begin_clock();
        let eal = Eal::start(&EalOptions {
            control_cpus: numbers(&file.tester.cpu),
            memory_mib: memory_mib(file),
            huge_pages: if file.tester.huge_pages_mib > 0 {
                HugePages::Auto
            } else {
                HugePages::Never
            },
            pci_devices: topology::cards(file),
            file_prefix: file_prefix("study"),
        })?;
        Ok(Self {
            tester: None,
            eal,
            lab,
            file: file.clone(),
            options,
            stop,
            machine,
            entered: None,
            place: NetNs::Current,
            frames: None,
            monitors: TrialMonitors::default(),
            time_stamps: None,
            opened: 0,
        })
    }

    /// Adds the transmit and receive times of the low-rate frames of all trials to a file.
    pub fn record_time_stamps(&mut self, file: TimeStampFile) {
        self.time_stamps = Some(file);
    }

    /// Replaces the monitors of the current case, until it is left. A benchmark measures their cost by turns, without a start of the device
    /// between two trials.
    pub fn set_monitors(&mut self, monitors: CaseMonitors) {
        if let Some(entered) = &mut self.entered {
            entered.case.monitors = monitors;
        }
        // Counters that stay open are closed now, not during the next trial.
        self.monitors = TrialMonitors::default();
    }

    /// Closes the ports of the tester.
    fn close_tester(&mut self) {
        let tester = self.tester.take();
        let file = tester.and_then(|mut tester| tester.take_time_stamps());
        if file.is_some() {
            self.time_stamps = file;
        }
    }

    /// Checks whether a study can run on this machine: its CPUs, the programs that start its neighbours, and whether a partition or a lab
    /// of another process is in the way. Changes nothing.
    ///
    /// # Errors
    /// [`LabBenchError`]: the first obstacle.
    pub fn check(file: &StudyFile, options: &LabOptions) -> Result<(), LabBenchError> {
        if file.is_external() {
            check_external(file)?;
        }
        let online = online_cpus(Path::new("/"))?;
        check_cpus(file, &online)?;
        check_neighbours(file, &online)?;
        // Before labs that are up: `quietwire lab down` does not stop that of a study.
        check_idle(&options.state_directory)?;
        check_partitions(file, &Inventory::read(Path::new("/")), options)
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// The changes that could not be undone.
    pub fn close(mut self) -> Result<(), LabBenchError> {
        let left = self.leave();
        drop(self.tester);
        drop(self.eal);
        let down = self.lab.down();
        left.and(down.map_err(LabBenchError::from))
    }

    fn online(&self) -> CpuList {
        self.machine.cpus_online.clone().unwrap_or_default()
    }

    /// Returns the CPUs of a thread that disturbs neither tester nor forwarding: service CPUs, or else CPUs without a role.
    fn sampler_cpus(&self) -> CpuList {
        let device = &self.file.device;
        let busy = device.cpus.values().fold(
            self.file.tester.cpu.union(&device.forwarding_cpus),
            |busy, cpus| busy.union(cpus),
        );
        let service = device.service_cpus.difference(&busy);
        if service.is_empty() {
            self.online().difference(&busy)
        } else {
            service
        }
    }

    /// Returns a case's neighbours, on these CPUs.
    fn neighbours(&self, spec: &CaseSpec, cpus: CpuList) -> NeighbourSpec {
        neighbours(&self.file.neighbours_of(&spec.case), cpus)
    }

    /// Returns the parts of an isolation case on this machine; `None` if the file names no case.
    fn isolation_parts(&self, spec: &CaseSpec, setup: &Setup) -> Option<Vec<IsolationPart>> {
        let isolation = spec.case.isolation()?;
        isolation.parts_on(&self.machine, Some(setup)).ok()
    }

    /// Measures the highest useful rate: the rate of tester and device without a schedule, lowered until the tester keeps to a schedule at
    /// it, with a margin.
    fn highest_rate(&mut self, frame_size: FrameSize) -> Result<f64, LabBenchError> {
        let (Some(tester), Some(frames)) = (&mut self.tester, &self.frames) else {
            return Err(LabBenchError::NoCase);
        };
        let trial = Trial {
            duration_s: calibration_s(frames.duration_s),
            frame_sizes: frame_size.0,
            ..frames.clone()
        };
        let (place, file) = (&self.place, &self.file);
        let mut run = |trial: &Trial, pace: Pace| {
            leave_cpu_to_others(file);
            Ok::<_, LabBenchError>(place.enter(|| match pace {
                Pace::Unpaced => tester.run_unpaced(trial),
                Pace::Scheduled => tester.run(trial),
            })??)
        };
        let rate_pps = rate_of_both(&mut run, trial.clone())?;
        let repeats = self.file.trials.invalid_repeats;
        let kept_pps = kept_rate(&mut run, trial, rate_pps, repeats, after_invalid)?;
        Ok((kept_pps * CALIBRATION_MARGIN).max(1.0))
    }

    /// Returns the monitors of the current case.
    fn case_monitors(&self) -> CaseMonitors {
        let case = self.entered.as_ref().map(|spec| &spec.case);
        case.map(|case| case.monitors).unwrap_or_default()
    }

    fn do_action(
        &mut self,
        action: &Action,
        frames: &Trial,
    ) -> Result<ActionOutcome, LabBenchError> {
        let is_monitored = self.case_monitors().is_all();
        let [start, end] = [Edge::Start, Edge::End].map(|edge| is_monitored.then_some(edge));
        let lab = &mut self.lab;
        let Some(tester) = &mut self.tester else {
            return Err(LabBenchError::NoCase);
        };
        lab.check()?;
        // The lab's device flushes its table without the tester.
        if *action != Action::FlushFdb || self.file.is_external() {
            leave_cpu_to_others(&self.file);
        }
        let at_work = lab.neighbours_at_work()?;
        let device = lab.device().map(MonitoredDevice::Lab);
        let before = DeviceSnapshot::take(device, at_work.as_ref(), start)?;
        let mut unmanaged = self.file.is_external().then(|| UnmanagedDevice {
            is_simulated: false,
            ageing_s: self.file.ageing_s(),
            abort: Arc::clone(self.stop.flag()),
        });
        let connections = self.file.conversations();
        let traffic = (frames, &connections);
        let done = || match &mut unmanaged {
            Some(device) => act(tester, device, action, traffic),
            None => act(tester, &mut LabDevice(&mut *lab), action, traffic),
        };
        let observation = self.place.enter(done)??;
        // A restart changes the process.
        let device = lab.device().map(MonitoredDevice::Lab);
        let after = DeviceSnapshot::take(device, at_work.as_ref(), end)?;
        lab.check()?;
        let neighbours = at_work.map(|at_work| lab.intensity_since(&at_work));
        let neighbours = neighbours.transpose()?;
        let device = lab.device().map(MonitoredDevice::Lab);
        let meanwhile = TrialSamples::default();
        let activity = activity(device, (&before, &after), neighbours, meanwhile);
        Ok(ActionOutcome {
            observation,
            activity,
        })
    }

    fn measure(&mut self, trial: &Trial) -> Result<Measured, LabBenchError> {
        self.lab.check()?;
        leave_cpu_to_others(&self.file);
        let (sampler_cpus, monitors) = (self.sampler_cpus(), self.case_monitors());
        let lab = &self.lab;
        let Some(tester) = &mut self.tester else {
            return Err(LabBenchError::NoCase);
        };
        let at_work = lab.neighbours_at_work()?;
        let frames = lab.device().map(UpLab::frames);
        let target = MonitorTarget {
            device: lab.device().map(MonitoredDevice::Lab),
            neighbours: at_work.as_ref(),
            sampler_cpus: &sampler_cpus,
            monitors,
        };
        let whole_s = trial.warm_up_s + trial.duration_s + trial.drain_s;
        let running = self.monitors.start(target, whole_s)?;
        let mut result = self.place.enter(|| tester.run(trial))??;
        let observed = running.stop()?;
        if let Some(points) = observed.device_points(&result) {
            result.series.device = points;
        }
        if let Some((device, frames)) = lab.device().zip(frames) {
            result.account_for(&device.layout(), &frames, &device.frames());
        }
        self.lab.check()?;
        let neighbours = at_work.map(|at_work| self.lab.intensity_since(&at_work));
        let neighbours = neighbours.transpose()?;
        let device = self.lab.device().map(MonitoredDevice::Lab);
        let activity = observed.activity(device, neighbours);
        Ok(Measured { result, activity })
    }

    /// Applications use the tester's ports meanwhile. In a pinned case they run on the forwarding CPUs, which its neighbours do not use;
    /// otherwise they run on any CPU.
    fn run_applications(
        &mut self,
        plan: &ApplicationPlan,
    ) -> Result<ApplicationResult, LabBenchError> {
        self.close_tester();
        let (Some(device), Some(spec)) = (self.lab.device_mut(), &self.entered) else {
            return Err(LabBenchError::NoCase);
        };
        let online = self.machine.cpus_online.clone().unwrap_or_default();
        let cpus = if spec.case.is_pinned() {
            setup(&self.file, &spec.case, &online)?.forwarding
        } else {
            online
        };
        let stop = self.stop.flag();
        let observed = device.with_ends(|ends| application::measure(plan, ends, &cpus, stop))??;
        self.open_tester_at_device()?;
        Ok(observed)
    }

    fn enter(&mut self, spec: &CaseSpec) -> Result<CaseSettings, LabBenchError> {
        let size = self.file.traffic.frame_sizes.first().copied();
        self.frames = Some(frames(&self.file, &spec.case, size.unwrap_or_default()));
        self.entered = Some(spec.clone());
        let entered = self.set_up(spec);
        // If the tester's side cannot be opened, the device's side is undone with the case.
        if entered.is_err() {
            self.leave()?;
        }
        entered
    }

    /// Starts the isolation first, then the device, the tester at its ports, and the neighbours.
    fn set_up(&mut self, spec: &CaseSpec) -> Result<CaseSettings, LabBenchError> {
        let online = self.online();
        let setup = setup(&self.file, &spec.case, &online)?;
        let arranged = CaseRequirements::of_setup(&spec.case, &self.machine, &setup)
            .map_err(LabBenchError::Unavailable)?;
        let mut commands = self.lab.begin(&Case {
            roles: topology::roles(&self.file, &setup),
            partition: arranged.partition,
        })?;
        let record = if self.file.is_external() {
            let device = self.file.external_device(&spec.case);
            commands.extend(self.lab.prepare_external(&device, &self.stop)?);
            None
        } else {
            if let Some((cards, iommu)) = topology::cards_to_bind(&self.file, spec)? {
                commands.extend(self.lab.bind_cards(&cards, iommu)?);
            }
            let options = topology::options(&self.file, spec, &self.options, &online, &self.stop)?;
            let state = self.lab.bring_up(&options)?.state();
            let of_elements = state.elements.iter();
            commands.extend(of_elements.flat_map(|element| element.commands.iter().cloned()));
            Some(state.clone())
        };
        let uris = self.tester_side()?.uris;
        self.open_tester_at_device()?;
        self.wait_until_through()?;
        let neighbours = arranged.neighbours.map(|cpus| self.neighbours(spec, cpus));
        if let Some(neighbours) = &neighbours {
            commands.extend(self.lab.start_neighbours(neighbours)?);
        }
        Ok(CaseSettings::Lab(Box::new(LabCase {
            commands,
            isolation: spec.case.isolation.clone(),
            isolation_parts: self.isolation_parts(spec, &setup),
            neighbours_cpus: neighbours.map(|neighbours| neighbours.cpus),
            lab: record,
            tester: self.tester_record(uris),
        })))
    }

    /// Returns where the tester's ports are, and how it prepares the device.
    fn tester_side(&self) -> Result<TesterSide, LabBenchError> {
        if self.file.is_external() {
            return Ok(TesterSide {
                uris: topology::external_uris(&self.file)?,
                place: NetNs::Current,
                preparation: Preparation::default(),
            });
        }
        let state = self.lab.device().ok_or(LabBenchError::NoCase)?.state();
        Ok(TesterSide {
            uris: topology::uris(state, &self.file),
            place: NetNs::of(state.tester.namespace.as_deref())?,
            preparation: topology::preparation(state),
        })
    }

    /// Opens a tester at the device's ports, for as long as the case runs.
    fn open_tester_at_device(&mut self) -> Result<(), LabBenchError> {
        let TesterSide {
            uris,
            place,
            preparation,
        } = self.tester_side()?;
        let stop = self.stop.clone();
        let mut tester = topology::opened(&place, &stop, self.next_tester(&uris, preparation))?;
        // A stop request ends a trial, which may be long.
        tester.abort_on(stop.flag());
        if let Some(file) = self.time_stamps.take() {
            tester.record_time_stamps(file);
        }
        self.place = place;
        self.tester = Some(tester);
        Ok(())
    }

    /// Waits until the device forwards frames. A port that receives only flooded frames has no frames to wait for: a single quietwire
    /// switch, which may have such a port, forwards as soon as it is connected.
    fn wait_until_through(&mut self) -> Result<(), LabBenchError> {
        let (Some(tester), Some(frames)) = (&mut self.tester, &self.frames) else {
            return Ok(());
        };
        if self.file.measures_addresses() {
            return Ok(());
        }
        let (place, stop) = (&self.place, &self.stop);
        place.enter(|| topology::wait_until_through(tester, frames, stop))?
    }

    /// Opens the next tester. The returned function does not use the bench, so it can run in another namespace.
    fn next_tester<'a>(
        &'a mut self,
        uris: &'a [String],
        preparation: Preparation,
    ) -> impl Fn() -> Result<Tester, LabBenchError> + Send + Sync + 'a {
        self.opened = self.opened.saturating_add(1);
        let (eal, file, name) = (&self.eal, &self.file, format!("tester{}", self.opened));
        move || open_tester(eal, file, &name, uris, preparation)
    }

    fn tester_record(&self, ports: Vec<String>) -> TesterRecord {
        TesterRecord {
            cpu: self.file.tester.cpu.clone(),
            ports,
            realtime_priority: self.file.tester.realtime.then_some(TESTER_PRIORITY),
            huge_pages: self.eal.memory() == Memory::HugePages,
            link_speeds_mbps: self
                .tester
                .as_ref()
                .map(Tester::link_speeds_mbps)
                .unwrap_or_default(),
            warnings: if self.file.is_external() {
                emulation::warning(Path::new("/")).into_iter().collect()
            } else {
                Vec::new()
            },
        }
    }

    /// Assigns a failure: an error of a lab's device belongs to its case, and other cases may succeed. An error of a single quietwire
    /// switch occurs in every case.
    fn of_case(&self, error: LabBenchError, is_set_up: bool) -> BenchError {
        // One paragraph, since the text is listed among the reasons of other cases.
        let text = || one_line(&error.to_string());
        if error.is_interruption() {
            return Interrupted.into();
        }
        match error.fault() {
            Fault::MissingPrerequisite if is_set_up => CaseSkipped::Unavailable(text()).into(),
            Fault::Failed if self.file.runs_in_topologies() && !error.is_fatal() => {
                CaseSkipped::Failed(text()).into()
            }
            _ => error.into(),
        }
    }

    fn leave(&mut self) -> Result<(), LabBenchError> {
        // Ports first, so that the device's side sees an orderly disconnect.
        self.close_tester();
        self.frames = None;
        self.monitors = TrialMonitors::default();
        self.entered = None;
        self.place = NetNs::Current;
        Ok(self.lab.leave()?)
    }
}

/// Joins the lines of a text into one, separated by bars.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" | ")
}

/// Opens the tester's ports and waits for the peer of each.
fn open_tester(
    eal: &Eal,
    file: &StudyFile,
    name: &str,
    uris: &[String],
    preparation: Preparation,
) -> Result<Tester, LabBenchError> {
    let ports = uris
        .iter()
        .enumerate()
        .map(|(index, uri)| Ok((format!("p{index}"), uri.parse::<PortUri>()?)))
        .collect::<Result<Vec<_>, quietwire_dpdk::Error>>()?;
    let options = TesterOptions {
        cpus: numbers(&file.tester.cpu),
        realtime_priority: file.tester.realtime.then_some(TESTER_PRIORITY),
        ring_size: file.device.rx_ring_size,
        receive_ring_size: file.device.tx_ring_size.max(RECEIVE_RING_SIZE),
        frame_size_max: frame_size_max(file),
        limits: Limits::default(),
        preparation,
        idle: file.tester.idle,
        frame_access: FrameAccess::default(),
    };
    let mut tester = Tester::open(eal, name, &ports, options)?;
    tester.wait_for_links(LINK_DEADLINE)?;
    cite_calibration(&mut tester);
    Ok(tester)
}

impl Bench for LabBench {
    fn environment(&mut self) -> Environment {
        Environment {
            machine: MachineRecord::Observed(Box::new(ObservedMachine::read(
                Path::new("/"),
                &self.sampler_cpus(),
            ))),
            versions: Versions::Lab(LabVersions {
                quietwire: env!("CARGO_PKG_VERSION").to_owned(),
                dpdk: quietwire_dpdk::version(),
                stress_ng: program_version("stress-ng"),
                open_vswitch: program_version("ovs-vsctl"),
                vpp: program_version("vpp"),
            }),
        }
    }

    fn unavailable(&mut self, spec: &CaseSpec) -> Option<String> {
        unavailable(&self.file, &spec.case, &self.options, &self.machine)
    }

    fn enter_case(&mut self, case: &CaseSpec) -> Result<CaseSettings, BenchError> {
        self.enter(case).map_err(|error| self.of_case(error, true))
    }

    fn consoles(&mut self) -> Result<BTreeMap<String, String>, BenchError> {
        match self.lab.device() {
            Some(device) => Ok(device.state().consoles()?),
            None => Ok(BTreeMap::new()),
        }
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        Ok(self.leave()?)
    }

    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        self.highest_rate(frame_size)
            .map_err(|error| self.of_case(error, false))
    }

    fn raises_max_rate(&self) -> bool {
        true
    }

    fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        self.tester.as_ref()?.cited(trial, rate_pps)
    }

    fn missing_calibration(&self, trial: &Trial) -> Option<MissingCalibration> {
        self.tester.as_ref()?.missing_calibration(trial)
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        self.measure(trial)
            .map_err(|error| self.of_case(error, false))
    }

    fn act(&mut self, action: &Action, frames: &Trial) -> Result<ActionOutcome, BenchError> {
        self.do_action(action, frames)
            .map_err(|error| match error.is_interruption() {
                true => Interrupted.into(),
                false => error.into(),
            })
    }

    fn apply(&mut self, plan: &ApplicationPlan) -> Result<ApplicationResult, BenchError> {
        self.run_applications(plan)
            .map_err(|error| self.of_case(error, false))
    }
}

/// Makes trials cite the tester's calibration, if `quietwire tester calibrate` stored one.
fn cite_calibration(tester: &mut Tester) {
    let Some(path) = Calibrations::default_path() else {
        return;
    };
    if let Err(error) = tester.cite_file(&path, false) {
        tracing::warn!("trials cite no calibration: {error}");
    }
}

/// Leaves the tester's CPU to other threads before a trial. A tester without a real-time priority shares its CPU with them at any time.
fn leave_cpu_to_others(file: &StudyFile) {
    if file.tester.realtime {
        leave_cpu();
    }
}

fn numbers(cpus: &CpuList) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

/// Checks whether a study can run on a device that the lab does not start.
fn check_external(file: &StudyFile) -> Result<(), LabBenchError> {
    if file.tester.ports.is_empty() {
        return Err(LabBenchError::NoPorts);
    }
    if file.application.is_some() {
        return Err(LabBenchError::ApplicationsOutside);
    }
    Ok(GeneratorBench::check_without_lab(file)?)
}

fn check_cpus(file: &StudyFile, online: &CpuList) -> Result<(), LabBenchError> {
    let device = &file.device;
    let of_elements = device.cpus.values();
    let of_elements = of_elements.map(|cpus| (cpus, "an element", "[device] cpus"));
    let roles = [
        (&file.tester.cpu, "the tester", "[tester] cpu"),
        (
            &device.forwarding_cpus,
            "forwarding",
            "[device] forwarding-cpus",
        ),
        (&device.service_cpus, "service", "[device] service-cpus"),
        (&device.control_cpus, "control", "[device] control-cpus"),
    ];
    for (cpus, role, key) in roles.into_iter().chain(of_elements) {
        if let Some(cpu) = cpus.difference(online).first() {
            return Err(LabBenchError::Offline {
                cpu,
                role,
                key,
                online: online.clone(),
            });
        }
    }
    Ok(())
}

/// Checks that neither a partition of the machine's owner nor a running lab is in the way of a case that partitions the machine.
fn check_partitions(
    file: &StudyFile,
    machine: &Inventory,
    options: &LabOptions,
) -> Result<(), LabBenchError> {
    let has_partition = |case: &crate::Case| {
        let arranged = CaseRequirements::of(file, case, machine);
        arranged.is_ok_and(|arranged| arranged.partition.is_some())
    };
    if file.cases.iter().any(has_partition) {
        Applied::check_free()?;
        check_none_up(&options.state_directory)?;
    }
    Ok(())
}

fn check_neighbours(file: &StudyFile, online: &CpuList) -> Result<(), LabError> {
    let has_neighbours = |case: &&crate::Case| case.neighbours != NeighboursIn::None;
    let mut noisy = file.cases.iter().filter(has_neighbours);
    noisy.try_for_each(|case| neighbours(&file.neighbours_of(case), online.clone()).check())
}

fn reserve(lab: &mut Lab, wanted_mib: u32) -> Result<(), LabBenchError> {
    let pages = u64::from(wanted_mib.div_ceil(HUGE_PAGE_MIB));
    let free = lab.reserve_huge_pages(pages)?;
    if free < pages {
        tracing::warn!(
            "the study requires {wanted_mib} MiB of huge pages, but only {} MiB are available; memory beyond that uses ordinary pages",
            free.saturating_mul(u64::from(HUGE_PAGE_MIB))
        );
    }
    Ok(())
}

/// Timeout for a program's report of its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the first line of `PROGRAM --version`.
fn program_version(program: &str) -> Option<String> {
    let command = Command::new(program).arg("--version");
    let finished = command.run(Deadline::after(VERSION_TIMEOUT)).ok()?;
    let text = String::from_utf8_lossy(&finished.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}
