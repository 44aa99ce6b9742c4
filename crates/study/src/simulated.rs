// SPDX-License-Identifier: Apache-2.0
//! A simulated bench, for tests of the study loop and of programs that use stored results. Every machine inventory
//! says that it is simulated.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quietwire_base::random::fraction;
use quietwire_host::inventory::Inventory;
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::Intensity;
use quietwire_monitor::{Activity, CpuActivity, ThreadActivity};
use quietwire_search::procedure::Action;
use quietwire_tester::account::{Accounted, LossAccount, LossPlace, LossReason};
use quietwire_tester::{
    DelayVariation, DevicePoint, FramePoint, GeneratorIdentity, InvalidCause, LOW_RATE_PPS,
    LatencySummary, LowRateStreams, PERCENTILES, PortResult, SignedSummary, TesterHealth,
    TimeHistogram, Trial, TrialResult, TrialSeries, Validity, bears_percentile,
};

use crate::activity::TrialActivity;
use crate::bench::{
    ActionOutcome, Bench, BenchError, CaseSkipped, CaseSpec, Interrupted, Measured,
};
use crate::case_settings::{CaseSettings, Environment, GeneratorCase, MachineRecord, Versions};
use crate::file::{FrameSize, NeighboursIn};

/// Maximum rate of the simulated tester, frames per second.
pub const MAX_RATE_PPS: f64 = 10e6;

/// Behaviour of the simulated device in one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behaviour {
    /// Rate above which it loses frames, frames per second.
    pub capacity_pps: f64,
    /// Share of the trials in which it loses a few frames below that rate.
    pub flaw_ratio: f64,
    /// Mean latency at a low load, nanoseconds.
    pub latency_ns: f64,
    /// Share of the forwarding CPU that neighbours take, 0 to 1.
    pub stolen_ratio: f64,
}

/// Simulated bench. All results depend only on the seed and the number of the trial.
#[derive(Clone, Debug)]
pub struct SimulatedBench {
    seed: u64,
    made: u64,
    case: Option<CaseSpec>,
    /// Share of the trials in which the tester fails, 0 to 1.
    pub invalid_ratio: f64,
    /// Fails with an error at this trial, counted from 0 over the whole study.
    pub fails_at: Option<u64>,
    /// An unavailable case, with the reason.
    pub unavailable: Option<(String, String)>,
    /// A case whose device does not start, with the reason.
    pub left_out: Option<(String, CaseSkipped)>,
    /// A case whose setup is interrupted.
    pub given_up: Option<String>,
    /// Console output of a guest in every case; none without guests.
    pub console: Option<String>,
    /// Maximum rate that it measures, frames per second.
    pub measured_max_rate_pps: f64,
    /// Whether searches may go beyond that rate.
    pub raises_max_rate: bool,
    /// Number of cases entered and left.
    pub entered_and_left: (u32, u32),
}

/// Returns a loss account in which most frames are lost at the transmit queue, and a few inside the device.
fn account(lost_frames: u64) -> LossAccount {
    let place = |port: &str, reason: &str, frames| LossPlace {
        element: "S".to_owned(),
        port: port.to_owned(),
        reason: reason.to_owned(),
        frames,
    };
    let within = lost_frames / 10;
    let mut places = vec![
        place("p1", "tx_full", lost_frames - within),
        place("p0", LossReason::NotSent.name(), within),
    ];
    places.retain(|place| place.frames > 0);
    LossAccount {
        lost_frames,
        places,
        ..LossAccount::default()
    }
}

impl SimulatedBench {
    /// Returns a bench on which `made` trials of the study have already run.
    #[must_use]
    pub fn new(seed: u64, made: u64) -> Self {
        Self {
            seed,
            made,
            case: None,
            invalid_ratio: 0.05,
            fails_at: None,
            unavailable: None,
            left_out: None,
            given_up: None,
            console: None,
            measured_max_rate_pps: MAX_RATE_PPS,
            raises_max_rate: false,
            entered_and_left: (0, 0),
        }
    }

