// SPDX-License-Identifier: Apache-2.0
//! Ports held open, trials run over them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quietwire_dpdk::thread::{self, Registered};
use quietwire_dpdk::{Eal, Mempool, Port, PortOptions, PortStats, PortUri, StartedPort, cycles};

use crate::assemble::{LaneResult, assemble};
use crate::calibration::{Calibration, Calibrations, TesterKind};
use crate::clock::{ClockCheck, ticks_per_second};
use crate::engine::{self, LoopHealth, Timetable};
use crate::error::TesterError;
use crate::frame::{Epoch, FrameWriter, signature_place};
use crate::judge::{Limits, judge};
use crate::lane::{Lane, Role};
use crate::pacer::{Pace, Times};
use crate::seen::{Marks, Seen};
use crate::traffic::{Capture, Pattern, Program, Timing, Traffic};
use crate::trial::{Directions, Trial, TrialResult};
use crate::writer::{Described, Replayed, Share, Writer, tracked_flows};

/// How the tester is to work.
#[derive(Clone, Debug)]
pub struct TesterOptions {
    /// CPUs of the tester's threads. Ports are dealt out to them in turn; one CPU serves all ports well.
    pub cpus: Vec<u32>,
    /// Real-time priority of the threads (SCHED_FIFO, 1 to 99); none for ordinary priority.
    pub realtime_priority: Option<u8>,
    /// Descriptors in each ring of each port: a power of two.
    pub ring_size: u16,
    /// Largest frame that will be asked for, octets with FCS.
    pub frame_size_max: u16,
    /// When a trial is invalid.
    pub limits: Limits,
    /// What the device gets before the traffic.
    pub preparation: Preparation,
}

/// What a device gets to make itself ready in, before the traffic of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preparation {
    /// How long the learning frames of all addresses may take, seconds, where the device takes them slowly; unless said,
    /// a second per million.
    pub learning_s: Option<f64>,
    /// How long nothing is sent after them (RFC 2544, section 23, waits as well), seconds.
    pub settle_s: f64,
}

impl Preparation {
    /// How long the threads and the learning frames get, seconds.
    fn lead_s(self, trial: &Trial) -> f64 {
        let frames = match &trial.traffic {
            Some(traffic) => traffic.flow_count(),
            None => trial.mac_addresses,
        };
        let usual = f64::from(frames) / LEARNING_RATE_PPS;
        LEAD_S + self.learning_s.unwrap_or(usual)
    }
}

#[derive(Debug)]
struct TesterPort {
    port: StartedPort,
    drops_when_full: bool,
}

/// A tester with its ports open.
#[derive(Debug)]
pub struct Tester {
    eal: Eal,
    pool: Mempool,
    ports: Vec<TesterPort>,
    options: TesterOptions,
    trials: u64,
    calibration: Option<Calibration>,
    abort: Arc<AtomicBool>,
    /// The last description made ready: trials of a search have the same.
    ready: Option<Ready>,
}

/// A description made ready for all ports.
#[derive(Debug)]
struct Ready {
    traffic: Traffic,
    sizes: Vec<u16>,
    programs: Vec<Arc<Program>>,
    pattern: Option<Arc<Pattern>>,
    capture: Option<Arc<Capture>>,
}

impl Ready {
    fn new(traffic: &Traffic, sizes: Vec<u16>, ports: usize) -> Result<Self, TesterError> {
        let capture = match &traffic.replay {
            Some(replay) => Some(Arc::new(Capture::read(Path::new(&replay.file))?)),
            None => None,
        };
        let ports = if capture.is_some() { 0 } else { ports };
        let program = |port| Program::new(traffic, &sizes, port as u8).map(Arc::new);
        let programs: Result<_, String> = (0..ports).map(program).collect();
        Ok(Self {
            programs: programs.map_err(TesterError::BadTrial)?,
            pattern: traffic
                .integrity
                .then(|| Arc::new(Pattern::new(traffic.seed))),
            traffic: traffic.clone(),
            sizes,
            capture,
        })
    }

    /// When the frames of a capture are due that is sent with its own timing.
    fn times(&self) -> Option<Arc<Times>> {
        let replay = self.traffic.replay.as_ref()?;
        let capture = self.capture.as_ref()?;
        (replay.timing == Timing::File).then(|| {
            Arc::new(Times::new(
                capture.times_ns(),
                capture.period_ns(),
                replay.speed.unwrap_or(1.0),
                ticks_per_second(),
            ))
        })
    }
}

