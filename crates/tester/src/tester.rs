// SPDX-License-Identifier: Apache-2.0
//! Tester with open ports: runs trials and cites calibrations.

mod options;
mod ports;
mod ready;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::{Deadline, Seccomp};
use quietwire_dpdk::{Eal, Mempool, Port, PortOptions, PortStats, PortUri};

use crate::calibration::{
    Calibration, Calibrations, CalibrationsError, CitedCalibration, MissingCalibration, Source,
    TesterKind,
};
use crate::clock::{begin_clock, ticks_per_second};
use crate::error::TesterError;
use crate::pacer::Pace;
use crate::time_stamps::TimeStampFile;
use crate::trial::{Directions, Trial, TrialResult};
use crate::trial_run::{Senders, TrialProfile};

pub use options::{FrameAccess, Preparation, TesterIdle, TesterOptions};
pub(crate) use ports::{TesterPort, number_of, peer_of};
pub(crate) use ready::Ready;

/// Default number of descriptors in a receive ring. It holds 0.4 ms of traffic at 10 million frames per second, so a short stall of the
/// tester loses no frame.
pub const RECEIVE_RING_SIZE: u16 = 4096;

/// Interval between two checks of the links.
const LINK_POLL_EVERY: Duration = Duration::from_millis(5);

/// A tester with its ports open.
#[derive(Debug)]
pub struct Tester {
    pub(crate) eal: Eal,
    pub(crate) pool: Mempool,
    pub(crate) ports: Vec<TesterPort>,
    pub(crate) options: TesterOptions,
    pub(crate) seccomp: Seccomp,
    /// Receiving ends when all frames have arrived.
    pub(crate) ends_when_complete: bool,
    pub(crate) trials: u64,
    calibrations: Vec<Calibration>,
    /// The calibration file with all its calibrations.
    source: Option<Source>,
    pub(crate) abort: Arc<AtomicBool>,
    /// The last traffic description prepared. All trials of a search use the same one.
    pub(crate) ready: Option<Ready>,
    /// File with the times of the low-rate frames of all trials.
    pub(crate) time_stamps: Option<TimeStampFile>,
}

/// Largest number of ports: a frame carries the port number in 8 bits.
const PORTS_MAX: usize = 64;
/// Buffers in addition to those that rings and bursts can hold at once.
const POOL_SPARE: u32 = 4096;

impl Tester {
    /// Opens ports, given as name and URI. `pool_name` must be unique in the process.
    ///
    /// # Errors
    /// [`TesterError`] if a port cannot be opened or an option is invalid.
    pub fn open(
        eal: &Eal,
        pool_name: &str,
        ports: &[(String, PortUri)],
        options: TesterOptions,
    ) -> Result<Self, TesterError> {
        if ports.is_empty() || ports.len() > PORTS_MAX {
            return Err(TesterError::BadTrial(format!(
                "{} ports are given (a tester supports 1 to {PORTS_MAX})",
                ports.len()
            )));
        }
        if options.cpus.is_empty() {
            return Err(TesterError::BadTrial(
                "the tester has no CPU (give at least one)".to_owned(),
            ));
        }
        let queues: u32 = ports.iter().map(|(_, uri)| u32::from(uri.queues())).sum();
        let of_queue =
            u32::from(options.receive_ring_size).saturating_add(options.ring_size.into());
        let rings = of_queue.saturating_mul(queues);
        let port_options = |name: &str, queues: u16| PortOptions {
            rx_queues: queues,
            tx_queues: queues,
            rx_ring_size: options.receive_ring_size,
            tx_ring_size: options.ring_size,
            ..PortOptions::new(name, options.frame_size_max)
        };
        let data_room = port_options("", 1).data_room();
        let kept: u32 = ports
            .iter()
            .map(|(_, uri)| uri.buffers_kept(data_room))
            .sum();
        begin_clock();
        let buffers = rings.saturating_add(kept).saturating_add(POOL_SPARE);
        let pool = Mempool::new(eal, pool_name, buffers, data_room)?;
        let ports = ports
            .iter()
            .map(|(name, uri)| {
                let options = port_options(name, uri.queues());
                let port = Port::open(eal, uri, &options, &pool)?.start()?;
                Ok(TesterPort {
                    drops_when_full: port.handle.drops_when_full(),
                    port,
                    is_card: matches!(uri, PortUri::Pci { .. }),
                })
            })
            .collect::<Result<_, TesterError>>()?;
        // The measurement of the clock must not delay the first trial.
        ticks_per_second();
        Ok(Self {
            eal: eal.clone(),
            pool,
            ports,
            options,
            seccomp: Seccomp::default(),
            ends_when_complete: false,
            trials: 0,
            calibrations: Vec::new(),
            source: None,
            abort: Arc::default(),
            ready: None,
            time_stamps: None,
        })
    }

