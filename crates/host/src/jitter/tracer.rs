// SPDX-License-Identifier: Apache-2.0
//! Sources of gaps from the events of the kernel's osnoise tracer (kernel documentation: trace/osnoise-tracer.rst). Uses a
//! separate trace instance, without the tracer's own workload.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuList};

/// Prefix of the names of measuring threads. The CPU follows.
pub(super) const THREAD: &str = "qw-jitter-";

/// Source of gaps on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The CPU.
    pub cpu: CpuId,
    /// `nmi`, `irq`, `softirq` or `thread`.
    pub kind: String,
    /// Name in the kernel.
    pub name: String,
    /// Number of occurrences.
    pub count: u64,
    /// Total duration, nanoseconds.
    pub total_ns: u64,
    /// Maximum duration, nanoseconds.
    pub longest_ns: u64,
}

const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
const INSTANCE: &str = "instances/quietwire-jitter";
const NO_LOAD: &str = "NO_OSNOISE_WORKLOAD";

/// A running tracer. Dropping it restores all settings that it changed.
#[derive(Debug)]
pub(super) struct Tracer {
    instance: PathBuf,
    /// Changed files with their original text, in the order of writing.
    former: Vec<(PathBuf, String)>,
}

impl Tracer {
    /// Starts the tracer, or returns why it is not available.
    pub(super) fn start(root: &Path, cpus: &CpuList) -> Result<Self, String> {
        let place = PLACES
            .iter()
            .map(|place| root.join(place))
            .find(|place| place.join("available_tracers").exists())
            .ok_or("tracefs is not mounted or not accessible (run: mount -t tracefs none /sys/kernel/tracing)")?;
        let tracers = fs::read_to_string(place.join("available_tracers"));
        let tracers =
            tracers.map_err(|error| format!("cannot read the kernel's tracers: {error}"))?;
        if !tracers.split_whitespace().any(|name| name == "osnoise") {
            return Err(format!(
                "the kernel is built without the osnoise tracer (CONFIG_OSNOISE_TRACER); available: {}",
                tracers.trim()
            ));
        }
        let options = place.join("osnoise/options");
        let known = fs::read_to_string(&options).unwrap_or_default();
        if !known.contains("OSNOISE_WORKLOAD") {
            return Err(
                "the osnoise tracer of this kernel always runs its own workload (use Linux 6.1 or later)"
                    .to_owned(),
            );
        }
        Self::start_at(&place, &options, &known, cpus)
            .map_err(|error| format!("cannot start the osnoise tracer: {error}"))
    }

    fn start_at(place: &Path, options: &Path, known: &str, cpus: &CpuList) -> io::Result<Self> {
        let mut tracer = Self {
            instance: place.join(INSTANCE),
            former: Vec::new(),
        };
        if !known.split_whitespace().any(|option| option == NO_LOAD) {
            tracer.write(options.to_owned(), "OSNOISE_WORKLOAD", NO_LOAD)?;
        }
        let file = place.join("osnoise/cpus");
        let former = fs::read_to_string(&file)?;
        tracer.write(file, former.trim(), &cpus.to_string())?;
        match fs::create_dir(&tracer.instance) {
            // A killed process left its instance.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        fs::write(tracer.instance.join("trace"), "")?;
        fs::write(tracer.instance.join("events/osnoise/enable"), "1")?;
        fs::write(tracer.instance.join("current_tracer"), "osnoise")?;
        Ok(tracer)
    }

    fn write(&mut self, file: PathBuf, former: &str, value: &str) -> io::Result<()> {
        self.former.push((file.clone(), former.to_owned()));
        fs::write(file, value)
    }

    /// Stops the tracer and returns the sources of gaps.
    pub(super) fn finish(self) -> io::Result<Vec<Source>> {
        let trace = fs::read_to_string(self.instance.join("trace"))?;
        Ok(sources(&trace))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Errors have no consequence here: the next tracer sets all files again.
        drop(fs::write(self.instance.join("current_tracer"), "nop"));
        drop(fs::remove_dir(&self.instance));
        for (file, former) in self.former.iter().rev() {
            drop(fs::write(file, former));
        }
    }
}

/// Sums the events of a trace, except those of the measuring threads.
fn sources(trace: &str) -> Vec<Source> {
    let mut found: BTreeMap<(CpuId, String, String), (u64, u64, u64)> = BTreeMap::new();
    for line in trace
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let Some((cpu, kind, name, duration_ns)) = event(line) else {
            continue;
        };
        if name.starts_with(THREAD) {
            continue;
        }
        let (count, total, longest) = found.entry((cpu, kind, name)).or_default();
        *count = count.saturating_add(1);
        *total = total.saturating_add(duration_ns);
        *longest = (*longest).max(duration_ns);
    }
    let mut sources: Vec<Source> = found
        .into_iter()
        .map(
            |((cpu, kind, name), (count, total_ns, longest_ns))| Source {
                cpu,
                kind,
                name,
                count,
                total_ns,
                longest_ns,
            },
        )
        .collect();
    sources.sort_by_key(|source| (source.cpu, std::cmp::Reverse(source.total_ns)));
    sources
}