/// Ports of a tester at most: frames have a place of 8 bits for theirs.
const PORTS_MAX: usize = 64;
/// Buffers beside those that rings and bursts may hold at once.
const POOL_SPARE: u32 = 4096;
/// How long threads get to be ready before a trial, and learning frames to be sent, seconds.
const LEAD_S: f64 = 0.02;
/// Learning frames per second that fit into the lead, so that many addresses lengthen it.
const LEARNING_RATE_PPS: f64 = 1e6;
/// How long a real-time thread may overstay its trial before the kernel ends the process, seconds.
const OVERSTAY_S: u64 = 10;

impl Tester {
    /// Opens ports, given as name and URI. `pool_name` has to be unique in the process.
    ///
    /// # Errors
    /// What is wrong with a port or the options.
    pub fn open(
        eal: &Eal,
        pool_name: &str,
        ports: &[(String, PortUri)],
        options: TesterOptions,
    ) -> Result<Self, TesterError> {
        if ports.is_empty() || ports.len() > PORTS_MAX {
            return Err(TesterError::BadTrial(format!(
                "{} ports were given, and a tester has 1 to {PORTS_MAX}",
                ports.len()
            )));
        }
        if options.cpus.is_empty() {
            return Err(TesterError::BadTrial("the tester needs a CPU".to_owned()));
        }
        let queues: u32 = ports.iter().map(|(_, uri)| u32::from(uri.queues())).sum();
        let rings = u32::from(options.ring_size) * 2 * queues;
        let kept: u32 = ports.iter().map(|(_, uri)| uri.buffers_kept()).sum();
        let port_options = |name: &str, queues: u16| PortOptions {
            name: name.to_owned(),
            rx_queues: queues,
            tx_queues: queues,
            rx_ring_size: options.ring_size,
            tx_ring_size: options.ring_size,
            frame_size_max: options.frame_size_max,
        };
        let pool = Mempool::new(
            eal,
            pool_name,
            rings + kept + POOL_SPARE,
            port_options("", 1).data_room(),
        )?;
        // Measured now, and not in the first trial.
        ticks_per_second();
        let ports = ports
            .iter()
            .map(|(name, uri)| {
                let options = port_options(name, uri.queues());
                let port = Port::open(eal, uri, &options, &pool)?.start()?;
                Ok(TesterPort {
                    port,
                    drops_when_full: uri.is_shared_memory(),
                })
            })
            .collect::<Result<_, TesterError>>()?;
        Ok(Self {
            eal: eal.clone(),
            pool,
            ports,
            options,
            trials: 0,
            calibration: None,
            abort: Arc::default(),
            ready: None,
        })
    }

    /// Set it, from any thread, to end a running trial early: it then returns [`TesterError::Aborted`].
    #[must_use]
    pub fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    /// Which tester this is, where calibrations are told apart.
    #[must_use]
    pub fn kind(&self) -> TesterKind {
        TesterKind {
            ports: self
                .ports
                .iter()
                .map(|port| kind_of(port.port.handle.uri()))
                .collect(),
            cpu_model: TesterKind::cpu_model_here(),
            cpus: self.options.cpus.clone(),
            ring_size: self.options.ring_size,
            realtime_priority: self.options.realtime_priority,
        }
    }

    /// From now on results cite this tester's calibration, where there is one among these. Returns whether there is.
    pub fn cite(&mut self, calibrations: &Calibrations) -> bool {
        self.calibration = calibrations.of(&self.kind()).cloned();
        self.calibration.is_some()
    }

