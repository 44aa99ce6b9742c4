// SPDX-License-Identifier: Apache-2.0
//! The real [`Bench`]: a lab with the device and its neighbours, the tester in this process, the monitor beside it.

use std::path::Path;
use std::time::Duration;

use quietwire_dpdk::{Eal, EalOptions, HugePages, Memory, PortUri};
use quietwire_host::inventory::Inventory;
use quietwire_host::threads::{ReadError, online_cpus};
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::{
    Applied, AtWork, Case, DeviceSpec, Entered, Fault, ForwardingMode, IsolationPart, Lab,
    LabError, LabOptions, NeighbourKind, NeighbourSpec, NetworkNeighbour,
};
use quietwire_monitor::{Activity, MonitorError, Snapshot};
use quietwire_search::procedure::Action;
use quietwire_tester::{
    Calibrations, CitedCalibration, IpVersion, LOW_RATE_PPS, Limits, Preparation, Tester,
    TesterError, TesterOptions, Trial,
};
use serde_json::{Value, json};

use crate::arrangement::Arrangement;
use crate::bench::{Bench, BenchError, CaseSpec, Environment, Measured, Seen};
use crate::executor::{Device, act};
use crate::file::{FrameSize, Idle, Mode, Neighbours, NeighboursIn, StudyFile, Switch};

/// Why a bench could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LabBenchError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// DPDK, for the tester.
    #[error(transparent)]
    Dpdk(#[from] quietwire_dpdk::Error),
    /// The tester.
    #[error(transparent)]
    Tester(#[from] TesterError),
    /// The monitor.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A file of the kernel's.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A CPU that the study names and the machine lacks.
    #[error(
        "the study gives CPU {cpu} to {role}, and CPUs {online} are online; change {key} in the study file"
    )]
    Offline {
        /// The CPU.
        cpu: CpuId,
        /// For what.
        role: &'static str,
        /// Where in the study file.
        key: &'static str,
        /// What there is.
        online: CpuList,
    },
    /// A device that the lab does not start.
    #[error(
        "the study's device is not started by the lab (switch = \"other\" in [device]); say what measures it with --tester, or use `quietwire measure`"
    )]
    NotOurs,
    /// A case that this machine cannot have.
    #[error("the case is unavailable on this machine: {0}")]
    Unavailable(String),
    /// A call out of order.
    #[error("no case is up, and a trial was asked for")]
    NoCase,
}

impl LabBenchError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let of_dpdk = |fault| match fault {
            quietwire_dpdk::Fault::BadInput => Fault::BadInput,
            quietwire_dpdk::Fault::Lacks => Fault::Lacks,
            quietwire_dpdk::Fault::Failed => Fault::Failed,
        };
        match self {
            Self::Lab(error) => error.fault(),
            Self::Dpdk(error) => of_dpdk(error.fault()),
            Self::Tester(error) => of_dpdk(error.fault()),
            Self::Offline { .. } | Self::NotOurs => Fault::BadInput,
            Self::Unavailable(_) => Fault::Lacks,
            Self::Monitor(_) | Self::Read(_) | Self::NoCase => Fault::Failed,
        }
    }
}

/// A lab and a tester.
// Fields are dropped in this order: the tester's ports before the EAL, the lab last.
#[derive(Debug)]
pub struct LabBench {
    tester: Option<Tester>,
    eal: Eal,
    lab: Lab,
    file: StudyFile,
    machine: Inventory,
    entered: Option<Entered>,
    trials: u32,
}

/// Memory for the buffers of the tester and of the device each, MiB. Jumbo frames need more.
const MEMORY_MIB: u32 = 192;
const MEMORY_JUMBO_MIB: u32 = 512;
/// Size of a huge page, MiB.
const HUGE_PAGE_MIB: u32 = 2;
/// Ports of the device, and where addresses are looked for: there a third one sees what is flooded.
const PORTS: u8 = 2;
const PORTS_WITH_MONITOR: u8 = 3;
const LINK_DEADLINE: Duration = Duration::from_secs(15);
const REALTIME_PRIORITY: u8 = 50;
/// How long the highest rate is looked for, seconds.
const CALIBRATION_S: f64 = 0.5;
/// By how much the rate is lowered when the tester cannot keep to it, and how often at most.
const CALIBRATION_STEP: f64 = 0.9;
const CALIBRATION_TRIALS_MAX: u32 = 20;
/// Share of that rate which is 100 % of the load: what a virtual machine can do changes from minute to minute, and a
/// rate that the tester itself cannot keep says nothing about the device.
const CALIBRATION_MARGIN: f64 = 0.8;
/// How far over what the device forwards at most there is anything to see.
const DEVICE_SHARE: f64 = 1.25;

