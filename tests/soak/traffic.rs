// SPDX-License-Identifier: Apache-2.0
//! Checked traffic between two ports that do not change.

use std::path::Path;
use std::time::Duration;

use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri};
use quietwire_tester::{
    FrameAccess, FrameSizes, LOW_RATE_PPS, LatencyStart, Limits, Preparation, RECEIVE_RING_SIZE,
    Tester, TesterIdle, TesterOptions, Trial, TrialResult,
};

use crate::GROWTH_ENDS;

/// Frames per second, both ways together.
pub(crate) const RATE_PPS: f64 = 10_000.0;
/// Frames in a ring of the tester's ports, which is full once the switch has received nothing from it for 205 ms.
const RING: u16 = 1024;
/// The same for a run shorter than [`GROWTH_ENDS`], in 1.6 s: a machine that runs other tests may take the CPU from the switch for longer
/// than 205 ms, and no change of the switch may lose a frame all the same.
const RING_SHORT: u16 = 8192;
/// Longest trial: the highest percentile requires 100,000 frames.
const TRIAL: Duration = Duration::from_secs(20);
/// Priority over everything else on the tester's CPU, which it leaves between bursts if the machine has two CPUs.
const PRIORITY: u8 = 50;

/// The tester and its trial.
pub(crate) struct Traffic {
    tester: Tester,
    trial: Trial,
    // Declared after the tester, which uses it.
    _eal: Eal,
}

impl Traffic {
    /// Connects to ports `a` and `b` of the switch. Several trials fit into `duration`.
    pub(crate) fn open(directory: &Path, duration: Duration) -> Self {
        let eal = Eal::start(&EalOptions {
            control_cpus: vec![0],
            memory_mib: 512,
            huge_pages: HugePages::Never,
            pci_devices: Vec::new(),
            file_prefix: format!("soak-{}", std::process::id()),
        })
        .unwrap();
        let port = |name: &str| {
            let uri: PortUri = format!("memif:{}/{name}.sock?role=client", directory.display())
                .parse()
                .unwrap();
            (name.to_owned(), uri)
        };
        // A tester that polls requires a CPU that nothing else uses: CPU 1 is the switch's.
        let cpus = std::thread::available_parallelism().unwrap().get();
        let (cpu, idle) = if cpus > 2 {
            (2, TesterIdle::Poll)
        } else {
            (0, TesterIdle::Sleep)
        };
        let ring_size = if duration < GROWTH_ENDS {
            RING_SHORT
        } else {
            RING
        };
        let options = TesterOptions {
            cpus: vec![cpu],
            realtime_priority: Some(PRIORITY),
            ring_size,
            receive_ring_size: RECEIVE_RING_SIZE.max(ring_size),
            frame_size_max: 1518,
            limits: Limits::default(),
            preparation: Preparation::default(),
            idle,
            frame_access: FrameAccess::default(),
        };
        let mut tester = Tester::open(&eal, "soak", &[port("a"), port("b")], options).unwrap();
        // The next trial begins when all frames have come; the drain is for a switch that is late.
        tester.set_ends_when_complete(true);
        tester.wait_for_links(Duration::from_secs(10)).unwrap();
        let trial = Trial {
            warm_up_s: 0.1,
            drain_s: 1.0,
            flows: 8,
            low_rate_pps: LOW_RATE_PPS,
            // A tester that sleeps sends some frames late. Since the frames were due, the tail includes that.
            latency_start: LatencyStart::Due,
            ..Trial::new(
                RATE_PPS,
                TRIAL.min(duration / 8).as_secs_f64(),
                FrameSizes::Fixed(64),
            )
        };
        Self {
            tester,
            trial,
            _eal: eal,
        }
    }

    /// Runs one trial.
    pub(crate) fn run(&mut self) -> TrialResult {
        self.tester.run(&self.trial).unwrap()
    }
}