    fn behaviour(&self) -> Behaviour {
        let neighbours = self.case.as_ref().map(|spec| spec.case.neighbours);
        match neighbours {
            None | Some(NeighboursIn::None) => Behaviour {
                capacity_pps: 6.4e6,
                flaw_ratio: 0.04,
                latency_ns: 2_400.0,
                stolen_ratio: 0.02,
            },
            Some(
                NeighboursIn::Everywhere | NeighboursIn::Siblings | NeighboursIn::ForwardingCpus,
            ) => Behaviour {
                capacity_pps: 0.23e6,
                flaw_ratio: 0.35,
                latency_ns: 310_000.0,
                stolen_ratio: 0.63,
            },
            Some(_) => Behaviour {
                capacity_pps: 6.2e6,
                flaw_ratio: 0.08,
                latency_ns: 2_600.0,
                stolen_ratio: 0.03,
            },
        }
    }

    fn dice(&self, throw: u64) -> f64 {
        fraction(self.seed, self.made * 8 + throw)
    }

    fn result(&self, trial: &Trial, behaviour: &Behaviour) -> Result<TrialResult, BenchError> {
        let offered = (trial.offered_rate_pps * trial.duration_s) as u64;
        let capacity = behaviour.capacity_pps * (0.97 + 0.06 * self.dice(0));
        let mut loss = (1.0 - capacity / trial.offered_rate_pps).max(0.0);
        if loss == 0.0 && self.dice(1) < behaviour.flaw_ratio {
            loss = 10f64.powf(-6.0 + 3.0 * self.dice(2));
        }
        let lost = (offered as f64 * loss).round() as u64;
        let is_invalid = self.dice(3) < self.invalid_ratio;
        let load = (trial.offered_rate_pps / capacity).min(0.98);
        let at_load = |load: f64| behaviour.latency_ns * (1.0 + load * load / (1.0 - load));
        let latency_ns = at_load(load);
        // Few different loads, so that most of these streams are known.
        let low_rate_ns = at_load((load * 10.0).floor() / 10.0);
        let received = offered - lost.min(offered);
        let (latency, variation) = times(latency_ns, received, behaviour.stolen_ratio)?;
        let elapsed_s = trial.duration_s;
        Ok(TrialResult {
            trial: trial.clone(),
            started_unix_ns: 1_790_000_000_000_000_000 + self.made * 1_500_000_000,
            elapsed_s,
            scheduled_frames: offered,
            offered_frames: offered,
            received_frames: received,
            lost_frames: offered - received,
            loss_ratio: (offered - received) as f64 / (offered.max(1)) as f64,
            duplicate_frames: 0,
            reordered_frames: 0,
            damaged_frames: 0,
            damage_check: None,
            stale_frames: 0,
            achieved_rate_pps: offered as f64 / elapsed_s,
            forwarding_rate_pps: received as f64 / elapsed_s,
            latency,
            variation,
            low_rate: low_rate(low_rate_ns, received, behaviour.stolen_ratio)?,
            ports: vec![PortResult {
                name: "left".to_owned(),
                offered_frames: offered,
                refused_frames: lost.min(offered),
                received_frames: received,
                ..PortResult::default()
            }],
            flows: Vec::new(),
            health: TesterHealth {
                unsent_frames: if is_invalid { offered / 20 } else { 0 },
                pacing_miss_ratio: if is_invalid { 0.05 } else { 0.0001 },
                late_bursts: 7,
                bursts: offered / 32,
                longest_gap_ns: (2e5 + 6e6 * self.dice(4).powi(8)) as u64,
                gaps_over_100us: 3,
                gap_time_ns: 900_000,
                realtime: true,
                idle_ratio: Some(0.25),
                ..TesterHealth::default()
            },
            calibration: None,
            loss_account: Some(Accounted::Account(account(lost.min(offered)))),
            series: series(elapsed_s, (offered, received), latency_ns),
            validity: if is_invalid {
                Validity::Invalid(vec![InvalidCause::RateMissed.because(
                    "the tester offered too few frames of its schedule: the rate was missed by 5.000 %, and 1.000 % is the limit",
                )])
            } else {
                Validity::Valid
            },
        })
    }