    /// Returns the abort flag. Any thread can set it to end a running trial early with [`TesterError::Aborted`].
    #[must_use]
    pub fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    /// Replaces the abort flag by one that others set.
    pub fn abort_on(&mut self, flag: &Arc<AtomicBool>) {
        self.abort = Arc::clone(flag);
    }

    /// Returns the kind of this tester, which identifies its calibrations.
    #[must_use]
    pub fn kind(&self) -> TesterKind {
        TesterKind {
            ports: self
                .ports
                .iter()
                .take(self.paired())
                .map(|port| port.port.handle.uri().kind().name().to_owned())
                .collect(),
            cpu_model: TesterKind::cpu_model_here(),
            cpus: self.options.cpus.clone(),
            ring_size: self.options.ring_size,
            receive_ring_size: Some(self.options.receive_ring_size),
            realtime_priority: self.options.realtime_priority,
            idle: self.options.idle,
        }
    }

    /// Selects this tester's calibrations for citation in later results. Returns true if there is at least one.
    pub fn cite(&mut self, calibrations: &Calibrations) -> bool {
        self.calibrations = calibrations.of(&self.kind()).cloned().collect();
        !self.calibrations.is_empty()
    }

    /// Does the same as [`Self::cite`] with the calibrations of a file. `is_named` is true if the user named the file: the file is then
    /// expected to hold a calibration of this tester.
    ///
    /// # Errors
    /// Errors of [`Calibrations::read`].
    pub fn cite_file(&mut self, path: &Path, is_named: bool) -> Result<(), CalibrationsError> {
        let source = Source::read(path, is_named)?;
        self.cite(&source.all);
        self.source = Some(source);
        Ok(())
    }

    /// Returns the missing calibration if the file holds none of this tester or none of the trial's frames. Returns `None` if nothing is
    /// missing.
    #[must_use]
    pub fn missing_calibration(&self, trial: &Trial) -> Option<MissingCalibration> {
        self.source.as_ref()?.missing(&self.kind(), trial)
    }

    /// Returns the calibration that a trial at `rate_pps` frames per second cites. Returns `None` if no calibration covers its frames.
    #[must_use]
    pub fn cited(&self, trial: &Trial, rate_pps: f64) -> Option<CitedCalibration> {
        let mut calibrations = self.calibrations.iter();
        calibrations.find_map(|calibration| calibration.cited(trial, rate_pps))
    }

    /// Sets the real-time priority of the threads of later trials; `None` for ordinary priority.
    pub fn set_realtime_priority(&mut self, priority: Option<u8>) {
        self.options.realtime_priority = priority;
    }

    /// Sets the access to the frames of later trials.
    pub fn set_frame_access(&mut self, access: FrameAccess) {
        self.options.frame_access = access;
    }

    /// Sets the use of seccomp filters in the threads of later trials. Default: enforce.
    pub fn set_seccomp(&mut self, seccomp: Seccomp) {
        self.seccomp = seccomp;
    }

    /// Ends later trials before the end of their drain, when each frame has arrived at its port, if one thread serves all ports.
    /// Copies that come later are not counted. Default: false.
    pub fn set_ends_when_complete(&mut self, ends: bool) {
        self.ends_when_complete = ends;
    }

    /// Adds the transmit and receive times of the low-rate frames of later trials to a file. Default: none.
    pub fn record_time_stamps(&mut self, file: TimeStampFile) {
        self.time_stamps = Some(file);
    }

    /// Returns the file of [`Self::record_time_stamps`], for another tester. This one adds no times from then on.
    pub fn take_time_stamps(&mut self) -> Option<TimeStampFile> {
        self.time_stamps.take()
    }

    /// Returns the process ids of the peers of the ports, as far as they are known.
    #[must_use]
    pub fn peer_processes(&self) -> Vec<i32> {
        let ports = self.ports.iter();
        ports
            .filter_map(|port| port.port.handle.peer_process())
            .collect()
    }

