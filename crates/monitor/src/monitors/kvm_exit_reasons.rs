// SPDX-License-Identifier: Apache-2.0
//! Exits of virtual CPUs by reason, from the tracepoint `kvm:kvm_exit` (arch/x86/kvm/trace.h), if the host has KVM and tracefs is mounted
//! and readable. The kernel counts all exits of a virtual CPU, and writes a sample of them with their reasons to a buffer, which is read
//! after the trial. Nothing is read while frames are forwarded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use perf_event::events::Tracepoint;
use perf_event::{Builder, SampleFlag, Sampler};
use serde::{Deserialize, Serialize};

use super::perf_events::{Running, reason};
use super::system_call_counts::{count_tracepoint, number, tracepoints_with};
use crate::files::text;
use crate::monitor::{Offer, Unavailable};

/// Name of the monitor.
const NAME: &str = "kvm_exit_reasons";
const TRACEPOINT: &str = "kvm/kvm_exit";
/// Most virtual CPUs whose exits are sampled. Each has a buffer.
const THREADS_MAX: usize = 32;
/// Samples of a virtual CPU per second, which the kernel keeps to on average.
const SAMPLES_HZ: u64 = 100;
/// Size of a buffer, octets: that of samples of some 100 s. Later ones are left out.
const BUFFER_OCTETS: usize = 1 << 20;
/// Most records of a buffer: no record has less than 8 octets.
const RECORDS_MAX: usize = BUFFER_OCTETS / 8;
/// `PERF_RECORD_SAMPLE` (linux/perf_event.h).
const SAMPLE: u32 = 9;

/// Exits of one virtual CPU during a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReasons {
    /// Process ID of the hypervisor.
    pub pid: u32,
    /// Thread ID of the virtual CPU.
    pub tid: i32,
    /// Number of exits.
    pub exits: u64,
    /// Number of exits by reason, estimated from the samples. The names are those of the kernel: capitals for Intel (VMX), small letters
    /// for AMD (SVM).
    pub reasons: BTreeMap<String, u64>,
    /// Number of samples.
    pub samples: u64,
}

/// Samples of a tracepoint, as a trait so that tests have others than those of this machine.
trait Samples: Send {
    /// Ends sampling, and calls a function with the contents of each sample: its period, and the octets of the tracepoint
    /// (perf_event_open(2), `PERF_SAMPLE_PERIOD` and `PERF_SAMPLE_RAW`).
    fn stop(&mut self, each: &mut dyn FnMut(Cow<'_, [u8]>));
}

impl Samples for Sampler {
    fn stop(&mut self, each: &mut dyn FnMut(Cow<'_, [u8]>)) {
        // A sampler that goes on has no more than fit into its buffer.
        let _ = self.disable();
        for _ in 0..RECORDS_MAX {
            let Some(record) = self.next_record() else {
                return;
            };
            if record.ty() == SAMPLE {
                each(record.to_contiguous());
            }
        }
    }
}

/// Counter and sampler of a tracepoint.
type Pair = (Box<dyn Running>, Box<dyn Samples>);

/// Starts both for a thread. The tracepoint is given by its number.
type Start<'a> = &'a dyn Fn(i32, u64) -> io::Result<Pair>;

fn start(tid: i32, id: u64) -> io::Result<Pair> {
    // A kernel that limits the rate of samples stops their event for a moment, so that another one counts.
    let counter = count_tracepoint(tid, id)?;
    let mut builder = Builder::new(Tracepoint::with_id(id));
    builder
        .observe_pid(tid)
        .any_cpu()
        .include_kernel()
        .include_hv()
        .sample_frequency(SAMPLES_HZ)
        .sample(SampleFlag::PERIOD | SampleFlag::RAW);
    let mut sampler = builder.build()?.sampled(BUFFER_OCTETS)?;
    sampler.enable()?;
    let samples: Box<dyn Samples> = Box::new(sampler);
    Ok((counter, samples))
}

/// Places of the fields in the octets of a tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    reason: usize,
    isa: usize,
}

impl Fields {
    /// Reads the places from the file `format` of the tracepoint.
    fn of(format: &str) -> Option<Self> {
        Some(Self {
            reason: offset(format, "exit_reason")?,
            isa: offset(format, "isa")?,
        })
    }

    /// Returns how many exits a sample stands for, and their reason.
    fn read(self, sample: &[u8]) -> Option<(u64, String)> {
        let (period, rest) = sample.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<4>()?;
        let octets = rest.get(..usize::try_from(u32::from_ne_bytes(*size)).ok()?)?;
        let word = |at: usize| {
            let word = octets.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_ne_bytes(*word))
        };
        let name = name(word(self.isa)?, word(self.reason)?);
        Some((u64::from_ne_bytes(*period), name))
    }
}

/// Returns the place of a field of four octets, or of eight, whose lower half is first on x86. A line of the format is
/// `field:unsigned int exit_reason; offset:8; size:4; signed:0;`.
fn offset(format: &str, field: &str) -> Option<usize> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';');
        let declared = parts.next()?.split_whitespace().next_back()?;
        let mut number = |key: &str| {
            parts
                .next()?
                .trim()
                .strip_prefix(key)?
                .parse::<usize>()
                .ok()
        };
        let offset = number("offset:")?;
        let size = number("size:")?;
        (declared == field && [4, 8].contains(&size)).then_some(offset)
    })
}