    fn activity(&self, behaviour: &Behaviour) -> TrialActivity {
        let stolen = behaviour.stolen_ratio * (0.9 + 0.2 * self.dice(5));
        let cpu = |cpu, user_s, system_s| CpuActivity {
            cpu,
            user_s,
            system_s,
            idle_s: 0.01,
            softirq_s: 0.003,
            steal_s: 0.005,
            ..CpuActivity::default()
        };
        let thread =
            |tid, name: &str, cpu, cpu_time_s, involuntary: f64, migrations| ThreadActivity {
                pid: 100,
                tid,
                name: name.to_owned(),
                cpu,
                cpu_time_s,
                voluntary_switches: 2,
                nonvoluntary_switches: involuntary as u64,
                migrations: Some(migrations),
                ..ThreadActivity::default()
            };
        let moved = (stolen * 20.0 * self.dice(6)) as u64;
        let machine = Activity {
            elapsed_s: 1.3,
            cpus: vec![
                cpu(0, 1.25, 0.02),
                cpu(1, 1.27 - 0.2 * stolen, 0.2 * stolen),
            ],
            threads: vec![
                thread(101, "tester", 0, 1.28, 3.0, 0),
                thread(
                    102,
                    "forwarding-0",
                    1,
                    1.29 * (1.0 - stolen),
                    400.0 * stolen,
                    moved,
                ),
                thread(103, "control", 0, 0.001, 1.0, 0),
            ],
            ..Activity::default()
        };
        let spec = self.case.as_ref();
        let has_neighbours = spec.is_some_and(|spec| spec.case.neighbours != NeighboursIn::None);
        TrialActivity {
            machine: Some(machine),
            elements: Vec::new(),
            neighbours: has_neighbours.then(|| Intensity {
                threads: 5,
                cpus: 2,
                cpu_time_s: 2.6 * 0.9,
                elapsed_s: 1.3,
                share: 0.9 - 0.1 * self.dice(7),
                network_pps: None,
            }),
        }
    }
}

/// Returns a skewed distribution with approximately this mean.
fn latency(mean_ns: f64, samples: u64, stolen: f64) -> Result<LatencySummary, BenchError> {
    if samples == 0 {
        return Ok(LatencySummary::default());
    }
    let mut histogram = TimeHistogram::default();
    // Each value once: its ends are those of the distribution, also if there are fewer samples than slices.
    let mut distribution = TimeHistogram::default();
    // As many as figures need. Tests run thousands of trials, whose histograms are encoded and stored.
    let slices = 100u64;
    let mut left = samples;
    for slice in 0..slices {
        let quantile = (slice as f64 + 0.5) / slices as f64;
        let tail = if quantile > 0.99 {
            1.0 + 40.0 * stolen
        } else {
            1.0
        };
        let value = mean_ns * (0.55 - 0.45 * (1.0 - quantile).ln()) * tail;
        let count = (samples / slices).min(left);
        histogram.record(value as u64, count);
        distribution.record(value as u64, 1);
        left -= count;
    }
    let late = (mean_ns * 30.0) as u64;
    histogram.record(late, left.max(1));
    distribution.record(late, 1);
    let samples = histogram.samples();
    let values = histogram.at_percentiles(&PERCENTILES);
    let mut percentiles = PERCENTILES.into_iter().zip(values);
    let mut next = || {
        let (percentile, value_ns) = percentiles.next()?;
        bears_percentile(samples, percentile).then_some(value_ns)
    };
    Ok(LatencySummary {
        samples,
        min_ns: distribution.min_ns(),
        mean_ns: histogram.mean_ns(),
        p50_ns: next(),
        p90_ns: next(),
        p99_ns: next(),
        p99_9_ns: next(),
        p99_99_ns: next(),
        max_ns: distribution.max_ns(),
        histogram_v2_base64: histogram.encoded()?,
    })
}