/// Parses one event, such as `… [008] d.h. 5789.857532: irq_noise: local_timer:236 start 5789.857529929 duration 1845 ns`
fn event(line: &str) -> Option<(CpuId, String, String, u64)> {
    let (_, rest) = line.split_once('[')?;
    let (cpu, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once(": ")?;
    let (event, rest) = rest.split_once(':')?;
    let kind = event.trim().strip_suffix("_noise")?;
    let (name, rest) = rest.split_once("start ")?;
    let (_, duration) = rest.split_once("duration ")?;
    let name = name.trim();
    // The number of the interrupt or thread follows the name.
    let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
    Some((
        CpuId(cpu.trim().parse().ok()?),
        kind.to_owned(),
        name.to_owned(),
        duration.split_whitespace().next()?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    const TRACE: &str = "# tracer: osnoise\n\
        qw-jitter-8-961 [008] d.h. 5789.857532: irq_noise: local_timer:236 start 5789.857529929 duration 1845 ns\n\
        qw-jitter-8-961 [008] dNh. 5789.858408: irq_noise: local_timer:236 start 5789.858404871 duration 2848 ns\n\
        migration/8-54 [008] d... 5789.858413: thread_noise: migration/8:54 start 5789.858409300 duration 3068 ns\n\
        qw-jitter-8-961 [008] d... 5789.858413: thread_noise: qw-jitter-8:961 start 5789.8 duration 9999999 ns\n\
        x-1 [001] d... 5789.858413: nmi_noise: start 5789.8 duration 7 ns\n\
        x-1 [001] d... 5789.858413: sample_threshold: start 5789.8 duration 8812 ns interferences 2\n";

    #[test]
    fn events_add_up_by_their_source() {
        let reported: Vec<String> = sources(TRACE)
            .iter()
            .map(|one| {
                let (cpu, kind, name) = (one.cpu, &one.kind, &one.name);
                format!(
                    "{cpu} {kind} {name} {} {} {}",
                    one.count, one.total_ns, one.longest_ns
                )
            })
            .collect();
        assert_eq!(
            reported,
            [
                "1 nmi  1 7 7",
                "8 irq local_timer 2 4693 2848",
                "8 thread migration/8 1 3068 3068"
            ]
        );
    }

    #[test]
    fn durations_that_exceed_their_sum_saturate() {
        let line = |duration: u64| {
            format!("x-1 [001] d... 1.0: nmi_noise: start 1.0 duration {duration} ns\n")
        };
        let found = sources(&(line(u64::MAX) + &line(7)));
        assert_eq!((found[0].count, found[0].total_ns), (2, u64::MAX));
    }

    #[test]
    fn a_kernel_without_the_osnoise_tracer_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let cpus = "1".parse().unwrap();
        let why = Tracer::start(root.path(), &cpus).unwrap_err();
        assert!(why.contains("not mounted"), "{why}");
        let place = root.path().join(PLACES[0]);
        fs::create_dir_all(place.join("osnoise")).unwrap();
        fs::write(place.join("available_tracers"), "function nop\n").unwrap();
        let why = Tracer::start(root.path(), &cpus).unwrap_err();
        assert!(why.contains("CONFIG_OSNOISE_TRACER"), "{why}");
    }

    #[test]
    fn the_tracer_restores_the_files_that_it_changes() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join(PLACES[0]);
        let instance = place.join(INSTANCE);
        fs::create_dir_all(instance.join("events/osnoise")).unwrap();
        fs::create_dir_all(place.join("osnoise")).unwrap();
        fs::write(place.join("available_tracers"), "osnoise nop\n").unwrap();
        fs::write(place.join("osnoise/options"), "OSNOISE_WORKLOAD\n").unwrap();
        fs::write(place.join("osnoise/cpus"), "0-7\n").unwrap();
        let tracer = Tracer::start(root.path(), &"1-2".parse().unwrap()).unwrap();
        let read = |file: &str| fs::read_to_string(place.join(file)).unwrap();
        assert_eq!(read("osnoise/cpus"), "1-2");
        assert_eq!(read("osnoise/options"), NO_LOAD);
        fs::write(instance.join("trace"), TRACE).unwrap();
        assert_eq!(tracer.finish().unwrap().len(), 3);
        assert_eq!(read("osnoise/cpus"), "0-7");
        assert_eq!(read("osnoise/options"), "OSNOISE_WORKLOAD");
    }

    /// Parses any text as a trace. No event is of a measuring thread, and none is longer than all of its kind.
    fn fuzz_osnoise(octets: &[u8]) -> bool {
        let found = sources(&String::from_utf8_lossy(octets));
        for source in &found {
            assert!(source.count > 0 && source.longest_ns <= source.total_ns);
            assert!(!source.name.starts_with(THREAD));
        }
        planted("host-osnoise", || {
            found
                .iter()
                .any(|source| source.count > 1 && source.cpu == CpuId(77))
        });
        !found.is_empty()
    }

    #[test]
    fn fuzz_traces() {
        check(env!("CARGO_MANIFEST_DIR"), "host-osnoise", fuzz_osnoise);
    }
}
