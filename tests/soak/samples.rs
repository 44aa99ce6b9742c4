// SPDX-License-Identifier: Apache-2.0
//! Samples of a soak.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use quietwire_host::proc::threads;
use quietwire_tester::{TrialResult, Validity};
use serde::Serialize;

use crate::network::{Network, configuration};
use crate::process::Footprint;
use crate::rig::{Switch, is_testers_own_loss, until, within};
use crate::traffic::RATE_PPS;
use crate::{CHANGES_MIN, GROWTH_ENDS, GROWTH_MAX_KIB, PAUSE};

/// Descriptors of the stock of packet sockets that a switch keeps for later ports, from its first port that is added on: two pairs.
const STOCK: usize = 4;

/// Time for the ends of connections.
const SETTLES: Duration = Duration::from_secs(10);
/// Number of looks for the descriptors at the start, half a second in all.
const LOOKS: usize = 50;

/// Waiting time of a forwarding thread for a CPU in a trial, from which on a loss is that of a starved thread: about as long as the rings
/// hold frames.
const STARVED: Duration = Duration::from_millis(200);
/// Largest share of the trials, which are equally long, that may be invalid. With more, the result is unknown.
const INVALID_MAX: f64 = 0.05;
/// Largest share of the trials of a run shorter than [`GROWTH_ENDS`] in which the machine or the tester may lose frames. Such a run has few
/// trials, and other tests at the same time. A trial without loss counts also if the tester was late.
const LOSING_MAX_SHORT: f64 = 0.75;

/// Judgement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Judgement {
    /// No frame was lost.
    Valid,
    /// The switch lost frames.
    Failed,
    /// The tester was too slow, or lost frames itself.
    InvalidTester,
    /// The machine did not run a forwarding thread.
    InvalidStarved,
}

impl Judgement {
    /// Judges a trial by its lost frames, the validity that the tester reports, whether the tester itself may have lost the frames, and the
    /// longest time that a forwarding thread waited for a CPU.
    ///
    /// A wait explains a loss only if it is longer than the rings hold frames, and only as many frames as arrive in that time.
    fn of(lost: u64, is_valid: bool, is_own_loss: bool, waited: Duration) -> Self {
        let explained = (waited.as_secs_f64() * RATE_PPS) as u64;
        match lost {
            0 if is_valid => Self::Valid,
            0 => Self::InvalidTester,
            _ if is_own_loss => Self::InvalidTester,
            _ if waited >= STARVED && lost <= explained => Self::InvalidStarved,
            _ => Self::Failed,
        }
    }

    fn is_invalid(self) -> bool {
        matches!(self, Self::InvalidTester | Self::InvalidStarved)
    }
}

/// A trial of the traffic.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// End of the trial since the start of the run, seconds.
    pub(crate) at_s: f64,
    pub(crate) is_valid: bool,
    pub(crate) judgement: Judgement,
    pub(crate) offered_frames: u64,
    /// Lost frames of a valid trial.
    pub(crate) lost_frames: u64,
    /// Lost frames of an invalid trial.
    pub(crate) excluded_frames: u64,
    pub(crate) p99_9_ns: Option<u64>,
    /// Since the frames were due, so including the delay of the tester. `None` if the trial is too short for it, or the tester did not
    /// send more than one of 10,000 frames.
    pub(crate) p99_99_ns: Option<u64>,
    pub(crate) max_ns: u64,
    /// Longest time for which a forwarding thread could run and had no CPU, in all, nanoseconds.
    pub(crate) waited_ns: u64,
    /// Changes since the start of the run.
    pub(crate) changes: u64,
    #[serde(flatten)]
    pub(crate) memory: Memory,
}

/// Resident memory of the switch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Memory {
    /// Without the reserved memory.
    pub(crate) resident_kib: u64,
    /// Part of the memory that `--memory-mib` reserves which was used at least once: it grows up to that size as ports come and go.
    pub(crate) reserved_kib: u64,
}

