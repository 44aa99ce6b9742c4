// SPDX-License-Identifier: Apache-2.0
//! Jitter measurement: one thread on each CPU reads the clock continuously. Every gap between two readings is time that the
//! CPU spent on other work (the method of oslat in rt-tests).

mod tracer;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};
use quietwire_base::proc::{Status, read};
use serde::{Deserialize, Serialize};

use crate::proc::{Line, PerCpu};
use crate::{CpuId, CpuList};

use tracer::THREAD;

pub use tracer::Source;

/// Errors of the measurement.
#[derive(Debug, thiserror::Error)]
pub enum JitterError {
    /// A CPU cannot be measured.
    #[error(
        "cannot measure CPU {cpu}: {cause} (use CPUs that are online and available to this process)"
    )]
    Cpu {
        /// The CPU.
        cpu: CpuId,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// No CPU was given.
    #[error("no CPUs to measure (give at least one CPU)")]
    NoCpus,
}

/// Minimum length of a counted gap, nanoseconds. Reading the clock takes less.
pub const GAP_NS: u64 = 1_000;
/// Gaps shorter than this have one counter per nanosecond.
const SHORT: usize = 4096;
/// Readings between two checks for the end of the measurement.
const ROUND: u32 = 1024;
/// Significant digits of the histogram.
const DIGITS: u8 = 3;

/// Results of one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CpuJitter {
    /// The CPU.
    pub cpu: CpuId,
    /// Duration of the measurement, nanoseconds.
    pub duration_ns: u64,
    /// Number of clock readings.
    pub readings: u64,
    /// Shortest time between two readings, nanoseconds, which is the cost of reading the clock.
    pub shortest_ns: u64,
    /// Longest gap, nanoseconds.
    pub longest_ns: u64,
    /// Number of gaps of at least 1 µs.
    pub gaps: u64,
    /// Sum of these gaps, nanoseconds: the time that the thread lost.
    pub lost_ns: u64,
    /// Histogram of gaps: each lower bound in nanoseconds, with the number of gaps up to the next bound.
    pub histogram: Vec<(u64, u64)>,
    /// Percentiles (50, 90, 99, 99.9) of the lengths of gaps of at least 1 µs.
    pub percentiles: Vec<(f64, u64)>,
    /// Involuntary context switches of the measuring thread.
    pub forced_switches: Option<u64>,
    /// Interrupts and softirqs of the CPU during the measurement, by the kernel's names.
    pub interrupts: Vec<(String, u64)>,
    /// Sources of gaps according to the kernel's osnoise tracer.
    pub sources: Vec<Source>,
}

/// Results of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JitterReport {
    /// Results of each CPU.
    pub cpus: Vec<CpuJitter>,
    /// Reason why the osnoise tracer is not available. `None` if it is.
    pub untraced: Option<String>,
}

/// Measures all `cpus` at the same time until `duration` is over or `stop` is set.
///
/// # Errors
/// [`JitterError`].
pub fn measure(
    cpus: &CpuList,
    duration: Duration,
    stop: &AtomicBool,
) -> Result<JitterReport, JitterError> {
    if cpus.is_empty() {
        return Err(JitterError::NoCpus);
    }
    let root = Path::new("/");
    let (tracer, mut untraced) = match tracer::Tracer::start(root, cpus) {
        Ok(tracer) => (Some(tracer), None),
        Err(why) => (None, Some(why)),
    };
    let before = counts(root, cpus);
    let measured: Result<Vec<Measured>, JitterError> = thread::scope(|scope| {
        let spawn = |cpu: CpuId| {
            let thread = thread::Builder::new().name(format!("{THREAD}{cpu}"));
            (
                cpu,
                thread.spawn_scoped(scope, move || on_cpu(cpu, duration, stop)),
            )
        };
        let threads: Vec<_> = cpus.iter().map(spawn).collect();
        let mut measured = Vec::new();
        for (cpu, thread) in threads {
            let failed = |cause| JitterError::Cpu { cpu, cause };
            let joined = thread.map_err(failed)?.join();
            let joined = joined.map_err(|_| failed(io::Error::other("its thread panicked")))?;
            measured.push(joined.map_err(failed)?);
        }
        Ok(measured)
    });
    let measured = measured?;
    let after = counts(root, cpus);
    let sources = match tracer.map(tracer::Tracer::finish) {
        Some(Ok(sources)) => sources,
        Some(Err(error)) => {
            untraced = Some(error.to_string());
            Vec::new()
        }
        None => Vec::new(),
    };
    let cpus = measured
        .into_iter()
        .map(|measured| {
            let interrupts = before
                .iter()
                .zip(&after)
                .flat_map(|(before, after)| of_cpu(&after.since(before), measured.cpu))
                .collect();
            let sources = sources
                .iter()
                .filter(|source| source.cpu == measured.cpu)
                .cloned()
                .collect();
            measured.report(interrupts, sources)
        })
        .collect();
    Ok(JitterReport { cpus, untraced })
}

fn counts(root: &Path, cpus: &CpuList) -> Vec<PerCpu> {
    ["proc/interrupts", "proc/softirqs"]
        .iter()
        .map(|file| {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            PerCpu::parse(&text, |cpu| cpus.contains(cpu)).unwrap_or_default()
        })
        .collect()
}

fn of_cpu(counts: &PerCpu, cpu: CpuId) -> Vec<(String, u64)> {
    let of_line = |(name, line): (&String, &Line)| {
        let count = *line.counts.get(&cpu)?;
        let name = if line.what.is_empty() {
            name.clone()
        } else {
            format!("{name} {}", line.what)
        };
        Some((name, count))
    };
    counts.lines.iter().filter_map(of_line).collect()
}