    /// Returns the link speeds of the ports, Mbit/s; empty unless every port is a network card with a known speed.
    #[must_use]
    pub fn link_speeds_mbps(&self) -> Vec<u32> {
        let ports = self.ports.iter();
        let speeds = ports.map(|port| port.port.handle.speed_mbps().filter(|_| port.is_card));
        speeds.collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns the number of ports.
    #[must_use]
    pub fn port_count(&self) -> usize {
        self.ports.len()
    }

    /// Waits until every port has a link.
    ///
    /// # Errors
    /// [`TesterError::NoLink`] at the deadline, [`TesterError::Aborted`] after an abort.
    pub fn wait_for_links(&self, deadline: Duration) -> Result<(), TesterError> {
        let mut down = Vec::new();
        let outcome = Deadline::after(deadline).poll(LINK_POLL_EVERY, || {
            down = self.links_down();
            let is_aborted = self.abort.load(Ordering::Relaxed);
            match (down.is_empty(), is_aborted) {
                (true, _) => Some(Ok(())),
                (false, true) => Some(Err(TesterError::Aborted)),
                (false, false) => None,
            }
        });
        outcome.unwrap_or_else(|| {
            Err(TesterError::NoLink {
                ports: down.join(", "),
                waited_s: deadline.as_secs_f64(),
            })
        })
    }

    /// Sends short trials until the tester receives frames on every port that the trial's frames are addressed to. Returns false at the
    /// deadline. Some devices become ready only when a peer is connected. Misdirected frames count as well: the device is ready, and a
    /// trial shows what it does wrong. Only the frames and the rate of `trial` are used.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    pub fn wait_until_through(
        &mut self,
        trial: &Trial,
        deadline: Duration,
    ) -> Result<bool, TesterError> {
        let probe = Trial {
            duration_s: 0.1,
            warm_up_s: 0.0,
            drain_s: 0.2,
            ..trial.clone()
        };
        let deadline = Deadline::after(deadline);
        loop {
            // The trial that follows prepares the device. Here, a frame at each port is enough.
            let before = (self.ends_when_complete, self.options.preparation);
            (self.ends_when_complete, self.options.preparation) = (true, Preparation::default());
            let outcome = self.run(&probe);
            (self.ends_when_complete, self.options.preparation) = before;
            let result = outcome?;
            let mut ports = result.ports.iter().enumerate().filter(|(port, _)| {
                let sender = trial.directions.sender();
                sender.is_none_or(|sender| (*port == sender) == trial.reflected)
            });
            if ports.all(|(_, port)| port.received_frames > 0 || port.misdirected_frames > 0) {
                return Ok(true);
            }
            if deadline.has_passed() {
                return Ok(false);
            }
        }
    }

    pub(crate) fn links_down(&self) -> Vec<String> {
        self.ports
            .iter()
            .filter(|port| !port.port.handle.link_is_up())
            .map(|port| port.port.handle.name().to_owned())
            .collect()
    }

    /// Runs one trial.
    ///
    /// # Errors
    /// [`TesterError`] if the trial cannot be run. If the tester itself fails during the trial, the result is invalid instead.
    pub fn run(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        let senders = self.transmitting(trial)?;
        let pace = if trial.is_unpaced() {
            Pace::Unpaced
        } else {
            Pace::Rate(trial.offered_rate_pps / senders.count() as f64)
        };
        let profile = TrialProfile::of_load(pace, senders);
        Ok(self.run_trial(trial, &profile, &mut |_| ())?.result)
    }

    /// Runs one trial as fast as the tester can send. The rate of the trial becomes [`Trial::UNPACED`].
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    pub fn run_unpaced(&mut self, trial: &Trial) -> Result<TrialResult, TesterError> {
        self.run(&Trial {
            offered_rate_pps: Trial::UNPACED,
            ..trial.clone()
        })
    }

    /// Returns the number of ports that trials offer load on: pairs of ports, or a single port. An unpaired last port only receives, if
    /// the run uses it at all.
    pub(crate) fn paired(&self) -> usize {
        match self.ports.len() {
            1 => 1,
            ports => ports & !1,
        }
    }

    /// Returns the ports that transmit.
    pub(crate) fn transmitting(&self, trial: &Trial) -> Result<Senders, TesterError> {
        match (trial.directions, self.paired()) {
            (Directions::Reverse, 1) => Err(TesterError::BadTrial(
                "the second port is to send, and one is given (add a second port, or let the first one send)".to_owned(),
            )),
            (Directions::Both, 1) => Err(TesterError::BadTrial(
                "traffic in both directions requires two ports, and one is given (add a second port, or use one direction)".to_owned(),
            )),
            (Directions::Both, ports) => Ok(Senders::First(ports)),
            (Directions::OneWay, _) => Ok(Senders::First(1)),
            (Directions::Reverse, _) => Ok(Senders::Only(1)),
        }
    }

    /// Prepares the trial's traffic description before the timed part.
    pub(crate) fn prepare_traffic(&mut self, trial: &Trial) -> Result<(), TesterError> {
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

    pub(crate) fn receive_drops(&self, before: &[PortStats]) -> u64 {
        self.ports
            .iter()
            .zip(before)
            .map(|(port, before)| {
                let now = port.port.handle.stats();
                let drops = |of: &PortStats| of.rx_missed.saturating_add(of.rx_no_buffers);
                drops(&now).saturating_sub(drops(before))
            })
            .sum()
    }
}