impl Memory {
    /// Returns the memory of a process, or nothing if it has ended.
    fn of(pid: u32) -> Self {
        let mappings = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let (mut memory, mut is_reserved) = (Self::default(), false);
        for line in mappings.lines() {
            if let Some(resident) = line.strip_prefix("Rss:") {
                let kib: u64 = resident
                    .trim_end_matches("kB")
                    .trim()
                    .parse()
                    .expect("a number of KiB");
                if is_reserved {
                    memory.reserved_kib += kib;
                } else {
                    memory.resident_kib += kib;
                }
            } else if line
                .split(' ')
                .next()
                .is_some_and(|first| first.contains('-'))
            {
                // DPDK reserves memory without huge pages in a file of this name.
                is_reserved = line.contains("/memfd:nohuge");
            }
        }
        memory
    }
}

/// Waiting times of the forwarding threads of a switch at a moment.
pub(crate) struct Waits {
    switch: i32,
    before: BTreeMap<i32, u64>,
}

impl Waits {
    /// Reads the times of now.
    pub(crate) fn of(switch: u32) -> Self {
        let switch = i32::try_from(switch).expect("a process ID");
        let before = Self::now(switch);
        Self { switch, before }
    }

    fn now(switch: i32) -> BTreeMap<i32, u64> {
        // A switch that has ended has no threads: other checks report that.
        let threads = threads(Path::new("/"), switch).unwrap_or_default();
        let forwarding = threads.into_iter().filter(|thread| {
            let name = fs::read_to_string(thread.path("comm"));
            name.is_ok_and(|name| name.starts_with("qw-fwd-"))
        });
        forwarding
            .filter_map(|thread| Some((thread.tid(), thread.run_delay_ns()?)))
            .collect()
    }

    /// Returns the longest time that one of them has waited for a CPU since.
    fn longest_since(&self) -> Duration {
        let waited = Self::now(self.switch).into_iter().map(|(tid, now)| {
            let before = self.before.get(&tid).copied().unwrap_or_default();
            now.saturating_sub(before)
        });
        Duration::from_nanos(waited.max().unwrap_or_default())
    }
}

/// The switch after all changes are undone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AtRest {
    pub(crate) at_s: f64,
    #[serde(flatten)]
    pub(crate) memory: Memory,
    pub(crate) descriptors: usize,
}

impl AtRest {
    /// Checks the configuration and the daemon's routes, and reads the resources.
    pub(crate) fn take(
        network: &Network,
        switch: &Switch,
        start: &str,
        descriptors: Option<usize>,
        at: Duration,
    ) -> Self {
        network.wait_for_routes(switch);
        // Entries that a port or a bridge took along, and peers that have just ended, are removed within moments.
        let mut observed = String::new();
        until("the configuration is that of the start", || {
            observed = configuration(switch);
            if observed != start {
                println!("{observed}");
            }
            (observed == start).then_some(())
        });
        let look = || Footprint::of(switch.pid()).expect("the switch runs");
        // The end of a connection takes moments too, also at the start. Descriptors that stay are found at the end of the run.
        let start = descriptors.unwrap_or_else(|| {
            let later = std::iter::repeat_with(|| {
                std::thread::sleep(PAUSE);
                look().descriptors
            });
            later.take(LOOKS).min().expect("at least one look")
        });
        within(SETTLES, || (look().descriptors == start).then_some(()));
        Self {
            at_s: at.as_secs_f64(),
            memory: Memory::of(switch.pid()),
            descriptors: look().descriptors,
        }
    }
}

/// All samples of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Samples {
    pub(crate) trials: Vec<Sample>,
    pub(crate) rests: Vec<AtRest>,
}