impl LabBench {
    /// Brings up the lab and the tester's EAL for a study.
    ///
    /// # Errors
    /// [`LabBenchError`]; nothing is left behind.
    pub fn open(file: &StudyFile, options: LabOptions) -> Result<Self, LabBenchError> {
        if file.device.switch == Switch::Other {
            return Err(LabBenchError::NotOurs);
        }
        let online = online_cpus(Path::new("/"))?;
        check_cpus(file, &online)?;
        check_neighbours(file, &online)?;
        let machine = Inventory::read(Path::new("/"));
        let arranged = |case| Arrangement::of(file, case, &machine).unwrap_or_default();
        if file
            .cases
            .iter()
            .any(|case| arranged(case).partition.is_some())
        {
            Applied::check_free()?;
        }
        let mut lab = Lab::open(options)?;
        if file.tester.huge_pages_mib > 0 {
            reserve(&mut lab, file.tester.huge_pages_mib)?;
        }
        if file.tester.realtime {
            lab.allow_realtime(&file.tester.cpu, &online)?;
        }
        let eal = Eal::start(&EalOptions {
            control_cpus: numbers(&file.tester.cpu),
            memory_mib: memory_mib(file),
            huge_pages: if file.tester.huge_pages_mib > 0 {
                HugePages::Auto
            } else {
                HugePages::Never
            },
            pci_devices: Vec::new(),
            file_prefix: format!("quietwire-study-{}", std::process::id()),
        })?;
        Ok(Self {
            tester: None,
            eal,
            lab,
            file: file.clone(),
            machine,
            entered: None,
            trials: 0,
        })
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// What could not be undone.
    pub fn close(self) -> Result<(), LabBenchError> {
        drop(self.tester);
        drop(self.eal);
        Ok(self.lab.down()?)
    }

    fn case(&self, spec: &CaseSpec) -> Result<Case, LabBenchError> {
        let arranged = Arrangement::of(&self.file, &spec.case, &self.machine)
            .map_err(LabBenchError::Unavailable)?;
        // As files of earlier versions have it.
        let is_apart = spec.case.partition == Some(true);
        let away = || {
            self.machine
                .cpus_online
                .clone()
                .unwrap_or_default()
                .difference(&self.file.device.forwarding_cpus)
        };
        Ok(Case {
            device: self.device(spec),
            neighbours: arranged
                .neighbours
                .map(|cpus| neighbours(&self.file.neighbours, cpus)),
            rest_cpus: is_apart.then(away),
            partition: arranged.partition,
        })
    }

    /// What an isolation case is made of here; nothing where the file names none.
    fn isolation_parts(&self, spec: &CaseSpec) -> Option<Vec<IsolationPart>> {
        let isolation = spec.case.isolation()?;
        let setup = crate::arrangement::setup(&self.file);
        isolation.parts_on(&self.machine, Some(&setup)).ok()
    }

    fn device(&self, spec: &CaseSpec) -> DeviceSpec {
        let device = &self.file.device;
        DeviceSpec {
            mode: match device.mode {
                Mode::CrossConnect => ForwardingMode::CrossConnect,
                Mode::Bridge => ForwardingMode::Bridge,
            },
            forwarding_cpus: device.forwarding_cpus.clone(),
            service_cpus: device.service_cpus.clone(),
            control_cpus: device.control_cpus.clone(),
            rx_ring_size: device.rx_ring_size,
            tx_ring_size: device.tx_ring_size,
            idle: match device.idle {
                Idle::Poll => "poll",
                Idle::Yield => "yield",
            }
            .to_owned(),
            pinned: spec.case.is_pinned(),
            huge_pages: self.file.tester.huge_pages_mib > 0,
            memory_mib: memory_mib(&self.file),
            frame_size_max: frame_size_max(&self.file),
            mac_addresses_max: device
                .max_entries
                .unwrap_or_else(|| addresses(&self.file).saturating_mul(2).max(65_536)),
            ports: if self.file.looks_for_addresses() {
                PORTS_WITH_MONITOR
            } else {
                PORTS
            },
        }
    }

    fn open_tester(&mut self, uris: &[String]) -> Result<Tester, LabBenchError> {
        let ports = uris
            .iter()
            .enumerate()
            .map(|(index, uri)| Ok((format!("p{index}"), uri.parse::<PortUri>()?)))
            .collect::<Result<Vec<_>, quietwire_dpdk::Error>>()?;
        self.trials += 1;
        let options = TesterOptions {
            cpus: numbers(&self.file.tester.cpu),
            realtime_priority: self.file.tester.realtime.then_some(REALTIME_PRIORITY),
            ring_size: self.file.device.rx_ring_size,
            frame_size_max: frame_size_max(&self.file),
            limits: Limits::default(),
            preparation: Preparation::default(),
        };
        let mut tester = Tester::open(
            &self.eal,
            &format!("tester{}", self.trials),
            &ports,
            options,
        )?;
        tester.wait_for_links(LINK_DEADLINE)?;
        cite_calibration(&mut tester);
        Ok(tester)
    }

    fn trial_of(&self, frame_size: FrameSize) -> Trial {
        Trial {
            offered_rate_pps: 1.0,
            duration_s: CALIBRATION_S,
            warm_up_s: self.file.trials.warm_up_s,
            drain_s: self.file.trials.drain_s,
            frame_sizes: frame_size.0,
            directions: self.file.traffic.directions,
            flows: self.file.traffic.flows,
            mac_addresses: self.file.traffic.mac_addresses,
            destinations: 1,
            ip: IpVersion::V4,
            low_rate_pps: LOW_RATE_PPS,
            traffic: self.file.traffic.frames.clone().map(Box::new),
        }
    }

    /// The highest rate worth asking for: what tester and device reach together without a schedule, lowered until
    /// the tester keeps to a schedule at it, and a margin.
    fn highest_rate(&mut self, frame_size: FrameSize) -> Result<f64, LabBenchError> {
        let mut trial = self.trial_of(frame_size);
        let tester = self.tester.as_mut().ok_or(LabBenchError::NoCase)?;
        pause();
        let unpaced = tester.run_unpaced(&trial)?;
        let mut rate_pps = unpaced
            .achieved_rate_pps
            .min(unpaced.forwarding_rate_pps * DEVICE_SHARE);
        for _ in 0..CALIBRATION_TRIALS_MAX {
            trial.offered_rate_pps = rate_pps.max(1.0);
            pause();
            if tester.run(&trial)?.is_valid() {
                break;
            }
            rate_pps *= CALIBRATION_STEP;
        }
        Ok((rate_pps * CALIBRATION_MARGIN).max(1.0))
    }

    fn do_deed(&mut self, action: &Action, frames: &Trial) -> Result<Seen, LabBenchError> {
        let (Some(tester), Some(entered)) = (&mut self.tester, &mut self.entered) else {
            return Err(LabBenchError::NoCase);
        };
        self.lab.check()?;
        pause();
        let own = std::process::id();
        let at_work = self.lab.neighbours_at_work()?;
        let before = Snapshot::take(Path::new("/"), &[entered.device_pid, own])?;
        let mut device = LabDevice {
            lab: &mut self.lab,
            pid: &mut entered.device_pid,
        };
        let observation = act(tester, &mut device, action, frames)?;
        // After a restart it is another process.
        let after = Snapshot::take(Path::new("/"), &[entered.device_pid, own])?;
        self.lab.check()?;
        let activity = told(&self.lab, &Activity::between(&before, &after), at_work)?;
        Ok(Seen {
            observation,
            activity,
        })
    }

    fn measure(&mut self, trial: &Trial) -> Result<Measured, LabBenchError> {
        let (Some(tester), Some(entered)) = (&mut self.tester, &self.entered) else {
            return Err(LabBenchError::NoCase);
        };
        self.lab.check()?;
        pause();
        let watched = [entered.device_pid, std::process::id()];
        let at_work = self.lab.neighbours_at_work()?;
        let before = Snapshot::take(Path::new("/"), &watched)?;
        let result = tester.run(trial)?;
        let after = Snapshot::take(Path::new("/"), &watched)?;
        self.lab.check()?;
        let activity = told(&self.lab, &Activity::between(&before, &after), at_work)?;
        Ok(Measured { result, activity })
    }

    fn enter(&mut self, spec: &CaseSpec) -> Result<Value, LabBenchError> {
        let case = self.case(spec)?;
        let entered = self.lab.enter(&case)?;
        // The tester's side is undone with the case when its ports cannot be opened.
        match self.open_tester(&entered.tester_uris) {
            Ok(tester) => self.tester = Some(tester),
            Err(error) => {
                self.lab.leave()?;
                return Err(error);
            }
        }
        let record = json!({
            "commands": entered.commands,
            "isolation": spec.case.isolation,
            "isolation_parts": self.isolation_parts(spec),
            "neighbours_cpus": case.neighbours.as_ref().map(|neighbours| &neighbours.cpus),
            "threads": entered.threads,
            "confined": entered.confined.map(|confined| json!({
                "moved_tasks": confined.moved,
                "bound_kernel_threads": confined.bound,
            })),
            "tester": {
                "cpu": self.file.tester.cpu,
                "ports": entered.tester_uris,
                "realtime_priority": self.file.tester.realtime.then_some(REALTIME_PRIORITY),
                "huge_pages": self.eal.memory() == Memory::HugePages,
            },
        });
        self.entered = Some(entered);
        Ok(record)
    }
}

/// The device of the case that is up.
struct LabDevice<'a> {
    lab: &'a mut Lab,
    pid: &'a mut u32,
}