struct Measured {
    cpu: CpuId,
    duration_ns: u64,
    readings: u64,
    short: Vec<u64>,
    long: Histogram<u64>,
    forced_switches: Option<u64>,
}

/// Reads the clock that is not adjusted (`CLOCK_MONOTONIC_RAW`), nanoseconds.
fn now_ns() -> io::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)?;
    let (seconds, nanoseconds) = (now.tv_sec(), now.tv_nsec());
    let total = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds);
    Ok(u64::try_from(total).unwrap_or(0))
}

fn forced_switches() -> Option<u64> {
    let text = read(Path::new("/proc/thread-self/status")).ok()?;
    Status::new(&text).involuntary_switches()
}

fn on_cpu(cpu: CpuId, duration: Duration, stop: &AtomicBool) -> io::Result<Measured> {
    let own: CpuList = [cpu].into_iter().collect();
    // 0 means the calling thread.
    crate::threads::set_affinity(0, &own)?;
    let mut short = vec![0u64; SHORT];
    let mut long = Histogram::new_with_bounds(1, u64::MAX / 2, DIGITS).map_err(io::Error::other)?;
    let switches = forced_switches();
    let began = now_ns()?;
    let end = began.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    let (mut last, mut readings) = (began, 0u64);
    while last < end && !stop.load(Ordering::Relaxed) {
        for _ in 0..ROUND {
            let now = now_ns()?;
            let gap = now.saturating_sub(last);
            last = now;
            match short.get_mut(usize::try_from(gap).unwrap_or(usize::MAX)) {
                Some(count) => *count = count.saturating_add(1),
                None => long.saturating_record(gap),
            }
        }
        readings = readings.saturating_add(u64::from(ROUND));
    }
    Ok(Measured {
        cpu,
        duration_ns: last.saturating_sub(began),
        readings,
        short,
        long,
        forced_switches: switches
            .zip(forced_switches())
            .map(|(before, after)| after.saturating_sub(before)),
    })
}

impl Measured {
    fn report(self, interrupts: Vec<(String, u64)>, sources: Vec<Source>) -> CpuJitter {
        let mut all = self.long;
        for (gap, count) in self
            .short
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            all.saturating_record_n(gap as u64, *count);
        }
        let mut gaps = all.clone();
        gaps.clear();
        let (mut lost_ns, mut histogram) = (0u64, Vec::<(u64, u64)>::new());
        for step in all.iter_recorded() {
            let (gap, count) = (step.value_iterated_to(), step.count_at_value());
            let bound = gap.checked_ilog2().map_or(0, |power| 1u64 << power);
            match histogram.last_mut() {
                Some((last, total)) if *last == bound => *total = total.saturating_add(count),
                _ => histogram.push((bound, count)),
            }
            if gap >= GAP_NS {
                lost_ns = gap.saturating_mul(count).saturating_add(lost_ns);
                gaps.saturating_record_n(gap, count);
            }
        }
        CpuJitter {
            cpu: self.cpu,
            duration_ns: self.duration_ns,
            readings: self.readings,
            shortest_ns: all.min(),
            longest_ns: all.max(),
            gaps: gaps.len(),
            lost_ns,
            histogram,
            percentiles: [50.0, 90.0, 99.0, 99.9]
                .iter()
                .map(|share| (*share, gaps.value_at_percentile(*share)))
                .collect(),
            forced_switches: self.forced_switches,
            interrupts,
            sources,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_reported_by_length() {
        let mut short = vec![0; SHORT];
        short[30] = 1000;
        short[2000] = 3;
        let mut long = Histogram::new_with_bounds(1, u64::MAX / 2, DIGITS).unwrap();
        long.record(50_000).unwrap();
        let measured = Measured {
            cpu: CpuId(3),
            duration_ns: 86_000,
            readings: 1004,
            short,
            long,
            forced_switches: Some(1),
        };
        let report = measured.report(Vec::new(), Vec::new());
        assert_eq!((report.shortest_ns, report.gaps), (30, 4));
        let close = |observed: u64, wanted: u64| observed.abs_diff(wanted) * 500 <= wanted;
        assert!(
            close(report.longest_ns, 50_000) && close(report.lost_ns, 56_000),
            "{report:?}"
        );
        assert_eq!(report.histogram, [(16, 1000), (1024, 3), (32_768, 1)]);
        assert!(close(report.percentiles[0].1, 2000), "{report:?}");
    }

    #[test]
    fn this_machine_is_measured() {
        let cpus = crate::threads::online_cpus(Path::new("/")).unwrap();
        let stop = AtomicBool::new(false);
        let report = measure(&cpus, Duration::from_millis(50), &stop).unwrap();
        assert_eq!(report.cpus.len(), cpus.len());
        for cpu in &report.cpus {
            let counted: u64 = cpu.histogram.iter().map(|(_, count)| count).sum();
            assert_eq!(counted, cpu.readings);
            assert!(
                cpu.readings > 0 && cpu.longest_ns >= cpu.shortest_ns,
                "{cpu:?}"
            );
            assert!(
                cpu.lost_ns <= cpu.duration_ns + cpu.duration_ns / 500,
                "{cpu:?}"
            );
        }
        let nowhere = measure(&"8000".parse().unwrap(), Duration::from_millis(1), &stop);
        assert!(
            matches!(nowhere, Err(JitterError::Cpu { .. })),
            "{nowhere:?}"
        );
        assert!(measure(&CpuList::new(), Duration::from_millis(1), &stop).is_err());
    }
}