impl Samples {
    /// Adds a trial. A frame that was lost in one is a failure, unless the tester itself may have lost it, or the machine starved the switch.
    pub(crate) fn add(
        &mut self,
        at: Duration,
        (switch, waits): (u32, &Waits),
        trial: &TrialResult,
        changes: u64,
    ) {
        let result = serde_json::to_value(trial).unwrap();
        // Frames that the switch did not take are among them.
        let lost = trial.lost_frames;
        let is_own = is_testers_own_loss(&result);
        let waited = waits.longest_since();
        let is_valid = matches!(trial.validity, Validity::Valid);
        let judgement = Judgement::of(lost, is_valid, is_own, waited);
        assert_ne!(
            judgement,
            Judgement::Failed,
            "{lost} frames were lost or not taken, and forwarding threads waited {waited:?} for a CPU: {result}"
        );
        self.trials.push(Sample {
            at_s: at.as_secs_f64(),
            is_valid: judgement == Judgement::Valid,
            judgement,
            offered_frames: trial.offered_frames,
            lost_frames: if judgement.is_invalid() { 0 } else { lost },
            excluded_frames: if judgement.is_invalid() { lost } else { 0 },
            p99_9_ns: trial.latency.p99_9_ns,
            p99_99_ns: trial.latency.p99_99_ns,
            max_ns: trial.latency.max_ns,
            waited_ns: u64::try_from(waited.as_nanos()).unwrap(),
            changes,
            memory: Memory::of(switch),
        });
    }

    pub(crate) fn summary(&self) -> String {
        let invalid = self.count(Judgement::is_invalid);
        let excluded: u64 = self.trials.iter().map(|trial| trial.excluded_frames).sum();
        let offered: u64 = self.trials.iter().map(|trial| trial.offered_frames).sum();
        let starved = self.count(|one| one == Judgement::InvalidStarved);
        format!(
            "{} trials, {invalid} of them invalid ({starved} with a starved switch; {excluded} frames lost in invalid trials), {offered} frames; 99.9th percentile: {}; 99.99th percentile: {}; at rest: {:?}",
            self.trials.len(),
            self.tail(|trial| trial.p99_9_ns),
            self.tail(|trial| trial.p99_99_ns),
            self.rests
        )
    }

    fn count(&self, is_counted: impl Fn(Judgement) -> bool) -> usize {
        let trials = self.trials.iter();
        trials.filter(|trial| is_counted(trial.judgement)).count()
    }

    /// Checks that enough trials of a run show whether the switch loses frames.
    fn check_validity(&self, duration: Duration) {
        let all = self.trials.len();
        let (limit, unknown) = if duration >= GROWTH_ENDS {
            (INVALID_MAX, self.count(Judgement::is_invalid))
        } else {
            let losing = self.trials.iter().filter(|one| one.excluded_frames > 0);
            (LOSING_MAX_SHORT, losing.count())
        };
        assert!(
            all > 0 && unknown as f64 <= limit * all as f64,
            "the result is unknown: too many trials are invalid (run the soak on a quiet machine): {}",
            self.summary()
        );
    }

    /// Returns median and largest of a percentile of the trials that have it.
    fn tail(&self, of: impl Fn(&Sample) -> Option<u64>) -> String {
        let mut tails: Vec<u64> = self.trials.iter().filter_map(of).collect();
        tails.sort_unstable();
        match (tails.get(tails.len() / 2), tails.last()) {
            (Some(median), Some(largest)) => format!(
                "{median} ns (median of {} trials), {largest} ns (largest)",
                tails.len()
            ),
            _ => "of no trial".to_owned(),
        }
    }