impl Device for LabDevice<'_> {
    fn restart(&mut self) -> Result<(), String> {
        *self.pid = self
            .lab
            .restart_device()
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    fn forget(&mut self) -> Option<Result<(), String>> {
        Some(
            self.lab
                .forget_addresses()
                .map_err(|error| error.to_string()),
        )
    }
}

impl Bench for LabBench {
    fn environment(&mut self) -> Environment {
        Environment {
            machine: serde_json::to_value(Inventory::read(Path::new("/"))).unwrap_or(Value::Null),
            versions: json!({
                "quietwire": env!("CARGO_PKG_VERSION"),
                "dpdk": quietwire_dpdk::version(),
                "stress-ng": program_version("stress-ng"),
            }),
        }
    }

    fn unavailable(&mut self, spec: &CaseSpec) -> Option<String> {
        Arrangement::of(&self.file, &spec.case, &self.machine).err()
    }

    fn enter_case(&mut self, case: &CaseSpec) -> Result<Value, BenchError> {
        Ok(self.enter(case)?)
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        // Ports first, so that the device's end sees an orderly goodbye.
        self.tester = None;
        self.entered = None;
        Ok(self.lab.leave()?)
    }

    fn calibrate(&mut self, frame_size: FrameSize) -> Result<f64, BenchError> {
        Ok(self.highest_rate(frame_size)?)
    }

    fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        self.tester.as_ref()?.cited(trial, rate_pps)
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        Ok(self.measure(trial)?)
    }

    fn act(&mut self, action: &Action, frames: &Trial) -> Result<Seen, BenchError> {
        Ok(self.do_deed(action, frames)?)
    }
}

/// Leaves the tester's CPU to whatever waits for it. From Linux 6.12 on the kernel takes the CPU from a real-time thread
/// for 50 ms once others have waited for almost a second (the fair server of kernel/sched/deadline.c), which no setting
/// but one of debugfs keeps it from; a trial shorter than that, after a pause longer than that, is never interrupted.
fn pause() {
    const FAIR_SERVER_SHARE: Duration = Duration::from_millis(75);
    std::thread::sleep(FAIR_SERVER_SHARE);
}

/// Has trials cite the tester's calibration, where `quietwire tester calibrate` kept one.
fn cite_calibration(tester: &mut Tester) {
    let Some(path) = Calibrations::usual_path() else {
        return;
    };
    match Calibrations::read(&path) {
        Ok(calibrations) => {
            tester.cite(&calibrations);
        }
        Err(error) => tracing::warn!("trials cite no calibration: {error}"),
    }
}

fn numbers(cpus: &CpuList) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

/// MAC addresses of one sending port at most.
fn addresses(file: &StudyFile) -> u32 {
    let frames = file.traffic.frames.as_ref();
    frames.map_or(file.traffic.mac_addresses, |frames| frames.flow_count())
}