    /// The calibration that results cite.
    #[must_use]
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_ref()
    }

    /// Number of ports.
    #[must_use]
    pub fn port_count(&self) -> usize {
        self.ports.len()
    }

    /// Waits until every port has its peer.
    ///
    /// # Errors
    /// [`TesterError::NoLink`] at the deadline, [`TesterError::Aborted`].
    pub fn wait_for_links(&self, deadline: Duration) -> Result<(), TesterError> {
        let began = Instant::now();
        loop {
            let down = self.links_down();
            if down.is_empty() {
                return Ok(());
            }
            if self.abort.load(Ordering::Relaxed) {
                return Err(TesterError::Aborted);
            }
            if began.elapsed() >= deadline {
                return Err(TesterError::NoLink {
                    ports: down.join(", "),
                    waited_s: deadline.as_secs_f64(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn links_down(&self) -> Vec<String> {
        self.ports
            .iter()
            .filter(|port| !port.port.handle.link_is_up())
            .map(|port| port.port.handle.name().to_owned())
            .collect()
    }

    /// Runs one trial.
    ///
    /// # Errors
    /// When it could not be run at all. A tester that failed in it gives an invalid result instead.
    pub fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        let ports = transmitting(trial, self.ports.len())?;
        let pace = Pace::Rate(trial.offered_rate_pps / ports as f64);
        self.run_at(trial, ports, pace)
    }

    /// Runs one trial in which frames are offered as fast as the tester can; the trial's rate is not used, and
    /// the result's is the one achieved.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        let ports = transmitting(trial, self.ports.len())?;
        self.run_at(trial, ports, Pace::Unpaced)
    }

    fn run_at(
        &mut self,
        trial: &Trial,
        transmitting: usize,
        pace: Pace,
    ) -> Result<TrialResult, TesterError> {
        trial.validate().map_err(TesterError::BadTrial)?;
        if trial.frame_size_largest() > self.options.frame_size_max {
            return Err(TesterError::BadTrial(format!(
                "frames of {} octets are asked for, and the ports were opened for {} at most",
                trial.frame_size_largest(),
                self.options.frame_size_max
            )));
        }
        self.make_ready(trial)?;
        self.trials += 1;
        let epoch = Epoch::of_trial(self.trials);
        let before: Vec<PortStats> = self
            .ports
            .iter()
            .map(|port| port.port.handle.stats())
            .collect();
        let Preparation { settle_s, .. } = self.options.preparation;
        let lead_s = self.options.preparation.lead_s(trial);
        guard_realtime(trial, lead_s, self.options.realtime_priority.is_some());

        let until_start = Duration::from_secs_f64(lead_s + settle_s + trial.warm_up_s);
        let started = SystemTime::now() + until_start;
        let times = Timetable {
            times: self.ready.as_ref().and_then(Ready::times),
            ..timetable(trial, epoch, pace, (lead_s, settle_s))
        };
        let clock = ClockCheck::begin();
        let count = self.ports.len();
        let room = Room {
            eal: &self.eal,
            pool: &self.pool,
            trial,
            epoch,
            ports: count,
            transmitting,
            ready: self.ready.as_ref(),
        };
        let mut lanes = Vec::new();
        for (index, port) in self.ports.iter_mut().enumerate() {
            lanes.extend(room.lanes(port, index)?);
        }
        let (mut lanes, healths, realtime) =
            run_threads(&self.eal, &self.options, lanes, &times, &self.abort)?;
        let clock_error_ratio = clock.error_ratio();
        if self.abort.load(Ordering::Relaxed) || healths.iter().any(|health| health.aborted) {
            return Err(TesterError::Aborted);
        }
        let results: Vec<LaneResult> = lanes.drain(..).map(LaneResult::from_lane).collect();
        drop(lanes);

        let names: Vec<String> = self
            .ports
            .iter()
            .map(|port| port.port.handle.name().to_owned())
            .collect();
        let mut result =
            assemble(trial, &times, &names, results, &healths).map_err(TesterError::Result)?;
        result.started_unix_ns = started
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        result.health.realtime = realtime;
        result.health.receive_drops = self.receive_drops(&before);
        result.health.clock_error_ratio = clock_error_ratio;
        result.calibration = self
            .calibration
            .as_ref()
            .and_then(|calibration| calibration.cited(trial, result.achieved_rate_pps));
        result.validity = judge(&result, self.options.limits, &self.links_down());
        Ok(result)
    }

    /// Prepares the trial's description, before anything is timed.
    fn make_ready(&mut self, trial: &Trial) -> Result<(), TesterError> {
        let Some(traffic) = trial.traffic.as_deref() else {
            self.ready = None;
            return Ok(());
        };
        let sizes = trial.sizes();
        let is_ready = self
            .ready
            .as_ref()
            .is_some_and(|ready| ready.traffic == *traffic && ready.sizes == sizes);
        if !is_ready {
            self.ready = Some(Ready::new(traffic, sizes, self.ports.len())?);
        }
        Ok(())
    }

    fn receive_drops(&self, before: &[PortStats]) -> u64 {
        self.ports
            .iter()
            .zip(before)
            .map(|(port, before)| {
                let now = port.port.handle.stats();
                (now.rx_missed + now.rx_no_buffers)
                    .saturating_sub(before.rx_missed + before.rx_no_buffers)
            })
            .sum()
    }
}

/// The word before the colon of a port's URI.
fn kind_of(uri: &PortUri) -> String {
    let text = uri.to_string();
    text.split_once(':')
        .map_or_else(|| text.clone(), |(kind, _)| kind.to_owned())
}

/// Number of ports that transmit: the first of them.
fn transmitting(trial: &Trial, ports: usize) -> Result<usize, TesterError> {
    match (trial.directions, ports) {
        (Directions::Both, 1) => Err(TesterError::BadTrial(
            "traffic in both directions needs two ports, and one was given; give a second or ask for one way".to_owned(),
        )),
        (Directions::Both, ports) => Ok(ports),
        (Directions::OneWay, _) => Ok(1),
    }
}

/// Frames per second of each low-rate stream: as asked, and at most every second frame of the load.
fn low_rate_pps(trial: &Trial, pace: Pace) -> f64 {
    match pace {
        Pace::Rate(rate_pps) => trial.low_rate_pps.min(rate_pps / 2.0),
        Pace::Unpaced => trial.low_rate_pps,
    }
}

fn timetable(trial: &Trial, epoch: Epoch, pace: Pace, (lead_s, settle_s): (f64, f64)) -> Timetable {
    let ticks_per_second = ticks_per_second();
    let ticks = |seconds: f64| (seconds * ticks_per_second as f64) as u64;
    let learning_end = cycles::now() + ticks(lead_s);
    let warm_up_start = learning_end + ticks(settle_s);
    let start = warm_up_start + ticks(trial.warm_up_s);
    let end = start + ticks(trial.duration_s);
    Timetable {
        epoch,
        pace,
        low_rate_pps: low_rate_pps(trial, pace),
        burst: trial.burst(),
        times: None,
        ticks_per_second,
        learning_end,
        warm_up_start,
        start,
        end,
        drain_end: end + ticks(trial.drain_s),
    }
}

/// Ports are pairs: 0 and 1 speak with each other, 2 and 3, and so on; a port alone with itself.
pub(crate) fn peer_of(port: usize, ports: usize) -> usize {
    if port ^ 1 < ports { port ^ 1 } else { port }
}

/// What all lanes of a trial have in common.
struct Room<'a> {
    eal: &'a Eal,
    pool: &'a Mempool,
    trial: &'a Trial,
    epoch: Epoch,
    ports: usize,
    transmitting: usize,
    ready: Option<&'a Ready>,
}

impl<'a> Room<'a> {
    /// The lanes of a port, one for each pair of its queues.
    fn lanes(&self, port: &'a mut TesterPort, index: usize) -> Result<Vec<Lane<'a>>, TesterError> {
        let queues = port.port.rx.len().min(port.port.tx.len()) as u32;
        if queues == 0 {
            return Err(TesterError::Result(format!("port {index} has no queues")));
        }
        if queues > self.flows() {
            return Err(TesterError::BadTrial(format!(
                "a port has {queues} queues and {} flows; every queue has flows of its own, so ask for at least as many",
                self.flows()
            )));
        }
        let drops_when_full = port.drops_when_full;
        let handle = &port.port.handle;
        let pairs = port.port.rx.iter_mut().zip(&mut port.port.tx);
        let lanes = (0..queues).zip(pairs).map(|(queue, (rx, tx))| {
            let share = Share {
                index: queue,
                of: queues,
            };
            let role = Role {
                port: index,
                share: self.trial.share_of_port(index, self.transmitting) / f64::from(queues),
                transmits: index < self.transmitting,
                has_low_rate: queue == 0,
            };
            Ok(Lane::new(
                self.eal,
                (rx, tx, handle),
                self.pool,
                drops_when_full,
                role,
                self.writer(index, share)?,
                self.seen(index, queues),
            ))
        });
        lanes.collect()
    }

    fn flows(&self) -> u32 {
        let capture = self.ready.and_then(|ready| ready.capture.as_ref());
        match self.ready.and_then(|ready| ready.programs.first()) {
            _ if capture.is_some() => 1,
            Some(program) => program.flows(),
            None => u32::from(self.trial.flows),
        }
    }

    fn seen(&self, index: usize, queues: u32) -> Seen {
        let program = self.ready.and_then(|ready| ready.programs.first());
        let place = program.map_or(signature_place(self.trial.ip), |program| program.place());
        let flows = tracked_flows(self.flows(), queues) as usize;
        let pattern = self.ready.and_then(|ready| ready.pattern.clone());
        let marks = Marks {
            place,
            flows: flows + 1,
            pattern,
            replayed: self
                .ready
                .and_then(|ready| ready.capture.clone())
                .map(|capture| (capture, peer_of(index, self.ports))),
        };
        let low_rate_frames = (self.trial.low_rate_pps * self.trial.duration_s).ceil() as usize + 2;
        Seen::new(
            self.epoch,
            low_rate_frames,
            marks,
            self.ports,
            ticks_per_second(),
        )
    }

    fn writer(&self, index: usize, share: Share) -> Result<Writer, TesterError> {
        let port = index as u8;
        if let Some(capture) = self.ready.and_then(|ready| ready.capture.clone()) {
            return Ok(Writer::Replayed(Replayed::new(capture)));
        }
        if let Some(ready) = self.ready {
            let program = ready.programs.get(index).map(Arc::clone);
            let program = program
                .ok_or_else(|| TesterError::Result(format!("port {index} has no frames")))?;
            return Ok(Writer::Described(Box::new(Described::new(
                program, port, share,
            ))));
        }
        let peer = peer_of(index, self.ports);
        // A port that only receives still tells the device its addresses.
        FrameWriter::new(self.trial, port, peer as u8, share)
            .map(|writer| Writer::Plain(Box::new(writer)))
            .map_err(|error| TesterError::BadTrial(error.to_string()))
    }
}

/// Lets the kernel end the process when a real-time thread neither sleeps nor ends long after its trial
/// (RLIMIT_RTTIME of setrlimit(2)): such a thread could keep everything else off its CPU for good.
fn guard_realtime(trial: &Trial, lead_s: f64, realtime: bool) {
    if !realtime {
        return;
    }
    let trial_s = (lead_s + trial.warm_up_s + trial.duration_s + trial.drain_s).ceil() as u64;
    let limit_us = (trial_s + OVERSTAY_S) * 1_000_000;
    let set = getrlimit(Resource::RLIMIT_RTTIME)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_RTTIME, limit_us.min(hard), hard));
    if let Err(error) = set {
        tracing::warn!("no limit could be set on real-time threads: {error}");
    }
}

type ThreadEnd<'port> = Result<(Vec<Lane<'port>>, LoopHealth, bool), TesterError>;