/// Virtualization of Intel and of AMD (`KVM_ISA_VMX` and `KVM_ISA_SVM`, arch/x86/kvm/trace.h).
const VMX: u32 = 1;
const SVM: u32 = 2;
/// Part of a reason of VMX that is its number (Intel SDM, volume 3, "Basic VM-Exit Information").
const VMX_NUMBER: u32 = 0xffff;

/// Common reasons of VMX (arch/x86/include/uapi/asm/vmx.h).
const VMX_REASONS: &[(u32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (10, "CPUID"),
    (12, "HLT"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (36, "MWAIT_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (52, "PREEMPTION_TIMER"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
];

/// Common reasons of SVM (arch/x86/include/uapi/asm/svm.h).
const SVM_REASONS: &[(u32, &str)] = &[
    (0x060, "interrupt"),
    (0x061, "nmi"),
    (0x064, "vintr"),
    (0x06e, "rdtsc"),
    (0x06f, "rdpmc"),
    (0x072, "cpuid"),
    (0x074, "iret"),
    (0x077, "pause"),
    (0x078, "hlt"),
    (0x079, "invlpg"),
    (0x07b, "io"),
    (0x07c, "msr"),
    (0x081, "hypercall"),
    (0x087, "rdtscp"),
    (0x089, "wbinvd"),
    (0x08b, "mwait"),
    (0x08d, "xsetbv"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
];

/// Returns the name of a reason: its number, if it is none of the common ones.
fn name(isa: u32, reason: u32) -> String {
    let (known, number): (&[(u32, &str)], u32) = match isa {
        VMX => (VMX_REASONS, reason & VMX_NUMBER),
        SVM => (SVM_REASONS, reason),
        _ => (&[], reason),
    };
    let found = known.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// Tracepoint of exits: its number, and the places of its fields.
fn tracepoint(root: &Path) -> Result<(u64, Fields), Unavailable> {
    let directory = tracepoints_with(root, TRACEPOINT).ok_or_else(|| {
        Unavailable(
            "the kernel has no KVM (no tracepoint kvm:kvm_exit), or tracefs is not mounted or readable".to_owned(),
        )
    })?;
    let format = text(&directory.join(TRACEPOINT).join("format"));
    let fields = format.and_then(|format| Fields::of(&format));
    let fields = fields.ok_or_else(|| {
        Unavailable(
            "the tracepoint kvm:kvm_exit of this architecture has no exit_reason".to_owned(),
        )
    })?;
    Ok((number(&directory, TRACEPOINT)?, fields))
}

/// Returns whether this machine samples exits: those of this thread, which has none.
#[must_use]
pub fn exit_reason_offer(root: &Path) -> Offer {
    offer_by(root, &start)
}

fn offer_by(root: &Path, start: Start<'_>) -> Offer {
    let own = tracepoint(root).and_then(|(id, _)| {
        let started = start(0, id).map(|_| ());
        started.map_err(|error| Unavailable(reason(&error)))
    });
    Offer {
        monitor: NAME.to_owned(),
        unavailable: own.err().map(|reason| reason.0),
    }
}

/// Counter and sampler of one virtual CPU.
struct SampledThread {
    pid: u32,
    tid: i32,
    counter: Box<dyn Running>,
    samples: Box<dyn Samples>,
}

impl SampledThread {
    fn stop(&mut self, fields: Fields) -> ExitReasons {
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        let mut samples: u64 = 0;
        self.samples.stop(&mut |sample: Cow<'_, [u8]>| {
            if let Some((period, name)) = fields.read(&sample) {
                let weight = weights.entry(name).or_default();
                *weight = weight.saturating_add(period);
                samples = samples.saturating_add(1);
            }
        });
        // A counter that cannot be read has counted nothing.
        let exits = self.counter.read().map_or(0, |reading| reading.count);
        ExitReasons {
            pid: self.pid,
            tid: self.tid,
            exits,
            reasons: shares(&weights, exits),
            samples,
        }
    }
}

/// Divides a number of exits by the weights of reasons. Reasons with less than half an exit are left out.
fn shares(weights: &BTreeMap<String, u64>, exits: u64) -> BTreeMap<String, u64> {
    let sum: u128 = weights.values().map(|weight| u128::from(*weight)).sum();
    let share = |(name, weight): (&String, &u64)| {
        // A product of two `u64` fits. The half of the sum exceeds the range with 2^64 weights only.
        let product = u128::from(exits).saturating_mul(u128::from(*weight));
        let part = product.saturating_add(sum / 2);
        let count = u64::try_from(part.checked_div(sum)?).ok()?;
        (count > 0).then(|| (name.clone(), count))
    };
    weights.iter().filter_map(share).collect()
}

/// Samplers of the exits of several virtual CPUs, which run until they are dropped.
pub struct ExitSampler {
    threads: Vec<SampledThread>,
    fields: Fields,
}

impl ExitSampler {
    /// Starts to sample the exits of virtual CPUs, each given by process and thread ID. The tracepoints are listed below `root`.
    ///
    /// # Errors
    /// [`Unavailable`]: there are no virtual CPUs or too many, the kernel has no KVM, tracefs is not readable, or the kernel refuses.
    pub fn start(root: &Path, threads: &[(u32, i32)]) -> Result<Self, Unavailable> {
        Self::start_by(root, threads, &start)
    }

    fn start_by(
        root: &Path,
        threads: &[(u32, i32)],
        start: Start<'_>,
    ) -> Result<Self, Unavailable> {
        if threads.is_empty() {
            return Err(Unavailable("there is no virtual CPU".to_owned()));
        }
        if threads.len() > THREADS_MAX {
            return Err(Unavailable(format!(
                "there are more than {THREADS_MAX} virtual CPUs"
            )));
        }
        let (id, fields) = tracepoint(root)?;
        let sampled = |(pid, tid): &(u32, i32)| -> Result<SampledThread, Unavailable> {
            let started = start(*tid, id);
            let (counter, samples) = started.map_err(|error| Unavailable(reason(&error)))?;
            Ok(SampledThread {
                pid: *pid,
                tid: *tid,
                counter,
                samples,
            })
        };
        Ok(Self {
            threads: threads.iter().map(sampled).collect::<Result<_, _>>()?,
            fields,
        })
    }

    /// Stops sampling and returns the exits of each virtual CPU. The tracepoint stays open until the end of this value: closing it takes
    /// some milliseconds.
    pub fn stop(&mut self) -> Vec<ExitReasons> {
        let fields = self.fields;
        let threads = self.threads.iter_mut();
        threads.map(|thread| thread.stop(fields)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::super::perf_events::Reading;
    use super::*;
    use crate::tests::Machine;

    const EVENTS: &str = "sys/kernel/tracing/events";
    /// The beginning of the file, with fields of arch/x86/kvm/trace.h.
    const FORMAT: &str = "name: kvm_exit\nID: 1812\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:unsigned long guest_rip;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;
\tfield:u64 info1;\toffset:32;\tsize:8;\tsigned:0;

print fmt: \"vcpu %u reason %s\"
";

    struct Fixed(u64);

    impl Running for Fixed {
        fn read(&mut self) -> io::Result<Reading> {
            Ok(Reading {
                count: self.0,
                enabled_ns: 1,
                running_ns: 1,
            })
        }
    }

    struct Recorded(Vec<Vec<u8>>);

    impl Samples for Recorded {
        fn stop(&mut self, each: &mut dyn FnMut(Cow<'_, [u8]>)) {
            for sample in &self.0 {
                each(Cow::Borrowed(&sample[..]));
            }
        }
    }

    /// Returns a sample as the kernel writes it, with padding.
    fn sample(period: u64, isa: u32, reason: u32) -> Vec<u8> {
        let mut octets = [0; 44];
        octets[8..12].copy_from_slice(&reason.to_ne_bytes());
        octets[24..28].copy_from_slice(&isa.to_ne_bytes());
        let size = 44_u32.to_ne_bytes();
        [&period.to_ne_bytes()[..], &size[..], &octets[..]].concat()
    }

    fn pair(exits: u64, samples: Vec<Vec<u8>>) -> Pair {
        let samples: Box<dyn Samples> = Box::new(Recorded(samples));
        (Box::new(Fixed(exits)), samples)
    }

    fn machine() -> Machine {
        Machine::default()
            .with(&format!("{EVENTS}/{TRACEPOINT}/id"), "1812\n")
            .with(&format!("{EVENTS}/{TRACEPOINT}/format"), FORMAT)
    }

    #[test]
    fn exits_are_estimated_by_reason_from_samples_with_their_periods() {
        let start = |tid: i32, id: u64| -> io::Result<Pair> {
            assert_eq!(id, 1812);
            let samples = match tid {
                8 => vec![
                    // Intel: 10 exits of HLT, 20 and 5 of an EPT misconfiguration, 5 of a reason without a name here.
                    sample(10, VMX, 12),
                    sample(20, VMX, 49),
                    // The upper half is no part of the number.
                    sample(5, VMX, 0x8000_0000 | 49),
                    sample(5, VMX, 70),
                    // Not a whole sample.
                    vec![1, 2, 3],
                    sample(9, VMX, 12)[..20].to_vec(),
                ],
                _ => vec![sample(1, SVM, 0x78), sample(3, SVM, 0x400)],
            };
            Ok(pair(400, samples))
        };
        let recorded = machine();
        let started = ExitSampler::start_by(recorded.root(), &[(7, 8), (7, 9)], &start);
        let found = started.ok().unwrap().stop();
        let reasons = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
            let all = all.iter();
            all.map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let first = ExitReasons {
            pid: 7,
            tid: 8,
            exits: 400,
            reasons: reasons(&[("70", 50), ("EPT_MISCONFIG", 250), ("HLT", 100)]),
            samples: 4,
        };
        assert_eq!(found[0], first);
        let second = reasons(&[("hlt", 100), ("npf", 300)]);
        assert_eq!((found[1].tid, &found[1].reasons), (9, &second));
    }

    #[test]
    fn a_virtual_cpu_without_samples_has_the_number_of_its_exits() {
        let start = |_: i32, _: u64| -> io::Result<Pair> { Ok(pair(3, Vec::new())) };
        let recorded = machine();
        let started = ExitSampler::start_by(recorded.root(), &[(7, 8)], &start);
        let found = started.ok().unwrap().stop();
        assert_eq!((found[0].exits, found[0].samples), (3, 0));
        assert!(found[0].reasons.is_empty());
    }

    #[test]
    fn a_machine_that_samples_no_exits_has_a_reason() {
        let denied =
            |_: i32, _: u64| -> io::Result<Pair> { Err(ErrorKind::PermissionDenied.into()) };
        let start = |root: &Path, threads: &[(u32, i32)]| {
            let started = ExitSampler::start_by(root, threads, &denied);
            started.err().unwrap().0
        };
        let recorded = machine();
        assert!(start(recorded.root(), &[(7, 8)]).contains("CAP_PERFMON"));
        assert!(start(recorded.root(), &[]).contains("no virtual CPU"));
        let many: Vec<(u32, i32)> = (0..33).map(|tid| (7, tid)).collect();
        assert!(start(recorded.root(), &many).contains("more than 32"));
        let none = Machine::default();
        assert!(start(none.root(), &[(7, 8)]).contains("no KVM"));
        // Arm has other fields.
        let other = FORMAT.replace("exit_reason", "esr_ec");
        let other = machine().with(&format!("{EVENTS}/{TRACEPOINT}/format"), &other);
        assert!(start(other.root(), &[(7, 8)]).contains("no exit_reason"));
        let offered = offer_by(recorded.root(), &denied);
        assert!(offered.unavailable.unwrap().contains("CAP_PERFMON"));
        // This machine samples them or explains why not.
        let own = exit_reason_offer(Path::new("/"));
        assert_ne!(own.unavailable.as_deref(), Some(""));
    }
}