fn frame_size_max(file: &StudyFile) -> u16 {
    file.traffic
        .frame_sizes
        .iter()
        .map(|size| size.0.largest())
        .max()
        .unwrap_or(0)
}

fn memory_mib(file: &StudyFile) -> u32 {
    /// Octets that an ordinary buffer holds.
    const ORDINARY: u16 = 2048;
    if frame_size_max(file) > ORDINARY {
        MEMORY_JUMBO_MIB
    } else {
        MEMORY_MIB
    }
}

fn check_cpus(file: &StudyFile, online: &CpuList) -> Result<(), LabBenchError> {
    let device = &file.device;
    for (cpus, role, key) in [
        (&file.tester.cpu, "the tester", "[tester] cpu"),
        (
            &device.forwarding_cpus,
            "forwarding",
            "[device] forwarding-cpus",
        ),
        (&device.service_cpus, "service", "[device] service-cpus"),
        (&device.control_cpus, "control", "[device] control-cpus"),
    ] {
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

/// What the machine did, with how hard the neighbours worked where there were any.
fn told(lab: &Lab, activity: &Activity, at_work: Option<AtWork>) -> Result<Value, LabBenchError> {
    let mut told = serde_json::to_value(activity).unwrap_or(Value::Null);
    if let Some(at_work) = at_work {
        let intensity = lab.intensity_since(&at_work)?;
        told["neighbours"] = serde_json::to_value(intensity).unwrap_or(Value::Null);
    }
    Ok(told)
}

/// Octets with FCS of what neighbours send through the device.
const NETWORK_FRAME_SIZE: u16 = 64;

/// The neighbours of a file, on these CPUs.
fn neighbours(said: &Neighbours, cpus: CpuList) -> NeighbourSpec {
    NeighbourSpec {
        stressors: stressors(said, cpus.len()),
        place: said.place,
        network: said.network_pps.map(|rate_pps| NetworkNeighbour {
            rate_pps,
            frame_size: NETWORK_FRAME_SIZE,
        }),
        cpus,
    }
}

/// What stress-ng is told for neighbours that may use so many CPUs.
fn stressors(neighbours: &Neighbours, cpus: usize) -> Vec<String> {
    let usual = u32::try_from(cpus).unwrap_or(u32::MAX);
    let count = neighbours.count.unwrap_or(usual);
    let kinds = neighbours.kinds.iter();
    let of_kinds = kinds
        .filter_map(|name| NeighbourKind::named(name))
        .flat_map(|kind| kind.stressors(count));
    neighbours
        .stressors
        .iter()
        .cloned()
        .chain(of_kinds)
        .collect()
}

fn check_neighbours(file: &StudyFile, online: &CpuList) -> Result<(), LabError> {
    let has_neighbours = |case: &crate::Case| case.neighbours != NeighboursIn::None;
    if !file.cases.iter().any(has_neighbours) {
        return Ok(());
    }
    neighbours(&file.neighbours, online.clone()).check()
}

fn reserve(lab: &mut Lab, wanted_mib: u32) -> Result<(), LabBenchError> {
    let pages = u64::from(wanted_mib.div_ceil(HUGE_PAGE_MIB));
    let free = lab.reserve_huge_pages(pages)?;
    if free < pages {
        tracing::warn!(
            "{wanted_mib} MiB of huge pages were asked for and {} MiB could be had; what does not fit runs on ordinary pages",
            free * u64::from(HUGE_PAGE_MIB)
        );
    }
    Ok(())
}

/// First line of `PROGRAM --version`.
fn program_version(program: &str) -> Option<String> {
    let output = std::process::Command::new(program)
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}