/// Returns a symmetric delay variation for such a latency.
fn variation(mean_ns: f64, samples: u64, stolen: f64) -> Result<DelayVariation, BenchError> {
    let pdv = latency(mean_ns * 0.45, samples, stolen)?;
    let half = latency(mean_ns * 0.4, samples / 2, stolen)?;
    let up = SignedSummary {
        samples: half.samples,
        min_ns: half.min_ns.cast_signed(),
        mean_ns: half.mean_ns,
        max_ns: half.max_ns.cast_signed(),
        histogram_v2_base64: half.histogram_v2_base64.clone(),
        ..SignedSummary::default()
    };
    let down = SignedSummary {
        samples: half.samples,
        undefined: 0,
        min_ns: -half.max_ns.cast_signed(),
        mean_ns: -half.mean_ns,
        max_ns: -half.min_ns.cast_signed(),
        negative_histogram_v2_base64: half.histogram_v2_base64,
        ..SignedSummary::default()
    };
    Ok(DelayVariation {
        ipdv: SignedSummary::merged([&up, &down])?,
        pdv,
    })
}

/// Times of the frames of trials, by what they are computed from.
type KnownTimes = BTreeMap<(u64, u64, u64), (LatencySummary, DelayVariation)>;

/// Maximum number of trials whose times are kept: some 3 kB each.
const KNOWN_MAX: usize = 2048;

/// Tests run the same trials again and again, to compare an interrupted study with a whole one.
static KNOWN: Mutex<KnownTimes> = Mutex::new(BTreeMap::new());

/// Returns the latency and the delay variation of the frames of a trial.
fn times(
    mean_ns: f64,
    samples: u64,
    stolen: f64,
) -> Result<(LatencySummary, DelayVariation), BenchError> {
    let key = (mean_ns.to_bits(), samples, stolen.to_bits());
    let all = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all().get(&key).cloned();
    if let Some(times) = known {
        return Ok(times);
    }
    let times = (
        latency(mean_ns, samples, stolen)?,
        variation(mean_ns, samples, stolen)?,
    );
    let mut all = all();
    if all.len() < KNOWN_MAX {
        all.insert(key, times.clone());
    }
    Ok(times)
}

/// Low-rate streams by what they are computed from: each takes as long as the other frames of a trial.
static LOW_RATES: Mutex<BTreeMap<(u64, u64, u64), LowRateStreams>> = Mutex::new(BTreeMap::new());

/// Returns a low-rate stream with as many frames as a ten-second trial has at 5 frames per second.
fn low_rate(mean_ns: f64, received: u64, stolen: f64) -> Result<LowRateStreams, BenchError> {
    let frames = received.min(50);
    let key = (mean_ns.to_bits(), frames, stolen.to_bits());
    let all = || LOW_RATES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all().get(&key).cloned();
    if let Some(streams) = known {
        return Ok(streams);
    }
    let streams = LowRateStreams {
        rate_pps: LOW_RATE_PPS,
        offered_frames: frames,
        received_frames: frames,
        latency: latency(mean_ns, frames, stolen)?,
        variation: variation(mean_ns, frames, stolen)?,
    };
    all().insert(key, streams.clone());
    Ok(streams)
}

/// Intervals of a trial.
const INTERVALS: u64 = 10;
/// Cycles that the simulated device counts for a frame.
const CYCLES_PER_FRAME: u64 = 250;