/// Deals lanes out to threads, runs them, and gives the lanes back in their order.
fn run_threads<'port>(
    eal: &Eal,
    options: &TesterOptions,
    lanes: Vec<Lane<'port>>,
    times: &Timetable,
    abort: &AtomicBool,
) -> Result<(Vec<Lane<'port>>, Vec<LoopHealth>, bool), TesterError> {
    let threads = options.cpus.len().min(lanes.len());
    let mut shares: Vec<Vec<Lane<'port>>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, lane) in lanes.into_iter().enumerate() {
        shares[index % threads].push(lane);
    }
    let ends: Vec<ThreadEnd<'port>> = scope(|scope| {
        let handles: Vec<_> = shares
            .into_iter()
            .zip(&options.cpus)
            .map(|(share, cpu)| {
                spawn(
                    scope,
                    eal,
                    *cpu,
                    options.realtime_priority,
                    share,
                    times,
                    abort,
                )
            })
            .collect();
        handles.into_iter().map(join).collect()
    });
    let mut by_thread = Vec::new();
    let mut healths = Vec::new();
    let mut all_realtime = true;
    for end in ends {
        let (lanes, health, realtime) = end?;
        by_thread.push(lanes.into_iter());
        healths.push(health);
        all_realtime &= realtime;
    }
    let mut lanes = Vec::new();
    'deal: loop {
        for share in &mut by_thread {
            match share.next() {
                Some(lane) => lanes.push(lane),
                None => break 'deal,
            }
        }
    }
    Ok((lanes, healths, all_realtime))
}

fn join<'port>(
    handle: Result<ScopedJoinHandle<'_, ThreadEnd<'port>>, TesterError>,
) -> ThreadEnd<'port> {
    handle?
        .join()
        .unwrap_or_else(|_| Err(TesterError::Thread("it panicked".to_owned())))
}

fn spawn<'scope, 'port: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    eal: &'scope Eal,
    cpu: u32,
    realtime_priority: Option<u8>,
    mut lanes: Vec<Lane<'port>>,
    times: &'scope Timetable,
    abort: &'scope AtomicBool,
) -> Result<ScopedJoinHandle<'scope, ThreadEnd<'port>>, TesterError> {
    Builder::new()
        .name(format!("qw-tester-{cpu}"))
        .spawn_scoped(scope, move || {
            thread::pin(&[cpu])?;
            let _registered = Registered::new(eal)?;
            let realtime =
                realtime_priority.is_some_and(|priority| match thread::set_realtime(priority) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!("the tester runs at ordinary priority: {error}");
                        false
                    }
                });
            let health = engine::run(&mut lanes, times, abort);
            if realtime {
                thread::set_ordinary()?;
            }
            Ok((lanes, health, realtime))
        })
        .map_err(|error| TesterError::Thread(error.to_string()))
}