    /// Checks what only the whole run shows.
    pub(crate) fn check(&self, duration: Duration, changes: u64) {
        self.check_validity(duration);
        let lossless = self.trials.iter().filter(|one| one.excluded_frames == 0);
        let frames: u64 = lossless.map(|trial| trial.offered_frames).sum();
        assert!(frames > 0, "no frame was sent: {:?}", self.trials);
        let (first, last) = (self.rests.first().unwrap(), self.rests.last().unwrap());
        let held: Vec<usize> = self.rests.iter().map(|rest| rest.descriptors).collect();
        // Ports that are added at run time fill the stock. One that fails may take of it. Nothing else adds.
        let stocked = first.descriptors..=first.descriptors + STOCK;
        assert!(held.iter().all(|one| stocked.contains(one)), "{held:?}");
        let hours = |seconds: f64| seconds / 3600.0;
        if duration >= GROWTH_ENDS {
            let rate = changes as f64 / hours(duration.as_secs_f64());
            assert!(rate >= CHANGES_MIN, "{rate} changes an hour");
        }
        let grown = self
            .rests
            .iter()
            .find(|rest| rest.at_s >= GROWTH_ENDS.as_secs_f64());
        let Some(grown) = grown.filter(|grown| grown.at_s < last.at_s) else {
            return;
        };
        let growth = last.memory.resident_kib as f64 - grown.memory.resident_kib as f64;
        let rate = growth / hours(last.at_s - grown.at_s);
        assert!(
            rate < GROWTH_MAX_KIB,
            "{rate} KiB an hour: {:?}",
            self.rests
        );
    }

    /// Writes the samples as JSON, and the plot.
    pub(crate) fn write(&self, directory: &Path, draw: &dyn Fn(&Path, &Self)) {
        fs::create_dir_all(directory).unwrap();
        let json = serde_json::to_string_pretty(self).unwrap();
        fs::write(directory.join("soak.json"), json).unwrap();
        draw(&directory.join("soak.svg"), self);
    }
}

/// A run with valid trials, and this many invalid ones, each of which lost so many frames.
fn run_with(valid: usize, (invalid, lost): (usize, u64), judgement: Judgement) -> Samples {
    let trial = |judgement: Judgement, lost| Sample {
        at_s: 0.0,
        is_valid: judgement == Judgement::Valid,
        judgement,
        offered_frames: 100,
        lost_frames: 0,
        excluded_frames: lost,
        p99_9_ns: None,
        p99_99_ns: None,
        max_ns: 1,
        waited_ns: 0,
        changes: 0,
        memory: Memory::default(),
    };
    let mut trials = vec![trial(Judgement::Valid, 0); valid];
    trials.extend(vec![trial(judgement, lost); invalid]);
    Samples {
        trials,
        rests: Vec::new(),
    }
}

#[test]
fn a_wait_for_a_cpu_explains_a_loss_only_if_it_is_long_and_the_loss_is_small() {
    let ms = Duration::from_millis;
    // In 300 ms, 3,000 frames arrive.
    for (lost, is_valid, is_own, waited, expected) in [
        (0, true, false, ms(0), Judgement::Valid),
        (0, true, false, ms(900), Judgement::Valid),
        (0, false, false, ms(0), Judgement::InvalidTester),
        (1, true, false, ms(0), Judgement::Failed),
        (1, false, false, ms(199), Judgement::Failed),
        (1, false, true, ms(0), Judgement::InvalidTester),
        (1, true, false, ms(200), Judgement::InvalidStarved),
        (3_000, true, false, ms(300), Judgement::InvalidStarved),
        (3_001, true, false, ms(300), Judgement::Failed),
    ] {
        let judgement = Judgement::of(lost, is_valid, is_own, waited);
        assert_eq!(judgement, expected, "{lost} lost, {waited:?}");
    }
}

#[test]
fn a_run_with_many_invalid_trials_has_an_unknown_result() {
    let is_known = |valid, invalid, judgement, duration| {
        let run = run_with(valid, invalid, judgement);
        std::panic::catch_unwind(|| run.check_validity(duration)).is_ok()
    };
    let short = Duration::from_secs(7);
    for judgement in [Judgement::InvalidTester, Judgement::InvalidStarved] {
        assert!(is_known(95, (5, 0), judgement, GROWTH_ENDS));
        assert!(!is_known(94, (6, 0), judgement, GROWTH_ENDS));
        assert!(is_known(1, (3, 1), judgement, short));
        assert!(!is_known(1, (4, 1), judgement, short));
        assert!(!is_known(0, (1, 1), judgement, short));
    }
    assert!(is_known(0, (1, 0), Judgement::InvalidTester, short));
    let none = is_known(0, (0, 0), Judgement::InvalidTester, short);
    assert!(!none, "no trial");
}