/// Returns the course of a trial whose latency grows by a tenth.
fn series(elapsed_s: f64, (offered, received): (u64, u64), latency_ns: f64) -> TrialSeries {
    let mut series = TrialSeries::default();
    for index in 0..INTERVALS {
        let part = |frames: u64| frames * (index + 1) / INTERVALS - frames * index / INTERVALS;
        let end_s = elapsed_s * (index + 1) as f64 / INTERVALS as f64;
        let latency_ns = latency_ns * (1.0 + index as f64 / 100.0);
        let has_frames = part(received) > 0;
        series.frames.push(FramePoint {
            end_s,
            offered_frames: part(offered),
            received_frames: part(received),
            latency_mean_ns: has_frames.then_some(latency_ns),
            latency_max_ns: has_frames.then_some((3.0 * latency_ns) as u64),
        });
        series.device.push(DevicePoint {
            end_s,
            cycles: part(received) * CYCLES_PER_FRAME,
            frames: part(received),
        });
    }
    series
}

/// Returns the identity of the simulation.
fn generator() -> GeneratorIdentity {
    GeneratorIdentity {
        name: "simulated bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        details: "arithmetic, no machine".to_owned(),
        is_simulated: true,
    }
}

impl Bench for SimulatedBench {
    fn environment(&mut self) -> Environment {
        Environment {
            machine: MachineRecord::Inventory(Box::new(Inventory {
                cpu_model: Some("none <simulated> & \"quoted\"".to_owned()),
                cpus_online: Some(CpuList::from_iter([CpuId(0), CpuId(1)])),
                ..Inventory::default()
            })),
            versions: Versions::Generator {
                quietwire: env!("CARGO_PKG_VERSION").to_owned(),
                generator: generator(),
            },
        }
    }

    fn unavailable(&mut self, case: &CaseSpec) -> Option<String> {
        let (name, reason) = self.unavailable.as_ref()?;
        (*name == case.case.name).then(|| reason.clone())
    }

    fn enter_case(&mut self, case: &CaseSpec) -> Result<CaseSettings, BenchError> {
        if self.unavailable(case).is_some() {
            return Err("an unavailable case was entered".into());
        }
        if self.case.is_some() {
            return Err("a case was entered before the previous one was left".into());
        }
        if let Some((_, why)) = self
            .left_out
            .as_ref()
            .filter(|(name, _)| *name == case.case.name)
        {
            return Err(why.clone().into());
        }
        if self.given_up.as_ref() == Some(&case.case.name) {
            return Err(Interrupted.into());
        }
        self.entered_and_left.0 += 1;
        self.case = Some(case.clone());
        Ok(CaseSettings::Generator(Box::new(GeneratorCase {
            case: case.case.name.clone(),
            generator: generator(),
            isolation: None,
            calibration_missing: Vec::new(),
        })))
    }

    fn consoles(&mut self) -> Result<BTreeMap<String, String>, BenchError> {
        let printed = self.console.iter().cloned();
        Ok(printed.map(|printed| ("V".to_owned(), printed)).collect())
    }

    fn leave_case(&mut self) -> Result<(), BenchError> {
        self.entered_and_left.1 += 1;
        self.case
            .take()
            .map(|_| ())
            .ok_or_else(|| "no case is entered".into())
    }

    fn pause_after_invalid(&self, _in_a_row: u32) -> Duration {
        Duration::ZERO
    }

    fn calibrate(&mut self, _frame_size: FrameSize) -> Result<f64, BenchError> {
        Ok(self.measured_max_rate_pps)
    }

    fn raises_max_rate(&self) -> bool {
        self.raises_max_rate
    }

    fn run(&mut self, trial: &Trial) -> Result<Measured, BenchError> {
        if self.case.is_none() {
            return Err("no case is entered".into());
        }
        trial.validate()?;
        if self.fails_at == Some(self.made) {
            return Err("the simulated device died".into());
        }
        let behaviour = self.behaviour();
        let measured = Measured {
            result: self.result(trial, &behaviour)?,
            activity: self.activity(&behaviour),
        };
        self.made += 1;
        Ok(measured)
    }

    fn act(&mut self, _action: &Action, _frames: &Trial) -> Result<ActionOutcome, BenchError> {
        Err(
            "this bench supports trials only (for procedures, use a GeneratorBench on a SimulatedDevice)"
                .into(),
        )
    }
}
