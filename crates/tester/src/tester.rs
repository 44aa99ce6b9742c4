// SPDX-License-Identifier: Apache-2.0
//! Ports held open, trials run over them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use quietwire_dpdk::thread::{self, Registered};
use quietwire_dpdk::{Eal, Mempool, Port, PortOptions, PortStats, PortUri, StartedPort, cycles};

use crate::assemble::{LaneResult, assemble};
use crate::clock::ClockCheck;
use crate::engine::{self, LoopHealth, Timetable};
use crate::error::TesterError;
use crate::frame::{Epoch, FrameWriter};
use crate::judge::{Limits, judge};
use crate::lane::Lane;
use crate::pacer::Pace;
use crate::seen::Seen;
use crate::trial::{Directions, Trial, TrialResult};

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
        let usual = f64::from(trial.mac_addresses) / LEARNING_RATE_PPS;
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
    abort: Arc<AtomicBool>,
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
        let rings = u32::from(options.ring_size) * 2 * ports.len() as u32;
        let kept: u32 = ports.iter().map(|(_, uri)| uri.buffers_kept()).sum();
        let port_options = |name: &str| PortOptions {
            name: name.to_owned(),
            rx_queues: 1,
            tx_queues: 1,
            rx_ring_size: options.ring_size,
            tx_ring_size: options.ring_size,
            frame_size_max: options.frame_size_max,
        };
        let pool = Mempool::new(
            eal,
            pool_name,
            rings + kept + POOL_SPARE,
            port_options("").data_room(),
        )?;
        let ports = ports
            .iter()
            .map(|(name, uri)| {
                let port = Port::open(eal, uri, &port_options(name), &pool)?.start()?;
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
            abort: Arc::default(),
        })
    }

    /// Set it, from any thread, to end a running trial early: it then returns [`TesterError::Aborted`].
    #[must_use]
    pub fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
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
        if trial.frame_sizes.largest() > self.options.frame_size_max {
            return Err(TesterError::BadTrial(format!(
                "frames of {} octets are asked for, and the ports were opened for {} at most",
                trial.frame_sizes.largest(),
                self.options.frame_size_max
            )));
        }
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
        let times = timetable(trial, epoch, pace, (lead_s, settle_s));
        let clock = ClockCheck::begin();
        let count = self.ports.len();
        let mut lanes = Vec::new();
        for (index, port) in self.ports.iter_mut().enumerate() {
            lanes.push(lane(
                &self.eal,
                &self.pool,
                port,
                trial,
                epoch,
                index,
                (count, transmitting),
            )?);
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
        result.validity = judge(&result, self.options.limits, &self.links_down());
        Ok(result)
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
    let ticks_per_second = cycles::hz();
    let ticks = |seconds: f64| (seconds * ticks_per_second as f64) as u64;
    let learning_end = cycles::now() + ticks(lead_s);
    let warm_up_start = learning_end + ticks(settle_s);
    let start = warm_up_start + ticks(trial.warm_up_s);
    let end = start + ticks(trial.duration_s);
    Timetable {
        epoch,
        pace,
        low_rate_pps: low_rate_pps(trial, pace),
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

fn lane<'port>(
    eal: &Eal,
    pool: &'port Mempool,
    port: &'port mut TesterPort,
    trial: &Trial,
    epoch: Epoch,
    index: usize,
    (ports, transmitting): (usize, usize),
) -> Result<Lane<'port>, TesterError> {
    let peer = peer_of(index, ports);
    let seen = Seen::new(epoch, trial, ports, cycles::hz());
    // A port that only receives still tells the device its addresses.
    let writer = FrameWriter::new(trial, index as u8, peer as u8)
        .map_err(|error| TesterError::BadTrial(error.to_string()))?;
    let (Some(rx), Some(tx)) = (port.port.rx.first_mut(), port.port.tx.first_mut()) else {
        return Err(TesterError::Result(format!("port {index} has no queues")));
    };
    Ok(Lane::new(
        eal,
        (rx, tx, &port.port.handle),
        pool,
        port.drops_when_full,
        writer,
        index < transmitting,
        seen,
    ))
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
